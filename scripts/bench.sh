#!/bin/sh
# make bench: speed and memory of this machine, side by side in one run. Figures are medians;
# the machine should be quiet.
#   1  training tokens/s of two model sizes, on a CPU in fp32 and bf16; where python3 has torch
#      in turn with PyTorch, eager and by torch.compile, and the ratios
#   2  every operation of the step against its roof, memory, what an evaluation of the sinks costs
#   3  every ATTN: tokens/s relative to softmax, round by round (ROUNDS=5), and attention's own
#      speed; that by head dimension
#   4  the tokenizer on TEXT='a.jsonl.zst code/ ..' with TOKENIZER=tokenizer.json:
#      against `tokenizers` and `tiktoken` where python3 has them, ids compared first;
#      and `tokenize` with one core against all
# All that train_sink bench measured is also in build/bench.json, a list of objects.
set -e
CDPATH= cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKELEVEL MFLAGS
. scripts/lib/flags.sh
rounds=${ROUNDS:-5} jobs=${JOBS:-$(nproc)}
python=${PYTHON:-python3}
field() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p"; }                     # of a line of JSON
median() {
    sort -n | awk '{ x[NR] = $1 }
                   END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'
}
op_tflops() { # file in build/bench, operation
    grep -o "\"name\":\"$2\"[^}]*" "$1" |
        awk -F'[:,]' '{ for (i = 1; i < NF; i++) { v[$i] = $(i + 1) }
                        print v["\"flops\""] / v["\"ms\""] / 1e9 }'
}
rm -rf build/bench; mkdir -p build/bench
bench() { # name of its file in build/bench, binary, flags: the line of JSON comes last
    name=$1 binary=$2; shift 2; $binary bench "$@" --json "build/bench/$name.json"
}

make -s train_sink
ours=$(make -s check)/train_sink                                        # build/cpu or build/cuda
machine="$(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
case $ours in *cuda*)
    machine="$machine; $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null)" ;;
esac
echo "machine: $machine; commit $(git describe --always --dirty 2>/dev/null)"
small_model="--layers 4 --width 256 --heads 4 --ffn-width 768 --vocab 257 --seq 256 --batch 16"
report() { # name, a line of JSON: no line break, the peer's ratio follows
    printf '%-28s %8s tokens/s  %8s GFLOP/s, %s of a large product alone' "$1" \
           "$(echo "$2" | field tokens_per_s)" "$(echo "$2" | field gflops)" \
           "$(echo "$2" | field of_product)"
}
# a training step of this model, in fp32 and bf16, in turn with PyTorch's:
# eager and by torch.compile, fp32 and bf16 autocast
steps() { # name in build/bench, rounds, flags of dev/bench/bench_step.py
    name=$1 n=$2; shift 2
    $python dev/bench/bench_step.py "$@" --rounds "$n" --ours "fp32=$fp32" --ours "bf16=$bf16" \
            --json "build/bench/$name.json"
}
case $ours in
*cuda*) # PyTorch on the GPU has a program of its own: compiled, cuDNN, FA2, FlexAttention, eager
    for n in 1 2 3; do report "60M, T 2048, B 16" "$(bench 60M-$n "$ours" -m 60M -b 16)"; echo; done
    report "1B, T 2048, B 4" "$(bench 1B "$ours" -m 1B -b 4)"; echo
    $python dev/bench/bench_torch.py --ours "$ours" || echo "  (no PyTorch in $python to compare with)"
    whole="-m 60M -b 16 --total-batch 1048576 -n 4"
    small="-m 60M -b 16 -n 4" heads="12 8 6 4 2 1" width=768 ;;
*)  fp32=$(make -s check PRECISION=fp32)/train_sink bf16=$(make -s check PRECISION=bf16)/train_sink
    for p in fp32 bf16; do make -s binary PRECISION=$p; done
    if command -v "$python" > /dev/null; then
        steps step-256 "$rounds" --preset small
        # two peers at a time: each holds the model, its gradients and its optimizer
        for p in fp32 bf16; do
            steps step-60M-$p 3 --preset 60M --steps 1 --peers "eager-$p,compile-$p"
        done
    else # our own steps alone
        for p in "$fp32" "$bf16"; do
            name=alone-$(basename "$(dirname "$p")")
            report "$p" "$(bench "$name" "$p" $small_model)"; echo
        done
    fi
    whole="-m small -b 16 --total-batch 16384"
    small="$small_model -n 4" heads="8 4 2 1" width=256 ;;
esac

echo; echo "every operation of one step ($whole)"
ops() { # name of its file, flags of make, flags of bench: its operations one by one
    name=$1 switches=$2; shift 2
    make -s bench-ops $switches
    "$(make -s check $switches)/bench_ops" "$@" --json "build/bench/$name.json"
}
ops ops "" $whole

echo; echo "ATTN: tokens/s relative to softmax ($small; $rounds rounds);" \
           "TFLOP/s of attention forward and backward"
variants=$(sed -n 's/^ *X_ATTN(\([a-z0-9_]*\) *,.*/\1/p' attention_variants.cuh)
for v in $variants; do
    echo "$(make -s check ATTN=$v)/train_sink ATTN=$v"
done | xargs -P "$jobs" -L 1 make -s > /dev/null
rm -f build/bench.rows
for i in $(seq "$rounds"); do
    base=
    for v in $variants; do
        x=$($(make -s check ATTN=$v)/train_sink bench $small | field tokens_per_s)
        [ -n "$base" ] || base=$x
        echo "$v $(echo "$x $base" | awk '{ print $1 / $2 }')" >> build/bench.rows
    done
done
speed() { op_tflops "$1" attention; op_tflops "$1" "attention, backward"; }
for v in $variants; do
    ops "attn-$v" ATTN=$v $small > /dev/null
    relative=$(awk -v v="$v" '$1 == v { print $2 }' build/bench.rows | median)
    printf '  %-16s %-8s %8.3g %8.3g\n' "$v" "$relative" $(speed "build/bench/attn-$v.json")
done
echo "head dimension: tokens/s; TFLOP/s of attention forward and backward"
for h in $heads; do
    x=$(ops "heads-$h" "" $(without "$small" --heads) --heads "$h" | tail -n 1 | field tokens_per_s)
    printf '  %-16s %-8s %8.3g %8.3g\n' $((width / h)) "$x" $(speed "build/bench/heads-$h.json")
done
{ echo '['; cat build/bench/*.json | sed '$!s/}$/},/'; echo ']'; } > build/bench.json

echo; echo "tokenizer"
if [ -z "$TOKENIZER" ] || [ -z "$TEXT" ]; then
    echo "  left out: TOKENIZER=tokenizer.json TEXT='books.jsonl.zst code/' make bench measures it"
    exit 0
fi
${CXX:-g++} -std=c++17 -O3 -march=native -fopenmp -x c++ \
    dev/bench/bench_tokenizer.cpp -o build/bench_tokenizer -x none $(make -s once)
$python dev/bench/bench_tokenizer.py build/bench_tokenizer "$TOKENIZER" $TEXT ||
    echo "  no comparison: $python -m pip install tokenizers tiktoken"
seconds() { # command..
    start=$(date +%s%N)
    rm -rf build/bench.tokens
    "$@" > /dev/null 2>&1
    echo $((($(date +%s%N) - start) / 1000000)) | awk '{ print $1 / 1000 }'
}
files=; for f in $TEXT; do case $f in *.txt | *.jsonl*) files="$files $f" ;; esac; done
[ -n "$files" ] || exit 0
for i in $(seq "$rounds"); do
    tokenize="$ours tokenize $files -o build/bench.tokens"
    one=$(seconds taskset -c 0 $tokenize --tokenizer "$TOKENIZER" --threads 1)
    all=$(seconds $tokenize --tokenizer "$TOKENIZER")
    echo "$one $all" | awk '{ print $1 / $2 }'
done | median |
    awk -v n="$(nproc)" '{ printf "tokenize: %d cores are %.2f x as fast as one\n", n, $1 }'
rm -rf build/bench.tokens
