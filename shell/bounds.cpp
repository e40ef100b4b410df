/*
shell/bounds.cpp -- flags that bound each other, as a table that bounds_check of flags.h reads.
The bounds of a model's sizes are in models/arch.cpp, because a config.json says them, too.
*/
#include "../flags.h"

enum Relation { AT_MOST, LESS, AT_LEAST };
enum Verdict { REFUSED, NOTED };

// flag, relation, bound: another flag or a number. Where `when` is false the row says nothing
struct Bound {
    const char *cmds, *flag;
    Relation relation;
    const char* bound;
    bool (*when)(const Flags& f);
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

// the value of a flag as the program computes with it, or the number that `name` is; its text
static double number_of(const std::vector<FlagRow>& rows, const char* name, std::string* text) {
    double v = 0;
    for (auto& r : rows) {
        if (r.name != name) { continue; }
        if (r.kind == FLAG_LONG) { v = *(long*)r.value; }
        if (r.kind == FLAG_DOUBLE) { v = (float)*(double*)r.value; }
        if (r.kind == FLAG_ARCH && r.arch.type == ARCH_int) { v = *(int*)r.arch.at; }
        if (r.kind == FLAG_ARCH && r.arch.type == ARCH_float) { v = *(float*)r.arch.at; }
        *text = flag_spelling(name) + " " + number_text(v);
        return v;
    }
    require(parse_double(name, &v), strf("BOUNDS: %s", name), "the name of a flag, or a number");
    *text = name;
    return v;
}

void bounds_check(const Flags& flags, char command) {
    static const char* const words[] = { "at most ", "less than ", "at least " };
    static const char* const broken[] = { "is more than ", "is not less than ", "is less than " };
    Flags f = flags;
    const std::vector<FlagRow> rows = flag_rows(&f);
    for (auto& b : BOUNDS) {
        std::string flag, bound;
        const double v = number_of(rows, b.flag, &flag), limit = number_of(rows, b.bound, &bound);
        const bool holds[] = { v <= limit, v < limit, v >= limit };
        if (!strchr(b.cmds, command) || !b.when(f) || holds[b.relation]) { continue; }
        if (b.verdict == REFUSED) {
            die(EXIT_USER, flag + ": wanted " + words[b.relation] + bound, b.why);
        }
        printf("note   %s %s%s: %s\n", flag.c_str(), broken[b.relation], bound.c_str(), b.why);
    }
}
