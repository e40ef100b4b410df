#!/bin/sh
# test/program/test_optional.sh -- folders that may be deleted: a copy of the last commit without any of them, and without
# all, compiles without a warning. Without all, one line makes a program that trains to the same bits as make's, goes on,
# probes, checks and generates, and says in one line what it does not have. Without open/ and after/ and their tests, make's
# program trains to the same bits as the whole tree's, and opens, probes and resumes a run of it
#     sh test/program/test_optional.sh     ALL=1: and passes the tests of the core, which it builds there
. test/ok.sh
. test/runs.sh
if ! git rev-parse -q --verify HEAD > /dev/null 2>&1; then
    skip_all "1 test of a copy of the last commit, no git here"
fi
jobs=${JOBS:-$(nproc)}
CXX=${CXX:-g++}
make -s -j"$jobs" binary BACKEND=cpu > /dev/null || exit 1
whole=$program
scratch
git archive HEAD | tar x -C "$dir"
cd "$dir" || exit 1
export CXX
strict="-std=c++17 -fopenmp -Wall -Wextra -Werror -Wno-address -x c++ train_sink.cu"

said_missing() { # WORDS PROGRAM WHAT..: an error of one line and one hint, with the folder's name
    words=$1 program=$2; shift 2
    $program "$@" > "$said" 2>&1; code=$?
    [ $code = 2 ] && grep -q -e "$words" "$said" && grep -q "HINT: .*compile again" "$said" && [ "$(grep -vc '^note' "$said")" -le 2 ]
    ok $? "$*: exit $code: $(cat "$said")"
}

# ---- without each of them, and beside these the line without all
optional="text cpu cuda cuda/hopper dist open after"
mkdir away without alone
cp -r ./*.cu ./*.cuh ./*.h base core run alone
(cd alone && $CXX -O3 -march=native $strict -o train_sink > said.txt 2>&1) & alone=$!
tree_without() { echo "without/$(echo "$1" | tr / -)"; }
for folder in $optional; do
    tree=$(tree_without "$folder")
    mkdir "$tree"
    cp -r ./*.cu ./*.cuh ./*.h base core run text cpu cuda dist open after scripts "$tree" && rm -r "${tree:?}/$folder" && echo "$tree"
done | xargs -P "$jobs" -I{} sh -c 'how=-fsyntax-only; [ {} = without/text ] && how="-O0 -o train_sink"
    cd {} && $CXX $how $1 > said.txt 2>&1 && : > compiles' sh "$strict"
for folder in $optional; do
    tree=$(tree_without "$folder")
    [ -e "$tree/compiles" ]; ok $? "one line without $folder/: $(grep -m 3 error "$tree/said.txt")"
done
mv without/text/train_sink textless; rm -r without

# ---- make, without open/ and after/
rm -rf open after test/open test/after
[ "$(make -s folders)" = "base core run text cpu cuda cuda/hopper dist" ]
ok $? "the folders of the copy: $(make -s folders)"
for backend in cpu ref; do
    works make -s -j"$jobs" binary BACKEND=$backend UNITS=few CXX="$CXX -Werror"
done
core=$PWD/build/cpu/train_sink
reference=$PWD/build/ref/train_sink

# ---- without all of them
wait $alone; ok $? "one line without all that may be deleted: $(grep -m 3 error alone/said.txt)"
cd alone || exit 1
few="train -d bb --eval-every 10 --seed 1 --sample 0 --probe-seqs 8 --val-seqs 8"
# shellcheck disable=SC2086  # several flags
for program in "$reference" ./train_sink; do
    $program $few -n 20 -o trained > said.txt 2>&1
    hash trained >> hashes.txt
    mv trained "run_$(wc -l < hashes.txt)"
done
cp train_sink.cu text.txt
works $reference tokenize text.txt --out shards
# a run of a program with text/, of bytes, goes on and is measured without it, as one of bytes
small="--layers 1 --width 16 --heads 2 --ffn-width 16 -t 32 -b 2 -n 5"
for bos in none seq; do
    # shellcheck disable=SC2086  # several flags
    works $reference train -d shards $small --bos $bos -o bytes_$bos
    for step in 7 9; do
        [ $step = 7 ] && program=./train_sink || program=$reference
        works $program train --resume -o bytes_$bos -n $step
        grep -q '"tokenizer": "bytes"' bytes_$bos/step_$step/config.json
        ok $? "--bos $bos, step $step: $(cat bytes_$bos/step_$step/config.json)"
    done
done
works ./train_sink probe bytes_none/step_5
works ./train_sink generate bytes_none/step_7 --prompt "1 2 3" -n 2
works ../textless probe bytes_none/step_5 --dump maps --dump-heads 0:0
works ../textless export run_1 --out exported
said_missing "--bos default: needs the folder text/" ./train_sink probe bytes_none/step_5 --bos default
echo '{"query": "a", "choices": ["b", "c"], "gold": 0}' > task.jsonl
said_missing "score: needs the folder text/" ../textless score bytes_none/step_7 --task task.jsonl
said_missing "raw bytes: needs the folder text/" ../textless export bytes_none/step_7 --out exported2
WORLD_SIZE=2 ./train_sink probe run_1 > said.txt 2>&1
grep -q "one of 2 processes, each with its own run$" said.txt; ok $? "a hint at dist/, which is not here: $(head -n 1 said.txt)"
./train_sink $few -n 10 -o half > said.txt 2>&1 && ./train_sink train --resume -o half -n 20 > said.txt 2>&1
hash half >> hashes.txt
[ "$(wc -l < hashes.txt)" = 3 ] && [ "$(sort -u hashes.txt | wc -l)" = 1 ]
ok $? "make's program, the line's, and this one resumed: $(paste -s hashes.txt)"
for program in "$reference" ./train_sink; do
    numbers=numbers_$(basename "$(dirname "$program")").txt
    works $program probe run_1 --json "probe.json"
    sed 's/"commit":"[^"]*"//' probe.json > "$numbers"
    works $program train -d shards --layers 1 --width 16 --heads 2 --ffn-width 16 -t 32 -b 2 -n 5 --sample 0 -o run_3
    hash run_3 >> "$numbers"
    rm -rf run_3
    $program generate run_1 --prompt "1 2 3" -n 8 --temperature 0 >> "$numbers" 2> err.txt
    ok $? "$program generate: $(tail -n 1 err.txt)"
done
[ "$(wc -c < numbers_ref.txt)" -gt 400 ] && cmp numbers_ref.txt numbers_..txt > said.txt 2>&1
ok $? "other numbers of probe, shards or generate: $(head -n 1 said.txt)"
works ./train_sink check
./train_sink --help > said.txt 2>&1; ! grep -q "GGUF\|tokenize\|export\|score" said.txt
ok $? "--help names what is not there: $(grep -m 2 "GGUF\|tokenize\|export\|score" said.txt)"
said_missing "tokenize: is in the folder text/" ./train_sink tokenize text.txt --out shards2
said_missing "text.txt: needs the folder text/" ./train_sink train -d text.txt
said_missing "--skip-bad: is in the folder text/" ./train_sink train -d shards --skip-bad
said_missing "--bos 5: needs the folder text/" ./train_sink generate run_1 --prompt 1 --bos 5
said_missing "--product: is in the folder cpu/" ./train_sink train --product any
said_missing "--graph: is in the folder cuda/" ./train_sink train --graph
./train_sink train -d shards --sample 9 > said.txt 2>&1
grep -q -e "--sample 9 has no effect without text" said.txt; ok $? "--sample without text/: $(head -n 1 said.txt)"
said_missing "eval: is in the folder after/" ./train_sink eval run_1
said_missing "score: is in the folder after/" ./train_sink score run_1
said_missing "export: is in the folder open/" ./train_sink export run_1
said_missing "--dump: is in the folder after/" ./train_sink probe run_1 --dump maps
said_missing "--noise: is in the folder after/" ./train_sink train --noise
said_missing "--rope-scaling: is in the folder open/" ./train_sink train --rope-scaling yarn
# shellcheck disable=SC2086  # several flags
$whole $few -n 2 --factors o_proj:lr=2 -o arms > said.txt 2>&1
said_missing "--factors: is in the folder after/" ./train_sink train --resume -o arms -n 4
# what a machine settles is no reason to stop
# shellcheck disable=SC2086  # several flags
$whole $few -n 2 --product any -o by_any > said.txt 2>&1
works ./train_sink train --resume -o by_any -n 4
for switch in BACKEND=cpu BACKEND=cuda DIST=mpi; do
    ! $CXX -std=c++17 -fopenmp -fsyntax-only -D$switch -x c++ train_sink.cu > said.txt 2>&1 &&
        grep -q "error: .*whose folder has to be here" said.txt
    ok $? "-D$switch without its folder: $(head -n 2 said.txt)"
done
cd ..
mv cpu cuda dist away/
for switch in BACKEND=cpu BACKEND=cuda DIST=mpi; do
    ! make -s check $switch > said.txt 2>&1 && grep -q "$switch is in the folder .*, which is not here" said.txt
    ok $? "make $switch without its folder: $(head -n 2 said.txt)"
done
[ "$(make -s check)" = build/ref ]; ok $? "the backend without cpu/ and cuda/: $(make -s check)"
mv away/cpu away/cuda away/dist .

# ---- without open/ and after/: the demo's model, and all switches that are data
for model in "" "--window 7 --norm-kind ln --tied 1 --optimizer muon"; do
    # shellcheck disable=SC2086  # several flags
    for program in whole core; do
        $(eval echo \$$program) train -d bb -n 30 --sample 0 --probe-seqs 8 --val-seqs 8 $model -o "run_$program" > "$program.txt" 2>&1
    done
    [ -n "$(hash run_whole)" ] && [ "$(hash run_whole)" = "$(hash run_core)" ]
    ok $? "train $model: $(hash run_whole) in the whole tree, $(hash run_core) without open/ and after/: $(tail -n 1 core.txt)"
    [ "$model" ] || mv run_whole straight
    rm -rf run_whole run_core
done

# a run of the whole tree
"$whole" train -d bb -n 15 --sample 0 --probe-seqs 8 --val-seqs 8 -o half > half.txt 2>&1
for program in whole core; do
    check "probe of a run of the whole tree by $program" $(eval echo \$$program) probe half --json "$program.json"
done
sed -i 's/"commit":"[^"]*"//' whole.json core.json
cmp -s whole.json core.json; ok $? "probe: other numbers without open/ and after/: $(diff whole.json core.json | head -c 300)"
"$core" train --resume -o half -n 30 > half.txt 2>&1
[ "$(hash half)" = "$(hash straight)" ]; ok $? "--resume without open/ and after/: other bits: $(tail -n 1 half.txt)"
# versions 1.0 and 1.1 wrote every row of open/, as 0
cp -r half old; config=$(ls -d old/step_* | tail -n 1)/config.json
sed -i 's/"train_sink": {/&"experts": 0, "expert_layers": "", /' "$config"
check "a config.json of 1.1" "$core" probe old
sed -i 's/"experts": 0/"experts": 4/' "$config"; said_missing "experts" "$core" probe "${config%/*}"
sed -i 's/"experts": 4, "expert_layers": ""/"norm": "pre"/; s/"train_sink": {/"rope_scaling": {"rope_type": "yarn"}, &/' "$config"
said_missing "has rope_scaling" "$core" probe "${config%/*}"
mkdir theirs; echo '{"model_type": "gpt2"}' > theirs/config.json; said_missing "gpt2" "$core" probe theirs
printf 'GGUF' > model.gguf; said_missing "open/" "$core" probe model.gguf

if [ -n "$ALL" ]; then
    make -s core-tests JOBS="$jobs" UNITS=few CXX="$CXX -Werror" > tests.txt 2>&1; code=$?
    grep -v "^building\|^compiling" tests.txt
    total=$(tail -n 1 tests.txt); p=${total%% passed*}
    case $p in *[!0-9]*|'') p=0 ;; esac
    passed=$((passed + p)); ok $code "the tests of the core, in the copy: $total"
fi
finish
