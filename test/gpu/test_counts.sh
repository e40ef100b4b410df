# the emulator's counters; COUNTS=all: also what the kernels ask of the memory in one step,
# against dev/gpu/counts.tsv (a minute and a half)
CXX=${CXX:-g++} CUDA=${CUDA:-/usr/local/cuda} dir=build/test/counts
[ -f "$CUDA/include/cublasLt.h" ] || {
    echo "skipped: 1 program, no CUDA headers in $CUDA/include (set CUDA=)"
    echo "0 passed, 0 failed"
    exit 0
}
mkdir -p $dir
$CXX -x c++ -std=c++17 -O1 -c -fsanitize=thread -DEMU -DEMU_COUNT -fno-strict-aliasing \
    -fstack-clash-protection -fopenmp -Wno-unknown-pragmas \
    -I"$CUDA/include" -Idev/emulator dev/emulator/selftest_counts.cu -o $dir/self.o \
    > $dir/log 2>&1 &&
    $CXX $dir/self.o $(make -s once BACKEND=cpu CXX="$CXX") -fopenmp \
        -o $dir/self >> $dir/log 2>&1 && $dir/self > $dir/log 2>&1
cat $dir/log
own=$(tail -n 1 $dir/log | grep -o '^[0-9]* passed, [0-9]* failed') || own="0 passed, 1 failed"
all="0 passed, 0 failed"
if [ "$COUNTS" = all ]; then
    out=$(sh dev/gpu/counts.sh 2>&1)
    echo "$out" | grep -v ' passed, '
    all=$(echo "$out" | tail -n 1 | grep -o '^[0-9]* passed, [0-9]* failed') ||
        all="0 passed, 1 failed"
fi
echo "$own $all" | awk '{ print $1 + $5 " passed, " $3 + $7 " failed"; exit $3 + $7 > 0 }'
