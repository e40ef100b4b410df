#!/usr/bin/env python3
"""first_results.py OUT DIR -- keeps what docs/first-token.md quotes of the runs that
dev/ordinary_first.sh left in OUT: DIR/NAME/log.jsonl with the configuration and an evaluation every
2,500 steps, and the last; DIR/NAME/after.json with probes and edits, where there are some.
A colon in a name is left out: rotary8-random-s1.
"""
import glob
import json
import os
import sys

EVERY = 2500


def log_kept(path):
    """Returns the lines of a log that are kept, or none if nothing was trained."""
    lines = [json.loads(line) for line in open(path, encoding="utf-8")]
    config = next(o for o in lines if o["event"] == "config")
    for flag in ("data", "tokenizer", "out", "init"):
        config["flags"][flag] = os.path.basename(config["flags"][flag])
    config["data"] = " ".join(os.path.basename(word) for word in config["data"].split())
    evals = list({o["step"]: o for o in lines if o["event"] == "eval"}.values())
    if len(evals) < 2: return []
    last = evals[-1]["step"]
    return [config] + [o for o in evals if o["step"] % EVERY == 0 or o["step"] == last] \
        + [o for o in lines if o["event"] == "done"][-1:]


def probe_kept(o):
    """Returns of a probe what a table quotes."""
    return {"loss": round(o["probe_loss"], 4), "sink_1": o["sink"]["sink_k"][0],
            "sink_2": o["sink"]["sink_k"][1], "alpha1_max": round(max(map(max, o["alpha1"])), 3),
            "h_ratio": round(max(a / b for a, b in zip(o["h_norm_first"], o["h_norm_rest"])), 2),
            "spike": round(max(a / b for a, b in zip(o["h_max"], o["h_median"])), 1)}


def edit_kept(o):
    """Returns of a row of `eval --edit` or `--stream` what a table quotes."""
    return {"name": o["name"], "change": round(o["change"], 4),
            "change_error": round(o["change_error"], 4), "sink_1": o["sink_1"],
            "sink_2": o["sink_k"][1]}


def after_kept(folder):
    """Returns the probes, by their input, and the edits of a checkpoint."""
    read = lambda kind: [(os.path.basename(path), json.load(open(path, encoding="utf-8")))
                         for path in sorted(glob.glob(os.path.join(folder, kind + "-*.json")))]
    probes = {name[len("probe-"):-len(".json")]: probe_kept(o) for name, o in read("probe")}
    edits = [edit_kept(o) for _, of in read("edit") for o in of["runs"]
             if o["kind"] not in ("plain", "outliers")]
    return {"probes": probes, "edits": edits} if probes else {}


def main():
    if len(sys.argv) != 3: sys.exit(__doc__)
    out, to = sys.argv[1:]
    for name in sorted(os.listdir(out)):
        path = os.path.join(out, name)
        lines = log_kept(path + "/log.jsonl") if os.path.exists(path + "/log.jsonl") else []
        if not lines: continue
        folder = os.path.join(to, name.replace(":", ""))
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "log.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(o, separators=(",", ":")) + "\n" for o in lines)
        rows = after_kept(path)
        if rows:
            with open(os.path.join(folder, "after.json"), "w", encoding="utf-8") as f:
                json.dump(rows, f, indent=1)
        print(f"{folder}: {len(lines)} lines" + ", probes, edits" * bool(rows))


main()
