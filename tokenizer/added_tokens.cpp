/*
tokenizer/added_tokens.cpp -- jumps to the places where a token may begin, eight bytes at a time,
then walks the tree.
*/
#include "added_tokens.h"
#include "unicode.h"

// Returns the node behind a node, 0 if there is none.
static int next_node(const AddedTree& tree, int node, unsigned char byte) {
    if (node == 0) { return tree.first[byte]; }
    const auto next = tree.next.find((uint64_t)node << 8 | byte);
    return next == tree.next.end() ? 0 : next->second;
}

void added_insert(AddedTree* tree, const std::string& text, int index) {
    if (tree->token.empty()) {
        tree->token.push_back(-1);
        tree->first.fill(0);
        tree->start = text;
    }
    while (text.compare(0, tree->start.size(), tree->start)) { tree->start.pop_back(); }

    int node = 0;
    for (unsigned char byte : text) {
        int next = next_node(*tree, node, byte);
        if (!next) {
            next = (int)tree->token.size();
            tree->token.push_back(-1);
            if (node == 0) {
                tree->first[byte] = next;
            } else {
                tree->next[(uint64_t)node << 8 | byte] = next;
            }
        }
        node = next;
    }
    tree->token[node] = index;
}

// Returns where the two bytes stand next to each other, or a place up to eight bytes before the end
// of the text if they do not: eight places are compared at a time.
static size_t find_two(const char* s, size_t i, size_t n, const char* two) {
    const uint64_t ones = 0x0101010101010101ull;
    const uint64_t high = 0x80 * ones;
    const uint64_t first = (unsigned char)two[0] * ones;
    const uint64_t second = (unsigned char)two[1] * ones;
    for (; i + 9 <= n; i += 8) {
        uint64_t here;
        uint64_t next;
        memcpy(&here, s + i, 8);
        memcpy(&next, s + i + 1, 8);
        const uint64_t differ = (here ^ first) | (next ^ second);    // a zero byte: both agree
        const uint64_t agree = (differ - ones) & ~differ & high;
        if (agree) { return i + (__builtin_ctzll(agree) >> 3); }
    }
    return i;
}

// Returns the first place at or after s[i] where `start` may begin, n if there is none. Compares
// its first two bytes.
static size_t find_start(const char* s, size_t i, size_t n, const std::string& start) {
    if (start.size() < 2) {
        const void* place = memchr(s + i, start[0], n - i);
        return place ? (const char*)place - s : n;
    }
    for (i = find_two(s, i, n, start.data()); i + 1 < n; i++) {
        if (s[i] == start[0] && s[i + 1] == start[1]) { return i; }
    }
    return n;
}

// Returns the longest added token that begins at s[begin].
static AddedMatch match_at(const Tokenizer& t, const AddedTree& tree, const char* s, size_t begin,
                           size_t n) {
    AddedMatch match;
    int node = 0;
    for (size_t end = begin; end < n;) {
        node = next_node(tree, node, (unsigned char)s[end]);
        if (!node) { break; }
        end++;
        const int index = tree.token[node];
        const bool counts = index >= 0 && (t.match_special || !t.added[index].special);
        if (counts) { match = { index, begin, end }; }
    }
    return match;
}

AddedMatch added_find(const Tokenizer& t, const AddedTree& tree, const char* s, size_t i,
                      size_t n) {
    if (tree.token.empty()) { return AddedMatch(); }
    for (; i < n; i++) {
        if (!tree.start.empty()) {
            i = find_start(s, i, n, tree.start);
            if (i == n) { break; }
        }
        const bool begins = tree.first[(unsigned char)s[i]] != 0;
        if (!begins) { continue; }
        const AddedMatch match = match_at(t, tree, s, i, n);
        if (match.index >= 0) { return match; }
    }
    return AddedMatch();
}

void added_strip(const Tokenizer& t, const char* s, size_t n, size_t least, AddedMatch* match) {
    const Unicode& u = unicode();
    const AddedToken& token = t.added[match->index];
    while (token.lstrip && match->begin > least) {
        size_t before = match->begin - 1;
        while (before > least && (s[before] & 0xC0) == 0x80) { before--; }
        int bytes;
        if (class_at(u, s + before, &bytes) != CLASS_S) { break; }
        match->begin = before;
    }
    if (token.rstrip) { match->end = class_run(u, s, match->end, n, CLASS_S); }
}
