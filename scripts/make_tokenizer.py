#!/usr/bin/env python3
"""make_tokenizer.py -- learns a tokenizer on your own text, for train -d TEXT --tokenizer DIR.

    scripts/make_tokenizer.py my.txt -o tok --vocab 512

TEXT is one or more files, or folders, that train reads, by the same rules: ./train_sink prints
their text. The script writes DIR/tokenizer.json, byte pairs that read any text, and DIR/tokenizer_config.json, which names
<|endoftext|> (id 0) as the EOS. Small models want few ids: 512 for a book, 1,024 for ten.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/lib")
from runlog import die, say as print

EOS = "<|endoftext|>"
LEAST = 257                                      # 256 bytes and the EOS


def texts(program, path):
    """Yields the documents of a file as train reads them, a .txt line by line: byte pairs do not
    cross lines."""
    with subprocess.Popen([program, "tokenize", "--text", path], stdout=subprocess.PIPE) as p:
        begun = []                                       # of a document, its lines so far
        for line in p.stdout:
            *ends, rest = (line if ".jsonl" in path else line + b"\0").split(b"\0")
            for end in ends:
                yield b"".join(begun + [end]).decode(errors="replace")
                begun = []
            begun.append(rest)
    if p.returncode:
        sys.exit(p.returncode)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("text", nargs="+", metavar="TEXT")
    p.add_argument("-o", "--out", required=True, metavar="DIR")
    p.add_argument("--vocab", type=int, default=512, help="ids (default 512)")
    p.add_argument("--binary", default=os.path.dirname(HERE) + "/train_sink", metavar="FILE")
    a = p.parse_args()
    if a.vocab < LEAST:
        die(f"--vocab {a.vocab}: wanted {LEAST} or more: every byte and {EOS}", f"--vocab {LEAST}")
    if os.path.exists(f"{a.out}/tokenizer.json"):
        die(f"{a.out}: holds a tokenizer already", "choose another -o")
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        die("the Python package tokenizers is not here",
            "pip install tokenizers; or take demo/tokenizer.json: it reads any text")
    try:
        os.makedirs(a.out, exist_ok=True)
        beside = tempfile.TemporaryDirectory(dir=a.out)    # removes itself, whatever happens
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=a.vocab, special_tokens=[EOS], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator((t for path in a.text for t in texts(a.binary, path)), trainer)
        for name, content in (("tokenizer_config.json", json.dumps({"eos_token": EOS})),
                              ("tokenizer.json", tokenizer.to_str())):
            with open(f"{beside.name}/{name}", "w", encoding="utf-8") as f:
                f.write(content)
            os.replace(f.name, f"{a.out}/{name}")
    except OSError as e:
        die(f"{e.filename or a.out}: {e.strerror}", "choose another -o; the program: make train_sink")
    got = tokenizer.get_vocab_size()
    fewer = "" if got == a.vocab else f" (the text has no pairs for {a.vocab})"
    print(f"{a.out}: {got} ids{fewer}, {EOS} is id 0\nnext: the command of docs/start.md, "
          f"with -d {a.text[0]} --tokenizer {a.out} --fix-token 1:0")


if __name__ == "__main__":
    main()
