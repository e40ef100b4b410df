"""Does --chat write what transformers' apply_chat_template writes? Templates of every form,
in the ways that models have them: with BOS or without, with a default system message, with dates,
with spaces or without.

    python3 dev/check_chat.py --save FILE       test/vectors/chat.jsonl: template, texts, and what
                                                is rendered
    python3 dev/check_chat.py build/test/test_chat DIR..
                                                directories with a tokenizer and its chat template
"""
import json, subprocess, sys
from transformers.utils.chat_template_utils import render_jinja_template

EACH = "{% for message in messages %}"
ROLE = "{{ message['role'] }}"
CONTENT = "{{ message['content'] }}"
ADD = "{% if add_generation_prompt %}"
TURNS = (EACH + "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
                "'\\n' }}{% endfor %}")
ASSISTANT = ADD + "{{ '<|im_start|>assistant\\n' }}{% endif %}"
DEFAULT = ("{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful "
           "stone.<|im_end|>\\n' }}{% endif %}")
LLAMA3 = (EACH + "{% set content = '<|start_header_id|>' + message['role'] + "
                 "'<|end_header_id|>\\n\\n' + message['content'] | trim + "
          "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif "
          "%}{{ content }}{% endfor %}"
          + ADD + "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")
DATES = ("{{- bos_token }}{%- if not date_string is defined %}"
         "{%- set date_string = '26 Jul 2024' %}{%- endif %}"
         "{%- if messages[0]['role'] == 'system' %}"
         "{%- set said = messages[0]['content']|trim %}{%- set messages = messages[1:] %}"
         "{%- else %}{%- set said = '' %}{%- endif %}"
         "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}"
         "{{- 'Cutting Knowledge Date: December 2023\\n' }}"
         "{{- 'Today Date: ' + date_string + '\\n\\n' }}{{- said }}{{- '<|eot_id|>' }}"
         + EACH + "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
         " + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
         + ADD + "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}")
GEMMA = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role "
         "not supported') }}{% endif %}"
         + EACH + "{{ '<start_of_turn>' + message['role'] + '\\n' + message['content'] | trim + "
                  "'<end_of_turn>\\n' }}{% endfor %}"
         + ADD + "{{ '<start_of_turn>model\\n' }}{% endif %}")
GEMMA3 = ("{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first_user_prefix = "
          "messages[0]['content'] + '\\n\\n' -%}"
          "{%- set rest = messages[1:] -%}{%- else -%}{%- set first_user_prefix = '' -%}{%- set "
          "rest = messages -%}{%- endif -%}"
          "{%- for message in rest -%}{{ '<start_of_turn>' + message['role'] + '\\n' + "
          "(first_user_prefix if loop.first else '') }}"
          "{{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}{%- endfor -%}" + ADD
          + "{{ '<start_of_turn>model\\n' }}{% endif %}")
LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = "
          "messages[0]['content'] %}{% else %}"
          "{% set rest = messages %}{% set system = false %}{% endif %}{% for message in rest %}{% "
          "if loop.index0 == 0 and system %}"
          "{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}{% "
          "else %}{% set content = message['content'] %}"
          "{% endif %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% endfor %}")
mistral = lambda head, tail: ("{{ bos_token }}" + EACH + "{{ '" + head
                              + "' + message['content'] + '" + tail + "' }}{% endfor %}")
SYSTEM_MISTRAL = (
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] "
    "%}{%- set rest = messages[1:] %}"
    "{%- else %}{%- set rest = messages %}{%- endif %}{{- bos_token }}{%- for message in rest %}"
    "{%- if loop.last and system_message is defined %}{{- '[INST] ' + system_message + '\\n\\n' + "
    "message['content'] + '[/INST]' }}"
    "{%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}{%- endfor %}")
LINES = lambda end: (EACH + "\n{% if message['role'] == 'user' %}\n"
                            "{{ '<|user|>\\n' + message['content'] + " + end + " }}\n"
         "{% elif message['role'] == 'system' %}\n{{ '<|system|>\\n' + message['content'] + " + end
                     + " }}\n{% endif %}\n"
         "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"
                     "{% endfor %}")
PHI3 = (EACH + "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% "
               "endfor %}" + ADD
        + "{{ '<|assistant|>\\n' }}{% endif %}{# <|user|> #}")
# name: (template, BOS, EOS, may there be a system message?)
TEMPLATES = {
    "chatml": (TURNS + ASSISTANT, "", "<|im_end|>", True),
    "chatml default": (DEFAULT + TURNS + ASSISTANT, "", "<|im_end|>", True),
    "chatml bos": ("{{ bos_token }}" + TURNS + ASSISTANT, "<s>", "</s>", True),
    "chatml thinks": (TURNS + ASSISTANT.replace("assistant\\n", "assistant\\n<think>\\n"), "",
                      "<|im_end|>", True),
    "llama3": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>", True),
    "llama3 dates": (DATES, "<|begin_of_text|>", "<|eot_id|>", True),
    "gemma": (GEMMA, "<bos>", "<eos>", False), "gemma3": (GEMMA3, "<bos>", "<eos>", True),
    "llama2": (LLAMA2, "<s>", "</s>", True),
    "mistral": (mistral("[INST] ", " [/INST]"), "<s>", "</s>", False),
    "mistral v3": (SYSTEM_MISTRAL, "<s>", "</s>", True),
    "mistral nemo": (mistral("[INST]", "[/INST]"), "<s>", "</s>", False),
    "mistral spaced": (SYSTEM_MISTRAL.replace("'[INST] '", "' [INST] '"), "<s>", "</s>", True),
    "zephyr": (LINES("eos_token"), "<s>", "</s>", True),
    "phi3": (PHI3, "<s>", "<|endoftext|>", True),
}
QUESTIONS = ["Why is the sky blue?", "one\ntwo 100 %  and [a] {b} <c>",
             "Ünïcode — 'quoted' \"twice\""]
SYSTEMS = [None, "You are terse.", "Two\nlines."]


def render(template, bos, eos, system, question):
    messages = ([{"role": "system", "content": system}] if system else []) + [
        {"role": "user", "content": question}]
    (text,), _ = render_jinja_template([messages], chat_template=template,
                                       add_generation_prompt=True, bos_token=bos, eos_token=eos)
    return text


def pairs(has_system):
    return [(s, q) for s in (SYSTEMS if has_system else SYSTEMS[:1]) for q in QUESTIONS]


def save(path):
    with open(path, "w") as f:
        for name, (template, bos, eos, has_system) in TEMPLATES.items():
            cases = [{"system": s or "", "question": q, "text": render(template, bos, eos, s, q)}
                     for s, q in pairs(has_system)]
            f.write(json.dumps({"name": name, "bos": bos, "template": template,
                                "cases": cases}, ensure_ascii=False) + "\n")


def check(program, directory):
    """the template of a directory, by the library and by test_chat"""
    import transformers
    tokenizer, bad = transformers.AutoTokenizer.from_pretrained(directory), 0
    for system, question in pairs(True):
        messages = ([{"role": "system", "content": system}] if system else []) + [
            {"role": "user", "content": question}]
        try:
            want = tokenizer.apply_chat_template(messages, add_generation_prompt=True,
                                                 tokenize=False)
        except Exception as e:
            want = ""  # no place for a system message
        r = subprocess.run([program, directory, tokenizer.bos_token or "", system or "", question],
                           capture_output=True, text=True)
        if r.stdout != want:
            bad += 1
            print(f"{directory}: got {r.stdout!r} {r.stderr.strip()!r}, wanted {want!r}")
    return bad


if __name__ == "__main__":
    if sys.argv[1] == "--save":
        sys.exit(save(sys.argv[2]))
    failed = sum(check(sys.argv[1], d) > 0 for d in sys.argv[2:])
    print(f"{len(sys.argv) - 2 - failed} passed, {failed} failed")
    sys.exit(failed > 0)
