"""Does --chat write what transformers' apply_chat_template writes? Templates as models have them:
with BOS or without, with a default system message, with dates, with spaces or without; some that
have the tokens of ChatML and write something else; and some that use what Jinja has.

    python3 dev/peers/check_chat.py --save FILE       test/vectors/chat.jsonl: template, texts, and what
                                                is rendered
    python3 dev/peers/check_chat.py build/test/test_chat DIR..
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
# the tokens of ChatML, and another text
UPPER = TURNS.replace("message['role'] +", "message['role'] | upper +")
TEMPLATES.update({
    "upper": (UPPER + ASSISTANT.replace("assistant", "ASSISTANT"), "", "<|im_end|>", True),
    "role again": (TURNS.replace("'\\n' + message['content']",
                                 "'\\n' + message['role'] + ': ' + message['content']")
                   + ASSISTANT, "", "<|im_end|>", True),
    "empty think": (TURNS + ASSISTANT.replace("assistant\\n",
                                              "assistant\\n<think>\\n\\n</think>\\n\\n"),
                    "", "<|im_end|>", True),
    "text first": ("A conversation.\n\n" + TURNS + ASSISTANT, "", "<|im_end|>", True),
    "bot": (TURNS + ASSISTANT.replace("assistant", "bot"), "", "<|im_end|>", True),
    "two lines": (TURNS.replace("'<|im_end|>' + '\\n'", "'<|im_end|>' + '\\n\\n'") + ASSISTANT,
                  "", "<|im_end|>", True),
    "no line": (TURNS.replace("'<|im_end|>' + '\\n'", "'<|im_end|>'") + ASSISTANT,
                "", "<|im_end|>", True),
    "trimmed": (TURNS.replace("message['content']", "message.content.strip()") + ASSISTANT,
                "", "<|im_end|>", True),
    # what Jinja has
    "namespace": ("""{%- set ns = namespace(system='', n=0) -%}
{%- for m in messages if m.role == 'system' -%}{%- set ns.system = m.content -%}{%- endfor -%}
{% for m in messages %}
    {% if m.role != 'system' -%}
        {%- set ns.n = ns.n + 1 %}
        {{- '[' ~ ns.n ~ '/' ~ loop.length ~ '] ' ~
            (ns.system ~ ': ' if ns.system else '') }}{{ m.content }}
    {% endif %}
{% endfor %}
""", "", "</s>", True),
    "macro": ("""{% macro turn(role, text, end='<|e|>') %}
<|{{ role }}|>{{ text | trim }}{{ end }}
{% endmacro %}
{% for message in messages[::1] -%}
{{ turn(message['role'], message['content']) }}
{%- endfor %}
{{ turn('assistant', '', end='') | trim }}""", "", "<|e|>", True),
    "qwen": ("""{%- if tools %}
    {{- '<|im_start|>system\\n# Tools' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a stone.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system"
            and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or
            (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""", "", "<|im_end|>", True),
    "reverse": ("""{%- set ns = namespace(multi=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi and message.role == "user" and message.content is string
            and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.multi = false %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}{% set sep = ' | ' %}{%- for message in messages -%}
{%- set content = message.content -%}
{%- if '</think>' in content %}{% set content =
    content.split('</think>')[-1].lstrip('\\n') %}{% endif -%}
{{ message.role[0] | upper }}{{ loop.index0 == ns.last }}{{
    sep if not loop.last }}{{ 'see'.replace('e', 'E') }}{{
    content.replace('(', '(') }}
{%- endfor %}
{{ ['x', 'y'] | join('-') }}{{ {'a': 1, 'b': [true, none]} | tojson }}{{ 7 // 2 }}{{ -7 % 3 }}
{{- 'in' if 'a' in {'a': 1} else 'out' }}{# a comment #}
""", "<s>", "</s>", True),
    "refuses": ("{% for m in messages %}{% if m.role == 'system' %}"
                "{{ raise_exception('no system') }}{% endif %}{{ m.content }}\n{% endfor %}",
                "", "</s>", False),
    "drops": ("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}\n{% endif %}"
              "{% endfor %}", "", "</s>", False),
    "select": ("{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"
               "{{ users | length }}{{ users[-1] == messages[-1] }}{{ users[0] == messages[0] }}"
               "{{ messages | rejectattr('role', 'eq', 'user') | map(attribute='content') | join }}"
               "{{ strftime_now is defined }}{{ messages[-1].content }}", "", "</s>", True),
    "lines": ("  {% if true %}  \n\n a {% endif %}\n  {# c #}\n"
              "\t{%- if messages %}\n x{%+ endif %}\n"
              "{{ messages[-1].content }}\n\n", "", "</s>", False),
    "loops": ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}no"
              "{% break %}{% else %}"
              "none{% endfor %}{% for k, v in messages[-1].items() %}{{ k }}={{ v }};{% endfor %}"
              "{% set x %}block {{ messages | length }}{% endset %}{{ x }}{% for i in range(3) %}"
              "{{ loop.revindex }}{% endfor %}", "", "</s>", False),
})
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
            f.write(json.dumps({"name": name, "bos": bos, "eos": eos, "template": template,
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
