#!/usr/bin/env python3
"""The paper's figures from what train_sink writes, each as PNG and SVG. Needs NumPy and matplotlib.

To add a figure: one function that gets (inputs, options), yields (file name, figure),
and one row in FIGURES. Numbers of figures are those of Gu et al., When Attention Sink Emerges
in Language Models, arXiv:2410.10781.
"""
import argparse
import os
import re
import sys
import textwrap
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import runlog
from runlog import die, number

try:
    import numpy as np
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator, PercentFormatter
    from matplotlib.transforms import ScaledTranslation
except ImportError as e:
    die(f"{e.name}: not installed, wanted numpy and matplotlib",
        "python3 -m pip install numpy matplotlib")

# The looks of everything that is drawn are here. Okabe and Ito's colors, which color-blind
# readers tell apart, without the yellow that white paper swallows
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = "osD^vPX"
DASHES = ["-", "--", ":"]
OURS, PAPER, SEED, MARK = COLORS[0], "#BBBBBB", "#000000", COLORS[1]
APART = 3.5              # points between two lines that hold the same numbers
STYLE = {
    "font.size": 9, "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#888888",
    "axes.labelcolor": "#222222",
    "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e6e6e6", "grid.linewidth": 0.7,
    "lines.linewidth": 1.6, "lines.markersize": 4, "legend.frameon": False, "legend.fontsize": 8.5,
    "xtick.color": "#555555", "ytick.color": "#555555", "savefig.dpi": 150,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "train_sink", "svg.fonttype": "path", "image.cmap": "viridis",
    "image.interpolation": "nearest",
}
TRAIN_POINTS = 1500      # more than a figure of this size can show


def look(i, runs=None):
    """Color and marker of the i-th line: seven colors, then the same with dashes.
    Seeds of one run look alike."""
    seeds = 1
    if runs:
        mine = runlog.group(runs[i])
        i, seeds = kinds(runs).index(mine), [runlog.group(r) for r in runs].count(mine)
    return {"color": COLORS[i % 7], "marker": MARKERS[i % 7],
            "linestyle": DASHES[i // 7 % 3],
            "linewidth": 1.6 if seeds == 1 else 1.0, "markersize": 4 if seeds == 1 else 3}


def kinds(runs):
    """The names of the runs without their seeds, each once."""
    return list(dict.fromkeys(map(runlog.group, runs)))


def beside(ax, i, runs):
    """Where to draw the i-th run: equal numbers of different runs are lines beside each other,
    a few points apart, for the last would hide the others."""
    names = kinds(runs)
    step = min(APART, 14 / len(names))
    points = step * (names.index(runlog.group(runs[i])) - (len(names) - 1) / 2)
    shift = ScaledTranslation(0, -points / 72, ax.figure.dpi_scale_trans)
    return ax.transData + shift


def panels(n, width=4.2, height=3.1, columns=3, **more):
    """A figure with n axes in rows of `columns`, those that are left over hidden."""
    columns = min(columns, n)
    rows = -(-n // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows),
                                squeeze=False, **more)
    for ax in axes.flat[n:]:
        ax.set_axis_off()
    return figure, list(axes.flat[:n])


def plain(text):
    """A text of a run as matplotlib may draw it: $ would begin a formula."""
    text = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    return text[:400].replace("$", r"\$")


finding = None           # --title: what the figures say, in place of what they show


def headline(figure, runs, what, step=None):
    """Title of a figure, as wide as it is: the finding, if one is given, or what it shows; of one
    run also its name, switches and step."""
    lines = textwrap.wrap(plain(finding) if finding else what, letters(figure))
    if len(runs) == 1 and not finding:
        about = f"{runs[0]['name']}: {runlog.switches(runs[0])}"
        if step is not None: about += f", step {step:,}"
        lines += textwrap.wrap(plain(about), letters(figure))
    figure.suptitle("\n".join(lines), fontsize=10.5, x=0.01, ha="left")


def letters(figure):
    """How many letters of a title a figure has room for."""
    return int(13.5 * figure.get_figwidth())


def label(run, runs, step=None):
    """Legend entry: name, switches, and the flags in which these runs differ."""
    seeds = [r for r in runs if runlog.group(r) == runlog.group(run)]
    if run is not seeds[0]:
        return None
    flags = runlog.flags_at(run)
    words = [runlog.switches(run)] + [f"{key} {flags[key]}"
                                      for key in runlog.differing_flags(runs) if key in flags
                                      and (key != "seed" or len(seeds) == 1)]
    name = run["name"] if len(seeds) == 1 else f"{runlog.group(run)} ({len(seeds)} seeds)"
    text = f"{name}: {', '.join(words)}"
    if step is not None and run["status"] != "probed": text += f", step {step:,}"
    return "\n".join(textwrap.wrap(plain(text), 110))


def legend_below(figure, ax, columns=3):
    handles, labels = ax.get_legend_handles_labels()
    fit = max(1, int(15 * figure.get_figwidth() / (max(map(len, labels), default=1) + 8)))
    if labels:
        figure.legend(handles, labels, loc="outside lower center",
                      ncols=min(columns, fit, len(labels)))


def stem(figure, runs):
    """File name: the figure and its runs."""
    names = list(dict.fromkeys(r.get("file") or runlog.group(r) for r in runs))
    names = [runs[0]["name"]] if len(runs) == 1 else names
    names = [re.sub(r"[^\w.=,+-]+", "-", name)[:60] for name in names]
    if len(names) > 4: names = [names[0], "and", str(len(names) - 1), "more"]
    return "-".join([figure] + names)


def whole(ax, n, first=0):
    """An axis of n whole numbers, thinned to a dozen."""
    ax.set_xticks(range(first, first + n, -(-n // 12)))
    ax.set_xlim(first - 0.3, first + n - 0.7)


def series(evals, get):
    return [e["step"] for e in evals], [number(get(e)) for e in evals]


def trained(paths, figure):
    """Runs that have steps: a probe has none."""
    runs = runlog.read_runs(paths)
    for run in runs:
        if run["status"] == "probed":
            die(f"{run['path']}: got a probe, wanted a run",
                f"scripts/plot.py heads {run['path']}, or {figure} RUN")
    return runs


# ---- figures over steps --------------------------------------------------------------------------
def dynamics(paths, options):
    """Loss, Sink_1 and Sink_* (Figures 4, 5 right, 28)."""
    runs = trained(paths, "dynamics")
    figure, (loss, sink) = panels(2, 4.7, 3.5)
    end = None if options.logx else end_of_loss(loss, runs)
    for i, run in enumerate(runs):
        runlog.at_step(run, None)
        train, style, proxy = run["train"], look(i, runs), runlog.uses_proxy(run["evals"])
        shown = train[::max(1, len(train) // TRAIN_POINTS)]
        loss.plot(*series(shown, lambda t: t["loss"]), color=style["color"], lw=0.5, alpha=0.25,
                  zorder=1)
        loss.plot(*series(run["evals"], lambda e: e.get("val_loss")), **style,
                  label=label(run, runs))
        if end:
            end.plot(*series(run["evals"], lambda e: e.get("val_loss")), **style)
        place = beside(sink, i, runs)
        sink.plot(*series(run["evals"], lambda e: runlog.sink(e, proxy)), **style,
                  transform=place)
        for resume in run["resumes"]:
            for ax in (loss, sink):
                edge(ax, resume["step"], " resumed" * (ax is sink), style["color"])
        if any(e["sink"].get("sink_star") is not None for e in run["evals"]):
            star = series(run["evals"], lambda e: e["sink"].get("sink_star"))
            style.update(linestyle="--", marker="*", markersize=6)
            sink.plot(star[0], [100 * y for y in star[1]], **style, transform=place)
    loss.set(title="Loss: validation (markers), training (thin)", xlabel="step",
             ylabel="loss (nats per token)")
    stars = any(e["sink"].get("sink_star") is not None for r in runs for e in r["evals"])
    sink.set(title="Sink$_1$" + " (solid), Sink$_*$ of the extra key (dashed, stars)" * stars,
             xlabel="step", ylim=(-6, 106),
             ylabel=f"Sink at $\\epsilon$ = {runs[0]['evals'][0]['sink']['eps']:g}")
    sink.yaxis.set_major_formatter(PercentFormatter())
    last = max((e["step"] for r in runs for e in r["evals"]), default=0)
    sink.set_xlim(-0.04 * last - 0.1, 1.04 * last + 0.1)    # a shifted line is in no other unit
    if options.logx:
        first = min((e["step"] for r in runs for e in r["evals"] if e["step"]), default=1)
        for ax in (loss, sink):
            ax.set_xscale("symlog", linthresh=first)
    headline(figure, runs, "Loss and attention sink over training"
             + ". Equal sinks are drawn a little apart" * (len(kinds(runs)) > 1))
    legend_below(figure, loss)
    yield stem("dynamics", runs), figure


def end_of_loss(ax, runs):
    """A window in a panel of losses: the second half of the training, where the curves differ by
    less than a line is wide. None if there is too little to show."""
    steps = sorted({e["step"] for r in runs for e in r["evals"]})
    late = [s for s in steps if 2 * s >= steps[-1]]
    values = [e["val_loss"] for r in runs for e in r["evals"]
              if e["step"] in late and e.get("val_loss") is not None]
    if len(late) < 4 or not values:
        return None
    end = ax.inset_axes([0.42, 0.42, 0.56, 0.55])
    room = 0.1 * (max(values) - min(values)) or 0.01
    end.set(xlim=(late[0], late[-1] * 1.02), ylim=(min(values) - room, max(values) + room))
    end.text(0.98, 0.97, "validation, second half", fontsize=8, ha="right", va="top",
             transform=end.transAxes)
    end.tick_params(labelsize=7.5)
    end.xaxis.set_major_locator(MaxNLocator(4))
    end.yaxis.set_major_locator(MaxNLocator(4))
    return end


def profiles(paths, options):
    """Sink_k by position k (Figures 5 and 6, middle) of runs and probes, at every threshold
    of a probe; and the mean alpha_k of a probe --per-sequence."""
    runs = runlog.read_runs(paths)
    curves = [(run, e, s) for run in runs for e in [runlog.at_step(run, options.step)]
              for s in e.get("sinks") or [e["sink"]]]
    with_alpha = any("alpha" in e for _, e, _ in curves)
    figure, axes = panels(2 if with_alpha else 1, 4.8 if with_alpha else 6.0, 3.6)
    for i, (run, e, s) in enumerate(curves):
        ks, proxy = s["k"], runlog.uses_proxy(run["evals"])
        axes[0].plot(ks, [number(runlog.sink({"sink": s}, proxy, k)) for k in ks], **look(i),
                     label=label_of_profile(run, runs, e, s))
        for flag in ("prefix", "window"):
            size = run["config"]["flags"].get(flag, 0)
            if runlog.is_number(size) and 0 < size <= ks[-1]:
                edge(axes[0], size + 0.5, f" {flag} {size:g}", COLORS[i % 7])
        if "alpha" in e and s is (e.get("sinks") or [e["sink"]])[0]:
            alpha = np.nanmean(np.array(e["alpha"], float), axis=(0, 1, 2))
            axes[1].plot(range(1, 1 + len(alpha)), alpha, **look(i))
            axes[1].set(xlabel="position k", ylabel=r"mean of $\alpha_k$", ylim=(0, None))
    axes[0].set(xlabel="position k", ylabel="Sink$_k$", ylim=(-3, 103))
    axes[0].yaxis.set_major_formatter(PercentFormatter())
    for ax in axes:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    headline(figure, [], "Which tokens are sinks")
    legend_below(figure, axes[0], 1)
    yield stem("profiles", runs), figure


def label_of_profile(run, runs, e, s):
    """Every seed has a line of its own here; several thresholds are told apart."""
    step = None if run["status"] == "probed" else e["step"]
    text = label(run, [r for r in runs if r is run or runlog.group(r) != runlog.group(run)], step)
    return text + (f", $\\epsilon$ = {s['eps']:g}" if len(e.get("sinks") or []) > 1 else "")


def edge(ax, x, text, color):
    ax.axvline(x, color=color, lw=1, ls=":")
    ax.annotate(text, (x, 1), xycoords=("data", "axes fraction"), va="top",
                color=color, fontsize=8.5)


# ---- figures by layer ----------------------------------------------------------------------------
def heat(ax, values, text=True, layers=None, **more):
    """A map of numbers by layer and head; the numbers themselves where there is room.
    layers: which the rows are, if not all."""
    x = np.array(values, dtype=float)
    image = ax.imshow(x, aspect="auto" if max(x.shape) > 24 else "equal", **more)
    ax.grid(False)
    ax.set(xlabel="head", ylabel="layer")
    ax.set_xticks(range(0, x.shape[1], -(-x.shape[1] // 12)))
    rows = range(0, x.shape[0], -(-x.shape[0] // 12))
    ax.set_yticks(rows, [str(layers[l] if layers else l) for l in rows])
    if text and x.size <= 64:
        low, high = image.get_clim()
        for (l, h), v in np.ndenumerate(x):
            dark = v < low + 0.6 * (high - low)
            ax.text(h, l, f"{v:.2f}", ha="center", va="center", fontsize=8,
                    color="white" if dark else "black")
    return image


def heads(paths, options):
    """alpha_1 of every head (Figures 19 to 24), of runs and of probes."""
    runs = runlog.read_runs(paths)
    shape = np.array(runlog.at_step(runs[0], options.step)["alpha1"]).shape
    width, height = (min(4.6, max(1.5, 0.4 * n)) for n in shape[::-1])
    figure, axes = panels(len(runs), max(1.0 + width, 5.0 if len(runs) == 1 else 3.2), 1.3 + height,
                          layout="compressed")
    for run, ax in zip(runs, axes):
        e = runlog.at_step(run, options.step)
        proxy = runlog.uses_proxy(run["evals"])
        image = heat(ax, e["alpha1_proxy" if proxy else "alpha1"], layers=runlog.attending(e),
                     vmin=0, vmax=1)
        if len(runs) > 1:
            step = "" if run["status"] == "probed" else f", step {e['step']:,}"
            about = plain(runlog.switches(run) + step)
            title = textwrap.wrap(plain(run["name"]), 34) + textwrap.wrap(about, 34)
            ax.set_title("\n".join(title), fontsize=8.5)
    figure.colorbar(image, ax=axes, shrink=0.9, aspect=25).set_label(r"$\alpha_1$")
    step = None if runs[0]["status"] == "probed" else runlog.at_step(runs[0], options.step)["step"]
    headline(figure, runs, r"Attention to the first token, $\alpha_1$, by layer and head", step)
    yield stem("heads", runs), figure


WHOSE = [("first", "first token"), ("rest", "mean of the others"), ("star", "sink token")]
NORMS = [("h", "hidden states h", "after how many layers (0: the embedding)"),
         ("k", "keys k", "in layer"), ("v", "values v", "in layer")]


def film(paths, options):
    """alpha_1 of every head over training: a strip, one row per head, and the film itself, one
    picture per evaluation."""
    for run in trained(paths, "film"):
        evals = run["evals"]
        key = "alpha1_proxy" if runlog.uses_proxy(evals) else "alpha1"
        shots = np.array([e[key] for e in evals], float)             # (evaluations, L, H)
        top = np.ceil(10 * np.nanmax(shots)) / 10                    # of the colors
        if len(shots) < 2:
            die(f"{run['path']}: got one evaluation, wanted several", "train with --eval-every N")
        name = stem("film", [run])
        film_of(run, shots, top, f"{options.out}/{name}.gif")
        yield name, strip_of(run, shots, top)


def strip_of(run, shots, top):
    (n, L, H), layers = shots.shape, runlog.attending(run["evals"][0])
    steps = [e["step"] for e in run["evals"]]
    figure, (ax,) = panels(1, 7.2, max(2.2, min(9, 1.3 + 0.16 * L * H)))
    edges = [steps[0]] + [(a + b) / 2 for a, b in zip(steps, steps[1:])] + [steps[-1]]
    mesh = ax.pcolormesh(edges, np.arange(L * H + 1) - 0.5, shots.reshape(n, -1).T, vmin=0,
                         vmax=top, rasterized=True)
    ax.set(xlabel="step", ylabel="layer:head", ylim=(L * H - 0.5, -0.5))
    every = range(0, L * H, -(-L * H // 24))
    ax.set_yticks(list(every), [f"{layers[i // H]}:{i % H}" for i in every])
    ax.grid(False)
    figure.colorbar(mesh, ax=ax, shrink=0.9, aspect=20).set_label(r"$\alpha_1$")
    headline(figure, [run],
             r"Attention to the first token, $\alpha_1$, of every head over training")
    return figure


def film_of(run, shots, top, path):
    """Writes the film: layers by heads, one picture per evaluation, the last one held."""
    from matplotlib.animation import PillowWriter
    (n, L, H), layers = shots.shape, runlog.attending(run["evals"][0])
    figure, (ax,) = panels(1, max(3.2, 1.6 + 0.4 * H), max(2.4, 1.5 + 0.3 * L))
    image = ax.imshow(shots[0], vmin=0, vmax=top, aspect="auto")
    ax.set(xlabel="head", ylabel="layer", xticks=range(0, H, -(-H // 16)))
    every = range(0, L, -(-L // 16))
    ax.set_yticks(list(every), [layers[l] for l in every])
    ax.grid(False)
    figure.colorbar(image, ax=ax).set_label(r"$\alpha_1$")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    writer = PillowWriter(fps=max(2, n / 8))                 # eight seconds
    with writer.saving(figure, path, dpi=100):
        for i in list(range(n)) + [n - 1] * max(2, n // 8):
            image.set_data(shots[i])
            ax.set_title(f"step {run['evals'][i]['step']:,}")
            writer.grab_frame()
    plt.close(figure)
    print(path)


def norms(paths, options):
    """Norms of h, k and v, first token and the others (Figures 11 to 14),
    and their ratio (Figures 7, 8, 29)."""
    runs = runlog.read_runs(paths)
    for run in runs:
        need_norms(run, runlog.at_step(run, options.step))
        yield stem("norms", [run]), norms_of_one(run, runlog.at_step(run, options.step))
    figure, axes = panels(3, 3.6, 3.4)
    for i, run in enumerate(runs):
        e = runlog.at_step(run, options.step)
        for (key, _, _), ax in zip(NORMS, axes):
            ax.plot(ratio(e, key + "_norm"), **look(i, runs), label=label(run, runs, e["step"]))
        if "pre_norm_first" in e:
            # after attention, after FFN, ..
            half_blocks = 0.5 * np.arange(1, 1 + len(e["pre_norm_first"]))
            dotted = {**look(i, runs), "linestyle": ":",
                      "label": plain(run["name"]) + ", before the norm"}
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


def need_norms(run, e):
    """A picture of norms needs those of the first token and of the others."""
    for name in runlog.NORMS[:2] + runlog.NORMS[5:9]:
        if not e.get(name):
            die(f"{run['log']}: got no {name} at step {e['step']}, wanted one for each layer",
                "measure it again")


def ratio(e, key):
    first, rest = np.array(e[key + "_first"], float), np.array(e[key + "_rest"], float)
    return np.where(rest > 0, first / np.where(rest > 0, rest, 1), np.nan)


def plain_log(ax):
    """A logarithmic axis with numbers rather than powers of ten, and more of them when
    few decades are shown."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = [1, 2, 5] if high / low < 200 else [1]
    ax.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=subs))
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
            entries = {"linestyle": "--", "linewidth": 1}
            ax.plot([number(v) for v in e.get("h_max") or []], **{**look(3), **entries},
                    label="largest entry of any h, max|h|")
            ax.plot([number(v) for v in e.get("h_median") or []], **{**look(4), **entries},
                    label="median entry, median|h|")
            plain_log(ax)
        else:
            ax.set_ylim(bottom=0)
        what = "; one entry (dashed)" if key == "h" and e.get("h_max") else ""
        ax.set(title=name, xlabel=where, ylabel=r"$\ell_2$ norm" + what)
        whole(ax, len(e[f"{key}_norm_first"]))
    headline(figure, [run], r"$\ell_2$ norms by layer",
             None if run["status"] == "probed" else e["step"])
    legend_below(figure, axes[0], 5)
    return figure


# ---- figures of a probe --------------------------------------------------------------------------
def maps(paths, options):
    """The heads of a --dump directory: up to DETAILED of them, or those of --head,
    each with attention, cosines and norm products (Figures 2 bottom, 15 to 18);
    of more than that the attention of all, in one picture."""
    for path in paths:
        name, found = f"maps-{os.path.basename(os.path.abspath(path))}", heads_in(path)
        chosen = [h for h in found if h in options.head] or ([] if len(found) > DETAILED else found)
        for l, h in chosen:
            yield f"{name}-{l}_{h}", map_of_head(path, f"{l}_{h}")
        if not chosen:
            l, h = found[0]
            print(f"{path}: {len(found)} heads, so one picture of all their attention; "
                  "of single heads, with cosines "
                  f"and norms: scripts/plot.py maps {path} --head {l}:{h}", flush=True)
            yield name, all_maps(path, found)


DETAILED = 4             # more heads than this are drawn together
PIXELS = 2400            # and about as wide as this


def heads_in(path):
    """(layer, head) of every map in a directory, in order."""
    names = os.listdir(path) if os.path.isdir(path) else []
    found = [re.fullmatch(r"([0-9]{1,6})_([0-9]{1,6})_map\.npy", n) for n in names]
    if not any(found):
        die(f"{path}: got no LAYER_HEAD_map.npy, wanted a --dump directory",
            "write one: ./train_sink probe RUN/step_N --dump DIR --dump-heads all")
    return sorted((int(m[1]), int(m[2])) for m in found if m)


def all_maps(path, found):
    """Attention of all heads side by side: rows are layers, columns heads, as one image."""
    rows, columns = (sorted({head[i] for head in found}) for i in (0, 1))
    size = max(16, PIXELS // max(len(rows), len(columns)))
    tiles, started = {}, time.time()
    for i, (l, h) in enumerate(found):
        tiles[l, h] = shrink(load_map(f"{path}/{l}_{h}_map.npy"), size)
        if time.time() - started > 2:
            started = time.time()
            print(f"{path}: read {i + 1} of {len(found)} heads", file=sys.stderr, flush=True)
    side = max(max(tile.shape) for tile in tiles.values())
    picture = np.full((len(rows) * (side + 2), len(columns) * (side + 2)), np.nan)
    for (l, h), tile in tiles.items():
        y, x = rows.index(l) * (side + 2), columns.index(h) * (side + 2)
        picture[y:y + tile.shape[0], x:x + tile.shape[1]] = tile
    return draw_all_maps(picture, rows, columns, side + 2, path)


def draw_all_maps(picture, rows, columns, pitch, path):
    inch = min(1.3, 11 / max(len(rows), len(columns)))
    figure, (ax,) = panels(1, max(4.5, 1.2 + inch * len(columns)), 1.4 + inch * len(rows),
                           layout="compressed")
    image = ax.imshow(picture, vmin=0, vmax=1, interpolation="antialiased")
    ax.set(xlabel="head", ylabel="layer")
    for axis, names in ((ax.xaxis, columns), (ax.yaxis, rows)):
        every = range(0, len(names), -(-len(names) // 24))
        axis.set_ticks([(i + 0.5) * pitch - 1.5 for i in every], [names[i] for i in every])
    ax.grid(False)
    figure.colorbar(image, ax=ax, shrink=0.8, aspect=25)
    headline(figure, [],
             f"Attention of every head: queries downwards, keys to the right. {plain(path)}")
    return figure


def shrink(x, size):
    """A map at most `size` wide: the largest weight of each square, so that no sink is lost.
    Unseen keys are blank."""
    T, step = len(x), -(-x.shape[1] // size)
    unseen = np.arange(T + 1)[None, :] > np.arange(T)[:, None] + 1
    x = np.where(unseen & (x == 0), np.nan, x)
    pad = [(0, -n % step) for n in x.shape]
    x = np.pad(x, pad, constant_values=np.nan)
    return np.fmax.reduce(np.fmax.reduce(x.reshape(x.shape[0] // step, step, -1, step), axis=3),
                          axis=1)


def load_map(path):
    try:
        x = np.load(path)
    except (OSError, ValueError, EOFError) as e:
        die(f"{path}: got '{e}', wanted an array of --dump",
            "write it again: ./train_sink probe RUN/step_N --dump DIR")
    if x.dtype.kind != "f" or x.ndim != 2 or x.shape[1] != x.shape[0] + 1 or x.shape[0] < 1:
        die(f"{path}: got {x.dtype} of shape {x.shape}, wanted floats of shape (T, T + 1)",
            "write it again: ./train_sink probe RUN/step_N --dump DIR")
    return x


def map_of_head(path, head):
    layer, h = head.split("_")
    kinds = [("map", "attention A", "viridis"), ("cosine", "cos(q$_t$, k$_j$)", "PuOr"),
             ("product", "|q$_t$| |k$_j$|", "viridis")]
    arrays = [load_map(f"{path}/{head}_{kind}.npy") for kind, _, _ in kinds]
    if len({x.shape for x in arrays}) > 1:
        die(f"{path}: {head}: got maps of several sizes, wanted one",
            "write them again: ./train_sink probe .. --dump DIR")
    extra = arrays[2][:, 0].any()  # column 0 is the extra key; without one it is all zeros
    T = len(arrays[0])
    unseen = np.arange(T + 1)[None, :] > np.arange(T)[:, None] + 1
    figure, axes = panels(3, 3.9, 4.1, layout="compressed")
    for x, (kind, name, colors), ax in zip(arrays, kinds, axes):
        x = np.where(unseen & (arrays[0] == 0), np.nan, x)[:, 0 if extra else 1:]
        limits = {"vmin": -1, "vmax": 1} if kind == "cosine" else {"vmin": 0}
        image = ax.imshow(x, cmap=colors,
                          extent=(-0.5 if extra else 0.5, T + 0.5, T + 0.5, 0.5), **limits)
        ax.grid(False)
        ax.set(title=name, xlabel="key position j" + (" (0: extra key)" if extra else ""),
               ylabel="query position t")
        figure.colorbar(image, ax=ax, shrink=0.8, aspect=20)
        first_again(ax, image, x[:, 1:2] if extra else x[:, :1], T)
    headline(figure, [], f"Layer {layer}, head {h}: where the queries look, and why. "
             f"{plain(os.path.basename(os.path.abspath(path)))}")
    return figure


def first_again(ax, image, first, T):
    """The keys of the first token once more, wider and apart: a column of one cell at the edge of
    a map is overlooked."""
    width, left = max(1, T / 16), image.get_extent()[0]
    ax.imshow(first, cmap=image.get_cmap(), norm=image.norm,
              extent=(left - 1.5 * width, left - 0.5 * width, T + 0.5, 0.5))
    ax.set(xlim=(left - 1.6 * width, T + 0.5), ylim=(T + 0.5, 0.5))
    ax.add_patch(plt.Rectangle((left - 1.5 * width, 0.5), width, T, fill=False, edgecolor=MARK,
                               lw=1.2, clip_on=False, zorder=4))
    ax.set_xticks([x for x in ax.get_xticks() if left < x <= T])
    ax.set_xticks([left - width], ["first\ntoken"], minor=True, color=MARK)
    ax.tick_params(axis="x", which="minor", length=0)


def threshold(paths, options):
    """Sink_1 against length and threshold (Figure 3)."""
    for path in paths:
        objects = [e for run in runlog.read_probe(path) for e in run["evals"]]
        proxy = runlog.uses_proxy(objects)
        sinks = [s for o in objects for s in o.get("sinks") or [o["sink"]]]
        if len({(s["T"], s["eps"]) for s in sinks}) < 2:
            die(f"{path}: got one length and one threshold, wanted several: a line has two points",
                "measure it again: ./train_sink probe .. --probe-len 64,256 --eps 0.2,0.3 --json FILE")
        sources = list(dict.fromkeys(o.get("data", "") for o in objects))
        figure, axes = panels(2 * len(sources), 4.4, 3.2, columns=2)
        for source, by_length, by_eps in zip(sources, axes[::2], axes[1::2]):
            points = [(s["T"], s["eps"], number(runlog.sink({"sink": s}, proxy))) for o in objects
                      if o.get("data", "") == source for s in o.get("sinks") or [o["sink"]]]
            lines(by_length, [(e, T, y) for T, e, y in points], r"$\epsilon$ = {:g}")
            lines(by_eps, [(T, e, y) for T, e, y in points], "T = {:g}")
            lengths = sorted({T for T, _, _ in points})
            by_length.set(title=plain(source), xlabel="length T (tokens)")
            if lengths[0] > 0:
                by_length.set_xscale("log")
            by_length.set_xticks(lengths, lengths)
            by_length.minorticks_off()
            by_eps.set(title=plain(source), xlabel=r"threshold $\epsilon$")
        headline(figure, [], f"Sink$_1$ against length and threshold. {plain(path)}")
        yield "threshold-" + os.path.splitext(os.path.basename(path))[0], figure


def lines(ax, points, text):
    """One line for each first of (line, x, y)."""
    for i, name in enumerate(sorted({p[0] for p in points})):
        ax.plot(*zip(*sorted((x, y) for n, x, y in points if n == name)), **look(i),
                label=text.format(name))
    ax.set(ylabel="Sink$_1$ (%)", ylim=(-3, 103))
    ax.yaxis.set_major_formatter(PercentFormatter())
    ax.legend(loc="best", ncols=2)


# ---- a table of the paper ------------------------------------------------------------------------
def at_main(get):
    """Of the token that the row is about: the first, if the paper does not say otherwise."""
    return lambda row: get(row, runlog.main_position(row))


def columns_of(results):
    """(title, the paper's number, ours by seed) of each panel. A loss on other data than
    the paper's stands alone."""
    here = results.get("data", "").split(" ")[0] or "other data"
    loss = (f"validation loss, nats\n(on {plain(here)})", lambda row: "", runlog.our_loss)
    if runlog.same_data(results):
        loss = ("validation loss (nats per token)", runlog.paper_loss, runlog.our_loss)
    found = [("Sink$_k$ (%)", at_main(runlog.paper_sink), at_main(runlog.our_sink)),
             ("Sink$_*$ (%)", runlog.paper_star, runlog.our_star), loss]
    return [c for c in found
            if any(runlog.is_number(c[1](row)) or c[2](row) for row in results["rows"])]


def table(paths, options):
    """A table of scripts/reproduce: ours, every seed a dot, beside the paper's number."""
    for path in paths:
        results = runlog.read_results(path)
        rows = results["rows"]
        if not rows:
            die(f"{path}: got no rows, wanted one or more", "write it again: scripts/reproduce")
        columns = columns_of(results)
        paper = any(runlog.is_number(c[1](row)) for c in columns for row in rows)
        figure, axes = panels(max(1, len(columns)), 4.0,
                              1.4 + (0.42 if paper else 0.24) * len(rows), sharey=True)
        for (name, theirs, ours), ax in zip(columns, axes):
            bars(ax, rows, theirs if paper else None, ours, "loss" in name)
            ax.set(title=name)
        others = {r["id"]: f"\nk = {runlog.main_position(r)}"
                  for r in rows if runlog.main_position(r) != 1}
        axes[0].set_yticks(range(len(rows)), [plain(name + others.get(r["id"], ""))
                                              for r, name in zip(rows, row_names(results))])
        if not others:
            axes[0].set_title("Sink$_1$ (%)")
        headline(figure, [], plain(title_of(results, paper)))
        key_below(figure, axes[0], rows, paper)
        yield "table-" + os.path.splitext(os.path.basename(path))[0], figure


def row_names(results):
    """The rows' names, without the table's before each of them."""
    names, prefix = [r["id"] for r in results["rows"]], results["table"] + "-"
    return [n[len(prefix):] for n in names] if all(n.startswith(prefix) for n in names) else names


def title_of(results, paper):
    """What a table is about and what it was trained on, in words."""
    name = re.sub(r"^(table|figure|section)(?=\d)", lambda m: m[1].capitalize() + " ",
                  results["table"])
    about = results.get("about") or results.get("scale") or ""
    data = results.get("data", "").split(" ")[0]
    about += f"; data: {data}" if data else ""
    about += f"; commit {results['commit']}" if results.get("commit") else ""
    against = ", ours against the paper's" if paper else ""
    return f"{name[:1].upper()}{name[1:]}{against}: {about}"


def key_below(figure, ax, rows, paper):
    """What bars and dots are; only what this figure has."""
    ax.plot([], [], "s", color=OURS, label="ours, mean of seeds")
    if paper: ax.plot([], [], "s", color=PAPER, label="paper")
    if any(len(row.get("ours") or []) > 1 for row in rows):
        ax.plot([], [], "o", ms=3.5, mfc=SEED, mec="white", mew=0.6, label="one seed")
    legend_below(figure, ax)


def bars(ax, rows, paper, ours, loss):
    """The paper's number above (paper: its number of a row, or None), ours below it, as numbers
    to the right too; what has none says why. A share is a bar from 0. A loss has no zero that
    means something: it is a mark, and the axis begins where the losses do."""
    seen = []
    for y, row in enumerate(rows):
        pair = [(y + 0.2 * bool(paper), ours(row), runlog.why_not(row), OURS)]
        if paper:
            given = paper(row)
            pair.insert(0, (y - 0.2, [given] if runlog.is_number(given) else [], given, PAPER))
        for at, seeds, word, color in pair:
            seen += seeds
            mean = np.mean(seeds) if seeds else 0
            if not loss:
                ax.barh(at, mean, 0.36, color=color)
            elif seeds:
                ax.plot([mean], [at], "s", ms=6, color=color)
            text = decimals(mean, loss) if seeds else word or "\N{EN DASH}"
            if color == PAPER and seeds: text = f"{mean:g}"  # as it is printed there
            ax.annotate(plain(str(text)), (1.03, at), xycoords=ax.get_yaxis_transform(),
                        va="center", fontsize=7.5, color="#444444" if seeds else "#777777")
            if len(seeds) > 1:                              # equal ones beside each other
                places = at + 0.22 * (np.arange(len(seeds)) / (len(seeds) - 1) - 0.5)
                ax.plot(seeds, places, "o", ms=3.5, mfc=SEED, mec="white", mew=0.6, zorder=3,
                        clip_on=False)
    ax.grid(axis="y", visible=False)
    low, high = (min(seen, default=0), max(seen, default=1)) if loss else (0, 100)
    room = 0.08 * (high - low) or 0.01
    ax.set(xlim=(low - room, high + room) if loss else (0, 100), ylim=(len(rows) - 0.5, -0.5))
    if loss: ax.xaxis.set_major_locator(MaxNLocator(5))


def decimals(x, loss):
    """A loss to a thousandth, a percentage to a tenth: a measurement of some hundred pairs of a
    head and a sequence has no more."""
    return f"{x:.3f}" if loss else f"{x:.1f}".removesuffix(".0")


def everything(paths, options):
    """dynamics, heads, norms and profiles of each run."""
    for path in paths:
        of_probe = (heads, norms, profiles)
        for draw in of_probe if path.endswith(".json") else (dynamics, *of_probe):
            yield from draw([path], options)


FIGURES = {
    "dynamics":  (dynamics,   "RUN..",        "loss, Sink_1 and Sink_* over steps (Figures 4, 28)"),
    "heads":     (heads,      "RUN..",
                  "attention to the first token by layer and head (Figures 19 to 24)"),
    "film":      (film,       "RUN..",
                  "alpha_1 of every head over training: a strip, and a film (.gif)"),
    "norms":     (norms,      "RUN..",
                  "norms of h, k, v by layer, and ratios (Figures 7, 8, 11 to 14, 29)"),
    "profiles":  (profiles,   "RUN..",
                  "Sink_k by position k: prefixes, windows (Figures 5, 6)"),
    "maps":      (maps,       "DIR..",
                  "attention and QK geometry, from probe --dump DIR (Figures 2, 15 to 18)"),
    "threshold": (threshold,  "PROBE.json..",
                  "Sink_1 against length and threshold, from probe --json (Figure 3)"),
    "table":     (table,      "RESULTS.json..",
                  "a table of scripts/reproduce, ours against the paper's"),
    "all":       (everything, "RUN..",        "the first four of every run"),
}


def usage():
    rows = "".join(f"  plot.py {name + ' ' + what:24} {text}\n"
                   for name, (_, what, text) in FIGURES.items())
    return f"""\
usage: (a RUN is a directory with log.jsonl; for heads, norms and profiles also what
train_sink probe --json wrote, so any model that can be probed can be drawn)
{rows}
options:
  -o DIR      where the .png and .svg go [figures/ beside the first input: runs/figures]
  --step N    the evaluation that heads, norms and profiles show [the last]
  --head L:H,..  maps: these heads in detail [all if they are few]
  --logx      dynamics: a logarithmic axis of steps
  --title T   what the figures say [what they show]
"""


def heads_of(text):
    """0:1,2:3 -> {(0, 1), (2, 3)}"""
    if not re.fullmatch(r"[0-9]{1,6}:[0-9]{1,6}(,[0-9]{1,6}:[0-9]{1,6})*", text):
        die(f"--head: got {runlog.shown(text)}, wanted LAYER:HEAD,..", "--head 0:0,0:1")
    return {tuple(map(int, pair.split(":"))) for pair in text.split(",")}


def main(words):
    if not words or words[0] in ("-h", "--help"):
        sys.exit(print(usage(), end=""))
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = lambda text: die(f"options: {text}", "scripts/plot.py --help")
    parser.add_argument("figure")
    parser.add_argument("inputs", nargs="*")
    parser.add_argument("-o", "--out")
    parser.add_argument("--step", type=int)
    parser.add_argument("--head", type=heads_of, default=set())
    parser.add_argument("--logx", action="store_true")
    parser.add_argument("--title")
    options = parser.parse_intermixed_args(words)
    global finding
    finding = options.title
    if options.figure not in FIGURES:
        die(f"figure: got '{options.figure}', wanted one of {' '.join(FIGURES)}",
            "scripts/plot.py --help")
    draw, what, _ = FIGURES[options.figure]
    if not options.inputs:
        die(f"{options.figure}: got nothing to draw, wanted {what}",
            f"scripts/plot.py {options.figure} {what}")
    beside = os.path.dirname(os.path.normpath(options.inputs[0]))
    options.out = options.out or os.path.join(beside, "figures")
    plt.rcParams.update(STYLE)
    plt.rcParams["axes.prop_cycle"] = matplotlib.cycler(color=COLORS)
    np.seterr(all="ignore")                                  # numbers that are not finite are gaps
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
