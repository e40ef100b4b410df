/*
after/score.cpp -- the command score: how likely a model finds given texts. Multiple choice
(HellaSwag, ARC, PIQA, WinoGrande), the last word of a passage (LAMBADA), and whole texts
(WikiText). The numbers are those of lm-evaluation-harness 0.4.13, item by item
(dev/peers/check_score.py). What a task file holds: score_task.h.

An item that cannot be scored, such as a continuation without a token of its own, is named, counted
and left out.
*/
#include <map>
#include "../core/kv_cache.h"
#include "../dataloader.h"
#include "../log.h"
#include "../run/process.h"
#include "../run/run_dir.h"
#include "../core/train_sink.h"
#include "../run/commands.h"
#include "../run/data_flags.h"
#include "../run/generate.h"
#include "../run/open_model.h"
#include "../run/probe_data.h"
#include "score_task.h"
#include "sequences.h"

// ---- through the model

// Row `row` of what lm_head reads predicts `token` of the request.
struct ScoreRow {
    long row;
    int token;
    ScoreRequest* request;
};

// Adds log p of every row to its request, as many rows at a time as lm_head takes. greedy: also
// finds whether each token is the likeliest.
static void score_rows(Model* m, const std::vector<ScoreRow>& heads, bool greedy) {
    const size_t C = m->arch.C;
    const size_t V = m->arch.V;
    const std::vector<real> all = copy_to_host(lm_head_input(m), rows(m) * C);
    real* logits = m->acts.logits;
    real* device = device_array<real>(m->lm_head_rows * C);      // what lm_head reads
    for (size_t first = 0; first < heads.size(); first += m->lm_head_rows) {
        const int n = std::min<size_t>(m->lm_head_rows, heads.size() - first);
        const ScoreRow* head = &heads[first];
        std::vector<real> x;
        std::vector<int> targets;
        for (int i = 0; i < n; i++) {
            const real* row = &all[head[i].row * C];
            x.insert(x.end(), row, row + C);
            targets.push_back(head[i].token);
        }
        copy_to_device(device, x);
        copy_to_device(m->targets, targets);
        if (ops::lm_head_part && !greedy) {
            cpu_model->losses(m, m->acts.losses, device, m->targets, n);
        } else {
            ops::matmul_forward(logits, device, m->params.lmw.w, m->params.lmb.w, NULL, n, C, V);
            ops::classifier(m->acts.losses, logits, m->targets, 0, m->arch.logit_cap, n, V);
        }
        const std::vector<acc> losses = copy_to_host(m->acts.losses, n);
        std::vector<real> found;
        if (greedy) { found = copy_to_host(logits, n * V); }
        for (int i = 0; i < n; i++) {
            head[i].request->loglik -= losses[i];
            if (!greedy) { continue; }
            const real* row = &found[i * V];
            const bool likeliest = std::max_element(row, row + V) - row == head[i].token;
            if (!likeliest) { head[i].request->greedy = false; }
        }
    }
    ops::device_free(device);
}

// ---- batches

// Returns how many tokens of a request are read: the last one is only predicted.
static long tokens_read(const ScoreRequest& r) { return (long)r.tokens.size() - 1; }

// Returns how many tokens all of an item's requests begin with.
static long score_common(const ScoreItem& item) {
    const std::vector<int>& a = item.requests[0].tokens;
    long n = tokens_read(item.requests[0]);
    for (auto& r : item.requests) {
        n = std::min(n, tokens_read(r));
        n = std::mismatch(a.begin(), a.begin() + n, r.tokens.begin()).first - a.begin();
    }
    return n;
}

// Adds the rows that predict the scored tokens of a request: its first `common` tokens stand in the
// rows from `root` on, the others in those from `own` on.
static void add_score_rows(ScoreRequest* r, long root, long common, long own,
                           std::vector<ScoreRow>* heads) {
    for (long k = r->from; k < (long)r->tokens.size(); k++) {
        const long before = k - 1;               // the token whose row predicts token k
        const long row = before < common ? root + before : own + before - common;
        heads->push_back({ row, r->tokens[k], r });
    }
}

// Items in one batch without padding. What the requests of an item begin with is computed once.
struct ScoreForest {
    std::vector<int> tokens;
    std::vector<Span> spans;
    std::vector<ScoreRow> heads;

    // Adds an item: a span for what its requests begin with, and one for the rest of each.
    void add(ScoreItem* item) {
        const long common = score_common(*item);
        const long root = tokens.size();
        int parent = -1;
        if (common) {
            parent = spans.size();
            spans.push_back({ (int)root, 1, (int)common, 0, -1 });
        }
        const std::vector<int>& any = item->requests[0].tokens;
        tokens.insert(tokens.end(), any.begin(), any.begin() + common);
        for (auto& r : item->requests) {
            const long own = tokens.size();
            const long n = tokens_read(r) - common;
            if (n) { spans.push_back({ (int)own, 1, (int)n, (int)common, parent }); }
            tokens.insert(tokens.end(), r.tokens.begin() + common, r.tokens.end() - 1);
            add_score_rows(&r, root, common, own, &heads);
        }
    }
};

// Scores requests of one length as a batch of whole sequences.
static void score_batch(Model* m, ScoreRequest* const* first, ScoreRequest* const* last,
                        bool greedy) {
    const long T = tokens_read(**first);
    std::vector<int> seqs;
    std::vector<ScoreRow> heads;
    for (auto r = first; r < last; r++) {
        const std::vector<int>& tokens = (*r)->tokens;
        seqs.insert(seqs.end(), tokens.begin(), tokens.end());
        add_score_rows(*r, 0, 0, (r - first) * (T + sink_rows(m)) + sink_rows(m), &heads);
    }
    model_load(m, seqs.data(), last - first, T);
    model_layers(m);
    score_rows(m, heads, greedy);
}

static void score_progress(long done, long all) {
    if (terminal_columns()) { progress_show({ strf("%ld of %ld items", done, all) }); }
}

// Scores all requests in batches of one length.
static void score_whole(Model* m, ScoreTask* task, bool greedy) {
    const size_t items = task->items.size();
    std::map<size_t, std::vector<ScoreRequest*>> by_length;
    size_t requests = 0;
    size_t done = 0;
    for (auto& item : task->items) {
        for (auto& r : item.requests) { by_length[r.tokens.size()].push_back(&r); }
        requests += item.requests.size();
    }
    for (auto& [length, all] : by_length) {
        const size_t most = std::max<size_t>(1, tokens_at_once() / length);
        for (size_t i = 0; i < all.size(); i += most) {
            const size_t n = std::min(most, all.size() - i);
            score_progress(done * items / requests, items);
            score_batch(m, &all[i], &all[i] + n, greedy);
            done += n;
        }
    }
}

// Scores all requests of the task.
static void score_run(Model* m, ScoreTask* task) {
    const bool greedy = task->form == SCORE_CONTINUATION;
    if (!forest_fits(m)) {
        score_whole(m, task, greedy);
        return;
    }
    std::vector<ScoreItem>& items = task->items;
    for (size_t i = 0; i < items.size();) {
        score_progress(i, items.size());
        ScoreForest forest;
        while (i < items.size() && (int)forest.tokens.size() < tokens_at_once()) {
            forest.add(&items[i++]);
        }
        model_load_forest(m, forest.tokens, forest.spans);
        model_layers(m);
        score_rows(m, forest.heads, greedy);
    }
}

// ---- the results

struct ScoreResult {
    std::string name;
    Mean value;                                  // and its standard error, NAN of one item
};

// Returns the request of the largest value, of equals the first.
static long score_best(const ScoreItem& item, bool by_character) {
    std::vector<double> x;
    for (size_t i = 0; i < item.requests.size(); i++) {
        double loglik = item.requests[i].loglik;
        if (by_character) { loglik /= item.characters[i]; }
        x.push_back(loglik);
    }
    return std::max_element(x.begin(), x.end()) - x.begin();
}

// Returns the log-likelihood of all requests of an item.
static double score_sum(const ScoreItem& item) {
    double sum = 0;
    for (auto& r : item.requests) { sum += r.loglik; }
    return sum;
}

// Returns sum a / sum b over the items, and the standard error of that ratio (to first order).
static Mean score_ratio(const std::vector<double>& a, const std::vector<double>& b) {
    const size_t n = a.size();
    double sum_a = 0;
    double sum_b = 0;
    for (size_t i = 0; i < n; i++) {
        sum_a += a[i];
        sum_b += b[i];
    }
    const double ratio = sum_a / sum_b;
    std::vector<double> rest;
    for (size_t i = 0; i < n; i++) { rest.push_back((a[i] - ratio * b[i]) * n / sum_b); }
    return { ratio, mean_of(rest).error };
}

// Returns exp of a mean and its standard error, to first order.
static Mean score_exp(const Mean& m) { return { exp(m.mean), exp(m.mean) * m.error }; }

// Returns the perplexities of whole texts.
static std::vector<ScoreResult> text_results(const ScoreTask& task) {
    std::vector<double> loss;
    std::vector<double> words;
    std::vector<double> bytes;
    for (auto& item : task.items) {
        loss.push_back(-score_sum(item));
        words.push_back(item.words);
        bytes.push_back(item.bytes);
    }
    const Mean by_byte = score_ratio(loss, bytes);
    return { { "word_perplexity", score_exp(score_ratio(loss, words)) },
             { "byte_perplexity", score_exp(by_byte) },
             { "bits_per_byte", { by_byte.mean / log(2), by_byte.error / log(2) } } };
}

// Returns how often a continuation is the likeliest, and its perplexity.
static std::vector<ScoreResult> continuation_results(const ScoreTask& task) {
    std::vector<double> right;
    std::vector<double> loss;
    for (auto& item : task.items) {
        right.push_back(item.requests[0].greedy);
        loss.push_back(-score_sum(item));
    }
    return { { "acc", mean_of(right) }, { "perplexity", score_exp(mean_of(loss)) } };
}

// Returns how often the right choice is the likeliest and, if choices differ in length, by
// character.
static std::vector<ScoreResult> choice_results(const ScoreTask& task) {
    std::vector<double> right;
    std::vector<double> by_character;
    for (auto& item : task.items) {
        right.push_back(score_best(item, false) == item.gold);
        by_character.push_back(score_best(item, true) == item.gold);
    }
    if (task.form != SCORE_CHOICES) { return { { "acc", mean_of(right) } }; }
    return { { "acc", mean_of(right) }, { "acc_norm", mean_of(by_character) } };
}

static std::vector<ScoreResult> score_results(const ScoreTask& task) {
    if (task.form == SCORE_TEXT) { return text_results(task); }
    if (task.form == SCORE_CONTINUATION) { return continuation_results(task); }
    return choice_results(task);
}

// Returns a line of --items for every record, in the order of the file.
static std::string score_lines(const ScoreTask& task) {
    std::map<long, JsonObject> lines;
    const auto line = [&](long number) {
        JsonObject* o = &lines[number];
        o->text("task", task.path);
        o->count("item", number);
        return o;
    };
    for (auto& left : task.left) { line(left.number)->text("left_out", left.why); }
    for (auto& item : task.items) {
        std::vector<double> loglik;
        std::vector<std::string> greedy;
        for (auto& r : item.requests) {
            loglik.push_back(r.loglik);
            greedy.push_back(json_bool(r.greedy));
        }
        if (task.form == SCORE_TEXT) { loglik = { score_sum(item) }; }
        JsonObject* o = line(item.number);
        o->array("loglik", loglik);
        if (task.form == SCORE_CONTINUATION) { o->json("greedy", json_list(greedy)); }
    }
    std::string all;
    for (auto& one : lines) { all += one.second.all() + "\n"; }
    return all;
}

// Prints a result, shares as percentages.
static void score_print(const ScoreResult& r) {
    const bool share = starts_with(r.name, "acc");
    const double by = share ? 100 : 1;
    printf("  %-16s %10.4f", r.name.c_str(), r.value.mean * by);
    if (share) { printf(" %%"); }
    if (!std::isnan(r.value.error)) { printf("  +- %.4f", r.value.error * by); }
    printf("\n");
}

// Prints the results of a task and returns them as an object.
static std::string score_report(const ScoreTask& task, const std::string& bos, double seconds) {
    const size_t n = task.items.size();
    progress_end();
    printf("%s: %zu items, bos %s, %.1f items/s", printable(task.path).c_str(), n,
           printable(bos).c_str(), n / seconds);
    if (task.cut) { printf(", %ld cut at the front to fit the model", task.cut); }
    if (!task.left.empty()) { printf(", %zu left out", task.left.size()); }
    printf("\n");
    JsonObject o;
    o.text("task", task.path);
    o.count("n", n);
    o.count("cut", task.cut);
    o.count("left_out", task.left.size());
    o.text("bos", bos);
    o.number("seconds", seconds);
    for (auto& r : score_results(task)) {
        score_print(r);
        o.number(r.name, r.value.mean);
        o.number(r.name + "_stderr", r.value.error);
    }
    return o.all();
}

// ---- the command

// Rejects at once what could only fail after the work is done. Returns the files of --task.
static std::vector<std::string> score_files(const Flags& f) {
    const auto files = names_listed(f.task);
    const char* make = "make one: python3 scripts/tasks.py --help";
    if (files.empty()) {
        die("--task: wanted a .jsonl of records, or several: A,B", make);
    }
    for (auto& path : files) {
        if (!file_exists(path)) { file_read(path, make); }
    }
    std::vector<std::string> others = files_read(f, files);
    for (auto& path : { f.json, f.items }) {
        output_check(path, others);
        others.push_back(path);
    }
    return files;
}

// Returns how this model's tokenizer reads text, as the flags want it.
static ScoreText score_how(const Flags& f, const Model& m, const Tokenizer& tok) {
    const std::string tokenizer = "tokenizer " + tok.name;
    require(f.max_length <= m.arch.T || !m.sizes.pe.learnable,
            strf("--max-length %ld", f.max_length),
            strf("at most the %d positions of the model", m.arch.T));
    if (f.max_length > m.arch.T) {
        printf("note   --max-length %ld goes beyond the %d positions of the model\n", f.max_length,
               m.arch.T);
    }
    const int prefix = score_prefix(tok);
    require(prefix >= 0, tokenizer + " has neither BOS nor EOS", "one to start a text with");
    const long longest = f.max_length ? f.max_length : m.arch.T;
    return { tok, prefix, tokenizer_decode(tok, &prefix, 1, false), longest, m.arch.V };
}

// Names the items that were left out, the first of many, and ends the program: what is printed is
// not the whole task.
static void score_left_check(const std::vector<ScoreLeft>& left, long all) {
    if (left.empty()) { return; }
    const size_t most = 20;
    for (size_t i = 0; i < left.size() && i < most; i++) {
        fprintf(stderr, "left out %s\n", printable(left[i].why).c_str());
    }
    if (left.size() > most) { fprintf(stderr, "and %zu more\n", left.size() - most); }
    die(strf("%zu of %ld items could not be scored and were left out", left.size(), all),
        "the results cover the other items; fix these records to score all");
}

// Dies if a score is not finite.
static void scores_check(Model* m, const ScoreTask& task) {
    for (auto& item : task.items) {
        if (!std::isfinite(score_sum(item))) { die_not_finite(m); }
    }
}

// Scores each file of --task: prints what was found, writes --json and --items.
int command_score(Flags f) {
    const std::vector<std::string> files = score_files(f);
    Model m = model_from_checkpoint(&f, f.max_length, STAY_ALL);
    const std::string& checkpoint = f.words[0];
    require(!m.arch.prefix, checkpoint + strf(": prefix %d", m.arch.prefix),
            "none: a continuation must not see itself");
    const TextFolder& text = text_needed("score");
    if (f.tokenizer.empty()) { text.no_tokenizer(checkpoint); }
    Tokenizer tok = tokenizer_of(f.tokenizer);
    text.vocabulary_check(tok, m.arch.V);
    printf("%s", begin_texts(&tok, f, m.arch.V).c_str());
    const ScoreText how = score_how(f, m, tok);
    std::string bos = "none";
    if (!tok.before.empty()) { bos = tokenizer_decode(tok, tok.before.data(), 1, false); }

    std::vector<std::string> tasks;
    std::string lines;
    std::vector<ScoreLeft> left;
    long all = 0;
    for (auto& path : files) {
        ScoreTask task = score_read(path, how, f.limit);
        const double begin = now_ms();
        score_run(&m, &task);
        scores_check(&m, task);
        const double seconds = (now_ms() - begin) / 1e3;
        tasks.push_back(score_report(task, bos, seconds));
        lines += score_lines(task);
        left.insert(left.end(), task.left.begin(), task.left.end());
        all += task.items.size() + task.left.size();
    }
    JsonObject o;
    o.text("checkpoint", checkpoint);
    o.json("program", program_json());
    o.json("tasks", json_list(tasks));
    if (!f.json.empty()) { file_write(f.json, o.all() + "\n"); }
    if (!f.items.empty()) { file_write(f.items, lines); }
    model_free(&m);
    score_left_check(left, all);
    return 0;
}
