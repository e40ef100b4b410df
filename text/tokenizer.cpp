/*
text/tokenizer.cpp -- what tokenizer.h declares.
*/
#include "../tokenizer.h"
#include "look.h"
#include "../models/gguf.h"
#include "../models/directory.h"
#include "tokenizer_config.h"
#include "unicode.h"

// ----------------------------------------------------------------------------
// unicode: classes as in Unicode 16, normal form C as in Unicode 9: what Hugging Face tokenizers
// 0.23 has inside

// syllable = (l * 21 + v) * 28 + t
enum { HANGUL = 0xAC00, JAMO_L = 0x1100, JAMO_V = 0x1161, JAMO_T = 0x11A7, HANGUL_N = 11172 };

static uint32_t unicode_number(const char** p) {
    uint32_t v = 0;
    for (int shift = 0;; shift += 5) {
        uint32_t d = *(*p)++ - '0';
        v |= (d & 31) << shift;
        if (d < 32) { return v; }
    }
}

static Unicode unicode_load() {
    Unicode u;
    u.flags.assign(0x110000, CLASS_OTHER);
    u.ccc.assign(0x110000, 0);
    const char* classes[] = { NULL, unicode_L, unicode_N, unicode_S };
    for (int c = CLASS_L; c <= CLASS_S; c++) {
        uint32_t cp = 0;
        for (const char* p = classes[c]; *p;) {
            cp += unicode_number(&p);
            for (uint32_t n = unicode_number(&p) + 1; n > 0; n--) {
                u.flags[cp] = (unsigned char)c;
                cp += n > 1;
            }
        }
    }
    uint32_t cp = 0;
    for (const char* p = unicode_ccc; *p;) {
        cp += unicode_number(&p);
        uint32_t n = unicode_number(&p), ccc = unicode_number(&p);
        for (uint32_t i = 0; i <= n; i++) {
            u.ccc[cp + i] = (unsigned char)ccc;
            u.flags[cp + i] |= NFC_CHECK;
        }
        cp += n;
    }
    auto zigzag = [](uint32_t v) { return v & 1 ? -(long)(v / 2) - 1 : (long)(v / 2); };
    long second = 0;
    cp = 0;
    for (const char* p = unicode_decomposition; *p;) {
        cp += unicode_number(&p);
        uint32_t kind = unicode_number(&p), a = (uint32_t)(cp + zigzag(unicode_number(&p)));
        if (kind) { second += zigzag(unicode_number(&p)); }
        u.decomposition[cp] = { a, kind ? (uint32_t)second : 0 };
        if (kind == 1) {
            u.composition[(uint64_t)a << 32 | second] = cp;
            u.flags[second] |= NFC_CHECK;
        } else {
            u.flags[cp] |= NFC_CHECK;
        }
    }
    for (int j = 0; j < 21; j++) { u.flags[JAMO_V + j] |= NFC_CHECK; }
    for (int j = 1; j < 28; j++) { u.flags[JAMO_T + j] |= NFC_CHECK; }
    return u;
}

const Unicode& unicode() {
    static const Unicode* u = new Unicode(unicode_load());
    return *u;
}

// the code point at valid UTF-8 s, and its length
static uint32_t utf8_at(const char* s, int* len) {
    const unsigned char* p = (const unsigned char*)s;
    if (p[0] < 0x80) { *len = 1; return p[0]; }
    if (p[0] < 0xE0) { *len = 2; return (p[0] & 31) << 6 | (p[1] & 63); }
    if (p[0] < 0xF0) { *len = 3; return (p[0] & 15) << 12 | (p[1] & 63) << 6 | (p[2] & 63); }
    *len = 4; return (p[0] & 7) << 18 | (p[1] & 63) << 12 | (p[2] & 63) << 6 | (p[3] & 63);
}

// end of the run of bytes below 0x80, in steps of 8, from i
static size_t ascii_run(const char* s, size_t i, size_t n) {
    for (uint64_t w; i + 8 <= n; i += 8) {
        memcpy(&w, s + i, 8);
        if (w & 0x8080808080808080ull) { break; }
    }
    while (i < n && !(s[i] & 0x80)) { i++; }
    return i;
}

bool utf8_valid(const std::string& s) {
    size_t n = s.size(), i = ascii_run(s.data(), 0, n);
    while (i < n) {
        if (utf8_next(s.data(), n, &i) < 0) { return false; }
        if (i < n && !(s[i] & 0x80)) { i = ascii_run(s.data(), i, n); }
    }
    return true;
}

static void nfc_decompose(const Unicode& u, uint32_t cp, std::vector<uint32_t>* out) {
    if (cp >= HANGUL && cp < HANGUL + HANGUL_N) {
        uint32_t s = cp - HANGUL;
        out->push_back(JAMO_L + s / 588); out->push_back(JAMO_V + s % 588 / 28);
        if (s % 28) { out->push_back(JAMO_T + s % 28); }
        return;
    }
    auto d = u.decomposition.find(cp);
    if (d == u.decomposition.end()) { out->push_back(cp); return; }
    nfc_decompose(u, d->second.first, out);
    if (d->second.second) { nfc_decompose(u, d->second.second, out); }
}

// the composite of two code points, 0 if there is none
static uint32_t nfc_pair(const Unicode& u, uint32_t a, uint32_t b) {
    if (a - JAMO_L < 19u && b - JAMO_V < 21u) {
        return HANGUL + ((a - JAMO_L) * 21 + (b - JAMO_V)) * 28;
    }
    if (a - HANGUL < (uint32_t)HANGUL_N && (a - HANGUL) % 28 == 0 && b - JAMO_T - 1 < 27u) {
        return a + (b - JAMO_T);
    }
    auto c = u.composition.find((uint64_t)a << 32 | b);
    return c == u.composition.end() ? 0 : c->second;
}

void nfc_stretch(const Unicode& u, const char* s, size_t n, std::string* out) {
    static thread_local std::vector<uint32_t> c;
    c.clear();
    int len;
    for (size_t i = 0; i < n; i += len) { nfc_decompose(u, utf8_at(s + i, &len), &c); }
    for (size_t i = 0; i < c.size(); i++) {              // runs of marks, stably by combining class
        size_t e = i;
        while (e < c.size() && u.ccc[c[e]]) { e++; }
        std::stable_sort(c.begin() + i, c.begin() + e,
                         [&](uint32_t a, uint32_t b) { return u.ccc[a] < u.ccc[b]; });
        i = e > i ? e - 1 : i;
    }
    // last: class of the mark kept since the starter, 0 if none
    size_t kept = 0; long starter = -1; int last = 0;
    for (size_t i = 0; i < c.size(); i++) {
        int ccc = u.ccc[c[i]];
        bool next_to = starter >= 0 && (size_t)starter + 1 == kept;
        uint32_t both = starter >= 0 && (next_to || last < ccc) ? nfc_pair(u, c[starter], c[i]) : 0;
        if (both) { c[starter] = both; continue; }
        if (!ccc) { starter = (long)kept; }
        last = ccc;
        c[kept++] = c[i];
    }
    for (size_t i = 0; i < kept; i++) { utf8_append(out, c[i]); }
}

bool nfc(const char* s, size_t n, std::string* out) {
    const Unicode& u = unicode();
    // everything before done is in out; clean: the last code point that cannot change
    size_t done = 0, clean = 0;
    int len;
    out->clear();
    for (size_t i = 0; i < n;) {
        if (!(s[i] & 0x80)) { size_t e = ascii_run(s, i, n); clean = e - 1; i = e; continue; }
        uint32_t cp = utf8_at(s + i, &len);
        if (!(u.flags[cp] & NFC_CHECK)) { clean = i; i += len; continue; }
        size_t from = std::max(done, clean), e = i;
        while (e < n && (u.flags[utf8_at(s + e, &len)] & NFC_CHECK)) { e += len; }
        out->append(s + done, from - done);
        nfc_stretch(u, s + from, e - from, out);
        done = clean = i = e;
    }
    if (done == 0) { return false; }
    out->append(s + done, n - done);
    return true;
}

// ----------------------------------------------------------------------------
// tokenizer

Tokenizer tokenizer_bytes() { return Tokenizer(); }

Tokenizer tokenizer_ids(const std::string& name, int V) {
    Tokenizer t;
    t.kind = TOKENIZER_IDS; t.name = name; t.vocab_size = V; t.eos = t.bos = -1; t.hash = 0;
    return t;
}

// A tokenizer.json comes from elsewhere: what one may ask for, so that its time and memory stay
// linear in its size and in that of a text.
enum {
    ADDED_LONGEST = 4096,
    ADDED_BYTES = 16 << 20, // added tokens: bytes of one, of all
    STEPS_MOST = 64,
    GROWTH_MOST = 64,     // of a stage: components, growth of a text
    SCORED_LONGEST = 1024 // bytes of a token that scores merge (GGUF)
};

// the expressions that are known; anything else is refused
struct KnownRegex { const char* regex; StepKind kind; int digits; };
static const KnownRegex known_regexes[] = {
    { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
      SPLIT_GPT2, 0 },
    { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
      "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      SPLIT_CL100K, 3 }, // LLaMA-3
    { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
      "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      SPLIT_CL100K, 1 },
    { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,2}| "
      "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
      "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
      SPLIT_CL100K, 2 }, // nanochat
    { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}+| "
      "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
      "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
      SPLIT_CL100K, 3 },
};

// GPT-2's map from bytes to printable characters: 21-7E, A1-AC, AE-FF are themselves, the rest, in
// order, U+0100...
static bool byte_stays(int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

std::vector<uint32_t> byte_alphabet() {
    std::vector<uint32_t> characters(256);
    uint32_t other = 0x100;
    for (int b = 0; b < 256; b++) { characters[b] = byte_stays(b) ? b : other++; }
    return characters;
}

// a vocabulary string in that alphabet -> bytes; false if it has other characters
static bool byte_level_to_raw(const std::string& s, std::string* raw) {
    static const std::vector<int> back = [] {
        std::vector<int> m(0x144, -1);
        const std::vector<uint32_t> characters = byte_alphabet();
        for (int b = 0; b < 256; b++) { m[characters[b]] = b; }
        return m;
    }();
    raw->clear();
    for (size_t i = 0; i < s.size();) {
        long c = utf8_next(s.data(), s.size(), &i);
        if (c < 0 || c >= 0x144 || back[c] < 0) { return false; }
        raw->push_back((char)back[c]);
    }
    return true;
}

[[noreturn]] void refuse(const TokenizerFile& f, const std::string& what,
                         const char* hint) {
    die(EXIT_USER, f.path + ": " + what, hint);
}

static const Json& json_need(const TokenizerFile& f, const Json& j, const char* key,
                             Json::Type type) {
    const Json* v = j.get(key);
    if (!v || v->type != type) {
        refuse(f, strf("got no %s, or of another type: not a tokenizer.json", key));
    }
    return *v;
}

static bool json_null(const Json* v) { return !v || v->type == Json::NUL; }
static std::string json_string(const Json& j, const char* key) {
    const Json* v = j.get(key);
    return v && v->type == Json::STRING ? v->string : "";
}

static bool json_true(const Json& j, const char* key, bool absent = false) {
    const Json* v = j.get(key);
    return json_null(v) ? absent : v->number != 0;
}

static int json_int(const TokenizerFile& f, const Json& j, const char* key) {
    const Json& v = json_need(f, j, key, Json::NUMBER);
    if (v.number < 0 || v.number > 100000000 || v.number != floor(v.number)) {
        refuse(f, strf("got %s for %s, wanted a whole number", v.string.c_str(), key));
    }
    return (int)v.number;
}

// the pattern of a component, {"String": ..} or {"Regex": ..}
static std::string json_pattern(const TokenizerFile& f, const Json& j, const char* kind) {
    return json_string(json_need(f, j, "pattern", Json::OBJECT), kind);
}

// Metaspace -> the rest of a step of either kind
static void metaspace_step(const TokenizerFile& f, const std::string& stage, const Json& j,
                           Step* s) {
    std::string scheme = json_string(j, "prepend_scheme");
    s->from = json_string(j, "replacement");
    if (s->from.empty()) { refuse(f, stage + ": Metaspace without a replacement"); }
    if (!scheme.empty() && scheme != "always" && scheme != "first" && scheme != "never") {
        refuse(f, stage + ": unknown prepend_scheme " + scheme);
    }
    // older files
    if (scheme.empty()) { scheme = json_true(j, "add_prefix_space", true) ? "always" : "never"; }
    s->number = scheme == "never" ? PREPEND_NEVER : PREPEND_ALWAYS;
    if (scheme == "first") { s->number = PREPEND_FIRST; }
    s->flag = json_true(j, "split", true);
}

// Split -> its step
static Step split_step(const TokenizerFile& f, const Json& j) {
    const char* names[] = { "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                            "Contiguous" };
    const std::string behavior = json_string(j, "behavior"), regex = json_pattern(f, j, "Regex");
    const bool invert = json_true(j, "invert");
    Step s = Step();
    int b = 0;
    while (b < 5 && behavior != names[b]) { b++; }
    if (b == 5) { refuse(f, "pre_tokenizer: unknown behavior " + behavior); }
    if (regex.empty()) {
        s.kind = SPLIT_STRING;
        s.from = json_pattern(f, j, "String"); s.number = b; s.flag = invert;
        if (s.from.empty()) { refuse(f, "pre_tokenizer: Split without a pattern"); }
        return s;
    }
    const KnownRegex* known = NULL;
    for (auto& k : known_regexes) { if (regex == k.regex) { known = &k; } }
    // these expressions match all of any text, so keeping the matches and isolating them is the
    // same
    if (!known || !((b == ISOLATED && !invert) || (b == REMOVED && invert))) {
        refuse(f, "pre_tokenizer: unknown expression " + regex + " (" + behavior + ")",
            "add it to known_regexes in tokenizer.h, with its splitter");
    }
    s.kind = known->kind;
    s.number = known->digits;
    return s;
}

// one component of the file -> steps. stage: "normalizer", "pre_tokenizer", "decoder"
static void tokenizer_steps(const TokenizerFile& f, Tokenizer* t, const std::string& stage,
                            const Json* j, int depth = 0) {
    if (json_null(j)) { return; }
    if (depth > 20) { refuse(f, stage + ": nested too deep"); }
    directory_check("tokenizer.json: components", f.path + ": " + stage, *j);
    std::string type = json_string(*j, "type");
    const bool norm = stage == "normalizer", pre = stage == "pre_tokenizer",
               decode = stage == "decoder";
    std::vector<Step>& rest = pre ? t->splitter : t->decoder;
    std::vector<Step>& out = norm ? t->normalizer : rest;
    auto add = [&](StepKind kind) {
        out.emplace_back();
        out.back().kind = kind;
        return &out.back();
    };
    auto pattern = [&](const char* kind) { return json_pattern(f, *j, kind); };
    if (type == "Sequence") {
        const char* key = pre ? "pretokenizers" : "decoders";
        if (norm) { key = "normalizers"; }
        for (auto& item : json_need(f, *j, key, Json::ARRAY).items) {
            tokenizer_steps(f, t, stage, &item, depth + 1);
        }
    } else if (norm && type == "NFC") { add(NORM_NFC);
    } else if (norm && type == "Prepend") {
        add(NORM_PREPEND)->to = json_need(f, *j, "prepend", Json::STRING).string;
    } else if (!pre && type == "Replace" && !pattern("String").empty()) {
        Step* s = add(decode ? DECODE_REPLACE : NORM_REPLACE);
        s->from = pattern("String"); s->to = json_need(f, *j, "content", Json::STRING).string;
    } else if (pre && type == "ByteLevel") {
        t->byte_level = true;
        if (json_true(*j, "add_prefix_space", true)) { add(SPLIT_PREFIX); }
        if (json_true(*j, "use_regex", true)) { add(SPLIT_GPT2); }
    } else if (pre && type == "Split") {
        out.push_back(split_step(f, *j));
    } else if (pre && type == "Digits") {
        add(SPLIT_DIGITS)->flag = json_true(*j, "individual_digits");
    } else if (pre && type == "Metaspace") {
        metaspace_step(f, stage, *j, add(SPLIT_METASPACE));
    } else if (decode && type == "Metaspace") {
        metaspace_step(f, stage, *j, add(DECODE_METASPACE));
    } else if (decode && type == "ByteLevel") {
        add(DECODE_BYTES);
    } else if (decode && type == "ByteFallback") {
        add(DECODE_FALLBACK);
    } else if (decode && type == "Fuse") {
        add(DECODE_FUSE);
    } else if (decode && type == "Strip") {
        Step* s = add(DECODE_STRIP);
        s->from = json_need(f, *j, "content", Json::STRING).string;
        s->number = json_int(f, *j, "start");
        s->stop = json_int(f, *j, "stop");
        if (s->from.empty()) { refuse(f, "decoder: Strip without content"); }
    } else {
        refuse(f, stage + ": unknown component " + (type.empty() ? "without a type" : type),
            "only components whose ids are known to be exact are accepted");
    }
}

// TemplateProcessing, alone or in a Sequence with ByteLevel (which moves offsets, not ids)
static void tokenizer_template(const TokenizerFile& f, Tokenizer* t, const Json* j, int depth = 0) {
    if (json_null(j)) { return; }
    directory_check("tokenizer.json: components", f.path + ": post_processor", *j);
    std::string type = json_string(*j, "type");
    if (type == "ByteLevel") { return; }
    if (type == "Sequence" && depth < 20) {
        for (auto& item : json_need(f, *j, "processors", Json::ARRAY).items) {
            tokenizer_template(f, t, &item, depth + 1);
        }
        return;
    }
    if (type != "TemplateProcessing") {
        refuse(f, "post_processor: unknown component " + type,
            "only components whose ids are known to be exact are accepted");
    }
    const Json& special = json_need(f, *j, "special_tokens", Json::OBJECT);
    bool seen = false;
    for (auto& item : json_need(f, *j, "single", Json::ARRAY).items) {
        if (item.get("Sequence")) { seen = true; continue; }
        const Json& name = json_need(f, item, "SpecialToken", Json::OBJECT);
        const Json* entry = special.get(json_string(name, "id").c_str());
        if (!entry) {
            refuse(f, "post_processor: the template uses an undefined token " +
                          json_string(name, "id"));
        }
        for (auto& id : json_need(f, *entry, "ids", Json::ARRAY).items) {
            if (id.number < 0 || id.number > 1e8) { refuse(f, "post_processor: not an id"); }
            (seen ? t->after : t->before).push_back((int)id.number);
        }
    }
}

static uint64_t merge_slot(uint64_t pair, int shift) {
    return (pair * 0x9E3779B97F4A7C15ull ^ (pair >> 32) * 0xC2B2AE3D27D4EB4Full) >> shift;
}

const Merge* merge_find(const Tokenizer& t, uint32_t a, uint32_t b) {
    uint64_t pair = (uint64_t)a << 32 | b, mask = t.merges.size() - 1;
    for (uint64_t i = merge_slot(pair, t.merge_shift);; i = (i + 1) & mask) {
        if (t.merges[i].pair == pair) { return &t.merges[i]; }
        if (t.merges[i].pair == ~0ull) { return NULL; }
    }
}

// the id of exactly these bytes, -1 if there is none
static int token_find(const Tokenizer& t, const char* s, size_t n) {
    uint64_t mask = t.slots.size() - 1;
    for (uint64_t i = hash_bytes(s, n) & mask; t.slots[i] >= 0; i = (i + 1) & mask) {
        const std::string& r = t.raw[t.slots[i]];
        if (r.size() == n && !memcmp(r.data(), s, n)) { return t.slots[i]; }
    }
    return -1;
}

static size_t table_size(size_t n) { size_t s = 16; while (s < 2 * n) { s *= 2; } return s; }

static void normalize(const Tokenizer& t, std::string* text, bool prepend = true);
static void tokenizer_whole(Tokenizer* t);

// the hash table of these merges; of a pair that is there twice, the last counts
static void merges_table(Tokenizer* t, const std::vector<Merge>& list) {
    size_t size = table_size(list.size());
    t->merges.assign(size, Merge{~0ull, 0, 0});
    t->merge_shift = 64;
    while (size > 1) { size /= 2; t->merge_shift--; }
    for (auto& m : list) {
        uint64_t i = merge_slot(m.pair, t->merge_shift);
        while (t->merges[i].pair != ~0ull && t->merges[i].pair != m.pair) {
            i = (i + 1) & (t->merges.size() - 1);
        }
        t->merges[i] = m;
    }
}

static void tokenizer_merges(const TokenizerFile& f, Tokenizer* t, const Vocab& vocab,
    const std::vector<std::pair<std::string, std::string>>& list) {
    std::vector<Merge> merges;
    for (size_t rank = 0; rank < list.size(); rank++) {
        const std::string& a = list[rank].first; const std::string& b = list[rank].second;
        auto ia = vocab.find(a), ib = vocab.find(b), iab = vocab.find(a + b);
        if (ia == vocab.end() || ib == vocab.end() || iab == vocab.end()) {
            refuse(f, strf("merge %zu: %s + %s: not all in the vocabulary", rank + 1, a.c_str(),
                           b.c_str()));
        }
        const uint64_t pair = (uint64_t)ia->second << 32 | (uint32_t)ib->second;
        merges.push_back(Merge{ pair, (uint32_t)rank, (uint32_t)iab->second });
    }
    merges_table(t, merges);
}

// the node behind a node, 0 if there is none
static int added_next(const AddedTree& tree, int node, unsigned char byte) {
    if (node == 0) { return tree.first[byte]; }
    const auto next = tree.next.find((uint64_t)node << 8 | byte);
    return next == tree.next.end() ? 0 : next->second;
}

static void added_insert(AddedTree* tree, const std::string& text, int index) {
    if (tree->token.empty()) {
        tree->token.push_back(-1);
        tree->first.fill(0);
        tree->start = text;
    }
    while (text.compare(0, tree->start.size(), tree->start)) { tree->start.pop_back(); }
    int node = 0;
    for (unsigned char c : text) {
        int next = added_next(*tree, node, c);
        if (!next) {
            next = (int)tree->token.size();
            tree->token.push_back(-1);
            if (node == 0) { tree->first[c] = next; }
            else { tree->next[(uint64_t)node << 8 | c] = next; }
        }
        node = next;
    }
    tree->token[node] = index;
}

// Dies of added tokens that are too long, one or all.
static void added_limits(const TokenizerFile& f, const Tokenizer& t) {
    size_t all = 0;
    for (auto& a : t.added) {
        all += a.text.size();
        if (a.text.size() <= ADDED_LONGEST) { continue; }
        refuse(f, strf("an added token of %zu bytes, wanted at most %d", a.text.size(),
                       (int)ADDED_LONGEST));
    }
    if (all > ADDED_BYTES) {
        refuse(f,
               strf("added tokens of %zu bytes in all, wanted at most %d", all, (int)ADDED_BYTES));
    }
}

// Dies if a stage has too many components, or they can make a text too much longer.
static void steps_limits(const TokenizerFile& f, const char* stage,
                         const std::vector<Step>& steps) {
    double growth = 1;
    for (auto& s : steps) {
        const bool replace = s.kind == NORM_REPLACE || s.kind == DECODE_REPLACE;
        if (replace) { growth *= std::max(1.0, (double)s.to.size() / s.from.size()); }
        if (s.kind == NORM_PREPEND || s.kind == SPLIT_METASPACE) {
            growth *= std::max<size_t>(1, std::max(s.to.size(), s.from.size()));
        }
    }
    if (steps.size() > STEPS_MOST) {
        refuse(f, strf("%s: got %zu components, wanted at most %d", stage, steps.size(),
                       (int)STEPS_MOST));
    }
    if (growth > GROWTH_MOST) {
        refuse(f, strf("%s: can make a text %g times as long, wanted at most %d", stage, growth,
                       (int)GROWTH_MOST));
    }
}

// May text be cut after a line? Not if a component adds something at the start of each text, or a
// token has both sides. Digits that are cut out change nothing where another step cuts the lines.
static bool tokenizer_cuts_at_lines(const Tokenizer& t) {
    bool word = t.splitter.empty();
    int steps = 0, digits = 0;
    for (auto& s : t.splitter) {
        if (s.kind == SPLIT_DIGITS) { digits++; continue; }
        const bool first = s.kind == SPLIT_METASPACE && !s.flag && s.number != PREPEND_ALWAYS;
        if (s.kind > SPLIT_CL100K && !first) { return false; }
        word = first;
        steps++;
    }
    if (steps > 1 || (digits && (word || !steps))) { return false; }
    for (auto& s : t.normalizer) { if (s.kind == NORM_REPLACE && s.from != " ") { return false; } }
    for (auto& a : t.added) {
        if (a.lstrip || a.rstrip || a.text.find('\n') != std::string::npos) { return false; }
    }
    for (auto& r : t.raw) {
        if (word && r.size() > 1 && r.find('\n') != std::string::npos) { return false; }
    }
    // an unknown newline is one token with what is unknown next to it
    const bool known = token_find(t, "\n", 1) >= 0 || (t.byte_fallback && t.byte_id['\n'] >= 0);
    return known || !word || !t.fuse_unk;
}

// and between two words? Only where each is a piece, no added token is made of several words, and
// spaces stay what they are
static bool tokenizer_cuts_at_spaces(const Tokenizer& t) {
    bool words = false;
    for (auto& s : t.normalizer) { if (s.kind != NORM_NFC) { return false; } }
    for (auto& s : t.splitter) { words = words || s.kind == SPLIT_GPT2 || s.kind == SPLIT_CL100K; }
    for (auto& a : t.added) {
        const bool blank = a.text.find_first_not_of(' ') == std::string::npos;
        if (!blank && a.text.find(' ') != std::string::npos) { return false; }
    }
    return t.cut_at_lines && words;
}

void tokenizer_finish(const TokenizerFile& f, Tokenizer* t, const Vocab& vocab) {
    for (auto& v : vocab) { t->vocab_size = std::max(t->vocab_size, v.second + 1); }
    for (auto& a : t->added) { t->vocab_size = std::max(t->vocab_size, a.id + 1); }
    if (t->vocab_size > 4 * 1000000 + 16 * (long)vocab.size()) {
        refuse(f, strf("got an id of %d for %zu tokens", t->vocab_size - 1, vocab.size()));
    }
    added_limits(f, *t);
    steps_limits(f, "normalizer", t->normalizer);
    steps_limits(f, "pre_tokenizer", t->splitter);
    steps_limits(f, "decoder", t->decoder);
    t->text.assign(t->vocab_size, "");
    t->special.assign(t->vocab_size, 0);
    for (auto& v : vocab) { t->text[v.second] = v.first; }
    for (size_t k = 0; k < t->added.size(); k++) {
        const AddedToken& a = t->added[k];
        std::string text = a.text;
        if (a.normalized) { normalize(*t, &text); }
        t->text[a.id] = text; t->special[a.id] = a.special;
        if (!text.empty()) {
            added_insert(a.normalized ? &t->added_normalized : &t->added_raw, text, (int)k);
        }
    }
    t->raw = t->text;
    t->slots.assign(table_size(t->vocab_size), -1);
    t->cut_at_blocks = !t->byte_level;
    std::string bytes;
    for (auto& r : t->raw) { if (t->byte_level && byte_level_to_raw(r, &bytes)) { r = bytes; } }
    for (auto& v : vocab) {
        // pieces are bytes: they never equal this one
        if (t->byte_level && !byte_level_to_raw(v.first, &bytes)) { continue; }
        const std::string& r = t->byte_level ? bytes : v.first;
        uint64_t i = hash_bytes(r.data(), r.size()) & (t->slots.size() - 1);
        while (t->slots[i] >= 0) { i = (i + 1) & (t->slots.size() - 1); }
        t->slots[i] = v.second;
        for (size_t k = r.find(BLOCK, 1); t->cut_at_blocks && k != std::string::npos;
             k = r.find(BLOCK, k + 3)) {
            t->cut_at_blocks = k >= 3 && !r.compare(k - 3, 3, BLOCK);
        }
    }
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        auto hex = vocab.find(strf("<0x%02X>", b));
        t->byte_id[b] = hex == vocab.end() ? -1 : hex->second;
        if (t->byte_level) { t->byte_id[b] = token_find(*t, &c, 1); }
    }
    t->cut_at_lines = tokenizer_cuts_at_lines(*t);
    t->cut_at_spaces = tokenizer_cuts_at_spaces(*t);
    tokenizer_whole(t);
}

// where each added token is in t->added, by its text
typedef std::unordered_map<std::string, size_t> Places;

// an added token gets the id it has in the vocabulary, else the next free one: the id in the file
// is not believed
static void tokenizer_add(Tokenizer* t, const Vocab& vocab, AddedToken a, Places* places,
                          int* next) {
    const auto old = places->find(a.text);
    if (old != places->end()) {
        AddedToken& there = t->added[old->second];
        there.special = there.special || a.special;
        return;
    }
    auto v = vocab.find(a.text);
    a.id = v != vocab.end() ? v->second : *next;
    *next = std::max(*next, a.id + 1);
    (*places)[a.text] = t->added.size();
    t->added.push_back(a);
}

// vocab.json + merges.txt: byte-level BPE as in GPT-2, with the special tokens that
// tokenizer_config.json names
static void tokenizer_load_pair(const TokenizerFile& f, Tokenizer* t, Vocab* vocab,
                                const std::string& dir, const Json& v) {
    if (v.type != Json::OBJECT) { refuse(f, "wanted an object of tokens and ids"); }
    for (auto& field : v.fields) {
        Json one;
        one.fields.push_back({"id", field.second});
        (*vocab)[field.first] = json_int(f, one, "id");
    }
    std::vector<std::pair<std::string, std::string>> list;
    std::string text = file_read(dir + "/merges.txt", "vocab.json needs merges.txt beside it");
    for (auto& line : split(text, '\n')) {
        std::string l = ends_with(line, "\r") ? line.substr(0, line.size() - 1) : line;
        if (l.empty() || l.compare(0, 8, "#version") == 0) { continue; }
        size_t space = l.find(' ');
        if (space == std::string::npos || l.find(' ', space + 1) != std::string::npos) {
            die(EXIT_USER, strf("%s/merges.txt: got \"%s\", wanted two tokens with a space between",
                                dir.c_str(), l.c_str()));
        }
        list.push_back({ l.substr(0, space), l.substr(space + 1) });
    }
    t->byte_level = true;
    t->splitter.emplace_back(); t->splitter.back().kind = SPLIT_GPT2;
    t->decoder.emplace_back(); t->decoder.back().kind = DECODE_BYTES;
    tokenizer_merges(f, t, *vocab, list);
    int next = 0;
    Places places;
    for (auto s : {"<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>"}) {
        if (vocab->count(s)) {
            tokenizer_add(t, *vocab, AddedToken{ s, 0, true, false, false, false }, &places, &next);
        }
    }
    tokenizer_config(f, t, *vocab, dir, true);
}

void tokenizer_load_json(const TokenizerFile& f, Tokenizer* t, Vocab* vocab,
                         const std::string& dir, const Json& j) {
    directory_check("tokenizer.json", f.path, j);
    const Json& model = json_need(f, j, "model", Json::OBJECT);
    directory_check("tokenizer.json: model", f.path + ": model", model);
    std::string type = json_string(model, "type");
    if (type != "BPE" && !(type.empty() && model.get("merges"))) {
        refuse(f, "model: got " + type + ", wanted BPE");
    }
    if (!json_null(model.get("dropout")) && model.get("dropout")->number != 0) {
        refuse(f, "model: dropout is not supported");
    }
    for (auto key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        if (!json_string(model, key).empty()) {
            refuse(f, strf("model: %s is not supported", key));
        }
    }
    for (auto& v : json_need(f, model, "vocab", Json::OBJECT).fields) {
        if (v.second.type != Json::NUMBER || v.second.number < 0 || v.second.number > 1e8
            || v.second.number != floor(v.second.number)) {
            refuse(f, "model: the id of " + json_str(v.first) + " is not a whole number");
        }
        (*vocab)[v.first] = (int)v.second.number;
    }
    std::vector<std::pair<std::string, std::string>> list;
    for (auto& m : json_need(f, model, "merges", Json::ARRAY).items) {
        size_t space = m.string.find(' ');
        if (m.type == Json::ARRAY && m.items.size() == 2) {
            list.push_back({ m.items[0].string, m.items[1].string });
        } else if (m.type == Json::STRING && m.string.compare(0, 8, "#version") == 0) {
            continue;
        } else if (m.type == Json::STRING && space != std::string::npos &&
                   m.string.find(' ', space + 1) == std::string::npos) {
            list.push_back({ m.string.substr(0, space), m.string.substr(space + 1) });
        } else {
            refuse(f, strf("merge %zu: wanted two tokens", list.size() + 1));
        }
    }
    tokenizer_merges(f, t, *vocab, list);
    t->byte_fallback = json_true(model, "byte_fallback");
    t->fuse_unk = json_true(model, "fuse_unk");
    t->ignore_merges = json_true(model, "ignore_merges");
    std::string unk = json_string(model, "unk_token");
    if (!unk.empty()) {
        if (!vocab->count(unk)) {
            refuse(f, "model: the unk_token " + unk + " is not in the vocabulary");
        }
        t->unk = (*vocab)[unk];
    }
    tokenizer_steps(f, t, "normalizer", j.get("normalizer"));
    tokenizer_steps(f, t, "pre_tokenizer", j.get("pre_tokenizer"));
    tokenizer_steps(f, t, "decoder", j.get("decoder"));
    tokenizer_template(f, t, j.get("post_processor"));
    int next = (int)vocab->size();
    Places places;
    if (const Json* added = j.get("added_tokens")) {
        for (auto& a : added->items) {
            if (a.type != Json::OBJECT) { refuse(f, "added_tokens: wanted objects"); }
            directory_check("tokenizer.json: added_tokens", f.path + ": added_tokens", a);
            // not believed (see tokenizer_add), but a number it must be
            if (a.get("id")) { json_int(f, a, "id"); }
            std::string content = json_need(f, a, "content", Json::STRING).string;
            if (json_true(a, "single_word")) {
                refuse(f, "added token " + content + ": single_word is not supported");
            }
            if (content.empty()) { continue; }
            bool special = json_true(a, "special");
            tokenizer_add(t, *vocab,
                          AddedToken{ content, 0, special, json_true(a, "normalized", !special),
                                      json_true(a, "lstrip"), json_true(a, "rstrip") },
                          &places, &next);
        }
    }
    tokenizer_config(f, t, *vocab, dir, false);
}

#include "tokenizer_gguf.h"

// what may be beside the file of a tokenizer, and goes with it
static const char* const BESIDE_TOKENIZER[] = {
    "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "generation_config.json" };

// The files that make a tokenizer, under the names they have beside each other in a directory.
static void tokenizer_keep(Tokenizer* t, const std::string& path) {
    const std::string dir = path.find('/') == std::string::npos ? "."
                                                                : path.substr(0, path.rfind('/'));
    if (ends_with(path, ".gguf")) {                      // of a whole model, what it needs
        Gguf g = gguf_open(path);
        t->files.push_back({ "tokenizer.gguf", gguf_tokenizer_file(g) });
        weights_close(&g.weights);
        return;
    }
    const bool json = !ends_with(path, "/vocab.json") && path != "vocab.json";
    t->files.push_back({ json ? "tokenizer.json" : "vocab.json", file_read(path) });
    for (auto name : BESIDE_TOKENIZER) {
        if (json && !strcmp(name, "merges.txt")) { continue; }
        if (file_exists(dir + "/" + name)) {
            t->files.push_back({ name, file_read(dir + "/" + name) });
        }
    }
}

Tokenizer tokenizer_load(const std::string& given) {
    const char* hint = "give --tokenizer tokenizer.json, or leave it out to train on bytes";
    TokenizerFile f = { given };
    if (is_dir(given)) {
        f.path = given +
                 (file_exists(given + "/tokenizer.json") ? "/tokenizer.json" : "/vocab.json");
        if (!file_exists(f.path) && !gguf_in(given).empty()) { f.path = gguf_in(given); }
        const Kind other = file_exists(f.path) ? Kind() : kind_in_dir(given, READS_TOKENIZER);
        if (!other.what.empty()) {
            die(EXIT_USER, given + ": has no tokenizer.json" + other.what, other.hint);
        }
    }
    Tokenizer t;
    Vocab vocab;
    t.kind = TOKENIZER_BPE; t.name = given; t.vocab_size = 0; t.eos = t.bos = -1;
    if (ends_with(f.path, ".gguf")) { tokenizer_load_gguf(f, &t, &vocab); }
    else {
        std::string content = file_read(f.path, hint), error, dir = ".";
        look(f.path, content.substr(0, LOOK_BYTES), content.size(), READS_TOKENIZER);
        if (f.path.find('/') != std::string::npos) { dir = f.path.substr(0, f.path.rfind('/')); }
        Json j;
        if (!json_parse(content.data(), content.size(), &j, &error)) { refuse(f, error, hint); }
        t.hash = hash_bytes(content.data(), content.size());
        if (j.get("model") && j.get("model")->type == Json::OBJECT) {
            tokenizer_load_json(f, &t, &vocab, dir, j);
        } else {
            tokenizer_load_pair(f, &t, &vocab, dir, j);
            content = file_read(dir + "/merges.txt");
            t.hash = hash_bytes(content.data(), content.size(), t.hash);
        }
    }
    tokenizer_finish(f, &t, vocab);
    tokenizer_keep(&t, f.path);
    for (auto list : {&t.before, &t.after}) {
        for (int id : *list) {
            if (id >= t.vocab_size) {
                refuse(f, strf("post_processor: id %d is not in the vocabulary", id));
            }
        }
    }
    return t;
}

bool tokenizer_is_in(const std::string& dir) {
    for (const char* name : { "tokenizer.json", "vocab.json", "tokenizer.gguf" }) {
        if (file_exists(dir + "/" + name)) { return true; }
    }
    return false;
}

bool tokenizer_ours(const std::string& name) {
    auto is = [&](const char* file) { return name == file || is_temporary(name, file); };
    return is("tokenizer.json") || is("vocab.json") || is("tokenizer.gguf") ||
           std::any_of(std::begin(BESIDE_TOKENIZER), std::end(BESIDE_TOKENIZER), is);
}

Tokenizer tokenizer_of(const std::string& name) {
    return name == "bytes" ? tokenizer_bytes() : tokenizer_load(name);
}

// ----------------------------------------------------------------------------
// bpe: one piece -> ids. Of all neighbors that merge, the pair of lowest rank merges first, the
// leftmost of equals.

enum { PIECE_BITS = 16 };                                // 2 MiB: fits a second-level cache

void piece_symbols(const Tokenizer& t, const char* s, size_t n, Ids* out) {
    out->clear();
    if (t.byte_level) {
        for (size_t i = 0; i < n; i++) {
            int id = t.byte_id[(unsigned char)s[i]];
            if (id >= 0) { out->push_back(id);
            } else if (t.unk >= 0 &&
                       !(t.fuse_unk && !out->empty() && out->back() == (uint32_t)t.unk)) {
                out->push_back(t.unk);
            }
        }
        return;
    }
    bool after_unk = false;
    int len;
    for (size_t i = 0; i < n; i += len) {
        utf8_at(s + i, &len);
        int id = token_find(t, s + i, len);
        bool bytes = id < 0 && t.byte_fallback;
        for (int k = 0; k < len && bytes; k++) { bytes = t.byte_id[(unsigned char)s[i+k]] >= 0; }
        if (id >= 0) { out->push_back(id); after_unk = false; }
        else if (bytes) {
            for (int k = 0; k < len; k++) { out->push_back(t.byte_id[(unsigned char)s[i+k]]); }
            after_unk = false;
        } else if (t.unk >= 0) {
            if (!(t.fuse_unk && after_unk)) { out->push_back(t.unk); }
            after_unk = true;
        }
    }
}

void merge_short(const Tokenizer& t, Scratch* w) {
    Ids& id = w->id;
    size_t n = id.size();
    w->rank.assign(n, NO_ID); w->made.resize(n);
    auto look = [&](size_t i) {
        const Merge* m = i + 1 < n ? merge_find(t, id[i], id[i+1]) : NULL;
        w->rank[i] = m ? m->rank : (uint32_t)NO_ID; w->made[i] = m ? m->id : 0;
    };
    for (size_t i = 0; i + 1 < n; i++) { look(i); }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) { if (w->rank[i] < w->rank[best]) { best = i; } }
        if (w->rank[best] == NO_ID) { break; }
        id[best] = w->made[best];
        for (size_t i = best + 1; i + 1 < n; i++) {
            id[i] = id[i+1];
            w->rank[i] = w->rank[i+1];
            w->made[i] = w->made[i+1];
        }
        n--;
        look(best);
        if (best > 0) { look(best - 1); }
    }
    id.resize(n);
}

void merge_long(const Tokenizer& t, Scratch* w) {
    Ids& id = w->id;
    uint32_t n = (uint32_t)id.size();
    w->rank.assign(n, NO_ID);
    w->made.resize(n);
    w->next.resize(n);
    w->prev.resize(n);
    w->heap.clear();
    auto look = [&](uint32_t i) {
        const Merge* m = w->next[i] < n ? merge_find(t, id[i], id[w->next[i]]) : NULL;
        w->rank[i] = m ? m->rank : (uint32_t)NO_ID; w->made[i] = m ? m->id : 0;
        if (m) { w->heap.push_back((uint64_t)m->rank << 32 | i); }
        return m != NULL;
    };
    auto later = std::greater<uint64_t>();
    for (uint32_t i = 0; i < n; i++) { w->next[i] = i + 1; w->prev[i] = i - 1; }
    for (uint32_t i = 0; i < n; i++) { look(i); }
    std::make_heap(w->heap.begin(), w->heap.end(), later);
    while (!w->heap.empty()) {
        std::pop_heap(w->heap.begin(), w->heap.end(), later);
        uint64_t top = w->heap.back(); w->heap.pop_back();
        uint32_t i = (uint32_t)top, j = w->next[i];
        if (w->rank[i] != top >> 32) { continue; }
        id[i] = w->made[i];
        w->rank[j] = NO_ID;                              // j is gone
        w->next[i] = w->next[j];
        if (w->next[i] < n) { w->prev[w->next[i]] = i; }
        if (look(i)) { std::push_heap(w->heap.begin(), w->heap.end(), later); }
        if (i > 0 && look(w->prev[i])) { std::push_heap(w->heap.begin(), w->heap.end(), later); }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i = w->next[i]) { id[kept++] = id[i]; }
    id.resize(kept);
}

static void piece_merge(const Tokenizer& t, Scratch* w, const char* s, size_t n) { // -> w->id
    int id = token_find(t, s, n);
    if (id >= 0 && t.whole[id]) { w->id.assign(1, id); return; }
    piece_symbols(t, s, n, &w->id);
    if (w->id.size() <= 48) { merge_short(t, w); } else { merge_long(t, w); }
}

// which pieces are one token: with ignore_merges all that are in the vocabulary, else those that
// merging does give back
static void tokenizer_whole(Tokenizer* t) {
    Scratch w;
    t->whole.assign(t->vocab_size, 0);
    for (int slot : t->slots) {
        if (slot < 0) { continue; }
        bool same = t->ignore_merges;
        if (!same) {
            piece_merge(*t, &w, t->raw[slot].data(), t->raw[slot].size());
            same = w.id.size() == 1 && (int)w.id[0] == slot;
        }
        t->whole[slot] = same;
    }
}

// end: how far memory may be read
static void piece_encode(const Tokenizer& t, Scratch* w, const char* s, size_t n, const char* end,
                         Ids* out) {
    if (n > 15) {
        piece_merge(t, w, s, n);
        out->insert(out->end(), w->id.begin(), w->id.end());
        return;
    }
    uint64_t lo, hi;
    if (end - s >= 16) { memcpy(&lo, s, 8); memcpy(&hi, s + 8, 8); }
    else { char b[16] = {0}; memcpy(b, s, n); memcpy(&lo, b, 8); memcpy(&hi, b + 8, 8); }
    if (n < 8) { lo &= (1ull << 8 * n) - 1; hi = 0; } else { hi &= (1ull << 8 * (n - 8)) - 1; }
    hi |= (uint64_t)n << 56;
    PieceSlot* c =
        &w->cache[(lo * 0x9E3779B97F4A7C15ull ^ hi * 0xC2B2AE3D27D4EB4Full) >> (64 - PIECE_BITS)];
    if (c->lo != lo || c->hi != hi) {
        piece_merge(t, w, s, n);
        if (w->id.size() > 4) { out->insert(out->end(), w->id.begin(), w->id.end()); return; }
        c->lo = lo; c->hi = hi;
        for (size_t k = 0; k < 4; k++) {
            c->ids[k] = k < w->id.size() ? w->id[k] : (uint32_t)NO_ID;
        }
    }
    for (int k = 0; k < 4 && c->ids[k] != NO_ID; k++) { out->push_back(c->ids[k]); }
}

// ----------------------------------------------------------------------------
// split: text -> pieces

// class of the character at s[i], and its length
static int class_at(const Unicode& u, const char* s, int* len) {
    unsigned char c = *s;
    if (c < 0x80) { *len = 1; return u.flags[c] & CLASS_MASK; }
    return u.flags[utf8_at(s, len)] & CLASS_MASK;
}

static size_t class_run(const Unicode& u, const char* s, size_t i, size_t n, int cls) {
    const uint64_t ones = 0x0101010101010101ull, high = 0x80 * ones;
    // most runs: ASCII letters, eight at a time
    for (uint64_t w, x, stop; cls == CLASS_L && i + 8 <= n; i += 8) {
        memcpy(&w, s + i, 8);
        x = (w | 0x20 * ones) & ~high;
        // high bit set where x is not a .. z
        stop = ~((x + 0x1F * ones) & ~(x + 0x05 * ones)) & high;
        stop |= w & high;
        if (stop) { i += __builtin_ctzll(stop) >> 3; break; }
    }
    for (int len; i < n && class_at(u, s + i, &len) == cls; i += len) {}
    return i;
}

// length of 's 't 're 've 'm 'll 'd at s[i], which is an apostrophe; 0 if none. U+017F is an s in
// any case.
static size_t contraction(const char* s, size_t i, size_t n, bool any_case) {
    if (i + 1 >= n) { return 0; }
    int low = any_case ? 0x20 : 0;
    unsigned char a = s[i+1], b = i + 2 < n ? s[i+2] : 0;
    if (any_case && a == 0xC5 && b == 0xBF) { return 3; }
    a |= a < 0x80 ? low : 0; b |= b < 0x80 ? low : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') { return 2; }
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// whitespace from i: all of it at the end of the text or if it is one character, else all but the
// last one
static size_t split_space(const Unicode& u, const char* s, size_t i, size_t n) {
    size_t e = i, last = i;
    for (int len; e < n && class_at(u, s + e, &len) == CLASS_S; e += len) { last = e; }
    return e == n || last == i ? e : last;
}

// the end of the piece that starts at i < n: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|
// ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
static size_t split_gpt2(const Unicode& u, const char* s, size_t i, size_t n) {
    if (s[i] == '\'') { if (size_t c = contraction(s, i, n, false)) { return i + c; } }
    size_t j = i + (s[i] == ' ');
    int len, cls = j < n ? class_at(u, s + j, &len) : CLASS_S;
    if (cls != CLASS_S) { return class_run(u, s, j + len, n, cls); }
    return split_space(u, s, i, n);
}

// (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|
// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
static size_t split_cl100k(const Unicode& u, const char* s, size_t i, size_t n, int digits) {
    if (s[i] == '\'') { if (size_t c = contraction(s, i, n, true)) { return i + c; } }
    int len, len2, cls = class_at(u, s + i, &len);
    if (cls == CLASS_L) { return class_run(u, s, i + len, n, CLASS_L); }
    if (cls == CLASS_N) {
        for (int k = 0; k < digits && i < n && class_at(u, s + i, &len) == CLASS_N; k++) {
            i += len;
        }
        return i;
    }
    int cls2 = i + len < n ? class_at(u, s + i + len, &len2) : CLASS_S;
    if (cls2 == CLASS_L && s[i] != '\r' && s[i] != '\n') {
        return class_run(u, s, i + len + len2, n, CLASS_L);
    }
    if (cls == CLASS_OTHER || (s[i] == ' ' && cls2 == CLASS_OTHER)) {
        size_t e = class_run(u, s, i + len, n, CLASS_OTHER);
        while (e < n && (s[e] == '\r' || s[e] == '\n')) { e++; }
        return e;
    }
    size_t line = 0; // after the last \r or \n of this whitespace
    for (size_t e = i; e < n && class_at(u, s + e, &len) == CLASS_S; e += len) {
        if (s[e] == '\r' || s[e] == '\n') { line = e + 1; }
    }
    return line ? line : split_space(u, s, i, n);
}

static size_t split_known(const Unicode& u, const Step& step, const char* s, size_t i, size_t n) {
    return step.kind == SPLIT_GPT2 ? split_gpt2(u, s, i, n) : split_cl100k(u, s, i, n, step.number);
}

struct Span { size_t begin, end; bool match; };
static std::vector<Span> split_behave(std::vector<Span> in, int behavior) {
    std::vector<Span> out;
    bool before = false;
    if (behavior == MERGED_WITH_NEXT) { std::reverse(in.begin(), in.end()); }
    for (auto& s : in) {
        bool merged = behavior == MERGED_WITH_PREVIOUS || behavior == MERGED_WITH_NEXT;
        bool join = behavior == CONTIGUOUS ? s.match == before : merged && s.match && !before;
        if (behavior == REMOVED && s.match) { continue; }
        if (join && !out.empty()) {
            out.back().begin = std::min(out.back().begin, s.begin);
            out.back().end = std::max(out.back().end, s.end);
        }
        else { out.push_back(s); }
        before = s.match;
    }
    if (behavior == MERGED_WITH_NEXT) { std::reverse(out.begin(), out.end()); }
    return out;
}

static void replace_all(std::string* s, const std::string& from, const std::string& to) {
    std::string out;
    size_t i = 0, k;
    for (; (k = s->find(from, i)) != std::string::npos; i = k + from.size()) {
        out.append(*s, i, k - i);
        out += to;
    }
    if (i) { out.append(*s, i, std::string::npos); s->swap(out); }
}

void split_step(const Step& step, std::string piece, bool first,
                std::vector<std::string>* out) {
    const Unicode& u = unicode();
    size_t n = piece.size();
    auto spans_of = [&](const std::string& pattern, bool invert) {
        std::vector<Span> spans;
        size_t i = 0, k;
        for (; (k = piece.find(pattern, i)) != std::string::npos; i = k + pattern.size()) {
            if (k > i) { spans.push_back({i, k, invert}); }
            spans.push_back({k, k + pattern.size(), !invert});
        }
        if (i < piece.size()) { spans.push_back({i, piece.size(), invert}); }
        return spans;
    };
    std::vector<Span> spans;
    if (step.kind == SPLIT_PREFIX) {
        out->push_back(piece[0] == ' ' ? piece : " " + piece);
        return;
    }
    if (step.kind == SPLIT_METASPACE) {
        replace_all(&piece, " ", step.from);
        bool has = piece.compare(0, step.from.size(), step.from) == 0;
        if (!has && (step.number == PREPEND_ALWAYS || (step.number == PREPEND_FIRST && first))) {
            piece = step.from + piece;
        }
        if (!step.flag) { out->push_back(piece); return; }
        spans = split_behave(spans_of(step.from, false), MERGED_WITH_NEXT);
    } else if (step.kind == SPLIT_STRING) {
        spans = split_behave(spans_of(step.from, step.flag), step.number);
    } else if (step.kind == SPLIT_DIGITS) {
        int len;
        for (size_t i = 0; i < n; i += len) {
            int cls = class_at(u, &piece[i], &len);
            spans.push_back({i, i + len, cls == CLASS_N});
        }
        std::vector<Span> merged;
        for (auto& s : spans) {
            bool same = !merged.empty() && merged.back().match == s.match;
            if (same && !(s.match && step.flag)) {
                merged.back().end = s.end;
            } else {
                merged.push_back(s);
            }
        }
        spans.swap(merged);
    } else {
        for (size_t i = 0, e; i < n; i = e) {
            e = split_known(u, step, piece.data(), i, n);
            spans.push_back({i, e, false});
        }
    }
    for (auto& s : spans) {
        if (s.end > s.begin) { out->push_back(piece.substr(s.begin, s.end - s.begin)); }
    }
}

// ----------------------------------------------------------------------------
// encode

// in place, valid UTF-8; prepend is false for a later part of a text that was cut
static void normalize(const Tokenizer& t, std::string* text, bool prepend) {
    std::string out;
    for (auto& step : t.normalizer) {
        if (step.kind == NORM_NFC) {
            if (nfc(text->data(), text->size(), &out)) { text->swap(out); }
        } else if (step.kind == NORM_PREPEND) {
            if (prepend && !text->empty()) { *text = step.to + *text; }
        } else {
            replace_all(text, step.from, step.to);
        }
    }
}

// A piece that is done splitting. SentencePiece words do not merge across "x▁": they are merged one
// by one.
static void encode_word(const Tokenizer& t, Scratch* w, const char* s, size_t n, Ids* out) {
    if (!t.cut_at_blocks) { piece_encode(t, w, s, n, s + n, out); return; }
    auto block = [&](size_t i) { return i + 3 <= n && !memcmp(s + i, BLOCK, 3); };
    for (size_t i = 0, e; i < n; i = e) {
        for (e = i; block(e);) { e += 3; }
        while (e < n && !block(e)) { e++; }
        piece_encode(t, w, s + i, e - i, s + n, out);
    }
}

// text without added tokens in it
static void encode_text(const Tokenizer& t, Scratch* w, const char* s, size_t n, bool first,
                        Ids* out) {
    if (!n) { return; }
    // nearly every tokenizer: no copies
    if (t.splitter.size() == 1 && t.splitter[0].kind <= SPLIT_CL100K) {
        const Unicode& u = unicode();
        const Step& step = t.splitter[0];
        for (size_t i = 0, e; i < n; i = e) {
            e = split_known(u, step, s, i, n);
            piece_encode(t, w, s + i, e - i, s + n, out);
        }
        return;
    }
    std::vector<std::string> pieces(1, std::string(s, n)), split;
    for (auto& step : t.splitter) {
        split.clear();
        for (size_t k = 0; k < pieces.size(); k++) {
            split_step(step, pieces[k], first && k == 0, &split);
        }
        pieces.swap(split);
    }
    for (auto& p : pieces) { encode_word(t, w, p.data(), p.size(), out); }
}

// where `what` may start in s[i..n), n if nowhere: its first two bytes are looked for, eight places
// at a time
static size_t text_find(const char* s, size_t i, size_t n, const std::string& what) {
    const uint64_t ones = 0x0101010101010101ull, high = 0x80 * ones;
    if (what.size() < 2) {
        const void* p = memchr(s + i, what[0], n - i);
        return p ? (const char*)p - s : n;
    }
    const uint64_t a = (unsigned char)what[0] * ones, b = (unsigned char)what[1] * ones;
    for (uint64_t x, y; i + 9 <= n; i += 8) {
        memcpy(&x, s + i, 8); memcpy(&y, s + i + 1, 8);
        x = (x ^ a) | (y ^ b);                           // a zero byte where both agree
        x = (x - ones) & ~x & high;
        if (x) { return i + (__builtin_ctzll(x) >> 3); }
    }
    for (; i + 1 < n; i++) { if (s[i] == what[0] && s[i+1] == what[1]) { return i; } }
    return n;
}

// the leftmost, then longest, added token at or after i, its place is [*begin, *end): its index, -1
// if there is none
static int added_find(const Tokenizer& t, const AddedTree& tree, const char* s, size_t i, size_t n,
                      size_t* begin, size_t* end) {
    if (tree.token.empty()) { return -1; }
    const std::string& start = tree.start;
    for (; i < n; i++) {
        if (!start.empty()) {
            i = text_find(s, i, n, start);
            if (i == n) { return -1; }
        }
        int node = tree.first[(unsigned char)s[i]], found = -1;
        if (!node) { continue; }
        for (size_t e = i + 1;; e++) {
            int k = tree.token[node];
            if (k >= 0 && (t.match_special || !t.added[k].special)) {
                found = k;
                *begin = i;
                *end = e;
            }
            if (e >= n || !(node = added_next(tree, node, (unsigned char)s[e]))) { break; }
        }
        if (found >= 0) { return found; }
    }
    return -1;
}

// cuts s at its added tokens: between(begin, end) for the text between them, ids of the tokens to
// out
template <class Between>
void added_cut(const Tokenizer& t, const AddedTree& tree, const char* s, size_t n, Ids* out,
               Between between) {
    const Unicode& u = unicode();
    size_t from = 0, begin, end;
    for (size_t i = 0;;) {
        int k = added_find(t, tree, s, i, n, &begin, &end);
        if (k < 0) { break; }
        i = end; // the next match does not depend on what stripping takes here
        if (t.added[k].lstrip) {
            while (begin > from) {
                size_t p = begin - 1; int len;
                while (p > from && (s[p] & 0xC0) == 0x80) { p--; }
                if (class_at(u, s + p, &len) != CLASS_S) { break; }
                begin = p;
            }
        }
        if (t.added[k].rstrip) { end = class_run(u, s, end, n, CLASS_S); }
        if (begin > from) { between(from, begin); }
        out->push_back(t.added[k].id);
        from = end;
    }
    if (from < n) { between(from, n); }
}

static Scratch* tokenizer_scratch(const Tokenizer& t) {
    static thread_local Scratch w;
    if (w.owner != t.hash || w.cache.empty()) {
        w.cache.assign(1 << PIECE_BITS, PieceSlot{0, 0, {0, 0, 0, 0}});
        w.owner = t.hash;
    }
    return &w;
}

void tokenizer_encode_to(const Tokenizer& t, const char* s, size_t n, bool document_start,
                         Ids* out) {
    if (t.kind == TOKENIZER_IDS) {
        die(EXIT_USER, "text: these data have no tokenizer, only ids",
            "give one with --tokenizer tokenizer.json");
    }
    if (t.kind == TOKENIZER_BYTES) {
        out->insert(out->end(), (const unsigned char*)s, (const unsigned char*)s + n);
        return;
    }
    Scratch* w = tokenizer_scratch(t);
    if (out->capacity() - out->size() < n / 3) {
        out->reserve(std::max(2 * out->capacity(), out->size() + n / 3));
    }
    added_cut(t, t.added_raw, s, n, out, [&](size_t begin, size_t end) {
        const char* p = s + begin; size_t len = end - begin;
        std::string& text = w->text[0];
        // most text is in this form already
        if (t.normalizer.size() == 1 && t.normalizer[0].kind == NORM_NFC) {
            if (nfc(p, len, &text)) { p = text.data(); len = text.size(); }
        } else if (!t.normalizer.empty()) {
            text.assign(p, len);
            normalize(t, &text, document_start || begin > 0);
            p = text.data();
            len = text.size();
        }
        added_cut(t, t.added_normalized, p, len, out, [&](size_t b, size_t e) {
            encode_text(t, w, p + b, e - b, document_start && begin + b == 0, out);
        });
    });
}

std::vector<int> tokenizer_encode(const Tokenizer& t, const std::string& text,
                                  bool specials) {
    Ids ids;
    if (specials) { ids.assign(t.before.begin(), t.before.end()); }
    if (t.kind == TOKENIZER_BPE && !utf8_valid(text)) {
        std::string fixed = text;
        utf8_repair(&fixed);
        tokenizer_encode_to(t, fixed.data(), fixed.size(), true, &ids);
    }
    else { tokenizer_encode_to(t, text.data(), text.size(), true, &ids); }
    if (specials) { ids.insert(ids.end(), t.after.begin(), t.after.end()); }
    return std::vector<int>(ids.begin(), ids.end());
}

// ----------------------------------------------------------------------------
// decode

int fallback_byte(const std::string& s) {
    if (s.size() != 6 || s.compare(0, 3, "<0x") || s[5] != '>' || !isxdigit((unsigned char)s[3])
        || !isxdigit((unsigned char)s[4])) {
        return -1;
    }
    return (int)strtol(s.substr(3, 2).c_str(), NULL, 16);
}

static void decode_step(const Step& step, std::vector<std::string>* tokens) {
    std::vector<std::string>& v = *tokens;
    if (step.kind == DECODE_REPLACE) { for (auto& s : v) { replace_all(&s, step.from, step.to); } }
    else if (step.kind == DECODE_FUSE || step.kind == DECODE_BYTES) {
        std::string all, bytes;
        // a token with other characters than its alphabet stays as it is
        const bool decode = step.kind == DECODE_BYTES;
        for (auto& s : v) { all += decode && byte_level_to_raw(s, &bytes) ? bytes : s; }
        if (decode) { utf8_repair(&all); }
        v.assign(1, all);
    }
    else if (step.kind == DECODE_FALLBACK) {
        std::vector<std::string> out;
        for (size_t i = 0; i < v.size(); i++) {
            std::string bytes;
            size_t e = i;
            for (int b; e < v.size() && (b = fallback_byte(v[e])) >= 0; e++) { bytes += (char)b; }
            if (e == i) { out.push_back(v[i]); continue; }
            if (utf8_valid(bytes)) { out.push_back(bytes); }
            else { out.insert(out.end(), e - i, "\xEF\xBF\xBD"); }  // one for each byte
            i = e - 1;
        }
        v.swap(out);
    }
    else if (step.kind == DECODE_STRIP) {
        for (auto& s : v) {
            size_t c = step.from.size(), b = 0, e = s.size();
            for (int k = 0; k < step.number && e - b >= c && !s.compare(b, c, step.from); k++) {
                b += c;
            }
            for (int k = 0; k < step.stop && e - b >= c && !s.compare(e - c, c, step.from); k++) {
                e -= c;
            }
            s = s.substr(b, e - b);
        }
    }
    // DECODE_METASPACE
    else {
        for (size_t i = 0; i < v.size(); i++) {
            replace_all(&v[i], step.from, i == 0 && step.number != PREPEND_NEVER ? "" : " ");
        }
    }
}

std::string tokenizer_decode(const Tokenizer& t, const int* ids, size_t n,
                             bool skip_special) {
    std::string out;
    if (t.kind == TOKENIZER_IDS) {
        for (size_t i = 0; i < n; i++) { out += strf("%s%d", i ? " " : "", ids[i]); }
        return out;
    }
    if (t.kind == TOKENIZER_BYTES) {
        for (size_t i = 0; i < n; i++) {
            if (ids[i] >= 0 && ids[i] < 256) { out += (char)ids[i]; }
            else if (ids[i] == 256 && !skip_special) { out += "<|endoftext|>"; }
        }
        return out;
    }
    std::vector<std::string> v;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t.vocab_size || t.text[ids[i]].empty() ||
            (skip_special && t.special[ids[i]])) {
            continue;
        }
        v.push_back(t.text[ids[i]]);
    }
    for (auto& step : t.decoder) { decode_step(step, &v); }
    for (size_t i = 0; i < v.size(); i++) { out += t.decoder.empty() && i ? " " + v[i] : v[i]; }
    return out;
}

std::string tokenizer_stream(const Tokenizer& t, TextStream* s, int id) {
    s->ids.push_back(id);
    std::string all = tokenizer_decode(t, s->ids.data(), s->ids.size(), true);
    if (t.kind == TOKENIZER_BYTES) {                     // hold back an unfinished character
        size_t i = 0, end = 0;
        while (i < all.size()) {
            size_t at = i;
            if (utf8_next(all.data(), all.size(), &i) < 0 && i == all.size() && i - at < 4) {
                break;
            }
            end = i;
        }
        all.resize(end);
    } else if (ends_with(all, "\xEF\xBF\xBD")) { return ""; }
    if (all.size() <= s->shown) { return ""; }
    std::string fresh = all.substr(s->shown);
    s->shown = all.size();
    return fresh;
}
