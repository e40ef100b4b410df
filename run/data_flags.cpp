/*
run/data_flags.cpp -- turns flags into data options, and rejects flags that nothing would read.
*/
#include "data_flags.h"

// ---- the data

// Parses --fix-token's "POS:ID"; dies if it is something else.
static std::pair<int, int> fixed_token(const std::string& text) {
    const std::vector<std::string> pair = split(text, ':');
    const long most = 1L << 30;
    long pos = 0;
    long id = 0;
    const bool numbers =
        pair.size() == 2 && parse_long(pair[0], &pos) && parse_long(pair[1], &id);
    require(numbers && labs(pos) < most && labs(id) < most, "--fix-token " + text, "POS:ID");
    return { (int)pos, (int)id };
}

DataOptions data_options(const Flags& f, int T, int probe_len) {
    DataOptions o;
    (DataFlags&)o = f;
    o.data = names_listed(f.data);
    require(!o.data.empty(), "--data \"\"", "bb, a file, a directory of shards or a NAME in data/");
    o.bin = f.bin ? 1 << (f.bin - 1) : 0;
    o.T = T;
    o.probe_len = probe_len;
    o.vocab = f.arch.V;
    for (double position : flag_list("--random-token", f.random_token)) {
        require(position == floor(position) && fabs(position) < 1e9,
                strf("--random-token %g", position), "a whole number");
        o.random_token.push_back(position);
    }
    for (auto& text : split(f.fix_token, ',')) { o.fix_token.push_back(fixed_token(text)); }
    return o;
}

DataOptions typed_edits(const Flags& f, int T) {
    DataOptions o = data_options(f, T, T);
    if (!f.given_random_token) { o.random_token.clear(); }
    if (!f.given_fix_token) { o.fix_token.clear(); }
    return o;
}

void edits_check(const Flags& f) {
    const DataOptions o = typed_edits(f, 1);
    std::vector<int> taken;
    for (int position : o.random_token) {
        require(!has(taken, position), "--random-token " + f.random_token,
                "every position only once");
        taken.push_back(position);
    }
    for (auto& [position, id] : o.fix_token) {
        require(!has(taken, position), strf("--fix-token %d:%d", position, id),
                strf("one thing at position %d: it is already fixed or random", position));
        taken.push_back(position);
    }
}

void reject_covered_bos(const Flags& f) {
    const DataOptions o = data_options(f, 1, 1);
    const char* wanted = "one thing at position 1: --bos none, or another position";
    require(!has(o.random_token, 1) || f.random_share < 1,
            "--bos " + f.bos + " --random-token " + f.random_token, wanted);
    for (auto& fix : o.fix_token) {
        require(fix.first != 1, "--bos " + f.bos + " --fix-token " + f.fix_token, wanted);
    }
}

long shortened(const Flags& f, long len, long longest) {
    return f.given_probe_len ? len : std::min(len, longest);
}

int probe_length(const Flags& f, const std::string& text, long longest, bool learned) {
    long len = 0;
    require(parse_long(text, &len) && len >= 1 && len <= MOST_TOKENS, "--probe-len " + text,
            "a number, 1 or more");
    len = shortened(f, len, longest);
    require(len <= longest || !learned, strf("--probe-len %ld", len),
            strf("at most %ld, the number of learned positions", longest));
    if (len > longest) {
        printf("note   --probe-len %ld goes beyond the %ld positions of the model\n", len, longest);
    }
    return len;
}
