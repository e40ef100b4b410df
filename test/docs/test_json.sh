# docs/json.md against the files that the program writes: test/docs/json_page.py
#     sh test/docs/test_json.sh
. test/ok.sh
need_python 11 test_json
root=$PWD
scratch
cd "$dir" || exit 1
SMALL="--seq 16 -b 2 --layers 2 --width 16 --heads 2 --ffn-width 16 --val-seqs 2 --probe-seqs 2 --probe-len 16"
run() { works "$program" "$@"; }
run train $SMALL -n 4 --eval-every 2 -o run
run train --resume -o run -n 6 --lr 1e-3
run train $SMALL -n 4 --eval-every 1 --until "val_loss<9" -o until
run probe run --probe-len 16,12 --probe-seqs 2 --eps 0.2,0.3 --per-sequence --sink-at 11 --json probe.json --anatomy --anywhere
run eval run --probe-len 16 --probe-seqs 2 --stream 1+4 --evict knorm:0.5 --quant w8a8 --edit 'h:0:1=0' --gradients --json eval.json
run bench --layers 1 --width 16 --heads 1 --ffn-width 16 --seq 16 -b 2 -n 1 --json bench.json
{ echo '{"context": "the door of", "choices": ["a house", "the river"], "gold": 1}'
  echo '{"context": "the door of", "choices": ["a house", ""], "gold": 0}'; } > a.jsonl
echo '{"text": "the fog was in the street"}' > b.jsonl
for i in 1 2 3 4 5 6 7 8 9; do echo "the fog was in the street, and the door of the house stood open, $i times"; done > text.txt
cat text.txt text.txt text.txt text.txt > more.txt
run train $SMALL -d more.txt -n 2 --sample 4 -o bytes
"$program" score bytes --tokenizer bytes --task a.jsonl,b.jsonl --json score.json --items items.txt > out 2> err
[ $? -eq 2 ] && [ -s score.json ]; ok $? "score: $(cat err)"
rm -f a.jsonl b.jsonl; mv items.txt items.jsonl; cp run/log.jsonl log.jsonl; cp bytes/log.jsonl bytes.jsonl; cp until/log.jsonl until.jsonl; cp "$root/test/demo/text-k/log.jsonl" k.jsonl
rm -rf run bytes until
sources=$(cd "$root" && find base core run text after log.h metrics.cuh -name '*.h' -o -name '*.cpp' -o -name '*.cuh' | sed "s|^|$root/|")
{ cat "$root/docs/json.md"; sed 's/^# /\n## /' "$root/after/anatomy.md"; sed -n '/^## score --json/,$p' "$root/after/score.md"; } > both.md
export PYTHONPATH="$root/scripts/lib${PYTHONPATH:+:$PYTHONPATH}"
"$PYTHON" "$root/test/docs/json_page.py" both.md $sources > "$dir/answer"
ok $? "$(grep -v passed "$dir/answer" | head -n 20)"
# and the check itself: a field that is left out, one that is not there, an example that is wrong
noticed() { # a script of sed, what is said
    sed "$1" both.md > page.md
    ! "$PYTHON" "$root/test/docs/json_page.py" page.md $sources > "$dir/answer" &&
        grep -q "$2" "$dir/answer"
    ok $? "$1 was not noticed: $(tail -n 1 "$dir/answer")"
}
noticed '/^| `entropy`/d' 'does not tell of entropy'
noticed 's/`grad_norm` |/`grad_length` |/' 'tells of grad_length, which no source writes'
noticed 's/o\["tokens"\]/o["tokens_read"]/' "KeyError('tokens_read')"
finish
