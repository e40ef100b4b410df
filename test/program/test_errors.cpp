/*
test_errors.cpp -- every mistake a user can make at the command line:
does it end with the right exit status (2 the user, 3 a loss that is not finite, 1 the machine),
name what it got and wanted, and leave what was there before? A new flag gets a row in the table;
bad data files are in test_data.cpp.
*/
#include "../check.h"
#include "../../flags.h"
#include <map>

static std::string dir, binary;
static const std::string TINY = " -b 8 -t 16 --bb-vocab 24 --width 16 --heads 2 --ffn-width 24 "
                          "--val-seqs 8 --probe-seqs 8 --probe-len 16 ";

static Ran here(const std::string& command) { return check_run("cd " + dir + " && " + command); }
static Ran train_sink(const std::string& args) {
    return here("timeout 30 " + binary + " " + args);
}  // a mistake that is taken would train
// `error: ...` and `---> HINT: ...`, nothing else on stderr but what a probe had begun, and the
// words that matter
static void check_refused(const Ran& r, int code, const std::string& what,
                          const std::string& says) {
    std::vector<std::string> lines = split(r.err, '\n');
    if (starts_with(lines[0], "note   measuring ")) { lines.erase(lines.begin()); }
    const bool form = lines.size() == 3 && starts_with(lines[0], "error: ") &&
                      lines[1].compare(0, 12, "---> HINT: ") > 0 && lines[1].size() > 14 &&
                      lines[2].empty();
    CHECK(r.code == code, "%s: exit status %d, wanted %d: %s", what.c_str(), r.code, code,
          r.err.c_str());
    CHECK(form, "%s: wanted an error and a hint, got: %s", what.c_str(), r.err.c_str());
    CHECK(r.says(says), "%s: wanted '%s', got: %s", what.c_str(), says.c_str(),
          r.err.c_str());
    // the page of the program has no flags: only who named no command is sent there
    const bool page = form && lines[1] == "---> HINT: ./train_sink --help";
    CHECK(!page || r.says("unknown command"), "%s: a hint that leads nowhere", what.c_str());
}
static void refused(const std::string& args, const std::string& says, int code = EXIT_USER) {
    check_refused(train_sink(args), code, "train_sink " + args, says);
}

// Checks the hint to the letter: it is what to type next.
static void hinted(const std::string& args, const std::string& hint) {
    check_ended(train_sink(args), EXIT_USER, args, "---> HINT: " + hint + "\n");
}

static void test_hints() {
    // a mistake without a hint of its own leads to the flags of the command that made it
    for (auto& c : COMMAND_ROWS) {
        hinted(std::string(c.name) + " --nothing-like-this 1",
               std::string("./train_sink ") + c.name + " --help");
    }
    hinted("-m 7B", "./train_sink train --help");
    hinted("--steps ten", "./train_sink train --help");
    hinted("generate run/step_4 --tokens ten", "./train_sink generate --help");
    hinted("probe run/step_4 -d short.txt --probe-from start",
           "--tokenizer tokenizer.json, or --tokenizer bytes");
    hinted("wibble", "./train_sink --help");
    // a flag of another command
    hinted("train --temperature 1", "a flag of generate: ./train_sink generate --help");
    hinted("score run/step_4 --probe-seqs 3",
           "a flag of train, probe and eval: ./train_sink train --help");
    hinted("eval run/step_4 --val-seqs 3", "a flag of train: ./train_sink train --help");
    hinted("train --temp 1", "--temperature is a flag of generate: ./train_sink generate --help");
    hinted("generate run/step_4 --temp 1", "did you mean --temperature?");
    // files
    hinted("score run/step_4", "make one: python3 scripts/tasks.py --help");
    hinted("score run/step_4 --task no.jsonl", "make one: python3 scripts/tasks.py --help");
    hinted("tokenize no.txt -o x", "ls *.txt *.jsonl*");
    hinted("tokenize shards/no.jsonl -o x", "ls shards");
    hinted("tokenize nowhere/no.jsonl -o x", "ls *.txt *.jsonl*");
    hinted("-d shards/no/no.jsonl", "ls shards; or leave --data out: the built-in task");
    hinted("-d no.txt", "ls *.txt *.jsonl*; or leave --data out: the built-in task");
    hinted("-d bb:2", "-d bb alone");
    hinted("-d pile_5B", "make shards: ./train_sink tokenize YOUR.txt -o data/pile_5B");
    hinted("tokenize", "./train_sink tokenize FILE... -o DIR");
    hinted("tokenize short.txt", "./train_sink tokenize short.txt -o data/NAME");
    hinted("export run/step_4", "./train_sink export run/step_4 -o my-model");
    // runs
    hinted("probe runs/mine", "there is no run yet: ./train_sink train -o runs/mine");
    make_dirs(dir + "/runs");
    hinted("train --resume", "./train_sink train --resume -o runs/NAME");
    hinted("train --resume -o runs/none", "ls runs; or leave --resume out: a new run begins there");
    hinted("train --resume -o magic/none", "ls magic; or leave --resume out: a new run begins there");
    for (const char* command : { "probe", "eval", "generate" }) {
        const std::string given = std::string(command) + " runs/";
        hinted(given + "demo-text-softmax", "make demo trains it");
        hinted(given + "demo-bb-k/step_800", "make demo-bb trains it");
        hinted(given + "mine", "ls -d runs/*/");
    }
    hinted("probe magic/no", "ls -d magic/*/");
    hinted("probe no-such-model", "ls -d */ *.gguf");
    rmdir((dir + "/runs").c_str());
}

static const struct {
    const char *args, *says;
} FLAGS[] = {
    { "--stpes 5", "did you mean --steps?" },
    { "--learning-rate 1", "did you mean --lr?" },
    { "--attn sigmoid", "ATTN is a switch of the build: make train_sink ATTN=sigmoid" },
    { "--precision=bf16", "make train_sink PRECISION=bf16" },
    { "--backend", "make train_sink BACKEND=VALUE" },
    { "--batch 1000000 --seq 100000", "fewer than 2^30 tokens" },
    { "--layers 0x10", "wanted a whole number" },
    { "bench -n 0", "--steps 0: wanted 1 or more" },
    { "bench --products --steps 1000 --layers 3", "--layers 3 has no effect without a bench of steps" },
    { "probe run/step_4 --probe-seqs -1", "--probe-seqs: got -1" },
    { "probe run/step_4 --prefix 4294967300", "--prefix: got 4294967300" },
    { "tokenize short.txt -o shards2 --skip-bad", "--skip-bad: got no .jsonl" },
    { "tokenize short.txt -o shards2 --threads 100000", "--threads: got 100000, wanted 0 to 4096" },
    { "-x", "unknown flag -x" },
    { "--", "unknown flag --" },
    { "--steps", "--steps needs a value" },
    { "--steps=", "--steps: got '', wanted a whole number" },
    { "--steps ten", "--steps: got 'ten', wanted a whole number" },
    { "--steps 1.5", "--steps: got 1.5, wanted a whole number" },
    { "--steps 99999999999999999999", "wanted a whole number" },
    { "--steps -1", "--steps: got -1, wanted 0 or more" },
    { "--resume=1", "--resume takes no value" },
    { "--resume", "--resume needs --out" },
    { "foo", "unknown command 'foo'" },
    { "trian", "did you mean train?" },
    { "--tokens 5", "--tokens: not a flag of this command" },
    { "bench --lr 1", "--lr: not a flag of this command" },
    { "--graph", "--graph: got a program of BACKEND=cpu, wanted one of BACKEND=cuda" },
    { "probe run/step_4 --hopper 1", "--hopper 1: got a program of BACKEND=cpu" },
    { "--product mmx", "--product: got 'mmx', wanted one that this processor has: any" },
    { "-m huge", "got 'huge', wanted one of bb nano small 60M 1B" },
    { "--width 30 --heads 4",
      "--width 30 --heads 4 --head-dim 0: wanted a width that the heads divide" },
    { "--width 36 --heads 4", "an even head size" },
    { "--heads 4 --kv-heads 3", "--kv-heads 3 --heads 4" },
    { "--kv-heads -1", "--kv-heads: got -1" },
    { "--layers -2", "--layers: got -2, wanted 0 to 10000" },
    { "--ffn-width -2", "--ffn-width: got -2" },
    { "--batch -3", "--batch: got -3" },
    { "--batch 100000000 --seq 100000", "--batch: got 100000000" },
    { "--seq -1", "--seq: got -1" },
    { "--vocab 10", "have 257 ids, the model has 10" },
    { "--total-batch 100", "--total-batch 100: wanted a multiple of batch * seq = 4096" },
    { "--attn-p 0", "--attn-p: got 0, wanted 1e-06 to 1000000" },
    { "--attn-p 2", "--attn-p 2: wanted ATTN=softmax_p" },
    { "--attn-clip 0.1", "--attn-clip 0.1: wanted ATTN=softmax_clip" },
    { "--attn-alpha 0", "--attn-alpha: got 0" },
    { "--norm-bias 0", "wanted --norm-kind ln, or leave it out" },
    { "--residual-scale 0", "--residual-scale: got 0" },
    { "--logit-divisor -2", "--logit-divisor: got -2" },
    { "--window 0", "--window 0: wanted 1 or more, or leave it out" },
    { "--window -1", "--window: got -1" },
    { "--prefix 64", "--prefix 64 --seq 64: wanted a prefix shorter" },
    { "--prefix -1", "--prefix: got -1" },
    { "--rope-factor 2", "--rope-factor 2 --rope-scaling none: wanted --rope-scaling linear" },
    { "--rope-scaling llama3 --rope-factor 2 --rope-low 4",
      "--rope-low 4 --rope-high 4: wanted low less than high" },
    { "--rope-local 500", "--rope-local 500 --window 0: wanted a window in some layers" },
    { "--window 8 --local-layers 0", "--window 8 has no effect without a 1 in --local-layers" },
    { "--layers 2 --window 8 --local-layers 001", "--window 8 has no effect without a 1 in --local-layers" },
    { "--rope-layers 0 --rope-base 500", "--rope-base 500 has no effect without a layer that rotates" },
    { "--rope-layers 0 --rope-part 0.5", "--rope-part 0.5 has no effect without a layer that rotates" },
    { "--window 8 --rope-local 500 --rope-base 77", "--rope-base 77 has no effect without a layer that rotates" },
    { "--window 8 --rope-local 500 --rope-scaling linear --rope-factor 4",
      "--rope-scaling linear has no effect without a layer that rotates" },
    { "--layers 2 --window 8 --local-layers 01 --rope-layers 10 --rope-local 500",
      "--rope-local 500 has no effect without a layer that has a window and rotates" },
    { "--random-token 1 --random-share 0", "--random-share 0 has no effect without a value above 0" },
    { "--rope-layers 0120", "--rope-layers 0120: wanted a pattern of 0 and 1" },
    { "--local-layers 10", "--local-layers 10 --window 0: wanted a window for those layers" },
    { "--attn-cap 30", "--attn-cap 30: wanted ATTN=softcap" },
    { "--bias-share all", "--bias-share: got 'all', wanted none or heads" },
    { "--k-dims 33", "--k-dims 33 --head-dim 32: wanted at most the head size" },
    { "--k-dims 4", "--k-dims 4 BIAS=none: wanted BIAS=k" },
    { "--v-star e2:1", "--v-star e2:1: wanted e1:M or ones:M" },
    { "--v-star e1:x", "--v-star e1:x: wanted e1:M" },
    { "--v-star e1:1", "--v-star e1:1 BIAS=none: wanted BIAS=k" },
    // nothing would read them
    { "--bos seq", "--bos seq has no effect without text: --data FILE" },
    { "--skip-bad", "--skip-bad has no effect without text" },
    { "--sample 5", "--sample 5 has no effect without text: --data FILE" },
    { "-d short.txt --skip-bad", "--skip-bad: got no .jsonl" },
    { "-d short.txt --bb-vocab 24", "--bb-vocab 24 has no effect without --data bb" },
    { "-d short.txt --bb-bos 0", "--bb-bos 0 has no effect without --data bb" },
    { "--sft-loss all", "--sft-loss all has no effect without --sft" },
    { "--min-lr 1e-5", "--min-lr 1e-05 has no effect without --schedule cosine or wsd" },
    { "--decay-steps 5", "--decay-steps 5 has no effect without --schedule wsd" },
    { "--schedule wsd --decay-steps 5 -n 4", "--decay-steps 5: wanted at most --steps 4" },
    { "--ema 1", "--ema 1: wanted less than 1" },
    { "--noise", "--noise, and 1 batches a step: wanted an even number of them" },
    { "--noise --only o_proj", "--noise has no effect without the gradients of all" },
    { "--factors :lr=2", "--factors :lr=2: wanted a word of one of these names" },
    { "--factors k:lr=2 --factors k:lr=3", "--factors k:lr=2,k:lr=3: wanted k:lr= once" },
    { "--factors o_proj:start=1e308", "--factors o_proj:start=1e308: wanted 0 or a magnitude" },
    { "--only k_proj,,o_proj", "--only : wanted a word of one of these names" },
    { "--only ''", "--only \"\": wanted a name" },
    { "--only k --only k", "--only k,k: wanted every word once" },
    { "--only proj", "--only proj: wanted a word of one of these names" },
    { "--only layers.", "--only layers.: wanted a word of one of these names" },
    // given twice
    { "--seed 1 --lr 1e-3 --seed 2", "--seed: got 1 and 2, wanted one value" },
    { "-n 5 --steps 6", "--steps: got 5 and 6, wanted one value" },
    { "--lr=1e-3 --lr 1e-3 --lr 0.00100000001", "--lr: got 0.001 and 0.00100000001, wanted one" },
    { "--window 8 --window=9", "--window: got 8 and 9, wanted one value" },
    { "-d a.txt -d b.txt", "--data: got \"a.txt\" and \"b.txt\", wanted one value" },
    { "--schedule wsd --schedule cosine", "--schedule: got \"wsd\" and \"cosine\"" },
    { "--eps 0.1 --eps 1.5", "--eps 1.5: wanted a fraction" },
    { "probe run/step_4 --probe-len 8 --probe-len 16", "--probe-len: got \"8\" and \"16\"" },
    { "generate run/step_4 -n 3 --tokens 4", "--tokens: got 3 and 4, wanted one value" },
    { "eval run/step_4 --bb-vocab 24 --stream 1+2 --stream 0+0", "--stream 0+0: wanted one key" },
    { "--factors o_proj", "--factors o_proj: wanted WORD:lr=NUMBER" },
    { "--factors o_proj:lr=2,", "--factors : wanted WORD:lr=NUMBER" },
    { "--factors o_proj:size=2", "--factors o_proj:size=2: wanted WORD:lr=NUMBER" },
    { "--factors o_proj:lr=two", "--factors o_proj:lr=two: wanted WORD:lr=NUMBER" },
    { "--factors out:lr=2", "--factors out:lr=2: wanted a word of one of these names" },
    { "--bias-layers 10", "--bias-layers 10 BIAS=none: wanted BIAS=kv, k, zero, logit or v" },
    { "--bias-layers 12", "--bias-layers 12: wanted a pattern of 0 and 1" },
    { "--optimizer sgd --beta2 0.9", "--beta2 0.9 has no effect without --optimizer adamw or muon" },
    { "--optimizer sgd --adam-eps 1", "--adam-eps 1 has no effect without --optimizer" },
    { "--rope-context 64", "--rope-context 64 has no effect without --rope-scaling llama3 or yarn" },
    { "--rope-scaling linear --rope-factor 2 --rope-high 8", "--rope-high 8 has no effect without --rope-scaling llama3" },
    { "--rope-scaling llama3 --rope-factor 2 --rope-fast 8", "--rope-fast 8 has no effect without --rope-scaling yarn" },
    { "--rope-low 2", "--rope-low 2 has no effect without --rope-scaling llama3" },
    { "--rope-scaling linear --rope-factor 2 --rope-slow 2", "--rope-slow 2 has no effect without --rope-scaling yarn" },
    { "--rope-length 2", "--rope-length 2 has no effect without --rope-scaling yarn" },
    { "--rope-round 0", "--rope-round 0 has no effect without --rope-scaling yarn" },
    { "bench --rope-high 8", "--rope-high 8 has no effect without --rope-scaling llama3" },
    { "check --rope-high 8", "--rope-high 8 has no effect without --rope-scaling llama3" },
    { "--bias-share heads", "--bias-share heads has no effect without BIAS=k, v or kv" },
    { "--sft segments", "--sft segments has no effect without text" },
    { "-d short.txt --bb-triggers 2", "--bb-triggers 2 has no effect without --data bb" },
    { "-d short.txt --bb-trigger-prob .5", "--bb-trigger-prob 0.5 has no effect without --data bb" },
    { "-d short.txt --bb-temp 3", "--bb-temp 3 has no effect without --data bb" },
    { "-d short.txt --bb-table 3", "--bb-table 3 has no effect without --data bb" },
    { "--bb-triggers 0 --bb-trigger-prob .5", "0.5 has no effect without --bb-triggers 1 or more" },
    { "--bin uint16", "--bin uint16 has no effect without a directory of .bin" },
    { "--bin float32", "--bin: got 'float32', wanted none, uint8, uint16, uint32 or uint64" },
    { "bench -d short.txt, -n 1", "'short.txt,': got an empty name" },
    { "-d short.txt:2,:1 -n 1", "--data :1: no such file or directory" },
    { "probe run/step_4 -d ,short.txt", "',short.txt': got an empty name" },
    { "tokenize short.txt --val short.txt, -o o", "'short.txt,': got an empty name" },
    { "tokenize short.txt '' -o o", "\"\": wanted the name of something" },
    { "tokenize short.txt --domains a,,b -o o", "--domains '': wanted the name of a domain" },
    { "--init= -n 1", "--init \"\": wanted a name, or leave it out" },
    { "-d short.txt --tokenizer '' -n 1", "--tokenizer \"\": wanted a name" },
    { "--fix-token 1:257", "--fix-token 1:257" },
    { "--fix-token 2:1 --random-token 2", "--fix-token 2:1: wanted one thing at position 2" },
    { "--fix-token 1:3,2:1,2:4", "--fix-token 2:4: wanted one thing at position 2" },
    { "--fix-token 66:1", "from 1 to T+1 = 65" },
    { "--fix-token 0:1", "--fix-token 0:1" },
    { "--fix-token a:b", "--fix-token a:b: wanted POS:ID" },
    { "--fix-token 1", "--fix-token 1: wanted POS:ID" },
    { "--random-token 0", "--random-token 0: wanted a position" },
    { "--random-token 66", "--random-token 66: wanted a position" },
    { "--random-share 0.5", "--random-share 0.5 has no effect without --random-token" },
    { "--random-token 1 --random-share 1.5", "--random-share: got 1.5, wanted 0 to 1" },
    { "--random-token 1.5", "--random-token 1.5: wanted a whole number" },
    { "--random-token 2,1,2", "--random-token 2,1,2: wanted every position only once" },
    { "-d short.txt --bos seq --random-token 1",
      "--bos seq --random-token 1: wanted one thing at position 1" },
    { "-d short.txt --bos seq --fix-token 2:0,1:0",
      "--bos seq --fix-token 2:0,1:0: wanted one thing at position 1" },
    { "--rope-scaling linear", "--rope-scaling linear has no effect without --rope-factor other than 1" },
    { "bench --rope-scaling yarn", "--rope-scaling yarn has no effect without --rope-factor other than 1" },
    { "--heads 4 --alibi-slopes published", "--alibi-slopes published has no effect without PE=alibi" },
    { "probe run/step_4 --bb-vocab 24 --seed 2", "--seed 2 has no effect without --probe-input random" },
    { "eval run/step_4 --bb-vocab 24 --seed 2", "--seed 2 has no effect without --probe-input random" },
    { "-d short.txt --bos maybe", "--bos maybe: wanted none, seq or doc" },
    { "--bb-vocab 1", "--bb-vocab: got 1, wanted 2 to 65535" },
    { "--bb-vocab 100000000", "--bb-vocab: got 100000000" },
    { "--bb-triggers 255", "255 triggers" },
    { "--bb-triggers 300", "--bb-triggers 300" },
    { "--optimizer adam", "--optimizer: got 'adam', wanted adamw, sgd or muon" },
    { "--schedule linear", "--schedule: got 'linear', wanted constant, cosine or wsd" },
    { "--lr -1", "--lr: got -1" },
    { "--lr nan", "--lr: got 'nan', wanted a number" },
    { "--lr 1e999", "--lr: got '1e999', wanted a number" },
    { "--warmup -1", "--warmup: got -1" },
    { "--beta1 1", "--beta1 1: wanted less than 1" },
    { "--beta2 -0.1", "--beta2: got -0.1, wanted 0 to 1" },
    { "--weight-decay -1", "--weight-decay: got -1" },
    { "--min-lr -1", "--min-lr: got -1" },
    { "--grad-clip -1", "--grad-clip: got -1" },
    // as floats these would be 0, 1 or infinite
    { "--grad-clip 1e-300", "--grad-clip: got 1e-300, wanted 0 or a magnitude from 1e-37 to 1e38" },
    { "--lr 1e39", "--lr: got 1e39, wanted 0 or a magnitude from 1e-37 to 1e38" },
    { "--weight-decay 1e39", "--weight-decay: got 1e39, wanted 0 or a magnitude" },
    { "--adam-eps 1e-60", "--adam-eps: got 1e-60, wanted 0 or a magnitude" },
    { "--beta1 0.99999999999", "--beta1 1: wanted less than 1" },
    { "--beta2 0.99999999999", "--beta2 1: wanted less than 1" },
    // two flags that contradict each other: run/flag_rules.cpp
    { "--schedule cosine --lr 4e-4 --min-lr 0.1", "--min-lr 0.1: wanted at most --lr 0.0004" },
    { "--schedule cosine --min-lr 1", "--min-lr 1: wanted at most --lr 0.0004" },
    { "--schedule cosine --lr 0 --min-lr 1e-9", "--min-lr 1e-09: wanted at most --lr 0" },
    { "--min-context 65", "--min-context 65: wanted at most --seq 64" },
    { "--seq 8 --min-context 9", "--min-context 9: wanted at most --seq 8" },
    { "--min-context 9 --max-context 8", "--max-context 8: wanted at least --min-context 9" },
    { "--train-tokens 63", "--train-tokens 63: wanted at least --seq 64" },
    { "--bb-triggers 256", "--bb-triggers 256: wanted less than --bb-vocab 256" },
    { "--bb-triggers 5 --bb-trigger-prob .2", "5 triggers of probability 0.2" },
    { "--rope-scaling yarn --rope-factor 2 --rope-slow 40",
      "--rope-slow 40 --rope-fast 32: wanted slow at most" },
    { "--rope-scaling llama3 --rope-factor 2 --rope-high 0.5",
      "--rope-high 0.5: wanted low less than high" },
    { "--fix-token 2:1,2:1", "one thing at position 2" },
    // what is too small or too large to be computed with
    { "--lr 1e-320", "--lr: got 1e-320, wanted 0 or a magnitude from 1e-37" },
    { "--lr 1e-400", "--lr: got 1e-400, wanted 0 or a magnitude from 1e-37" },
    { "--weight-decay 1e-40", "--weight-decay: got 1e-40, wanted 0 or" },
    { "--logit-cap 1e-320", "--logit-cap: got 1e-320, wanted 0 or" },
    { "--adam-eps 0", "--adam-eps: got 0, wanted 1e-30 or more" },
    { "--steps 4611686018427387904", "got 4611686018427387904, wanted 0 to 1e+15" },
    { "--eps -1", "--eps -1: wanted a fraction" },
    { "--eps 0.3,1e99", "--eps 1e+99: wanted a fraction" },
    { "--eps 1", "--eps 1: wanted a fraction" },
    { "--eps 0.3,1e-320", "--eps 1e-320: wanted 0 or a magnitude" },
    { "--logit-cap 1e-60", "--logit-cap: got 1e-60, wanted 0 or a magnitude from 1e-37" },
    { "--score-scale 1e-60", "--score-scale: got 1e-60, wanted 0 or a magnitude from 1e-37" },
    { "--eval-every -1", "--eval-every: got -1" },
    { "--save-every -1", "--save-every: got -1" },
    { "--stop-after -1", "--stop-after: got -1" },
    { "--eps x", "--eps: got 'x', wanted numbers separated by commas" },
    { "--eps ''", "--eps: wanted a threshold" },
    { "--probe-len 0", "--probe-len 0" },
    { "--probe-len 8,16", "--probe-len 8,16: wanted a number" },
    { "--probe-seqs 0", "--probe-seqs: got 0, wanted 1 to" },
    { "--val-seqs 0", "--val-seqs: got 0" },
    { "--train-tokens -5", "--train-tokens: got -5" },
    { "-d \"\"", "--data \"\": wanted bb, a file" },
    { "--tokenizer t.json", "--tokenizer t.json has no effect without text" },
    { "-d nowhere", "--data nowhere: no such file or directory" },
    { "-d nowhere.txt", "no such file or directory" },
    { "-d bb,bb", "cannot be mixed" },
    { "-d empty.txt", "got an empty file" },
    { "-d short.txt", "short.txt: got 6 tokens, wanted at least T+1 = 129" },
    { "-d bad.jsonl", "bad.jsonl: line 2: byte 10" },
    { "-o run", "run: already holds a run" },
    { "-o run/log.jsonl", "run/log.jsonl: cannot create this directory" },
    { "probe", "got 0 checkpoints, wanted one" },
    { "probe run/step_4 run/step_4", "got 2 checkpoints, wanted one" },
    { "probe nowhere", "nowhere: no such directory" },
    { "probe shards", "shards: has no config.json, so it is not a checkpoint" },
    { "probe shards", "in this one: train.bin" },
    { "--save-minutes -1", "--save-minutes: got -1" },
    { "--save-optimizer some", "--save-optimizer: got 'some', wanted last, all or none" },
    { "--print-every -1", "--print-every: got -1" },
    { "probe run/step_4 -d bb", "the data have 257 ids, the model has 25" },
    { "probe run/step_4 -d short.txt", "the checkpoint has no tokenizer to read text with" },
    { "probe run/step_4 --probe-from end", "--probe-from: got 'end', wanted start or windows" },
    { "probe run/step_4 --probe-from start", "--probe-from start of bb: wanted a .jsonl" },
    { "probe run/step_4 --probe-input random --bos seq", "wanted --probe-input natural" },
    { "probe run/step_4 --probe-input random -d bb", "wanted --probe-input natural" },
    { "probe run/step_4 --probe-input random --skip-bad", "--skip-bad with --probe-input random" },
    { "probe run/step_4 --probe-input random --sft segments", "wanted --probe-input natural" },
    { "probe run/step_4 --probe-input repeated --bb-temp 3", "--bb-temp with --probe-input" },
    { "probe run/step_4 --probe-input random --random-token 1", "wanted --probe-input natural" },
    { "eval run/step_4 --probe-input random --random-share 0.5", "wanted --probe-input natural" },
    { "probe run/step_4 --probe-input random --probe-from start", "--probe-from with --probe-input" },
    { "probe run/step_4 --json nowhere/x.json", "nowhere/x.json: cannot write (No such file" },
    { "probe run/step_4 -d ./short.txt:2 --json short.txt", "short.txt: already an input" },
    { "probe run/step_4 --json run", "run: got a directory, wanted a file" },
    { "probe run/step_4 --dump run/log.jsonl", "run/log.jsonl: cannot create this directory" },
    { "bench --json nowhere/x.json", "nowhere/x.json: cannot write" },
    { "--resume -o nothere", "nothere: no such directory, so there is no run" },
    { "probe run/step_4 --bb-vocab 24 --probe-input odd",
      "--probe-input: got 'odd', wanted natural, random or repeated" },
    { "probe run/step_4 --bb-vocab 24 --probe-len 8,x", "--probe-len x" },
    { "probe run/step_4 --bb-vocab 24 --prefix 64", "prefix 64: wanted less than --probe-len" },
    { "probe run/step_4 --bb-vocab 24 --prefix -1", "--prefix: got -1" },
    { "probe run/step_4 --bb-vocab 24 --window 0", "--window 0: wanted 1 or more" },
    { "probe run/step_4 --bb-vocab 24 --dump d --dump-heads 1:0",
      "--dump-heads 1:0: wanted LAYER:HEAD with layers 0..0, heads 0..1" },
    { "probe run/step_4 --bb-vocab 24 --dump d --dump-heads 0",
      "--dump-heads 0: wanted LAYER:HEAD" },
    { "probe run/step_4 --bb-vocab 24 --dump d --dump-seq 100", 
      "--dump-seq 100: wanted less than --probe-seqs 100" },
    { "probe run/step_4 --bb-vocab 24 --tokenizer /nonexistent", "has no effect without text" },
    { "eval run/step_4 --bb-vocab 24 --tokenizer /nonexistent", "has no effect without text" },
    { "probe run/step_4 --probe-input random --tokenizer t.json", "wanted --probe-input natural" },
    { "probe run/step_4 --bb-vocab 24 --eps -1", "--eps -1: wanted a fraction" },
    { "eval run/step_4 --bb-vocab 24 --stream 0+0", "--stream 0+0: wanted one key or more" },
    { "eval run/step_4 --bb-vocab 24 --quant w8a8 --quant-keep 16",
      "--quant-keep 16: wanted less than the 16 tokens" },
    { "eval run/step_4 --bb-vocab 24 --edit h:0:1=1e-320", "--edit: got" },
    { "eval run/step_4 --edit h:0:1=x2 --edit ''", "--edit \"\": wanted a name" },
    { "probe run/step_4 --bb-vocab 24 --dump-seq 1", "--dump-seq 1 has no effect without --dump DIR" },
    { "probe run/step_4 -d short.txt --tokenizer bytes --bb-vocab 24",
      "--bb-vocab 24 has no effect without --data bb" },
    { "probe run/step_4 --bb-vocab 24 --dump-heads all", "--dump-heads all has no effect without --dump DIR" },
    { "probe run/step_4 --bb-vocab 24 --per-sequence", "--per-sequence has no effect without --json FILE" },
    { "probe run/step_4 --bb-vocab 24 --json run/../run/step_4/config.json",
      "already an input or output" },
    { "generate run/step_4 --temperature 0 --top-k 5", "--top-k 5 has no effect without --temperature above 0" },
    { "eval run/step_4 --quant-keep 1", "--quant-keep 1 has no effect without --quant" },
    { "eval run/step_4 --quant w8a8 --calibrate 8", "--calibrate 8 has no effect without --quant with :static" },
    { "generate", "got 0 checkpoints" },
    { "generate run/step_4 --prompt hello", "--prompt hello: wanted token ids 0..24" },
    { "generate run/step_4 --prompt '1 25'", "--prompt 25: wanted token ids 0..24" },
    { "generate run/step_4 --top-k -1", "--top-k: got -1" },
    { "generate run/step_4 --temperature -1", "--temperature: got -1" },
    { "generate run/step_4 --tokens -1", "--tokens: got -1" },
};
static void test_flags() {
    file_write(dir + "/empty.txt", "");
    file_write(dir + "/short.txt", "12345");
    train_sink("-d short.txt");                          // keeps the tokens, and says so once
    file_write(dir + "/bad.jsonl",
               "{\"text\": \"" + std::string(9000, 'a') + "\"}\n{\"text\": oops}\n");
    make_dirs(dir + "/shards"); make_dirs(dir + "/magic");
    file_write(dir + "/shards/train.bin", "ids");
    for (auto& f : FLAGS) { refused(f.args, f.says); }
    for (auto& name : dir_list(dir)) {
        CHECK(name != "runs" && name != "d" && name != "nothere",
              "a refused command line left %s/", name.c_str());
    }
}
// no number of any flag, of any command, may wrap around: the first one that is too large
// for its place has to be refused
// the flags that are no property of a model, as their table has them
static const struct { const char *cmds, *name; FlagGroup group; } FLAG_TABLE[] = {
    #define X(cmds, group, type, name, ...) { cmds, #name, GROUP_##group },
    FLAGS(X)
    DATA_FLAGS(X)
    #undef X
};
static std::string spelled(const char* name) {
    std::string flag = std::string("--") + name;
    for (auto& ch : flag) { if (ch == '_') { ch = '-'; } }
    return flag;
}

// --help of each command: every flag that it takes once, under the title of its group
static void test_help() {
    std::vector<std::string> titles;
    for (auto title : GROUP_TITLES) { titles.push_back(title); }
    std::map<std::string, bool> taken;
    for (auto& c : COMMAND_ROWS) {
        std::string under;
        std::map<std::string, std::string> found;
        for (auto& line : split(train_sink(std::string(c.name) + " --help").out, '\n')) {
            const size_t at = line.find("--");
            if (std::count(titles.begin(), titles.end(), line)) { under = line; }
            if (at > 6 || line.find("--help") == at) { continue; }
            const std::string flag = line.substr(at, line.find(' ', at) - at);
            CHECK(!found.count(flag), "%s --help lists %s twice", c.name, flag.c_str());
            found[flag] = under;
        }
        for (auto& r : FLAG_TABLE) {
            const std::string flag = spelled(r.name), title = titles[r.group];
            const bool mine = strchr(r.cmds, c.letter) || (c.letter == 't' && strchr(r.cmds, 'T'));
            taken[flag] |= mine;
            CHECK((bool)found.count(flag) == mine, "%s --help: %s", c.name, flag.c_str());
            CHECK(!mine || found[flag] == title, "%s --help: %s is under '%s', wanted %s", c.name,
                  flag.c_str(), found[flag].c_str(), title.c_str());
        }
        if (c.letter != 't') { continue; }
        CHECK(found["--lr"] == "training" && found["--layers"] == "model", "train --help's groups");
    }
    for (auto& [flag, by] : taken) { CHECK(by, "%s is in no command's --help", flag.c_str()); }
}

// The line of a flag in --help of a command.
static std::string help_line(const std::string& command, const std::string& flag) {
    for (auto& line : split(train_sink(command + " --help").out, '\n')) {
        if (line.find(flag + " ") < 8) { return line; }
    }
    return "";
}

// A flag that means other things to other commands says what it means to this one.
static void test_help_lines() {
    const struct { const char *command, *flag, *says, *not_; } LINES[] = {
        { "train", "--out", "of the run", "shards" },   { "tokenize", "--out", "shards", "run" },
        { "export", "--out", "model", "run" },          { "train", "--bos", "seq or doc", "token" },
        { "tokenize", "--bos", "none or doc", "seq" },  { "score", "--bos", "[default]", "probe" },
        { "probe", "--bos", "or a token", "score" },    { "eval", "--bos", "or a token", "score" },
        { "generate", "--seed", "tokens", "weights" },  { "bench", "--json", "times", "eval" },
        { "score", "--json", "scores", "bench" },       { "train", "--probe-len", "length", "list" },
        { "probe", "--probe-len", "a list", "probe takes" },
    };
    for (auto& l : LINES) {
        const std::string line = help_line(l.command, l.flag);
        CHECK(contains(line, l.says) && !contains(line, l.not_),
              "%s --help: '%s', wanted '%s' and no '%s'", l.command, line.c_str(), l.says, l.not_);
    }
}

static void test_ranges() {
    const std::vector<std::pair<std::string, char>> commands = { { "train", 't' },
                                                                 { "probe x", 'p' },
                                                                 { "generate x", 'g' },
                                                                 { "tokenize x", 'k' },
                                                                 { "bench", 'b' } };
    long tried = 0;
    const char* unbounded[] = { "--train-tokens", "--bb-table", "--steps", "--warmup", "--decay-steps",
                                "--eval-every", "--save-every", "--seed", "--total-batch",
                                "--print-every" };
    const char* numbers[] = { "--lr", "--min-lr", "--adam-eps", "--weight-decay", "--grad-clip",
                              "--stop-after", "--save-minutes", "--temperature", "--rope-base",
                              "--rope-local" };
    for (auto& c : commands) {
        const std::string help = train_sink(c.first + " --help").out;
        for (auto& line : split(help, '\n')) {
            const size_t at = line.find("--"), end = line.find(' ', at), value = line.rfind(" [");
            double unused;
            const bool number = at < 8 && value != std::string::npos &&
                                parse_double(line.substr(value + 2, line.size() - value - 3),
                                             &unused);
            if (!number || contains(line, "list") ||
                line.find("--probe-len") < end) {
                continue;
            }
            const std::string flag = line.substr(at, end - at);
            const bool wide = has(unbounded, flag), real = has(numbers, flag);
            for (const char* v : { "-9223372036854775808", "-1", "2147483648", "4294967296",
                                   "9223372036854775807" }) {
                const bool may_be_below_0 = flag == "--attn-bias-init" || flag == "--init-logit";
                if ((wide && strlen(v) == 10) || (real && v[0] != '-') ||
                    (may_be_below_0 && v == std::string("-1"))) {
                    continue;
                }
                refused(c.first + " " + flag + " " + v, flag + ": got " + v);
                tried++;
            }
        }
    }
    CHECK(tried > 300, "ranges: only %ld were tried", tried);
}
static void test_answers() { // beside its model an answer may be written, and written again
    const std::string probe = "probe run/step_4 --bb-vocab 24 --probe-len 8 --probe-seqs 2 --json ";
    for (int time = 0; time < 2; time++) {
        const Ran r = train_sink(probe + "run/step_4/probe.json");
        check_ended(r, 0, strf("an answer beside its model, time %d", time + 1));
    }
    for (const char* name : { "config.json", "optimizer.safetensors", "state.json" }) {
        refused(probe + "run/step_4/" + name, "already an input or output");
    }
    unlink((dir + "/run/step_4/probe.json").c_str());
    // no answer takes the place of a file of this run, of another, of a model or of shards; nor a
    // name that would be taken for one; by whatever name or link
    here("cp -r run other && echo 1 host > other/lock && "
              "mkdir -p model data && cp run/step_4/model.safetensors model/a.safetensors && "
              "cp run/step_4/config.json model && "
              "echo mine > other/notes.txt && echo mine > other/step_4/plot.png && "
              "echo > data/manifest.json && echo > data/train_000000.bin && "
              "echo > data/tokenizer.json && ln -s other/log.jsonl answer.json && "
              "mkdir -p maps other/deep/er && ln -s ../other/step_4/model.safetensors maps/0_1_cosine.npy");
    const std::string before = here("find other model data | sort").out;
    for (const char* name :
         { "run/log.jsonl", "run/lock", "run/step_9", "run/step_4/../log.jsonl", "other/log.jsonl",
           "other/lock", "other/notes.txt", "other/step_4/plot.png", "other/step_4/model.safetensors",
           "other/step_4/tokenizer.json", "other/step_4/new.safetensors", "other/deep/er/lock",
           "model/a.safetensors", "model/config.json", "model/b.safetensors",
           "model/tokenizer.json",
           "data/train_000000.bin", "data/train_000001.bin", "data/manifest.json",
           "data/tokenizer.json", "answer.json", "other/after.json" }) {
        const std::string work = "is a file of a run, a model or shards, or would be taken for",
                          eval = "eval" + probe.substr(strlen("probe"));
        for (auto& command :
             { probe, eval,
               std::string("bench --layers 1 --width 8 --heads 1 --ffn-width 8 -n 1 --json ") }) {
            const Ran r = train_sink(command + name);
            CHECK(r.code == EXIT_USER && (r.says(work) || r.says("already an input")),
                  "%s%s: %d %s", command.c_str(), name, r.code, r.err.c_str());
        }
    }
    refused("probe run/step_4 --bb-vocab 24 --dump maps --dump-heads 0:0,0:1",
            "maps/0_1_cosine.npy: is a file");
    const Ran same = here("cmp run/log.jsonl other/log.jsonl && cmp "
                               "run/step_4/model.safetensors other/step_4/model.safetensors");
    CHECK(same.code == 0 &&
              here("find other model data | sort").out == before,
          "a refused answer changed a file");
    for (const char* name : { "other/answer.json", "other/step_4/items.jsonl", "model/p.json",
                              "other/deep/er/p.json", "data/p.json" }) {
        CHECK(train_sink(probe + name).code == 0 && train_sink(probe + name).code == 0,
              "an answer %s, twice", name);
    }
    here("rm -r other model data maps answer.json");
}
static void test_export() { // what was written says how it is opened
    const std::string train = std::string("train -n 1 --sample 0 ") + TINY;
    train_sink(train + "-o plain");
    train_sink(train + "--attn-alpha 0.5 -o alpha");
    const Ran plain = train_sink("export plain -o plain-out"),
              ours = train_sink("export alpha -o alpha-out");
    CHECK(plain.says("as LlamaForCausalLM\n") && !plain.says("trust_remote_code"), "%s",
          plain.said().c_str());
    CHECK(ours.says("with trust_remote_code=True\n"), "%s", ours.said().c_str());
    here("rm -r plain alpha plain-out alpha-out");
}
static void test_resume() { // a run goes on only as what it was
    const std::string resume = TINY + "-n 8 -o run --resume ";
    refused(flags_once(resume + "--width 32"), "has --width 16, got 32");
    refused(resume + "--seed 5", "--seed: got 5, wanted 1 as before");
    refused(resume + "--window 3", "has --window 0, got 3");
}
// a copy of the checkpoint in which one file is changed
static void damaged(const char* file, const std::string& content, const std::string& says,
                    const char* what, bool probed = true) {
    remove_tree(dir + "/damaged");
    check_run("cp -r " + dir + "/run " + dir + "/damaged");
    file_write(dir + "/damaged/step_4/" + file, content);
    const Ran r = train_sink(TINY + "-n 8 -o damaged --resume");
    check_refused(r, EXIT_USER, std::string(what) + ", --resume", says);
    CHECK(file_read(dir + "/damaged/log.jsonl") == file_read(dir + "/run/log.jsonl"),
          "%s: a refused --resume changed the log", what);
    if (probed && strcmp(file, "optimizer.safetensors") && strcmp(file, "state.json")) {
        refused("probe damaged/step_4 --bb-vocab 24", says);
    }
}
static void test_checkpoints() {
    const std::string at = dir + "/run/step_4/", config = file_read(at + "config.json"),
                      model = file_read(at + "model.safetensors"),
                      opt = file_read(at + "optimizer.safetensors");
    damaged("config.json",
            replaced(config, "\"attn\": \"softmax\"", "\"attn\": \"sigmoid\", \"bias\": \"k\""),
            "make train_sink ATTN=sigmoid BIAS=k PE=rotary", "a checkpoint of other switches");
    damaged("config.json",
            replaced(config, "\"attn\": \"softmax\"", "\"attn\": \"sigmoid; rm -rf ~\""),
            "attn is \"sigmoid; rm -rf ~\", wanted one of: softmax", "a command in a switch");
    CHECK(!train_sink("probe damaged/step_4").says("make train_sink"),
          "text of a checkpoint reached a command");
    damaged("config.json", config.substr(0, 100), "config.json: not JSON", "config.json cut short");
    // as cp -r step_2 step_4 leaves it: the run would be done two updates too early
    damaged("state.json", replaced(file_read(at + "state.json"), "\"step\": 4", "\"step\": 2"),
            "state.json: step 2: wanted step 4, as the directory is called", "another step");
    damaged("config.json", replaced(config, "\"hidden_size\": 16", "\"hidden_size\": 0"),
            "hidden_size", "no width");
    damaged("config.json",
            replaced(config, "\"num_hidden_layers\": 1,", "\"num_hidden_layers\": 900000000,"),
            "num_hidden_layers", "a billion layers");
    damaged("config.json",
            replaced(config, "\"num_attention_heads\": 2", "\"num_attention_heads\": 3"),
            "a number that divides the heads", "heads that do not divide");
    damaged("config.json", replaced(config, "\"attn\":", "\"atn\":"),
            "the key 'atn' is not understood", "no attn");
    damaged("model.safetensors", "", "model.safetensors: got 0 bytes", "an empty file");
    CHECK(train_sink(TINY + "-n 8 -o damaged --resume")
              .says("there is no checkpoint before damaged/step_4: start another run"),
          "a damaged checkpoint: no way out in the hint");
    damaged("model.safetensors", model.substr(0, model.size() - 4), "does not fit its shape",
            "cut short by a number");
    damaged("model.safetensors", model + "1234", "the tensors end at byte", "four bytes too many");
    damaged("model.safetensors", model.substr(0, 20), "header says", "cut short in its header");
    damaged("model.safetensors", std::string(8, '\xff') + model.substr(8), "header says",
            "a header of 2^64 bytes");
    damaged("model.safetensors", replaced(model, "{\"__meta", "[\"__meta"), "not a JSON object",
            "a header that is not JSON");
    damaged("model.safetensors", replaced(model, "\"shape\":[25,16]", "\"shape\":[26,16]"),
            "does not fit its shape", "a shape that lies");
    damaged("model.safetensors", replaced(model, "\"dtype\":\"F32\"", "\"dtype\":\"F64\""),
            "does not fit its shape", "a dtype that lies");
    damaged("model.safetensors",
            replaced(model, "\"data_offsets\":[0,1600]", "\"data_offsets\":[9,1609]"),
            "begins at byte 9 of the data, wanted 0", "an offset in the middle of a number");
    damaged("model.safetensors", replaced(model, "\"shape\":[25,16]", "\"shape\":[16,25]"),
            "has shape ( 16 25 ), wanted ( 25 16 )", "a transposed tensor");
    damaged("model.safetensors", replaced(model, "lm_head", "ln_head"),
            "has no tensor 'lm_head.weight'", "a tensor of another name");
    damaged("optimizer.safetensors", opt.substr(0, opt.size() - 1), "optimizer.safetensors: tensor",
            "the optimizer cut short");
    damaged("optimizer.safetensors", replaced(opt, "\"v.lm_head", "\"w.lm_head"),
            "has no tensor 'v.lm_head.weight'", "the optimizer without a tensor");
    for (const std::string name : { "model", "optimizer" }) {
        std::string flipped = name == "model" ? model : opt;
        flipped[flipped.size() - 3] ^= 1;
        damaged((name + ".safetensors").c_str(), flipped,
                name + ".safetensors: its numbers have changed", "one flipped bit", false);
    }
    damaged("state.json", "{\"step\": 4", "state.json: not JSON", "state.json cut short");
    damaged("state.json", "{\"step\": 4}", "the position in the data",
            "state.json without a position");
    // a length that follows from the factor is left out: others would multiply by 0
    for (const std::string length : { "", "1.5" }) {
        train_sink(TINY + "-n 1 --rope-scaling yarn --rope-factor 2 -o yarn" + length +
                   (length.empty() ? "" : " --rope-length " + length));
        const std::string says = file_read(dir + "/yarn" + length + "/step_1/config.json");
        CHECK(contains(says, "attention_factor") != length.empty(),
              "the config of yarn, length '%s': %s", length.c_str(), says.c_str());
        CHECK(train_sink("probe yarn" + length + "/step_1").code == 0, "probe of yarn");
    }
    // what transformers may open as LLaMA is told apart, and a tensor that no row of the
    // config asks for is refused
    train_sink(TINY + "-n 1 --head-bias 1 -o biased");
    const std::string biased = dir + "/biased/step_1/config.json", said = file_read(biased);
    CHECK(contains(config, "\"LlamaForCausalLM\""),
          "the default model does not call itself LLaMA: %s", config.c_str());
    CHECK(contains(said, "\"TrainSink\""),
          "a model with a bias at its head calls itself LLaMA: %s", said.c_str());
    file_write(biased, replaced(said, "\"head_bias\": 1", "\"head_bias\": 0"));
    refused("probe biased/step_1 --bb-vocab 24",
            "holds the tensor 'lm_head.bias', which this model does not have");
    unlink((at + "model.safetensors").c_str());
    refused("probe run/step_4 --bb-vocab 24", "has no weights");
    file_write(at + "model.safetensors", model);
}
// a model of NaN is no model without a sink: exit status 3 and the first place
static void test_notes() { // a bound that is passed without harm: a note, and the run goes on
    static const struct { const char *args, *says; } rows[] = {
        { "--warmup 3", "" },
        { "--warmup 4", "note   --warmup 4 is more than --steps 3: the run ends before --lr" },
        { "--warmup 0 --window 15", "" },
        { "--warmup 0 --window 16", "note   --window 16 is not less than --seq 16" },
        { "--warmup 0 --save-every 3", "" },
        { "--warmup 0 --save-every 4", "note   --save-every 4 is more than --steps 3" },
        { "--warmup 0 --eval-every 9", "note   --eval-every 9 is more than --steps 3" },
        { "--warmup 0 --schedule cosine --lr 1e-3 --min-lr 1e-3", "" },
    };
    for (auto& row : rows) {
        const Ran r = train_sink(TINY + "-n 3 " + row.args + " -o noted");
        check_ended(r, 0, row.args);
        const bool noted = contains(r.out, *row.says ? row.says : "note   --");
        CHECK(noted == (bool)*row.says, "%s: wanted '%s': %s", row.args, row.says, r.out.c_str());
        check_run("rm -rf " + dir + "/noted");
    }
    // of one token there is no rest
    const Ran one = train_sink("-b 8 -t 1 --width 16 --val-seqs 8 --probe-seqs 8 -n 1 -o one");
    CHECK(one.code == 0 && contains(one.out, "h first/rest - | v first/rest -") &&
              !contains(one.out, "nan "),
          "a sequence of one token: %s", one.said().c_str());
}
// weights that overflow, and that are not finite, behind a ReLU, which makes 0 of NaN
static void test_not_finite() {
    here("rm -rf deep && " + binary + TINY + "--layers 3 -n 1 -o deep && "
              "sed -i s/silu/relu/ deep/step_1/config.json");
    const std::string path = dir + "/deep/step_1/model.safetensors", model = file_read(path);
    const std::string state = dir + "/deep/step_1/state.json";
    // or a note says what is done here
    file_write(state, replaced(file_read(state), "\"numbers\"", "\"changed\""));
    uint64_t header; memcpy(&header, model.data(), 8);
    const char* gate = "model.layers.1.mlp.gate_proj.weight";
    const struct {
        const char *tensor, *says;
        float x = 3e38;
    } rows[] = { { "model.layers.1.mlp.up_proj.weight", "first in the FFN of layer 1" },
                 { "model.layers.2.self_attn.q_proj.weight", "first in the attention of layer 2" },
                 { "model.norm.weight", "first in the last norm" },
                 { "lm_head.weight", "first in the head" },
                 { gate, "gate_proj.weight' holds NaN or infinity", NAN } };
    for (auto& row : rows) {
        std::string bad = model;
        const size_t name = bad.find("\"" + std::string(row.tensor) + "\""),
                     at = bad.find("data_offsets\":[", name) + 15;
        const size_t begin = 8 + header + atol(&bad[at]),
                     bytes = atol(&bad[bad.find(',', at) + 1]) - atol(&bad[at]);
        for (size_t i = 0; i < bytes; i += 4) { memcpy(&bad[begin + i], &row.x, 4); }
        file_write(path, bad);
        for (const char* args : { "probe deep/step_1", "probe deep/step_1 --probe-input random",
                                  "generate deep/step_1 --tokens 3 --prompt 5" }) {
            refused(args, row.says, EXIT_DIVERGED);
        }
    }
}
// a descriptor that nobody opened is the number of the next file: no text goes into that one
static void test_closed() {
    const Ran r = here(binary + TINY +
                            "-n 300 --eval-every 0 --save-every 0 -o closed <&- >&- 2>&-");
    CHECK(r.code == 0, "standard input, output and errors closed: exit %d", r.code);
    long lines = 0, others = 0;
    for (auto& line : split(file_read(dir + "/closed/log.jsonl"), '\n')) {
        Json j; std::string error;
        lines++;
        others += !line.empty() && !json_parse(line.data(), line.size(), &j, &error);
    }
    CHECK(lines > 300 && !others, "%ld of %ld lines of the log are something else", others, lines);
}

// an update that nothing comes after may diverge too
static void test_last_update() {
    const Ran r = train_sink(TINY +
                             "--lr 1e38 --weight-decay 10 --warmup 0 -n 1 -o last");
    check_refused(r, EXIT_DIVERGED, "the last update", "the validation loss after step 1 is not");
    CHECK(!file_exists(dir + "/last/step_1"), "a model that is not finite was saved as done");
}

// a disk that is full is imitated by a limit on the size of files: 20 KiB hold the weights,
// not the optimizer
static void test_disk() {
    const std::string limit = "trap '' XFSZ && ulimit -f 40 && ";
    Ran r = here(limit + binary + TINY + "-n 8 -o run --resume");
    check_refused(r, EXIT_MACHINE, "a full disk", "optimizer.safetensors: cannot write");
    CHECK(r.says("run again with --resume"), "a full disk: %s", r.err.c_str());
    CHECK(!file_exists(dir + "/run/step_8"), "a full disk left step_8");
    r = here(limit + binary + TINY + "-n 4 -o run4 --save-every 0");
    check_refused(r, EXIT_MACHINE, "a full disk from the start", "cannot write");
    CHECK(r.says("start over in another --out"), "a full disk from the start: %s", r.err.c_str());
    // and nobody ignores the signal for us
    r = here("ulimit -f 40 && " + binary + TINY + "-n 4 -o run6");
    check_refused(r, EXIT_MACHINE, "a limit on files", "cannot write (File too large)");
    r = here("trap '' XFSZ && ulimit -f 1 && " + binary + TINY +
                  "-n 4 -o run5");
    check_refused(r, EXIT_MACHINE, "a disk too full for the log", "log.jsonl: cannot write");
    // the old checkpoint is as good as it was
    const Ran rest = train_sink(TINY + "-n 8 -o run --resume"),
              whole = train_sink(TINY + "-n 8 -o whole");
    auto hash = [](const Ran& r) {
        return r.out.substr(std::min(r.out.size(), r.out.find("params_hash")));
    };
    CHECK(rest.code == 0 && rest.says("resumed from step 4") && hash(rest).size() > 20 &&
              hash(rest) == hash(whole),
          "after a full disk: %s, wanted %s", hash(rest).c_str(), hash(whole).c_str());
    if (getuid()) {                                      // root may write anywhere
        check_run("mkdir " + dir + "/locked && chmod 500 " + dir + "/locked");
        refused("-o locked/run", "locked/run: cannot create this directory");
    }
}
static void test_memory() {
    const Ran r = here("ulimit -v 400000 && " + binary +
                            " --width 4096 --layers 64 -o big");
    check_refused(r, EXIT_MACHINE, "a model larger than memory", "memory: wanted");
    const Ran step = train_sink("-b 2 -t 8 --total-batch 1099511627776 -o big");
    check_refused(step, EXIT_MACHINE, "a step larger than memory", "for the tokens of a step");
    CHECK(step.says("lower --total-batch"), "its hint: %s",
          step.err.c_str());
    for (const char* args : { "-m 1B -b 60000 -o big", "bench -m 1B -b 60000",
                              "-t 16000000 -b 60 --layers 1000 -o big",
                              "-m 1B --layers 1000 -b 1000000 -t 1000 -o big" }) {
        refused(args, " are free", EXIT_MACHINE);
    }
    CHECK(!file_exists(dir + "/big"), "a run that does not fit left its directory");
}
// ids of four bytes that no int holds
static void test_large_ids() {
    check_run("mkdir " + dir + "/wide");
    for (const char* name : { "train", "val" }) {
        std::vector<uint32_t> shard(256 + 3000);
        shard[0] = 20240801; shard[1] = 7; shard[2] = 3000;
        for (int i = 0; i < 3000; i++) { shard[256 + i] = i % 50; }
        shard[256 + 100] = 0x80000001u;
        file_write(dir + "/wide/" + name + ".bin",
                   std::string((const char*)shard.data(), shard.size() * 4));
    }
    refused("-d wide --seq 16 -n 2 -o large", "got the id 2147483649, wanted ids below 2^30");
    refused("-d wide --seq 16 -n 2 -o large --vocab 60", "got id 2147483649 at token 100");
}
// The control group of a container that allows half a processor: a note says what is enough.
static void test_processors() {
    const bool first = file_exists("/sys/fs/cgroup/cpu");
    const std::string inside = first ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup";
    const std::string limit = first ? "echo 50000 > group/cpu.cfs_quota_us; "
                                      "echo 100000 > group/cpu.cfs_period_us"
                                    : "echo 50000 100000 > group/cpu.max";
    if (here("mkdir group && " + limit + " && unshare -m true").code) {
        printf("skipped: 2, which need to mount\n");
        return;
    }
    const std::string run = "unshare -m sh -c 'mount --bind group " + inside + " && ";
    Ran r = here(run + "unset OMP_NUM_THREADS; " + binary + TINY + "-n 1 -o half'");
    check_ended(r, 0, "", "note   this container may use 0.5 processors",
                "export OMP_NUM_THREADS=1");
    r = here(run + "OMP_NUM_THREADS=1 " + binary + TINY + "-n 1 -o half2'");
    CHECK(r.code == 0 && !r.says("this container"), "%s", r.err.c_str());
}
// what only the administrator of a machine can set up: a file system without a free inode,
// a memory group, a limit of processes
static void test_limits() {
    if (getuid() ||
        here("mkdir -p full && mount -t tmpfs -o nr_inodes=6 none full").code) {
        printf("skipped: 4, which need to mount\n");
        return;
    }
    Ran r = here(binary + TINY + "-n 2 -o full/run");
    here("umount full");
    check_refused(r, EXIT_MACHINE, "no free inode", "No space left on device");

    const std::string group = file_exists("/sys/fs/cgroup/memory/memory.limit_in_bytes")
                                  ? "/sys/fs/cgroup/memory/train_sink_test"
                                  : "/sys/fs/cgroup/train_sink_test";
    const std::string limit = group + (contains(group, "/memory/")
                                           ? "/memory.limit_in_bytes"
                                           : "/memory.max");
    if (check_run("mkdir -p " + group + " && echo 300M > " + limit).code == 0) {
        r = here("echo $$ > " + group + "/cgroup.procs && " + binary +
                      " --width 1024 --layers 16 -o big");
        check_refused(r, EXIT_MACHINE, "a memory group", "memory: wanted");
        CHECK(r.says(" MiB are free"), "a memory group: %s", r.err.c_str());
        check_run("rmdir " + group);
    } else { printf("skipped: 2, which need a memory group\n"); }
    test_processors();

    here("mkdir -p fixed && mount -t tmpfs none fixed && seq 3000 > fixed/my.txt && "
              "mount -o remount,ro fixed");
    const std::string there = "cd fixed && " + binary + " --seq 16 -b 2 -n 2 ";
    r = here(there + "-d my.txt -o ../elsewhere");
    const Ran toy = here(there);
    here("umount fixed");
    check_refused(r, EXIT_USER, "a text that cannot be written beside", "Read-only file system");
    CHECK(r.says("HINT: ./train_sink tokenize my.txt -o DIR, and then -d DIR"), "%s",
          r.err.c_str());
    CHECK(toy.says("HINT: choose another place with --out"), "%s", toy.err.c_str());

    file_write(dir + "/words.txt", std::string(3000000, 'a'));
    check_run("chmod 777 " + dir);
    r = here("prlimit --nproc=3 setpriv --reuid 65534 --clear-groups " + binary +
                  " tokenize words.txt --threads 64 -o many");
    CHECK(r.code == 0 || r.code == EXIT_MACHINE, "a limit of processes: status %d: %s", r.code,
          r.err.c_str());
    CHECK(r.code == 0 || r.says("error: "), "a limit of processes ended with: %s", r.err.c_str());
}
// Memory is counted before it is taken, and the hint says what lowers it in this command.
static void test_memory_counted() {
    auto run = [](long kib, const std::string& words) {
        return here(strf("ulimit -v %ld && OMP_NUM_THREADS=1 ", kib) + binary + words);
    };
    const std::string small = " --seq 16 -b 2 --width 32 --ffn-width 8 -n 1 -o most ";
    Ran r = run(600000, small + "--bb-vocab 20000");
    check_refused(r, EXIT_MACHINE, "a table of bb", "memory: wanted 3.0 GiB (for --bb-vocab 20000)");
    CHECK(r.says("HINT: lower --bb-vocab"), "%s", r.err.c_str());
    for (const char* probe : { "--probe-len 4000000 --probe-seqs 1",
                               "--probe-seqs 1048576 --heads 16" }) {
        r = run(600000, small + probe);
        check_refused(r, EXIT_MACHINE, probe, "memory: wanted ");
        CHECK(r.says("HINT: lower --batch, --seq, --probe-len"), "%s", r.err.c_str());
    }
    file_write(dir + "/record.jsonl", "{\"text\": \"" + std::string(90 << 20, 'a') + "\"}\n");
    r = run(400000, " tokenize record.jsonl -o record --threads 1");
    check_refused(r, EXIT_MACHINE, "a long record", "out of memory");
    CHECK(r.says("HINT: lower --threads, or cut long records"), "%s", r.err.c_str());
}
static void test_nan(const char* lr) {
    remove_tree(dir + "/nan"); remove_tree(dir + "/nan2");
    const Ran r = train_sink(TINY + "-n 50 --lr " + lr +
                             " --warmup 0 --save-every 1 -o nan");
    check_refused(r, EXIT_DIVERGED, strf("--lr %s", lr), "not finite, stopped before the update");
    const std::vector<std::string> lines = split(file_read(dir + "/nan/log.jsonl"), '\n');
    Json last; std::string error;
    const std::string line = lines.size() > 2 ? lines[lines.size() - 2] : "";
    CHECK(json_parse(line.data(), line.size(), &last, &error) && last.get("grad_norm") &&
              last.get("grad_norm")->type == Json::NUL,
          "NaN: the last line of the log is %s", line.c_str());
    CHECK(!contains(line, "nan") && !contains(line, "inf"),
          "NaN: not JSON: %s", line.c_str());
    // the update that was not made
    const long step = last.get("step") ? last.get("step")->number - 1 : -1;
    const std::string saved = strf("%s/nan/step_%ld", dir.c_str(), step);
    CHECK(step > 0 && r.says(strf("nan/step_%ld is intact", step).c_str()),
          "NaN: the hint names no checkpoint: %s", r.err.c_str());
    const std::string model = file_read(saved + "/model.safetensors");
    const uint64_t* header = (const uint64_t*)model.data();
    long bad = 0;
    for (size_t i = 8 + *header; i + 4 <= model.size(); i += 4) {
        float x;
        memcpy(&x, &model[i], 4);
        bad += !std::isfinite(x);
    }
    CHECK(bad == 0, "NaN: %ld numbers of the saved weights are not finite", bad);
    const Ran never = train_sink(TINY + "-n 50 --lr " + lr + " --warmup 0 -o nan2");
    CHECK(never.code == EXIT_DIVERGED && !never.says("is intact"),
          "NaN: promises a checkpoint that was never made: %s", never.err.c_str());
}

int main() {
    binary = check_program();
    dir = check_tmp();
    setenv("OMP_NUM_THREADS", "1", 1); setenv("OMP_WAIT_POLICY", "passive", 1);
    const Ran r = train_sink(TINY + "-n 4 -o run");
    check_ended(r, 0, "a good run");
    const Ran help = train_sink("--help"), help2 = train_sink("probe -h");
    CHECK(help.code == 0 && help.says("ATTN=softmax") && help.says("COMMAND --help") &&
              !help.says("--steps") && split(help.out, '\n').size() < 25,
          "--help of the program is short and says where the flags are: %s", help.out.c_str());
    CHECK(help2.code == 0 && help2.says("--dump-heads") && !help2.says("--steps") &&
              !help2.says("train_sink generate"),
          "--help of a command is of that command alone: %s", help2.out.c_str());
    CASE("help") { test_help(); }
    const Ran alone = train_sink("");
    CHECK(alone.code == 0 && alone.says("try:") && alone.says("--beta2 0.99") &&
              !file_exists(dir + "/runs"),
          "./train_sink alone: %d %s", alone.code, alone.out.c_str());
    for (const char* args : { "check", "check --seed 3 --qkv-bias 1 --out-bias 1 --ffn-bias 1 "
                                       "--norm-kind ln --tied 1 --parallel 1 --window 3" }) {
        const Ran c = train_sink(args);
        CHECK(c.code == 0 && c.says("are the slopes of the loss") &&
                  c.says("model.layers.1.self_attn.q_proj.weight") && !c.says("WRONG"),
              "%s: %d %s", args, c.code, c.said().c_str());
    }
    CASE("flags") { test_flags(); }
    CASE("hints") { test_hints(); }
    CASE("help_lines") { test_help_lines(); }
    CASE("ranges") { test_ranges(); }
    CASE("answers") { test_answers(); }
    CASE("export") { test_export(); }
    CASE("resume") { test_resume(); }
    CASE("checkpoints") { test_checkpoints(); }
    CASE("notes") { test_notes(); }
    CASE("not_finite") { test_not_finite(); }
    CASE("closed") { test_closed(); }
    CASE("last_update") { test_last_update(); }
    CASE("disk") { test_disk(); }
    CASE("large_ids") { test_large_ids(); }
    CASE("limits") { test_limits(); }
    CASE("memory") { test_memory(); test_memory_counted(); }
    test_nan("1e6");                          // the loss becomes NaN
    test_nan("1e30");                         // the gradient does, while the loss is still a number
    remove_tree(dir);
    return check_done();
}
