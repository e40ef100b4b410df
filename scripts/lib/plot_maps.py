"""The figures of a --dump directory: the attention of every head, or single heads in detail.

Start with `maps`, which scripts/plot.py calls.
"""
import shlex
import sys
import time

import dumps
from drawing import headline, np, panels, plain, thinned
from runlog import die, last_name, say as print


def maps(paths, options):
    """The heads of a --dump directory: up to DETAILED of them, or those of --head,
    each with attention, cosines and norm products (Figures 2 bottom, 15 to 18);
    of more than that the attention of all, in one picture."""
    reject_missing_heads(paths, options.head)
    for path in paths:
        name, found = f"maps-{last_name(path)}", heads_in(path)
        few = [] if len(found) > DETAILED else found
        chosen = [h for h in found if h in options.head] if options.head else few
        for l, h in chosen:
            yield f"{name}-{l}_{h}", map_of_head(path, f"{l}_{h}")
        if not chosen:
            l, h = found[0]
            print(f"{path}: {len(found)} heads, so one picture of all their attention; of single heads, "
                  f"with cosines and norms: scripts/plot.py maps {shlex.quote(path)} --head {l}:{h}",
                  flush=True)
            yield name, all_maps(path, found)


DETAILED = 4             # more heads than this are drawn together
PIXELS = 2400            # and about as wide as this


def reject_missing_heads(paths, asked):
    """Ends the program at a head of --head that no directory has."""
    found = sorted({head for path in paths for head in heads_in(path)})
    for l, h in sorted(asked or ()):
        if (l, h) not in found:
            die(f"--head {l}:{h}: got no such map in {' '.join(paths)}, wanted one of "
                + " ".join(f"{l}:{h}" for l, h in found), "scripts/plot.py --help")


def heads_in(path):
    """(layer, head) of every map in a directory, in order."""
    found = dumps.heads_in(path)
    if not found:
        die(f"{path}: got no LAYER_HEAD_map.npy, wanted a --dump directory",
            "write one: ./train_sink probe RUN/step_N --dump DIR --dump-heads all")
    return found


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
    inch = min(1.3, 11 / max(len(rows), len(columns)))
    figure, (ax,) = panels(1, max(4.5, 1.2 + inch * len(columns)), 1.4 + inch * len(rows),
                           layout="compressed")
    image = ax.imshow(picture, vmin=0, vmax=1, interpolation="antialiased")
    ax.set(xlabel="head", ylabel="layer")
    for axis, names in ((ax.xaxis, columns), (ax.yaxis, rows)):
        every = thinned(len(names), 24)
        axis.set_ticks([(i + 0.5) * (side + 2) - 1.5 for i in every], [names[i] for i in every])
    ax.grid(False)
    figure.colorbar(image, ax=ax, shrink=0.8, aspect=25)
    headline(figure, [],
             f"Attention of every head: queries downwards, keys to the right. {plain(path)}")
    return figure


def shrink(x, size):
    """A map at most `size` wide: the largest weight of each square, so that no sink is lost.
    Unseen keys are blank."""
    step = -(-x.shape[1] // size)
    x = np.pad(blank(x, x), [(0, -n % step) for n in x.shape], constant_values=np.nan)
    return np.fmax.reduce(np.fmax.reduce(x.reshape(x.shape[0] // step, step, -1, step), axis=3),
                          axis=1)


def load_map(path):
    T, numbers = dumps.read_npy(path)
    return np.array(numbers).reshape(T, T + 1)


def blank(x, A):
    """A map without the keys that its queries do not see; A: the map of attention."""
    return np.where(np.tri(*x.shape, 1, dtype=bool) | (A != 0), x, np.nan)


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
    figure, axes = panels(3, 3.9, 4.1, layout="compressed")
    for x, (kind, name, colors), ax in zip(arrays, kinds, axes):
        x = blank(x, arrays[0])[:, 0 if extra else 1:]
        limits = {"vmin": -1, "vmax": 1} if kind == "cosine" else {"vmin": 0}
        image = ax.imshow(x, cmap=colors,
                          extent=(-0.5 if extra else 0.5, T + 0.5, T + 0.5, 0.5), **limits)
        ax.grid(False)
        ax.set(title=name, xlabel="key position j" + (" (0: extra key)" if extra else ""),
               ylabel="query position t")
        figure.colorbar(image, ax=ax, shrink=0.8, aspect=20)
    headline(figure, [], f"Layer {layer}, head {h}: where the queries look, and why. "
             f"{plain(last_name(path))}")
    return figure
