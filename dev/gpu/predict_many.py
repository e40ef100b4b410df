#!/usr/bin/env python3
"""predict_many.py -- how long a training step should take on 8 and 64 GPUs, which
nobody has tried yet.

    python3 dev/gpu/predict_many.py            prints the table
    python3 dev/gpu/predict_many.py --write    also puts it into dev/many.md, between its markers

Bytes are counted from the program; speeds are assumed, all in the next lines.
A step is the computation, shared out evenly; what the sum of the gradients takes longer than
the backward pass beside which it runs; and the gathering of the weights, beside which nothing runs.
"""
import sys

from predict import write_page

# ---- the assumptions -----------------------------------------------------------------------------
TFLOPS = 432.0               # of one H100 SXM in a step of the 60M preset: measured, docs/gpu.md.
                             # 1B: the same (450 at a batch of 4)
NVLINK = 350.0               # GB/s in and out of each GPU inside a node: 450 by the data sheet,
                             # NCCL's rings reach some 0.78
NETWORK = 320.0              # GB/s between nodes of eight: eight cards of 400 Gb/s, 50 GB/s each,
                             # of which rings reach 0.8
SLOW = 10.0                  # GB/s between nodes with one card of 100 Gb/s
HOP_US = {"node": 2.0, "network": 8.0}                   # a bucket's way from one rank to the next
SYNC_US = 200.0              # the exchange of loss and norm over TCP, and the host's waits,
                             # once a step
BACKWARD = 2.0 / 3.0         # of a micro-batch's computation
MICRO = 32768                # tokens of a micro-batch, at most
BUCKET = 1 << 22             # numbers: DIST_BUCKET of dist/shard.h, times ranks / 8
# name: L, C, F, V, tokens per step
PRESETS = {"60M": (10, 768, 1536, 50432, 131072), "1B": (22, 2048, 5632, 50432, 1048576)}
T = 2048
# --------------------------------------------------------------------------------------------------


def sizes(preset):
    """parameters, flops of a step"""
    L, C, F, V, tokens = PRESETS[preset]
    matrices = L * (4 * C * C + 3 * C * F)
    flops = 6.0 * tokens * (matrices + V * C) + 3 * 2 * 2 * T * T / 2 * C * L * (tokens / T)
    return matrices + 2 * V * C + (2 * L + 1) * C, flops


def bytes_sent(parameters, ranks):
    """that a rank sends, and receives, in a step: gradients as floats, weights as bf16"""
    share = (ranks - 1) / ranks
    return 4 * parameters * share, 2 * parameters * share


def step(preset, ranks, between):
    """milliseconds: computation, sum of gradients, gathering of weights, the whole step"""
    parameters, flops = sizes(preset)
    tokens = PRESETS[preset][4]
    compute = flops / ranks / TFLOPS / 1e9
    if ranks == 1:
        return compute, 0.0, 0.0, compute
    nodes = (ranks + 7) // 8
    speed = NVLINK if nodes == 1 else min(NVLINK, between)
    hops = (ranks - nodes) * HOP_US["node"] + (nodes if nodes > 1 else 0) * HOP_US["network"]
    buckets = -(-parameters // (BUCKET * max(1, ranks // 8)))
    reduce, gather = (b / speed / 1e6 + buckets * hops / 1e3 for b in bytes_sent(parameters, ranks))
    micro = max(1.0, tokens / ranks / MICRO)  # micro-batches of a rank; the last one hides the sum
    hidden = compute / micro * BACKWARD
    exposed = max(reduce - hidden, reduce / buckets)
    return compute, reduce, gather, compute + exposed + gather + SYNC_US / 1e3


def table():
    lines = ["| preset, tokens per step | H100s | between nodes | sent by each rank | computing | "
             "sum of gradients | weights | "
             "step | efficiency |", "|---|---|---|---|---|---|---|---|---|"]
    for preset, values in PRESETS.items():
        one = step(preset, 1, 0)[3]
        for ranks, between in ((1, 0), (8, 0), (64, NETWORK), (64, SLOW)):
            parameters, _ = sizes(preset)
            sent = sum(bytes_sent(parameters, ranks)) / 1e9
            compute, reduce, gather, whole = step(preset, ranks, between)
            lines.append("| %s, %s | %d | %s | %.2f GB | %.1f ms | %.1f ms | %.1f ms | **%.1f ms** "
                         "| %.0f%% |" % (
                preset, format(values[4], ","), ranks, "%.0f GB/s" % between if between else "-",
                sent, compute, reduce, gather, whole, 100 * one / ranks / whole))
    return lines


def main():
    lines = table()
    print("\n".join(lines))
    if "--write" in sys.argv:
        write_page("dev/many.md", "dev/gpu/predict_many.py", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
