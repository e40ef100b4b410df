#!/usr/bin/env python3
"""One question to a model that was trained to answer, in the form of its own chat template.

    python3 scripts/chat.py MODEL --prompt "Why is the sky blue?" [--system TEXT]
    python3 scripts/chat.py MODEL.gguf --tokenizer DIR --prompt .. --temperature 0 --tokens 300

transformers renders the template; `train_sink generate` gets the prompt on its standard input,
special tokens included, and writes the answer. MODEL is what generate opens; the template is that
of MODEL, or of --tokenizer (for a GGUF file, the directory of the same model). --print prints the
prompt and runs nothing. All other flags are those of generate.

Needs transformers: pip install transformers
"""
import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/lib")
from chat_template import load, render, stop                             # noqa: E402


def written(tokenizer, system, question):
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question})
    try:
        return render(tokenizer, messages, prompt=True)
    except Exception as e:                                   # raise_exception, or a fault of its own
        stop(f"the chat template: {e}", "put the system message in --prompt" if system else
             "write the whole prompt: generate --prompt TEXT")


def main():
    p = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", metavar="MODEL")
    p.add_argument("--prompt", required=True, metavar="QUESTION")
    p.add_argument("--system", default="", metavar="TEXT")
    p.add_argument("--tokenizer", metavar="DIR")
    p.add_argument("--binary", default=os.path.dirname(HERE) + "/train_sink", metavar="FILE")
    p.add_argument("--print", action="store_true")
    a, flags = p.parse_known_args()
    tokenizer = load(a.tokenizer or a.model)
    prompt = written(tokenizer, a.system, a.prompt)
    for name, text in (("--prompt", a.prompt), ("--system", a.system)):
        if text.strip() not in prompt:
            stop(f"{name}: the chat template leaves it out",
                 "write the whole prompt: generate --prompt TEXT")
    if a.print:
        sys.stdout.buffer.write(prompt.encode())
        return
    command = [a.binary, "generate", a.model, "--prompt", "-", "--bos", "none"]
    if a.tokenizer and not a.model.endswith(".gguf"):
        command += ["--tokenizer", a.tokenizer]
    try:
        sys.exit(subprocess.run(command + flags, input=prompt.encode()).returncode)
    except OSError as e:
        stop(f"{a.binary}: {e.strerror}", "make train_sink")


if __name__ == "__main__":
    main()
