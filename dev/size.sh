# dev/size.sh -- how large the book and its rooms are, against their budgets; fails above one.
# `make size` runs it
cd "$(dirname "$0")/.." || exit 1
over=0
budget() { # what, lines or functions there are, most
    mark=; [ "$2" -le "$3" ] || { mark="  over by $(($2 - $3))"; over=$((over + 1)); }
    printf '%-44s %6d of %5d%s\n' "$1" "$2" "$3" "$mark"
}
rooms=$(ls commands/*.h commands/*.cpp shell/*.cpp cpu/*.h cpu/*.cpp cuda/*.cuh dist/*.h \
           models/*.h models/*.cpp text/*.h text/*.cpp)
# what is around the book: programs in Python, shell and C++, the emulator, the tests
around="Makefile scripts/reproduce scripts/sweep scripts/report.html
        $(ls scripts/*.py scripts/*.sh scripts/slurm/* dev/*.py dev/*.sh dev/*.cpp \
             dev/golden/*.py dev/emulator/*.* dev/ptx/*.cpp dev/ptx/*.h dev/ptx/*.sh test/*/*.cpp test/*.h test/*/*.cu)"
lines() { cat "$@" | wc -l; }
for f in *.cu *.cuh *.h $rooms; do printf '%-44s %6d\n' "$f" "$(lines "$f")"; done
echo
budget train_sink.cu "$(lines train_sink.cu)" 900
budget attention_variants.cuh "$(lines attention_variants.cuh)" 350
budget reference.h "$(lines reference.h)" 700
budget "the book: all files of the root" "$(lines ./*.cu ./*.cuh ./*.h)" 4500
# Lines over 100 columns, by characters. Held to it is every line, comments too, but
#   rows of a table: X-macros and their head, the text of an #error, macros of the book that end in
#                    a backslash, columns between tabs, FILE|text|new text of emulator/mutants.sh
# Not listed yet: test/*.sh.
long_lines() {
    LC_ALL=C awk 'FNR == 1 { block = 0 }
         /^\/\*/ { block = 1 }
         {
             line = $0
             gsub(/[\200-\277]/, "", line)
             row = line ~ /^ *(X_[A-Z]+\(|X\(|LAYER\(|\/\/ +\(type,|"build through)|[^\t]\t/
             row = row || (FILENAME !~ /^(test|dev|scripts)|Makefile/ && line ~ /\\$/)
             row = row || (FILENAME ~ /emulator\/mutants.sh/ && line ~ /^[a-z.\/_]+\|/)
             if (length(line) > 100 && !row) {
                 print FILENAME ":" FNR ": " length(line)
             }
         }
         /\*\// { block = 0 }' ./*.cu ./*.cuh ./*.h $rooms $around
}
budget "lines over 100 columns" "$(long_lines | wc -l)" 0
long_lines
# attention_dv_mma_kernel is the longer one: what would be its parts share its registers
awk 'FNR == 1 { name = "" } /^[A-Za-z_].*\(/ && !/[;}]$/ { name = $0; start = FNR }
     /^}/ && name {
         long = FNR - start + 1
         if (long > 80) { print long " lines: " FILENAME ":" start " " substr(name, 1, 60) }
         name = ""
     }' ./*.cu ./*.cuh ./*.h $rooms | sort -rn > /tmp/size.$$
budget "functions over 80 lines" "$(wc -l < /tmp/size.$$)" 1
cat /tmp/size.$$; rm -f /tmp/size.$$
echo "$over budgets are passed"
[ $over -eq 0 ]
