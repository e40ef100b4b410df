#!/bin/sh
# ordinary.sh NAME SHARDS OUT -- starts or resumes one run of dev/log/ordinary-sink.md, on one thread
#
#   BIN=build/cpu-PRECISION=bf16/train_sink dev/ordinary.sh long-64 data/books1024 runs/ordinary
#
# NAME is long-64 or long-128, with -k for the K bias (BIN must be built with BIAS=k) and -s2, -s3 for
# other seeds: long-64-k-s2. A run goes on from its newest checkpoint.
set -eu
[ $# = 3 ] || { sed -n '2,7p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }
name=$1 shards=$2 out=$3
: "${BIN:=./train_sink}"

case $name in
    long-64*) model="--width 64 --ffn-width 128 -t 256 -b 32" ;;
    long-128*) model="--width 128 --ffn-width 256 -t 512 -b 16" ;;
    *) echo "error: $name: wanted long-64.. or long-128.." >&2; exit 2 ;;
esac
case $name in
    *-s[0-9]*) seed=${name##*-s} million=50 ;;
    *-k) seed=1 million=200 ;;
    *) seed=1 million=1000 ;;
esac
steps=$((million * 1000000 / 8192 + 1))
resume=
if ls -d "$out/$name"/step_* > /dev/null 2>&1; then resume=--resume
# one that was ended before its first checkpoint cannot go on: it is moved aside
elif [ -e "$out/$name/log.jsonl" ]; then mv "$out/$name" "$out/$name.ended-$(date +%s)"; fi

# 1,220 steps are 10M tokens
# shellcheck disable=SC2086  # $model is several words, $resume none or one
OMP_NUM_THREADS=1 exec "$BIN" train -d "$shards" --layers 4 --heads 4 --vocab 1024 $model \
    --lr 4e-3 --warmup 100 --weight-decay 0.1 --seed "$seed" -n "$steps" --sample 0 \
    --eval-every 1220 --save-every 1220 -o "$out/$name" $resume
