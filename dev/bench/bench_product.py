#!/usr/bin/env python3
"""bench_product.py -- the CPU's matrix product against oneDNN's (what PyTorch's linear calls),
in turn, in one run.

For every shape and precision: forward out = inp W^T, backward to the input and to the weight;
the median of --times calls of each, GFLOP/s and their ratio. PyTorch writes into memory
that is there already, as this project does. On a busy machine --threads 1 --processor-time
is hardly disturbed by what else runs.

    python3 dev/bench/bench_product.py                          # a table, and build/bench_product.json
    python3 dev/bench/bench_product.py --threads 1 --times 9
"""
import argparse
import json
import os
import statistics
import subprocess
import time

SHAPES = [(4096, 768, 2304), (4096, 256, 768), (2048, 768, 50432)]      # N, C, OC
LAYOUTS = ("forward", "input", "weight")
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}                        # PyTorch's names


def build():
    os.makedirs("build", exist_ok=True)
    subprocess.run(["g++", "-std=c++17", "-O3", "-march=native", "-fopenmp",
                    "dev/bench/bench_product.cpp", "cpu/product.cpp", "cpu/kernels.cpp",
                    "-o", "build/bench_product"], check=True)


def ours(program, clock, *words):
    print(*words, file=program.stdin, flush=True)
    return float(program.stdout.readline().split()[clock])


def theirs(torch, clock, dtype, layout, N, C, OC):
    """Seconds of one product, after one that warms up."""
    inp, weight, out = (torch.full(s, .5, dtype=dtype) for s in ((N, C), (OC, C), (N, OC)))
    call = {"forward": lambda: torch.mm(inp, weight.t(), out=out),
            "input": lambda: torch.mm(out, weight, out=inp),
            "weight": lambda: torch.mm(out.t(), inp, out=weight)}[layout]
    call()
    now = (time.perf_counter, time.process_time)[clock]
    start = now()
    call()
    return now() - start


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--times", type=int, default=5)
    p.add_argument("--processor-time", action="store_true")
    p.add_argument("--precision", choices=DTYPES, nargs="+", default=DTYPES,
                   help="bf16 takes PyTorch minutes where the processor does not have it")
    a = p.parse_args()
    clock = int(a.processor_time)
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    build()
    import torch
    torch.set_num_threads(a.threads)
    torch.set_grad_enabled(False)
    program = subprocess.Popen(["build/bench_product"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    rows, names = [], program.stdout.readline().strip()
    print(f"{a.threads} threads; ours {names}; PyTorch {torch.__version__}; "
          f"load {os.getloadavg()[0]:.1f}; GFLOP/s")
    print(f"{'N':>5} {'C':>4} {'OC':>6} {'':7} {'':4} {'ours':>6} {'oneDNN':>6} {'ratio':>6}")
    for N, C, OC in SHAPES:
        for layout in LAYOUTS:
            for name in a.precision:
                pairs = [(ours(program, clock, name, layout, N, C, OC),
                          theirs(torch, clock, getattr(torch, DTYPES[name]), layout, N, C, OC))
                         for _ in range(a.times)]
                g = [2e-9 * N * C * OC / statistics.median(x) for x in zip(*pairs)]
                rows.append(dict(N=N, C=C, OC=OC, layout=layout, precision=name, ours=g[0],
                                 onednn=g[1], ratio=g[0] / g[1]))
                print(f"{N:5} {C:4} {OC:6} {layout:7} {name} {g[0]:6.0f} {g[1]:6.0f} "
                      f"{g[0] / g[1]:6.2f}", flush=True)
    with open("build/bench_product.json", "w") as f:
        about = dict(threads=a.threads, processor_time=a.processor_time, kernels=names,
                     torch=torch.__version__, load=os.getloadavg()[0])
        json.dump(dict(about, rows=rows), f, indent=1)


if __name__ == "__main__":
    main()
