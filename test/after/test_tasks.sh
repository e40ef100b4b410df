# scripts/tasks.py: what it makes of the harness' data formats is what test_score scores,
# and a file of another format is refused
. test/ok.sh
need_python 12 test_tasks
out=build/test/tasks; rm -rf $out; mkdir -p $out
raw=test/after/score/raw
for pair in hellaswag:hellaswag arc_easy:arc piqa:piqa winogrande:winogrande lambada_openai:lambada wikitext:wikitext; do
    $PYTHON scripts/tasks.py ${pair#*:} $raw/${pair%:*}.raw.jsonl \
        > $out/${pair%:*}.jsonl && cmp $out/${pair%:*}.jsonl test/after/score/${pair%:*}.jsonl
    ok $? "$pair"
done
echo '{"question": {"stem": "Why?", "choices": [{"text": "so", "label": "A"}, {"text": "no", "label": "B"}]}, "answerKey": "B"}' > $out/own.jsonl
[ "$($PYTHON scripts/tasks.py arc $out/own.jsonl)" \
    = '{"context": "Question: Why?\nAnswer:", "choices": ["so", "no"], "gold": 1}' ]
ok $? "AI2's own file of ARC"
gzip -c $raw/piqa.raw.jsonl > $out/piqa.jsonl.gz
$PYTHON scripts/tasks.py piqa $out/piqa.jsonl.gz | cmp - test/after/score/piqa.jsonl
ok $? "a file in gzip"
yes 1 | head -n 6 > $out/labels
$PYTHON scripts/tasks.py piqa $raw/piqa.raw.jsonl --labels $out/labels |
    grep -c '"gold": 1}$' | grep -q '^6$'
ok $? "--labels"
fails() { # what it says, what it is, words of the command
    says=$1 what=$2; shift 2
    $PYTHON scripts/tasks.py "$@" > $out/stdout 2> $out/stderr
    [ $? -eq 1 ] && grep -q "$says" $out/stderr && ! grep -q Traceback $out/stderr
    ok $? "$what: $(cat $out/stderr)"
}
yes 1 | head -n 7 > $out/labels
fails "got 7 labels, wanted 6" "a label too many" piqa $raw/piqa.raw.jsonl --labels $out/labels
yes 1 | head -n 5 > $out/labels
fails "got 5 labels, wanted 6" "a label too few" piqa $raw/piqa.raw.jsonl --labels $out/labels
fails "error: --labels with arc: wanted one of hellaswag piqa" "labels of a task without" \
    arc $raw/arc_easy.raw.jsonl --labels $out/labels
fails "error: --labels .*none: No such file" "labels that are not there" piqa $raw/piqa.raw.jsonl --labels $out/none
yes 5 | head -n 6 > $out/labels
fails "record 1: not as piqa has it (ValueError: the right answer is number 5 of 2)" "a label that is no choice" \
    piqa $raw/piqa.raw.jsonl --labels $out/labels
fails "error: --labels : " "an empty name of labels" piqa $raw/piqa.raw.jsonl --labels ''
fails "record 1: not as piqa has it (KeyError: 'goal')" "another format" piqa $raw/arc_easy.raw.jsonl
printf '{"goal"\n' > $out/bad.jsonl
fails "bad.jsonl:1: " "a broken line" piqa $out/bad.jsonl
fails "error: nowhere.jsonl: No such file" "no file" piqa nowhere.jsonl
finish
