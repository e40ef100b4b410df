/*
test_export.cpp -- the command export: what is in the directory, that it reads back to the bit and
measures the same, that it is the same each time, and what it refuses. What PyTorch makes of it:
dev/peers/check_export.py.
*/
#include "check.h"
#include "../tokenizer.h"

static const std::string SCRATCH = "build/test/export/", TEXT = SCRATCH + "text.txt";
static const char* const PROGRAM = "build/cpu/train_sink";

static Ran program(const std::string& arguments) {
    return check_run(std::string("OMP_NUM_THREADS=1 ") + PROGRAM + " " + arguments);
}

static Ran exported(const std::string& from, const std::string& to, const std::string& more = "") {
    return program("export " + from + " --out " + to + " " + more);
}

// a run of a few steps; returns its checkpoint
static std::string trained(const std::string& name, const std::string& flags) {
    const std::string out = SCRATCH + name;
    const Ran r = program("train --steps 6 --warmup 2 --lr 0.02 --layers 2 --heads 2 --width 12 "
                          "--ffn-width 8 --seq 16 -b 4 --eval-every 3 --sample 0 --val-seqs 4 "
                          "--probe-seqs 4 --probe-len 16 --out " + out + " " + flags);
    CHECK(r.code == 0, "%s: exit %d, %s", name.c_str(), r.code, r.err.c_str());
    return out + "/step_6";
}

static bool same_files(const std::string& a, const std::string& b) {
    return file_read(a) == file_read(b);
}

// what probe measures of a checkpoint, without its name
static std::string measured(const std::string& checkpoint) {
    const std::string json = SCRATCH + "probe.json";
    const Ran r = program("probe " + checkpoint + " --probe-input random --probe-len 16 "
                          "--probe-seqs 4 --per-sequence --json " + json);
    if (!CHECK(r.code == 0, "probe %s: %s", checkpoint.c_str(), r.err.c_str())) { return ""; }
    const std::string text = file_read(json);
    const size_t at = text.find("\"probe_loss\"");
    return at == std::string::npos ? "" : text.substr(at);
}

// the PyTorch file in the program is that of the repository without its first line and its last
static void code_check(const std::string& dir) {
    std::string source = file_read("scripts/modeling_train_sink.py");
    source.erase(0, source.find('\n') + 1);
    source.erase(source.rfind("# )PYTHON"));
    CHECK(file_read(dir + "/modeling_train_sink.py") == source, "the PyTorch file is another");
}

// each key of config.json that may change the model is known to the PyTorch file
static void keys_check(const std::string& dir) {
    const Json config = json_of_file(dir + "/config.json");
    const std::string code = file_read(dir + "/modeling_train_sink.py");
    for (const char* object : { "train_sink", "rope_scaling" }) {
        const Json* rows = config.get(object);
        if (!CHECK(rows, "%s: no %s", dir.c_str(), object)) { continue; }
        for (auto& f : rows->fields) {
            const size_t at = code.find(f.first + "=");
            CHECK(at != std::string::npos && strchr(" (\n", code[at - 1]),
                  "%s of %s is not known to modeling_train_sink.py", f.first.c_str(), object);
        }
    }
}

static void model_check(const std::string& name, const std::string& flags) {
    const std::string from = trained(name, flags), to = SCRATCH + name + "-out";
    const Ran r = exported(from, to);
    if (!CHECK(r.code == 0, "%s: exit %d, %s", name.c_str(), r.code, r.err.c_str())) { return; }
    CHECK(same_files(from + "/model.safetensors", to + "/model.safetensors"),
          "%s: the weights are not the checkpoint's", name.c_str());
    CHECK(measured(from) == measured(to) && !measured(to).empty(),
          "%s: the probe of what was written is another", name.c_str());
    code_check(to);
    const std::string again = SCRATCH + name + "-again";
    exported(from, again);
    CHECK(check_run("diff -r " + to + " " + again).code == 0, "%s: written otherwise the second "
          "time", name.c_str());
    CHECK(exported(to, again).code == 0 && same_files(to + "/config.json", again + "/config.json"),
          "%s: an export of the export is another model", name.c_str());
}

// README.md says of the run what its log says
static void card_check() {
    const std::string card = file_read(SCRATCH + "bytes-out/README.md");
    Json last;
    for (auto& line : split(file_read(SCRATCH + "bytes/log.jsonl"), '\n')) {
        if (line.find("\"event\":\"eval\"") != std::string::npos) { last = json_of(line); }
    }
    const double loss = last.get("val_loss")->number,
                 sink = last.get("sink")->get("sink_k")->items[0].number;
    for (auto& fact : { strf("| validation loss | %.4f |", loss),
                        strf("| Sink_1 | %.1f %% of heads", 100 * sink),
                        std::string("| steps | 6 (384 tokens) |"), "| data | " + TEXT,
                        std::string("ATTN=softmax BIAS=none"), std::string("parallel 1") }) {
        CHECK(card.find(fact) != std::string::npos, "README.md does not say: %s", fact.c_str());
    }
    // a checkpoint without its run
    check_run("cp -r " + SCRATCH + "bytes/step_6 " + SCRATCH + "alone && rm " + SCRATCH +
              "alone/state.json");
    exported(SCRATCH + "alone", SCRATCH + "alone-out");
    CHECK(file_read(SCRATCH + "alone-out/README.md").find("is not known here") != std::string::npos,
          "README.md of a checkpoint without a run speaks of one");
}

// tokenizer.json of bytes gives the ids that bytes have
static void bytes_check() {
    const Tokenizer bytes = tokenizer_bytes(),
                    theirs = tokenizer_load(SCRATCH + "bytes-out/tokenizer.json");
    Rng rng{ 7 };
    for (int i = 0; i < 300; i++) {
        std::string text = i == 0 ? "<|endoftext|> \n\n it's 12345" : "";
        for (int n = rng_below(&rng, 40); n > 0; n--) {
            const uint32_t c = rng_below(&rng, 1 << rng_below(&rng, 17));
            utf8_append(&text, c >= 0xD800 && c < 0xE000 ? '?' : c);
        }
        CHECK(tokenizer_encode(bytes, text, true) == tokenizer_encode(theirs, text, true),
              "other ids for '%s'", text.c_str());
    }
    CHECK(theirs.eos == 256 && theirs.vocab_size == 257, "end %d of %d tokens", theirs.eos,
          theirs.vocab_size);
}

static void refused(const std::string& from, const std::string& to, const std::string& says) {
    const Ran r = exported(from, to);
    CHECK(r.code == EXIT_USER && r.says(says.c_str()) && r.says("HINT"),
          "export %s to %s: exit %d, wanted '%s', got %s", from.c_str(), to.c_str(), r.code,
          says.c_str(), r.err.c_str());
}

static void refusals_check() {
    const std::string from = SCRATCH + "bytes/step_6", mine = SCRATCH + "mine",
                      again = SCRATCH + "bytes-out";
    refused("/nowhere", mine, "/nowhere");
    refused(TEXT, mine, "text.txt");
    refused("test/families/mixtral", mine, "experts");
    refused("test/families/jamba", mine, "Mamba");
    CHECK(!is_there(mine), "a refused export left a directory");
    refused(from, "''", "--out");
    refused(from, TEXT, "is there already");
    refused(from, from, "which no export wrote");
    make_dirs(mine);
    file_write(mine + "/notes.txt", "mine");
    refused(from, mine, "holds notes.txt");
    CHECK(file_read(mine + "/notes.txt") == "mine" && dir_list(mine).size() == 1,
          "a directory of somebody's was changed");
    // an earlier export is replaced, unless something else is in it by now
    CHECK(exported(from, again).code == 0, "an export does not replace an earlier one");
    file_write(again + "/mine.txt", "mine");
    refused(from, again, "holds mine.txt");
    file_write(mine + "/export.json", "{\"files\": [\"export.json\"]}");
    refused(from, mine, "holds notes.txt");
    CHECK(program("export --out " + SCRATCH + "none").says("wanted one"), "no checkpoint");
    CHECK(program("export " + from + " --out x --lr 3").says("not a flag of this command"),
          "a flag of another command");
    for (auto& name : dir_list(SCRATCH)) {
        CHECK(name.find(".old") == name.npos && name.size() < 20, "%s was left", name.c_str());
    }
}

// a program that was moved has all it needs
static void moved_check() {
    const std::string move = "cp " + std::string(PROGRAM) + " " + SCRATCH + "moved && cd " +
                             SCRATCH + " && ./moved export bytes/step_6 --out moved-out/";
    CHECK(check_run(move).code == 0, "a moved program does not export");
    code_check(SCRATCH + "moved-out");
}

int main() {
    check_run("rm -rf " + SCRATCH);
    make_dirs(SCRATCH);
    std::string text;
    for (int i = 0; i < 4000; i++) { text += strf("%d and %d, ", i % 7, i * i % 11); }
    file_write(TEXT, text);
    model_check("plain", "");
    model_check("bytes", "--data " + TEXT + " --parallel 1 --norm-kind ln --qkv-bias 1");
    model_check("yarn", "--rope-scaling yarn --rope-factor 2 --window 4 --local-layers 10 "
                        "--prefix 3 --tied 1");
    keys_check(SCRATCH + "yarn-out");
    card_check();
    bytes_check();
    refusals_check();
    moved_check();
    return check_done();
}
