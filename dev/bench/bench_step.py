#!/usr/bin/env python3
"""bench_step.py -- a training step of `train_sink bench` beside PyTorch's,
in turn, for `make bench`.

PyTorch runs eager and by torch.compile, in float32 and under bf16 autocast
(dev/bench/bench_torch.py); a peer that does not start is left out, and says why.
--ours names programs, one for each precision. Every round asks each of them once; the figures are
medians of the rounds, ratios are taken within a round. A table, and all of it as JSON in --json.
On a virtual machine the host may take the processors away in the middle of a turn (/proc/stat
calls it "steal"): a round in which that was more than --steal of a turn is measured again,
and the table says how many there were.

    python3 dev/bench/bench_step.py --ours fp32=build/cpu/train_sink \\
                              --ours bf16=build/cpu-PRECISION=bf16/train_sink
    python3 dev/bench/bench_step.py --preset 60M --batch 4 --ours .. --peers compile-bf16 --rounds 3
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = {
    "small": dict(layers=4, width=256, heads=4, ffn_width=768, vocab=257, seq=256, batch=16),
    "60M": dict(layers=10, width=768, heads=8, ffn_width=1536, vocab=50432, seq=512, batch=4),
}
PEERS = ("eager-fp32", "compile-fp32", "eager-bf16", "compile-bf16")


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--preset", choices=SHAPES, default="small")
    p.add_argument("--batch", type=int)
    p.add_argument("--ours", action="append", default=[], metavar="NAME=PROGRAM")
    p.add_argument("--peers", default=",".join(PEERS))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=3, help="of one turn")
    p.add_argument("--steal", type=float, default=.03,
                   help="largest share of a turn that the host may take")
    p.add_argument("--json")
    return p.parse_args()


def stolen():
    """Processor seconds that the host has taken from this virtual machine so far;
    0 where nobody counts them."""
    try:
        with open("/proc/stat") as f:
            return int(f.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def turn(one):
    """What `one` measured, and the share of the processors' time that was stolen meanwhile."""
    begin, before = time.monotonic(), stolen()
    result = one.measure()
    return result, (stolen() - before) / (time.monotonic() - begin) / os.cpu_count()


def all_rounds(everyone, wanted, steal):
    """`wanted` rounds that the host left alone, and how many it did not;
    after twice as many of these it gives up."""
    rounds, disturbed = [], 0
    while len(rounds) < wanted:
        turns = {name: turn(one) for name, one in everyone.items()}
        if max(share for _, share in turns.values()) <= steal:
            rounds.append({name: result for name, (result, _) in turns.items()})
            continue
        disturbed += 1
        if disturbed > 2 * wanted:
            sys.exit(f"the host took more than {steal:.0%} of a turn in {disturbed} rounds, "
                     f"{len(rounds)} were quiet: try again "
                     "when it is idle, or allow more with --steal")
    return rounds, disturbed


def shape_flags(shape):
    return [w for key, value in shape.items() for w in ("--" + key.replace("_", "-"), str(value))]


class Torch:
    """PyTorch in a process of its own, which measures when it is asked."""

    def __init__(self, peer, shape, steps):
        how, precision = peer.split("-")
        words = [sys.executable, os.path.join(HERE, "bench_torch.py"), "--path", "sdpa", "--serve", "--warmup", "2",
                 "--precision", "autocast" if precision == "bf16" else precision, "--steps", str(steps),
                 *shape_flags(shape), *["--no-compile"] * (how == "eager")]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.ready = self.process.stdout.readline().strip() == "ready"
        if not self.ready:
            lines = self.process.communicate()[1].strip().splitlines()
            print(f"  {peer}: left out: {lines[-1] if lines else 'it ended without a word'}")

    def measure(self):
        print(file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


class Ours:
    def __init__(self, program, shape, steps):
        self.words = [program, "bench", "-n", str(steps), *shape_flags(shape)]

    def measure(self):
        out = subprocess.run(self.words, check=True, capture_output=True, text=True).stdout
        return json.loads(out.strip().splitlines()[-1])


def main():
    a = parse()
    shape = dict(SHAPES[a.preset])
    shape["batch"] = a.batch or shape["batch"]
    ours = {"train_sink " + name: Ours(program, shape, a.steps)
            for name, program in (w.split("=", 1) for w in a.ours)}
    peers = {name: Torch(name, shape, a.steps) for name in a.peers.split(",") if name}
    everyone = {**ours, **{name: peer for name, peer in peers.items() if peer.ready}}
    rounds, disturbed = all_rounds(everyone, a.rounds, a.steal)
    speed = {name: [r[name]["tokens_per_s"] for r in rounds] for name in everyone}
    print(f"L {shape['layers']} C {shape['width']} T {shape['seq']} B {shape['batch']} V "
          f"{shape['vocab']}: tokens/s, median of "
          f"{a.rounds} rounds (worst, best)" + "".join(f"; x {name}" for name in ours)
          + (f"; {disturbed} more were disturbed by the host" if disturbed else ""))
    rows = []
    for name in everyone:
        ratio = {mine: round(statistics.median(m / t for m, t in zip(speed[mine], speed[name])), 3)
                 for mine in ours}
        rows.append(dict(name=name, tokens_per_s=statistics.median(speed[name]),
                         worst=min(speed[name]),
                         best=max(speed[name]), ratio=ratio, rounds=speed[name]))
        print(f"  {name:16} {rows[-1]['tokens_per_s']:9.0f} ({min(speed[name]):.0f}, "
              f"{max(speed[name]):.0f})"
              + "".join(f" {r:8.2f}" for r in ratio.values()), flush=True)
    if a.json:
        torch = next((rounds[0][name]["torch"] for name in everyone if name not in ours), None)
        with open(a.json, "w") as f:
            json.dump(dict(shape, peer_version=torch, disturbed=disturbed, rows=rows), f)
            f.write("\n")


if __name__ == "__main__":
    main()
