/*
run/flags.cpp -- parses the command line, prints --help, and suggests the flag that was meant.
*/
#include "../flags.h"
#include "../base/version.h"

Flags::Flags() = default;
Flags::Flags(const Flags&) = default;
Flags& Flags::operator=(const Flags&) = default;
Flags::~Flags() = default;

bool flag_given(Flags f, const std::string& name) {
    for (auto& r : flag_rows(&f)) { if (r.name == name) { return *r.given; } }
    return false;
}

std::string flag_spelling(const std::string& name) {
    std::string s = "--" + name;
    std::replace(s.begin(), s.end(), '_', '-');
    return s;
}

void flag_set(const FlagRow& r, const std::string& spelled, const std::string& text) {
    const std::string wanted = field_set(r, text);
    if (wanted.empty()) { return; }
    double number = 0;
    const bool is_number = parse_double(text, &number);
    die(spelled + ": got " + (is_number ? text : "'" + text + "'") + ", wanted " + wanted);
}

static void print_switches() {
    for (auto& s : SWITCH_VALUES) { printf(" %s=%s", s.name, s.value); }
    printf(" PRECISION=%s BACKEND=%s", PRECISION_NAME, BACKEND_NAME);
}

// Prints the commands, or one of them.
static void usage_commands(char command) {
    printf("usage:\n");
    for (auto& c : COMMAND_ROWS) {
        if (command && c.letter != command) { continue; }
        printf("  train_sink %-9s %-10s [flags]   %s\n", c.name, c.words, c.help);
    }
}

// Flags that have a short form.
static const struct { const char *letter, *name; } LETTERS[] = {
    { "-d", "data" }, { "-m", "model" }, { "-b", "batch" },
    { "-n", "steps" }, { "-n", "tokens" }, { "-o", "out" }, { "-t", "seq" },
};

// Returns the short form of a flag, "-d", or "".
static std::string flag_letter(const FlagRow& r) {
    for (auto& l : LETTERS) { if (r.name == l.name) { return l.letter; } }
    return "";
}

static void usage_flag(char command, const FlagRow& r) {
    const std::string letter = flag_letter(r);
    const std::string left = (letter.empty() ? "    " : letter + ", ") + flag_spelling(r.name);
    std::string help = r.help, preset = field_text(r, false);
    for (auto& rule : r.rules) {
        if (rule.rule != RULE_HELP || !strchr(rule.of, command)) { continue; }
        help = rule.text;
        if (*rule.with) { preset = rule.with; }
    }
    printf("  %-22s %s%s\n", left.c_str(), help.c_str(),
           preset.empty() ? "" : (" [" + preset + "]").c_str());
}

// Prints --help: the flags of one command, in groups; or (0) the commands and where to go on.
static void usage(char command) {
    usage_commands(command);
    printf("\nthis build:");
    print_switches();
    printf("   (make help)\n");
    if (!command) {
        printf("\nflags of a command:  train_sink COMMAND --help\n"
               "version, commit:     train_sink --version\n"
               "switches of a build: make help\n"
               "where to start:      README.md; terms: docs/faq.md\n");
        return;
    }
    Flags defaults;
    const std::vector<FlagRow> rows = flag_rows(&defaults);
    for (int group = 0; group < GROUPS; group++) {
        bool begun = false;
        for (auto& r : rows) {
            if (r.group != group || !r.of(command)) { continue; }
            if (!begun) { printf("\n%s\n", GROUP_TITLES[group]); }
            begun = true;
            usage_flag(command, r);
        }
    }
    printf("\n  -h, --help             this text\n");
}

void welcome() {
    printf("train_sink trains small language models and watches where their attention goes.\n\n");
    usage_commands(0);
    printf(
        "\ntry:\n"
        "  ./train_sink train --lr 5e-3 --beta2 0.99 --weight-decay 1e-4 --warmup 20 --steps 800\n"
        "                                          the sink forms in about half a minute, on the "
        "built-in task\n"
        "  scripts/make_tokenizer.py my.txt -o tok --vocab 512\n"
        "  ./train_sink train -d my.txt --tokenizer tok --fix-token 1:0 --layers 1 --width 64 \\\n"
        "      --heads 2 --ffn-width 128 --seq 64 -b 16 --lr 4e-3 --steps 8000\n"
        "                                          a sink on your own text: docs/start.md\n"
        "  ./train_sink probe runs/NAME            the sink of a run, or of any model, layer by "
        "layer\n\n"
        "flags: ./train_sink train --help (or probe, eval, ...); kinds of attention: make help\n"
        "your model in five minutes: docs/start.md\n");
}

// Returns how many letters must be inserted, deleted or changed to turn a into b.
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

// what other programs call our flags
static const struct { const char *ours, *theirs; } OTHER_NAMES[] = {
    { "--lr", " --learning-rate " },
    { "--batch", " --batch-size " },
    { "--steps", " --max-steps --iters --num-steps " },
    { "--seq", " --context --seq-len --block-size " },
    { "--width", " --hidden-size --d-model --n-embd " },
    { "--layers", " --num-layers --n-layer " },
    { "--heads", " --num-heads --n-head " },
    { "--vocab", " --vocab-size " },
    { "--out", " --output " },
    { "--data", " --dataset " },
    { "--tokens", " --max-tokens " },
    { "--temperature", " --temp " },
    { "--eps", " --threshold " },
    { "--weight-decay", " --wd " },
    { "--grad-clip", " --clip " },
    { "--resume", " --continue " },
};

// Says whose flag it is: "a flag of train, probe and eval: ./train_sink train --help".
static std::string flag_owners(const FlagRow& r) {
    std::vector<std::string> takers;
    for (auto& c : COMMAND_ROWS) { if (r.of(c.letter)) { takers.push_back(c.name); } }
    return "a flag of " + listed(takers, " and ") + ": ./train_sink " + takers[0] + " --help";
}

// Suggests what the unknown flag `name` may have meant; "" if nothing is close.
static std::string flag_suggestion(const std::string& name, const std::vector<FlagRow>& rows,
                              char command) {
    std::vector<std::string> switches = { "PRECISION", "BACKEND" };
    for (auto& s : SWITCH_VALUES) { switches.push_back(s.name); }
    for (auto& s : switches) {                           // what make sets, not the command line
        std::string spelled = flag_spelling(s);
        for (auto& ch : spelled) { ch = tolower(ch); }
        if (name == spelled) { return s + " is a switch of the build: make train_sink " + s + "="; }
    }
    for (auto& other : OTHER_NAMES) {
        if (!is_one_of(other.theirs, name)) { continue; }
        const std::string ours = other.ours;
        for (auto& r : rows) {
            if (flag_spelling(r.name) == ours && !r.of(command)) {
                return ours + " is " + flag_owners(r);
            }
        }
        return "did you mean " + ours + "?";
    }
    std::string best;
    int least = 1 + (int)name.size() / 3;                // anything farther is not a typo
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
      "sys.argv[1]).merge_and_unload().save_pretrained(sys.argv[2])\" ADAPTER NEW" },
    { "--type", "GGUF files are written by a script",
      "./train_sink export FILE -o DIR && python3 scripts/to_gguf.py DIR NEW.gguf --type q8_0" },
};

void folder_check(const std::string& name) {
    for (auto& f : NAMES_OF_FOLDERS) {
        if (!is_one_of(f.names, name)) { continue; }
        die(name + ": is in the folder " + f.folder + ", which this build does not include",
            strf("get the folder %s, and compile again", f.folder));
    }
}

[[noreturn]] static void flag_unknown(const std::string& name, const std::string& value,
                                      const std::vector<FlagRow>& rows, char command) {
    for (auto& gone : GONE) {
        if (name == gone[0]) { die(name + ": " + gone[1], gone[2]); }
    }
    folder_check(name);
    std::string meant = flag_suggestion(name, rows, command);
    if (ends_with(meant, "=")) {
        meant += value.empty() || starts_with(value, "-") ? "VALUE, see make help" : value;
    }
    die("unknown flag " + name, meant);
}

void command_check(const Flags& f, char command) {
    if (f.words.empty()) { return; }
    std::string all, meant;
    for (auto& c : COMMAND_ROWS) {
        if (c.letter == command && *c.words) { return; }
        list_add(&all, c.name);
        if (edit_distance(f.words[0], c.name) <= 2) { meant = strf("did you mean %s?", c.name); }
    }
    folder_check(f.words[0]);
    die("unknown command '" + f.words[0] + "' (" + all + ")",
        meant.empty() ? "./train_sink --help" : meant);
}

// Sets a flag that was given before: to both values, if it can have several. Else dies of another.
static void flag_set_again(const FlagRow& r, const std::string& spelled, const std::string& text) {
    const std::string before = field_text(r, true);
    for (auto& rule : r.rules) {
        if (rule.rule != RULE_JOIN) { continue; }
        return flag_set(r, spelled, field_text(r, false) + rule.text + text);
    }
    flag_set(r, spelled, text);
    const std::string now = field_text(r, true);
    if (now == before) { return; }
    die(flag_spelling(r.name) + ": got " + before + " and " + now + ", wanted one value",
        "leave one of them out");
}

// Returns the row of a flag; of several with this name, that of the command. Ends the program if
// the command has none. value: what is said behind it.
static const FlagRow& flag_named(const std::vector<FlagRow>& rows, const std::string& name,
                                 const std::string& value, char command) {
    const FlagRow* row = NULL;
    for (auto& r : rows) {
        const bool named = name == flag_spelling(r.name) || name == flag_letter(r);
        if (named && (!row || r.of(command))) { row = &r; }      // -n: of several commands
    }
    if (!row) { flag_unknown(name, value, rows, command); }
    if (!row->of(command)) { die(name + ": not a flag of this command", flag_owners(*row)); }
    return *row;
}

// Sets the flag that a word names: --steps=10, or --steps with `next` behind it, NULL at the end.
// Tells whether next was its value.
static bool flag_take(const std::vector<FlagRow>& rows, const std::string& word, const char* next,
                      char command) {
    const size_t sign = starts_with(word, "--") ? word.find('=') : word.npos;
    const bool joined = sign != word.npos;
    const std::string name = word.substr(0, sign);
    std::string value = next ? next : "";
    if (joined) { value = word.substr(sign + 1); }
    const FlagRow& row = flag_named(rows, name, value, command);
    const bool wants_value = row.type != FIELD_bool;
    if (!wants_value && joined) { die(name + " takes no value"); }
    if (wants_value && !joined && !next) { die(name + " needs a value"); }
    const bool is_name = is_one_of(
        " tokenizer init val json items dump only factors edit stream evict ", row.name);
    require(!is_name || !value.empty(), name + " \"\"", "a name, or leave it out");
    const auto set = *row.given ? flag_set_again : flag_set;
    set(row, name, value);
    *row.given = true;
    return wants_value && !joined;
}

Flags flags_parse(int argc, char** argv, char* command) {
    Flags f;
    const std::vector<FlagRow> rows = flag_rows(&f);
    int i = 1;
    *command = COMMAND_train;
    for (auto& c : COMMAND_ROWS) {
        if (argc < 2 || strcmp(argv[1], c.name)) { continue; }
        *command = c.letter;
        i = 2;
    }
    hints.page = strf("./train_sink %s --help", command_of(*command).name);
    hints.memory = command_of(*command).memory;
    for (; i < argc; i++) {
        const std::string word = argv[i];
        if (word == "-h" || word == "--help") { usage(i == 1 ? 0 : *command); exit(0); }
        if (word == "--version") {                       // what a report of a fault has to name
            printf("train_sink %s, commit %s:", VERSION, COMMIT);
            print_switches();
            printf("\n");
            exit(0);
        }
        require(!word.empty(), "\"\"", "the name of something");
        if (!starts_with(word, "-") || word == "-") { f.words.push_back(word); continue; }
        const char* next = i + 1 < argc ? argv[i + 1] : NULL;
        if (flag_take(rows, word, next, *command)) { i++; }
    }
    return f;
}

std::string flags_json(Flags f) {
    JsonObject o;
    for (auto& r : flag_rows(&f)) {
        if (r.of(COMMAND_train)) { o.json(r.name, field_text(r, true)); }
    }
    return o.all();
}

std::vector<double> flag_list(const char* spelled, const std::string& text) {
    std::vector<double> out;
    for (auto& w : split(text, ',')) {
        double v = 0;
        if (!parse_double(w, &v)) {
            die(strf("%s: got '%s', wanted numbers separated by commas", spelled, text.c_str()));
        }
        require(!float_loses(v), strf("%s %s", spelled, w.c_str()), "0 or a magnitude from 1e-37");
        out.push_back(v);
    }
    return out;
}

std::vector<double> eps_list(const Flags& f) {
    const std::vector<double> eps = flag_list("--eps", f.eps);
    require(!eps.empty(), "--eps", "a threshold, such as 0.3");
    for (double e : eps) {
        require(e >= 0 && e < 1, strf("--eps %g", e), "a fraction, from 0 to just below 1");
    }
    return eps;
}

const Preset* preset_named(const std::string& name) {
    for (auto& row : PRESET_ROWS) { if (name == row.name) { return &row; } }
    return NULL;
}

void preset_apply(Flags* f) {
    if (f->model.empty()) { f->model = "bb"; }
    const Preset* p = preset_named(f->model);
    if (!p) {
        std::string names;
        for (auto& name : names_of(PRESET_ROWS)) { names += " " + name; }
        die("--model: got '" + f->model + "', wanted one of" + names);
    }
    Arch* c = &f->arch;
    auto fill = [](int& flag, long preset) { if (!flag) { flag = preset; } };
    fill(c->L, p->L); fill(c->C, p->C); fill(c->F, p->F); fill(c->NH, p->NH);
    fill(c->T, p->T);
    if (f->given_model) { fill(c->V, p->V); }
    if (!f->batch) { f->batch = p->B; }
    require(f->batch < (1L << 30) / c->T, strf("--batch %ld --seq %d", f->batch, c->T),
            "fewer than 2^30 tokens together");
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
