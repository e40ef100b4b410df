# flags of training that change the step: --optimizer muon, --min-context, --attn-bias-init, --init, --only
#     sh test/core/test_train_flags.sh
. test/ok.sh
. test/once.sh
scratch
refuses() { # text of the error, program, flags
    text=$1; program=$2; shift 2
    $program train -d bb "$@" > "$dir/out" 2>&1
    [ $? -eq 2 ] && grep -q -- "$text" "$dir/out"; ok $? "$*: $(head -n 5 "$dir/out")"
}
softmax=$program
sigmoid=build/cpu-ATTN=sigmoid/train_sink; logit=build/cpu-BIAS=logit/train_sink
run() {
    program=$1
    out=$2
    shift 2
    $program train -d bb $(once --batch 4 --eval-every 0 --sample 0 --lr 5e-3 --warmup 3 "$@") -o "$dir/$out"
}
hash() { tail -n 1 "$dir/$1/log.jsonl" | grep -o '"params_hash":"[0-9a-f]*"'; }
same() { [ -n "$(hash $1)" ] && [ "$(hash $1)" = "$(hash $2)" ]; }
differs() { [ -n "$(hash $1)" ] && [ "$(hash $1)" != "$(hash $2)" ]; }
logs() { grep '"event":"config"' "$dir/$1/log.jsonl" | grep -q -- "$2"; }
check "adamw" run $softmax adamw -n 12
check "muon" run $softmax muon -n 12 --optimizer muon
check "muon is another optimizer" differs adamw muon
check "muon in the log" logs muon '"optimizer":"muon"'
check "half of it" run $softmax half -n 6 --optimizer muon
check "and the rest" run $softmax half -n 12 --optimizer muon --resume
check "muon resumes to the same bits" same muon half
mib() { # what the optimizer takes, with these flags
    $softmax train -d bb --width 256 --layers 1 -n 0 --sample 0 --val-seqs 4 --probe-seqs 4 "$@" -o "$dir/mib" |
        sed -n 's/.* + optimizer \([0-9.]*\) .*/\1/p'
    rm -rf "$dir/mib"
}
adamw=$(mib) muon=$(mib --optimizer muon)
check "muon works with more memory: $muon MiB, not $adamw" awk "BEGIN { exit !($muon > $adamw) }"
OMP_NUM_THREADS=2 check "muon on two threads" run $softmax threads -n 12 --optimizer muon
check "gives the same bits" same muon threads
# the program starts itself once more, and must not find itself alone on the first thread's place
for placed in OMP_PROC_BIND=true OMP_PLACES=cores "GOMP_CPU_AFFINITY=0-$(($(nproc) - 1))"; do
    check "as many threads as processors with $placed" sh -c "
        env $placed $softmax train -d bb -n 1 --batch 4 --sample 0 -o '$dir/$placed' |
            grep '^device $(nproc) thread'"
done
check "all targets" run $softmax all -n 12 --min-context 1
check "every target has one token before it" same adamw all
check "some targets" run $softmax some -n 12 --min-context 20
check "the first targets" run $softmax near -n 12 --max-context 19
check "which are fewer, too" differs adamw near
check "and others" differs some near
check "fewer targets train otherwise" differs adamw some
check "min_context in the log" logs some '"min_context":20'
check "the loss of the evaluations is of all targets" sh -c "
    for r in '$dir/adamw' '$dir/some'; do grep -m 1 '\"event\":\"eval\"' \$r/log.jsonl | grep -o '\"val_loss\":[0-9.]*'; done | sort -u | wc -l | grep -qx 1"
check "a shift" run $sigmoid shift -n 12 --attn-bias-init -4.16
check "none" run $sigmoid none -n 12
check "a shift of the scores" differs shift none
check "the shift is the checkpoint's" \
    grep -q '"attn_bias_init": -4.1' "$dir/shift/step_12/config.json"
check "a probe opens it" $sigmoid probe "$dir/shift/step_12" --probe-seqs 4
check "going on keeps it" run $sigmoid shift -n 14 --resume
refuses "wanted adamw, sgd or muon" $softmax --optimizer lion
refuses "at most --seq 64" $softmax --min-context 65
refuses "such as sigmoid" $softmax --attn-bias-init -1
refuses 'wanted .muon. as before' $softmax --resume --optimizer adamw -o "$dir/half" -n 20
refuses "wanted 20 as before" $softmax --resume -o "$dir/some" -n 20 --min-context 10 --batch 4
# --schedule wsd: up, along, and down in a line over the last steps
check "wsd" run $softmax wsd -n 10 --warmup 2 --schedule wsd --decay-steps 4 --min-lr 1e-3
check "the rate by step" sh -c "
    grep -o '\"lr\":[^,]*' '$dir/wsd/log.jsonl' | tail -n 10 | cut -d: -f2 | tr '\n' ' ' |
        grep -qx '0.0025 0.005 0.005 0.005 0.005 0.005 0.005 0.004 0.003 0.002 '"
check "a tenth of the steps, unless they are given" run $softmax wsd10 -n 20 --schedule wsd
check "the last three" sh -c "
    grep -o '\"lr\":[^,]*' '$dir/wsd10/log.jsonl' | tail -n 3 | tr '\n' ' ' |
        grep -qx '\"lr\":0.005 \"lr\":0.005 \"lr\":0.0025 '"
# a rate that had fallen, and jumps where the run goes on
check "on" run $softmax wsd -n 20 --warmup 2 --schedule wsd --decay-steps 4 --min-lr 1e-3 --resume
cp "$dir/out" "$dir/said"
check "the jump" grep -q "^note   the learning rate had fallen to 0.002 by step 10 and continues at 0.005: only from step 7 or before" "$dir/said"
check "without a change" run $softmax wsd10 -n 20 --schedule wsd --resume
cp "$dir/out" "$dir/said"
check "no jump" sh -c "grep -q 'at step 20 already' '$dir/said' && ! grep -q 'had fallen' '$dir/said'"
check "another rate" run $softmax wsd10 -n 30 --schedule wsd --lr 1 --resume
cp "$dir/out" "$dir/said"
check "which was typed" sh -c "! grep -q 'had fallen' '$dir/said'"
# --factors: attention's rows times 2 are W_O times 2, with its rate, its start, its decay and eps so
# that both take the same steps (Eq. 29 to 42)
eq="-n 20 --grad-clip 0 --weight-decay 1 --adam-eps 1e-3"
check "rows times 2" run $softmax rows $eq --attn-alpha 2
check "W_O times 2" run $softmax matrix $eq \
    --factors o_proj:start=2,o_proj:lr=2,o_proj:decay=0.5,o_proj:eps=0.5
check "neither" run $softmax neither $eq
losses() { grep '"event":"train"' "$dir/$1/log.jsonl" | grep -o '"loss":[^,]*' | cut -d: -f2; }
apart() { # the largest distance of two runs' losses
    losses $1 > "$dir/a"; losses $2 > "$dir/b"
    paste "$dir/a" "$dir/b" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > m) m = d } END { print NR == 20 ? m : 9 }'
}
check "the same losses: $(apart rows matrix)" awk "BEGIN { exit !($(apart rows matrix) < 2e-5) }"
check "which are others: $(apart rows neither)" awk "BEGIN { exit !($(apart rows neither) > 1e-3) }"
# --noise: against the norms of a step of half the batch and of all of it
check "noise" run $softmax noise -n 2 --total-batch 512 --noise
check "all of the batch" run $softmax undivided -n 2 --total-batch 512
check "it changes no step" same noise undivided
check "half of it" run $softmax halves -n 2
python3 - "$dir" <<'EOF' > "$dir/wrong" 2>&1
import json, sys
def first(run): return next(o for o in map(json.loads, open(f"{sys.argv[1]}/{run}/log.jsonl")) if o["event"] == "train")
few, many, got = first("halves")["grad_norm"] ** 2, first("undivided")["grad_norm"] ** 2, first("noise")
signal, noise = (512 * many - 256 * few) / 256, (few - many) / (1 / 256 - 1 / 512)
assert abs(got["grad_signal"] - signal) < 1e-5 * many, (got, signal)
assert abs(got["grad_noise"] - noise) < 1e-5 * many * 512, (got, noise)
EOF
check "both parts of the noise scale: $(tail -n 1 "$dir/wrong")" test ! -s "$dir/wrong"
# --ema: a mean of the weights that changes no step, is saved, goes on, and is what is evaluated
check "ema" run $softmax ema -n 12 --ema 0.5 --eval-every 4 --save-every 1 --save-optimizer all
check "it changes no step" same adamw ema
cp -r "$dir/ema" "$dir/gone_on"; for s in 7 8 9 10 11 12; do rm -r "$dir/gone_on/step_$s"; done
check "half of it, and the rest" run $softmax gone_on -n 12 --eval-every 4 --resume
for file in model ema optimizer; do
    check "the same $file" cmp "$dir/ema/step_12/$file.safetensors" "$dir/gone_on/step_12/$file.safetensors"
done
for r in ema gone_on; do
    grep -E '"event":"(train|eval|ema)"' "$dir/$r/log.jsonl" | sed 's/,"ms":.*//; s/,"time":.*//' > "$dir/$r.lines"
done
check "the same log" cmp "$dir/ema.lines" "$dir/gone_on.lines"
check "an evaluation of both" test "$(grep -c '"event":"ema"' "$dir/ema.lines")" = 4
python3 - "$dir" <<'EOF' > "$dir/wrong" 2>&1
import array, sys
def numbers(step, file):
    raw = open(f"{sys.argv[1]}/ema/step_{step}/{file}.safetensors", "rb").read()
    return array.array("f", raw[8 + int.from_bytes(raw[:8], "little"):])
mean = numbers(1, "model")
assert mean == numbers(1, "ema"), "step 1"
for step in range(2, 13):
    mean = [a / 2 + b / 2 for a, b in zip(mean, numbers(step, "model"))]
    far = max(abs(a - b) for a, b in zip(mean, numbers(step, "ema")))
    assert far < 1e-6, (step, far)
EOF
check "the mean of every step: $(tail -n 1 "$dir/wrong")" test ! -s "$dir/wrong"
cp -r "$dir/ema/step_12" "$dir/mean"; mv "$dir/mean/ema.safetensors" "$dir/mean/model.safetensors"
$softmax probe "$dir/mean" --json "$dir/mean.json" > "$dir/out" 2>&1
loss=$(grep -o '"probe_loss":[^,]*' "$dir/mean.json" | head -n 1)
check "what is evaluated: $loss" sh -c "grep '\"event\":\"ema\"' '$dir/ema/log.jsonl' | tail -n 1 | grep -qF '${loss:-none},'"
printf x | dd of="$dir/gone_on/step_12/ema.safetensors" bs=1 seek=9999 conv=notrunc 2> /dev/null
refuses "ema.safetensors: its numbers have changed" $softmax --resume -o "$dir/gone_on" -n 13
rm "$dir/gone_on/step_12/ema.safetensors"
refuses "HINT: put it back; or go back to" $softmax --resume -o "$dir/gone_on" -n 13
# --init: the weights of a model that is there already
first() {
    grep -m 1 '"event":"eval"' "$dir/$1/log.jsonl" |
        sed 's/.*"val_loss"/"val_loss"/; s/"time":"[^"]*"//'
}
last() {
    grep '"event":"eval"' "$dir/$1/log.jsonl" | tail -n 1 |
        sed 's/.*"val_loss"/"val_loss"/; s/"time":"[^"]*"//'
}
of() { grep -o "\"$1\":[^,]*" | head -n 1; }
begins() { [ -n "$(last $1 | of $3)" ] && [ "$(last $1 | of $3)" = "$(first $2 | of $3)" ]; }
cp -r "$dir/adamw/step_12" "$dir/base"
check "begins with a checkpoint" run $softmax init -n 6 --init "$dir/base"
for what in val_loss alpha1 h_max; do check "where that ended: $what" begins adamw init $what; done
check "without its optimizer" sh -c "! cmp -s '$dir/adamw/step_12/optimizer.safetensors' '$dir/init/step_6/optimizer.safetensors'"
check "another run from it" run $softmax whole -n 12 --init "$dir/base"
mv "$dir/base" "$dir/gone"
check "goes on when the checkpoint is gone" run $softmax init -n 12 --init "$dir/base" --resume
check "to the same bits" same init whole
refuses "no such directory" $softmax --init "$dir/base" -o "$dir/no"
mv "$dir/gone" "$dir/base"
check "shorter sequences" run $softmax short -n 0 --probe-len 32 --seq 32 --init "$dir/base"
check "leave the model its length" grep -q '"max_position_embeddings": 64' "$dir/short/step_0/config.json"
check "are the run's own" grep -q '"train_sink": {.*"seq": 32,' "$dir/short/step_0/config.json"
check "and leave it a LLaMA" grep -q '"model_type": "llama"' "$dir/short/step_0/config.json"
check "a run from that run" run $softmax still -n 0 --probe-len 32 --init "$dir/short/step_0"
check "keeps both" \
    grep -q '"train_sink": {.*"seq": 32,' "$dir/still/step_0/config.json"
check "logit switched off" run $logit off -n 0 --init "$dir/base" --init-logit -1e4
check "is the softmax model, to the last bit" begins adamw off val_loss
check "its z is kept" sh -c "grep -q self_attn.sinks '$dir/off/step_0/model.safetensors'"
check "logit at 0" run $logit on -n 0 --init "$dir/base"
check "is another" sh -c "! [ '$(first on | of val_loss)' = '$(first off | of val_loss)' ]"
for family in gpt_neox llama_yarn gemma3 opt; do
    check "$family as it is" run $softmax $family -n 0 --bb-vocab 20 --init test/open/families/$family
    $softmax probe test/open/families/$family -d bb --bb-vocab 20 --json "$dir/theirs" > "$dir/out" 2>&1
    $softmax probe "$dir/$family/step_0" -d bb --bb-vocab 20 --json "$dir/ours" > "$dir/out" 2>&1
    sed -i 's/"checkpoint":"[^"]*",//' "$dir/ours" "$dir/theirs"
    check "$family measures the same" cmp "$dir/ours" "$dir/theirs"
    check "$family learns" \
        run $softmax $family -n 3 --bb-vocab 20 --init test/open/families/$family --resume
done
# --only: everything else stays as it is, byte for byte
changed() { cmp -l "$dir/$1/model.safetensors" "$dir/$2/model.safetensors" | wc -l; }
check "only z" run $logit z -n 12 --init "$dir/base" --init-logit -2 --only sinks --save-every 6 --save-optimizer all
run $logit z0 -n 0 --init "$dir/base" --init-logit -2 > /dev/null 2>&1
check "the 4 bytes of one z change" \
    sh -c "[ $(changed z0/step_0 z/step_12) -ge 1 ] && [ $(changed z0/step_0 z/step_12) -le 4 ]"
norm=$(grep '"event":"train"' "$dir/z/log.jsonl" | tail -n 1 | grep -o '"grad_norm":[^,]*' | cut -d: -f2)
check "and the norm is that of its gradient, $norm" awk "BEGIN { exit !($norm > 0 && $norm < 0.1) }"
rm -rf "$dir/z/step_12"
check "goes on" \
    run $logit z -n 13 --init "$dir/base" --init-logit -2 --only sinks --save-every 6 --save-optimizer all --resume
check "and still nothing else changes" sh -c "[ $(changed z0/step_0 z/step_13) -le 4 ]"
check "two words, by Muon" \
    run $softmax words -n 6 --init "$dir/base" --only input_layernorm,o_proj --optimizer muon
check "4096 bytes of a matrix and 128 of a norm" sh -c "[ $(changed adamw/step_12 words/step_6) -gt 3000 ] && [ $(changed adamw/step_12 words/step_6) -le 4224 ]"
# a word is of whole parts of a name; a run that began before it was so goes on as it began
learned() { # RUN STEP STEP: the layers that learned between them
    python3 - "$dir/$1" $2 $3 <<'EOF'
import json, sys
def tensors(step):
    raw = open(f"{sys.argv[1]}/step_{step}/model.safetensors", "rb").read()
    n = int.from_bytes(raw[:8], "little")
    return {k: raw[8 + n:][slice(*v["data_offsets"])] for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}
a, b = map(tensors, sys.argv[2:])
print(*sorted(int(k.split(".")[2]) for k in a if a[k] != b[k] and k.endswith("o_proj.weight")))
EOF
}
twelve="--layers 12 --width 8 --heads 1 --ffn-width 8 --seq 16 --save-every 1 --save-optimizer all --probe-len 16"
check "layers.1" run $softmax parts -n 1 $twelve --only layers.1,layers.3
cp "$dir/out" "$dir/said"
check "how much it is" grep -q "^words  --only layers.1: 9 tensors, 464 parameters" "$dir/said"
check "is not 10 and 11: $(learned parts 0 1)" [ "$(learned parts 0 1)" = "1 3" ]
sed -i 's/, "files": .*/}/; s/"automatic": false, //; s/"version": "[^"]*", //; s/"words": "of parts", //' "$dir/parts/step_1/state.json"
check "an older run goes on" $softmax train --resume -n 2 -o "$dir/parts"
check "as it began: $(learned parts 1 2)" [ "$(learned parts 1 2)" = "1 3 10 11" ]
check "factors of layers.1" run $softmax held -n 1 $twelve --factors layers.1:lr=0,layers.3:lr=0
check "hold these: $(learned held 0 1)" [ "$(learned held 0 1)" = "0 2 4 5 6 7 8 9 10 11" ]
refuses "wanted a word of one of these names: model.embed_tokens.weight" $softmax --only queries \
    -o "$dir/no"
refuses "has --layers 1, got 3" $softmax --init "$dir/base" --layers 3
refuses "a model that has no z of its own" $logit --init "$dir/off/step_0" \
    --init-logit -2 -o "$dir/no"
refuses "a build with BIAS=logit" $softmax --init-logit -2 -o "$dir/no"
refuses "has no effect without BIAS=k or kv" $logit --k-dims 2 -o "$dir/no"
refuses "only run forward" $softmax --init test/open/families/mixtral -o "$dir/no"
refuses "a build with ATTN=softmax BIAS=none" $sigmoid --init "$dir/base" -o "$dir/no"
# conversations, of which only some tokens count: a step's loss is the mean over all that do, in
# however many micro-batches; some of these, and sequences of what is held out, have none
for i in 3 61 7 90 11 45 2 80 30 5 70 21; do
    printf '{"segments":[{"text":"%0*d","loss":0},{"text":"%0*d","loss":1}]}\n' \
        $((i * 3 % 95 + 1)) 1 $i 2
done > "$dir/talk.jsonl"
talk() {
    out=$1
    shift
    $softmax train -d "$dir/talk.jsonl" --tokenizer bytes --sft segments --width 16 --seq 16 $(once -n 3 "$@") \
        --eval-every 0 --sample 0 --val-seqs 20 --probe-seqs 8 --probe-len 16 -o "$dir/$out"
}
step_1() { grep '"event":"train"' "$dir/$1/log.jsonl" | head -n 1 | grep -o '"loss":[^,]*'; }
near() { awk "BEGIN { d = $1 - $2; exit !(d < 1e-5 && d > -1e-5) }"; }
check "a model of two heads" run $softmax two -n 1 --heads 2
check "conversations" talk talk8 -b 8
check "in micro-batches of one" talk talk1 -b 1 --total-batch 128
one=$(step_1 talk1 | cut -d: -f2); eight=$(step_1 talk8 | cut -d: -f2)
check "a step is the same in 8 micro-batches: $one, $eight" near "$one" "$eight"
check "one conversation a step" talk quiet -b 1 -n 12
check "a step without a target has no loss, not 0" \
    sh -c "grep -q '\"loss\":null' '$dir/quiet/log.jsonl' && ! grep -q '\"loss\":0,' '$dir/quiet/log.jsonl'"
check "a held-out loss though some batches have no target that counts" \
    grep -q '"val_loss":[1-9]' "$dir/talk1/log.jsonl"
$softmax probe "$dir/talk8/step_3" --probe-seqs 1 --probe-len 16 --json "$dir/p" > "$dir/out" 2>&1
$softmax eval "$dir/talk8/step_3" --probe-seqs 1 --probe-len 16 --json "$dir/e" > "$dir/out" 2>&1
probed=$(grep -o '"probe_loss":[^,]*' "$dir/p" | cut -d: -f2)
evaluated=$(grep -o '"loss":[^,]*' "$dir/e" | head -n 1 | cut -d: -f2)
check "eval and probe mean over the same targets: $evaluated, $probed" near "$evaluated" "$probed"
refuses "has --heads 2, got 1" $softmax -m bb --init "$dir/two/step_1" -o "$dir/no"
# --help has the names that an error lists, though both write them
$softmax train --help > "$dir/help"
for flag in --model --until; do
    listed=$($softmax train -d bb $flag huge 2>&1 | sed -n 's/.*wanted one of \(.*\)/\1/p; s/.*NUMBER of \(.*\) (a sink.*/\1/p')
    check "--help of $flag lists $listed" test -n "$listed" -a -n "$(grep -F -- "$listed" "$dir/help" | grep -e "$flag ")"
done
finish
