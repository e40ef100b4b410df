#!/bin/sh
# dev/emulator/mutants.sh -- plants one bug at a time in a copy of the kernels and demands
# that test_cuda notices. A line of mutants.txt beside it is: file | text to replace (once, must be there)
# | replacement | fp32, bf16 (HS 96), heads (HS 192) or tsan, the build that must fail; or hopper: test_hopper
# must; or ptx: nvcc compiles the bug, the emulator does not, and the interpreter of dev/ptx must notice;
# or hopper_ptx: the same of test_hopper. A bug of kind hopper is planted for both. The program's own check
# (hopper_agrees) has to see one of kind check, and says of one of kind hopper whether it does.
# Takes some 15 s of one core per mutant. usage: dev/emulator/mutants.sh [number..|check]
CDPATH= cd "$(dirname "$0")/../.." || exit 1
CUDA=${CUDA:-/usr/local/cuda} CXX=${CXX:-g++} JOBS=${JOBS:-$(nproc)}
list=$PWD/dev/emulator/mutants.txt
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
# attention on the CPU, which the tests compare with, takes its products from there
PRODUCT=$(make -s once BACKEND=cpu CXX="$CXX")
folders=$(make -s folders)
export CUDA CXX PRODUCT list work folders OMP_NUM_THREADS=1 TSAN_OPTIONS="halt_on_error=1 exitcode=66"
export CHECK_FIRST=1            # one failed check is enough
export NVCC=${NVCC:-nvcc}
export PTX_FLAGS="-DPRECISION=bf16 -DFEW_VARIANTS -DONE_VARIANT -DONLY_HEADS -DMMA_HEADS(X)=X(64)"
export HOPPER_FLAGS="-DPRECISION=bf16 -DHOPPER -DFOR_PTX -DMMA_HEADS(X)=X(64)X(96)"
cat > "$work/one.sh" <<'ONE'
n=$1; dir=$work/$n
mkdir -p "$dir" && cp -r --parents ./*.cu ./*.h ./*.cuh $folders test dev "$dir"
line=$(sed -n "${n}p" "$list")
kind=${line##*|}
LINE=$line awk 'BEGIN {
    line = ENVIRON["LINE"]; gsub(/\\\|/, "\001", line); split(line, f, "|")
    for (i in f) { gsub("\001", "|", f[i]); gsub(/\\n/, "\n", f[i]) }
    file = ARGV[1] "/" f[1]; while ((getline l < file) > 0) { text = text l "\n" }
    at = index(text, f[2]); if (!at) { exit 1 }
    printf "%s%s%s", substr(text, 1, at - 1), f[3], substr(text, at + length(f[2])) > file
}' "$dir" || { echo "mutant $n: its text is gone"; exit; }
source=test/gpu/test_cuda.cu
case $kind in hopper*|check) source=test/gpu/test_hopper.cu ;; esac
case $kind in
check) flags="-DPRECISION=bf16 -DHOPPER -DOWN_CHECK -DMMA_HEADS(X)=X(64)" ;;
hopper) flags="-DPRECISION=bf16 -DHOPPER -DFEW -DMMA_HEADS(X)=X(64)X(96)" ;;
bf16) flags="-DPRECISION=bf16 -DMMA_HEADS(X)=X(96)" ;;
heads) flags="-DPRECISION=bf16 -DMMA_HEADS(X)=X(192)" ;;
tsan) flags="-fsanitize=thread" ;;
*)    flags= ;;
esac
in_ptx() { # PROGRAM ARCHITECTURE FLAGS: the program, which has no bug, beside the bug's PTX
    [ -f "$work/$1" ] || { echo "mutant $n: skipped, the interpreter needs nvcc"; exit; }
    $NVCC -std=c++17 -O3 -ptx -arch=$2 -lineinfo -w -DPTX_SHRUNK $3 -I"$dir" "$dir/$source" \
        -o "$dir/run.ptx" > "$dir/log" 2>&1 || { echo "mutant $n: does not compile"; exit; }
    PTX=$dir/run.ptx timeout 400 "$work/$1" > "$dir/log" 2>&1
}
emulated() {
    $CXX -x c++ -std=c++17 -O1 -march=native -ffp-contract=off -w -DEMU -DFEW_VARIANTS $flags \
        -fno-strict-aliasing -fstack-clash-protection -Wno-unknown-pragmas \
        -I"$CUDA/include" -I"$dir/dev/emulator" "$dir/$source" -x none "$PRODUCT" -lgomp \
        -o "$dir/program" > "$dir/log" 2>&1 || { echo "mutant $n: does not compile"; exit; }
    timeout 400 "$dir/program" > "$dir/log" 2>&1
}
tell() { # STATUS
    if [ $1 = 0 ] || [ $1 = 124 ]; then
        echo "mutant $n: NOT NOTICED, exit status $1: $line"
        exit
    fi
    said=$(grep -m 1 -E 'EMU ERROR|SUMMARY|FAIL|PTX [A-Z]+|errors of' "$dir/log" | cut -c 1-110)
    echo "mutant $n: noticed, $said"
}
case $kind in
ptx) in_ptx ptx compute_80 "$PTX_FLAGS"; tell $? ;;
hopper_ptx) in_ptx hopper compute_90a "$HOPPER_FLAGS"; tell $? ;;
hopper)
    emulated; tell $?
    [ -f "$work/hopper" ] && { in_ptx hopper compute_90a "$HOPPER_FLAGS"; tell $?; }
    flags="-DPRECISION=bf16 -DHOPPER -DOWN_CHECK -DMMA_HEADS(X)=X(64)X(96)"
    emulated && echo "mutant $n: the check agrees" || echo "mutant $n: the check: $(head -n 1 "$dir/log")" ;;
*) emulated; tell $? ;;
esac
rm -rf "$dir"
ONE
[ $# -gt 0 ] || set -- $(seq "$(wc -l < "$list")")
[ "$1" != check ] || set -- $(grep -n '|check$' "$list" | cut -d: -f1)
# of all mutants in PTX the emulated side is the same: tests of attention at HS 64, or of Hopper's
for n in "$@"; do sed -n "${n}p" "$list"; done > "$work/chosen"
program() { # NAME SOURCE FLAGS
    sh dev/ptx/build.sh && $CXX -x c++ -std=c++17 -O1 -march=native -ffp-contract=off -w -DEMU \
        -DPTX_RUN $3 -fno-strict-aliasing -fstack-clash-protection -fno-ipa-icf \
        -I"$CUDA/include" -Idev/emulator $2 -x none build/ptx/*.o "$PRODUCT" \
        -fopenmp -rdynamic -ldl -o "$work/$1" || exit 1
}
if command -v "$NVCC" > /dev/null; then
    grep -q '|ptx$' "$work/chosen" && program ptx test/gpu/test_cuda.cu "$PTX_FLAGS"
    grep -q '|hopper' "$work/chosen" && program hopper test/gpu/test_hopper.cu "$HOPPER_FLAGS"
fi
printf '%s\n' "$@" | xargs -P "$JOBS" -I{} sh "$work/one.sh" {} | tee "$work/report"
bad=$(grep -cv ': noticed\|: skipped' "$work/report")
echo "$(($# - bad)) passed, $bad failed"
[ "$bad" = 0 ]
