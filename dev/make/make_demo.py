#!/usr/bin/env python3
"""make_demo.py BOOK.txt NAME -- demo/NAME.jsonl.gz, the book as one record,
and demo/tokenizer.json, byte pairs learned on it.

Needs the Hugging Face `tokenizers` library.
"""
import gzip
import json
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

IDS = 512                                   # <|endoftext|>, 256 bytes, 255 merges

if len(sys.argv) != 3:
    sys.exit(__doc__)
with open(sys.argv[1], encoding="utf-8") as f:
    text = f.read()
record = json.dumps({"text": text}, ensure_ascii=False) + "\n"
with open(f"demo/{sys.argv[2]}.jsonl.gz", "wb") as f:
    f.write(gzip.compress(record.encode(), 9, mtime=0))

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator([text], trainers.BpeTrainer(
    vocab_size=IDS, special_tokens=["<|endoftext|>"], show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer.save("demo/tokenizer.json", pretty=False)
print(f"{len(record)} bytes, {len(tokenizer.encode(text).ids)} tokens of {IDS} ids")
