# a run saves by itself, `--resume -o DIR` alone goes on bit for bit, and nothing that was edited or
# damaged meanwhile goes unnoticed
#     sh test/program/test_resume.sh
. test/ok.sh
. test/runs.sh
report=$PWD/scripts/report.py
scratch
cd "$dir" || exit 1
TINY="--seq 16 -b 2 --width 8 --heads 2 --ffn-width 8 --val-seqs 2 --probe-seqs 2 --eval-every 0 --sample 0"
# a checkpoint before every step
OFTEN="--save-minutes 1e-9"

run() { "$program" train "$@" > out 2> err; code=$?; }
train() { run "$@"; ok $code "train $*: exit $code, $(cat err)"; }
steps() { (cd "$1" 2> /dev/null && ls -d step_* 2> /dev/null | tr '\n' ' '); }
whole_steps() { steps "$1" | tr ' ' '\n' | grep '^step_[0-9]*$'; }
says() { grep -q -- "$1" out err; ok $? "$2: wanted '$1', got $(cat err)"; }
# RUN, a sed expression: a copy of it whose state.json says other things, and has no hash
edited() {
    rm -rf edited; cp -r "$1" edited
    sed -i "$2"'; s/, "files": .*/}/; s/"automatic": false, //; s/"version": "[^"]*", //' edited/step_*/state.json
}
refuses() { # what it says, flags of train..
    text=$1; shift
    run "$@"
    [ $code -eq 2 ] && [ "$(grep -c '^error: ' err)" = 1 ] && [ "$(grep -c '^---> HINT: ' err)" = 1 ]
    ok $? "train $*: exit $code, $(cat err)"
    says "$text" "train $*"
}

# ---- automatic checkpoints: one, the newest, beside those that are kept
train $TINY -n 20 -o whole
[ "$(steps whole)" = "step_20 " ]; ok $? "without flags a short run keeps its last step: $(steps whole)"
train $TINY -n 20 $OFTEN --save-every 7 -o often
same often whole "automatic checkpoints"
[ "$(steps often)" = "step_0 step_14 step_20 step_7 " ]; ok $? "kept: $(steps often)"
train $TINY -n 20 $OFTEN --stop-after 1e-9 -o stop # before its first step
tail -n 1 stop/log.jsonl | grep -q '"event":"stopped"'; ok $? "--stop-after 1e-9 did not stop"
train --resume -o stop
same stop whole "stopped at step 0"
# an evaluation that a signal cut short is made again: a run that was killed right after it has it once
edited whole 's/"automatic": false/"unevaluated": true/'
train --resume -o edited
same edited whole "evaluated after the checkpoint"
# an automatic one becomes one that is kept, if the run ends there
edited whole '' # an old checkpoint, without hashes
train --resume -n 25 -o edited
[ "$(steps edited)" = "step_20 step_25 " ]; ok $? "an old checkpoint was removed: $(steps edited)"

# ---- kill -9 at any moment, twice, with automatic checkpoints: KILLS=100 sh test/program/test_resume.sh
long="${TINY%--eval*}--eval-every 20 --sample 0 -n 60 --save-every 25 --ema 0.9 --schedule wsd $OFTEN"
began=$(date +%s%N)
train $long -o unkilled
took=$((($(date +%s%N) - began) / 1000000))
i=0 resumed=0
while [ $i -lt "${KILLS:-14}" ]; do
    i=$((i + 1))
    rm -rf killed
    for again in 1 2 3; do
        flags=$long
        [ ! -d killed ] || flags="$flags --resume"           # killed before its first checkpoint
        [ -z "$(whole_steps killed)" ] || { flags=--resume; resumed=$((resumed + 1)); }
        ms=$((i * 7919 * again % 100 * took / 100))
        [ $again = 3 ] || timeout -s KILL $((ms / 1000)).$(printf %03d $((ms % 1000))) \
            "$program" train $flags -o killed > out 2> err
    done
    train $flags -o killed
    same killed unkilled "kill $i"
    cmp -s killed/step_60/ema.safetensors unkilled/step_60/ema.safetensors; ok $? "kill $i: another mean of the weights"
    [ "$(echo $(ls killed))" = "log.jsonl step_0 step_25 step_50 step_60" ]; ok $? "kill $i left $(ls killed)"
done
[ $resumed -gt $((i / 4)) ]; ok $? "only $resumed kills came while the run trained"

# ---- whatever ends a run, it saves before. The run writes to a FIFO and so is as fast as its reader
mkfifo fifo
starts() { # directory, flags..: a run of a million steps in the background, past its first step
    at=$1; shift
    "$program" train $TINY -n 1000000 --print-every 1 --stop-after 1 -o "$at" "$@" > fifo 2> err & pid=$!
    exec 3< fifo
    while read -r line <&3; do case $line in step*) break ;; esac; done
}
ends() { cat <&3 > out; wait $pid; code=$?; exec 3<&-; }
goes_on() { # directory, what: some steps more, as in a run that was not ended
    last=$(ls -d "$1"/step_* | sed 's/.*step_//' | sort -n | tail -n 1)
    [ "${last:-0}" -gt 0 ]; ok $? "$2: nothing was saved"
    train --resume -n $((${last:-0} + 9)) -o "$1"
    train $TINY -n $((${last:-0} + 9)) -o "undisturbed"
    [ -n "$(hash undisturbed)" ] && [ "$(hash undisturbed)" = "$(hash "$1")" ]
    ok $? "$2: goes on with other weights"
    rm -rf undisturbed
}
for signal in INT TERM HUP QUIT USR1 USR2 ALRM XCPU PROF VTALRM PWR RTMIN; do
    # two at once, as timeout(1) and schedulers send them
    starts "sig$signal"; kill -s $signal $pid 2> /dev/null || kill -34 $pid; kill -INT $pid; ends
    [ $code -eq 0 ] && grep -q "^stopped at step" out; ok $? "SIG$signal: exit $code, $(cat err)"
    goes_on "sig$signal" "SIG$signal"
done
( "$program" train $TINY -n 1000000 --print-every 1 -o pipe 2> err; echo $? > code ) | head -n 12 > out
[ "$(cat code)" = 1 ]; ok $? "a reader that leaves: exit $(cat code)"
says "pipe/step_[0-9]* is intact" "a reader that leaves"
goes_on pipe "a reader that leaves"
starts nolog; rm nolog/log.jsonl; ends
[ $code -eq 1 ]; ok $? "a log that was removed: exit $code"
says "was removed or moved" "rm log.jsonl"; says "nolog/step_[0-9]* is intact" "rm log.jsonl"
goes_on nolog "rm log.jsonl"
starts gone; rm -r gone; ends
[ $code -eq 1 ]; ok $? "rm -r: exit $code"; says "was removed or moved" "rm -r"
starts moved; mv moved elsewhere; ends
[ $code -eq 1 ]; ok $? "mv r q: exit $code"
says "elsewhere/step_[0-9]* is intact: --resume -o .*elsewhere" "mv r q"
[ ! -e moved ]; ok $? "mv r q: made r again"
goes_on elsewhere "mv r q"
# a disk that is full for the log, and not for a checkpoint
(ulimit -f 200; "$program" train $TINY -n 100000 -o full > out 2> err)
says "full/log.jsonl: cannot write" "a full disk"; says "full/step_[0-9]* is intact" "a full disk"
goes_on full "a full disk"
# and one that is full from the start promises nothing
(ulimit -f 1; "$program" train $TINY -n 1000 -o full1 > out 2> err)
grep -q whole err; [ $? -ne 0 ]; ok $? "promises a checkpoint that is not there: $(cat err)"
[ -z "$(steps full1)" ]; ok $? "a full disk left $(steps full1)"

# a text that is cut short or written over while it is read
seq 20000 > sheep.txt; "$program" tokenize sheep.txt -o sheep 2> err
starts cut -d sheep --vocab 257; cp -r sheep whole_sheep
shard=$(ls sheep/train_*.bin); truncate -s 2000 "$shard"; ends
[ $code -eq 1 ]; ok $? "a shard that was cut: exit $code"
says "$shard: was cut short" "a shard that was cut"; says "cut/step_[0-9]* is intact" "a shard that was cut"
rm -rf sheep; mv whole_sheep sheep
last=$(ls -d cut/step_* | sed 's/.*step_//')
train --resume -o cut -n $((last + 9)); train $TINY -d sheep --vocab 257 -n $((last + 9)) -o uncut
[ -n "$(hash cut)" ] && [ "$(hash cut)" = "$(hash uncut)" ]; ok $? "a shard that was cut: other weights"
for how in touch mv; do                                  # a new date is no other text, nor is another file of its name
    starts $how -d sheep --vocab 257
    [ $how = touch ] || { mv "$shard" shard; head -c 2000 shard > "$shard"; }
    touch "$shard"; kill -INT $pid; ends
    ok $code "$how of a shard: exit $code, $(cat err)"
done
mv shard "$shard"
starts over -d sheep --vocab 257 --save-every 3
python3 -c "
f = open('$shard', 'r+b'); f.seek(1024); f.write(b'1\\0' * 25000)"; ends
[ $code -eq 2 ]; ok $? "a shard that was written over: exit $code"
says "was written to while it was trained on" "a shard that was written over"
# threads and stack that the system does not give
(ulimit -S -s 64; run $TINY -n 2 -o stack; exit $code); ok $? "a small stack that may be raised: $(cat err)"
(ulimit -s 64; run $TINY -n 2 -o stack2; exit $code); [ $? -eq 1 ]; ok $? "a small stack: $(cat err)"
says "stack: got a limit of 64 KiB, wanted 1024" "a small stack"
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null && command -v prlimit > /dev/null; then
    chmod 755 "$dir"
    OMP_NUM_THREADS=4 prlimit --nproc=1 setpriv --reuid 65534 --clear-groups \
        "$program" check > out 2> err
    [ $? -eq 1 ]; ok $? "no threads: $(cat err)"; says "threads: the system gave 1, wanted 4" "no threads"
else echo "skipped: 2, which need to change the user"; fi

# ---- --resume -o DIR alone: what is not given is the run's own
other="--seq 12 -b 3 --total-batch 72 --width 8 --heads 1 --ffn-width 8 --val-seqs 3 --probe-seqs 3
    --optimizer sgd --lr 3.1234567891e-3 --warmup 3 --schedule cosine --min-lr 1e-4 --beta1 0.8
    --weight-decay 0.3 --grad-clip 0.7 --eval-every 4 --sample 0 --probe-len 9 --eps 0.2,0.1
    --seed 4 --bb-vocab 20 --bb-temp 1.5 --rope-base 777 --product any -n 17"
train $other -o own
train $other --stop-after 1e-9 -o own2
train $OFTEN --resume -o own2
same own2 own "--resume alone"
[ "$(grep -c '"event":"resume"' own2/log.jsonl)" = 1 ]; ok $? "a flag that was given is not told"
grep '"event":"resume"' own2/log.jsonl | grep -q '"changed":{"save_minutes":\[10,1e-09\]}'
ok $? "told as changed: $(grep '"resume"' own2/log.jsonl)"
# from another directory, with a text and a tokenizer that are named from the first
mkdir there text; seq 3000 > text/my.txt
cp "$(dirname "$report")/../demo/tokenizer.json" text/
texts="-d text/my.txt:2,text/my.txt:1 --tokenizer text/tokenizer.json $TINY"
train $texts -n 6 -o read
train $texts -n 3 -o read2; train $texts -n 3 -o read3
train --resume -n 6 -o read2
[ -n "$(hash read)" ] && [ "$(hash read2)" = "$(hash read)" ]; ok $? "a text: other weights"
(cd there && "$program" --resume -n 6 -o ../read3 > ../out 2> ../err); ok $? "from elsewhere: $(cat err)"
[ "$(hash read3)" = "$(hash read)" ]; ok $? "from elsewhere: other weights"
# what is given is told, and the tables follow it
train ${TINY%--eval*} --eval-every 2 --sample 0 -n 4 -o told
train --resume -n 8 --lr 1e-3 --weight-decay 0 -o told
says '"lr":\[0.0004,0.001\]' "a change is printed"
python3 "$report" --csv told > told.csv
python3 - told.csv <<'EOF'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
got = [(int(r["step"]), float(r["lr"]), float(r["weight_decay"]), int(r["steps"])) for r in rows]
assert got == [(s, 4e-4 if s <= 4 else 1e-3, .1 if s <= 4 else 0, 4 if s <= 4 else 8)
               for s in (0, 2, 4, 6, 8)], got
EOF
ok $? "report.py --csv after a change"
# killed before its first checkpoint, twice: it begins again, and what was logged is kept
starts early; kill -9 $pid; ends 2> /dev/null
for again in "" 2; do
    cp early/log.jsonl before.txt; mkdir early/step_0.tmp; touch early/step_0.tmp/config.json
    starts early --resume; kill -9 $pid; ends 2> /dev/null
    cmp -s before.txt early/log.jsonl.old$again; ok $? "its log is gone: $(ls early)"
    [ ! -e early/step_0.tmp ]; ok $? "what a killed save left is still there"
done
train --resume -o early -n 20
says "^note   early: .*begins again; its log so far is early/log.jsonl.old3" "killed before a checkpoint"
same early whole "killed before a checkpoint"
rm -r early/step_*; refuses "early: holds the log of a run and no checkpoint" --resume -o early
# begun by a build or a number of ranks that this is not
begun() { rm -rf begun; mkdir begun; sed "1$1; 20q" before.txt > begun/log.jsonl; }
begun 's/"ATTN":"softmax"/"ATTN":"sigmoid"/'
refuses "begun with other flags: ATTN=softmax, wanted sigmoid as before" --resume -o begun
begun 's/"batch":2,/"batch":1,/; 1s/"params"/"ranks":2,"params"/'
train --resume -o begun -n 20
same begun whole "begun by two ranks"
# a change that was killed before it was saved is still what was wanted
starts change --save-every 5; kill -9 $pid; ends 2> /dev/null
if [ -n "$(whole_steps change)" ]; then
    last=$(whole_steps change | sed 's/.*step_//' | sort -n | tail -n 1)
    printf '{"event":"resume","step":%s,"changed":{"lr":[0.0004,0.002]},"time":"2026-01-01T00:00:00Z"}\n' \
        "$last" >> change/log.jsonl
    train --resume -o change -n $((last + 2)) --print-every 1
    says '"lr":\[0.0004,0.002\]' "a change that was not saved"
    [ "$(grep -c '"event":"resume"' change/log.jsonl)" = 1 ]; ok $? "a change is told twice"
fi
# a log without a checkpoint is kept, and the error says what to do
cp -r told lost; rm -r lost/step_*; cp lost/log.jsonl log.before
refuses "lost: holds the log of a run and no checkpoint" --resume -o lost
says "mv lost lost.old" "what to type"
refuses "lost: already holds a run" $TINY -n 4 -o lost
cmp -s lost/log.jsonl log.before; ok $? "the log of a run without a checkpoint was changed"
# one that has not made a step has lost nothing
mkdir none; head -n 2 lost/log.jsonl > none/log.jsonl
refuses "none: has no checkpoint, and was begun with other flags" --resume -o none --seed 77
head -n 2 whole/log.jsonl > none/log.jsonl
train --resume -o none
same none whole "a run without a step, by the flags of its log"
# what is no run trains nothing: a parent of runs, an empty directory, an empty log
mkdir -p parent/empty; cp -r told parent/one
refuses "parent: contains runs, but is not one: one" --resume -o parent
says "HINT: name one of them: --resume -o parent/one$" "which run is meant"
refuses "parent/empty: holds no run to resume" --resume -o parent/empty
: > parent/empty/log.jsonl
refuses "parent/empty: holds no run to resume" --resume -o parent/empty --stop-after 1
# nor do flags that say nothing of a model, in a directory of somebody else's
mkdir foreign; echo mine > foreign/notes.txt
for flags in "-n 3" "--eval-every 5" "--lr 1e-3 --seed 4 --save-minutes 5 -b 2"; do
    refuses "foreign: holds no run to resume" --resume -o foreign $flags
done
printf '{"event":"config","swi' > foreign/log.jsonl      # killed in its first line
refuses "foreign: holds no run to resume" --resume -o foreign -n 3
[ ! -s parent/empty/log.jsonl ] && [ ! -e parent/log.jsonl ]; ok $? "something was trained there"
[ "$(ls foreign | tr '\n' ' ')" = "log.jsonl notes.txt " ]; ok $? "something was trained: $(ls foreign)"
# but what was interrupted so can be begun, also by a script that always says --resume
train $TINY -n 20 -o foreign; same foreign whole "begun over half a line"
train $TINY -n 20 -o parent/empty; same parent/empty whole "begun over an empty log"
mkdir scripted; train $TINY -n 20 --resume -o scripted
says "^note   scripted: holds no run, so one begins" "--resume that begins"
same scripted whole "begun by --resume"
# a checkpoint without a log is a run, too
rm scripted/log.jsonl; refuses "scripted: already holds a run" $TINY -n 3 -o scripted

# ---- nothing that was edited goes unnoticed
train $TINY -n 3 -o sound --rope-scaling yarn --rope-factor 2 --window 7
cat > edits.py <<'EOF'
import json, os, re, sys
out = "edited/step_3/"
def config():
    text = open("sound/step_3/config.json").read()
    for m in re.finditer(r'": (-?[0-9][0-9.e+-]*)', text):
        v = float(m.group(1))
        for new in (repr(v + 1), repr(v * 2 if v else 7), "1e-30"):
            yield "config.json", text[:m.start(1)] + new.removesuffix(".0") + text[m.end(1):]
    yield "config.json", text.replace('"yarn"', '"linear"')
    yield "config.json", text + "\n"
def state():
    text = open("sound/step_3/state.json").read()
    for a, b in (('"drawn":6', '"drawn":56'), ('"drawn":6', '"drawn":null'), ('"drawn":6', '"drawn":"x"'),
                 ('"drawn":6', '"drawn":-5'), ('"drawn":6', '"drawn":1e300'), ('"lr":0.0004', '"lr":0.0005'),
                 ('"tokens_per_step": 32', '"tokens_per_step": 64'), ('"batch": 2', '"batch": 1'),
                 ('"seed":"1"', '"seed":"2"'), ('"warmup":100', '"warmup":1')):
        assert a in text, a
        yield "state.json", text.replace(a, b, 1)
    whole = json.loads(text)
    for key in whole:
        rest = dict(whole); del rest[key]
        yield "state.json", json.dumps(rest)
edits = list(config()) + list(state())
if len(sys.argv) == 1: print(len(edits))
else:
    name, text = edits[int(sys.argv[1])]
    open(out + name, "w").write(text)
EOF
edits=$(python3 edits.py)
[ "$edits" -gt 40 ]; ok $? "only $edits edits were tried"
i=0
while [ $i -lt "$edits" ]; do
    rm -rf edited; cp -r sound edited; python3 edits.py $i
    run --resume -o edited -n 4
    [ $code -eq 2 ] && cmp -s edited/log.jsonl sound/log.jsonl && grep -q HINT err
    ok $? "edit $i: exit $code, $(diff sound/step_3 edited/step_3 | head -n 3 | cut -c 1-100)"
    i=$((i + 1))
done
# the tokenizer that a checkpoint brings is one of its files, too
rm -rf edited; cp -r read2 edited; sed -i 's/"vocab"/"vocab" /' edited/step_6/tokenizer.json
refuses "tokenizer.json: was edited" --resume -o edited
# one without hashes is believed, but its place in the data is known
edited sound 's/"drawn":6/"drawn":8/'
refuses 'data.drawn 8: wanted the sequences of all steps, 6' --resume -n 4 -o edited
edited read2 's/"source_drawn":\[[0-9]*/"source_drawn":[50/'
refuses 'data.source_drawn 50' --resume -o edited

# numbers that no program writes, in a checkpoint without hashes
for edit in 's/"tokens_per_step": 32/"tokens_per_step": 1e300/' 's/"T":16/"T":1e-300/' \
            's/"batch": 2/"batch": -1e300/' 's/"T":16/"T":1.5/'; do
    edited sound "$edit"
    refuses "wanted a whole number" --resume -n 4 -o edited
done
for edit in 's/"T":16/"T":1e300/' 's/"held":\[[0-9]*/"held":[-5/' 's/"held":\[[0-9]*/"held":[1e300/'; do
    rm -rf edited; cp -r read2 edited
    sed -i "$edit" edited/step_6/state.json
    "$program" probe edited/step_6 > out 2> err; code=$?
    [ $code -eq 2 ] && grep -q "wanted a whole number" err; ok $? "probe, $edit: exit $code, $(cat err)"
done

# the hashes do not come off
rm -rf edited; cp -r sound edited
sed -i 's/, "files": .*/}/; s/"automatic": false, //' edited/step_3/state.json
refuses "its own hash is gone" --resume -n 4 -o edited
# a step that no run makes is shown short
edited sound 's/"step": 3/"step": 1e300/'
refuses "step 1e+300: wanted step 3" --resume -n 4 -o edited
[ "$(awk 'length > 200' err)" = "" ]; ok $? "a number of 300 digits"

# ---- a run that is done has nothing to save, and says so
train --resume -o sound; cp out done.txt
says "^done at step 3 already: sound/step_3" "a finished run"
! grep -q saved done.txt; ok $? "a finished run says that it saved: $(cat done.txt)"

# ---- text that was moved: where it is now may be named
for i in 1 2 3 4 5 6 7 8 9; do echo "line $i of a text that will be moved"; done > text.txt
cat text.txt text.txt text.txt > text2.txt; cat text2.txt text2.txt text2.txt > text.txt
train $TINY -n 2 -d text.txt -o texts; mv text.txt newer.txt
refuses "text.txt: the run was trained on this file, which no longer exists" --resume -n 3 -o texts
says "HINT: if it was moved: ./train_sink train --resume -o texts -d PATH$" "moved text"
"$program" probe texts > out 2> err; says "if it was moved: the same command with -d PATH" "probe, moved text"
train --resume -n 3 -o texts -d newer.txt
cp text2.txt newer.txt
refuses "the data or the tokenizer changed" --resume -n 4 -o texts -d newer.txt
says "name the data as they were: -d PATH" "changed text"

# ---- a directory that is no run is not begun in: the checkpoint's instead of the run's, a model
refuses "continue its run with --resume -o sound$" --resume -o sound/step_3
refuses "continue its run with --resume -o sound$" --resume -o sound/step_3/
mkdir model; echo '{}' > model/config.json
refuses "no run to resume" --resume -o model
[ "$(ls model sound/step_3 | grep -c log.jsonl)" = 0 ]; ok $? "a run began in what is none"
# a flag's fault is no reason to remove a checkpoint
rm -rf typed; cp -r whole typed; train --resume -n 22 --save-every 1 --save-optimizer all -o typed
for flags in "--vocab 300" "--width 16" "--model x" "--window 4" "--seed 9"; do
    run --resume -o typed $flags
    [ $code -eq 2 ] && ! grep -q 'rm -r' err; ok $? "$flags: exit $code, $(cat err)"
done

# ---- a damaged newest checkpoint: what to type
train $TINY -n 9 --save-every 3 --save-optimizer all -o all
[ -e all/step_3/optimizer.safetensors ]; ok $? "--save-optimizer all keeps none"
for file in state.json config.json model.safetensors optimizer.safetensors; do
    for how in cut gone flipped; do
        rm -rf hurt; cp -r all hurt; at=hurt/step_9/$file
        case $how in
            cut) head -c 100 "all/step_9/$file" > "$at" ;;
            gone) rm "$at"; [ $file != state.json ] || continue ;;
            flipped) python3 -c "import sys; b = bytearray(open(sys.argv[1], 'rb').read()); b[len(b) * 3 // 4] ^= 1; open(sys.argv[1], 'wb').write(b)" "$at" ;;
        esac
        run --resume -o hurt -n 12
        [ $code -eq 2 ]; ok $? "$how $file: exit $code"
        says "rm -r hurt/step_9" "$how $file"
        says "hurt/step_6" "$how $file"
    done
done
rm -r hurt/step_9; train --resume -o hurt -n 9
same hurt all "from the checkpoint before"

# ---- --save-optimizer: by default only the newest has it
train $TINY -n 9 --save-every 3 -o last
[ -e last/step_9/optimizer.safetensors ]; ok $? "the newest has no optimizer"
for s in 0 3 6; do
    [ ! -e last/step_$s/optimizer.safetensors ]; ok $? "step_$s keeps its optimizer"
    "$program" probe last/step_$s > out 2> err; ok $? "probe of step_$s: $(cat err)"
done
rm -r last/step_9; cp last/log.jsonl log.before
refuses "has no optimizer.safetensors, which --resume needs" --resume -n 12 -o last
says "--init last/step_6" "what to type"
cmp -s last/log.jsonl log.before; ok $? "a refused --resume changed the log"
train $TINY -n 4 --save-optimizer none -o noopt
says "no checkpoint of this run can be resumed" "--save-optimizer none"
[ ! -e noopt/step_4/optimizer.safetensors ]; ok $? "--save-optimizer none keeps it"
refuses "has no optimizer.safetensors" --resume -n 6 -o noopt
refuses "wanted last, all or none" $TINY -n 1 --save-optimizer some -o some
# what others put there is not removed
train $TINY -n 4 $OFTEN --stop-after 1e-9 -o guest
starts guests $OFTEN; kill -9 $pid; ends 2> /dev/null
at=$(ls -d guests/step_* | grep -v '\.' | tail -n 1)
echo mine > "$at/notes.txt"; last=${at##*step_}
train --resume -n $((last + 3)) $OFTEN -o guests
[ "$(cat "$at/notes.txt")" = mine ]; ok $? "a file of somebody else's was removed with a checkpoint"

# ---- the newest step of a run's directory
for command in probe "eval --stream 1+4" "generate --prompt 3 --tokens 2"; do
    "$program" $command all/step_9 > one 2> err; "$program" $command all > two 2> err
    ok $? "$command of a run's directory: $(cat err)"
    cmp -s one two; ok $? "$command: not of the newest step"
    says "all: using its newest checkpoint, step_9" "$command"
done
train $TINY -n 1 --init all -o from
grep -q '"init":"all/step_9"' from/log.jsonl; ok $? "--init of a run's directory"
mkdir empty; touch empty/notes.txt
"$program" probe empty > out 2> err; says "in this one: notes.txt" "a directory without a checkpoint"
# an old checkpoint whose flags are in the log alone
rm -rf old; cp -r all old
python3 -c "
import json
s = json.load(open('old/step_9/state.json'))
for key in ('flags', 'files', 'automatic', 'directory', 'numbers', 'build', 'version'): s.pop(key)
json.dump(s, open('old/step_9/state.json', 'w'))"
"$program" probe all/step_9 > one; "$program" probe old/step_9 > two 2> err
ok $? "an old checkpoint: $(cat err)"
cmp -s one two; ok $? "an old checkpoint is probed with other data"
train --resume -n 11 -o old

# ---- what is printed
count() { grep -c '^step' out; }
train $TINY -n 20 --print-every 1 -o print1
[ "$(count)" = 20 ]; ok $? "--print-every 1 printed $(count) of 20 steps"
grep -q '| 95%, .*s left$' out; ok $? "no time left: $(grep '^step' out | tail -n 2)"
train $TINY -n 20 --print-every 6 -o print6
[ "$(grep '^step' out | sed 's/step *//; s/\/.*//' | tr '\n' ' ')" = "6 12 18 20 " ]
ok $? "--print-every 6 printed $(grep '^step' out | cut -c 1-20)"
[ "$(grep -c '"event":"train"' print6/log.jsonl)" = 20 ]; ok $? "the log lacks steps"
began=$(date +%s); train $TINY -n 20000 --sample 0 -o print; now=$(date +%s)
[ "$(count)" -le $((now - began + 2)) ]; ok $? "$(count) lines in $((now - began)) s"
train -d text/my.txt ${TINY% 0} 9 -n 2 -o sampled
[ "$(grep -c '^sample' out)" = 1 ] && [ "$(grep -c '"event":"sample"' sampled/log.jsonl)" = 2 ]
ok $? "samples printed: $(grep '^sample' out)"

finish
