# The demos' scripts and their margins (dev/log/bigram-backcopy.md, text-runs.md). The bb demo is trained whole.
# The demo on text takes minutes: here it is trained for a few steps, which must repeat the
# beginning of the stored runs in test/demo, and the margins are those of the stored runs' table.
# WHOLE=1 trains it to the end instead.
# sh test/program/test_demo.sh --lr 1e-4 must fail
. test/ok.sh
check() { # what value op limit
    awk "BEGIN { exit !(\"$2\" != \"\" && \"$2\" + 0 $3 $4) }"; ok $? "$1: got '$2', wanted $3 $4"
}
out=build/test
mkdir -p $out

# a row of the table $table, read from its end: loss alpha_1 at step 0, alpha_1, Sink_1 at step 0,
# Sink_1, alpha_*, Sink_*, |h|, |h|, |v|, |v|
column() {
    awk -v back="$2" -v row="^$1 +[0-9]" '$0 ~ row { x = $(NF - back); sub(/%/, "", x); print x }' \
    $table
}
ratio() { awk -v row="^$1 +[0-9]" '$0 ~ row { print $(NF - 1) / $NF }' $table; }
gap() { echo "$(column softmax "$1") $(column "$2" "$1")" | awk 'NF == 2 { print $1 - $2 }'; }

# what both demos show: a sink, none, and a sink on k*
# demo, least alpha_1 of softmax, largest ratio of |v| of softmax, least of sigmoid, largest proxy
# of sigmoid
margins() {
    check "$1: softmax Sink_1, %"           "$(column softmax 6)"                 ">=" 80
    check "$1: softmax Sink_1 at step 0, %" "$(column softmax 7)"                 "<=" 5
    check "$1: softmax alpha_1"             "$(column softmax 8)"                 ">=" "$2"
    check "$1: softmax |v| first / rest"    "$(ratio softmax)"                    "<=" "$3"
    check "$1: sigmoid |v| first / rest"    "$(ratio 'sigmoid, share of row')"    ">=" "$4"
    check "$1: sigmoid Sink_1 (proxy), %"   "$(column 'sigmoid, share of row' 6)" "<=" "$5"
    check "$1: softmax - sigmoid alpha_1"   "$(gap 8 'sigmoid, share of row')"    ">=" 0.15
    check "$1: K bias Sink_*, %"            "$(column 'softmax, K bias' 4)"       ">=" 80
    check "$1: K bias Sink_1, %"            "$(column 'softmax, K bias' 6)"       "<=" 5
}

table=$out/demo-bb.txt
RUNS=$out/demo-bb sh scripts/demo.sh bb "$@" > $table 2>&1 || bad "$(tail -n 5 $table)"
margins bb 0.38 0.6 0.8 20
for row in softmax "sigmoid, raw weights" "softmax, K bias"; do
    # log 257 = 5.5; all three learn the task
    check "bb: $row: loss" "$(column "$row" 10)" "<=" 4.0
done

# text: the loss of the first evaluation, and of steps 1 and 30 of training
number() { sed -n "s/.*\"event\":\"$2\",\"step\":$3,.*\"$4\":\([0-9.]*\).*/\1/p" "$1" | head -n 1; }
steps=30; [ -z "$WHOLE" ] || steps=4000
table=$out/demo-text.txt
RUNS=$out/demo-text sh scripts/demo.sh text --steps $steps "$@" > $table 2>&1 || bad "$(tail -n 5 $table)"
for model in softmax sigmoid k; do
    ours=$out/demo-text-$model/log.jsonl stored=test/demo/text-$model/log.jsonl
    for what in "eval 0 val_loss" "train 1 loss" "train 30 loss"; do
        difference=$(echo "$(number $ours $what) $(number $stored $what)" | awk 'NF == 2 { d = $1 - $2; print d < 0 ? -d : d }')
        check "text: $model, $what: difference to the stored run" "$difference" "<=" 0.01
    done
done
if [ -z "$WHOLE" ]; then
    table=$out/demo-text-stored.txt
    sh scripts/demo.sh table test/demo/text-softmax/log.jsonl test/demo/text-sigmoid/log.jsonl \
        test/demo/text-k/log.jsonl > $table
fi
margins text 0.30 0.3 0.6 10
check "text: sigmoid's loss - softmax's" \
    "$(gap 10 'sigmoid, raw weights' | awk '{ print -$1 }')" "<=" 0.10
check "text: K bias's loss - softmax's" \
    "$(gap 10 'softmax, K bias' | awk '{ print -$1 }')"      "<=" 0.03
[ $failed -eq 0 ] || echo "see $out/demo-bb.txt and $out/demo-text.txt"
finish
