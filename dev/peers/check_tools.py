"""Do lm-evaluation-harness, TransformerLens and nnsight open what `export` writes? The lines of
docs/interop.md are run as they are printed, in a directory with an exported model, `my-model`, and
items in HellaSwag's manner, mine.jsonl. Two models are trained on a little text: ATTN=sigmoid, which
comes with our own PyTorch file, and the default, which is a LLaMA. Compared:

    harness          each log-likelihood and accuracy with `train_sink score --task mine.jsonl`
    TransformerLens  alpha_1 of every head with `train_sink probe` (the LLaMA)
    nnsight          the norm of h^1 and the logits with those of transformers

    python3 dev/peers/check_tools.py      (needs lm-eval, transformer-lens, nnsight, torch,
                                           transformers; makes the builds it needs)
"""
import json, os, random, re, runpy, sys, tempfile

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
import numpy as np, torch, transformers as tf
import shards
from builds import ROOT, binary, run

SIZE = ("--layers 2 --width 32 --heads 4 --ffn-width 64 --seq 128 -b 8 --steps 40 --lr 0.01 "
        "--eval-every 0 --sample 0")
WORDS = "a door by the river and seven stones, quickly opened it was not her house".split()
T, N = 32, 4


def lines_of(name):
    """the Python that docs/interop.md prints under this heading"""
    page = open(os.path.join(ROOT, "docs", "interop.md")).read()
    return re.search(rf"\*\*{name}\*\*.*?```python\n(.*?)```", page, re.S).group(1)


def printed(name):
    """runs it, and gives what it left"""
    with open(name + ".py", "w") as f:           # nnsight reads the source of its `with`
        f.write(lines_of(name))
    return runpy.run_path(name + ".py")


def sentence(rng, least, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def prepare(switches):
    rng = random.Random(4)
    with open("text.txt", "w") as f:
        f.write("\n".join(sentence(rng, 5, 15) for _ in range(2000)))
    with open("mine.jsonl", "w") as f:
        for i in range(40):
            item = {"context": sentence(rng, 4, 12), "gold": rng.randint(0, 3),
                    "choices": [sentence(rng, 2 + k, 2 + k) for k in range(4)]}
            f.write(json.dumps(item) + "\n")
    program = binary(switches)
    run(program, "train", "-d", "text.txt", "-o", "run", *SIZE.split())
    run(program, "export", "run/step_40", "-o", "my-model")
    return program


def harness(program):
    run(program, "score", "run/step_40", "--task", "mine.jsonl", "--items", "items.jsonl", "--json",
        "score.json")
    results = printed("lm-evaluation-harness")["results"]
    samples = sorted(results["samples"]["mine"], key=lambda s: s["doc_id"])
    theirs = np.array([[x[0][0] for x in s["resps"]] for s in samples], float)
    ours = np.array([json.loads(line)["loglik"] for line in open("items.jsonl")])
    scores = json.load(open("score.json"))["tasks"][0]
    far = np.abs(theirs - ours).max()
    bad = [] if far < 2e-5 * np.abs(ours).max() else [f"a log-likelihood is {far:.1e} away"]
    for name in ("acc", "acc_norm"):
        their = results["results"]["mine"][name + ",none"]
        if abs(scores[name] - their) > 1e-9:
            bad.append(f"{name} {scores[name]} here, {their} there")
    return bad, f"{ours.size} log-likelihoods, {far:.1e} away, acc {scores['acc']:.3f}"


def lens(program):
    tokens = np.random.default_rng(3).integers(0, 256, (N + 1) * T + 1)
    shards.write(".", tokens)
    run(program, "probe", "run/step_40", "-d", ".", "--probe-len", T, "--probe-seqs", N,
        "--per-sequence", "--json", "p.json")
    ours = np.array(json.load(open("p.json"))["alpha"])[..., 0]
    left = printed("TransformerLens")
    model, far = left["model"], 0
    for i in range(N):
        _, cache = model.run_with_cache(torch.tensor(tokens[None, i * T:i * T + T]))
        for layer in range(2):
            alpha = cache[f"blocks.{layer}.attn.hook_pattern"][0, :, :, 0].mean(-1)
            far = max(far, np.abs(alpha.detach().numpy() - ours[i, layer]).max())
    return [] if far < 1e-5 else ["alpha_1"], f"alpha_1 {far:.1e} away"


def nnsight(program):
    left = printed("nnsight")
    model = tf.AutoModelForCausalLM.from_pretrained("my-model", trust_remote_code=True,
                                                    dtype=torch.float32).eval()
    words = tf.AutoTokenizer.from_pretrained("my-model", trust_remote_code=True)
    with torch.no_grad():
        r = model(**words("a door by the river", return_tensors="pt"), output_hidden_states=True)
    far = max((left["logits"] - r.logits).abs().max().item(),
              (left["h"].reshape(r.hidden_states[1].shape) - r.hidden_states[1]).abs().max().item())
    return [] if far < 1e-5 else ["hidden states or logits"], f"h and logits {far:.1e} away"


if __name__ == "__main__":
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    failed = 0
    for name, switches in (("sigmoid", "ATTN=sigmoid"), ("llama", "")):
        with tempfile.TemporaryDirectory() as d:
            os.chdir(d)
            program = prepare(switches)
            for tool in (harness, lens, nnsight):
                if tool is lens and switches:
                    continue                     # it knows the classes of transformers alone
                try:
                    bad, told = tool(program)
                except Exception as e:
                    bad, told = [f"{type(e).__name__}: {e}"], ""
                failed += bool(bad)
                print(f"{name:8s} {tool.__name__:8s} {'; '.join(bad) or 'agrees'}   {told}",
                      flush=True)
            os.chdir(ROOT)
    sys.exit(failed > 0)
