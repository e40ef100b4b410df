/*
core/targets.cpp -- searches the windows in the order of training until one has a target.
*/
#include "targets.h"

// Tells whether window w of a source has a target from place `first` to `last`, as an epoch edits
// it.
static bool window_has_target(const Data& d, const Source& s, uint64_t key, long w, int first,
                              int last, std::vector<int>* x) {
    const int T = d.opt.T;
    tokens_copy(s.train, w * T, T + 1, d.V, x->data());
    data_edit(d, key, w, T + 1, x->data());
    const auto end = x->begin() + last + 1;
    return std::any_of(x->begin() + first, end, [](int id) { return id >= 0; });
}

bool data_has_target(const Data& d, int least, int most) {
    const int first = std::max(1, least);                // the places that may be targets
    const int last = std::min(d.opt.T, most);
    if (first > last) { return false; }
    if (d.bb) { return true; }
    std::vector<int> x(d.opt.T + 1);
    for (size_t k = 0; k < d.sources.size(); k++) {
        const Source& s = d.sources[k];
        const uint64_t key = mix64(mix64(d.opt.seed, STREAM_TRAIN), mix64(k, 0));
        for (long w = 0; w < s.windows; w++) {
            if (window_has_target(d, s, key, w, first, last, &x)) { return true; }
        }
    }
    return false;
}
