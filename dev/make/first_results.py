#!/usr/bin/env python3
"""first_results.py OUT DIR -- keeps what docs/first-token.md quotes of the runs that
dev/ordinary_first.sh left in OUT: DIR/NAME/log.jsonl with the configuration and an evaluation every
2,500 steps, and the last (of a run that goes on from another also those before step 2,500); DIR/NAME/after.json with probes and edits, and DIR/NAME/loss.json with
the loss by position, where there are some; DIR/NAME/losses.json with the loss of every evaluation.
A colon in a name is left out: rotary8-random-s1.
"""
import glob
import json
import os
import sys

from cut_results import edits_of, probes_of, rows
import runlog

EVERY = 2500


def read_log(path):
    return [o for _, o in runlog.read_log(path)[0]]


def losses_kept(path):
    """Returns the validation losses of a log, by their step."""
    return {str(o["step"]): round(o["val_loss"], 5)
            for o in read_log(path) if o["event"] == "eval"}


def log_kept(path):
    """Returns the lines of a log that are kept, or none if nothing was trained."""
    lines = read_log(path)
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


def write(folder, name, o):
    runlog.write_whole(os.path.join(folder, name), json.dumps(o, separators=(",", ":")) + "\n")


def main():
    if len(sys.argv) != 3:
        runlog.die(f"words: got {len(sys.argv) - 1}, wanted two",
                   "dev/make/first_results.py OUT DIR")
    out, to = sys.argv[1:]
    for path in sorted(glob.glob(os.path.join(out, "*", "log.jsonl"))):
        if os.path.islink(os.path.dirname(path)): continue     # a second name of a run
        lines = log_kept(path)
        if not lines: continue
        folder = os.path.join(to, os.path.basename(os.path.dirname(path)).replace(":", ""))
        os.makedirs(folder, exist_ok=True)
        runlog.write_whole(os.path.join(folder, "log.jsonl"),
                           "".join(json.dumps(o, separators=(",", ":")) + "\n" for o in lines))
        write(folder, "losses.json", losses_kept(path))
        probes, edits = after_kept(os.path.dirname(path))
        if probes:
            named = [f"{json.dumps(name)}: {json.dumps(o)}" for name, o in probes.items()]
            runlog.write_whole(os.path.join(folder, "after.json"),
                               f'{{"probes": {{{rows(1, named)}}},\n'
                               f'"edits": [{rows(1, map(json.dumps, edits))}]}}\n')
        measured = os.path.join(os.path.dirname(path), "loss.json")
        if os.path.exists(measured):
            write(folder, "loss.json", loss_kept(measured))
        print(f"{folder}: {len(lines)} lines, {len(probes)} probes, {len(edits)} edits")


main()
