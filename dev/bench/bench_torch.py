#!/usr/bin/env python3
"""bench_torch.py -- the same model in PyTorch, as fast as a PyTorch user gets it,
in turn with `./train_sink bench`.

The model is ours of the default switches (RMSNorm, half-split RoPE, SwiGLU, untied head,
no linear biases) with any --attn and --bias none, k, kv or v. The paths, each torch.compile'd,
AdamW fused, clipping at 1.0:

    cudnn   F.scaled_dot_product_attention, forced to cuDNN: on Hopper 1.7 to 2.3 times as fast as
            fa2 (huggingface/transformers, pull request 48163), and not PyTorch's default
    fa2     the same, forced to FlashAttention 2
    flex    FlexAttention: score_mod = ln f(score) gives sum f v / sum f,
            and exp(lse) undoes the division where there is none
    flash   the same with kernel_options BACKEND="FLASH" (FlashAttention's CuTe kernels), where
            torch and the package flash_attn have it
    eager   all T x T scores, every --attn; by default also compiled (--paths eager);
            uncompiled it is the reference

What they cannot: cudnn and fa2 know only softmax without an extra key. flex needs f > 0,
so identity and mlp, whose scores have either sign, cannot be written; softmax_p and sigmoid_p
divide by a second sum, another pass. A learned key (--bias k, kv) is added afterward from lse.
--precision bf16 is what train_sink does: bf16 weights and activations, fp32 masters and optimizer;
autocast is what many do instead. Gradients of the bf16 path are bf16, ours are fp32.

Every path runs in a process of its own with the same weights; its first loss and gradient norm must
equal those of the eager fp32 reference (bf16: 1% and 5%, fp32: 1e-4), or it is reported as wrong
and not compared. Nor is it compared if PyTorch ran another attention kernel than the path asks for:
one step more goes by the profiler, whose kernel names are printed ("kernels"). Time is the median of --steps steps between CUDA events after --warmup steps.
Peak memory is torch.cuda.max_memory_allocated. A JSON line for each, then a table.

    python3 dev/bench/bench_torch.py                             60M, T 2048, B 16, softmax:
                                                           cudnn, fa2, flex, eager
    python3 dev/bench/bench_torch.py --attn sigmoid --rounds 3   flex, eager
    python3 dev/bench/bench_torch.py --path sdpa --serve         on the CPU, for bench_step.py: `ready`, then
                                                           a line of JSON for each line that it reads
    python3 dev/bench/bench_torch.py --smoke                     tiny, float32, on the CPU,
                                                           not compiled: tests this file
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

PRESETS = {
    "60M": dict(width=768, layers=10, heads=8, ffn_width=1536, vocab=50432, seq=2048, batch=16),
    "1B": dict(width=2048, layers=22, heads=16, ffn_width=5632, vocab=50432, seq=2048, batch=4),
    "smoke": dict(width=32, layers=2, heads=2, ffn_width=48, vocab=97, seq=24, batch=2),
}
SHAPE = ("width", "layers", "heads", "ffn_width", "vocab", "seq", "batch")
ATTN = ("softmax sigmoid sigmoid_norm elu1 elu1_norm kernel_elu kernel_elu_norm identity "
        "identity_norm mlp mlp_norm "
        "softmax_p sigmoid_p").split()
# what the profiler calls the forward kernel of each path
KERNEL = {"cudnn": r"cudnn.*(sdpa|fmha|flash)", "fa2": r"^(?!.*cudnn).*flash_fwd",
          "flex": r"triton.*flex_attention|triton_tem", "flash": r"FlashAttentionForward|flash_attn.*cute"}
FLEX = "softmax sigmoid sigmoid_norm elu1 elu1_norm kernel_elu kernel_elu_norm".split()


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--preset", choices=PRESETS, default="60M")
    for name in SHAPE:
        p.add_argument("--" + name.replace("_", "-"), type=int)
    p.add_argument("--attn", choices=ATTN, default="softmax")
    p.add_argument("--bias", choices=["none", "k", "kv", "v"], default="none")
    p.add_argument("--attn-p", type=float, default=2.0, help="p of softmax_p and sigmoid_p")
    p.add_argument("--precision", choices=["bf16", "autocast", "fp32"], default="bf16")
    p.add_argument("--paths", help="some of cudnn,fa2,sdpa,flex,flash,eager (default: those that can)")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--rounds", type=int, default=2,
                   help="ours and each path in turn, so many times")
    p.add_argument("--ours", default="./train_sink",
                   help="the program to compare with (a build of the same ATTN and BIAS)")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--smoke", action="store_true")
    p.add_argument("--serve", action="store_true")
    p.add_argument("--path", help=argparse.SUPPRESS)                 # the child that runs one path
    a = p.parse_args()
    if a.smoke:
        a.preset, a.precision, a.no_compile = "smoke", "fp32", True
        a.steps, a.warmup, a.rounds = 2, 1, 1
    for key, value in PRESETS[a.preset].items():
        if getattr(a, key) is None:
            setattr(a, key, value)
    if a.width % a.heads:
        p.error(f"--heads: got {a.heads}, wanted a divisor of --width {a.width}")
    return a


def why_not(path, a):
    """None, or why this path cannot compute this attention."""
    column = a.bias in ("k", "kv")
    if path in ("cudnn", "fa2", "sdpa") and (a.attn != "softmax" or column):
        return "SDPA knows softmax alone, without an extra key"
    if path in ("flex", "flash") and a.attn not in FLEX:
        return ("score_mod needs a weight > 0, these scores have either sign"
                if "identity" in a.attn or "mlp" in a.attn
                else "it divides by the p-th root of another sum, which would be a second pass")
    if path in ("flex", "flash") and column and "kernel" in a.attn:
        return "phi of k* is not defined"
    return None


def attention_kernels(names):
    """those of a step's kernels that are attention, each once"""
    known = "|".join(KERNEL.values()) + "|flash|fmha|sdpa|attention"
    return sorted({name for name in names if re.search(known, name)})


def other_kernel(path, names):
    """None, or what ran in place of the kernel that a path asks for"""
    if path not in KERNEL or any(re.search(KERNEL[path], name) for name in names):
        return None
    return "asked for %s, PyTorch ran %s" % (path, ", ".join(attention_kernels(names)) or
                                             "no attention kernel of its own")


def flash_lacks():
    """None, or what is missing for BACKEND=FLASH"""
    from torch.nn.attention import flex_attention
    if "BACKEND" not in getattr(flex_attention, "FlexKernelOptions", dict).__dict__.get(
            "__annotations__", {}):
        return "this torch has no BACKEND in kernel_options"
    try:
        import flash_attn.cute  # noqa: F401
    except ImportError as e:
        return str(e)
    return None


def flops_per_token(a):  # as train_sink bench counts them
    d = a.width
    weights = a.layers * (4 * d * d + 3 * d * a.ffn_width) + d * a.vocab
    return 6 * weights + 3 * 4 * (a.seq / 2) * d * a.layers


def run_path(a):
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)
    cuda = torch.cuda.is_available() and not a.smoke and not a.serve
    if a.serve:
        torch.set_num_threads(os.cpu_count())
    device = "cuda" if cuda else "cpu"
    if a.path == "flash" and cuda and flash_lacks():
        print(json.dumps({"path": "flash", "error": "cannot: " + flash_lacks()}))
        return
    HS, scale = a.width // a.heads, (a.width // a.heads) ** -0.5
    flex = None
    if a.path in ("flex", "flash"):
        from torch.nn.attention.flex_attention import flex_attention, create_block_mask
        # FlexAttention has no backward on the CPU
        def flex_dense(q, k, v, score_mod, block_mask, scale, return_lse, **options):
            s = score_mod((q @ k.transpose(2, 3)).float() * scale, None, None, None, None)
            s = s.masked_fill(~torch.ones(a.seq, a.seq, dtype=torch.bool).tril(), -math.inf)
            return s.softmax(-1) @ v, torch.logsumexp(s, -1)
        options = dict(kernel_options={"BACKEND": "FLASH"}) if a.path == "flash" and cuda else {}
        if not cuda: flex = flex_dense
        elif a.no_compile: flex = flex_attention
        else: flex = torch.compile(flex_attention, dynamic=False)
        causal = create_block_mask(lambda b, h, q, k: q >= k, None, None, a.seq, a.seq,
                                   device=device)

    def log_f(s):  # ln of the weight of a score
        if a.attn == "softmax":
            return s
        if a.attn.startswith("sigmoid"):
            return F.logsigmoid(s)
        if a.attn.startswith("elu1"):
            return torch.where(s > 0, torch.log1p(s.clamp(min=0)), s)
        return torch.log(s.clamp(min=1e-30))                            # kernel_elu: s > 0 already

    def flex_path(q, k, v, star_s, v_star):
        o, lse = flex(q, k, v, score_mod=lambda s, b, h, i, j: log_f(s), block_mask=causal,
                      scale=scale, return_lse=True, **options)
        lse = lse[..., None].float()
        if star_s is not None:                                          # another key joins the sum
            star = log_f(star_s)
            share = torch.sigmoid(lse - star)
            o = o * share + (0 if v_star is None else (1 - share) * v_star)
            lse = torch.logaddexp(lse, star)
        return o if a.attn == "softmax" or a.attn.endswith("_norm") else o * lse.exp()

    def eager_path(q, k, v, star_s, v_star):
        s = (q @ k.transpose(2, 3)).float() * scale
        seen = torch.ones(a.seq, a.seq, dtype=torch.bool, device=s.device).tril()
        if star_s is not None:  # the extra key comes first, always seen
            s = torch.cat((star_s, s), -1)
            seen = F.pad(seen, (1, 0), value=True)
            v = torch.cat(((torch.zeros_like(v[:, :, :1]) if v_star is None
                            else v_star.expand_as(v[:, :, :1])), v), 2)
        if a.attn == "softmax":
            w = s.masked_fill(~seen, -math.inf).softmax(-1)
        elif a.attn == "softmax_p":
            s = s.masked_fill(~seen, -math.inf)
            w = (s - torch.logsumexp(a.attn_p * s, -1, keepdim=True) / a.attn_p).exp()
        else:
            f = (torch.sigmoid(s) if a.attn.startswith("sigmoid") else F.elu(s) + 1
                 if a.attn.startswith("elu1") else s)
            w = f.masked_fill(~seen, 0)
            if a.attn in ("identity_norm", "mlp_norm"):
                w = w / w.sum(-1, keepdim=True).abs().clamp(min=1)
            elif a.attn == "sigmoid_p":
                w = w / (w ** a.attn_p).sum(-1, keepdim=True) ** (1 / a.attn_p)
            elif a.attn.endswith("_norm"):
                w = w / (w.sum(-1, keepdim=True) + 1e-8)
        return w.to(v.dtype) @ v

    def sdpa_path(q, k, v, star_s, v_star):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    paths = {"flex": flex_path, "flash": flex_path, "cudnn": sdpa_path, "fa2": sdpa_path, "sdpa": sdpa_path}
    attention = paths.get(a.path, eager_path)

    def rope(x, cos, sin):  # x (B, NH, T, HS), cos and sin (T, HS/2)
        u, w = x.chunk(2, -1)
        return torch.cat((u * cos - w * sin, w * cos + u * sin), -1).to(x.dtype)

    def parameters():  # name -> fp32 tensor, the same in every process
        g = torch.Generator().manual_seed(1)
        d, n, shapes = a.width, a.ffn_width, {"wte": (a.vocab, a.width)}
        for l in range(a.layers):
            shapes |= {f"{l}.ln1": (d,), f"{l}.qkv": (3 * d, d), f"{l}.o": (d, d), f"{l}.ln2": (d,),
                       f"{l}.gate_up": (2 * n, d), f"{l}.down": (d, n)}
            shapes |= {f"{l}.k_star": (a.heads, HS)} if a.bias in ("k", "kv") else {}
            shapes |= {f"{l}.v_star": (a.heads, HS)} if a.bias in ("kv", "v") else {}
            shapes |= {f"{l}.phi1": (HS, HS),
                       f"{l}.phi2": (HS, HS)} if a.attn.startswith("mlp") else {}
        shapes |= {"lnf": (d,), "head": (a.vocab, d)}
        return {name: (torch.ones(s) if len(s) == 1
                       else torch.randn(s, generator=g) * (0.4 / s[1]) ** 0.5).to(device)
                for name, s in shapes.items()}

    half = torch.arange(HS // 2) / (HS // 2)
    angle = torch.arange(a.seq)[:, None] * 10000.0 ** -half
    cos, sin = angle.cos().to(device), angle.sin().to(device)

    def norm(x, w):
        return F.rms_norm(x, (a.width,), w, 1e-5)

    def loss_of(p, tokens, targets):
        x = F.embedding(tokens, p["wte"])
        B, T, C = x.shape
        for l in range(a.layers):
            qkv = F.linear(norm(x, p[f"{l}.ln1"]), p[f"{l}.qkv"])
            q, k, v = qkv.view(B, T, 3, a.heads, HS).permute(2, 0, 3, 1, 4)
            q, k = rope(q, cos, sin), rope(k, cos, sin)
            if a.attn.startswith("kernel_elu"):
                q, k = F.elu(q) + 1, F.elu(k) + 1
            if a.attn.startswith("mlp"):
                q, k = (F.linear(F.relu(F.linear(t, p[f"{l}.phi1"])), p[f"{l}.phi2"])
                        for t in (q, k))
            column, v_star = a.bias in ("k", "kv"), p.get(f"{l}.v_star")
            star_s = None
            if column:
                k_star = p[f"{l}.k_star"][None, :, :, None].to(q.dtype)
                star_s = (q @ k_star).float() * scale
            v_star = None if v_star is None else v_star[None, :, None, :].to(v.dtype)
            o = attention(q, k, v, star_s, v_star if column else None).to(v.dtype)
            if a.bias == "v":
                o = o + v_star
            x = x + F.linear(o.transpose(1, 2).reshape(B, T, C), p[f"{l}.o"])
            gate, up = F.linear(norm(x, p[f"{l}.ln2"]), p[f"{l}.gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, p[f"{l}.down"])
        logits = F.linear(norm(x, p["lnf"]), p["head"])
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    # ---- one path; "reference" is eager, fp32, not compiled, one sequence at a time,
    # a single forward and backward
    reference = a.path == "reference"
    masters = parameters()
    narrow = a.precision == "bf16" and not reference
    weights = {n: (t.bfloat16() if narrow else t).detach().requires_grad_()
               for n, t in masters.items()}
    names = list(weights)
    if narrow:
        for t in masters.values():
            t.grad = torch.zeros_like(t)
    step_weights = [masters[n] for n in names] if narrow else [weights[n] for n in names]
    data = torch.Generator().manual_seed(2)
    window = torch.randint(a.vocab, (a.batch, a.seq + 1), generator=data).to(device)
    tokens, targets = window[:, :-1].contiguous(), window[:, 1:].contiguous()

    def grad_norm(grads):
        norms = [torch.linalg.vector_norm(g.float()) for g in grads]
        return torch.linalg.vector_norm(torch.stack(norms))

    if reference:
        loss = 0.0
        for b in range(a.batch):  # T x T scores of one sequence fit anywhere
            part = loss_of(weights, tokens[b:b + 1], targets[b:b + 1]) / a.batch
            part.backward()
            loss += part.item()
        print(json.dumps({"path": "reference", "loss": loss,
                          "grad_norm": grad_norm([weights[n].grad for n in names]).item()}))
        return
    autocast = torch.autocast(device, torch.bfloat16, enabled=a.precision == "autocast")
    step_loss = loss_of if a.no_compile else torch.compile(loss_of, dynamic=False)
    optimizer = torch.optim.AdamW(step_weights, lr=1e-4, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1, fused=cuda or a.serve)

    def forward_backward():
        with autocast:
            loss = step_loss(weights, tokens, targets)
        loss.backward()
        if narrow:
            torch._foreach_copy_([m.grad for m in step_weights], [weights[n].grad for n in names])
        return loss

    def update():
        torch.nn.utils.clip_grad_norm_(step_weights, 1.0)
        optimizer.step()
        if narrow:
            with torch.no_grad():
                torch._foreach_copy_([weights[n] for n in names], step_weights)
        for n in names:
            weights[n].grad = None

    def timed_step():
        """Returns the milliseconds of one step."""
        if cuda:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
        else:
            begin = time.perf_counter()
        forward_backward()
        update()
        if not cuda:
            return (time.perf_counter() - begin) * 1e3
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    if a.serve:
        for _ in range(a.warmup):
            timed_step()
        print("ready", flush=True)
        for _ in sys.stdin:
            ms = statistics.median(timed_step() for _ in range(a.steps))
            print(json.dumps({"torch": torch.__version__, "tokens_per_s": round(a.batch * a.seq / ms * 1e3, 1)}), flush=True)
        return
    context = []
    if a.path in ("cudnn", "fa2"):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        context = [sdpa_kernel(SDPBackend.CUDNN_ATTENTION if a.path == "cudnn"
                               else SDPBackend.FLASH_ATTENTION)]
    for c in context:
        c.__enter__()
    begin = time.perf_counter()
    first = forward_backward()
    if flex and not cuda:  # but its forward can be checked here
        flex = flex_attention
        with torch.no_grad():
            first = loss_of(weights, tokens, targets)
    first, first_norm = first.item(), grad_norm([w.grad for w in step_weights]).item()
    update()
    flex = flex_dense if flex and not cuda else flex
    compile_s = time.perf_counter() - begin
    times = [timed_step() for _ in range(a.warmup + a.steps)][a.warmup:]
    kernels, error = None, {}
    if cuda:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            forward_backward()
            torch.cuda.synchronize()
        names = [event.key for event in profile.key_averages()]
        kernels, other = attention_kernels(names), other_kernel(a.path, names)
        error = {"error": other} if other else {}
    ms = statistics.median(times)
    rate = a.batch * a.seq / ms * 1e3
    print(json.dumps({
        "path": a.path, "attn": a.attn, "bias": a.bias, "precision": a.precision,
        "compiled": not a.no_compile,
        "torch": torch.__version__, "device": torch.cuda.get_device_name() if cuda else "cpu",
        **{k: getattr(a, k) for k in SHAPE}, "params": sum(w.numel() for w in step_weights),
        "loss": first, "kernels": kernels, **error,
        "grad_norm": first_norm, "compile_s": round(compile_s, 1), "ms": round(ms, 3),
        "ms_best": round(min(times), 3),
        "ms_worst": round(max(times), 3), "tokens_per_s": round(rate),
        "tflops": round(rate * flops_per_token(a) * 1e-12, 3),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if cuda else None}))


def child(a, path):
    args = [sys.executable, os.path.abspath(__file__), "--path", path, "--attn", a.attn, "--bias",
            a.bias, "--attn-p",
            str(a.attn_p), "--precision", a.precision, "--steps", str(a.steps), "--warmup",
            str(a.warmup)]
    for key in SHAPE:
        args += ["--" + key.replace("_", "-"), str(getattr(a, key))]
    args += ["--no-compile"] * a.no_compile
    r = subprocess.run(args + ["--smoke"] * a.smoke, capture_output=True, text=True)
    if r.returncode:
        return {
            "path": path,
            "error": (r.stderr.strip().splitlines() or [f"exit status {r.returncode}"])[-1][:300]}
    return json.loads(r.stdout.strip().splitlines()[-1])


def ours(a):
    args = [a.ours, "bench", "-n", str(a.steps), "-b", str(a.batch), "-t", str(a.seq), "--layers",
            str(a.layers), "--width",
            str(a.width), "--heads", str(a.heads), "--ffn-width", str(a.ffn_width),
            "--vocab", str(a.vocab)]
    args += ["--bb-vocab", str(min(256, a.vocab - 1))]
    args += ["--attn-p", str(a.attn_p)] * a.attn.endswith("_p")
    try:
        r = subprocess.run(args, capture_output=True, text=True)
    except OSError as e:
        return {"path": "train_sink", "error": str(e)}
    if r.returncode:
        return {"path": "train_sink", "error": r.stderr.strip()[:300]}
    j = json.loads(r.stdout.strip().splitlines()[-1])
    if (j["attn"], j["bias"]) != (a.attn, a.bias):
        return {"path": "train_sink",
                "error": f"{a.ours} is a build of ATTN={j['attn']} BIAS={j['bias']}: "
                f"make train_sink ATTN={a.attn} BIAS={a.bias}"}
    return {"path": "train_sink", **j}


def main():
    a = parse()
    if a.path:
        return run_path(a)
    paths = a.paths.split(",") if a.paths else (["sdpa"] if a.smoke else ["cudnn", "fa2"]) + [
        "flex", "eager"]
    reference = child(a, "reference")
    print(json.dumps(reference), flush=True)
    tolerance = (1e-4, 1e-3) if a.precision == "fp32" else (1e-2, 5e-2)
    runs, wrong = {}, {}
    for path in paths:
        if why_not(path, a):
            wrong[path] = "cannot: " + why_not(path, a)
    for _ in range(a.rounds):
        for path in ["train_sink"] + [p for p in paths if p not in wrong]:
            j = ours(a) if path == "train_sink" else child(a, path)
            print(json.dumps(j), flush=True)
            if "error" in j:
                wrong[path] = j["error"]
            elif path != "train_sink":
                for key, tol in zip(("loss", "grad_norm"), tolerance):
                    near = ("error" not in reference
                            and abs(j[key] - reference[key]) <= tol * abs(reference[key]))
                    if not near:
                        wrong[path] = (f"WRONG {key}: {j[key]}, "
                                       f"reference {reference.get(key, reference.get('error'))}")
            runs.setdefault(path, []).append(j)
    mine = [j["tokens_per_s"] for j in runs["train_sink"] if "error" not in j]
    print(f"\nATTN={a.attn} BIAS={a.bias} L {a.layers} C {a.width} NH {a.heads} F {a.ffn_width} V "
          f"{a.vocab} T {a.seq} "
          f"B {a.batch}, {a.precision}, {a.rounds} rounds in turn")
    print(f"{'path':<12}{'tokens/s':>12}{'ms':>10}{'peak GiB':>10}   train_sink is so many times "
          "as fast (every round)")
    for path in ["train_sink"] + paths:
        if path in wrong:
            print(f"{path:<12}{'-':>12}   {wrong[path]}")
            continue
        rates = [j["tokens_per_s"] for j in runs[path]]
        ratio = [m / r for m, r in zip(mine, rates)] if path != "train_sink" else []
        peak = runs[path][0].get("peak_gib")
        ms = statistics.median(j["ms"] for j in runs[path])
        each = " ".join(f"{r:.2f}" for r in ratio)
        print(f"{path:<12}{statistics.median(rates):>12.0f}{ms:>10.2f}"
              f"{'-' if peak is None else peak:>10}   "
              + (f"{statistics.median(ratio):.2f}  ({each})" if ratio else ""))
    failed = [p for p in wrong if not wrong[p].startswith("cannot") and p != "train_sink"]
    sys.exit(1 if failed or "error" in reference else 0)


if __name__ == "__main__":
    main()
