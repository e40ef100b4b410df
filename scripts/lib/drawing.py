"""How every figure looks, and what the figures share: colors, panels, titles, legends, files.

Start with STYLE and `look`. The figures themselves are in scripts/plot.py, plot_maps.py,
plot_positions.py and plot_table.py.
"""
import itertools
import re
import shlex
import sys
import textwrap

import runlog
from runlog import die, number

try:
    import numpy as np
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator, PercentFormatter
except ImportError as e:
    if not {"-h", "--help"} & set(sys.argv[1:]):
        die(f"{e.name}: not installed, wanted numpy and matplotlib",
            "python3 -m pip install numpy matplotlib; where pip refuses, apt-get install "
            "python3-matplotlib, or a virtual environment (docs/start.md)")
    np = matplotlib = plt = MaxNLocator = PercentFormatter = None       # --help draws nothing

# The looks of everything that is drawn are here. Okabe and Ito's colors, which color-blind
# readers tell apart, without the yellow that white paper swallows
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = "osD^vPX"
DASHES = ["-", "--", ":"]
OURS, PAPER, SEED = COLORS[0], "#BBBBBB", "#000000"
MOST_FLAGS = 3                       # of a run in a legend
MOST_LINES = 4                       # of kinds of run in one panel of ratios
MOST_PANELS = 6                      # of kinds of run that each get a panel of their own
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
        i = kinds(runs).index(runlog.group(runs[i]))
        seeds = len(seeds_of(runs)[i])
    return {"color": COLORS[i % 7], "marker": MARKERS[i % 7],
            "linestyle": DASHES[i // 7 % 3],
            "linewidth": 1.6 if seeds == 1 else 1.0, "markersize": 4 if seeds == 1 else 3}


def kinds(runs):
    """The names of the runs without their seeds, each once."""
    return list(dict.fromkeys(map(runlog.group, runs)))


def loss_and_sinks(runs):
    """Returns a figure with an axis for losses and, for each kind of run, one for its sinks: lines
    of equal numbers would hide each other. Beyond MOST_PANELS kinds all share one axis."""
    rows = len(kinds(runs)) if len(kinds(runs)) <= MOST_PANELS else 1
    figure, axes = plt.subplot_mosaic([["loss", f"sink {i}"] for i in range(rows)],
                                      figsize=(9.4, max(3.5, 1.2 + 0.95 * rows)))
    return figure, axes["loss"], [axes[f"sink {i}"] for i in range(rows)]


def sink_axis(sinks, i, runs):
    """Returns where the sinks of the i-th run are drawn."""
    return sinks[kinds(runs).index(runlog.group(runs[i]))] if len(sinks) > 1 else sinks[0]


def seeds_of(runs):
    """Returns the runs by kind: the places of its seeds in the list."""
    return [[i for i, run in enumerate(runs) if runlog.group(run) == name] for name in kinds(runs)]


def middle_and_range(ax, x, lines, style, text):
    """Draws the median of several seeds with the range of all as a band; of one, its line."""
    lines = np.array(lines, float)
    if len(lines) > 1:
        ax.fill_between(x, lines.min(0), lines.max(0), color=style["color"], alpha=0.18, lw=0)
        style = {**style, "linewidth": 1.6, "markersize": 4}
    ax.plot(x, np.median(lines, axis=0), **style, label=text)


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


finding = None           # --title: what the figures say instead of what they show; "" for no title
names = None             # --labels: what a legend calls the kinds of run, in their order


def headline(figure, runs, what, step=None):
    """Title of a figure, as wide as it is: the finding, if one is given, or what it shows; of one
    run also its name, switches and step."""
    if finding == "": return
    letters = int(11.5 * figure.get_figwidth())              # that a title has room for
    lines = textwrap.wrap(what if finding is None else plain(finding), letters)
    if len(runs) == 1 and finding is None:
        about = f"{runs[0]['name']}: {runlog.switches(runs[0])}" + step_of(runs[0], step)
        lines += textwrap.wrap(plain(about), letters)
    figure.suptitle("\n".join(lines), fontsize=10.5, x=0.01, ha="left")


def step_of(run, step):
    """Returns the step that a figure shows; of a probe, or without one, nothing."""
    return "" if step is None or run["status"] == "probed" else f", step {step:,}"


def plain_log(ax):
    """A logarithmic axis with numbers rather than powers of ten, and more of them when
    few decades are shown."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = [1, 2, 5] if high / low < 200 else [1]
    ax.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=subs))
    ax.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda y, _: f"{y:g}"))
    ax.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def label(run, runs, step=None):
    """Legend entry: name, switches, and the flags in which these runs differ."""
    seeds = [r for r in runs if runlog.group(r) == runlog.group(run)]
    if run is not seeds[0]:
        return None
    if names is not None:
        return called(kinds(runs))[kinds(runs).index(runlog.group(run))]
    flags = runlog.flags_at(run)
    differ = [f"{key} {flags[key]}" for key in runlog.differing_flags(runs)
              if flags.get(key) not in (None, "") and (key != "seed" or len(seeds) == 1)]
    if len(differ) > MOST_FLAGS: differ = []         # the names tell such runs apart
    words = [runlog.switches(run)] + differ
    name = run["name"] if len(seeds) == 1 else f"{runlog.group(run)} ({len(seeds)} seeds)"
    text = f"{name}: {', '.join(words)}" + step_of(run, step)
    return "\n".join(textwrap.wrap(plain(text), 110))


def called(found):
    """Returns what --labels calls these kinds of run; without it, their own names."""
    if names is not None and len(names) != len(found):
        die(f"--labels: got {len(names)}, wanted {len(found)}, for {', '.join(found)}",
            "--labels FIRST,SECOND")
    return [plain(name) for name in names or found]


def legend_below(figure, ax, columns=3):
    handles, labels = ax.get_legend_handles_labels()
    fit = max(1, int(15 * figure.get_figwidth() / (max(map(len, labels), default=1) + 8)))
    if len(labels) == columns + 1: columns += 1      # none alone in a second row
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


def thinned(n, most):
    """Numbers below n in equal steps, at most so many."""
    return range(0, n, -(-n // most))


def percents(ax):
    """An axis of shares from 0 to 100 %."""
    ax.set_ylim(-3, 103)
    ax.yaxis.set_major_formatter(PercentFormatter())


def whole(ax, n):
    """An axis of n whole numbers, thinned to a dozen."""
    ax.set_xticks(thinned(n, 12))
    ax.set_xlim(-0.3, n - 0.7)


def alike(evals):
    """Returns the evaluations in stretches, each with one T and one threshold."""
    how = lambda e: (e["sink"]["T"], e["sink"]["eps"])
    return [(key, list(stretch)) for key, stretch in itertools.groupby(evals, how)]


def thresholds(runs):
    """Returns the label of an axis of sinks, with their threshold if they have one in common."""
    found = {e["sink"]["eps"] for r in runs for e in r["evals"]}
    if len(found) == 1: return f"Sink at $\\epsilon$ = {found.pop():g}"
    return "Sink, at different $\\epsilon$"


def series(evals, get):
    return [e["step"] for e in evals], [number(get(e)) for e in evals]


def trained(paths):
    """Runs that have steps: a probe has none."""
    runs = runlog.read_runs(paths)
    for run in runs:
        if run["status"] == "probed":
            die(f"{run['path']}: got a probe, wanted a run",
                f"scripts/plot.py heads {shlex.quote(run['path'])}")
    return runs


def edge(ax, x, text, color):
    ax.axvline(x, color=color, lw=1, ls=":")
    ax.annotate(text, (x, 1), xycoords=("data", "axes fraction"), va="top",
                color=color, fontsize=8.5)
