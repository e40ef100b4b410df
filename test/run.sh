# runs every test program and script, AT_ONCE at a time (or JOBS, without it) and in the order given,
# prints one line for each as it ends, and at the end the sum of their `N passed, M failed`
#     sh test/run.sh [test_data test_make model/ATTN=sigmoid ...]        only these
#     sh test/run.sh one test_data                                       one of them, as the above starts it
# One that takes longer than TEST_SECONDS, if that is set, is ended, and has failed
# `make test ATTN=x` must not leak into makes of the tests
unset MAKEFLAGS MAKELEVEL MFLAGS ATTN BIAS PE NORM FFN COMBINE PRECISION BACKEND
# programs here are short, and machines busy
export OMP_WAIT_POLICY=passive
# a run syncs every file that it writes: in memory, where there is room and programs may be started
shm=/dev/shm/train_sink.$$
if [ -z "$TMPDIR" ] && [ "$(df -Pm /dev/shm 2> /dev/null | awk 'END { print ($4 > 4000) }')" = 1 ] &&
    mkdir $shm 2> /dev/null && cp /bin/true $shm && $shm/true; then
    export TMPDIR=$shm
fi
trap 'rm -rf $shm' EXIT; trap 'exit 130' INT TERM
log=build/test/log
run() { # name command...
    name=$1; shift
    start=$(date +%s)
    "$@" > $log/$name 2>&1
    status=$?
    if [ -n "$TEST_SECONDS" ] && [ $(($(date +%s) - start)) -ge "$TEST_SECONDS" ]; then
        echo "$name was ended after $TEST_SECONDS s" >> $log/$name
    fi
    last=$(tail -n 1 $log/$name)
    case "$last" in
        [0-9]*" passed, "[0-9]*" failed") ;;
        *) last="0 passed, 1 failed"; echo "$name ended without a count, exit status $status" \
            >> $log/$name; status=1 ;;
    esac
    p=${last%% passed*}; f=${last#* passed, }; f=${f%% failed*}
    [ $status -ne 0 ] && [ $f -eq 0 ] && f=1
    s=$(sed -n 's/^skipped: \([0-9]*\).*/\1/p' $log/$name | head -n 1)
    echo "$p $f ${s:-0}" > $log/$name.count
    {
        [ -z "$s" ] || grep '^skipped: ' $log/$name
        [ "$f" -eq 0 ] || grep -v " passed, " $log/$name | head -n 20
        printf '%-24s %s (%ds)\n' "$name" "$last" $(($(date +%s) - start))
    } > $log/$name.report
    cat $log/$name.report                                 # at once: others print too
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
        out=$(OMP_NUM_THREADS=1 $binary build/golden/*.safetensors 2>&1)
        last=$(echo "$out" | tail -n 1)
        case "$last" in [0-9]*" passed, 0 failed") ;; *) echo "$binary:"; echo "$out" | head -n 8 ;; esac
        p=${last%% passed*}; f=${last#* passed, }; f=${f%% failed*}
        case "$p$f" in *[!0-9]*|'') p=0; f=1 ;; esac
        total=$((total + p)); bad=$((bad + f))
    done
    echo "$total passed, $bad failed"
    [ $bad -eq 0 ]
}
if [ "$1" = one ]; then
    run $(echo $2 | tr / _) ${TEST_SECONDS:+timeout -k 10 $TEST_SECONDS} sh test/run.sh alone $2
    exit 0
fi
if [ "$1" = alone ]; then                                 # with neither a limit nor a line of its own
    case $2 in
        model*/*) model build/test/$2 ;;
        analytic) analytic ;;
        *) script=$(ls test/*/$2.sh 2> /dev/null)
           if [ -n "$script" ]; then sh $script; else build/test/$2; fi ;;
    esac
    exit
fi
rm -rf $log; mkdir -p $log
if [ $# -eq 0 ]; then
    set -- $(ls -d build/test/test_* build/test/asan_* build/test/model/* build/test/model-*/* 2> /dev/null | sed 's|build/test/||') \
        analytic $(ls test/*/test_*.sh | sed 's|.*/||; s|\.sh$||')
fi
printf '%s\n' "$@" | xargs -P "${AT_ONCE:-${JOBS:-$(nproc)}}" -n 1 sh test/run.sh one
# what was skipped once more, together: which, how many checks, and why
for report in $log/*.report; do
    name=$(basename "$report" .report)
    sed -n "s/^skipped: /skipped in $name: /p" "$report"
done
# and what failed, once more: the start of a long output may be cut off where it is kept
for report in $(cd $log && awk '$2 > 0 { sub(/count$/, "report", FILENAME); print FILENAME }' *.count); do
    sed "s/^/failed: /" "$log/$report"
done
cat $log/*.count | awk -v all=$# '{ passed += $1; failed += $2; skipped += $3 }
    END {
        failed += all - NR                                # one that left no count
        if (skipped) { print skipped " skipped" }
        print passed + 0 " passed, " failed + 0 " failed"
        exit failed > 0 || passed == 0
    }'
