#!/usr/bin/env python3
"""bench_torch_cpu.py -- training speed of this project's model in PyTorch on the CPU,
the peer of `make bench`.

The model is DESIGN section 4, written as a PyTorch user would: token embedding, L blocks of RMSNorm
(eps 1e-5), q k v with half-split RoPE (base 10000), causal F.scaled_dot_product_attention,
output projection, RMSNorm, SwiGLU; a last RMSNorm and an untied head; no biases;
float32, or bf16 by autocast; eager, or by torch.compile. A step is forward,
backward, clip_grad_norm_(1.0) and the fused torch.optim.AdamW. Prints one JSON line:
the median, best and worst tokens/s of --steps steps after two warm-up steps,
the tokens per second of processor time (with --threads 1 hardly disturbed by other programs),
the load of the machine before, and FLOPs per token by the formula below, to compare at equal work.
With --serve it prints `ready` after the warm-up, and such a line for each line that it reads:
for programs that measure in turn.

    python3 dev/bench/bench_torch_cpu.py                                            # d 256, L 4, T 256
    python3 dev/bench/bench_torch_cpu.py --precision bf16 --compile             # what a user would pick
    python3 dev/bench/bench_torch_cpu.py --preset 60M --batch 4                     # the 60M model
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import time

PRESETS = {
    "small": dict(width=256, layers=4, heads=4, ffn_width=768, vocab=257, seq=256, batch=16),
    "60M": dict(width=768, layers=10, heads=8, ffn_width=1536, vocab=50432, seq=512, batch=1),
}


def flops_per_token(a):
    """Multiply-adds count 2, forward 1 and backward 2 times: 6 x the weights of the matrix products
    (4 d^2 of attention, 3 d F of SwiGLU, per layer; d V of the head; the embedding is a look-up)
    and 6 x (T+1)/2 keys x 2 d for QK^T and PV."""
    d = a.width
    weights = a.layers * (4 * d * d + 3 * d * a.ffn_width) + d * a.vocab
    return 6 * weights + 6 * a.layers * d * (a.seq + 1)


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--preset", choices=PRESETS, default="small")
    for name in ("width", "layers", "heads", "ffn-width", "vocab", "seq", "batch"):
        p.add_argument("--" + name, type=int)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast")
    p.add_argument("--compile", action="store_true", help="by torch.compile")
    p.add_argument("--serve", action="store_true",
                   help="measure once for each line of standard input")
    a = p.parse_args()
    for key, value in PRESETS[a.preset].items():
        if getattr(a, key) is None:
            setattr(a, key, value)
    if a.width % a.heads:
        p.error(f"--heads: got {a.heads}, wanted a divisor of --width {a.width}")
    return a


def main():
    a = parse()
    load = os.getloadavg()[0]
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)

    class RMSNorm(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x):
            if hasattr(F, "rms_norm"):  # PyTorch 2.4 and later
                return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

    def rope(x, cos, sin):  # x (B, NH, T, HS), cos and sin (T, HS/2)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def attention(q, k, v):
        if hasattr(F, "scaled_dot_product_attention"):  # PyTorch 2.0 and later
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        T = q.shape[2]
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        s = (q @ k.transpose(2, 3)) / q.shape[3] ** 0.5
        return s.masked_fill(future, float("-inf")).softmax(-1) @ v

    class Block(nn.Module):
        def __init__(self, d, heads, ffn):
            super().__init__()
            self.heads = heads
            self.ln1, self.ln2 = RMSNorm(d), RMSNorm(d)
            self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
            self.gate_up = nn.Linear(d, 2 * ffn, bias=False)
            self.down = nn.Linear(ffn, d, bias=False)

        def forward(self, x, cos, sin):
            B, T, C = x.shape
            qkv = self.qkv(self.ln1(x)).view(B, T, 3, self.heads, C // self.heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            o = attention(rope(q, cos, sin), rope(k, cos, sin), v)
            x = x + self.proj(o.transpose(1, 2).reshape(B, T, C))
            gate, up = self.gate_up(self.ln2(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(a.vocab, a.width)
            self.blocks = nn.ModuleList(Block(a.width, a.heads, a.ffn_width)
                                        for _ in range(a.layers))
            self.lnf, self.head = RMSNorm(a.width), nn.Linear(a.width, a.vocab, bias=False)
            half = a.width // a.heads // 2
            angle = torch.arange(a.seq)[:, None] * 10000.0 ** (-torch.arange(half) / half)
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())

        def forward(self, tokens, targets):
            x = self.wte(tokens)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return F.cross_entropy(self.head(self.lnf(x)).flatten(0, 1), targets.flatten())

    model = Model()
    forward = torch.compile(model, dynamic=False) if a.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1, fused=True)

    def precision():
        return torch.autocast("cpu",
                              torch.bfloat16) if a.precision == "bf16" else contextlib.nullcontext()

    def step():
        """One training step; its loss, and seconds by the clock on the wall
        and of the processor."""
        window = torch.randint(a.vocab, (a.batch, a.seq + 1))
        start, start_cpu = time.perf_counter(), time.process_time()
        with precision():
            loss = forward(window[:, :-1], window[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item(), time.perf_counter() - start, time.process_time() - start_cpu

    def measure():
        losses, wall, processor = zip(*[step() for _ in range(a.steps)])
        rate = sorted(a.batch * a.seq / t for t in wall)
        median = statistics.median(rate)
        print(json.dumps({
            "peer": ("torch.compile " if a.compile else "eager ") + a.precision,
            "torch": torch.__version__,
            "threads": a.threads, "load_before": load, "width": a.width, "layers": a.layers,
            "heads": a.heads,
            "ffn_width": a.ffn_width, "vocab": a.vocab, "seq": a.seq, "batch": a.batch,
            "params": sum(p.numel() for p in model.parameters()),
            "flops_per_token": flops_per_token(a),
            "tokens_per_s": round(median, 1), "tokens_per_s_best": round(rate[-1], 1),
            "tokens_per_s_worst": round(rate[0], 1),
            "tokens_per_cpu_s": round(a.batch * a.seq / statistics.median(processor), 1),
            "gflops": round(median * flops_per_token(a) * 1e-9, 1), "loss": round(losses[-1], 4)}),
              flush=True)

    for _ in range(2):
        step()
    if not a.serve:
        measure()
        return
    print("ready", flush=True)
    for _ in sys.stdin:
        measure()


if __name__ == "__main__":
    main()
