/*
shell/flags.cpp -- what flags.h declares.
*/
#include "../flags.h"
#include "../cpu/choice.h"
#include "../core/version.h"

Flags::Flags() = default;
Flags::Flags(const Flags&) = default;
Flags& Flags::operator=(const Flags&) = default;
Flags::~Flags() = default;

static FlagKind flag_kind(const long&) { return FLAG_LONG; }
static FlagKind flag_kind(const double&) { return FLAG_DOUBLE; }
static FlagKind flag_kind(const str&) { return FLAG_STR; }
static FlagKind flag_kind(const bool&) { return FLAG_BOOL; }

std::vector<FlagRow> flag_rows(Flags* f) {
    std::vector<FlagRow> rows = {
        #define X(cmds, group, type, name, letter, def, low, high, help) \
            { cmds, GROUP_##group, #name, letter, help, low, high, flag_kind(f->name), &f->name, \
              &f->given_##name, ArchRow() },
        FLAGS(X)
        #undef X
    };
    const std::vector<ArchRow> arch = arch_rows(&f->arch);
    for (size_t i = 0; i < arch.size(); i++) {
        const char letter = strcmp(arch[i].field, "T") ? 0 : 't';
        if (!is_flag(arch[i]) || !*arch[i].cmds) { continue; }   // set by a config.json alone
        rows.push_back({ arch[i].cmds, GROUP_MODEL, log_name(arch[i]), letter, arch[i].help,
                         arch[i].low, arch[i].high, FLAG_ARCH, arch[i].at, &f->given_arch[i],
                         arch[i] });
    }
    return rows;
}

bool flag_given(const Flags& flags, const char* name) {
    Flags f = flags;
    for (auto& r : flag_rows(&f)) { if (r.name == name) { return *r.given; } }
    return false;
}

std::string flag_spelling(const std::string& name) {
    std::string s = "--" + name;
    std::replace(s.begin(), s.end(), '_', '-');
    return s;
}

// Says what a flag may be given instead of v: "0 or more", "1 to 65535".
static std::string flag_range(const FlagRow& r, double v) {
    const bool open = r.high >= MOST && v < r.low;
    if (open) { return number_text(r.low) + " or more"; }
    return number_text(r.low) + " to " + number_text(r.high);
}

void flag_set(const FlagRow& r, const std::string& spelled, const std::string& text) {
    double v = r.low;
    if (r.kind == FLAG_ARCH) {
        const std::string wanted = arch_set(r.arch, text);
        if (!wanted.empty()) { die(EXIT_USER, spelled + ": got " + text + ", wanted " + wanted); }
    }
    if (r.kind == FLAG_STR) { *(str*)r.value = text; }
    if (r.kind == FLAG_BOOL) { *(bool*)r.value = true; }
    if (r.kind == FLAG_LONG) {
        if (!parse_long(text, (long*)r.value)) {
            die(EXIT_USER, spelled + ": got '" + text + "', wanted a whole number");
        }
        v = *(long*)r.value;
    }
    if (r.kind == FLAG_DOUBLE) {
        if (!parse_double(text, &v)) {
            die(EXIT_USER, spelled + ": got '" + text + "', wanted a number");
        }
        *(double*)r.value = v;
        // it is computed with as a float, where it would be 0 or infinite
        if (float_loses(v) || fabs(v) > FLT_MAX) {
            die(EXIT_USER, spelled + ": got " + text + ", wanted 0, or from 1e-37 to 1e38 in size");
        }
    }
    if (v < r.low || v > r.high) {
        die(EXIT_USER, spelled + ": got " + text + ", wanted " + flag_range(r, v));
    }
}

// Writes a number as JSON that reads back as the same double: a run that goes on takes its flags
// from it.
static std::string json_exact(double v) {
    const std::string digits = json_num(v);
    const bool exact = !std::isfinite(v) || atof(digits.c_str()) == v;
    return exact ? digits : strf("%.17g", v);
}

// Writes the value of a flag, as JSON or as it is typed.
static std::string flag_text(const FlagRow& r, bool json) {
    if (r.kind == FLAG_ARCH) { return arch_text(r.arch, json); }
    if (r.kind == FLAG_BOOL && !json) { return ""; }
    if (r.kind == FLAG_BOOL) { return json_bool(*(bool*)r.value); }
    if (r.kind == FLAG_LONG) { return strf("%ld", *(long*)r.value); }
    if (r.kind == FLAG_DOUBLE) {
        return json ? json_exact(*(double*)r.value) : strf("%g", *(double*)r.value);
    }
    return json ? json_str(*(str*)r.value) : *(str*)r.value;
}

std::string flags_typed(const Flags& flags, const char* names) {
    Flags f = flags;
    std::string typed;
    const std::vector<FlagRow> rows = flag_rows(&f);
    for (auto& name : split(names, ' ')) {
        for (auto& r : rows) {
            if (r.name != name || !*r.given) { continue; }
            const std::string value = flag_text(r, false);
            list_add(&typed, flag_spelling(name) + (value.empty() ? "" : " " + value), " ");
        }
    }
    return typed;
}

void reject_unused_flags(const Flags& flags, const char* names, bool reads, const char* wanted) {
    if (reads) { return; }
    const std::vector<std::string> listed = split(names, ' ');
    Flags f = flags, defaults;
    const std::vector<FlagRow> rows = flag_rows(&f), plain = flag_rows(&defaults);
    for (size_t i = 0; i < rows.size(); i++) {
        const bool asked = std::count(listed.begin(), listed.end(), rows[i].name) > 0;
        if (!asked || !*rows[i].given) { continue; }
        const std::string value = flag_text(rows[i], false);
        require(flag_text(rows[i], true) == flag_text(plain[i], true),
                flag_spelling(rows[i].name) + (value.empty() ? "" : " " + value), wanted);
    }
}

static void print_switches() {
    for (auto& s : SWITCH_VALUES) { printf(" %s=%s", s.name, s.value); }
    printf(" PRECISION=%s BACKEND=%s", PRECISION_NAME, BACKEND_NAME);
}

static void usage_commands(char command) {
    printf("usage:\n");
    for (auto& c : COMMAND_ROWS) {
        if (command && c.letter != command) { continue; }
        printf("  train_sink %-9s %-10s [flags]   %s\n", c.name, c.words, c.help);
    }
    printf("\nthis build:");
    print_switches();
    printf("   (make help)\n");
}

// What a flag means to these commands, where it is not what its row says; the default, if it is
// another.
static const struct { const char *name, *cmds, *help, *preset; } HELP_OF[] = {
    { "out",       "t",  "directory of the run (empty: runs/NNNN-<switches>)", NULL },
    { "out",       "k",  "directory of the shards; -d NAME finds data/NAME", NULL },
    { "out",       "x",  "directory that the model is written to", NULL },
    { "bos",       "t",  "BOS: none, seq or doc (before every sequence or document)", NULL },
    { "bos",       "k",  "BOS: none or doc (before every document)", NULL },
    { "bos",       "pe", "BOS: default (the tokenizer's), none, seq, doc, or a token", NULL },
    { "bos",       "s",  "BOS: default (the tokenizer's) or none", "default" },
    { "seed",      "pe", "seed of random sequences", NULL },
    { "seed",      "g",  "seed of the drawn tokens", NULL },
    { "seed",      "bc", "seed of the weights and the tokens", NULL },
    { "json",      "p",  "file for all that was measured (docs/json.md)", NULL },
    { "json",      "e",  "file for every printed row (docs/json.md)", NULL },
    { "json",      "s",  "file for the scores of every task (docs/json.md)", NULL },
    { "json",      "b",  "file for the times (docs/json.md)", NULL },
    { "probe_len", "te", "T of the sink metrics", NULL },
    { "probe_len", "p",  "T of the sink metrics, or a list: 64,256", NULL },
};

// Prints what a report of a fault has to name: version, commit and switches.
static void print_version() {
    printf("train_sink %s, commit %s:", VERSION, COMMIT);
    print_switches();
    printf("\n");
}

static void usage_flag(char command, const FlagRow& r) {
    const std::string left = (r.letter ? strf("-%c, ", r.letter) : "    ") + flag_spelling(r.name);
    std::string help = r.help, preset = flag_text(r, false);
    for (auto& h : HELP_OF) {
        if (r.name != h.name || !strchr(h.cmds, command)) { continue; }
        help = h.help;
        if (h.preset) { preset = h.preset; }
    }
    printf("  %-22s %s%s\n", left.c_str(), help.c_str(),
           preset.empty() ? "" : (" [" + preset + "]").c_str());
}

// Prints the flags of a command that belong to a group, under its title.
static void usage_group(char command, FlagGroup group, const char* title,
                        const std::vector<FlagRow>& rows) {
    bool begun = false;
    for (auto& r : rows) {
        if (r.group != group || !r.of(command)) { continue; }
        if (!begun) { printf("\n%s\n", *title ? title : "of this command"); }
        begun = true;
        usage_flag(command, r);
    }
}

void usage(char command) {
    usage_commands(command);
    if (!command) {
        printf("\nflags of a command:  train_sink COMMAND --help\n"
               "version, commit:     train_sink --version\n"
               "switches of a build: make help\n"
               "where to begin:      README.md; words: docs/glossary.md\n");
        return;
    }
    Flags defaults;
    const std::vector<FlagRow> rows = flag_rows(&defaults);
    #define X(group, title) usage_group(command, GROUP_##group, title, rows);
    FLAG_GROUPS(X)
    #undef X
    printf("\n  -h, --help             this text\n");
}

void welcome() {
    printf(
        "train_sink trains small language models and watches where their attention "
        "goes.\n\nusage:\n");
    for (auto& c : COMMAND_ROWS) {
        printf("  train_sink %-9s %-10s [flags]   %s\n", c.name, c.words, c.help);
    }
    printf(
        "\ntry:\n"
        "  ./train_sink train --lr 5e-3 --beta2 0.99 --weight-decay 1e-4 --warmup 20 --steps 800\n"
        "                                          the sink forms in about half a minute, on the "
        "built-in task\n"
        "  scripts/make_tokenizer.py my.txt -o tok --vocab 512\n"
        "  ./train_sink train -d my.txt --tokenizer tok --fix-token 1:0 --layers 1 --width 64 \\\n"
        "      --heads 2 --ffn-width 128 --seq 64 -b 16 --lr 4e-3 --steps 8000\n"
        "                                          a sink on your own text: docs/own-text.md\n"
        "  ./train_sink probe runs/NAME            the sink of a run or of another model, layer by "
        "layer\n\n"
        "flags: ./train_sink train --help, ./train_sink probe --help, ..; every model: make help\n"
        "your model in five minutes: docs/start.md\n");
}

// Returns how many letters must be put in, left out or changed to get from a to b.
static int edit_distance(const std::string& a, const std::string& b) {
    std::vector<int> row(b.size() + 1);
    for (size_t j = 0; j < row.size(); j++) { row[j] = j; }
    for (size_t i = 0; i < a.size(); i++) {
        for (int j = 0, corner = row[0]++, above; j < (int)b.size(); j++, corner = above) {
            above = row[j + 1];
            row[j + 1] = std::min({ above + 1, row[j] + 1, corner + (a[i] != b[j]) });
        }
    }
    return row.back();
}

static const char* const SWITCHES_AND_TOOLS[] = { // what make sets, not the command line
    #define X(SWITCH) #SWITCH,
    SWITCHES(X)
    #undef X
    "PRECISION", "BACKEND",
};
// what other programs call our flags
static const char* const OTHER_NAMES[][2] = {
    { "--learning-rate", "--lr" },  { "--batch-size", "--batch" }, { "--max-steps", "--steps" },
    { "--iters", "--steps" },       { "--num-steps", "--steps" },  { "--context", "--seq" },
    { "--seq-len", "--seq" },       { "--block-size", "--seq" },   { "--hidden-size", "--width" },
    { "--d-model", "--width" },     { "--n-embd", "--width" },     { "--num-layers", "--layers" },
    { "--n-layer", "--layers" },    { "--num-heads", "--heads" },  { "--n-head", "--heads" },
    { "--vocab-size", "--vocab" },  { "--output", "--out" },       { "--dataset", "--data" },
    { "--max-tokens", "--tokens" }, { "--temp", "--temperature" }, { "--threshold", "--eps" },
    { "--wd", "--weight-decay" },   { "--clip", "--grad-clip" },   { "--continue", "--resume" },
};

// Says whose flag it is: "a flag of train, probe and eval: ./train_sink train --help".
static std::string flag_home(const FlagRow& r) {
    std::vector<std::string> takers;
    for (auto& c : COMMAND_ROWS) { if (r.of(c.letter)) { takers.push_back(c.name); } }
    std::string named;
    for (auto& taker : takers) {
        const bool last = &taker == &takers.back();
        list_add(&named, taker, last ? " and " : ", ");
    }
    return "a flag of " + named + ": ./train_sink " + takers[0] + " --help";
}

// Says what may have been meant by `name`, which no flag is called; "" if nothing is like it.
static std::string flag_meant(const std::string& name, const std::vector<FlagRow>& rows,
                              char command) {
    for (auto& s : SWITCHES_AND_TOOLS) {
        std::string spelled = flag_spelling(s);
        for (auto& ch : spelled) { ch = tolower(ch); }
        if (name == spelled) {
            return std::string(s) + " is a switch of the build: make train_sink " + s + "=";
        }
    }
    for (auto& other : OTHER_NAMES) {
        if (name != other[0]) { continue; }
        for (auto& r : rows) {
            const bool others = flag_spelling(r.name) == other[1] && !r.of(command);
            if (others) { return std::string(other[1]) + " is " + flag_home(r); }
        }
        return std::string("did you mean ") + other[1] + "?";
    }
    std::string best;
    int least = 1 + (int)name.size() / 3;                // farther away nothing is meant
    for (auto& r : rows) {
        const int d = edit_distance(name, flag_spelling(r.name));
        if (r.of(command) && d < least) { least = d; best = flag_spelling(r.name); }
    }
    return best.empty() ? "" : "did you mean " + best + "?";
}

// Flags of older versions, and what does their work now.
static const char* const GONE[][3] = {
    { "--adapter", "LoRA adapters are not read",
      "python3 -c \"import sys; from peft import AutoPeftModelForCausalLM as M; M.from_pretrained("
      "sys.argv[1]).merge_and_unload().save_pretrained(sys.argv[2])\" ADAPTER NEW, then give NEW" },
    { "--type", "GGUF files are written by a script",
      "./train_sink export FILE -o DIR, then python3 scripts/to_gguf.py DIR NEW.gguf --type q8_0" },
};

[[noreturn]] static void flag_unknown(const std::string& name, const std::string& value,
                                      const std::vector<FlagRow>& rows, char command) {
    for (auto& gone : GONE) {
        if (name == gone[0]) { die(EXIT_USER, name + ": " + gone[1], gone[2]); }
    }
    std::string meant = flag_meant(name, rows, command);
    if (ends_with(meant, "=")) {
        meant += value.empty() || value[0] == '-' ? "VALUE, see make help" : value;
    }
    die(EXIT_USER, "unknown flag " + name, meant);
}

// Dies at a flag that only other commands take, and names them.
[[noreturn]] static void flag_of_others(const FlagRow& r, const std::string& spelled) {
    die(EXIT_USER, spelled + ": not a flag of this command", flag_home(r));
}

void command_known(const Flags& f, char command) {
    if (f.words.empty()) { return; }
    std::string all, meant;
    for (auto& c : COMMAND_ROWS) {
        if (c.letter == command && *c.words) { return; }
        list_add(&all, c.name);
        if (edit_distance(f.words[0], c.name) <= 2) { meant = strf("did you mean %s?", c.name); }
    }
    for (auto& c : COMMANDS_OF_ROOMS) {
        if (f.words[0] != c.command) { continue; }
        die(EXIT_USER, std::string(c.command) + ": stands in the folder " + c.folder +
                           ", which this build was made without",
            strf("git checkout %s, then make", c.folder));
    }
    die(EXIT_USER, "got '" + f.words[0] + "', wanted a command (" + all + ") or a --flag",
        meant.empty() ? "./train_sink --help" : meant);
}

void product_settle(const Flags& f) {
    const bool here = !strcmp(BACKEND_NAME, "cpu");
    require(here || f.product.empty(), strf("--product BACKEND=%s", BACKEND_NAME),
            "BACKEND=cpu, whose products have several kernels");
    if (here) { cpu::choice_settle(!strcmp(PRECISION_NAME, "bf16"), f.product); }
}

Flags flags_parse(int argc, char** argv, char* command) {
    Flags f;
    const std::vector<FlagRow> rows = flag_rows(&f);
    int i = 1;
    *command = COMMAND_train;
    for (auto& c : COMMAND_ROWS) {
        if (argc > 1 && !strcmp(argv[1], c.name)) {
            *command = c.letter;
            i = 2;
        }
        if (*command == c.letter) { help_page() = strf("./train_sink %s --help", c.name); }
    }
    for (; i < argc; i++) {
        const std::string arg = argv[i];
        if (arg == "-h" || arg == "--help") { usage(i == 1 ? 0 : *command); exit(0); }
        if (arg == "--version") { print_version(); exit(0); }
        if (arg[0] != '-' || arg == "-") { f.words.push_back(arg); continue; }
        // --steps=10, or --steps 10
        const bool has_value = arg[1] == '-' && arg.find('=') != std::string::npos;
        const std::string name = has_value ? arg.substr(0, arg.find('=')) : arg;
        const std::string after = i + 1 < argc ? argv[i + 1] : "";
        const std::string next = has_value ? arg.substr(name.size() + 1) : after;
        const FlagRow* row = NULL;
        for (auto& r : rows) {
            const bool short_form = r.letter && name == std::string("-") + r.letter;
            const bool named = name == flag_spelling(r.name) || short_form;
            if (named && (!row || r.of(*command))) { row = &r; }     // -n: of several commands
        }
        if (!row) { flag_unknown(name, next, rows, *command); }
        if (!row->of(*command)) { flag_of_others(*row, name); }
        const bool wants_value = row->kind != FLAG_BOOL;
        if (!wants_value && has_value) { die(EXIT_USER, name + ": takes no value"); }
        if (wants_value && !has_value && i + 1 >= argc) {
            die(EXIT_USER, name + ": got no value, wanted one");
        }
        flag_set(*row, name, wants_value ? next : "");
        if (wants_value && !has_value) { i++; }
        *row->given = true;
    }
    return f;
}

std::string flags_json(Flags f, char command) {
    JsonObject o;
    for (auto& r : flag_rows(&f)) {
        if (r.of(command)) { o.json(r.name, flag_text(r, true)); }
    }
    return o.all();
}

std::vector<double> flag_list(const char* spelled, const std::string& text) {
    std::vector<double> out;
    for (auto& w : split(text, ',')) {
        double v = 0;
        if (!parse_double(w, &v)) {
            die(EXIT_USER,
                std::string(spelled) + ": got '" + text + "', wanted numbers separated by commas");
        }
        require(!float_loses(v), std::string(spelled) + " " + w, "0, or 1e-37 or more in size");
        out.push_back(v);
    }
    return out;
}

std::vector<double> eps_list(const Flags& f) {
    const std::vector<double> eps = flag_list("--eps", f.eps);
    require(!eps.empty(), "--eps", "a threshold, such as 0.3");
    for (double e : eps) {
        require(e >= 0 && e < 1, strf("--eps %g", e), "0 up to, not including, 1: it is a share");
    }
    return eps;
}

void preset_apply(Flags* f) {
    const Preset* p = NULL;
    if (f->model.empty()) { f->model = "bb"; }
    for (auto& row : PRESET_ROWS) { if (f->model == row.name) { p = &row; } }
    if (!p) {
        die(EXIT_USER, "--model: got '" + f->model + "', wanted one of" PRESETS(PRESET_NAME));
    }
    Arch* c = &f->arch;
    auto fill = [](int* flag, long preset) { if (!*flag) { *flag = preset; } };
    fill(&c->L, p->L); fill(&c->C, p->C); fill(&c->F, p->F); fill(&c->NH, p->NH);
    fill(&c->T, p->T);
    if (f->given_model) { fill(&c->V, p->V); }
    if (!f->batch) { f->batch = p->B; }
    require(f->batch < (1L << 30) / c->T, strf("--batch %ld --seq %d", f->batch, c->T),
            "less than 2^30 tokens in all");
}

Arch arch_from_flags(Flags* f, int data_V) {
    Arch* c = &f->arch;
    if (!c->V) { c->V = data_V; }
    require(c->V >= data_V, strf("--vocab %d", c->V),
            strf("at least the %d ids of the data", data_V));
    require(c->window >= 1 || !flag_given(*f, "window"), strf("--window %d", c->window),
            "1 or more, or leave it out");
    arch_settle(c, "");
    return *c;
}
