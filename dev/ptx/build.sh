#!/bin/sh
# dev/ptx/build.sh -- compiles the interpreter into build/ptx/*.o where its sources are newer
CDPATH= cd "$(dirname "$0")/../.." || exit 1
CXX=${CXX:-g++}
mkdir -p build/ptx
for source in dev/ptx/*.cpp; do
    object=build/ptx/$(basename "$source" .cpp).o
    [ -f "$object" ] && [ -z "$(find dev/ptx -name '*.h' -newer "$object")" ] &&
        [ ! "$source" -nt "$object" ] && continue
    $CXX -std=c++20 -O2 -march=native -ffp-contract=off -fno-strict-aliasing -Wall -Wextra \
         -c "$source" -o "$object" || exit 1
done
