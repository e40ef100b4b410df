# runs make demo's script and holds its table to the margins of dev/LOG.md. sh test/test_demo.sh --lr 1e-4 must fail
passed=0; failed=0
check() { # what value op limit
    if awk "BEGIN { exit !(\"$2\" != \"\" && \"$2\" + 0 $3 $4) }"; then passed=$((passed + 1)); else echo "$1: got '$2', wanted $3 $4"; failed=$((failed + 1)); fi
}
mkdir -p build/test
RUNS=build/test/demo sh scripts/demo.sh "$@" > build/test/demo.txt 2>&1 || { tail -n 5 build/test/demo.txt; failed=1; }

# a row of the table, read from its end: loss alpha_1 at step 0, alpha_1, Sink_1 at step 0, Sink_1, alpha_*, Sink_*, |h|, |h|, |v|, |v|
column() { awk -v back="$2" -v row="^$1 +[0-9]" '$0 ~ row { x = $(NF - back); sub(/%/, "", x); print x }' build/test/demo.txt; }
ratio() { awk -v row="^$1 +[0-9]" '$0 ~ row { print $(NF - 1) / $NF }' build/test/demo.txt; }
gap=$(echo "$(column softmax 8) $(column 'sigmoid, share of row' 8)" | awk 'NF == 2 { print $1 - $2 }')

check "softmax Sink_1, %"              "$(column softmax 6)"                  ">=" 80
check "softmax Sink_1 at step 0, %"    "$(column softmax 7)"                  "<=" 5
check "softmax attention to <s>"       "$(column softmax 8)"                  ">=" 0.38
check "softmax |v| first / rest"       "$(ratio softmax)"                     "<=" 0.6
check "sigmoid Sink_1 (proxy), %"      "$(column 'sigmoid, share of row' 6)"  "<=" 20
check "softmax - sigmoid attention"    "$gap"                                 ">=" 0.15
check "sigmoid |v| first / rest"       "$(ratio 'sigmoid, share of row')"     ">=" 0.8
check "K bias Sink_*, %"               "$(column 'softmax, K bias' 4)"        ">=" 80
check "K bias Sink_1, %"               "$(column 'softmax, K bias' 6)"        "<=" 5
for row in softmax "sigmoid, raw weights" "softmax, K bias"; do
    check "$row: loss"                 "$(column "$row" 10)"                  "<=" 4.0 # log 257 = 5.5; all three learn the task
done
[ $failed -eq 0 ] || echo "see build/test/demo.txt"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
