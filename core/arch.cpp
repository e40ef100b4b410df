/*
core/arch.cpp -- settles the rows that others decide, checks that they are a model this binary can
run, and reads and writes config.json.
*/
#include "arch_check.h"

std::vector<ArchRow> arch_rows(Arch* c) {
    #define X(type, field, preset, cmds, by, key, low, high, names, help, ...) \
        { { FIELD_##type, #field, (double)(low), (double)(high), names, help, &c->field }, \
          cmds, by, key },
    return { ARCH(X) };
    #undef X
}

std::vector<std::pair<ArchRow, ArchRow>> rows_apart(Arch* a, Arch* b) {
    std::vector<std::pair<ArchRow, ArchRow>> apart;
    const std::vector<ArchRow> ours = arch_rows(a);
    const std::vector<ArchRow> theirs = arch_rows(b);
    for (size_t i = 0; i < ours.size(); i++) {
        const bool same = field_text(ours[i], true) == field_text(theirs[i], true);
        if (!same) { apart.push_back({ ours[i], theirs[i] }); }
    }
    return apart;
}

std::string log_name(const ArchRow& r) {
    std::string s = r.by + (is_flag(r) ? 2 : 0);
    for (auto& ch : s) {
        ch = ch == '-' ? '_' : (char)tolower(ch);
    }
    return s;
}

// ---- is this a model, and can this binary compute it?
std::string ArchCheck::got(std::initializer_list<const char*> fields) {
    const bool by_flags = where.empty();
    std::string text;
    if (!by_flags) { text = where + ":"; }
    for (const char* field : fields) {
        for (auto& r : arch_rows(&c)) {
            if (strcmp(r.field, field)) { continue; }
            if (!text.empty()) { text += " "; }
            text += by_flags ? r.by : r.key;
            text += by_flags && !is_flag(r) ? "=" : " ";
            text += field_text(r, false);
        }
    }
    return text;
}

void ArchCheck::need(bool ok, std::initializer_list<const char*> fields,
                     const std::string& wanted) {
    if (!ok) { die(got(fields) + ": wanted " + wanted); }
}

// Checks what a norm has, and what its place allows.
void ArchCheck::norms() {
    const bool pre = norm_of(c).in && !norm_of(c).out;
    need(c.norm_bias || c.norm_kind == NORM_KIND_ln, { "norm_bias", "norm_kind" },
         "--norm-kind ln, or leave it out: RMSNorm has no bias");
    need(!c.parallel || pre, { "parallel", "norm" }, "NORM=pre");
    need(c.residual_scale == 1 || pre, { "residual_scale", "norm" }, "NORM=pre, or 1");
    need(c.logit_divisor == 1 || !norm_of(c).stream, { "logit_divisor", "norm" },
         "another NORM than post, or 1");
}

// Checks what must be given, and that the numbers fit together.
void ArchCheck::sizes() {
    need(c.L >= 1, { "L" }, "1 or more");
    need(c.NH >= 1, { "NH" }, "1 or more");
    need(c.C >= 1 && c.HS >= 1, { "C", "NH", "HS" }, "a width that the heads divide");
    need(c.KV >= 1 && c.NH % c.KV == 0, { "KV", "NH" }, "a number that divides the heads");
    need(c.F >= 1, { "F" }, "1 or more");
    need(c.T >= 1, { "T" }, "1 or more");
    need(c.V >= 2, { "V" }, "2 or more");
    need(c.prefix < c.T, { "prefix", "T" }, "a prefix shorter than the sequence");
    const double weights = 4.0 * c.L * ((double)c.C * c.NH * c.HS + (double)c.C * c.F) +
                           2.0 * c.V * c.C;
    need(weights < 1e13, { "L", "C", "NH", "HS", "F", "V" },
         "a model of less than 1e13 parameters");
}

void ArchCheck::positions() {
    const bool rotary = pe_of(c).rotary;
    need(!rotary || rotated(c) >= 2, { "HS", "rope_part", "pe" },
         "at least two channels that turn");
    need(!rotary || c.rope_part < 1 || c.HS % 2 == 0, { "HS", "C", "NH", "pe" },
         "an even head size");
    need(!pe_of(c).absolute || c.C % 2 == 0, { "C", "pe" }, "an even width");
    Arch plain;
    for (auto& [ours, usual] : rows_apart(&c, &plain)) {
        const bool turns = is_one_of(" rope_base rope_local rope_part rope_layers ", ours.field);
        need(rotary || !turns, { ours.field, "pe" }, "PE=rotary, or leave it out");
    }
    need(c.slopes == SLOPES_even || c.pe == PE_alibi, { "slopes", "pe" },
         "PE=alibi, or leave it out");
    need(!c.rope_local || c.window, { "rope_local", "window" }, "a window in some layers");
    auto pattern = [&](const char* field, const str& given) {
        need(given.find_first_not_of("01") == std::string::npos, { field },
             "a pattern of 0 and 1, such as 1110");
    };
    pattern("rope_layers", c.rope_layers);
    pattern("local", c.local);
    pattern("bias_layers", c.bias_layers);
    need(c.local.empty() || c.window, { "local", "window" }, "a window for those layers");
}

void ArchCheck::attention() {
    const BiasRow& b = bias_of(c);
    need(c.attn_p == 1 || Attn::Z == Z_PNORM, { "attn_p" },
         "ATTN=softmax_p or sigmoid_p, or 1");
    need(!c.attn_clip || Attn::clip != NO_CLIP, { "attn_clip" }, "ATTN=softmax_clip, or 0");
    need(c.attn_alpha == 1 || Attn::Z != Z_ONE, { "attn_alpha" },
         "a normalized attention, or 1");
    need(c.attn_cap == Arch().attn_cap || Attn::capped, { "attn_cap" },
         "ATTN=softcap");
    need(!c.attn_bias || (!Attn::exp_family && Attn::phi == PHI_NONE), { "attn_bias" },
         "0, or an ATTN where a shift of all scores matters, such as sigmoid");
    need(b.extra != LOGIT_EXTRA || c.bias_share == SHARE_none, { "bias_share", "bias" },
         "none: a logit is one number per head");
    need(c.bias_layers.empty() || b.extra || b.add_v, { "bias_layers", "bias" },
         "BIAS=kv, k, zero, logit or v");
    need(c.k_dims <= c.HS, { "k_dims", "HS" }, "at most the head size");
    need(!c.k_dims || c.k_dims == c.HS || b.learn_k, { "k_dims", "bias" }, "BIAS=k or kv");
    const str& v = c.v_star;
    const bool e1 = starts_with(v, "e1:");
    const bool ones = starts_with(v, "ones:");
    double M = 0;
    const bool says = (e1 || ones) && parse_double(v.substr(e1 ? 3 : 5), &M) && M >= 0 &&
                      !float_loses(M) && M <= FLT_MAX;
    need(v.empty() || says, { "v_star" }, "e1:M or ones:M, M the norm");
    need(v.empty() || (b.learn_k && !b.learn_v), { "v_star", "bias" }, "BIAS=k");
}

static std::string extra_note(const Arch& c) {
    const BiasRow& b = bias_of(c);
    if (!extra_has_no_effect(c)) { return ""; }
    if (b.extra == KEY_EXTRA && !b.learn_k && build::Attn::sim(0.0f) == 0) {
        return strf("note   the extra key of BIAS=%s changes no output here: its score is 0, which "
                    "weighs nothing with ATTN=%s. It is left out of all shares\n", b.name,
                    build::Attn::name);
    }
    const bool takes_v = b.extra == KEY_EXTRA && b.learn_k;
    return strf("note   the extra key of BIAS=%s changes no output here: ATTN=%s does not divide a "
                "row by its sum, and v* is 0. It is left out of all shares; %s or BIAS=kv would "
                "give it a value\n",
                b.name, build::Attn::name, takes_v ? "--v-star" : "BIAS=k with --v-star");
}

std::string arch_notes(const Arch& arch) {
    Arch c = arch;
    const Twin& twin = build::Attn::twin;
    std::string notes;
    for (auto& r : arch_rows(&c)) {
        if (strcmp(r.field, twin.parameter) || field_number(r) != twin.value) { continue; }
        notes += strf("note   %s %g %s: this is ATTN=%s\n", r.by, twin.value, twin.does, twin.name);
    }
    return notes + extra_note(c);
}

void arch_settle(Arch* c, const std::string& where) {
    if (!c->KV) { c->KV = c->NH; }
    if (!c->HS && c->NH && c->C % c->NH == 0) {
        c->HS = c->C / c->NH;
    }
    if (!c->k_dims) { c->k_dims = c->HS; }
    if (slope_heads(*c) == c->NH) { c->slopes = SLOPES_even; }    // a power of two: no other
    ArchCheck check = { *c, where };
    check.sizes();
    check.norms();
    check.positions();
    check.attention();
    if (open_files) { open_files->settle(&check); }
}

// ---- config.json

std::string key_object(const ArchRow& r) {
    const char* dot = strchr(r.key, '.');
    return dot ? std::string(r.key, dot) : "";
}

std::string key_name(const ArchRow& r) {
    const char* dot = strchr(r.key, '.');
    return dot ? dot + 1 : r.key;
}

Arch arch_fixed() {
    Arch c;
    for (auto& r : arch_rows(&c)) {
        if (r.type == FIELD_kind) { *(kind*)r.at = 0; }
    }
    return c;
}

bool is_llama(Arch c) {
    Arch plain = arch_fixed();
    plain.k_dims = c.k_dims = 0;
    plain.context = c.context;                   // of the run: it changes nothing that is computed
    for (auto& [ours, llama] : rows_apart(&c, &plain)) {
        if (key_object(ours) == "train_sink") { return false; }
    }
    return !strcmp(build::Attn::name, "softmax");
}

void arch_fields(JsonObject* o, Arch c) {
    Arch fixed = arch_fixed();
    fixed.k_dims = c.HS;                                 // what 0 amounts to
    for (auto& [ours, absent] : rows_apart(&c, &fixed)) {
        if (key_object(ours) == "train_sink") { o->json(key_name(ours), config_text(ours)); }
    }
}

std::string config_text(const ArchRow& r) {
    const bool yes_or_no = !strcmp(r.field, "tied");     // as transformers has it
    return yes_or_no ? json_bool(*(int*)r.at) : field_text(r, true);
}

void arch_read(const ArchRow& r, const Json& v, const std::string& where) {
    const bool yes_or_no = r.type == FIELD_int && r.low == 0 && r.high == 1;
    const bool is_bool = v.type == Json::BOOL;
    bool fits = v.is_number() || (yes_or_no && is_bool);
    std::string wanted = "a number";
    if (r.takes_words()) {
        fits = v.is_text();
        wanted = "text";
    }
    if (fits) { wanted = field_set(r, is_bool ? number_text(v.number) : v.string); }
    if (!wanted.empty()) {
        if (yes_or_no) { wanted = "true or false"; }
        die(where + ": " + r.key + " is " + json_short(v) + ", wanted " + wanted);
    }
}
