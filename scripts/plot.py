#!/usr/bin/env python3
"""The paper's figures from what train_sink writes, each as PNG and SVG. Needs NumPy and matplotlib.

To add a figure: one function that gets (inputs, options), yields (file name, figure),
and one row in FIGURES. Colors and what figures share are in lib/drawing.py.
Numbers of figures are those of Gu et al., When Attention Sink Emerges in Language Models,
arXiv:2410.10781.
"""
import argparse
import os
import re
import shlex
import sys
import textwrap

sys.path.insert(0, os.path.dirname(__file__) + "/lib")
import drawing
import runlog
from drawing import (COLORS, STYLE, MOST_LINES, TRAIN_POINTS, MaxNLocator, PercentFormatter,
                     alike, called, edge, headline, kinds, label, legend_below, look,
                     loss_and_sinks, matplotlib, middle_and_range, np, panels, plain, plain_log,
                     plt, percents, seeds_of, series, sink_axis, stem, step_of, thinned, thresholds, trained, whole)
from plot_anatomy import anatomy
from plot_maps import heads_in, load_map, maps
from plot_positions import positions
from plot_table import table
from runlog import die, number, say as print

# ---- figures over steps --------------------------------------------------------------------------
def dynamics(paths, options):
    """Loss, Sink_1 and Sink_* (Figures 4, 5 right, 28)."""
    runs = trained(paths)
    star = lambda e: number(e["sink"].get("sink_star"))
    has_star = lambda run: np.isfinite([star(e) for e in run["evals"]]).any()
    figure, loss, sinks = loss_and_sinks(runs)
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
        sink = sink_axis(sinks, i, runs)
        stretches = alike(run["evals"])
        for how, evals in stretches:
            sink.plot(*series(evals, lambda e: runlog.sink(e, proxy)), **style)
        for (T, eps), evals in stretches[1:]:
            edge(sink, evals[0]["step"], f"\n T {T}, $\\epsilon$ {eps:g}", style["color"])
        for resume in run["resumes"]:
            for ax in (loss, sink):
                edge(ax, resume["step"], " resumed" * (ax is sink), style["color"])
        if has_star(run):
            style.update(linestyle="--", marker="*", markersize=6)
            for how, evals in stretches:
                sink.plot(*series(evals, lambda e: 100 * star(e)), **style)
    loss.set(title="Loss: validation (markers), training (thin)", xlabel="step",
             ylabel="loss (nats per token)")
    if len(sinks) > 1:
        for ax, seeds, name in zip(sinks, seeds_of(runs), called(kinds(runs))):
            ax.set_title(name + " (shares)" * runlog.uses_proxy(runs[seeds[0]]["evals"]))
    sinks[-1].set_xlabel("step")
    sinks[len(sinks) // 2].set_ylabel(thresholds(runs) + "; dashed: Sink$_*$" * any(map(has_star, runs)))
    last = max((e["step"] for r in runs for e in r["evals"]), default=0)
    for ax in sinks:
        ax.set(ylim=(-7, 107), xlim=(-0.04 * last - 0.1, 1.04 * last + 0.1))
        ax.set_yticks([0, 50, 100] if len(sinks) > 2 else [0, 20, 40, 60, 80, 100])
        ax.yaxis.set_major_formatter(PercentFormatter())
        ax.tick_params(labelbottom=ax is sinks[-1])
    if options.logx:
        for ax in (loss, *sinks):
            ax.set_xscale("symlog", linthresh=first_step(runs))
    headline(figure, runs, "Loss and attention sink over training")
    legend_below(figure, loss)
    yield stem("dynamics", runs), figure


# what onset draws: a title, and the number of an evaluation; key is where it has alpha_1
ONSET = [(r"$\alpha_1$, best head", lambda e, key: largest(e[key])),
         ("|h| ratio, max: first token / others",
          lambda e, key: largest(norm_ratio(e, "h")[1:])),
         ("max/median of h", lambda e, key: largest(ratio(e, "h_max", "h_median")))]


def largest(values):
    """Returns the largest number, or None where nothing was measured."""
    return max(filter(np.isfinite, np.ravel(np.array(values, float))), default=None)


def tokens_of_step(run):
    """Returns how many tokens a step of a run reads."""
    flags = runlog.flags_at(run)
    return flags.get("total_batch") or flags["batch"] * flags["seq"]


def onset(paths, options):
    """Draws what moves before Sink_1 does: the strongest head, the norm of h, its entries. Runs
    with steps of different size are drawn over tokens; dotted lines are uniform attention."""
    runs = trained(paths)
    for run in runs:
        runlog.at_step(run, None)
        for e in run["evals"]:
            need(run, e, ("h_norm_first", "h_norm_rest", "h_max", "h_median"))
    over_tokens = len({tokens_of_step(run) for run in runs}) > 1
    figure, axes = panels(len(ONSET), 3.6, 3.3)
    for ax, (title, get) in zip(axes, ONSET):
        for i, run in enumerate(runs):
            key = runlog.alpha_of(run["evals"])
            scale = tokens_of_step(run) / 1e6 if over_tokens else 1
            for n, (how, evals) in enumerate(alike(run["evals"])):
                steps, values = series(evals, lambda e: get(e, key))
                ax.plot([scale * step for step in steps], values, **look(i, runs),
                        label=label(run, runs) if n == 0 else None)
        ax.set(title=title, xlabel="million tokens" if over_tokens else "step", ylim=(0, None))
        if options.logx: ax.set_xscale("symlog", linthresh=first_step(runs))
    lengths = [{e["sink"]["T"] for e in run["evals"]} for run in runs]
    for i, own in enumerate(lengths):
        color = "#888888" if len(set.union(*lengths)) == 1 else look(i, runs)["color"]
        for T in own:
            axes[0].axhline(np.mean(1 / np.arange(1, T + 1)), color=color, lw=0.8, ls=":", zorder=0)
    headline(figure, runs, "What moves before Sink$_1$ does")
    legend_below(figure, axes[0])
    yield stem("onset", runs), figure


def first_step(runs):
    return min((e["step"] for r in runs for e in r["evals"] if e["step"]), default=1)


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
              for s in runlog.sinks_of(e)]
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
        if "alpha" in e and s is runlog.sinks_of(e)[0]:
            alpha = np.nanmean(np.array(e["alpha"], float), axis=(0, 1, 2))
            axes[1].plot(range(1, 1 + len(alpha)), alpha, **look(i))
            axes[1].set(xlabel="position k", ylabel=r"mean of $\alpha_k$", ylim=(0, None))
    axes[0].set(xlabel="position k", ylabel="Sink$_k$")
    percents(axes[0])
    for ax in axes:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    headline(figure, [], "Which tokens are sinks")
    legend_below(figure, axes[0], 1)
    yield stem("profiles", runs), figure


def label_of_profile(run, runs, e, s):
    """Every seed has a line of its own here; several thresholds are told apart."""
    others = [r for r in runs if r is run or runlog.group(r) != runlog.group(run)]
    text = label(run, others, e["step"])
    return text + (f", $\\epsilon$ = {s['eps']:g}" if len(runlog.sinks_of(e)) > 1 else "")


# ---- figures by layer ----------------------------------------------------------------------------
def heat(ax, values, layers=None, **more):
    """A map of numbers by layer and head; the numbers themselves where there is room.
    layers: which the rows are, if not all."""
    x = np.array(values, dtype=float)
    image = ax.imshow(x, aspect="auto" if max(x.shape) > 24 else "equal", **more)
    ax.grid(False)
    ax.set(xlabel="head", ylabel="layer")
    ax.set_xticks(thinned(x.shape[1], 12))
    rows = thinned(len(x), 12)
    ax.set_yticks(rows, [str(layers[l] if layers else l) for l in rows])
    if x.size <= 64:
        low, high = image.get_clim()
        for (l, h), v in np.ndenumerate(x):
            dark = v < low + 0.6 * (high - low)
            ax.text(h, l, f"{v:.2f}", ha="center", va="center", fontsize=8,
                    color="white" if dark else "black")
    return image


def heads(paths, options):
    """alpha_1 of every head (Figures 19 to 24), of runs and of probes."""
    runs = runlog.read_runs(paths)
    evals = [runlog.at_step(run, options.step) for run in runs]
    height, width = (min(4.6, max(1.5, 0.4 * n)) for n in np.shape(evals[0]["alpha1"]))
    figure, axes = panels(len(runs), max(1.0 + width, 5.0 if len(runs) == 1 else 3.2), 1.3 + height,
                          layout="compressed")
    for run, e, ax in zip(runs, evals, axes):
        image = heat(ax, e[runlog.alpha_of(run["evals"])], layers=runlog.attending(e), vmin=0, vmax=1)
        if len(runs) > 1:
            about = plain(runlog.switches(run) + step_of(run, e["step"]))
            title = textwrap.wrap(plain(run["name"]), 34) + textwrap.wrap(about, 34)
            ax.set_title("\n".join(title), fontsize=8.5)
    figure.colorbar(image, ax=axes, shrink=0.9, aspect=25).set_label(r"$\alpha_1$")
    headline(figure, runs, r"Attention to the first token, $\alpha_1$, by layer and head",
             evals[0]["step"])
    yield stem("heads", runs), figure


WHOSE = [("first", "first token"), ("rest", "mean of the others"), ("star", "sink token")]
NORMS = [("h", "hidden states h", "after how many layers (0: the embedding)"),
         ("k", "keys k", "in layer"), ("v", "values v", "in layer")]
ENTRIES = [("h_max", "largest entry of any h, max|h|"), ("h_median", "median entry, median|h|")]


def film(paths, options):
    """alpha_1 of every head over training: a strip, one row per head, and the film itself, one
    picture per evaluation."""
    for run in trained(paths):
        evals = run["evals"]
        shots = np.array([e[runlog.alpha_of(evals)] for e in evals], float)  # (evaluations, L, H)
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
    every = thinned(L * H, 24)
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
    ax.set(xlabel="head", ylabel="layer", xticks=thinned(H, 16))
    every = thinned(L, 16)
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
    evals = [runlog.at_step(run, options.step) for run in runs]
    for run, e in zip(runs, evals):
        need(run, e, runlog.NORMS[:2] + runlog.NORMS[5:9])
        yield stem("norms", [run]), norms_of_one(run, e)
    draw = small_ratios if len(kinds(runs)) > MOST_LINES else ratios
    figure = draw(runs, evals)
    headline(figure, runs, r"Ratio of $\ell_2$ norms: the first token against the others")
    yield stem("ratios", runs), figure


def ratios(runs, evals):
    """Draws the ratios of h, k and v, each kind of run a line."""
    figure, axes = panels(3, 3.6, 3.4)
    for seeds in seeds_of(runs):
        text = label(runs[seeds[0]], runs, evals[seeds[0]]["step"])
        for (key, _, _), ax in zip(NORMS, axes):
            lines = [norm_ratio(evals[i], key) for i in seeds]
            if len({len(line) for line in lines}) > 1:
                die(f"{runs[seeds[0]]['path']}: got seeds with different layers, wanted the same",
                    "scripts/plot.py norms RUN, one kind at a time")
            middle_and_range(ax, range(len(lines[0])), lines, look(seeds[0], runs), text)
    for i, (run, e) in enumerate(zip(runs, evals)):
        if "pre_norm_first" in e:
            # after attention, after FFN, ..
            half_blocks = 0.5 * np.arange(1, 1 + len(e["pre_norm_first"]))
            dotted = {**look(i, runs), "linestyle": ":",
                      "label": plain(run["name"]) + ", before the norm"}
            axes[0].plot(half_blocks, norm_ratio(e, "pre"), **dotted)
    for (key, name, where), ax in zip(NORMS, axes):
        ax.axhline(1, color="#888888", lw=0.8, zorder=0)
        ax.set(title=name, xlabel=where)
        from_zero_or_log(ax)
        whole(ax, max(len(e[key + "_norm_first"]) for e in evals))
    axes[0].set_ylabel("first token / mean of the others")
    legend_below(figure, axes[0], 2)
    return figure


def from_zero_or_log(ax):
    if ax.get_ylim()[1] > 10: plain_log(ax)
    else: ax.set_ylim(bottom=0)


def small_ratios(runs, evals):
    """Draws the ratios of many kinds of run, each in a column over the first kind's in gray."""
    groups = seeds_of(runs)
    figure, grid = plt.subplots(len(NORMS), len(groups), figsize=(10.8, 5.8),
                                sharex="row", sharey="row")
    for (key, name, where), axes in zip(NORMS, grid):
        lines = [[norm_ratio(evals[i], key) for i in seeds] for seeds in groups]
        for ax, seeds, own in zip(axes, groups, lines):
            ax.plot(np.median(np.array(lines[0], float), axis=0), color="#AAAAAA", lw=1, zorder=0)
            middle_and_range(ax, range(len(own[0])), own, look(seeds[0], runs), None)
            ax.axhline(1, color="#888888", lw=0.8, ls=":", zorder=0)
        from_zero_or_log(axes[0])
        axes[0].set_ylabel(name)
        axes[len(groups) // 2].set_xlabel(where)
    for ax, name in zip(grid[0], called(kinds(runs))): ax.set_title(name)
    return figure


def need(run, e, names):
    for name in names:
        if not e.get(name):
            die(f"{run['log']}: got no {name} at step {e['step']}, wanted one for each layer",
                "measure it again")


def ratio(e, above, below):
    """Returns one list of an evaluation over another, nan where that is 0."""
    above, below = np.array(e[above], float), np.array(e[below], float)
    return np.where(below > 0, above / below, np.nan)


def norm_ratio(e, key):
    return ratio(e, key + "_norm_first", key + "_norm_rest")


def norms_of_one(run, e):
    figure, axes = panels(3, 3.6, 3.2)
    for (key, name, where), ax in zip(NORMS, axes):
        for i, (which, text) in enumerate(WHOSE):
            values = e.get(f"{key}_norm_{which}")
            if values:
                ax.plot([number(v) for v in values], **look(i), label=text)
        if key == "h":
            for i, (field, text) in enumerate(ENTRIES, 3):
                ax.plot([number(v) for v in e.get(field) or []],
                        **{**look(i), "linestyle": "--", "linewidth": 1}, label=text)
            plain_log(ax)
        else:
            ax.set_ylim(bottom=0)
        what = "; one entry (dashed)" if key == "h" and e.get("h_max") else ""
        ax.set(title=name, xlabel=where, ylabel=r"$\ell_2$ norm" + what)
        whole(ax, len(e[f"{key}_norm_first"]))
    headline(figure, [run], r"$\ell_2$ norms by layer", e["step"])
    legend_below(figure, axes[0], 5)
    return figure


# ---- figures of a probe --------------------------------------------------------------------------
def threshold(paths, options):
    """Sink_1 against length and threshold (Figure 3)."""
    for path in paths:
        objects = [e for run in runlog.read_probe(path) for e in run["evals"]]
        proxy = runlog.uses_proxy(objects)
        points = [(o.get("data", ""), s["T"], s["eps"], number(runlog.sink({"sink": s}, proxy)))
                  for o in objects for s in runlog.sinks_of(o)]
        if len({(T, eps) for _, T, eps, _ in points}) < 2:
            die(f"{path}: got one length and one threshold, wanted several: a line has two points",
                "measure it again: ./train_sink probe .. --probe-len 64,256 --eps 0.2,0.3 --json FILE")
        sources = list(dict.fromkeys(source for source, *_ in points))
        figure, axes = panels(2 * len(sources), 4.4, 3.2, columns=2)
        for source, by_length, by_eps in zip(sources, axes[::2], axes[1::2]):
            mine = [point for name, *point in points if name == source]
            lines(by_length, [(eps, T, y) for T, eps, y in mine], r"$\epsilon$ = {:g}")
            lines(by_eps, mine, "T = {:g}")
            lengths = sorted({T for T, _, _ in mine})
            by_length.set(title=plain(source), xlabel="length T (tokens)")
            if lengths[0] > 0:
                by_length.set_xscale("log")
            by_length.set_xticks(lengths, lengths)
            by_length.minorticks_off()
            by_eps.set(title=plain(source), xlabel=r"threshold $\epsilon$")
        headline(figure, [], f"Sink$_1$ against length and threshold. {plain(path)}")
        yield "threshold-" + runlog.named(path), figure


def lines(ax, points, text):
    """One line for each first of (line, x, y)."""
    for i, name in enumerate(sorted({p[0] for p in points})):
        ax.plot(*zip(*sorted((x, y) for n, x, y in points if n == name)), **look(i),
                label=text.format(name))
    ax.set(ylabel="Sink$_1$ (%)")
    percents(ax)
    ax.legend(loc="best", ncols=2)


def sight(paths, options):
    """The heads of a probe as a grid, beside the map of the strongest head of a --dump directory."""
    if len(paths) != 2:
        die(f"sight: got {len(paths)} inputs, wanted PROBE.json DIR", "scripts/plot.py --help")
    run, = runlog.read_runs(paths[:1])
    alpha = runlog.at_step(run, None)["alpha1"]
    l, h = max(heads_in(paths[1]), key=lambda head: alpha[head[0]][head[1]])
    figure, (grid, one) = panels(2, 4.4, 4.4, layout="compressed")
    image = heat(grid, alpha, vmin=0, vmax=1)
    grid.set(title="Every head: its attention to the first token")
    x = load_map(f"{paths[1]}/{l}_{h}_map.npy")[:, 1:]
    edges = (0.5, len(x) + 0.5, len(x) + 0.5, 0.5)
    one.imshow(np.where(np.tri(len(x)), x, np.nan), vmin=0, vmax=1, extent=edges)
    one.set(title=f"The strongest: layer {l}, head {h}", xlabel="key (token)", ylabel="query (token)")
    one.grid(False)
    figure.colorbar(image, ax=one, shrink=0.9)
    headline(figure, [run], "Most heads attend to the first token")
    yield stem("sight", [run]), figure


def everything(paths, options):
    """dynamics, heads, norms and profiles of each run, and anatomy of a probe that has it."""
    for path in paths:
        of_probe = [heads, norms, profiles]
        if path.endswith(".json") and runlog.read_probe(path)[0]["evals"][0].get("anatomy"):
            of_probe.append(anatomy)
        for draw in of_probe if path.endswith(".json") else (dynamics, *of_probe):
            yield from draw([path], options)


FIGURES = {
    "dynamics":  (dynamics,   "RUN ...",        "loss, Sink_1 and Sink_* over steps (Figures 4, 28)"),
    "onset":     (onset,      "RUN ...",
                  "what moves before Sink_1: alpha_1, the norm of h, max/median"),
    "heads":     (heads,      "RUN ...",
                  "attention to the first token by layer and head (Figures 19 to 24)"),
    "film":      (film,       "RUN ...",
                  "alpha_1 of every head over training: a strip, and a film (.gif)"),
    "norms":     (norms,      "RUN ...",
                  "norms of h, k, v by layer, and ratios (Figures 7, 8, 11 to 14, 29)"),
    "profiles":  (profiles,   "RUN ...",
                  "Sink_k by position k: prefixes, windows (Figures 5, 6)"),
    "maps":      (maps,       "DIR ...",
                  "attention and QK geometry, from probe --dump DIR (Figures 2, 15 to 18)"),
    "sight":     (sight,      "PROBE.json DIR", "all heads as a grid, and the map of the strongest"),
    "anatomy":   (anatomy,    "PROBE.json ...",
                  "where the massive activation comes from, from probe --anatomy --json"),
    "threshold": (threshold,  "PROBE.json ...",
                  "Sink_1 against length and threshold, from probe --json (Figure 3)"),
    "table":     (table,      "RESULTS.json ...",
                  "a table of scripts/reproduce, ours against the paper's"),
    "positions": (positions,  "EVAL.json ...",
                  "loss by position, from eval --json: what changes where"),
    "all":       (everything, "RUN ...",        "dynamics, heads, norms, profiles, anatomy"),
}
# the options that not all of them read
READ_BY = {
    "step":   ("heads", "norms", "profiles", "all"),
    "head":   ("maps",),
    "logx":   ("dynamics", "onset", "all"),
    "labels": ("dynamics", "onset", "norms", "positions", "table"),
}


def usage():
    rows = "".join(f"  plot.py {name + ' ' + what:24} {text}\n"
                   for name, (_, what, text) in FIGURES.items())
    return f"""\
usage: scripts/plot.py FIGURE INPUT.. [options]

A RUN is a directory with log.jsonl; for heads, norms and profiles also what train_sink probe
--json wrote, so any model that can be probed can be drawn.
{rows}
options:
  -o DIR      where the .png and .svg go [figures/ beside the first input: runs/figures]
  --step N    the evaluation that heads, norms and profiles show [the last]
  --head L:H,..  maps: these heads in detail [all if they are few]
  --logx      dynamics, onset: a logarithmic axis of steps
  --title T   what the figures say [what they show]; "" leaves the title out
  --labels A,B,..  dynamics, onset, norms, positions: what legends call the runs, seeds of one
              run once [names, switches and flags]; table: what its rows are called
"""


def heads_of(text):
    """0:1,2:3 -> {(0, 1), (2, 3)}"""
    if not re.fullmatch(r"[0-9]{1,6}:[0-9]{1,6}(,[0-9]{1,6}:[0-9]{1,6})*", text):
        die(f"--head: got {runlog.shown(text)}, wanted LAYER:HEAD,..", "--head 0:0,0:1")
    return {tuple(map(int, pair.split(":"))) for pair in text.split(",")}


def reject_unread(options):
    """Ends the program at an option that the figure would not read."""
    for name, figures in READ_BY.items():
        value = getattr(options, name)
        given = value is not None and value is not False
        if given and options.figure not in figures:
            die(f"--{name}: got {options.figure}, wanted one of {' '.join(figures)}",
                "scripts/plot.py --help")


def labels_of(options):
    """Returns the names of --labels, or None without it."""
    if options.labels is None: return None
    names = options.labels.split(",")
    if not all(name.strip("_ ") for name in names):
        die(f"--labels: got {runlog.shown(options.labels)}, wanted a name in every part",
            "--labels FIRST,SECOND")
    return names


def main(words):
    if not words or words[0] in ("-h", "--help"):
        sys.exit(print(usage(), end=""))
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = lambda text: die(f"options: {text}", "scripts/plot.py --help")
    parser.add_argument("figure")
    parser.add_argument("inputs", nargs="*")
    parser.add_argument("-o", "--out")
    parser.add_argument("--step", type=int)
    parser.add_argument("--head", type=heads_of)
    parser.add_argument("--logx", action="store_true")
    parser.add_argument("--title")
    parser.add_argument("--labels")
    options = parser.parse_intermixed_args(words)
    drawing.finding = options.title
    if options.figure not in FIGURES:
        die(f"figure: got '{options.figure}', wanted one of {' '.join(FIGURES)}",
            "scripts/plot.py --help")
    reject_unread(options)
    drawing.names = labels_of(options)
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
    runs = [path for path in options.inputs if os.path.isdir(path)]
    if options.figure == "all" and len(runs) > 1:
        print("---> HINT: each is drawn alone; to compare: scripts/plot.py dynamics " + shlex.join(runs))


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
