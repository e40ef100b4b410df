#!/usr/bin/env python3
"""From log.jsonl to a figure: Sink_1 by step, a thin line for each seed, and a band of mean +- sd for
each group of runs whose names differ by their seed. Copy it and change it: docs/json.md lists every
field of a log. Needs NumPy and matplotlib alone.

    scripts/example.py runs/A-seed1 runs/A-seed2 runs/B-seed1 runs/B-seed2 sink.png
"""
import json
import re
import sys

import matplotlib
import numpy as np

matplotlib.use("Agg")                                    # no screen
import matplotlib.pyplot as plt


def curve(run):
    """The steps of a run's evaluations, and its Sink_1 there in percent."""
    with open(run + "/log.jsonl") as log:
        evals = [o for o in map(json.loads, log) if o["event"] == "eval"]
    # proxy: the same as sink_k where rows sum to 1; a null of the log becomes nan
    sink = np.array([e["sink"]["proxy_k"][0] for e in evals], float)
    return [e["step"] for e in evals], 100 * sink


*runs, out = sys.argv[1:] or sys.exit(__doc__)
groups = {}
for run in runs:
    groups.setdefault(re.sub("-seed[0-9]+/?$", "", run), []).append(curve(run))
for number, (name, curves) in enumerate(groups.items()):
    steps = min((steps for steps, _ in curves), key=len)
    sinks = np.array([sink[:len(steps)] for _, sink in curves])
    mean, sd = sinks.mean(0), sinks.std(0, ddof=len(curves) > 1)
    look = {"color": f"C{number}", "linewidth": 0.5}
    plt.plot(steps, sinks.T, **look)
    plt.fill_between(steps, mean - sd, mean + sd, alpha=0.3, label=f"{name}, {len(curves)} seeds", **look)
plt.xlabel("step")
plt.ylabel("Sink_1 (%)")
plt.legend()
plt.savefig(out, dpi=200)
