# README's "add your own attention": six diffs, one after the other, on a copy of the tree.
# Each is built, trained and checked, and its lines are counted. run from the root of the repository
#     attn.diff    a value of ATTN       one row, one struct
#     bias.diff    a value of BIAS       one row
#     stage.diff   a stage               its rows of ARCH, PARAMS and ACTS, its operation in three backends (docs/tour.md)
#     metric.diff   a metric of a head   its row, its sum on the CPU and on CUDA, its line in docs/json.md
#     key.diff     a config.json's key   one word of open/families.cpp
#     top_k.diff   a pass over the row   --attn-top K, forward and backward, on the CPU and the reference
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
CXX=${CXX:-g++} CUDA=${CUDA:-/usr/local/cuda}
export OMP_NUM_THREADS=1
. test/ok.sh
. test/tree.sh
said=$tmp/out
copy_sources "$tmp"; copy_objects "$tmp"
cp -r test "$tmp"
mkdir "$tmp/dev" "$tmp/scripts" "$tmp/docs" && cp docs/json.md "$tmp/docs" && cp -r dev/emulator "$tmp/dev"
cp -p scripts/modeling_train_sink.py "$tmp/scripts"                 # open/export.cpp holds it
# the rules of the whole tree, with all six at once: README says that `make test` then passes
mkdir "$tmp/whole"
{ git ls-files 2> /dev/null || find . -path ./build -prune -o -type f -print; } > "$tmp/listed"
tar cT "$tmp/listed" | tar x -C "$tmp/whole"
(
    cd "$tmp/whole" || exit 1
    for diff in test/add/*.diff; do
        check "$diff fits the whole tree" env GIT_CEILING_DIRECTORIES="$tmp" git apply "$diff"
    done
    # a diff that only adds lines cannot add to a row of README's table
    sed -i 's/^| ATTN | softmax sigmoid /&relu2_norm /; s/^\(| BIAS | .* zero\) /\1 zero_v /' README.md
    sed -i 's/^| ATTN | softmax, sigmoid, /&relu2_norm, /; s/^\(| BIAS | .* zero,\) /\1 zero_v, /' docs/interop.md
    operations=$(make -s values | sed -n 's/^ATTN //p' | wc -w)
    sed -i "s/^| attention operations | [0-9]*,/| attention operations | $operations,/" docs/findings/compare.md
    check "dev/size.py, with the six" python3 dev/size.py --text
    check "test/docs/docs.py, with the six" python3 test/docs/docs.py $(cat "$tmp/listed")
    echo "passed=$passed failed=$failed" > "$tmp/rules"
)
. "$tmp/rules"; rm -rf "$tmp/whole"
cd "$tmp" || exit 1

apply() { # a diff, which only adds lines: how many goes to `counts`
    grep -q '^-[^-]' "test/add/$1.diff" && { echo "$1.diff takes lines out"; return 1; }
    # as the tour prints it: it forgives nothing. The copy is in no repository, wherever it lies
    GIT_CEILING_DIRECTORIES=$(dirname "$tmp") git apply "test/add/$1.diff" || return 1
    awk -v name="$1" '/^\+\+\+ / { file = substr($2, 3) } /^\+[^+]/ { n++; lines[file]++ }
                      END { printf "%s.diff: %d lines", name, n; for (f in lines) { printf ", %d of %s", lines[f], f } print "" }' \
        "test/add/$1.diff" >> counts
}
# build NAME SWITCH=value..: the others are the Makefile's defaults
build() {
    name=$1; shift
    make -s binary BACKEND=cpu "$@" && cp "$(make -s check BACKEND=cpu "$@")/train_sink" "$name"
}
# a finite loss that falls, in a run of a binary with some flags
trains() { # NAME flags
    name=$1; shift; rm -rf "run-$name"
    "./$name" -d bb -n 30 -b 8 --warmup 5 --lr 0.003 --eval-every 0 -o "run-$name" "$@" &&
        awk -F'"loss":' '/"event":"train"/ { split($2, x, ","); if (x[1] ~ /null/) { exit 1 } if (!n++) { first = x[1] } last = x[1] }
                         END { print first, last; exit !(n && last < first - 0.1) }' "run-$name/log.jsonl"
}
# the PyTorch file does not know the new name: `export` says so and leaves nothing
no_export() { # NAME WORDS
    ./"$1" export "run-$1/step_30" -o "out-$1" 2> refused && return 1
    cat refused
    grep "$2, which scripts/modeling_train_sink.py does not know" refused && [ ! -e "out-$1" ]
}
gradients() { # NAME flags
    name=$1; shift
    "./$name" check "$@" > gradients.txt 2>&1 || { tail -n 3 gradients.txt; return 1; }
}
# what a binary makes of the model in llama/
probe() {
    "./$1" probe llama -d test/open/families/tokens --probe-len 33 --probe-seqs 4 --json llama.json
}
loss() { grep -o '"probe_loss": *[0-9.]*' llama.json | grep -o '[0-9.]*$'; }
near() {
    awk -v a="$1" -v b="$2" \
        'BEGIN { print a, b; d = a - b; exit !(a > 0 && b > 0 && d * d < 4e-10) }'
}
# a copy of test/open/families/llama_llama3 whose config.json also has attention_multiplier,
# as Granite's have
multiplier() {
    rm -rf llama; cp -r test/open/families/llama_llama3 llama
    sed "s/^{/{ \"attention_multiplier\": $1,/" test/open/families/llama_llama3/config.json \
        > llama/config.json
}

# ---- 1 a value of ATTN
check "make help does not list relu2_norm before"  sh -c '! make help | grep -q "^  relu2_norm .*scores above 0"'
check "attn.diff fits the tree"              apply attn
check "make help lists relu2_norm"                 sh -c 'make help | grep "^  relu2_norm .*scores above 0"'
$CXX -std=c++17 -O0 -fopenmp -DATTN_ONLY=Attn_relu2_norm -x c++ test/core/test_attention.cpp -o attention \
    > attention.log 2>&1 & tests=$!
check "it builds"                            build relu ATTN=relu2_norm
check "and compiles one unit of the program again, which knows the names" \
    sh -c 'f=$(find build/once build/program -name "*.o" -newer attention_variants.cuh); echo "$f"; [ "${f#build/*/*/}" = core/config.o ]'
check "it trains"                            trains relu
check "the log names it"                     grep -q '"ATTN":"relu2_norm"' run-relu/log.jsonl
check "it is not exported as sigmoid or any other" no_export relu 'attn is "relu2_norm"'
# finite differences step over its corner, which is no wrong derivative; and one that is wrong is
for seed in 1 2 3; do
    check "its gradients are not called wrong"   gradients relu --seed $seed
done
check "a corner is named"                    sh -c './relu check --seed 1 | grep "a corner or a jump"'
check "and the rows of attention at it"      sh -c './relu check --seed 1 | grep "at a corner, rows [01]:[0-9]"'
cp attention_variants.cuh right
sed -i '/struct F_relu2_norm/,/^};/s/F(2)/F(1)/' attention_variants.cuh
check "with a wrong derivative it builds"    build wrong ATTN=relu2_norm
check "and its gradients are"                sh -c '! ./wrong check 2> gradients.txt && grep "error: gradients: .*q_proj" gradients.txt'
cp right attention_variants.cuh
check "the tests of attention compile it"    wait $tests
check "and pass it, against naive.h" \
    sh -c './attention | grep -E "^[1-9][0-9]* passed, 0 failed"'

# ---- before the other five
multiplier 0.5
check "no BIAS=zero_v before" \
    sh -c '! make -s check BIAS=zero_v 2> no && grep "BIAS=zero_v is unknown" no'
check "no --head-temperature before" \
    sh -c './relu check --head-temperature 1 2>&1 | grep "unknown flag --head-temperature"'
check "attention_multiplier refused before" \
    sh -c './relu probe llama -d test/open/families/tokens 2>&1 | grep "error.*attention_multiplier"'
check "bias.diff fits the tree"              apply bias
check "stage.diff fits the tree"             apply stage
check "metric.diff fits the tree"            apply metric
check "key.diff fits the tree"               apply key
check "top_k.diff fits the tree"             apply top_k
export OPTIMIZE=-O0 UNITS=few                                     # runs are short here
check "what both builds share"                make -s once
build reference BACKEND=ref > reference.log 2>&1 & reference=$!
check "BIAS=zero_v builds"                   build zero_v BIAS=zero_v
check "BACKEND=ref builds"                   wait $reference

# ---- 2 a value of BIAS
check "it trains"                            trains zero_v
check "the log names it"                     grep -q '"BIAS":"zero_v"' run-zero_v/log.jsonl
check "the new metric is in the log"         grep -q '"mostly_first":\[\[0' run-zero_v/log.jsonl
check "and was not, before"                  sh -c '! grep -q mostly_first run-relu/log.jsonl'
check "it is not exported as zero or none"   no_export zero_v 'bias is "zero_v"'
check "its gradients are right"              gradients zero_v
check "v* is learned, k* is not there" \
    sh -c 'grep -q "self_attn.v_star" gradients.txt && ! grep -q k_star gradients.txt'

# ---- 3 a stage, beside that value of BIAS, and on the reference
check "without its flag there is none"       sh -c '! grep -q temperature gradients.txt'
check "it trains"                            trains zero_v --head-temperature 1 --kv-heads 1
check "the log names it"                     grep -q '"head_temperature":1' run-zero_v/log.jsonl
check "its gradients are right (cpu)"        gradients zero_v --head-temperature 1
check "there is one of each layer" \
    sh -c '[ $(grep -c "self_attn.temperature " gradients.txt) = 2 ]'
check "and where half a head turns"          gradients zero_v --head-temperature 1 --rope-part 0.5
check "its gradients are right (ref)"        gradients reference --head-temperature 1
check "half of a model has a window of 1"    ./reference -d bb -n 1 --width 8 --heads 2 --ffn-width 8 \
    --layers 2 --window 1 --local-layers 10 -o local
check "all queries that see token 1 there, the first, give it more than half" \
    grep -q '"mostly_first":\[\[1,1' local/log.jsonl
check "a model without it trains"            trains reference
check "and is exported as before" \
    ./reference export run-reference/step_30 -o out-plain --to train_sink
check "which does not speak of the new row"  sh -c '! grep head_temperature out-plain/config.json'
check "a model with it trains"               trains reference --head-temperature 1
check "and is not exported"                  no_export reference 'head_temperature is 1'
if [ -f "$CUDA/include/cublasLt.h" ]; then
    check "it compiles for CUDA" \
        $CXX -x c++ -std=c++17 -fsyntax-only -w -DEMU -DATTN=softmax -DBIAS=none -DPE=rotary \
        -DNORM=pre -DFFN=swiglu -DCOMBINE=concat -DQKNORM=none \
        -DGATE=none -DPRECISION=bf16 \
        -DBACKEND=cuda "-I$CUDA/include" \
        -Idev/emulator train_sink.cu
else
    echo "skipped: 1, no CUDA headers in $CUDA/include (set CUDA=)"
fi

# ---- 4 a key of another family's config.json: scores of heads of 4 are halved as it is
answer=$(sed -n 's/^"llama_llama3": {"loss": \([0-9.]*\),.*/\1/p' test/open/families.json)
check "attention_multiplier is taken"        probe reference
check "0.5 changes nothing"                  near "$(loss)" "$answer"
multiplier 1.5
check "1.5 is taken"                         probe reference
check "1.5 changes the loss"                 sh -c '! [ "$1" = "$2" ] && awk "BEGIN { exit !($1 > 0 && ($1 - $2) ^ 2 > 1e-6) }"' sh "$(loss)" "$answer"

# ---- 5 a pass over the row: the K keys of the largest scores, beside the others
check "the default builds"                   build softmax
entropy() { sed -n '$d; s/.*"entropy":\[\[\([0-9.e,-]*\)\]\].*/\1/p' "$1/log.jsonl" | tail -n 1; }
hash() { grep -o '"params_hash":"[0-9a-f]*"' "$1/log.jsonl"; }
check "as many as there are"                 trains softmax --attn-top 64
all=$(hash run-softmax)
check "without it"                           trains softmax
check "the same bits"                        [ "$all" = "$(hash run-softmax)" ]
check "one key takes all of a row"           trains softmax --attn-top 1
check "which has no entropy: $(entropy run-softmax)" \
    sh -c 'awk -v x="$1" "BEGIN { exit !(x != \"\" && x < 1e-6 && x > -1e-6) }"' sh "$(entropy run-softmax)"
for name in softmax reference; do
    check "three train ($name)"              trains $name --attn-top 3
    check "the log names it ($name)"         grep -q '"attn_top":3' run-$name/log.jsonl
    mv run-$name top-$name
    check "its gradients are right ($name)"  gradients $name --attn-top 3 --seq 8 --layers 1
done
check "and beside an extra key"              gradients zero_v --attn-top 3 --seq 8 --layers 1
losses() { sed -n 's/.*"val_loss":\([0-9.]*\).*/\1/p' "$1/log.jsonl" | tr '\n' ' '; }
check "both backends agree: $(losses top-softmax) and $(losses top-reference)" sh -c 'echo "$1 $2" | awk "{ exit !(NF == 4 && (\$1 - \$3) ^ 2 + (\$2 - \$4) ^ 2 < 1e-6) }"' sh "$(losses top-softmax)" "$(losses top-reference)"
check "generate, a row at a time, does it"   ./softmax generate top-softmax/step_30 --prompt 3 --tokens 9
mv top-softmax run-softmax
check "it is not exported"                   no_export softmax 'attn_top is 3'
check "ATTN=sigmoid builds"                  build sigmoid ATTN=sigmoid
check "where it is not written it is refused, in one line, as with BACKEND=cuda" \
    sh -c '! ./sigmoid train -d bb -n 1 --attn-top 3 -o none 2> no && [ "$(wc -l < no)" = 2 ] && grep "^error: --attn-top 3: wanted BACKEND=cpu or ref" no && [ ! -e none ]'
cat counts
finish
