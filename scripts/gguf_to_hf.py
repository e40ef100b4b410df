#!/usr/bin/env python3
"""A GGUF file as a directory for transformers: the same weights made floats,
config.json and the tokenizer, so that dev/bench/bench_open.py can set the two beside each other.
Of families whose files transformers itself can read.

    python3 scripts/gguf_to_hf.py MODEL.gguf DIRECTORY [--bf16]

--bf16 rounds the weights, as most directories on the Hugging Face Hub have them.
(torch, transformers, gguf, accelerate)
"""
import argparse, os, sys

import torch
import transformers


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("directory")
    p.add_argument("--bf16", action="store_true")
    a = p.parse_args()
    if not os.path.isfile(a.model):
        sys.exit(f"error: {a.model}: got no file, wanted a GGUF file")
    place, name = os.path.split(os.path.abspath(a.model))
    read = transformers.AutoModelForCausalLM.from_pretrained(place, gguf_file=name,
                                                             dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, gguf_file=name)
    # a model that was read from a GGUF file refuses to be saved:
    # its weights go into one that was not
    config = read.config.to_dict()
    config.pop("quantization_config", None)
    model = transformers.AutoModelForCausalLM.from_config(type(read.config)(**config),
                                                          dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    if a.bf16:
        model = model.to(torch.bfloat16)
    model.save_pretrained(a.directory)
    tokenizer.save_pretrained(a.directory)
    print(f"wrote {a.directory}: {sum(x.numel() for x in model.parameters()):,} weights")


if __name__ == "__main__":
    main()
