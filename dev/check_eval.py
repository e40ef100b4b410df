"""
check_eval.py -- the command eval against transformers on the same tiny weights, where transformers can be asked: streaming by a 4-D
mask, edits by hooks, rounding by hooks on every linear layer.

    python3 dev/check_eval.py build/cpu/train_sink          PyTorch, transformers; half a minute
"""
import json, os, random, subprocess, sys, tempfile
import torch
from transformers import LlamaForCausalLM

T, N = 40, 6
program = os.path.abspath(sys.argv[1])
home = tempfile.mkdtemp()
os.chdir(home)
torch.manual_seed(1)
random.seed(1)
words = "the a of to and in that it was he for on are with as his they at be this from have or by one had".split()
texts = [" ".join(random.choice(words) for _ in range(60)) for _ in range(300)]
with open("text.jsonl", "w") as f: f.writelines(json.dumps({"text": t}) + "\n" for t in texts)
with open("few.jsonl", "w") as f: f.writelines(json.dumps({"text": t}) + "\n" for t in texts[:N])
ids = torch.tensor([list(t.encode())[:T + 1] for t in texts[:N]])               # bytes: an id is a character

run = lambda *words: subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout
run("train", "-d", "text.jsonl", "--layers", "3", "--width", "32", "--heads", "4", "--kv-heads", "2", "--ffn-width", "48", "--seq", "48",
    "-b", "8", "-n", "40", "--lr", "1e-2", "--warmup", "5", "--eval-every", "0", "--sample", "0", "--probe-len", "16", "--probe-seqs", "8", "-o", "run")
model = LlamaForCausalLM.from_pretrained("run/step_40", attn_implementation="eager", dtype=torch.float32).eval()
layers = model.model.layers

def ours(*flags):
    run("eval", "run/step_40", "-d", "few.jsonl", "--tokenizer", "bytes", "--probe-len", str(T), "--probe-seqs", str(N), "--json", "e.json", *flags)
    return {f"{r['kind']} {r['name']}".strip(): (r["loss"], r["from"]) for r in json.load(open("e.json"))["runs"]}

def theirs(first=1, mask=None):
    """mean loss of predicting from token `first` on"""
    with torch.no_grad():
        logits = model(ids[:, :T], attention_mask=mask, position_ids=torch.arange(T).expand(N, T)).logits.double()
    return torch.nn.functional.cross_entropy(logits[:, first - 1:].flatten(0, 1), ids[:, first:].flatten()).item()

failed = 0
def compare(what, got, want):
    global failed
    ok = abs(got - want) < 1e-5
    failed += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what:48s} ours {got:.7f}, transformers {want:.7f}")

def hooked(module, f):
    return module.register_forward_hook(lambda m, inputs, out: (f(out[0]),) + out[1:] if isinstance(out, tuple) else f(out))

compare("plain", ours()["plain"][0], theirs())

i, j = torch.arange(T)[:, None], torch.arange(T)[None, :]
for n, W in ((4, 8), (0, 12), (1, 3)):
    seen = (j <= i) & ((j < n) | (j >= i - W))
    mask = torch.where(seen, 0.0, float("-inf")).expand(N, 1, T, T)
    compare(f"stream {n}+{W}, positions in the text", ours("--stream", f"{n}+{W}")[f"stream {n}+{W}, positions in the text"][0], theirs(1, mask))

def zero_row(x, t=0):
    x = x.clone(); x[:, t] = 0; return x

def zero_largest(x):
    x = x.clone(); top = x[:, 0].abs().topk(2, -1).indices
    return x.index_put((torch.arange(N)[:, None], torch.tensor([[0]]), top), torch.tensor(0.0))

for text, module, f in (("h:1:1=0", layers[1], zero_row), ("attn:0:1=0", layers[0].self_attn, zero_row), ("mlp:2:1=0", layers[2].mlp, zero_row),
                        ("h:0:1:top2=0", layers[0], zero_largest), ("mlp:1:*=x0.5", layers[1].mlp, lambda x: x * 0.5)):
    handle = hooked(module, f)
    loss, first = ours("--edit", text)[f"edit {text}"]
    compare(f"edit {text}", loss, theirs(first))
    handle.remove()

def grid(x, bits):                                                               # asymmetric, a range for each row
    low, high = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    step = (high - low) / (2**bits - 1)
    zero = (-low / step).round()
    return (((x / step).round() + zero).clamp(0, 2**bits - 1) - zero) * step

def rounded_linears(bits):
    handles, was = [], {}
    for name, m in model.named_modules():
        if isinstance(m, torch.nn.Linear) and name != "lm_head":
            was[name] = m.weight.data.clone()
            step = m.weight.data.abs().amax(1, keepdim=True) / (2**(bits - 1) - 1)
            m.weight.data = (m.weight.data / step).round() * step
            handles.append(m.register_forward_pre_hook(lambda m, inputs: (grid(inputs[0], bits),)))
    return handles, was

for bits in (8, 6):
    handles, was = rounded_linears(bits)
    want = theirs()
    for h in handles: h.remove()
    for name, m in model.named_modules():
        if name in was: m.weight.data = was[name]
    got = ours("--quant", f"w{bits}a{bits}", "--quant-keep", "0")[f"quant w{bits}a{bits}:token"][0]
    ok = abs(got - want) < (1e-4 if bits == 8 else 3e-3)                         # a number near a border falls on either side
    failed += not ok
    print(f"{'ok  ' if ok else 'FAIL'} w{bits}a{bits}, a range a token: ours {got:.6f}, transformers {want:.6f}")
print(f"{failed} failed")
sys.exit(failed > 0)
