# flags of training that change the step: --optimizer muon, --min-context, --attn-bias-init
#     sh test/test_train_flags.sh
cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d); pass=0; fail=0
trap 'rm -rf "$dir"' EXIT
check() { # what, command..: does it succeed?
    what=$1; shift
    if "$@" > "$dir/out" 2>&1; then pass=$((pass + 1)); else fail=$((fail + 1)); echo "FAIL $what"; head -n 5 "$dir/out"; fi
}
refuses() { # text of the error, program, flags
    text=$1; program=$2; shift 2
    $program train -d bb "$@" > "$dir/out" 2>&1
    if [ $? -eq 2 ] && grep -q -- "$text" "$dir/out"; then pass=$((pass + 1)); else fail=$((fail + 1)); echo "FAIL $*"; head -n 5 "$dir/out"; fi
}
softmax=build/cpu/train_sink; sigmoid=build/cpu-ATTN=sigmoid/train_sink
run() { program=$1; out=$2; shift 2; $program train -d bb --batch 4 --eval-every 0 --sample 0 --lr 5e-3 --warmup 3 "$@" -o "$dir/$out"; }
hash() { tail -n 1 "$dir/$1/log.jsonl" | grep -o '"params_hash":"[0-9a-f]*"'; }
same() { [ -n "$(hash $1)" ] && [ "$(hash $1)" = "$(hash $2)" ]; }
differs() { [ -n "$(hash $1)" ] && [ "$(hash $1)" != "$(hash $2)" ]; }
logs() { grep '"event":"config"' "$dir/$1/log.jsonl" | grep -q -- "$2"; }
check "adamw" run $softmax adamw -n 12
check "muon" run $softmax muon -n 12 --optimizer muon
check "muon is another optimiser" differs adamw muon
check "muon in the log" logs muon '"optimizer":"muon"'
check "half of it" run $softmax half -n 6 --optimizer muon
check "and the rest" run $softmax half -n 12 --optimizer muon --resume
check "muon resumes to the same bits" same muon half
OMP_NUM_THREADS=2 check "muon on two threads" run $softmax threads -n 12 --optimizer muon
check "gives the same bits" same muon threads
check "all targets" run $softmax all -n 12 --min-context 1
check "every target has one token before it" same adamw all
check "some targets" run $softmax some -n 12 --min-context 20
check "fewer targets train otherwise" differs adamw some
check "min_context in the log" logs some '"min_context":20'
check "the loss of the evaluations is of all targets" sh -c "
    for r in '$dir/adamw' '$dir/some'; do grep -m 1 '\"event\":\"eval\"' \$r/log.jsonl | grep -o '\"val_loss\":[0-9.]*'; done | sort -u | wc -l | grep -qx 1"
check "a shift" run $sigmoid shift -n 12 --attn-bias-init -4.16
check "none" run $sigmoid none -n 12
check "a shift of the scores" differs shift none
check "the shift is the checkpoint's" grep -q '"attn_bias_init": -4.1' "$dir/shift/step_12/config.json"
check "a probe opens it" $sigmoid probe "$dir/shift/step_12" --probe-seqs 4
check "going on keeps it" run $sigmoid shift -n 14 --resume
refuses "wanted adamw, muon or sgd" $softmax --optimizer lion
refuses "at most --seq 64" $softmax --min-context 65
refuses "such as sigmoid" $softmax --attn-bias-init -1
refuses 'wanted .muon. as before' $softmax --resume -o "$dir/half" -n 20
refuses "wanted 20 as before" $softmax --resume -o "$dir/some" -n 20 --min-context 10 --batch 4
echo "$pass passed, $fail failed"
[ $fail -eq 0 ]
