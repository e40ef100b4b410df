"""Attention maps of `train_sink probe --dump DIR`, for report.py. Standard library only.

A directory holds LAYER_HEAD_map.npy and LAYER_HEAD_cosine.npy, float32, (T, T + 1): rows are
queries, column 0 the extra key. On the page a head is a square of bytes, 0 to 254 from the smallest
to the largest value, and 255 where the query does not see the key. tokens.json has the tokens' text.
"""
import array
import ast
import base64
import json
import os
import re
import sys

import runlog
from runlog import die

SIDE = 96                # cells of a map on the page: a longer one is shrunk
KINDS = {"map": (0, 1), "cosine": (-1, 1)}
AGAIN = "write it again: ./train_sink probe RUN --dump DIR --dump-heads all"


def heads_in(path):
    names = os.listdir(path) if os.path.isdir(path) else []
    found = [re.fullmatch(r"([0-9]{1,6})_([0-9]{1,6})_map\.npy", n) for n in names]
    return sorted((int(m[1]), int(m[2])) for m in found if m)


def read_npy(path):
    """(T, numbers row by row) of a float32 array of shape (T, T + 1)."""
    try:
        with open(path, "rb") as f:
            begin = f.read(10)
            if begin[:6] != b"\x93NUMPY" or begin[6] != 1:
                raise ValueError("no .npy of version 1")
            about = ast.literal_eval(f.read(begin[8] + 256 * begin[9]).decode("latin1"))
            numbers = array.array("f")
            numbers.frombytes(f.read())
        shape = about["shape"]
        fits = (about["descr"] == "<f4" and not about["fortran_order"] and len(shape) == 2
                and shape[1] == shape[0] + 1 and shape[0] > 0)
        if not fits or len(numbers) != shape[0] * shape[1]:
            raise ValueError(f"{about['descr']} of shape {shape}")
    except (OSError, ValueError, KeyError, SyntaxError, TypeError) as e:
        die(f"{path}: got {e}, wanted an array of --dump, float32 of shape (T, T + 1)", AGAIN)
    if sys.byteorder == "big": numbers.byteswap()
    return shape[0], numbers


def bytes_of(T, numbers, extra, low, high):
    """The square of bytes: the largest value of each block of cells that are seen."""
    step, first = -(-T // SIDE), 0 if extra else 1
    rows, columns = -(-T // step), -(-(T + 1 - first) // step)
    out = bytearray(b"\xff" * (rows * columns))
    best = [low - 1.0] * (rows * columns)
    for t in range(T):
        for j in range(first, t + 2):                        # the extra key, and tokens 1 to t + 1
            x, at = numbers[t * (T + 1) + j], t // step * columns + (j - first) // step
            if x > best[at]:
                best[at] = x
                out[at] = round(254 * min(1, max(0, (x - low) / (high - low))))
    return rows, columns, base64.b64encode(bytes(out)).decode()


def dump_data(path):
    """A directory as the page has it."""
    heads, T, extra, shape = [], None, False, None
    found = heads_in(path)
    for l, h in found:                                       # one key for all heads, or for none
        size, numbers = read_npy(f"{path}/{l}_{h}_map.npy")
        T = T or size
        if size != T: die(f"{path}: got maps of {T} and {size} tokens, wanted one length", AGAIN)
        extra = extra or any(numbers[::T + 1])
    for l, h in found:
        squares = {}
        for kind, (low, high) in KINDS.items():
            file = f"{path}/{l}_{h}_{kind}.npy"
            if kind != "map" and not os.path.exists(file): continue
            size, numbers = read_npy(file)
            if size != T: die(f"{file}: got {size} tokens, wanted {T}", AGAIN)
            *shape, squares[kind] = bytes_of(T, numbers, extra, low, high)
            if kind == "map": alpha = sum(numbers[1::T + 1]) / T
        heads.append([l, h, alpha, squares])
    texts = f"{path}/tokens.json"
    tokens = json.loads(runlog.read_text(texts, AGAIN)) if os.path.exists(texts) else []
    return {"name": runlog.last_name(path), "path": path, "T": T, "extra": extra,
            "rows": shape[0], "columns": shape[1], "heads": heads, "tokens": tokens}
