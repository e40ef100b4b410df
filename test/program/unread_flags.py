"""unread_flags.py ROOT SCRATCH -- does every flag of a command change what the command makes, or is
it refused by name? A flag that is taken and does nothing is a mistake that nobody would see.

Every setting below is run without a further flag, and then with every flag of its command beside
it, one at a time; of a flag given twice the last one counts. Every flag has to change something in
some setting. bench and check, which print times and rounded numbers, are left out. Prints a line
for each check that fails, and "N passed, M failed".
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

ROOT, SCRATCH = os.path.abspath(sys.argv[1]), sys.argv[2]
sys.path.insert(0, os.path.join(ROOT, "scripts", "lib"))
from jobs import each_once  # noqa: E402
TOKENIZER = os.path.join(ROOT, "demo", "tokenizer.json")

# The values that are tried; none of them is the default. A new flag gets a row.
VALUES = {
    # data
    "--data": ["other.txt"], "--bin": ["uint8", "uint16"], "--tokenizer": [TOKENIZER], "--bos": ["seq", "doc"], "--sft": [],
    "--sft-loss": ["all"], "--train-tokens": ["64"], "--random-token": ["1", "2"], "--random-share": ["0.5"],
    "--fix-token": ["1:0", "2:1"], "--probe-from": ["start", "windows"], "--probe-input": ["random"],
    "--bb-vocab": ["20"], "--bb-triggers": ["2"], "--bb-trigger-prob": ["0.4"], "--bb-temp": ["3"],
    "--bb-table": ["2"], "--bb-bos": ["0"], "--bb-mean": ["1"],
    # the model
    "--init": ["bb-run/step_4"], "--init-logit": ["1"], "--layers": ["1"], "--heads": ["4"], "--kv-heads": ["1"],
    "--width": ["64"], "--head-dim": ["4"], "--ffn-width": ["16"], "--vocab": ["300"], "--seq": ["8"],
    "--norm-kind": ["ln"], "--norm-bias": ["0"], "--norm-eps": ["1e-3"], "--norm-embed": ["1"], "--parallel": ["1"],
    "--qkv-bias": ["1"], "--out-bias": ["1"], "--ffn-bias": ["1"], "--head-bias": ["1"], "--tied": ["1"],
    "--embed-scale": ["2"], "--logit-cap": ["5"], "--logit-divisor": ["2"], "--residual-scale": ["0.5"],
    "--rope-base": ["100"], "--rope-local": ["50"], "--rope-part": ["0.5"], "--rope-layers": ["10"],
    "--alibi-slopes": ["published"], "--rope-scaling": ["linear", "llama3", "yarn"], "--rope-factor": ["2", "3"],
    "--rope-context": ["64"], "--rope-low": ["2"], "--rope-high": ["5"], "--rope-fast": ["10"], "--rope-slow": ["3"],
    "--rope-length": ["2"], "--rope-round": ["0"], "--bias-share": ["heads"], "--bias-layers": ["01"], "--k-dims": ["2"], "--v-star": ["e1:1"],
    "--attn-p": ["2"], "--attn-clip": ["0.1"], "--attn-alpha": ["0.5"], "--attn-bias-init": ["-1"], "--attn-cap": ["5"],
    "--score-scale": ["1"], "--prefix": ["2"], "--window": ["4"], "--local-layers": ["10"],
    # training
    "--batch": ["4"], "--total-batch": ["256"], "--steps": ["5"], "--optimizer": ["sgd", "muon"],
    "--min-context": ["3"], "--max-context": ["5"], "--lr": ["1e-2"], "--warmup": ["3"], "--schedule": ["cosine", "wsd"], "--min-lr": ["1e-3"],
    "--decay-steps": ["3"], "--factors": ["o_proj:lr=2", "o_proj:start=2", "o_proj:decay=9", "o_proj:eps=1e6"],
    "--beta1": ["0.5"], "--beta2": ["0.5"], "--adam-eps": ["1e-2"], "--weight-decay": ["0.5"], "--grad-clip": ["0.1"],
    "--only": ["o_proj"], "--seed": ["7"],
    # measuring
    "--ema": ["0.9"], "--noise": [""],
    "--eval-every": ["3"], "--sample": ["5"], "--val-seqs": ["3"], "--probe-len": ["8"], "--probe-seqs": ["3"],
    "--eps": ["0.05"], "--save-every": ["2"], "--until": ["val_loss<9"], "--dry-run": [""], "--sink-at": ["11"], "--per-sequence": [""], "--anatomy": [""], "--anywhere": [""], "--dump": ["dump"],
    "--dump-heads": ["1:1"], "--dump-seq": ["2"], "--stream": ["1+3"], "--evict": ["streaming:0.5"],
    "--quant": ["w8a8", "kv4:static"], "--quant-keep": ["2"], "--calibrate": ["4"], "--gradients": [""],
    "--edit": ["h:0:1=0"],
    # the other commands
    "--prompt": ["ab"], "--tokens": ["7"], "--temperature": ["0.1"],
    "--top-k": ["2"], "--task": ["other.jsonl"], "--limit": ["1"], "--max-length": ["15"], "--val": ["other.txt"], "--text": [""],
    "--val-fraction": ["0.5"], "--domains": ["Github"], "--shard-tokens": ["100"], "--to": ["train_sink"],
}
# What other builds or tokenizers alone take.
REFUSED_HERE = {"--alibi-slopes": "PE=alibi", "--attn-p": "ATTN=softmax_p", "--attn-clip": "ATTN=softmax_clip", "--attn-cap": "ATTN=softcap",
                "--text": "it takes no -o: test_own_text", "--sft": "it has one value: test_sft"}
# What may change nothing, and why.
QUIET = {
    "--model": "the settings give all that a preset gives",
    "--skip-bad": "no record is broken", "--product": "the same bits", "--threads": "the same shards",
    "--save-minutes": "a run of a moment saves once", "--save-optimizer": "what is kept beside the weights",
    "--print-every": "lines on the screen", "--stop-after": "a run of a moment is not stopped",
    "--graph": "CUDA alone", "--hopper": "CUDA alone", "--json": "where the result goes", "--out": "where the result goes",
    "--items": "a second file", "--resume": "there is nothing to resume",
}
QUIET_HERE = {
    ("probe", "--probe-from"): "windows is the default of a .txt, start that of a .jsonl",
    ("eval", "--probe-from"): "as in probe",
    ("score", "--bos"): "bytes have none", ("generate", "--bos"): "bytes have none",
    ("generate txt-run/step_4 --temperature 0", "--seed"): "the likeliest token, by its name",
}
# What a refusal says where it does not name the flag.
NAMED_AS = {"--tokenizer": "tokenizer", "--sft": "segments", "--domains": "domains", "--data": "--sft",
            "--quant": "--calibrate", "--init": "bb-run/step_4"}

SMALL = "-b 8 --warmup 2 --lr 3e-3 --val-seqs 8 --probe-seqs 8 --probe-len 16 -n 4 --eval-every 2 --sample 0 "
TINY = SMALL + "-t 16 --layers 2 --width 32 --heads 2 --ffn-width 24 "
# in four steps, of which two warm up, a cosine and a line are the same
LONGER = TINY.replace("-n 4 ", "-n 6 ")
PROBE = " --probe-len 16 --probe-seqs 8"
DATA, BB, MODEL, TRAINING, MEASURING = "data", "the built-in task, -d bb", "model", "training", "measuring"
EVERY = None
# Settings: a build, a command, and the groups of flags that are tried beside it.
SETTINGS = [
    ("cpu", "train " + TINY + "--bb-vocab 24", EVERY),
    ("cpu", "train " + TINY + "--bb-vocab 24 --optimizer sgd", [TRAINING]),
    ("cpu", "train " + TINY + "--bb-vocab 24 --optimizer muon", [TRAINING]),
    ("cpu", "train " + LONGER + "--bb-vocab 24 --schedule cosine", [TRAINING]),
    ("cpu", "train " + LONGER + "--bb-vocab 24 --schedule wsd", [TRAINING]),
    ("cpu", "train " + TINY + "--bb-vocab 24 --total-batch 256", [MEASURING]),
    ("cpu", "train " + TINY + "--bb-vocab 24 --rope-scaling yarn --rope-factor 2", [MODEL]),
    ("cpu", "train " + TINY + "--bb-vocab 24 --rope-scaling llama3 --rope-factor 2", [MODEL]),
    ("cpu", "train " + TINY + "--bb-vocab 24 --norm-kind ln --window 4", [MODEL]),
    ("cpu", "train " + TINY + "-d text.txt", [DATA, BB, MEASURING]),
    ("cpu", "train " + TINY + "-d records.jsonl", [DATA, BB]),
    ("cpu", "train " + TINY + "-d shards --random-token 1", [DATA, BB]),
    ("cpu", "train " + TINY + "-d bare --vocab 300 --bin uint16", [DATA]),
    ("cpu", "train " + TINY + "-d chat.jsonl --sft segments", [DATA, BB]),
    ("cpu", "train " + TINY + "-d text.txt:2,shards:1", [DATA, BB]),
    ("cpu", "train " + SMALL + "--bb-vocab 24 --init bb-run/step_4", EVERY),
    ("cpu-ATTN=sigmoid", "train " + TINY + "--bb-vocab 24", [MODEL]),
    ("cpu-BIAS=k", "train " + TINY + "--bb-vocab 24", [MODEL]),
    ("cpu-BIAS=logit", "train " + TINY + "--bb-vocab 24", [MODEL]),
    ("cpu", "probe bb-run/step_4 --bb-vocab 24" + PROBE, EVERY),
    ("cpu", "probe bb-run/step_4 --probe-input random" + PROBE, EVERY),
    ("cpu", "probe txt-run/step_4" + PROBE, EVERY),
    ("cpu", "probe txt-run/step_4 --random-token 1" + PROBE, EVERY),
    ("cpu", "probe txt-run/step_4 -d text.txt" + PROBE, EVERY),
    ("cpu", "probe bos-run/step_4 -d other.txt" + PROBE, EVERY),
    ("cpu", "probe txt-run/step_4 -d records.jsonl" + PROBE, EVERY),
    ("cpu", "probe txt-run/step_4 -d shards" + PROBE, EVERY),
    ("cpu", "probe txt-run/step_4 -d bare --bin uint16" + PROBE, [DATA]),
    ("cpu", "eval txt-run/step_4 -d bare --bin uint16" + PROBE, [DATA]),
    ("cpu", "probe txt-run/step_4 -d chat.jsonl --sft segments" + PROBE, EVERY),
    ("cpu", "probe txt-run/step_4 -d text.txt --dump dump" + PROBE, EVERY),
    ("cpu", "eval bb-run/step_4 --bb-vocab 24" + PROBE, EVERY),
    ("cpu", "eval txt-run/step_4" + PROBE, EVERY),
    ("cpu", "eval txt-run/step_4 --random-token 1" + PROBE, EVERY),
    ("cpu", "eval txt-run/step_4 -d chat.jsonl --sft segments" + PROBE, EVERY),
    ("cpu", "eval txt-run/step_4 -d records.jsonl --stream 1+3" + PROBE, EVERY),
    ("cpu", "eval txt-run/step_4 -d records.jsonl --quant w8a8:static" + PROBE, EVERY),
    ("cpu", "eval txt-run/step_4 -d shards --edit A:*:1=mask" + PROBE, EVERY),
    ("cpu", "eval txt-run/step_4 --probe-input random --gradients" + PROBE, EVERY),
    ("cpu", "generate txt-run/step_4 --tokens 20", EVERY),
    ("cpu", "generate txt-run/step_4 --temperature 0", EVERY),
    ("cpu", "score txt-run/step_4 --task task.jsonl", EVERY),
    ("cpu", "tokenize text.txt", EVERY),
    ("cpu", "tokenize records.jsonl", EVERY),
    ("cpu", "export txt-run/step_4", EVERY),
]


def program(build, words):
    """Runs a command in the scratch directory, in one thread. Of a flag given twice the last counts."""
    words = words.split()
    at = next((i for i, word in enumerate(words) if re.match("--?[a-z]", word)), len(words))
    command = [os.path.join(ROOT, "build", build, "train_sink"), *words[:at], *each_once(words[at:])]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    return subprocess.run(command, cwd=SCRATCH, capture_output=True, errors="replace", env=environment,
                          timeout=120, check=False)


def flags_of(build, command):
    """Returns the flags of a command by their group in --help."""
    groups, group = {}, ""
    for line in program(build, command + " --help").stdout.splitlines():
        flag = re.match(r"\s+(?:-\w, +)?(--[a-z0-9-]+) ", line)
        if flag and flag[1] != "--help": groups.setdefault(group, []).append(flag[1])
        if line and line[0] != " ": group = line
    return groups


def files_under(folder):
    """Returns the names and hashes of all files of a directory."""
    found = []
    for path, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            whole = os.path.join(path, name)
            with open(whole, "rb") as file:
                found.append((os.path.relpath(whole, folder), hashlib.sha1(file.read()).hexdigest()))
    return found


def log_of(run):
    """Returns the lines of a log without the clock and the flags."""
    log = os.path.join(run, "log.jsonl")
    if not os.path.exists(log): return []                                # of --dry-run
    with open(log, encoding="utf-8") as text:
        lines = [json.loads(line) for line in text]
    return [{key: o[key] for key in o if key not in ("ms", "time")} for o in lines if o["event"] != "config"]


def result(build, words):
    """Returns what a command makes, None if it is refused, and what it says."""
    for name in ("made", "dump"): shutil.rmtree(os.path.join(SCRATCH, name), ignore_errors=True)
    command = words.split()[0]
    os.mkdir(os.path.join(SCRATCH, "made"))
    to = {"train": " -o made", "tokenize": " -o made", "export": " -o made", "generate": ""}
    ran = program(build, words + to.get(command, " --json made.json"))
    made = os.path.join(SCRATCH, "made")
    if ran.returncode: return None, ran.stderr
    if command == "train": return (log_of(made), sorted(os.listdir(made))), ""
    if command in ("tokenize", "export"): return files_under(made), ""
    if command == "generate": return ran.stdout, ""
    with open(os.path.join(SCRATCH, "made.json"), encoding="utf-8") as text:
        measured = re.sub(r'"(seconds|bos|eps)":[^,}]*', "", text.read())     # the clock, and echoes
    return (measured, files_under(os.path.join(SCRATCH, "dump"))), ""


def prepare():
    """Writes the texts and shards and trains the models that the settings name."""

    def put(name, text):
        with open(os.path.join(SCRATCH, name), "w", encoding="utf-8") as file: file.write(text)

    words = "the fog was in the street and the door of the house stood open".split()
    lines = [f"{i} " + " ".join(words[(i * k) % len(words)] for k in range(3, 14)) for i in range(400)]
    put("text.txt", "\n".join(lines))
    put("other.txt", "\n".join(reversed(lines)))
    os.mkdir(os.path.join(SCRATCH, "bare"))
    put("bare/train.bin", "".join(chr(i * i % 101) + "\0" for i in range(3000)))
    rows = lambda objects: "".join(json.dumps(o) + "\n" for o in objects)
    put("records.jsonl", rows({"text": line * 2, "meta": {"pile_set_name": "ArXiv" if i % 2 else "Github"}}
                              for i, line in enumerate(lines[:90])))
    put("chat.jsonl", rows({"segments": [{"text": line[:20], "loss": 0},
                                         {"text": line[20:], "loss": 1}]} for line in lines[:90]))
    for name, text in (("task.jsonl", "the fog was"), ("other.jsonl", "the door of")):
        put(name, rows({"context": text, "choices": [" in the street", " the house"], "gold": i % 2} for i in range(3)))
    for line in ("train " + TINY + "--bb-vocab 24 -o bb-run", "train " + TINY + "-d text.txt --vocab 512 -o txt-run",
                 "train " + TINY + "-d text.txt --bos seq -o bos-run",
                 "tokenize records.jsonl -o shards --val-fraction 0.2"):
        ran = program("cpu", line)
        if ran.returncode: sys.exit(f"FAIL {line}: {ran.stderr}")


def quiet(where, flag):
    """Returns whether a flag may change nothing in a command or a setting."""
    return flag in QUIET or (where, flag) in QUIET_HERE


def unread(build, setting, flag, base, effective):
    """Returns what is wrong with a flag beside a setting, or "". Adds a flag that changes something to effective."""
    command = setting.split()[0]
    if quiet(command, flag) or quiet(setting, flag): return ""
    if flag not in VALUES: return f"{flag} has no row in VALUES"
    given = setting.replace(" -d ", " --data ") + " "
    for value in VALUES[flag]:
        if f"{flag} {value}".rstrip() + " " in given: continue           # there already
        made, says = result(build, f"{setting} {flag} {value}")
        named = flag in says or NAMED_AS.get(flag, flag) in says
        if made is None and not named: return f"{flag} {value} is refused without its name: {says}"
        if made == base: return f"{flag} {value} is taken and changes nothing"
        if made is not None: effective.add((command, flag))
    return ""


def tried(build, setting, groups):
    """Returns the flags that are tried beside a setting."""
    found = flags_of(build, setting.split()[0])
    if groups is EVERY: groups = list(found)
    missing = set(groups) - set(found)
    if missing: sys.exit(f"FAIL {setting.split()[0]} --help: has no group {missing}")
    return [flag for group in groups for flag in found[group]]


def main():
    prepare()
    passed, failed, effective, all_flags = 0, [], set(), set()
    for build, setting, groups in SETTINGS:
        base, says = result(build, setting)
        if base is None:
            failed.append(f"{build}: {setting}: {says}")
            continue
        again = result(build, setting)[0] == base
        wrong = ["" if again else "made something else the second time"]
        for flag in tried(build, setting, groups):
            all_flags.add((setting.split()[0], flag))
            wrong.append(unread(build, setting, flag, base, effective))
        passed += wrong.count("")
        failed += [f"{build}: {setting}: {x}" for x in wrong if x]
    for command, flag in sorted(all_flags - effective):
        if not quiet(command, flag) and flag not in REFUSED_HERE:
            failed.append(f"{command} {flag}: no setting is changed by it")
    for line in failed: print("FAIL", line)
    print(f"{passed} passed, {len(failed)} failed")
    return len(failed) > 0


sys.exit(main())
