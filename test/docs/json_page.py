"""Is docs/json.md whole and true? Run by test_json.sh, in a directory of files to read.

Every key of the files must stand in the page's tables or text, every key of the tables in the
program, and every expression of the last column must be of some object of its section. What the scripts
want of a file (scripts/lib/runlog.py) must hold of these, and each field that they want stands on the page.
"""
import json
import os
import re
import sys

from expect import end, expect
import runlog

page, sources = sys.argv[1], sys.argv[2:]
text = open(page, encoding="utf-8").read()


def keys(x, found):
    if isinstance(x, list):
        for y in x: keys(y, found)
    elif isinstance(x, dict):
        for key, y in x.items():
            found.add(key)
            # the names of flags, switches and changed flags are --help's
            if key not in ("flags", "switches", "changed"): keys(y, found)
    return found


def lines(name):
    with open(name, encoding="utf-8") as f: return [json.loads(line) for line in f]


logs = [o for name in sorted(os.listdir(".")) if name.endswith(".jsonl") for o in lines(name)]
files = {name: json.load(open(name, encoding="utf-8"))
         for name in sorted(os.listdir(".")) if name.endswith(".json")}
told = set(re.findall(r"`([A-Za-z_0-9]+)`", text))
for name, o in list(files.items()) + [("a log", o) for o in logs]:
    for key in sorted(keys(o, set())):
        plain = re.sub("_stderr$", "", key)
        expect(plain in told, f"{page} does not tell of {key}, which is in {name}")

code = "".join(open(s, encoding="utf-8").read() for s in sources)
for row in re.findall(r"(?m)^\| (`[^|]*`) \|.*\|$", text):
    for key in re.findall(r"`(\w+)`", row):
        stem = re.sub("_(first|rest)$", "", key)
        written = any(re.search(rf'"{name}\\?"|\b(?:X|QUERY)\({name},', code) for name in (key, stem))
        expect(written, f"{page} tells of {key}, which no source writes")

# the schema of the scripts
for i, o in enumerate(logs):
    if "event" in o: runlog.check_event(f"object {i} of the logs", o)
for o in files["probe.json"]["all"]:
    runlog.check_eval("probe.json", {"step": 0, **o})
runlog.check("eval.json", files["eval.json"], runlog.EVALUATED)
for key in sorted(keys([*runlog.EVENTS.values(), runlog.EVALUATED], set())):
    expect(key.rstrip("!") in told, f"{page} does not tell of {key}, which scripts/lib/runlog.py reads")

# what needs another build has the shape of what is there
evals = [dict({k: o["alpha1"] for k in runlog.GATES}, **o) for o in logs if o.get("event") == "eval"]
events = {"config": [o for o in logs if o.get("event") == "config"],
          "train,": [o for o in logs if o.get("event") == "train"],
          "sample": [o for o in logs if o.get("event") in ("sample", "resume", "until", "done")],
          "eval, and": evals + [files["probe.json"]],
          "eval --json": [files["eval.json"]], "score": [files["score.json"]],
          "bench": [files["bench.json"]], "anatomy": [files["probe.json"]["anatomy"]],
          "anywhere": [files["probe.json"]["anywhere"]]}
for part in re.split(r"(?m)^## ", text)[1:]:
    head, tried = part.split("\n")[0], 0
    objects = next((o for key, o in events.items() if key in head), [])
    for what in re.findall(r"(?m)^\|.*\| `([^`]*)` \|$", part):
        good, why = False, "there is no object"
        for o in objects:
            try:
                eval(what, {"o": o, "a": o})
                good = True
            except (KeyError, IndexError, TypeError, ZeroDivisionError) as e:
                why = repr(e)
        expect(good, f"{page}, {head}: {what}: {why}")
        tried += 1
    expect(tried or "dump" in head, f"{page}, {head}: no examples")
end()
