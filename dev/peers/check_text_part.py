"""Is the language model of a model of text and images what train_sink reads of it? Tiny random ones
are saved by transformers and given text alone: loss, attention to the first ten tokens of every head,
and norms of h, as in check_families.py.

    python3 dev/peers/check_text_part.py BINARY [NAME..]    (needs torch, transformers, numpy)
    python3 dev/peers/check_text_part.py --save DIR [NAME..]   smaller ones: test/open/families
"""
import json, os, sys, tempfile
import numpy as np, torch, transformers as tf
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "make"))
import shards
from check_families import BASE, QWEN3_5, N, T, V, probe

EYE = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
           image_size=8, patch_size=4)
QWEN_EYE = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=24)
of = lambda kind, eye, more={}, **text: (kind, dict(
    text_config=dict(BASE, **text), vision_config=eye, **more))
CASES = {
    "gemma3_images": of(tf.Gemma3Config, EYE, dict(mm_tokens_per_image=4), head_dim=10,
                        sliding_window=9, num_hidden_layers=7),
    "mistral3": of(tf.Mistral3Config, dict(EYE, model_type="pixtral", head_dim=4),
                   dict(tie_word_embeddings=False), model_type="mistral", sliding_window=None),
    "llava": of(tf.LlavaConfig, dict(EYE, model_type="clip_vision_model", projection_dim=8),
                model_type="llama"),
    "llava_onevision": of(tf.LlavaOnevisionConfig, dict(EYE, model_type="siglip_vision_model"),
                          model_type="qwen2"),
    "internvl": of(tf.InternVLConfig, dict(EYE, model_type="internvl_vision"), model_type="qwen2"),
    "smolvlm": of(tf.SmolVLMConfig, EYE, model_type="llama"),
    "idefics3": of(tf.Idefics3Config, EYE, model_type="llama"),
    "qwen2_vl": of(tf.Qwen2VLConfig, dict(depth=1, embed_dim=8, num_heads=2, hidden_size=24),
                   rope_parameters=dict(rope_type="default", rope_theta=5000.0,
                                        mrope_section=[1, 1, 1])),
    "qwen2_5_vl": of(tf.Qwen2_5_VLConfig, dict(QWEN_EYE, fullatt_block_indexes=[0]),
                     rope_parameters=dict(rope_type="default", rope_theta=5000.0,
                                          mrope_section=[1, 1, 1])),
    "qwen3_vl": of(tf.Qwen3VLConfig, dict(QWEN_EYE, deepstack_visual_indexes=[0]), head_dim=10,
                   rope_parameters=dict(rope_type="default", rope_theta=5000.0,
                                        mrope_section=[2, 2, 1])),
    "qwen3_5": (tf.Qwen3_5Config, dict(
        text_config=dict(QWEN3_5, rope_parameters=dict(
            rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5,
            mrope_section=[2, 1, 1], mrope_interleaved=True)),
        vision_config=dict(QWEN_EYE, num_position_embeddings=16))),
    "qwen3_5_moe": (tf.Qwen3_5MoeConfig, dict(
        text_config=dict(QWEN3_5, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=20,
                         shared_expert_intermediate_size=28),
        vision_config=dict(QWEN_EYE, num_position_embeddings=16))),
}


def make(name):
    kind, arguments = CASES[name]
    torch.manual_seed(0)
    model = tf.AutoModelForImageTextToText.from_config(
        kind(**arguments), attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            plus_one = "gemma" in name or "qwen3_5" in name and "linear_attn" not in key
            norm = p.dim() == 1 and key.endswith("weight") and not plus_one
            scale = 0.2 if p.dim() == 1 else 0.6 / max(p.shape[-1], 1) ** 0.5
            p.copy_(torch.randn_like(p) * scale + float(norm))
    return model


def reference(model, ids):
    with torch.no_grad():
        r = model(input_ids=ids[:, :-1], output_attentions=True, output_hidden_states=True)
    loss = torch.nn.functional.cross_entropy(r.logits.double().transpose(1, 2), ids[:, 1:]).item()
    maps = torch.stack(r.attentions, 1).double()
    alpha = torch.stack([maps[..., k:, k].mean(-1) for k in range(10)], -1).numpy()
    text = model.config.text_config
    types = getattr(text, "layer_types", None) or []
    for l in [l for l, t in enumerate(types) if t == "sliding_attention"]:
        for k in range(10):
            alpha[:, l, :, k] *= (T - k) / min(text.sliding_window, T - k)
    h = [x.double().norm(dim=-1) for x in r.hidden_states[:-1]]
    return loss, alpha, [x[:, 0].mean().item() for x in h], [x[:, 1:].mean().item() for x in h]


def tokens_of(vocab):
    tokens = np.random.default_rng(1).integers(0, vocab, (N + 1) * T + 1)
    return tokens, torch.tensor(np.stack([tokens[i * T:i * T + T + 1] for i in range(N)]))


def check(name, binary):
    tokens, ids = tokens_of(V)
    with tempfile.TemporaryDirectory() as d:
        model = make(name)
        model.save_pretrained(os.path.join(d, "m"))
        loss, alpha, first, rest = reference(model, ids)
        shards.write(d, tokens)
        r, ours = probe(binary, os.path.join(d, "m"), d)
        if not ours:
            return ["refused: " + (r.stderr.strip().splitlines() or [str(r.returncode)])[0]]
        far = {"loss": abs(loss - ours["probe_loss"]),
               "alpha": np.abs(alpha - np.array(ours["alpha"])).max(),
               "h first": max(abs(a / b - 1) for a, b in zip(ours["h_norm_first"], first)),
               "h rest": max(abs(a / b - 1) for a, b in zip(ours["h_norm_rest"], rest))}
        bad = [f"{k} is {v:.2g} away" for k, v in far.items() if not v < 2e-5]
        said = "a model of more than text" in r.stderr
        return bad + ([] if said else ["nothing is said of the part that is not read"])


def save(out, names):
    small = dict(vocab_size=29, hidden_size=16, intermediate_size=12, num_hidden_layers=2)
    tokens, ids = tokens_of(29)
    for name in names or ["gemma3_images", "smolvlm"]:
        text = CASES[name][1]["text_config"]
        text.update({k: v for k, v in small.items() if k in text})
        text.update(dict(layer_types=["sliding_attention", "full_attention"])
                    if "gemma" in name else {})
        model = make(name)
        model.save_pretrained(os.path.join(out, name))
        loss, alpha, first, rest = reference(model, ids)
        extra = os.path.join(out, name, "generation_config.json")
        if os.path.exists(extra):
            os.remove(extra)
        json.dump({"loss": loss, "alpha": alpha.round(8).reshape(-1).tolist(),
                   "h_norm_first": first, "h_norm_rest": rest},
                  open(os.path.join(out, name, "answer.json"), "w"))


if __name__ == "__main__":
    if sys.argv[1] == "--save":
        sys.exit(save(sys.argv[2], sys.argv[3:]))
    torch.set_num_threads(1)
    tf.logging.set_verbosity_error()
    failed = 0
    for name in sys.argv[2:] or CASES:
        bad = check(name, sys.argv[1])
        failed += bool(bad)
        print(f"{name:16s} {'; '.join(bad) or 'agrees'}", flush=True)
    print(f"{len(sys.argv[2:] or CASES) - failed} passed, {failed} failed")
    sys.exit(failed > 0)
