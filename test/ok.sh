# test/ok.sh -- how the test scripts count: it is read by them, in the root of the repository
passed=0 failed=0
# the program that most of them test
program=$PWD/build/cpu/train_sink
ok() { # [status], what was wrong if it is not 0
    [ "${1:-0}" -ne 0 ] || { passed=$((passed + 1)); return 0; }
    failed=$((failed + 1))
    shift
    echo "FAIL $*"
    # one failed check is enough: dev/mutants.sh
    [ -z "${CHECK_FIRST:-}" ] || { finish; exit 1; }
}
bad() { ok 1 "$@"; }
# the last line of a test
finish() { echo "$passed passed, $failed failed"; [ $failed -eq 0 ]; }
# [how many checks, and why]: ends a test that can make none of its checks here
skip_all() { echo "skipped: $1"; finish; exit 0; }
# makes a directory $dir, which goes when the test ends, and in it $said, the file of what is said
scratch() { dir=$(mktemp -d) said=$dir/out; trap 'rm -rf "$dir"' EXIT; }

# [how many checks], [whose]: sets $PYTHON, or skips them all where there is none
need_python() {
    PYTHON=${PYTHON:-python3}
    export PYTHONDONTWRITEBYTECODE=1
    command -v "$PYTHON" > /dev/null 2>&1 && return
    skip_all "$1 checks of $2 (no python3)"
}

# Checks of commands, which leave what is said in the file $said
check() { # [what] [command..]: it ends well
    what=$1; shift
    "$@" > "$said" 2>&1; ok $? "$what: $(tail -n 5 "$said")"
}
works() { # [command..]: it ends well
    "$@" > "$said" 2>&1; ok $? "$*: $(tail -n 3 "$said")"
}
refused() { # [words of the error] [command..]: it ends with status 2, or $status, one line of error and one of hint
    want=$1; shift
    "$@" > "$said.out" 2> "$said"; code=$?
    [ $code -eq ${status:-2} ] && [ "$(wc -l < "$said")" -eq 2 ] && grep -q "^error: .*$want" "$said" && grep -q '^---> HINT: ..' "$said"
    ok $? "$*: exit $code, wanted '$want': $(cat "$said")"
}
# runs Python with the modules of scripts/
python() { PYTHONPATH=scripts:scripts/lib${PYTHONPATH:+:$PYTHONPATH} ${PYTHON:-python3} "$@"; }
