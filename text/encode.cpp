/*
text/encode.cpp -- text -> ids: added tokens, normalizer, added tokens again, splitter, merges.
*/
#include "encode.h"
#include "added_tokens.h"
#include "bpe.h"
#include "normalize.h"
#include "split.h"
#include "tokenizer_build.h"

// Returns the end of the word that starts at s[i]: U+2581s, then all up to the next of them.
static size_t word_end(const char* s, size_t i, size_t n) {
    const auto block_at = [&](size_t k) { return k + 3 <= n && !memcmp(s + k, BLOCK, 3); };
    while (block_at(i)) { i += 3; }
    while (i < n && !block_at(i)) { i++; }
    return i;
}

// Encodes a piece that no step splits further. SentencePiece words never merge across the U+2581
// between them, so they are merged one by one.
static void encode_piece(const Bpe& t, Scratch* w, const std::string& piece, Ids* out) {
    const char* s = piece.data();
    const size_t n = piece.size();
    if (!t.cut_at_blocks) {
        piece_encode(t, w, s, n, s + n, out);
        return;
    }
    size_t end;
    for (size_t i = 0; i < n; i = end) {
        end = word_end(s, i, n);
        piece_encode(t, w, s + i, end - i, s + n, out);
    }
}

// Encodes text that one known expression splits, as nearly every tokenizer does: without copies.
static void encode_known(const Bpe& t, Scratch* w, const char* s, size_t n, Ids* out) {
    const Unicode& u = unicode();
    const Step& step = t.splitter[0];
    size_t end;
    for (size_t i = 0; i < n; i = end) {
        end = split_known(u, step, s, i, n);
        piece_encode(t, w, s + i, end - i, s + n, out);
    }
}

// Encodes text without added tokens in it. at_start: the text begins here.
static void encode_text(const Bpe& t, Scratch* w, const char* s, size_t n, bool at_start,
                        Ids* out) {
    if (t.splitter.size() == 1 && is_known_split(t.splitter[0])) {
        encode_known(t, w, s, n, out);
        return;
    }
    std::vector<std::string> pieces = { std::string(s, n) };
    std::vector<std::string> smaller;
    for (auto& step : t.splitter) {
        smaller.clear();
        for (size_t k = 0; k < pieces.size(); k++) {
            split_step(step, pieces[k], at_start && k == 0, &smaller);
        }
        pieces.swap(smaller);
    }
    for (auto& piece : pieces) { encode_piece(t, w, piece, out); }
}

// Normalizes a stretch of text into *room. Returns false if it is in that form already, which most
// text is: *room then holds nothing.
static bool normalize_stretch(const Bpe& t, const char* s, size_t n, bool prepend,
                              std::string* room) {
    if (t.normalizer.empty()) { return false; }
    if (t.normalizer.size() == 1 && t.normalizer[0].kind == NORM_NFC) { return nfc(s, n, room); }
    room->assign(s, n);
    normalize(t, room, prepend);
    return true;
}

// Doubles the room of *out where the text may need more than it has.
static void reserve_ids(size_t bytes, Ids* out) {
    const size_t expected = bytes / 3;
    if (out->capacity() - out->size() >= expected) { return; }
    out->reserve(std::max(2 * out->capacity(), out->size() + expected));
}

static void encode_bpe(const Tokenizer& of, const char* s, size_t n, bool document_start,
                       Ids* out) {
    const Bpe& t = *of.bpe;
    Scratch* w = tokenizer_scratch(t);
    reserve_ids(n, out);
    added_cut(t, t.added_raw, s, n, out, [&](size_t begin, size_t end) {
        const char* text = s + begin;
        size_t length = end - begin;
        if (normalize_stretch(t, text, length, document_start || begin > 0, &w->normalized)) {
            text = w->normalized.data();
            length = w->normalized.size();
        }
        added_cut(t, t.added_normalized, text, length, out, [&](size_t first, size_t last) {
            const bool at_start = document_start && begin + first == 0;
            encode_text(t, w, text + first, last - first, at_start, out);
        });
    });
}

void tokenizer_encode_to(const Tokenizer& t, const char* s, size_t n, bool document_start,
                         Ids* out) {
    if (t.kind == TOKENIZER_IDS) {
        die("text: these data have no tokenizer, only ids",
            "give one with --tokenizer tokenizer.json");
    }
    if (t.kind == TOKENIZER_BPE) { return encode_bpe(t, s, n, document_start, out); }
    const unsigned char* bytes = (const unsigned char*)s;
    out->insert(out->end(), bytes, bytes + n);
}

std::vector<int> tokenizer_encode(const Tokenizer& t, const std::string& text, bool specials) {
    Ids ids;
    if (specials) { ids.assign(t.before.begin(), t.before.end()); }
    std::string repaired = text;
    if (t.kind == TOKENIZER_BPE) { utf8_repair(&repaired); }
    tokenizer_encode_to(t, repaired.data(), repaired.size(), true, &ids);
    if (specials) { ids.insert(ids.end(), t.after.begin(), t.after.end()); }
    return std::vector<int>(ids.begin(), ids.end());
}
