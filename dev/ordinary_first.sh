#!/bin/sh
# ordinary_first.sh NAME SHARDS OUT [after|loss] -- starts or resumes one run of "What stands in the
# way?" and the sections after it in dev/log/ordinary-sink.md, on one thread; after: probes and
# edits its last checkpoint, the stream after MARKED (6) layers; loss: measures its loss by position
# on all validation tokens. Both read T (64) tokens a sequence: the T of FLAGS, if that has one
#
#   BIN=build/cpu-PRECISION=bf16/train_sink dev/ordinary_first.sh rotary-random-s2 books1024 OUT
#
# NAME is PE-FIRST-sSEED. FIRST says what the first token is: fixed, random, free (its target does
# not count) or ordinary. It may be followed by -then-ordinary, -then-free or -then-random, which
# goes on from the last checkpoint of that run with such first tokens, and by a word for another
# program: -k for BIAS=k. BIN must be that program, with that PE.
# STEPS is how long; FLAGS are further flags, and rotary:8-random-s1 a name that tells them apart.
# FROM is the step that -then-.. goes on from, if it is not STEPS.
set -eu
case $#-${4:-} in
    3-|4-after|4-loss) ;;
    *) sed -n '2,14p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
. "$(dirname "$0")/../scripts/lib/flags.sh"
name=$1 shards=$2 out=$3
: "${BIN:=./train_sink}" "${STEPS:=10000}" "${FLAGS:=}" "${FROM:=$STEPS}" "${T:=64}" "${MARKED:=6}"

export OMP_NUM_THREADS=1
seed=${name##*-s}
begin=$out/${name%%-then-*}-s$seed/step_$FROM
shape="--layers 4 --heads 2 --vocab 1024 --width 64 --ffn-width 128"
case $name in
    *-then-ordinary-*) model="--init $begin" first= ;;
    *-then-free-*) model="--init $begin" first="--min-context 2" ;;
    *-then-random-*) model="--init $begin" first="--random-token 1" ;;
    *-fixed-*) model=$shape first="--fix-token 1:0" ;;
    *-random-*) model=$shape first="--random-token 1" ;;
    *-free-*) model=$shape first="--min-context 2" ;;
    *-ordinary-*) model=$shape first= ;;
    *) echo "error: $name: wanted PE-fixed-s1, -random-, -free- or -ordinary-, -then-.. after it" >&2
        exit 2 ;;
esac
of=$out/$name/step_$STEPS
if [ "${4:-}" = loss ]; then
    # shellcheck disable=SC2086  # $first is none or two words
    exec "$BIN" eval "$of" -d "$shards" $first --probe-len "$T" --probe-seqs 1000000 \
        --json "$out/$name/loss.json"
fi
if [ "${4:-}" = after ]; then
    probe() { # FILE FLAGS..
        file=$1; shift
        "$BIN" probe "$of" "$@" --probe-len "$T" --json "$out/$name/probe-$file.json"
    }
    probe ordinary -d "$shards"
    probe random -d "$shards" --random-token 1
    probe random2 -d "$shards" --random-token 1,2
    probe fixed -d "$shards" --fix-token 1:0
    probe repeated --probe-input repeated
    loss() { # FILE FLAGS..: with the first token of the training
        file=$1; shift
        # shellcheck disable=SC2086  # $first is none or two words
        "$BIN" eval "$of" -d "$shards" $first --probe-len "$T" "$@" \
            --json "$out/$name/edit-$file.json"
    }
    loss stream --stream 0+$((T / 4)),1+$((T / 4 - 1))
    number=0
    for edit in 'A:*:1=mask' 'v:*:1=0' 'v:*:1=mean' 'k:*:1=from 2' "h:$MARKED:1:top3=0" \
        "h:$MARKED:1:top3=mean"; do
        number=$((number + 1))
        loss $number --edit "$edit"
    done
    exit
fi
resume=
if ls -d "$out/$name"/step_* > /dev/null 2>&1; then resume=--resume; fi

usual="$model $first -t 64 -b 32 --lr 4e-3 --warmup 100 --weight-decay 0.1 --seed $seed -n $STEPS --sample 0"
# shellcheck disable=SC2086,SC2046  # these and $FLAGS are several words, $resume none or one
exec "$BIN" train -d "$shards" $(without "$usual --eval-every 500" $FLAGS) $FLAGS -o "$out/$name" $resume
