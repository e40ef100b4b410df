#!/usr/bin/env python3
"""cut_model.py DIRECTORY OUT [flags] -- a smaller model cut from a directory of the LLaMA family,
as `train_sink export` writes one. Nothing is trained: what is kept keeps its numbers.

    --layers 0-3,11     which layers are kept, in this order; without it, all
    --vocab 4096        only the first N ids: rows of the embedding, and the merges that make them
    --ffn 512           only the N neurons of each layer's FFN that write the most, as --text shows
    --kv-heads 1        only the N key heads of each layer, with their queries, that write the most
    --text SHARDS       token shards of the uncut layers' text, for --ffn and --kv-heads (NumPy)

A neuron writes its mean |activation| times the length of its column of down_proj; a head, the mean
length of its output after o_proj. Both are shares, of the first token and of the others, and the
larger of the two decides: so what only the first token uses is kept as well.
"""
import argparse
import json
import os
import re
import struct
import sys

try:
    import numpy as np
except ImportError:                            # only --ffn and --kv-heads need it
    np = None

LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.weight")
SEQUENCES, LENGTH = 64, 64                     # of --text
SHARDS_OF_16_BITS = 20240520                   # core/shards.cpp


def die(text):
    sys.exit(f"error: {text}")


def layers_of(text, n):
    """Returns '0-3,11' as a list of numbers below n."""
    kept = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not found:
            die(f"--layers: got '{part}', wanted numbers such as 0-3,11")
        first = int(found[1])
        last = int(found[2] or first)
        if first > last or last >= n:
            die(f"--layers: got {part}, wanted layers from 0 to {n - 1}, the first before the last")
        kept += range(first, last + 1)
    return kept


# ---- safetensors: name -> (shape, bytes of float32)

def read_tensors(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        data = f.read()
    tensors = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        if t["dtype"] != "F32":
            die(f"{path}: {name} is {t['dtype']}, wanted F32, as `train_sink export` writes it")
        begin, end = t["data_offsets"]
        tensors[name] = (t["shape"], data[begin:end])
    return tensors


def write_tensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data) in tensors.items():
        end = offset + len(data)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            f.write(data)


def keep_rows(tensor, rows):
    shape, data = tensor
    width = len(data) // shape[0]
    return [len(rows), *shape[1:]], b"".join(data[r * width:(r + 1) * width] for r in rows)


def keep_columns(tensor, columns):
    (rows, width), data = tensor
    numbers = memoryview(data).cast("f")
    kept = [numbers[r * width + c] for r in range(rows) for c in columns]
    return [rows, len(columns)], struct.pack(f"<{len(kept)}f", *kept)


# ---- what is cut

def cut_layers(tensors, kept):
    out = {}
    for name, t in tensors.items():
        if not LAYER.fullmatch(name):
            out[name] = t
    for new, old in enumerate(kept):
        for name, t in tensors.items():
            found = LAYER.fullmatch(name)
            if found and int(found[1]) == old:
                out[f"model.layers.{new}.{found[2]}.weight"] = t
    return out


def cut_vocab(tensors, tokenizer, n):
    """Keeps the first n ids. The tokenizer's merges must come in the order of their ids, so that
    the first of them are a tokenizer, too."""
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in tensors:
            tensors[name] = keep_rows(tensors[name], range(n))
    model = tokenizer["model"]
    model["vocab"] = {text: i for text, i in model["vocab"].items() if i < n}
    merges = []
    for merge in model["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        if left + right in model["vocab"]:
            if left not in model["vocab"] or right not in model["vocab"]:
                die(f"--vocab: the merge '{left}' '{right}' needs an id above {n - 1}")
            merges.append(merge)
    model["merges"] = merges
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["id"] < n]


def cut_ffn(tensors, layer, kept):
    name = f"model.layers.{layer}.mlp."
    for part in ("gate_proj", "up_proj"):
        tensors[name + part + ".weight"] = keep_rows(tensors[name + part + ".weight"], kept)
    tensors[name + "down_proj.weight"] = keep_columns(tensors[name + "down_proj.weight"], kept)


def cut_heads(tensors, layer, kept, group, size):
    """Keeps these key heads, their values, and the `group` query heads of each."""
    name = f"model.layers.{layer}.self_attn."
    keys = [h * size + i for h in kept for i in range(size)]
    queries = [h * group * size + i for h in kept for i in range(group * size)]
    for part, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
        tensors[name + part + ".weight"] = keep_rows(tensors[name + part + ".weight"], rows)
    tensors[name + "o_proj.weight"] = keep_columns(tensors[name + "o_proj.weight"], queries)


# ---- what writes the most: the model once more, in NumPy

def tokens_of(shards):
    """Returns the first SEQUENCES x LENGTH training tokens."""
    names = sorted(f for f in os.listdir(shards) if re.fullmatch(r"train_\d+\.bin", f))
    if not names:
        die(f"{shards}: got no train_*.bin, wanted shards of `train_sink tokenize`")
    with open(os.path.join(shards, names[0]), "rb") as f:
        head = np.frombuffer(f.read(1024), "<i4")
        width = "<u2" if head[0] == SHARDS_OF_16_BITS else "<u4"
        ids = np.frombuffer(f.read(4 * SEQUENCES * LENGTH), width)
    return ids[:SEQUENCES * LENGTH].reshape(SEQUENCES, LENGTH).astype(int)


def rotate(x, base):
    """Turns the two halves of each head, as pairs: x (sequences, heads, tokens, size)."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[2])[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def share(written):
    """Returns the larger share of each of n, first token or others: written (sequences, tokens, n)."""
    first = written[:, 0].mean(0)
    rest = written[:, 1:].mean((0, 1))
    return np.maximum(first / first.sum(), rest / rest.sum())


def most(shares, n):
    """Returns the places of the n largest, in their order."""
    return sorted(sorted(range(len(shares)), key=lambda i: -shares[i])[:n])


class Writers:
    """Runs the model and notes, layer by layer, what each neuron and each key head writes."""

    def __init__(self, tensors, config, shards):
        self.tensors, self.config = tensors, config
        self.h = self.weight("model.embed_tokens")[tokens_of(shards)]
        self.mask = np.triu(np.full((LENGTH, LENGTH), -1e30), 1)

    def weight(self, name):
        shape, data = self.tensors[name + ".weight"]
        return np.frombuffer(data, "<f4").reshape(shape)

    def normed(self, name):
        x = self.h
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return x / scale * self.weight(name)

    def heads(self, x, n):
        sequences, tokens, width = x.shape
        return x.reshape(sequences, tokens, n, width // n).transpose(0, 2, 1, 3)

    def attention(self, name):
        """Returns what each head writes (sequences, heads, tokens, width)."""
        n, kv = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        x = self.normed(name + "input_layernorm")
        q = self.heads(x @ self.weight(name + "self_attn.q_proj").T, n)
        k = self.heads(x @ self.weight(name + "self_attn.k_proj").T, kv)
        v = self.heads(x @ self.weight(name + "self_attn.v_proj").T, kv)
        base = rope_base(self.config)
        q, k, v = rotate(q, base), rotate(k, base).repeat(n // kv, 1), v.repeat(n // kv, 1)
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]) + self.mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = scores / scores.sum(-1, keepdims=True) @ v
        out = self.weight(name + "self_attn.o_proj")
        return mixed @ out.reshape(len(out), n, -1).transpose(1, 2, 0)

    def layer(self, l):
        """Adds layer l to the stream; returns the shares of its key heads and of its neurons."""
        name = f"model.layers.{l}."
        heads = self.attention(name)
        self.h = self.h + heads.sum(1)
        x = self.normed(name + "post_attention_layernorm")
        gate = x @ self.weight(name + "mlp.gate_proj").T
        up = x @ self.weight(name + "mlp.up_proj").T
        neurons = gate / (1 + np.exp(-np.clip(gate, -80, 80))) * up
        down = self.weight(name + "mlp.down_proj")
        self.h = self.h + neurons @ down.T
        kv = self.config["num_key_value_heads"]
        groups = heads.reshape(len(heads), kv, -1, *heads.shape[2:]).sum(2)
        lengths = np.linalg.norm(groups, axis=-1).transpose(0, 2, 1)
        return share(lengths), share(np.abs(neurons) * np.linalg.norm(down, axis=0))


def rope_base(config):
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if scaling.get("rope_type", "default") != "default":
        die("--ffn, --kv-heads: positions are scaled; wanted a model without rope_scaling")
    return config.get("rope_theta") or scaling["rope_theta"]


def cut_inside(tensors, config, a):
    """Applies --ffn and --kv-heads. Measures every layer before it is cut, among the layers kept."""
    whole = dict(tensors)
    writers = Writers(whole, config, a.text)
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    size = len(writers.weight("model.layers.0.self_attn.k_proj")) // kv
    for l in range(config["num_hidden_layers"]):
        groups, neurons = writers.layer(l)
        if a.ffn:
            cut_ffn(tensors, l, most(neurons, a.ffn))
        if a.kv_heads:
            cut_heads(tensors, l, most(groups, a.kv_heads), heads // kv, size)
    if a.ffn:
        config["intermediate_size"] = a.ffn
    if a.kv_heads:
        config.update(num_key_value_heads=a.kv_heads, head_dim=size,
                      num_attention_heads=a.kv_heads * heads // kv)


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("directory")
    p.add_argument("out")
    p.add_argument("--layers")
    p.add_argument("--vocab", type=int)
    p.add_argument("--ffn", type=int)
    p.add_argument("--kv-heads", type=int)
    p.add_argument("--text")
    return p.parse_args()


def checked(a, config):
    if config.get("model_type") != "llama":
        die(f"{a.directory}: got a model of {config.get('model_type')}, wanted llama")
    if os.path.exists(a.out):
        die(f"{a.out}: exists")
    for flag, value, key in (("--vocab", a.vocab, "vocab_size"),
                             ("--ffn", a.ffn, "intermediate_size"),
                             ("--kv-heads", a.kv_heads, "num_key_value_heads")):
        if value is not None and not 0 < value <= config[key]:
            die(f"{flag}: got {value}, wanted 1 to {config[key]}")
    if (a.ffn or a.kv_heads) and not a.text:
        die("--ffn and --kv-heads want --text SHARDS, to see which of them write the most")
    if (a.ffn or a.kv_heads) and not np:
        die("--ffn and --kv-heads need NumPy: pip install numpy")


def main():
    a = arguments()
    with open(os.path.join(a.directory, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    checked(a, config)
    tensors = read_tensors(os.path.join(a.directory, "model.safetensors"))
    with open(os.path.join(a.directory, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    if a.layers:
        kept = layers_of(a.layers, config["num_hidden_layers"])
        tensors = cut_layers(tensors, kept)
        config["num_hidden_layers"] = len(kept)
    if a.vocab:
        cut_vocab(tensors, tokenizer, a.vocab)
        config["vocab_size"] = a.vocab
    if a.ffn or a.kv_heads:
        cut_inside(tensors, config, a)
    config.pop("train_sink", None)             # it says no more than the rest, and names a file
    os.makedirs(a.out)
    write_tensors(os.path.join(a.out, "model.safetensors"), tensors)
    for name, o in (("config.json", config), ("tokenizer.json", tokenizer)):
        with open(os.path.join(a.out, name), "w", encoding="utf-8") as f:
            json.dump(o, f, indent=1)
    count = sum(len(data) // 4 for _, data in tensors.values())
    print(f"wrote {a.out}: {config['num_hidden_layers']} layers, {count:,} parameters")


if __name__ == "__main__":
    main()
