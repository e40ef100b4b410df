"""Writes docs/interop.md, what opens where, from what the checks said:

    python3 dev/peers/check_export.py > export.log
    python3 dev/peers/check_families.py BINARY > families.log
    python3 dev/peers/check_gguf.py > gguf.log
    python3 dev/peers/interop.py export.log families.log gguf.log DATE > docs/interop.md

in the Python in which they ran (its versions of torch and transformers go into the page).
"""
import os, re, sys, textwrap
from importlib.metadata import version
from builds import read_only


def rows(path):
    """name -> what was said; of a line such as `ATTN=sigmoid   agrees   loss 4.3, 1e-8 away`"""
    lines = [l.split(None, 1) for l in open(path) if not re.match(r"\d+ passed", l)]
    return {l[0]: l[1].strip() for l in lines if len(l) == 2}


def far(said):
    return float(re.search(r"([\d.e+-]+) away$", said).group(1))


export, families, gguf = map(rows, sys.argv[1:4])
good = {n: s for n, s in export.items() if s.startswith("agrees")}
bad = [f"`{n}`: {s}" for n, s in [*export.items(), *families.items(), *gguf.items()]
       if not s.startswith("agrees")]
switches = {}
for name in good:
    switch = name.split("=")[0] if "=" in name else "flags and combinations"
    switches.setdefault(switch, []).append(name.split("=")[-1])
ARCHS = re.findall(r'": \("(\w+)", ', open(os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../../scripts/to_gguf.py")).read())
written = [n for n, s in families.items() if s == "agrees"
           and not read_only(n)]

print(f"""# What opens where

Written by `dev/peers/interop.py` on {sys.argv[4]}, with torch {version('torch')}, transformers {version('transformers')} and
tokenizers {version('tokenizers')}, on a CPU in fp32.

```sh parsed
./train_sink export runs/0001/step_1000 --out my-model
./train_sink export runs/0001/step_1000 --out my-model --to train_sink
python3 scripts/to_gguf.py my-model my-model.gguf --type q8_0
```

`export` writes a directory that transformers opens: the weights, `config.json`, the tokenizer and a
`README.md` about the run. A tokenizer that came from a GGUF file is written as `tokenizer.gguf`,
which transformers cannot read. If a family of transformers can express the model exactly, it is
written as one of that family. Otherwise our PyTorch file is added, and it opens with
`trust_remote_code=True`. `--to` chooses. A directory is overwritten only if every file in it still
matches the hashes in its `export.json`: an edited card or retrained weights stay.

A run without `--tokenizer` reads bytes; its export has a `tokenizer.json` with the same ids. Token
256, which ends a document, is spelled U+FDD0 there, a character that no text contains.

## Our own models, by scripts/modeling_train_sink.py

Tiny models of each value of each switch, of flags and of combinations, trained for 15 steps and
exported: {len(good)} of {len(export)} agree. Loss and alpha_1 to alpha_10 of every head differ by at most {max(map(far, good.values())):.1e};
14 greedy tokens after each of three prompts are the same with a cache, without one, and in a padded
batch; saved again by transformers they open here.

| switch | values that agree |
|---|---|""")
for switch, names in switches.items():
    print(f"| {switch} | {', '.join(names)} |")
print(f"""
There, `generate` caches keys and values, except within a prefix, whose rows all see each other.
Attention computes the whole map; no other `attn_implementation` can be chosen.

## Models of other families, read and written

`dev/peers/check_families.py`: read, they agree with transformers to 2e-5 ({sum(s == 'agrees' for s in families.values())} of {len(families)}). Written again,
these have the same class, bit-identical tensors and the same loss:

{textwrap.fill(', '.join(f'`{n}`' for n in written), 100)}.

A run that begins with `--init` of such a model writes that family in every `step_N`, with our own
keys under `"train_sink"`, as long as the family can express the model. Otherwise the checkpoint is
ours: Phi and Falcon 7B have one norm for both branches, which training makes two; Gemma's norms are
stored as w - 1, rounded to half an ulp of 1, so a w below 0.5 may not come back exactly.

Read only: experts, Mamba layers, the delta rule, gpt-oss, OPT-350m's projections.

## GGUF, for llama.cpp

`scripts/to_gguf.py` (gguf-py) writes an exported directory as one file, its matrices as `--type` f32,
f16, bf16 or q8_0, its norms and biases as f32, with the tokenizer and the chat template. It takes
these families:
{textwrap.fill(', '.join(f'`{a}`' for a in ARCHS), 100)}.
Anything else is an error that names it: llama.cpp has only softmax and softcap attention, no learned
biases (BIAS), no gate, and windows only in Gemma 2 and 3.

`dev/peers/check_gguf.py`, with llama.cpp as in llama-cpp-python 0.3.16: {sum(s.startswith('agrees') for s in gguf.values())} of {len(gguf)} agree. The loss is
at most {max(far(s) for n, s in gguf.items() if s.endswith('away') and 'q8_0' not in n):.0e} away (q8_0: {far(gguf['run-q8_0']):.0e}, since llama.cpp also rounds activations to 8 bits),
10 greedy tokens after each of three prompts are the same, the golden strings of four tokenizers have
their ids, and f32 read back here measures the same to the bit. llama.cpp does not normalize text to
NFC: with the tokenizers of GPT-NeoX and Qwen, other forms of text have other ids there.

## Evaluation and interpretability tools

`dev/peers/check_tools.py` runs these lines as printed, with lm-eval 0.4.13, transformer-lens 4.3.0,
nnsight 0.8.1 and transformers 5.24.0 (2026-11-25), and compares the results with `score`, `probe` and
transformers. A directory with our own PyTorch file contains code, so it needs
`trust_remote_code=True`.

**lm-evaluation-harness**, with your own items, as `train_sink score --task mine.jsonl` reads them:

```python
import lm_eval
from lm_eval.models.huggingface import HFLM
task = {{"task": "mine", "dataset_path": "json", "validation_split": "validation",
        "dataset_kwargs": {{"data_files": {{"validation": "mine.jsonl"}}}},
        "output_type": "multiple_choice", "doc_to_text": "{{{{context}}}}",
        "doc_to_choice": "{{{{choices}}}}", "doc_to_target": "{{{{gold}}}}",
        "metric_list": [{{"metric": "acc"}}, {{"metric": "acc_norm"}}]}}
lm = HFLM(pretrained="my-model", trust_remote_code=True, dtype="float32", device="cpu")
results = lm_eval.simple_evaluate(model=lm, tasks=[task], log_samples=True)
```

**Hidden states**: the norm of the residual stream at the first token, and its mean at the others, as in `probe`.
Only the last one differs: it is after the final norm, and `probe` uses the last layer's output:

```python
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained("my-model", trust_remote_code=True, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained("my-model", trust_remote_code=True)
ids = tokenizer("a door by the river", return_tensors="pt").input_ids
for h in model(ids, output_hidden_states=True).hidden_states:    # (1, T, C): the embedding, then each layer
    print(h[0, 0].norm().item(), h[0, 1:].norm(dim=-1).mean().item())
```

**TransformerLens** knows the classes of transformers, so it opens a model written as a family, and
not our own PyTorch file:

```python
import torch
from transformer_lens.model_bridge import TransformerBridge
model = TransformerBridge.boot_transformers("my-model", device="cpu", dtype=torch.float32)
logits, cache = model.run_with_cache("a door by the river")
print(cache["blocks.1.attn.hook_pattern"][0, :, :, 0].mean(-1))  # alpha_1 of each head
```

**nnsight** opens both:

```python
from nnsight import LanguageModel
model = LanguageModel("my-model", trust_remote_code=True, device_map="cpu", dispatch=True)
with model.trace("a door by the river"):
    h = model.model.layers[0].output[0].save()
    logits = model.lm_head.output.save()
print(h.norm(dim=-1))  # of each token after the first layer
```

## Logs

For **pandas**, a CSV with a row per evaluation of every run and probe; for **TensorBoard**, event
files. A log is lines of JSON, whose numbers **Weights & Biases** takes by step:

```sh parsed
scripts/report.py runs --csv -o runs/runs.csv                # pandas.read_csv("runs/runs.csv")
scripts/report.py runs --tensorboard -o runs/tensorboard     # then: tensorboard --logdir runs/tensorboard
```

```python
import json, wandb
log = [json.loads(line) for line in open("runs/sink/log.jsonl")]    # or pandas.read_json(.., lines=True)
with wandb.init(project="sinks", config=log[0]["flags"] | log[0]["switches"]) as run:
    for o in log:
        if o["event"] in ("train", "eval"):
            run.log({{k: v for k, v in o.items() if isinstance(v, (int, float))}}, step=o["step"])
```""")
if bad:
    print("\n## What disagrees\n\n" + "\n".join("- " + b for b in bad))
