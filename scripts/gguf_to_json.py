#!/usr/bin/env python3
"""gguf_to_json.py FILE.gguf TOKENIZER.json -- the byte-level BPE tokenizer of a GGUF file as the
`tokenizers` library builds it, for fuzz_tokenizer.py to compare with what open/tokenizer_gguf.cpp
builds. The families are written down here once more on
purpose: as components of the library, not as our steps.    needs gguf and tokenizers (pip install)
"""
import sys

import gguf
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors)

GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
DIGITS = pre_tokenizers.Digits(individual_digits=True)


def cl100k(digits):
    regex = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + digits +
             r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


FAMILIES = {                                             # normalizer, pre-tokenizer, ignore_merges
    "gpt-2": (None, GPT2, False), "phi-2": (None, GPT2, False),
    "dbrx": (None, cl100k("{1,3}"), False),
    "olmo": (normalizers.NFC(), GPT2, False), "mpt": (normalizers.NFC(), GPT2, False),
    "smollm": (None, pre_tokenizers.Sequence([DIGITS, GPT2]), False),
    "starcoder": (None, pre_tokenizers.Sequence([DIGITS, GPT2]), False),
    "llama-bpe": (None, cl100k("{1,3}"), True), "qwen2": (normalizers.NFC(), cl100k(""), False),
}


def main():
    fields = gguf.GGUFReader(sys.argv[1]).fields
    key = (lambda name, default=None: fields["tokenizer.ggml." + name].contents()
           if "tokenizer.ggml." + name in fields else default)
    tokens, types = key("tokens"), key("token_type")
    normalizer, pre, ignore_merges = FAMILIES[key("pre")]
    vocab = {t: i for i, (t, kind) in enumerate(zip(tokens, types)) if kind != 5}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in key("merges")],
                             ignore_merges=ignore_merges))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    added = [(x, kind) for x, kind in zip(tokens, types) if kind in (2, 3, 4)]
    for text, kind in added:
        add = t.add_tokens if kind == 4 else t.add_special_tokens
        add([AddedToken(text, special=kind != 4, normalized=False)])
    if key("add_bos_token", ignore_merges):
        bos = tokens[key("bos_token_id")]
        t.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], special_tokens=[(bos, key("bos_token_id"))])
    t.save(sys.argv[2])


main()
