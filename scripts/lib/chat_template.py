"""What chat.py and sft.py share: a tokenizer, and its chat template as transformers renders it."""
import os
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")     # PyTorch is not needed


def stop(message, hint):
    sys.exit(f"error: {message}\n---> HINT: {hint}")


def load(name):
    """Returns the tokenizer of a directory, or of a model of the hub; it has a chat template."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        stop("this python has no transformers", "pip install transformers")
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except Exception as e:                                   # whatever a file makes of it
        stop(f"{name}: {str(e).splitlines()[0] if str(e) else type(e).__name__}",
             "--tokenizer DIR, with tokenizer.json and tokenizer_config.json")
    if not tokenizer.chat_template:
        stop(f"{name}: has no chat template, so its model was not trained to answer",
             "generate --prompt TEXT continues a text")
    return tokenizer


def render(tokenizer, messages, prompt=False, tools=None):
    """Returns the conversation as a text; prompt: with the beginning of an answer behind it."""
    return tokenizer.apply_chat_template(messages, tools=tools, tokenize=False,
                                         add_generation_prompt=prompt)
