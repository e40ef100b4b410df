#!/bin/sh
# Builds the program and its quick tests for ARM64 with a cross compiler and runs them under
# qemu-user, in a copy of the tree. Tests that start the program or fork do not run there.
# Needs the packages g++-aarch64-linux-gnu and qemu-user.
#     sh dev/arm64.sh [TEST..]
CDPATH= cd "$(dirname "$0")/.." || exit 1
. test/ok.sh
. test/tree.sh
command -v aarch64-linux-gnu-g++ qemu-aarch64 > /dev/null || {
    echo "error: wanted aarch64-linux-gnu-g++ and qemu-aarch64" >&2
    echo "---> HINT: apt-get install g++-aarch64-linux-gnu qemu-user" >&2
    exit 2
}
tests=${*:-test_ops test_elementary test_metrics test_checkpoint}
copy=build/arm64
rm -rf $copy; mkdir -p $copy/dev/golden
copy_sources $copy
cp -r test scripts $copy
cp dev/golden/cases.tsv $copy/dev/golden
cd $copy || exit 1

export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu OMP_WAIT_POLICY=passive
build() { make -s JOBS=2 -j2 CXX=aarch64-linux-gnu-g++ BACKEND=cpu "$@" > out 2>&1; }
for t in $tests; do
    build "build/test/$t"; ok $? "$t does not build: $(head -n 5 out)"
    last=$(qemu-aarch64 "build/test/$t" 2>&1 | tail -n 1)
    echo "$t: $last"
    case $last in *" passed, 0 failed") ok 0 ;; *) bad "$t: $last" ;; esac
done

build binary; ok $? "the program does not build: $(head -n 5 out)"
qemu-aarch64 build/cpu/train_sink check > out 2>&1; ok $? "check: $(tail -n 3 out)"
tail -n 1 out
qemu-aarch64 build/cpu/train_sink -d bb -n 20 -b 4 -t 16 --layers 1 --width 16 --ffn-width 32 -o run > out 2>&1
ok $? "20 steps: $(tail -n 3 out)"
qemu-aarch64 build/cpu/train_sink probe run -d bb > out 2>&1; ok $? "probe: $(tail -n 3 out)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
