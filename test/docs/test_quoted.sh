# figures that README and docs/ quote against the stored runs: test/docs/quoted.py
#     sh test/docs/test_quoted.sh
cd "$(dirname "$0")/../.." || exit 1
. test/ok.sh
command -v python3 > /dev/null || { echo "skipped: no python3"; echo "0 passed, 0 failed"; exit; }
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
(cd docs/results && sha256sum -c --quiet sums.txt) > "$dir/out" 2>&1; ok $? "$(head -n 3 "$dir/out")"
python3 test/docs/quoted.py > "$dir/out"; ok $? "$(grep -v passed "$dir/out" | head -n 20)"
# and the check itself: one digit of each kind of place, in a copy
mkdir -p "$dir/copy"; cp -r README.md metrics.cuh docs test scripts "$dir/copy"; cd "$dir/copy" || exit 1
spoilt() { # file, a figure in it, another
    grep -qF -- "$2" "$1"; ok $? "$1 has no $2"
    cp "$1" "$dir/was"
    awk -v a="$2" -v b="$3" '!done && (i = index($0, a)) { $0 = substr($0, 1, i - 1) b substr($0, i + length(a)); done = 1 } 1' \
        "$dir/was" > "$1"
    ! python3 test/docs/quoted.py > "$dir/out" && grep -q "^FAIL $1" "$dir/out"; ok $? "$1: $3 in place of $2 was not noticed"
    cp "$dir/was" "$1"
}
spoilt docs/sinks.md "Sink_1 100, 99.5 and 100%" "Sink_1 100, 99.5 and 99%"
spoilt docs/findings/smollm2.md "4.181 | 77.9" "4.181 | 77.8"
spoilt docs/findings/smollm2-cut.md "5.257 | 20.1" "5.257 | 20.2"
spoilt docs/findings/smollm2-cut.md "27.0 26.4 26.9" "27.0 26.4 27.9"
spoilt docs/findings/smollm2-cut.md "| 58.3 | 16.6 |" "| 58.3 | 16.7 |"
spoilt docs/findings/first-token.md "3.383 | 10.9" "3.383 | 10.8"
spoilt docs/findings/first-token-notebook.md "3.403 3.395 3.412" "3.403 3.395 3.411"
spoilt docs/findings/first-token-notebook.md "+0.077 +- 0.009 | 28.2" "+0.077 +- 0.009 | 28.3"
spoilt docs/findings/first-token-worth.md "costs 2.50 nats" "costs 2.51 nats"
spoilt docs/findings/first-token-worth.md "| 0.022 (0.016 to 0.028) | 0.004 |" "| 0.022 (0.016 to 0.029) | 0.004 |"
spoilt docs/findings/first-token-changes.md "| -0.023 (-0.037 to -0.009) |" "| -0.023 (-0.037 to -0.008) |"
spoilt docs/findings/first-token-changes.md "| text, fixed | 0.0 | 84.2 |" "| text, fixed | 0.0 | 84.3 |"
spoilt docs/findings/first-token-changes.md "| 10 6 11 | 0.53 0.72 0.81 |" "| 10 6 12 | 0.53 0.72 0.81 |"
spoilt docs/findings/first-token-ordinary.md "| 0.9 | 0.28 | 2.1 |" "| 0.9 | 0.29 | 2.1 |"
spoilt docs/findings/first-token-ordinary.md "(1.93 to 2.42)" "(1.93 to 2.43)"
spoilt docs/findings/first-token-ordinary.md "| 2.357 | 3.5 |" "| 2.357 | 3.6 |"
spoilt docs/findings/first-token.md "| 1,000 | 1.28 | 1.2 |" "| 1,000 | 1.28 | 1.3 |"
spoilt README.md "val 3.1361" "val 3.1362"
spoilt README.md "3.105" "3.106"                             # the table of the demo
spoilt README.md "by 0.005 on average" "by 0.004 on average"
spoilt docs/findings/text.md "3.083 (3.073-3.103)" "3.083 (3.073-3.104)"
spoilt docs/findings/text.md "| 3.168 | 0.30 |" "| 3.168 | 0.31 |"    # how it forms
spoilt docs/findings/text.md "(99.7% against 18.2%)" "(99.8% against 18.2%)"
spoilt docs/findings/interventions.md "66.7 (50.5-82.0)" "66.8 (50.5-82.0)"
spoilt docs/results/text.md "88.3 (70.5-99.5)" "88.4 (70.5-99.5)"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
