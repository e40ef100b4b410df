/*
test_sft.cpp -- conversations as tokens: what is masked, what is refused, and the batches that come
of a .jsonl of them. With bytes an id is a character, so that borders show.
*/
#include "../../text/sft.h"
#include "../../core/targets.h"
#include "../check.h"
#include "../../text/encode.h"

static std::string dir;

// ids as text: EOS is $; a masked token in upper case would not do for \n, so ~ precedes it
static std::string shown(const std::vector<uint32_t>& ids) {
    std::string s;
    for (uint32_t id : ids) {
        const bool masked = sft_is_masked(id);
        const int plain = masked ? ~(int)id : (int)id;
        if (masked) { s += "~"; }
        s += plain == 256 ? '$' : (char)plain;
    }
    return s;
}
static std::string masked(const std::string& s) {
    std::string o;
    for (char c : s) {
        o += '~';
        o += c;
    }
    return o;
}

static DataOptions options(const std::string& file) {
    DataOptions o;
    o.data = { file };
    o.cache = dir + "/cache";
    o.T = 16;
    o.val_seqs = 2;
    o.probe_seqs = 2;
    o.probe_len = 8;
    o.sft = "segments"; o.sft_loss = "assistant";
    return o;
}

// windows of the same ids, in any order: every window of the training part is where it should be
static void test_batches() {
    std::string lines;
    std::vector<uint32_t> want;
    for (int i = 0; i < 40; i++) {
        const std::string record = strf("{\"segments\": [{\"text\":\"<|user|>\\nsay %d\\n\",\"loss\":0},"
                                        "{\"text\":\"%d\",\"loss\":1}], \"text\": 3}", i, i);
        lines += record + "\n";
        sft_encode(Tokenizer(), true, json_of(record), &want);
    }
    const std::string file = dir + "/talk.jsonl";
    file_write(file, lines);
    Data d = data_open(options(file));
    long counted = 0;
    for (int k = 0; k < d.sources[0].windows; k++) {
        int x[17];
        data_next(&d, x, 1);
        bool found = false;
        for (size_t at = 0; at + 17 <= want.size(); at += 16) {
            found = found || std::equal(x, x + 17, want.begin() + at,
                                        [](int a, uint32_t b) { return (uint32_t)a == b; });
        }
        CHECK(found, "a window is none of the text's");
        for (int t = 1; t < 17; t++) { counted += x[t] >= 0; }
    }
    CHECK(counted > d.sources[0].windows && counted < 4 * d.sources[0].windows,
          "%ld targets in %ld windows", counted, d.sources[0].windows);
    CHECK(data_open(options(file)).sources[0].windows == d.sources[0].windows,
          "found again in the cache");
    DataOptions all = options(file);
    all.sft_loss = "all";
    Data e = data_open(all);
    int x[17];
    data_next(&e, x, 1);
    CHECK(std::all_of(x, x + 17, [](int id) { return id >= 0; }),
          "--sft-loss all masks nothing, and takes no cache of the other");
    const struct {
        const char* name;
        const char* text;
        const char* says;
    } bad[] = {
        { "a.jsonl", "{\"text\": \"x\"}\n", "wanted {\"segments\"" },
        { "b.txt", "x\n", "wanted a .jsonl of" },
    };
    for (auto& b : bad) {
        file_write(dir + "/" + b.name, b.text);
        const Died died = check_dies([&] { data_open(options(dir + "/" + b.name)); });
        check_ended(died, EXIT_USER, b.name, b.says);
    }
    DataOptions wrong = options(file);
    wrong.sft_loss = "user";
    CHECK(check_dies([&] { data_open(wrong); }).says("wanted assistant or all"), "--sft-loss user");
    wrong.sft = "chatml";
    CHECK(check_dies([&] { data_open(wrong); }).says("scripts/sft.py"), "chatml");
}

// conversations, one per line; every `each`-th has an answer
static std::string conversations(int n, int each) {
    std::string lines;
    for (int i = 0; i < n; i++) {
        lines += "{\"segments\": [{\"text\": \"what is the number " + strf("%d", i) +
                 " and why is it so, user, as it is\", \"loss\": 0}";
        if (each && i % each == 0) { lines += ", {\"text\": \"it is so as it is\", \"loss\": 1}"; }
        lines += "]}\n";
    }
    return lines;
}

static const char* const TRAIN =
    "OMP_NUM_THREADS=1 build/cpu/train_sink train --sft segments --seq 16 -b 1 --width 8 --heads 2 "
    "--ffn-width 8 --layers 1 --val-seqs 2 --probe-seqs 2 --eval-every 0 --sample 0 "
    "--weight-decay 0.5 --lr 0.1 --warmup 0 ";

static std::string hashes(const std::string& checkpoint) {
    const Json numbers = *json_of_file(checkpoint + "/state.json").get("numbers");
    return numbers.get("model")->string + " " + numbers.get("optimizer")->string;
}

static std::string of_record(const std::string& record) {
    std::vector<uint32_t> ids;
    const std::string error = sft_encode(Tokenizer(), true, json_of(record), &ids);
    return error.empty() ? shown(ids) : "wrong: " + error;
}

// the form `segments`: what counts is what the record says, and an EOS ends it once
static void test_segments() {
    const struct { const char* record; std::string want; } right[] = {
        { "{\"segments\":[{\"text\":\"ab\",\"loss\":0},{\"text\":\"c\",\"loss\":1}]}",
          masked("ab") + "c" + masked("$") },
        { "{\"segments\":[{\"loss\":true,\"text\":\"ab\"},{\"text\":\"c\",\"loss\":false}],\"id\":7}",
          "ab" + masked("c$") },
        { "{\"prompt\":\"a\",\"completion\":\"b\"}", masked("a") + "b$" },
        { "{\"prompt\":\"a\",\"completion\":\"b\",\"label\":true,\"weight\":1}", masked("a") + "b$" },
    };
    for (auto& r : right) {
        const std::string got = of_record(r.record);
        CHECK(got == r.want, "%s: %s", r.record, got.c_str());
    }
    // special tokens that are written out arrive as their ids, and one EOS is enough
    const Tokenizer tok = tokenizer_load("test/after/score/llama");
    std::vector<uint32_t> ids;
    CHECK(sft_encode(tok, true,
                     json_of("{\"segments\":[{\"text\":\"<s>\",\"loss\":0},"
                             "{\"text\":\"</s>\",\"loss\":1}]}"), &ids).empty() &&
              ids == std::vector<uint32_t>({ sft_masked(tok.bos), (uint32_t)tok.eos }),
          "%zu ids of <s></s>", ids.size());
    ids.clear();
    sft_encode(tok, true, json_of("{\"segments\":[{\"text\":\"</s>\",\"loss\":0}]}"), &ids);
    CHECK(ids == std::vector<uint32_t>({ sft_masked(tok.eos) }), "%zu ids of a masked EOS", ids.size());
    for (const char* bad :
         { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "{\"segments\":[]}",
           "{\"segments\":{}}", "{\"segments\":[{\"text\":\"a\"}]}",
           "{\"segments\":[{\"text\":\"a\",\"loss\":0.5}]}",
           "{\"segments\":[{\"text\":\"a\",\"loss\":\"1\"}]}",
           "{\"segments\":[{\"text\":1,\"loss\":1}]}",
           "{\"segments\":[{\"text\":\"a\",\"loss\":1,\"weight\":2}]}",
           "{\"segments\":[{\"text\":\"a\",\"loss\":1}],\"loss_mask\":[0]}",
           "{\"prompt\":\"a\",\"completion\":\"b\",\"label\":false}", "{\"prompt\":\"a\"}",
           "{\"prompt\":\"a\",\"completion\":\"b\",\"weight\":0}",
           "{\"prompt\":\"a\",\"completion\":\"b\",\"history\":[[\"c\",\"d\"]]}",
           "{\"prompt\":\"a\",\"completion\":\"b\",\"system\":\"c\"}",
           "{\"tools\":[1],\"prompt\":\"a\",\"completion\":\"b\"}" }) {
        CHECK(starts_with(of_record(bad), "wrong: "), "%s: %s", bad, of_record(bad).c_str());
    }
}

// data in which nothing is to be learned are refused before a run begins, and a step without a
// target moves no weight and no moment
static void test_no_target() {
    const std::string none = dir + "/none.jsonl", some = dir + "/some.jsonl", out = dir + "/run";
    file_write(none, conversations(300, 0));
    file_write(some, conversations(300, 2));
    DataOptions o = options(none);
    CHECK(!data_has_target(data_open(o), 0, o.T), "no assistant, no target");
    o.fix_token = { { 5, 7 } };                          // what is put in its place is none either
    o.random_token = { 3 };
    CHECK(!data_has_target(data_open(o), 0, o.T), "a token that is fixed, or random");
    o = options(none);
    o.sft_loss = "all";
    std::vector<int> plain(o.T + 1), fixed(o.T + 1);
    Data all = data_open(o);
    data_next(&all, plain.data(), 1);
    o.fix_token = { { 5, 7 } };
    all = data_open(o);
    data_next(&all, fixed.data(), 1);
    CHECK(plain[4] != 7 && fixed[4] == 7, "a token that is fixed is another one");
    CHECK(data_has_target(data_open(o), o.T, o.T) && !data_has_target(data_open(o), o.T + 1, o.T),
          "--sft-loss all: up to the last token");
    CHECK(data_has_target(data_open(options(some)), 0, o.T), "some answers");
    o = DataOptions();
    CHECK(data_has_target(data_open(o), o.T, o.T) && !data_has_target(data_open(o), o.T + 1, o.T), "bb");

    Ran r = check_run(std::string(TRAIN) + "-n 20 -d " + none + " -o " + out);
    check_ended(r, EXIT_USER, "no target at all", "has no target to learn from", "--sft-loss all");
    CHECK(!is_there(out), "no target at all: a run was begun");
    r = check_run(std::string(TRAIN) + "-n 24 --save-every 1 -d " + some + " -o " + out);
    if (!check_ended(r, 0, "some targets", "loss none (no target, no update)")) { return; }
    int without = 0, with = 0;
    std::string before;
    for (auto& line : split(file_read(out + "/log.jsonl"), '\n')) {
        if (!contains(line, "\"event\":\"train\"")) { continue; }
        const Json j = json_of(line);
        const int step = (int)j.get("step")->number;
        const std::string now = hashes(out + strf("/step_%d", step));
        const bool null = j.get("loss")->type == Json::NUL;
        if (null) { CHECK(j.get("grad_norm")->number == 0, "step %d: a gradient", step); }
        if (!before.empty()) {
            CHECK((now == before) == null, "step %d: loss %s, the numbers %s", step,
                  null ? "null" : "there", now == before ? "stay" : "move");
            without += null;
            with += !null;
        }
        before = now;
    }
    CHECK(without >= 3 && with >= 3, "%d steps without a target, %d with one", without, with);
}

int main() {
    dir = check_tmp();
    CASE("segments") { test_segments(); }
    CASE("batches") { test_batches(); }
    CASE("no_target") { test_no_target(); }
    remove_tree(dir);
    return check_done();
}
