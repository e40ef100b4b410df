#!/bin/sh
# test/program/test_dist.sh -- many processes over MPI: as one process, to rounding; twice the same bits;
# and an error or the death of one of them ends all with one error at most, loses
# nothing, and leaves nothing hanging.
#   usage: test/program/test_dist.sh       KILLS=3 (random kills), CXX, MPICXX, MPIRUN, BINARY (one that was built so before)
. test/once.sh
. test/dist.sh
MPICXX=${MPICXX:-mpicxx} MPIRUN=${MPIRUN:-mpirun} KILLS=${KILLS:-3}
if ! command -v "$MPICXX" > /dev/null || ! command -v "$MPIRUN" > /dev/null; then
    skip_all "1 test of many processes, no MPI here (apt-get install libopenmpi-dev openmpi-bin)"
fi
dir=$(mktemp -d)

# small buckets, so that a small model has seven; a commit that can be changed in the binary
ONCE=$(make -s once BACKEND=cpu CXX="${CXX:-g++}")
if [ -n "$BINARY" ]; then
    cp "$BINARY" "$dir/a"
else
    OMPI_CXX=${CXX:-g++} MPICH_CXX=${CXX:-g++} "$MPICXX" -std=c++17 -O1 -march=native \
        -fopenmp -x c++ $(default_switches) -DDIST=mpi \
        -DDIST_BUCKET=4096 -DGIT_COMMIT='"one-and-the-same"' -DONCE_APART train_sink.cu -x none $ONCE \
        -o "$dir/a" || { bad "DIST=mpi does not compile"; exit 1; }
fi
sed 's/one-and-the-same/one-and-another!/' "$dir/a" > "$dir/other"; chmod +x "$dir/other"
# mpirun starts this: the number of the process is left where the tests find it
cat > "$dir/rank" <<'END'
#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
echo $$ > "$PIDS.$rank"
[ "$rank" = 0 ] && [ -n "$BLOCKS" ] && ulimit -f "$BLOCKS"
exec "$@"
END
chmod +x "$dir/rank"
case $("$MPIRUN" --version 2>&1) in
*"Open MPI"*) MPI="$MPIRUN --allow-run-as-root --oversubscribe --bind-to none -x PIDS -x BLOCKS" ;;
*) MPI="$MPIRUN" ;;
esac
export OMP_NUM_THREADS=1 PIDS="$dir/pid" BLOCKS=
FLAGS="train --seq 32 --total-batch 512 -b 2 --lr 1e-3 --warmup 10 --grad-clip 0.5 --eval-every 25 --val-seqs 9 --probe-seqs 9
       --probe-len 16 --sample 0"

# ranks N OUT FLAGS..: 0 processes is the program without mpirun
ranks() {
    local n=$1 out=$2; shift 2
    set -- "$dir/a" $(once $FLAGS -o "$out" "$@")
    if [ "$n" != 0 ]; then set -- $MPI -np "$n" "$dir/rank" "$@"; fi
    "$@" > "$out.txt" 2>&1
}
# ---- as one process
ranks 0 "$dir/one" -n 50 || bad "one process: $(cat "$dir/one.txt")"
for n in 1 2 4; do
    ranks $n "$dir/w$n" -n 50 || bad "$n ranks: $(tail -n 5 "$dir/w$n.txt")"
    check "$n ranks: losses, norms and metrics are those of one process" \
        same_log "$dir/one" "$dir/w$n" 1e-6
    check "$n ranks: so are the weights" same_weights "$dir/one" "$dir/w$n" 1e-6
done
# all ranks end by --until at once; the evaluations of steps 0 and 25 meet it
ranks 2 "$dir/until" -n 50 --until "val_loss<99" || bad "--until: $(tail -n 5 "$dir/until.txt")"
check "--until: ends at step 25" grep -q '"event":"done","step":25,' "$dir/until/log.jsonl"
check "one rank of mpirun: the same bits as without it" \
    [ "$(hash "$dir/one")" = "$(hash "$dir/w1")" ]
ranks 4 "$dir/again" -n 50
check "4 ranks twice: the same bits" [ "$(hash "$dir/w4")" = "$(hash "$dir/again")" ]
check "every line of the log once" [ "$(grep -c '"event":"train"' "$dir/w4/log.jsonl")" = 50 ]
ranks 2 "$dir/half" -n 25; ranks 2 "$dir/half" -n 50 --resume
check "2 ranks, resumed: the same bits" [ "$(hash "$dir/w2")" = "$(hash "$dir/half")" ]

# ---- a rank is killed; mpirun ends the others; the run goes on with as many ranks as there are
kill_one() { # RANKS: after a random while kill -9 a random rank
    local n=$1 out=$2 seconds victim start
    seconds=$(awk -v r="$(od -A n -N 2 -t u2 /dev/urandom)" 'BEGIN { print 0.3 + r / 65536 * 2 }')
    victim=$(($(od -A n -N 1 -t u1 /dev/urandom) % n))
    rm -f "$PIDS".*
    ranks "$n" "$out" -n 100000 --save-every 3 & pid=$!
    while [ ! -f "$PIDS.$victim" ]; do sleep 0.05; done
    sleep "$seconds"; start=$(date +%s)
    kill -9 "$(cat "$PIDS.$victim")"
    wait $pid && bad "killed rank $victim of $n after $seconds s: the run ended well"
    [ $(($(date +%s) - start)) -le 15 ] ||
        bad "killed rank $victim of $n after $seconds s: $(($(date +%s) - start)) s to the end"
    [ "$(errors "$out")" -le 1 ] ||
        bad "killed rank $victim of $n: $(errors "$out") errors: $(grep '^error' "$out.txt")"
    for r in $(seq 0 $((n - 1))); do
        while lives "$(cat "$PIDS.$r")" && [ $(($(date +%s) - start)) -le 15 ]; do sleep 0.1; done
        lives "$(cat "$PIDS.$r")" && bad "rank $r lives on" && kill -9 "$(cat "$PIDS.$r")"
    done
}
# a line a step: step, loss, norm of the gradient
steps() {
    sed -n 's/.*"event":"train".*"step":\([0-9]*\),.*"loss":\([0-9.]*\).*"grad_norm":\([0-9.e+-]*\).*/\1 \2 \3/p' \
        "$1/log.jsonl" > "$1.steps"
}
i=0
while [ $i -lt "$KILLS" ]; do
    from=$((i % 2 * 2 + 2)); to=$(echo 1 2 4 | cut -d ' ' -f $((i % 3 + 1)))
    rm -rf "$dir/killed"
    kill_one $from "$dir/killed"
    last=$(ls "$dir/killed" 2> /dev/null | sed -n 's/^step_\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
    more=$(( ${last:-0} + 20 ))
    : > "$dir/before"
    [ -d "$dir/killed" ] && steps "$dir/killed" &&
        head -n "${last:-0}" "$dir/killed.steps" > "$dir/before"
    # before the first checkpoint nothing can go on with another -n: it begins again
    resume=--resume; [ -n "$last" ] || { resume=; rm -rf "$dir/killed"; }
    ranks "$to" "$dir/killed" -n $more $resume ||
        bad "killed with $from, resumed with $to ranks: $(grep -a "^error\|rank" "$dir/killed.txt")"
    # what was saved is the run of as many ranks, bit for bit; what follows differs by roundings
    rm -rf "$dir/whole"; ranks $from "$dir/whole" -n $more
    for run in killed whole; do steps "$dir/$run"; done
    head -n "${last:-0}" "$dir/whole.steps" | cmp -s - "$dir/before" ||
        bad "killed with $from ranks after step ${last:-none}: not the steps of a run that nobody killed"
    paste "$dir/killed.steps" "$dir/whole.steps" | awk -v n=$more '
        { d = $2 - $5 }
        $1 != $4 || d * d > 1e-5 ^ 2 { bad++; print "  step " $1 ": " $2 " and " $5 }
        END { exit bad > 0 || NR != n }' && ok ||
        bad "killed with $from ranks after step ${last:-none}, resumed with $to: another run than without"
    i=$((i + 1))
done

# ---- what else goes wrong: one error, soon, that names it
two() { # NAME: rank 0's command .. : rank 1's
    began=$(date +%s); out=$dir/$1; shift
    $MPI -np 1 "$dir/rank" "$@" > "$out.txt" 2>&1
}
MANY="$FLAGS -n 100000 --save-every 5"
two flags "$dir/a" $MANY -o "$dir/run.flags" : -np 1 "$dir/rank" "$dir/a" $(once $MANY --lr 3e-3) -o "$dir/run.flags"
ends flags "rank 1 differs from rank 0 in its command line: got .*\"lr\":0.003" 20
two build "$dir/a" $MANY -o "$dir/run.build" : -np 1 "$dir/rank" "$dir/other" $MANY -o "$dir/run.build"
ends build "rank 1 differs from rank 0 in its build: .*one-and-another!" 20
mkdir -p "$dir/here" "$dir/there"
seq 1 4000 > "$dir/here/text.txt"; seq 4001 8000 > "$dir/there/text.txt"
cat > "$dir/in" <<'END'
#!/bin/sh
cd "$1" && shift && exec "$@"
END
chmod +x "$dir/in"
two data "$dir/in" "$dir/here" "$dir/a" $MANY -d text.txt -o "$dir/run.data" : \
    -np 1 "$dir/rank" "$dir/in" "$dir/there" "$dir/a" $MANY -d text.txt -o "$dir/run.data"
ends data "rank 1 differs from rank 0 in its data" 20
began=$(date +%s); ranks 2 "$dir/missing" -n 10 -d /nowhere/text.txt
ends missing "no such file" 20                                   # all ranks meet it, one says it
began=$(date +%s); ranks 3 "$dir/share" -n 10
ends share "16 sequences of 32 tokens, 3 ranks" 20
began=$(date +%s); ranks 2 "$dir/nan" -n 100 --lr 1e30 --warmup 0
ends nan "not finite" 20
# MPICH's shared memory would be a file over the limit; by TCP it has none
began=$(date +%s); UCX_TLS=tcp,self BLOCKS=100 ranks 2 "$dir/full" -n 100000 --save-every 5
ends full "cannot write" 20
# ---- SIGTERM of one rank stops all of them: saved once, and the run goes on from there
rm -f "$PIDS".*
ranks 2 "$dir/term" -n 50 & pid=$!
await_step "$dir/term" $pid
kill -TERM "$(cat "$PIDS.1")"
wait $pid && ok || bad "SIGTERM of rank 1: $(tail -n 3 "$dir/term.txt")"
ranks 2 "$dir/term" -n 50 --resume
check "stopped by SIGTERM of rank 1, resumed: the same bits" \
    [ "$(hash "$dir/w2")" = "$(hash "$dir/term")" ]
# ---- and so it does in an evaluation, which --resume makes again
FLAGS="train --seq 32 -b 16 --eval-every 0 --val-seqs 20000 --probe-seqs 9 --sample 0 -n 9"
rm -f "$PIDS".*
ranks 2 "$dir/eval" & pid=$!
until [ -s "$dir/eval/log.jsonl" ] || ! kill -0 $pid; do sleep 0.05; done
sleep 0.2; kill -TERM "$(cat "$PIDS.0")" "$(cat "$PIDS.1")"
wait $pid && ok || bad "SIGTERM in an evaluation: $(tail -n 3 "$dir/eval.txt")"
check "SIGTERM in an evaluation: no half of it" \
    [ "$(grep -c '"event":"eval"' "$dir/eval/log.jsonl")" = 0 ]
ranks 2 "$dir/eval" --resume
ranks 2 "$dir/uncut"
check "SIGTERM in an evaluation, resumed: the same bits" \
    [ "$(hash "$dir/uncut")" = "$(hash "$dir/eval")" ]
check "SIGTERM in an evaluation, resumed: the same log" same_log "$dir/uncut" "$dir/eval" 0
# ---- two ranks that were killed before a checkpoint begin again as two, or as one
rm -rf "$dir/eval"; mkdir "$dir/eval"
grep -v '"event":"done"' "$dir/uncut/log.jsonl" > "$dir/eval/log.jsonl"
FLAGS=train
ranks 1 "$dir/eval" --resume
check "begun by two ranks, again by one: the same log" same_log "$dir/uncut" "$dir/eval" 1e-6
began=$(date +%s); $MPI -np 2 "$dir/a" probe "$dir/w2/step_50" > "$dir/probe.txt" 2>&1
ends probe "only train can use many" 20

rm -rf "$dir"
finish
