/*
open/rope.cpp -- stretches the angles of a rotation: linear, llama3 and yarn by a share of each
pair, longrope by a number for each pair.
*/
#include "rope.h"
#include <limits.h>

// ---- angles

// Which pairs of channels yarn stretches: none before `low`, all from `high` on.
struct YarnPairs { double low, high; };

// Finds them from the turns that a pair makes in the context that was trained.
static YarnPairs yarn_pairs(const Arch& arch, double base) {
    const int rot = rotated(arch);
    const double context = arch.rope_context / (2 * M_PI);
    auto pair_at = [&](double turns_per_context) {
        return rot * log(context / turns_per_context) / (2 * log(base));
    };
    double low = pair_at(arch.rope_fast);
    double high = pair_at(arch.rope_slow);
    if (arch.rope_round) {
        low = floor(low);
        high = ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::max(std::min(high, rot - 1.0), low + 0.001);
    return { low, high };
}

// Returns the share of pair i, of angle f, that --rope-scaling stretches by its factor. (llama3:
// Meta's models; yarn: Peng et al. 2023, section 3; longrope has a number for each pair instead:
// Ding et al. 2024, arXiv:2402.13753)
static double stretched_share(const Arch& arch, double base, int i, double f) {
    double share = 0;
    if (arch.rope_scaling == ROPE_linear) { share = 1; }
    if (arch.rope_scaling == ROPE_llama3) {
        const double context = arch.rope_context / (2 * M_PI);
        share = 1 - (f * context - arch.rope_low) / (arch.rope_high - arch.rope_low);
    }
    if (arch.rope_scaling == ROPE_yarn) {
        const YarnPairs pairs = yarn_pairs(arch, base);
        share = (i - pairs.low) / (pairs.high - pairs.low);
    }
    return std::min(1.0, std::max(0.0, share));
}

long rope_limit_of(const Arch& arch) {
    if (arch.rope_most) { return arch.rope_most; }
    const bool by_length = arch.rope_scaling == ROPE_dynamic || arch.rope_scaling == ROPE_longrope;
    return by_length ? arch.rope_context : LONG_MAX;
}

// Returns what rotated vectors are multiplied by.
static double rope_length(const Arch& arch) {
    const bool longrope = arch.rope_scaling == ROPE_longrope;
    if (arch.rope_scaling != ROPE_yarn && !longrope) { return 1; }
    if (arch.rope_length) { return arch.rope_length; }
    const double factor = arch.rope_factor;
    if (factor <= 1) { return 1; }
    return longrope ? sqrt(1 + log(factor) / log(arch.rope_context)) : 0.1 * log(factor) + 1;
}

double rope_stretch(const Arch& arch, double base, std::vector<double>* angles) {
    const bool longrope = arch.rope_scaling == ROPE_longrope;
    const auto divisors = split(longrope ? arch.rope_short : "", ',');
    for (size_t i = 0; i < angles->size(); i++) {
        double& angle = (*angles)[i];
        if (longrope) { angle /= atof(divisors[i].c_str()); continue; }
        const double share = stretched_share(arch, base, i, angle);
        if (share != 0) { angle = angle / arch.rope_factor * share + angle * (1 - share); }
    }
    return rope_length(arch);
}

// ---- rows

void check_rope(ArchCheck* x) {
    const Arch& c = x->c;
    x->need(pe_of(c).rotary || c.rope_scaling == ROPE_none, { "rope_scaling", "pe" },
            "PE=rotary, or leave it out");
    x->need(c.rope_scaling != ROPE_llama3 || c.rope_high > c.rope_low,
            { "rope_low", "rope_high" }, "low less than high");
    x->need(c.rope_scaling != ROPE_yarn || c.rope_fast >= c.rope_slow,
            { "rope_slow", "rope_fast" }, "slow at most fast");
    const size_t factors = c.rope_scaling == ROPE_longrope ? rotated(c) / 2 : 0;
    for (const str* given : { &c.rope_short, &c.rope_long }) {
        std::string wanted = "longrope, for a short_factor and a long_factor";
        if (factors) {
            wanted = strf("%zu numbers in its short_factor and long_factor", factors);
        }
        x->need(split(*given, ',').size() == factors, { "rope_scaling" }, wanted);
    }
    x->need(c.rope_scaling != ROPE_none || c.rope_factor == 1, { "rope_factor", "rope_scaling" },
            "--rope-scaling linear, llama3 or yarn");
}

static bool is_list(const ArchRow& r) {
    return is_one_of(" rope_short rope_long ", r.field);
}

void rope_fields(JsonObject* o, const Arch& arch) {
    Arch c = arch;
    for (auto& r : arch_rows(&c)) {
        // others read a length of 0 as 0, not as `from the factor`
        const bool unset = !strcmp(r.field, "rope_length") && !c.rope_length;
        if (key_object(r) != "rope_scaling" || unset) { continue; }
        if (!is_list(r)) { o->json(key_name(r), config_text(r)); continue; }
        const str& numbers = *(str*)r.at;
        if (!numbers.empty()) { o->json(key_name(r), "[" + numbers + "]"); }
    }
}

void rope_write(JsonObject* config, const Arch& c) {
    if (c.rope_scaling == ROPE_none) { return; }
    JsonObject o(JSON_SPACED);
    rope_fields(&o, c);
    config->json("rope_scaling", o.all());
}

void rope_row_read(const ArchRow& r, const Json& v, const std::string& where) {
    if (!is_list(r)) { return arch_read(r, v, where); }
    std::string text;
    bool fits = v.type == Json::ARRAY;
    for (auto& item : v.items) {
        fits = fits && item.is_number() && item.number >= 1e-6 && item.number <= 1e6;
        list_add(&text, json_short(item), ",");
    }
    if (!fits) {
        die(where + ": " + r.key + " is " + json_short(v) +
            ", wanted a list of numbers, 1e-6 to 1e6");
    }
    *(str*)r.at = text;
}
