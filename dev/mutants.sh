# One-line bugs, one at a time, in a copy of the tree: does the test that should notice notice?
#     make mutants                    all lines of dev/mutants.txt: FILE <tab> sed -E expression
#                                     <tab> test, as test/run.sh names it
#     sh dev/mutants.sh WORD          only the lines that contain WORD
#     PART=1/2 sh dev/mutants.sh      the first of two shares, each in a tree of its own:
#                                     both can run at once
# A mutant that does not change its file or does not compile is counted as surviving: it tests
# nothing. So is one whose test does not end: on a busy machine that says nothing about the mutant.
unset MAKEFLAGS MAKELEVEL MFLAGS ATTN BIAS PE NORM FFN COMBINE PRECISION BACKEND
export OPTIMIZE=${OPTIMIZE:--O0} UNITS=few OMP_WAIT_POLICY=passive  # compiling takes longer than testing
export CHECK_FIRST=1                                     # one failed check is enough
part=${PART:-1/1}
tree=build/mutants/$(printf %s "${1-all}-${part%/*}" | tr -c A-Za-z0-9_ -); tab=$(printf '\t')
rm -rf $tree; mkdir -p $tree
. test/tree.sh
copy_sources $tree
cp -r README.md demo scripts dev test $tree
cd $tree || exit 1
awk -F "$tab" '!/^#/ && NF && (NF != 3 || $3 == "") {
                   print "dev/mutants.txt:" FNR ": no test is named"; bad = 1 }
               END { exit bad }' dev/mutants.txt || exit 1
grep -v '^#' dev/mutants.txt | grep "$tab" | grep -F -- "${1-}" |
    sort -t "$tab" -k 3,3 -s | awk -v i=${part%/*} -v n=${part#*/} '
        { line[NR] = $0 }
        END { for (k = int(NR * (i - 1) / n) + 1; k <= int(NR * i / n); k++) print line[k] }' > list
# does this test run the program?
program() { grep -qs 'build/cpu/train_sink\|test/runs.sh' test/*/$1.cpp test/*/$1.sh; }
build() { # test
    case $1 in
        model*/*|asan_*) make -s build/test/$1 ;;
        analytic) make -s analytic ;;
        *) ls test/*/$1.sh > /dev/null 2>&1 || make -s build/test/$1 ;;
    esac > out 2>&1 || return 1
    if program $1; then make -s program > out 2>&1; fi
}
caught=0 survived=0
while IFS="$tab" read -r file change t; do
    if [ "$t" != "$tested" ]; then       # a test that fails anyway catches nothing
        tested=$t sound=
        if build $t && timeout 900 sh test/run.sh $t > out 2>&1; then sound=1; else cat out; fi
    fi
    cp $file original
    sed -E -i "$change" $file
    if cmp -s $file original; then how="NO SUCH LINE"
    elif [ -z "$sound" ]; then how="FAILS ANYWAY"
    elif ! build $t; then how="DOES NOT COMPILE"
    else
        timeout 900 sh test/run.sh $t > out 2>&1
        case $? in 0) how=SURVIVED ;; 124) how="TIMED OUT" ;; *) how=caught ;; esac
    fi
    cp original $file                    # newer than what was built from the mutant: make sees it
    if [ "$how" = caught ]; then caught=$((caught + 1)); else survived=$((survived + 1)); fi
    printf '%-17s %-24s %-18s %s\n' "$how" "$file" "$t" "$change"
done < list
echo "$caught caught, $survived survived"
[ $survived = 0 ] && [ $caught != 0 ]
