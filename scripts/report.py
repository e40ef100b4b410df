#!/usr/bin/env python3
"""Writes one self-contained page, report.html, about runs, probes and tables of scripts/reproduce.
Standard library only.

The page is scripts/report.html with the data written into it; it needs no server and no network.
What it shows is decided there, in JavaScript; here the logs are read, thinned and rounded.
To show something new of a log: add it in run_data.
"""
import argparse
import json
import math
import os
import shlex
import sys
import time

sys.path.insert(0, os.path.dirname(__file__) + "/lib")
import compare
import dumps
import export
import runlog
from runlog import die, say as print

# training steps kept for a curve: the smallest and the largest of each of 1000 stretches
POINTS = 2000
DIGITS = 6
RELOAD_SECONDS = 5
# what report.html has in place of the data
EMPTY = '{"runs":[],"results":[],"evaluated":[],"dumps":[],"differing":[],"notes":[],"reload":0}'


def thin(steps, values):
    """At most POINTS points, spikes kept. Nulls count as extremes: a gap in a curve is news."""
    n = len(steps)
    if n <= POINTS:
        return [steps, values]
    keep = {0, n - 1}
    size = 2 * n / POINTS
    for i in range(POINTS // 2):
        part = range(int(i * size), min(n, int((i + 1) * size)))
        height = lambda j: float("inf") if values[j] is None else values[j]
        keep |= {min(part, key=height), max(part, key=height)}
    keep = sorted(keep)
    return [[steps[i] for i in keep], [values[i] for i in keep]]


def rounded(x):
    """Every number of an object at six digits: half the size of the page,
    and more than a screen shows."""
    if isinstance(x, float):
        return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None
    if isinstance(x, list):
        return [rounded(y) for y in x]
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    return x


def run_data(run):
    train, config, evals = run["train"], run["config"], run["evals"]
    steps = [t["step"] for t in train]
    # fields of every evaluation
    always = set.intersection(*map(set, evals)) - {"alpha", "all"} if evals else ()
    return {
        "name": run["name"], "group": runlog.group(run), "path": run["path"],
        "status": run["status"], "held": run.get("held"),
        "silent": run["status"] == "unfinished" and run["silent"],
        "file": run.get("file"), "notes": run["notes"], "title": runlog.switches(run),
        "switches": config["switches"], "flags": runlog.flags_at(run),
        "build": {**{k: config.get(k) for k in ("params", "backend", "precision", "commit")},
                  "data, in words": config.get("data"), "started": config.get("time")},
        "proxy": runlog.uses_proxy(evals),
        "evals": [{k: e[k] for k in e if k in always} for e in evals],
        "samples": [{"step": s["step"], "text": s["text"]} for s in run["samples"]],
        "resumes": [{k: v for k, v in r.items() if k != "event"} for r in run["resumes"]],
        "last": train[-1] if train else None,
        "ms": sum(t.get("ms") or 0 for t in train[-100:]) / max(1, len(train[-100:])),
        "curves": {key: thin(steps, [t.get(key) for t in train]) for key in ("loss", "grad_norm")}
        if train else {},
    }


def results_data(results):
    """The rows of a table with the numbers worked out, so that page and plots say the same."""
    for row in results["rows"]:
        row["sinks"] = [[k, runlog.paper_sink(row, k), runlog.our_sink(row, k),
                         runlog.our_sink(row, k, "step0")]
                        for k in runlog.sink_positions(row)]
        row["star"] = [runlog.paper_star(row), runlog.our_star(row)]
        row["loss"] = [runlog.paper_loss(row), runlog.our_loss(row)]
        row["main"] = runlog.main_position(row)
        row["why_not"] = runlog.why_not(row)
        row["ours"] = [{k: o.get(k) for k in ("seed", "run", "status", "tokens")}
                       for o in row.get("ours") or []]
    results["same_data"] = runlog.same_data(results)
    results["has_paper"] = any(x is not None for row in results["rows"]
                               for x
                               in [s[1] for s in row["sinks"]] + [row["star"][0], row["loss"][0]])
    return results


def name_by_rows(runs, tables):
    """Beside a table its runs are called as its rows are, and stand in their order: a run may be
    shared by several tables."""
    found = [(os.path.abspath(o["run"]), f"{row['id']}-seed{o.get('seed', 0)}")
             for results in tables for row in results["rows"]
             for o in row.get("ours") or [] if o.get("run")]
    names, order = dict(reversed(found)), {path: i for i, (path, _) in enumerate(found)}
    for run in runs:
        path = os.path.abspath(run["path"])
        run["name"], run["place"] = names.get(path, run["name"]), order.get(path, len(order))
    runs.sort(key=lambda run: run["place"])


def page(paths, live):
    """The html, and whether every run in it has ended."""
    kinds = {p: runlog.what_is(p) for p in paths if p.endswith(".json")}
    tables = [p for p in paths if kinds.get(p) == "table"]
    evaluated = [p for p in paths if kinds.get(p) == "eval"]
    maps = [p for p in paths if dumps.heads_in(p)]
    notes = []
    runs = runlog.read_runs([p for p in paths if p not in tables + evaluated + maps],
                            quiet=live, left_out=notes)
    results = [runlog.read_results(p) for p in tables]
    name_by_rows(runs, results)
    ended = all(r["status"] in ("done", "stopped", "probed") for r in runs)
    data = {"runs": [run_data(r) for r in runs], "results": [results_data(r) for r in results],
            "evaluated": [runlog.read_evaluated(p) for p in evaluated],
            "dumps": [dumps.dump_data(p) for p in maps],
            "differing": runlog.differing_flags(runs), "notes": notes,
            "reload": RELOAD_SECONDS if live and not ended else 0}
    text = json.dumps(rounded(data), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    template = runlog.read_text(os.path.join(os.path.dirname(__file__), "report.html"),
                                "git checkout scripts")
    return template.replace(EMPTY, text), ended


def write(path, text):
    """Writes a page, so that a browser that reloads at this moment reads the old one or the new."""
    known = os.path.basename(path) in ("log.jsonl", "probe.json", "state.json", "config.json")
    if known or (os.path.exists(path) and not os.path.isfile(path)):
        die(f"-o {path}: got a run's own file, or none that can be replaced, wanted a new page",
            "-o runs/report.html")
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        runlog.write_whole(path, text)
    except OSError as e:
        die(f"{path}: got '{e.strerror}', wanted a file to write", "choose another: -o FILE")


def sizes(paths):
    logs = [f"{p}/log.jsonl" if os.path.isdir(p) else p for path in paths
            for p in runlog.expand(path)]
    return [(log, os.path.getsize(log)) for log in logs if os.path.exists(log)]


def watch(paths, out):
    """Rewrites the page whenever a log has grown, until every run has ended or Ctrl-C."""
    print(f"{out}: open it in a browser; it is rewritten as the logs grow. Ctrl-C ends this, "
          "not the runs")
    before, ended = None, False
    try:
        while not ended:
            now = sizes(paths)
            if now != before and any(size for _, size in now):
                html, ended = page(paths, live=True)
                write(out, html)
                before = now
            time.sleep(0 if ended else 1)
        print("every run has ended")
    except KeyboardInterrupt:
        write(out, page(paths, live=False)[0])


def write_csv(runs, out):
    text = export.csv_text(runs)
    if not out:
        return sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    write(out, text)
    print(f"{out}: {max(0, len(text.splitlines()) - 1)} rows")


def write_events(runs, out):
    out = out or "runs/tensorboard"
    try:
        export.tensorboard(runs, out)
    except OSError as e:
        die(f"{out}: got '{e.strerror}', wanted a directory to write to", "choose another: -o DIR")
    print(f"{out}: {len(runs)} runs; tensorboard --logdir {shlex.quote(out)}")


def arguments(words):
    parser = argparse.ArgumentParser(prog="scripts/report.py", allow_abbrev=False,
                                     description=__doc__.split("\n\n")[0])
    parser.error = lambda text: die(f"options: {text}", "scripts/report.py --help")
    parser.add_argument("inputs", nargs="*", metavar="RUN | RUNS | PROBE.json | EVAL.json | DUMP | RESULTS.json",
                        help="a run (a directory with log.jsonl), a directory of runs, "
                             "the file of train_sink probe --json or eval --json, the directory of --dump DIR "
                             "--dump-heads all (one per sequence), "
                             "or a table written by scripts/reproduce")
    parser.add_argument("-o", "--out", help="the page [runs/report.html], the CSV file [printed], "
                                            "the directory for TensorBoard [runs/tensorboard]")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--watch", action="store_true",
                       help="rewrite the page while the runs train; it reloads itself")
    kinds.add_argument("--csv", action="store_true",
                       help="write CSV of runs and probes, one row per evaluation, and no page")
    kinds.add_argument("--tensorboard", action="store_true",
                       help="write TensorBoard's event files, and no page")
    kinds.add_argument("--compare", action="store_true",
                       help="print what sets two runs apart, or two groups of seeds (A: A-seed1, A-seed2 ..), "
                            "and each metric's difference, and write no page")
    options = parser.parse_intermixed_args(words)
    if not options.inputs:
        die("report: got nothing to show, wanted runs, probes or results", "scripts/report.py runs")
    return options


def main(words):
    options = arguments(words)
    out = options.out or "runs/report.html"
    if options.compare: return compare.compare(options.inputs)
    if options.csv or options.tensorboard:
        runs = runlog.read_runs(options.inputs)
        return (write_csv if options.csv else write_events)(runs, options.out)
    if options.watch:
        return watch(options.inputs, out)
    html, _ = page(options.inputs, live=False)
    write(out, html)
    print(f"{out}: {len(html) / 1e6:.1f} MB")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BrokenPipeError:
        os._exit(0)                                          # report.py --csv runs | head
