#!/usr/bin/env python3
"""The paper's figures from what train_sink writes, each as PNG and SVG. Needs NumPy and matplotlib.

To add a figure: one function that gets (inputs, options), yields (file name, figure), and one row in FIGURES.
Numbers of figures are those of Gu et al., When Attention Sink Emerges in Language Models, arXiv:2410.10781.
"""
import argparse
import os
import sys

import runlog
from runlog import die, number

try:
    import numpy as np
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator, PercentFormatter
except ImportError as e:
    die(f"{e.name}: not installed, wanted numpy and matplotlib", "python3 -m pip install numpy matplotlib")

# Okabe and Ito's colours, which colour-blind readers tell apart, without the yellow that white paper swallows
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = "osD^vPX"
STYLE = {
    "font.size": 9, "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#888888", "axes.labelcolor": "#222222",
    "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e6e6e6", "grid.linewidth": 0.7,
    "lines.linewidth": 1.6, "lines.markersize": 4, "legend.frameon": False, "legend.fontsize": 8.5,
    "xtick.color": "#555555", "ytick.color": "#555555", "savefig.dpi": 150, "figure.constrained_layout.use": True,
    "svg.hashsalt": "train_sink", "svg.fonttype": "path", "image.cmap": "viridis", "image.interpolation": "nearest",
}
TRAIN_POINTS = 1500      # more than a figure of this size can show


def look(i, runs=None):
    """Colour and marker of the i-th line: seven colours, then the same with dashes. Seeds of one run look alike."""
    seeds = 1
    if runs:
        groups, mine = [runlog.group(r) for r in runs], runlog.group(runs[i])
        i, seeds = list(dict.fromkeys(groups)).index(mine), groups.count(mine)
    return {"color": COLORS[i % 7], "marker": MARKERS[i % 7], "linestyle": ["-", "--", ":"][i // 7 % 3],
            "linewidth": 1.6 if seeds == 1 else 1.0, "markersize": 4 if seeds == 1 else 3}


def panels(n, width=4.2, height=3.1, columns=3, **more):
    """A figure with n axes in rows of `columns`, those that are left over hidden."""
    columns = min(columns, n)
    rows = -(-n // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False, **more)
    for ax in axes.flat[n:]:
        ax.set_axis_off()
    return figure, list(axes.flat[:n])


def headline(figure, runs, what, step=None):
    """Title of a figure: what it shows; of one run also its name, switches and step."""
    if len(runs) == 1:
        what += f"\n{runs[0]['name']}: {runlog.switches(runs[0])}"
        what += "" if step is None else f", step {step:,}"
    figure.suptitle(what, fontsize=10.5, x=0.01, ha="left")


def label(run, runs, step=None):
    """Legend entry: name, switches, and the flags in which these runs differ."""
    seeds = [r for r in runs if runlog.group(r) == runlog.group(run)]
    if run is not seeds[0]:
        return None
    flags = run["config"].get("flags", {})
    words = [runlog.switches(run)] + [f"{key} {flags.get(key)}" for key in runlog.differing_flags(runs)[:3]]
    name = run["name"] if len(seeds) == 1 else f"{runlog.group(run)} ({len(seeds)} seeds)"
    return f"{name}: {', '.join(words)}" + ("" if step is None else f", step {step:,}")


def legend_below(figure, ax, columns=3):
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))


def stem(figure, runs):
    """File name: the figure and its runs."""
    names = [name.replace("/", "-") for name in dict.fromkeys(runlog.group(r) for r in runs)]
    names = [runs[0]["name"].replace("/", "-")] if len(runs) == 1 else names
    return "-".join([figure] + (names if len(names) <= 4 else [names[0], "and", str(len(names) - 1), "more"]))


def whole(ax, n, first=0):
    """An axis of n whole numbers, thinned to a dozen."""
    ax.set_xticks(range(first, first + n, -(-n // 12)))
    ax.set_xlim(first - 0.3, first + n - 0.7)


def series(evals, get):
    return [e["step"] for e in evals], [number(get(e)) for e in evals]


# ---- figures over steps ----------------------------------------------------------------------------------------------
def dynamics(paths, options):
    """Loss, Sink_1 and Sink_* (Figures 4, 5 right, 28)."""
    runs = runlog.read_runs(paths)
    figure, (loss, sink) = panels(2, 5.2, 3.6)
    for i, run in enumerate(runs):
        runlog.at_step(run, None)
        train, style, proxy = run["train"], look(i, runs), runlog.uses_proxy(run["evals"])
        shown = train[::max(1, len(train) // TRAIN_POINTS)]
        loss.plot(*series(shown, lambda t: t["loss"]), color=style["color"], lw=0.6, alpha=0.35)
        loss.plot(*series(run["evals"], lambda e: e["val_loss"]), **style, label=label(run, runs))
        sink.plot(*series(run["evals"], lambda e: runlog.sink(e, proxy)), **style)
        if any(e["sink"]["sink_star"] is not None for e in run["evals"]):
            star = series(run["evals"], lambda e: e["sink"]["sink_star"])
            style.update(linestyle="--", marker="*", markersize=5)
            sink.plot(star[0], [100 * y for y in star[1]], **style)
    loss.set(title="Loss: validation (markers), training (thin)", xlabel="step", ylabel="loss (nats per token)")
    sink.set(title="Sink$_1$ (solid), Sink$_*$ of an extra key (dashed, stars)", xlabel="step",
             ylabel=f"Sink at $\\epsilon$ = {runs[0]['evals'][0]['sink']['eps']:g}", ylim=(-3, 103))
    sink.yaxis.set_major_formatter(PercentFormatter())
    if options.logx:
        first = min((e["step"] for r in runs for e in r["evals"] if e["step"]), default=1)
        for ax in (loss, sink):
            ax.set_xscale("symlog", linthresh=first)
    headline(figure, runs, "Loss and attention sink over training")
    legend_below(figure, loss)
    yield stem("dynamics", runs), figure


def profiles(paths, options):
    """Sink_k by position k of runs (Figures 5 and 6, middle), and the mean alpha_k of a probe --per-sequence --json."""
    runs = runlog.read_runs([p for p in paths if not p.endswith(".json")])
    probes = [(os.path.basename(p), o) for p in paths if p.endswith(".json") for o in runlog.read_probe(p)]
    curves = [(label(r, runs, runlog.at_step(r, options.step)["step"]), runlog.at_step(r, options.step), r["evals"],
               r["config"].get("flags", {})) for r in runs]
    curves += [(f"{name}: {o.get('data', '')}, T = {o['sink']['T']}", o, [o], {}) for name, o in probes]
    with_alpha = any("alpha" in e for _, e, _, _ in curves)
    figure, axes = panels(2 if with_alpha else 1, 4.8 if with_alpha else 6.0, 3.6)
    for i, (text, e, evals, flags) in enumerate(curves):
        ks, proxy = e["sink"]["k"], runlog.uses_proxy(evals)
        axes[0].plot(ks, [number(runlog.sink(e, proxy, k)) for k in ks], **look(i), label=text)
        for flag in ("prefix", "window"):
            if 0 < flags.get(flag, 0) <= ks[-1]:
                edge(axes[0], flags[flag] + 0.5, f" {flag} {flags[flag]}", COLORS[i % 7])
        if "alpha" in e:
            axes[1].plot(ks, np.array(e["alpha"], float).mean(axis=(0, 1, 2)), **look(i))
            axes[1].set(xlabel="position k", ylabel=r"mean of $\alpha_k$", ylim=(0, None))
    axes[0].set(xlabel="position k", ylabel="Sink$_k$", ylim=(-3, 103))
    axes[0].yaxis.set_major_formatter(PercentFormatter())
    for ax in axes:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    headline(figure, [], "Which tokens are sinks")
    legend_below(figure, axes[0], 1)
    names = runs + [{"name": os.path.splitext(name)[0]} for name in dict.fromkeys(name for name, _ in probes)]
    yield stem("profiles", names), figure


def edge(ax, x, text, color):
    ax.axvline(x, color=color, lw=1, ls=":")
    ax.annotate(text, (x, 1), xycoords=("data", "axes fraction"), va="top", color=color, fontsize=8.5)


# ---- figures by block ------------------------------------------------------------------------------------------------
def heat(ax, values, text=True, **more):
    """A map of numbers by block and head; the numbers themselves where there is room."""
    x = np.array(values, dtype=float)
    image = ax.imshow(x, aspect="auto" if max(x.shape) > 24 else "equal", **more)
    ax.grid(False)
    ax.set(xlabel="head", ylabel="block")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    if text and x.size <= 64:
        low, high = image.get_clim()
        for (l, h), v in np.ndenumerate(x):
            dark = v < low + 0.6 * (high - low)
            ax.text(h, l, f"{v:.2f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
    return image


def heads(paths, options):
    """alpha_1 of every head (Figures 19 to 24)."""
    runs = runlog.read_runs(paths)
    shape = np.array(runlog.at_step(runs[0], options.step)["alpha1"]).shape
    figure, axes = panels(len(runs), 1.0 + min(4.6, max(1.5, 0.4 * shape[1])), 1.3 + min(4.6, max(1.5, 0.4 * shape[0])),
                          layout="compressed")
    for run, ax in zip(runs, axes):
        e = runlog.at_step(run, options.step)
        proxy = runlog.uses_proxy(run["evals"])
        image = heat(ax, e["alpha1_proxy" if proxy else "alpha1"], vmin=0, vmax=1)
        if len(runs) > 1:
            ax.set_title(f"{run['name']}\n{runlog.switches(run)}, step {e['step']:,}", fontsize=8.5)
    figure.colorbar(image, ax=axes, shrink=0.9, aspect=25).set_label(r"$\alpha_1$")
    step = runlog.at_step(runs[0], options.step)["step"]
    headline(figure, runs, r"Attention to the first token, $\alpha_1$, by block and head", step)
    yield stem("heads", runs), figure


WHOSE = [("first", "first token"), ("rest", "mean of the others"), ("star", "sink token")]
NORMS = [("h", "hidden states h", "blocks before it"), ("k", "keys k", "block"), ("v", "values v", "block")]


def norms(paths, options):
    """Norms of h, k and v, first token and the others (Figures 11 to 14), and their ratio (Figures 7, 8, 29)."""
    runs = runlog.read_runs(paths)
    for run in runs:
        yield stem("norms", [run]), norms_of_one(run, runlog.at_step(run, options.step))
    figure, axes = panels(3, 3.6, 3.4)
    for i, run in enumerate(runs):
        e = runlog.at_step(run, options.step)
        for (key, _, _), ax in zip(NORMS, axes):
            ax.plot(ratio(e, key + "_norm"), **look(i, runs), label=label(run, runs, e["step"]))
        if "pre_norm_first" in e:
            half_blocks = 0.5 * np.arange(1, 1 + len(e["pre_norm_first"]))  # after attention, after FFN, ..
            dotted = {**look(i, runs), "linestyle": ":", "label": f"{run['name']}, before the norm"}
            axes[0].plot(half_blocks, ratio(e, "pre_norm"), **dotted)
    for (key, name, where), ax in zip(NORMS, axes):
        ax.axhline(1, color="#888888", lw=0.8, zorder=0)
        ax.set(title=name, xlabel=where)
        if ax.get_ylim()[1] > 10:
            plain_log(ax)
        else:
            ax.set_ylim(bottom=0)
        whole(ax, max(len(runlog.at_step(r, options.step)[key + "_norm_first"]) for r in runs))
    axes[0].set_ylabel("first token / mean of the others")
    headline(figure, runs, r"Ratio of $\ell_2$ norms: the first token against the others")
    legend_below(figure, axes[0], 2)
    yield stem("ratios", runs), figure


def ratio(e, key):
    first, rest = np.array(e[key + "_first"], float), np.array(e[key + "_rest"], float)
    return np.where(rest > 0, first / np.where(rest > 0, rest, 1), np.nan)


def plain_log(ax):
    """A logarithmic axis with numbers rather than powers of ten, and more of them when few decades are shown."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=[1, 2, 5] if high / low < 200 else [1]))
    ax.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda y, _: f"{y:g}"))
    ax.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def norms_of_one(run, e):
    figure, axes = panels(3, 3.6, 3.2)
    for (key, name, where), ax in zip(NORMS, axes):
        for i, (which, text) in enumerate(WHOSE):
            values = e.get(f"{key}_norm_{which}")
            if values:
                ax.plot([number(v) for v in values], **look(i), label=text)
        if key == "h":
            ax.plot([number(v) for v in e["h_max"]], **look(3), label="largest entry, max|h|")
            ax.plot([number(v) for v in e["h_median"]], **look(4), label="median entry, median|h|")
            plain_log(ax)
        else:
            ax.set_ylim(bottom=0)
        ax.set(title=name, xlabel=where, ylabel=r"$\ell_2$ norm")
        whole(ax, len(e[f"{key}_norm_first"]))
    headline(figure, [run], r"$\ell_2$ norms by block", e["step"])
    legend_below(figure, axes[0], 5)
    return figure


# ---- figures of a probe ----------------------------------------------------------------------------------------------
def maps(paths, options):
    """Attention, cosines and norm products of the heads in a --dump directory (Figures 2 bottom, 15 to 18)."""
    for path in paths:
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
        found = [n[:-len("_map.npy")] for n in names if n.endswith("_map.npy")]
        if not found:
            die(f"{path}: got no LAYER_HEAD_map.npy, wanted a --dump directory",
                "write one: train_sink probe RUN/step_N --dump DIR --dump-heads all")
        for head in sorted(found, key=lambda n: [int(x) if x.isdigit() else -1 for x in n.split("_")]):
            yield f"maps-{os.path.basename(os.path.abspath(path))}-{head}", map_of_head(path, head)


def load_map(path):
    try:
        x = np.load(path)
    except (OSError, ValueError) as e:
        die(f"{path}: got '{e}', wanted an array of --dump", "write it again: train_sink probe RUN/step_N --dump DIR")
    if x.ndim != 2 or x.shape[1] != x.shape[0] + 1:
        die(f"{path}: got shape {x.shape}, wanted (T, T + 1)", "write it again: train_sink probe RUN/step_N --dump DIR")
    return x


def map_of_head(path, head):
    layer, h = head.split("_")
    kinds = [("map", "attention A", "viridis"), ("cosine", "cos(q$_t$, k$_j$)", "PuOr"),
             ("product", "|q$_t$| |k$_j$|", "viridis")]
    arrays = [load_map(f"{path}/{head}_{kind}.npy") for kind, _, _ in kinds]
    extra = arrays[2][:, 0].any()                            # column 0 is the extra key; without one it is all zeros
    T = len(arrays[0])
    unseen = np.arange(T + 1)[None, :] > np.arange(T)[:, None] + 1
    figure, axes = panels(3, 3.9, 4.1, layout="compressed")
    for x, (kind, name, colors), ax in zip(arrays, kinds, axes):
        x = np.where(unseen & (arrays[0] == 0), np.nan, x)[:, 0 if extra else 1:]
        limits = {"vmin": -1, "vmax": 1} if kind == "cosine" else {"vmin": 0}
        image = ax.imshow(x, cmap=colors, extent=(-0.5 if extra else 0.5, T + 0.5, T + 0.5, 0.5), **limits)
        ax.grid(False)
        ax.set(title=name, xlabel="key position j" + (" (0: extra key)" if extra else ""), ylabel="query position t")
        figure.colorbar(image, ax=ax, shrink=0.8, aspect=20)
    headline(figure, [], f"Block {layer}, head {h}: where the queries look, and why\n{path}")
    return figure


def threshold(paths, options):
    """Sink_1 against length and threshold (Figure 3)."""
    for path in paths:
        objects = runlog.read_probe(path)
        proxy = runlog.uses_proxy(objects)
        sources = list(dict.fromkeys(o.get("data", "") for o in objects))
        figure, axes = panels(2 * len(sources), 4.4, 3.2, columns=2)
        for s, source in enumerate(sources):
            points = [(e["T"], e["eps"], number(runlog.sink({"sink": e}, proxy))) for o in objects
                      if o.get("data", "") == source for e in o.get("sinks", [o["sink"]])]
            by_length, by_eps = axes[2 * s:2 * s + 2]
            lines(by_length, [(e, T, y) for T, e, y in points], r"$\epsilon$ = {:g}")
            lines(by_eps, [(T, e, y) for T, e, y in points], "T = {:g}")
            by_length.set(title=source, xlabel="length T (tokens)", xscale="log")
            by_length.set_xticks(sorted({T for T, _, _ in points}), sorted({T for T, _, _ in points}))
            by_length.minorticks_off()
            by_eps.set(title=source, xlabel=r"threshold $\epsilon$")
        headline(figure, [], f"Sink$_1$ against length and threshold\n{path}")
        yield "threshold-" + os.path.splitext(os.path.basename(path))[0], figure


def lines(ax, points, text):
    """One line for each first of (line, x, y)."""
    for i, name in enumerate(sorted({p[0] for p in points})):
        ax.plot(*zip(*sorted((x, y) for n, x, y in points if n == name)), **look(i), label=text.format(name))
    ax.set(ylabel="Sink$_1$ (%)", ylim=(-3, 103))
    ax.yaxis.set_major_formatter(PercentFormatter())
    ax.legend(loc="best", ncols=2)


# ---- a table of the paper --------------------------------------------------------------------------------------------
def at_main(get):
    """Of the token that the row is about: the first, if the paper does not say otherwise."""
    return lambda row: get(row, runlog.main_position(row))


def is_number(x):
    return isinstance(x, (int, float))


# title, the paper's number, ours by seed
COLUMNS = [("Sink$_k$ (%)", at_main(runlog.paper_sink), at_main(runlog.our_sink)),
           ("Sink$_*$ (%)", runlog.paper_star, runlog.our_star),
           ("validation loss (nats per token)", runlog.paper_loss, runlog.our_loss)]


def table(paths, options):
    """Bars of a table of scripts/reproduce: ours, every seed a dot, beside the paper's number."""
    for path in paths:
        results = runlog.read_results(path)
        rows = results["rows"]
        columns = [c for c in COLUMNS if any(is_number(c[1](r)) or c[2](r) for r in rows)]
        figure, axes = panels(max(1, len(columns)), 4.0, 1.4 + 0.42 * len(rows), sharey=True)
        for (name, paper, ours), ax in zip(columns, axes):
            bars(ax, rows, paper, ours)
            ax.set(title=name)
        others = {r["id"]: f"\nk = {runlog.main_position(r)}" for r in rows if runlog.main_position(r) != 1}
        axes[0].set_yticks(range(len(rows)), [r["id"] + others.get(r["id"], "") for r in rows])
        if not others:
            axes[0].set_title("Sink$_1$ (%)")
        scale = f"{results.get('scale', '')}, {results.get('data', '')}, commit {results.get('commit', '')}"
        headline(figure, [], f"{results['table']}: ours against the paper's\n{scale}")
        legend_below(figure, axes[0])
        yield "table-" + os.path.splitext(os.path.basename(path))[0], figure


def bars(ax, rows, paper, ours):
    """The paper's bar above, ours below it, each with its number; what has none says why."""
    ends = []
    for y, row in enumerate(rows):
        given, found = paper(row), ours(row)
        theirs = (y - 0.2, [given] if is_number(given) else [], given, "#BBBBBB", "paper")
        mine = (y + 0.2, found, runlog.why_not(row), COLORS[0], "ours, mean of seeds")
        for at, seeds, word, color, name in (theirs, mine):
            mean = np.mean(seeds) if seeds else 0
            ends.append(max(seeds, default=0))
            ax.barh(at, mean, 0.36, color=color, label=name if y == 0 else None)
            text, gray = (f"{mean:.2f}", "#444444") if seeds else (word or "\N{EN DASH}", "#777777")
            ax.annotate(text, (ends[-1], at), (4, 0), textcoords="offset points", va="center", fontsize=7.5, color=gray)
            if len(seeds) > 1:
                ax.plot(seeds, [at] * len(seeds), "o", ms=3, color="#000000", zorder=3)
    ax.plot([], [], "o", ms=3, color="#000000", label="one seed")
    ax.grid(axis="y", visible=False)
    ax.set(xlim=(0, 1.18 * max(ends) or 1), ylim=(len(rows) - 0.5, -0.5))


def everything(paths, options):
    """dynamics, heads, norms and profiles of each run."""
    for path in paths:
        for draw in (dynamics, heads, norms, profiles):
            yield from draw([path], options)


FIGURES = {
    "dynamics":  (dynamics,   "RUN..",        "loss, Sink_1 and Sink_* over steps (Figures 4, 28)"),
    "heads":     (heads,      "RUN..",        "attention to the first token by block and head (Figures 19 to 24)"),
    "norms":     (norms,      "RUN..",        "norms of h, k, v by block, and ratios (Figures 7, 8, 11 to 14, 29)"),
    "profiles":  (profiles,   "RUN..",        "Sink_k by position k: prefixes, windows (Figures 5, 6)"),
    "maps":      (maps,       "DIR..",        "attention and QK geometry, from probe --dump DIR (Figures 2, 15 to 18)"),
    "threshold": (threshold,  "PROBE.json..", "Sink_1 against length and threshold, from probe --json (Figure 3)"),
    "table":     (table,      "RESULTS.json..", "a table of scripts/reproduce, ours against the paper's"),
    "all":       (everything, "RUN..",        "the first four of every run"),
}


def usage():
    rows = "".join(f"  plot.py {name + ' ' + what:24} {text}\n" for name, (_, what, text) in FIGURES.items())
    return f"usage: (a RUN is a directory with log.jsonl)\n{rows}\noptions:\n" \
           "  -o DIR      where the .png and .svg go [runs/figures]\n" \
           "  --step N    the evaluation that heads, norms and profiles show [the last]\n" \
           "  --logx      dynamics: a logarithmic axis of steps\n"


def main(words):
    if not words or words[0] in ("-h", "--help"):
        sys.exit(print(usage(), end=""))
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = lambda text: die(f"options: {text}", "scripts/plot.py --help")
    parser.add_argument("figure")
    parser.add_argument("inputs", nargs="*")
    parser.add_argument("-o", "--out", default="runs/figures")
    parser.add_argument("--step", type=int)
    parser.add_argument("--logx", action="store_true")
    options = parser.parse_intermixed_args(words)
    if options.figure not in FIGURES:
        die(f"figure: got '{options.figure}', wanted one of {' '.join(FIGURES)}", "scripts/plot.py --help")
    draw, what, _ = FIGURES[options.figure]
    if not options.inputs:
        die(f"{options.figure}: got nothing to draw, wanted {what}", f"scripts/plot.py {options.figure} {what}")
    plt.rcParams.update(STYLE)
    plt.rcParams["axes.prop_cycle"] = matplotlib.cycler(color=COLORS)
    for name, figure in draw(options.inputs, options):
        save(figure, options.out, name)


def save(figure, out, name):
    """The same input gives the same bytes: no date, no random ids."""
    try:
        os.makedirs(out, exist_ok=True)
        figure.savefig(f"{out}/{name}.png", metadata={"Software": None})
        figure.savefig(f"{out}/{name}.svg", metadata={"Date": None})
    except OSError as e:
        die(f"{out}: got '{e.strerror}', wanted a directory to write to", "choose another: -o DIR")
    plt.close(figure)
    print(f"{out}/{name}.png {out}/{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
