# a program on a processor that lacks an instruction it was compiled with: one error, and no signal
. test/ok.sh
if [ "$(uname -m)" != x86_64 ] || [ ! -x "$program" ]; then
    skip_all "1 (no $program for x86-64)"
fi
out=$("$program" --help 2>&1); code=$?
[ $code -eq 0 ] && echo "$out" | grep -q '^usage:'
ok $? "where it was built: exit $code"
# the features of this build, as the compiler says: ARCH is the Makefile's default
macros=$(${CXX:-g++} -march=native -dM -E -x c++ /dev/null | cut -d ' ' -f 2)
sed -n 's/^ *X("\([a-z0-9_.]*\)", *\(__[A-Z0-9_]*__\),.*/\1 \2/p' cpu/processor.h > build/test/features
[ "$(wc -l < build/test/features)" -gt 25 ]; ok $? "the table of features is read"
while read -r name macro; do
    out=$(TRAIN_SINK_WITHOUT=$name "$program" --help 2>&1); code=$?
    if echo "$macros" | grep -qx "$macro"; then
        [ $code -eq 1 ] && [ "$(echo "$out" | wc -l)" -eq 2 ] &&
            echo "$out" | grep -q "^error: built for a processor with .* lacks: $name$" &&
            echo "$out" | grep -q '^---> HINT: build it here: make train_sink'
    else
        [ $code -eq 0 ] && echo "$out" | grep -q '^usage:'
    fi
    ok $? "without $name: exit $code, $(echo "$out" | head -n 2)"
done < build/test/features
# nothing of the check itself is made with those instructions
object=$(ls -t build/once/*/cpu/processor.o 2> /dev/null | head -n 1)
if command -v objdump > /dev/null; then
    ! objdump -d "$object" | grep -q '%[yz]mm\|\<v[a-z]*ps\>\|andn\|[a-z]*shlx'
    ok $? "$object has instructions that not every x86-64 has"
else
    echo "skipped: 1 (no objdump)"
fi
if command -v qemu-x86_64 > /dev/null; then
    for cpu in Haswell Nehalem; do
        out=$(OMP_WAIT_POLICY=passive qemu-x86_64 -cpu $cpu "$program" --help 2>&1); code=$?
        case "$macros-$cpu" in
            *__AVX512F__*|*__AVX2__*Nehalem) [ $code -eq 1 ] && echo "$out" | grep -q '^error: built for a processor' ;;
            *) [ $code -eq 0 ] || [ $code -eq 1 ] ;;
        esac
        ok $? "on a $cpu: exit $code, $(echo "$out" | grep -v ^qemu | head -n 2)"
    done
else
    echo "skipped: 2 (no qemu-x86_64: apt-get install qemu-user)"
fi
finish
