/*
test_tokenizer.cpp -- are the ids those of the Hugging Face library,
and is everything else refused? vectors/ holds golden ids (dev/make/make_vectors.py). More can be given:
test_tokenizer TOKENIZER VECTORS.jsonl...
*/
#include "../../text/bpe.h"
#include "../../text/normalize.h"
#include "../../text/encode.h"
#include "../../text/ids.h"
#include "../files.h"
#include "../pieces.h"

static std::string show(const std::vector<int>& ids) {
    std::string s;
    for (int i : ids) { s += strf(" %d", i); }
    return s;
}
static std::vector<int> ints(const Json& j) {
    std::vector<int> v;
    for (auto& x : j.items) { v.push_back((int)x.number); }
    return v;
}

// each line: text and ids | text, template (ids with BOS) and decoded | soup (ids),
// decoded and skipped | ids, skip_special and text
static void test_vectors(const std::string& path, const std::string& lines) {
    Tokenizer t = tokenizer_load(path);
    int n = 0;
    for (auto& line : split(file_read(lines), '\n')) {
        if (line.empty()) { continue; }
        Json j; std::string error;
        if (!CHECK(json_parse(line.data(), line.size(), &j, &error), "%s: %s", lines.c_str(),
                   error.c_str())) {
            return;
        }
        const Json* text = j.get("text");
        const Json* decoded = j.get("decoded");
        const Json* skip = j.get("skip_special");
        n++;
        if (const Json* soup = j.get("soup")) {
            std::vector<int> ids = ints(*soup);
            for (int s = 0; s < 2; s++) {
                std::string got = tokenizer_decode(t, ids.data(), ids.size(), s),
                    want = j.get(s ? "skipped" : "decoded")->string;
                CHECK(got == want, "%s: decode%s: got %s, wanted %s", lines.c_str(),
                      show(ids).c_str(), json_str(got).c_str(), json_str(want).c_str());
            }
            continue;
        }
        std::vector<int> want = ints(j.get("template") ? *j.get("template") : *j.get("ids"));
        if (skip) {
            std::string got = tokenizer_decode(t, want.data(), want.size(), skip->number);
            CHECK(got == text->string, "%s: decode: got %s, wanted %s", lines.c_str(),
                  json_str(got).c_str(), json_str(text->string).c_str());
            continue;
        }
        std::vector<int> got = tokenizer_encode(t, text->string, j.get("template"));
        CHECK(got == want, "%s: %s: got%s, wanted%s", lines.c_str(), json_str(text->string).c_str(),
              show(got).c_str(), show(want).c_str());
        if (decoded) {
            std::string back = tokenizer_decode(t, got.data(), got.size(), false);
            CHECK(back == decoded->string, "%s: decode: got %s, wanted %s", lines.c_str(),
                  json_str(back).c_str(), json_str(decoded->string).c_str());
        }
    }
    CHECK(n > 20, "%s: only %d lines", lines.c_str(), n);
}

static std::string nfc_of(const std::string& s) {
    std::string out;
    return nfc(s.data(), s.size(), &out) ? out : s;
}
static void test_unicode() {
    const Unicode& u = unicode();
    long count[4] = {0};
    for (uint32_t c = 0; c < 0x110000; c++) { count[u.flags[c] & CLASS_MASK]++; }
    CHECK(count[CLASS_L] == 141028 && count[CLASS_N] == 1911 && count[CLASS_S] == 25,
          "unicode: %ld letters, %ld numbers, %ld spaces", count[CLASS_L], count[CLASS_N],
          count[CLASS_S]);
    auto cls = [&](uint32_t c) { return u.flags[c] & CLASS_MASK; };
    CHECK(cls(0x85) == CLASS_S && cls(0x3000) == CLASS_S && cls(0x180E) != CLASS_S &&
              cls(0x1C) != CLASS_S && cls(0x200B) != CLASS_S,
          "unicode: spaces");
    CHECK(cls(0xBD) == CLASS_N && cls(0x2167) == CLASS_N && cls(0x301) == CLASS_OTHER &&
              cls(0x323AF) == CLASS_L && cls(0x323B0) == CLASS_OTHER,
          "unicode: classes");
    CHECK(u.composition.size() == 940 && u.decomposition.size() == 2060,
          "unicode: %zu compositions, %zu decompositions", u.composition.size(),
          u.decomposition.size());
    struct {
        std::vector<uint32_t> in, out;
    } cases[] = {
        { { 0x212B }, { 0xC5 } },
        { { 0x2126 }, { 0x3A9 } },
        { { 0x344 }, { 0x308, 0x301 } },
        { { 0x2ADC }, { 0x2ADD, 0x338 } },
        { { 'e', 0x301 }, { 0xE9 } },
        { { 0x1100, 0x1161, 0x11A8 }, { 0xAC01 } },
        { { 0xAC00, 0x11A8 }, { 0xAC01 } },
        { { 0xAC01, 0x11A8 }, { 0xAC01, 0x11A8 } },
        { { 0x1100, 0x1161, 0x11A7 }, { 0xAC00, 0x11A7 } },
        { { 0x11935, 0x11930 }, { 0x11935, 0x11930 } },  // newer than Unicode 9: not composed
        { { 'q', 0x307, 0x323 }, { 'q', 0x323, 0x307 } },
        { { 0x1E9B, 0x323 }, { 0x1E9B, 0x323 } },
        { { 0x1E69 }, { 0x1E69 } },
        { { 's', 0x307, 0x323 }, { 0x1E69 } },
        { { 0x915, 0x93C }, { 0x915, 0x93C } },
        { { 0x958 }, { 0x915, 0x93C } },  // composition exclusions
        { { 'a', 0x345, 0x301, 'b' }, { 0xE1, 0x345, 'b' } },
        { { 0x301, 'a' }, { 0x301, 'a' } },
        { { 'a', 0x335, 0x301 }, { 0xE1, 0x335 } },
        { { 0xFFFD, 0x9C7, 0x9BE }, { 0xFFFD, 0x9CB } },
    };
    for (auto& c : cases) {
        // the stretch in question at the start, and after clean text
        for (auto around : {"", "x", "\xC3\xA9", "\xE6\xBC\xA2 "}) {
            std::string in = around, want = around;
            for (uint32_t x : c.in) { utf8_append(&in, x); }
            for (uint32_t x : c.out) { utf8_append(&want, x); }
            // a leading mark joins the text before it
            if (*around && u.ccc[c.in[0]] && nfc_of(in) != want) { continue; }
            std::string got = nfc_of(in + "z" + in);
            CHECK(got == want + "z" + want || u.ccc[c.in[0]], "nfc: U+%04X...: got %s, wanted %s",
                  c.in[0], json_str(got).c_str(), json_str(want + "z" + want).c_str());
        }
    }
    CHECK(nfc_of(std::string(300, 'a')) == std::string(300, 'a'), "nfc: plain text");
    // Korean composes the 19 modern leads, U+1100 to U+1112, and none of the old ones behind them
    for (int lead = 0x1100; lead <= 0x115F; lead++) {
        std::string in, want;
        utf8_append(&in, lead);
        utf8_append(&in, 0x1161);
        if (lead <= 0x1112) { utf8_append(&want, 0xAC00 + (lead - 0x1100) * 588); }
        else { want = in; }
        CHECK(nfc_of(in) == want, "nfc: U+%04X U+1161: got %s", lead, nfc_of(in).c_str());
    }
    // against decompose, sort, compose of the whole string at once
    Rng rng{5};
    std::vector<uint32_t> pool = { 'a', 'e', ' ', 0xE9, 0x301, 0x323, 0x307, 0x338, 0x345, 0x1100,
                                   0x1161, 0x11A8, 0xAC00, 0x212B, 0x915, 0x93C, 0x4E2D, 0x1F600,
                                   0x9C7, 0x9BE, 0x1D15E, 0x3099, 0x304B };
    for (int k = 0; k < 20000; k++) {
        std::string s, whole;
        for (int n = 1 + (int)rng_below(&rng, 10); n > 0; n--) {
            utf8_append(&s, pool[rng_below(&rng, pool.size())]);
        }
        nfc_stretch(u, s.data(), s.size(), &whole);
        std::string got = nfc_of(s);
        CHECK(got == whole, "nfc of %s by stretches: %s, in one: %s", json_str(s).c_str(),
              json_str(got).c_str(), json_str(whole).c_str());
    }
}

// the definition: of all neighbors that merge, the lowest rank, then the leftmost, again and again
static Ids merge_naive(const Bpe& t, Ids id) {
    for (;;) {
        size_t best = id.size(); const Merge* m = NULL;
        for (size_t i = 0; i + 1 < id.size(); i++) {
            const Merge* c = merge_find(t, id[i], id[i+1]);
            if (c && (!m || c->rank < m->rank)) { m = c; best = i; }
        }
        if (!m) { return id; }
        id[best] = m->id;
        id.erase(id.begin() + best + 1);
    }
}
static void test_merge() {
    Tokenizer t = tokenizer_load(in_test() + "/vectors/gpt2.json");
    const Bpe& bpe = *t.bpe;
    Rng rng{9};
    Scratch w;
    for (int k = 0; k < 3000; k++) {
        std::string s;
        const char* letters = k % 3 == 0 ? "ab" : k % 3 == 1 ? "thes " : "thandiou rel";
        for (int n = 1 + (int)rng_below(&rng, k % 10 ? 40 : 300); n > 0; n--) {
            s += letters[rng_below(&rng, strlen(letters))];
        }
        piece_symbols(bpe, s.data(), s.size(), &w.id);
        Ids start = w.id, want = merge_naive(bpe, start);
        merge_short(bpe, &w);
        CHECK(w.id == want, "merge_short: %s", s.c_str());
        w.id = start;
        merge_long(bpe, &w);
        CHECK(w.id == want, "merge_long: %s", s.c_str());
    }
    // found again in the cache, whatever came between
    std::string text;
    for (int i = 0; i < 20000; i++) {
        text += strf("%s%d", i % 2 ? " the" : " on", (int)rng_below(&rng, 30));
    }
    CHECK(tokenizer_encode(t, text, false) == tokenizer_encode(t, text, false),
          "cache: the second time differs");
    double start = now_ms();
    for (auto s : {"a", " ", "=", "the", "\xE4\xB8\xAD"}) {
        std::string big;
        while (big.size() < 1 << 20) { big += s; }
        tokenizer_encode(t, big, false);
    }
    CHECK(now_ms() - start < 60e3, "five long pieces took %.0f s: quadratic?",
          (now_ms() - start) / 1e3);
}

static void test_round_trip() {
    Rng rng{11};
    Tokenizer gpt2 = tokenizer_load(in_test() + "/vectors/gpt2.json"), llama = tokenizer_load(in_test()
        + "/vectors/llama2.json"), bytes = Tokenizer();
    for (int k = 0; k < 2000; k++) {
        std::string any, text;
        for (int n = (int)rng_below(&rng, 30); n > 0; n--) {
            any += (char)rng_below(&rng, 256);
            uint32_t c = (uint32_t)rng_below(&rng, n % 3 ? 0x80 : n % 2 ? 0x3000 : 0x110000);
            utf8_append(&text, c >= 0xD800 && c < 0xE000 ? 'x' : c);
        }
        std::vector<int> ids = tokenizer_encode(bytes, any, false);
        CHECK(tokenizer_decode(bytes, ids.data(), ids.size(), true) == any,
              "bytes do not come back");
        for (auto t : {&gpt2, &llama}) {
            ids = tokenizer_encode(*t, text, true);
            CHECK(tokenizer_decode(*t, ids.data(), ids.size(), true) == text ||
                      contains(text, BLOCK),
                  "%s: %s does not come back", t->name.c_str(), json_str(text).c_str());
        }
    }
    // ill-formed text is repaired before anything looks at it
    CHECK(tokenizer_encode(gpt2,
                           "a\xFF"
                           "b",
                           false) == tokenizer_encode(gpt2,
                                                      "a\xEF\xBF\xBD"
                                                      "b",
                                                      false),
          "ill-formed UTF-8");
    CHECK(bytes.vocab_size == 257 && bytes.eos == 256 && tokenizer_encode(bytes, "\xFF" "A",
        true) == std::vector<int>({255, 65}), "bytes");
    int end[] = { 65, 256, 66 };
    CHECK(tokenizer_decode(bytes, end, 3, true) == "AB" &&
              tokenizer_decode(bytes, end, 3, false) == "A<|endoftext|>B",
          "bytes: EOS");
}

// vocab.json + merges.txt, as GPT-2 and OPT come; and who is EOS, who is BOS
static void test_pair() {
    make_dirs(dir + "/opt");
    put("opt/vocab.json",
        "{\"<s>\":0,\"<pad>\":1,\"</"
        "s>\":2,\"<unk>\":3,\"a\":4,\"b\":5,\"ab\":6,\"\\u0120\":7,\"\\u0120ab\":8,\"model\":9}");
    put("opt/merges.txt", "#version: 0.2\na b\n\xC4\xA0 ab\n");
    Tokenizer t = tokenizer_load(dir + "/opt");
    CHECK(tokenizer_encode(t, "ab ab</s>a", true) == std::vector<int>({ 6, 8, 2, 4 }) &&
              t.eos == 2 && t.bos == 0 && t.vocab_size == 10,
          "pair: %s", show(tokenizer_encode(t, "ab ab</s>a", true)).c_str());
    put("opt/tokenizer_config.json", "{\"add_bos_token\": true, \"bos_token\": {\"content\": "
                                     "\"</s>\"}, \"eos_token\": \"</s>\"}");
    t = tokenizer_load(dir + "/opt/vocab.json");
    CHECK(tokenizer_encode(t, "ab", true) == std::vector<int>({2, 6}) && t.bos == 2 && t.eos == 2,
        "OPT: BOS is not </s>:%s", show(tokenizer_encode(t, "ab", true)).c_str());
    put("opt/merges.txt", "a b\na b c\n");
    Died d = check_dies([] { tokenizer_load(dir + "/opt"); });
    check_ended(d, EXIT_USER, "merges.txt", "wanted two tokens");
    unlink((dir + "/opt/merges.txt").c_str());
    d = check_dies([] { tokenizer_load(dir + "/opt"); });
    check_ended(d, EXIT_USER, "merges.txt", "merges.txt: cannot open");
}

static void test_split() {
    struct {
        StepKind kind;
        int digits;
        const char* text;
        const char* want;
    } cases[] = {
        { SPLIT_GPT2, 0, "I'm you're he's we'll I'd I've can't",
          "I|'m| you|'re| he|'s| we|'ll| I|'d| I|'ve| can|'t" },
        { SPLIT_GPT2, 0, "I'M ''s '\xC5\xBF", "I|'|M| ''|s| '|\xC5\xBF" },
        { SPLIT_GPT2, 0, "a \n b", "a| \n| b" },
        { SPLIT_GPT2, 0, "x\n\ny", "x|\n|\n|y" },
        { SPLIT_GPT2, 0, "\t\tx", "\t|\t|x" },
        { SPLIT_GPT2, 0, "a  ", "a|  " },
        { SPLIT_GPT2, 0, "a   b", "a|  | b" },
        { SPLIT_GPT2, 0, "12345 6.7\xC2\xBD", "12345| 6|.|7\xC2\xBD" },
        { SPLIT_GPT2, 0, "hi!?\n\n x\xC2\xA0y", "hi|!?|\n\n| x|\xC2\xA0|y" },
        { SPLIT_GPT2, 0, "e\xCC\x81", "e|\xCC\x81" },
        { SPLIT_GPT2, 0, "abcdefghijklmnop\xC3\xA9qrstuvw_x",
          "abcdefghijklmnop\xC3\xA9qrstuvw|_|x" },
        { SPLIT_CL100K, 3, "1234567", "123|456|7" },
        { SPLIT_CL100K, 1, "123", "1|2|3" },
        { SPLIT_CL100K, 2, "123", "12|3" },
        { SPLIT_CL100K, 3, "x;\r\n\r\ny", "x|;\r\n\r\n|y" },
        { SPLIT_CL100K, 3, "a\r\nb", "a|\r\n|b" },
        { SPLIT_CL100K, 3, "a\rb", "a|\r|b" },
        { SPLIT_CL100K, 3, "\thello (hi \xC2\xA0you", "\thello| (|hi| |\xC2\xA0you" },
        { SPLIT_CL100K, 3, "x'\xC5\xBFx", "x|'\xC5\xBF|x" },
        { SPLIT_CL100K, 3, "I'LL 'S '\xC5\xBF don\xE2\x80\x99t",
          "I|'LL| '|S| '|\xC5\xBF| don|\xE2\x80\x99t" },
        { SPLIT_CL100K, 3, "a \n \n  b", "a| \n \n| | b" },
        { SPLIT_CL100K, 3, "a  \n", "a|  \n" },
        { SPLIT_CL100K, 3, "x  = 1", "x| | =| |1" },
        { SPLIT_CL100K, 3, "  ", "  " },
    };
    for (auto& c : cases) {
        Step step; step.kind = c.kind; step.number = c.digits;
        const std::string got = pieces_of(step, c.text);
        CHECK(got == c.want, "split of %s: got %s, wanted %s", json_str(c.text).c_str(),
              json_str(got).c_str(), json_str(c.want).c_str());
    }
}

static std::string with(const std::string& rest, const std::string& model = "") {
    return "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"<s>\": 3, "
           "\"c\": 4, \" \": 5, \"abc\": 6}, \"merges\": [\"a b\"]" +
           model + "}" + rest + "}";
}
// A tokenizer of zeros that joins what stands in one piece: its ids tell where digits were cut.
static std::string ids_of_zeros(const char* digits) {
    const std::string regex =
        std::string("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|") + digits +
        "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
    const std::string json =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"0\": 0, \"00\": 1, \"0000\": 2}, "
        "\"merges\": [\"0 0\", \"00 00\"]}, \"pre_tokenizer\": {\"type\": \"Split\", "
        "\"pattern\": {\"Regex\": " +
        json_str(regex) + "}, \"behavior\": \"Isolated\", \"invert\": false}}";
    return show(tokenizer_encode(tokenizer_load(put("zeros.json", json)), "00000000", false));
}
static void test_digits() {
    // as tokenizers 0.23.3 does: {1,2} cuts, {1,3}+ takes all digits in one piece
    CHECK(ids_of_zeros("\\p{N}{1,2}") == " 1 1 1 1", "{1,2}: %s",
          ids_of_zeros("\\p{N}{1,2}").c_str());
    CHECK(ids_of_zeros("\\p{N}{1,3}+") == " 2 2", "{1,3}+: %s",
          ids_of_zeros("\\p{N}{1,3}+").c_str());
}
static void test_components() {
    auto ids = [](const std::string& rest, const char* text, const std::string& model = "") {
        return show(tokenizer_encode(tokenizer_load(put("t.json", with(rest, model))), text, true));
    };
    CHECK(ids("", "abca") == " 2 4 0", "plain: %s", ids("", "abca").c_str());
    CHECK(ids("", "axb") == " 2",
          "a character without token is dropped, and its neighbors meet: %s",
          ids("", "axb").c_str());
    CHECK(ids("", "axxb", ", \"unk_token\": \"c\"") == " 0 4 4 1"
        && ids("", "axxb", ", \"unk_token\": \"c\", \"fuse_unk\": true") == " 0 4 1", "unk");
    // the id written in the file is not believed; a token of the vocabulary keeps its own
    std::string added =
        ", \"added_tokens\": [{\"id\": 77, \"content\": \"ba\"}, {\"id\": 9, \"content\": \"ab\", "
        "\"lstrip\": true}, {\"id\": 1, \"content\": \"zz\", \"rstrip\": true}]";
    CHECK(ids(added, "ba ab zz  b b") == " 7 2 5 8 1 5 1", "added tokens: %s",
          ids(added, "ba ab zz  b b").c_str());
    CHECK(ids("", "abc") == " 2 4" && ids("", "abc", ", \"ignore_merges\": true") == " 6",
        "a token that merging does not reach: %s", ids("", "abc").c_str());
    CHECK(ids(added, "bab") == " 7 1", "added tokens: leftmost first: %s",
          ids(added, "bab").c_str());
    Tokenizer t = tokenizer_load(put("t.json", with(", \"version\": \"1.0\"")));
    CHECK(t.vocab_size == 7 && t.bos == 3 && t.eos == -1, "ends: %d %d %d", t.vocab_size, t.bos,
          t.eos);
    std::string two = "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"bb\": 3}, "
                      "\"merges\": [[\"a\", \"b\"], [\"b\", \"b\"], [\"a\", \"b\"]]}}";
    CHECK(show(tokenizer_encode(tokenizer_load(put("t.json", two)), "abb", false)) == " 0 3",
        "a merge written twice has its last rank");
}
// without a byte-level pre_tokenizer, pieces are text and are looked up as text;
// the decoder alone knows of bytes
static void test_byte_decoder() {
    const std::string vocab =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"\u0120\": 1, \"\u0120a\": 2, "
        "\"\u00e9\": 3, \"<|endoftext|>\": 4}, \"merges\": [\"\u0120 a\"]}";
    const Tokenizer t = tokenizer_load(
        put("t.json", vocab + ", \"decoder\": {\"type\": \"ByteLevel\"}}"));
    CHECK(show(tokenizer_encode(t, "\u0120aa\u00e9", false)) == " 2 0 3",
          "a decoder of bytes without a splitter of bytes: %s",
          show(tokenizer_encode(t, "\u0120aa\u00e9", false)).c_str());
    const int ids[] = { 2, 0, 3 };
    CHECK(tokenizer_decode(t, ids, 3, true) == " aa\xEF\xBF\xBD", "it decodes to bytes: %s",
          tokenizer_decode(t, ids, 3, true).c_str());
}
static void test_refused() {
    struct {
        std::string file;
        const char* says;
    } cases[] = {
        { "", "got an empty file" },
        { "{", "byte 2" },
        { "[]", "wanted an object" },
        { "{\"a\": 1.5}", "wanted a whole number" },
        { "{\"a\": -1}", "wanted a whole number" },
        { "{\"model\": {}}", "wanted BPE" },
        { "{\"model\": {\"type\": \"Unigram\"}}", "got Unigram, wanted BPE" },
        { "{\"model\": {\"type\": \"BPE\"}}", "got no vocab" },
        { "{\"model\": {\"type\": \"BPE\", \"vocab\": {}}}", "got no merges" },
        { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": \"0\"}, \"merges\": []}}",
          ", wanted a whole number" },
        { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1e300}, \"merges\": []}}",
          ", wanted a whole number" },
        { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 99999999}, \"merges\": []}}",
          "got an id of 99999999 for 1 tokens" },
        { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}",
          "not all in the vocabulary" },
        { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"ab\"]}}",
          "merge 1: wanted two tokens" },
        { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b c\"]}}",
          "merge 1: wanted two tokens" },
        { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}",
          "merge 1: wanted two tokens" },
        { with("", ", \"dropout\": 0.1"), "dropout" },
        { with("", ", \"end_of_word_suffix\": \"</w>\""), "end_of_word_suffix" },
        { with("", ", \"continuing_subword_prefix\": \"##\""), "continuing_subword_prefix" },
        { with("", ", \"unk_token\": \"?\""), "not in the vocabulary" },
        { with(", \"normalizer\": {\"type\": \"Nmt\"}"), "normalizer: unknown component Nmt" },
        { with(", \"normalizer\": {}"), "without a type" },
        { with(", \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"x\"}, "
               "\"content\": \"y\"}"),
          "unknown component Replace" },
        { with(", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
               "\"Precompiled\"}]}"),
          "unknown component Precompiled" },
        { with(", \"normalizer\": {\"type\": \"Sequence\"}"), "got no normalizers" },
        { with(", \"pre_tokenizer\": {\"type\": \"Whitespace\"}"), "unknown component Whitespace" },
        { with(", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\w+\"}, "
               "\"behavior\": \"Isolated\"}"),
          "unknown expression \\w+" },
        { with(", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, "
               "\"behavior\": \"Sideways\"}"),
          "unknown behavior" },
        { with(", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"\"}, "
               "\"behavior\": \"Isolated\"}"),
          "without a pattern" },
        // the library cuts U+0CB2, bytes E0 B2 B2, behind the first: the letter of B2 is a digit
        { with(", \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["
               "{\"type\": \"ByteLevel\"}, {\"type\": \"Digits\"}]}"),
          "got Digits behind ByteLevel, wanted ByteLevel last" },
        { with(", \"pre_tokenizer\": {\"type\": \"Metaspace\"}"), "without a replacement" },
        { with(", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", "
               "\"prepend_scheme\": \"x\"}"),
          "prepend_scheme" },
        { with(", \"decoder\": {\"type\": \"WordPiece\"}"),
          "decoder: unknown component WordPiece" },
        { with(", \"decoder\": {\"type\": \"Strip\", \"content\": \" \", \"start\": -1}"),
          "wanted a whole number" },
        { with(", \"post_processor\": {\"type\": \"BertProcessing\"}"),
          "post_processor: unknown component" },
        { with(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
               "[{\"SpecialToken\": {\"id\": \"x\"}}], \"special_tokens\": {}}"),
          "undefined token x" },
        { with(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
               "[{\"SpecialToken\": {\"id\": \"x\"}}], \"special_tokens\": {\"x\": {\"ids\": "
               "[500]}}}"),
          "id 500 is not in the vocabulary" },
        { with(", \"added_tokens\": [{\"content\": \"x\", \"single_word\": true}]"),
          "single_word" },
        { with(", \"added_tokens\": [{\"content\": \"x\", \"id\": -5}]"),
          "got -5 for id, wanted a whole number" },
        { with(", \"added_tokens\": [{\"content\": \"x\", \"id\": 1099511627776}]"),
          "for id, wanted a whole number" },
        { "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"a\": 1}, \"merges\": []}}",
          "occurs twice" },
        { with(", \"added_tokens\": [5]"), "wanted objects" },
        { with(", \"added_tokens\": [{}]"), "got no content" },
        { std::string(1000, '['), "nested more than" },
    };
    for (auto& c : cases) {
        std::string path = put("bad.json", c.file);
        Died d = check_dies([&] { tokenizer_load(path); });
        check_ended(d, EXIT_USER, c.file.substr(0, 200), c.says, "bad.json");
    }
    Died d = check_dies([] { tokenizer_load("/nowhere/tokenizer.json"); });
    check_ended(d, EXIT_USER, "missing file", "cannot open");
    d = check_dies([] { tokenizer_encode(tokenizer_ids("ids", 10), "text", false); });
    check_ended(d, EXIT_USER, "ids", "no tokenizer");
    int ids[] = { 3, 14 };
    CHECK(tokenizer_decode(tokenizer_ids("ids", 20), ids, 2, true) == "3 14", "ids: decode");
    // bytes have ids for EOS and BOS and no words; a vocabulary may have neither
    Tokenizer bytes = Tokenizer();
    CHECK(token_text(bytes, bytes.eos).empty() && text_begin(bytes, 300) == 256, "bytes: EOS");
    bytes.eos = -1;
    auto letters = std::make_shared<Bpe>();
    letters->text = { "a", "b" };
    bytes.bpe = letters;
    CHECK(token_text(bytes, -1).empty() && token_text(bytes, 2).empty() &&
              token_text(bytes, 1) == "b" && text_begin(bytes, 300) == 299,
          "a tokenizer without EOS");
}

int main(int argc, char** argv) {
    CASE("vectors") { for (int i = 2; i < argc; i++) { test_vectors(argv[1], argv[i]); } }
    dir = check_tmp();
    for (auto name : {"neox", "gpt2", "llama2", "llama2_first", "llama3"}) {
        const std::string golden = in_test() + "/vectors/" + name + ".json";
        CASE(name) { test_vectors(golden, golden + "l"); }
    }
    CASE("unicode") { test_unicode(); }
    CASE("merge") { test_merge(); }
    CASE("round_trip") { test_round_trip(); }
    CASE("pair") { test_pair(); }
    CASE("split") { test_split(); }
    CASE("digits") { test_digits(); }
    CASE("components") { test_components(); }
    CASE("byte_decoder") { test_byte_decoder(); }
    CASE("refused") { test_refused(); }
    remove_tree(dir);
    return check_done();
}
