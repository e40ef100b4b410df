"""What plot.py and report.py share: logs, probes and results in, errors out. Standard library only.

A run is a dict: name, path, config (the first line), train, evals, samples (lists of the log's objects), status, notes.
A null in a log (a number that was NaN or infinite) stays None here; number() makes it a nan for those who draw.
To read one more event: one line in read_run.
"""
import json
import os
import re
import sys

DEFAULTS = {"ATTN": "softmax", "BIAS": "none", "PE": "rotary", "NORM": "pre", "FFN": "swiglu", "COMBINE": "concat"}


def die(what, hint):
    """The house form of an error; 2 is the exit status of a user's mistake."""
    sys.stderr.write(f"error: {what}\n---> HINT: {hint}\n")
    sys.exit(2)


def note(text):
    sys.stderr.write(f"note: {text}\n")


def read_text(path, hint):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError as e:
        die(f"{path}: got '{e.strerror}', wanted a file", hint)


def parse(text):
    """One JSON value; NaN and Infinity, which JSON does not have, become None as the log's nulls are."""
    return json.loads(text, parse_constant=lambda _: None)


def read_log(path):
    """The objects of a log.jsonl, and what had to be ignored."""
    lines = read_text(path, "name a run, the directory that holds log.jsonl: ls runs").split("\n")
    lines = [(i + 1, line) for i, line in enumerate(lines) if line.strip()]
    if not lines:
        die(f"{path}: got an empty file, wanted a line of config first", "the run has written nothing: train it again")
    objects, notes = [], []
    for i, line in lines:
        try:
            o = parse(line)
            if not isinstance(o, dict) or not isinstance(o.get("event"), str):
                raise ValueError
            objects.append(o)
        except ValueError:
            if i != lines[-1][0]:
                die(f"{path}, line {i}: got '{line[:40]}', wanted an object with an event",
                    "only the last line may be half written; train_sink --resume mends a log")
            notes.append(f"{path}, line {i} is half written and was ignored")
    if not objects or objects[0]["event"] != "config":
        got = objects[0]["event"] if objects else "half a line"
        die(f"{path}: got {got} in the first line, wanted config", "name the log.jsonl that train_sink wrote")
    return objects, notes


def read_run(path):
    log = os.path.join(path, "log.jsonl") if os.path.isdir(path) else path
    objects, notes = read_log(log)
    of = lambda event: [o for o in objects if o["event"] == event]
    run = {"path": os.path.dirname(log) or ".", "config": objects[0], "train": of("train"), "evals": of("eval"),
           "samples": of("sample"), "notes": notes}
    run["name"] = os.path.basename(os.path.abspath(run["path"]))
    run["status"] = status(objects)
    for key in ("loss", "grad_norm"):
        nulls = [o["step"] for o in run["train"] if o.get(key) is None]
        if nulls:
            notes.append(f"{log}: {key} is null (not finite) at {len(nulls)} steps, the first is {nulls[0]}")
    return run


def status(objects):
    last = objects[-1]
    if last["event"] in ("done", "stopped"):
        return last["event"]
    step = [o for o in objects if o["event"] == "train"][-1:]
    return "diverged" if any(o.get(key) is None for o in step for key in ("loss", "grad_norm")) else "unfinished"


def expand(path):
    """A directory of runs stands for the runs in it."""
    if not os.path.isdir(path) or os.path.exists(os.path.join(path, "log.jsonl")):
        return [path]
    inside = [os.path.join(path, name) for name in sorted(os.listdir(path))]
    inside = [run for run in inside if os.path.exists(os.path.join(run, "log.jsonl"))]
    if not inside:
        die(f"{path}: got no log.jsonl in it, wanted a run or a directory of runs", "ls runs")
    return inside


def read_runs(paths, quiet=False):
    """Runs with names that differ: where two directories share theirs, the parent's comes before it."""
    runs = [read_run(p) for path in paths for p in expand(path)]
    for run in runs:
        twins = [r for r in runs if os.path.basename(os.path.abspath(r["path"])) == run["name"]]
        if len(twins) > 1:
            run["name"] = "/".join(os.path.abspath(run["path"]).split(os.sep)[-2:])
        for text in [] if quiet else run["notes"]:
            note(text)
    return runs


def read_json(path, keys, hint):
    text = read_text(path, hint)
    try:
        o = parse(text)
    except ValueError as e:
        die(f"{path}: got no JSON ({e}), wanted an object with {', '.join(keys)}", hint)
    missing = [k for k in keys if not isinstance(o, dict) or k not in o]
    if missing:
        die(f"{path}: got an object without {', '.join(missing)}, wanted {', '.join(keys)}", hint)
    return o


def read_probe(path):
    """The eval objects of probe --json, one for each source and length."""
    o = read_json(path, ["sink", "alpha1"], "write one: train_sink probe RUN/step_N --json FILE")
    return o.get("all", [o])


def read_results(path):
    return read_json(path, ["table", "rows"], "write one: scripts/reproduce")


def number(x):
    return float("nan") if x is None else float(x)


def group(run):
    """The name without its seed: runs of one group are drawn alike."""
    return re.sub(r"[-_.]?seed\d+$", "", run["name"]) or run["name"]


def switches(run):
    """ATTN=sigmoid BIAS=k: what differs from the default build."""
    changed = [f"{k}={v}" for k, v in run["config"].get("switches", {}).items() if DEFAULTS.get(k) != v]
    return " ".join(changed) or "ATTN=softmax"


# flags that do not change what is learned or measured
QUIET_FLAGS = {"out", "eval_every", "save_every", "sample", "resume", "stop_after", "steps", "seed"}


def differing_flags(runs):
    """Names of the flags in which these runs differ, in the order of the log."""
    flags = [r["config"].get("flags", {}) for r in runs]
    names = dict.fromkeys(key for f in flags for key in f)
    return [n for n in names if n not in QUIET_FLAGS and len({str(f.get(n)) for f in flags}) > 1]


def uses_proxy(evals):
    """True where rows of the attention do not sum to 1: the paper then measures |w| / sum |w|. Raw and proxy differ."""
    pairs = [(a, b) for e in evals for row, twin in zip(e["alpha1"], e.get("alpha1_proxy", e["alpha1"]))
             for a, b in zip(row, twin) if a is not None and b is not None]
    return any(abs(a - b) > 1e-4 for a, b in pairs)


def sink(e, proxy, k=1):
    """Sink_k of an eval object in percent; None where it was not measured."""
    rates = e["sink"]["proxy_k" if proxy else "sink_k"]
    return None if k > len(rates) or rates[k - 1] is None else 100 * rates[k - 1]


def at_step(run, step):
    """The evaluation of that step, of the last one for None."""
    if not run["evals"]:
        die(f"{run['path']}/log.jsonl: got no evaluation, wanted one", "wait for the first, or train with --eval-every")
    found = [e for e in run["evals"] if step is None or e["step"] == step]
    if not found:
        steps = " ".join(str(e["step"]) for e in run["evals"])
        die(f"--step {step}: {run['path']} was not measured there, wanted one of {steps}", "choose one of these steps")
    return found[-1]


# ---- rows of results/*.json: the paper's number, or a word in its place, and ours by seed. Sinks in percent ----------
def sink_positions(row):
    """The k of Sink_k that the paper gives, 1 if it gives none."""
    given = row.get("paper", {}).get("sink_k")
    return [int(k) for k in given] if isinstance(given, dict) and given else [1]


def main_position(row):
    """The k of the largest Sink_k of the paper: where the row is about another token than the first, that token."""
    given = lambda k: paper_sink(row, k)
    return max(sink_positions(row), key=lambda k: given(k) if isinstance(given(k), (int, float)) else 0)


def paper_sink(row, k):
    given = row.get("paper", {}).get("sink_k")
    return given.get(str(k)) if isinstance(given, dict) else given


def paper_star(row):
    return row.get("paper", {}).get("sink_star")


def paper_loss(row):
    return row.get("paper", {}).get("val_loss")


def ours(row, get, at="last"):
    found = [get(o[at]) for o in row.get("ours", []) if o.get("status") == "done" and o.get(at)]
    return [x for x in found if x is not None]


def our_sink(row, k, at="last"):
    """Of the proxy, which is Sink_k itself where rows sum to 1."""
    def get(e):
        values = e.get("proxy_k") or [e.get("proxy_1")]
        return values[k - 1] if k <= len(values) else None
    return ours(row, get, at)


def our_star(row):
    return ours(row, lambda e: e.get("sink_star"))


def our_loss(row):
    return ours(row, lambda e: e.get("val_loss"))


def why_not(row):
    """What stands in place of a number of ours."""
    statuses = {o.get("status") for o in row.get("ours", [])}
    if row.get("skipped"):
        return "skipped"                                     # it means nothing at this scale
    return "failed" if "failed" in statuses else None if "done" in statuses else "not run"
