"""The figure of losses by position: what a change costs or gains at the first tokens and later.

Start with `positions`, which scripts/plot.py calls.
"""
import os

import runlog
from drawing import called, headline, kinds, legend_below, look, np, panels
from runlog import die

SPEC = {"T!": "count", "runs!": [{"kind!": "text", "by_position!": "numbers"}]}
HINT = "write one: ./train_sink eval RUN/step_N --json FILE"


def positions(paths, options):
    """Draws the loss by eighths of the sequence of eval --json, and how far each kind is from the
    first: in the first eighth, where a first token counts most, and in the others."""
    runs = [read(path) for path in paths]
    lengths = sorted({run["T"] for run in runs})
    if len(lengths) > 1:
        die(f"positions: got sequences of {lengths} tokens, wanted one length",
            "./train_sink eval --help")
    names = dict(zip(kinds(runs), called(kinds(runs))))
    first = runlog.group(runs[0])
    below = np.mean([run["loss"] for run in runs if runlog.group(run) == first], axis=0)
    edges = np.arange(9) * lengths[0] / 8
    figure, axes = panels(3, 3.6, 3.4)
    about = f"less the mean of: {names[first]}"
    axes[0].set(title="Loss", ylabel="loss (nats per token)")
    axes[1].set(title=f"First eighth,\n{about}", ylabel="difference (nats per token)")
    axes[2].set(title=f"The other eighths,\n{about}")
    shown_in = [edges, edges[:2], edges[1:]]
    for ax, shown in zip(axes, shown_in):
        ax.set(xlabel="position in the sequence", xlim=(shown[0], shown[-1]))
        ax.set_xticks(shown, [f"{x:g}" for x in shown])
    for i, run in enumerate(runs):
        style = {**look(i, runs), "marker": None, "label": names.pop(runlog.group(run), None)}
        apart = run["loss"] - below
        for ax, shown, values in zip(axes, shown_in, (run["loss"], apart[:1], apart[1:])):
            ax.plot(np.repeat(shown, 2)[1:-1], np.repeat(values, 2), **style)
    axes[1].set_ylim(*wider(axes[1].get_ylim()))
    headline(figure, [], "Loss by position, mean of each eighth of the sequence")
    legend_below(figure, axes[0])
    yield "positions", figure


def wider(limits):
    """Returns limits that have 0 in them, with a little room."""
    low, high = min(0, *limits), max(0, *limits)
    room = 0.05 * (high - low) or 0.01
    return low - room, high + room


def read(path):
    """Returns the loss by position of the unchanged model. It is called as its file is, or as its
    directory if that is loss.json."""
    o = runlog.read_json(path, SPEC, HINT)
    runlog.check(path, o, SPEC)
    unchanged = [r["by_position"] for r in o["runs"] if r["kind"] == "plain"]
    if not unchanged or len(unchanged[0]) != 8 or None in unchanged[0]:
        die(f"{path}: got no plain run with a by_position of 8 numbers, wanted one", HINT)
    name = runlog.named(path)
    if name == "loss": name = runlog.last_name(os.path.dirname(path))
    return {"name": name, "T": o["T"], "loss": np.array(unchanged[0], float)}
