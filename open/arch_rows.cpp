/*
open/arch_rows.cpp -- the rows of OPEN_ARCH: whether they fit together, and what they are called.
*/
#include "arch_rows.h"
#include "rope.h"

const char* mixer_name(const Arch& c) {
    if (c.delta_values) { return "delta rule"; }
    return c.mamba_width ? "Mamba" : NULL;
}

std::string forward_only(const Arch& c) {
    if (mixer_name(c)) { return strf("%s layers", mixer_name(c)); }
    return c.experts ? strf("a mixture of %d experts", c.experts) : "";
}

static void check_experts(ArchCheck* x) {
    const Arch& c = x->c;
    if (!c.experts) {
        x->need(c.experts_used == 0 && c.expert_layers.empty() && c.shared_expert == 0,
             { "experts_used", "expert_layers", "shared_expert" },
             "experts, or none of these keys");
        return;
    }
    x->need(c.experts_used >= 1 && c.experts_used <= c.experts, { "experts_used", "experts" },
         "1 up to all of them");
    x->need(ffn_of(c).gated, { "experts", "ffn" }, "a gated FFN");
    x->need(norm_of(c).in && !norm_of(c).out && !c.parallel, { "experts", "norm", "parallel" },
         "NORM=pre, not parallel");
    x->need(c.expert_layers.find_first_not_of("01") == str::npos, { "expert_layers" },
         "a pattern of 0 and 1, such as 01");
}

// Checks layers without attention: Mamba as Jamba has it, or the delta rule of Qwen3-Next.
static void check_mixers(ArchCheck* x) {
    const Arch& c = x->c;
    const str& p = c.attn_layers;
    const bool some = p.substr(0, c.L).find('0') != str::npos;
    x->need(p.find_first_not_of("01") == str::npos, { "attn_layers" },
         "a pattern of 0 and 1, such as 0001");
    if (!some) {
        x->need(!c.mamba_width, { "mamba_width", "attn_layers" }, "0 where all layers attend");
        x->need(!c.delta_values, { "delta_values", "attn_layers" }, "0 where all layers attend");
        return;
    }
    x->need(p.substr(0, c.L).find('1') != str::npos, { "attn_layers", "L" },
         "attention in some layer");
    if (c.delta_values) {
        x->need(c.delta_keys && c.delta_key_size && c.delta_value_size && c.delta_conv &&
                    !c.mamba_width,
             { "delta_keys", "delta_values", "delta_key_size", "delta_value_size", "delta_conv",
               "mamba_width" }, "1 or more of each, and no Mamba");
        x->need(c.delta_values % c.delta_keys == 0, { "delta_values", "delta_keys" },
             "heads of keys that divide those of values");
        const double row = 2.0 * c.delta_keys * c.delta_key_size +
                           2.0 * c.delta_values * c.delta_value_size;
        x->need(row < 1 << 24, { "delta_keys", "delta_key_size", "delta_values",
                              "delta_value_size" }, "rows of less than 2^24 channels");
    } else {
        x->need(c.mamba_width && c.mamba_state && c.mamba_conv && c.mamba_rank,
             { "mamba_width", "mamba_state", "mamba_conv", "mamba_rank" }, "1 or more of each");
    }
    x->need(norm_of(c).in && !norm_of(c).out && !c.parallel, { "attn_layers", "norm", "parallel" },
         "NORM=pre, not parallel");
}

void check_rows(ArchCheck* x) {
    check_rope(x);
    check_experts(x);
    check_mixers(x);
}
