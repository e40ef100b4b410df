# scripts/chat.py and scripts/sft.py: what is handed to generate and to train --sft segments is what the template writes.
# Once with test/scripts/stub, where five templates are written in Python, and, if transformers is there, once more with
# the templates themselves. PYTHON=/path/python3 chooses another python
. test/ok.sh
need_python 46 test_chat
export OMP_NUM_THREADS=1
make -s binary BACKEND=cpu > /dev/null || exit 1
root=$(pwd); binary=$root/build/cpu/train_sink; llama=test/after/score/llama; stub=$root/test/scripts/stub
out=build/test/chat; rm -rf $out; mkdir -p $out/without
script() { name=$1; shift; $PYTHON scripts/$name.py "$@" > $out/stdout 2> $out/stderr < /dev/null; }
refused() { # [status], what it says, what it is
    [ "$1" -eq 1 ] && grep -q "^error: .*$2" $out/stderr && grep -q -e '^---> HINT: ' $out/stderr &&
        ! grep -q Traceback $out/stderr && [ ! -s $out/stdout ]
    ok $? "$3: $(cat $out/stdout $out/stderr)"
}
# directories with a tokenizer and a template: demo's with the marks of ChatML, and one of a model
$PYTHON - $out $llama <<'END'
import json, os, shutil, sys
out, llama = sys.argv[1:]
TURNS = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ CONTENT }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
LAST = "('(thinks) ' if loop.last and m['role'] == 'assistant' else '') + m['content']"
for name, template in {
        "chatml": TURNS.replace("CONTENT", "m['content']"),
        "silent": TURNS.replace("CONTENT", "m['content']").split("{% if")[0],
        "rewrites": TURNS.replace("CONTENT", LAST),
        "deaf": "Say something."}.items():
    os.makedirs(f"{out}/{name}")
    t = json.load(open("demo/tokenizer.json"))
    n = max([*t["model"]["vocab"].values(), *(a["id"] for a in t["added_tokens"])]) + 1
    for i, text in enumerate(["<|im_start|>", "<|im_end|>"]):
        t["added_tokens"].append({"id": n + i, "content": text, "special": True, "normalized": False,
                                  "lstrip": False, "rstrip": False, "single_word": False})
    json.dump(t, open(f"{out}/{name}/tokenizer.json", "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{#- %s -#}" % name + template},
              open(f"{out}/{name}/tokenizer_config.json", "w"))
shutil.copytree(llama, out + "/strict")
config = json.load(open(llama + "/tokenizer_config.json"))
config["chat_template"] = ("{#- strict -#}{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}"
                           "{% endif %}the {{ messages[0].content }} of")
json.dump(config, open(out + "/strict/tokenizer_config.json", "w"))

def talk(*turns, **more):
    roles = ["user", "assistant"] * 9
    return {"messages": [{"role": r, **(t if isinstance(t, dict) else {"content": t})}
                         for r, t in zip(roles, turns)], **more}
def write(name, records):
    with open(f"{out}/{name}.jsonl", "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in records)
first = [talk("say %d" % i, "it is %d" % i, "and?", "so it is") for i in range(60)]
last = [talk("q", {"content": "bad", "weight": 0}, "q", {"content": "good", "train": True}),
        talk("q", {"content": "bad", "mask": True}, "q", {"content": " good ", "loss": 1})]
write("good", first + [{"conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
       {"prompt": "a", "completion": "b"}, {"instruction": "a", "input": "i", "output": "b"}] + last)
write("bad", [talk("q", {"content": "a", "weight": 0.5}), talk("q", {"content": "a", "tool_calls": [1]}),
              talk("q", "a", label=False), talk("q", "a", loss_mask=[1]), talk("q", "a", tools=[{"type": "function"}]),
              talk({"content": "q", "train": True}, "a"), talk("q", {"content": [{"type": "text", "text": "a"}]}),
              {"text": "a"}, talk("q", "a", history=[["b", "c"]]), talk("q", "a", label=True),
              talk("q", {"content": "a", "weight": 0, "loss": 1}), {"messages": talk("q", "a", "r", "b")["messages"][1:]}])
open(out + "/bad.jsonl", "a").write("{broken\n")
write("think", [talk("q", "a"), talk("q", "a", "r", "b"), talk("q", "c", "r")])
END
echo 'raise ImportError("none")' > $out/without/transformers.py
for name in chat sft; do
    words=$out/good.jsonl; [ $name = chat ] && words="--prompt a"
    PYTHONPATH=$out/without script $name $out/chatml $words; refused $? "no transformers" "$name without transformers"
    grep -q 'pip install transformers' $out/stderr; ok $? "$name: the hint without transformers"
done
hows=stub; real=$PYTHONPATH
if $PYTHON -c 'import transformers, jinja2' 2> /dev/null; then hows="stub real"
else echo "skipped: 21 checks of test_chat (no transformers)"; fi
for how in $hows; do
    export PYTHONPATH=$stub; [ $how = stub ] || export PYTHONPATH=$real
    # ---- chat.py
    script chat $out/chatml --prompt 'Why?' --system 'Be brief.' --print
    printf '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n' | cmp -s - $out/stdout
    ok $? "$how: the prompt: $(cat $out/stdout $out/stderr)"
    script chat $out/strict --prompt x --system S; refused $? "no system here" "$how: a system message that is refused"
    script chat $out/deaf --prompt x; refused $? "leaves it out" "$how: a template without the question"
    script chat $llama --prompt x; refused $? "has no chat template" "$how: no template"
    script chat $out/nowhere --prompt x; refused $? "nowhere" "$how: no directory"
    script chat $out/strict --prompt door --temperature 0 --tokens 12 --binary $binary; ok $? "$how: chat.py: $(cat $out/stderr)"
    # no special token is added that the template does not write
    for bos in default none; do
        $binary generate $llama --prompt 'the door of' --bos $bos --temperature 0 --tokens 12 > $out/typed.$bos
    done
    mv $out/typed.none $out/typed; ! cmp -s $out/typed $out/typed.default; ok $? "$how: BOS changes nothing"
    [ "the door of$(cat $out/stdout)" = "$(cat $out/typed)" ]; ok $? "$how: the answer: $(cat $out/stdout $out/typed)"
    # the template of another directory
    script chat $llama --tokenizer $out/strict --prompt door --temperature 0 --tokens 12 --binary $binary
    [ "the door of$(cat $out/stdout)" = "$(cat $out/typed)" ]; ok $? "$how: --tokenizer: $(cat $out/stdout $out/stderr)"
    script chat $out/strict --prompt x --binary $out/none; refused $? "make train_sink\|No such file" "$how: no program"
    # ---- sft.py
    script sft $out/chatml $out/good.jsonl; ok $? "$how: sft.py: $(cat $out/stderr)"
    [ "$(head -n 1 $out/stdout)" = '{"segments": [{"text": "<|im_start|>user\nsay 0<|im_end|>\n<|im_start|>assistant\n", "loss": 0}, {"text": "it is 0<|im_end|>", "loss": 1}, {"text": "\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n", "loss": 0}, {"text": "so it is<|im_end|>", "loss": 1}, {"text": "\n", "loss": 0}]}' ]
    ok $? "$how: segments: $(head -n 1 $out/stdout)"
    script sft --plain zephyr --eos '</s>' $out/good.jsonl
    [ "$(head -n 1 $out/stdout)" = '{"segments": [{"text": "<|user|>\nsay 0</s>\n<|assistant|>\n", "loss": 0}, {"text": "it is 0</s>", "loss": 1}, {"text": "\n<|user|>\nand?</s>\n<|assistant|>\n", "loss": 0}, {"text": "so it is</s>", "loss": 1}, {"text": "\n", "loss": 0}]}' ]
    ok $? "$how: zephyr: $(head -n 1 $out/stdout)"
    script sft $out/chatml $out/bad.jsonl
    [ $? = 0 ] && [ "$(wc -l < $out/stdout)" = 1 ] && grep -q '^1 records$' $out/stderr; ok $? "$how: rejected: $(cat $out/stdout $out/stderr)"
    for reason in 'line 1: a message with weight other' 'line 2: a message with tool_calls' 'line 3: a record with label' \
        'line 4: a record with loss_mask' 'line 5: a record with tools' "line 6: a message to be learned that is not" \
        'line 7: a message whose content is no text' 'line 8: no messages' 'line 9: a record with history' 'line 11: a message with keys that contradict' \
        'line 12: a conversation that begins with an answer' 'line 13: JSON'; do
        grep -q "^1 rejected, the first .*$reason" $out/stderr || { ok 1 "$how: $reason: $(cat $out/stderr)"; continue; }
    done
    ok 0
    script sft $out/silent $out/think.jsonl; refused $? "no record is left" "$how: no beginning of an answer"
    grep -q '^3 rejected.*a template that does not say where an answer begins' $out/stderr; ok $? "$how: $(cat $out/stderr)"
    script sft $out/rewrites $out/think.jsonl
    [ $? = 0 ] && [ "$(wc -l < $out/stdout)" = 1 ] && grep -q '^2 rejected.*line 2: a template that rewrites' $out/stderr; ok $? "$how: rewritten turns: $(cat $out/stdout $out/stderr)"
    script sft $out/rewrites $out/nowhere.jsonl; refused $? "nowhere" "$how: no file"
    script sft $out/deaf $out/good.jsonl; refused $? "no record is left" "$how: texts that are left out"
    grep -q 'line 1: a text that the template leaves out' $out/stderr; ok $? "$how: the reason: $(cat $out/stderr)"
done
finish
