# test_faults.sh -- a disk that fails while a run saves: a checkpoint that nobody planned may fail, one
# that was planned is an error with a hint, no line of the log is lost, and no older checkpoint goes
# before the newer one is safe. Signals in an evaluation, and files of data that are touched.
#     sh test/program/test_faults.sh
. test/ok.sh
. test/once.sh
. test/runs.sh
scratch
${CC:-gcc} -shared -fPIC -O1 test/program/faults.c -o "$dir/faults.so" -ldl || bad "faults.c does not compile"
cd "$dir" || exit 1
export OMP_NUM_THREADS=1
TINY="--seq 16 -b 2 --width 8 --heads 2 --ffn-width 8 --val-seqs 2 --probe-seqs 2 --sample 0"
ENOSPC=28 EIO=5 EMFILE=24 EDQUOT=122

train() { "$program" train "$@" > out 2> err; code=$?; }
# FAULT, FAULT_PATH, flags of train..
faulty() {
    fault=$1 path=$2; shift 2
    LD_PRELOAD=$dir/faults.so FAULT=$fault FAULT_PATH=$path "$program" train "$@" > out 2> err; code=$?
}
says() { cat out err | grep -q -- "$1"; ok $? "wanted '$1', got exit $code, $(tail -n 3 out; cat err)"; }
RUN="$TINY -n 12 --eval-every 5"
train $RUN -o whole; ok $code "a whole run: $(cat err)"

# ---- automatic checkpoints, before every step: the run goes on and tries again
for fault in "rename:3:$EIO step_" "open:3:$EMFILE /state.json" "fflush:4:$EDQUOT safetensors" \
             "mkdir:3:$ENOSPC step_" "fsync:5:$EIO step_"; do
    rm -rf soon
    faulty ${fault% *} "${fault#* }" $RUN --save-minutes 1e-9 -o soon
    ok $code "$fault: the run ended: $(cat err)"
    says "^note   .*\(no automatic checkpoint\|an older checkpoint stays\)"
    same soon whole "$fault"
    [ "$(ls soon | tr '\n' ' ')" = "log.jsonl step_12 " ]; ok $? "$fault: what is left: $(ls soon)"
done
# ---- one that was planned: an error with a hint, and the one before stays
rm -rf plan; faulty "rename:3:$EIO" step_ $RUN --save-every 4 -o plan
[ $code = 1 ]; ok $? "a planned checkpoint that fails: exit $code"
says "^---> HINT: "
for n in 15 19 22 23; do # in the second checkpoint, whose optimizer takes the place of the first
    rm -rf plan; faulty "fsync:$n:$EIO" plan $RUN --save-every 4 -o plan
    [ $code = 1 ] && [ -f plan/step_0/optimizer.safetensors ]
    ok $? "fsync $n fails: exit $code, $(ls plan plan/step_0)"
    says "^---> HINT: "
done

# ---- a line of the log that the disk refused is written when the run goes on
for n in 2 4 7 8; do
    rm -rf full; faulty "fflush:$n:$ENOSPC" log.jsonl $RUN -o full
    [ $code = 1 ]; ok $? "a full disk under the log: exit $code"
    train --resume -o full; ok $code "resumed after line $n: $(cat err)"
    same full whole "line $n was refused"
done

# ---- SIGTERM ends a sample, a long sequence and an evaluation of seconds at once; --resume makes them again, shorter
seq 3000 > lines.txt
stops() { # what, flags..: ends soon after SIGTERM, without a half evaluation in its log
    what=$1; shift; rm -rf cut
    timeout -s KILL 60 "$program" train $(once $TINY "$@") -o cut > out 2> err & pid=$!
    until [ -s cut/log.jsonl ]; do sleep 0.02; done
    sleep 0.5; kill -TERM $pid; wait $pid; code=$?
    ok $code "SIGTERM in $what: exit $code $(cat err)"
    says "^stopped at step"
    [ "$(grep -c "\"event\":\"\(sample\|done\|$half\)\"" cut/log.jsonl)" = 0 ]
    ok $? "SIGTERM in $what: $(tail -n 2 cut/log.jsonl | cut -c 1-80)"
}
half=sample; stops "a sample" -d lines.txt -n 3 --sample 1048576
train --resume -o cut --sample 9; ok $code "resumed: $(cat err)"
train ${TINY% 0} 9 -d lines.txt -n 3 -o text; ok $code "a text: $(cat err)"
same cut text "SIGTERM in a sample"
half=eval; stops "a sequence" -n 3 --probe-len 400000 --probe-seqs 1
train --resume -o cut --probe-len 16 --probe-seqs 2; ok $code "resumed: $(cat err)"
train $TINY -n 3 -o short; same cut short "SIGTERM in a sequence"
for n in 0 1; do # a run whose last evaluation was cut short is not done
    stops "an evaluation, -n $n" -n $n --val-seqs 400000
    train --resume -o cut --val-seqs 2; ok $code "resumed: $(cat err)"
    train $TINY -n $n -o of-$n; same cut of-$n "SIGTERM in an evaluation, -n $n"
done

# ---- a file of data that is touched (its time is put back), and too large to compare all of it
awk 'BEGIN { for (i = 0; i < 2300000; i++) print "abc def" }' > t.txt
"$program" tokenize t.txt -o d > out 2> err; ok $? "tokenize: $(cat err)"
for way in whole touched; do
    "$program" train $TINY -d d -n 2000 --save-minutes 1e-3 -o $way-run > out 2> err & pid=$!
    until [ -s $way-run/log.jsonl ]; do sleep 0.02; done
    [ $way = whole ] || { sleep 0.1; touch -r d/train_000000.bin when; touch -r when d/train_000000.bin; }
    wait $pid; code=$?
    ok $code "$way: exit $code $(cat err)"
done
says "^note   .*train_000000.bin: was touched"
[ "$(hash whole-run)" = "$(hash touched-run)" ]; ok $? "touched: other weights"
grep -q '"touched": "d/train_000000.bin"' touched-run/step_2000/state.json; ok $? "state.json does not tell"

# ---- held-out text that is cut short before the last evaluation: --resume makes that evaluation
"$program" tokenize t.txt --val lines.txt -o held > out 2> err; ok $? "tokenize: $(cat err)"
HELD="$(once $TINY --val-seqs 400) -n 500 --eval-every 0 -d held" val=held/val_000000.bin
train $HELD -o uncut; ok $code "held-out text: $(cat err)"
cp $val val.bin
"$program" train $HELD -o shorter > out 2> err & pid=$!
until grep -qs '"event":"train"' shorter/log.jsonl; do sleep 0.02; done
truncate -s 2000 $val; wait $pid; [ $? = 1 ]; ok $? "held-out text that was cut: $(cat out err)"
says "$val: was cut short"
cp val.bin $val; train --resume -o shorter; ok $code "resumed: $(cat err)"
same shorter uncut "held-out text that was cut"

# ---- a lock with a second name is somebody's file; options of gzip; threads that nobody has
mkdir lock; echo 12345 > mine; ln mine lock/lock
train $TINY -n 1 -o lock; [ $code = 2 ] && [ "$(cat mine)" = 12345 ]; ok $? "a linked lock: exit $code, $(cat mine)"
head -c 4000 t.txt > s.txt; gzip s.txt
GZIP=-l "$program" tokenize s.txt.gz -o dz > out 2>&1; ok $? "GZIP=-l: $(cat out)"
cp -r whole/step_12 other
sed -i '0,/{/s//{"auto_map": {"AutoModelForCausalLM": "modeling_x.MyForCausalLM"},/' other/config.json
"$program" probe other > out 2> err; [ $? = 2 ] && grep -q "code beside the weights" err
ok $? "auto_map of another class: $(cat err)"
OMP_NUM_THREADS=99999999999 "$program" train $TINY -n 1 -o threads > out 2> err
says "wanted 99999999999"
finish
