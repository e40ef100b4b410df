/*
test_gguf.cpp -- GGUF files and weights.h. Every type is read to the bit as the package gguf
reads it (dev/make/make_gguf_vectors.py wrote the vectors), rows of a tensor are the rows of the whole,
a file that lies is refused, and thousands of damaged files are refused or read without a step
outside of them. Also built with sanitizers.
*/
#include <signal.h>
#include <sys/wait.h>
#include <set>
#include "../throws.h"
#include "../../open/foreign_weights.h"
#include "../../open/gguf.h"
#include "../../core/safetensors.h"
#include "../../text/split.h"
#include "../../text/encode.h"
#include "../../open/gguf_families.h"
#include "../../open/import_gguf.h"
#include "../../cpu/ops.h"
#undef exit
#include "../check.h"

static std::string dir, path;
static const char* const VECTORS = "test/vectors/gguf/";

// ---- files made here ----

template <class T> static std::string le(T x) { return std::string((const char*)&x, sizeof x); }
static std::string str(const std::string& s) { return le<uint64_t>(s.size()) + s; }

static std::string typed(const std::string& key, uint32_t kind) { return str(key) + le(kind); }
static std::string array(const std::string& key, uint32_t kind, uint64_t count) {
    return typed(key, GGUF_ARRAY) + le(kind) + le(count);
}
static std::string key_u32(const std::string& key, uint32_t x) {
    return typed(key, GGUF_U32) + le(x);
}
static std::string key_u16(const std::string& key, uint16_t x) {
    return typed(key, GGUF_U16) + le(x);
}
static std::string key_f32(const std::string& key, float x) { return typed(key, GGUF_F32) + le(x); }
static std::string key_bool(const std::string& key, uint8_t x) {
    return typed(key, GGUF_BOOL) + le(x);
}
static std::string key_string(const std::string& key, const std::string& x) {
    return typed(key, GGUF_STRING) + str(x);
}
static std::string key_strings(const std::string& key, const std::vector<std::string>& list) {
    std::string s = array(key, GGUF_STRING, list.size());
    for (auto& x : list) { s += str(x); }
    return s;
}

struct Entry { std::string name; std::vector<uint64_t> sizes; uint32_t type; uint64_t at; };

// a whole file; tensors and data as they are given, true or not
static std::string file_of(const std::vector<std::string>& keys, const std::vector<Entry>& tensors,
                           const std::string& data, uint32_t version = 3, uint64_t align = 32) {
    std::string s = "GGUF" + le(version) + le<uint64_t>(tensors.size()) + le<uint64_t>(keys.size());
    for (auto& k : keys) { s += k; }
    for (auto& t : tensors) {
        s += str(t.name) + le<uint32_t>(t.sizes.size());
        for (uint64_t n : t.sizes) { s += le(n); }
        s += le(t.type) + le(t.at);
    }
    s.resize((s.size() + align - 1) / align * align);
    return s + data;
}

// Reads all of an open file: every key in every way, every tensor. False if a tensor lies outside.
static bool read_all(const Gguf& g, size_t file_bytes) {
    for (auto& v : g.values) {
        status_of([&] { gguf_number(g, v.first, 0); });
        status_of([&] { gguf_strings(g, v.first); });
        status_of([&] { gguf_floats(g, v.first); });
    }
    for (auto& t : g.weights.tensors) {
        const char* base = g.weights.maps[0].data;
        if (t.count && (t.data < base || t.data + t.bytes > base + file_bytes)) { return false; }
        std::vector<float> x(t.count);
        status_of([&] { weight_rows(t, 0, t.rows(), x.data()); });
    }
    return true;
}

// the exit status that opening and reading all of it ends with, 0 if it is accepted
static int reads(const std::string& bytes) {
    FILE* f = fopen(path.c_str(), "wb");
    fwrite(bytes.data(), 1, bytes.size(), f);
    fclose(f);
    bool inside = true;
    const int code = status_of([&] {
        Gguf g = gguf_open(path);
        inside = read_all(g, bytes.size());
        weights_close(&g.weights);
    });
    return inside ? code : -1;
}

// Checks that this ends with an error of these words, and with a hint.
static void refuses(const std::string& wanted, const std::function<void()>& body) {
    const int code = status_of(body);
    CHECK(code == EXIT_USER && contains(said(), wanted) && contains(said(), "---> HINT: "),
          "wanted \"%s\", got status %d, %s", wanted.c_str(), code, said().c_str());
}

// ---- the vectors ----

static void test_types() {
    Gguf g = gguf_open(std::string(VECTORS) + "types.gguf");
    Weights want = safetensors_open(std::string(VECTORS) + "types.safetensors");
    CHECK(want.tensors.size() == 24 && g.weights.tensors.size() == 25,
          "vectors: %zu and %zu tensors", want.tensors.size(), g.weights.tensors.size());
    for (auto& w : want.tensors) {
        const Weight* t = g.weights.find(w.name);
        if (!CHECK(t && t->shape == w.shape && t->count == w.count,
                   "%s: is missing or of another shape", w.name.c_str())) {
            continue;
        }
        std::vector<float> a(w.count), b(w.count);
        weight_rows(w, 0, w.rows(), a.data());
        weight_rows(*t, 0, t->rows(), b.data());
        long wrong = 0;
        // the package has 0 for the code of -0
        const bool signed_zero = starts_with(w.name, "MXFP4");
        for (long i = 0; i < w.count; i++) {
            wrong += memcmp(&a[i], &b[i], 4) && !(signed_zero && a[i] == 0 && b[i] == 0);
        }
        CHECK(wrong == 0, "%s: %ld of %ld numbers have other bits", w.name.c_str(), wrong, w.count);
        for (long r = 0; r < t->rows(); r++) {
            std::vector<float> row(t->cols());
            weight_rows(*t, r, r + 1, row.data());
            CHECK(!memcmp(row.data(), &b[r * t->cols()], 4 * t->cols()),
                  "%s: row %ld is not that of the whole", w.name.c_str(), r);
        }
    }
    // a type that is only known by name
    std::vector<float> x(256);
    refuses("tensor 'IQ3_S' is of type IQ3_S, wanted F32, F16, BF16, F64, Q4_0",
            [&] { weight_rows(*g.weights.find("IQ3_S"), 0, 1, x.data()); });
    CHECK(contains(said(), "scripts/import_gguf.py"), "IQ3_S: %s", said().c_str());
    weights_close(&g.weights);
    weights_close(&want);
}

static void test_values() {
    Gguf g = gguf_open(std::string(VECTORS) + "types.gguf");
    const struct {
        const char* key;
        double want;
    } numbers[] = {
        { "k.u8", 200 },
        { "k.i8", -100 },
        { "k.u16", 60000 },
        { "k.i16", -30000 },
        { "k.u32", 4e9 },
        { "k.i32", -2e9 },
        { "k.u64", 1099511627776 },
        { "k.i64", -1099511627776 },
        { "k.f32", 0.1f },
        { "k.f64", 0.1 },
        { "k.bool", 1 },
        { "none", -7 },
    };
    for (auto& n : numbers) {
        CHECK(gguf_number(g, n.key, -7) == n.want, "%s: got %.17g, wanted %.17g", n.key,
              gguf_number(g, n.key, -7), n.want);
    }
    CHECK(gguf_string(g, "k.string") == "caf\xc3\xa9 \xe2\x96\x81" &&
              gguf_string(g, "k.empty").empty() && gguf_string(g, "none").empty() &&
              gguf_string(g, "general.architecture") == "llama",
          "strings");
    CHECK(gguf_strings(g, "k.strings") == std::vector<std::string>({ "a", "",
                                                                     "\xc4\xa0"
                                                                     "bc" }),
          "an array of strings");
    CHECK(gguf_floats(g, "k.floats") == std::vector<float>({ 0.5f, -1.25f, 1e-30f }),
          "an array of floats");
    CHECK(gguf_floats(g, "k.ints") == std::vector<float>({ 3, -4, 5 }),
          "an array of whole numbers");
    CHECK(gguf_strings(g, "none").empty() && gguf_floats(g, "none").empty(),
          "arrays that are not there");
    // a value of another kind than wanted
    const std::function<void()> wrong[] = {
        [&] { gguf_number(g, "k.string", 0); }, [&] { gguf_number(g, "k.ints", 0); },
        [&] { gguf_strings(g, "k.u8"); },       [&] { gguf_floats(g, "k.strings"); },
        [&] { gguf_floats(g, "k.bools"); },
    };
    for (auto& f : wrong) {
        CHECK(status_of(f) == EXIT_USER, "value %zu of another kind", (size_t)(&f - wrong));
    }
    weights_close(&g.weights);
}

// Hugging Face's row h d + j d/2 + i is the file's h d + 2 i + j
static void test_pairs() {
    std::string data;
    for (int r = 0; r < 24; r++) { for (int c = 0; c < 2; c++) { data += le<float>(100 * r + c); } }
    file_write(path, file_of({}, { { "q", { 2, 24 }, 0, 0 } }, data));
    Gguf g = gguf_open(path);
    Weight w = *g.weights.find("q");
    w.pairs = 8;                                         // three heads of 8 rows
    const int order[8] = { 0, 2, 4, 6, 1, 3, 5, 7 };
    std::vector<float> x(48), part(10);
    weight_rows(w, 0, 24, x.data());
    for (int r = 0; r < 24; r++) {
        for (int c = 0; c < 2; c++) {
            CHECK(x[2 * r + c] == 100 * (r / 8 * 8 + order[r % 8]) + c, "pairs: row %d", r);
        }
    }
    weight_rows(w, 6, 11, part.data());
    CHECK(!memcmp(part.data(), &x[12], 40), "pairs: a part of the rows");
    weights_close(&g.weights);
}

// ---- what is refused ----

static void refused(const std::string& bytes, const std::string& wanted) {
    file_write(path, bytes);
    refuses(wanted, [] { gguf_open(path); });
}

static void test_lies() {
    const std::string data(128, 'x');
    const Entry a = { "a", { 4, 4 }, 0, 0 }, b = { "b", { 16 }, 0, 64 };
    const std::string good = file_of({ key_u32("x", 5) }, { a, b }, data);
    CHECK(reads(good) == 0 && reads(file_of({}, { b, a }, data)) == 0 &&
              reads(file_of({}, {}, "")) == 0 && reads(file_of({}, { a, b }, data, 2)) == 0,
          "a good file: %s", said().c_str());
    CHECK(reads(file_of({}, { { "none", { 0, 4 }, 0, 0 }, { "one", {}, 0, 0 } }, data)) == 0,
          "no numbers, or one, in a tensor: %s", said().c_str());
    CHECK(reads(file_of({ key_u32("general.alignment", 8) }, { { "a", { 4, 4 }, 0, 8 } }, data, 3,
                        8)) == 0,
          "another alignment: %s", said().c_str());
    CHECK(reads(file_of({ key_f32("x", NAN) }, { a, b }, data)) == 0, "a key that is no number is read: %s",
          said().c_str());
    // all beginnings of it
    for (size_t n = 0; n < good.size(); n++) {
        const int code = reads(good.substr(0, n));
        CHECK(code == EXIT_USER, "cut to %zu bytes: status %d", n, code);
    }
    refused("", "wanted a GGUF file of at least 24");
    refused("GGML" + good.substr(4), "does not begin with \"GGUF\"");
    refused(file_of({}, {}, data, 1), "got version 1, wanted 2 or 3");
    refused(file_of({}, {}, data, 3u << 24), "big-endian");
    for (uint64_t n : { 1ull << 20, 1ull << 63, ~0ull }) {
        refused(good.substr(0, 8) + le(n) + good.substr(16), "tensors and 1 keys in");
        refused(good.substr(0, 16) + le(n) + good.substr(24), "keys in");
        refused(good.substr(0, 24) + le(n) + good.substr(32), "the name of a key: got");
    }
    refused(file_of({ key_u32("x", 5), key_u32("x", 5) }, { a, b }, data), "key x appears twice");
    refused(file_of({ typed("x", 13) }, {}, data), "key x: got a value of kind 13");
    refused(file_of({ array("x", 77, 1) }, {}, data), "key x: got a value of kind 77");
    for (uint32_t kind : { GGUF_U8, GGUF_F64, GGUF_STRING, GGUF_ARRAY }) {
        for (uint64_t n : { 1ull << 20, 1ull << 61, ~0ull }) {
            refused(file_of({ array("x", kind, n) }, {}, data), "key x: got");
        }
    }
    std::string deep = typed("x", GGUF_ARRAY);
    for (int i = 0; i < 20; i++) { deep += le<uint32_t>(GGUF_ARRAY) + le<uint64_t>(1); }
    refused(file_of({ deep }, {}, data), "key x: got");
    refused(file_of({ key_u32("split.count", 3) }, { a }, data), "one of several files");
    for (uint32_t n : { 0u, 3u, 33u, 1u << 31 }) {
        refused(file_of({ key_u32("general.alignment", n) }, { a }, data),
                "general.alignment: got");
    }
    refused(file_of({ key_string("general.alignment", "32") }, { a }, data),
            "general.alignment is not a number");
    // tensors
    refused(file_of({}, { a, { "a", { 16 }, 0, 64 } }, data), "tensor 'a' appears twice");
    refused(file_of({}, { a, { "b", { 16 }, 0, 32 } }, data),
            "tensors 'a' and 'b' lie on one another");
    refused(file_of({}, { { "b", { 16 }, 0, 32 }, a }, data),
            "tensors 'a' and 'b' lie on one another");
    refused(file_of({}, { { "a", { 4, 4 }, 0, 16 } }, data), "wanted a multiple of 32");
    refused(file_of({}, { { "a", { 4, 4 }, 0, 96 } }, data), "and an end within 128");
    refused(file_of({}, { { "a", { 4, 4 }, 0, 128 } }, data), "and an end within 128");
    refused(file_of({}, { { "a", { 4, 4 }, 0, ~31ull } }, data), "and an end within 128");
    refused(file_of({}, { { "a", { 33 }, 0, 0 } }, data), "and an end within 128");
    refused(file_of({}, { { "a", { 1ull << 62, 4 }, 0, 0 } }, data), "too large");
    refused(file_of({}, { { "a", { 1ull << 32, 1ull << 32 }, 0, 0 } }, data), "too large");
    refused(file_of({}, { { "a", { 1ull << 40 }, 0, 0 } }, data), "and an end within 128");
    refused(file_of({}, { { "a", { 1, 1, 1, 1, 1 }, 0, 0 } }, data), "got 5 dimensions");
    refused(file_of({}, { { "a", { 32 }, 5, 0 } }, data), "is of type 5, which is unknown");
    refused(file_of({}, { { "a", { 48 }, 2, 0 } }, data),
            "has rows of 48, wanted a multiple of 32");
    refused(file_of({}, { { "a", { 128 }, 12, 0 } }, data),
            "has rows of 128, wanted a multiple of 256");
    refused(file_of({}, { { "a", { 32, 8 }, 2, 0 } }, data), "and an end within 128");  // 144 bytes
    CHECK(reads(file_of({}, { { "a", { 32, 7 }, 2, 0 } }, data)) == 0, "126 bytes in 128: %s",
          said().c_str());
}

// a model in several files: any of them, and their directory, stands for all
static void test_parts() {
    const std::string place = dir + "/parts", data(64, 'x');
    make_dirs(place);
    const auto name = [&](int n) { return place + strf("/m-%05d-of-00003.gguf", n); };
    const auto write = [&](int n, int no, int count, const char* tensor) {
        std::vector<std::string> keys = { key_u16("split.no", no), key_u16("split.count", count),
                                          key_u32("split.tensors.count", 3) };
        if (n == 1) { keys.push_back(key_u32("x", 5)); }
        file_write(name(n), file_of(keys, { { tensor, { 4, 4 }, 0, 0 } }, data + strf("%d", n)));
    };
    const auto says = [&](const std::string& path, const char* wanted) {
        refuses(wanted, [&] { gguf_open(path); });
    };
    for (int n = 1; n <= 3; n++) { write(n, n - 1, 3, n == 1 ? "a" : n == 2 ? "b" : "c"); }
    for (auto& path : { name(1), name(2), name(3), gguf_in(place) }) {
        Gguf g = gguf_open(path);
        CHECK(g.weights.tensors.size() == 3 && g.weights.maps.size() == 3 &&
                  gguf_number(g, "x", 0) == 5 && g.weights.find("b")->file == name(2),
              "%s: %zu tensors of 3", path.c_str(), g.weights.tensors.size());
        weights_close(&g.weights);
    }
    write(3, 2, 3, "b");
    says(name(1), "tensor 'b' appears twice");
    write(3, 1, 3, "c");
    says(name(1), "says that it is number 2 of 3 files, wanted 3 of 3");
    write(3, 2, 4, "c");
    says(name(1), "says that it is number 3 of 4 files, wanted 3 of 3");
    unlink(name(3).c_str());
    says(name(1), "m-00003-of-00003.gguf: is missing, number 3 of 3 files");
    write(3, 2, 3, "c");
    unlink(name(1).c_str());
    says(name(2), "m-00001-of-00003.gguf: is missing, number 1 of 3 files");
    // the first by itself, whose keys say nothing of others: its name does
    file_write(name(1), file_of({ key_u32("x", 5) }, { { "a", { 4, 4 }, 0, 0 } }, data + "1"));
    says(name(1), "m-00001-of-00003.gguf: says that it is number 0 of 0 files, wanted 1 of 3");
    remove_tree(place);
}

// random changes of good files: they are refused or read, and never touch what is not theirs
static void test_fuzz(long tries) {
    Rng rng{ (uint64_t)(now_ms() * 1e6) };
    const uint64_t seed = rng.state;
    const std::string vectors = file_read(std::string(VECTORS) + "types.gguf");
    std::string small = file_of(
        { key_u32("x", 5), key_string("s", "text"), key_strings("l", { "a", "b" }) },
        { { "a", { 4, 4 }, 0, 0 }, { "b", { 32, 2 }, 3, 64 }, { "c", { 256 }, 14, 128 } },
        std::string(352, 'x'));
    const uint64_t sizes[] = { 0, 1, 2, 31, 32, 255, 1ull << 31, 1ull << 32, 1ull << 62, 1ull << 63,
                               ~0ull };
    long taken = 0;
    for (long k = 0; k < tries; k++) {
        std::string s = k % 4 ? small : vectors;
        const size_t header = k % 4 ? small.size() - 352 : 2000;
        for (int n = 1 + rng_below(&rng, 3); n > 0; n--) {
            const size_t at = rng_below(&rng, rng_below(&rng, 4) ? header : s.size());
            const uint64_t value = sizes[rng_below(&rng, std::size(sizes))];
            const size_t width = std::min<size_t>(1 << rng_below(&rng, 4), s.size() - at);
            switch (rng_below(&rng, 5)) {
                case 0: s[at] = (char)rng_below(&rng, 256); break;
                case 1: s.replace(at, width, le(value).substr(0, width)); break;
                case 2: s.erase(at, rng_below(&rng, 12)); break;
                case 3:
                    s.insert(at, s.substr(rng_below(&rng, s.size()), rng_below(&rng, 12)));
                    break;
                default: s[at] ^= 1 << rng_below(&rng, 8); break;
            }
        }
        const int code = reads(s);
        taken += code == 0;
        CHECK(code == 0 || code == EXIT_USER, "fuzz (seed %llu, try %ld): status %d",
              (unsigned long long)seed, k, code);
    }
    CHECK(taken > tries / 50 && taken < tries, "fuzz: %ld tried, %ld taken", tries, taken);
}

// ---- tokenizers ----

template <class T>
static std::string key_numbers(const std::string& key, uint32_t kind, const std::vector<T>& list) {
    std::string s = array(key, kind, list.size());
    for (T x : list) { s += le(x); }
    return s;
}

struct Vocabulary {
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> types;
    std::vector<float> scores;
};

// what a converter writes of vectors/NAME.json: tokens by id, holes as unused ones,
// a score for each token that a merge makes
static Vocabulary vocabulary_of(const std::string& name) {
    const Json j = json_file("test/vectors/" + name + ".json");
    const Json& model = *j.get("model");
    Vocabulary v;
    auto put = [&](const std::string& text, int id, int type) {
        for (int i = v.tokens.size(); i <= id; i++) {
            v.tokens.push_back(strf("[PAD%d]", i));
            v.types.push_back(GGUF_UNUSED);
            v.scores.push_back(-1e9f);
        }
        v.tokens[id] = text;
        v.types[id] = type;
        v.scores[id] = 0;
    };
    std::unordered_map<std::string, int> ids;
    for (auto& t : model.get("vocab")->fields) {
        put(t.first, t.second.number, fallback_byte(t.first) >= 0 ? GGUF_BYTE : GGUF_NORMAL);
        ids[t.first] = t.second.number;
    }
    for (auto& a : j.get("added_tokens")->items) {
        put(a.get("content")->string, a.get("id")->number,
            a.get("special")->number ? GGUF_CONTROL : GGUF_USER_DEFINED);
    }
    for (auto& m : model.get("merges")->items) {
        const std::string a = m.items.empty() ? m.string.substr(0, m.string.find(' '))
                                              : m.items[0].string;
        const std::string b = m.items.empty() ? m.string.substr(m.string.find(' ') + 1)
                                              : m.items[1].string;
        float& score = v.scores[ids.at(a + b)];
        v.merges.push_back(a + " " + b);
        if (score == 0) { score = -(float)v.merges.size(); }
    }
    return v;
}

static std::vector<std::string> tokenizer_keys(const Vocabulary& v, const std::string& model,
                                               const std::string& pre,
                                               std::vector<std::string> keys = {}) {
    keys.push_back(key_string("tokenizer.ggml.model", model));
    if (!pre.empty()) { keys.push_back(key_string("tokenizer.ggml.pre", pre)); }
    keys.push_back(key_strings("tokenizer.ggml.tokens", v.tokens));
    keys.push_back(key_numbers("tokenizer.ggml.token_type", GGUF_I32, v.types));
    if (model == "gpt2") { keys.push_back(key_strings("tokenizer.ggml.merges", v.merges)); }
    else { keys.push_back(key_numbers("tokenizer.ggml.scores", GGUF_F32, v.scores)); }
    return keys;
}

static std::string tokenizer_file(const Vocabulary& v, const std::string& model,
                                  const std::string& pre, std::vector<std::string> keys = {}) {
    return file_of(tokenizer_keys(v, model, pre, keys), {}, "");
}

// the same ids and the same text back as from tokenizer.json, on the golden strings of that file
static void test_tokenizers() {
    const struct {
        const char *name, *model, *pre;
        std::vector<std::string> keys;
    } cases[] = {
        { "gpt2", "gpt2", "gpt-2", {} },
        { "neox", "gpt2", "olmo", {} },
        { "llama3", "gpt2", "llama-bpe", { key_u32("tokenizer.ggml.bos_token_id", 0) } },
        { "llama2", "llama", "", {} },
    };
    for (auto& c : cases) {
        file_write(path, tokenizer_file(vocabulary_of(c.name), c.model, c.pre, c.keys));
        const Tokenizer ours = tokenizer_load(path),
                        theirs = tokenizer_load(std::string("test/vectors/") + c.name + ".json");
        CHECK(ours.before == theirs.before && ours.after == theirs.after &&
                  ours.vocab_size == theirs.vocab_size,
              "%s: template or size", c.name);
        // what a checkpoint keeps of the file is the same tokenizer, and keeps the same again
        make_dirs(dir + "/kept");
        file_write(dir + "/kept/tokenizer.gguf", ours.files.at(0).second);
        const Tokenizer kept = tokenizer_load(dir + "/kept");
        CHECK(ours.files[0].first == "tokenizer.gguf" && kept.files == ours.files &&
                  kept.hash == ours.hash && kept.before == ours.before &&
                  kept.after == ours.after && kept.eos == ours.eos && kept.bpe->unk == ours.bpe->unk &&
                  kept.vocab_size == ours.vocab_size,
              "%s: another tokenizer is kept", c.name);
        long checked = 0, wrong = 0;
        for (auto& line :
             split(file_read(std::string("test/vectors/") + c.name + ".jsonl"), '\n')) {
            if (line.empty()) { continue; }
            const Json j = json_of(line);
            const Json *text = j.get("text"), *ids = j.get("ids");
            if (!text || !ids) { continue; }
            const std::vector<int> got = tokenizer_encode(ours, text->string, false),
                                   same = tokenizer_encode(theirs, text->string, false);
            bool equal = got.size() == ids->items.size() && got == same &&
                         got == tokenizer_encode(kept, text->string, false);
            for (size_t i = 0; equal && i < got.size(); i++) {
                equal = got[i] == (int)ids->items[i].number;
            }
            for (bool skip : { false, true }) {
                equal = equal && tokenizer_decode(ours, got.data(), got.size(), skip) ==
                                     tokenizer_decode(theirs, got.data(), got.size(), skip);
            }
            checked++;
            wrong += !equal;
            CHECK(equal, "%s: %s", c.name, json_str(text->string).c_str());
        }
        CHECK(checked > 100 && !wrong, "%s: %ld of %ld strings differ", c.name, wrong, checked);
    }
    // smollm cuts each digit out before it splits; gpt-2 does not
    Vocabulary v = vocabulary_of("gpt2");
    v.tokens.push_back("12"); v.types.push_back(GGUF_NORMAL);
    v.merges.insert(v.merges.begin(), "1 2");
    auto length = [&](const char* pre) {
        file_write(path, tokenizer_file(v, "gpt2", pre));
        return tokenizer_encode(tokenizer_load(path), "12", false).size();
    };
    CHECK(length("smollm") == 2 && length("gpt-2") == 1, "12 is %zu and %zu tokens",
          length("smollm"), length("gpt-2"));
    // bytes alone have no merges, and scripts/to_gguf.py writes one that never applies
    Vocabulary bytes;
    for (auto& token : vocabulary_of("gpt2").tokens) {
        size_t at = 0;
        const bool one = utf8_next(token, &at) >= 0 && at == token.size();
        if (one) { bytes.tokens.push_back(token); bytes.types.push_back(GGUF_NORMAL); }
    }
    bytes.merges = { "[PAD] [PAD]" };
    file_write(path, tokenizer_file(bytes, "gpt2", "gpt-2"));
    CHECK(tokenizer_encode(tokenizer_load(path), "12", false).size() == 2, "bytes from a GGUF file");
    // BOS and EOS: by the family, or as the file says; a directory that has the file
    auto load = [&](const char* model, const char* pre, std::vector<std::string> keys) {
        const Vocabulary v = vocabulary_of(!strcmp(model, "llama") ? "llama2" : "gpt2");
        file_write(path, tokenizer_file(v, model, pre, keys));
        return tokenizer_load(dir);
    };
    const std::string bos = key_u32("tokenizer.ggml.bos_token_id", 7),
                      eos = key_u32("tokenizer.ggml.eos_token_id", 8);
    const std::string add_bos = key_bool("tokenizer.ggml.add_bos_token", true),
                      no_bos = key_bool("tokenizer.ggml.add_bos_token", false);
    const std::string add_eos = key_bool("tokenizer.ggml.add_eos_token", true),
                      no_prefix = key_bool("tokenizer.ggml.add_space_prefix", false);
    typedef std::vector<int> Ids_;
    Tokenizer t = load("gpt2", "gpt-2", { bos, eos });
    CHECK(t.before.empty() && t.after.empty() && t.bos == 7 && t.eos == 8, "gpt-2: %zu before",
          t.before.size());
    t = load("gpt2", "gpt-2", { bos, eos, add_bos, add_eos });
    CHECK(t.before == Ids_{ 7 } && t.after == Ids_{ 8 }, "gpt-2 with BOS and EOS");
    t = load("gpt2", "gpt-2", { eos, key_u32("tokenizer.ggml.eot_token_id", 9),
                                key_u32("tokenizer.ggml.eom_token_id", 10) });
    CHECK((t.ends == Ids_{ 9, 10 }) && load("gpt2", "gpt-2", { eos }).ends.empty(),
          "%zu ids end a turn", t.ends.size());
    t = load("gpt2", "llama-bpe", { bos });
    CHECK(t.before == Ids_{ 7 } && t.eos == -1, "llama-bpe: BOS");
    t = load("gpt2", "llama-bpe", { bos, no_bos });
    CHECK(t.before.empty(), "llama-bpe without BOS");
    t = load("llama", "", { no_bos });
    CHECK(t.before.empty() && t.bos == 1 && t.eos == 2 && t.bpe->unk == 0, "llama without BOS");
    const std::vector<int> with = tokenizer_encode(load("llama", "", {}), " a", false),
                           without = tokenizer_encode(load("llama", "", { no_prefix }), " a",
                                                      false);
    CHECK(with.size() == without.size() + 1,
          "llama with and without a space in front: %zu and %zu tokens", with.size(),
          without.size());
    const std::vector<int> two = tokenizer_encode(load("llama", "", { no_prefix }), "a", false);
    CHECK(tokenizer_decode(load("llama", "", { no_prefix }), two.data(), two.size(), false) == "a",
          "llama without a space in front: decode");
}

// the families of several expressions: the pieces that the library makes with those of their
// tokenizer.json, with | between
static void test_expression_families() {
    const struct { const char* pre; const char* want; } cases[] = {
        { "tekken", "a|Bc| DON|'Tx| | |1|2|3|4| \u4f60x|!!/\n|y" },
        { "gpt-4o", "a|Bc| DON'T|x| | |123|4| \u4f60x|!!/\n|y" },
        { "deepseek-v3", "aBc| DON|'Tx|  |123|4| |\u4f60|x|!!/\n|y" },
        { "deepseek-coder", "aBc| DON|'|Tx|  |1|2|3|4| |\u4f60|x|!!/|\n|y" },
    };
    for (auto& c : cases) {
        file_write(path, tokenizer_file(vocabulary_of("gpt2"), "gpt2", c.pre));
        std::vector<std::string> pieces = { "aBc DON'Tx  1234 \u4f60x!!/\ny" };
        const Tokenizer tok = tokenizer_load(path);
        for (auto& step : tok.bpe->splitter) {
            std::vector<std::string> cut;
            for (auto& piece : pieces) { split_step(step, piece, false, &cut); }
            pieces = cut;
        }
        std::string got;
        for (auto& piece : pieces) { got += (got.empty() ? "" : "|") + piece; }
        CHECK(got == c.want, "%s: %s", c.pre, json_str(got).c_str());
    }
}

static void test_tokenizer_refused() {
    const Vocabulary good = vocabulary_of("gpt2"), scores = vocabulary_of("llama2");
    auto refused = [&](const std::string& bytes, const char* wanted) {
        file_write(path, bytes);
        refuses(wanted, [] { tokenizer_load(path); });
    };
    refused(file_of({}, {}, ""), "tokenizer.ggml.model: got ''");
    refused(tokenizer_file(good, "t5", "gpt-2"), "tokenizer.ggml.model: got 't5'");
    refused(tokenizer_file(good, "gpt2", "chameleon"),
            "tokenizer.ggml.pre: got 'chameleon', wanted one of gpt-2, ");
    refused(tokenizer_file(good, "gpt2", ""), "tokenizer.ggml.pre: got ''");
    Vocabulary v = scores;
    v.tokens[300] = std::string(400000, 'a');
    refused(tokenizer_file(v, "llama", ""), "token 300 has 400000 bytes, wanted at most 1024");
    v = good;
    v.types.pop_back();
    refused(tokenizer_file(v, "gpt2", "gpt-2"), "a type for each token");
    v = good; v.types[3] = 9;
    refused(tokenizer_file(v, "gpt2", "gpt-2"), "got 9 for token 3");
    v = good; v.merges[2] = "nothing";
    refused(tokenizer_file(v, "gpt2", "gpt-2"), "merge 3: wanted two tokens");
    v = good; v.merges[2] = "no thing";
    refused(tokenizer_file(v, "gpt2", "gpt-2"), "merge 3: no + thing: not all in the vocabulary");
    v = good; v.merges.clear();
    refused(tokenizer_file(v, "gpt2", "gpt-2"), "has no tokenizer.ggml.merges");
    v = scores; v.scores.pop_back();
    refused(tokenizer_file(v, "llama", ""), "scores for");
    v = scores; v.scores[5] = NAN;
    refused(tokenizer_file(v, "llama", ""), "a score is not finite");
    refused(tokenizer_file(good, "gpt2", "gpt-2",
                           { key_u32("tokenizer.ggml.bos_token_id", 100000) }),
            "bos_token_id: got 100000 for a vocabulary of 450");
    file_write(dir + "/y.gguf", "");
    refuses("has several GGUF files", [] { tokenizer_load(dir); });
    unlink((dir + "/y.gguf").c_str());
}

// ---- a model ----

// the inverse of what weight_rows undoes: pairs of rows side by side
static std::vector<float> paired(const std::vector<float>& x, long rows, long per_head) {
    const long cols = x.size() / rows, half = per_head / 2;
    std::vector<float> y(x.size());
    for (long r = 0; r < rows; r++) {
        const long i = r % per_head, to = r - i + 2 * (i % half) + i / half;
        std::copy(&x[r * cols], &x[r * cols] + cols, &y[to * cols]);
    }
    return y;
}

// a float that a half can hold: the top 10 bits of the fraction, for scales between 2^-14 and 2^15
static uint16_t half_of(float x) {
    const uint32_t u = bits_of_float(x);
    return x == 0 ? 0 : (u >> 31) << 15 | ((u >> 23 & 255) - 112) << 10 | (u >> 13 & 1023);
}

// blocks of Q8_0: the largest of 32 numbers becomes 127 or less
static std::string q8_0(const std::vector<float>& x) {
    std::string s;
    for (size_t i = 0; i < x.size(); i += 32) {
        float most = 0;
        for (int k = 0; k < 32; k++) { most = std::max(most, fabsf(x[i + k])); }
        const uint16_t d = half_of(std::max(most / 126, 0x1p-14f));
        s += le(d);
        for (int k = 0; k < 32; k++) { s += (char)(int)roundf(x[i + k] / float_of_half(d)); }
    }
    return s;
}

static std::string raw(const std::vector<float>& x) {
    return std::string((const char*)x.data(), 4 * x.size());
}

static const std::vector<std::string> LLAMA = {
    key_string("general.architecture", "llama"),
    key_u32("llama.block_count", 2),
    key_u32("llama.embedding_length", 32),
    key_u32("llama.feed_forward_length", 64),
    key_u32("llama.attention.head_count", 4),
    key_u32("llama.attention.head_count_kv", 2),
    key_u32("llama.context_length", 32),
    key_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f),
    key_u16("split.no", 0), key_u16("split.count", 1),
    key_u32("llama.rope.dimension_count", 8),
    key_f32("llama.rope.freq_base", 10000),
};

// what a converter makes of a checkpoint of ours: GGUF's names, q and k in pairs, matrices as Q8_0
static std::string gguf_of(const Weights& w, const std::vector<std::string>& more = {}) {
    std::vector<Entry> tensors;
    std::string data;
    for (auto& t : w.tensors) {
        std::string name;
        for (int l = 0; l < 3; l++) {
            for (auto& row : GGUF_NAMES) {
                std::string theirs = row[0], ours = row[1];
                for (std::string* s : { &theirs, &ours }) {
                    if (contains(*s, "#")) { s->replace(s->find('#'), 1, strf("%d", l)); }
                }
                if (!row[2] && ours + ".weight" == t.name) { name = theirs + ".weight"; }
            }
        }
        CHECK(!name.empty(), "no GGUF name for %s", t.name.c_str());
        std::vector<float> x(t.count);
        weight_rows(t, 0, t.rows(), x.data());
        if (contains(name, "attn_q.") || contains(name, "attn_k.")) {
            x = paired(x, t.rows(), 8);
        }
        data.resize((data.size() + 31) / 32 * 32);
        const bool matrix = t.shape.size() == 2;
        Entry e = { name, {}, matrix ? 8u : 0u, data.size() };
        for (size_t d = t.shape.size(); d-- > 0;) { e.sizes.push_back(t.shape[d]); }
        tensors.push_back(e);
        data += matrix ? q8_0(x) : raw(x);
    }
    std::vector<std::string> keys = LLAMA;
    keys.insert(keys.end(), more.begin(), more.end());
    return file_of(keys, tensors, data);
}

// A run that begins with a GGUF file keeps its tokenizer and its context: moved away from it, the
// checkpoint reads text as before, and goes on; so do shards.
static void test_init() {
    const std::string at = dir + "/init", binary = check_program() + " ";
    const Vocabulary v = vocabulary_of("gpt2");
    const std::string sizes = "--layers 2 --heads 4 --kv-heads 2 --width 32 --ffn-width 64 ",
                      small = "-b 2 --probe-seqs 2 --probe-len 8 --eval-every 0 --sample 0 ";
    auto run = [&](const std::string& args) {
        return check_run("cd " + at + " && " + binary + args);
    };
    make_dirs(at);
    const Ran base = run("train -d bb --bb-vocab 24 --seq 32 -n 1 -o base --vocab " +
                         strf("%zu ", v.tokens.size()) + sizes + small);
    if (!check_ended(base, 0, "a model for a tokenizer")) { return; }
    Weights w = safetensors_open_dir(at + "/base/step_1");
    const std::string bos = key_u32("tokenizer.ggml.bos_token_id", 7),
                      eos = key_u32("tokenizer.ggml.eos_token_id", 8);
    file_write(at + "/m.gguf", gguf_of(w, tokenizer_keys(v, "gpt2", "gpt-2", { bos, eos })));
    weights_close(&w);
    std::string text;
    for (int i = 0; i < 300; i++) { text += strf("It's %d bottles, caf\xC3\xA9!\n", i * 37); }
    file_write(at + "/text.txt", text);
    const uint64_t hash = tokenizer_load(at + "/m.gguf").hash;
    const Ran went = run("train --init m.gguf -d text.txt --seq 16 -n 2 -o cont " + small),
              cut = run("tokenize text.txt --tokenizer m.gguf -o shards");
    CHECK(went.code == 0 && cut.code == 0, "--init of a GGUF file: %s%s", went.err.c_str(),
          cut.err.c_str());
    const std::string config = file_read(at + "/cont/step_2/config.json");
    CHECK(contains(config, "\"max_position_embeddings\": 32,") &&
              contains(config, "\"seq\": 16,") && !contains(config, at),
          "config.json: %s", config.c_str());
    const std::string state = file_read(at + "/cont/step_2/state.json");
    CHECK(!contains(state, at) && contains(state, "\"directory\": \"..\""),
          "state.json: %s", state.substr(0, 600).c_str());
    const Ran before = run("probe cont/step_2 --probe-seqs 2 --probe-len 8");
    // all of it is moved, but for the file that it began with
    check_run("cd " + at + " && rm m.gguf && mkdir away && mv cont shards text.txt away && "
              "rm -r data");
    auto numbers = [](const Ran& r) {
        return r.out.substr(std::min(r.out.size(), r.out.find(", T 8")));
    };
    const Ran after = run("probe away/cont/step_2 --probe-seqs 2 --probe-len 8");
    CHECK(before.code == 0 && after.code == 0 && numbers(before) == numbers(after) &&
              contains(numbers(before), "loss"),
          "a run that was moved is probed: %s%s, before %s", after.out.c_str(), after.err.c_str(),
          before.out.c_str());
    const Ran on = check_run("cd " + at + "/away && " + binary + "train --resume -o cont -n 3"),
              shards = check_run("cd " + at + "/away && " + binary +
                                 "train -d shards --seq 16 -n 1 -o s " + sizes + small);
    CHECK(on.code == 0 && shards.code == 0, "a run that was moved goes on: %s, shards: %s",
          on.err.c_str(), shards.err.c_str());
    for (auto d : { "/away/cont/step_2", "/away/cont/step_3", "/away/shards", "/away/s/step_1" }) {
        if (!CHECK(tokenizer_is_in(at + d), "%s has no tokenizer", d)) { continue; }
        const Tokenizer t = tokenizer_load(at + d);
        CHECK(t.hash == hash && t.bos == 7 && t.eos == 8,
              "%s: another tokenizer", d);
    }
}

// a GGUF file of Q8_0 and the directory of its floats are the same model, to the bit
static void test_model() {
    const std::string binary = "build/cpu/train_sink ", run = dir + "/run", plain = dir + "/plain",
                      file = dir + "/model.gguf";
    const std::string tiny = "-d bb --bb-vocab 24 --layers 2 --heads 4 --kv-heads 2 --width 32 "
                             "--ffn-width 64 --seq 32 -b 2 ";
    const Ran r = check_run(binary + "train " + tiny +
                            "--norm-eps 1e-5 -n 20 --lr 0.01 --eval-every 0 -o " + run);
    if (!check_ended(r, 0, "training")) { return; }
    Weights w = safetensors_open_dir(run + "/step_20");
    file_write(file, gguf_of(w));
    Gguf g = gguf_open(file);
    Weights ours = gguf_weights(&g);
    CHECK(ours.tensors.size() == w.tensors.size(), "%zu tensors of %zu", ours.tensors.size(),
          w.tensors.size());
    std::vector<std::vector<float>> floats;
    std::vector<StOut> out;
    floats.reserve(ours.tensors.size());
    double apart = 0;
    for (auto& t : ours.tensors) {
        const Weight* was = w.find(t.name);
        if (!CHECK(was && was->shape == t.shape, "%s: shape", t.name.c_str())) { return; }
        floats.emplace_back(t.count);
        std::vector<float> x(t.count);
        weight_rows(t, 0, t.rows(), floats.back().data());
        weight_rows(*was, 0, was->rows(), x.data());
        for (long i = 0; i < t.count; i++) {
            apart = std::max(apart, (double)fabsf(x[i] - floats.back()[i]));
        }
        out.push_back({ t.name, t.shape, floats.back().data() });
    }
    CHECK(apart > 1e-5 && apart < 0.02, "Q8_0 is %g from the floats", apart);
    make_dirs(plain);
    safetensors_write(plain + "/model.safetensors", out);
    file_write(plain + "/config.json", file_read(run + "/step_20/config.json"));
    weights_close(&ours);
    weights_close(&w);
    const std::string probe =
        " -d bb --bb-vocab 24 --probe-len 31 --probe-seqs 5 --per-sequence --json " + dir;
    const Ran a = check_run(binary + "probe " + file + probe + "/a.json"),
              b = check_run(binary + "probe " + plain + probe + "/b.json");
    const Ran c = check_run(binary + "probe " + run + "/step_20" + probe + "/c.json");
    if (!CHECK(a.code == 0 && b.code == 0 && c.code == 0, "probe: %s%s%s", a.err.c_str(),
               b.err.c_str(), c.err.c_str())) {
        return;
    }
    auto numbers = [&](const char* name) {
        const std::string s = file_read(dir + name);
        return s.substr(s.find("\"probe_loss\""));
    };
    CHECK(numbers("/a.json").size() > 1000 && numbers("/a.json") == numbers("/b.json"),
          "the GGUF file and its floats are probed differently");
    CHECK(numbers("/a.json") != numbers("/c.json"), "Q8_0 changed nothing");
    // a directory with the file in it; and what says that it is none
    make_dirs(dir + "/inside");
    file_write(dir + "/inside/x.gguf", file_read(file));
    const Ran d = check_run(binary + "probe " + dir + "/inside" + probe + "/d.json");
    CHECK(d.code == 0 && numbers("/d.json") == numbers("/a.json"),
          "a directory with a GGUF file: %s", d.err.c_str());
    file_write(dir + "/inside/y.gguf", "");
    const Ran e = check_run(binary + "probe " + dir + "/inside" + probe + "/d.json");
    check_ended(e, EXIT_USER, "two GGUF files", "has several GGUF files");
    remove_tree(dir + "/inside");
    unlink(file.c_str());
}

// the keys as config.json, and keys and tensors that are refused
static void test_config() {
    typedef std::vector<std::string> Keys;
    auto opened = [&](Keys more, const std::vector<Entry>& tensors, const std::string& data,
                      Keys keys = LLAMA) {
        for (auto& k : more) { keys.push_back(k); }
        file_write(path, file_of(keys, tensors, data));
        return gguf_open(path);
    };
    auto number = [](const Json& j, const char* key) {
        const Json* v = j.get(key);
        return v ? v->number : -1;
    };
    const std::string zeros(8192, 0);
    const std::vector<Entry> two = { { "token_embd.weight", { 32, 25 }, 0, 0 },
                                     { "output.weight", { 32, 25 }, 0, 3200 } };
    Gguf g = opened({ key_u32("llama.expert_count", 0), key_u32("llama.vocab_size", 99) }, two,
                    zeros);
    Json j = gguf_config(g);
    const std::pair<const char*, float> wanted[] = {
        { "hidden_size", 32 }, { "num_hidden_layers", 2 }, { "num_attention_heads", 4 },
        { "num_key_value_heads", 2 }, { "intermediate_size", 64 },
        { "max_position_embeddings", 32 }, { "rope_theta", 10000 }, { "vocab_size", 25 },
        { "rms_norm_eps", 1e-5f }, { "tie_word_embeddings", 0 }, { "attention_bias", 0 },
        { "partial_rotary_factor", -1 }, { "rope_scaling", -1 },
    };
    for (auto& [key, value] : wanted) {
        CHECK((float)number(j, key) == value, "config.json of a GGUF file: %s", key);
    }
    CHECK(j.get("model_type")->string == "llama" && j.get("hidden_act")->string == "silu",
          "config.json of a GGUF file: names");
    weights_close(&g.weights);
    // every Falcon of llama.cpp's converter names the order of its rows
    g = opened({}, {}, "", { key_string("general.architecture", "falcon"),
                             key_string("falcon.tensor_data_layout", "jploski"),
                             key_u32("falcon.attention.head_count_kv", 1) });
    CHECK(number(gguf_config(g), "multi_query") == 1, "Falcon's tensor_data_layout");
    weights_close(&g.weights);
    // a tied head, biases, which are in pairs too
    std::string bias(8192, 0);
    for (int i = 0; i < 32; i++) { const float x = i; memcpy(&bias[3200 + 4 * i], &x, 4); }
    g = opened(
        {}, { { "token_embd.weight", { 32, 25 }, 0, 0 }, { "blk.0.attn_q.bias", { 32 }, 0, 3200 } },
        bias);
    j = gguf_config(g);
    CHECK(number(j, "tie_word_embeddings") == 1 && number(j, "attention_bias") == 1,
          "a tied head, biases");
    Weights w = gguf_weights(&g);
    std::vector<float> x(32);
    const Weight* q = w.find("model.layers.0.self_attn.q_proj.bias");
    if (CHECK(q && q->shape == std::vector<long>{ 32 } && q->rows() == 1, "the bias of q")) {
        weight_rows(*q, 0, 1, x.data());
        CHECK(x[1] == 2 && x[4] == 1 && x[8] == 8 && x[12] == 9, "the bias of q: got %g %g %g %g",
              x[1], x[4], x[8], x[12]);
    }
    weights_close(&w);
    // Gemma 3: norms have their 1 in the file and here, two more of them, and q has no pairs
    const Keys gemma = { key_string("general.architecture", "gemma3"),
                         key_u32("gemma3.attention.key_length", 8) };
    g = opened({},
               { { "blk.0.ffn_norm.weight", { 32 }, 0, 0 },
                 { "blk.0.attn_q.weight", { 4, 8 }, 0, 3200 } },
               bias, gemma);
    CHECK(number(gguf_config(g), "query_pre_attn_scalar") == 8, "Gemma 3: the scale of its scores");
    w = gguf_weights(&g);
    const Weight *norm = w.find("model.layers.0.pre_feedforward_layernorm.weight"),
                 *plain = w.find("model.layers.0.self_attn.q_proj.weight");
    if (CHECK(norm && plain, "Gemma 3: names")) {
        weight_rows(*norm, 0, 1, x.data());
        CHECK(x[0] == 0 && x[31] == 0, "Gemma 3: a norm of 0 is %g .. %g", x[0], x[31]);
        weight_rows(*plain, 0, 8, x.data());
        CHECK(x[0] == 0 && x[31] == 31, "Gemma 3: q is %g .. %g", x[0], x[31]);
    }
    weights_close(&w);
    // LLaMA 3.2's divisors: 32 for slow frequencies, 1 for fast ones, between them its rule;
    // one that is off is refused
    std::string divisors;
    for (int i = 0; i < 32; i++) {
        const double f = pow(500000., -i / 32.), turns = 8192 * f / 6.283185307179586,
                     s = (turns - 1) / 3;
        divisors += le<float>(turns < 1 ? 32 : turns > 4 ? 1 : 1 / ((1 - s) / 32 + s));
    }
    const Keys llama32 = { key_string("general.architecture", "llama"),
                           key_f32("llama.rope.freq_base", 500000) };
    g = opened({}, { { "rope_freqs.weight", { 32 }, 0, 0 } }, divisors, llama32);
    j = gguf_config(g);
    const Json* rope = j.get("rope_scaling");
    CHECK(rope && rope->get("rope_type")->string == "llama3" && number(*rope, "factor") == 32 &&
              number(*rope, "high_freq_factor") == 4,
          "rope_freqs");
    weights_close(&g.weights);
    auto refuses = [&](Keys more, const std::vector<Entry>& tensors, const char* wanted,
                       Keys keys = LLAMA, const std::string& data = std::string(8192, 0)) {
        ::refuses(wanted, [&] {
            Gguf g = opened(more, tensors, data, keys);
            gguf_config(g);
            gguf_weights(&g);
        });
    };
    divisors[4 * 16 + 2] ^= 1;
    refuses({}, { { "rope_freqs.weight", { 32 }, 0, 0 } }, "rope_freqs.weight: got", llama32,
            divisors);
    refuses({}, {}, "general.architecture is 'mamba', wanted llama, qwen2",
            { key_string("general.architecture", "mamba") });
    refuses({}, {}, "general.architecture is ''", { key_u32("x", 1) });
    refuses({ key_u32("llama.expert_group_count", 8) }, two,
            "the key 'llama.expert_group_count' is not understood");
    g = opened({ key_u32("llama.expert_count", 8), key_u32("llama.expert_used_count", 2) }, two,
               zeros);
    CHECK(gguf_config(g).get("model_type")->string == "mixtral" &&
              number(gguf_config(g), "num_local_experts") == 8 &&
              number(gguf_config(g), "num_experts_per_tok") == 2,
          "a LLaMA with experts is a Mixtral");
    weights_close(&g.weights);
    refuses({ key_f32("llama.attention.layer_norm_epsilon", 1) }, two,
            "epsilon' says rms_norm_eps once more");
    refuses({ key_string("llama.tensor_data_layout", "jploski") }, two,
            "tensor_data_layout is 'jploski', wanted Meta AI original pth");
    refuses({ key_f32("llama.logit_scale", 2) }, two,
            "the key 'llama.logit_scale' is not understood");
    refuses({ key_u32("llama.attention.value_length", 4) }, two,
            "keys and values of different lengths");
    refuses({}, { { "blk.0.attn_foo.weight", { 4 }, 0, 0 } },
            "the tensor 'blk.0.attn_foo.weight' is not understood");
    refuses({}, { { "blk.0.attn_q.scale", { 4 }, 0, 0 } },
            "the tensor 'blk.0.attn_q.scale' is not understood");
    refuses({}, { { "output", { 4 }, 0, 0 } }, "the tensor 'output' is not understood");
    refuses({}, { { "blk.0.attn_q.weight", { 4, 6 }, 0, 0 } }, "has 6 rows for 4 heads");
}

// ---- MXFP4 and directories of safetensors ----

static void test_mxfp4() {
    // each of the sixteen numbers under scales 2^0, 2^-3 and 2^5;
    // byte i has numbers 2 i and 2 i + 1
    const double values[16] = { 0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6 };
    const unsigned char scales[] = { 127, 124, 132, 0 };
    std::string blocks;
    for (int b = 0; b < 4; b++) {
        for (int i = 0; i < 16; i++) {
            blocks += (char)((2 * i & 15) | ((2 * i + 1 + b) & 15) << 4);
        }
    }
    const std::string header =
        "{\"b\":{\"dtype\":\"U8\",\"shape\":[2,2,16],\"data_offsets\":[0,64]},\"s\":{\"dtype\":"
        "\"U8\",\"shape\":[2,2],\"data_offsets\":[64,68]},"
        "\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[68,72]}}";
    file_write(path, le<uint64_t>(header.size()) + header + blocks +
                         std::string((const char*)scales, 4) + "1234");
    Weights w = safetensors_open(path);
    std::vector<float> x(128), row(64);
    mxfp4_rows(*w.find("b"), *w.find("s"), 0, 2, x.data());
    for (int i = 0; i < 128; i++) {
        const int b = i / 32, q = i % 2 ? (i % 32 + b) & 15 : i % 32 & 15;
        const double want = values[q] * ldexp(1, scales[b] - 127);
        CHECK(x[i] == (float)want && std::signbit(x[i]) == std::signbit(want),
              "MXFP4 %d: got %g, wanted %g", i, x[i], want);
    }
    mxfp4_rows(*w.find("b"), *w.find("s"), 1, 2, row.data());
    CHECK(!memcmp(row.data(), &x[64], 256), "MXFP4: the second row");
    const int code = status_of([&] { mxfp4_rows(*w.find("b"), *w.find("t"), 0, 1, row.data()); });
    CHECK(code == EXIT_USER, "MXFP4: scales of another shape: status %d", code);
    weights_close(&w);
}

static void test_directory() {
    const std::string at = dir + "/model", index = at + "/model.safetensors.index.json";
    make_dirs(at);
    const float one[] = { 1, 2 }, two[] = { 3, 4 }, three[] = { 5, 6 };
    safetensors_write(at + "/model-00001-of-00002.safetensors",
                      { { "a", { 2 }, one }, { "both", { 1, 2 }, one } });
    safetensors_write(at + "/model-00002-of-00002.safetensors",
                      { { "b", { 2 }, two }, { "both", { 2 }, two } });
    safetensors_write(at + "/consolidated.safetensors",
                      { { "a", { 2 }, three }, { "c", { 2 }, three } });
    safetensors_write(dir + "/outside.safetensors", { { "a", { 2 }, three } });
    auto first = [&](const Weights& w, const char* name) {
        float x[2] = { -1, -1 };
        if (const Weight* t = w.find(name)) { weight_rows(*t, 0, t->rows(), x); }
        return x[0];
    };
    auto status = [&](const std::string& map, const char* wanted) {
        file_write(index, map);
        refuses(wanted, [&] { safetensors_open_dir(at); });
    };
    const std::string s1 = "\"model-00001-of-00002.safetensors\"",
                      s2 = "\"model-00002-of-00002.safetensors\"";
    CHECK(status_of([&] { safetensors_open_dir(at); }) == EXIT_USER, "a directory without an index");
    file_write(index, "{\"metadata\":{\"total_size\":1e3},\"weight_map\":{\"b\":" + s2 +
                          ",\"a\":" + s1 + ",\"both\":" + s2 + "}}");
    Weights w = safetensors_open_dir(at);
    CHECK(w.tensors.size() == 3 && first(w, "a") == 1 && first(w, "b") == 3 &&
              first(w, "both") == 3 && !w.find("c") && w.maps.size() == 2,
          "an index: %zu tensors", w.tensors.size());
    weights_close(&w);
    for (const char* name :
         { "../outside.safetensors", "/etc/outside.safetensors", "x/y.safetensors",
           ".hidden.safetensors", "model.bin", "", "..", "a\\\\b.safetensors" }) {
        status(strf("{\"weight_map\":{\"a\":\"%s\"}}", name),
               "wanted the name of a .safetensors file beside the index");
    }
    status("{\"weight_map\":{\"a\":5}}", "wanted the name of");
    status("{\"weight_map\":[]}", "has no weight_map");
    status("{\"weight_map\":{}}", "has no weight_map");
    status("{}", "has no weight_map");
    status("[", "not JSON");
    status("{\"weight_map\":{\"b\":" + s1 + "}}", "has no tensor 'b', but the index says so");
    status("{\"weight_map\":{\"a\":\"model-00003-of-00003.safetensors\"}}",
           "is missing, but the index names it");
    status("{\"weight_map\":{\"a\":" + s1 + ",\"a\":" + s1 + "}}", "occurs twice");
    // one file goes before an index
    safetensors_write(at + "/model.safetensors", { { "a", { 2 }, three } });
    w = safetensors_open_dir(at);
    CHECK(w.tensors.size() == 1 && first(w, "a") == 5, "model.safetensors beside an index");
    weights_close(&w);
}

// rows of weights that stay in their file are the floats that would have been read, whatever their
// type, also where they follow floats or floats follow them; nothing else is touched
static void test_stored_rows() {
    Gguf g = gguf_open(std::string(VECTORS) + "types.gguf");
    int matrices = 0;
    for (auto& t : g.weights.tensors) {
        if (t.shape.size() != 2 || !t.type->read) { continue; }
        matrices++;
        const long C = t.cols(), R = t.rows(), N = 3 * R;
        std::vector<float> w(N * C), wanted(N * C);
        for (long i = 0; i < N * C; i++) { w[i] = wanted[i] = (float)i; }
        weight_rows(t, 0, R, wanted.data());
        weight_rows(t, 0, R, &wanted[2 * R * C]);
        const auto read = [&](long r, float* to) { weight_rows(t, r, r + 1, to); };
        for (long first : { 0L, 2 * R }) {
            cpu::mapped.all[&w[first * C]] = { R, C, read };
        }
        for (long from = 0; from < N; from++) {
            for (long to = from + 1; to <= N; to++) {
                std::vector<float> got;
                for (long r = from; r < to; ) {
                    const auto some = cpu::weight_rows(&w[r * C], C, to - r);
                    CHECK(some.n >= 1 && some.n <= to - r, "%ld rows of %ld", (long)some.n, to - r);
                    got.insert(got.end(), some.x, some.x + some.n * C);
                    r += some.n;
                }
                CHECK(!memcmp(got.data(), &wanted[from * C], (to - from) * C * sizeof(float)),
                      "%s: rows %ld to %ld", t.name.c_str(), from, to);
            }
        }
        const auto floats = cpu::weight_rows(&w[R * C], C, R);
        CHECK(floats.x == &w[R * C] && floats.n == R, "%s: floats were copied", t.name.c_str());
        cpu::mapped.all.clear();
    }
    CHECK(matrices >= 10, "%d matrices in types.gguf", matrices);
    weights_close(&g.weights);
}

// products and the embedding, of a weight that stays in a file and is more than is read at once,
// have the bits of the same floats; where these would be there is NaN
static void test_stored_products() {
    const int C = 544, V = 5000, most = 40;
    std::vector<float> file((size_t)V * C), there(file.size(), NAN), bias(V), inp(most * C),
                       residual((size_t)most * V);
    Rng rng = rng_stream(5, C);
    for (auto* v : { &file, &bias, &inp, &residual }) {
        for (auto& e : *v) { e = (float)rng_normal(&rng); }
    }
    const auto read = [&](long r, float* to) { memcpy(to, &file[r * C], C * sizeof(float)); };
    for (int N : { 1, 2, most }) {
        for (int with = 0; with < 4; with++) {
            std::vector<float> got((size_t)N * V, NAN), wanted = got;
            const float *b = with & 1 ? bias.data() : NULL;
            const float *r = with & 2 ? residual.data() : NULL;
            cpu::matmul_forward(wanted.data(), inp.data(), file.data(), b, r, N, C, V);
            cpu::mapped.all[there.data()] = { V, C, read };
            cpu::matmul_forward(got.data(), inp.data(), there.data(), b, r, N, C, V);
            cpu::mapped.all.clear();
            CHECK(!memcmp(got.data(), wanted.data(), got.size() * sizeof(float)),
                  "%d rows, bias and residual %d: other bits", N, with);
        }
    }
    const int tokens[] = { V - 1, 0, 77, 0 };
    std::vector<float> got(4 * C, NAN), wanted = got;
    cpu::embed_forward(wanted.data(), tokens, { file.data(), NULL, NULL }, 2, 1, 4, C);
    cpu::mapped.all[there.data()] = { V, C, read };
    cpu::embed_forward(got.data(), tokens, { there.data(), NULL, NULL }, 2, 1, 4, C);
    cpu::mapped.all.clear();
    CHECK(!memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), "embedding: other bits");
}

// whoever touches the floats of a large matrix that stays, where whole pages are its own, dies;
// what lies beside it is there as before
static void test_stored_guard() {
    const long C = 1024, R = 1100;
    float* room = (float*)cpu::device_malloc((R * C + 4096) * sizeof(float));
    cpu::mapped_add(room + 16, { R, C, [](long, float*) {} });
    const auto dies = [&](long at) {
        const pid_t child = fork();
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL);
            room[at] = 1;
            _exit(0);
        }
        int how = 0;
        waitpid(child, &how, 0);
        return WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV;
    };
    CHECK(dies(16 + R * C / 2), "the middle of a matrix that stays could be written");
    CHECK(!dies(15) && !dies(16 + R * C), "what lies beside a matrix that stays died");
    cpu::mapped.all.clear();
}

int main() {
    dir = check_tmp();
    path = dir + "/x.gguf";
    CASE("types") { test_types(); }
    CASE("values") { test_values(); }
    CASE("pairs") { test_pairs(); }
    CASE("lies") { test_lies(); }
    CASE("parts") { test_parts(); }
    CASE("fuzz") { test_fuzz(3000); }
    CASE("tokenizers") { test_tokenizers(); }
    CASE("expression_families") { test_expression_families(); }
    CASE("tokenizer_refused") { test_tokenizer_refused(); }
    CASE("config") { test_config(); }
    CASE("model") { test_model(); }
    CASE("init") { test_init(); }
    CASE("mxfp4") { test_mxfp4(); }
    CASE("directory") { test_directory(); }
    CASE("stored_rows") { test_stored_rows(); }
    CASE("stored_products") { test_stored_products(); }
    CASE("stored_guard") { test_stored_guard(); }
    remove_tree(dir);
    return check_done();
}
