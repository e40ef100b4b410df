#!/usr/bin/env python3
"""fetch_models.py DIR [NAME..] -- models from the Hugging Face hub, as train_sink opens them:
config.json, safetensors, tokenizer.

Without names it lists those that the paper measures, with their approximate sizes and the tables
and figures that they are in. Some require an account that has accepted their license
(huggingface-cli login).
Needs huggingface_hub; nothing else in this repository needs a network.
    pip install huggingface_hub
"""
import os
import shlex
import sys

sys.path.insert(0, os.path.dirname(__file__) + "/lib")
from runlog import die, say as print

# name: (repository, GB on disk, what of the paper it is in)
MODELS = {
    "smollm2-135m": ("HuggingFaceTB/SmolLM2-135M", 0.3, "none: docs/open-models.md"),
    "gemma-3-270m": ("google/gemma-3-270m", 0.6, "none: docs/open-models.md"),
    "gpt2": ("openai-community/gpt2", 0.5, "Figures 10, 22"),
    "gpt2-medium": ("openai-community/gpt2-medium", 1.5, "Figures 10, 22"),
    "gpt2-large": ("openai-community/gpt2-large", 3.2, "Figures 10, 12, 18, 22"),
    "gpt2-xl": ("openai-community/gpt2-xl", 6.4, "Tables 1, 7; Figures 10, 22"),
    "pythia-14m": ("EleutherAI/pythia-14m", 0.1, "Figures 10, 23"),
    "pythia-160m": ("EleutherAI/pythia-160m", 0.4, "Figures 10, 23"),
    "pythia-1b": ("EleutherAI/pythia-1b", 2.1, "Figures 10, 14, 23"),
    "opt-125m": ("facebook/opt-125m", 0.3, "Figures 10, 24"),
    "opt-6.7b": ("facebook/opt-6.7b", 13.3, "Figures 10, 24"),
    "llama-2-7b": ("meta-llama/Llama-2-7b-hf", 13.5, "Table 1; Figures 10, 11, 16, 19"),
    "llama-3-8b": ("meta-llama/Meta-Llama-3-8B", 16.1, "Table 1; Figures 2, 10, 15, 20"),
    "mistral-7b": ("mistralai/Mistral-7B-v0.1", 14.5, "Table 1; Figures 13, 17, 21"),
}
FILES = ["config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json",
         "tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json",
         "added_tokens.json", "generation_config.json", "chat_template.jinja"]


def main():
    if len(sys.argv) < 3:
        print(__doc__)
        for name, (repository, size, where) in MODELS.items():
            print(f"  {name:14s} {repository:32s} {size:5.1f} GB  {where}")
        sys.exit(len(sys.argv) == 1)
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        die("huggingface_hub is not installed", "pip install huggingface_hub")
    for name in sys.argv[2:]:
        if name not in MODELS and "/" not in name:
            die(f"got '{name}', wanted one of: {', '.join(MODELS)}, or OWNER/MODEL",
                "scripts/fetch_models.py lists them")
        repository = MODELS[name][0] if name in MODELS else name
        place = os.path.join(sys.argv[1], repository.split("/")[-1])
        snapshot_download(repository, local_dir=place, allow_patterns=FILES)
        print(f"{place}: ./train_sink probe {shlex.quote(place)} -d TEXT --bos default")


main()
