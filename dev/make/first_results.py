#!/usr/bin/env python3
"""first_results.py OUT STORED [NAME ...] -- keeps in docs/results/first-token.jsonl what the pages
quote of the runs that dev/ordinary_first.sh left in OUT, of all or of these. The other runs of
STORED stay. Of each run: log.jsonl with the configuration, an evaluation every 2,500 steps and the
last, and of a run that continues another also those before step 2,500; losses.json with the loss
of every evaluation; loss.json with the loss by position and after.json with probes and edits, if
there are any. A colon in a name is left out: rotary8-random-s1. EVERY=500 keeps more evaluations.
"""
import glob
import json
import os
import sys

from cut_results import edits_of, probes_of
import runlog
import stored

EVERY = int(os.environ.get("EVERY", 2500))


def losses_kept(lines):
    """Returns the validation losses of a log, by their step."""
    return {str(o["step"]): o["val_loss"] and round(o["val_loss"], 5)
            for o in lines if o["event"] == "eval"}


def log_kept(lines):
    """Returns the lines of a log that are kept, or none if nothing was trained."""
    config = lines[0]
    for flag in ("data", "tokenizer", "out", "init"):
        config["flags"][flag] = os.path.basename(config["flags"][flag])
    config["data"] = " ".join(os.path.basename(word) for word in config["data"].split())
    evals = [o for o in lines if o["event"] == "eval"]
    if len(evals) < 2: return []
    last = evals[-1]["step"]
    goes_on = bool(config["flags"]["init"])
    return [config] + [o for o in evals if o["step"] % EVERY == 0 or o["step"] == last
                       or (goes_on and o["step"] < EVERY)] \
        + [o for o in lines if o["event"] == "done"][-1:]


def after_kept(folder):
    """Returns the probes, by their input, and the edits of a checkpoint."""
    there = lambda kind: sorted(glob.glob(os.path.join(folder, kind + "-*.json")))
    probes = {os.path.basename(path)[len("probe-"):-len(".json")]: probes_of(path)[0]
              for path in there("probe")}
    return probes, [o for path in there("edit") for o in edits_of(path) if o["kind"] != "plain"]


def loss_kept(path):
    """Returns what is kept of an `eval --json` of all validation tokens."""
    with open(path, encoding="utf-8") as file:
        o = json.load(file)
    run = next(r for r in o["runs"] if r["kind"] == "plain")
    return {"T": o["T"], "n": o["n"],
            "runs": [{"kind": "plain", "loss": round(run["loss"], 5),
                      "by_position": [round(x, 5) for x in run["by_position"]]}]}


def main():
    if len(sys.argv) < 3:
        runlog.die(f"words: got {len(sys.argv) - 1}, wanted two or more",
                   "dev/make/first_results.py OUT STORED [NAME ...]")
    out, to, *names = sys.argv[1:]
    runs = sorted(os.path.dirname(path) for path in glob.glob(os.path.join(out, "*", "log.jsonl")))
    missing = sorted(set(names) - {os.path.basename(run) for run in runs})
    if missing:
        runlog.die(f"{missing[0]}: got no such run in {out}", f"ls {out}")
    kept_runs = stored.read(to) if os.path.exists(to) else {}
    for run in runs:
        name = os.path.basename(run)
        if os.path.islink(run): continue                       # a second name of a run
        if names and name not in names: continue
        lines = [o for _, o in runlog.read_log(os.path.join(run, "log.jsonl"))[0]]
        losses, kept = losses_kept(lines), log_kept(lines)
        if not kept: continue
        files = {"log.jsonl": kept, "losses.json": losses}
        probes, edits = after_kept(run)
        if probes: files["after.json"] = {"probes": probes, "edits": edits}
        if os.path.exists(os.path.join(run, "loss.json")):
            files["loss.json"] = loss_kept(os.path.join(run, "loss.json"))
        kept_runs[name.replace(":", "")] = files
        print(f"{name}: {len(kept)} lines, {len(probes)} probes, {len(edits)} edits")
    stored.write(to, kept_runs)


main()
