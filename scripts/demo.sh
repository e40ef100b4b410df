#!/bin/sh
# make demo: trains the same small model three times, each with another attention,
# and prints where the attention went.
#
#   softmax            the weights of a row sum to 1: what a query does not need must go somewhere
#   sigmoid            every weight on its own: a query may attend to nothing
#   softmax + K bias   one more learned key, k*, whose value is 0: a place for the spare attention
#
#   scripts/demo.sh text  one novel, one layer, two heads; every sequence begins
#                         with the same token (make demo)
#   scripts/demo.sh bb    the built-in Bigram-Backcopy task, one layer, one head (make demo-bb)
#   scripts/demo.sh table LOG..   only the table, of runs that are done
#
# Flags after the name go to all three runs: sh scripts/demo.sh text --seed 7.
# How the settings were found (text: with seed 1; seed 2 came after), and where the contrast does
# not appear: dev/log/bigram-backcopy.md, docs/findings/text.md.
set -e
. "$(dirname "$0")/lib/flags.sh"
task=${1:-text}
[ $# -eq 0 ] || shift
runs=${RUNS:-runs/demo-$task}
case $task in
    text) recipe="-d demo/bleak-house.jsonl.gz --tokenizer demo/tokenizer.json --fix-token 1:0
                  --layers 1 --width 64 --heads 2 --ffn-width 128 --seq 64 --batch 16
                  --lr 4e-3 --warmup 100 --weight-decay 0.1 --steps 4000 --eval-every 500 --seed 2"
          k_flags="" ;;
    bb)   recipe="-d bb --lr 5e-3 --beta2 0.99 --weight-decay 1e-4 --warmup 20
                  --steps 800 --eval-every 200"
          k_flags="--bb-bos 0" ;;
    table) ;;
    *)    echo "error: $task: wanted text, bb or table" >&2; exit 2 ;;
esac

# Builds a variant and prints where its binary is; ./train_sink stays where it points.
build() {
    switches="BACKEND=cpu PE=rotary NORM=pre FFN=swiglu COMBINE=concat $*"
    SAY=1 make -s -j"${JOBS:-$(nproc)}" binary $switches >&2 && echo "$(make -s check $switches)/train_sink"
}

# One run with one thread. Prints the evaluations as they come, with the model's name before them.
train() { # name title binary flags..
    out=$runs-$1 title=$2 binary=$3
    shift 3
    rm -rf "$out"
    OMP_NUM_THREADS=1 "$binary" $(without "$recipe --sample 0" "$@") "$@" -o "$out" |
        awk -v title="$title" '/^eval/ { sub(/^eval */, "")
                                         printf "%-24s step %s\n", title, $0; fflush() }'
}

# One table from the first (step 0) and the last evaluation of each log.jsonl.
table() {
    awk '
    function numbers(key,    s) { # "key":x or "key":[..] -> v[1..n], sum; returns the mean
        s = substr($0, index($0, "\"" key "\":") + length(key) + 3)
        sub(/(,"|[}]).*/, "", s); gsub(/[][]/, "", s)
        n = split(s, v, ","); sum = 0
        for (i = 1; i <= n; i++) { sum += v[i] }
        return sum / n
    }
    function percent(x) { return sprintf("%.0f%%", 100 * x) }
    function first(key) { numbers(key); return v[1] }
    function last(key) { numbers(key); return v[n] }
    function row(name, alpha, sink) {
        if (first("step") == 0) {
            alpha0[name] = numbers(alpha)
            sink0[name] = percent(first(sink))
            return
        }
        star = index($0, "\"alpha_star\"") > 0
        printf "%-22s%6.3f%9.2f%6.2f%9s%6s%9s%6s%9.1f%6.1f%9.2f%6.2f\n", name, first("val_loss"),
               alpha0[name], numbers(alpha), sink0[name], percent(first(sink)),
               star ? sprintf("%.2f", numbers("alpha_star")) : "-",
               star ? percent(first("sink_star")) : "-",
               last("h_norm_first"), last("h_norm_rest"),
               numbers("v_norm_first"), numbers("v_norm_rest")
    }
    BEGIN {
        heads = "%-22s%6s%15s%15s%15s%15s%15s\n"
        printf heads, "", "loss", "attention to", "Sink_1", "extra key k*", "norm of h", "norm of v"
        printf heads, "", "", "first token", "", "attn.  Sink_*", "first  rest", "first  rest"
        printf "%-22s%6s%15s%15s\n", "", "", "step 0   end", "step 0   end"
    }
    function rows() {
        sigmoid = FILENAME ~ /sigmoid/
        name = FILENAME ~ /-k\// ? "softmax, K bias" : "softmax"
        row(sigmoid ? "sigmoid, raw weights" : name, "alpha1", "sink_k")
        if (sigmoid) { row("sigmoid, share of row", "alpha1_proxy", "proxy_k") }
    }
    /"event":"eval"/ { eval = $0 }
    /"event":"eval","step":0,/ { rows() }
    /"event":"done"/ { $0 = eval; rows() }' "$@"
}

if [ "$task" = table ]; then table "$@"; exit; fi

# the build takes a minute or two the first time
unset MAKEFLAGS MFLAGS MAKELEVEL
echo "building three binaries: a minute or two the first time"
# what all three share is compiled by the first: two makes at once would both compile it
softmax_binary=$(build ATTN=softmax BIAS=none)
build ATTN=sigmoid BIAS=none > /dev/null & other=$!
keyed_binary=$(build ATTN=softmax BIAS=k)
wait $other
sigmoid_binary=$(build ATTN=sigmoid BIAS=none)

echo "training three models at once, one thread each:"
echo "train_sink" $(without "$recipe" "$@") "$@"
echo
start=$(date +%s)
train softmax "softmax" $softmax_binary "$@" &
train sigmoid "sigmoid" $sigmoid_binary "$@" &
recipe="$recipe $k_flags" train k "softmax, K bias" $keyed_binary "$@" &
wait
for model in softmax sigmoid k; do
    grep -q '"event":"done"' "$runs-$model/log.jsonl" ||
        { echo "$runs-$model did not finish"; exit 1; }
done
printf '\nthree models in %d s\n\n' $(($(date +%s) - start))
table $runs-softmax/log.jsonl $runs-sigmoid/log.jsonl $runs-k/log.jsonl
case $task in
text) cat <<'END'

One novel, Bleak House. Uniform attention would give the first token 0.07. Sink_1: in how many
of the 100 sequences x 2 heads it gets more than 0.3.
Shown: on natural text softmax comes to put its spare attention on the token that begins every
sequence, whose value shrinks; a key of value 0 takes over all of that, at no cost; sigmoid gives
the first token little more than uniform attention would.
Not shown: a sink on an ordinary first token, massive activations, a deep model: docs/findings/text.md.
END
;;
bb) cat <<'END'

Uniform attention would give the first token 0.07. Sink_1: in how many of 100 sequences the head
gives it more than 0.3.
Shown: softmax puts its spare attention on <s>, whose value shrinks; a key of value 0 takes that
place in a model that reads no <s>; sigmoid learns the task without either.
Not shown: massive activations, or a sink on an ordinary first token. And with two layers
sigmoid's shares pass 0.3 too: dev/log/bigram-backcopy.md.
END
;;
esac
