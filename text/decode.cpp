/*
text/decode.cpp -- ids -> text, as tokenizer.h declares it.
*/
#include "normalize.h"
#include "tokenizer_build.h"
#include "unicode.h"
#include <set>

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

static std::vector<int> alphabet_bytes() {
    std::vector<int> bytes(ALPHABET_END, -1);
    const std::vector<uint32_t> characters = byte_alphabet();
    for (int byte = 0; byte < 256; byte++) { bytes[characters[byte]] = byte; }
    return bytes;
}

bool byte_level_to_raw(const std::string& s, std::string* raw) {
    static const std::vector<int> bytes = alphabet_bytes();
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

static std::string joined(const Texts& tokens) {
    std::string all;
    for (auto& token : tokens) { all += token; }
    return all;
}

// Joins each run of tokens <0xHH> to the text they spell, or to one U+FFFD per byte.
static void decode_fallback(Texts* tokens) {
    Texts out;
    const size_t n = tokens->size();
    for (size_t i = 0; i < n;) {
        std::string bytes;
        size_t end = i;
        while (end < n) {
            const int byte = fallback_byte((*tokens)[end]);
            if (byte < 0) { break; }
            bytes += (char)byte;
            end++;
        }
        if (end == i) {
            out.push_back((*tokens)[i]);
            i++;
            continue;
        }
        if (utf8_valid(bytes)) {
            out.push_back(bytes);
        } else {
            out.insert(out.end(), end - i, REPLACEMENT);
        }
        i = end;
    }
    tokens->swap(out);
}

// Takes a character off the ends of a token, as often as the step says.
static void decode_strip(const Step& step, std::string* token) {
    const std::string& character = step.pattern;
    const size_t size = character.size();
    size_t begin = 0;
    size_t end = token->size();
    for (int k = 0; k < step.number && end - begin >= size; k++) {
        if (token->compare(begin, size, character)) { break; }
        begin += size;
    }
    for (int k = 0; k < step.stop && end - begin >= size; k++) {
        if (token->compare(end - size, size, character)) { break; }
        end -= size;
    }
    *token = token->substr(begin, end - begin);
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

std::string decode_bpe(const Tokenizer& of, const int* ids, size_t n, bool skip_special) {
    const Bpe& t = *of.bpe;
    Texts tokens;
    for (size_t i = 0; i < n; i++) {
        const int id = ids[i];
        const bool known = id >= 0 && id < of.vocab_size && !t.text[id].empty();
        const bool skipped = known && skip_special && t.special[id];
        if (known && !skipped) { tokens.push_back(t.text[id]); }
    }
    for (auto& step : t.decoder) { decode_step(step, &tokens); }
    if (!t.decoder.empty()) { return joined(tokens); }

    std::string out;
    for (size_t i = 0; i < tokens.size(); i++) {
        if (i > 0) { out += " "; }
        out += tokens[i];
    }
    return out;
}

// ----------------------------------------------------------------------------
// single tokens

std::string token_of_bpe(const Tokenizer& t, int id) {
    const std::vector<std::string>& text = t.bpe->text;
    return id >= 0 && id < (int)text.size() ? text[id] : "";
}

int ids_of_bpe(const Tokenizer& t) {
    std::set<int> added;
    for (auto& token : t.bpe->added) { added.insert(token.id); }
    int n = t.vocab_size;
    while (n > 0 && added.count(n - 1)) { n--; }
    return n;
}
