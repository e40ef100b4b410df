# dev/size.sh -- how large the book and its rooms are, against their budgets; fails above one.
# `make size` runs it
cd "$(dirname "$0")/.." || exit 1
over=0
budget() { # what, lines or functions there are, most
    mark=; [ "$2" -le "$3" ] || { mark="  over by $(($2 - $3))"; over=$((over + 1)); }
    printf '%-44s %6d of %5d%s\n' "$1" "$2" "$3" "$mark"
}
rooms=$(ls commands/*.h commands/*.cpp cpu/*.h cpu/*.cpp cuda/*.cuh dist/*.h models/*.h models/*.cpp text/*.h text/*.cpp)
lines() { cat "$@" | wc -l; }
for f in *.cu *.cuh *.h $rooms; do printf '%-44s %6d\n' "$f" "$(lines "$f")"; done
echo
budget train_sink.cu "$(lines train_sink.cu)" 900
budget attention_variants.cuh "$(lines attention_variants.cuh)" 350
budget reference.h "$(lines reference.h)" 450
budget "the book: all files of the root" "$(lines ./*.cu ./*.cuh ./*.h)" 4500
# code lines: neither a comment nor a row of a table (which ends in a backslash, begins with X_,
# or is an #error's text)
long_lines() {
    awk 'FNR == 1 { block = 0 } /^\/\*/ { block = 1 }
         length > 100 && !block && !/^ *(\/\/|X_[A-Z]+\(|X\(|LAYER\(|"build through)/ && !/\\$/ { print FILENAME ":" FNR ": " length }
         /\*\// { block = 0 }' ./*.cu ./*.cuh ./*.h $rooms
}
budget "code lines over 100 columns" "$(long_lines | wc -l)" 0
long_lines
awk 'FNR == 1 { name = "" } /^[a-z].*\(/ && !/[;}]$/ { name = $0; start = FNR }
     /^}/ && name { if (FNR - start >= 80) { print FNR - start + 1 " lines: " FILENAME " " substr(name, 1, 70) } name = "" }' \
    ./*.cu ./*.cuh ./*.h $rooms | sort -rn > /tmp/size.$$
budget "functions over 80 lines" "$(wc -l < /tmp/size.$$)" 0
cat /tmp/size.$$; rm -f /tmp/size.$$
echo "$over budgets are passed"
[ $over -eq 0 ]
