#!/bin/sh
# dev/gpu/gpu_train.sh -- after dev/gpu_run.sh, without a limit of time: training of the 60M preset with
# softmax, sigmoid and a K bias, then compute-sanitizer on the kernels. Builds with nvcc.
#   usage: DATA=NAME dev/gpu/gpu_train.sh      a name under data/, a directory of shards or a text;
#                                          without it bb, which makes no sink at this size
#   OUT=gpu-results, MINUTES=5 each, STEPS=2000. An interrupted run goes on where it stopped
CDPATH= cd "$(dirname "$0")/../.." || exit 1
OUT=${OUT:-gpu-results} DATA=${DATA:-bb} STEPS=${STEPS:-2000} MINUTES=${MINUTES:-5}
mkdir -p "$OUT"
bad=0
for s in ATTN=softmax ATTN=sigmoid BIAS=k; do
    out=$OUT/60M-${s#*=}
    mkdir -p "$out"
    make -s train_sink BACKEND=cuda PRECISION=bf16 $s &&
        ./train_sink -d "$DATA" -m 60M -b 16 --total-batch 131072 --sample 0 --steps "$STEPS" \
            --stop-after "$MINUTES" --eval-every 100 --resume -o "$out" || bad=1
done
DEVICE=sanitizer JOBS=1 sh test/gpu/test_cuda.sh || bad=1
exit $bad
