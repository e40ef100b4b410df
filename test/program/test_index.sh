#!/bin/sh
# test/README.md lists every test, in its folder, and no other; and every room of the sources
#     sh test/program/test_index.sh
. test/ok.sh

# prints what differs between the rows of an index and the tests that there are, as FOLDER/NAME
differences() { # index
    rows=$(mktemp) tests=$(mktemp)
    awk '/^## / { folder = $2 } /^\| `(test|fuzz)_/ { gsub(/`/, "", $2); print folder $2 }' "$1" |
        sort > "$rows"
    ls test/*/test_*.cpp test/*/test_*.cu test/*/test_*.sh test/*/fuzz_*.cpp test/test_* 2> /dev/null |
        sed 's|^test/||; s|\.[a-z]*$||' | sort -u > "$tests"
    diff "$rows" "$tests" | grep '^[<>]'
    rm -f "$rows" "$tests"
}

out=$(differences test/README.md)
[ -z "$out" ]; ok $? "test/README.md (<) and the folders (>) differ: $out"

# the directories of the project: a user's own, of models or results, may be beside them
for room in $(git ls-files 2> /dev/null | sed -n 's|/.*||p' | sort -u | grep -v '^[.]\|^demo$\|^test$'); do
    grep -q "^|.*| .*$room/" test/README.md; ok $? "no test of $room/ stands in test/README.md"
done

# an index that lost a row, and one with a row too many, are noticed
copy=$(mktemp)
grep -v '`test_metrics`' test/README.md > "$copy"
differences "$copy" | grep -q '^> core/test_metrics'; ok $? "a lost row was not noticed"
sed 's/`test_metrics`/`test_nothing`/' test/README.md > "$copy"
differences "$copy" | grep -q '^< core/test_nothing'; ok $? "a row without a test was not noticed"
rm -f "$copy"

finish
