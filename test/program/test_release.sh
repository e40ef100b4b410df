#!/bin/sh
# make release: an archive of a program that runs where there is neither a compiler nor a library. It
# is linked here of the parts that the tests have built, so for this processor; by default it is for
# x86-64-v3, which is only asked for
#     sh test/program/test_release.sh
. test/ok.sh
. test/runs.sh
scratch
if [ "$(uname -m)" != x86_64 ]; then
    skip_all "9 (x86-64 alone)"
fi
small="-n 3 -b 4 --seq 16 --width 16 --eval-every 0 --sample 0 --val-seqs 4 --probe-seqs 4 --probe-len 16"
made=$(make -n release 2> "$dir/err")
echo "$made" | grep -q -e '-march=x86-64-v3' && ! echo "$made" | grep -q -e '-march=native'
ok $? "by default it is for x86-64-v3: $(cat "$dir/err")"
echo "$made" | grep -q 'build/cpu-x86-64-v3/static/train_sink'
ok $? "and has a directory of its own"
archive=$(make -s release ARCH=native 2> "$dir/err" | tail -n 1)
[ -f "$archive" ]; ok $? "make release: $(cat "$dir/err")"
tar -xzf "$archive" -C "$dir"
name=$(basename "$archive" .tar.gz)
[ "$(cd "$dir/$name" && echo *)" = "LICENSE README.md train_sink" ]
ok $? "the archive holds $(tar -tzf "$archive" | tr '\n' ' ')"
[ "$name" = "train_sink-$(sed -n 's/.*VERSION "\(.*\)"/\1/p' base/version.h)-cpu" ]; ok $? "it is called $name"
! readelf -d "$dir/$name/train_sink" 2> /dev/null | grep -q NEEDED; ok $? "it needs a library"
# an empty root: no compiler, no glibc, no /proc, no locale
root=$dir/$name
if [ "$(id -u)" -eq 0 ]; then in_root="chroot $root"; else in_root="unshare -r chroot $root"; fi
$in_root /train_sink --version > "$dir/out" 2>&1
if [ $? -ne 0 ] && ! chroot / true 2> /dev/null && ! unshare -r true 2> /dev/null; then
    echo "skipped: 3 in an empty root (no chroot here)"
else
    grep -q "$(sed -n 's/.*VERSION "\(.*\)"/\1/p' base/version.h)" "$dir/out"
    ok $? "--version in an empty root: $(cat "$dir/out")"
    check "training there" $in_root /train_sink train $small -o /run
    works "$program" train $small -o "$dir/here"
    [ -n "$(hash "$root/run")" ] && [ "$(hash "$root/run")" = "$(hash "$dir/here")" ]
    ok $? "the weights are those of the other program: '$(hash "$root/run")'"
fi
finish
