/*
flags.h -- the command line: one row a flag. The struct, the parser, --help and the config line of
the log come from it. Its functions are in shell/flags.cpp.
*/
#ifndef FLAGS_H
#define FLAGS_H
#include "arch.h"

// presets:      name      L   C     NH  F     V      T     B
#define PRESETS(X) \
               X("bb",     1,  32,   1,  80,   0,     64,   64) \
               X("nano",   4,  128,  4,  256,  0,     128,  32) \
               X("small",  4,  256,  4,  768,  0,     256,  16) \
               X("60M",    10, 768,  8,  1536, 50432, 2048, 8) \
               X("1B",     22, 2048, 16, 5632, 50432, 2048, 4)
#define PRESET_NAME(name, ...) " " name
struct Preset { const char* name; long L, C, NH, F, V, T, B; };
#define X(...) { __VA_ARGS__ },
static const Preset PRESET_ROWS[] = { PRESETS(X) };
#undef X

// Every flag is one row: commands that take it (t train, p probe, e eval, g generate, s score,
// k tokenize, b bench, c check, x export; T: train, where --resume has to keep it), the group that
// --help shows it in, type, name, short letter, default, the smallest and largest number it may be
// given, help. The struct, the parser, its checks, --help and the config line of the log are made
// from the rows.
// Groups: the headings of --help, in this order; OWN, those of one command alone, come first
#define FLAG_GROUPS(X) \
    X(OWN, "") X(DATA, "data") X(BB, "the built-in task, -d bb") X(MODEL, "model") \
    X(TRAINING, "training") X(MEASURING, "measuring") X(RUN, "the run")
enum FlagGroup {
#define X(group, title) GROUP_##group,
    FLAG_GROUPS(X)
    #undef X
};
#define MOST 1e15 // no count is larger, and a double holds it exactly
#define MANY INFINITY
typedef std::string str;
#define FLAGS(X) \
    X("tpbe", DATA, str,    data,            'd', "bb",       0, 0,       "bb, a .txt or .jsonl, a directory of shards, or NAME in data/; A:3,B:1 mixes. probe, eval: without it, what the run held out") \
    X("tpgske", DATA, str,   tokenizer,       0,   "",         0, 0,       "tokenizer.json for text; without it, the model's own, or bytes (257 ids)") \
    X("Tpgske", DATA, str,  bos,             0,   "none",     0, 0,       "BOS: none, seq or doc (before every sequence or document); probe also: default (the tokenizer's), a token; score, generate: default, none") \
    X("Tpe", DATA, str,    sft,             0,   "",         0, 0,       "train on conversations: -d is a .jsonl of segments (scripts/sft.py), or of messages for zephyr or chatml") \
    X("Tpe", DATA, str,    sft_loss,        0,   "assistant", 0, 0,      "--sft: the loss counts assistant (the answers and their end) or all, whatever a record says") \
    X("Tk", DATA, long,   train_tokens,    0,   0,          0, MOST,    "use only the first N training tokens, which a run reads again and again (0: all)") \
    X("Tpe", DATA, str,    random_token,    0,   "",         0, 0,       "positions, from 1, that get a random token: 1,2 (section 5)") \
    X("Tpe", DATA, double, random_share,    0,   1,          0, 1,       "share of the sequences that get them; the others stay as they are") \
    X("Tpe", DATA, str,    fix_token,       0,   "",         0, 0,       "POS:ID puts this token at this position, from 1 (Table 10)") \
    X("Tpke", DATA, bool,   skip_bad,        0,   false,      0, 0,       "count and skip broken .jsonl records instead of stopping") \
    X("Tpbe", BB, long,   bb_vocab,        0,   256,        2, 65535,   "bb: ordinary tokens; one more id is <s>") \
    X("Tpe", BB, long,   bb_triggers,     0,   1,          0, 65535,   "bb: how many of them are triggers") \
    X("Tpe", BB, double, bb_trigger_prob, 0,   0.15,       0, 1,       "bb: probability of each trigger") \
    X("Tpe", BB, double, bb_temp,         0,   2.0,        0, 1e3,     "bb: standard deviation of the bigram logits") \
    X("Tpe", BB, long,   bb_table,        0,   1,          0, MOST,    "bb: seed of the bigram table") \
    X("Tpe", BB, long,   bb_bos,          0,   1,          0, 1,       "bb: 1 puts <s> first, 0 does not") \
    X("tb", MODEL, str,    model,           'm', "",         0, 0,       "preset:" PRESETS(PRESET_NAME) " (train without it: by data and backend; bench: bb)") \
    X("tb", TRAINING, long,   batch,           'b', 0,          0, 1<<24,   "sequences in memory at once, B (0: the preset's)") \
    X("tb", TRAINING, long,   total_batch,     0,   0,          0, 1L<<40,  "tokens per step, a multiple of batch * seq (0: batch * seq)") \
    X("tb", TRAINING, long,   steps,           'n', 1000,       0, MOST,    "optimizer steps (bench: 12 unless given)") \
    X("T", TRAINING, str,    optimizer,       0,   "adamw",    0, 0,       "adamw, muon (matrices of layers, adamw the rest) or sgd (momentum beta1)") \
    X("T", TRAINING, long,   min_context,     0,   0,          0, 1<<30,   "train only on targets with this many tokens before them (0: all)") \
    X("t", TRAINING, double, lr,              0,   4e-4,       0, MANY,    "peak learning rate") \
    X("t", TRAINING, long,   warmup,          0,   100,        0, MOST,    "steps of linear warm-up") \
    X("t", TRAINING, str,    schedule,        0,   "constant", 0, 0,       "after warm-up: constant (as released) or cosine (the paper)") \
    X("t", TRAINING, double, min_lr,          0,   0.0,        0, MANY,    "learning rate at the end of cosine") \
    X("T", TRAINING, double, beta1,           0,   0.9,        0, 1,       "AdamW, SGD: decay of the mean gradient") \
    X("T", TRAINING, double, beta2,           0,   0.95,       0, 1,       "AdamW: decay of the mean square") \
    X("T", TRAINING, double, adam_eps,        0,   1e-8,       1e-30, MANY, "AdamW: added to the root of the mean square") \
    X("t", TRAINING, double, weight_decay,    0,   0.1,        0, MANY,    "of all parameters") \
    X("t", TRAINING, double, grad_clip,       0,   1.0,        0, MANY,    "largest norm of the gradient (0: any)") \
    X("t", MEASURING, long,   eval_every,      0,   100,        0, MOST,    "steps between evaluations (0: only the first and the last)") \
    X("t", RUN, long,   save_every,      0,   0,          0, MOST,    "steps between checkpoints that are kept, from step 0 on (0: only the last)") \
    X("t", RUN, double, save_minutes,    0,   10.0,       0, MANY,    "minutes between automatic checkpoints; each replaces the one before (0: none)") \
    X("t", RUN, str,    save_optimizer,  0,   "last",     0, 0,       "which checkpoints keep what --resume needs: last, all or none") \
    X("t", RUN, long,   print_every,     0,   0,          0, MOST,    "steps between printed lines (0: about one line per second)") \
    X("t", MEASURING, long,   sample,          0,   64,         0, 1<<20,   "tokens of the sample that every evaluation writes (0: none)") \
    X("t", MEASURING, long,   val_seqs,        0,   100,        1, 1<<24,   "validation sequences") \
    X("tpe", MEASURING, str,    probe_len,       0,   "64",       0, 0,       "T of the sink metrics; probe takes a list") \
    X("tpe", MEASURING, long,   probe_seqs,      0,   100,        1, 1<<20,   "sequences of the sink metrics") \
    X("tp", MEASURING, str,    eps,             0,   "0.3",      0, 0,       "threshold of Sink_k, or a list") \
    X("pe", MEASURING, str,    sink_at,         0,   "",         0, 0,       "also Sink_k of these tokens, such as 15,20") \
    X("Tpgbce", RUN, long,  seed,            0,   1,          0, MOST,    "seed of the initial weights, the order of the data and the samples") \
    X("tkx", RUN, str,    out,             'o', "",         0, 0,       "directory of the run (empty: runs/NNNN-<switches>), shards or export") \
    X("T", MODEL, str,    init,            0,   "",         0, 0,       "start from a checkpoint: ours, a Hugging Face directory or a GGUF file") \
    X("T", MODEL, double, init_logit,      0,   0.0,        -1e6, 1e6,  "BIAS=logit: initial z of every head; -30 amounts to none") \
    X("T", TRAINING, str,    only,            0,   "",         0, 0,       "train only the tensors whose names contain one of these words: sinks,k_star") \
    X("t", RUN, bool,   resume,          0,   false,      0, 0,       "continue from the newest checkpoint in --out: flags that are not given are the run's own") \
    X("tb", RUN, bool,   graph,           0,   false,      0, 0,       "CUDA: record a micro-batch and start it with one call, for small models") \
    X("tb", RUN, long,   hopper,          0,   1,          0, 1,       "CUDA: 1 computes attention by the kernels for Hopper, where the card is one, 0 by those for all") \
    X("t", RUN, double, stop_after,      0,   0.0,        0, MANY,    "minutes after which to save and stop (0: never)") \
    OPEN_FLAGS(X) \
    X("pe", DATA, str,    probe_from,      0,   "",         0, 0,       "from a .jsonl: start (of each record, default) or windows (of all)") \
    X("pe", DATA, str,    probe_input,     0,   "natural",  0, 0,       "natural (from -d), random, or repeated (one token each)") \
    X("psbe", RUN, str,    json,            0,   "",         0, 0,       "write the eval object, or what score or bench measured, here") \
    X("p", MEASURING, bool,   per_sequence,    0,   false,      0, 0,       "also write alpha[seq][L][H][k]") \
    X("p", OWN, str,    dump,            0,   "",         0, 0,       "write attention maps and QK geometry here as .npy") \
    X("p", OWN, str,    dump_heads,      0,   "0:0",      0, 0,       "LAYER:HEAD,... for --dump, or all") \
    X("p", OWN, long,   dump_seq,        0,   0,          0, 1<<20,   "which probe sequence --dump shows, from 0") \
    AFTER_FLAGS(X) \
    X("tpgsbce", RUN, str,  product,         0,   "",         0, 0,       "CPU matmuls: any, avx2, avx512, avx512-bf16 or amx (empty: the fastest on such a processor)") \
    X("b", OWN, bool,   ops,             0,   false,      0, 0,       "also time every operation against its roofline, and memory") \
    X("b", OWN, bool,   products,        0,   false,      0, 0,       "time only the CPU's matrix products: is fp32 or bf16 faster here?") \
    X("g", OWN, str,    prompt,          0,   "",         0, 0,       "text to continue; -: standard input, which is not printed again (scripts/chat.py)") \
    X("g", OWN, long,   tokens,          'n', 200,        0, 1<<24,   "tokens to write") \
    X("g", OWN, double, temperature,     0,   1.0,        0, MANY,    "0: always the likeliest token") \
    X("g", OWN, long,   top_k,           0,   0,          0, 1<<24,   "draw among the k likeliest (0: all)") \
    X("k", OWN, str,    val,             0,   "",         0, 0,       "files whose documents go into val shards, separated by commas") \
    X("k", OWN, double, val_fraction,    0,   0.0,        0, 1,       "share of the documents that go into val shards") \
    X("k", OWN, str,    domains,         0,   "",         0, 0,       "by meta.pile_set_name: all, paper (its 17), a,b or a:SHARE,..") \
    X("k", OWN, long,   shard_tokens,    0,   100000000,  1, 2000000000, "tokens per shard") \
    X("k", OWN, long,   threads,         0,   0,          0, 4096,    "threads (0: all cores); the shards do not depend on it")

struct Flags {
#define X(cmds, group, type, name, letter, def, low, high, help) \
    type name = def;                                             \
    bool given_##name = false;
    FLAGS(X)
    #undef X
    Arch arch; // the flags of ARCH, 0 where the preset or the data decide
    bool given_arch[ARCH_ROWS] = {};             // by row
    std::vector<std::string> words;              // of the command line that are no flags

    Flags();                                     // these are long, and so compiled once
    Flags(const Flags&);
    Flags& operator=(const Flags&);
    ~Flags();
};

// Every command is one row: its name, the letter that marks its flags above, what it takes, help.
// commands/commands.h declares the functions, which main calls.
#define COMMANDS(X) \
    X(train,    't', "", "train a model (the default command)") \
    X(probe,    'p', "CHECKPOINT", \
      "measure the sink in a checkpoint: ours, a Hugging Face directory or a GGUF file") \
    AFTER_COMMANDS(X) \
    X(generate, 'g', "CHECKPOINT", "write text with a checkpoint") \
    X(tokenize, 'k', "FILE...", \
      "turn text (.txt .jsonl .jsonl.zst .jsonl.gz; -: .jsonl from standard input) into shards in --out") \
    OPEN_COMMANDS(X) \
    X(bench,    'b', "", "time training steps on random tokens") \
    X(check,    'c', "", "check this build's gradients against finite differences")
// The letters by name: COMMAND_train is 't'.
enum Command : char {
#define X(name, letter, words, help) COMMAND_##name = letter,
    COMMANDS(X)
    #undef X
};
struct CommandRow {
    const char* name;
    char letter;
    const char *words, *help;
};
#define X(name, letter, words, help) { #name, letter, words, help },
static const CommandRow COMMAND_ROWS[] = { COMMANDS(X) };
#undef X

// A flag as data.
enum FlagKind { FLAG_LONG, FLAG_DOUBLE, FLAG_STR, FLAG_BOOL, FLAG_ARCH };
struct FlagRow {
    const char* cmds;                            // letters of the commands that take it, or T
    FlagGroup group;
    std::string name;
    char letter;                                 // its short form, 0 if it has none
    const char* help;
    double low, high;
    FlagKind kind;
    void* value;                                 // its place in a Flags
    bool* given;
    ArchRow arch;                                // of a row of ARCH

    // Tells whether the command takes the flag. A model's flags are those of check, too.
    bool of(char command) const {
        if (command == COMMAND_train && fixed()) { return true; }
        if (command == COMMAND_check && kind == FLAG_ARCH) { return true; }
        return strchr(cmds, command);
    }

    // Tells whether --resume has to keep the flag.
    bool fixed() const { return strchr(cmds, 'T'); }
};

// Returns every flag, those of ARCH too, with its place in *f.
std::vector<FlagRow> flag_rows(Flags* f);

// Tells whether the flag of this name was given on the command line.
bool flag_given(const Flags& flags, const char* name);

// Dies if one of these flags ("beta2 adam_eps") was given a value other than its
// default though nothing `reads` it. wanted: what would.
void reject_unused_flags(const Flags& flags, const char* names, bool reads, const char* wanted);

// Turns probe_len into --probe-len.
std::string flag_spelling(const std::string& name);

// Lists those of the flags `names` that are given, as they are typed: "--window 4 --skip-bad".
std::string flags_typed(const Flags& flags, const char* names);

// Sets a flag from a text. Ends the program, naming the flag as `spelled`, if the text is no value
// of it.
void flag_set(const FlagRow& r, const std::string& spelled, const std::string& text);

// Dies at two flags that contradict each other, such as a minimum above its maximum,
// and prints a note of one that another leaves without effect. Call it when the flags are settled.
// The table is in shell/bounds.cpp.
void bounds_check(const Flags& flags, char command);

// Prints --help: the flags of one command, in groups; or (0) the commands and where to go on.
void usage(char command);

// Prints what ./train_sink alone says: what there is, and three commands to try.
void welcome();

// Dies at a word that no command takes, and names the command that it resembles most.
void command_known(const Flags& f, char command);

// Reads the command line. *command: its letter. Ends the program at what it does not know.
Flags flags_parse(int argc, char** argv, char* command);

// Settles the kernel of all products of this process: --product's, or its processor's.
void product_settle(const Flags& f);

// Returns all flags of a command as JSON, as the log and state.json keep them.
std::string flags_json(Flags f, char command);

// Reads "1,2,5" as numbers. Ends the program, naming the flag as `spelled`, if it is anything else.
std::vector<double> flag_list(const char* spelled, const std::string& text);

// Returns the thresholds of --eps: shares, from 0 up to, not including, 1.
std::vector<double> eps_list(const Flags& f);

// Fills in from the preset what no flag has set; bb is that of a command line without one.
void preset_apply(Flags* f);

// Returns the model that the flags say. data_V: its vocabulary if no flag has one.
Arch arch_from_flags(Flags* f, int data_V);
#endif // FLAGS_H
