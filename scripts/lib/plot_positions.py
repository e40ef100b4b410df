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
    """Draws the loss by eighths of the sequence of eval --json, and beside the first kind's."""
    runs = [read(path) for path in paths]
    lengths = sorted({run["T"] for run in runs})
    if len(lengths) > 1:
        die(f"positions: got sequences of {lengths} tokens, wanted one length",
            "./train_sink eval --help")
    names = dict(zip(kinds(runs), called(kinds(runs))))
    first = runlog.group(runs[0])
    below = np.mean([run["loss"] for run in runs if runlog.group(run) == first], axis=0)
    middles = (np.arange(8) + 0.5) * lengths[0] / 8
    figure, (loss, beside) = panels(2, 4.7, 3.5)
    loss.set(title="Loss, mean of each eighth of the sequence", xlabel="position",
             ylabel="loss (nats per token)")
    beside.set(title=f"Beside the mean of: {names[first]}", xlabel="position",
               ylabel="difference (nats per token)")
    for i, run in enumerate(runs):
        style = {**look(i, runs), "label": names.pop(runlog.group(run), None)}
        loss.plot(middles, run["loss"], **style)
        beside.plot(middles, run["loss"] - below, **style)
    headline(figure, [], "Loss by position")
    legend_below(figure, loss)
    yield "positions", figure


def read(path):
    """Returns the loss by position of the unchanged model. It is called as its file is, or as its
    directory if that is loss.json."""
    o = runlog.read_json(path, SPEC, HINT)
    runlog.check(path, o, SPEC)
    unchanged = [r["by_position"] for r in o["runs"] if r["kind"] == "plain"]
    if not unchanged or len(unchanged[0]) != 8 or None in unchanged[0]:
        die(f"{path}: got no plain run with a by_position of 8 numbers, wanted one", HINT)
    name = os.path.splitext(os.path.basename(path))[0]
    if name == "loss": name = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return {"name": name, "T": o["T"], "loss": np.array(unchanged[0], float)}
