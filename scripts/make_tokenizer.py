#!/usr/bin/env python3
"""make_tokenizer.py -- learns a tokenizer on your own text, for train -d TEXT --tokenizer DIR.

    scripts/make_tokenizer.py my.txt -o tok --vocab 512

TEXT is one or more files: .txt, or .jsonl with a field "text", also as .gz. It writes
DIR/tokenizer.json, byte pairs that read any text, and DIR/tokenizer_config.json, which names
<|endoftext|> (id 0) as the EOS. Small models want few ids: 512 for a book, 1,024 for ten.
"""
import argparse
import gzip
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from runlog import die, say as print

EOS = "<|endoftext|>"
LEAST = 257                                      # 256 bytes and the EOS


def texts(path):
    """Yields the texts of a file, and a .txt line by line: byte pairs do not cross lines."""
    name = path[:-3] if path.endswith(".gz") else path
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not name.endswith(".jsonl"):
                yield line
                continue
            record = json.loads(line)
            if not isinstance(record, dict) or not isinstance(record.get("text"), str):
                raise ValueError(f'line {number}: wanted a record with "text"')
            yield record["text"]


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("text", nargs="+", metavar="TEXT")
    p.add_argument("-o", "--out", required=True, metavar="DIR")
    p.add_argument("--vocab", type=int, default=512, help="ids (default 512)")
    a = p.parse_args()
    if a.vocab < LEAST:
        die(f"--vocab {a.vocab}: wanted {LEAST} or more: every byte and {EOS}", f"--vocab {LEAST}")
    if os.path.exists(os.path.join(a.out, "tokenizer.json")):
        die(f"{a.out}: holds a tokenizer already", "choose another -o")
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        die("the Python package tokenizers is not here",
            "pip install tokenizers; or take demo/tokenizer.json: it reads any text")

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=a.vocab, special_tokens=[EOS], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    try:
        tokenizer.train_from_iterator((t for path in a.text for t in texts(path)), trainer)
    except (OSError, ValueError) as e:
        die(f"{', '.join(a.text)}: {e}", "wanted UTF-8: .txt or .jsonl, or these as .gz")
    os.makedirs(a.out, exist_ok=True)
    tokenizer.save(os.path.join(a.out, "tokenizer.json"), pretty=False)
    with open(os.path.join(a.out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"eos_token": EOS}, f)
    got = tokenizer.get_vocab_size()
    fewer = "" if got == a.vocab else f" (the text has no pairs for {a.vocab})"
    print(f"{a.out}: {got} ids{fewer}, {EOS} is id 0\nnext: the command of docs/start.md, "
          f"with -d {a.text[0]} --tokenizer {a.out} --fix-token 1:0")


if __name__ == "__main__":
    main()
