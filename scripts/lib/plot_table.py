"""The figure of a table of scripts/reproduce: our numbers beside the paper's.

Start with `table`, which scripts/plot.py calls.
"""
import re

import drawing
import runlog
from drawing import MaxNLocator, OURS, PAPER, SEED, called, headline, legend_below, np, panels, plain
from runlog import die

BASELINE = {"color": OURS, "ls": ":", "lw": 1, "zorder": 0}


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
        yield "table-" + runlog.named(path), figure


def row_names(results):
    """The rows' names: those of --labels, or without the table's before each of them."""
    names, prefix = [r["id"] for r in results["rows"]], results["table"] + "-"
    if drawing.names: return called(names)
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
    if runlog.our_loss(rows[0]): ax.plot([], [], **BASELINE, label="loss of the first row")
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
                places = at + np.linspace(-0.11, 0.11, len(seeds))
                ax.plot(seeds, places, "o", ms=3.5, mfc=SEED, mec="white", mew=0.6, zorder=3,
                        clip_on=False)
    ax.grid(axis="y", visible=False)
    low, high = (min(seen, default=0), max(seen, default=1)) if loss else (0, 100)
    room = 0.08 * (high - low) or 0.01
    ax.set(xlim=(low - room, high + room) if loss else (0, 100), ylim=(len(rows) - 0.5, -0.5))
    if loss:
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.axvline(np.mean(ours(rows[0]) or np.nan), **BASELINE)


def decimals(x, loss):
    """A loss to a thousandth, a percentage to a tenth: a measurement of some hundred pairs of a
    head and a sequence has no more."""
    return f"{x:.3f}" if loss else f"{x:.1f}".removesuffix(".0")
