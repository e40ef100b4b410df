# the rules that the source keeps, and that a file which breaks one is noticed: dev/size.py; what only
# developers compile does compile
#     sh test/program/test_size.sh
. test/ok.sh

# ---- the lists of planted bugs: one that changes nothing tests nothing
tab=$(printf '\t')
exists() { # a test, as test/run.sh names it
    case $1 in
    model*/* | analytic) ;;
    asan_*) [ -f "$(echo test/*/test_"${1#asan_}".cpp)" ] ;;
    *) ls test/*/"$1".cpp test/*/"$1".sh 2> /dev/null | grep -q . ;;
    esac
}
while IFS=$tab read -r file change t; do
    case $file in '#'* | '') continue ;; esac
    [ "$t" = "$last" ] || exists "$t" && ! sed -E "$change" "$file" | cmp -s - "$file"
    ok $? "dev/mutants.txt: no such test, or the row changes nothing: $file $change $t"
    last=$t
done < dev/mutants.txt
[ $passed -gt 300 ]; ok $? "$passed rows of dev/mutants.txt were asked"
# FILE|text|its replacement|kind, where \| is a | and \n a line's end
dead=$(awk '{ gsub(/\\\|/, "\001"); split($0, f, "|"); for (i in f) { gsub("\001", "|", f[i]); gsub(/\\n/, "\n", f[i]) }
            if (!(f[1] in text)) { while ((getline line < f[1]) > 0) { text[f[1]] = text[f[1]] line "\n" } }
            if (!index(text[f[1]], f[2]) || f[2] == f[3]) { print "row " NR ": " $0; dead++ } }
          END { exit (dead || NR < 100) }' dev/emulator/mutants.txt)
ok $? "dev/emulator/mutants.txt: $dead"

# ---- what no other test compiles or runs
for source in dev/bench/*.cpp dev/bench/*.cu test/fuzz/*.cpp; do
    said=$(${CXX:-g++} -std=c++17 -fsyntax-only -w -march=native -fopenmp -x c++ "$source" 2>&1)
    ok $? "$source: $(echo "$said" | grep error | head -n 2)"
done
for script in $(find dev scripts test -name '*.sh'); do
    case $(head -n 1 "$script") in *bash) bash -n "$script" ;; *) sh -n "$script" ;; esac
    ok $? "$script"
done

rules=$(python3 dev/size.py --test); status=$?
echo "$rules" | grep -v ' passed, '
counts=${rules##*
}
passed=$((passed + ${counts%% passed*}))
[ $status -eq 0 ] || failed=$((failed + 1))
finish
