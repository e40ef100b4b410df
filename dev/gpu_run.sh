#!/usr/bin/env bash
# dev/gpu_run.sh -- everything that needs a GPU, in the order of what we most want to know; under 25 minutes on one H100 class GPU.
# Each step leaves its output in OUT and a mark, so a run that was cut off goes on where it stopped; OUT/summary.md is for dev/LOG.md.
#   usage: OUT=gpu-results dev/gpu_run.sh [step..]      steps: machine tests build bench peers bits softmax sigmoid k sanitizer
#   DATA=NAME under data/, a directory of shards or a text file; without it training runs on bb, which makes no sink at this size
#   DRY=1: the whole script on the CPU at toy size, to test the script itself (the tests of kernels are left out)
set -u
cd "$(dirname "$0")/.."
OUT=${OUT:-gpu-results} DATA=${DATA:-bb} STEPS=${STEPS:-2000} MINUTES=${MINUTES:-5} DRY=${DRY:-}
mkdir -p "$OUT"
SWITCHES="BACKEND=cuda PRECISION=bf16" MODEL="-m 60M -b 16" LARGE="-m 1B -b 4" TOKENS=131072
[ "$DRY" ] && SWITCHES="BACKEND=cpu" MODEL="--layers 1 --width 32 --heads 1 --ffn-width 48 -t 32 -b 4" LARGE=$MODEL TOKENS=256 STEPS=4
TRAIN="-d $DATA $MODEL --total-batch $TOKENS --sample 0"
variants() { sed -n 's/^ *X_ATTN(\([a-z0-9_]*\) *,.*/\1/p' attention_variants.cuh | { [ "$DRY" ] && head -n 2 || cat; }; }
make_it() { make -s train_sink $SWITCHES "$@"; }

machine() { [ "$DRY" ] || { nvidia-smi && nvcc --version; } && git describe --always --dirty && uname -a; }
tests() { # the kernels on the device: the PTX wrappers, every operation and variant in fp32 and bf16, whole training runs
    [ "$DRY" ] && { echo "left out: DRY"; return 0; }
    DEVICE=gpu bash test/test_cuda.sh && DEVICE=gpu bash test/test_cuda_train.sh
}
sanitizer() { [ "$DRY" ] && { echo "left out: DRY"; return 0; }; DEVICE=sanitizer JOBS=1 bash test/test_cuda.sh; }
build() { # all at once: nvcc takes a minute for each
    { for a in $(variants); do echo ATTN=$a; done; echo BIAS=k; } |
        while read -r s; do echo "$(make -s check $SWITCHES $s)/train_sink $SWITCHES $s"; done | xargs -P "$(nproc)" -L 1 make -s
}
bench() { # both presets, then every ATTN and head dimension of the small one: a JSON line each; tables of the operations and of attention
    make_it && ./train_sink bench $MODEL --total-batch $TOKENS --ops && ./train_sink bench $LARGE && ./train_sink bench $LARGE --ops || return 1
    for a in $(variants); do make_it ATTN=$a && ./train_sink bench $MODEL --ops > "$OUT/ops-$a.txt" && tail -n 1 "$OUT/ops-$a.txt" || return 1; done
    make_it || return 1
    for h in $([ "$DRY" ] && echo 1 || echo 12 8 6 4 2 1); do
        ./train_sink bench $MODEL --heads $h --ops > "$OUT/ops-heads-$h.txt" && tail -n 1 "$OUT/ops-heads-$h.txt" || return 1
    done
}
peers() { # the same model in PyTorch: compiled with SDPA (cuDNN, then FA2), FlexAttention and eager, each against the build of its ATTN
    for a in softmax sigmoid; do
        make_it ATTN=$a && ${PYTHON:-python3} dev/bench_torch.py --attn $a ${DRY:+--smoke} || return 1
    done
}
bits() { # two runs of one seed
    make_it || return 1
    for i in 1 2; do
        rm -rf "$OUT/bits$i"; ./train_sink $TRAIN --steps 4 --eval-every 0 --save-every 0 -o "$OUT/bits$i" > /dev/null || return 1
    done
    a=$(grep -o '"params_hash":[^,}]*' "$OUT/bits1/log.jsonl") b=$(grep -o '"params_hash":[^,}]*' "$OUT/bits2/log.jsonl")
    echo "$a and $b: $([ -n "$a" ] && [ "$a" = "$b" ] && echo equal || echo DIFFERENT)"; [ -n "$a" ] && [ "$a" = "$b" ]
}
train() { # NAME SWITCHES..
    local name=$1; shift
    mkdir -p "$OUT/60M-$name" && make_it "$@" && ./train_sink $TRAIN --steps "$STEPS" --stop-after "$MINUTES" --eval-every 100 --resume -o "$OUT/60M-$name"
}
softmax() { train softmax ATTN=softmax; }
sigmoid() { train sigmoid ATTN=sigmoid; }
k()       { train k BIAS=k; }
# what was found, as Markdown
summary() {
    echo "| step | result | seconds | last line |"; echo "|---|---|---|---|"; cat "$OUT"/*.result
    [ -f "$OUT/bench.txt" ] || return 0
    echo; echo "| ATTN | L, C, T, B | tokens/s | TFLOP/s | of a large product alone |"; echo "|---|---|---|---|---|"
    sed -n 's/^{"attn":"\([a-z0-9_]*\)".*"L":\([0-9]*\),"C":\([0-9]*\).*"T":\([0-9]*\),"B":\([0-9]*\).*"tokens_per_s":\([0-9]*\).*"gflops":\([0-9.]*\),.*"of_product":\([0-9.]*\).*/\1 \2 \3 \4 \5 \6 \7 \8/p' \
        "$OUT/bench.txt" | awk '{ printf "| %s | %s, %s, %s, %s | %s | %.1f | %s |\n", $1, $2, $3, $4, $5, $6, $7 / 1000, $8 }'
    echo; echo "| attention | forward, TFLOP/s | backward, TFLOP/s |"; echo "|---|---|---|"
    for f in "$OUT"/ops-*.txt; do
        awk -v name="$(basename "$f" .txt)" '$1 == "attention" { forward = $5 / 1000 } $1 == "attention," { backward = $6 / 1000 }
            END { printf "| %s | %.1f | %.1f |\n", substr(name, 5), forward, backward }' "$f"
    done
    echo; sed -n '/^operation/,/^sinks of/p' "$OUT/bench.txt" | sed 's/^/    /'
    [ -f "$OUT/peers.txt" ] && { echo; grep -E '^(ATTN=|path |train_sink |cudnn |fa2 |sdpa |flex |eager )' "$OUT/peers.txt" | sed 's/^/    /'; }
    for run in "$OUT"/60M-*/log.jsonl; do
        [ -f "$run" ] && echo && echo "$(basename "$(dirname "$run")"): $(grep '"event":"eval"' "$run" | tail -n 1 | cut -c 1-300)"
    done
}

n=0
for step in ${*:-machine tests build bench peers bits softmax sigmoid k sanitizer}; do
    n=$((n + 1))
    [ -e "$OUT/$step.done" ] && { echo "$step: done before"; continue; }
    echo "$step: started $(date -u +%H:%M:%S)"
    start=$(date +%s)
    if "$step" > "$OUT/$step.txt" 2>&1; then touch "$OUT/$step.done"; result=ok; else result=FAILED; fi
    last=$(tail -n 1 "$OUT/$step.txt" | cut -c 1-160)
    echo "$step: $result, $(($(date +%s) - start)) s: $last"
    echo "| $step | $result | $(($(date +%s) - start)) | $last |" > "$OUT/$(printf %02d $n)-$step.result"
done
summary > "$OUT/summary.md"; echo; cat "$OUT/summary.md"
