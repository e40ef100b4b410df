#!/bin/sh
# test/gpu/test_cuda.sh -- all tests of the CUDA operations: the emulator's self-test, every
# operation and attention variant in fp32 and bf16, then a few variants under AddressSanitizer and
# ThreadSanitizer, and what those shrink at its real size. Needs the CUDA toolkit's headers, no GPU.
#   usage: test/gpu/test_cuda.sh           in the emulator: three schedules, which must give the same bits
#          DEVICE=gpu test/gpu/test_cuda.sh            built by nvcc, on the GPU
#          DEVICE=sanitizer test/gpu/test_cuda.sh      on the GPU under compute-sanitizer (memcheck, racecheck, initcheck)
#   CXX, NVCC, CUDA (the toolkit's directory), JOBS
. test/ok.sh
CXX=${CXX:-g++} NVCC=${NVCC:-nvcc} CUDA=${CUDA:-/usr/local/cuda} JOBS=${JOBS:-$(nproc)} DEVICE=${DEVICE:-emu}
DIR=build/test/cuda
mkdir -p $DIR
export CXX NVCC CUDA DIR DEVICE
export OMP_NUM_THREADS=1 TSAN_OPTIONS="halt_on_error=1 exitcode=66 atexit_sleep_ms=0"
if [ "$DEVICE" = emu ] && [ ! -f "$CUDA/include/cublasLt.h" ]; then
    skip_all "12 programs, no CUDA headers in $CUDA/include (set CUDA=)"
fi
if [ "$DEVICE" = emu ]; then
    # without contraction: not every place that computes a number is to round it in its own way
    COMPILE="$CXX -x c++ -std=c++17 -O1 -march=native -ffp-contract=off -Wall -DEMU -fno-strict-aliasing -fstack-clash-protection -Wno-unknown-pragmas -I$CUDA/include -Idev/emulator"
    ASAN="-g1 -fsanitize=address,undefined" TSAN="-g1 -fsanitize=thread"
    # where there is nvcc, test_ptx runs every ATTN in bf16 and the small heads, in the emulator too,
    # and checks every access
    heads="X(128) X(192)" hopper="X(32) X(128)" attn= sanitized=-DONE_VARIANT
    if ! command -v "$NVCC" > /dev/null; then
        heads="X(32) X(64) $heads" hopper="X(64) X(96) $hopper" sanitized=-DFEW_VARIANTS
        attn="
cuda_bf16     test/gpu/test_cuda.cu          -DPRECISION=bf16 -DONLY_ATTN '-DMMA_HEADS(X)=X(96)'"
    fi
    # name, source, flags; the slowest to build first. cuda_asan takes minutes to compile at -O1
    PROGRAMS="$attn
cuda_fp32     test/gpu/test_cuda.cu          -DPRECISION=fp32
cuda_asan     test/gpu/test_cuda.cu          -DPRECISION=bf16 $sanitized '-DMMA_HEADS(X)=X(96)' $ASAN -O0
cuda_heads    test/gpu/test_cuda.cu          -DPRECISION=bf16 -DFEW_VARIANTS -DONLY_HEADS '-DMMA_HEADS(X)=$heads'
cuda_tsan     test/gpu/test_cuda.cu          -DPRECISION=bf16 -DFEW_VARIANTS '-DMMA_HEADS(X)=X(32)' $TSAN
selftest_asan dev/emulator/selftest.cu   $ASAN
selftest_tsan dev/emulator/selftest.cu   $TSAN
cuda_hopper   test/gpu/test_hopper.cu        -DPRECISION=bf16 -DHOPPER '-DMMA_HEADS(X)=$hopper'
selftest_wgmma dev/emulator/selftest_wgmma.cu
cuda_real     test/gpu/test_cuda.cu          -DPRECISION=fp32 -DFEW_VARIANTS -DREAL_SIZES
cuda_large    test/gpu/test_cuda.cu          -DPRECISION=bf16 -DFEW_VARIANTS -DREAL_SIZES
selftest      dev/emulator/selftest.cu   -DREAL_SIZES"
    LINK=-lgomp
else
    COMPILE="$NVCC -std=c++17 -O2 -arch=native -Xcompiler -fopenmp"
    LINK=-lcublasLt
    PROGRAMS="
cuda_bf16     test/gpu/test_cuda.cu          -DPRECISION=bf16
cuda_fp32     test/gpu/test_cuda.cu          -DPRECISION=fp32
selftest      dev/emulator/selftest.cu"
    if [ "$DEVICE" = sanitizer ]; then
        PROGRAMS="
memcheck      test/gpu/test_cuda.cu          -DPRECISION=bf16 -DFEW_VARIANTS
racecheck     test/gpu/test_cuda.cu          -DPRECISION=bf16 -DFEW_VARIANTS
initcheck     test/gpu/test_cuda.cu          -DPRECISION=bf16 -DFEW_VARIANTS"
    fi
fi
# what is compiled once: of it the products of the CPU, which attention there is compared with
PRODUCT=$(make -s once BACKEND=cpu CXX="$CXX")
[ "$DEVICE" = emu ] && PRODUCT="-x none $PRODUCT"
export COMPILE LINK PRODUCT
# builds and runs one program; its last line is `N passed, M failed`
cat > $DIR/one.sh <<'ONE'
name=$1 source=$2; shift 2
case $DEVICE in sanitizer) run="compute-sanitizer --error-exitcode 9 --tool $name" ;; *) run= ;; esac
if $COMPILE "$@" $source $PRODUCT $LINK -o $DIR/$name > $DIR/$name.log 2>&1; then
    start=$(date +%s)
    if ! $run $DIR/$name > $DIR/$name.log 2>&1; then
        tail -n 1 $DIR/$name.log | grep -q ' [1-9][0-9]* failed' || echo "0 passed, 1 failed" >> $DIR/$name.log
    fi
    echo "$name, $(($(date +%s) - start)) s: $(tail -n 1 $DIR/$name.log)"
else
    echo "does not compile: 0 passed, 1 failed" >> $DIR/$name.log
    echo "$name: does not compile"
fi
ONE
echo "$PROGRAMS" | grep . | xargs -d '\n' -P "$JOBS" -I{} sh -c 'eval "set -- $1"; sh $DIR/one.sh "$@"' sh {}
for name in $(echo "$PROGRAMS" | awk 'NF { print $1 }'); do
    last=$(grep -oE '[0-9]+ passed, [0-9]+ failed' $DIR/$name.log | tail -n 1)
    p=${last%% passed*} f=${last#* passed, } f=${f%% failed*}
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1}))
    [ "${f:-1}" = 0 ] || { echo "$name:"; grep -v ' passed, ' $DIR/$name.log | head -n 15; }
done
finish
