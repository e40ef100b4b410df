#!/usr/bin/env bash
# dev/gpu_run.sh -- ten minutes on a GPU: everything that only a GPU can tell, in the order of what
# we most want to know, within BUDGET seconds. Needs neither make, nvcc, git nor python: it runs the
# programs that dev/gpu_pack.sh built (PyTorch only for the step `peers`).
#   usage: PREBUILT=DIR dev/gpu_run.sh          DIR of gpu_pack.sh; in its archive PREBUILT is known
#          dev/gpu_run.sh                       builds first, with nvcc (dev/gpu_pack.sh)
#          STEPS="machine ops real" dev/gpu_run.sh             only these
#   OUT=gpu-results   results.json, rewritten after every step: the file to send back; log.txt
#   BUDGET=570        seconds for all of it. What does not fit is left out and says so
#   CARD="H100 SXM"   the row of dev/gpu/predict.py to compare with, if the GPU's name does not tell
#   LLMC=DIRECTORY    of llm.c with a built train_gpt2cu: its own model goes into the comparison
#   DRY=1             toy sizes, and no question whether there is a GPU. CLOCK=20: a second of the
#                     budget is 20 of the wall clock. Both to test this script (test_gpu_run.sh)
# A step that fails, or takes too long, takes no other with it. Cut off at any moment, results.json
# says what was known by then. Afterward, without a limit of time: dev/gpu/gpu_train.sh
set -u
CDPATH= cd "$(dirname "$0")/.." || exit 1
export OUT=${OUT:-gpu-results} BUDGET=${BUDGET:-570} CLOCK=${CLOCK:-1} DRY=${DRY:-} CARD=${CARD:-}
[ -z "${PREBUILT:-}" ] && [ -x bin/selftest ] && PREBUILT=$PWD/bin
export PREBUILT=${PREBUILT:-}

# ---- what the steps run --------------------------------------------------------------------------
MODEL="-m 60M" BATCH=16 LARGE="-m 1B -b 4" TOKENS=131072 NANO="-m nano" NANO_STEPS=300
FOUR="--layers 4" TWO="--layers 2" ROWS=32768 BATCHES="16 32 64" SMALL_BATCHES="8 16 32 64 128"
SMALL="--layers 12 --width 256 --heads 4 --ffn-width 512 --bb-vocab 1023 -t 512 --total-batch 65536"
ATTENTION="softmax 12 2048
softmax 8 2048
softmax 6 2048
sigmoid 8 2048
softmax 8 512
softmax 8 8192"
if [ "$DRY" ]; then
    MODEL="--layers 1 --width 192 --heads 2 --ffn-width 64 --bb-vocab 100 -t 96"
    BATCH=4 LARGE="$MODEL -b 1" TOKENS=768
    NANO="--layers 1 --width 32 --heads 1 -t 16" NANO_STEPS=20
    FOUR="" TWO="" ROWS=96 BATCHES=4 SMALL_BATCHES=2 ATTENTION="softmax 2 96"
    SMALL="$MODEL --total-batch 192"
fi
QUIET="--eval-every 0 --save-every 0 --save-optimizer none --sample 0 --val-seqs 2"
QUIET="$QUIET --probe-seqs 2 --probe-len 8"
program() { echo "$PREBUILT/train_sink-$1"; }
variants() { ls "$PREBUILT" | sed -n 's/^train_sink-//p' | grep -v '^cpu$\|^fp32$'; }
json_line() { grep '^{"attn"' "$1" | tail -n 1 | tee -a "$WORK/bench.jsonl"; }

step_machine() {
    nvidia-smi 2>&1 || echo "nvidia-smi: none"
    uname -a
    cat "$PREBUILT/commit" 2> /dev/null || echo "commit: unknown"
    echo "$(nproc) cores"; free -g 2> /dev/null | head -n 2; df -h . | tail -n 1
    ldd "$(program softmax)" 2>&1 | grep -i 'blas\|cuda' || echo "no library of CUDA is linked"
}
step_selftest() {
    local bad=0
    "$PREBUILT/selftest" || bad=1
    "$PREBUILT/selftest_wgmma" || bad=1
    return $bad
}
# attention by Hopper's kernels, and by those of all cards, against the simple kernels
step_hopper() {
    local bad=0
    for hopper in 1 0; do
        "$PREBUILT/test_cuda-bf16" simple $hopper > "$WORK/simple" 2>&1 || bad=1
        grep -v ' passed, ' "$WORK/simple" | head -n 15
        echo "hopper $hopper: $(tail -n 1 "$WORK/simple")"
    done
    return $bad
}
# 20 steps by Hopper's kernels, which the program's own check is to find right (--hopper 1 asks it
# anew), beside 20 by those of all cards
step_beside() {
    local bad=0
    for hopper in 0 1; do
        "$(program softmax)" train -d bb $MODEL -b $BATCH -n 20 --seed 1 --hopper $hopper $QUIET \
            -o "$WORK/beside-$hopper" > "$WORK/beside-$hopper.txt" 2>&1 || bad=1
        grep -q '^error: --hopper 1: got ' "$WORK/beside-$hopper.txt" &&
            { echo "left out: no kernels for Hopper here"; return 0; }
        grep -i 'hopper\|error' "$WORK/beside-$hopper.txt"
        sed -n 's/^{"event":"train".*"loss":\([0-9.e+-]*\).*"grad_norm":\([0-9.e+-]*\).*/\1 \2/p' \
            "$WORK/beside-$hopper/log.jsonl" > "$WORK/beside-$hopper.tsv"
    done
    paste "$WORK/beside-0.tsv" "$WORK/beside-1.tsv" | awk '
        function apart(a, b) { return a > b ? (a - b) / b : (b - a) / b }
        NF == 4 {
            n++
            loss = apart($3, $1); if (loss > worst_loss) { worst_loss = loss }
            norm = apart($4, $2); if (norm > worst_norm) { worst_norm = norm }
        }
        END {
            printf "%d steps, Hopper'"'"'s kernels beside the others: loss at most %.3f %% apart, gradient norm %.2f %%\n",
                n, 100 * worst_loss, 100 * worst_norm
            exit n < 1 || worst_loss > 0.005 || worst_norm > 0.05
        }' - || bad=1
    return $bad
}
# every operation and variant against the CPU, at T up to 2048 and every head dimension
step_ops() {
    local bad=0 threads=$((($(nproc) + 1) / 2))     # waiting threads hold a core
    OMP_NUM_THREADS=$threads "$PREBUILT/test_cuda-bf16" > "$WORK/bf16" 2>&1 & local one=$!
    OMP_NUM_THREADS=$threads "$PREBUILT/test_cuda-fp32" > "$WORK/fp32" 2>&1 & local two=$!
    wait $one || bad=1
    wait $two || bad=1
    for p in bf16 fp32; do
        grep -v ' passed, ' "$WORK/$p" | head -n 20
        echo "$p: $(tail -n 1 "$WORK/$p")"
    done
    return $bad
}
# one step of training, as loss and gradient norm
one_step() { # PROGRAM, BATCH
    local dir=$WORK/real-$1-$2
    "$(program "$1")" train -d bb $MODEL -b "$2" -n 1 --seed 1 $QUIET -o "$dir" > "$dir.txt" 2>&1 ||
        { tail -n 2 "$dir.txt" >&2; return 1; }
    sed -n 's/^{"event":"train".*"loss":\([0-9.e+-]*\).*"grad_norm":\([0-9.e+-]*\).*/\1 \2/p' \
        "$dir/log.jsonl" | head -n 1
}
same_step() { # WHAT, FIGURES, WANTED: loss within 1e-3, gradient norm within 1%
    echo "$2 $3" | awk -v what="$1" '
        NF < 4 { print what ": no figure"; exit 1 }
        {
            loss = ($1 - $3) / $3; norm = ($2 - $4) / $4
            good = loss * loss <= 1e-6 && norm * norm <= 1e-4
            printf "%s: loss %s, wanted %s; gradient norm %s, wanted %s: %s\n",
                what, $1, $3, $2, $4, good ? "same" : "DIFFERENT"
            exit !good
        }'
}
# the sizes that training has: T 2048, several chunks of ds
step_real() {
    local bad=0 cpu full
    cpu=$(one_step cpu 2) || bad=1
    for p in fp32 softmax; do same_step "$p, batch 2" "$(one_step $p 2)" "$cpu" || bad=1; done
    full=$(one_step fp32 $BATCH) || bad=1
    same_step "bf16, batch $BATCH" "$(one_step softmax $BATCH)" "$full" || bad=1
    return $bad
}
# the hash of the parameters that a run ends with
hash_of() { sed -n 's/.*"params_hash":"\([0-9a-f]*\)".*/\1/p' "$1/log.jsonl" | tail -n 1; }
same_bits() { # DIRECTORY DIRECTORY
    local one two
    one=$(hash_of "$1") two=$(hash_of "$2")
    [ "$one" ] && [ "$one" = "$two" ]
}
step_bits() { # two runs with one seed
    for i in 1 2; do
        "$(program softmax)" train -d bb $MODEL $FOUR -b $BATCH --total-batch $TOKENS -n 4 $QUIET \
            -o "$WORK/bits$i" > "$WORK/bits$i.txt" 2>&1 && continue
        tail -n 2 "$WORK/bits$i.txt"
        return 1
    done
    echo "params_hash $(hash_of "$WORK/bits1"), again $(hash_of "$WORK/bits2")"
    same_bits "$WORK/bits1" "$WORK/bits2"
}
losses() { # DIRECTORY
    sed -n 's/^{"event":"train","step":\([0-9]*\).*"loss":\([0-9.e+-]*\).*/\1 \2/p' "$1/log.jsonl"
}
milliseconds() { # DIRECTORY: of its steps, the middle one
    sed -n 's/^{"event":"train".*"ms":\([0-9.]*\).*/\1/p' "$1/log.jsonl" | sort -n |
        awk '{ ms[NR] = $1 } END { print ms[int((NR + 1) / 2)] }'
}
step_train() { # a small model learns, and as the CPU's does; with a graph it has the same bits
    local run="train -d bb $NANO --seed 1 $QUIET" bad=0 same=DIFFERENT
    "$(program cpu)" $run -n 20 -o "$WORK/train-cpu" > "$WORK/train-cpu.txt" 2>&1 || bad=1
    "$(program softmax)" $run -n $NANO_STEPS -o "$WORK/train-gpu" > "$WORK/train-gpu.txt" 2>&1 ||
        bad=1
    tail -n 1 "$WORK/train-gpu.txt"
    "$(program softmax)" $run -n $NANO_STEPS --graph -o "$WORK/train-graph" \
        > "$WORK/graph.txt" 2>&1 || { tail -n 2 "$WORK/graph.txt"; bad=1; }
    same_bits "$WORK/train-gpu" "$WORK/train-graph" && same="the same bits" || bad=1
    echo "with --graph $(milliseconds "$WORK/train-graph") ms per step, without" \
        "$(milliseconds "$WORK/train-gpu"): $same"
    losses "$WORK/train-gpu" > "$WORK/losses-gpu"
    losses "$WORK/train-cpu" | awk '
        FNR == NR { cpu[$1] = $2; next }
        $1 in cpu { d = ($2 - cpu[$1]) / cpu[$1]; n++; if (d * d > worst) { worst = d * d } }
        { last = $2 }
        END {
            printf "%d steps beside the CPU, at most %.2f %% apart; last loss %s\n", n,
                100 * sqrt(worst), last
            exit !n || worst > 4e-4
        }' - "$WORK/losses-gpu" || bad=1
    return $bad
}
# milliseconds of the attention kernels, of two layers: Hopper's and those of all cards in turn
step_attention() {
    local bad=0 attn heads seq
    while read -r attn heads seq; do
        for hopper in 0 1 0 1; do
            PROFILE=1 "$(program $attn)" train -d bb $MODEL $TWO --heads $heads -t $seq \
                -b $((ROWS / seq)) -n 3 --hopper $hopper $QUIET -o "$WORK/attention" \
                > "$WORK/attended" 2>&1 || { tail -n 2 "$WORK/attended"; bad=1; }
            rm -rf "$WORK/attention"
            sed -n 's/^.*attention_\([a-z_]*\)_kernel.* [0-9][0-9]*  *\([0-9.]*\)$/\1 \2/p' \
                "$WORK/attended" | paste -sd, - |
                sed "s/^/$attn, $heads heads, T $seq, hopper $hopper: /"
        done
    done <<SHAPES
$ATTENTION
SHAPES
    return $bad
}
# a step of the small preset: kernels in turn, then what else may be chosen
milliseconds_of() { # FLAGS..: of bench
    "$(program softmax)" bench $MODEL --total-batch $TOKENS -n 5 "$@" > "$WORK/step" 2>&1 ||
        { tail -n 2 "$WORK/step"; return 1; }
    echo "$*: $(sed -n 's/^{"attn".*"ms":\([0-9.]*\).*/\1/p' "$WORK/step") ms"
}
step_step() {
    local bad=0
    for hopper in 0 1 0 1; do milliseconds_of --hopper $hopper || bad=1; done
    for b in $BATCHES; do milliseconds_of -b $b || bad=1; done
    for rows in 8192 16384 32768; do milliseconds_of --lm-head-rows $rows || bad=1; done
    milliseconds_of --graph || bad=1
    # without the file of timed products, where it cannot be written: the first that cuBLAS proposes
    mkdir -p "$WORK/untimed" && : > "$WORK/untimed/data"
    for timed in no yes no yes; do
        echo "products timed here: $timed"
        (CDPATH= cd "$([ $timed = yes ] && echo . || echo "$WORK/untimed")" && milliseconds_of) ||
            bad=1
    done
    return $bad
}
# models that are smaller than a GPU: a micro-batch that stays in the cache, runs beside each other
step_small() {
    local bad=0
    for b in $SMALL_BATCHES; do
        "$(program softmax)" bench $SMALL -b $b --graph -n 10 > "$WORK/small" 2>&1 || bad=1
        echo "-b $b: $(sed -n 's/^{"attn".*"ms":\([0-9.]*\).*/\1/p' "$WORK/small") ms"
    done
    for runs in 1 2 4 8; do
        for ((i = 1; i <= runs; i++)); do
            "$(program softmax)" bench $NANO --graph -n $NANO_STEPS > "$WORK/together$i" 2>&1 &
        done
        wait
        cat "$WORK"/together* | sed -n 's/^{"attn".*"tokens_per_s":\([0-9]*\).*/\1/p' |
            awk -v runs=$runs '{ all += $1 } END { print NR " runs: " all " tokens/s"; exit NR < runs }' ||
            bad=1
        rm -f "$WORK"/together*
    done
    return $bad
}
# what keeps the new kernels from going faster, where Nsight Compute is and may count
step_ncu() {
    command -v ncu > /dev/null || { echo "left out: no ncu"; return 0; }
    ncu --section SpeedOfLight --section WarpStateStats --section SchedulerStats \
        --section MemoryWorkloadAnalysis --section LaunchStats --section Occupancy \
        --metrics sm__cycles_active.avg,sm__cycles_active.max -k regex:wgmma -c 6 --launch-skip 3 \
        "$(program softmax)" bench $MODEL $TWO -b $BATCH -n 1 > "$OUT/ncu.txt" 2>&1
    local status=$?                     # it may not count, say: ERR_NVGPUCTRPERM
    grep -v '^==PROF==' "$OUT/ncu.txt" | tail -n 30
    return $status
}
# races and accesses: Hopper's products alone, then attention
step_sanitizer() {
    command -v compute-sanitizer > /dev/null || { echo "left out: no compute-sanitizer"; return 0; }
    local bad=0
    while read -r tool tested; do
        echo "$tool, $tested"
        compute-sanitizer --error-exitcode 9 --tool $tool "$PREBUILT"/$tested \
            > "$WORK/sanitized" 2>&1 || bad=1
        tail -n 3 "$WORK/sanitized"
    done <<TOOLS
memcheck selftest_wgmma
racecheck selftest_wgmma
synccheck selftest_wgmma
memcheck test_cuda-bf16 simple 1 260
racecheck test_cuda-bf16 simple 1 260
TOOLS
    return $bad
}
# tokens per second of the step that is predicted, TOKENS in as few batches as the memory allows:
# every variant of the small preset; then 1B
step_bench() {
    local bad=0 step="--total-batch $TOKENS"
    for a in softmax $(variants | grep -v '^softmax$'); do
        "$(program "$a")" bench $MODEL $step -n 4 > "$WORK/bench-$a" 2>&1 || bad=1
        json_line "$WORK/bench-$a" || tail -n 2 "$WORK/bench-$a"
    done
    "$(program softmax)" bench $LARGE > "$WORK/bench-large" 2>&1
    json_line "$WORK/bench-large" || tail -n 2 "$WORK/bench-large"  # 1B wants 36 GiB
    return $bad
}
step_profile() { # milliseconds of each kernel and product in one step
    PROFILE=1 "$(program softmax)" train -d bb $MODEL -b $BATCH -n 4 $QUIET -o "$WORK/profile" \
        > "$WORK/profiled" 2>&1         # not profile.txt, which has what this step says
    sed -n '/^kernel or product/,/^a step/p' "$WORK/profiled"
    grep -q '^a step' "$WORK/profiled"
}
python() { command -v "${PYTHON:-python3}" > /dev/null && "${PYTHON:-python3}" "$@"; }
step_peers() {
    local bad=0
    python -c 'import torch' 2> /dev/null || { echo "left out: no PyTorch"; return 0; }
    for a in softmax sigmoid; do
        python dev/bench/bench_torch.py --attn $a --rounds 1 ${DRY:+--smoke} \
            --paths $([ $a = softmax ] && echo cudnn,fa2,flex,flash || echo flex,flash) \
            --ours "$(program $a)" || bad=1
    done
    return $bad
}
card_of() { # the row of dev/gpu/predict.py
    local name=${CARD:-$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null)}
    case "$name" in
        *A100*) echo "A100 80GB SXM" ;;
        *H200*) echo "H200 SXM" ;;
        *H100*) echo "H100 SXM" ;;
        *4090*) echo "RTX 4090" ;;
        *) echo none ;;
    esac
}
step_compare() { # the step of the small preset: measured, predicted
    local line card ms tokens
    card=$(card_of)
    line=$(grep '^{"attn":"softmax"' "$WORK/bench.jsonl" 2> /dev/null | head -n 1)
    ms=$(echo "$line" | sed -n 's/.*"ms":\([0-9.]*\).*/\1/p')
    tokens=$(echo "$line" | sed -n 's/.*"tokens_per_step":\([0-9]*\).*/\1/p')
    [ "$ms" ] && [ "$tokens" ] || { echo "no figure of bench to compare"; return 1; }
    echo "measured: $ms ms for a step of $tokens tokens"
    sed -n "s/^{\"card\": \"$card\", /predicted: /p" "$PREBUILT/predicted.jsonl" 2> /dev/null |
        tr -d '}' | grep . || echo "predicted: nothing for $card"
    # random weights of GPT-2 124M on its own data: 20 steps
    if [ -x "${LLMC:-}/train_gpt2cu" ]; then
        (CDPATH= cd "$LLMC" && ./train_gpt2cu -e d12 -b 16 -t 1024 -d 524288 -x 20 -v 0 -s 0 -h 0) 2>&1 |
            grep '^step' | tail -n 3 | sed 's/^/llm.c, GPT-2 124M: /'
    else echo "llm.c: not at hand (LLMC=)"; fi
}

# ---- within the time -----------------------------------------------------------------------------
seconds() { echo $((($(date +%s) - BEGAN) / CLOCK)); }
# printable text as the inside of a JSON string
escape() {
    LC_ALL=C tr -cd '\12\40-\176' | sed 's/\\/\\\\/g; s/"/\\"/g' | awk '{ printf "%s\\n", $0 }'
}
write_results() {
    {
        printf '{"budget":%s,"seconds":%s,"commit":"%s","steps":[' "$BUDGET" "$(seconds)" \
            "$(head -c 100 "$PREBUILT/commit" 2> /dev/null | tr -cd 'a-z0-9.-')"
        sep=
        for f in "$WORK"/steps/*; do
            [ -f "$f" ] && { printf '%s\n' "$sep"; cat "$f"; sep=,; }
        done
        printf '],\n"bench":[%s]}\n' \
            "$(grep '^{.*}$' "$WORK/bench.jsonl" 2> /dev/null | paste -sd, -)"
    } > "$OUT/results.json.new" && mv "$OUT/results.json.new" "$OUT/results.json"
}
record() { # NAME RESULT SECONDS STATUS
    printf '{"step":"%s","result":"%s","seconds":%s,"status":%s,"said":"%s"}' "$1" "$2" "$3" "$4" \
        "$(tail -n 40 "$WORK/$1.txt" 2> /dev/null | cut -c 1-400 | escape)" > "$WORK/step.new"
    mv "$WORK/step.new" "$WORK/steps/$(printf %02d "$n")-$1"
    write_results
}
log() { # the ends of what the steps said: 1 MB each
    { echo "==== $1"; tail -c 1000000 "$WORK/$1.txt"; } >> "$OUT/log.txt"
}
# what the likeliest errors of a first run mean
hint() { # FILE
    sed -n '/---> HINT/p' "$1" | tail -n 1
    while IFS='	' read -r words advice; do
        grep -qiE "$words" "$1" && echo "---> HINT: $advice"
    done <<'HINTS'
libcublasLt.so.*(cannot open|not found)	no cuBLAS in the toolkit or a wheel: export LD_LIBRARY_PATH=its directory
nvcc: (command )?not found	the CUDA toolkit is not in PATH: export PATH=/usr/local/cuda/bin:$PATH
nvidia-smi: (command )?not found	no driver here, or a container without --gpus all
version mismatch	the driver was updated while it ran: reboot
unsupported GNU version	this nvcc does not know this g++: make CXX=g++-13, or an older one that is installed
Unsupported gpu architecture	this nvcc is older than the GPU: a newer toolkit, or GPU_ARCH=sm_90a
cannot find -lcublasLt	cuBLAS is not installed beside nvcc: the package libcublas-dev of your toolkit's version
No space left	the disk is full: OUT=, TMPDIR= elsewhere
No module named	for the comparison with PyTorch only: pip install torch
Killed	the machine ran out of memory while compiling: JOBS=2 dev/gpu_run.sh
HINTS
}
run_step() { # NAME, seconds it may take
    n=$((n + 1))
    local began limit status result
    began=$(seconds)
    limit=$((BUDGET - began - 3))
    [ $limit -gt "$2" ] && limit=$2
    if [ $limit -lt 3 ]; then
        record "$1" "left out: no time" 0 null
        echo "$1: left out, no time"
        return
    fi
    : > "$WORK/$1.txt"
    record "$1" running 0 null
    STEP=$1 WORK=$WORK timeout -k 3 $((limit * CLOCK)) bash "$0" > "$WORK/$1.txt" 2>&1 &
    child=$!
    wait $child; status=$?
    child=
    result=ok
    [ $status = 0 ] || result=FAILED
    if [ $status = 124 ] || [ $status = 137 ]; then result="cut off"; fi
    [ $status = 0 ] || hint "$WORK/$1.txt" > "$WORK/hint"
    [ $status = 0 ] || cat "$WORK/hint" >> "$WORK/$1.txt"
    log "$1"
    record "$1" "$result" $(($(seconds) - began)) $status
    echo "$1: $result, $(($(seconds) - began)) s: $(tail -n 1 "$WORK/$1.txt" | cut -c 1-160)"
}
end() {
    [ "$child" ] && kill "$child" 2> /dev/null
    [ "${clocks:-}" ] && kill "$clocks" 2> /dev/null
    write_results
    rm -rf "$WORK"
}
# cuBLAS of the toolkit, or of PyTorch's wheels, of the major version that the programs name
find_cublas() {
    local name paths=${LD_LIBRARY_PATH:-} d p
    name=$(ldd "$PREBUILT/train_sink-softmax" 2> /dev/null |
        sed -n 's/^[[:space:]]*\(libcublasLt\.so\.[0-9]*\) .*/\1/p')
    name=${name:-libcublasLt.so.13}
    for d in ${paths//:/ } "${CUDA:-/usr/local/cuda}/lib64" /usr/local/cuda*/lib64; do
        [ -e "$d/$name" ] && { echo "$d"; return 0; }
    done
    d=$(command -v "${PYTHON:-python3}")
    for p in "${d%/bin/*}" "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}" "${HOME:-}/.local" /usr \
             /usr/local /opt/conda "${HOME:-}"/.pyenv/versions/*; do
        for d in "$p"/lib/python3*/*-packages/nvidia/{cu[0-9]*,cublas}/lib; do
            [ "$p" ] && [ -e "$d/$name" ] && { echo "$d"; return 0; }
        done
    done
    return 1                    # then the loader finds it by itself, or says that it does not
}
have_gpu() { nvidia-smi -L > /dev/null 2>&1 || ls /dev/nvidia[0-9]* /dev/dxg > /dev/null 2>&1; }

if [ -n "${STEP:-}" ]; then # one step, under its limit
    "step_$STEP"
    exit
fi
BEGAN=$(date +%s) n=0 child=
WORK=$(mktemp -d) && mkdir -p "$WORK/steps" "$OUT" && : > "$OUT/log.txt" || exit 1
trap 'exit 143' TERM INT
trap end EXIT
if command -v nvidia-smi > /dev/null; then # a line every 200 ms: clocks drift, and with them all
    nvidia-smi --query-gpu=timestamp,clocks.sm,power.draw,temperature.gpu --format=csv -lms 200 \
        > "$OUT/clocks.csv" 2> /dev/null &
    clocks=$!
fi
if [ ! "$DRY" ] && ! have_gpu; then
    n=1
    echo "no GPU here: nvidia-smi lists none, and there is no /dev/nvidia0" |
        tee "$WORK/machine.txt"
    log machine
    record machine FAILED 0 1
    exit 1
fi
if [ -z "$PREBUILT" ]; then
    PREBUILT=$PWD/build/gpu
    TO=$PREBUILT sh dev/gpu_pack.sh || exit 1
fi
PREBUILT=$(CDPATH= cd "$PREBUILT" && pwd) || exit 1
cublas=$(find_cublas)
export BEGAN LD_LIBRARY_PATH=$cublas${cublas:+${LD_LIBRARY_PATH:+:}}${LD_LIBRARY_PATH:-}
while read -r name limit; do
    case " ${STEPS:-$name} " in *" $name "*) run_step "$name" "$limit" < /dev/null ;; esac
done <<'LIMITS'
machine 10
selftest 20
hopper 40
beside 40
sanitizer 60
bits 20
attention 70
ncu 60
step 70
profile 30
small 60
bench 80
peers 120
compare 10
real 60
train 40
ops 120
LIMITS
echo "the file to send back: $OUT/results.json"
