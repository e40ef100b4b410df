#!/usr/bin/env bash
# dev/gpu_run.sh -- everything that needs a GPU, in the order of what we most want to know; under 25 minutes on one H100 class GPU.
# Each step leaves its output in OUT and a mark, so a run that was cut off goes on where it stopped.
#   usage: OUT=gpu-results dev/gpu_run.sh [step..]      steps: machine tests sanitizer build bench peers softmax sigmoid k
#   DATA=name under data/ of tokenised text (make shards first, where there is a network); without it training runs on bb.
set -u
cd "$(dirname "$0")/.."
OUT=${OUT:-gpu-results} DATA=${DATA:-bb} STEPS=${STEPS:-2000} MINUTES=${MINUTES:-5}
mkdir -p "$OUT"
SWITCHES="BACKEND=cuda PRECISION=bf16"
TRAIN="-d $DATA -m 60M --seq 2048 --total-batch 131072 --steps $STEPS --stop-after $MINUTES --eval-every 100 --sample 0 --resume"

machine() { nvidia-smi; nvcc --version; git describe --always --dirty; uname -a; }
tests() { # the kernels on the device: the PTX wrappers, every operation and variant in fp32 and bf16, whole training runs
    DEVICE=gpu bash test/test_cuda.sh && DEVICE=gpu bash test/test_cuda_train.sh
}
sanitizer() { DEVICE=sanitizer JOBS=1 bash test/test_cuda.sh; }
build() {
    for v in ATTN=softmax ATTN=sigmoid "ATTN=softmax BIAS=k"; do make -s train_sink $SWITCHES $v || return 1; done
}
bench() { # tokens/s of both presets, then of every ATTN
    make -s train_sink $SWITCHES && ./train_sink bench -m 60M -b 16 && ./train_sink bench -m 1B -b 4 || return 1
    for a in $(sed -n 's/^ *X_ATTN(\([a-z0-9_]*\) *,.*/\1/p' attention_variants.cuh); do
        make -s train_sink $SWITCHES ATTN=$a && ./train_sink bench -m 60M -b 16 || return 1
    done
}
peers() { # the same model in PyTorch: compiled with SDPA (cuDNN, then FA2), FlexAttention and eager
    for a in softmax sigmoid; do # each against the build of its ATTN
        make -s train_sink $SWITCHES ATTN=$a && ${PYTHON:-python3} dev/bench_torch.py --attn $a || return 1
    done
}
train() { # NAME SWITCHES..
    local name=$1; shift
    make -s train_sink $SWITCHES "$@" && ./train_sink $TRAIN -o "$OUT/60M-$name"
}
softmax() { train softmax ATTN=softmax; }
sigmoid() { train sigmoid ATTN=sigmoid; }
k()       { train k BIAS=k; }

for step in ${*:-machine tests build bench peers softmax sigmoid k sanitizer}; do
    [ -e "$OUT/$step.done" ] && { echo "$step: done before"; continue; }
    echo "$step: started $(date -u +%H:%M:%S)"
    start=$(date +%s)
    if "$step" > "$OUT/$step.txt" 2>&1; then touch "$OUT/$step.done"; result=ok; else result=FAILED; fi
    echo "$step: $result, $(($(date +%s) - start)) s: $(tail -n 1 "$OUT/$step.txt")"
done
