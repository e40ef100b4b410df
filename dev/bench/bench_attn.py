#!/usr/bin/env python3
"""bench_attn.py -- a training step of every ATTN beside softmax's, in turn.

Every turn of a variant is between two of softmax, and its ratio is to their mean. The figures
are medians of the rounds; a turn in which the host took more than --steal of the time away
(/proc/stat) is left out. The programs are those of build/: those missing are made first.

    python3 dev/bench/bench_attn.py                             # fp32, d 256 L 4 T 256 B 16
    python3 dev/bench/bench_attn.py --precision bf16 --rounds 5 --only mlp,softmax_p
"""
import argparse
import statistics
import subprocess

import bench_step

NAMES = ("sigmoid sigmoid_norm elu1 elu1_norm kernel_elu kernel_elu_norm identity identity_norm "
         "mlp mlp_norm softmax_p sigmoid_p softpick softcap softmax_clip relu").split()


def program(name, precision):
    """The path of a variant's program, made if it is not there."""
    words = [f"ATTN={name}"] * (name != "softmax") + [f"PRECISION={precision}"] * (
        precision != "fp32")
    subprocess.run(["make", "-s", "BACKEND=cpu", *words, "binary"], check=True)
    return f"build/cpu{''.join('-' + w for w in words)}/train_sink"


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
    shape = bench_step.SHAPES["small"]
    softmax, *others = [bench_step.Ours(program(n, a.precision), shape, a.steps)
                        for n in ["softmax"] + names]
    ratios = {n: [] for n in names}
    for _ in range(a.rounds):
        for name, other in zip(names, others):
            turns = [bench_step.turn(one) for one in (softmax, other, softmax)]
            before, here, after = (result["ms"] for result, _ in turns)
            if max(share for _, share in turns) <= a.steal:
                ratios[name].append(here / statistics.mean([before, after]))
    print(f"{a.precision}, step of each ATTN / softmax's: median, least, most, turns kept")
    for name, r in ratios.items():
        figures = f"{statistics.median(r):.2f} {min(r):.2f} {max(r):.2f}" if r else "none"
        print(f"{name:16} {figures} {len(r)}/{a.rounds}")


if __name__ == "__main__":
    main()
