# scripts/tasks.py: what it makes of the harness' data formats is what test_score scores,
# and a file of another format is refused
. test/ok.sh
need_python 12 test_tasks
out=build/test/tasks; rm -rf $out; mkdir -p $out
for pair in hellaswag:hellaswag arc_easy:arc piqa:piqa winogrande:winogrande lambada_openai:lambada wikitext:wikitext; do
    $PYTHON scripts/tasks.py ${pair#*:} test/after/score/raw/${pair%:*}.raw.jsonl \
        > $out/${pair%:*}.jsonl && cmp $out/${pair%:*}.jsonl test/after/score/${pair%:*}.jsonl
    ok $? "$pair"
done
echo '{"question": {"stem": "Why?", "choices": [{"text": "so", "label": "A"}, {"text": "no", "label": "B"}]}, "answerKey": "B"}' > $out/own.jsonl
[ "$($PYTHON scripts/tasks.py arc $out/own.jsonl)" \
    = '{"context": "Question: Why?\nAnswer:", "choices": ["so", "no"], "gold": 1}' ]
ok $? "AI2's own file of ARC"
gzip -c test/after/score/raw/piqa.raw.jsonl > $out/piqa.jsonl.gz
$PYTHON scripts/tasks.py piqa $out/piqa.jsonl.gz | cmp - test/after/score/piqa.jsonl
ok $? "a file in gzip"
yes 1 | head -n 6 > $out/labels
$PYTHON scripts/tasks.py piqa test/after/score/raw/piqa.raw.jsonl --labels $out/labels |
    grep -c '"gold": 1}$' | grep -q '^6$'
ok $? "--labels"
yes 1 | head -n 7 > $out/labels
! $PYTHON scripts/tasks.py piqa test/after/score/raw/piqa.raw.jsonl --labels $out/labels > $out/stdout 2> $out/stderr &&
    grep -q "got 7 labels, wanted 6" $out/stderr
ok $? "a label too many: $(cat $out/stderr)"
yes 1 | head -n 5 > $out/labels
! $PYTHON scripts/tasks.py piqa test/after/score/raw/piqa.raw.jsonl --labels $out/labels > $out/stdout 2> $out/stderr &&
    grep -q "got 5 labels, wanted 6" $out/stderr
ok $? "a label too few: $(cat $out/stderr)"
! $PYTHON scripts/tasks.py arc test/after/score/raw/arc_easy.raw.jsonl --labels $out/labels > $out/stdout 2> $out/stderr &&
    grep -q "error: --labels with arc: wanted one of hellaswag piqa" $out/stderr
ok $? "labels of a task without: $(cat $out/stderr)"
! $PYTHON scripts/tasks.py piqa test/after/score/raw/piqa.raw.jsonl --labels $out/none > $out/stdout 2> $out/stderr &&
    grep -q "error: --labels .*none: No such file" $out/stderr && ! grep -q Traceback $out/stderr
ok $? "labels that are not there: $(cat $out/stderr)"
yes 5 | head -n 6 > $out/labels
! $PYTHON scripts/tasks.py piqa test/after/score/raw/piqa.raw.jsonl --labels $out/labels > $out/stdout 2> $out/stderr &&
    grep -q "record 1: not as piqa has it (ValueError: the right answer is number 5 of 2)" $out/stderr
ok $? "a label that is no choice: $(cat $out/stderr)"
! $PYTHON scripts/tasks.py piqa test/after/score/raw/piqa.raw.jsonl --labels '' > $out/stdout 2> $out/stderr
ok $? "an empty name of labels: $(cat $out/stderr)"
$PYTHON scripts/tasks.py piqa test/after/score/raw/arc_easy.raw.jsonl > $out/stdout 2> $out/stderr
[ $? -eq 1 ] && grep -q "record 1: not as piqa has it (KeyError: 'goal')" $out/stderr &&
    ! grep -q Traceback $out/stderr
ok $? "another format: $(cat $out/stderr)"
printf '{"goal"\n' > $out/bad.jsonl
$PYTHON scripts/tasks.py piqa $out/bad.jsonl > $out/stdout 2> $out/stderr
[ $? -eq 1 ] && grep -q "bad.jsonl:1: " $out/stderr && ! grep -q Traceback $out/stderr
ok $? "a broken line: $(cat $out/stderr)"
$PYTHON scripts/tasks.py piqa nowhere.jsonl > $out/stdout 2> $out/stderr
[ $? -eq 1 ] && grep -q "error: nowhere.jsonl: No such file" $out/stderr
ok $? "no file: $(cat $out/stderr)"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
