"""The figure of losses by position: what a change costs or gains at the first tokens and later.

Start with `positions`, which scripts/plot.py calls.
"""
import os

import runlog
from drawing import called, headline, legend_below, look, np, panels
from runlog import die

SPEC = {"T!": "count", "runs!": [{"kind!": "text", "by_position!": "numbers"}]}
HINT = "write one: ./train_sink eval RUN/step_N --json FILE"


def positions(paths, options):
    """Draws the loss by eighths of the sequence of eval --json, and beside the first kind's."""
    kinds = {}
    for path in paths:
        kinds.setdefault(kind_of(path), []).append(read(path))
    lengths = {T for seeds in kinds.values() for T, _ in seeds}
    if len(lengths) > 1:
        die(f"positions: got sequences of {sorted(lengths)} tokens, wanted one length",
            "./train_sink eval --help")
    T = lengths.pop()
    middles = (np.arange(8) + 0.5) * T / 8
    figure, (loss, beside) = panels(2, 4.7, 3.5)
    first = np.mean([x for _, x in next(iter(kinds.values()))], axis=0)
    names = called(list(kinds))
    for i, (name, seeds) in enumerate(zip(names, kinds.values())):
        for n, (_, x) in enumerate(seeds):
            style = {**look(i), "label": name if n == 0 else None}
            if len(seeds) > 1: style.update(linewidth=1.0, markersize=3)
            loss.plot(middles, x, **style)
            beside.plot(middles, x - first, **style)
    loss.set(title="Loss, mean of each eighth of the sequence", xlabel="position",
             ylabel="loss (nats per token)")
    beside.set(title=f"Beside the mean of: {names[0]}", xlabel="position",
               ylabel="difference (nats per token)")
    headline(figure, [], "Loss by position")
    legend_below(figure, loss)
    yield "positions", figure


def kind_of(path):
    """Returns the name of a file, or of its directory if it is loss.json, without the seed."""
    name = os.path.splitext(os.path.basename(path))[0]
    if name == "loss": name = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return runlog.without_seed(name)


def read(path):
    """Returns T and the loss by position of the unchanged model."""
    o = runlog.read_json(path, SPEC, HINT)
    runlog.check(path, o, SPEC)
    unchanged = [r["by_position"] for r in o["runs"] if r["kind"] == "plain"]
    if not unchanged or len(unchanged[0]) != 8 or None in unchanged[0]:
        die(f"{path}: got no plain run with a by_position of 8 numbers, wanted one", HINT)
    return o["T"], np.array(unchanged[0], float)
