/*
test_export_gguf.cpp -- export --to gguf: what is written reads back to the bit and measures the
same, each type rounds as it should, a tokenizer keeps its ids, and what llama.cpp does not compute
is rejected by name. What llama.cpp makes of it: dev/peers/check_gguf.py.
*/
#include "../check.h"
#include <map>
#include "../../open/gguf_out.h"
#include "../../files/safetensors.h"
#include "../../tokenizer.h"

static const std::string SCRATCH = "build/test/export_gguf/", TEXT = SCRATCH + "text.txt";

static Ran program(const std::string& arguments) {
    return check_run("OMP_NUM_THREADS=1 build/cpu/train_sink " + arguments);
}

static Ran exported(const std::string& from, const std::string& to, const std::string& more = "") {
    return program("export " + from + " --to gguf --out " + to + " " + more);
}

static std::string trained(const std::string& name, const std::string& flags) {
    const std::string out = SCRATCH + name;
    const Ran r = program("train --steps 3 --warmup 2 --lr 0.02 --layers 2 --heads 2 --width 32 "
                          "--ffn-width 32 --seq 16 -b 4 --eval-every 0 --sample 0 --val-seqs 4 "
                          "--probe-seqs 4 --probe-len 16 --out " + out + " " + flags);
    CHECK(r.code == 0, "%s: exit %d, %s", name.c_str(), r.code, r.err.c_str());
    return out + "/step_3";
}

// what probe measures of a model, without its name
static std::string measured(const std::string& model) {
    const std::string json = SCRATCH + "probe.json";
    const Ran r = program("probe " + model + " --probe-input random --probe-len 16 --probe-seqs 4 "
                          "--per-sequence --json " + json);
    if (!CHECK(r.code == 0, "probe %s: %s", model.c_str(), r.err.c_str())) { return ""; }
    const std::string text = file_read(json);
    return text.substr(std::min(text.size(), text.find("\"probe_loss\"")));
}

// Exports a model and reads the file again: the same numbers, and the same file once more.
static void model_check(const std::string& name, const std::string& from) {
    const std::string to = SCRATCH + name + ".gguf", again = SCRATCH + name + "-again.gguf";
    Ran r = exported(from, to);
    if (!CHECK(r.code == 0, "%s: exit %d, %s", name.c_str(), r.code, r.err.c_str())) { return; }
    CHECK(measured(from) == measured(to) && !measured(to).empty(),
          "%s: the probe of what was written is another", name.c_str());
    r = exported(to, again);
    CHECK(r.code == 0 && file_read(to) == file_read(again), "%s: read and written it is another "
          "file: %s", name.c_str(), r.err.c_str());
}

// Each half is a float that becomes this half again, and what lies between two goes to the nearer
// one, or to the even one.
static void halves_check() {
    const GgufStored* f16 = gguf_stored("f16");
    const auto half = [&](float x) {
        uint16_t h;
        f16->write(&x, 1, (unsigned char*)&h);
        return h;
    };
    long wrong = 0, between = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        const float x = float_of_half(h), next = float_of_half(h + 1);
        const bool finite = std::isfinite(x);
        wrong += finite && half(x) != h;
        if ((h & 0x7fff) >= 0x7bff) { continue; }        // the last one has no next
        const float middle = (x + next) / 2;
        between += half(middle) != (h % 2 ? h + 1 : h);
        between += half(nextafterf(middle, x)) != h || half(nextafterf(middle, next)) != h + 1;
    }
    CHECK(wrong == 0 && between == 0, "f16: %ld halves come back as others, %ld between two go "
          "wrong", wrong, between);
    CHECK(half(65519) == 0x7bff && half(65520) == 0x7c00 && half(-1e9f) == 0xfc00, "f16: the ends");
}

static void stored_check() {
    Rng rng{ 5 };
    for (const char* name : { "f32", "f16", "bf16", "q8_0" }) {
        const GgufStored* type = gguf_stored(name);
        float x[64], y[64], z[64];
        for (float& v : x) { v = rng_normal(&rng); }
        x[40] = 0;
        std::vector<unsigned char> bytes(64 / type->block * type->bytes), again(bytes.size());
        type->write(x, 64, bytes.data());
        gguf_type(type->id)->read(bytes.data(), 64, y);
        type->write(y, 64, again.data());
        gguf_type(type->id)->read(again.data(), 64, z);
        // half a step of the largest of a block, and what a half's scale is off
        const std::map<std::string, double> steps = { { "f32", 0 }, { "f16", 0x1p-11 },
                                                      { "bf16", 0x1p-8 }, { "q8_0", 0.5 / 127 } };
        for (int i = 0; i < 64; i++) {
            float most = fabsf(x[i]);
            const int block = i / 32 * 32;
            for (int k = 0; k < 32 && type->block > 1; k++) {
                most = std::max(most, fabsf(x[block + k]));
            }
            check_near(y[i], x[i], steps.at(name) * most * 1.13, "%s: number %d", name, i);
            CHECK(y[i] == z[i], "%s: number %d changes again", name, i);
        }
    }
}

// f32 keeps the bits of a checkpoint's tensors; a file of another type is what f32 rounds to
static void types_check(const std::string& from) {
    size_t bytes = ~(size_t)0;
    for (const char* type : { "f32", "bf16", "q8_0" }) {
        const std::string to = SCRATCH + type + ".gguf", again = SCRATCH + type + "-2.gguf";
        Ran r = exported(from, to, std::string("--type ") + type);
        CHECK(r.code == 0, "%s: %s", type, r.err.c_str());
        r = exported(to, again, std::string("--type ") + type);
        CHECK(r.code == 0 && file_read(to) == file_read(again), "%s: written twice, rounded twice",
              type);
        CHECK(file_read(to).size() < bytes, "%s: no smaller than the type before", type);
        bytes = file_read(to).size();
        CHECK(!measured(to).empty(), "%s: is not read", type);
    }
    const Ran r = exported("test/open/families/qwen3", SCRATCH + "short.gguf", "--type q8_0");
    CHECK(r.code == 0 && r.out.find("tensors are f16") != std::string::npos, "rows of 16 as q8_0: "
          "%s", r.out.c_str());
}

// the ids of a tokenizer's golden strings, from the file
static void words_check(const std::string& name) {
    const std::string vectors = "test/vectors/" + name, at = SCRATCH + name + "-words";
    make_dirs(at);
    file_write(at + "/tokenizer.json", file_read(vectors + ".json"));
    if (name == "llama3") {                              // it names no end of documents
        const Json j = json_file(vectors + ".json");
        file_write(at + "/tokenizer_config.json",
                   "{\"eos_token\": " + json_str(j.get("added_tokens")->items.back()
                                                     .get("content")->string) + "}");
    }
    const std::string from = trained(name, "--data " + TEXT + " --tokenizer " + at),
                      to = SCRATCH + name + "-words.gguf";
    const Ran r = exported(from, to);
    if (!CHECK(r.code == 0, "%s: %s", name.c_str(), r.err.c_str())) { return; }
    const Tokenizer ours = tokenizer_load(at), theirs = tokenizer_load(to);
    CHECK(ours.before == theirs.before && ours.after == theirs.after && ours.eos == theirs.eos &&
              ours.bos == theirs.bos, "%s: BOS or EOS", name.c_str());
    long checked = 0, wrong = 0;
    for (auto& line : split(file_read(vectors + ".jsonl"), '\n')) {
        if (line.empty()) { continue; }
        const Json j = json_of(line);
        if (!j.get("text") || !j.get("ids")) { continue; }
        const std::string text = j.get("text")->string;
        const std::vector<int> ids = tokenizer_encode(ours, text, true);
        checked++;
        wrong += ids != tokenizer_encode(theirs, text, true) ||
                 tokenizer_decode(ours, ids.data(), ids.size(), false) !=
                     tokenizer_decode(theirs, ids.data(), ids.size(), false);
    }
    CHECK(checked > 100 && wrong == 0, "%s: %ld of %ld strings differ", name.c_str(), wrong,
          checked);
}

static void bytes_check(const std::string& from) {
    const std::string to = SCRATCH + "bytes.gguf";
    const Ran r = exported(from, to);
    CHECK(r.code == 0, "bytes: %s", r.err.c_str());
    const Tokenizer bytes = tokenizer_bytes(), theirs = tokenizer_load(to);
    for (const char* text : { "<|endoftext|> \n\n it's 12345", "caf\xc3\xa9\t", "" }) {
        CHECK(tokenizer_encode(bytes, text, true) == tokenizer_encode(theirs, text, true),
              "other ids for '%s'", text);
    }
    CHECK(theirs.eos == 256 && theirs.vocab_size == 257, "end %d of %d tokens", theirs.eos,
          theirs.vocab_size);
}

static void refused(const std::string& from, const std::string& to, const std::string& more,
                    const std::string& says) {
    const Ran r = exported(from, to, more);
    CHECK(r.code == EXIT_USER && r.says(says.c_str()) && r.says("HINT"),
          "export %s to %s %s: exit %d, wanted '%s', got %s", from.c_str(), to.c_str(),
          more.c_str(), r.code, says.c_str(), r.err.c_str());
}

static void refusals_check(const std::string& from) {
    const std::string no = SCRATCH + "no.gguf";
    refused(from, SCRATCH + "no", "", "wanted a file, such as");
    refused(from, no, "--type q4_0", "--type q4_0: wanted f32, f16, bf16, q8_0");
    refused(from, SCRATCH + "f32.gguf", "", "already exists, wanted a new file");
    refused(from, "/nowhere/no.gguf", "", "/nowhere/no.gguf");
    refused("test/open/families/mixtral", no, "", "experts");
    const Ran r = program("export " + from + " --type f16 --out " + no);
    CHECK(r.code == EXIT_USER && r.says("--type"), "--type without gguf: %s", r.err.c_str());
    const struct { const char *flags, *says; } LACKS[] = {
        { "--window 5", "got --window 5, wanted a model that llama.cpp computes: the nearest is "
                        "llama, with --window 0" },
        { "--prefix 3", "got --prefix 3, wanted" },
        { "--norm-kind ln --out-bias 1", "the nearest is stablelm" },
        { "--qkv-bias 1 --window 5 --local-layers 01", "the nearest is qwen2" },
        { "--rope-scaling llama3 --rope-factor 4 --rope-low 2", "--rope-low 2" },
        { "--logit-cap 3", "got --logit-cap 3, wanted" },
    };
    int n = 0;
    for (auto& row : LACKS) {
        refused(trained(strf("lacks-%d", n++), row.flags), no, "", row.says);
    }
    // a number that no half can hold
    const std::string big = SCRATCH + "big";
    make_dirs(big);
    for (auto& name : dir_list(from)) {
        file_write(big + "/" + name, file_read(from + "/" + name));
    }
    std::string weights = file_read(big + "/model.safetensors");
    const float x = 1e6f;
    memcpy(&weights[weights.size() - 4 * 32 - 4], &x, 4);
    file_write(big + "/model.safetensors", weights);
    refused(big, no, "--type f16", "which is more than f16 can hold");
    for (auto& name : dir_list(SCRATCH)) {
        CHECK(name.find("no.gguf") == name.npos, "a refused export left %s", name.c_str());
    }
}

int main() {
    remove_tree(SCRATCH);
    make_dirs(SCRATCH);
    std::string text;
    for (int i = 0; i < 4000; i++) { text += strf("%d and %d, ", i % 7, i * i % 11); }
    file_write(TEXT, text);
    for (const char* name : { "llama_llama3", "llama_yarn", "qwen2", "qwen3", "olmo2", "gemma",
                              "stablelm", "gpt_neox", "phi", "gpt2", "gpt2_untied", "falcon_7b",
                              "falcon_40b", "granite" }) {
        model_check(name, std::string("test/open/families/") + name);
    }
    model_check("smollm3", trained("smollm3-run", "--layers 5 --rope-layers 1110"));
    model_check("phi3", trained("phi3-run", "--rope-part 0.5"));
    halves_check();
    stored_check();
    const std::string bytes = trained("bytes-run", "--data " + TEXT + " --tied 1");
    types_check(bytes);
    bytes_check(bytes);
    for (const char* name : { "gpt2", "neox", "llama3", "llama2" }) { words_check(name); }
    refusals_check(bytes);
    return check_done();
}
