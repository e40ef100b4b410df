#!/usr/bin/env python3
"""Which first tokens make a model lose least when it is quantized? The search of CushionCache (Son
and others, 2024): each place from the first on takes the candidate with which a text's loss under
--quant is least, as long as that ends below what the places before gave. The model's weights stay.

    scripts/prefix_search.py MODEL -d TEXT [--quant w8a8:static] [--most 3] [--candidates 0 262]

Candidates are token ids; without them the ten tokens that get most attention in TEXT. The tokens
take the place of the text's own, and stay in float. All runs measure the same sequences. Other
flags go to the program: --probe-from windows for a text of few records, --bos, --tokenizer.
"""
import argparse, json, os, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(__file__) + "/lib")
from runlog import die


def measured(a, command, *words):
    """Runs the program on the model and the text; returns its JSON."""
    path = f"{a.out}/measured.json"
    sizes = ["--probe-len", str(a.probe_len), "--probe-seqs", str(a.probe_seqs)]
    r = subprocess.run([a.binary, command, a.model, "-d", a.data, *sizes, *a.more, *words,
                        "--json", path], capture_output=True, text=True)
    if r.returncode:
        sys.exit(r.stderr.strip())
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def places(prefix):
    return ",".join(f"{i + 1}:{token}" for i, token in enumerate(prefix))


def losses(a, prefix):
    """Returns the loss in float and the loss quantized, with these first tokens."""
    first = ["--fix-token", places(prefix)] if prefix else []
    runs = measured(a, "eval", "--quant", a.quant, "--quant-keep", str(len(prefix)), *first)["runs"]
    return runs[0]["loss"], runs[-1]["loss"]


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("-d", "--data", required=True)
    p.add_argument("--quant", default="w8a8:static")
    p.add_argument("--most", type=int, default=3, help="tokens of the prefix at most")
    p.add_argument("--candidates", type=int, nargs="+", help="token ids")
    p.add_argument("--probe-len", type=int, default=64)
    p.add_argument("--probe-seqs", type=int, default=20)
    p.add_argument("--binary", default="./train_sink")
    p.add_argument("--out", help="a folder for what the program writes")
    a, a.more = p.parse_known_args()
    if not os.path.exists(a.binary):
        die(f"{a.binary}: got no file, wanted the program", "make train_sink, or --binary FILE")
    own = tempfile.TemporaryDirectory()              # removes itself at the end
    a.out = a.out or own.name
    os.makedirs(a.out, exist_ok=True)
    candidates = a.candidates or [
        row[0] for row in measured(a, "probe", "--anywhere")["anywhere"]["ids"]]
    prefix = []
    plain, best = losses(a, prefix)
    print(f"no prefix: loss {plain:.4f}, {a.quant} {best:.4f}")
    while len(prefix) < a.most:
        tried = [(losses(a, prefix + [t]), t) for t in candidates]
        (plain, loss), token = min(tried, key=lambda row: row[0][1])
        if loss >= best:
            break
        prefix, best = prefix + [token], loss
        print(f"--fix-token {places(prefix)}: loss {plain:.4f}, {a.quant} {best:.4f}", flush=True)


if __name__ == "__main__":
    main()
