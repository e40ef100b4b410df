/*
text/decode.cpp -- ids -> text.
*/
#include "encode.h"
#include "normalize.h"
#include "tokenizer_build.h"

static const char* const REPLACEMENT = "\xEF\xBF\xBD";   // U+FFFD

// ----------------------------------------------------------------------------
// GPT-2's alphabet: a printable character for each byte. 21-7E, A1-AC, AE-FF are themselves; the
// rest, in order, are U+0100 and on.

enum { ALPHABET_END = 0x144 };

static bool byte_is_itself(int byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

std::vector<uint32_t> byte_alphabet() {
    std::vector<uint32_t> characters(256);
    uint32_t other = 0x100;
    for (int byte = 0; byte < 256; byte++) {
        characters[byte] = byte_is_itself(byte) ? byte : other++;
    }
    return characters;
}

bool byte_level_to_raw(const std::string& s, std::string* raw) {
    static const std::vector<int> bytes = [] {
        std::vector<int> all(ALPHABET_END, -1);
        const std::vector<uint32_t> characters = byte_alphabet();
        for (int byte = 0; byte < 256; byte++) { all[characters[byte]] = byte; }
        return all;
    }();
    raw->clear();
    for (size_t i = 0; i < s.size();) {
        const long code = utf8_next(s, &i);
        const bool known = code >= 0 && code < ALPHABET_END && bytes[code] >= 0;
        if (!known) { return false; }
        raw->push_back((char)bytes[code]);
    }
    return true;
}

int fallback_byte(const std::string& s) {
    const bool framed = s.size() == 6 && starts_with(s, "<0x") && s[5] == '>';
    if (!framed) { return -1; }
    const bool digits = isxdigit((unsigned char)s[3]) && isxdigit((unsigned char)s[4]);
    return digits ? (int)strtol(s.substr(3, 2).c_str(), NULL, 16) : -1;
}

// ----------------------------------------------------------------------------
// the steps of a decoder

typedef std::vector<std::string> Texts;

static std::string joined(const Texts& tokens, const char* between = "") {
    std::string all;
    for (auto& token : tokens) { list_add(&all, token, between); }
    return all;
}

// Joins each run of tokens <0xHH> to the text they spell, or to one U+FFFD per byte.
static void decode_fallback(Texts* tokens) {
    Texts out;
    std::string bytes;                                   // of the run so far
    const auto end_run = [&] {
        const bool valid = utf8_valid(bytes);
        if (valid && !bytes.empty()) { out.push_back(bytes); }
        if (!valid) { out.insert(out.end(), bytes.size(), REPLACEMENT); }
        bytes.clear();
    };
    for (auto& token : *tokens) {
        const int byte = fallback_byte(token);
        if (byte >= 0) {
            bytes += (char)byte;
            continue;
        }
        end_run();
        out.push_back(token);
    }
    end_run();
    tokens->swap(out);
}

// Takes a character off the ends of a token, as often as the step says.
static void decode_strip(const Step& step, std::string* token) {
    const std::string& character = step.pattern;
    const size_t size = character.size();
    size_t begin = 0;
    for (int k = 0; k < step.number && !token->compare(begin, size, character); k++) {
        begin += size;
    }
    token->erase(0, begin);
    for (int k = 0; k < step.stop && ends_with(*token, character); k++) {
        token->resize(token->size() - size);
    }
}

static void decode_step(const Step& step, Texts* tokens) {
    std::string all;
    std::string bytes;
    switch (step.kind) {
        case DECODE_REPLACE:
            for (auto& token : *tokens) { replace_all(&token, step.pattern, step.content); }
            break;
        case DECODE_FUSE:
            tokens->assign(1, joined(*tokens));
            break;
        case DECODE_BYTES:               // a token with other characters stays as it is
            for (auto& token : *tokens) { all += byte_level_to_raw(token, &bytes) ? bytes : token; }
            utf8_repair(&all);
            tokens->assign(1, all);
            break;
        case DECODE_FALLBACK:
            decode_fallback(tokens);
            break;
        case DECODE_STRIP:
            for (auto& token : *tokens) { decode_strip(step, &token); }
            break;
        default:
            for (size_t i = 0; i < tokens->size(); i++) {
                const bool dropped = i == 0 && step.number != PREPEND_NEVER;
                replace_all(&(*tokens)[i], step.pattern, dropped ? "" : " ");
            }
    }
}

// ----------------------------------------------------------------------------
// decode

static std::string decode_bpe(const Tokenizer& of, const int* ids, size_t n, bool skip_special) {
    const Bpe& t = *of.bpe;
    Texts tokens;
    for (size_t i = 0; i < n; i++) {
        const int id = ids[i];
        const bool known = id >= 0 && id < of.vocab_size && !t.text[id].empty();
        const bool skipped = known && skip_special && t.special[id];
        if (known && !skipped) { tokens.push_back(t.text[id]); }
    }
    for (auto& step : t.decoder) { decode_step(step, &tokens); }
    return joined(tokens, t.decoder.empty() ? " " : "");
}

std::string decode(const Tokenizer& t, const int* ids, size_t n, bool skip_special) {
    if (t.kind == TOKENIZER_BPE) { return decode_bpe(t, ids, n, skip_special); }
    std::string out;
    for (size_t i = 0; i < n; i++) {
        const int id = ids[i];
        if (id >= 0 && id < 256) { out += (char)id; }
        if (id == 256 && !skip_special) { out += "<|endoftext|>"; }
    }
    return out;
}
