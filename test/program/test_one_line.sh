#!/bin/sh
# test/program/test_one_line.sh -- one line compiles the whole program, as README prints it: without a warning, for any
# switches, to the same bits as the Makefile, which compiles its files apart; a wrong switch is one error; and nvcc's line
#     sh test/program/test_one_line.sh
CDPATH= cd "$(dirname "$0")/../.." || exit 1
. test/ok.sh
. test/tree.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
CXX=${CXX:-g++}
strict="-std=c++17 -fopenmp -Wall -Wextra -Werror -Wno-address -fsyntax-only -x c++ train_sink.cu"

for switches in "" "-DATTN=mlp_norm -DNORM=post -DGATE=head -DPRECISION=bf16" \
    "-DATTN=softmax_clip -DBIAS=logit -DPE=relative -DQKNORM=head -DCOMBINE=sum -DBACKEND=ref"; do
    # shellcheck disable=SC2086  # several words
    $CXX $switches $strict > "$dir/said" 2>&1
    ok $? "one line with $switches: $(grep -m 3 'error' "$dir/said")"
done
one_error() { # WORDS SWITCHES..: what g++ says
    words=$1; shift
    # shellcheck disable=SC2086
    ! $CXX "$@" $strict > "$dir/said" 2>&1 && grep ' error: ' "$dir/said" > "$dir/errors"
    [ "$(wc -l < "$dir/errors")" = 1 ] && grep -q -e "$words" "$dir/errors"
    ok $? "$*: wanted one error, '$words': $(head -n 3 "$dir/errors")"
}
one_error "-DATTN: no such value" -DATTN=sigmod
one_error "-DGATE: no such value" -DGATE=heads
one_error "BACKEND=ref computes in fp32" -DBACKEND=ref -DPRECISION=bf16

# the same bits where the flags are the same (test_optional.sh: BACKEND=ref)
mkdir -p "$dir/apart/scripts"
copy_sources "$dir/apart"
cp -p scripts/modeling_train_sink.py "$dir/apart/scripts"                # open/export.cpp holds it
make -s -C "$dir/apart" binary BACKEND=cpu UNITS=few OPTIMIZE=-O1 > "$dir/said" 2>&1 &&
    $CXX -std=c++17 -O1 -march=native -fopenmp -x c++ train_sink.cu -o "$dir/line" >> "$dir/said" 2>&1
ok $? "the line, or make: $(tail -n 3 "$dir/said")"
for program in "$dir/apart/build/cpu/train_sink" "$dir/line"; do
    $program train -d bb -n 20 --eval-every 10 --seed 1 --sample 0 -o "$dir/run" > "$dir/said" 2>&1
    grep -o 'params_hash [0-9a-f]*' "$dir/said" >> "$dir/hashes"
    rm -rf "$dir/run"
done
[ "$(wc -l < "$dir/hashes")" = 2 ] && [ "$(sort -u "$dir/hashes" | wc -l)" = 1 ]
ok $? "make's program and the line's train to other bits: $(paste -s "$dir/hashes")"

# the GPU's, without the kernels of tensor cores, which take minutes and are test_nvcc's
if command -v "${NVCC:-nvcc}" > /dev/null; then
    "${NVCC:-nvcc}" -std=c++17 -O0 -arch=sm_80 -Xcompiler -fopenmp '-DMMA_HEADS(X)=' -x cu train_sink.cu \
        -o "$dir/gpu" -lcublasLt > "$dir/said" 2>&1
    ok $? "nvcc's line: $(grep -m 3 error "$dir/said")"
    "$dir/gpu" --version > "$dir/said" 2>&1; grep -q "PRECISION=bf16 BACKEND=cuda" "$dir/said"
    ok $? "nvcc's line is of another backend: $(head -n 3 "$dir/said")"
else
    echo "skipped: 2 checks of nvcc's line, no nvcc in PATH"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
