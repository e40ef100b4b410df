/*
core/targets.cpp -- searches the windows in the order of training until one has a target.
*/
#include "targets.h"

bool data_has_target(const Data& d, int least, int most) {
    const int T = d.opt.T;
    const int first = std::max(1, least);                // the places that may be targets
    const int last = std::min(T, most);
    if (first > last) { return false; }
    if (d.bb) { return true; }
    std::vector<int> x(T + 1);
    const auto begin = x.begin() + first, end = x.begin() + last + 1;
    for (size_t k = 0; k < d.sources.size(); k++) {
        const Source& s = d.sources[k];
        const uint64_t key = mix64(mix64(d.opt.seed, STREAM_TRAIN), mix64(k, 0));
        for (long w = 0; w < s.windows; w++) {
            tokens_copy(s.train, w * T, T + 1, d.V, x.data());
            data_edit(d, key, w, T + 1, x.data());       // as the first epoch does
            if (std::any_of(begin, end, [](int id) { return id >= 0; })) { return true; }
        }
    }
    return false;
}
