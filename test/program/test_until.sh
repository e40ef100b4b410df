# train --until ends a run by its evaluations, the same wherever it was killed; train --dry-run says
# what a run costs, and writes nothing
#     sh test/program/test_until.sh [PROGRAM]
. test/ok.sh
. test/runs.sh
need_python 79 test_until
program=${1:-$program}
dir=$(mktemp -d); trap 'rm -rf "$dir" "$dir".*' EXIT
cd "$dir" || exit 1
said=$dir/err
TINY="--seq 16 -b 2 --layers 1 --width 8 --heads 2 --ffn-width 8 --val-seqs 2 --probe-seqs 2 --sample 0"
TEN="$TINY --lr 3e-2 --warmup 2 --eval-every 10"
train() { "$program" train "$@" > out 2> err; ok $? "train $*: $(cat err)"; }
ends() { tail -n 1 "$1/log.jsonl" | grep -o '"event":"done","step":[0-9]*'; }

# ---- a limit that the evaluation of step 10 does not meet, and those of 20 and 30 do
train $TEN -n 60 -o free
limit=$("$PYTHON" -c "
import json
x = {o['step']: o['val_loss'] for o in map(json.loads, open('free/log.jsonl')) if o['event'] == 'eval'}
assert max(x[20], x[30]) < x[10], x
print((max(x[20], x[30]) + x[10]) / 2)")
UNTIL="val_loss<$limit"
train $TEN -n 60 --save-every 1 --save-optimizer all --until "$UNTIL" -o whole
[ "$(ends whole)" = '"event":"done","step":30' ] && [ -d whole/step_30 ] && [ ! -e whole/step_31 ]
ok $? "--until $UNTIL: $(ends whole)"
grep -q '"event":"until","step":30,"until":"val_loss<[0-9.]*","value":' whole/log.jsonl && grep -q '^until  val_loss<' out
ok $? "--until is not logged: $(tail -n 3 whole/log.jsonl)"
# wherever it was killed: the checkpoints up to there, and the log as far as it came
for step in 0 7 19 20 21 25 29; do
    rm -rf killed; cp -r whole killed
    for other in killed/step_*; do [ "${other#*step_}" -le $step ] || rm -r "$other"; done
    [ $step = 25 ] || sed -i '/"step":30,/d' killed/log.jsonl
    train --resume -o killed
    same killed whole "killed after step $step"
done
# what holds once, and not the next time, is counted anew
NOISY="$TINY --lr 0.5 --warmup 1 --eval-every 1 -n 40"
train $NOISY -o noisy
"$PYTHON" - > turns <<'END'
import json
x = [o["val_loss"] for o in map(json.loads, open("noisy/log.jsonl")) if o["event"] == "eval"]
for limit in [(a + b) / 2 for a, b in zip(sorted(x), sorted(x)[1:])]:
    holds = "".join("01"[v < limit] for v in x)
    if holds.find("11") > holds.find("101") >= 0:
        print(limit, holds.find("11") + 1)
        break
END
read -r limit step < turns
train $NOISY --until "val_loss<$limit" -o turns-run
[ "$(ends turns-run)" = "\"event\":\"done\",\"step\":$step" ]; ok $? "val_loss<$limit: $(ends turns-run), wanted $step"
train $TEN -n 20 --until "mass>2" -o never
[ "$(ends never)" = '"event":"done","step":20' ] && ! grep -q '"event":"until"' never/log.jsonl; ok $? "what never holds: $(ends never)"

# ---- --resume ends at once; another condition goes on, and is in the log
train --resume -n 90 -o whole
[ "$(ends whole)" = '"event":"done","step":30' ] && grep -q "^note   --until 'val_loss<.*has ended this run" out
ok $? "--resume -n 90: $(ends whole)"
train --resume --until "val_loss<0.1" -n 50 -o whole
[ "$(ends whole)" = '"event":"done","step":50' ] && grep '"event":"resume"' whole/log.jsonl | grep -q '"until":\["val_loss<[0-9.]*","val_loss<0.1"\]'
ok $? "--resume with another --until: $(ends whole)"
train $TEN -n 50 -o plain
[ "$(hash whole)" = "$(hash plain)" ]; ok $? "the weights after another --until"
train --resume --until "" -n 60 -o whole
[ "$(hash whole)" = "$(hash free)" ]; ok $? "--until '': $(ends whole)"

# ---- what is no condition is one line of error, and no directory
for bad in "sink_9>0.5" "val_loss=3" "val_loss<x" "val_loss" "<3" "sink_1>50" "alpha_1<-1" "val_loss<nan" "val_loss<3 "; do
    "$program" train $TINY -n 3 --until "$bad" -o none > out 2> err
    [ $? -eq 2 ] && [ "$(wc -l < err)" = 2 ] && grep -qF -- "--until '$bad': wanted NAME<NUMBER or NAME>NUMBER of val_loss " err
    ok $? "--until '$bad': $(cat err)"
done
refused "wanted a model with an extra key" "$program" train $TINY -n 3 --until "sink_*>0.1" -o none
refused "until val_loss<3 has no effect without --eval-every" "$program" train $TINY -n 3 --eval-every 0 --until "val_loss<3" -o none
[ ! -e none ]; ok $? "a wrong --until left $(ls none 2>&1)"

# ---- --dry-run: what it says, of the built-in task, a text, shards, a run, a model; and no file is written
seq 4000 > my.txt
"$program" tokenize my.txt -o shards > out 2> err; ok $? "tokenize: $(cat err)"
rm -rf data
all() { find . ! -name out ! -name err -printf '%p %s %T@\n' | sort; }
writes_nothing() { # flags of train..
    all > "$dir.before"
    train --dry-run "$@"
    all > "$dir.after"
    cmp -s "$dir.before" "$dir.after"; ok $? "--dry-run $*: $(diff "$dir.before" "$dir.after")"
    [ "$(grep -c '^time .* ms a step\|^disk .* a checkpoint$\|^memory .* MiB\|^model \|^dry  ' out)" = 5 ]
    ok $? "--dry-run $*: $(cat out)"
}
writes_nothing $TINY -n 60
writes_nothing $TINY -n 60 -o new/run
writes_nothing $TINY -d my.txt
grep -q '^data   my.txt (text, not read), tokenizer bytes, 257 ids$' out; ok $? "of a text: $(grep '^data' out)"
writes_nothing $TINY -d shards
writes_nothing $TINY -d shards:2,my.txt:1
writes_nothing --resume -o free -n 70
grep -q ': 10 steps in ' out; ok $? "of a run that goes on: $(grep '^time' out)"
writes_nothing --init free -n 9 --optimizer muon
refused "no such file or directory" "$program" train --dry-run -d nothing.txt
refused "already holds a run" "$program" train --dry-run $TINY -o free
# what it says of the disk is what a checkpoint takes
train --dry-run --layers 2 --width 256 --heads 4 --ffn-width 512 --seq 16 -b 2 -n 1 --ema 0.9
told=$(sed -n 's/^disk *\([0-9.]*\) MiB.*/\1/p' out)
train --layers 2 --width 256 --heads 4 --ffn-width 512 --seq 16 -b 2 -n 1 --ema 0.9 --val-seqs 2 --probe-seqs 2 -o big
took=$(du -sb big/step_1 | cut -f 1)
awk -v told="$told" -v took="$took" 'BEGIN { took /= 2 ^ 20; exit !(told > 0.98 * took && told < 1.02 * took) }'
ok $? "a checkpoint takes $took bytes, told $told MiB"
finish
