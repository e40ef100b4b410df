"""
make.py -- golden fixtures for the C++ reference: one row of cases.tsv ->
NAME.safetensors in test/golden/fixtures.tar, which make unpacks to build/golden

    python3 dev/golden/make.py              write them all (PyTorch and numpy; ten seconds)
    python3 dev/golden/make.py NAME..       write these, and keep the others
    python3 dev/golden/make.py --check      recompute and compare with the committed files
    python3 dev/golden/make.py --fp32       the same in float32: how far honest single precision
                                            is from the fixtures
    python3 dev/golden/make.py --random 40  prints random rows, as they are at the end
                                            of cases.tsv
"""
import io, json, os, random, sys, tarfile
from types import SimpleNamespace
import numpy as np
import torch
import model

HERE = os.path.dirname(os.path.abspath(__file__))
PACK = os.path.join(HERE, "..", "..", "test", "golden", "fixtures.tar")
# every fixture carries all of these; a row of cases.tsv names those that differ
FLAGS = {"layers": 2, "heads": 2, "kv-heads": 0, "width": 8, "ffn-width": 12, "vocab": 13,
         "seq": 11, "batch": 2,
         "steps": 20, "lr": 0.001, "warmup": 0, "weight-decay": 0.1, "grad-clip": 1.0}
MODEL_FLAGS = {"attn-p": 1.0, "attn-clip": 0.0, "attn-alpha": 1.0, "bias-share": "none", "k-dims": 0, "v-star": "",
               "prefix": 0, "window": 0, "head-dim": 0, "norm-kind": "rms", "norm-eps": 1e-5,
               "norm-embed": 0, "parallel": 0, "qkv-bias": 0, "out-bias": 0, "ffn-bias": 0,
               "head-bias": 0, "tied": 0, "embed-scale": 1.0, "logit-cap": 0.0,
               "norm-bias": 1, "residual-scale": 1.0, "logit-divisor": 1.0,
               "rope-base": 10000.0, "rope-local": 0.0, "rope-part": 1.0, "rope-layers": "",
               "rope-scaling": "none", "rope-factor": 1.0, "rope-context": 8192, "rope-low": 1.0,
               "rope-high": 4.0, "rope-fast": 32.0, "rope-slow": 1.0, "rope-length": 0.0,
               "rope-round": 1, "attn-cap": 50.0, "score-scale": 0.0, "local-layers": "",
               "attn-bias-init": 0.0, "min-context": 0, "max-context": 0, "optimizer": "adamw", "bias-layers": ""}

def read_cases():
    rows = [line.rstrip("\n").split("\t")
            for line in open(os.path.join(HERE, "cases.tsv")) if line[0] != "#"]
    return {name: (make, flags) for name, make, flags in rows[1:]}

def config(make, flags):
    """-> everything in one namespace, and the full flag line"""
    words = flags.split()
    given = {k[2:]: v for k, v in zip(words[::2], words[1::2])}
    switches = dict(model.SWITCHES, **dict(w.split("=") for w in make.split()))
    values = {k: type(d)(given.pop(k, d)) for k, d in {**FLAGS, **MODEL_FLAGS}.items()}
    assert not given and switches.keys() == model.SWITCHES.keys(), (make, flags)
    values["kv-heads"] = values["kv-heads"] or values["heads"]
    normed = switches["ATTN"] not in model.UNNORMED
    assert values["attn-alpha"] == 1 or normed, "alpha is for normalized attention"
    line = " ".join(f"--{k} {v:g}" if isinstance(v, float) else f"--{k} {v}"
                    for k, v in values.items() if k in FLAGS or v != MODEL_FLAGS[k])
    return SimpleNamespace(**switches, **{k.replace("-", "_"): v for k, v in values.items()}), line

def compute(name, make, flags, dtype=torch.float64):
    c, line = config(make, flags)
    p, ids = model.weights(c, dtype), model.tokens(c)
    loss, grads, token_loss, hidden, maps = model.gradients(c, p, ids)
    t = {"tokens": ids, "loss": loss[None], "token_loss": token_loss,
         **model.metrics(c, hidden, maps)}
    t.update(("grad." + k, g) for k, g in grads.items())
    t["losses"], t["grad_norms"] = model.train(c, p, ids)
    t = {k: v.detach().numpy().astype(np.int32 if k == "tokens" else np.float32)
         for k, v in t.items()}
    assert all(np.isfinite(v).all() for v in t.values()), name
    return t, {"make": make, "flags": line}

# ----------------------------------------------------------------------------
# safetensors: the length of the header, the header in JSON, the bytes

def unpack():
    """-> {NAME: the bytes of NAME.safetensors}"""
    with tarfile.open(PACK) as tar:
        return {m.name.split(".safetensors")[0]: tar.extractfile(m).read() for m in tar}

def pack(fixtures):
    """Writes the archive: the same fixtures give the same bytes."""
    with tarfile.open(PACK, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(fixtures):
            member = tarfile.TarInfo(name + ".safetensors")
            member.size = len(fixtures[name])
            tar.addfile(member, io.BytesIO(fixtures[name]))

def dump(tensors, metadata):
    header, at = {"__metadata__": metadata}, 0
    for k, v in tensors.items():
        dtype = "I32" if v.dtype == np.int32 else "F32"
        header[k] = {"dtype": dtype, "shape": list(v.shape), "data_offsets": [at, at + v.nbytes]}
        at += v.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return (len(text).to_bytes(8, "little") + text
            + b"".join(v.tobytes() for v in tensors.values()))

def load(raw):
    n = int.from_bytes(raw[:8], "little")
    header, body = json.loads(raw[8:8 + n]), raw[8 + n:]
    meta = header.pop("__metadata__")
    kind = {"I32": np.int32, "F32": np.float32}
    def tensor(h):
        data = body[slice(*h["data_offsets"])]
        return np.frombuffer(data, kind[h["dtype"]]).reshape(h["shape"])
    return {k: tensor(h) for k, h in header.items()}, meta

# ----------------------------------------------------------------------------

def distance(got, want):
    """largest difference, relative to the largest element of the tensor"""
    return float(np.abs(got.astype(float) - want).max() / max(np.abs(want).max(), 1e-30))

def check(cases, dtype, limit):
    worst, failed, packed = {}, 0, unpack()
    for name, (make, flags) in cases.items():
        want, meta = load(packed[name])
        got, meta_now = compute(name, make, flags, dtype)
        same = (meta == meta_now and got.keys() == want.keys()
                and all(got[k].shape == want[k].shape for k in got))
        far = {k: distance(got[k], want[k]) for k in want} if same else {
            "names, shapes or metadata": np.inf}
        for k, d in far.items():
            kind = "grad.*" if k.startswith("grad.") else k
            worst[kind] = max(worst.get(kind, (0, "")), (d, name + " " + k))
        bad = [k for k, d in far.items() if not d <= limit]
        failed += bool(bad)
        for k in bad:
            print(f"{name}: {k} is {far[k]:.2g} away, wanted <= {limit:g}")
    for kind, (d, where) in worst.items():
        print(f"{kind:14s} {d:8.1e}  {where}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed

def random_rows(n, r):
    ATTN = ("softmax sigmoid sigmoid_norm elu1 elu1_norm kernel_elu kernel_elu_norm identity "
            "identity_norm "
            "mlp mlp_norm softmax_p sigmoid_p").split()
    values = dict(BIAS="none sink_token kv k v", PE="rotary nope absolute learnable relative alibi",
                  NORM="pre pre post", FFN="swiglu geglu reglu relu gelu swish",
                  COMBINE="concat concat sum")
    i = 0
    while i < n:
        s = dict({k: r.choice(v.split()) for k, v in values.items()}, ATTN=ATTN[i % len(ATTN)])
        phi = s["ATTN"].startswith(("kernel_elu", "mlp"))
        if phi and (s["BIAS"] in ("k", "kv") or s["PE"] in ("relative", "alibi")):
            continue  # not defined: which side of phi would it go?
        width, heads = r.choice([(8, 2), (8, 4), (12, 2), (16, 2), (16, 4)])
        seq = r.choice([5, 6, 7, 11, 13, 16, 23, 37])
        f = {"layers": r.choice([1, 2, 2, 3]) if width == 8 else r.choice([1, 2]), "heads": heads,
             "kv-heads": r.choice([1, 2, heads]), "width": width,
             "ffn-width": r.choice([8, 12, 20]), "seq": seq, "batch": r.choice([1, 2, 3])}
        if s["ATTN"].endswith("_p"):
            f["attn-p"] = r.choice([0.5, 2, 3])
        if s["ATTN"] not in model.UNNORMED and r.random() < 0.3:
            f["attn-alpha"] = r.choice([0.2, 0.5, 2])
        if s["BIAS"] in ("kv", "k", "v") and r.random() < 0.4:
            f["bias-share"] = "heads"
        if s["BIAS"] == "k" and r.random() < 0.3:
            f["k-dims"] = r.randint(1, width // heads)
        # there k* may act by v* only
        if s["BIAS"] == "k" and (s["ATTN"] not in model.SUMS_TO_ONE or r.random() < 0.4):
            f["v-star"] = r.choice(["e1:", "ones:"]) + r.choice(["0.5", "5"])
        if s["BIAS"] != "sink_token" and r.random() < 0.3:
            f["prefix"] = r.randint(1, 4)
        if s["BIAS"] != "sink_token" and r.random() < 0.3:
            f["window"] = r.choice([2, 3, 5, 9])
        i += 1
        make = " ".join(f"{k}={s[k]}" for k, default in model.SWITCHES.items() if s[k] != default)
        print(f"random{i:02d}", make,
              " ".join(f"--{k} {v}" for k, v in f.items() if v != FLAGS.get(k)), sep="\t")

if __name__ == "__main__":
    torch.set_num_threads(1)
    words = sys.argv[1:]
    if words[:1] == ["--random"]:
        sys.exit(random_rows(int(words[1]), random.Random(1)))
    cases = read_cases()
    names = [w for w in words if w[:2] != "--"] or list(cases)
    cases = {k: cases[k] for k in names}
    if "--check" in words:
        sys.exit(check(cases, torch.float64, 1e-6) > 0)
    if "--fp32" in words:
        sys.exit(check(cases, torch.float32, 1e-5) > 0)
    fixtures = unpack() if os.path.exists(PACK) else {}
    for name, row in cases.items():
        fixtures[name] = dump(*compute(name, *row))
        print(name)
    pack({name: fixtures[name] for name in read_cases()})
