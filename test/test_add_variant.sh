# README's "add your own attention" on a copy of the tree: the diff goes in, and make help, the build, training and the tests
# know the new value with no other edit. run from the root of the repository
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
passed=0; failed=0
ok() { # what, then a command
    what=$1; shift
    if "$@" > "$tmp/out" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $what"; tail -n 5 "$tmp/out"; fi
}
cp -r Makefile ./*.cu ./*.h ./*.cuh cpu cuda text test "$tmp"
diff=$PWD/test/add_variant.diff
cd "$tmp" || exit 1

# a diff that only adds lines: each block of + goes in after the context line before it, which has to be there once
insert() {
    awk 'NR == FNR { if (/^ /) { before = substr($0, 2) } else if (/^\+[^+]/) { add[before] = add[before] substr($0, 2) "\n"; wanted++ } next }
         { print } $0 in add { printf "%s", add[$0]; n += gsub(/\n/, "", add[$0]) } END { exit !(wanted && n == wanted) }' "$diff" "$1" > new && mv new "$1"
}
ok "the diff only adds lines"             sh -c '! grep -q "^-[^-]" "$1"' sh "$diff"
ok "make help does not list it before"    sh -c '! make help | grep -q "^  relu .*scores above 0"'
ok "the diff fits attention_variants.cuh" insert attention_variants.cuh
ok "make help lists it"                   sh -c 'make help | grep "^  relu .*scores above 0"'
ok "it builds"                            make train_sink ATTN=relu OPTIMIZE=-O1
ok "it trains"                            env OMP_NUM_THREADS=1 ./train_sink -d bb -n 30 --warmup 5 --lr 0.003 --eval-every 0 -o run
ok "the log names it"                     grep -q '"ATTN":"relu"' run/log.jsonl
ok "the loss is finite and falls by 0.1"  awk -F'"loss":' '/"event":"train"/ { split($2, x, ","); if (x[1] ~ /null/) { exit 1 } if (!n++) { first = x[1] } last = x[1] }
                                               END { print first, last; exit !(n && last < first - 0.1) }' run/log.jsonl
ok "the tests of attention compile it"    ${CXX:-g++} -std=c++17 -O0 -fopenmp -DATTN_ONLY=relu -x c++ test/test_attention.cpp -o attention
ok "and pass it, against naive.h"         sh -c './attention | grep -E "^[1-9][0-9]* passed, 0 failed"'
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
