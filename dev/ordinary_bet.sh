#!/bin/sh
# ordinary_bet.sh BOOKS WORK [RESULTS] -- the run of section T of dev/log/ordinary-sink.md: does a
# sink form on ordinary text? Twelve layers of 256 with little noise, then with a rate that falls
# to 0: nine minutes of an H100. BOOKS are shards of 1,024 ids, or a .tar.xz of their directory
#
#   BIN=./train_sink dev/ordinary_bet.sh data/books1024 runs/bet results
#
# It stops at step 9,000 where no head has an alpha_1 of MARK by then. RESULTS (WORK/results) gets
# the logs and, when all is done, the weights, in parts of 8 MB. SECONDS_IN_ALL=540 is what it may
# take: the second part gets the steps that still fit. SEED=1. FLAGS for both parts. MINI=1 rehearses with
# a model that a CPU trains in seconds. Started again, it goes on.
set -eu
case $# in
    2|3) ;;
    *) sed -n '2,13p' "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
. "$(dirname "$0")/../scripts/lib/flags.sh"
books=$1 work=$2 results=${3:-$2/results}
: "${BIN:=./train_sink}" "${SEED:=1}" "${SECONDS_IN_ALL:=540}" "${FLAGS:=}" "${MARK:=0.28}"
shape="--layers 12 --heads 4 --width 256 --ffn-width 512 --vocab 1024" batch="-t 512 -b 128 --graph"
look=9000 first=20000 second=5000 every=250 warmup=100
if [ "${MINI:-}" ]; then
    shape="--layers 12 --heads 4 --width 16 --ffn-width 32" batch="-t 32 -b 4"
    look=20 first=40 second=20 every=10 warmup=5
fi
begin=$(date +%s)
mkdir -p "$work" "$results"
case $books in
    *.tar.xz) mkdir -p "$work/books"; tar xf "$books" -C "$work/books" --strip-components 1
              books=$work/books ;;
esac
# what is known so far, whatever happens next
keep() {
    for part in a b; do
        [ ! -f "$work/$part/log.jsonl" ] || cp "$work/$part/log.jsonl" "$results/$part.jsonl"
    done
}
trap keep EXIT
newest() { ls -d "$work/$1"/step_* 2> /dev/null | sort -t _ -k 2 -n | tail -n 1; }
# the largest alpha_1 of the last evaluation
best_head() {
    grep '"event":"eval"' "$work/a/log.jsonl" | tail -n 1 |
        sed 's/.*"alpha1":\[\[//; s/\]\].*//' | tr -s '],[' '\n' | sort -g | tail -n 1
}
# NAME STEPS FLAGS..: trains, or goes on, to STEPS
part() {
    name=$1 steps=$2; shift 2
    resume=
    [ -z "$(newest "$name")" ] || resume=--resume
    usual="$* --lr 2e-3 --warmup $warmup --weight-decay 0.1 --seed $SEED -n $steps --eval-every $every"
    usual="$usual --save-every $((first / 4)) --save-optimizer all --val-seqs 200 --sample 0"
    # shellcheck disable=SC2086,SC2046  # $FLAGS and $resume are none or several words
    "$BIN" train -d "$books" $(without "$usual" $FLAGS) -o "$work/$name" $FLAGS $resume
    keep
}

# shellcheck disable=SC2086
part a $look $shape $batch
best=$(best_head)
echo "step $look: alpha_1 of the best head $best, wanted $MARK"
if awk -v a="$best" -v b="$MARK" 'BEGIN { exit !(a < b) }'; then
    echo "lost: stopped"
    exit 0
fi
looked=$(($(date +%s) - begin))
# shellcheck disable=SC2086
part a $first $shape $batch
# a second's worth of steps, from the part that was just timed; starting and saving cost some seconds
took=$(($(date +%s) - begin - looked))
left=$((SECONDS_IN_ALL - looked - took - 15))
[ "$took" -gt 0 ] || took=1
fit=$(((first - look) * left / took))
[ "$fit" -gt "$second" ] && fit=$second
if [ -z "$(newest b)" ] && [ "$fit" -lt $((second / 5)) ]; then
    echo "no time for the second part: $left s are left, $((first - look)) steps took $took s"
    exit 0
fi
# one that goes on keeps its length: the rate depends on it
[ -f "$work/steps" ] || echo "$fit" > "$work/steps"
# shellcheck disable=SC2086
part b "$(cat "$work/steps")" --init "$(newest a)" $batch --schedule cosine
weights=$(newest b)/model.safetensors
split -b 8000000 "$weights" "$results/weights."
"$BIN" probe "$(newest b)" -d "$books" --json "$results/probe.json" > "$results/probe.txt"
cat "$results/probe.txt"
