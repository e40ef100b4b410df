#!/bin/sh
# dev/gpu/counts.sh -- what every kernel of one training step asks of the memory,
# counted in the emulator (dev/emulator/emu_counts.h), against dev/gpu/counts.tsv.
# A layer of the 60M preset on 256 tokens; products are not computed. A minute of one core, no GPU.
#   usage: dev/gpu/counts.sh                   `N passed, M failed`
#          dev/gpu/counts.sh update            writes today's figures into dev/gpu/counts.tsv
# A figure may rise by 2%, empty blocks not at all. CXX, CUDA (the toolkit's directory)
CDPATH= cd "$(dirname "$0")/../.." || exit 1
CXX=${CXX:-g++} CUDA=${CUDA:-/usr/local/cuda}
if [ ! -f "$CUDA/include/cublasLt.h" ]; then
    echo "skipped: 1 count of memory accesses, no CUDA headers in $CUDA/include (set CUDA=)"
    echo "0 passed, 0 failed"
    exit 0
fi
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
defs="-DPRECISION=bf16 -DBACKEND=cuda"                   # and the first value of every other switch
defs="$defs $(make -s values |
    sed -n '/^PRECISION\|^BACKEND/d; s/^\([A-Z]*\) \([a-z0-9_]*\).*/-D\1=\2/p' | tr '\n' ' ')"
emulated="-x c++ -std=c++17 -DEMU -fno-strict-aliasing -fstack-clash-protection -fopenmp
          -Wno-unknown-pragmas -Idev/emulator"
$CXX $emulated -I"$CUDA/include" -O1 -c -fsanitize=thread -DEMU_COUNT -DREAL_SIZES \
    '-DMMA_HEADS(X)=X(96)' -DGPU_SMS=4 $defs -DONCE_APART train_sink.cu -o "$dir/count.o" > "$dir/log" 2>&1 &&
    $CXX "$dir/count.o" $(make -s once BACKEND=cpu CXX="$CXX") -fopenmp -o "$dir/count" \
         > "$dir/log" 2>&1 || { head -n 5 "$dir/log"; echo "0 passed, 1 failed"; exit 1; }
# the second step, without the evaluations before and after; a small GPU: two blocks for each of the
# SMs that the kernels were told, and no more L2 than a tensor's 384 KiB: 48 a block, as to an
# A100's 190
export EMU_COUNTS=$dir/all.tsv EMU_COUNTS_BETWEEN=update_kernel EMU_L2=384 EMU_RESIDENT=8
OMP_NUM_THREADS=1 "$dir/count" train -d bb --bb-vocab 500 --layers 1 --width 768 --heads 8 \
    --ffn-width 1536 -t 256 -b 1 -n 2 --eval-every 0 --save-every 0 --sample 0 --val-seqs 2 \
    --probe-seqs 2 --probe-len 8 -o "$dir/run" > "$dir/log" 2>&1 ||
    { tail -n 5 "$dir/log"; echo "0 passed, 1 failed"; exit 1; }
first() { grep -o "\"$1\":[0-9]*" "$dir/run/log.jsonl" | head -n 1 | cut -d: -f2; }
awk -v tail="256\t$(first vocab)\t$(first params)" '
    { print $0 "\t" (NR == 1 ? "tokens\tvocab\tparameters" : tail) }' "$dir/all.tsv" \
    > "$dir/counts.tsv"
if [ "$1" = update ]; then
    { grep '^#' dev/gpu/counts.tsv; cat "$dir/counts.tsv"; } > "$dir/new" &&
        cp "$dir/new" dev/gpu/counts.tsv
    echo "$(($(wc -l < "$dir/counts.tsv") - 1)) rows written to dev/gpu/counts.tsv"
    exit
fi
awk -F'\t' '
    /^#/ { next }
    $1 == "kernel" { split($0, name, "\t"); next }
    FNR == NR { for (i = 4; i <= 10; i++) { want[$1, i] = $i / $2 }; have[$1] = 1; next }
    !($1 in have) {
        print "FAIL " $1 ": no row in dev/gpu/counts.tsv; dev/gpu/counts.sh update adds it"
        bad++
        next
    }
    {
        for (i = 4; i <= 10; i++) {
            if ($i / $2 <= want[$1, i] * (i == 4 ? 1 : 1.02)) { good++; continue }
            print "FAIL " $1 ": " name[i] " is " $i / $2 " a launch, budget " want[$1, i]
            bad++
        }
    }
    END {
        if (!good) { bad++; print "FAIL nothing was counted" }
        print good + 0 " passed, " bad + 0 " failed"
        exit bad > 0
    }' dev/gpu/counts.tsv "$dir/counts.tsv"
