/*
text/tokenizer_finish.cpp -- what follows from a vocabulary and its components: tables,
limits, and where a text may be cut.
*/
#include "added_tokens.h"
#include "bpe.h"
#include "normalize.h"
#include "split.h"
#include "tokenizer_build.h"

void tokenizer_merges(TokenizerBuild* t, const TokenPairs& list) {
    std::vector<Merge> merges;
    for (auto& [a, b] : list) {
        const int left = token_id(*t, a);
        const int right = token_id(*t, b);
        const int made = token_id(*t, a + b);
        if (left < 0 || right < 0 || made < 0) {
            refuse(t, strf("merge %zu: ", merges.size() + 1) + a + " + " + b +
                          ": not all in the vocabulary");
        }
        const uint64_t pair = (uint64_t)left << 32 | (uint32_t)right;
        merges.push_back({ pair, (uint32_t)merges.size(), (uint32_t)made });
    }
    merges_table(t, merges);
}

// ----------------------------------------------------------------------------
// limits

// Dies of added tokens that are too long, one or all.
static void check_added(const TokenizerBuild* t) {
    size_t all = 0;
    for (auto& token : t->added) {
        const size_t bytes = token.text.size();
        all += bytes;
        if (bytes > ADDED_LONGEST) {
            refuse(t, strf("an added token of %zu bytes, wanted at most %d", bytes,
                           (int)ADDED_LONGEST));
        }
    }
    if (all > ADDED_BYTES) {
        refuse(t, strf("added tokens of %zu bytes in all, wanted at most %d", all,
                       (int)ADDED_BYTES));
    }
}

// Returns how many times as long a step can make a text.
static double step_growth(const Step& step) {
    switch (step.kind) {
        case NORM_REPLACE: case DECODE_REPLACE:
            return std::max(1.0, (double)step.content.size() / step.pattern.size());
        case NORM_OTHER: return step.growth;
        case NORM_PREPEND: case SPLIT_METASPACE:
            return std::max<size_t>(1, std::max(step.content.size(), step.pattern.size()));
        default:
            return 1;
    }
}

// Dies if a stage has too many components, or they can make a text too much longer.
static void check_steps(const TokenizerBuild* t, const char* stage,
                        const std::vector<Step>& steps) {
    double growth = 1;
    for (auto& step : steps) { growth *= step_growth(step); }
    if (steps.size() > STEPS_MOST) {
        refuse(t, strf("%s: got %zu components, wanted at most %d", stage, steps.size(),
                       (int)STEPS_MOST));
    }
    if (growth > GROWTH_MOST) {
        refuse(t, strf("%s: can make a text %g times as long, wanted at most %d", stage, growth,
                       (int)GROWTH_MOST));
    }
}

// ----------------------------------------------------------------------------
// where a text may be cut, and its parts be encoded one by one

// Tells whether some token goes on behind a line's end.
static bool token_crosses_lines(const Bpe& t) {
    for (auto& token : t.raw) {
        if (token.size() > 1 && contains(token, "\n")) { return true; }
    }
    return false;
}

// Tells whether text may be cut after a line. Not if a component adds something at the start of
// each text, or a token has both sides. Digits that are cut out change nothing where another step
// cuts the lines.
static bool can_cut_at_lines(const Bpe& t) {
    bool whole = t.splitter.empty();                     // is the text one piece?
    int steps = 0;
    int digits = 0;
    for (auto& step : t.splitter) {
        if (step.kind == SPLIT_DIGITS) {
            digits++;
            continue;
        }
        // as SentencePiece does: whole but for its start
        whole = step.kind == SPLIT_METASPACE && !step.flag && step.number != PREPEND_ALWAYS;
        if (!whole && !is_known_split(step)) { return false; }
        steps++;
    }
    if (steps > 1 || (digits && (whole || !steps))) { return false; }
    for (auto& step : t.normalizer) {
        const bool blanks = step.kind == NORM_REPLACE && step.pattern == " ";
        if (step.kind != NORM_NFC && step.kind != NORM_PREPEND && !blanks) { return false; }
    }
    for (auto& token : t.added) {
        if (token.lstrip || token.rstrip || contains(token.text, "\n")) { return false; }
    }
    if (!whole) { return true; }
    if (token_crosses_lines(t)) { return false; }
    // an unknown newline is one token with what is unknown next to it
    const bool byte = t.byte_fallback && t.byte_id['\n'] >= 0;
    return token_find(t, "\n", 1) >= 0 || byte || !t.fuse_unk;
}

// Tells whether text may be cut between two words: only where each is a piece, no added token is
// made of several words, and spaces stay what they are.
static bool can_cut_at_spaces(const Bpe& t) {
    bool words = false;
    for (auto& step : t.normalizer) {
        if (step.kind != NORM_NFC) { return false; }
    }
    for (auto& step : t.splitter) { words = words || is_known_split(step); }
    for (auto& token : t.added) {
        const bool blank = token.text.find_first_not_of(' ') == token.text.npos;
        if (!blank && contains(token.text, " ")) { return false; }
    }
    return t.cut_at_lines && words;
}

// ----------------------------------------------------------------------------
// tables

static void set_texts(TokenizerBuild* t) {
    t->text.assign(t->vocab_size, "");
    t->special.assign(t->vocab_size, 0);
    for (auto& [token, id] : t->vocab) { t->text[id] = token; }
    for (size_t k = 0; k < t->added.size(); k++) {
        const AddedToken& added = t->added[k];
        std::string text = added.text;
        if (added.normalized) { normalize(*t, &text); }
        t->text[added.id] = text;
        t->special[added.id] = added.special;
        AddedTree* tree = added.normalized ? &t->added_normalized : &t->added_raw;
        if (!text.empty()) { added_insert(tree, text, (int)k); }
    }
    t->raw = t->text;
    std::string bytes;
    for (auto& token : t->raw) {
        if (t->byte_level && byte_level_to_raw(token, &bytes)) { token = bytes; }
    }
}

// Tells whether a token has a U+2581 after anything else than another one.
static bool has_inner_block(const std::string& token) {
    for (size_t k = token.find(BLOCK, 1); k != token.npos; k = token.find(BLOCK, k + 3)) {
        const bool follows_block = k >= 3 && token.compare(k - 3, 3, BLOCK) == 0;
        if (!follows_block) { return true; }
    }
    return false;
}

static void set_slots(TokenizerBuild* t) {
    const size_t size = table_size(t->vocab_size);
    t->slots.assign(size, -1);
    t->cut_at_blocks = !t->byte_level;
    std::string bytes;
    for (auto& [token, id] : t->vocab) {
        // pieces are bytes: they never equal a token of other characters
        if (t->byte_level && !byte_level_to_raw(token, &bytes)) { continue; }
        const std::string& raw = t->byte_level ? bytes : token;
        uint64_t i = hash_string(raw) & (size - 1);
        while (t->slots[i] >= 0) { i = (i + 1) & (size - 1); }
        t->slots[i] = id;
        t->cut_at_blocks = t->cut_at_blocks && !has_inner_block(raw);
    }
}

static void set_byte_ids(TokenizerBuild* t) {
    for (int byte = 0; byte < 256; byte++) {
        const char character = (char)byte;
        if (t->byte_level) {
            t->byte_id[byte] = token_find(*t, &character, 1);
            continue;
        }
        const auto hex = t->vocab.find(strf("<0x%02X>", byte));
        t->byte_id[byte] = hex == t->vocab.end() ? -1 : hex->second;
    }
}

// Notes which pieces are one token: with ignore_merges all that are in the vocabulary, else those
// that merging gives back.
static void set_whole(Bpe* t) {
    Scratch w;
    t->whole.assign(t->vocab_size, 0);
    for (int id : t->slots) {
        if (id < 0) { continue; }
        if (t->ignore_merges) {
            t->whole[id] = true;
            continue;
        }
        piece_merge(*t, &w, t->raw[id].data(), t->raw[id].size());
        t->whole[id] = w.id.size() == 1 && (int)w.id[0] == id;
    }
}

void tokenizer_finish(TokenizerBuild* t) {
    for (auto& [token, id] : t->vocab) { t->vocab_size = std::max(t->vocab_size, id + 1); }
    for (auto& added : t->added) { t->vocab_size = std::max(t->vocab_size, added.id + 1); }
    if (t->vocab_size > 4 * 1000000 + 16 * (long)t->vocab.size()) {
        refuse(t, strf("got an id of %d for %zu tokens", t->vocab_size - 1, t->vocab.size()));
    }
    check_added(t);
    check_steps(t, "normalizer", t->normalizer);
    check_steps(t, "pre_tokenizer", t->splitter);
    check_steps(t, "decoder", t->decoder);
    set_texts(t);
    set_slots(t);
    set_byte_ids(t);
    t->cut_at_lines = can_cut_at_lines(*t);
    t->cut_at_spaces = can_cut_at_spaces(*t);
    set_whole(t);
}
