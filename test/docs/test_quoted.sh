# figures that README and docs/ quote against the stored runs: test/docs/quoted.py
#     sh test/docs/test_quoted.sh
. test/ok.sh
need_python 23 test_quoted
scratch
(cd docs/results && sha256sum -c --quiet sums.txt) > "$dir/out" 2>&1; ok $? "$(head -n 3 "$dir/out")"
"$PYTHON" test/docs/quoted.py > "$dir/out"; ok $? "$(grep -v passed "$dir/out" | head -n 20)"
# and the check itself: one digit of each kind of place, in a copy
mkdir -p "$dir/copy"; cp -r README.md metrics.cuh docs test scripts dev cuda after "$dir/copy"; cd "$dir/copy" || exit 1
spoilt() { # file, a figure in it, another
    grep -qF -- "$2" "$1"; ok $? "$1 has no $2"
    cp "$1" "$dir/was"
    awk -v a="$2" -v b="$3" '!done && (i = index($0, a)) { $0 = substr($0, 1, i - 1) b substr($0, i + length(a)); done = 1 } 1' \
        "$dir/was" > "$1"
    ! "$PYTHON" test/docs/quoted.py > "$dir/out" && grep -q "^FAIL $1" "$dir/out"; ok $? "$1: $3 in place of $2 was not noticed"
    cp "$dir/was" "$1"
}
spoilt docs/sinks.md "Sink_1 100, 99.5 and 100%" "Sink_1 100, 99.5 and 99%"
spoilt docs/findings/smollm2-cut.md "27.0 26.4 26.9" "27.0 26.4 27.9"
spoilt docs/findings/first-token-changes.md "| -0.023 (-0.037 to -0.009) |" "| -0.023 (-0.037 to -0.008) |"
spoilt docs/findings/first-token-changes.md "| 4.4 0.7 1.1 |" "| 0.0 8.3 0.0 |"              # raw weights
spoilt docs/results/first-token.md "| mark |" "| onset |"
spoilt README.md "3.105" "3.106"                             # the table of the demo
spoilt docs/gpu.md "635 thousand" "645 thousand"             # by the list of reasons
spoilt docs/findings/interventions.md "66.7 (50.5-82.0)" "66.8 (50.5-82.0)"
spoilt docs/findings/text.md "| 3.168 | 0.30 |" "| 3.168 | 0.31 |"    # how it forms
spoilt docs/results/text.md "88.3 (70.5-99.5)" "88.4 (70.5-99.5)"
# and digits at random, of pages and of stored numbers
"$PYTHON" test/docs/spoil.py 10 10 $$ > "$dir/out"; ok $? "seed $$: $(grep FAIL "$dir/out" | head -n 3)"
finish
