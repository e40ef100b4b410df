#!/bin/sh
# dev/gpu_pack.sh -- builds, on any machine with nvcc, what dev/gpu_run.sh runs: for sm_80 and its
# relatives, for Hopper (sm_90a), and as PTX for newer GPUs; host code for x86-64-v3.
#   usage: dev/gpu_pack.sh             build/gpu.tar.xz, under 40 MB. On the GPU machine:
#                                      tar xf gpu.tar.xz && train_sink-gpu/dev/gpu_run.sh
#          TO=DIR dev/gpu_pack.sh      only the programs, into DIR
#   ATTNS="softmax sigmoid" only these; ONLY=selftest only that program; HOST=native, NVCC, CXX, JOBS.
#   The CPU seconds of a variant: about 20
CDPATH= cd "$(dirname "$0")/.." || exit 1
NVCC=${NVCC:-nvcc} CXX=${CXX:-g++} JOBS=${JOBS:-$(nproc)}
HOST=${HOST:-x86-64-v3} GPUS=${GPUS:-sm_90a -gencode arch=compute_80,code=[sm_80,compute_80]}
ATTNS=${ATTNS:-$(sed -n 's/^ *X_ATTN(\([a-z0-9_]*\) *,.*/\1/p' attention_variants.cuh)}
pack=${TO:-build/gpu/train_sink-gpu/bin}
command -v "$NVCC" > /dev/null || {
    echo "error: nvcc: found none in PATH, wanted the CUDA toolkit's"
    echo "---> HINT: dev/gpu_pack.sh on another machine, then PREBUILT=DIR dev/gpu_run.sh here"
    exit 1
}
mkdir -p "$pack" && pack=$(CDPATH= cd "$pack" && pwd) || exit 1
# where cuBLAS is not installed, linking needs only its names
stub=
if ! echo 'int main() {}' | $NVCC -x cu - -lcublasLt -o "$pack/try" > /dev/null 2>&1; then
    stub=$pack/stub
    mkdir -p "$stub"
    grep -oh 'cublasLt[A-Z][A-Za-z]*(' cuda/*.cuh | tr -d '(' | sort -u |
        sed 's/.*/void &(void) {}/' > "$stub/blas.c"
    major=$($NVCC --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    cc -shared -fPIC -Wl,-soname,libcublasLt.so.$major "$stub/blas.c" -o "$stub/libcublasLt.so" ||
        exit 1
    export LIBRARY_PATH="$stub${LIBRARY_PATH:+:$LIBRARY_PATH}"
fi
rm -f "$pack/try"
one() { # NAME SWITCHES..: a program of make
    name=$1; shift
    make -s binary ARCH=$HOST GPU_ARCH="$GPUS" CXX="$CXX" NVCC="$NVCC" "$@" || return 1
    cp "$(make -s check ARCH=$HOST "$@")/train_sink" "$pack/train_sink-$name" &&
        strip "$pack/train_sink-$name"
}
test_program() { # NAME SOURCE FLAGS..
    name=$1 source=$2; shift 2
    $NVCC -std=c++17 -O2 $(make -s nvcc_arch BACKEND=cuda GPU_ARCH="$GPUS") -ccbin "$CXX" \
        -Xcompiler "-march=$HOST -fopenmp" "$@" -I. \
        "$source" "$(make -s once BACKEND=cpu ARCH=$HOST CXX="$CXX")" -lcublasLt -o "$pack/$name" &&
        strip "$pack/$name"
}
make -s -j"$JOBS" once BACKEND=cpu ARCH=$HOST CXX="$CXX" > /dev/null || exit 1
{
    echo "one cpu BACKEND=cpu PRECISION=fp32"
    echo "one fp32 BACKEND=cuda PRECISION=fp32"
    for p in bf16 fp32; do
        echo "test_program test_cuda-$p test/gpu/test_cuda.cu -DPRECISION=$p"
    done
    echo "test_program selftest dev/emulator/selftest.cu"
    echo "test_program selftest_wgmma dev/emulator/selftest_wgmma.cu -DPRECISION=bf16"
    echo "one k BACKEND=cuda PRECISION=bf16 BIAS=k"
    for a in $ATTNS; do echo "one $a BACKEND=cuda PRECISION=bf16 ATTN=$a"; done
} | grep -E "^[a-z_]+ ${ONLY:-.*} " > "$pack/list" || {
    echo "error: ONLY=$ONLY: got no such program, wanted one of cpu fp32 test_cuda-bf16 test_cuda-fp32 selftest" \
        "selftest_wgmma k" $ATTNS
    exit 1
}
bad=0
while read -r line; do # one at a time: nvcc takes gigabytes
    begin=$(date +%s)
    if eval "$line" < /dev/null > "$pack/said" 2>&1; then
        echo "$(($(date +%s) - begin)) s: $line"
    else
        tail -n 20 "$pack/said"
        echo "does not build: $line"
        bad=1
    fi
done < "$pack/list"
rm -rf "$pack/list" "$pack/said" "$stub"
git describe --always --dirty > "$pack/commit" 2> /dev/null || echo unknown > "$pack/commit"
python3 dev/gpu/predict.py --json > "$pack/predicted.jsonl" 2> /dev/null
[ $bad = 0 ] || exit 1
[ "${TO:-}" ] && exit 0
whole=build/gpu/train_sink-gpu
mkdir -p $whole/dev/bench && cp dev/gpu_run.sh $whole/dev &&
    cp dev/bench/bench_torch.py $whole/dev/bench
tar -C build/gpu -cf - train_sink-gpu | xz -9 -T"$JOBS" > build/gpu.tar.xz || exit 1
size=$(wc -c < build/gpu.tar.xz)
echo "build/gpu.tar.xz: $((size / 1000000)) MB"
[ "$size" -lt 40000000 ] || {
    echo "error: the archive: got $size bytes, wanted 40000000 at most"
    exit 1
}
