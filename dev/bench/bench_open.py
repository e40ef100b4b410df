"""An open model probed and continued by train_sink, beside transformers eager in fp32 on
the same weights: seconds from the start of the process to its end, peak memory, tokens per second,
and whether the numbers agree. The two run in turn.

    python3 dev/bench/bench_open.py BINARY MODEL TEXT.jsonl [--theirs DIR] [--runs 3]
                              [--lengths 512,1024] [--long 8192]

MODEL is what train_sink opens, a directory or a GGUF file; --theirs the same weights
as a directory for transformers, if they are not in one already (scripts/gguf_to_hf.py makes it).
TEXT has a record for each sequence. (torch, transformers, numpy)
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time


def theirs(directory, text, T, seqs, generate):
    """one process of transformers: prints its numbers as JSON"""
    import numpy as np, torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager",
                                                 dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    if generate:
        ids = tokenizer("Call me Ishmael.", return_tensors="pt").input_ids
        with torch.no_grad():
            model.generate(ids, max_new_tokens=4, do_sample=False)
            begin = time.time()
            out = model.generate(ids, max_new_tokens=generate, min_new_tokens=generate,
                                 do_sample=False)
        return dict(speed=generate / (time.time() - begin), text=tokenizer.decode(out[0]))
    records = []
    for line in open(text):
        ids = tokenizer(json.loads(line)["text"][:20 * T], add_special_tokens=False).input_ids
        if len(ids) > T:
            records.append(ids[:T + 1])
    kept = {}
    for l, layer in enumerate(model.model.layers):  # the values, whose norms are a metric
        layer.self_attn.v_proj.register_forward_hook(lambda m, i, o, l=l: kept.__setitem__(l, o))
    loss, alpha, entropy, norms, values = [], [], [], [], []
    with torch.no_grad():
        for ids in records[:seqs]:
            ids = torch.tensor([ids])
            r = model(ids[:, :-1], output_attentions=True, output_hidden_states=True)
            loss.append(torch.nn.functional.cross_entropy(r.logits[0].double(), ids[0, 1:]).item())
            maps = torch.stack(r.attentions, 1)[0]                   # (L, NH, T, T)
            alpha.append(torch.stack([maps[..., k:, k].mean(-1) for k in range(10)], -1).numpy())
            entropy.append(-(maps * maps.clamp_min(1e-30).log()).sum(-1).mean(-1).numpy())
            norms.append([[float(h[0, 0].norm()), float(h[0, 1:].norm(dim=-1).mean())]
                          for h in r.hidden_states[:-1]])
            heads = model.config.num_key_value_heads
            v = torch.stack([kept[l][0].unflatten(-1, (heads, -1)).norm(dim=-1).mean(-1)
                             for l in range(len(kept))])
            values.append([v[:, 0].tolist(), v[:, 1:].mean(1).tolist()])
    alpha, norms, values = np.array(alpha), np.mean(norms, 0), np.mean(values, 0)
    return dict(loss=float(np.mean(loss)), n=len(loss),
                sink=[float((alpha[..., k] > 0.3).mean()) for k in range(10)],
                alpha1=alpha[..., 0].mean(0).tolist(), entropy=np.mean(entropy, 0).tolist(),
                first=norms[:, 0].tolist(),
                rest=norms[:, 1].tolist(), v_first=values[0].tolist(), v_rest=values[1].tolist())


def timed(command):
    """output, seconds, peak memory in MB"""
    begin = time.time()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        out.seek(0)
        if status:
            sys.exit(f"{' '.join(command)}: failed")
        return out.read(), time.time() - begin, usage.ru_maxrss / 1024


def worst(ours, theirs):
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours, theirs))


def flat(rows):
    return [x for row in rows for x in row]


def median(rows):
    return [statistics.median(x) for x in zip(*rows)]


def compare(a, T, seqs, runs):
    """one row of the table: T tokens of each of `seqs` records, by both, in turn"""
    ours, others = [], []
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "p.json")
        probe = [a.binary, "probe", a.model, "-d", a.text, "--probe-len", str(T), "--probe-seqs",
                 str(seqs), "--json", out]
        for _ in range(runs):
            _, seconds, memory = timed(probe)
            ours.append((seconds, memory))
            if not a.alone:
                text, seconds, memory = timed([sys.executable, __file__, "--reference", str(T),
                                               str(seqs), a.theirs, a.text])
                others.append((seconds, memory))
        p = json.load(open(out))
    line = f"probe {seqs} x {T}: ours {median(ours)[0]:.1f} s, {median(ours)[1]:.0f} MB"
    if a.alone:
        return print(line + f", loss {p['probe_loss']:.4f}", flush=True)
    t = json.loads(text.splitlines()[-1])
    line += f"; transformers {median(others)[0]:.1f} s, {median(others)[1]:.0f} MB"
    far = dict(loss=abs(p["probe_loss"] - t["loss"]), sink=worst(p["sink"]["sink_k"], t["sink"]),
               alpha=worst(flat(p["alpha1"]), flat(t["alpha1"])),
               entropy=worst(flat(p["entropy"]), flat(t["entropy"])),
               h=max(worst(p["h_norm_first"], t["first"]), worst(p["h_norm_rest"], t["rest"])),
               v=max(worst(p["v_norm_first"], t["v_first"]), worst(p["v_norm_rest"], t["v_rest"])))
    print(line, "| apart by " + ", ".join(f"{k} {v:.1e}" for k, v in far.items()),
          f"| loss {t['loss']:.4f}", flush=True)


def speeds(a, n):
    """tokens per second of one stream; the start is taken off by the time of four tokens, each a
    median, as one start that the machine disturbs would make it seem endless"""
    starts, wholes, others = [], [], []
    command = [a.binary, "generate", a.model, "--prompt", "Call me Ishmael.", "--temperature",
               "0", "--tokens"]
    for _ in range(a.runs):
        timed(command + ["4"])                      # the first after transformers is slower
        starts.append(timed(command + ["4"])[1:])
        text, *whole = timed(command + [str(n + 4)])
        wholes.append(whole)
        if not a.alone:
            r = json.loads(timed([sys.executable, __file__, "--generate", str(n),
                                  a.theirs])[0].splitlines()[-1])
            others.append((r["speed"],))
    start, (whole, memory) = median(starts)[0], median(wholes)
    line = (f"generate {n}: ours {n / (whole - start):.1f} tokens/s, {memory:.0f} MB, "
            f"start and 4 tokens {start:.2f} s")
    if others:
        same = len(os.path.commonprefix([text, r["text"]]))
        line += (f"; transformers {median(others)[0]:.1f} tokens/s; "
                 f"the same text for {same} characters")
    print(line, flush=True)


def main():
    if sys.argv[1:2] == ["--reference"]:
        length, count, directory, text = sys.argv[2:6]
        return print(json.dumps(theirs(directory, text, int(length), int(count), 0)))
    if sys.argv[1:2] == ["--generate"]:
        return print(json.dumps(theirs(sys.argv[3], None, 0, 0, int(sys.argv[2]))))
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("binary", "model", "text"):
        p.add_argument(name)
    p.add_argument("--theirs", help="the same weights for transformers")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--lengths", default="512,1024")
    p.add_argument("--long", type=int, default=0, help="one sequence of so many tokens, ours alone")
    p.add_argument("--tokens", type=int, default=64, help="to generate; 0: none")
    p.add_argument("--alone", action="store_true", help="without transformers")
    a = p.parse_args()
    a.theirs = a.theirs or a.model
    for T in filter(None, a.lengths.split(",")):
        compare(a, int(T), 13, a.runs)
    if a.tokens:
        speeds(a, a.tokens)
    if a.long:
        a.alone = True
        compare(a, a.long, 1, 1)


if __name__ == "__main__":
    main()
