# test/ok.sh -- how the test scripts count: it is read by them, in the root of the repository
passed=0 failed=0
ok() { # [status], what was wrong if it is not 0
    [ "${1:-0}" -ne 0 ] || { passed=$((passed + 1)); return 0; }
    failed=$((failed + 1))
    shift
    echo "FAIL $*"
    # one failed check is enough: dev/mutants.sh
    [ -z "$CHECK_FIRST" ] || { echo "$passed passed, $failed failed"; exit 1; }
}
bad() { ok 1 "$@"; }
