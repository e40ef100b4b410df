# nvcc, where there is one, compiles a covering set of builds: every value of every switch
# for sm_90, and two builds for sm_80 (the others: make compile-all), no spills.
# The first is README's line, which links the whole program. What dev/gpu_pack.sh packs is built, too. For a GPU that is too old it gives one error, with a hint
command -v "${NVCC:-nvcc}" > /dev/null || {
    echo "skipped: 22 builds by nvcc, which is not in PATH"
    echo "0 passed, 0 failed"
    exit 0
}
mkdir -p build/test
PROGRAM=build/test/nvcc_line ARCHS=sm_80 sh dev/gpu/compile_all.sh covering 2 > build/test/nvcc.txt 2>&1; status=$?
ARCHS=sm_90 sh dev/gpu/compile_all.sh covering >> build/test/nvcc.txt 2>&1 || status=1
echo '#include "cuda/device.cuh"' > build/test/old.cu
"${NVCC:-nvcc}" -std=c++17 -cubin -arch=sm_75 -DPRECISION=bf16 -I. build/test/old.cu \
    -o build/test/old.cubin > build/test/old.txt 2>&1 && echo "error: none" >> build/test/old.txt
old=1
if [ "$(grep -c ' error: ' build/test/old.txt)" = 1 ] && grep -q 'HINT: make BACK' build/test/old.txt; then
    old=0
else
    echo "sm_75: wanted one error with a hint, got"; head -n 5 build/test/old.txt
fi
other=1
if build/test/nvcc_line --version 2>&1 | grep -q "PRECISION=bf16 BACKEND=cuda"; then other=0; else echo "nvcc's line is of another backend"; fi
rm -f build/test/nvcc_line
# what is packed for a machine with a card: its smallest program
rm -rf build/test/pack
TO=build/test/pack ONLY=selftest_wgmma HOST=native sh dev/gpu_pack.sh > build/test/pack.txt 2>&1
pack=1
if [ -x build/test/pack/selftest_wgmma ]; then pack=0; else tail -n 5 build/test/pack.txt; fi
# the numbers of all
awk -v bad=$((old + other + pack)) '!/^ok/ && !/ passed, / { print }
    / passed, / { p += $1; f += $3 }
    END { print p + 3 - bad " passed, " f + bad " failed" }' build/test/nvcc.txt
[ $((status + old + other + pack)) = 0 ]
