#!/usr/bin/env python3
"""predict.py -- how long a training step of the 60M preset should take on a GPU. The assumptions below
were made before any GPU had run it and are unchanged; MEASURED has what one took since.

    python3 dev/gpu/predict.py            prints the tables
    python3 dev/gpu/predict.py --write    also puts them into docs/gpu.md, between its markers
    python3 dev/gpu/predict.py --json     an object for each card, to lay beside a real run
    python3 dev/gpu/predict.py --hopper   the step of an H100 by the kernels for Hopper, of each ATTN

What is counted, not assumed: the instructions of the attention kernels (dev/gpu/budgets.tsv, from
the machine code) and what the other kernels ask of the memory (dev/gpu/counts.tsv, from the emulator).
Everything that is assumed is in the next lines. A kernel takes as long as its tightest bound:
issue (one instruction a cycle and scheduler), tensor cores, shared memory (128 bytes per cycle
and SM, stores too), special functions (16 results a cycle and SM) or DRAM.
"""
import csv
import json
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# ---- the assumptions -----------------------------------------------------------------------------
# name: architecture whose machine code is counted, SMs, GHz under load, cycles of a scheduler's
# tensor core for one mma.m16n8k16 (2048 multiply-adds), bf16 TFLOP/s that cuBLAS reaches in large
# products, GB/s of DRAM. SMs, clocks, dense bf16 rates and DRAM: the makers' data sheets.
# H100 and H200: mma.sync reaches 0.62 of the rate that wgmma has, so 4 / 0.62 cycles. cuBLAS:
# 0.8 of the data sheet on A100, 0.61 on H100 and H200, 0.9 on the 4090. batch: sequences of a
# micro-batch, as many as --total-batch alone takes: what fits, up to 65,536 tokens.
CARDS = {
    "A100 80GB SXM": dict(arch="sm_80", sms=108, ghz=1.41, mma=8.0, gemm=250, dram=2039, batch=32),
    "H100 SXM":      dict(arch="sm_90", sms=132, ghz=1.75, mma=6.45, gemm=600, dram=3352, batch=32),
    "H200 SXM":      dict(arch="sm_90", sms=132, ghz=1.75, mma=6.45, gemm=600, dram=4800, batch=32),
    "RTX 4090":      dict(arch="sm_80", sms=128, ghz=2.52, mma=32.0, gemm=148, dram=1008, batch=16,
                          tensor=0.78),
}
# of all but DRAM: eight warps an SM hide latency badly. FlashAttention-2 reaches 35%
# of the data sheet on an H100 (Shah et al. 2024, FlashAttention-3), which is 0.57 of what
# mma.sync allows
ATTENTION_OF_BOUND = 0.50    # where an mma takes 32 cycles a warp hides its own softmax: `tensor`
NOT_HIDDEN = 0.3             # dq, dk ask as much of shared memory as of DRAM: of the shorter of the
                             # two this part is not hidden behind the longer
DRAM_OF_PEAK = 0.85          # of the data sheet, in kernels that stream
EMPTY_BLOCK_NS = 0.6         # a block that starts and finds nothing to do
LAUNCH_US = 3.0              # between two kernels, where the stream is never empty
# the 60M preset, 131,072 tokens per step (the micro-batch changes launches only)
L, C, NH, HS, F, V, T, TOKENS = 10, 768, 8, 96, 1536, 50432, 2048, 131072
CHUNK_HEADS = 64             # whose ds exists at once, as ds_chunk in cuda/attention.cuh cuts the
                             # heads of a micro-batch; ds is not in L2 when it is first read
DS_AGAIN = 0.74              # of ds, what the second of dq and dk has to read from memory again:
                             # an LRU simulation of the blocks in step, T 2048,
                             # with half of an H100's L2 (all of it: 0.39; A100 0.41, 4090 0.14)
HEAD_ROWS = 8192             # rows whose logits exist at once
MEASURED = {"H100 SXM": 206}   # milliseconds of this step, where a GPU has run it: dev/log/gpu.md
# Kernels for Hopper (wgmma), which no GPU has run. A tile of 64 x 64 scores takes the clocks of its
# products or those of shared memory (128 bytes a clock: a 64 x 64 x 16 product with both sides there
# reads 4 KB in 32 clocks), whichever are more, at best nothing of the fewer, at worst NOT_HIDDEN; and a
# share of the rest, which is the tighter of issue and special functions. 0.9 is what
# FlashAttention-3's published forward rates come to, with warps of two roles; 1.3 is without
NOT_OVERLAPPED = (0.9, 1.3)
BLOCKS_BUSY = 0.86           # of the time: two blocks an SM hide each other's ends (0.82 to 0.90)
DQ_TBS = (2.85, 2.4)         # that dq reads ds at: the first is what our streaming kernels reached
PARTS = {"forward": 13.8, "dv": 26.1, "dq, dk": 22.1, "rows": 2.9, "rope": 2.9}  # of MEASURED
# TFLOP/s of others on an H100 SXM at HS 128, T 2048, causal: forward, backward (tritonbench, pull
# request 1267)
PUBLISHED = {"FlashAttention-3": (560, 316), "TLX": (567, 346)}
ROWS_MS, ROPE_MS = 1.4, 1.5  # 16 bytes a lane; k alone: q is turned in the forward kernel
# --------------------------------------------------------------------------------------------------

# how often a kernel of dev/gpu/counts.tsv, where one layer was run, runs in a step of L layers,
# and what its work grows with
LAYER, ONCE = L, 1
# one row of the table together
SMALL = ("sort_", "loss_", "column_sum", "square_norm_sum", "cast_", "embed_backward_join")
GROWTH = {
    "norm_forward_kernel": ((2 * L + 1) / 3, "tokens"),
    "norm_backward_kernel": ((2 * L + 1) / 3, "tokens"),
    "column_sum_kernel": ((2 * L + 1) / 3, "tokens"),
    "rope_kernel": (LAYER, "tokens"), "attention_rows_kernel": (LAYER, "tokens"),
    "ffn_forward_kernel": (LAYER, "tokens"), "ffn_backward_kernel": (LAYER, "tokens"),
    "add_kernel": (LAYER, "tokens"),
    "embed_forward_kernel": (ONCE, "tokens"), "embed_backward_kernel": (ONCE, "tokens"),
    "embed_backward_join_kernel": (ONCE, "tokens"),
    "sort_chunk_kernel": (ONCE, "tokens"), "sort_stage_kernel": (ONCE, "tokens"),
    "loss_add_kernel": (ONCE, "tokens"), "classifier_kernel": (ONCE, "logits"),
    "square_norm_kernel": (ONCE, "parameters"), "square_norm_sum_kernel": (ONCE, "parameters"),
    "update_kernel": (ONCE, "parameters"), "cast_kernel": (ONCE, "parameters"),
}


def rows(path):
    lines = [line for line in open(os.path.join(ROOT, path)) if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t"))


def parameters():
    return L * (C * 3 * C + C * C + 3 * C * F + 2 * C) + C + 2 * V * C


def micro_batches(card):
    return TOKENS / (card["batch"] * T)


def product_launches(card):
    """forward, for the input, for the weight: of four weights a layer, and of the head by pieces"""
    return 3 * (4 * L * micro_batches(card) + TOKENS / HEAD_ROWS)


def products():
    """multiply-adds of the matrix products of a step, forward and backward, times 2"""
    return 6.0 * TOKENS * (L * (4 * C * C + 3 * C * F) + V * C)


# main loops in dev/gpu/budgets.tsv; products of (T, HS) by (HS, T), half of it masked, in each;
# tensors of (TOKENS, C) read and written; pairs of a query and a key whose ds is stored or read: of
# the tiles on the diagonal all is stored, and read what is not all masked among 16 by 16
ATTENTION = {"forward": (["forward"], 2, 4, 0),
             "dv": (["dv"], 3, 5, T * (T + 128) / 2),
             "dq, dk": (["dq", "dk"], 1, 4, (1 + DS_AGAIN) * T * (T + 16) / 2)}


def cycles(card, attn, loop, budgets):
    """{bound: cycles of one scheduler for one HMMA of a main loop}"""
    row = ("any" if loop in ("dq", "dk") else attn, loop, str(HS), card["arch"])
    b = next(r for r in budgets if (r["attn"], r["kernel"], r["HS"], r["arch"]) == row)
    hmma = float(b["hmma"])
    return {
        "tensor": card["mma"],
        "issue": float(b["per_hmma"]),
        # ldmatrix and cp.async 512 bytes each, of loads and stores 128 are one;
        # 128 a cycle, four schedulers
        "shared": (16 * (float(b["ldsm"]) + float(b["ldgsts"]))
                   + 4 * (float(b["ldg"]) + float(b["stg"]))) / hmma,
        "mufu": 8 * float(b["mufu"]) / hmma,
    }


def attention(card, attn, kernel, budgets):
    """(seconds, which bound) of one attention kernel, all layers"""
    loops, products, tensors, ds = ATTENTION[kernel]
    # + 128: the tiles on the diagonal are computed whole
    pairs = T * (T + 128) / 2 * (TOKENS / T) * NH * L
    mmas = products * pairs * HS / 2048
    each = [cycles(card, attn, loop, budgets) for loop in loops]
    seconds = {x: mmas * sum(c[x] for c in each) / (card["sms"] * 4 * card["ghz"] * 1e9)
               / (card.get(x) or ATTENTION_OF_BOUND) for x in each[0]}
    moved = (tensors * C * T + ds * NH) * 2 * (TOKENS / T) * L / 1e9
    seconds["DRAM"] = moved / card["dram"] / DRAM_OF_PEAK
    bound = max(seconds, key=seconds.get)
    both = NOT_HIDDEN * min(seconds["shared"], seconds["DRAM"]) if kernel == "dq, dk" else 0
    chunks = 1 if kernel == "forward" else -(-card["batch"] * NH // CHUNK_HEADS)
    launches = L * micro_batches(card) * chunks
    return seconds[bound] + both + launches * LAUNCH_US * 1e-6, bound


def elementwise(card, counts):
    """{kernel: seconds} of what is not a matrix product: DRAM traffic as counted,
    scaled to the step; seconds of empty blocks"""
    out, empty = {}, 0
    for r in counts:
        name = r["kernel"]
        if "_mma_" in name:                           # attention(), by its instructions
            continue
        if name not in GROWTH:
            sys.exit("error: dev/gpu/predict.py: got a kernel %s in dev/gpu/counts.tsv, "
                     "wanted a row of it in GROWTH" % name)
        times, by = GROWTH[name]
        scale = times * {"tokens": TOKENS / float(r["tokens"]),
                         "logits": TOKENS * V / float(r["tokens"]) / float(r["vocab"]),
                         "parameters": parameters() / float(r["parameters"])}[by]
        launches = times * float(r["launches"]) * (1 if by == "parameters" else micro_batches(card))
        moved = (float(r["missed"]) + float(r["evicted"])) * scale / 1e9
        out[name] = moved / card["dram"] / DRAM_OF_PEAK + launches * LAUNCH_US * 1e-6
        empty += float(r["empty"]) * scale * EMPTY_BLOCK_NS * 1e-9
    return out, empty


def predict(card, budgets, counts, attn="softmax"):
    """[(part, milliseconds, bound)]"""
    parts = [("matrix products", products() / card["gemm"] / 1e9
              + product_launches(card) * LAUNCH_US * 1e-3, "tensor")]
    for kernel in ATTENTION:
        seconds, bound = attention(card, attn, kernel, budgets)
        parts.append(("attention " + kernel, seconds * 1e3, bound))
    each, empty = elementwise(card, counts)
    large = [name for name in each if not name.startswith(SMALL)]
    for name in large:
        parts.append((name.replace("_kernel", "").replace("_", " "), each[name] * 1e3, "DRAM"))
    parts.append(("sorts, sums and the like",
                  sum(s for name, s in each.items() if name not in large) * 1e3, "DRAM"))
    zeroed = 4 * parameters() / 1e9                   # the gradients
    parts.append(("zeroing", zeroed / card["dram"] / DRAM_OF_PEAK * 1e3, "DRAM"))
    parts.append(("empty blocks", empty * 1e3, "launch"))
    return parts


def tables(budgets, counts):
    found = {name: predict(card, budgets, counts) for name, card in CARDS.items()}
    flops = products() + 3 * 2 * 2 * T * T / 2 * HS * NH * L * (TOKENS / T)
    lines = ["| milliseconds | " + " | ".join(CARDS) + " |", "|---|" + "---|" * len(CARDS)]

    def add(name, cells):
        lines.append("| %s | %s |" % (name, " | ".join(cells)))
    for i, (part, _, _) in enumerate(next(iter(found.values()))):
        add(part, ["%.1f%s" % (p[i][1], " (%s)" % p[i][2] if part.startswith("attention ")
                               and part.split()[1] != "rows" else "")
                   for p in found.values()])
    total = {name: sum(ms for _, ms, _ in p) for name, p in found.items()}
    add("**a step of %s tokens**" % format(TOKENS, ","), ["**%.0f**" % t for t in total.values()])
    add("thousand tokens per second", ["%.0f" % (TOKENS / t) for t in total.values()])
    add("TFLOP/s", ["%.0f" % (flops / t / 1e9) for t in total.values()])
    add("measured", ["**%d**" % MEASURED[name] if name in MEASURED else "-" for name in CARDS])
    return lines, found, total


def write_page(page, script, lines):
    """puts the lines into a page, between the script's markers"""
    path = os.path.join(ROOT, page)
    begin, end = f"<!-- {script} writes from here -->\n", "<!-- to here -->"
    head, rest = open(path).read().split(begin)
    open(path, "w").write(head + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1])


def hopper_shared(HS, products, side, groups):
    """clocks of shared memory for 64 x 64 scores: of half of the products both sides are read, of the
    others one; and what arrives is written, for all warpgroups of a block once"""
    half = products // 2
    both = half * HS // 16 * 64 * 16 * 2 * (64 / side + 1)
    one = half * 64 * HS * 2
    arrives = 2 * 64 * HS * 2 / groups
    return (both + one + arrives) / 128


def hopper_kernel(attn, kernel, HS, products, budgets):
    """(least, most) milliseconds of forward or of dk and dv, all layers"""
    card = CARDS["H100 SXM"]
    b = next(r for r in budgets if (r["attn"], r["kernel"], r["HS"]) == (attn, kernel, str(HS)))
    # of a main loop's products, those that begin with the tile count its queries or keys by 16
    columns = products // 2
    side = 16 * (int(b["hmma"]) - columns * HS // 16) // columns
    rest = max(int(b["instructions"]), 8 * int(b["mufu"])) * 64 / side
    tensor = products * 4096 * HS / 2048
    shared = hopper_shared(HS, products, side, 3 if kernel == "hopper_forward" and HS > 96 else 2)
    tiles = T * (T + 128) / 2 * (TOKENS / T) * (C // HS) * L / 4096 / card["sms"]
    return [tiles * (max(tensor, shared) + hidden * min(tensor, shared) + share * rest)
            / (card["ghz"] * 1e6) / BLOCKS_BUSY
            for share, hidden in zip(NOT_OVERLAPPED, (0, NOT_HIDDEN))]


def hopper_step(attn, HS, budgets):
    """[(part, least, most)], the step last"""
    ds = T * (T + 128) / 2 * 2 * (C // HS) * (TOKENS / T) * L / 1e9
    parts = [("forward", *hopper_kernel(attn, "hopper_forward", HS, 2, budgets)),
             ("dk, dv", *hopper_kernel(attn, "hopper_dkv", HS, 4, budgets)),
             ("dq", *(ds / rate for rate in DQ_TBS)),
             ("rows", ROWS_MS, ROWS_MS), ("rope", ROPE_MS, ROPE_MS)]
    rest = MEASURED["H100 SXM"] - sum(PARTS.values())
    return parts + [("step", *(rest + sum(p[i] for p in parts) for i in (1, 2)))]


def hopper(budgets):
    attns = sorted({r["attn"] for r in budgets if r["kernel"] == "hopper_forward"})
    found = {attn: hopper_step(attn, HS, budgets) for attn in attns}
    print("| ms, an H100 | " + " | ".join(part for part, _, _ in found[attns[0]]) + " |")
    print("|---" * (1 + len(found[attns[0]])) + "|")
    for attn in attns:
        print("| %s | " % attn + " | ".join("%.1f to %.1f" % (low, high) if low < high else
                                            "%.1f" % low for _, low, high in found[attn]) + " |")
    # softmax where others have been measured, at HS 128: as they count, half of T x T, backward 2.5 times
    flops = 4 * T * T / 2 * C * (TOKENS / T) * L / 1e9
    forward, dkv, dq, rows = hopper_step("softmax", 128, budgets)[:4]
    back = [dkv[i] + dq[i] + rows[i] for i in (2, 1)]
    print("\n| TFLOP/s, HS 128, T 2048, causal | forward | backward |\n|---|---|---|")
    print("| predicted | %.0f to %.0f | %.0f to %.0f |"
          % (flops / forward[2], flops / forward[1], *(2.5 * flops / ms for ms in back)))
    for name, rates in PUBLISHED.items():
        print("| %s, published | %d | %d |" % (name, *rates))


def main():
    budgets, counts = rows("dev/gpu/budgets.tsv"), rows("dev/gpu/counts.tsv")
    lines, found, total = tables(budgets, counts)
    if "--hopper" in sys.argv:
        hopper(budgets)
        return 0
    if "--json" in sys.argv:
        for name in CARDS:
            print(json.dumps({"card": name, "step_ms": round(total[name], 1),
                              "tokens_per_s": round(TOKENS / total[name] * 1e3),
                              "parts": {part: round(ms, 2) for part, ms, _ in found[name]}}))
        return 0
    print("\n".join(lines))
    if "--write" in sys.argv:
        write_page("docs/gpu.md", "dev/gpu/predict.py", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
