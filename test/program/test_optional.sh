#!/bin/sh
# test/program/test_optional.sh -- open/ and after/ may be deleted: a copy of the last commit without them and
# their tests builds without a warning, trains to the same bits as the whole tree, opens, probes and
# resumes a run of it, and says in one line what it does not have
#     sh test/program/test_optional.sh     ALL=1: and passes the tests of the core, which it builds there
CDPATH= cd "$(dirname "$0")/../.." || exit 1
. test/ok.sh
if ! git rev-parse -q --verify HEAD > /dev/null 2>&1; then
    echo "skipped: 1 test of a copy of the last commit, no git here"
    echo "0 passed, 0 failed"
    exit 0
fi
jobs=${JOBS:-$(nproc)}
make -s -j"$jobs" binary BACKEND=cpu || exit 1
whole=$PWD/build/cpu/train_sink
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git archive HEAD | tar x -C "$copy"
cd "$copy" || exit 1
rm -rf open after test/open test/after
[ "$(make -s folders)" = "base core run text cpu cuda cuda/hopper dist" ]
ok $? "the folders of the copy: $(make -s folders)"
make -s -j"$jobs" binary BACKEND=cpu UNITS=few CXX='g++ -Werror' > make.txt 2>&1; ok $? "the copy does not build: $(head -n 5 make.txt)"
core=$PWD/build/cpu/train_sink
hash_of() { grep -o '"params_hash":"[0-9a-f]*"' "$1/log.jsonl" | tail -n 1; }

# the demo's model, and all switches that are data
for model in "" "--window 7 --norm-kind ln --tied 1 --optimizer muon"; do
    # shellcheck disable=SC2086  # several flags
    for program in whole core; do
        $(eval echo \$$program) train -d bb -n 30 --sample 0 --probe-seqs 8 --val-seqs 8 $model -o "run_$program" > "$program.txt" 2>&1
    done
    [ -n "$(hash_of run_whole)" ] && [ "$(hash_of run_whole)" = "$(hash_of run_core)" ]
    ok $? "train $model: $(hash_of run_whole) in the whole tree, $(hash_of run_core) without folders: $(tail -n 1 core.txt)"
    [ "$model" ] || mv run_whole straight
    rm -rf run_whole run_core
done

# a run of the whole tree
"$whole" train -d bb -n 15 --sample 0 --probe-seqs 8 --val-seqs 8 -o half > half.txt 2>&1
for program in whole core; do
    $(eval echo \$$program) probe half --json "$program.json" > "$program.txt" 2>&1
    ok $? "probe of a run of the whole tree by $program: $(tail -n 1 "$program.txt")"
done
sed -i 's/"commit":"[^"]*"//' whole.json core.json
cmp -s whole.json core.json; ok $? "probe: other numbers without folders: $(diff whole.json core.json | head -c 300)"
"$core" train --resume -o half -n 30 > half.txt 2>&1
[ "$(hash_of half)" = "$(hash_of straight)" ]; ok $? "--resume without folders: other bits: $(tail -n 1 half.txt)"
# versions 1.0 and 1.1 wrote every row of open/, as 0
cp -r half old; config=$(ls -d old/step_* | tail -n 1)/config.json
sed -i 's/"train_sink": {/&"experts": 0, "expert_layers": "", /' "$config"
"$core" probe old > old.txt 2>&1; ok $? "a config.json of 1.1: $(tail -n 1 old.txt)"

# what is not there
refused() { # WORDS WHAT..
    words=$1; shift
    said=$("$core" "$@" 2>&1); code=$?
    [ $code = 2 ] && echo "$said" | grep -q "$words" && echo "$said" | grep -q "HINT: .*git checkout" && [ "$(echo "$said" | wc -l)" -le 2 ]
    ok $? "$*: exit $code: $said"
}
refused "eval: stands in the folder after/" eval half
refused "score: stands in the folder after/" score half
refused "export: stands in the folder open/" export half
sed -i 's/"experts": 0/"experts": 4/' "$config"; refused "experts" probe "${config%/*}"
mkdir theirs; echo '{"model_type": "gpt2"}' > theirs/config.json; refused "gpt2" probe theirs
printf 'GGUF' > model.gguf; refused "open/" probe model.gguf

if [ -n "$ALL" ]; then
    make -s core-tests JOBS="$jobs" UNITS=few CXX='g++ -Werror' > tests.txt 2>&1; code=$?
    grep -v "^building\|^compiling" tests.txt
    total=$(tail -n 1 tests.txt); p=${total%% passed*}
    case $p in *[!0-9]*|'') p=0 ;; esac
    passed=$((passed + p)); ok $code "the tests of the core, in the copy: $total"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
