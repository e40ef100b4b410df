#!/bin/sh
# ordinary_cut.sh cut|probe|train|control|after|edits NAME OUT [SEED] -- one step of the cuts of
# SmolLM2-135M in dev/log/ordinary-sink.md
#
#   ./train_sink export SmolLM2-135M-Instruct.Q4_1.gguf -o OUT/whole
#   python3 scripts/gguf_to_json.py OUT/whole/tokenizer.gguf OUT/whole/tokenizer.json
#   python3 dev/make/cut_model.py OUT/whole OUT/v1024 --vocab 1024          and 4096
#   ./train_sink tokenize TRAIN.jsonl.zst --val VAL.jsonl.zst --tokenizer OUT/v1024/tokenizer.json
#       -o OUT/text1024                                                     and 4096
#   dev/ordinary_cut.sh cut 9M OUT
#   dev/ordinary_cut.sh probe 9M OUT
#   BF16=build/cpu-PRECISION=bf16/train_sink dev/ordinary_cut.sh train 9M OUT
#   STEPS=100 dev/ordinary_cut.sh after 9M OUT       a probe of that checkpoint at T 256
#   STEPS=100 dev/ordinary_cut.sh edits 9M OUT       what it loses; random and repeated tokens
#   STEPS=5000 LONG=1 AS=6M- dev/ordinary_cut.sh edits 6M OUT     the same; files are called 6M-..
#
# NAME is 31M, 16M, 9M, 6M, 3M, or a list of layers such as 0-3,11. Control: the same shape from
# random weights. One thread. A run goes on from its newest checkpoint; STEPS says to where. LONG=1
# trains on OUT/allVOCAB, more text, as run NAME-long, with an evaluation every 250 steps.
set -eu
[ $# -ge 3 ] || { sed -n '2,19p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }
verb=$1 name=$2 out=$3 seed=${4:-1}
: "${BIN:=./train_sink}" "${BF16:=$BIN}" "${PYTHON:=python3}"

vocab=4096 steps=${STEPS:-200} inside=
case $name in
    31M) layers=0-7 steps=${STEPS:-100} ;;
    16M) layers=0-3 steps=${STEPS:-100} ;;
    9M) layers=0-3 inside="--ffn 512" ;;
    6M) layers=0-3 inside="--ffn 256" vocab=1024 ;;
    3M) layers=0-3 inside="--ffn 192 --kv-heads 1" vocab=1024 ;;
    *) layers=$name ;;
esac
text=$out/text$vocab as=${AS:-} long='' every=25
if [ -n "${LONG:-}" ]; then text=$out/all$vocab long=-long every=250; fi
shape() { # the flags of a model like the cut one
    "$PYTHON" - "$out/cut-$name/config.json" <<'P'
import json, sys
o = json.load(open(sys.argv[1]))
base = o.get("rope_theta") or o["rope_parameters"]["rope_theta"]
print("--layers", o["num_hidden_layers"], "--width", o["hidden_size"], "--vocab", o["vocab_size"],
      "--heads", o["num_attention_heads"], "--kv-heads", o["num_key_value_heads"],
      "--head-dim", o.get("head_dim") or o["hidden_size"] // o["num_attention_heads"],
      "--ffn-width", o["intermediate_size"], "--rope-base", base, "--tied", 1)
P
}

checkpoint=$out/$name$long-s$seed/step_$steps
edit() { # file, change and other flags of eval
    file=$1; shift
    "$BIN" eval "$checkpoint" -d "$text" --bos none --json "$out/${as}$file.json" --edit "$@"
}
edits() {
    edit e-mask 'A:*:1=mask' --stream 0+16,1+15
    edit e-v0 'v:*:1=0'
    edit e-h0 'h:2:1:top3=0'
    edit e-hm 'h:2:1:top3=mean'
    edit e-vm 'v:*:1=mean'
    edit e-k2 'k:*:1=from 2'
    "$BIN" probe "$checkpoint" -d "$text" --random-token 1 --json "$out/${as}p-r1.json"
    "$BIN" probe "$checkpoint" -d "$text" --random-token 1,2 --json "$out/${as}p-r12.json"
    "$BIN" probe "$checkpoint" --probe-input repeated --json "$out/${as}p-rep.json"
}

export OMP_NUM_THREADS=1
# shellcheck disable=SC2086,SC2046  # $inside and the shape are several words
case $verb in
    cut) exec "$PYTHON" dev/make/cut_model.py "$out/whole" "$out/cut-$name" --layers "$layers" \
        --vocab $vocab $inside --text "$out/text$vocab" ;;
    probe) exec "$BIN" probe "$out/cut-$name" -d "$text" --probe-len "${LENGTHS:-64,256}" \
        --json "$out/$name.json" ;;
    train) begin="--init $out/cut-$name" run=$out/$name$long-s$seed ;;
    control) begin=$(shape) run=$out/$name$long-control-s$seed ;;
    after) exec "$BIN" probe "$checkpoint" -d "$text" --probe-len "${LENGTHS:-256}" \
        --json "$out/$name$long-s$seed-$steps.json" ;;
    edits) edits; exit ;;
    *) echo "error: $verb: wanted cut, probe, train, control, after or edits" >&2; exit 2 ;;
esac
resume=
if ls -d "$run"/step_* > /dev/null 2>&1; then resume=--resume begin=; fi
# shellcheck disable=SC2086
exec "$BF16" train $begin -d "$text" -t 256 -b 8 --lr 1e-3 --warmup 50 --weight-decay 0.1 \
    --seed "$seed" -n $steps --sample 0 --eval-every $every --val-seqs 32 --save-every $((4 * every)) -o "$run" $resume
