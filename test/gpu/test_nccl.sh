#!/bin/sh
# test/gpu/test_nccl.sh -- many GPUs over NCCL, both emulated: 2 and 4 ranks are one rank to rounding,
# with gradient accumulation, clipping and learned biases; the same bits twice and in any schedule;
# a rank that dies ends all.
#   usage: test/gpu/test_nccl.sh       BIASES="kv" (one build each; and one of bf16), CXX, CUDA, BUILT=directory of builds to use again
. test/once.sh
. test/dist.sh
CXX=${CXX:-g++} CUDA=${CUDA:-/usr/local/cuda} BIASES=${BIASES:-kv}
# the header is beside CUDA's, or in the wheel that .ci/run installs
NCCL=$CUDA/include
[ -f "$NCCL/nccl.h" ] || NCCL=$PWD/build/tools/nvidia/nccl/include
if [ ! -f "$NCCL/nccl.h" ] || [ ! -f "$CUDA/include/cublasLt.h" ]; then
    skip_all "1 test of emulated NCCL, no nccl.h in $CUDA/include (set CUDA=)"
fi
dir=$(mktemp -d) built=${BUILT:-}
[ -n "$built" ] || built=$dir
mkdir -p "$built"
EMULATED="$CXX -x c++ -std=c++17 -O1 -march=native -ffp-contract=off -DEMU -DHOPPER -fno-strict-aliasing -fstack-clash-protection -fopenmp -Idev/emulator -I$CUDA/include -I$NCCL"
ONCE=$(make -s once BACKEND=cpu CXX="${CXX:-g++}")

# ---- the emulator refuses what NCCL refuses, or would hang on
$EMULATED dev/emulator/selftest_nccl.cu -o "$dir/selftest" &&
    "$dir/selftest" > "$dir/selftest.txt" 2>&1 && ok ||
        bad "selftest: $(tail -n 5 "$dir/selftest.txt")"

# ---- training. PRECISION of a BIAS: bf16 for none, so that both are there
build() { # BIAS PRECISION
    [ -x "$built/$1-$2" ] || $EMULATED $(default_switches | grep -v 'BIAS\|PRECISION\|BACKEND') \
        -DBIAS=$1 -DBACKEND=cuda -DPRECISION=$2 \
        -DDIST=nccl -DDIST_BUCKET=4096 -DONCE_APART train_sink.cu -x none $ONCE -o "$built/$1-$2" || {
            bad "$1 $2 does not compile"
            exit 1
        }
}
FLAGS="train --batch 3 --total-batch 396 --seq 33 --layers 2 --width 24 --heads 2 --kv-heads 1 --ffn-width 40 --lr 0.003 --warmup 2
       --grad-clip 0.5 --eval-every 5 --val-seqs 5 --probe-seqs 5 --probe-len 16 --sample 0"
# ranks N OUT BINARY FLAGS..: as torchrun starts them, a GPU for each; it ends all when one ends badly
ranks() {
    local n=$1 out=$2 binary=$3 r pids= status=0 left=; shift 3
    : > "$out.txt"
    for r in $(seq 0 $((n - 1))); do
        rm -f "$out.ended.$r"
        (
            RANK=$r LOCAL_RANK=${DEVICE:-$r} WORLD_SIZE=$n LOCAL_WORLD_SIZE=$n EMU_DEVICES=$n \
                TORCHELASTIC_RUN_ID=none OMP_NUM_THREADS=1 \
                "$binary" $(once $FLAGS -o "$out" "$@") >> "$out.txt" 2>&1 &
            echo $! > "$out.pid.$r"
            wait $!
            echo $? > "$out.ended.$r"
        ) &
        pids="$pids $!"
    done
    while :; do
        left=
        for r in $(seq 0 $((n - 1))); do
            if [ ! -s "$out.ended.$r" ]; then left="$left $r"
            elif [ "$status" = 0 ]; then status=$(cat "$out.ended.$r"); fi
        done
        [ -n "$left" ] && [ "$status" = 0 ] || break
        sleep 0.05
    done
    for signal in TERM KILL; do
        for r in $left; do kill -$signal "$(cat "$out.pid.$r")" 2> /dev/null; done
        [ -n "$left" ] && [ $signal = TERM ] && sleep 1
    done
    wait $pids
    return $status
}
build ${BIASES%% *} fp32 & build none bf16; wait
for bias in $BIASES; do
    build $bias fp32
    for n in 1 2 4; do
        ranks $n "$dir/$bias.$n" "$built/$bias-fp32" -n 10 ||
            bad "$bias, $n ranks: $(tail -n 3 "$dir/$bias.$n.txt")"
    done
    for n in 2 4; do
        check "BIAS=$bias, $n ranks: one rank's numbers" \
            same_log "$dir/$bias.1" "$dir/$bias.$n" 2e-6
    done
    EMU_SCHED=rev ranks 4 "$dir/$bias.again" "$built/$bias-fp32" -n 10
    check "BIAS=$bias, 4 ranks, another schedule: the same bits" \
        [ "$(hash "$dir/$bias.4")" = "$(hash "$dir/$bias.again")" ]
    ranks 2 "$dir/$bias.half" "$built/$bias-fp32" -n 5
    ranks 2 "$dir/$bias.half" "$built/$bias-fp32" -n 10 --resume
    check "BIAS=$bias, 2 ranks, resumed: the same bits" \
        [ "$(hash "$dir/$bias.2")" = "$(hash "$dir/$bias.half")" ]
    ranks 4 "$dir/$bias.more" "$built/$bias-fp32" -n 5
    ranks 1 "$dir/$bias.more" "$built/$bias-fp32" -n 10 --resume
    check "BIAS=$bias, 4 ranks, then 1: one rank's numbers" \
        same_log "$dir/$bias.1" "$dir/$bias.more" 2e-6
done
# masters and moments in shards, weights in bf16: eight bits of mantissa
build none bf16
for n in 1 2 4; do
    ranks $n "$dir/bf16.$n" "$built/none-bf16" -n 10 ||
        bad "bf16, $n ranks: $(tail -n 3 "$dir/bf16.$n.txt")"
done
for n in 2 4; do
    check "bf16, $n ranks: one rank's numbers" same_log "$dir/bf16.1" "$dir/bf16.$n" 5e-3
done
ranks 4 "$dir/bf16.half" "$built/none-bf16" -n 5
ranks 4 "$dir/bf16.half" "$built/none-bf16" -n 10 --resume
check "bf16, 4 ranks, resumed: the same bits" \
    [ "$(hash "$dir/bf16.4")" = "$(hash "$dir/bf16.half")" ]

# ---- Hopper's kernels fail their check on rank 1 alone: rank 0 does without them, too. Each keeps its own verdict
one_fails() {
    mkdir "$dir/$RANK" && cd "$dir/$RANK" || return
    [ "$RANK" = 0 ] || export EMU_FAULT=wgmma
    "$built/none-bf16" "$@"
}
EMU_HOPPER=1 ranks 2 "$dir/hopper" one_fails -n 1 --width 64
check "ranks that differ in Hopper's check" \
    grep -q '^attend by the kernels for every card: another rank cannot$' "$dir/hopper.txt"

# ---- what goes wrong
began=$(date +%s); DEVICE=0 ranks 2 "$dir/twice" "$built/none-bf16" -n 10
ends twice "Duplicate GPU" 20
began=$(date +%s); EMU_FAULT=nccl:async ranks 2 "$dir/async" "$built/none-bf16" -n 10
ends async "NCCL: sending tensors: unhandled system error. an error on purpose" 20
began=$(date +%s); ranks 2 "$dir/nan" "$built/none-bf16" -n 100 --lr 1e30 --warmup 0
ends nan "not finite" 20                                         # on all ranks, and one says it
ranks 2 "$dir/dead" "$built/none-bf16" -n 100000 --save-every 1 & pid=$!
await_step "$dir/dead" $pid
kill -9 "$(cat "$dir/dead.pid.1")"; wait $pid
status=$?
[ $status = 137 ] && [ "$(errors "$dir/dead")" = 0 ] && ok || bad "a dead rank: $status, $(cat "$dir/dead.txt")"
lives "$(cat "$dir/dead.pid.0")" && bad "rank 0 lives on"
ranks 2 "$dir/dead" "$built/none-bf16" -n 1 --resume > /dev/null 2>&1 && ok || bad "not resumed: $(cat "$dir/dead.txt")"
# what a job that was killed has left under the same name is not taken
mkdir "$dir/stale"
printf '%032d\n\n%128s' 1 dead > "$dir/stale/nccl-none.0"
printf '%032d\n' 1 > "$dir/stale/nccl-none.1"
ranks 2 "$dir/stale" "$built/none-bf16" -n 10 || bad "not begun: $(tail -n 3 "$dir/stale.txt")"
check "files of an earlier job: the same bits" [ "$(hash "$dir/stale")" = "$(hash "$dir/bf16.2")" ]
check "no file is left" [ -z "$(ls "$dir/stale" | grep nccl)" ]
for r in 0 1; do
    began=$(date +%s)
    RANK=$r WORLD_SIZE=2 LOCAL_RANK=0 DIST_TIMEOUT=2 \
        "$built/none-bf16" $FLAGS -n 10 -o "$dir/alone" > "$dir/alone.txt" 2>&1
    ends alone "rank $r of 2 has waited 2 s there" 10
done
began=$(date +%s)
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 "$built/none-bf16" $FLAGS -n 10 > "$dir/place.txt" 2>&1
ends place "2 processes without --out" 10

rm -rf "$dir"
finish
