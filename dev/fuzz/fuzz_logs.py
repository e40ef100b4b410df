"""fuzz_logs.py [COUNT] [SEED] [--figures] -- damaged logs, probes and tables against
the scripts that read them.

Each case takes a good file of test/report, changes a few bytes, values, keys or lines,
and asks report.py for its page and its CSV, or with --figures plot.py for every figure.
A file may be refused (exit status 2, one line of error and one of hint) or drawn;
a traceback is a finding, and is printed with the file that made it. 10,000 cases take some minutes.
"""
import copy, contextlib, io, json, os, random, shutil, sys, tempfile, traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.path.insert(0, os.path.join(ROOT, "scripts", "lib"))
import report

STRANGE = [None, True, False, 0, 1, -1, 2 ** 70, 10 ** 400, 1e308, -1e308, 1e-320, float("nan"),
           float("inf"), "", "x",
           "\ud800", "\0\x1b[2J", "</script>", "$\\frac$", "1" * 5000, [], [[]], [[1], [1, 2]],
           [None], {}, {"": {}}, {"sink_k": [1]}, {"1": "x"}, {"x": 1}, [[0.5, 0.5]], "9" * 30]
DEEP = "[" * 100000


def places(x, path=()):
    """The paths of all values inside x."""
    yield path
    inside = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    for key, y in inside:
        yield from places(y, path + (key,))


def change(o, rng):
    """One value or key of an object lost, doubled or replaced."""
    path = rng.choice([p for p in places(o) if p] or [()])
    if not path:
        return rng.choice(STRANGE)
    parent = o
    for key in path[:-1]:
        parent = parent[key]
    kind = rng.randrange(4)
    if kind == 0:
        del parent[path[-1]]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(parent[path[-1]]))
    else:
        parent[path[-1]] = copy.deepcopy(rng.choice(STRANGE))
    return o


def change_lines(objects, rng):
    """A log or a file of one object: values and lines changed."""
    objects = copy.deepcopy(objects)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        i = rng.randrange(len(objects))
        kind = rng.randrange(12)
        if kind == 0:
            del objects[i]
        elif kind == 1:
            objects.insert(rng.randrange(len(objects) + 1), copy.deepcopy(rng.choice(objects)))
        elif kind == 2:
            objects[i] = copy.deepcopy(rng.choice(STRANGE))
        else:
            objects[i] = change(objects[i], rng)
        if not objects:
            break
    return "\n".join(json.dumps(o) for o in objects).encode()


def change_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice([1, 2, 10])):
        i = rng.randrange(len(data)) if data else 0
        kind = rng.randrange(6)
        if kind == 0:
            data[i:i + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            data[i:i] = rng.choice([b"\n", b"{", b"}", b"[", b'"', b",", b"\0", b"\xff\xfe", b"NaN",
                                    b"-Infinity", b"1e999"])
        elif kind == 2:
            del data[i:i + rng.randrange(100)]
        elif kind == 3:
            del data[i:]
        elif kind == 4:
            data[i:i] = data[i // 2:i // 2 + rng.randrange(200)]
        elif rng.randrange(50) == 0:
            data[i:i] = DEEP.encode()
    return bytes(data)


def examples():
    """Good files: a log with every event, probes, a table."""
    log = [json.loads(line)
           for line in open(os.path.join(ROOT, "test/report/tiny/log.jsonl"), encoding="utf-8")]
    log.insert(-3, {"event": "resume", "step": 7, "time": "2026-01-01T00:00:00Z",
                    "changed": {"lr": [1, 2]}})
    log.insert(-3, {"event": "unheard_of", "step": {}})
    e = dict([o for o in log if o["event"] == "eval"][-1], data="bb", gate_mean=[0.5, 0.5],
             gate_low=[[0, 1], [1, 0]])
    several = [dict(e, sinks=[e["sink"], dict(e["sink"], eps=0.1)],
                    alpha=[[[[0.1] * 10] * 2] * 2] * 3),
               dict(e, data="text", sink=dict(e["sink"], T=16))]
    table = json.load(open(os.path.join(ROOT, "test/report/table.json"), encoding="utf-8"))
    return {"run/log.jsonl": log, "probe.json": [e], "probes.json": [dict(several[0], all=several)],
            "table.json": [table]}


def read(path, out, figures):
    """What the scripts make of a file. SystemExit 2 is a refusal."""
    kind = os.path.basename(path)
    inputs = [os.path.dirname(path) if kind == "log.jsonl" else path]
    if not figures:
        report.main(inputs + ["-o", out + "/page.html"])
        if kind != "table.json":
            report.main(inputs + ["--csv", "-o", out + "/rows.csv"])
        return
    import plot
    of_probe = ["heads", "norms", "profiles", "threshold"]
    names = {"log.jsonl": ["all"], "table.json": ["table"]}.get(kind, of_probe)
    for name in names:
        plot.main([name] + inputs + ["-o", out])


def attempt(path, out, figures):
    """Nothing where a file is drawn or refused as it should be, else what went wrong."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            read(path, out, figures)
    except SystemExit as e:
        lines = [line for line in errors.getvalue().splitlines() if not line.startswith("note: ")]
        good = (len(lines) == 2 and lines[0].startswith("error: ")
                and lines[1].startswith("---> HINT: "))
        return None if good and e.code == 2 else f"exit status {e.code}, {lines}"
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt):
            raise
        return traceback.format_exc()


def main(words):
    figures = "--figures" in words
    numbers = [int(w) for w in words if w != "--figures"]
    count, rng = (numbers + [10000])[0], random.Random((numbers + [0, 1])[1])
    good, findings = examples(), 0
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(d + "/run")
        for i in range(count):
            name = rng.choice(list(good))
            data = change_lines(good[name], rng)
            if rng.randrange(3) == 0:
                data = change_bytes(data, rng)
            with open(f"{d}/{name}", "wb") as f:
                f.write(data)
            trouble = attempt(f"{d}/{name}", d, figures)
            if trouble:
                findings += 1
                kept = os.path.join(tempfile.gettempdir(),
                                    f"fuzz_logs-{i}-{os.path.basename(name)}")
                shutil.copy(f"{d}/{name}", kept)
                print(f"case {i}, {kept}:\n{trouble}", flush=True)
    print(f"{count - findings} passed, {findings} failed")
    return findings > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
