#!/bin/sh
# libfuzzer.sh NAME [OPTIONS] -- builds test/fuzz/fuzz_NAME.cpp with clang and libFuzzer, and runs it
#
#     dev/fuzz/libfuzzer.sh gguf -max_total_time=600 -max_len=8192 CORPUS test/vectors/gguf
#
# what reads files is compiled with the sanitizers, once for all six; what they need of the other
# folders comes from the program's own build.
set -eu
CDPATH= cd "$(dirname "$0")/../.."
[ $# -ge 1 ] && [ -f "test/fuzz/fuzz_$1.cpp" ] ||
    { echo "error: ${1:-nothing}: wanted one of" $(ls test/fuzz | sed 's/fuzz_//; s/\.cpp//') >&2; exit 2; }
name=$1; shift
: "${CXX:=clang++}"
COMPILE="$CXX -std=c++17 -g1 -O1 -fsanitize=fuzzer,address,undefined"
DIR=build/fuzz
mkdir -p $DIR
make -s binary BACKEND=cpu
if [ ! -f $DIR/complete ] || [ -n "$(find . -path ./build -prune -o -name '*.[ch]*' -newer $DIR/complete -print -quit)" ]; then
    for source in $(ls base/*.cpp text/*.cpp core/*.cpp open/*.cpp | grep -vE 'tokenize_command|^core/(checkpoint|measure|model|optional|saves)|^open/(experts|mamba|delta|open_weights|export_c)'); do
        echo "-c $source -o $DIR/$(basename "$source" .cpp).o"
    done | xargs -P "$(nproc)" -L 1 $COMPILE
    touch $DIR/complete
fi
# shellcheck disable=SC2046,SC2086  # $COMPILE and the objects are several words
$COMPILE "test/fuzz/fuzz_$name.cpp" $DIR/*.o build/cpu/variant.o \
    $(make -s once BACKEND=cpu) \
    -lgomp -o "$DIR/fuzz_$name"
exec "$DIR/fuzz_$name" "$@"
