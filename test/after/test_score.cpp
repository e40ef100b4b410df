/*
test_score.cpp -- the command score against answers of lm-evaluation-harness
(dev/peers/check_score.py --save): two tiny models, one without BOS and with learned positions,
one with BOS and grouped heads; every log-likelihood of every item of six tasks, and every metric.
The requests of an item share the computation of what they begin with: a build of the reference
and another order of records must say the same. And files that are no tasks are refused by line.
*/
#include "../check.h"

static const char* const TRAIN_SINK = "OMP_NUM_THREADS=1 build/cpu/train_sink";
static const std::string FIXTURES = "test/after/score/", SCRATCH = "build/test/after/score/";
static const std::vector<std::string> TASKS = { "hellaswag", "arc_easy", "piqa", "winogrande",
                                                "lambada_openai", "wikitext" };

static std::vector<Json> json_lines(const std::string& path) {
    std::vector<Json> all;
    for (auto& line : split(file_read(path), '\n')) {
        Json j;
        std::string error;
        if (line.empty()) { continue; }
        CHECK(json_parse(line.data(), line.size(), &j, &error), "%s: %s", path.c_str(),
              error.c_str());
        all.push_back(j);
    }
    return all;
}

static Ran score(const std::string& model, const std::string& tasks,
                 const std::string& flags = "") {
    return check_run(std::string(TRAIN_SINK) + " score " + FIXTURES + model + " --task " + tasks +
                     flags_once(" --json " + SCRATCH + "score.json --items " + SCRATCH +
                                "items.jsonl " + flags));
}

static void near(double got, double want, const std::string& what) {
    check_near(got, want, 2e-5 * std::max(1.0, fabs(want)), "%s", what.c_str());
}

// the log-likelihoods of a task's items, and its metrics, are the harness'
static void compare(const std::string& name, const Json& want, const std::vector<Json>& items,
                    const Json& got) {
    const Json& theirs = *want.get("loglik");
    if (!CHECK(items.size() == theirs.items.size(), "%s: got %zu items", name.c_str(),
               items.size())) {
        return;
    }
    for (size_t i = 0; i < items.size(); i++) {
        const std::vector<Json>&a = items[i].get("loglik")->items, &b = theirs.items[i].items;
        if (!CHECK(a.size() == b.size() && !b.empty(), "%s item %zu: got %zu numbers", name.c_str(),
                   i, a.size())) {
            continue;
        }
        for (size_t k = 0; k < a.size(); k++) {
            near(a[k].number, b[k].number, name + strf(", item %zu, %zu", i, k));
        }
    }
    int metrics = 0;
    for (auto& m : want.fields) {
        // by lot, in the harness
        const bool drawn = ends_with(m.first, "_stderr") && !starts_with(m.first, "acc");
        if (m.first == "loglik" || drawn || m.second.type != Json::NUMBER) { continue; }
        const Json* ours = got.get(m.first.c_str());
        metrics++;
        if (CHECK(ours, "%s: has no %s", name.c_str(), m.first.c_str())) {
            near(ours->number, m.second.number, name + ", " + m.first);
        }
    }
    CHECK(metrics >= 2, "%s: only %d metrics were compared", name.c_str(), metrics);
}

static void model_check(const std::string& model) {
    std::string all;
    for (auto& task : TASKS) { all += (all.empty() ? "" : ",") + FIXTURES + task + ".jsonl"; }
    const Ran r = score(model, all);
    if (!check_ended(r, 0, model)) { return; }
    const Json answers = json_of_file(FIXTURES + model + "/answers.json"),
               ours = json_of_file(SCRATCH + "score.json");
    const std::vector<Json> items = json_lines(SCRATCH + "items.jsonl");
    for (size_t k = 0; k < TASKS.size(); k++) {
        std::vector<Json> own;
        for (auto& item : items) {
            if (item.get("task")->string == FIXTURES + TASKS[k] + ".jsonl") { own.push_back(item); }
        }
        compare(model + " " + TASKS[k], *answers.get(TASKS[k].c_str()), own,
                ours.get("tasks")->items[k]);
    }
    CHECK(r.says("acc_norm") && r.says("bits_per_byte") && r.says("+-"), "%s: says %s",
          model.c_str(), r.out.c_str());
}

// one record
static std::string task_of(const std::string& record) {
    const std::string path = SCRATCH + "task.jsonl";
    file_write(path, record + "\n");
    return path;
}

static double loglik(const std::string& model, const std::string& record,
                     const std::string& flags = "") {
    const Ran r = score(model, task_of(record), flags);
    if (!check_ended(r, 0, record)) {
        return NAN;
    }
    return json_lines(SCRATCH + "items.jsonl")[0].get("loglik")->items[0].number;
}

static void refused(const std::string& record, const std::string& says,
                    const std::string& flags = "") {
    const Ran r = score("gpt2", task_of(record), flags);
    check_ended(Died{ r.code, r.err }, EXIT_USER, record + " " + flags, says);
}

// a blank that is in the data is not doubled; a delimiter that is given is taken as it is
static void blanks_check() {
    const double one =
        loglik("gpt2", "{\"context\": \"the door of\", \"continuation\": \"the house\"}");
    for (const char* same : { "{\"context\": \"the door of\", \"continuation\": \" the house\"}",
                              "{\"context\": \"the door of \", \"continuation\": \"the house\"}",
                              "{\"context\": \"the door of\", \"continuation\": \"the house\", "
                              "\"delimiter\": \" \"}" }) {
        near(loglik("gpt2", same), one, same);
    }
    const double two = loglik("gpt2", "{\"context\": \"the door of\", \"continuation\": "
                                      "\" the house\", \"delimiter\": \" \"}");
    CHECK(fabs(two - one) > 1e-3, "a delimiter that is given: %g and %g", one, two);
    for (const char* space : { "\\n", "\\t", "\\u00a0" }) {
        const std::string record =
            std::string("{\"context\": \"the door of\", \"continuation\": \"") + space +
            "the house\"";
        near(loglik("gpt2", record + "}"), loglik("gpt2", record + ", \"delimiter\": \"\"}"),
             std::string("white space ") + space);
    }
}

// items that cannot be scored: named, counted and left out; the others are scored, and the exit
// status says that not all were
static void left_out_check() {
    const std::string good =
        "{\"context\": \"the door of\", \"choices\": [\"the house\", \"a river\"], "
        "\"gold\": 1}\n";
    const struct { const char *record, *why, *flags;
    } bad[] = {
        { "{\"context\": \"a\", \"choices\": [\"\", \"\"], \"gold\": 0}", "a choice is empty", "" },
        { "{\"context\": \"a\", \"choices\": [\"b\", \"\"], \"gold\": 0}", "a choice is empty",
          "" },
        { "{\"context\": \"a\", \"choices\": [\"b\", \"b\"], \"gold\": 0}",
          "another answer is the same", "" },
        { "{\"context\": \"a\", \"choices\": [\"b\", \" b\"], \"gold\": 1}",
          "another answer is the same", "" },
        { "{\"context\": \"a\", \"choices\": [\"b\", \"\"], \"gold\": 0, \"delimiter\": \"\"}",
          "a choice is empty", "" },
        { "{\"context\": \"a\", \"choices\": [\"b\", \"the river and the door of the house by the "
          "river and the house\"], \"gold\": 0}",
          "the model sees 6 at once", "--max-length 6" },
    };
    for (auto& b : bad) {
        const double alone = loglik("gpt2", good, b.flags);
        const Ran r = score("gpt2", task_of(good + b.record + "\n" + good), b.flags);
        check_ended(r, EXIT_USER, b.record, "task.jsonl:2: ", b.why,
                    "1 of 3 items could not be scored", "2 items");
        const std::vector<Json> items = json_lines(SCRATCH + "items.jsonl");
        if (!CHECK(items.size() == 3 && items[1].get("left_out") && items[2].get("loglik"),
                   "%s: %zu items", b.record, items.size())) {
            continue;
        }
        near(items[2].get("loglik")->items[0].number, alone, b.record);
        CHECK(items[2].get("item")->number == 2, "the number of an item is its record's");
        const Json task = json_of_file(SCRATCH + "score.json").get("tasks")->items[0];
        CHECK(task.get("n")->number == 2 && task.get("left_out")->number == 1, "counts of %s",
              b.record);
        CHECK(task.get("acc")->number == 0 || task.get("acc")->number == 1,
              "%s: acc is of the two others", b.record);
    }
    refused("{\"text\": \"\"}", "task.jsonl:1: the text has no token");
    // with a delimiter of its own or not, after a context or none: nothing is nothing
    for (const char* more : { "", ", \"delimiter\": \"\"", ", \"delimiter\": \" \"" }) {
        for (const char* context : { "", "a", " " }) {
            refused(strf("{\"context\": \"%s\", \"continuation\": \"\"%s}", context, more),
                    "the continuation is empty");
        }
        refused(strf("{\"contexts\": [\"\", \"a\"], \"continuation\": \"\", \"gold\": 0%s}", more),
                "the continuation is empty");
    }
    refused("{\"context\": \"a\", \"continuation\": \"the river and the door\"}",
            "the model sees 2 at once", "--max-length 2");
    // a duplicate of a wrong answer changes nothing
    const Ran wrong = score("gpt2", task_of("{\"context\": \"the door of\", \"choices\": [\"a\", "
                                            "\"b\", \"b\"], \"gold\": 0}"));
    check_ended(wrong, 0, "");
}

// White space at the end of a context belongs to the continuation, and an empty context is BOS.
static void contexts_check() {
    const double plain = loglik("llama",
                                "{\"context\": \"the door of\", \"continuation\": \"the house\"}");
    near(loglik("llama", "{\"context\": \"the door of \", \"continuation\": \"the house\", "
                         "\"delimiter\": \"\"}"),
         plain, "a blank moved");
    near(loglik("llama", "{\"context\": \"<s>the door of\", \"continuation\": \"the house\"}",
                "--bos none"),
         loglik("llama", "{\"context\": \"<s>the door of\", \"continuation\": \"the house\"}"),
         "BOS in the text");
    CHECK(fabs(loglik("llama", "{\"context\": \"the door of\", \"continuation\": \"the house\"}",
                      "--bos none") -
               plain) > 1e-4,
          "--bos none changes nothing");
    near(loglik("llama",
                "{\"context\": \"\", \"continuation\": \"the house\", \"delimiter\": \"\"}"),
         loglik("llama", "{\"text\": \"the house\"}", "--bos none"), "an empty context is BOS");
}

// A window of the text, and words that are counted.
static void window_check() {
    const double whole = loglik("gpt2", "{\"text\": \"he said that it was by the river\"}");
    CHECK(fabs(
              loglik("gpt2", "{\"text\": \"he said that it was by the river\"}", "--max-length 3") -
              whole) > 1e-3,
          "--max-length 3 changes nothing");
    const Json counted = json_of_file(SCRATCH + "score.json").get("tasks")->items[0];
    near(log(counted.get("word_perplexity")->number) * 8,
         log(counted.get("byte_perplexity")->number) * 32, "8 words, 32 bytes");
}

// Broken records.
static void records_check() {
    refused("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 2}",
            "task.jsonl:1: gold: wanted a whole number, 0 to 1");
    refused("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": \"1\"}",
            "task.jsonl:1: gold: wanted");
    refused("{\"context\": \"a\", \"choices\": [], \"gold\": 0}",
            "task.jsonl:1: choices: wanted a list of texts");
    refused("{\"context\": 7, \"continuation\": \"b\"}", "task.jsonl:1: context: wanted text");
    refused("{\"context\": \"a\", \"answer\": \"b\"}",
            "task.jsonl:1: got the keys context, answer");
    refused("{\"context\": \"a\", \"continuation\": \"b\"}\n{\"text\": \"c\"}",
            "task.jsonl:2: a record of another form");
    refused("{\"context\": \"a\"", "task.jsonl:1: ");
    refused("{\"text\": \"caf\xe9\"}", "task.jsonl:1: bytes that are not UTF-8");
    refused("", "no records");
}

// Flags that contradict the model or each other.
static void flags_check() {
    refused("{\"text\": \"a\"}", "at most the 72 positions", "--max-length 73");
    refused("{\"text\": \"a\"}", "an id below", "--bos 99999999");
    // a task is not what is written, nor one file both outputs
    for (const char* where : { "task.jsonl", "./task.jsonl", "./new.json" }) {
        refused("{\"text\": \"a\"}", "already an input or output",
                "--json " + SCRATCH + "new.json --items " + SCRATCH + where);
    }
    const Ran nothing = check_run(std::string(TRAIN_SINK) + " score " + FIXTURES + "gpt2");
    check_ended(nothing, EXIT_USER, "without --task", "--task: wanted a .jsonl");
    const Ran gone = score("gpt2", "nowhere.jsonl");
    check_ended(gone, EXIT_USER, "a file that is not there", "nowhere.jsonl");
}

int main() {
    make_dirs(SCRATCH);
    CASE("gpt2") { model_check("gpt2"); }
    CASE("llama") { model_check("llama"); }
    CASE("contexts") { contexts_check(); }
    CASE("window") { window_check(); }
    CASE("records") { records_check(); }
    CASE("blanks") { blanks_check(); }
    CASE("left_out") { left_out_check(); }
    CASE("flags") { flags_check(); }
    return check_done();
}
