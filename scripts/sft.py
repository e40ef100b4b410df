#!/usr/bin/env python3
"""Conversations in the form of a model's own chat template, as `train --sft segments` reads them.

    python3 scripts/sft.py DIR chat.jsonl > segments.jsonl
    ./train_sink train --init DIR -d segments.jsonl --sft segments

DIR has the tokenizer and its template, which transformers renders. A record of chat.jsonl is one of
    {"messages": [{"role": .., "content": ..}, ..]}
    {"conversations": [{"from": "human", "value": ..}, ..]}          ShareGPT
    {"prompt": .., "completion": ..}                                 texts, or lists of messages
    {"instruction": .., "input": .., "output": ..}                   Alpaca
and may have tools. It becomes {"segments": [{"text": .., "loss": 0 or 1}, ..]}: the loss counts
what the template writes behind the beginning of an answer, up to the token that ends it.

Every beginning of a conversation is rendered. If the template writes a beginning in another way
once more follows (some leave out what was thought before), the record is rejected: no text would be
what the model meets in use. So is a record with a text that the template leaves out. weight, loss,
train, trainable and mask of a message say whether it is learned; another key that may say so, and
label, reject the record. Rejected records are left out, and counted by reason on standard error.

    python3 scripts/sft.py --plain zephyr chat.jsonl > segments.jsonl
writes <|role|>\\n content EOS \\n (alignment-handbook; the paper's Appendix D) with the EOS of --eos, by
no model's template. All else needs transformers: pip install transformers
"""
import argparse
import collections
import json
import os
import sys
import types

sys.path.insert(0, os.path.dirname(__file__) + "/lib")
from chat_template import load, render, stop                             # noqa: E402

LOSS_KEYS = {"weight": True, "loss": True, "train": True, "trainable": True, "mask": False}
LOSS_WORDS = set(LOSS_KEYS) | {"weights", "masks", "label", "labels"}
IDLE_KEYS = {"id", "model", "timestamp"}
SHAREGPT = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant",
            "system": "system"}


class Rejected(Exception):
    pass


def neutral(value):
    return value is None or value in ("", [], {})


def messages_of(record):
    """Returns the messages of a record, in whichever known shape it has them."""
    if record.get("messages"):
        return record["messages"]
    if record.get("conversations"):
        talk = record["conversations"]
        if "role" in talk[0]:
            return talk
        if any(m["from"] not in SHAREGPT for m in talk):
            raise Rejected("a message that is not from human, gpt or system")
        return [{"role": SHAREGPT[m["from"]], "content": m["value"],
                 **{k: v for k, v in m.items() if k not in ("from", "value")}} for m in talk]
    if "prompt" in record and "completion" in record:
        asked, answer = record["prompt"], record["completion"]
        if isinstance(asked, list):
            return asked + answer
    elif "instruction" in record and "output" in record:
        asked, answer = record["instruction"], record["output"]
        if record.get("input"):
            asked += "\n\n" + record["input"]
    else:
        raise Rejected("no messages, conversations, prompt and completion, or instruction and "
                       "output")
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]


def learned(message):
    """Takes what says whether the loss counts a message out of it. Returns that."""
    said = set()
    for key in [k for k in LOSS_KEYS if k in message]:
        value = message.pop(key)
        if value is None:
            continue
        if value not in (0, 1):
            raise Rejected(f"a message with {key} other than 0 or 1")
        said.add(bool(value) == LOSS_KEYS[key])
    if len(said) > 1:
        raise Rejected("a message with keys that contradict each other on the loss")
    return said.pop() if said else message["role"] == "assistant"


def check(tokenizer, messages, tools, text):
    """Rejects messages with something in them that the text does not have."""
    for i, m in enumerate(messages):
        content = m.get("content") or ""
        if not isinstance(content, str):
            raise Rejected("a message whose content is no text")
        if content.strip() not in text:
            raise Rejected("a text that the template leaves out or changes")
        for key in set(m) - {"role", "content"} - IDLE_KEYS:
            less = [{k: v for k, v in m.items() if k != key}]
            same = messages[:i] + less + messages[i + 1:]
            if not neutral(m[key]) and render(tokenizer, same, tools=tools) == text:
                raise Rejected(f"a message with {key}, which the template does not write")


def segments_of(tokenizer, record):
    for key, value in record.items():
        if LOSS_WORDS & set(key.split("_")) and not neutral(value) and value not in (True, 1):
            raise Rejected(f"a record with {key}, which may say what the loss counts")
    for key in ("history", "system"):
        if not neutral(record.get(key)):
            raise Rejected(f"a record with {key}, which would be left out")
    messages = [dict(m) for m in messages_of(record)]
    tools = record.get("tools") or None
    counts = [learned(m) for m in messages]
    whole = render(tokenizer, messages, tools=tools)
    check(tokenizer, messages, tools, whole)
    if tools and render(tokenizer, messages) == whole:
        raise Rejected("a record with tools, which the template does not write")
    pieces, done = [], ""

    def add(text, loss):
        nonlocal done
        if not text.startswith(done) or not whole.startswith(text):
            raise Rejected("a template that rewrites earlier turns")
        pieces.append((text[len(done):], loss))
        done = text

    for i, m in enumerate(messages):
        if m["role"] != "assistant":
            if counts[i]:
                raise Rejected("a message to be learned that is not the assistant's")
            continue
        if i == 0 and counts[0]:
            raise Rejected("a conversation that begins with an answer: with weight 0 it is text")
        if i == 0:
            continue
        asked = render(tokenizer, messages[:i], prompt=True, tools=tools)
        add(asked, 0)
        after = render(tokenizer, messages[:i + 1], tools=tools)
        answer = after[len(done):]
        begun = asked != render(tokenizer, messages[:i], tools=tools)
        if not begun and not answer.lstrip().startswith((m.get("content") or "").strip()):
            raise Rejected("a template that does not say where an answer begins")
        special = [t.content for t in tokenizer.added_tokens_decoder.values() if t.special]
        ends = [answer.rfind(t) + len(t) for t in special if t in answer]
        end = max(ends, default=len(answer))
        if answer[end:].strip():                             # text behind its last special token
            end = len(answer)
        add(done + answer[:end] if after.startswith(done) else after, int(counts[i]))
    add(whole, 0)
    merged = []
    for text, loss in pieces:
        if merged and merged[-1]["loss"] == loss:
            merged[-1]["text"] += text
        elif text:
            merged.append({"text": text, "loss": loss})
    return merged


class Zephyr:
    """Stands for a tokenizer whose template is the plain form zephyr."""

    def __init__(self, eos):
        self.eos = eos
        self.added_tokens_decoder = {0: types.SimpleNamespace(content=eos, special=True)}

    def apply_chat_template(self, messages, tools, tokenize, add_generation_prompt):
        turns = "".join(f"<|{m['role']}|>\n{m['content']}{self.eos}\n" for m in messages)
        return turns + "<|assistant|>\n" * add_generation_prompt


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--plain", choices=["zephyr"], help="a form in place of DIR")
    p.add_argument("--eos", default="<|endoftext|>", help="the text of EOS for --plain, default %(default)s")
    p.add_argument("files", nargs="+", metavar="[DIR] FILE.jsonl")
    a = p.parse_args()
    if not a.plain and len(a.files) < 2:
        stop(f"got {a.files[0]} alone, wanted DIR and files of conversations",
             "sft.py DIR chat.jsonl > segments.jsonl; or --plain zephyr in place of DIR")
    tokenizer = Zephyr(a.eos) if a.plain else load(a.files.pop(0))
    written, rejected, first = 0, collections.Counter(), {}
    for path in a.files:
        try:
            lines = open(path, encoding="utf-8")
        except OSError as e:
            stop(f"{path}: {e.strerror}", "give .jsonl files of conversations")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                print(json.dumps({"segments": segments_of(tokenizer, json.loads(line))}))
                written += 1
            except Exception as e:                           # a broken record, or the template's own
                name = "" if isinstance(e, Rejected) else type(e).__name__ + ": "
                rejected[f"{name}{e}"] += 1
                first.setdefault(f"{name}{e}", f"{path}: line {number}")
    print(f"{written} records", file=sys.stderr)
    for reason, n in rejected.most_common(20):
        print(f"{n} rejected, the first {first[reason]}: {reason}", file=sys.stderr)
    if not written:
        stop("no record is left", "see the reasons above")


if __name__ == "__main__":
    main()
