#!/bin/sh
# what the shell or a batch system has set, and names of the greatest length
#     sh test/program/test_environment.sh
. test/ok.sh
scratch
small="-n 2 -b 4 --seq 16 --width 16 --eval-every 0 --sample 0 --val-seqs 4 --probe-seqs 4 --probe-len 16"

# ARCH, as Sun Grid Engine sets it: one line, and from the command line another
said=$(ARCH=lx-amd64 make -s check 2>&1)
[ $? -ne 0 ] && [ "$(echo "$said" | wc -l)" -eq 1 ] &&
    echo "$said" | grep -q 'ARCH=lx-amd64 is unknown to .*; it comes from the environment: unset ARCH'
ok $? "ARCH of a batch system: $said"
said=$(make -s check ARCH=lx-amd64 2>&1)
[ $? -ne 0 ] && echo "$said" | grep -q 'ARCH=lx-amd64 is unknown' && ! echo "$said" | grep -q environment
ok $? "ARCH that is typed: $said"
ARCH=lx-amd64 make -s help > /dev/null 2>&1; ok $? "make help under it"
ARCH=x86-64 make -s check > "$dir/out" 2>&1 || [ "$(uname -m)" != x86_64 ]; ok $? "ARCH=x86-64: $(cat "$dir/out")"

# stacks of threads
for size in 16k 64k 100; do
    said=$(OMP_NUM_THREADS=4 OMP_STACKSIZE=$size "$program" train $small -o "$dir/stack$size" 2>&1); code=$?
    [ $code -eq 1 ] && [ "$(echo "$said" | grep -c 'OMP_STACKSIZE: threads have [0-9]* KiB, wanted 256 or more')" -eq 1 ]
    ok $? "OMP_STACKSIZE=$size: exit $code, $said"
done
OMP_NUM_THREADS=1 "$program" train $small -o "$dir/one" | grep -q '^device 1 thread;'; ok $? "one thread"
said=$(OMP_NUM_THREADS=4 GOMP_STACKSIZE=16 "$program" train $small -o "$dir/gomp" 2>&1)
echo "$said" | grep -q '^---> HINT: unset GOMP_STACKSIZE$'; ok $? "GOMP_STACKSIZE=16: $said"
for size in 256k 512 8m 1G; do
    said=$(OMP_NUM_THREADS=4 OMP_STACKSIZE=$size "$program" train $small -o "$dir/stack$size" 2>&1)
    ok $? "OMP_STACKSIZE=$size: $said"
done

# CDPATH: no script goes anywhere else, or takes what cd prints for a name
mkdir -p "$dir/other/scripts" "$dir/other/dev" "$dir/other/test/program" "$dir/work/texts"
seq 4000 > "$dir/work/texts/a.txt"
here=$PWD
(cd "$dir/work" && CDPATH="$dir/work:$dir/other" TRAIN_SINK=$program sh "$here/scripts/prepare_text.sh" texts out) \
    > "$dir/out" 2>&1
[ -f "$dir/work/out/train_000000.bin" ]; ok $? "prepare_text.sh under CDPATH: $(cat "$dir/out")"
{ grep -n 'cd "\$(dirname' $(git ls-files 'test/*.sh' 'demo/*.sh')
  grep -n 'cd "\$\|cd \$' $(git ls-files 'scripts/*.sh' 'dev/*.sh'); } |
    grep -v 'CDPATH=\|cd \$copy\|cd \$tree' > "$dir/cd"
[ ! -s "$dir/cd" ]; ok $? "cd that CDPATH misleads: $(cat "$dir/cd")"

# names of 255 bytes: of a text, of what --json writes, of an export
long=$(printf '%0251d' 7)
seq 4000 > "$dir/$long.txt"
said=$(cd "$dir" && "$program" train $small -d "$long.txt" -o run 2>&1); ok $? "a text with a name of 255 bytes: $said"
said=$(cd "$dir" && "$program" train $small -d "$long.txt" -o again 2>&1 && ls data/cache | wc -l)
[ "$(echo "$said" | tail -n 1)" = 1 ]; ok $? "it is cached once: $said"
said=$(cd "$dir" && "$program" probe run --probe-seqs 4 --probe-len 16 --json "0$long.js" 2>&1)
[ -s "$dir/0$long.js" ]; ok $? "--json with a name of 255 bytes: $said"
for turn in first second; do                         # the second takes the place of the first
    said=$(cd "$dir" && "$program" export run --out "0000$long" 2>&1)
    [ -s "$dir/0000$long/model.safetensors" ]; ok $? "an export with a name of 255 bytes, the $turn: $said"
done
[ "$(ls "$dir" | grep -c '\.tmp$\|\.old$')" -eq 0 ]; ok $? "what is left: $(ls "$dir")"
finish
