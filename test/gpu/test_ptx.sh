#!/bin/sh
# test/gpu/test_ptx.sh -- the kernels as nvcc compiles them. nvcc makes PTX of test_cuda.cu and
# test_hopper.cu; dev/ptx interprets it. Every launch of the test runs twice on the same memory, as
# C++ in the emulator and as PTX: every word must agree, and every access must be in order. How much
# of each kernel ran is held by dev/ptx/coverage.tsv. What the interpreter has to refuse of Hopper's
# instructions is asked of it by dev/emulator/selftest_wgmma.cu. Needs nvcc, no GPU.
#   usage: test/gpu/test_ptx.sh                every ATTN at HS 64, some at 32 and 96, fp32:
#                                          make test-all
#          PTX_SET=all test/gpu/test_ptx.sh    every variant and head dimension, sm_80 and sm_90:
#                                          make ptx-all
#          PTX_SET=update test/gpu/test_ptx.sh writes today's coverage
#   CXX, NVCC, CUDA (the toolkit's directory), JOBS
. test/ok.sh
CXX=${CXX:-g++} NVCC=${NVCC:-nvcc} CUDA=${CUDA:-/usr/local/cuda} JOBS=${JOBS:-$(nproc)}
DIR=build/test/ptx
mkdir -p $DIR
export CXX NVCC CUDA DIR OMP_NUM_THREADS=1
if ! command -v "$NVCC" > /dev/null || [ ! -f "$CUDA/include/cublasLt.h" ]; then
    skip_all "5 programs as PTX, no $NVCC in PATH or no headers in $CUDA/include (set CUDA=)"
fi
# name, source, architecture of the PTX, flags
cuda=test/gpu/test_cuda.cu hopper="test/gpu/test_hopper.cu compute_90a -DPRECISION=bf16 -DHOPPER"
wgmma="dev/emulator/selftest_wgmma.cu compute_90a"
PROGRAMS="
attn   $cuda compute_90 -DPRECISION=bf16 -DONLY_ATTN '-DMMA_HEADS(X)=X(64)'
bf16   $cuda compute_90 -DPRECISION=bf16 -DFEW_VARIANTS '-DMMA_HEADS(X)=X(32) X(96)'
fp32   $cuda compute_80 -DPRECISION=fp32 -DFEW_VARIANTS
hopper $hopper -DFOR_PTX '-DMMA_HEADS(X)=X(64) X(96)'
wgmma  $wgmma"
[ "$PTX_SET" = all ] && PROGRAMS="
bf16-80  $cuda compute_80 -DPRECISION=bf16
bf16-90  $cuda compute_90 -DPRECISION=bf16
few-80   $cuda compute_80 -DPRECISION=bf16 -DFEW_VARIANTS
few-90   $cuda compute_90 -DPRECISION=bf16 -DFEW_VARIANTS
fp32-80  $cuda compute_80 -DPRECISION=fp32
fp32-90  $cuda compute_90 -DPRECISION=fp32
hopper   $hopper
wgmma    $wgmma"
# the interpreter, and the products of the CPU, which attention there is compared with
if ! sh dev/ptx/build.sh > $DIR/build.log 2>&1; then
    cat $DIR/build.log
    echo "0 passed, 1 failed"
    exit 1
fi
PRODUCT=$(make -s -j"$JOBS" once BACKEND=cpu CXX="$CXX")
export PRODUCT
cat > $DIR/one.sh <<'ONE'
name=$1 source=$2 arch=$3; shift 3
log=$DIR/$name.log
start=$(date +%s)
$NVCC -std=c++17 -O3 -ptx -arch=$arch -lineinfo -DPTX_SHRUNK -w -I. "$@" $source \
    -o $DIR/$name.ptx > $log 2>&1 &&
    $CXX -x c++ -std=c++17 -O1 -march=native -ffp-contract=off -w -DEMU -DPTX_RUN \
        -fno-strict-aliasing -fstack-clash-protection -fno-ipa-icf -I"$CUDA/include" \
        -Idev/emulator "$@" $source -x none build/ptx/*.o $PRODUCT -fopenmp -rdynamic \
        -ldl -o $DIR/$name > $log 2>&1 || { echo "$name: does not compile"; exit; }
built=$(date +%s)
PTX=$DIR/$name.ptx PTX_REPORT=$DIR/$name.tsv $DIR/$name > $log 2>&1
echo "exit status $?" >> $log
echo "$name, built in $((built - start)) s, ran $(($(date +%s) - built)) s: $(grep '^PTX: ' $log)"
ONE
rm -f $DIR/*.log
echo "$PROGRAMS" | grep . |
    xargs -d '\n' -P "$JOBS" -I{} sh -c 'eval "set -- $1"; sh $DIR/one.sh "$@"' sh {}
for name in $(echo "$PROGRAMS" | awk 'NF { print $1 }'); do
    log=$DIR/$name.log
    last=$(grep -oE '^[0-9]+ passed, [0-9]+ failed' $log | tail -n 1)
    p=${last%% passed*} f=${last#* passed, } f=${f%% failed*}
    if [ "$(tail -n 1 $log)" != "exit status 0" ] && [ "${f:-0}" = 0 ]; then f=1; fi
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1}))
    [ "${f:-1}" = 0 ] || { echo "$name:"; grep -v ' passed, ' $log | head -n 15; }
done
# every kernel has run, and of each as much as before
if [ "$PTX_SET" != all ]; then
    sh dev/ptx/coverage.sh $PTX_SET $DIR/attn.tsv $DIR/bf16.tsv $DIR/fp32.tsv $DIR/hopper.tsv
    ok $? "dev/ptx/coverage.sh"
fi
finish
