"""Does PyTorch compute what train_sink trained? Tiny models of every value of every switch, of
combinations, and of the flags of ARCH are trained for a few steps, exported, and opened in
transformers with trust_remote_code=True. Compared: loss and alpha_1..10 of every head (1e-5), the
token ids that follow a prompt, taken greedily (the same), a padded batch against its sequences one
by one, and what train_sink says of the directory after PyTorch has saved it again (1e-5).

    python3 dev/peers/check_export.py [NAME..]            all, or the cases whose names begin so
                    makes the builds it needs (needs torch, transformers, numpy)
"""
import json, os, subprocess, sys, tempfile
import numpy as np, torch, transformers as tf
from transformers import AutoModelForCausalLM

import shards
from builds import ROOT, binary, each_once, run
T, N, V, NEW = 32, 6, 61, 14
SIZE = ("--bb-vocab 60 --layers 3 --heads 4 --kv-heads 2 --width 24 --ffn-width 20 --seq 32 "
        "-b 8 --steps 15 --lr 0.03 --warmup 5 --eval-every 0 --sample 0 --val-seqs 8 "
        "--probe-seqs 4 --probe-len 16")

# name: (switches, flags)
CASES = {}


def case(name, switches, flags=""):
    CASES[name] = (switches, flags)


VALUES = subprocess.run(["make", "-s", "values"], cwd=ROOT, text=True, stdout=subprocess.PIPE).stdout
for switch, *values in map(str.split, VALUES.splitlines()):
    if switch in ("PRECISION", "BACKEND"): continue
    for value in values:
        more = "--head-dim 8" if switch in ("PE", "QKNORM") else ""
        if value.endswith("_p"):
            more += " --attn-p 1.7 --attn-alpha 0.6"
        if value.endswith("_clip"):
            more += " --attn-clip 0.1"
        case(f"{switch}={value}", f"{switch}={value}", more)
for name, flags in {
        "ln": "--norm-kind ln", "ln-no-bias": "--norm-kind ln --norm-bias 0",
        "scales": "--residual-scale 0.22 --logit-divisor 6 --embed-scale 12 --tied 1",
        "norm-embed": "--norm-embed 1", "parallel": "--parallel 1",
        "biases": "--qkv-bias 1 --out-bias 1 --ffn-bias 1 --head-bias 1", "tied": "--tied 1",
        "embed-scale": "--embed-scale 4.9", "logit-cap": "--logit-cap 3", "eps": "--norm-eps 0.01",
        "rope-base": "--rope-base 300", "rope-part": "--rope-part 0.67",
        "rope-layers": "--rope-layers 101", "score-scale": "--score-scale 0.7",
        "linear": "--rope-scaling linear --rope-factor 3",
        "llama3": "--rope-scaling llama3 --rope-factor 8 --rope-context 16 --rope-base 500",
        "yarn": "--rope-scaling yarn --rope-factor 4 --rope-context 16 --rope-base 500",
        "yarn-exact": "--rope-scaling yarn --rope-factor 4 --rope-context 16 --rope-base 500 "
                      "--rope-round 0 --rope-length 1.3 --rope-fast 20 --rope-slow 2",
        "window": "--window 5", "local": "--window 5 --local-layers 10",
        "rope-local": "--window 5 --local-layers 10 --rope-local 77 --rope-scaling linear "
                      "--rope-factor 2",
        "prefix": "--prefix 7", "prefix-window": "--prefix 4 --window 6",
        "head-dim": "--head-dim 10", "alpha": "--attn-alpha 0.5"}.items():
    case("flag-" + name, "", flags)
case("shift", "ATTN=sigmoid", "--attn-bias-init -3")
case("cap", "ATTN=softcap", "--attn-cap 0.5")
case("k-shared", "BIAS=k", "--bias-share heads")
case("v-shared", "BIAS=v", "--bias-share heads")
case("k-dims", "BIAS=k", "--k-dims 2")
case("v-e1", "BIAS=k", "--v-star e1:2.5")
case("v-ones", "BIAS=k", "--v-star ones:1.5")
case("k-some-layers", "BIAS=k", "--bias-layers 01")
case("v-some-layers", "BIAS=v", "--bias-layers 10")
case("logit-some-layers", "BIAS=logit", "--bias-layers 110")
case("slopes", "PE=alibi", "--heads 6 --kv-heads 3 --alibi-slopes published")
for n, (switches, flags) in enumerate([
        ("ATTN=sigmoid BIAS=k PE=alibi NORM=post FFN=relu2 GATE=elem", "--qkv-bias 1"),
        ("ATTN=softpick BIAS=kv QKNORM=head NORM=branch", "--norm-kind ln --window 9"),
        ("ATTN=elu1_norm BIAS=sink_token PE=learnable COMBINE=sum", "--tied 1"),
        ("ATTN=softcap BIAS=logit NORM=sandwich FFN=geglu_tanh", "--window 6 --local-layers 10"),
        ("ATTN=softcap BIAS=k PE=relative", "--attn-cap 2"),
        ("ATTN=mlp_norm BIAS=v PE=absolute GATE=head", "--norm-embed 1"),
        ("ATTN=kernel_elu_norm BIAS=sink_token QKNORM=all", "--rope-part 0.5 --prefix 5"),
        ("ATTN=identity_norm BIAS=k PE=nope NORM=post", "--v-star ones:2 --attn-alpha 1.5"),
        ("ATTN=sigmoid_p BIAS=zero PE=relative FFN=gelu", "--attn-p 2.5 --parallel 1"),
        ("ATTN=softmax_p BIAS=logit PE=alibi COMBINE=sum", "--attn-p 0.7 --prefix 3"),
        ("BIAS=sink_token PE=absolute NORM=sandwich", "--prefix 6 --window 5 --logit-cap 5"),
        ("BIAS=sink_token PE=alibi QKNORM=head GATE=elem", "--window 4 --embed-scale 2"),
        ("ATTN=sigmoid_norm BIAS=kv COMBINE=sum FFN=reglu", "--head-bias 1 --score-scale 0.3"),
        ("ATTN=relu BIAS=kv PE=alibi GATE=value NORM=none", "--window 6 --prefix 3 --bias-layers 10"),
        ("ATTN=relu BIAS=sink_token GATE=static QKNORM=head", "--attn-bias-init 0.4"),
        ("ATTN=softmax_clip BIAS=logit PE=alibi", "--attn-clip 0.2 --attn-alpha 1.5 --window 9")]):
    case(f"both-{n + 1}", switches, flags)


def probe(program, checkpoint, d):
    out = os.path.join(d, "probe.json")
    run(program, "probe", checkpoint, "-d", d, "--probe-len", T, "--probe-seqs", N,
        "--per-sequence", "--json", out)
    return json.load(open(out))


def greedy(program, checkpoint, prompt):
    text = run(program, "generate", checkpoint, "--temperature", 0, "--tokens", NEW,
               "--prompt", " ".join(map(str, prompt)))
    return [int(w) for w in text.split()]


NOT_DIVIDED = "sigmoid elu1 kernel_elu identity mlp relu".split()
SUM_TO_ONE = "softmax softcap sigmoid_norm elu1_norm kernel_elu_norm".split()


def alphas(model, r):
    """alpha_1..10 as train_sink defines them: of an operation whose rows do not sum to 1, shares of
    what |A| sums to; where a layer has a window and others have none, over the queries that still
    see the token."""
    maps, c = torch.stack(r.attentions, 1).double(), model.config.rows()
    if c.attn not in SUM_TO_ONE or c.attn_alpha != 1:
        star = torch.stack(r.star_attentions, 1).double() if r.star_attentions else 0 * maps[..., 0]
        # no output depends on a learned key of value 0 where no sum divides: it is not measured
        if c.attn in NOT_DIVIDED and c.bias in ("k", "zero", "logit") and not c.v_star:
            star = 0 * star
        maps = maps.abs() / (maps.abs().sum(-1) + star.abs()).clamp(min=1e-30)[..., None]
    alpha = torch.stack([maps[..., k:, k].mean(-1) for k in range(10)], -1)
    for l in range(c.L if c.window and c.local_layers and not c.prefix else 0):
        for k in range(10):
            if c.local_layers[l % len(c.local_layers)] == "1":
                alpha[:, l, :, k] *= (T - k) / min(c.window, T - k)
    return alpha.numpy()


def padded(model, prompts):
    """Do prompts of several lengths, padded on the left, go on as each does alone?"""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    more = dict(do_sample=False, max_new_tokens=NEW, eos_token_id=None, pad_token_id=0)
    both = model.generate(ids, attention_mask=mask, **more)[:, longest:]
    for p, row in zip(prompts, both):
        for cached in (True, False):
            alone = model.generate(torch.tensor([p]), use_cache=cached, **more)[0, len(p):]
            if alone.tolist() != row.tolist():
                return f"a padded batch goes on otherwise than alone (cache: {cached})"
    return ""


def check(name):
    switches, flags = CASES[name]
    program, bad = binary(switches), []
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, V, (N + 1) * T + 1)
    ids = torch.tensor(np.stack([tokens[i * T:i * T + T + 1] for i in range(N)]))
    with tempfile.TemporaryDirectory() as d:
        shards.write(d, tokens)
        out, saved = os.path.join(d, "m"), os.path.join(d, "saved")
        run(program, "train", "-o", os.path.join(d, "run"), *each_once(f"{SIZE} {flags}".split()))
        checkpoint = os.path.join(d, "run", "step_15")
        run(program, "export", checkpoint, "-o", out, *EXPORT)
        model = AutoModelForCausalLM.from_pretrained(out, trust_remote_code=True,
                                                     dtype=torch.float32).eval()
        ours = probe(program, checkpoint, d)
        with torch.no_grad():
            r = model(ids[:, :T], output_attentions=True)
        skip = max(model.model.c.prefix, 1) - 1
        loss = torch.nn.functional.cross_entropy(
            r.logits.double()[:, skip:].transpose(1, 2), ids[:, 1 + skip:]).item()
        far = {"loss": abs(loss - ours["probe_loss"]),
               "alpha": np.abs(alphas(model, r) - np.array(ours["alpha"])).max()}
        prompts = [tokens[at:at + n].tolist() for at, n in ((3, 9), (40, 4), (70, 12))]
        more = dict(do_sample=False, max_new_tokens=NEW, eos_token_id=None, pad_token_id=0)
        for p in prompts:
            theirs = model.generate(torch.tensor([p]), **more)[0, len(p):].tolist()
            mine = greedy(program, checkpoint, p)
            if theirs != mine[-NEW:]:
                bad.append(f"greedy {mine[-NEW:]} here, {theirs} there")
        bad.append(padded(model, prompts))
        model.save_pretrained(saved)
        for what, at in (("exported", out), ("saved again", saved)):
            again = probe(program, at, d)
            far[what] = max(abs(again["probe_loss"] - ours["probe_loss"]),
                            np.abs(np.array(again["alpha"]) - np.array(ours["alpha"])).max())
        bad += [f"{k} is {v:.2g} away" for k, v in far.items() if not v < 1e-5]
        worst = max(far["loss"], far["alpha"])
    return [b for b in bad if b], f"loss {loss:.4f}, {worst:.1e} away"


EXPORT = ["--to", "train_sink"]
if __name__ == "__main__":
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    tf.utils.logging.disable_progress_bar()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    wanted = [n for n in CASES if not sys.argv[1:] or any(n.startswith(w) for w in sys.argv[1:])]
    failed = 0
    for name in wanted:
        try:
            bad, told = check(name)
        except RuntimeError as e:
            bad, told = [str(e)], ""
        failed += bool(bad)
        print(f"{name:22s} {'; '.join(bad) or 'agrees'}   {told}", flush=True)
    print(f"{len(wanted) - failed} passed, {failed} failed")
    sys.exit(failed > 0)
