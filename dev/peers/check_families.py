"""Does train_sink compute what transformers computes, for every family that it opens? Tiny
random models in unfriendly shapes are saved by transformers and probed by ./train_sink:
loss, alpha_1..10 of every head, norms of h, k and v. Then each config is changed where it
must not be taken in silence: an unknown activation, an unknown rope type, a key nobody knows.
And the other way: what `export` writes of it opens in transformers as the same class, with the
same tensors to the bit and the same loss.
Where make_gguf_families.py can write the model as a GGUF file, that has to answer the same.

    python3 dev/peers/check_families.py --save DIR [NAME..]
                    smaller ones with their answers: test/open/families, gpt_oss in test/open/experts,
                    those of PE=alibi in test/open/alibi
    python3 dev/peers/check_families.py BINARY [NAME..]
                    BINARY-softcap, -alibi and -logit, beside it, are the builds
                    ATTN=softcap, PE=alibi, BIAS=logit (needs torch, transformers, numpy)
"""
import json, os, shutil, subprocess, sys, tempfile
import numpy as np, torch, transformers as tf
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "make"))
import make_gguf_families, shards
from builds import read_only

T, N, V, STEP = 33, 4, 101, 16
BASE = dict(vocab_size=V, hidden_size=24, intermediate_size=40, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
GPT = dict(vocab_size=V, n_embd=24, n_layer=3, n_head=4, n_positions=64)
QWEN3_MOE = dict(BASE, head_dim=10, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=20)
QWEN2_MOE = dict(BASE, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=20,
                 shared_expert_intermediate_size=28)
QWEN3_NEXT = dict(QWEN2_MOE, head_dim=16, num_hidden_layers=5, linear_num_key_heads=2,
                  linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=8,
                  linear_conv_kernel_dim=3, partial_rotary_factor=0.5)
QWEN3_5 = {k: v for k, v in QWEN3_NEXT.items()
           if "expert" not in k and k not in ("moe_intermediate_size", "partial_rotary_factor")}
OPT = dict(vocab_size=V, hidden_size=24, ffn_dim=40, num_hidden_layers=3, num_attention_heads=4,
           max_position_embeddings=64)
FALCON = dict(vocab_size=V, hidden_size=24, num_hidden_layers=3, num_attention_heads=4)
MPT = dict(vocab_size=V, d_model=24, n_layers=3, n_heads=4, max_seq_len=64)
FLAT = {k: v for k, v in BASE.items() if k != "num_key_value_heads"}
rope = lambda **k: dict(rope_parameters=dict(rope_theta=5000.0, **k))
# name: (class of the config, its arguments, suffix of the binary)
CASES = {
    "llama": (tf.LlamaConfig, BASE, ""),
    "llama_tied": (tf.LlamaConfig, dict(BASE, tie_word_embeddings=True, head_dim=8), ""),
    "llama_bias": (tf.LlamaConfig, dict(BASE, attention_bias=True, mlp_bias=True), ""),
    "llama_linear": (tf.LlamaConfig, dict(BASE, **rope(rope_type="linear", factor=4.0)), ""),
    "llama_llama3": (tf.LlamaConfig,
                     dict(BASE, **rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                       high_freq_factor=4.0, original_max_position_embeddings=16)),
                     ""),
    "llama_yarn": (tf.LlamaConfig,
                   dict(BASE, **rope(rope_type="yarn", factor=4.0,
                                     original_max_position_embeddings=16)), ""),
    "mistral": (tf.MistralConfig, dict(BASE, sliding_window=9), ""),
    "mistral_full": (tf.MistralConfig, dict(BASE, sliding_window=None), ""),
    "ministral3": (tf.Ministral3Config, dict(
        BASE, head_dim=10, rope_parameters=dict(
            rope_type="yarn", rope_theta=5000.0, factor=4.0, original_max_position_embeddings=40,
            max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
            mscale_all_dim=1.0, llama_4_scaling_beta=0.1)), ""),
    "smollm3": (tf.SmolLM3Config, dict(BASE, num_hidden_layers=5, pad_token_id=0), ""),
    "qwen2": (tf.Qwen2Config, BASE, ""),
    "qwen2_window": (tf.Qwen2Config, dict(BASE, use_sliding_window=True, sliding_window=7,
                                          max_window_layers=1), ""),
    "qwen3": (tf.Qwen3Config, dict(BASE, head_dim=10), ""),
    "gemma": (tf.GemmaConfig, dict(BASE, head_dim=10), ""),
    "gemma2": (tf.Gemma2Config, dict(BASE, head_dim=10, sliding_window=9,
                                     query_pre_attn_scalar=13), "-softcap"),
    "gemma2_gguf": (tf.Gemma2Config, dict(BASE, head_dim=10, sliding_window=9,
                                          query_pre_attn_scalar=10), "-softcap"),
    "gemma3": (tf.Gemma3TextConfig, dict(BASE, head_dim=10, sliding_window=9, num_hidden_layers=7,
                                         query_pre_attn_scalar=13), ""),
    "gemma3_llama3": (tf.Gemma3TextConfig,  # a context of its own, in the object of a layer type
                      dict(BASE, head_dim=10, sliding_window=9, rope_parameters=dict(
                          full_attention=dict(rope_theta=5000.0, rope_type="llama3", factor=8.0,
                                              low_freq_factor=1.0, high_freq_factor=4.0,
                                              original_max_position_embeddings=16),
                          sliding_attention=dict(rope_type="default", rope_theta=300.0))), ""),
    "olmo2": (tf.Olmo2Config, BASE, ""),
    "olmo": (tf.OlmoConfig, BASE, ""),
    "olmo_tied": (tf.OlmoConfig, dict(BASE, tie_word_embeddings=True, attention_bias=True), ""),
    "olmo3": (tf.Olmo3Config, dict(BASE, num_hidden_layers=5, sliding_window=9), ""),
    "olmo3_yarn": (tf.Olmo3Config, dict(  # layers with a window keep plain positions
        BASE, num_hidden_layers=4, sliding_window=9, attention_bias=True,
        rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=5000.0),
            full_attention=dict(rope_type="yarn", rope_theta=5000.0, factor=4.0,
                                original_max_position_embeddings=16))), ""),
    "olmoe": (tf.OlmoeConfig, dict(BASE, num_experts=5, num_experts_per_tok=3), ""),
    "olmoe_norm": (tf.OlmoeConfig, dict(BASE, num_experts=5, num_experts_per_tok=2,
                                        norm_topk_prob=True), ""),
    "exaone4": (tf.Exaone4Config, dict(BASE, num_hidden_layers=5, sliding_window=9), ""),
    "exaone4_full": (tf.Exaone4Config, dict(
        BASE, sliding_window=None, head_dim=10, layer_types=["full_attention"] * 3), ""),
    "glm": (tf.GlmConfig, dict(BASE, head_dim=12, pad_token_id=0), ""),
    "glm4": (tf.Glm4Config, dict(BASE, head_dim=12, pad_token_id=0), ""),
    "glm4_plain": (tf.Glm4Config, dict(BASE, head_dim=8, pad_token_id=0, attention_bias=False,
                                       **rope(rope_type="default", partial_rotary_factor=1.0)), ""),
    "cohere": (tf.CohereConfig, dict(BASE, pad_token_id=0), ""),
    "cohere_untied": (tf.CohereConfig, dict(BASE, pad_token_id=0, logit_scale=0.8333,
                                            attention_bias=True, tie_word_embeddings=False), ""),
    "cohere2": (tf.Cohere2Config, dict(BASE, num_hidden_layers=5, sliding_window=9,
                                       pad_token_id=0, logit_scale=0.25), ""),
    "nemotron": (tf.NemotronConfig, dict(BASE, hidden_size=32), ""),
    "nemotron_bias": (tf.NemotronConfig, dict(BASE, head_dim=8, mlp_bias=True,
                                              attention_bias=True), ""),
    "arcee": (tf.ArceeConfig, BASE, ""),
    "helium": (tf.HeliumConfig, dict(BASE, head_dim=6), ""),
    "helium_bias": (tf.HeliumConfig, dict(BASE, head_dim=6, attention_bias=True, mlp_bias=True),
                    ""),
    "seed_oss": (tf.SeedOssConfig, dict(BASE, head_dim=10), ""),
    "seed_oss_out": (tf.SeedOssConfig, dict(BASE, head_dim=10, attention_bias=False,
                                            attention_out_bias=True, mlp_bias=True), ""),
    "starcoder2": (tf.Starcoder2Config, dict(BASE, sliding_window=9), ""),
    "starcoder2_plain": (tf.Starcoder2Config, dict(BASE, use_bias=False,
                                                   tie_word_embeddings=False), ""),
    "nanochat": (tf.NanoChatConfig, BASE, ""),
    "mixtral": (tf.MixtralConfig, dict(BASE, num_local_experts=5, num_experts_per_tok=2,
                                       sliding_window=9), ""),
    "qwen3_moe": (tf.Qwen3MoeConfig, dict(QWEN3_MOE, norm_topk_prob=False), ""),
    "qwen3_moe_norm": (tf.Qwen3MoeConfig, dict(QWEN3_MOE, norm_topk_prob=True), ""),
    "qwen2_moe": (tf.Qwen2MoeConfig, dict(QWEN2_MOE, norm_topk_prob=False), ""),
    "qwen2_moe_norm": (tf.Qwen2MoeConfig,
                       dict(QWEN2_MOE, norm_topk_prob=True, qkv_bias=False, use_sliding_window=True,
                            sliding_window=7, max_window_layers=2), ""),
    "qwen3_next": (tf.Qwen3NextConfig, QWEN3_NEXT, ""),
    "qwen3_next_3": (tf.Qwen3NextConfig,
                     dict(QWEN3_NEXT, num_hidden_layers=3, linear_num_key_heads=1,
                          linear_num_value_heads=3, linear_key_head_dim=10, norm_topk_prob=False,
                          layer_types=["full_attention", "linear_attention", "full_attention"]),
                     ""),
    "qwen3_5": (tf.Qwen3_5TextConfig, QWEN3_5, ""),
    "qwen3_5_tied": (tf.Qwen3_5TextConfig,
                     dict(QWEN3_5, num_hidden_layers=3, linear_num_key_heads=1,
                          linear_num_value_heads=3, tie_word_embeddings=True, layer_types=[
                              "full_attention", "linear_attention", "full_attention"]), ""),
    "qwen3_5_moe": (tf.Qwen3_5MoeTextConfig,
                    dict(QWEN3_5, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=20,
                         shared_expert_intermediate_size=28), ""),
    "jamba": (tf.JambaConfig,
              dict(BASE, num_hidden_layers=6, attn_layer_period=3, attn_layer_offset=1,
                   num_experts=5, num_experts_per_tok=2, mamba_d_state=6, mamba_d_conv=3,
                   mamba_dt_rank=5, use_mamba_kernels=False, pad_token_id=0), ""),
    "jamba_dense": (tf.JambaConfig,
                    dict(BASE, num_hidden_layers=5, attn_layer_period=4, attn_layer_offset=2,
                         num_experts=1, mamba_expand=3, use_mamba_kernels=False, pad_token_id=0),
                    ""),
    "gpt_oss": (tf.GptOssConfig,
                dict(BASE, head_dim=10, num_local_experts=5, num_experts_per_tok=2,
                     sliding_window=9,
                     rope_parameters=dict(rope_theta=5000.0, rope_type="yarn", factor=4.0,
                                          original_max_position_embeddings=16, truncate=False)),
                "-logit"),
    "gpt_oss_mxfp4": (tf.GptOssConfig,
                      dict(BASE, hidden_size=64, intermediate_size=32, head_dim=10,
                           num_local_experts=3, num_experts_per_tok=2, sliding_window=9), "-logit"),
    "phi3": (tf.Phi3Config, dict(BASE, pad_token_id=0, sliding_window=9), ""),
    "phi3_part": (tf.Phi3Config, dict(BASE, pad_token_id=0, hidden_size=32,
                                      **rope(rope_type="default", partial_rotary_factor=0.75)), ""),
    "phi3_longrope": (tf.Phi3Config, dict(  # of 12 channels, 9 turn in 4 pairs
        BASE, pad_token_id=0, hidden_size=48, max_position_embeddings=256,
        original_max_position_embeddings=64,
        **rope(rope_type="longrope", partial_rotary_factor=0.67, short_factor=[1.0, 1.5, 2.25, 3.0],
               long_factor=[1.0, 4.0, 9.0, 16.0])), ""),
    "llama_longrope": (tf.LlamaConfig, dict(
        BASE, max_position_embeddings=256,
        **rope(rope_type="longrope", factor=2.0, attention_factor=1.25,
               original_max_position_embeddings=64, short_factor=[1.0, 1.5, 2.0],
               long_factor=[1.0, 4.0, 9.0])), ""),
    "llama_dynamic": (tf.LlamaConfig, dict(BASE, **rope(rope_type="dynamic", factor=4.0)), ""),
    "stablelm": (tf.StableLmConfig, dict(BASE, use_qkv_bias=True, hidden_size=32), ""),
    "gpt2": (tf.GPT2Config, GPT, ""),
    "gpt2_untied": (tf.GPT2Config, dict(GPT, tie_word_embeddings=False), ""),
    "gpt_neo": (tf.GPTNeoConfig,
                dict(vocab_size=V, hidden_size=24, num_layers=4, num_heads=4,
                     max_position_embeddings=64,
                     attention_types=[[["global", "local"], 2]], window_size=9), ""),
    "opt": (tf.OPTConfig, dict(OPT, word_embed_proj_dim=24), ""),
    "opt_untied": (tf.OPTConfig, dict(OPT, word_embed_proj_dim=24, tie_word_embeddings=False), ""),
    "opt_350m": (tf.OPTConfig, dict(OPT, word_embed_proj_dim=12, do_layer_norm_before=False), ""),
    "gpt_neox": (tf.GPTNeoXConfig, dict(FLAT, hidden_size=64), ""),
    "gpt_neox_serial": (tf.GPTNeoXConfig, dict(FLAT, hidden_size=64,
                                               use_parallel_residual=False), ""),
    "gptj": (tf.GPTJConfig, dict(GPT, n_embd=40, rotary_dim=6), ""),
    "gptj_whole": (tf.GPTJConfig, dict(GPT, rotary_dim=6, n_inner=20), ""),
    "ernie4_5": (tf.Ernie4_5Config, dict(BASE, head_dim=10), ""),
    "ernie4_5_bias": (tf.Ernie4_5Config, dict(BASE, head_dim=8, use_bias=True,
                                              tie_word_embeddings=False), ""),
    "phi": (tf.PhiConfig, dict(FLAT, hidden_size=32), ""),
    "falcon_7b": (tf.FalconConfig, FALCON, ""),
    "falcon_40b": (tf.FalconConfig, dict(FALCON, num_kv_heads=2, new_decoder_architecture=True),
                   ""),
    "bloom": (tf.BloomConfig, dict(vocab_size=V, hidden_size=24, n_layer=3, n_head=4), "-alibi"),
    "bloom_6": (tf.BloomConfig, dict(vocab_size=V, hidden_size=24, n_layer=3, n_head=6), "-alibi"),
    "granite": (tf.GraniteConfig, dict(BASE, embedding_multiplier=12.0, residual_multiplier=0.22,
                                       attention_multiplier=0.3, logits_scaling=6.0), ""),
    "granite_tied": (tf.GraniteConfig,
                     dict(BASE, embedding_multiplier=3.5, residual_multiplier=0.7, mlp_bias=True,
                          attention_multiplier=0.1, logits_scaling=8.0, attention_bias=True,
                          tie_word_embeddings=True, head_dim=10), ""),
    "granitemoe": (tf.GraniteMoeConfig,
                   dict(BASE, embedding_multiplier=12.0, residual_multiplier=0.22,
                        attention_multiplier=0.3, logits_scaling=6.0, num_local_experts=5,
                        num_experts_per_tok=3), ""),
    "mpt": (tf.MptConfig, MPT, "-alibi"),
    "mpt_6": (tf.MptConfig, dict(MPT, n_heads=6, attn_config=dict(softmax_scale=0.3)), "-alibi"),
    "bloom_112": (tf.BloomConfig, dict(vocab_size=V, hidden_size=224, n_layer=2, n_head=112),
                  "-alibi"),
}
ODD = {"hidden_act": "quick_gelu", "activation_function": "quick_gelu", "activation": "quick_gelu",
       "hidden_activation": "quick_gelu", "rope_scaling": {"rope_type": "proportional", "factor": 2.0},
       "residual_multiplier_x": 2.0}


def make(config, seed=0):
    """a random model whose every tensor matters: norms and biases too"""
    torch.manual_seed(seed)
    model = tf.AutoModelForCausalLM.from_config(config, attn_implementation="eager",
                                                dtype=torch.float32).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = p.dim() == 1 and name.endswith("weight")
            next_one = (config.model_type.startswith(("qwen3_next", "qwen3_5"))
                        and "linear_attn" not in name)
            plus_one = "gemma" in config.model_type or config.model_type == "nemotron" or next_one
            p.copy_(torch.randn_like(p) * (0.2 if p.dim() == 1 else 0.6
                                           / p.shape[-1] ** 0.5) + float(norm and not plus_one))
    return model


def mxfp4(model, path):
    """the experts of a gpt-oss as its release has them: 4 bits a number, a scale for 32 of them.
    The model gets what that means"""
    from safetensors.torch import load_file, save_file
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6])
    tensors = load_file(path)
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))
                 and "experts" in n]:
        w = tensors.pop(name).transpose(1, 2)                              # [experts, out, in]
        parts = w.reshape(*w.shape[:2], -1, 32)
        exponent = torch.floor(torch.log2(parts.abs().amax(-1) / 6 + 1e-9)).clamp(-20, 20)
        scaled = parts / 2 ** exponent[..., None]
        codes = (scaled[..., None] - values).abs().argmin(-1).to(torch.uint8)
        tensors[name + "_blocks"] = (codes[..., 0::2] | codes[..., 1::2] << 4).contiguous()
        tensors[name + "_scales"] = (exponent + 127).to(torch.uint8)
        means = (values[codes.long()] * 2 ** exponent[..., None]).reshape(w.shape).transpose(1, 2)
        with torch.no_grad():
            model.get_parameter(name).copy_(means)
    save_file(tensors, path)


def packed(name, model, d):
    if name.endswith("_mxfp4"):
        mxfp4(model, os.path.join(d, "model.safetensors"))
        path = os.path.join(d, "config.json")
        json.dump(dict(json.load(open(path)), quantization_config={"quant_method": "mxfp4"}),
                  open(path, "w"))


def window(config):
    return getattr(config, "sliding_window", None) or getattr(config, "window_size", None)


def local_layers(config):
    """those with a window, in a model that has others, too"""
    types = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None) or []
    local = [l for l, t in enumerate(types) if t in ("sliding_attention", "local")]
    return local if len(local) < config.num_hidden_layers and window(config) else []


def reference(model, ids):
    """loss, alpha (n, L, H, 10), norms of h, and of k and v where the model keeps them"""
    with torch.no_grad():
        r = model(ids[:, :-1], output_attentions=True, output_hidden_states=True)
    loss = torch.nn.functional.cross_entropy(r.logits.double().transpose(1, 2), ids[:, 1:]).item()
    maps = torch.stack(r.attentions, 1).double()
    alpha = torch.stack([maps[..., k:, k].mean(-1) for k in range(10)], -1).numpy()
    for l in local_layers(model.config):  # over the queries that still see the token
        for k in range(10):
            alpha[:, l, :, k] *= (T - k) / min(window(model.config), T - k)
    # the last one is after the final norm
    h = [x.double().norm(dim=-1) for x in r.hidden_states[:-1]]
    return loss, alpha, [x[:, 0].mean().item() for x in h], [x[:, 1:].mean().item() for x in h]


def probe(binary, checkpoint, d):
    out = os.path.join(d, "probe.json")
    r = subprocess.run([binary, "probe", checkpoint, "-d", d, "--probe-len", str(T), "--probe-seqs",
                        str(N), "--per-sequence", "--json", out], capture_output=True, text=True)
    return r, json.load(open(out)) if r.returncode == 0 else None


def written(name, model, ids, loss, program, d):
    """Written again, is it the same model of the same class, to the bit? OPT keeps two positions
    that nothing reads."""
    if read_only(name):
        return []
    out = os.path.join(d, "out")
    r = subprocess.run([program, "export", os.path.join(d, "m"), "-o", out], capture_output=True,
                       text=True)
    if r.returncode:
        return ["export: " + r.stderr.strip().splitlines()[0]]
    again = tf.AutoModelForCausalLM.from_pretrained(out, attn_implementation="eager",
                                                    dtype=torch.float32).eval()
    if type(again) is not type(model):
        return [f"comes back as {type(again).__name__}"]
    theirs, bad = again.state_dict(), []
    for key, w in model.state_dict().items():
        skip = 2 if "opt" in name and key.endswith("embed_positions.weight") else 0
        # norms of Gemma and Nemotron are 1 more in train_sink, which rounds them
        plus_one = name.startswith(("gemma", "nemotron"))
        rounded = plus_one and key.endswith("norm.weight")
        if rounded and (w - theirs[key]).abs().max() <= 2 ** -24:
            continue
        if not torch.equal(w[skip:], theirs[key][skip:]):
            bad.append(f"{key} comes back as other numbers")
    far = abs(reference(again, ids)[0] - loss)
    return bad + ([] if far < 2e-5 else [f"written, the loss is {far:.2g} away"])


def stepped(model, ids):
    """the loss of the first tokens after a step of SGD on them"""
    ids = ids[:1, :STEP + 1]
    loss = lambda: torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits.transpose(1, 2),
                                                     ids[:, 1:])
    loss().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.5 * p.grad
        return loss().item()


def trained(name, model, ids, program, d):
    """Is a step of a model whose positions depend on the length the same?"""
    if not name.endswith(("longrope", "dynamic")):
        return []
    os.mkdir(os.path.join(d, "step"))
    shards.write(os.path.join(d, "step"), ids[0, :STEP + 1].numpy())
    run = os.path.join(d, "run")
    r = subprocess.run([program, *f"train --init {d}/m -d {d}/step --seq {STEP} -b 1 -n 1 --lr 0.5 "
                        "--optimizer sgd --beta1 0 --warmup 0 --weight-decay 0 --grad-clip 0 "
                        f"--probe-seqs 1 --val-seqs 1 --sample 0 -o {run}".split()],
                       capture_output=True, text=True)
    if r.returncode:
        return ["train: " + r.stderr.strip().splitlines()[0]]
    rows = [json.loads(line) for line in open(os.path.join(run, "log.jsonl"))]
    ours = [row["val_loss"] for row in rows if "val_loss" in row][-1]
    far = abs(ours - stepped(model, ids))
    return [] if far < 2e-5 else [f"after a step, the loss is {far:.2g} away"]


def inside(d, ids):
    """the loss where the trained context stands in rope_parameters alone"""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(d, copy, dirs_exist_ok=True)
        path = os.path.join(copy, "config.json")
        config = json.load(open(path))
        del config["original_max_position_embeddings"]
        json.dump(config, open(path, "w"))
        return reference(tf.AutoModelForCausalLM.from_pretrained(
            copy, attn_implementation="eager", dtype=torch.float32).eval(), ids)[0]


def check(name, binary):
    kind, arguments, suffix = CASES[name]
    tokens = np.random.default_rng(1).integers(0, V, (N + 1) * T + 1)
    ids = torch.tensor(np.stack([tokens[i * T:i * T + T + 1] for i in range(N)]))
    with tempfile.TemporaryDirectory() as d:
        model = make(kind(**arguments))
        model.save_pretrained(os.path.join(d, "m"))
        packed(name, model, os.path.join(d, "m"))
        loss, alpha, first, rest = reference(model, ids)
        shards.write(d, tokens)
        bad, files = [], [os.path.join(d, "m")]
        if name in make_gguf_families.ARCHS:
            make_gguf_families.write(name, files[0])
            files.append(os.path.join(d, "m", "model.gguf"))
        for at in files:
            r, ours = probe(binary + suffix, at, d)
            if not ours:
                return [f"{os.path.basename(at)} refused: "
                        f"{r.stderr.strip().splitlines()[0] if r.stderr else r.returncode}"]
            far = {"loss": abs(loss - ours["probe_loss"]),
                   "alpha": np.abs(alpha - np.array(ours["alpha"])).max(),
                   "h first": max(abs(a / b - 1) for a, b in zip(ours["h_norm_first"], first)),
                   "h rest": max(abs(a / b - 1) for a, b in zip(ours["h_norm_rest"], rest))}
            bad += [f"{os.path.basename(at)}: {k} is {v:.2g} away"
                    for k, v in far.items() if not v < 2e-5]
        bad += written(name, model, ids, loss, binary + suffix, d)
        bad += trained(name, model, ids, binary + suffix, d)
        path = os.path.join(d, "m", "config.json")
        config = json.load(open(path))
        for key, value in ODD.items():  # none of these may be taken in silence
            if key not in config and not key.endswith("_x") and key != "rope_scaling":
                continue
            json.dump(dict(config, **{key: value}), open(path, "w"))
            if probe(binary + suffix, os.path.join(d, "m"), d)[0].returncode != 2:
                bad.append(f"{key} = {value} was taken")
        return bad


def save_answer(path, name, answer):
    """adds an answer to those of a folder of models, a line each"""
    answers = json.load(open(path)) if os.path.exists(path) else {}
    answers[name] = answer
    lines = [f"{json.dumps(key)}: {json.dumps(answers[key])}" for key in sorted(answers)]
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def save(out, names):
    """small models, their tokens and transformers' answers, for test/open/test_families.cpp"""
    small = dict(vocab_size=29, hidden_size=16, intermediate_size=12, n_embd=16, n_layer=2,
                 num_hidden_layers=2, num_layers=2, n_layers=2, d_model=12, ffn_dim=12,
                 word_embed_proj_dim=16, n_inner=12)
    names = names or ("jamba llama_llama3 llama_yarn mistral smollm3 qwen2 qwen3 gemma gemma3 "
                      "olmo2 phi3 stablelm gpt2 gpt2_untied gpt_neo opt gpt_neox phi gptj ernie4_5 "
                      "granite gemma3_llama3 falcon_7b falcon_40b mixtral qwen2_moe "
                      "qwen3_moe qwen3_next granitemoe olmo olmo3_yarn olmoe exaone4 glm4 cohere cohere2 "
                      "nemotron_bias arcee seed_oss starcoder2 nanochat phi3_longrope "
                      "qwen3_5 ministral3").split()
    tokens = np.random.default_rng(1).integers(0, 29, (N + 1) * T + 1)
    ids = torch.tensor(np.stack([tokens[i * T:i * T + T + 1] for i in range(N)]))
    os.makedirs(os.path.join(out, "tokens"), exist_ok=True)
    shards.write(os.path.join(out, "tokens"), tokens)
    for name in names:
        kind, arguments, _ = CASES[name]
        arguments = {k: small.get(k, v) for k, v in arguments.items()}
        arguments.update({k: small[k] for k in ("n_inner",) if name.startswith("gpt2")})
        arguments.update(dict(hidden_size=24) if name == "bloom_6" else {})
        # a quarter of a head turns
        arguments.update(dict(hidden_size=32) if name in ("gpt_neox", "stablelm") else {})
        arguments.update(dict(attention_types=[[["global", "local"], 1]])
                         if name == "gpt_neo" else {})
        arguments.update(dict(num_hidden_layers=3, expert_layer_offset=0) if name == "jamba"
                         else {})  # Mamba, attention, Mamba
        arguments.update(dict(moe_intermediate_size=12) if name.endswith("_moe") else {})
        arguments.update(dict(shared_expert_intermediate_size=8) if name == "qwen2_moe" else {})
        arguments.update(dict(hidden_size=32, intermediate_size=32)
                         if name == "gpt_oss_mxfp4" else {})
        arguments.update(dict(num_hidden_layers=3, intermediate_size=12, layer_types=[
            "linear_attention", "full_attention", "linear_attention"], linear_value_head_dim=4)
                         if name in ("qwen3_next", "qwen3_5") else {})
        arguments.update(dict(moe_intermediate_size=12, shared_expert_intermediate_size=8)
                         if name == "qwen3_next" else {})
        # the second layer does not turn, or has no window
        arguments.update(dict(no_rope_layer_interval=2) if name == "smollm3" else {})
        arguments.update(dict(sliding_window_pattern=2) if name.startswith("gemma3") else {})
        arguments.update(dict(rotary_dim=2) if name == "gptj" else {})  # of 4 channels
        arguments.update(dict(layer_types=["sliding_attention", "full_attention"])
                         if name in ("olmo3_yarn", "exaone4", "cohere2") else {})
        arguments.update(rope(rope_type="longrope", short_factor=[1.0, 1.5], long_factor=[1.0, 4.0])
                         if name == "phi3_longrope" else {})
        model = make(kind(**arguments))
        model.save_pretrained(os.path.join(out, name))
        packed(name, model, os.path.join(out, name))
        loss, alpha, first, rest = reference(model, ids)
        extra = os.path.join(out, name, "generation_config.json")
        if os.path.exists(extra):
            os.remove(extra)
        answer = {"loss": loss, "alpha": alpha.round(8).reshape(-1).tolist(), "h_norm_first": first,
                  "h_norm_rest": rest}
        if name == "phi3_longrope":
            answer["stepped"] = stepped(model, ids)
            answer["inside"] = inside(os.path.join(out, name), ids)
        save_answer(out.rstrip("/") + ".json", name, answer)


if __name__ == "__main__":
    if sys.argv[1] == "--save":
        sys.exit(save(sys.argv[2], sys.argv[3:]))
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    binary, failed = sys.argv[1], 0
    for name in sys.argv[2:] or CASES:
        bad = check(name, binary)
        failed += bool(bad)
        print(f"{name:16s} {'; '.join(bad) or 'agrees'}", flush=True)
    print(f"{len(sys.argv[2:] or CASES) - failed} passed, {failed} failed")
    sys.exit(failed > 0)
