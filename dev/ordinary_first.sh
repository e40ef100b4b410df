#!/bin/sh
# ordinary_first.sh NAME SHARDS OUT -- starts or resumes one run of "What stands in the way?" in
# dev/log/ordinary-sink.md, on one thread
#
#   BIN=build/cpu-PRECISION=bf16/train_sink dev/ordinary_first.sh rotary-random-s2 books1024 OUT
#
# NAME is PE-FIRST-sSEED. FIRST says what the first token is: fixed, random, free (its target does not
# count) or ordinary; it may be followed by -then-ordinary, which goes on from the last checkpoint of
# that run with ordinary first tokens, and by -k for a program of BIAS=k. BIN must have that PE.
# STEPS is how long; FLAGS are further flags, and rotary:8-random-s1 a name that tells them apart.
# FROM is the step that -then-ordinary goes on from, if it is not STEPS.
set -eu
[ $# = 3 ] || { sed -n '2,12p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }
name=$1 shards=$2 out=$3
: "${BIN:=./train_sink}" "${STEPS:=10000}" "${FLAGS:=}" "${FROM:=$STEPS}"

seed=${name##*-s}
case $name in
    *-then-ordinary*) first="--init $(ls -d "$out/${name%%-then*}-s$seed"/step_"$FROM")" ;;
    *-fixed-*) first="--fix-token 1:0" ;;
    *-random-*) first="--random-token 1" ;;
    *-free-*) first="--min-context 2" ;;
    *-ordinary-*) first= ;;
    *) echo "error: $name: wanted PE-fixed-s1, -random-, -free- or -ordinary-" >&2; exit 2 ;;
esac
case $name in
    *-then-ordinary*) model= ;;
    *) model="--layers 4 --heads 2 --vocab 1024 --width 64 --ffn-width 128" ;;
esac
resume=
if ls -d "$out/$name"/step_* > /dev/null 2>&1; then resume=--resume; fi

# shellcheck disable=SC2086  # $model, $first and $FLAGS are several words, $resume none or one
OMP_NUM_THREADS=1 exec "$BIN" train -d "$shards" $model -t 64 -b 32 $first \
    --lr 4e-3 --warmup 100 --weight-decay 0.1 --seed "$seed" -n "$STEPS" --sample 0 \
    --eval-every 500 $FLAGS -o "$out/$name" $resume
