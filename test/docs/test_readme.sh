# the README says what is so: every command in its ```sh blocks runs,
# in a copy of the tree and with few steps; every flag, switch value and file that it names exists.
# A command in a block "sh parsed" is only parsed (it needs data, or a run's name). The blocks of docs/
# too; those that test/docs/docs.py lists are tested elsewhere.
. test/ok.sh
. test/tree.sh
copy=build/test/readme
rm -rf $copy; mkdir -p $copy
for name in *; do
    case $name in build|runs|data|train_sink) ;; *) cp -rp "$name" $copy ;; esac
done
copy_objects $copy
cd $copy || exit 1
export JOBS=1 OMP_NUM_THREADS=2

awk '/^```sh$/ { on = 1; next } /^```sh parsed$/ { on = 2; next } /^```/ { on = 0 } on && NF && !/^#/ { print on, $0 }' README.md docs/*.md docs/findings/*.md | sed -e ':a' -e '/\\$/N; s/ *\\\n *[12] */ /; ta' > blocks.txt
[ -s blocks.txt ]; ok $? "README.md has no sh blocks"
said=err
works make -s train_sink
parse() { # a command line without its program: are these flags of ./train_sink?
    words=$(echo "$1" | sed 's/^[^ ]*train_sink//')
    check "$1" eval "./train_sink $words --help"
}
script() { # a command line of scripts/: is the program there, and are its words and flags in it?
    program=${1%% *}; first=$(echo "$1" | cut -s -d ' ' -f 2)
    [ -x "$program" ] || [ -f "$program" ]; ok $? "$1: no $program"
    case "$first" in ''|-*|*/*|*.*|*=*|table*|figure*) ;; *) grep -q "$first" "$program" scripts/experiments.tsv; ok $? "$1: $program knows no $first" ;; esac
    for flag in $(echo "$1" | sed 's/ -- .*//' | grep -o -- ' --[a-z-]*'); do
        grep -q -- "$flag" "$program" scripts/lib/jobs.py scripts/lib/runlog.py scripts/plot.py || ./train_sink train --help | grep -q -- "$flag"
        ok $? "$1: $program has no $flag"
    done
}
while read -r kind line; do
    command=$(echo "$line" | sed 's/  *#.*//')
    if [ "$kind" = 2 ]; then
        case "$command" in
            ./train_sink*) parse "$command" ;;
            make\ *) check "$command" make -n ${command#make } ;;
            scripts/*|python3\ scripts/*) script "${command#python3 }" ;;
        esac
        continue
    fi
    case "$command" in
        # minutes each, or this very test
        "make test"|"make demo"|"make demo-bb"|"make bench"|"make mutants"|"make experiments")
            check "$command" make -n ${command#make } ;;
        # test_reproduce.sh trains; here the lines
        scripts/reproduce*)
            if ! command -v python3 > /dev/null; then echo "skipped: 1 ($command: no python3)"; continue; fi
            case "$command" in *\ list) ;; *) command="$command --dry-run" ;; esac
            check "$command" $command ;;
        scripts/report.py*)
            if ! command -v python3 > /dev/null; then echo "skipped: 1 ($command: no python3)"; continue; fi
            check "$command" $command ;;
        *train_sink\ *--*|*train_sink\ *-[a-z]*|./train_sink*)
            few=$(echo "$command" | sed -E 's/(-n|--steps)[ =]+[0-9]+/-n 2/g')
            case "$few" in "./train_sink -"*) echo "$few" | grep -q -- "-n 2" || few="$few -n 2" ;; esac # no number of steps: the default is too many
            check "$few" timeout 100 sh -c "$few" ;;
        *)  check "$command" timeout 100 sh -c "$command" ;;
    esac
done < blocks.txt

# flags
make -s train_sink > /dev/null 2>&1
{ for command in train probe eval generate score tokenize bench; do ./train_sink $command --help; done; grep -oh '"--[a-z-]*"' scripts/*.py scripts/reproduce | tr -d '"'; } > help
grep -v '^pip ' README.md | grep -o -- '--[a-z][a-z0-9-]*' | sort -u > flags
while read -r flag; do grep -q -- "$flag\b" help; ok $? "$flag is not a flag of ./train_sink or of scripts/"; done < flags
# the files that docs/tour.md lists, and every file of the root is in the list
for file in $(sed -n 's/^    \([a-zA-Z_]*\.\(cu\|cuh\|h\)\)  .*/\1/p' docs/tour.md); do
    [ -f "$file" ]
    ok $? "docs/tour.md lists $file, which is not there"
done
for file in *.cu *.cuh *.h $(make -s folders); do
    grep -q "^    $file" docs/tour.md
    ok $? "docs/tour.md does not list $file"
done
cd ../../.. && rm -rf $copy
finish
