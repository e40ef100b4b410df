/*
text/normalize.cpp -- runs the steps in order, each on the whole text.
*/
#include "normalize.h"
#include "unicode.h"

void replace_all(std::string* s, const std::string& pattern, const std::string& content) {
    std::string out;
    size_t done = 0;
    for (;;) {
        const size_t place = s->find(pattern, done);
        if (place == s->npos) { break; }
        out.append(*s, done, place - done);
        out += content;
        done = place + pattern.size();
    }
    if (done == 0) { return; }
    out.append(*s, done, s->npos);
    s->swap(out);
}

static void normalize_step(const Step& step, std::string* text, bool prepend) {
    std::string out;
    switch (step.kind) {
        case NORM_NFC:
            if (nfc(text->data(), text->size(), &out)) { text->swap(out); }
            break;
        case NORM_OTHER: *text = step.change(*text); break;
        case NORM_PREPEND:
            if (prepend && !text->empty()) { text->insert(0, step.content); }
            break;
        default:
            replace_all(text, step.pattern, step.content);
    }
}

void normalize(const Bpe& t, std::string* text, bool prepend) {
    for (auto& step : t.normalizer) { normalize_step(step, text, prepend); }
}
