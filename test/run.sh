# runs every test program and script, prints one line for each, and at the end the sum of their `N passed, M failed`
#     sh test/run.sh [test_data test_make model/ATTN=sigmoid ...]        only these
unset MAKEFLAGS MAKELEVEL MFLAGS ATTN BIAS PE NORM FFN COMBINE PRECISION BACKEND # `make test ATTN=x` must not leak into makes of the tests
export OMP_WAIT_POLICY=passive                            # programs here are short, and machines busy
log=build/test/log
rm -rf $log; mkdir -p $log
passed=0; failed=0; skipped=0
run() { # name command...
    name=$1; shift
    start=$(date +%s)
    "$@" > $log/$name 2>&1
    status=$?
    last=$(tail -n 1 $log/$name)
    case "$last" in
        [0-9]*" passed, "[0-9]*" failed") ;;
        *) last="0 passed, 1 failed"; echo "$name ended without a count, exit status $status" >> $log/$name; status=1 ;;
    esac
    p=${last%% passed*}; f=${last#* passed, }; f=${f%% failed*}
    [ $status -ne 0 ] && [ $f -eq 0 ] && f=1
    passed=$((passed + p)); failed=$((failed + f))
    s=$(sed -n 's/^skipped: \([0-9]*\).*/\1/p' $log/$name | head -n 1); skipped=$((skipped + ${s:-0}))
    [ -z "$s" ] || grep '^skipped: ' $log/$name
    [ "$f" -eq 0 ] || grep -v " passed, " $log/$name | head -n 20
    printf '%-24s %s (%ds)\n' "$name" "$last" $(($(date +%s) - start))
}
analytic() { # the builds of test_analytic, one for each PE
    bad=0; total=0
    for binary in build/test/analytic/*; do
        out=$($binary 2>&1) || { bad=$((bad + 1)); echo "$(basename $binary):"; echo "$out"; }
        last=$(echo "$out" | tail -n 1); p=${last%% passed*}
        case "$p" in *[!0-9]*|'') ;; *) total=$((total + p)) ;; esac
    done
    echo "$total passed, $bad failed"
    [ $bad -eq 0 ]
}
model() { # builds of test_model, each on all fixtures: it takes those of its build
    total=0; bad=0
    for binary in "$@"; do
        out=$(OMP_NUM_THREADS=1 $binary test/golden/*.safetensors 2>&1); last=$(echo "$out" | tail -n 1)
        case "$last" in [0-9]*" passed, 0 failed") ;; *) echo "$binary:"; echo "$out" | head -n 8 ;; esac
        p=${last%% passed*}; f=${last#* passed, }; f=${f%% failed*}
        case "$p$f" in *[!0-9]*|'') p=0; f=1 ;; esac
        total=$((total + p)); bad=$((bad + f))
    done
    echo "$total passed, $bad failed"
    [ $bad -eq 0 ]
}
if [ $# -gt 0 ]; then
    for t in "$@"; do
        case $t in
            model*/*) run $(echo $t | tr / _) model build/test/$t ;;
            analytic) run analytic analytic ;;
            *) if [ -f test/$t.sh ]; then run $t sh test/$t.sh; else run $t build/test/$t; fi ;;
        esac
    done
else
    for t in build/test/test_* build/test/asan_*; do run $(basename $t) $t; done
    run analytic analytic
    run model model build/test/model/* build/test/model-fast/* build/test/model-double/*
    for t in test/test_*.sh; do run $(basename $t .sh) sh $t; done
fi
[ $skipped -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
