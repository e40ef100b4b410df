"""Does the line that ./train_sink prints for a model of text and images work, as it is printed? A
tiny model of each family that docs/open-models.md names there is saved by transformers; the program
refuses it with the line, the line runs, and what it writes has the loss of the whole model given
text. Qwen2-VL and Qwen2.5-VL once more as they are published: sizes at the top, no text_config.

    python3 dev/peers/check_text_part.py BINARY [NAME..]     (needs torch, transformers, numpy)
    python3 dev/peers/check_text_part.py --save              their config.json: test/open/parts.jsonl
"""
import json, os, subprocess, sys, tempfile
import torch, transformers as tf
import shards

T, V = 17, 96
TEXT = dict(vocab_size=V, hidden_size=48, intermediate_size=40, num_hidden_layers=2,
            num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=64,
            pad_token_id=0, bos_token_id=1, eos_token_id=2)
AXES = dict(TEXT, rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]})
MIXED = dict(TEXT, head_dim=8, rope_scaling={"rope_type": "default", "mrope_section": [1, 1, 2],
                                             "mrope_interleaved": True})
EYE = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
           image_size=16, patch_size=4)
CLIP = dict(EYE, model_type="clip_vision_model", projection_dim=16)
QWEN = dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=16, out_hidden_size=48,
            patch_size=4)
QWEN3 = dict(QWEN, deepstack_visual_indexes=[0], num_position_embeddings=16)
DELTA = dict(TEXT, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
             linear_key_head_dim=6, linear_value_head_dim=8, num_hidden_layers=4)
# name: class of the config, of its text, of its vision, what else
CASES = {
    "gemma3": (tf.Gemma3Config, dict(TEXT, head_dim=8, sliding_window=9), EYE,
               dict(mm_tokens_per_image=4)),
    "llava": (tf.LlavaConfig, dict(TEXT, model_type="llama"), CLIP, {}),
    "llava_next": (tf.LlavaNextConfig, dict(TEXT, model_type="mistral"), CLIP, {}),
    "smolvlm": (tf.SmolVLMConfig, dict(TEXT, model_type="llama"), EYE, dict(scale_factor=2)),
    "idefics3": (tf.Idefics3Config, dict(TEXT, model_type="llama"), EYE, dict(scale_factor=2)),
    "qwen2_vl": (tf.Qwen2VLConfig, AXES, dict(depth=1, embed_dim=16, hidden_size=48, num_heads=2,
                                              mlp_ratio=2, patch_size=4), {}),
    "qwen2_5_vl": (tf.Qwen2_5_VLConfig, AXES, dict(QWEN, fullatt_block_indexes=[0]), {}),
    "qwen3_vl": (tf.Qwen3VLConfig, MIXED, QWEN3, {}),
    "qwen3_5": (tf.Qwen3_5Config, DELTA, dict(QWEN3, deepstack_visual_indexes=[]), {}),
    "mistral3": (tf.Mistral3Config, dict(TEXT, model_type="mistral", head_dim=8),
                 dict(EYE, model_type="pixtral", head_dim=8), {}),
    "internvl": (tf.InternVLConfig, dict(TEXT, model_type="qwen2"),
                 dict(EYE, image_size=[16, 16], patch_size=[4, 4]), {}),
}
CASES["qwen2_vl_published"] = CASES["qwen2_vl"]
CASES["qwen2_5_vl_published"] = CASES["qwen2_5_vl"]


def saved(name, d):
    """Saves a model whose every tensor matters, and returns it."""
    kind, text, vision, more = CASES[name]
    torch.manual_seed(0)
    model = tf.AutoModelForImageTextToText.from_config(
        kind(text_config=text, vision_config=vision, **more)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.3)
    model.save_pretrained(d)
    path = os.path.join(d, "config.json")
    config = json.load(open(path))
    if name.endswith("_published"):
        inner = config.pop("text_config")
        inner.pop("model_type")
        config = dict(inner, **config)
        json.dump(config, open(path, "w"))
    return model, config


def check(name, binary, d):
    model, _ = saved(name, os.path.join(d, "m"))
    open(os.path.join(d, "m", "tokenizer_config.json"), "w").write("{}")
    ids = torch.randint(0, V, (1, T + 1), generator=torch.Generator().manual_seed(1))
    shards.write(d, ids[0].numpy())
    probe = [binary, "probe", "m", "-d", d, "--probe-len", str(T), "--probe-seqs", "1"]
    run = lambda command, **more: subprocess.run(command, cwd=d, capture_output=True, text=True,
                                                 **more)
    lines = [line for line in run(probe).stderr.splitlines() if line.startswith("---> HINT: ")]
    r = run(lines[0][len("---> HINT: "):], shell=True)
    if r.returncode:
        return "the line fails: " + r.stderr.strip().splitlines()[-1]
    probe[2] = "NEW"
    r = run(probe + ["--json", "probe.json"])
    if r.returncode:
        return r.stderr.splitlines()[0]
    with torch.no_grad():
        logits = model(input_ids=ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:]).item()
    far = abs(loss - json.load(open(os.path.join(d, "probe.json")))["probe_loss"])
    files = sorted(os.listdir(os.path.join(d, "NEW")))
    whole = "tokenizer_config.json" in files
    return "" if far < 2e-5 and whole else f"the loss is {far:.2g} away, files: {files}"


if __name__ == "__main__":
    tf.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if sys.argv[1] == "--save":
        with open("test/open/parts.jsonl", "w") as out, tempfile.TemporaryDirectory() as d:
            for name in CASES:
                print(json.dumps({"model": name, "config": saved(name, d)[1]}), file=out)
        sys.exit()
    failed = 0
    for name in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as d:
            bad = check(name, os.path.abspath(sys.argv[1]), d)
        failed += bool(bad)
        print(f"{name:20s} {bad or 'agrees'}", flush=True)
    print(f"{len(sys.argv[2:] or CASES) - failed} passed, {failed} failed")
    sys.exit(failed > 0)
