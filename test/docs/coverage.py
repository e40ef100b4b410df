"""Does every row of docs/findings/coverage.md hold? Run by test_coverage.sh: every command on a tiny model, and
its answer looked up.

    python3 coverage.py PAGE SCRATCH PROGRAM..       PROGRAM: the switches it was built with, and a path
"""
import collections
import concurrent.futures
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys

ROOT = os.getcwd()
page, scratch = open(sys.argv[1], encoding="utf-8").read(), os.path.abspath(sys.argv[2])
PROGRAMS = dict(zip(sys.argv[3::2], map(os.path.abspath, sys.argv[4::2])))
ROWS = 90
STATES = ("yes", "part", "no")
# what is added to a command that does not say it: sizes, and how little is measured
TRAIN = ("-n 4 -b 8 --warmup 2 --lr 3e-3 --val-seqs 4 --probe-seqs 8 --probe-len 16 --eval-every 2 --sample 0 "
         "--seed 1").split()
SIZES = "--seq 16 --layers 2 --width 32 --heads 2 --ffn-width 24".split()
MEASURE = "--probe-len 16 --probe-seqs 8".split()
WORDS = "the fog was in the street and door of house stood open on a night without moon".split()
os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
passed, wrong = 0, []


def expect(ok, what):
    global passed
    passed += bool(ok)
    if not ok: wrong.append(what)


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
    chat = [json.dumps({"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]})
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


def answers(command, names, models, i):
    """Runs a command of the page. Returns what its answers are looked up in."""
    words = shlex.split(command)
    switches = [w for w in words if re.fullmatch(r"[A-Z]+=\w+", w)]
    words = words[len(switches):]
    program = program_for(switches)
    if program is None: return None, f"no build has {' '.join(switches)}"
    own = {**names, "M": models[program]}
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


names = files()
models = {program: model_of(program, "model-%d" % i) for i, program in enumerate(PROGRAMS)}
for i in "123":
    names["M" + i] = shutil.copytree(os.path.join(ROOT, "test/after/score/gpt2"), os.path.join(scratch, "gpt2-" + i))
rows = [[cell.strip() for cell in line[1:-1].split(" | ")] for line in page.split("\n")
        if line.startswith("| ") and not line.startswith("| asked")]
expect(len(rows) == ROWS, f"{len(rows)} rows, wanted {ROWS}")
commands = {}
for row in rows:
    expect(len(row) == 4 and row[1] in STATES, f"{row[0]}: wanted four columns and one of {STATES}")
    code = re.match(r"`([^`]*)`", row[2])
    if row[1] == "no": expect("not built" in row[2] or "does not belong" in row[2], f"{row[0]}: says no reason")
    else: commands[row[0]] = code[1] if code else ""
unique = list(dict.fromkeys(commands.values()))
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    found = dict(zip(unique, pool.map(lambda i: answers(unique[i], names, models, i), range(len(unique)))))
for asked, state, command, answer in rows:
    if state == "no": continue
    here, said = found[commands[asked]]
    expect(here, f"{asked}: {commands[asked]}: {said}")
    if not here: continue
    answer = answer.strip("`")
    if answer.startswith('"'):
        expect(re.search(answer.strip('"'), here["said"]), f"{asked}: {answer} is not printed")
        continue
    try:
        value = eval(answer, dict(here, min=min, max=max))
        expect(is_there(value), f"{asked}: {answer} is {value}")
    except (KeyError, IndexError, TypeError, ZeroDivisionError, SyntaxError) as error:
        expect(False, f"{asked}: {answer}: {error!r}")
for w in wrong: print("FAIL", w)
states = collections.Counter(row[1] for row in rows)
print("%d rows: %d yes, %d part, %d no" % (len(rows), *(states[s] for s in STATES)))
print(f"{passed} passed, {len(wrong)} failed")
sys.exit(bool(wrong))
