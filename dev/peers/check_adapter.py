"""Does --adapter compute what peft computes? Small random models of several families get LoRA
adapters with random A and B, saved by peft: by target modules, r and alpha of each module, rslora,
the embedding, GPT-2's turned matrices, and a merged GGUF. Loss and alpha_1..10 of every head against
the model with its adapter in transformers (1e-5).

    python3 dev/peers/check_adapter.py BINARY [NAME..]     (needs torch, transformers, peft, numpy)
    python3 dev/peers/check_adapter.py --save DIR          a small one with its answer, for
                                                           test/test_adapter.cpp
"""
import json, os, subprocess, sys, tempfile
import numpy as np, torch, transformers as tf
from peft import LoraConfig, get_peft_model

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
import check_families, shards
from check_families import CASES, N, T, V, make, probe, reference
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ALL = ATTENTION + ["gate_proj", "up_proj", "down_proj"]
# name: (case of check_families, arguments of LoraConfig)
ADAPTERS = {
    "plain": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "all": ("llama", dict(r=3, lora_alpha=7, target_modules=ALL)),
    "rslora": ("qwen2", dict(r=4, lora_alpha=8, use_rslora=True, target_modules=ATTENTION)),
    "patterns": ("mistral", dict(
        r=4, lora_alpha=8, target_modules=ALL, rank_pattern={"q_proj": 2, "layers.1.mlp.up_proj": 6},
        alpha_pattern={"v_proj": 3, r".*layers\.(0|2)\.mlp\.down_proj": 5, "q_proj": 1})),
    "expression": ("qwen3", dict(r=4, target_modules=r".*\.(q_proj|o_proj)",
                                 layers_to_transform=None)),
    "layers": ("llama", dict(r=4, target_modules=["up_proj"], layers_to_transform=[0, 2])),
    "linear": ("llama", dict(r=2, target_modules="all-linear")),
    "head": ("llama", dict(r=2, target_modules=["lm_head", "q_proj"])),
    "embedding": ("llama", dict(r=2, target_modules=["embed_tokens", "q_proj"])),
    "gpt2": ("gpt2", dict(r=4, lora_alpha=9, target_modules=["c_attn", "c_proj", "c_fc"],
                          fan_in_fan_out=True)),
    "gpt_neox": ("gpt_neox", dict(r=4, target_modules=["query_key_value", "dense"])),
    "phi3": ("phi3", dict(r=4, target_modules=["qkv_proj", "gate_up_proj", "down_proj"])),
    "gemma": ("gemma", dict(r=4, target_modules=ALL)),
    "opt": ("opt", dict(r=4, target_modules=["q_proj", "fc1", "fc2"])),
    "falcon": ("falcon_7b", dict(r=4, target_modules=["query_key_value"])),
}


def adapted(base, arguments, at):
    """a model with a random adapter, and both saved"""
    kind, shape, _ = CASES[base]
    model = make(kind(**shape))
    model.save_pretrained(os.path.join(at, "base"))
    return wrapped(model, arguments, at)


def wrapped(model, arguments, at):
    with_lora = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **arguments)).eval()
    torch.manual_seed(5)
    with torch.no_grad():
        for name, p in with_lora.named_parameters():
            if "lora_" in name:
                p.copy_(torch.randn_like(p) * 0.3)
    with_lora.save_pretrained(os.path.join(at, "adapter"))
    return with_lora


def sequences(vocabulary):
    tokens = np.random.default_rng(1).integers(0, vocabulary, (N + 1) * T + 1)
    return tokens, torch.tensor(np.stack([tokens[i * T:i * T + T + 1] for i in range(N)]))


def check(name, binary):
    base, arguments = ADAPTERS[name]
    tokens, ids = sequences(V)
    with tempfile.TemporaryDirectory() as d:
        model = adapted(base, arguments, d)
        shards.write(d, tokens)
        loss, alpha, _, _ = reference(model, ids)
        out = os.path.join(d, "p.json")
        r = subprocess.run([binary, "probe", os.path.join(d, "base"), "-d", d, "--probe-len", str(T),
                            "--probe-seqs", str(N), "--per-sequence", "--json", out, "--adapter",
                            os.path.join(d, "adapter")], capture_output=True, text=True)
        if r.returncode:
            return [r.stderr.strip().splitlines()[0]], ""
        ours = json.load(open(out))
        plain = probe(binary, os.path.join(d, "base"), d)[1]
    far = {"loss": abs(loss - ours["probe_loss"]), "alpha": np.abs(alpha - ours["alpha"]).max()}
    bad = [f"{k} is {v:.2g} away" for k, v in far.items() if not v < 1e-5]
    if abs(plain["probe_loss"] - loss) < 1e-3:
        bad.append("the adapter changes nothing")
    return bad, f"loss {loss:.4f} for {plain['probe_loss']:.4f}, {max(far.values()):.1e} away"


def save(at):
    """llama_yarn of test/open/families, with an adapter and transformers' answer"""
    model = tf.AutoModelForCausalLM.from_pretrained(
        os.path.join(ROOT, "test", "families", "llama_yarn"), attn_implementation="eager",
        dtype=torch.float32).eval()
    arguments = dict(r=2, lora_alpha=5, use_rslora=True, target_modules=ALL,
                     rank_pattern={"k_proj": 3}, alpha_pattern={"layers.1.mlp.up_proj": 2})
    lora = wrapped(model, arguments, at)
    loss, alpha, _, _ = reference(lora, sequences(29)[1])
    answer = {"loss": loss, "alpha": alpha.round(8).reshape(-1).tolist()}
    json.dump(answer, open(os.path.join(at, "adapter", "answer.json"), "w"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    if sys.argv[1] == "--save":
        sys.exit(save(sys.argv[2]))
    binary, failed = sys.argv[1], 0
    wanted = sys.argv[2:] or list(ADAPTERS)
    for name in wanted:
        bad, told = check(name, binary)
        failed += bool(bad)
        print(f"{name:12s} {'; '.join(bad) or 'agrees'}   {told}", flush=True)
    print(f"{len(wanted) - failed} passed, {failed} failed")
    sys.exit(failed > 0)
