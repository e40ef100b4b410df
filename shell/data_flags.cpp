/*
shell/data_flags.cpp -- what data_flags.h declares.
*/
#include "data_flags.h"

// ---- the data

// Reads "POS:ID" of --fix-token. Ends the program if it is none.
static std::pair<int, int> fixed_token(const std::string& text) {
    const std::vector<std::string> pair = split(text, ':');
    const long most = 1L << 30;
    long pos = 0;
    long id = 0;
    const bool two = pair.size() == 2;
    const bool numbers = two && parse_long(pair[0], &pos) && parse_long(pair[1], &id);
    require(numbers && labs(pos) < most && labs(id) < most, "--fix-token " + text, "POS:ID");
    return { (int)pos, (int)id };
}

DataOptions data_options(const Flags& f, int T, int probe_len) {
    DataOptions o;
    o.data = names_listed(f.data);
    require(!o.data.empty(), "--data \"\"", "bb, a file, a directory of shards or a NAME in data/");
    o.tokenizer = f.tokenizer;
    o.bos = f.bos;
    o.T = T;
    o.seed = f.seed;
    o.val_seqs = f.val_seqs;
    o.probe_seqs = f.probe_seqs;
    o.probe_len = probe_len;
    o.train_tokens = f.train_tokens;
    o.vocab = f.arch.V;
    for (double position : flag_list("--random-token", f.random_token)) {
        const bool whole = position == floor(position) && fabs(position) < 1e9;
        require(whole, strf("--random-token %g", position), "a whole number");
        o.random_token.push_back((int)position);
    }
    o.random_share = f.random_share;
    for (auto& text : split(f.fix_token, ',')) { o.fix_token.push_back(fixed_token(text)); }
    o.skip_bad = f.skip_bad;
    o.sft = f.sft;
    o.sft_loss = f.sft_loss;
    o.bb_vocab = f.bb_vocab;
    o.bb_triggers = f.bb_triggers;
    o.bb_trigger_prob = f.bb_trigger_prob;
    o.bb_temp = f.bb_temp;
    o.bb_table = f.bb_table;
    o.bb_bos = f.bb_bos;
    return o;
}

DataOptions typed_edits(const Flags& f, int T) {
    DataOptions o = data_options(f, T, T);
    if (!f.given_random_token) { o.random_token.clear(); }
    if (!f.given_fix_token) { o.fix_token.clear(); }
    return o;
}

void reject_unused_data_flags(const Flags& f, const std::vector<std::string>& sources) {
    const long all = sources.size(), bb = std::count(sources.begin(), sources.end(), "bb");
    reject_unused_flags(f, "bos skip_bad sft tokenizer", bb < all,
                        "text to read with it: --data FILE");
    reject_unused_flags(f, "sft_loss", !f.sft.empty(), "--sft segments, zephyr or chatml");
    reject_unused_flags(f, "bb_vocab bb_triggers bb_trigger_prob bb_temp bb_table bb_bos", bb,
                        "--data bb");
    reject_unused_flags(f, "bb_trigger_prob", f.bb_triggers > 0, "--bb-triggers 1 or more");
    reject_unused_flags(f, "random_share", f.given_random_token, "--random-token POSITIONS");
    require(f.random_share > 0 || !f.given_random_share, "--random-share 0",
            "more than 0, or no --random-token");
    const DataOptions o = typed_edits(f, 1);
    std::vector<int> taken;
    for (int position : o.random_token) {
        require(!std::count(taken.begin(), taken.end(), position),
                "--random-token " + f.random_token, "every position once");
        taken.push_back(position);
    }
    for (auto& fix : o.fix_token) {
        require(!std::count(taken.begin(), taken.end(), fix.first),
                strf("--fix-token %d:%d", fix.first, fix.second),
                strf("one thing at position %d: it is fixed or random already", fix.first));
        taken.push_back(fix.first);
    }
}

void reject_covered_bos(const Flags& f) {
    const DataOptions o = data_options(f, 1, 1);
    const char* wanted = "one thing at position 1: --bos none, or another position";
    const bool random = std::count(o.random_token.begin(), o.random_token.end(), 1);
    require(!random || f.random_share < 1,
            "--bos " + f.bos + " --random-token " + f.random_token, wanted);
    for (auto& fix : o.fix_token) {
        require(fix.first != 1, "--bos " + f.bos + " --fix-token " + f.fix_token, wanted);
    }
}

// Tells whether one of the model's layers is such a layer, or nobody has said how many it has.
template <class F> static bool some_layer(const Arch& c, F is_such) {
    if (c.L == 0) { return true; }
    for (int l = 0; l < c.L; l++) {
        if (is_such(l)) { return true; }
    }
    return false;
}

// Dies at a flag of windows or of rotation that no layer of this model reads.
static void reject_idle_patterns(const Flags& f) {
    const Arch& c = f.arch;
    const auto local = [&](int l) { return is_local(c, l); };
    const auto turns = [&](int l) { return in_pattern(c.rope_layers, l); };
    const auto turns_local = [&](int l) { return turns(l) && local(l); };
    const auto turns_base = [&](int l) { return turns(l) && !(local(l) && c.rope_local); };
    reject_unused_flags(f, "window local_layers", !c.window || some_layer(c, local),
                        "a 1 of --local-layers for one of the layers");
    if (!pe_of(c).rotary) { return; }
    reject_unused_flags(f, "rope_part", some_layer(c, turns), "a layer that rotates");
    reject_unused_flags(f, "rope_local", !c.window || some_layer(c, turns_local),
                        "a layer that has a window and rotates");
    reject_unused_flags(f, "rope_base rope_scaling rope_factor", some_layer(c, turns_base),
                        "a layer that rotates and does not take its base from --rope-local");
}

void reject_unused_model_flags(const Flags& f) {
    const Arch& c = f.arch;
    const bool llama3 = c.rope_scaling == ROPE_llama3;
    const bool yarn = c.rope_scaling == ROPE_yarn;
    const bool logit = bias_of(c).column == LOGIT_COLUMN;
    const bool biases = bias_of(c).learn_k || bias_of(c).add_v;
    reject_unused_flags(f, "rope_context", llama3 || yarn, "--rope-scaling llama3 or yarn");
    reject_unused_flags(f, "rope_low rope_high", llama3, "--rope-scaling llama3");
    reject_unused_flags(f, "rope_fast rope_slow rope_length rope_round", yarn,
                        "--rope-scaling yarn");
    const bool scaled = c.rope_factor != 1 || !f.init.empty();
    reject_unused_flags(f, "rope_scaling", scaled, "--rope-factor other than 1");
    reject_unused_flags(f, "k_dims", !logit, "BIAS=k or kv");
    reject_unused_flags(f, "bias_share", biases, "BIAS=k, v or kv");
    reject_unused_flags(f, "alibi_slopes", c.pe == PE_alibi, "PE=alibi");
    reject_idle_patterns(f);
}

Data data_from_flags(const Flags& f, int T, int probe_len) {
    return data_open(data_options(f, T, probe_len));
}

long shortened(const Flags& f, long len, long longest) {
    return f.given_probe_len ? len : std::min(len, longest);
}

int probe_length(const Flags& f, const std::string& text, long longest, bool learned) {
    long len = 0;
    require(parse_long(text, &len) && len >= 1 && len < 1 << 30, "--probe-len " + text,
            "a number, 1 or more");
    len = shortened(f, len, longest);
    require(len <= longest || !learned, strf("--probe-len %ld", len),
            strf("at most %ld, the learned positions", longest));
    if (len > longest) {
        printf("note   --probe-len %ld goes beyond the %ld positions of the model\n", len, longest);
    }
    return len;
}
