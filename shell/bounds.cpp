/*
shell/bounds.cpp -- flags that bound each other, as a table that bounds_check of flags.h reads.
The bounds of a model's sizes are in core/arch.cpp, because a config.json says them, too.
*/
#include "../flags.h"

enum Relation { AT_MOST, LESS, AT_LEAST };
enum Verdict { REFUSED, NOTED };

// A flag of some commands and what bounds it.
struct Bound {
    const char* cmds;
    const char* flag;
    Relation relation;
    const char* bound;                           // another flag, or a number
    bool (*when)(const Flags& f);                // false: the row says nothing
    Verdict verdict;
    const char* why;
};

static bool always(const Flags&) { return true; }
static bool falls(const Flags& f) { return f.schedule == "cosine"; }
static bool some_tokens(const Flags& f) { return f.train_tokens > 0; }
static bool dumps(const Flags& f) { return !f.dump.empty(); }
static bool has_window(const Flags& f) { return f.arch.window > 0; }
static bool saves(const Flags& f) { return f.given_save_every; }
static bool evaluates(const Flags& f) { return f.given_eval_every; }

static const Bound BOUNDS[] = {
    { "t", "min_lr", AT_MOST, "lr", falls, REFUSED, "a cosine falls from --lr to --min-lr" },
    { "t", "beta1", LESS, "1", always, REFUSED, "with 1 the mean of the gradients stays 0" },
    { "t", "beta2", LESS, "1", always, REFUSED, "with 1 the mean of their squares stays 0" },
    { "t", "min_context", AT_MOST, "seq", always, REFUSED, "else no target is trained on" },
    { "t", "train_tokens", AT_LEAST, "seq", some_tokens, REFUSED, "else there is no sequence" },
    { "tpe", "bb_triggers", LESS, "bb_vocab", always, REFUSED, "a trigger is one of the tokens" },
    { "p", "dump_seq", LESS, "probe_seqs", dumps, REFUSED, "the first sequence is number 0" },
    { "t", "warmup", AT_MOST, "steps", always, NOTED, "the run ends before --lr is reached" },
    { "t", "window", LESS, "seq", has_window, NOTED, "no key of a sequence is ever out of sight" },
    { "t", "save_every", AT_MOST, "steps", saves, NOTED, "only the last step is saved" },
    { "t", "eval_every", AT_MOST, "steps", evaluates, NOTED, "only both ends are evaluated" },
};

// A number of the table, and how it is spelled.
struct Named {
    double value;
    std::string text;
};

// Returns the value of a flag as the program computes with it.
static double flag_number(const FlagRow& r) {
    if (r.kind == FLAG_LONG)       { return *(long*)r.value; }
    if (r.kind == FLAG_DOUBLE)     { return (float)*(double*)r.value; }
    if (r.kind != FLAG_ARCH)       { return 0; }
    if (r.arch.type == ARCH_int)   { return *(int*)r.arch.at; }
    if (r.arch.type == ARCH_float) { return *(float*)r.arch.at; }
    return 0;
}

// Finds the flag of this name, or reads the number that `name` is.
static Named number_of(const std::vector<FlagRow>& rows, const char* name) {
    for (auto& r : rows) {
        if (r.name != name) { continue; }
        const double value = flag_number(r);
        return { value, flag_spelling(name) + " " + number_text(value) };
    }
    double value = 0;
    require(parse_double(name, &value), strf("BOUNDS: %s", name),
            "the name of a flag, or a number");
    return { value, name };
}

static bool holds(double v, Relation relation, double limit) {
    if (relation == AT_MOST) { return v <= limit; }
    if (relation == LESS)    { return v < limit; }
    return v >= limit;
}

void bounds_check(const Flags& flags, char command) {
    static const char* const words[] = { "at most ", "less than ", "at least " };
    static const char* const broken[] = { "is more than ", "is not less than ", "is less than " };
    Flags f = flags;
    const std::vector<FlagRow> rows = flag_rows(&f);
    for (auto& b : BOUNDS) {
        const Named flag = number_of(rows, b.flag);
        const Named limit = number_of(rows, b.bound);
        if (!strchr(b.cmds, command) || !b.when(f)) { continue; }
        if (holds(flag.value, b.relation, limit.value)) { continue; }
        if (b.verdict == REFUSED) {
            die(EXIT_USER, flag.text + ": wanted " + words[b.relation] + limit.text, b.why);
        }
        const std::string found = flag.text + " " + broken[b.relation] + limit.text;
        printf("note   %s: %s\n", found.c_str(), b.why);
    }
}
