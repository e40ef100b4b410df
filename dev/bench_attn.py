#!/usr/bin/env python3
"""bench_attn.py -- a training step of every ATTN beside softmax's, in turn.

Every turn of a variant stands between two of softmax, and its ratio is to their mean. The figures
are medians of the rounds; a turn in which the host took more than --steal of the time away
(/proc/stat) is left out. The programs are those of build/: those missing are made first.

    python3 dev/bench_attn.py                             # fp32, d 256 L 4 T 256 B 16
    python3 dev/bench_attn.py --precision bf16 --rounds 5 --only mlp,softmax_p
"""
import argparse
import json
import os
import statistics
import subprocess
import time

NAMES = ("sigmoid sigmoid_norm elu1 elu1_norm kernel_elu kernel_elu_norm identity identity_norm "
         "mlp mlp_norm softmax_p sigmoid_p softpick softcap").split()
SHAPE = "--layers 4 --width 256 --heads 4 --ffn-width 768 --vocab 257 --seq 256 --batch 16".split()


def program(name, precision):
    """The path of a variant's program, made if it is not there."""
    words = [f"ATTN={name}"] * (name != "softmax") + [f"PRECISION={precision}"] * (
        precision != "fp32")
    subprocess.run(["make", "-s", "BACKEND=cpu", *words, "binary"], check=True)
    return f"build/cpu{''.join('-' + w for w in words)}/train_sink"


def stolen():
    """Seconds that the host has taken from all processors so far."""
    with open("/proc/stat") as f:
        return int(f.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def turn(binary, steps):
    """Milliseconds of a step, and the share of the time that was stolen."""
    start, before = time.time(), stolen()
    out = subprocess.run([binary, "bench", *SHAPE, "-n", str(steps)], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    ms = json.loads(out.strip().splitlines()[-1])["ms"]
    return ms, (stolen() - before) / (time.time() - start)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=3, help="of one turn")
    p.add_argument("--only", default=",".join(NAMES))
    p.add_argument("--steal", type=float, default=.03)
    a = p.parse_args()
    names = a.only.split(",")
    softmax, *others = [program(n, a.precision) for n in ["softmax"] + names]
    ratios = {n: [] for n in names}
    for _ in range(a.rounds):
        for name, binary in zip(names, others):
            turns = [turn(b, a.steps) for b in (softmax, binary, softmax)]
            if max(t[1] for t in turns) <= a.steal:
                ratios[name].append(turns[1][0] / statistics.mean([turns[0][0], turns[2][0]]))
    print(f"{a.precision}, step of each ATTN / softmax's: median, least, most, turns kept")
    for name, r in ratios.items():
        figures = f"{statistics.median(r):.2f} {min(r):.2f} {max(r):.2f}" if r else "none"
        print(f"{name:16} {figures} {len(r)}/{a.rounds}")


if __name__ == "__main__":
    main()
