"""What docs/findings/smollm2-cut.md quotes of docs/results/cut-smollm2.json: sentences() for quoted.py.

A sentence is (page, text with {} for every figure, the figures as they are printed).
"""
import json

from quoted_first import row
from quoted_outputs import change

PAGE = "docs/findings/smollm2-cut.md"
SEEDS = (1, 2, 3)
TOKENS = 2048                                    # of a step

# weights, layers kept, neurons, ids; steps of training
SHAPES = {"31M": ("30.7M", "0-7", "1,536", "4,096", 200), "16M": ("16.5M", "0-3", "1,536", "4,096", 200),
          "9M": ("9.4M", "0-3", "512", "4,096", 500), "6M": ("5.9M", "0-3", "256", "1,024", 500),
          "3M": ("3.1M", "0-3", "192", "1,024", 500)}
LONG = {"cut": (0, 500, 1000, 4000, 5000, 8000, 10000), "random": (500, 5000)}

with open("docs/results/cut-smollm2.json", encoding="utf-8") as file: stored = json.load(file)
runs = {name: {o["step"]: o for o in rows} for name, rows in stored["runs"].items()}
cuts = {name: {p["T"]: p for p in o["probes"]} for name, o in stored["cuts"].items()}


def rate(o, field="sink_1"):
    return f"{100 * o[field]:.1f}"


def strongest(o):
    """Returns alpha_1, h first/rest and max/median of h as the tables have them."""
    return [f"{max(o['alpha1_max']):.2f}", f"{max(o['h_ratio']):.1f}", f"{max(o['spike']):.0f}"]


def at_256(name, seed, step):
    """Returns Sink_1 of a trained cut at T 256. The first that were made have shorter names."""
    early = f"seed {seed}, " * (seed > 1) + f"step {step}, T 256"
    later = f"{name}, seed {seed}, step {step}, T 256"
    return rate(stored["inputs"][early if name == "9M" else later])


def of_cuts():
    return [row(PAGE, shape[0], [*shape[1:4], rate(cuts[name][64]), rate(cuts[name][256]), *strongest(cuts[name][64])])
            for name, shape in SHAPES.items()]


def of_trained():
    found = []
    for name, (weights, *_, step) in SHAPES.items():
        seeds = [s for s in SEEDS if step in runs.get(f"{name}-s{s}", {})]
        ends = [runs[f"{name}-s{s}"][step] for s in seeds]
        control = runs.get(f"{name}-control-s1", {}).get(step)
        found.append(row(PAGE, weights, [
            f"{step * TOKENS / 1e6:.2f}", " ".join(f"{o['val_loss']:.3f}" for o in ends),
            f"{control['val_loss']:.3f}" if control else "-", " ".join(map(rate, ends)),
            " ".join(at_256(name, s, step) for s in seeds), rate(control) if control else "-",
            *map(" ".join, zip(*map(strongest, ends)))]))
    return found


def of_long():
    found = []
    for start, name in (("cut", "6M-long-s1"), ("random", "6M-long-control-s1")):
        for step, o in runs[name].items():
            if step not in LONG[start]: continue
            alpha, h, largest = strongest(o)
            found.append(row(PAGE, start, [
                f"{step:,}", f"{step * TOKENS / 1e6:.1f}", f"{o['val_loss']:.3f}", rate(o), alpha, h,
                f"{min(o['v_ratio']):.2f}", largest]))
    return found


def of_edits():
    found = [(PAGE, "| `{}` | {} +- {} | {} | {} |", [o["name"], *change(o), rate(o), rate(o, "sink_2")])
             for o in stored["edits_6M"] if o["kind"] == "edit"]
    found += [(PAGE, "{}, positions in the cache | {} +- {} | {} | {} |",
               [o["name"].split(",")[0], *change(o), rate(o), rate(o, "sink_2")])
              for o in stored["edits_6M"] if o["name"].endswith("in the cache")]
    nine = {o["name"]: change(o) for o in stored["edits"]}
    return found + [(PAGE, "set to zero, `h:2:1:top3=0` costs {} +- {} nats, at their mean {} +- {}.",
                     nine["h:2:1:top3=0"] + nine["h:2:1:top3=mean"])]


def of_layers():
    return [row(PAGE, name, [rate(o[64]), " ".join(f"{x:.2f}" for x in o[64]["alpha1_max"]),
                             " ".join(f"{x:.1f}" for x in o[64]["h_ratio"][1:])])
            for name, o in cuts.items() if not name.endswith("M")]


def of_words():
    six = [rate(runs[f"6M-s{seed}"][500]) for seed in SEEDS]
    long = runs["6M-long-s1"]
    held = [long[step] for step in long if 250 <= step <= 7000]
    least, most = (f(held, key=lambda o: o["sink_1"]) for f in (min, max))
    last_five = sorted(long)[-5:]
    at = lambda step: rate(stored["inputs"][f"6M-long, seed 1, step {step}, T 256"])
    inputs = {title: rate(stored["inputs"][f"6M-long, {title}"])
              for title in ("random first token", "random first two", "one token repeated")}
    return [(PAGE, "have Sink_1 at {}% as cut, and at {}, {} and {}% after a million tokens",
             [rate(cuts["6M"][64]), *six]),
            (PAGE, "30.7 million keep it as well ({}, {} and {}%).",
             [rate(runs[f"31M-s{seed}"][200]) for seed in SEEDS]),
            (PAGE, "falls from {}% to {}% in a shorter run", [rate(cuts["16M"][64]), rate(runs["16M-s1"][200])]),
            (PAGE, "Sink_1 stays between {} and {}% from half a million to {} million tokens", [rate(least), rate(most), f"{7000 * TOKENS / 1e6:.0f}"]),
            (PAGE, "to {}% after 20.5 million; at T 256, the length of the training, from {}% after 10.2 million to {}%.",
             [rate(long[10000]), at(5000), at(10000)]),
            (PAGE, "At T 256 it is {}% after 10.2 million tokens and {}% after 20.5 million.", [at(5000), at(10000)]),
            (PAGE, "the last five evaluations have {}% on average, more than half of the {}% at step 500",
             [f"{100 * sum(long[s]['sink_1'] for s in last_five) / 5:.1f}", rate(long[500])]),
            (PAGE, "random first tokens the sink is there ({} and {}%), with one token repeated it is not",
             [inputs["random first token"], inputs["random first two"]])]


def sentences():
    return (of_cuts() + of_trained() + of_long() + of_edits() + of_layers() + of_words())
