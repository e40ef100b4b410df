"""The figure of probe --anatomy: where the first token's massive activation comes from.

Start with `anatomy`, which scripts/plot.py calls.
"""
import os

import runlog
from drawing import headline, look, np, panels, plain, plain_log, whole
from runlog import die, number

# the title of each panel, its fields and what they are called
PANELS = [
    ("h of token 1, channel {}", [("state", "after the layer")]),
    ("Written into channel {} at token 1",
     [("wrote", "what the FFN wrote"), ("form", "the quadratic form x'Sx")]),
    ("First eigenvalue over the second",
     [("ratio", "this channel"), ("ratio_others", "other channels, median")]),
    ("|cosine| with the first eigenvector",
     [("aligned_first", "token 1"), ("aligned_rest", "the others")]),
    ("What attention reads:\ncosine between sequences",
     [("attn_same", "token 1"), ("attn_same_later", "the token in the middle")]),
    ("What attention reads:\nchannels that share it", [("attn_spread", "token 1")]),
]


def anatomy(paths, options):
    """Draws by layer: h of token 1 in the channel that grows most, what the FFN writes there, the
    spectrum of its form and how token 1 lies in it, and what attention then reads."""
    for path in paths:
        for run in runlog.read_probe(path):
            found = run["evals"][0].get("anatomy")
            if not found:
                die(f"{path}: got a probe without anatomy, wanted one with it",
                    "./train_sink probe MODEL -d TEXT --anatomy --json FILE")
            yield "anatomy-" + runlog.named(path), draw(found, path)


def draw(found, path):
    figure, axes = panels(6, 3.6, 3.2)
    for ax, (title, fields) in zip(axes, PANELS):
        curves(ax, found, fields, title.format(found["channel"]))
        low, high = ax.dataLim.intervaly                       # room for the legend above the curves
        if ax in axes[:2]:
            ax.set_yscale("symlog", linthresh=10)
            ax.set_ylim(min(3 * low, -10) if low < 0 else 0, 300 * max(high, 10))
        elif ax in axes[3:5]:
            ax.set_ylim(min(low, 0), 1.4)
        else:
            ax.set_ylim(low / 1.5, 8 * high)
            plain_log(ax)
    name = plain(os.path.basename(path))
    headline(figure, [], f"Anatomy of the first token's massive activation: {name}")
    return figure


def curves(ax, found, fields, title):
    """Draws fields by layer; a layer without one is a gap, the two steps are marked."""
    for i, (field, name) in enumerate(fields):
        values = [np.nan if v is None else number(v) for v in found[field]]
        ax.plot(values, **look(i), label=name)
    for layer in (found["step_up"], found["step_down"]):
        if layer is not None:
            ax.axvline(layer, color="#888888", lw=0.8, zorder=0)
    ax.set(title=title, xlabel="layer")
    whole(ax, len(found[fields[0][0]]))
    ax.legend(loc="upper left")
