/*
text/added_tokens.cpp -- jumps to the places where a token may begin, eight bytes at a time,
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
        int* next = node ? &tree->next[(uint64_t)node << 8 | byte] : &tree->first[byte];
        if (!*next) {
            *next = (int)tree->token.size();
            tree->token.push_back(-1);
        }
        node = *next;
    }
    tree->token[node] = index;
}

// A token found in a text: its place in t.added (-1: none), and where it stands.
struct AddedMatch {
    int index = -1;
    size_t begin = 0;
    size_t end = 0;
};

// Returns the longest added token that begins at s[begin].
static AddedMatch match_at(const AddedTree& tree, const char* s, size_t begin, size_t n) {
    AddedMatch match;
    int node = 0;
    for (size_t end = begin; end < n;) {
        node = next_node(tree, node, (unsigned char)s[end]);
        if (!node) { break; }
        end++;
        const int index = tree.token[node];
        if (index >= 0) { match = { index, begin, end }; }
    }
    return match;
}

// Returns the leftmost, then longest, added token at or after s[i].
static AddedMatch added_find(const AddedTree& tree, const char* s, size_t i, size_t n) {
    if (tree.token.empty()) { return AddedMatch(); }
    for (; i < n; i++) {
        const void* start = memmem(s + i, n - i, tree.start.data(), tree.start.size());
        if (!start) { break; }
        i = (const char*)start - s;
        if (!tree.first[(unsigned char)s[i]]) { continue; }
        const AddedMatch match = match_at(tree, s, i, n);
        if (match.index >= 0) { return match; }
    }
    return AddedMatch();
}

// Widens a match by the blanks that its token swallows; on the left not beyond `least`.
static void added_strip(const Bpe& t, const char* s, size_t n, size_t least, AddedMatch* match) {
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

void added_cut(const Bpe& t, const AddedTree& tree, const char* s, size_t n, Ids* out,
               const std::function<void(size_t begin, size_t end)>& between) {
    size_t done = 0;
    size_t next = 0;
    for (;;) {
        AddedMatch match = added_find(tree, s, next, n);
        if (match.index < 0) { break; }
        next = match.end;                        // what stripping takes here does not move it
        added_strip(t, s, n, done, &match);
        if (match.begin > done) { between(done, match.begin); }
        out->push_back(t.added[match.index].id);
        done = match.end;
    }
    if (done < n) { between(done, n); }
}
