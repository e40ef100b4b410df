"""Sink_1 of one model by train_sink, transformers, nnsight, TransformerLens and the paper's code:
seconds from the start of the process to its end, peak memory, and what each of them finds. They run
in turn, so that a busy machine disturbs all of them alike.

    python3 dev/bench/bench_probe.py BINARY MODEL TEXT.jsonl [--paper CHECKOUT] [--runs 3]
                               [--seqs 100] [--length 64]

MODEL is a directory that transformers opens, with its tokenizer.json. TEXT has a record for each
sequence, longer than --length tokens. CHECKOUT is github.com/sail-sg/Attention-Sink, whose functions
run as they are, on a CPU. What is not installed is named and left out. (torch, transformers, nnsight,
transformer-lens)
"""
import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile

from bench_open import timed

BATCH = 10            # sequences in one forward pass; the paper's code takes one
EPS = 0.3


def texts(a):
    """Reads the texts that are measured."""
    with open(a.text, encoding="utf-8") as f:
        return [json.loads(line)["text"] for line in f][:a.seqs]


def batches(a):
    """Yields the same token ids for everybody: tensors of BATCH sequences."""
    import torch
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(a.model)
    ids = [tokenizer(r, add_special_tokens=False).input_ids[:a.length] for r in texts(a)]
    for i in range(0, len(ids), BATCH):
        yield torch.tensor(ids[i:i + BATCH])


def sink_1(alphas):
    import torch
    return float((torch.cat(alphas) > EPS).float().mean())


def by_transformers(a):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(a.model, attn_implementation="eager",
                                                 dtype=torch.float32).eval()
    alphas = []
    with torch.no_grad():
        for ids in batches(a):
            maps = torch.stack(model(ids, output_attentions=True).attentions, 1)
            alphas.append(maps[..., 0].mean(-1))                # (B, L, H)
    return sink_1(alphas)


def by_nnsight(a):
    import torch
    from nnsight import LanguageModel
    model = LanguageModel(a.model, device_map="cpu", dispatch=True, dtype=torch.float32,
                          attn_implementation="eager")
    alphas = []
    with torch.no_grad():
        for ids in batches(a):
            with model.trace(ids, output_attentions=True):
                maps = model.output.attentions.save()
            alphas.append(torch.stack(list(maps), 1)[..., 0].mean(-1))
    return sink_1(alphas)


def by_transformer_lens(a):
    import torch
    from transformer_lens.model_bridge import TransformerBridge
    model = TransformerBridge.boot_transformers(a.model, device="cpu", dtype=torch.float32)
    names = [f"blocks.{l}.attn.hook_pattern" for l in range(model.cfg.n_layers)]
    alphas = []
    with torch.no_grad():
        for ids in batches(a):
            _, cache = model.run_with_cache(ids, names_filter=lambda name: name in names)
            alphas.append(torch.stack([cache[n] for n in names], 1)[..., 0].mean(-1))
    return sink_1(alphas)


def by_paper(a):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    path = os.path.join(a.paper, "eval_sink_open_source.py")
    spec = importlib.util.spec_from_file_location("paper", path)
    paper = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(paper)
    model = AutoModelForCausalLM.from_pretrained(a.model, attn_implementation="eager",
                                                 dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(a.model)
    with tempfile.TemporaryDirectory() as d:
        maps = os.path.join(d, "maps.npy")
        paper.measure_attention_sink(model, tokenizer, texts(a), maps, a.length,
                                     torch.device("cpu"))
        return float(paper.compute_attention_sink(maps, EPS)[0]) / 100


def by_train_sink(a):
    """One run of the binary: its Sink_1, seconds and MB."""
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "p.json")
        _, seconds, memory = timed([a.binary, "probe", a.model, "-d", a.text, "--bos", "none",
                                    "--probe-len", str(a.length), "--probe-seqs", str(a.seqs),
                                    "--json", out])
        with open(out, encoding="utf-8") as f: probe = json.load(f)
    return probe["sink"]["sink_k"][0], seconds, memory


WAYS = {"transformers": by_transformers, "nnsight": by_nnsight,
        "transformer_lens": by_transformer_lens, "paper": by_paper}


def by_other(a, name):
    """One process of Python: its Sink_1, seconds and MB."""
    text, seconds, memory = timed([sys.executable] + sys.argv + ["--one", name])
    return json.loads(text.splitlines()[-1]), seconds, memory


def installed(a, name):
    if name == "paper": return a.paper is not None
    return importlib.util.find_spec(name) is not None


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("binary", "model", "text"): p.add_argument(name)
    p.add_argument("--paper", help="a checkout of the paper's code")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--seqs", type=int, default=100)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.one: return print(json.dumps(WAYS[a.one](a)))
    names = [name for name in WAYS if installed(a, name)]
    for name in WAYS:
        if name not in names: print(f"{name}: not here, not run")
    found = {name: [] for name in ["train_sink"] + names}
    for _ in range(a.runs):
        found["train_sink"].append(by_train_sink(a))
        for name in names: found[name].append(by_other(a, name))
    ours = [seconds for _, seconds, _ in found["train_sink"]]
    for name, runs in found.items():
        sink, seconds, memory = (statistics.median(x) for x in zip(*runs))
        ratio = statistics.median(s / o for (_, s, _), o in zip(runs, ours))
        print(f"{name:17} {seconds:6.1f} s {memory:6.0f} MB  {ratio:5.2f} x  Sink_1 {100 * sink:.2f}%",
              flush=True)


if __name__ == "__main__":
    main()
