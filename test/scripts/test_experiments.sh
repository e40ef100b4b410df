# scripts/experiments.tsv: every line has its eight columns, a switch set that the Makefile takes
# and flags that the binary parses
unset MAKEFLAGS MAKELEVEL MFLAGS
. test/ok.sh
tab=$(printf '\t')
table=scripts/experiments.tsv
make -s binary > /dev/null || { echo "FAIL make binary"; echo "0 passed, 1 failed"; exit 1; }
binary=build/cpu/train_sink
grep -v '^#' $table | sed 1d > build/experiments.rows
[ "$(wc -l < build/experiments.rows)" -ge 100 ] && ok || bad "$table has too few rows"
[ -z "$(cut -f 1 build/experiments.rows | sort | uniq -d)" ] && ok || bad "an id occurs twice"
while IFS="$tab" read -r id where switches run sink star loss note rest; do
    case "$where" in Table\ [0-9]*|Figure\ [0-9]*|Section\ [0-9]*|"Beyond the paper"*) ok ;; *) bad "$id: '$where' is no table, figure, section or beyond them" ;; esac
    [ -n "$note" ] && [ -z "$rest" ] && ok || bad "$id: wanted eight columns"
    for number in "$star" "$loss"; do
        case "$number" in -|"not given"|failed) ok ;; *[!0-9.]*|'') bad "$id: '$number' is no number" ;; *) ok ;; esac
    done
    words=$(echo "$run" | sed 's/CHECKPOINT[^ ]*/x/')
    message=$($binary $words --help 2>&1 > /dev/null) && ok || bad "$id: $message"
done < build/experiments.rows
for switches in $(cut -f 3 build/experiments.rows | sort -u | tr ' ' '+'); do
    [ "$switches" = - ] && switches=
    message=$(make -s check $(echo "$switches" | tr '+' ' ') 2>&1) && ok ||
        bad "make $switches: $message"
done
make -s check ATTN=sofmax > /dev/null 2>&1 && bad "make check takes anything" || ok
finish
