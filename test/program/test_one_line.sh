#!/bin/sh
# test/program/test_one_line.sh -- one line compiles the whole program, as README prints it: without a warning, for any
# switches; a wrong switch is one error; and nvcc's line
#     sh test/program/test_one_line.sh
CDPATH= cd "$(dirname "$0")/../.." || exit 1
. test/ok.sh
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

# it links, and runs; that its bits are make's where the flags are the same: test_optional.sh
$CXX -std=c++17 -O0 -fopenmp -x c++ train_sink.cu -o "$dir/line" > "$dir/said" 2>&1
ok $? "the line: $(tail -n 3 "$dir/said")"
"$dir/line" train -d bb --layers 1 --width 16 --heads 2 --ffn-width 16 -n 4 --eval-every 2 --val-seqs 4 --probe-seqs 4 \
    -o "$dir/run" > "$dir/said" 2>&1 && "$dir/line" probe "$dir/run" --anywhere --probe-seqs 4 > "$dir/said" 2>&1
ok $? "the line's program: $(tail -n 3 "$dir/said")"

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
