#!/bin/sh
# test/program/test_one_line.sh -- one line compiles the whole program, as README prints it: without a warning, for any
# switches; a wrong switch is one error. nvcc's line: test_nvcc.sh
#     sh test/program/test_one_line.sh
. test/ok.sh
scratch
CXX=${CXX:-g++}
warn="-std=c++17 -fopenmp -Wall -Wextra -Werror -Wno-address -x c++ train_sink.cu"
strict="-fsyntax-only $warn"

for switches in "-DATTN=mlp_norm -DNORM=post -DGATE=head -DPRECISION=bf16" \
    "-DATTN=softmax_clip -DBIAS=logit -DPE=relative -DQKNORM=head -DCOMBINE=sum -DBACKEND=ref"; do
    # shellcheck disable=SC2086  # several words
    check "one line with $switches" $CXX $switches $strict
done
one_error() { # WORDS SWITCHES..: what g++ says
    words=$1; shift
    # shellcheck disable=SC2086
    ! $CXX "$@" $strict > "$said" 2>&1 && grep ' error: ' "$said" > "$dir/errors"
    [ "$(wc -l < "$dir/errors")" = 1 ] && grep -q -e "$words" "$dir/errors"
    ok $? "$*: wanted one error, '$words': $(head -n 3 "$dir/errors")"
}
one_error "-DATTN: no such value" -DATTN=sigmod
one_error "-DGATE: no such value" -DGATE=heads
one_error "BACKEND=ref computes in fp32" -DBACKEND=ref -DPRECISION=bf16

# it links, and runs; that its bits are make's where the flags are the same: test_optional.sh
# shellcheck disable=SC2086
check "the line" $CXX -O0 $warn -o "$dir/line"
works "$dir/line" train -d bb --layers 1 --width 16 --heads 2 --ffn-width 16 -n 4 --eval-every 2 --val-seqs 4 --probe-seqs 4 \
    -o "$dir/run"
works "$dir/line" probe "$dir/run" --anywhere --probe-seqs 4

finish
