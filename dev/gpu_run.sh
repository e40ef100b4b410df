#!/usr/bin/env bash
# dev/gpu_run.sh -- the first day on a GPU: everything that only a GPU can tell,
# in the order of what we most want to know. The checks (machine to compare)
# are meant to take under ten minutes on one card, most of it nvcc; then three training runs.
# Each step leaves its output in OUT and a mark, so a run that was cut off goes on where it stopped.
# At the end, and after every step, OUT/send-back.md is the one file to send: what ran,
# what failed and how, and the figures beside dev/predict.py's.
#   usage: OUT=gpu-results dev/gpu_run.sh [step..]
#          steps: machine build tests bits bench peers compare | softmax sigmoid k sanitizer
#   DATA=NAME under data/, a directory of shards or a text file; without it training runs on bb,
#         which makes no sink at this size
#   LLMC=DIRECTORY of llm.c with a built train_gpt2cu: its speed on its own model (GPT-2 124M)
#         goes into the comparison
#   CARD="H100 SXM": the row of dev/predict.py to compare with, if the name of the GPU does not tell
#   DRY=1: the whole script on the CPU at toy size, to test the script itself
#          (the tests of kernels are left out)
set -u
cd "$(dirname "$0")/.."
OUT=${OUT:-gpu-results} DATA=${DATA:-bb} STEPS=${STEPS:-2000} MINUTES=${MINUTES:-5} DRY=${DRY:-}
mkdir -p "$OUT"
SWITCHES="BACKEND=cuda PRECISION=bf16" MODEL="-m 60M -b 16" LARGE="-m 1B -b 4" TOKENS=131072
if [ "$DRY" ]; then
    SWITCHES="BACKEND=cpu" MODEL="--layers 1 --width 32 --heads 1 --ffn-width 48 -t 32 -b 4"
    LARGE=$MODEL TOKENS=256 STEPS=4
fi
TRAIN="-d $DATA $MODEL --total-batch $TOKENS --sample 0"
variants() {
    sed -n 's/^ *X_ATTN(\([a-z0-9_]*\) *,.*/\1/p' attention_variants.cuh |
        { [ "$DRY" ] && head -n 2 || cat; }
}
make_it() { make -s train_sink $SWITCHES "$@"; }

# nvcc uses one core for one file unless told otherwise
if [ ! "$DRY" ] && nvcc --help 2> /dev/null | grep -q split-compile; then
    export NVCC="nvcc -split-compile=0"
fi

# what the likeliest errors of a first run mean; those that the program meets
# itself it explains itself
hint() { # FILE
    sed -n '/---> HINT/p' "$1" | tail -n 1
    while IFS='	' read -r words advice; do
        grep -qiE "$words" "$1" && echo "---> HINT: $advice"
    done <<'HINTS'
libcublasLt.so.*(cannot open|not found)	the toolkit's libraries are not found: export LD_LIBRARY_PATH=$(dirname "$(command -v nvcc)")/../lib64
nvcc: (command )?not found	the CUDA toolkit is not in PATH: export PATH=/usr/local/cuda/bin:$PATH
nvidia-smi: (command )?not found	no driver here, or a container without --gpus all
version mismatch	the driver was updated while it ran: reboot
unsupported GNU version	this nvcc does not know this g++: make CXX=g++-13, or an older one that is installed
Unsupported gpu architecture	this nvcc is older than the GPU: a newer toolkit, or GPU_ARCH=sm_90
cannot find -lcublasLt	cuBLAS is not installed beside nvcc: the package libcublas-dev of your toolkit's version
No space left	the disk is full: OUT=, TMPDIR= elsewhere
No module named	for the comparison with PyTorch only: pip install torch
Killed	the machine ran out of memory while compiling: JOBS=2 dev/gpu_run.sh
HINTS
}

machine() {
    [ "$DRY" ] || { nvidia-smi && nvcc --version; } && git describe --always --dirty &&
        uname -a && df -h . | tail -n 1
}
# the kernels on the device: the PTX wrappers, every operation and variant in fp32 and bf16,
# whole training runs
tests() {
    [ "$DRY" ] && { echo "left out: DRY"; return 0; }
    DEVICE=gpu bash test/test_cuda.sh && DEVICE=gpu bash test/test_cuda_train.sh
}
sanitizer() {
    [ "$DRY" ] && { echo "left out: DRY"; return 0; }
    DEVICE=sanitizer JOBS=1 bash test/test_cuda.sh
}
build() { # all at once, as many as there are cores
    { for a in $(variants); do echo ATTN=$a; done; echo BIAS=k; } |
        while read -r s; do echo "$(make -s check $SWITCHES $s)/train_sink $SWITCHES $s"; done |
        xargs -P "${JOBS:-$(nproc)}" -L 1 make -s
}
bench_ops() { # NAME flags..: the tables of the small preset into ops-NAME.txt, its JSON line
    local out=$OUT/ops-$1.txt; shift
    ./train_sink bench $MODEL "$@" --ops > "$out" && tail -n 1 "$out"
}
# the 1B preset wants 36 GiB: a card that has less leaves it out, and goes on
bench_large() {
    ./train_sink bench $LARGE --ops > "$OUT/large.txt" 2>&1 && { cat "$OUT/large.txt"; return; }
    cat "$OUT/large.txt"
    grep -q '^error: GPU memory: wanted' "$OUT/large.txt" &&
        echo "left out: $LARGE, which does not fit this GPU"
}
# both presets, then every ATTN and head dimension of the small one: a JSON line each;
# tables of the operations and of attention
bench() {
    make_it && ./train_sink bench $MODEL --total-batch $TOKENS --ops && bench_large || return 1
    for a in $(variants); do make_it ATTN=$a && bench_ops $a || return 1; done
    make_it || return 1
    for h in $([ "$DRY" ] && echo 1 || echo 12 8 6 4 2 1); do
        bench_ops heads-$h --heads $h || return 1
    done
}
# the same model in PyTorch: compiled with SDPA (cuDNN, then FA2), FlexAttention and eager,
# each against the build of its ATTN
peers() {
    for a in softmax sigmoid; do
        make_it ATTN=$a &&
            ${PYTHON:-python3} dev/bench_torch.py --attn $a ${DRY:+--smoke} || return 1
    done
}
compare() { # with the prediction, PyTorch and llm.c: the step of the 60M preset
    local line ms tokens name card
    line=$(grep '^{"attn":"softmax"' "$OUT/bench.txt" | head -n 1)
    tokens=$(echo "$line" | sed -n 's/.*"tokens_per_s":\([0-9]*\).*/\1/p')
    [ "$tokens" ] || { echo "no figure of bench to compare"; return 1; }
    ms=$(awk -v t="$tokens" -v n="$TOKENS" 'BEGIN { printf "%.1f", n / t * 1000 }')
    name=$([ "$DRY" ] && echo "NVIDIA H100 80GB HBM3" ||
           nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
    case "${CARD:-$name}" in
        *A100*) card="A100 80GB SXM" ;;
        *H200*) card="H200 SXM" ;;
        *H100*) card="H100 SXM" ;;
        *4090*) card="RTX 4090" ;;
        *) card= ;;
    esac
    echo "| $name, a step of $TOKENS tokens | ms | thousand tokens/s |"; echo "|---|---|---|"
    echo "| measured | $ms | $(awk -v t="$tokens" 'BEGIN { printf "%.0f", t / 1000 }') |"
    local ms_of='"step_ms": \([0-9.]*\)' rate_of='"tokens_per_s": \([0-9]*\)'
    ${PYTHON:-python3} dev/predict.py --json |
        sed -n "s/^{\"card\": \"${card:-none}\", $ms_of, $rate_of.*/\1 \2/p" |
        awk -v card="$card" '{ printf "| predicted for %s | %s | %.0f |\n", card, $1, $2 / 1000 }'
    [ "$card" ] || echo "no prediction for $name: add a row to CARDS of dev/predict.py"
    if [ -f "$OUT/peers.txt" ]; then
        echo
        grep -E '^(ATTN=|path |train_sink |cudnn |fa2 |sdpa |flex |eager )' "$OUT/peers.txt" |
            sed 's/^/    /'
    fi
    echo
    # random weights of GPT-2 124M on its own data: 20 steps
    if [ -x "${LLMC:-}/train_gpt2cu" ]; then
        (cd "$LLMC" && ./train_gpt2cu -e d12 -b 16 -t 1024 -d 524288 -x 20 -v 0 -s 0 -h 0) 2>&1 |
            grep '^step' | tail -n 3 | sed 's/^/    llm.c, GPT-2 124M: /'
    else echo "llm.c: not at hand (LLMC=)"; fi
}
bits() { # two runs of one seed
    make_it || return 1
    for i in 1 2; do
        rm -rf "$OUT/bits$i"
        ./train_sink $TRAIN --steps 4 --eval-every 0 --save-every 0 -o "$OUT/bits$i" > /dev/null ||
            return 1
    done
    a=$(grep -o '"params_hash":[^,}]*' "$OUT/bits1/log.jsonl")
    b=$(grep -o '"params_hash":[^,}]*' "$OUT/bits2/log.jsonl")
    echo "$a and $b: $([ -n "$a" ] && [ "$a" = "$b" ] && echo equal || echo DIFFERENT)"
    [ -n "$a" ] && [ "$a" = "$b" ]
}
train() { # NAME SWITCHES..
    local name=$1; shift
    mkdir -p "$OUT/60M-$name" && make_it "$@" &&
        ./train_sink $TRAIN --steps "$STEPS" --stop-after "$MINUTES" --eval-every 100 --resume \
                     -o "$OUT/60M-$name"
}
softmax() { train softmax ATTN=softmax; }
sigmoid() { train sigmoid ATTN=sigmoid; }
k()       { train k BIAS=k; }
# what was found, as Markdown
summary() {
    echo "| step | result | seconds | last line |"; echo "|---|---|---|---|"; cat "$OUT"/*.result
    for failed in $(sed -n 's/^| \([a-z]*\) | FAILED.*/\1/p' "$OUT"/*.result); do
        echo; echo "$failed failed; the end of what it said:"
        tail -n 30 "$OUT/$failed.txt" | cut -c 1-300 | sed 's/^/    /'
        hint "$OUT/$failed.txt" | sed 's/^/    /'
    done
    [ -f "$OUT/compare.txt" ] && { echo; cat "$OUT/compare.txt"; }
    [ -f "$OUT/machine.txt" ] && { echo; sed 's/^/    /' "$OUT/machine.txt"; }
    [ -f "$OUT/bench.txt" ] || return 0
    echo; echo "| ATTN | L, C, T, B | tokens/s | TFLOP/s | of a large product alone |"
    echo "|---|---|---|---|---|"
    local shape='"L":\([0-9]*\),"C":\([0-9]*\).*"T":\([0-9]*\),"B":\([0-9]*\)'
    local speed='"tokens_per_s":\([0-9]*\).*"gflops":\([0-9.]*\),.*"of_product":\([0-9.]*\)'
    sed -n 's/^{"attn":"\([a-z0-9_]*\)".*'"$shape.*$speed"'.*/\1 \2 \3 \4 \5 \6 \7 \8/p' \
        "$OUT/bench.txt" | awk '{ printf "| %s | %s, %s, %s, %s ", $1, $2, $3, $4, $5
                                  printf "| %s | %.1f | %s |\n", $6, $7 / 1000, $8 }'
    echo; echo "| attention | forward, TFLOP/s | backward, TFLOP/s |"; echo "|---|---|---|"
    for f in "$OUT"/ops-*.txt; do
        awk -v name="$(basename "$f" .txt)" '
            $1 == "attention" { forward = $5 / 1000 } $1 == "attention," { backward = $6 / 1000 }
            END { printf "| %s | %.1f | %.1f |\n", substr(name, 5), forward, backward }' "$f"
    done
    echo; sed -n '/^operation/,/^sinks of/p' "$OUT/bench.txt" | sed 's/^/    /'
    for run in "$OUT"/60M-*/log.jsonl; do
        [ -f "$run" ] || continue
        last=$(grep '"event":"eval"' "$run" | tail -n 1 | cut -c 1-300)
        echo; echo "$(basename "$(dirname "$run")"): $last"
    done
}

n=0
for step in ${*:-machine build tests bits bench peers compare softmax sigmoid k sanitizer}; do
    n=$((n + 1))
    [ -e "$OUT/$step.done" ] && { echo "$step: done before"; continue; }
    echo "$step: started $(date -u +%H:%M:%S)"
    start=$(date +%s)
    result=FAILED
    if "$step" > "$OUT/$step.txt" 2>&1; then touch "$OUT/$step.done"; result=ok; fi
    last=$(tail -n 1 "$OUT/$step.txt" | cut -c 1-160)
    echo "$step: $result, $(($(date +%s) - start)) s: $last"
    [ $result = ok ] || hint "$OUT/$step.txt"
    echo "| $step | $result | $(($(date +%s) - start)) | $last |" \
        > "$OUT/$(printf %02d $n)-$step.result"
    summary > "$OUT/send-back.md"
done
echo; cat "$OUT/send-back.md"; echo; echo "the file to send back: $OUT/send-back.md"
