"""What the scripts share: logs, probes and results in, errors out. Standard library only.

A run is a dict: name, path, config (the first line), train, evals, samples, resumes (lists of the
log's objects), status, notes. A null in a log (a number that was NaN or infinite) stays None here;
number() makes it a nan for those who draw. Every field that a script uses is in section 2
with its kind and is checked when it is read, so a damaged file is one line of error and never
a traceback. Events and fields that are not listed are let through.

    1 errors    2 what the files hold    3 logs and runs    4 probes, results
    5 numbers of a run    6 rows of results
"""
import json
import math
import os
import re
import shlex
import sys
import time

DEFAULTS = {"ATTN": "softmax", "BIAS": "none", "PE": "rotary", "NORM": "pre", "FFN": "swiglu",
            "COMBINE": "concat", "GATE": "none", "QKNORM": "none"}


# ---- 1 errors ------------------------------------------------------------------------------------
class Damaged(Exception):
    """What die would have said, where a caller can do without the file."""


raising = False


def die(what, hint, code=2):
    """The house form of an error; 2 is the exit status of a user's mistake."""
    if raising:
        raise Damaged(what, hint)
    sys.stdout.flush()
    sys.stderr.write(f"error: {printable(what)}\n---> HINT: {printable(hint)}\n")
    sys.exit(code)


def say(*words, **more):
    """print, of words with names of files in them: scripts import it under that name."""
    print(*(printable(str(w), "\n\t") for w in words), **more)


def note(text):
    sys.stderr.write(f"note: {printable(text)}\n")


def printable(text, kept="\n"):
    """A text with names of files in it: nothing that a terminal would obey."""
    return "".join(c if c.isprintable() or c in kept else "?" for c in text)


def shown(x):
    """A value inside an error: short and on one line."""
    text = printable((x if isinstance(x, str) else json.dumps(x))[:60], "")
    return f"'{text[:40]}..'" if len(text) > 40 else f"'{text}'"


def read_text(path, hint):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError as e:
        die(f"{path}: got '{e.strerror}', wanted a file", hint)


def object_in(path):
    """The object of a JSON file, or {} where the file is not there or damaged."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            o = parse(f.read())
    except (OSError, ValueError):
        return {}
    return o if isinstance(o, dict) else {}


def write_whole(path, text):
    """Writes under another name first: whoever reads at this moment gets the old file or the new."""
    part = f"{path}.{os.urandom(4).hex()}.part"           # of nobody else
    with open(part, "x", encoding="utf-8", errors="replace") as f:
        f.write(text)
    os.replace(part, path)


def last_name(path):
    """The name of a file or directory, however its path is written."""
    return os.path.basename(os.path.abspath(path))


def named(path):
    """The name of a file without its ending."""
    return os.path.splitext(os.path.basename(path))[0]


def as_number(text):
    """1e-3 and 0.001 are one value, and so are 1 and 01; what is no number is left as it is."""
    try:
        return float(text)
    except ValueError:
        return text


def finite(text):
    return float(text) if math.isfinite(float(text)) else None


def parse(text):
    """One JSON value. NaN, Infinity and 1e999 become None, as the log's nulls are;
    ValueError if it is none."""
    try:
        return json.loads(text, parse_constant=lambda _: None, parse_float=finite,
                          parse_int=lambda digits: int(digits) if len(digits) < 19
                          else finite(digits))
    except RecursionError:
        raise ValueError("nested too deep") from None


# ---- 2 what the files hold -----------------------------------------------------------------------
def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def is_count(x):
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


def is_numbers(x):
    return isinstance(x, list) and all(y is None or is_number(y) for y in x)


def is_map(x, depth=2):
    """Lists in lists, `depth` deep, of numbers, those of one depth equally long."""
    if depth == 1: return is_numbers(x)
    return (isinstance(x, list) and len(x) > 0
            and all(is_map(y, depth - 1) and len(y) == len(x[0]) > 0 for y in x))


def is_words(x):
    return isinstance(x, dict) and all(isinstance(y, str) for y in x.values())


def is_positions(x):
    is_position = lambda k: k.isascii() and k.isdigit() and k != "0" and len(k) < 5
    return (isinstance(x, dict) and all(is_position(k) for k in x)
            and all(y is None or is_number(y) for y in x.values()))


KINDS = {
    "text":    (lambda x: isinstance(x, str), "text"),
    "count":   (is_count, "a whole number from 0 on"),
    "number":  (lambda x: x is None or is_number(x), "a number or null"),
    "value":   (is_number, "a number"),
    "numbers": (is_numbers, "a list of numbers"),
    "map":     (is_map, "rows of numbers, one for each layer, all as long as its heads"),
    "blocks":  (lambda x: is_map(x) or is_numbers(x),
                "a number for each layer, or for each layer and head"),
    "alphas":  (lambda x: is_map(x, 4), "alpha by sequence, layer, head and position"),
    "words":   (is_words, "an object of texts"),
    "flags":   (lambda x: isinstance(x, dict), "an object"),
    "changes": (lambda x: isinstance(x, dict) and all(isinstance(y, list) and len(y) == 2
                                                      for y in x.values()),
                "an object of [before, now]"),
    "rate":    (lambda x: x is None or is_number(x) or is_numbers(x),
                "a number or a list of numbers"),
    "paper":   (lambda x: x is None or is_number(x) or isinstance(x, str),
                "a number, a word or null"),
    "papers":  (lambda x: x is None or isinstance(x, str) or is_positions(x),
                "{position: number}, a word or null"),
    "counts":  (lambda x: isinstance(x, list) and all(map(is_count, x)), "a list of whole numbers"),
}
# field: kind, or the fields inside it. [..]: a list of such. ! after the name: it has to be there
SINK = {"eps!": "value", "T!": "count", "n": "count", "k!": "numbers", "sink_k!": "numbers",
        "proxy_k!": "numbers", "sink_star": "number", "sink_effective": "rate"}
# the keys of HEAD_METRICS, whose rows stand in metrics.cuh
SOURCE = os.path.dirname(__file__) + "/../../metrics.cuh"
METRIC = re.compile(r'^    X\(\w+, +\w+, +"(\w+)", +(EVERY_HEAD|GATED),', re.M)
with open(SOURCE, encoding="utf-8") as source:
    METRICS = METRIC.findall(source.read())
MAPS = ["alpha1", "alpha1_proxy", "alpha_star", "alpha_star_proxy"]
MAPS += [key for key, heads in METRICS if heads == "EVERY_HEAD"]
GATES = [key for key, heads in METRICS if heads == "GATED"] + ["gate_rest"]
NORMS = ["h_norm_first", "h_norm_rest", "h_norm_star", "h_max", "h_median", "k_norm_first",
         "k_norm_rest", "v_norm_first", "v_norm_rest", "pre_norm_first", "pre_norm_rest"]
EVAL = {"step!": "count", "time": "text", "data": "text", "val_loss": "number",
        "probe_loss": "number",
        "sink_effective": "rate", "alpha": "alphas", "layers": "counts", "sink!": SINK,
        "sinks": [SINK], "program": "words",
        **{name: "map" for name in MAPS}, **{name: "numbers" for name in NORMS},
        **{name: "blocks" for name in GATES}, "alpha1!": "map"}
EVENTS = {
    "config": {"switches!": "words", "flags!": "flags", "params": "number", "backend": "text",
               "precision": "text", "version": "text", "commit": "text", "data": "text", "time": "text"},
    "train": {"step!": "count", "loss!": "number", "grad_norm": "number", "lr": "number",
              "tokens": "number", "ms": "number", "time": "text"},
    "eval": EVAL,
    "sample": {"step!": "count", "text!": "text"},
    "resume": {"step": "count", "changed": "changes", "time": "text"},
}
POINT = {"val_loss": "number", "sink_star": "number", "proxy_1": "number", "proxy_k": "numbers"}
RESULTS = {
    "table!": "text", "scale": "text", "about": "text", "setting": "text", "commit": "text",
    "machine": "text", "data": "text", "seeds": "counts",
    "rows!": [{"id!": "text", "where": "text", "make": "text", "flags": "text", "skipped": "text",
               "paper": {"sink_k": "papers", "sink_star": "paper", "val_loss": "paper",
                         "note": "text"},
               "ours": [{"seed": "count", "run": "text", "status": "text", "tokens": "number",
                         "step0": POINT, "last": POINT}]}],
    "claims": [{"id!": "text", "text!": "text", "verdict!": "text", "numbers": "text"}],
}
EVALUATED = {
    "checkpoint": "text", "data": "text", "T": "count", "n": "count", "bos": "text", "flags": "text",
    "runs!": [{"name!": "text", "kind": "text", "loss!": "number", "loss_error": "number", "change": "number",
               "change_error": "number", "sink_1": "number", "spike": "number"}],
}
LOOK = "that line or field is damaged: write the file again"


def check(where, x, spec, name=""):
    """Every field of the object x is of its kind, or the error names file, line and field."""
    if not isinstance(x, dict):
        die(f"{where}: {name[:-1]}: got {shown(x)}, wanted {describe(spec)}", LOOK)
    for key, kind in spec.items():
        key, required = key.rstrip("!"), key.endswith("!")
        value, field = x.get(key), name + key
        if key not in x or (value is None and not isinstance(kind, str) and not required):
            if required:
                die(f"{where}: {field}: got nothing, wanted {describe(kind)}", LOOK)
        elif isinstance(kind, str):
            if not KINDS[kind][0](value):
                die(f"{where}: {field}: got {shown(value)}, wanted {KINDS[kind][1]}", LOOK)
        elif isinstance(kind, dict):
            check(where, value, kind, field + ".")
        elif not isinstance(value, list):
            die(f"{where}: {field}: got {shown(value)}, wanted {describe(kind)}", LOOK)
        else:
            for i, item in enumerate(value): check(where, item, kind[0], f"{field}[{i}].")


def describe(kind):
    if isinstance(kind, str):
        return KINDS[kind][1]
    needed = [key.rstrip("!")
              for key in (kind if isinstance(kind, dict) else kind[0]) if key.endswith("!")]
    what = "a list of objects" if isinstance(kind, list) else "an object"
    return what + (" with " + ", ".join(needed) if needed else "")


def check_eval(where, e):
    """An eval object: its fields, and that what belongs together has one shape."""
    check(where, e, EVAL)
    wrong = misshapen(e, MAPS, lambda x: (len(x), len(x[0])))
    for letter in ("h_", "k_", "v_", "pre_"):
        wrong += misshapen(e, [n for n in NORMS if n.startswith(letter)], len)
    wrong += ["layers"] if len(attending(e)) != len(e["alpha1"]) else []
    for field in wrong:
        die(f"{where}: {field}: got another shape than the fields beside it, wanted the same", LOOK)
    for s in [e["sink"]] + (e.get("sinks") or []):
        ks = list(range(1, len(s["k"]) + 1))
        if not ks or s["k"] != ks or len(s["sink_k"]) != len(ks) or len(s["proxy_k"]) != len(ks):
            die(f"{where}: sink: got k {shown(s['k'])}, wanted 1, 2, .. and a sink_k and a proxy_k "
                "for each", LOOK)


def attending(e):
    """The layers that the rows of maps, keys and values are of: all, unless the model has
    some without attention."""
    return list(e.get("layers") or range(len(e["alpha1"])))


def misshapen(e, names, size):
    """Those of the names whose size is not that of the first of them."""
    there = [n for n in names if n in e]
    return [n for n in there if size(e[n]) != size(e[there[0]])]


# ---- 3 logs and runs -----------------------------------------------------------------------------
def event_of(line):
    """The object of a line of a log; ValueError if it is none."""
    o = parse(line)
    if isinstance(o, dict) and isinstance(o.get("event"), str): return o
    raise ValueError


def read_log(path, hint="only the last line may be half written; train_sink --resume mends a log",
             training=True):
    """The objects of a log.jsonl with their line numbers, and what had to be ignored. Without
    training the many lines of training steps but the last line are passed over: that takes a
    twentieth of the time."""
    lines = read_text(path, "name a run, the directory that holds log.jsonl: ls runs").split("\n")
    lines = [(i + 1, line) for i, line in enumerate(lines) if line.strip()]
    if not lines:
        die(f"{path}: got an empty file, wanted a line of config first",
            "the run has written nothing: train it again")
    objects, notes = [], []
    for i, line in lines:
        is_step = line.startswith('{"event":"train"') and line.endswith("}")
        if is_step and not training and i != lines[-1][0]: continue
        try:
            objects.append((i, event_of(line)))
        except ValueError:
            if i != lines[-1][0]:
                die(f"{path}, line {i}: got {shown(line)}, wanted an object with an event", hint)
            notes.append(f"{path}, line {i} is half written and was ignored")
    if not objects or objects[0][1]["event"] != "config":
        got = shown(objects[0][1]["event"]) if objects else "half a line"
        die(f"{path}: got {got} in the first line, wanted config",
            "name the log.jsonl that train_sink wrote")
    for i, o in objects:
        check_event(f"{path}, line {i}", o)
    return objects, notes


def check_event(where, o):
    if o["event"] == "eval":
        check_eval(where, o)
    else:
        check(where, o, EVENTS.get(o["event"], {}))


def read_run(path):
    log = os.path.join(path, "log.jsonl") if os.path.isdir(path) else path
    objects, notes = read_log(log)
    one_shape(log, [(i, o) for i, o in objects if o["event"] == "eval"])
    objects = [o for _, o in objects]
    of = lambda event: [o for o in objects if o["event"] == event]
    run = {"path": os.path.dirname(log) or ".", "log": log, "config": objects[0],
           "train": of("train"), "evals": of("eval"),
           "samples": of("sample"), "resumes": resumes(objects), "notes": notes}
    run["name"] = last_name(run["path"])
    run["status"] = status(objects)
    run["held"] = run["status"] == "unfinished" and held(run["path"])
    run["silent"] = silent(log)
    for key in ("loss", "grad_norm"):
        nulls = [o["step"] for o in run["train"] if o.get(key) is None]
        if nulls:
            why = "not finite, or no target" if key == "loss" else "not finite"
            notes.append(f"{log}: {key} is null ({why}) at {len(nulls)} steps, "
                         f"the first is {nulls[0]}")
    return run


def one_shape(log, evals):
    """The model does not change in the course of a run."""
    shape = lambda e: (len(e["alpha1"]), len(e["alpha1"][0]))
    for i, e in evals:
        if shape(e) != shape(evals[0][1]):
            die(f"{log}, line {i}: alpha1: got {shape(e)} layers and heads, "
                f"wanted {shape(evals[0][1])} as before", LOOK)


def resumes(objects):
    """Where a run went on, each with a step: its own, or that of the last line before it."""
    step, found = 0, []
    for o in objects:
        step = o["step"] if is_count(o.get("step")) else step
        if o["event"] == "resume":
            found.append({**o, "step": step})
    return found


def flags_at(run, step=None):
    """The flags that a step was made with, or (None) those that the run ended with: --resume may
    change some, and its event says which."""
    flags = dict(run["config"]["flags"])
    for r in run["resumes"]:
        if step is None or r["step"] < step:
            flags.update({key: pair[1] for key, pair in r.get("changed", {}).items()
                          if key in flags})
    return flags


def program_at(run, step):
    """The program that made a step: its version, commit, backend and precision, as the log says."""
    names = ("version", "commit", "backend", "precision")
    program = {name: run["config"].get(name) for name in names}
    for r in run["resumes"]:
        if r["step"] < step:
            changed = r.get("changed", {})       # older logs have a change alone
            program.update({name: changed[name.upper()][1] for name in names
                            if name.upper() in changed})
            program.update({name: r[name] for name in names if name in r})
    return program


def held(path):
    """Is a process writing to this run? The program locks the file `lock` of its directory, and
    Linux lists the locks of this machine. None: not to be known."""
    try:
        there = os.stat(f"{path}/lock")
        with open("/proc/locks", encoding="ascii", errors="replace") as f:
            return any(words[-3].endswith(f":{there.st_ino}") for words in map(str.split, f)
                       if len(words) > 7)
    except OSError:
        return None


def silent(log):
    """Seconds since the last line of a log."""
    try:
        return max(0, time.time() - os.path.getmtime(log))
    except OSError:
        return None


def status(objects):
    last = objects[-1]
    if last["event"] in ("done", "stopped"):
        return last["event"]
    step = [o for o in objects if o["event"] == "train"][-1:]
    lost = any(o.get(key) is None for o in step for key in ("loss", "grad_norm"))
    return "diverged" if lost else "unfinished"


def not_there(path):
    """Dies of a run that is not there."""
    above = os.path.dirname(path.rstrip("/"))
    demo = re.match(r"runs/demo-(text|bb)", path)
    hint = "ls -d */" if not above else f"ls {shlex.quote(above)}"
    if not os.path.isdir(above or "."): hint = "train one: ./train_sink train -o runs/mine"
    if demo: hint = {"text": "make demo trains it", "bb": "make demo-bb trains it"}[demo[1]]
    die(f"{path}: no such directory, wanted a run (where a log.jsonl is) or a directory of runs",
        hint)


def expand(path):
    """A directory of runs stands for the runs in it, and in its directories that are no runs."""
    if not os.path.exists(path): not_there(path)
    if not os.path.isdir(path) or os.path.exists(f"{path}/log.jsonl"):
        return [path]
    try:
        inside = [os.path.join(path, name) for name in sorted(os.listdir(path))]
    except OSError as e:
        die(f"{path}: got '{e.strerror}', wanted a run or a directory of runs", "ls runs")
    is_run = lambda run: os.path.exists(f"{run}/log.jsonl")
    deeper = [os.path.join(d, name) for d in inside if os.path.isdir(d) and not is_run(d)
              and os.access(d, os.R_OK | os.X_OK) for name in sorted(os.listdir(d))]
    inside = [run for run in inside + deeper if is_run(run)]
    current = [run for run in inside if not re.search(r"[.]old[0-9]+$", run)]
    if inside and not current:
        die(f"{path}: got only runs that were moved aside in it, wanted others", f"ls {shlex.quote(inside[0])}")
    if not inside:
        die(f"{path}: got no log.jsonl in it, wanted a run or a directory of runs", "ls runs")
    return current


def read_whole(paths, left_out):
    """The runs of these that can be read, and what is wrong with the others; dies if none can."""
    global raising
    runs, wrong = [], []
    for path in paths:
        raising = len(paths) > 1
        try:
            runs += read_probe(path) if path.endswith(".json") else [read_run(path)]
        except Damaged as e:
            wrong.append(e.args)
        finally:
            raising = False
    if wrong and not runs:
        die(*wrong[0])
    left_out += [f"{what}: this run was left out" for what, _ in wrong]
    return runs


def read_runs(paths, quiet=False, left_out=None):
    """Runs and probes with names that differ: where two directories share theirs,
    the parent's comes before it. One that is damaged does not stop the others: it is a note, which
    joins left_out."""
    missing = [] if left_out is None else left_out
    paths = [p for path in paths for p in ([path] if path.endswith(".json") else expand(path))]
    if len(paths) > 500: note(f"reading {len(paths):,} runs")
    runs = read_whole(paths, missing)
    for text in [] if quiet else missing:
        note(text)
    names = [run["name"] for run in runs]
    for run in runs:
        if names.count(run["name"]) > 1 and run["train"]:
            run["name"] = "/".join(os.path.abspath(run["path"]).split(os.sep)[-2:])
        for text in [] if quiet else run["notes"]:
            note(text)
    return runs


# ---- 4 probes, results ---------------------------------------------------------------------------
def read_json(path, spec, hint):
    text = read_text(path, hint)
    needed = [key.rstrip("!") for key in spec if key.endswith("!")]
    try:
        o = parse(text)
    except ValueError as e:
        die(f"{path}: got no JSON ({e}), wanted an object with {', '.join(needed)}", hint)
    missing = [k for k in needed if not isinstance(o, dict) or k not in o]
    if missing:
        die(f"{path}: got an object without {', '.join(missing)}, wanted {', '.join(needed)}", hint)
    return o


def read_probe(path):
    """probe --json as runs of one evaluation, one for each source of data and length."""
    o = read_json(path, {"sink!": "", "alpha1!": ""},
                  "write one: ./train_sink probe RUN/step_N --json FILE")
    several = o.get("all", [o])
    check(path, {"all": several}, {"all": [{}]})
    for i, e in enumerate(several or [o]):
        where = f"{path}, all[{i}]" if "all" in o else path
        check_eval(where, {"step": 0, **e})
        if "with_bos" in e:
            check(path, e, {"with_bos": {}})
            check_eval(f"{where}, with_bos", {"step": 0, **e["with_bos"]})
    name = named(path)
    differ = lambda get: len({get(e) for e in several}) > 1
    data, length = differ(lambda e: e.get("data")), differ(lambda e: e["sink"]["T"])
    runs = []
    for e in several or [o]:
        runs.append(probed(path, name, {"step": 0, **e}, data, length))
        if "with_bos" in e:                      # the same text, begun as the model's tokenizer does
            runs.append(probed(path, name, {"step": 0, **e, **e["with_bos"]}, data, length))
            runs[-1]["name"] += " with BOS"
    return runs


def probed(path, file, e, data, length):
    """One evaluation in the shape of a run. Its name says in what it differs from
    the others of its file."""
    model = str(e.get("checkpoint") or "").rstrip("/").split("/")
    model = "/".join(model[-2:] if model[-1].startswith("step_") else model[-1:])
    data_and_length = f"{e.get('data', '')}, T {e['sink']['T']}"
    config = {"switches": {}, "flags": {}, "data": ": ".join(filter(None, [model, data_and_length]))}
    name = file + f" {os.path.basename(e.get('data', ''))}" * data + f" T {e['sink']['T']}" * length
    return {"path": path, "log": path, "name": name, "file": file, "config": config, "train": [],
            "evals": [e], "samples": [], "resumes": [], "notes": [], "status": "probed"}


def read_results(path):
    o = read_json(path, RESULTS, "write one: scripts/reproduce")
    check(path, o, RESULTS)
    return o


def what_is(path):
    """What a .json file holds: a "table" of scripts/reproduce, an "eval", or a "probe"."""
    try:
        o = parse(read_text(path, "write one: scripts/reproduce, or ./train_sink probe RUN/step_N "
                                  "--json FILE"))
    except ValueError as e:
        die(f"{path}: got no JSON ({e}), wanted a table of scripts/reproduce or a probe",
            "name another file")
    if not isinstance(o, dict): return "probe"
    return "table" if "table" in o else "eval" if "runs" in o else "probe"


def read_evaluated(path):
    """What eval --json writes: a row for the plain model and one for each change of it."""
    o = read_json(path, {"runs!": ""}, "write one: ./train_sink eval RUN/step_N --edit .. --json FILE")
    check(path, o, EVALUATED)
    return {**{k: o.get(k) for k in EVALUATED if k != "runs!"},
            "runs": [{k.rstrip("!"): r.get(k.rstrip("!")) for k in EVALUATED["runs!"][0]}
                     for r in o["runs"]]}


# ---- 5 numbers of a run --------------------------------------------------------------------------
def number(x):
    return float("nan") if x is None else float(x)


def group(run):
    """The name without its seed: runs of one group are drawn alike."""
    return re.sub(r"([-_.]?seed|-s)\d+$", "", run["name"]) or run["name"]


def switches(run):
    """ATTN=sigmoid BIAS=k: what differs from the default build. Of a probe: its data and length."""
    if run["status"] == "probed":
        return run["config"]["data"]
    changed = [f"{k}={v}" for k, v in run["config"]["switches"].items() if DEFAULTS.get(k) != v]
    return " ".join(changed) or "ATTN=softmax"


# flags that say where a run went, not what it was
QUIET_FLAGS = {"out", "resume"}


def differing_flags(runs):
    """Names of the flags in which these runs differ, in the order of the log."""
    flags = [flags_at(r) for r in runs if r["status"] != "probed"]
    names = dict.fromkeys(key for f in flags for key in f)
    return [n for n in names if n not in QUIET_FLAGS and len({str(f.get(n)) for f in flags}) > 1]


def uses_proxy(evals):
    """True where rows of the attention do not sum to 1: the paper then measures |w| / sum |w|.
    Raw and proxy differ."""
    pairs = [(a, b) for e in evals
             for row, twin in zip(e["alpha1"], e.get("alpha1_proxy", e["alpha1"]))
             for a, b in zip(row, twin) if a is not None and b is not None]
    return any(abs(a - b) > 1e-4 for a, b in pairs)


def alpha_of(evals):
    """The field of these evaluations that has alpha_1 as the paper measures it."""
    return "alpha1_proxy" if uses_proxy(evals) else "alpha1"


def sink(e, proxy, k=1):
    """Sink_k of an eval object in percent; None where it was not measured."""
    rates = e["sink"]["proxy_k" if proxy else "sink_k"]
    return None if k > len(rates) or rates[k - 1] is None else 100 * rates[k - 1]


def sinks_of(e):
    """The sinks of an evaluation: one for each threshold."""
    return e.get("sinks") or [e["sink"]]


def gated_sink(e, sink):
    """Sink_1 of what passes the gate, at the threshold of `sink`; None where it was not measured:
    an evaluation with several may give that of the first alone."""
    first = e.get("sink_effective") if sink["eps"] == e["sink"]["eps"] else None
    found = sink.get("sink_effective", first)
    if isinstance(found, list):
        return found[0] if found else None
    return found


def numbers(evals):
    """The numbers of the evaluations in every digit, as a text."""
    return json.dumps([[e["step"], e.get("val_loss"), e.get("probe_loss"), e["alpha1"],
                        e["sink"]["sink_k"]] for e in evals])


def said_in(run):
    """The program's notes, each once."""
    path = f"{run}/output.txt"       # what sweep and reproduce keep
    lines = read_text(path, "ls -l").split("\n") if os.path.exists(path) else []
    return list(dict.fromkeys(line[5:].strip() for line in lines if line.startswith("note ")))


def at_step(run, step):
    """The evaluation of that step, of the last one for None."""
    if not run["evals"]:
        die(f"{run['path']}/log.jsonl: got no evaluation, wanted one",
            "wait for the first, or train with --eval-every")
    found = [e for e in run["evals"] if step is None or e["step"] == step]
    if not found:
        steps = " ".join(str(e["step"]) for e in run["evals"])
        die(f"--step {step}: {run['path']} was not measured there, wanted one of {steps}",
            "choose one of these steps")
    return found[-1]


# ---- 6 rows of results/*.json: the paper's number, or a word in its place, and ours by seed.
# Sinks in percent --------
def sink_positions(row):
    """The k of Sink_k that the paper gives, 1 if it gives none."""
    given = paper(row, "sink_k")
    return [int(k) for k in given] if isinstance(given, dict) and given else [1]


def main_position(row):
    """The k of the largest Sink_k of the paper: where the row is about another token than
    the first, that token."""
    given = lambda k: paper_sink(row, k)
    return max(sink_positions(row), key=lambda k: given(k) if is_number(given(k)) else 0)


def paper(row, name):
    """Returns what the paper says of a row, or None."""
    return (row.get("paper") or {}).get(name)


def paper_sink(row, k):
    given = paper(row, "sink_k")
    return given.get(str(k)) if isinstance(given, dict) else given


def paper_star(row):
    return paper(row, "sink_star")


def paper_loss(row):
    return paper(row, "val_loss")


def same_data(results):
    """True where our losses can be compared with the paper's: both of the Pile.
    Losses of other data are other quantities."""
    data = results.get("data", "")
    return data.startswith("pile") and " + " not in data     # and no mixture


def ours(row, get, at="last"):
    found = [get(o[at]) for o in row.get("ours") or [] if o.get("status") == "done" and o.get(at)]
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
    """What is shown in place of a number of ours."""
    statuses = {o.get("status") for o in row.get("ours") or []}
    if row.get("skipped"):
        return "skipped"                                     # it means nothing at this scale
    return "failed" if "failed" in statuses else None if "done" in statuses else "not run"
