"""Is a checkpoint what transformers takes it for? Opens the directory or the GGUF file there,
writes sequences as a uint16 shard, probes it with ./train_sink,
and compares loss and alpha_k of every head. The sequences are random ids, or, with TEXT,
the beginning of this file as the tokenizer there has it.

    python3 dev/peers/check_transformers.py ./train_sink runs/0001/step_1000
                                                (needs torch, transformers, numpy)
    python3 dev/peers/check_transformers.py ./train_sink model.gguf TEXT
                                                (and gguf, accelerate; dequantized to float32)
"""
import json, os, subprocess, sys, tempfile
import numpy as np, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
import shards

binary, checkpoint = sys.argv[1:3]
n, T = 16, 64
place = (os.path.dirname(checkpoint) or ".",), {"gguf_file": os.path.basename(checkpoint)}
if not checkpoint.endswith(".gguf"):
    place = (checkpoint,), {}
model = AutoModelForCausalLM.from_pretrained(*place[0], **place[1], attn_implementation="eager",
                                             dtype=torch.float32).eval()
rng = np.random.default_rng(0)
count = (n + 1) * T + 1  # sequence i is tokens [iT, iT + T]
tokens = rng.integers(0, model.config.vocab_size, count)
if len(sys.argv) > 3:
    tokenizer = AutoTokenizer.from_pretrained(*place[0], **place[1])
    text = open(sys.argv[3]).read(20 * count)
    tokens = np.array(tokenizer(text, add_special_tokens=False).input_ids[:count])
    assert len(tokens) == count, "TEXT is too short"
with tempfile.TemporaryDirectory() as d:
    shards.write(d, tokens)
    out = os.path.join(d, "probe.json")
    subprocess.run([binary, "probe", checkpoint, "-d", d, "--probe-seqs", str(n), "--per-sequence",
                    "--json", out], check=True)
    ours = json.load(open(out))
ids = torch.tensor(np.stack([tokens[i * T:i * T + T + 1] for i in range(n)]))
with torch.no_grad():
    r = model(ids[:, :-1], output_attentions=True)
# a float sum is 1e-4 off
loss = torch.nn.functional.cross_entropy(r.logits.double().transpose(1, 2), ids[:, 1:]).item()
maps = torch.stack(r.attentions, 1)                                      # (n, L, NH, T, T)
alpha = torch.stack([maps[..., k:, k].mean(-1) for k in range(10)], -1).numpy()
worst = np.abs(alpha - np.array(ours["alpha"])).max()
print(f"loss {loss:.7f} there, {ours['probe_loss']:.7f} here; alpha_k differs by at most "
      f"{worst:.2e} over {alpha.size} values")
sys.exit(not (abs(loss - ours["probe_loss"]) < 1e-4 and worst < 1e-5))
