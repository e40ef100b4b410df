#!/usr/bin/env python3
"""after.py RESULTS.json.. -- what the models of a table of scripts/reproduce lose when
something is taken from them.

    scripts/after.py results/interventions-text.json            evaluates each finished run,
                                                                prints the table
    scripts/after.py results/interventions-text.json --report   only prints what is there
    scripts/after.py results/interventions-text.json --markdown     the table as Markdown

Each run's last checkpoint goes through `train_sink eval` with the flags of EVAL,
on the run's own held-out sequences. RUN/after.json keeps the answer; it is made again when the
flags, the checkpoint or the program's sources have changed, and until then --report does not show
it. Binaries are those of this tree, built if they are missing. The table also goes to
RESULTS-after.json, but not with --report. Needs Python 3.9 and nothing else.
"""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__) + "/lib")
import jobs
import runlog
from jobs import spread
from runlog import die, say as print

EVAL = ["--stream", "0+16,1+15", "--evict", "observed:0.5", "--quant", "w8a8:dynamic,w4a4,kv4",
        "--quant-keep", "0,1", "--edit", "A:*:1=mask", "--gradients"]

# the table: title, what eval calls the run. Each is the change of the loss, in nats
COLUMNS = [
    ("0+16",                "stream 0+16"),
    ("1+15",                "stream 1+15"),
    ("half evicted",        "evict observed:0.5"),
    ("token 1 kept",        "evict observed:0.5, token 1 kept"),
    ("token 1 dropped",     "evict observed:0.5, token 1 dropped"),
    ("W8A8",                "quant w8a8:dynamic"),
    ("token 1 in float",    "quant w8a8:dynamic, first 1 in float"),
    ("W4A4",                "quant w4a4:token"),
    ("KV4",                 "quant kv4:token"),
    ("KV4, token 1 in float", "quant kv4:token, first 1 in float"),
    ("token 1 masked",      "edit A:*:1=mask"),
]


def stored(run, source):
    """what RUN/after.json says, if it is of the last checkpoint, of these flags and sources"""
    kept = runlog.object_in(f"{run}/after.json")
    wanted = said_of(jobs.newest_in(run), source)
    return kept if wanted.items() <= kept.items() else None


def said_of(checkpoint, source):
    """Returns what an answer depends on."""
    return {"flags": shlex.join(EVAL), "checkpoint": os.path.basename(checkpoint), "source": source}


def evaluate(run, binary, source):
    """Runs eval on the run's last checkpoint; returns what it says, with what that depends on."""
    checkpoint, part = jobs.newest_in(run), f"{run}/after-{os.urandom(4).hex()}.json"
    if checkpoint == run:
        die(f"{run}: got no step_N, wanted a run with its last checkpoint",
            "scripts/reproduce, the same table")
    words = [binary, "eval", checkpoint] + EVAL + ["--json", part]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        die(f"{shlex.join(words)}: {done.stderr.strip()[-600:]}", "the same command by hand", 1)
    with open(part, encoding="utf-8") as f:
        said = runlog.parse(f.read())
    kept = {**said, **said_of(checkpoint, source)}
    os.remove(part)
    runlog.write_whole(f"{run}/after.json", json.dumps(kept))
    return kept


def changes(kept):
    """{name: (change, its standard error)} of a run; positions those in the cache,
    where they differ from the text's"""
    out = {}
    for r in kept["runs"]:
        name = re.sub(", positions in the (cache|text)", "", f"{r['kind']} {r['name']}")
        if name not in out:                              # the cache's come first
            out[name] = (r["change"], r["change_error"])
    return out


def gradient(kept):
    """length of the gradient of the loss in the stream before the first layer:
    the first token's over the others'"""
    return kept["gradients"]["first"][0] / kept["gradients"]["rest"][0]


def row_of(row, kept):
    """the printed line of a row whose seeds' evaluations are `kept`"""
    signed = lambda name: spread([changes(k)[name][0] for k in kept if name in changes(k)],
                                 "{:+.3f}")
    losses = [k["runs"][0]["loss"] for k in kept]
    gradients = [gradient(k) for k in kept]
    return [row["id"].split("-", 1)[-1], spread(losses, "{:.3f}"), spread(gradients, "{:.2f}"),
            *(signed(name) for _, name in COLUMNS), str(len(kept))]


def table_of(results, kept_of):
    head = ["row", "loss", "gradient at token 1"] + [title for title, _ in COLUMNS] + ["seeds"]
    lines = [row_of(r, kept_of[r["id"]]) for r in results["rows"] if kept_of[r["id"]]]
    return [head] + lines


def collect(results, binaries, source, report):
    """row id -> evaluations of its finished runs"""
    kept_of = {}
    for row in results["rows"]:
        kept_of[row["id"]] = []
        for e in row["ours"]:
            if e["status"] != "done":
                continue
            kept = stored(e["run"], source)
            if not kept and not report:
                print(f"{e['run']}", file=sys.stderr, flush=True)
                kept = evaluate(e["run"], binaries[row["make"]], source)
            if kept:
                kept_of[row["id"]].append(kept)
    return kept_of


def error_of(kept_of):
    """the largest standard error of any change, over the sequences of one run"""
    errors = [change[1] for rows in kept_of.values() for k in rows
              for change in changes(k).values() if change[1] is not None]
    return max(errors, default=float("nan"))


def about(results, kept_of):
    some = next((k for rows in kept_of.values() for k in rows), None)
    if not some:
        return "no run has been evaluated"
    return (f"{results['table']} at scale {results['scale']}: "
            f"{some['n']} sequences of {some['T']} tokens of each run; "
            f"`train_sink eval STEP {shlex.join(EVAL)}`. "
            "loss: as trained; columns after `gradient`: what is added to it, in nats, "
            "over the tokens that the run counts; mean (smallest-largest) of the seeds. "
            f"Largest standard error of a change over sequences: {error_of(kept_of):.3f}.")


def results_write(path, results, kept_of, table, text):
    """Writes the table beside its own results."""
    seeds = {i: [{"changes": changes(k), "gradient": gradient(k)} for k in v]
             for i, v in kept_of.items()}
    said = {"table": results["table"], "scale": results["scale"], "about": text,
            "head": table[0], "rows": table[1:], "seeds": seeds}
    runlog.write_whole(path[:-5] + "-after.json", json.dumps(said, indent=1) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("results", nargs="+")
    p.add_argument("--report", action="store_true", help="evaluate nothing, print what is there")
    p.add_argument("--markdown", action="store_true", help="print as Markdown")
    p.add_argument("--device", default="cpu", help="cuda or cpu [cpu]")
    p.set_defaults(latex=False)
    a = p.parse_args()
    for path in a.results:
        results = runlog.parse(runlog.read_text(path, "scripts/reproduce TABLE"))
        class o: device, jobs, source = a.device, 1, jobs.source_hash(a.device)
        todo = dict.fromkeys(r["make"] for r in results["rows"] for e in r["ours"]
                             if e["status"] == "done" and not stored(e["run"], o.source))
        binaries = jobs.build_all(list(todo), o) if todo and not a.report else {}
        kept_of = collect(results, binaries, o.source, a.report)
        table, said = table_of(results, kept_of), about(results, kept_of)
        if not a.report:
            results_write(path, results, kept_of, table, said)
        if a.markdown: print()
        jobs.print_form(table, a, said)


if __name__ == "__main__":
    jobs.guarded(main)
