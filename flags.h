/*
flags.h -- the command line, one row per flag. The struct, the parser, --help and the config line of
the log come from it. Its functions are in run/flags.cpp.
*/
#ifndef FLAGS_H
#define FLAGS_H
#include "arch.h"
#include "core/schedule.h"

struct Preset { const char* name; long L, C, NH, F, V, T, B; };
static const Preset PRESET_ROWS[] = {
    // name    L   C     NH  F     V      T     B
    { "bb",    1,  32,   1,  80,   0,     64,   64 },
    { "nano",  4,  128,  4,  256,  0,     128,  32 },
    { "small", 4,  256,  4,  768,  0,     256,  16 },
    { "60M",   10, 768,  8,  1536, 50432, 2048, 8 },
    { "1B",    22, 2048, 16, 5632, 50432, 2048, 4 },
};

// Groups: the headings of --help, in this order; OWN, flags of a single command, comes first
enum FlagGroup {
    GROUP_OWN, GROUP_DATA, GROUP_BB, GROUP_MODEL, GROUP_TRAINING, GROUP_MEASURING, GROUP_RUN, GROUPS
};
static const char* const GROUP_TITLES[GROUPS] = {
    "of this command", "data", "the built-in task, -d bb", "model", "training", "measuring",
    "the run"
};
constexpr double MOST = 1e15;    // no count is larger, and a double holds it exactly
constexpr double MANY = INFINITY;

// kinds that flags alone choose; those of the updates are in core/schedule.h
inline constexpr const char* KEEP_ROWS[] = { "last", "all", "none" };
inline constexpr const char* BIN_ROWS[] = { "none", "uint8", "uint16", "uint32", "uint64" };
inline constexpr const char* INPUT_ROWS[] = { "natural", "random", "repeated" };
constexpr int KEEP_last = row_named(KEEP_ROWS, "last"), KEEP_none = row_named(KEEP_ROWS, "none"),
              INPUT_natural = row_named(INPUT_ROWS, "natural"),
              INPUT_random = row_named(INPUT_ROWS, "random"),
              INPUT_repeated = row_named(INPUT_ROWS, "repeated");

// Every flag is one row. The struct, the parser, its checks, --help and the config line of the log
// are made from the rows.
//
//  cmds   commands that take it (t train, p probe, e eval, g generate, s score, k tokenize,
//         b bench, c check, x export; T: train, and --resume keeps it)
//  group  where --help shows it
//  low, high   smallest and largest value
//  ...    its rules: what reads it, what bounds it, and what it means to some commands. `f` is the
//         Flags, `command` the letter. run/flag_rules.cpp has them
//             READ_IF(condition, wanted)           else a value that was given is refused
//             BOUND(condition, words, other, why)  else it is refused: "wanted less than --steps 5"
//             NOTED(condition, words, other, why)  else a note: "is more than --steps 5"
//             FOR(cmds, help)                      in place of its help; and a default to show
//             JOIN(between)                        given twice, it is both, joined by this
//
//        (cmds, group, type, name, default, low, high, names, help, ..), or shorter:
#define WHOLE(cmds, group, name, preset, low, high, ...) \
    X(cmds, group, long, name, preset, low, high, {}, __VA_ARGS__)
#define DECIMAL(cmds, group, name, preset, low, high, ...) \
    X(cmds, group, double, name, preset, low, high, {}, __VA_ARGS__)
#define WORDS(cmds, group, name, preset, ...) \
    X(cmds, group, str, name, preset, 0, 0, {}, __VA_ARGS__)
#define ONE_OF(cmds, group, name, TABLE, preset, ...) \
    X(cmds, group, kind, name, row_named(TABLE##_ROWS, #preset), 0, 0, names_of(TABLE##_ROWS), \
      __VA_ARGS__)
#define ON(cmds, group, name, ...) X(cmds, group, bool, name, false, 0, 0, {}, __VA_ARGS__)
// DATA_FLAGS are those that the data loader takes as they are, FLAGS the others.
#define DATA_FLAGS(X) \
    DECIMAL("Tpe", DATA, random_share, 1, 0, 1, "fraction of sequences that get them", \
      READ_IF(f.given_random_token, "--random-token POSITIONS"), READ_IF(f.random_share > 0, "a value above 0")) \
    WORDS("tpgske", DATA, tokenizer, "", "tokenizer.json for text (default: the model's own, or else bytes, 257 ids)", OF_TEXT) \
    WORDS("Tpgske", DATA, bos, "none", \
      "BOS: none, seq or doc (before every sequence or document)", OF_TEXT, FOR("k", "BOS: none or doc (before every document)"), \
      FOR("pe", "BOS: default (the run's first token, or the tokenizer's), none, seq, doc, or a token"), \
      FOR("gs", "BOS: default (the run's first token, or the tokenizer's), none, or a token", "default")) \
    WHOLE("Tk", DATA, train_tokens, 0, 0, MOST, "train on the first N tokens only, over and over (0: all)", \
      BOUND(!f.train_tokens || f.train_tokens >= f.arch.T, "at least", "seq", "otherwise there is not one sequence")) \
    TEXT_FLAGS(X) \
    WHOLE("Tpbe", BB, bb_vocab, 256, 2, 65535, "bb: number of ordinary tokens; <s> is one more", OF_BB) \
    WHOLE("Tpe", BB, bb_triggers, 1, 0, 65535, "bb: number of triggers among them", OF_BB, \
      BOUND(f.bb_triggers < f.bb_vocab, "less than", "bb_vocab", "triggers are among the tokens")) \
    DECIMAL("Tpe", BB, bb_trigger_prob, 0.15, 0, 1, "bb: probability of each trigger", OF_BB, \
      READ_IF(f.bb_triggers > 0, "--bb-triggers 1 or more")) \
    DECIMAL("Tpe", BB, bb_temp, 2.0, 0, 1e3, "bb: standard deviation of the bigram logits", OF_BB) \
    WHOLE("Tpe", BB, bb_table, 1, 0, MOST, "bb: seed of the bigram table", OF_BB) \
    WHOLE("Tpe", BB, bb_bos, 1, 0, 1, "bb: 1 puts <s> first, 0 does not", OF_BB) \
    WHOLE("Tpe", BB, bb_mean, 0, 0, 1, "bb: after a trigger 0 copies the token before it, 1 any earlier one (Ran-Milo 2026)", OF_BB, \
      READ_IF(f.bb_triggers > 0, "--bb-triggers 1 or more")) \
    WHOLE("t", MEASURING, val_seqs, 100, 1, 1<<24, "validation sequences") \
    WHOLE("tpe", MEASURING, probe_seqs, 100, 1, 1<<20, "number of sequences for the sink metrics") \
    WHOLE("Tpgbce", RUN, seed, 1, 0, MOST, "seed for initial weights, data order and samples", \
      READ_IF(f.probe_input != INPUT_natural || !strchr("pe", command), "--probe-input random or repeated: natural text is not drawn by it"), \
      FOR("pe", "seed of random sequences"), FOR("g", "seed of the drawn tokens"), \
      FOR("bc", "seed of the weights and the tokens"))
#define FLAGS(X) \
    WORDS("tpbe", DATA, data, "bb", \
      "bb, a .txt or .jsonl file, a directory of shards, or a NAME in data/; A:3,B:1 mixes two. probe, eval: by default what the run held out") \
    ONE_OF("tpbe", DATA, bin, BIN, none, "type of the ids in a .bin without a header, such as nanoGPT's: uint8, uint16, uint32 or uint64", \
      READ_IF(reads_text(f, command), "a directory of .bin: --data DIR")) \
    WORDS("Tpe", DATA, random_token, "", "put a random token at these positions, counted from 1: 1,2 (section 5)") \
    WORDS("Tpe", DATA, fix_token, "", "POS:ID puts token ID at position POS, counted from 1 (Table 10)") \
    WORDS("tb", MODEL, model, "", "preset: bb nano small 60M 1B (train without it: by data and backend; bench: bb)") \
    WHOLE("tb", TRAINING, batch, 0, 0, 1<<24, "B, sequences per micro-batch (0: the preset's)") \
    WHOLE("tb", TRAINING, total_batch, 0, 0, 1L<<40, "tokens per step, a multiple of batch * seq (0: batch * seq)") \
    WHOLE("tb", TRAINING, steps, 1000, 0, MOST, "optimizer steps (bench: 12 unless given)") \
    ONE_OF("T", TRAINING, optimizer, OPTIMIZER, adamw, "adamw, muon (for matrices inside layers; adamw for the rest) or sgd (with momentum beta1)") \
    WHOLE("T", TRAINING, min_context, 0, 0, 1<<30, "train only on targets with at least this many tokens before them (0: all)", \
      READ_IF(f.min_context > f.arch.prefix || !f.min_context, "a value above --prefix"), \
      BOUND(f.min_context <= f.arch.T, "at most", "seq", "otherwise no target is trained on")) \
    WHOLE("T", TRAINING, max_context, 0, 0, 1<<30, "train only on targets with at most this many tokens before them (0: all)", \
      BOUND(!f.max_context || f.max_context >= f.min_context, "at least", "min_context", "otherwise no target is trained on"), \
      NOTED(f.max_context < f.arch.T, "is not less than", "seq", "every target is trained on")) \
    DECIMAL("t", TRAINING, lr, 4e-4, 0, MANY, "peak learning rate") \
    WHOLE("t", TRAINING, warmup, 100, 0, MOST, "steps of linear warm-up", \
      NOTED(f.warmup <= f.steps, "is more than", "steps", "the run ends before --lr is reached")) \
    ONE_OF("t", TRAINING, schedule, SCHEDULE, constant, "after warm-up: constant (as in the released code), cosine (as in the paper) or wsd (constant, then down in a line)") \
    DECIMAL("t", TRAINING, min_lr, 0.0, 0, MANY, "learning rate at the end of cosine and wsd", \
      READ_IF(f.schedule != SCHEDULE_constant, "--schedule cosine or wsd"), \
      BOUND(f.min_lr <= f.lr, "at most", "lr", "the rate falls from --lr to --min-lr")) \
    WHOLE("t", TRAINING, decay_steps, 0, 0, MOST, "wsd: the last steps, over which the rate falls (0: a tenth of --steps, at least 2)", \
      READ_IF(f.schedule == SCHEDULE_wsd, "--schedule wsd"), BOUND(f.decay_steps <= f.steps, "at most", "steps", "they are its last")) \
    DECIMAL("T", TRAINING, beta1, 0.9, 0, 1, "AdamW, SGD: decay of the mean gradient", \
      BOUND((float)f.beta1 < 1, "less than 1", "", "with 1 the mean of the gradients stays 0")) \
    DECIMAL("T", TRAINING, beta2, 0.95, 0, 1, "AdamW: decay of the mean square", OF_ADAM, \
      BOUND((float)f.beta2 < 1, "less than 1", "", "with 1 the mean of their squares stays 0")) \
    DECIMAL("T", TRAINING, adam_eps, 1e-8, 1e-30, MANY, "AdamW: epsilon, added to the root of the mean square", OF_ADAM) \
    DECIMAL("t", TRAINING, weight_decay, 0.1, 0, MANY, "weight decay, on all parameters") \
    DECIMAL("t", TRAINING, grad_clip, 1.0, 0, MANY, "clip the gradient to this norm (0: do not clip)") \
    DECIMAL("T", MEASURING, ema, 0.0, 0, 1, \
      "also evaluate and save an exponential moving average of the weights, with this decay (0: none)", \
      BOUND((float)f.ema < 1, "less than 1", "", "with 1 the mean stays where it began")) \
    WHOLE("t", MEASURING, eval_every, 100, 0, MOST, "steps between evaluations (0: only the first and the last)", \
      NOTED(!f.given_eval_every || f.eval_every <= f.steps, "is more than", "steps", "only the first and last steps are evaluated")) \
    WHOLE("t", RUN, save_every, 0, 0, MOST, "steps between permanent checkpoints, starting at step 0 (0: only the last)", \
      NOTED(!f.given_save_every || f.save_every <= f.steps, "is more than", "steps", "only the last step is saved")) \
    DECIMAL("t", RUN, save_minutes, 10.0, 0, MANY, "minutes between automatic checkpoints; each replaces the one before (0: none)") \
    ONE_OF("t", RUN, save_optimizer, KEEP, last, "which checkpoints keep the optimizer state that --resume needs: last, all or none") \
    WHOLE("t", RUN, print_every, 0, 0, MOST, "steps between printed lines (0: about one line per second)") \
    WHOLE("t", MEASURING, sample, 64, 0, 1<<20, "length of the text sample at each evaluation, in tokens (0: none)", \
      READ_IF((text_folder && f.data != "bb") || !f.sample, "text: --data FILE")) \
    WORDS("tpe", MEASURING, probe_len, "64", "sequence length for the sink metrics", \
      FOR("p", "sequence length for the sink metrics, or a list: 64,256")) \
    WORDS("tp", MEASURING, eps, "0.3", "threshold of Sink_k, or a list", JOIN(",")) \
    WORDS("tkx", RUN, out, "", "directory of the run (empty: runs/NNNN-<switches>)", \
      FOR("k", "directory of the shards; -d NAME finds data/NAME"), \
      FOR("x", "directory that the model is written to")) \
    WORDS("T", MODEL, init, "", "start from the weights of a checkpoint: ours" OTHER_MODELS) \
    DECIMAL("T", MODEL, init_logit, 0.0, -1e6, 1e6, "BIAS=logit: initial z of every head; -30 is as good as none", \
      READ_IF(bias_of(f.arch).extra == LOGIT_EXTRA && bias_of(f.arch).learn_k, "a build with BIAS=logit")) \
    WORDS("T", TRAINING, only, "", "train only the tensors whose names have one of these words as whole parts: sinks,k_star,layers.1", JOIN(",")) \
    ON("t", RUN, resume, "continue from the newest checkpoint in --out; flags you leave out keep the run's values") \
    CUDA_FLAGS(X) \
    DECIMAL("t", RUN, stop_after, 0.0, 0, MANY, "save and stop after this many minutes (0: never)") \
    WORDS("t", RUN, until, "", "end when a number of two evaluations in a row says so: 'sink_1>0.5', 'val_loss<3'; " \
      "of val_loss probe_loss mass sink_1 sink_* alpha_1", \
      READ_IF(f.eval_every > 0, "--eval-every 1 or more")) \
    ON("t", RUN, dry_run, "print the sizes, memory, the time of a step and the disk of a checkpoint, and write nothing") \
    OPEN_FLAGS(X) \
    ONE_OF("pe", DATA, probe_input, INPUT, natural, "natural (from -d), random, or repeated (one token each)") \
    WORDS("psbe", RUN, json, "", "write all measurements to this file (docs/json.md)", \
      FOR("e", "file for every printed row (docs/json.md)"), \
      FOR("s", "file for the scores of every task (docs/json.md)"), FOR("b", "file for the times (docs/json.md)")) \
    AFTER_FLAGS(X) \
    CPU_FLAGS(X) \
    WHOLE("b", OWN, lm_head_rows, 0, 0, 1<<24, "tokens whose logits are computed at once (0: what the backend finds good)") \
    WORDS("g", OWN, prompt, "", "text to continue; -: standard input, which is not printed again (scripts/chat.py)") \
    WHOLE("g", OWN, tokens, 200, 0, 1<<24, "number of tokens to generate") \
    DECIMAL("g", OWN, temperature, 1.0, 0, MANY, "sampling temperature (0: always the likeliest token)") \
    WHOLE("g", OWN, top_k, 0, 0, 1<<24, "sample from the k likeliest tokens (0: all)", \
      READ_IF(f.temperature > 0, "--temperature above 0"))

#define X(cmds, group, type, name, preset, ...) \
    type name = preset;                         \
    bool given_##name = false;
struct DataFlags { DATA_FLAGS(X) };
struct Flags : DataFlags {
    FLAGS(X)
    #undef X
    Arch arch; // the flags of ARCH, 0 where the preset or the data decide
    bool given_arch[ARCH_ROWS] = {};             // by row
    std::vector<std::string> words;              // arguments that are not flags

    Flags();                                     // long functions, so compiled once
    Flags(const Flags&);
    Flags& operator=(const Flags&);
    ~Flags();
};

// What a command needs of the build: nothing, its model, or attention, too.
enum CommandNeeds { NO_MODEL, NO_ATTENTION, ATTENTION };

// Every command is one row: its name, the letter that marks its flags above, what it needs and
// takes, help, and what lowers its memory. run/commands.h declares the functions, which main calls.
#define COMMANDS(X) \
    X(train,    't', ATTENTION, "", "train a model (the default command)", \
      "lower --batch, --seq, --probe-len or the model size") \
    X(probe,    'p', ATTENTION, "CHECKPOINT", \
      "measure the sink in a checkpoint: ours" OTHER_MODELS, \
      "lower --probe-len or --probe-seqs, or take a smaller model") \
    AFTER_COMMANDS(X) \
    X(generate, 'g', ATTENTION, "CHECKPOINT", "generate text from a checkpoint", \
      "lower --tokens, shorten the prompt, or take a smaller model") \
    TEXT_COMMANDS(X) \
    OPEN_COMMANDS(X) \
    X(bench,    'b', ATTENTION, "", "time training steps on random tokens", \
      "lower --batch, --seq or the model size") \
    X(check,    'c', ATTENTION, "", "check this build's gradients against finite differences", \
      "lower --seq or the model size")
// The letters by name: COMMAND_train is 't'.
enum Command : char {
#define X(name, letter, ...) COMMAND_##name = letter,
    COMMANDS(X)
    #undef X
};
struct CommandRow {
    const char* name;
    char letter;
    CommandNeeds needs;
    const char *words, *help, *memory;
};
#define X(name, ...) { #name, __VA_ARGS__ },
static const CommandRow COMMAND_ROWS[] = { COMMANDS(X) };
#undef X

inline const CommandRow& command_of(char letter) {
    const CommandRow* row = COMMAND_ROWS;
    while (row->letter != letter) { row++; }
    return *row;
}

// A rule that a flag's row ends in.
enum RuleKind { RULE_READ, RULE_BOUND, RULE_NOTE, RULE_HELP, RULE_JOIN };
struct FlagRule {
    RuleKind rule;
    bool (*holds)(const Flags& f, char command); // of what can be broken
    const char* of;                              // a bound's words; the commands of a help
    const char* text;                            // what is wanted, why, the help, or what joins
    const char* with = "";                       // a bound's other flag; the default to show
};

// A flag as data.
struct FlagRow : Field {
    const char* cmds;                            // letters of the commands that take it, or T
    FlagGroup group;
    std::string name;
    bool* given;
    bool of_model;                               // a row of ARCH
    std::vector<FlagRule> rules;

    // Tells whether the command takes the flag. check also takes every flag of the model.
    bool of(char command) const {
        if (command == COMMAND_train && fixed()) { return true; }
        if (command == COMMAND_check && of_model) { return true; }
        return strchr(cmds, command);
    }

    // Tells whether --resume has to keep the flag.
    bool fixed() const { return strchr(cmds, 'T'); }
};

// Returns every flag, those of ARCH too, with its place in *f.
std::vector<FlagRow> flag_rows(Flags* f);

// Tells whether the flag of this name was given on the command line.
bool flag_given(Flags f, const std::string& name);

// Turns probe_len into --probe-len.
std::string flag_spelling(const std::string& name);

// Lists those of the flags `names` that are given, or all, as they are typed:
// "--window 4 --skip-bad".
std::string flags_typed(Flags f, const char* names, bool all = false);

// Sets a flag from a text. Ends the program, naming the flag as `spelled`, if the text is no value
// of it.
void flag_set(const FlagRow& r, const std::string& spelled, const std::string& text);

// Tells whether a flag was given, and another value than its default, whose row is `plain`.
bool flag_asked(const FlagRow& r, const FlagRow& plain);

// Dies at a flag that was given and that nothing would read, which is a mistake that nobody would
// see, and at two flags that contradict each other; prints a note of one that another leaves
// without effect. Call it when the flags are settled. again: of a run that goes on, which has had
// since it began what it has to keep.
void flags_check(Flags f, char command, bool again = false);

// Prints what ./train_sink alone says: what there is, and three commands to try.
void welcome();

// Dies if a command or a flag stands in a folder that is not here.
void folder_check(const std::string& name);

// Dies at a word that no command takes, and names the command that it resembles most.
void command_check(const Flags& f, char command);

// Reads the command line. *command: its letter. Ends the program at what it does not know.
Flags flags_parse(int argc, char** argv, char* command);

// Returns all flags of train as JSON, as the log and state.json keep them.
std::string flags_json(Flags f);

// Reads "1,2,5" as numbers. Ends the program, naming the flag as `spelled`, if it is anything else.
std::vector<double> flag_list(const char* spelled, const std::string& text);

// Returns the thresholds of --eps: shares, from 0 up to, not including, 1.
std::vector<double> eps_list(const Flags& f);

// Returns a preset, NULL if there is none of this name.
const Preset* preset_named(const std::string& name);

// Fills in from the preset what no flag has set; bb is that of a command line without one.
void preset_apply(Flags* f);

// Returns the model that the flags say. data_V: its vocabulary if no flag has one.
Arch arch_from_flags(Flags* f, int data_V);
#endif // FLAGS_H
