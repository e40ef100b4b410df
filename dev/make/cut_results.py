#!/usr/bin/env python3
"""cut_results.py OUT FILE -- writes docs/results/cut-smollm2.json: the probes, runs and edits that
dev/ordinary_cut.sh left in OUT, rounded. What is not in OUT stays as FILE has it.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/lib"))
import runlog

# verb probe: layers of a cut, unless its name says them
CUTS = {"31M": "0-7", "16M": "0-3", "9M": "0-3", "6M": "0-3", "3M": "0-3"}
CUTS.update((name, name) for name in "0-5 1-5 0,2-5 0-1,3-5 0-2,4-5 0,1,3".split())
# verbs train and control
KINDS = "9M 9M-control 3M 3M-control 16M 31M 31M-control 6M 6M-control 6M-long 6M-long-control"
RUNS = [f"{name}-s{seed}" for name in KINDS.split() for seed in (1, 2, 3)]
# verb edits, of 9M and, with AS=6M-, of 6M-long; the first has the streams as well
EDITS = "e-mask e-v0 e-h0 e-hm e-vm e-k2".split()
OTHERS = {"p-r1": "random first token", "p-r12": "random first two", "p-rep": "one token repeated"}
# verbs after and edits
INPUTS = {"9M-s1-100": "step 100, T 256", "9M-s1-200": "step 200, T 256", **OTHERS,
          "9M-s1-500": "step 500, T 256", "9M-s2-500": "seed 2, step 500, T 256",
          "9M-s3-500": "seed 3, step 500, T 256"}
LATER = [("31M", 200), ("6M", 500), ("16M", 200), ("3M", 500),
         ("6M-long", 5000), ("6M-long", 10000)]
INPUTS.update((f"{name}-s{seed}-{step}", f"{name}, seed {seed}, step {step}, T 256")
              for name, step in LATER for seed in (1, 2, 3))
INPUTS.update((f"6M-{file}", f"6M-long, {title}") for file, title in OTHERS.items())
ALWAYS, FEWER = 100, 250                         # up to the first every evaluation is kept, then
                                                 # those at multiples of both


def ratios(above, below):
    return [float(f"{a / b:.4g}") for a, b in zip(above, below)]


def measured(e):
    """Returns what is kept of a probe or of an evaluation."""
    sink, shares = e["sink"], runlog.uses_proxy([e])      # raw weights only where they are shares
    sink_k, alpha1 = ((sink["proxy_k"], e["alpha1_proxy"]) if shares
                      else (sink["sink_k"], e["alpha1"]))
    return {"T": sink["T"], "n": sink["n"], "probe_loss": round(e["probe_loss"], 4),
            "sink_1": round(sink_k[0], 4), "sink_2": round(sink_k[1], 4),
            "heads_above": [sum(alpha > 0.3 for alpha in layer) for layer in alpha1],
            "heads": len(alpha1[0]),
            "alpha1_max": [round(max(layer), 3) for layer in alpha1],
            "h_ratio": ratios(e["h_norm_first"], e["h_norm_rest"]),
            "v_ratio": ratios(e["v_norm_first"], e["v_norm_rest"]),
            "spike": ratios(e["h_max"], e["h_median"])}


def probes_of(path):
    """Returns a row for each length of a `probe --json`."""
    return [measured(run["evals"][0]) for run in runlog.read_probe(path)]


def evals_of(path):
    """Returns a row for each evaluation of a run."""
    run = runlog.read_run(path)
    flags = run["config"]["flags"]
    return [{"step": e["step"], "tokens": e["step"] * flags["seq"] * flags["batch"],
             "val_loss": round(e["val_loss"], 4), **measured(e)} for e in run["evals"]
            if e["step"] <= ALWAYS or e["step"] % ALWAYS == 0 or e["step"] % FEWER == 0]


def edits_of(path):
    """Returns the rows of an `eval --edit --json`: what each change costs."""
    numbers = ("loss", "loss_error", "plain", "change", "change_error")
    return [{"kind": o["kind"], "name": o["name"], **{k: round(o[k], 4) for k in numbers},
             "sink_1": round(o["sink_k"][0], 6), "sink_2": round(o["sink_k"][1], 6)}
            for o in runlog.read_json(path, {"runs!": [{}]}, "dev/ordinary_cut.sh edits")["runs"]]


def edits_in(path):
    """Returns the rows of all edits of a model."""
    edits = []
    for name in EDITS:                           # each has the plain model: once is enough
        if not os.path.exists(path + name + ".json"): continue
        edits += [o for o in edits_of(path + name + ".json") if o["kind"] != "plain" or not edits]
    return edits


def collected(out):
    """Returns cuts, runs, inputs and two lists of edits, each as the file has it."""
    path = lambda name: os.path.join(out, name)
    there = lambda names, end: [name for name in names if os.path.exists(path(name + end))]
    return {"cuts": {name: {"layers": CUTS[name], "probes": probes_of(path(name + ".json"))}
                     for name in there(CUTS, ".json")},
            "runs": {name: evals_of(path(name)) for name in there(RUNS, "/log.jsonl")},
            "edits": edits_in(path("")),
            "edits_6M": edits_in(path("6M-")),
            "inputs": {INPUTS[name]: probes_of(path(name + ".json"))[0]
                       for name in there(INPUTS, ".json")}}


def with_old(new, old):
    """Returns what was made now, and what only the file has."""
    for part, made in new.items():
        had = old.get(part, type(made)())
        if isinstance(made, dict): new[part] = {**had, **made}
        else: new[part] = list({(o["kind"], o["name"]): o for o in had + made}.values())
    return new


def rows(indent, texts):
    """Returns a line for each text."""
    return "\n" + ",\n".join(" " * indent + text for text in texts)


def named(o):
    """Returns each field of an object as JSON."""
    return [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in o.items()]


def main():
    if len(sys.argv) != 3:
        runlog.die(f"words: got {len(sys.argv) - 1}, wanted two", "dev/make/cut_results.py OUT FILE")
    found = collected(sys.argv[1])
    if os.path.exists(sys.argv[2]):
        found = with_old(found, runlog.read_json(sys.argv[2], {}, "another FILE"))
    runs = [f"{json.dumps(name)}: [{rows(3, map(json.dumps, evals))}]"
            for name, evals in found["runs"].items()]
    parts = [f'"cuts": {{{rows(2, named(found["cuts"]))}}}',
             f'"runs": {{{rows(2, runs)}\n }}']
    parts += [f'"{part}": [{rows(2, map(json.dumps, found[part]))}]'
              for part in ("edits", "edits_6M") if found[part]]
    parts += [f'"inputs": {{{rows(2, named(found["inputs"]))}}}']
    runlog.write_whole(sys.argv[2], "{" + rows(1, parts) + "\n}\n")


if __name__ == "__main__":
    main()
