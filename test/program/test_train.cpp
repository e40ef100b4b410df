/*
test_train.cpp -- runs build/cpu/train_sink as a user would and reads what it leaves:
does it learn what it should, and does a run that is stopped, killed or disturbed end up where
an undisturbed one does, bit for bit?

    build/test/test_train              all tests; everything is written to a fresh
                                       directory under /tmp
    build/test/test_train golden print   prints test/golden/losses.tsv anew:
                                       only after a wanted change of the mathematics
*/
#include "../check.h"
#include "../terminal.h"
#include "../../cpu/product.h"

static std::string home, dir, binary;
// a model of 3 thousand numbers: a step takes a tenth of a millisecond
static const char* TINY =
    " -b 8 -t 16 --bb-vocab 24 --layers 2 --width 16 --heads 2 --ffn-width 24 --warmup 10 --lr 3e-3"
    " --val-seqs 8 --probe-seqs 8 --probe-len 16";
static const char* GOLDEN = " -b 16 -n 50 --lr 2e-3 --warmup 10 --eval-every 0 --val-seqs 16";

static Ran train_sink(const std::string& args) {
    return check_run("cd " + dir + " && " + binary + " " + flags_once(args));
}
// a run that has to succeed -> its directory
static std::string train(const std::string& out, const std::string& args) {
    const Ran r = train_sink(args + " -o " + out);
    check_ended(r, 0, "train " + args);
    return dir + "/" + out;
}
// every line has to be one JSON object with an event
static std::vector<Json> log_read(const std::string& run) {
    std::vector<Json> out;
    if (!CHECK(file_size(run + "/log.jsonl") > 0, "%s: no log", run.c_str())) { return out; }
    const std::string text = file_read(run + "/log.jsonl");
    CHECK(ends_with(text, "\n"), "%s: the log does not end with a whole line", run.c_str());
    for (auto& line : split(text.substr(0, text.size() - 1), '\n')) {
        Json j; std::string error;
        const bool ok = json_parse(line.data(), line.size(), &j, &error) && j.get("event");
        if (CHECK(ok, "%s: %s in line: %s", run.c_str(), error.c_str(), line.c_str())) {
            out.push_back(j);
        }
    }
    return out;
}
static std::vector<Json> events(const std::vector<Json>& log, const char* event) {
    std::vector<Json> out;
    for (auto& j : log) { if (j.get("event")->string == event) { out.push_back(j); } }
    return out;
}
static double num(const Json& j, const char* key) {
    const Json* v = j.get(key);
    return v && v->type == Json::NUMBER ? v->number : NAN;
}
static std::vector<double> column(const std::string& run, const char* event, const char* key) {
    std::vector<double> out;
    for (auto& j : events(log_read(run), event)) { out.push_back(num(j, key)); }
    return out;
}
static std::vector<double> losses(const std::string& run) { return column(run, "train", "loss"); }
// the log without the clock, without the flags (those name the directory, --resume, --stop-after)
// and without what they became
static std::string log_text(const std::string& run) {
    std::string out;
    for (auto line : split(file_read(run + "/log.jsonl"), '\n')) {
        const size_t ms = line.find(",\"ms\":"), flags = line.find("\"flags\":{"),
                     time = line.find(",\"time\":\"2");
        if (starts_with(line, "{\"event\":\"resume\"")) { continue; }
        if (time != std::string::npos) {
            line.erase(time, strlen(",\"time\":\"2026-01-31T23:59:59Z\""));
        }
        if (ms != std::string::npos) { line.erase(ms, line.find('}', ms) - ms); }
        if (flags != std::string::npos) { line.erase(flags, line.find('}', flags) - flags); }
        out += line + "\n";
    }
    return out;
}
static std::string hash_of(const std::string& run) {
    const std::vector<Json> done = events(log_read(run), "done");
    return done.size() == 1 && done[0].get("params_hash")
               ? done[0].get("params_hash")->string
               : strf("%zu done events in %s", done.size(), run.c_str());
}
static void same_run(const std::string& got, const std::string& want, const char* what) {
    CHECK(hash_of(got) == hash_of(want), "%s: params_hash %s, wanted %s", what,
          hash_of(got).c_str(), hash_of(want).c_str());
    const std::string a = log_text(got), b = log_text(want);
    size_t at = 0, line = 1;
    for (; at < a.size() && at < b.size() && a[at] == b[at]; at++) { line += a[at] == '\n'; }
    CHECK(a == b, "%s: logs differ in line %zu: ..%s..", what, line,
          a.substr(at > 40 ? at - 40 : 0, 80).c_str());
}

// ----------------------------------------------------------------------------

static void test_golden(bool print) {
    const std::vector<double> got = losses(train("golden", GOLDEN));
    if (print) {
        printf("# training losses of the default build on bb: train_sink%s\n# made by "
               "build/test/test_train golden print at commit %s\n",
               GOLDEN,
               events(log_read(dir + "/golden"), "config")[0].get("commit")->string.c_str());
        for (size_t i = 0; i < got.size(); i++) { printf("%zu\t%.9g\n", i + 1, got[i]); }
        return;
    }
    size_t n = 0;
    for (auto& line : split(file_read(home + "/test/golden/losses.tsv"), '\n')) {
        const std::vector<std::string> w = split(line, '\t');
        double want = 0;
        if (w.size() != 2 || line[0] == '#' ||
            !CHECK(parse_double(w[1], &want) && n < got.size(), "losses.tsv: %s", line.c_str())) {
            continue;
        }
        check_near(got[n], want, 1e-5 * want, "golden loss of step %zu", n + 1);
        n++;
    }
    CHECK(n == 50 && got.size() == 50, "golden losses: %zu of them, %zu steps", n, got.size());
    CHECK(got[49] < got[0] - 0.3, "golden losses: from %g to %g is hardly training", got[0],
          got[49]);
}
static void test_log() {
    const std::string run = train("log", std::string(TINY) + " -n 20 --eval-every 10");
    const std::vector<Json> log = log_read(run), trains = events(log, "train"),
                            evals = events(log, "eval");
    const char* order = "config eval train*10 eval train*10 eval done";
    bool ok = log.size() == 25 && log[0].get("event")->string == "config" &&
              log[24].get("event")->string == "done";
    for (size_t i = 1; ok && i < 24; i++) {
        ok = log[i].get("event")->string == (i == 1 || i == 12 || i == 23 ? "eval" : "train");
    }
    CHECK(ok, "log: %zu lines, wanted %s", log.size(), order);
    if (!ok) { return; }
    const Json& config = log[0];
    for (auto& line : log) { // 2026-01-31T23:59:59Z
        const Json* time = line.get("time");
        int y, mo, d, h, mi, s, end = 0;
        CHECK(time &&
                  sscanf(time->string.c_str(), "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &y, &mo, &d, &h, &mi,
                         &s, &end) == 6 &&
                  end == 20 && time->string.size() == 20 && y > 2020,
              "log: no time in a line of %s", line.get("event")->string.c_str());
    }
    CHECK(!file_exists(run + "/lock"), "a finished run left its lock");
    for (const char* key :
         { "switches", "flags", "params", "commit", "backend", "precision", "data" }) {
        CHECK(config.get(key), "log: config has no %s", key);
    }
    CHECK(config.get("switches")->get("ATTN")->string == "softmax" &&
              num(*config.get("flags"), "steps") == 20 && num(*config.get("flags"), "width") == 16,
          "log: config");
    long params = 0; // embedding and head, two layers of attention, FFN and two norms, one norm
    params = 2 * 25 * 16 + 2 * (4 * 16 * 16 + 3 * 16 * 24 + 2 * 16) + 16;
    CHECK(num(config, "params") == params, "log: params %g, wanted %ld", num(config, "params"),
          params);
    for (size_t i = 0; i < trains.size(); i++) {
        const Json& t = trains[i];
        CHECK(num(t, "step") == i + 1 && num(t, "tokens") == (i + 1) * 8 * 16 &&
                  num(t, "loss") > 0 && num(t, "grad_norm") > 0 && num(t, "ms") > 0,
              "log: train line %zu", i);
    }
    for (size_t i = 0; i < evals.size(); i++) {
        const Json& e = evals[i]; const Json* sink = e.get("sink");
        CHECK(num(e, "step") == 10 * i && num(e, "val_loss") > 0 && num(e, "probe_loss") > 0,
              "log: eval %zu", i);
        if (!CHECK(sink, "log: eval without sink")) { continue; }
        CHECK(num(*sink, "eps") == 0.3 && num(*sink, "T") == 16 && num(*sink, "n") == 8 &&
                  sink->get("sink_star"),
              "log: sink");
        for (const char* key : { "k", "sink_k", "proxy_k" }) {
            CHECK(sink->get(key) && sink->get(key)->items.size() == 10, "log: sink.%s", key);
        }
        for (const char* key : { "alpha1", "alpha1_proxy", "mass", "entropy" }) {
            const Json* m = e.get(key);
            CHECK(m && m->items.size() == 2 && m->items[0].items.size() == 2 &&
                      m->items[1].items[1].number > 0,
                  "log: %s is not [L][H]", key);
        }
        for (const char* key : { "h_norm_first", "h_norm_rest", "h_max", "h_median" }) {
            CHECK(e.get(key) && e.get(key)->items.size() == 3, "log: %s is not [L+1]", key);
        }
        for (const char* key : { "k_norm_first", "k_norm_rest", "v_norm_first", "v_norm_rest" }) {
            CHECK(e.get(key) && e.get(key)->items.size() == 2, "log: %s is not [L]", key);
        }
    }
    CHECK(log[24].get("params_hash") && log[24].get("params_hash")->string.size() == 16 &&
              num(log[24], "step") == 20,
          "log: done");
    CHECK(num(evals[2], "val_loss") < num(evals[0], "val_loss") - 0.02,
          "validation loss went from %g to %g", num(evals[0], "val_loss"),
          num(evals[2], "val_loss"));
}
static void test_same_bits() {
    // 768 rows: enough for the threads to share
    const std::string args = " -n 10 -b 12 --eval-every 5 --val-seqs 10 --probe-seqs 10";
    const std::string a = train("a", args), b = train("b", args), c = dir + "/c", d = dir + "/d";
    same_run(b, a, "the same run twice");
    for (auto& run : { c, d }) {
        const Ran r = check_run("cd " + dir + " && OMP_NUM_THREADS=" + (run == c ? "1 " : "3 ") +
                                binary + args + " -o " + run);
        check_ended(r, 0, "");
        same_run(run, a, run == c ? "one thread" : "three threads");
    }
    CHECK(hash_of(train("seed", args + " --seed 2")) != hash_of(a), "another seed, the same bits");
}
// every kernel that this processor has: the device line names it, and the loss
// is the same but for rounding
static void test_products() {
    const std::string args = " -n 10 -b 12 --eval-every 0 --val-seqs 10 --probe-seqs 10";
    const std::vector<double> want = losses(train("fastest", args));
    for (int k = 0; k < cpu::KERNELS; k++) {
        if (!cpu::kernel_here(k)) { continue; }
        const std::string name = cpu::kernels[k].name;
        const Ran r = train_sink(args + " --product " + name + " -o product-" + name);
        const std::vector<double> got = losses(dir + "/product-" + name);
        check_ended(r, 0, "--product " + name, "bf16 " + name + "\n");
        CHECK(got.size() == 10 && want.size() == 10, "--product %s: %zu steps", name.c_str(),
              got.size());
        for (size_t i = 0; i < std::min(got.size(), want.size()); i++) {
            CHECK(fabs(got[i] - want[i]) < 1e-4, "--product %s: step %zu, loss %g, wanted %g",
                  name.c_str(), i + 1, got[i], want[i]);
        }
    }
}

// the uninterrupted run that all the disturbed ones are measured by
static const std::string LONG_RUN = std::string(TINY) + " -n 60 --save-every 2 --eval-every 20";

// state.json as a program wrote it that kept no hash of its text, so that a field can be changed
static std::string unsealed(std::string state) {
    const std::string automatic = "\"automatic\": false, ";
    const size_t at = state.find(automatic), seal = state.find(", \"files\": {");
    CHECK(at != std::string::npos && seal != std::string::npos, "no hashes: %s", state.c_str());
    state.resize(std::min(seal, state.size()));
    state.erase(std::min(at, state.size()), automatic.size());
    const size_t version = state.find("\"version\": "), next = state.find("\"build\"");
    CHECK(version < next && next < state.size(), "no version: %s", state.c_str());
    return state.erase(version, next - version) + "}\n";
}
static void test_resume(const std::string& whole) {
    // ends with an evaluation, as the long run has at step 20
    const std::string part = train("part", LONG_RUN + " -n 20");
    same_run(train("part", LONG_RUN + " --resume"), whole, "20 steps, then the rest");
    const std::vector<Json> resumed = events(log_read(part), "resume");
    const Json* steps = resumed.size() == 1 && resumed[0].get("changed")
                            ? resumed[0].get("changed")->get("steps")
                            : NULL;
    CHECK(steps && steps->items.size() == 2 && steps->items[0].number == 20 &&
              steps->items[1].number == 60 && num(resumed[0], "step") == 20,
          "the log does not tell that --steps changed");
    // a checkpoint of another build: the run goes on, and tells
    const std::string state = part + "/step_60/state.json", text = unsealed(file_read(state));
    file_write(state, replaced(text, "\"PRECISION\":\"fp32\"", "\"PRECISION\":\"exact\""));
    const std::string again = LONG_RUN + " --resume -o part";
    CHECK(train_sink(again).says("change \"PRECISION\":[\"exact\",\"fp32\"]"),
          "--resume of another build says nothing");
    file_write(state, text);
    const Ran same = train_sink(again);
    CHECK(same.code == 0 && !same.says("change"), "--resume of this build tells of a change");
    // the newest checkpoint is beyond what is asked for
    const Ran r = train_sink(LONG_RUN + " -n 50 --resume -o part");
    check_ended(r, 0, "--resume with fewer steps", "at step 60",
                "note   --steps 50 is less than the 60 that this run has made");
}
static void test_disturbed(const std::string& whole) {
    // a line cut short, a checkpoint half written, one moved aside, rubbish in between
    const std::string run = train("cut", LONG_RUN + " --save-optimizer all");
    std::string text = file_read(run + "/log.jsonl");
    text.resize(text.find("\"step\":47,") + 14);
    file_write(run + "/log.jsonl", text);
    for (int step = 42; step <= 60; step += 2) {
        remove_tree(strf("%s/step_%d", run.c_str(), step));
    }
    make_dirs(run + "/step_44.tmp"); file_write(run + "/step_44.tmp/state.json", "{\"step\": 44");
    make_dirs(run + "/step_46"); file_write(run + "/step_46/model.safetensors", "half");
    make_dirs(run + "/step_x"); make_dirs(run + "/step_-3");
    same_run(train("cut", LONG_RUN + " --resume"), whole,
             "a log line cut short and a leftover step_44.tmp");
    CHECK(!file_exists(run + "/step_44.tmp"), "step_44.tmp was left");
    // the machine stopped between the two renames of a checkpoint
    const std::string old = train("old", LONG_RUN + " --save-optimizer all");
    for (int step = 22; step <= 60; step += 2) {
        remove_tree(strf("%s/step_%d", old.c_str(), step));
    }
    CHECK(rename((old + "/step_20").c_str(), (old + "/step_20.old").c_str()) == 0, "rename");
    const Ran r = train_sink(LONG_RUN + " --resume -o old");
    check_ended(r, 0, "step_20.old", "resumed from step 20");
    same_run(old, whole, "step_20.old");
    // resuming a finished run changes nothing
    const std::string before = log_text(whole);
    train("whole", LONG_RUN + " --resume");
    CHECK(log_text(whole) == before, "resuming a finished run changed its log");
}
static const std::string SLOW =                          // half a minute
    flags_once(std::string(TINY) + " --layers 8 --width 64 --ffn-width 64 -b 32 -n 4000 --eval-every 0");
static void test_stop() {
    // by the program's own clock, so that a busy machine changes nothing
    train("minutes2", SLOW + " --stop-after 0.005");
    const std::vector<double> ms = column(dir + "/minutes2", "train", "ms");
    double before_last = 0;
    for (size_t i = 0; i + 1 < ms.size(); i++) { before_last += ms[i]; }
    CHECK(events(log_read(dir + "/minutes2"), "stopped").size() == 1 && before_last < 300,
          "--stop-after 0.005: %zu steps, %.0f ms before the last", ms.size(), before_last);
}
// what a run is must not change when it goes on; what it is trained by may, and the log tells
static void test_resume_flags() {
    const std::string base = std::string(TINY) + " -o flags",
                      run = train("flags", std::string(TINY) + " -n 10");
    const std::string log = file_read(run + "/log.jsonl");
    const struct {
        const char *args, *says;
    } rows[] = {
        { "--bb-table 2", "--bb-table: got 2, wanted 1 as before" },
        { "--bb-bos 0", "--bb-bos" },
        { "--bb-trigger-prob 0.2", "--bb-trigger-prob: got 0.2, wanted 0.15" },
        { "--random-token 2", "--random-token: got \"2\", wanted \"\"" },
        { "--fix-token 2:3", "--fix-token" },
        { "--train-tokens 64", "--train-tokens" },
        { "--optimizer sgd", "--optimizer: got \"sgd\", wanted \"adamw\"" },
        { "--beta2 0.9", "--beta2" },
        { "--seed 2", "--seed: got 2, wanted 1" },
        { "--total-batch 256", "got 256 tokens per step, wanted 128" },
        { "-b 4", "got 64 tokens per step, wanted 128" },
        { "--width 32", "has --width 16, got 32" },
    };
    for (auto& row : rows) {
        const Ran r = train_sink(base + " -n 12 --resume " + row.args);
        check_ended(r, EXIT_USER, strf("--resume %s", row.args), row.says);
    }
    CHECK(file_read(run + "/log.jsonl") == log, "a refused --resume changed the log");
    train("flags", std::string(TINY) + " -n 12 --resume --lr 1e-3 --warmup 2 --schedule cosine "
                                       "--weight-decay 0.2 -b 4 --total-batch 128 --eval-every 5");
    const std::vector<Json> resumed = events(log_read(run), "resume");
    if (!CHECK(resumed.size() == 1 && resumed[0].get("changed"), "%zu resume events",
               resumed.size())) {
        return;
    }
    const Json& changed = *resumed[0].get("changed");
    for (const char* key : { "steps", "lr", "warmup", "schedule", "weight_decay", "batch",
                             "total_batch", "eval_every" }) {
        CHECK(changed.get(key), "resume: the log does not tell that %s changed", key);
    }
    CHECK(changed.fields.size() == 8 && changed.get("lr")->items[1].number == 1e-3 &&
              changed.get("schedule")->items[0].string == "constant",
          "resume: %zu changes", changed.fields.size());
    check_near(column(run, "train", "lr").back(), 0, 1e-3,
               "the learning rate of a run that went on with another");
    // of a run that has begun, a flag that nothing reads is not asked about: it goes on as it was
    const std::string sgd = std::string(TINY) + " -n 3 --optimizer sgd", at = train("sgd", sgd);
    const std::string file = at + "/step_3/state.json", state = unsealed(file_read(file));
    file_write(file, replaced(state, "\"beta2\":0.95", "\"beta2\":0.9"));
    train("sgd", sgd + " -n 5 --beta2 0.9 --resume");
    // nor where it has its default
    train("defaults", std::string(TINY) + " -n 1 --min-lr 0 --rope-high 4 --rope-context 8192 "
                                          "--bias-share none --bos none --sft-loss assistant");
    // a log that was lost begins with its config again
    unlink((run + "/log.jsonl").c_str());
    train("flags", std::string(TINY) + " -n 14 --resume -b 4 --total-batch 128");
    CHECK(log_read(run)[0].get("event")->string == "config", "a log without config");
    // a text that was edited in place
    std::string text;
    for (int i = 0; i < 300; i++) { text += strf("%d green bottles hanging on the wall\n", i); }
    file_write(dir + "/edit.txt", text);
    const std::string small =
        "-d edit.txt -b 4 -t 16 --width 16 --ffn-width 16 --probe-seqs 4 --probe-len 8 --sample 0 ";
    train("edit", small + "-n 2");
    text[5000] ^= 1;
    file_write(dir + "/edit.txt", text);
    const Ran r = train_sink(small + "-n 4 -o edit --resume");
    check_ended(r, EXIT_USER, "another text of the same size", "the data or the tokenizer changed");
    text[5000] ^= 1;
    file_write(dir + "/moved.txt", text);  // the same text under another name is the same data
    const Ran moved = train_sink("-d moved.txt" + small.substr(11) + "-n 4 -o edit --resume");
    check_ended(moved, 0, "the same text elsewhere", "\"data\":[\"edit.txt\",\"moved.txt\"]");
    const std::string part = moved.err.substr(0, moved.err.find(": "));
    CHECK(!contains(moved.err, ".part") && file_exists(dir + "/" + part),
          "a cache that does not exist is named: %s", moved.err.c_str());
}
// starts SLOW in the background, waits until it trains, runs `then` with $pid, waits for it:
// its exit status
static Ran while_running(const std::string& out, const std::string& then) {
    return check_run(strf("cd %s; %s%s -o %s > %s.out 2> %s.err & pid=$!; cd %s; until grep -qs "
                          "'\"train\"' %s/log.jsonl; do sleep 0.05; kill -0 $pid || exit 99; done;",
                          dir.c_str(), binary.c_str(), SLOW.c_str(), out.c_str(), out.c_str(),
                          out.c_str(), dir.c_str(), out.c_str()) +
                     then);
}
static void test_directory() {
    // two runs in one directory: the second is refused, fresh or with --resume,
    // and the first goes on
    Ran r = while_running("mine", binary + SLOW + " -o mine; " + binary + SLOW +
                                      " -o mine --resume; echo pid $pid; kill $pid; wait $pid");
    const size_t at = r.out.find("pid ");
    const std::string pid = at == std::string::npos
                                ? "none"
                                : r.out.substr(at + 4, r.out.find('\n', at) - at - 4);
    check_ended(r, 0, "two runs in one directory", "mine: already holds a run",
                "mine: process " + pid + " on " + host_name() + " is writing to it");
    // a lock that is something else, a log that no run wrote: left as they are
    file_write(dir + "/victim", "precious\n");
    const struct { const char *make, *file, *says; } strange[] = {
        { "ln -s ../victim lock", "victim", "wanted the lock" },
        { "ln -s ../nothing lock", "victim", "wanted the lock" },
        { "mkfifo lock", "victim", "wanted the lock" },
        { "mkdir lock", "victim", "wanted the lock" },
        { "echo 'my notes' > lock", "odd/lock", "wanted the lock" },
        { "echo '12 x' > lock; echo more >> lock", "odd/lock", "wanted the lock" },
        { "echo 'my diary' > log.jsonl", "odd/log.jsonl", "is not the log of a run" },
        { "ln -s ../victim log.jsonl", "victim", "is not the log of a run" },
        { "ln -s ../nothing log.jsonl", "victim", "is not the log of a run" } };
    for (auto& s : strange) {
        check_run("cd " + dir + " && mkdir odd && cd odd && " + s.make);
        const std::string was = file_read(dir + "/" + s.file);
        const Ran r = check_run("cd " + dir + " && timeout 60 " + binary + TINY +
                                " -n 1 -o odd --resume");
        CHECK(r.code == EXIT_USER && r.says(s.says) && file_read(dir + "/" + s.file) == was &&
                  !is_there(dir + "/nothing"),
              "%s: %d %s", s.make, r.code, r.err.c_str());
        remove_tree(dir + "/odd");
    }
    // what a killed run left: its lock, with or without a name in it
    for (const char* text : { "", "1\n", "999999 elsewhere\n" }) {
        make_dirs(dir + "/odd");
        file_write(dir + "/odd/lock", text);
        train("odd", std::string(TINY) + " -n 1 --resume");
        CHECK(!is_there(dir + "/odd/lock"), "a lock was left");
        remove_tree(dir + "/odd");
    }
    // runs are numbered on, whatever else is in runs/
    for (const char* name : { "9999-softmax", "20240101-notes", "12x", "-1",
                              "00000000000000000001-x" }) {
        make_dirs(dir + "/many/runs/" + name);
    }
    for (int number = 10000; number < 10002; number++) {
        const Ran one = check_run("cd " + dir + "/many && " + binary + TINY + " -n 1");
        CHECK(one.code == 0 && is_dir(dir + strf("/many/runs/%d-softmax/step_1", number)),
              "after runs/9999: %d %s", one.code, one.said().c_str());
    }
    // eight at once, without -o: eight directories, eight whole logs
    r = check_run("cd " + dir + " && mkdir eight && cd eight && for i in 1 2 3 4 5 6 7 8; do " +
                  binary + TINY + " -n 3 --seed $i > out$i 2>&1 & done; wait");
    const std::vector<std::string> runs = dir_list(dir + "/eight/runs");
    CHECK(runs.size() == 8, "eight runs at once made %zu directories", runs.size());
    for (auto& name : runs) {
        CHECK(hash_of(dir + "/eight/runs/" + name).size() == 16, "eight at once: %s", name.c_str());
    }
}
static void test_terminal() {
    for (int columns : { 200, 100, 80, 40, 12 }) {
        const std::string out = on_terminal("cd " + dir + " && " + binary + TINY +
                                                strf(" -n 20 --print-every 1 --eval-every 10 -o tty%d",
                                                     columns),
                                            columns);
        size_t shown = 0;
        for (auto& line : split(out, '\r')) {
            if (line.find("\033[K") != 0) { continue; }
            const std::string text = line.substr(3, line.find('\n') - 3);
            if (starts_with(text, "eval")) { continue; }
            shown++;
            CHECK((int)text.size() < columns && text.size() > 5,
                  "%d columns: a line of progress has %zu: %s", columns, text.size(), text.c_str());
            CHECK(columns < 100 || contains(text, " left"),
                  "%d columns: no time left: %s", columns, text.c_str());
        }
        CHECK(shown >= 20, "%d columns: %zu lines of progress", columns, shown);
        CHECK(contains(out, "\ndone at step 20"),
              "%d columns: the last line does not begin one: %s", columns, out.c_str());
    }
    const std::string stopped = on_terminal(
        "cd " + dir + " && timeout -s INT 2 " + binary + SLOW + " -o tty-stop", 80);
    CHECK(contains(stopped, "\nstopped at step"), "after Ctrl-C: %s",
          stopped.substr(stopped.size() > 200 ? stopped.size() - 200 : 0).c_str());
    const std::string bad = on_terminal(
        "cd " + dir + " && " + binary +
                                        flags_once(std::string(TINY) + " -n 50 --warmup 0 --lr 1e30 -o tty-nan"), 80);
    CHECK(contains(bad, "\nerror: loss is"),
          "an error after a line of progress: %s", bad.c_str());
}
static void test_updates() {
    // four batches of 4 are one batch of 16: same sequences, same gradient up
    // to the order of the sums
    const std::string rest = " -t 32 --bb-vocab 40 --width 16 --ffn-width 24 -n 20 --lr 3e-3 "
                             "--warmup 5 --val-seqs 8 --probe-seqs 8 --probe-len 16 --eval-every 0";
    const std::vector<double> one = losses(train("b16", " -b 16" + rest)),
                              four = losses(train("b4", " -b 4 --total-batch 512" + rest));
    CHECK(one.size() == 20 && four.size() == 20, "accumulation: %zu and %zu steps", one.size(),
          four.size());
    for (size_t i = 0; i < one.size() && i < four.size(); i++) {
        check_near(four[i], one[i], 1e-5 * one[i], "loss of step %zu with four accumulated batches",
                   i + 1);
    }
    check_near(column(dir + "/b4", "train", "tokens")[19], 20 * 512, 0,
               "tokens of accumulated steps");

    // more tokens than there are: all of them, and a note
    file_write(dir + "/few.txt", std::string(3000, 'a'));
    const std::string few = " -b 8 -t 16 --layers 1 --width 16 --heads 2 --ffn-width 24 --val-seqs 8"
                            " --probe-seqs 8 --probe-len 16 -n 1 -d few.txt --train-tokens ";
    const Ran more = train_sink(few + "5000 -o few-1"), less = train_sink(few + "640 -o few-2");
    CHECK(more.code == 0 && more.says("note   --train-tokens 5000: only 28") &&
              less.code == 0 && !less.says("note   --train-tokens"),
          "--train-tokens: %s", more.said().c_str());

    // four sequences again and again: the model learns them by heart
    const std::vector<double> over = losses(
        train("over", std::string(TINY) + " --train-tokens 64 -b 4 --bb-bos 0 --weight-decay 0 -n "
                                          "300 --lr 1e-2 --eval-every 0"));
    CHECK(over.back() < 0.02 && over[0] > 2.5, "overfit: loss went from %g to %g", over[0],
          over.back());

    // plain gradient descent on one batch: a step changes the loss by -lr |g|^2,
    // with momentum the second by -(1 + b) lr |g|^2
    for (double b : { 0.0, 0.9 }) {
        const double lr = 1e-3;
        const std::string run = train(
            strf("sgd%g", b),
            std::string(TINY) +
                strf(" --train-tokens 128 -n 3 --optimizer sgd --lr %g --beta1 %g", lr, b) +
                " --warmup 0 --weight-decay 0 --grad-clip 0 --eval-every 0");
        const std::vector<double> l = losses(run), g = column(run, "train", "grad_norm");
        check_near((l[0] - l[1]) / (lr * g[0] * g[0]), 1, 0.03, "sgd, beta1 %g: first step", b);
        check_near((l[1] - l[2]) / (lr * g[1] * g[1]), 1 + b, 0.03 * (1 + b),
                   "sgd, beta1 %g: second step", b);
    }
    const std::string decayed = train(
        "clip", std::string(TINY) + " --train-tokens 128 -n 3 --optimizer sgd --lr 1 --warmup 0 "
                                    "--weight-decay 0 --grad-clip 1e-6 --eval-every 0");
    const std::vector<double> l = losses(decayed), g = column(decayed, "train", "grad_norm");
    // momentum 0.9: by at most (1 + 1.9) |g| 1e-6
    check_near((l[0] - l[2]), 0, 2e-5, "--grad-clip 1e-6 at lr 1");
    CHECK(g[0] > 0.1, "the gradient norm in the log is the one before clipping, got %g", g[0]);

    const std::string cosine = train(
        "cosine", std::string(TINY) +
                      " -n 30 --warmup 5 --lr 2e-3 --schedule cosine --min-lr 5e-4 --eval-every 0");
    const std::vector<double> lr = column(cosine, "train", "lr");
    for (int i = 0; i < 30 && i < (int)lr.size(); i++) {
        const double want = i < 5 ? 2e-3 * (i + 1) / 5
                                  : 5e-4 + 0.75e-3 * (1 + cos(M_PI * (i - 5) / 25));
        check_near(lr[i], want, 1e-11, "cosine lr of step %d", i + 1);
    }
    const std::vector<double> flat = column(dir + "/log", "train", "lr");
    for (int i = 0; i < 20 && i < (int)flat.size(); i++) {
        check_near(flat[i], 3e-3 * std::min(1.0, (i + 1) / 10.0), 1e-11, "constant lr of step %d",
                   i + 1);
    }
}
// Returns the numbers of a probe's line, without the text and BOS that they are of.
static std::string after_bos(const Ran& r) {
    const size_t at = r.out.find("| loss");
    return at == std::string::npos ? "none" : r.out.substr(at);
}
// Checks section 5's edits of the text that a probe reads: what no sequence has is refused, a run
// keeps what it was trained with, and what changes nothing is refused only where it was typed.
static void test_probed_edits(const std::string& small) {
    static const char* const REFUSED[][2] = {
        { "-d song.jsonl --random-token 0", "--random-token 0: wanted a position from 1" },
        { "-d song.jsonl --random-token 18", "--random-token 18: wanted a position" },
        { "-d song.jsonl --probe-from windows --random-token 0", "--random-token 0: wanted" },
        { "-d song.jsonl --fix-token 1:300", "an id below 257" },
        { "-d song.jsonl --fix-token -3:5", "--fix-token -3:5: wanted POS:ID with a position" },
        { "--random-token 18", "--random-token 18: wanted a position from 1 to T+1 = 17" },
        { "-d song.txt --bos seq --random-token 1", "wanted one thing at position 1" },
        { "-d song.jsonl --probe-from windows --bos A --fix-token 1:5", "one thing at position 1" },
        { "-d song.txt --bos doc", "--bos doc of song.txt: wanted a .jsonl of documents" },
    };
    for (const char* command : { "probe", "eval" }) {
        for (auto& row : REFUSED) {
            const std::string begin = std::string(command) + " song/step_60 --probe-seqs 8 ";
            const Ran r = train_sink(begin + "--probe-len 16 " + row[0]);
            check_ended(r, EXIT_USER, strf("%s %s", command, row[0]), row[1]);
        }
    }
    // BOS before a record moves the text by one; a random first token then stands in its place
    const std::string eight = "probe song/step_60 --probe-seqs 8 --probe-len 16 -d song.jsonl ";
    const Ran moved = train_sink(eight + "--bos A --random-token 1");
    const Ran plain = train_sink(eight + "--random-token 1");
    CHECK(moved.code == 0 && plain.code == 0 && after_bos(moved) != after_bos(plain),
          "BOS before records: '%s' '%s' %s", moved.out.c_str(), plain.out.c_str(),
          moved.err.c_str());
    // a run with BOS in half of its sequences; measured both ways with a random first token; and as
    // if it had had one everywhere, as earlier commits allowed
    train("half", "-d song.txt --bos seq --random-token 1 --random-share 0.5 --sample 0" + small);
    const std::string half = "probe half/step_60 --probe-seqs 8 --probe-len 16";
    const Ran both = train_sink(half + " -d song.jsonl --random-token 1");
    check_ended(both, 0, "both ways", "measured both ways");
    const std::string file = dir + "/half/step_60/state.json", state = unsealed(file_read(file));
    file_write(file, replaced(state, "\"random_share\":0.5", "\"random_share\":1"));
    const Ran own = train_sink(half);
    check_ended(own, 0, "a run whose BOS is covered");
}
static void test_text() {
    std::string text, lines;
    for (int i = 0; i < 400; i++) {
        const std::string verse = strf("%d green bottles hanging on the wall, and if %d green "
                                       "bottle should accidentally fall\n",
                                       400 - i, 1);
        text += verse;
        lines += "{\"text\": " + json_str(verse) + "}\n";
    }
    file_write(dir + "/song.txt", text); file_write(dir + "/song.jsonl", lines);
    const std::string small = " -b 8 -t 32 --width 32 --heads 2 --ffn-width 48 --lr 3e-3 --warmup "
                              "10 --val-seqs 8 --probe-seqs 8 --probe-len 16 --eval-every 30 -n 60";
    const Ran r = train_sink("-d song.txt --sample 40 -o song" + small);
    check_ended(r, 0, "text", "sample \"", "257 ids");
    std::vector<double> val = column(dir + "/song", "eval", "val_loss");
    CHECK(val.size() == 3 && val[0] > 5 && val[1] < val[0] - 1 && val[2] < val[1] - 0.3,
          "text: validation losses %s", r.out.c_str());
    const std::vector<Json> samples = events(log_read(dir + "/song"), "sample");
    CHECK(samples.size() == 3 && samples[2].get("text")->string.size() >= 20 &&
              num(samples[2], "step") == 60,
          "text: %zu samples", samples.size());
    // the second time the tokens come from data/cache
    train("again", "-d song.txt --sample 40" + small);
    CHECK(hash_of(dir + "/again") == hash_of(dir + "/song"),
          "text from the cache trains another model");
    train("records", "-d song.jsonl --sample 0" + small);
    val = column(dir + "/records", "eval", "val_loss");
    CHECK(val.size() == 3 && val[2] < val[0] - 1.5, "jsonl: validation loss fell by %g",
          val[0] - val[2]);

    // a probe without -d measures what the run held out; with -d FILE.jsonl each record,
    // or windows of them all
    const Json last = events(log_read(dir + "/song"), "eval").back();
    for (int i = 0; i < 2; i++) {
        const Ran p = train_sink(
            std::string("probe song/step_60 --probe-seqs 8 --probe-len 16 --json own.json") +
            (i ? " --probe-from windows" : ""));
        Json own;
        std::string error;
        const std::string json = p.code ? "{}" : file_read(dir + "/own.json");
        CHECK(p.code == 0 && p.says("held out by the run") &&
                  json_parse(json.data(), json.size(), &own, &error),
              "probe without -d: %d %s", p.code, p.err.c_str());
        check_near(num(own, "probe_loss"), num(last, "probe_loss"), 1e-6, "the run's own data");
    }
    check_run("mkdir " + dir + "/below");  // from another directory the data are found again
    const Ran below = check_run("cd " + dir + "/below && " + binary +
                                " probe ../song/step_60 --probe-seqs 8 --probe-len 16");
    check_ended(below, 0, "probe from elsewhere", strf("loss %.4f", num(last, "probe_loss")));
    check_run("cd " + dir + " && cp -r song/step_60 stranger && rm stranger/state.json");
    const Ran stranger = train_sink("probe stranger");
    check_ended(stranger, EXIT_USER, "a model of unknown data",
                "does not say what it was trained on");
    check_ended(train_sink("probe stranger --probe-input random"), 0,
                "a model of unknown data, on random tokens");
    const Ran records = train_sink(
                  "probe song/step_60 -d song.jsonl --probe-seqs 500 --probe-len 84"),
              windows = train_sink("probe song/step_60 -d song.jsonl --probe-seqs 500 --probe-len "
                                   "84 --probe-from windows");
    long taken = 0, tokens = 0;  // a record is its number, 1 to 400, and 83 bytes more
    for (int i = 1; i <= 400; i++) {
        const long n = strf("%d", i).size() + 83;
        taken += n >= 85;
        tokens += n + 1;
    }
    check_ended(records, 0, "records", "bos none | loss",
                strf("%ld records, the first 85 tokens of each, %ld shorter ones "
                     "skipped, fewer than the 500 asked for: there are no more",
                     taken, 400 - taken));
    check_ended(windows, 0, "windows", "goes beyond the 32 positions of the model",
                strf("%ld windows of 85 tokens, fewer than", (tokens - 1) / 84));

    const Ran led_by_256 = train_sink("probe song/step_60 -d song.jsonl --probe-seqs 500 "
                                      "--probe-len 84 --probe-from windows --bos doc");
    check_ended(led_by_256, 0, "windows, --bos doc",
                strf("%ld windows of 85 tokens", (tokens + 400 - 1) / 84));

    // --bos TOKEN precedes each record, as if the record began with it
    std::string led;
    for (auto& line : split(lines, '\n')) {
        if (!line.empty()) { led += "{\"text\": \"A" + line.substr(10) + "\n"; }
    }
    file_write(dir + "/led.jsonl", led);
    const std::string eight = "probe song/step_60 --probe-seqs 8 --probe-len 16 -d ";
    const Ran written = train_sink(eight + "led.jsonl"),
              put = train_sink(eight + "song.jsonl --bos A"),
              number = train_sink(eight + "song.jsonl --bos 65");
    CHECK(put.says("bos A | loss") && after_bos(put) == after_bos(written), "--bos A: %s",
          put.said().c_str());
    CHECK(after_bos(number) == after_bos(put), "--bos 65: %s", number.said().c_str());
    const Ran own = train_sink(eight + "song.jsonl --bos default"),
              plain = train_sink(eight + "song.jsonl");
    CHECK(own.says("bos default: none") && after_bos(own) == after_bos(plain) &&
              after_bos(own) != after_bos(put),
          "--bos default: %s", own.out.c_str());
    const Ran window = train_sink(eight + "song.jsonl --probe-from windows --bos A");
    CHECK(window.says("bos A | loss") && after_bos(window) != after_bos(put),
          "windows with --bos A: %s", window.out.c_str());
    const Ran two = train_sink(eight + "song.jsonl --bos ab");
    check_ended(two, EXIT_USER, "--bos ab",
                "--bos ab: wanted default, none, seq, doc, or one token");

    test_probed_edits(small);

    // generate: the end of a half-learned line
    const std::string g = "generate song/step_60 --tokens 30 --prompt '12 green bott'";
    const Ran a = train_sink(g + " --temperature 0"),
              b = train_sink(g + " --temperature 0 --seed 9"),
              k1 = train_sink(g + " --top-k 1 --seed 5");
    CHECK(a.code == 0 && starts_with(a.out, "12 green bott") && a.out.size() >= 40,
          "generate: %d %s", a.code, a.said().c_str());
    CHECK(a.out == b.out, "temperature 0 depends on the seed: '%s' '%s'", a.out.c_str(),
          b.out.c_str());
    CHECK(a.out == k1.out, "top-k 1 is not temperature 0: '%s' '%s'", k1.out.c_str(),
          a.out.c_str());
    const Ran s1 = train_sink(g + " --seed 1"), s1b = train_sink(g + " --seed 1"),
              s2 = train_sink(g + " --seed 2"), cold = train_sink(g + " --temperature 0.001");
    CHECK(s1.out == s1b.out && s1.out != s2.out, "a seed does not decide the text: '%s' '%s' '%s'",
          s1.out.c_str(), s1b.out.c_str(), s2.out.c_str());
    CHECK(cold.out == a.out, "temperature 0.001 is not the likeliest: '%s' '%s'", cold.out.c_str(),
          a.out.c_str());
    // ids for a model without a tokenizer; top-k 2 never leaves the two likeliest
    std::vector<std::string> seen;
    for (int seed = 0; seed < 12; seed++) {
        const Ran r = train_sink(
            strf("generate log/step_20 --prompt '24 3 5' --tokens 1 --top-k 2 --seed %d", seed));
        CHECK(r.code == 0 && starts_with(r.out, "24 3 5 "), "generate: %s", r.said().c_str());
        if (std::find(seen.begin(), seen.end(), r.out) == seen.end()) { seen.push_back(r.out); }
    }
    CHECK(seen.size() == 2, "top-k 2 gave %zu different tokens in 12 draws", seen.size());
}
// shards made with a tokenizer: the run's checkpoints carry it, and everything reads with it,
// wherever they are
static void test_tokenizer() {
    check_run("mkdir " + dir + "/tok && cp " + check_quoted(home + "/demo/tokenizer.json") + " " + dir +
              "/tok/tokenizer.json");
    Ran r = train_sink("tokenize song.txt --tokenizer tok/tokenizer.json -o songs");
    CHECK(r.code == 0 &&
              file_read(dir + "/songs/tokenizer.json") == file_read(home + "/demo/tokenizer.json"),
          "tokenize: %d %s", r.code, r.err.c_str());
    remove_tree(dir + "/tok");
    train("bpe", "-d songs -b 4 -t 16 --width 16 --ffn-width 24 -n 3 --probe-seqs 4 --probe-len 8 "
                 "--val-seqs 4");
    CHECK(file_read(dir + "/bpe/step_3/tokenizer.json") == file_read(home + "/demo/tokenizer.json"),
          "a checkpoint without its tokenizer");
    const Ran with = train_sink(
        "probe bpe/step_3 -d song.txt --probe-seqs 4 --probe-len 8 --tokenizer songs");
    check_run("cd " + dir + " && mv songs away && cp -r bpe/step_3 alone");
    const Ran without = train_sink("probe alone -d song.txt --probe-seqs 4 --probe-len 8");
    // the result line names its flags
    const std::string unnamed = replaced(with.out, ", --tokenizer songs", "");
    CHECK(without.code == 0 && with.code == 0 && without.out == unnamed,
          "probe of text with the checkpoint's own tokenizer: %d %s", without.code,
          without.said().c_str());
    r = train_sink("generate alone --prompt 'green bottles' --tokens 5");
    CHECK(r.code == 0 && starts_with(r.out, "green bottles"),
          "generate with the checkpoint's own tokenizer: %d %s", r.code, r.said().c_str());
    r = train_sink("generate alone --prompt \"$(printf 'caf\\351')\" --tokens 5");
    check_ended(r, EXIT_USER, "generate: a prompt in Latin-1", "bytes that are not UTF-8");
    // ids for a model without a tokenizer, also when it has as many as bytes are
    train("ids",
          "-b 4 -t 16 --width 16 --ffn-width 24 -n 1 --probe-seqs 4 --probe-len 8 --val-seqs 4");
    r = train_sink("generate ids/step_1 --prompt '3 4' --tokens 2");
    CHECK(r.code == 0 && starts_with(r.out, "3 4 "),
          "257 ids of the built-in task are not bytes: %s", r.said().c_str());
}
static Json probe(const std::string& args) {
    const Ran r = train_sink("probe " + args + " --json probe.json");
    bool quiet = true;                                   // but for what it is about to do
    for (auto& line : split(r.err, '\n')) {
        quiet = quiet && (line.empty() || starts_with(line, "note   measuring "));
    }
    CHECK(r.code == 0 && quiet, "probe %s: %d %s", args.c_str(), r.code, r.err.c_str());
    Json j; std::string error, text = r.code ? "{}" : file_read(dir + "/probe.json");
    CHECK(json_parse(text.data(), text.size(), &j, &error), "probe.json: %s", error.c_str());
    return j;
}
// numbers to tol relative
static void same_json(const Json& got, const Json& want, double tol, const std::string& what) {
    bool same = got.type == want.type && got.items.size() == want.items.size() &&
                (got.type == Json::NUMBER || got.string == want.string);
    if (got.type == Json::NUMBER) {
        same = same && fabs(got.number - want.number) <= tol * std::max(1e-3, fabs(want.number));
    }
    CHECK(same, "%s: got %s (%zu items), wanted %s (%zu items)", what.c_str(), got.string.c_str(),
          got.items.size(), want.string.c_str(), want.items.size());
    for (size_t i = 0; i < got.items.size() && i < want.items.size(); i++) {
        same_json(got.items[i], want.items[i], tol, strf("%s[%zu]", what.c_str(), i));
    }
    for (auto& f : want.fields) {
        const Json* g = got.get(f.first.c_str());
        if (CHECK(g, "%s has no %s", what.c_str(), f.first.c_str())) {
            same_json(*g, f.second, tol, what + "." + f.first);
        }
    }
}
// a minimal reader, by the format's own description
static std::vector<float> npy_read(const std::string& path, long rows, long cols) {
    const std::string s = file_read(path);
    const size_t header = s.size() > 10 ? (unsigned char)s[8] + 256 * (unsigned char)s[9] : 0;
    const bool ok = s.size() > 10 && !memcmp(s.data(), "\x93NUMPY\x01\x00", 8) &&
                    (header + 10) % 64 == 0 && s.size() > 10 + header && s[9 + header] == '\n' &&
                    s.find(strf("'shape': (%ld,%ld,)", rows, cols)) < 10 + header &&
                    s.find("'descr': '<f4'") < 10 + header &&
                    s.find("'fortran_order': False") < 10 + header &&
                    s.size() == 10 + header + 4 * rows * cols;
    CHECK(ok, "%s is not a .npy of (%ld, %ld): %s", path.c_str(), rows, cols,
          s.substr(0, 100).c_str());
    std::vector<float> x(rows * cols);
    if (ok) { memcpy(x.data(), s.data() + 10 + header, 4 * rows * cols); }
    return x;
}
static void test_probe() {
    const std::string how = "log/step_20 --bb-vocab 24 --probe-seqs 8 --probe-len 16 ";
    const Json last = events(log_read(dir + "/log"), "eval").back();
    Json want = last;
    for (auto& f : want.fields) {
        if (f.first == "val_loss" || f.first == "time") { f = want.fields[0]; }
    }  // a probe has none
    same_json(probe(how), want, 1e-6, "probe against the last eval");

    const Json one = probe(how + "--per-sequence --dump maps --dump-heads 0:1,1:0 --dump-seq 3");
    const Json* alpha = one.get("alpha");
    if (!CHECK(alpha && alpha->items.size() == 8, "--per-sequence: no alpha[8]")) { return; }
    for (int l = 0; l < 2; l++) {
        for (int h = 0; h < 2; h++) {
            double mean = 0;
            for (auto& seq : alpha->items) {
                CHECK(seq.items.size() == 2 && seq.items[l].items.size() == 2 &&
                          seq.items[l].items[h].items.size() == 10,
                      "alpha is not [seq][L][H][k]");
                mean += seq.items[l].items[h].items[0].number / 8;
            }
            check_near(mean, last.get("alpha1")->items[l].items[h].number, 1e-6,
                       "mean of alpha_1 over the sequences, layer %d head %d", l, h);
        }
    }
    for (auto lh : { std::pair<int, int>(0, 1), std::pair<int, int>(1, 0) }) {
        const std::string name = strf("%s/maps/%d_%d_", dir.c_str(), lh.first, lh.second);
        const std::vector<float> map = npy_read(name + "map.npy", 16, 17);
        npy_read(name + "cosine.npy", 16, 17); npy_read(name + "product.npy", 16, 17);
        double alpha1 = 0;
        for (int t = 0; t < 16; t++) {
            double row = 0, future = 0;
            for (int j = 0; j <= 16; j++) {
                row += map[t * 17 + j];
                future += j > t + 1 || j == 0 ? fabs(map[t * 17 + j]) : 0;
            }
            check_near(row, 1, 1e-5, "map %d:%d: row %d", lh.first, lh.second, t);
            CHECK(future == 0,
                  "map %d:%d: row %d sees the future, or a key that this build has not", lh.first,
                  lh.second, t);
            alpha1 += map[t * 17 + 1] / 16.0;
        }
        check_near(alpha1, alpha->items[3].items[lh.first].items[lh.second].items[0].number, 1e-6,
                   "first column of the map of sequence 3, head %d:%d", lh.first, lh.second);
    }
    const Json lists = probe(
        "log/step_20 --bb-vocab 24 --probe-seqs 8 --eps 0.05,0.3 --probe-len 8,16");
    const Json* lengths = lists.get("all");
    if (!CHECK(lengths && lengths->items.size() == 2, "--probe-len 8,16: no list of two")) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        for (int e = 0; e < 2; e++) {
            const Json single = probe(
                strf("log/step_20 --bb-vocab 24 --probe-seqs 8 --eps %s --probe-len %d",
                     e ? "0.3" : "0.05", i ? 16 : 8));
            const Json* sinks = lengths->items[i].get("sinks");
            if (CHECK(sinks && sinks->items.size() == 2, "--eps 0.05,0.3: no sinks")) {
                same_json(sinks->items[e], *single.get("sink"), 0,
                          strf("lists: length %d eps %d", i, e));
            }
            same_json(*lengths->items[i].get("alpha1"), *single.get("alpha1"), 0, "lists: alpha1");
        }
    }
    CHECK(lists.get("sinks")->items[0].get("sink_k")->items[0].number > 0,
          "no alpha_1 passes eps 0.05: nothing was compared");
    // a token repeated: every key looks the same, and only rotation tells them apart
    for (const char* input : { "random", "repeated" }) {
        const std::string drawn = strf("--probe-seqs 8 --probe-len 16 --probe-input %s", input);
        const Json j = probe("log/step_20 " + drawn);
        const Json* sink = j.get("sink");
        CHECK(sink && num(*sink, "n") == 8 && num(j, "probe_loss") > 0, "--probe-input %s", input);
    }
}
static void test_bench() {
    const std::string model = "bench -b 2 -t 16 --layers 2 --width 16 --ffn-width 24 -n 3";
    const Ran r = train_sink(model);
    Json j; std::string error;
    CHECK(r.code == 0 && json_parse(r.out.data(), r.out.size(), &j, &error) &&
              num(j, "tokens_per_s") > 0 && num(j, "params") > 1000 &&
              fabs(num(j, "of_product") - num(j, "gflops") / num(j, "product_gflops")) < 0.01,
          "bench: %s", r.said().c_str());
    const Ran whole = train_sink(model + " --json step.json --total-batch 64");
    const std::string text = file_read(dir + "/step.json");
    CHECK(whole.code == 0 && json_parse(text.data(), text.size(), &j, &error) &&
              num(j, "tokens_per_step") == 64,
          "bench --total-batch --json: %s %s", text.c_str(), whole.err.c_str());
}

int main(int argc, char** argv) {
    home = check_home();
    binary = check_program();
    dir = check_tmp();
    setenv("OMP_NUM_THREADS", "2", 1); setenv("OMP_WAIT_POLICY", "passive", 1);
    const bool print = argc > 2 && argv[2] == std::string("print");
    CASE("golden") { test_golden(print); }
    if (print) { return 0; }
    CASE("log") { test_log(); }
    CASE("same_bits") { test_same_bits(); }
    CASE("products") { test_products(); }
    const std::string whole = train("whole", LONG_RUN);
    CASE("resume") { test_resume(whole); }
    CASE("disturbed") { test_disturbed(whole); }
    CASE("stop") { test_stop(); }
    CASE("resume_flags") { test_resume_flags(); }
    CASE("directory") { test_directory(); }
    CASE("terminal") { test_terminal(); }
    CASE("updates") { test_updates(); }
    CASE("text") { test_text(); }
    CASE("tokenizer") { test_tokenizer(); }
    CASE("probe") { test_probe(); }
    CASE("bench") { test_bench(); }
    remove_tree(dir);
    return check_done();
}
