"""Does every row of docs/findings/coverage.md hold? Run by test_coverage.sh: every command on a tiny model, its
answer looked up, and whether that is wanted: a number that a command prints may be another than the one asked for.

    python3 coverage.py PAGE SCRATCH PROGRAM..       PROGRAM: the switches it was built with, and a path
"""
import array
import collections
import concurrent.futures
import json
import math
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys

from expect import end, expect

ROOT = os.getcwd()
page, scratch = open(sys.argv[1], encoding="utf-8").read(), os.path.abspath(sys.argv[2])
PROGRAMS = dict(zip(sys.argv[3::2], map(os.path.abspath, sys.argv[4::2])))
ROWS = 90
STATES = ("yes", "part", "no", "not run")
WITHOUT = STATES[2:]                      # nothing is run
BOS = 256                                 # of bytes
# what is added to a command that does not say it: sizes, and how little is measured
TRAIN = ("-n 4 -b 8 --warmup 2 --lr 3e-3 --val-seqs 4 --probe-seqs 8 --probe-len 16 --eval-every 2 --sample 0 "
         "--seed 1").split()
SIZES = "--seq 16 --layers 2 --width 32 --heads 2 --ffn-width 24".split()
MEASURE = "--probe-len 16 --probe-seqs 8".split()
WORDS = "the fog was in the street and door of house stood open on a night without moon".split()
os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
def sentences(n, seed):
    for i in range(n):
        yield " ".join(WORDS[(seed + 7 * i * j + j * j) % len(WORDS)] for j in range(20)) + ", %d times." % i


def lines(path, values):
    path = os.path.join(scratch, path)
    with open(path, "w") as f: f.writelines(v + "\n" for v in values)
    return path


def files():
    """Writes what the commands read; returns what each name of the page stands for."""
    text = lambda key, n: [json.dumps({key: s * 3}) for s in sentences(n, 3)]
    chat = [json.dumps({"segments": [{"text": a, "loss": 0}, {"text": b, "loss": 1}]})
            for a, b in zip(sentences(30, 1), sentences(30, 2))]
    task = [json.dumps({"context": a, "choices": ["a house", "the river"], "gold": i % 2})
            for i, a in enumerate(sentences(8, 5))]
    families = os.path.join(ROOT, "test/open/families")
    return {"TEXT": lines("text.txt", sentences(400, 1)), "MORE": lines("more.txt", sentences(200, 2)),
            "DOCS": lines("docs.jsonl", text("text", 60)), "CHAT": lines("chat.jsonl", chat),
            "TASK": lines("task.jsonl", task), "MAMBA": os.path.join(families, "jamba"),
            "IDS": os.path.join(families, "tokens")}


def program_for(switches):
    """The build that has these switches, among others: the one with the fewest."""
    fits = [words for words in PROGRAMS if set(switches) <= set(words.split())]
    return min(fits, key=len) if fits else None


def run(words):
    """Runs a command; returns whether it went well, and what it said."""
    r = subprocess.run(words, cwd=scratch, capture_output=True, text=True)
    if r.returncode: return False, (r.stderr or r.stdout).strip().split("\n")[0]
    return True, r.stdout


def missing(words, more):
    """Flags of `more` that the words do not have."""
    short = {"-d": "--data", "-b": "--batch", "-n": "--steps"}
    given = {short.get(w, w) for w in words}
    pairs = zip(more[::2], more[1::2])
    return [w for flag, value in pairs if short.get(flag, flag) not in given for w in (flag, value)]


def model_of(program, name, *more):
    """Trains a tiny model of a build; returns its directory."""
    words = [PROGRAMS[program], "train", "-d", "text.txt", "-o", name, *more]
    ok, said = run(words + missing(words, TRAIN + SIZES))
    if not ok: raise RuntimeError(said)
    return os.path.join(scratch, name)


def with_sink(path):
    """Leaves a model of the sizes above, whose token 1 is BOS, nothing between embedding and lm_head but a sink.
    Channel FIRST of h is token 1's alone, REST everybody's. One neuron of layer 0 writes FIRST^2 into FIRST, one of
    layer 1 takes it away. Head 0 of layer 1 has queries along REST and keys along FIRST, in the channel that turns
    least; its values are REST. It writes them into HARM, which lets lm_head expect bytes that no text has."""
    with open(path, "rb") as f: data = bytearray(f.read())
    start = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = json.loads(data[8:start])

    def put(name, row, column, x):
        tensor = tensors[name + ".weight"]
        struct.pack_into("<f", data, start + tensor["data_offsets"][0] + 4 * (row * tensor["shape"][1] + column), x)

    for name, tensor in tensors.items():
        if "proj" not in name: continue
        first, last = tensor["data_offsets"]
        data[start + first:start + last] = bytes(last - first)
    FIRST, REST, HARM, SLOW = 0, 1, 2, 7
    for i in range(BOS + 1):
        put("model.embed_tokens", i, FIRST, 3 * (i == BOS))
        put("model.embed_tokens", i, REST, 1)
        put("lm_head", i, HARM, 3 if i >= 128 else -3)
    for layer, size, sign in (0, 2, 1), (1, 1.9, -1):
        mlp = f"model.layers.{layer}.mlp."
        put(mlp + "gate_proj", 0, FIRST, size)
        put(mlp + "up_proj", 0, FIRST, size)
        put(mlp + "down_proj", FIRST, 0, sign)
    attention = "model.layers.1.self_attn."
    put(attention + "q_proj", SLOW, REST, 1.5)
    put(attention + "k_proj", SLOW, FIRST, 1.5)
    put(attention + "v_proj", 0, REST, 0.2)
    put(attention + "o_proj", HARM, 0, 1)
    with open(path, "wb") as f: f.write(data)


def dumped(path):
    """Reads a map of --dump as one list; its header has 128 bytes."""
    with open(path, "rb") as f: return array.array("f", f.read()[128:])


def has_sink(command):
    """Tells whether a command of the page gets the model with a sink: one that measures it on a text."""
    return command.startswith(("probe M -d", "eval M -d"))


def answers(command, names, models, i):
    """Runs a command of the page. Returns what its answers are looked up in."""
    words = shlex.split(command)
    switches = [w for w in words if re.fullmatch(r"[A-Z]+=\w+", w)]
    words = words[len(switches):]
    program = program_for(switches)
    if program is None: return None, f"no build has {' '.join(switches)}"
    own = {**names, "M": models[program]}
    if has_sink(command):
        words += missing(words, ["--fix-token", f"1:{BOS}"])
        own["M"] = models["sink"]
    words = [",".join(own.get(part, part) for part in w.split(",")) for w in words]
    out = "out-%d" % i
    if words[0].startswith("scripts/"):
        ok, said = run([sys.executable, os.path.join(ROOT, words[0]), *words[1:], "--binary", PROGRAMS[program],
                        "--out", os.path.join(scratch, out)])
        return ({"said": said} if ok else None), said
    if words[0] == "train" and "--help" not in words:
        words += missing(words, TRAIN + ([] if "--init" in words else SIZES)) + ["-o", out]
    if words[0] in ("probe", "eval"): words += missing(words, MEASURE)
    if "--dump" in words: words[words.index("--dump") + 1] = out
    if words[0] in ("probe", "eval", "score"): words += ["--json", out + ".json"]
    ok, said = run([PROGRAMS[program], *words])
    if not ok: return None, said
    found = {"said": said}
    if "--dump" in words: found["d"] = lambda name: dumped(os.path.join(scratch, out, name + ".npy"))
    if words[0] == "train" and "--help" not in words:
        log = [json.loads(line) for line in open(os.path.join(scratch, out, "log.jsonl"))]
        found["e"] = [o for o in log if o["event"] == "eval"][-1]
        found["t"] = [o for o in log if o["event"] == "train"][-1]
    elif "--json" in words:
        found["o"] = json.load(open(os.path.join(scratch, out + ".json")))
    return found, said


def is_there(x):
    """Tells whether something was found: no null, no number that is none."""
    if isinstance(x, tuple): return all(map(is_there, x))
    return x is not None and not (isinstance(x, float) and not math.isfinite(x))


def wrong_of(value, wanted):
    """Says what is wrong with an answer that is to be in a range, if one is given."""
    if not is_there(value): return "is none"
    low, _, high = wanted.strip("`").partition(" to ")
    return "" if not wanted or float(low) <= value <= float(high) else "wanted " + wanted


names = files()
models = {program: model_of(program, "model-%d" % i) for i, program in enumerate(PROGRAMS)}
models["sink"] = model_of("", "model-sink", "--fix-token", f"1:{BOS}")
with_sink(os.path.join(models["sink"], "step_4/model.safetensors"))
for i in "123":
    names["M" + i] = shutil.copytree(os.path.join(ROOT, "test/after/score/gpt2"), os.path.join(scratch, "gpt2-" + i))
rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in page.split("\n")
        if line.startswith("| ") and not line.startswith("| asked")]
expect(len(rows) == ROWS, f"{len(rows)} rows, wanted {ROWS}")
commands = {}
for row in rows:
    expect(len(row) == 5 and row[1] in STATES, f"{row[0]}: wanted five columns and one of {STATES}")
    code = re.match(r"`([^`]*)`", row[2])
    if row[1] == "no": expect("not built" in row[2] or "does not belong" in row[2], f"{row[0]}: says no reason")
    if row[1] not in WITHOUT: commands[row[0]] = code[1] if code else ""
unique = list(dict.fromkeys(commands.values()))
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    found = dict(zip(unique, pool.map(lambda i: answers(unique[i], names, models, i), range(len(unique)))))
by_hand = 0                                # rows whose answer on the model with a sink is in a wanted range
for asked, state, command, answer, wanted in rows:
    if state in WITHOUT: continue
    here, said = found[commands[asked]]
    expect(here, f"{asked}: {commands[asked]}: {said}")
    if not here: continue
    answer = answer.strip("`")
    if answer.startswith('"'):
        expect(re.search(answer.strip('"'), here["said"]), f"{asked}: {answer} is not printed")
        continue
    try:
        value = eval(answer, dict(here))
        fault = wrong_of(value, wanted)
        expect(not fault, f"{asked}: {answer} is {value}, {fault}")
        by_hand += bool(wanted) and has_sink(commands[asked])
    except (KeyError, IndexError, TypeError, ZeroDivisionError, SyntaxError) as error:
        expect(False, f"{asked}: {answer}: {error!r}")
expect(by_hand >= 30, f"{by_hand} rows are wanted on the model with a sink, wanted 30")
states = collections.Counter(row[1] for row in rows)
print("%d rows: %d yes, %d part, %d no, %d not run" % (len(rows), *(states[s] for s in STATES)))
end()
