# test_sanitized.sh -- the whole program under the address and undefined-behavior sanitizers, with the
# library's own assertions: the tests that run it with files which others wrote
#     sh test/program/test_sanitized.sh
. test/ok.sh
. test/tree.sh
SANITIZE=$(make -s asan_flags)
tests="test_score test_sft test_export"
copy=build/test/sanitized
rm -rf $copy; mkdir -p $copy
copy_sources $copy
# what no switch touches is there already, for the tests that are built with the sanitizers
mkdir -p build/once $copy/build; ln -s "$PWD/build/once" $copy/build/once
for folder in test scripts demo dev; do ln -s "$PWD/$folder" $copy/$folder; done
names=
for t in $tests; do names="$names build/test/$t"; done
make -s $names || bad "the tests do not build"
(cd $copy && make -s -j"${JOBS:-$(nproc)}" binary BACKEND=cpu UNITS=few OPTIMIZE="$SANITIZE")
ok $? "make OPTIMIZE='$SANITIZE' does not link"
# a report ends the program with this status, which no test wants
export ASAN_OPTIONS=exitcode=99:detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
for t in $tests; do
    said=$(cd $copy && "../$t" 2>&1)
    ok $? "$t: $said"
done
finish
