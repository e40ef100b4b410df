"""Stands for transformers where it is not installed: a tokenizer whose template is one of five that
are written here in Python. A template file names its own in its first comment; Jinja is not read.
What is tested with it is what the scripts do with a text, not how a template is rendered."""
import json
import types


def chatml(tokenizer, messages, add_generation_prompt, tools):
    turns = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages]
    return "".join(turns) + "<|im_start|>assistant\n" * add_generation_prompt


def silent(tokenizer, messages, add_generation_prompt, tools):
    return chatml(tokenizer, messages, False, tools)


def rewrites(tokenizer, messages, add_generation_prompt, tools):
    turns = [dict(m) for m in messages]
    if turns[-1]["role"] == "assistant":
        turns[-1]["content"] = "(thinks) " + turns[-1]["content"]
    return chatml(tokenizer, turns, add_generation_prompt, tools)


def strict(tokenizer, messages, add_generation_prompt, tools):
    if messages[0]["role"] == "system":
        raise ValueError("no system here")
    return "the " + messages[0]["content"] + " of"


def deaf(tokenizer, messages, add_generation_prompt, tools):
    return "Say something."


class AutoTokenizer:
    @staticmethod
    def from_pretrained(name):
        self = AutoTokenizer()
        with open(name + "/tokenizer_config.json") as f:
            self.chat_template = json.load(f).get("chat_template")
        with open(name + "/tokenizer.json") as f:
            added = json.load(f)["added_tokens"]
        self.added_tokens_decoder = {t["id"]: types.SimpleNamespace(**t) for t in added}
        return self

    def apply_chat_template(self, messages, tools=None, tokenize=True, add_generation_prompt=False):
        assert not tokenize
        name = self.chat_template.split()[1]
        return globals()[name](self, messages, add_generation_prompt, tools)
