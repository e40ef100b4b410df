/*
run/flag_rules.cpp -- the rules that rows of FLAGS and ARCH end in: what reads a flag, what bounds
it, and what it means to some commands. The bounds of a model's sizes are in core/arch.cpp, because
a config.json says them, too.
*/
#include "../flags.h"
#include "../dataloader.h"

// ---- what the rows ask of the flags

// Tells whether is_such holds for some layer, or the number of layers is not yet known.
static bool some_layer(const Arch& c, bool (*is_such)(const Arch& c, int l)) {
    for (int l = 0; l < c.L; l++) {
        if (is_such(c, l)) { return true; }
    }
    return c.L == 0;
}

// Tell whether a layer rotates, not of PE=rotary alone; has the window, too; takes --rope-base.
static bool turns(const Arch& c, int l) { return !pe_of(c).rotary || in_pattern(c.rope_layers, l); }
static bool turns_locally(const Arch& c, int l) {
    return turns(c, l) && (is_local(c, l) || !pe_of(c).rotary);
}
static bool turns_by_base(const Arch& c, int l) {
    return turns(c, l) && !(is_local(c, l) && c.rope_local);
}

// Counts the sources of the built-in task; less than all: the others are text.
static long sources_bb(const Flags& f) {
    const std::vector<std::string> sources = names_listed(f.data);
    return std::count(sources.begin(), sources.end(), "bb");
}

// Tells whether a command that takes --data reads text.
static bool reads_text(const Flags& f, char command) {
    return !strchr("tpeb", command) || sources_bb(f) < (long)names_listed(f.data).size();
}

// ---- the rules

#define WHEN(condition) \
    [](const Flags& f, char command) -> bool { (void)f, (void)command; return condition; }
#define READ_IF(condition, wanted) { RULE_READ, WHEN(condition), "", wanted }
#define BOUND(condition, words, other, why) { RULE_BOUND, WHEN(condition), words, why, other }
#define NOTED(condition, words, other, why) { RULE_NOTE, WHEN(condition), words, why, other }
static FlagRule FOR(const char* cmds, const char* help, const char* preset = "") {
    return { RULE_HELP, NULL, cmds, help, preset };
}

static FlagRule JOIN(const char* between) { return { RULE_JOIN, NULL, "", between }; }

static const FlagRule
    OF_TEXT = READ_IF(reads_text(f, command), "text: --data FILE"),
    OF_BB = READ_IF(sources_bb(f), "--data bb"),
    OF_ADAM = READ_IF(f.optimizer != OPTIMIZER_sgd, "--optimizer adamw or muon"),
    IN_A_LAYER = READ_IF(!f.arch.window || some_layer(f.arch, is_local), "a 1 in --local-layers"),
    ROTATES_BASE = READ_IF(some_layer(f.arch, turns_by_base),
                           "a layer that rotates and does not take its base from --rope-local");

std::vector<FlagRow> flag_rows(Flags* f) {
    std::vector<FlagRow> rows = {
        #define X(cmds, group, type, name, preset, low, high, names, help, ...) \
            { { FIELD_##type, #name, low, high, names, help, &f->name }, \
              cmds, GROUP_##group, #name, &f->given_##name, false, { __VA_ARGS__ } },
        FLAGS(X)
        DATA_FLAGS(X)
        #undef X
    };
    static const std::vector<FlagRule> rules[] = {
        #define X(type, field, preset, cmds, by, key, low, high, names, help, ...) { __VA_ARGS__ },
        ARCH(X)
        #undef X
    };
    const std::vector<ArchRow> arch = arch_rows(&f->arch);
    for (size_t i = 0; i < arch.size(); i++) {
        const ArchRow& r = arch[i];
        if (!is_flag(r)) { continue; }                   // set by a switch or a config.json alone
        rows.push_back({ r, r.cmds, GROUP_MODEL, log_name(r), &f->given_arch[i], true, rules[i] });
    }
    return rows;
}

// ---- the checks

// Writes a flag as it is typed: "--steps 5".
static std::string flag_typed(const FlagRow& r) {
    const std::string value = field_text(r, false);
    return flag_spelling(r.name) + (value.empty() ? "" : " " + value);
}

std::string flags_typed(Flags f, const char* names, bool all) {
    std::string typed;
    const std::vector<FlagRow> rows = flag_rows(&f);
    for (auto& name : split(names, ' ')) {
        for (auto& r : rows) {
            if (r.name == name && (all || *r.given)) { list_add(&typed, flag_typed(r), " "); }
        }
    }
    return typed;
}

// Dies of a bound that does not hold, or prints a note.
static void bound_broken(const Flags& f, const FlagRow& r, const FlagRule& rule) {
    std::string bound = rule.of;
    if (*rule.with) { bound += " " + flags_typed(f, rule.with, true); }
    if (rule.rule == RULE_BOUND) { die(flag_typed(r) + ": wanted " + bound, rule.text); }
    printf("note   %s %s: %s\n", flag_typed(r).c_str(), bound.c_str(), rule.text);
}

bool flag_asked(const FlagRow& r, const FlagRow& plain) {
    return *r.given && field_text(r, true) != field_text(plain, true);
}

void flags_check(Flags f, char command, bool again) {
    Flags defaults;
    const std::vector<FlagRow> rows = flag_rows(&f), plain = flag_rows(&defaults);
    for (size_t i = 0; i < rows.size(); i++) {
        const FlagRow& r = rows[i];
        if (!r.of(command)) { continue; }
        const bool kept = again && (r.fixed() || r.of_model);
        for (auto& rule : r.rules) {
            if (!rule.holds || rule.holds(f, command)) { continue; }
            if (rule.rule != RULE_READ) { bound_broken(f, r, rule); continue; }
            if (!kept && flag_asked(r, plain[i])) {
                die(flag_typed(r) + " has no effect without " + rule.text);
            }
            break;                                       // what is not read has no bounds
        }
    }
}
#undef NOTED
#undef BOUND
#undef READ_IF
#undef WHEN
