"""The families of GGUF_MODELS as GGUF files, from the small models in test/open/families:
names by gguf-py's own table, rows as llama.cpp's converter lays them out.
Where transformers reads such files, its tensors must be those that went in, bit for bit.

    python3 dev/make/make_gguf_families.py   writes test/open/families/NAME/model.gguf
                                        (needs gguf, torch, transformers)

test/open/test_families.cpp then wants the same answers of the file as of the directory.
LLaMA's are in test/open/test_gguf.cpp; Gemma 2's and BLOOM's need other builds:
dev/peers/check_families.py writes them, and the others again in other shapes.
Gemma 3's small model has a window pattern and a scale of scores that its GGUF files cannot say.
"""
import json, os, re, sys
import gguf, numpy as np
from safetensors.numpy import load_file

ARCHS = {"qwen2": "QWEN2", "qwen3": "QWEN3", "gemma": "GEMMA", "olmo2": "OLMO2",
         "phi": "PHI2", "phi3": "PHI3", "stablelm": "STABLELM", "gpt2": "GPT2",
         "gpt_neox": "GPTNEOX", "falcon_7b": "FALCON",
         "falcon_40b": "FALCON", "gemma2_gguf": "GEMMA2", "bloom": "BLOOM",
         "mixtral": "LLAMA", "qwen2_moe": "QWEN2MOE", "qwen3_moe_norm": "QWEN3MOE",
         "gpt_oss": "GPT_OSS", "granite": "GRANITE"}


def first(config, *names):
    """the first of these keys that is there"""
    for name in names:
        if config.get(name) is not None:
            return config[name]


def stacked(x, groups, of_group, size):
    """q, k, v of each group of heads, of_group of q, one of k, one of v -> all q, all k, all v"""
    x = x.reshape(groups, of_group + 2, size, *x.shape[1:])
    parts = x[:, :of_group], x[:, of_group:of_group + 1], x[:, of_group + 1:]
    return np.concatenate([p.reshape(-1, *x.shape[3:]) for p in parts])


def halves(x, heads):
    """rows of q or k as llama.cpp keeps LLaMA's: rotary pairs side by side"""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(x.shape)


def with_experts(tensors):
    """tensors with those of experts under the file's names, all experts of a layer as one"""
    parts, out = {}, {}
    kinds = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down",
             "up_proj": "up"}
    for tensor, x in tensors.items():
        layer = tensor.split(".")[2] if ".layers." in tensor else ""
        one = re.search(r"experts\.(\d+)\.(\w+)\.weight$", tensor)
        end = "bias" if tensor.endswith("bias") else "weight"
        turned = x.swapaxes(-1, -2) if end == "weight" and x.ndim == 3 else x
        if one:
            parts.setdefault(f"blk.{layer}.ffn_{kinds[one[2]]}_exps.weight", {})[int(one[1])] = x
        elif "experts.gate_up_proj" in tensor:               # gpt-oss: [experts, in, out], in turn
            out[f"blk.{layer}.ffn_gate_exps.{end}"] = turned[:, 0::2]
            out[f"blk.{layer}.ffn_up_exps.{end}"] = turned[:, 1::2]
        elif "experts.down_proj" in tensor:
            out[f"blk.{layer}.ffn_down_exps.{end}"] = turned
        elif tensor.endswith("self_attn.sinks"):
            out[f"blk.{layer}.attn_sinks.weight"] = x
        elif tensor.endswith("shared_expert_gate.weight"):
            out[f"blk.{layer}.ffn_gate_inp_shexp.weight"] = x.reshape(-1)
        else:
            out[tensor] = x
    out.update({k: np.stack([v[e] for e in sorted(v)]) for k, v in parts.items()})
    return out


def write(name, directory):
    arch = getattr(gguf.MODEL_ARCH, ARCHS[name])
    config = json.load(open(os.path.join(directory, "config.json")))
    heads = first(config, "num_attention_heads", "n_head")
    width, layers = first(config, "hidden_size", "n_embd"), first(config,
                                                                  "num_hidden_layers", "n_layer")
    kv = first(config, "num_kv_heads", "num_key_value_heads") or heads
    if name == "falcon_7b":
        kv = 1
    size = config.get("head_dim") or width // heads
    rope = first(config, "rope_parameters", "rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    w = gguf.GGUFWriter(os.path.join(directory, "model.gguf"), gguf.MODEL_ARCH_NAMES[arch])
    w.add_block_count(layers)
    w.add_embedding_length(width)
    w.add_context_length(first(config, "max_position_embeddings", "n_positions") or 2048)
    w.add_feed_forward_length(first(config, "intermediate_size", "n_inner", "ffn_hidden_size")
                              or 4 * width)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    rms = config.get("rms_norm_eps")
    if rms:
        w.add_layer_norm_rms_eps(rms)
    else:
        w.add_layer_norm_eps(first(config, "layer_norm_eps", "layer_norm_epsilon"))
    if config.get("head_dim"):
        w.add_key_length(size)
        w.add_value_length(size)
    theta = first(rope, "rope_theta") or first(config, "rope_theta", "rotary_emb_base")
    if theta:
        w.add_rope_freq_base(theta)
    part = first(rope, "partial_rotary_factor") or first(config,
                                                         "partial_rotary_factor", "rotary_pct")
    if part:
        w.add_rope_dimension_count(int(part * size))
    if "use_parallel_residual" in config and arch in (gguf.MODEL_ARCH.GPTNEOX,
                                                      gguf.MODEL_ARCH.STABLELM):
        w.add_parallel_residual(config["use_parallel_residual"])
    if config.get("sliding_window") and name in ("phi3", "mixtral"):
        w.add_sliding_window(config["sliding_window"])
    if name == "phi3":
        w.add_rope_scaling_orig_ctx_len(config["max_position_embeddings"])
    if name.startswith("gemma2"):
        w.add_sliding_window(config["sliding_window"])
        w.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        w.add_final_logit_softcapping(config["final_logit_softcapping"])
    experts = first(config, "num_local_experts", "num_experts")
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(config["num_experts_per_tok"])
    if config.get("moe_intermediate_size"):
        w.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if name.startswith("gpt_oss"):
        w.add_sliding_window(config["sliding_window"])
        w.add_expert_feed_forward_length(config["intermediate_size"])
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if name == "granite":
        w.add_attention_scale(config["attention_multiplier"])
        w.add_embedding_scale(config["embedding_multiplier"])
        w.add_residual_scale(config["residual_multiplier"])
        w.add_logit_scale(config["logits_scaling"])
    w.add_vocab_size(config["vocab_size"])
    names = gguf.get_tensor_name_map(arch, layers)
    tensors = load_file(os.path.join(directory, "model.safetensors"))
    for tensor, x in with_experts(tensors).items():
        if tensor.startswith("blk."):
            w.add_tensor(tensor, np.ascontiguousarray(x, np.float32))
            continue
        new = names.get_name(tensor, try_suffixes=(".weight", ".bias"))
        new = new or names.get_name(tensor.replace("transformer.", "", 1),
                                    try_suffixes=(".weight", ".bias"))
        new = new or names.get_name("transformer." + tensor, try_suffixes=(".weight", ".bias"))
        if not new:
            sys.exit(f"{name}: gguf-py has no name for {tensor}")
        if "query_key_value" in tensor:
            x = stacked(x, kv, heads // kv, size)
        if name in ("mixtral", "granite") and re.search(r"[qk]_proj", tensor):
            x = halves(x, kv if "k_proj" in tensor else heads)
        if name == "gpt2" and x.ndim == 2 and "blk" in new:
            x = x.T
        if name.startswith("gemma") and "norm" in new:
            x = x + 1
        w.add_tensor(new, np.ascontiguousarray(x, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def witness(name, directory):
    """do transformers read these files as the weights that they were made of? None if it
    does not know the family"""
    import torch, transformers as tf
    model = tf.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    try:
        again = tf.AutoModelForCausalLM.from_pretrained(directory, gguf_file="model.gguf",
                                                        dtype=torch.float32)
    except Exception as e:
        return f"not read by transformers ({str(e).splitlines()[0][:60]})"
    theirs = again.state_dict()
    far = [k for k, v in model.state_dict().items() if k not in theirs
           or (theirs[k] - v).abs().max() > 1e-6]
    return f"transformers reads {len(theirs)} tensors, {len(far)} of them otherwise {far[:3]}"


if __name__ == "__main__":
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "test", "families")
    for name in sys.argv[1:] or [n for n in ARCHS if os.path.isdir(os.path.join(root, n))]:
        write(name, os.path.join(root, name))
        print(f"{name:14s} {witness(name, os.path.join(root, name))}", flush=True)
