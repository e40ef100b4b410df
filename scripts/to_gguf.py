#!/usr/bin/env python3
"""A directory that `train_sink export` wrote as a file for llama.cpp.

    pip install gguf safetensors
    python3 scripts/to_gguf.py my-model my-model.gguf [--type f32|f16|bf16|q8_0]

Matrices are stored as --type (f16 where a row is no multiple of 32 and q8_0 is wanted), norms and
biases as f32. The families are those of ROWS. llama.cpp leaves some of a family out: a model that
has it, and any key of config.json that is not understood here, is an error that names it.
dev/peers/check_gguf.py compares the files with llama.cpp.
"""
import argparse
import atexit
import json
import os
import sys

PAIRS, ONE, SQUARE, GELU, TANH = "pairs", "plus-one", "square", ("gelu",), ("gelu_new", "gelu_pytorch_tanh")
# model_type: llama.cpp's name, its activation, what is done to tensors and wanted of the model
ROWS = {"llama": ("llama", ("silu",), (PAIRS,)), "granite": ("granite", ("silu",), (PAIRS,)),
        "smollm3": ("smollm3", ("silu",), (PAIRS,)), "qwen2": ("qwen2", ("silu",), (SQUARE,)),
        "qwen3": ("qwen3", ("silu",), ()), "olmo2": ("olmo2", ("silu",), (SQUARE, "untied")),
        "gemma": ("gemma", TANH, (ONE, "tied")), "gemma2": ("gemma2", TANH, (ONE, "tied")),
        "gemma3_text": ("gemma3", TANH, (ONE,)), "phi": ("phi2", TANH, (SQUARE, "untied")),
        "phi3": ("phi3", ("silu",), (SQUARE,)), "stablelm": ("stablelm", ("silu",), (SQUARE, "untied")),
        "gpt2": ("gpt2", TANH, ("turned",)), "gpt_neox": ("gptneox", GELU, ("thirds", "untied")),
        "bloom": ("bloom", (None,), ("thirds",)), "falcon": ("falcon", GELU, ("groups",))}
# how byte-level tokenizers split: the expression, are digits alone, is text brought to the form C
SPLITS = {(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+", False, False): "llama-bpe",
          (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+", False, True): "qwen2", ("", False, False): "gpt-2",
          ("", True, False): "smollm", ("", False, True): "olmo"}
HARMLESS = set("architectures model_type torch_dtype dtype train_sink use_cache initializer_range pad_token_id "
               "bos_token_id eos_token_id transformers_version attention_dropout resid_pdrop embd_pdrop "
               "attn_pdrop hidden_dropout attention_bias mlp_bias bias use_qkv_bias qkv_bias".split())


def die(what, hint="transformers opens every directory that export writes"):
    sys.exit(f"error: {what}\n---> HINT: {hint}")


class Keys:
    """config.json; a key that is taken by nobody is an error."""

    def __init__(self, path):
        self.c, self.taken = json.load(open(path, encoding="utf-8")), set(HARMLESS)

    def take(self, *names, otherwise=None):
        self.taken.update(names)
        return next((self.c[n] for n in names if self.c.get(n) is not None), otherwise)

    def only(self, name, *values):
        if self.take(name) not in (None, *values):
            die(f"{name} is {json.dumps(self.c[name])}, and llama.cpp computes "
                f"{' or '.join(map(json.dumps, values)) or 'nothing such'} in {self.c['model_type']}")


def write_keys(w, k, kind, wanted, np):
    """The keys of the model. Returns (heads, key heads, head size, tensors that follow from keys)."""
    L, NH = k.take("num_hidden_layers", "n_layer"), k.take("num_attention_heads", "n_head")
    C, T = k.take("hidden_size", "n_embd"), k.take("max_position_embeddings", "n_positions", "seq_length")
    newer, one = k.take("new_decoder_architecture"), k.take("multi_query")
    KV = k.take("num_key_value_heads", "num_kv_heads", otherwise=NH)
    KV = 1 if kind == "falcon" and one and not newer else KV
    HS = k.take("head_dim", otherwise=C // NH)
    square = {SQUARE, "thirds", "groups", "turned"} & set(wanted)
    if square and NH * HS != C:
        die(f"{NH} heads of {HS} do not fill the width {C}, and llama.cpp takes only such in {kind}")
    w.add_block_count(L), w.add_embedding_length(C), w.add_head_count(NH), w.add_head_count_kv(KV)
    w.add_feed_forward_length(k.take("intermediate_size", "n_inner", "ffn_hidden_size", otherwise=4 * C))
    w.add_context_length(T or 2048), w.add_vocab_size(k.take("vocab_size"))
    if not square:
        w.add_key_length(HS), w.add_value_length(HS)
    rms = k.take("rms_norm_eps")
    eps = k.take("layer_norm_eps", "layer_norm_epsilon", otherwise=1e-5)
    w.add_layer_norm_rms_eps(rms) if rms is not None else w.add_layer_norm_eps(eps)
    for key, put in (("attention_multiplier", w.add_attention_scale), ("logits_scaling", w.add_logit_scale),
                     ("embedding_multiplier", w.add_embedding_scale),
                     ("residual_multiplier", w.add_residual_scale)):
        if kind == "granite" and k.take(key) is not None:
            put(k.take(key))
    gemma = kind in ("gemma2", "gemma3_text")
    window, layers = k.take("sliding_window"), k.take("layer_types", otherwise=[])
    k.take("use_sliding_window", "max_window_layers", "no_rope_layer_interval")
    if gemma and window:
        every = 2 if kind == "gemma2" else 6
        w.add_sliding_window(window)
        if layers != [("full" if l % every == every - 1 else "sliding") + "_attention" for l in range(L)]:
            die(f"layer_types is {layers}, and llama.cpp has one of {every} layers without the window")
    elif "sliding_attention" in layers or (window and not layers and k.take("use_sliding_window") is not False):
        die(f"sliding_window is {window}, and llama.cpp leaves the window out in {kind}")
    if kind == "smollm3" and k.take("no_rope_layers") != [int(l % 4 != 3) for l in range(L)]:
        die("no_rope_layers: llama.cpp turns all but every fourth layer")
    if gemma:
        k.only("query_pre_attn_scalar", HS)
        k.only("rope_local_base_freq", *([10000.0] if kind == "gemma3_text" else []))
    if kind == "gemma2":
        w.add_attn_logit_softcapping(k.take("attn_logit_softcapping", otherwise=0.0))
        w.add_final_logit_softcapping(k.take("final_logit_softcapping", otherwise=0.0))
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        k.only(name, *([k.c.get(name)] if kind == "gemma2" else []))
    for name, values in (("qk_layernorm", [False]), ("alibi", [False]), ("parallel_attn", [True]),
                         ("apply_residual_connection_post_layernorm", [False]), ("num_ln_in_parallel_attn", [2]),
                         ("scale_attn_weights", [True]), ("scale_attn_by_inverse_layer_idx", [False])):
        k.only(name, *values)
    parallel = k.take("use_parallel_residual")
    if kind == "gpt_neox":
        w.add_parallel_residual(parallel is not False)
    elif parallel:
        die(f"use_parallel_residual is true, and it is written here for gpt_neox alone, not {kind}")
    if kind in ("gpt2", "bloom"):
        return NH, KV, HS, {}
    return NH, KV, HS, rope(w, k, kind, HS, np)


def rope(w, k, kind, HS, np):
    """The keys of positions, and LLaMA 3's divisors as a tensor."""
    given = k.take("rope_parameters", "rope_scaling", otherwise={})
    base = k.take("rope_theta", "rotary_emb_base", otherwise=given.get("rope_theta", 10000.0))
    turned = int(HS * k.take("partial_rotary_factor", "rotary_pct", otherwise=1.0)) // 2 * 2
    w.add_rope_freq_base(base), w.add_rope_dimension_count(turned)
    how, factor = given.get("rope_type", given.get("type", "default")), given.get("factor", 1.0)
    if how in ("default", "none"):
        return {}
    context = given.get("original_max_position_embeddings")
    plain = given.get("beta_fast", 32) == 32 and given.get("beta_slow", 1) == 1 and given.get("truncate", 1)
    if how == "linear" or (how == "yarn" and plain and "attention_factor" not in given):
        w.add_string(f"{w.arch}.rope.scaling.type", how), w.add_rope_scaling_factor(factor)
        if how == "yarn":
            w.add_rope_scaling_orig_ctx_len(context)
        return {}
    if how != "llama3" or kind != "llama":
        die(f"rope_scaling is {json.dumps(given)}, and llama.cpp has none such in {kind}")
    w.add_rope_scaling_orig_ctx_len(context)
    turns = context * base ** (-np.arange(0, turned, 2) / turned) / (2 * np.pi)
    low, high = given["low_freq_factor"], given["high_freq_factor"]
    keep = np.clip((turns - low) / (high - low), 0, 1)
    return {"rope_freqs.weight": (1 / (keep + (1 - keep) / factor)).astype(np.float32)}


def laid_out(name, x, wanted, NH, KV, HS):
    """A tensor as llama.cpp has it."""
    rows = lambda *shape: x.reshape(*shape, *x.shape[1:])
    if PAIRS in wanted and (".q_proj." in name or ".k_proj." in name):
        return rows(NH if ".q_proj." in name else KV, 2, HS // 2).swapaxes(1, 2).reshape(x.shape)
    if ONE in wanted and name.endswith("norm.weight"):
        return x + 1
    if "turned" in wanted and x.ndim == 2 and ".h." in "." + name:
        return x.T
    if "thirds" in wanted and "query_key_value" in name:
        return rows(NH, 3, HS).swapaxes(0, 1).reshape(x.shape)
    if "groups" in wanted and "query_key_value" in name:
        each = rows(KV, NH // KV + 2, HS)
        import numpy as np
        return np.concatenate([each[:, a:b].reshape(-1, *x.shape[1:]) for a, b in ((0, -2), (-2, -1), (-1, None))])
    return x


def write_tokens(w, d, k, gguf):
    """The vocabulary, from tokenizer.json."""
    path, V = f"{d}/tokenizer.json", k.take("vocab_size")
    if not os.path.exists(path):
        w.add_tokenizer_model("no_vocab")
        return
    t, kinds = json.load(open(path, encoding="utf-8")), gguf.TokenType
    pre, post, model = t.get("pre_tokenizer") or {}, t.get("post_processor") or {}, t["model"]
    steps, vocab = pre.get("pretokenizers", [pre]), model["vocab"]
    types = {s.get("type") for s in steps}
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    text, kind = [f"[PAD{i}]" for i in range(V)], [kinds.UNUSED] * V
    for word, i in vocab.items():
        byte = len(word) == 6 and word.startswith("<0x") and model.get("byte_fallback")
        text[i], kind[i] = word, kinds.BYTE if byte else kinds.NORMAL
    for a in t.get("added_tokens", []):
        text[a["id"]], kind[a["id"]] = a["content"], kinds.CONTROL if a["special"] else kinds.USER_DEFINED
    if model.get("unk_token") in vocab:
        kind[vocab[model["unk_token"]]] = kinds.UNKNOWN
    if "ByteLevel" in types:
        expression = "".join(s["pattern"].get("Regex", "?") for s in steps if s.get("type") == "Split")
        form = (t.get("normalizer") or {"type": ""})["type"]
        split = SPLITS.get((expression, "Digits" in types, form == "NFC"))
        known = split and form in ("", "NFC")
        if not known or (split == "llama-bpe") != bool(model.get("ignore_merges")):
            die("tokenizer.json splits text in a way that llama.cpp has no name for here")
        w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre(split)
        w.add_token_merges(merges or ["[PAD] [PAD]"])          # llama.cpp wants one: this never applies
    elif model.get("byte_fallback"):
        scores, last = [0.0] * V, None
        for rank, merge in enumerate(merges):
            made = vocab[merge.replace(" ", "")]
            if scores[made] and made != last:
                die("tokenizer.json: its merges have no order by token")
            scores[made], last = scores[made] if made == last else -float(rank + 1), made
        w.add_tokenizer_model("llama"), w.add_token_scores(scores)
        w.add_add_space_prefix("Prepend" in json.dumps(t.get("normalizer")))
    else:
        die("tokenizer.json is neither of bytes nor as LLaMA 2's")
    w.add_token_list(text), w.add_token_types(kind)
    single = post.get("single") or [s for p in post.get("processors", []) for s in p.get("single", [])]
    w.add_add_bos_token(bool(single) and "SpecialToken" in single[0])
    w.add_add_eos_token(bool(single) and "SpecialToken" in single[-1])
    for name, put in (("bos_token_id", w.add_bos_token_id), ("eos_token_id", w.add_eos_token_id)):
        if k.take(name) is not None:
            put(k.take(name))
    template = gguf.SpecialVocab(d, load_merges=False, special_token_types=()).chat_template
    if template:
        w.add_chat_template(template)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory"), parser.add_argument("file")
    parser.add_argument("--type", default="f32", choices=["f32", "f16", "bf16", "q8_0"])
    o = parser.parse_args()
    try:
        import gguf
        import numpy as np
        from safetensors.numpy import load_file
    except ImportError as e:
        die(str(e), "pip install gguf safetensors")
    if os.path.exists(o.file):
        die(f"{o.file!r}: already exists, wanted a new file", "choose another name")
    if not os.access(os.path.dirname(o.file) or ".", os.W_OK):
        die(f"{o.file!r}: its folder cannot be written", "choose another")
    k = Keys(f"{o.directory}/config.json")
    kind = k.c.get("model_type")
    if kind not in ROWS:
        die(f"model_type is {kind}, wanted one that llama.cpp computes: {', '.join(ROWS)}")
    arch, acts, wanted = ROWS[kind]
    tied = k.take("tie_word_embeddings", otherwise=True)
    if ("tied" if not tied else "untied") in wanted:
        die(f"tie_word_embeddings is {json.dumps(tied)}, and llama.cpp takes the other alone in {kind}")
    if k.take("hidden_activation", "hidden_act", "activation_function", "activation") not in acts:
        die(f"its activation is not {' or '.join(map(str, acts))}, which llama.cpp computes in {kind}")
    atexit.register(lambda: os.path.exists(o.file + ".tmp") and os.remove(o.file + ".tmp"))
    w = gguf.GGUFWriter(o.file + ".tmp", arch)
    NH, KV, HS, made = write_keys(w, k, kind, wanted, np)
    write_tokens(w, o.directory, k, gguf)
    unread = [name for name in k.c if name not in k.taken and not name.startswith("_")]
    if unread:
        die(f"config.json: {unread[0]} is not understood, and may change what the model computes")
    L = k.take("num_hidden_layers", "n_layer")
    names = gguf.get_tensor_name_map(next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == arch), L)
    other = 0
    for name, x in {**load_file(f"{o.directory}/model.safetensors"), **made}.items():
        theirs = name if name in made else names.get_name(name, try_suffixes=(".weight", ".bias"))
        if not theirs:
            die(f"the tensor {name} has no place in llama.cpp's {arch}")
        x = np.ascontiguousarray(laid_out(name, x.astype(np.float32), wanted, NH, KV, HS))
        plain = x.ndim == 1 or theirs == "position_embd.weight"
        whole = o.type != "q8_0" or x.shape[-1] % 32 == 0
        stored = gguf.GGMLQuantizationType[("F32" if plain else o.type if whole else "F16").upper()]
        other += not plain and not whole
        w.add_tensor(theirs, gguf.quants.quantize(x, stored), raw_dtype=stored)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    os.replace(o.file + ".tmp", o.file)
    print(f"wrote  {o.file!r}: {o.type}, for llama.cpp's {arch}")
    if other:
        print(f"       {other} tensors are f16: their rows are not a multiple of 32 numbers")


if __name__ == "__main__":
    main()
