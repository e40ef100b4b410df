# what the tests of runs compare, in the directory of the runs
#     . test/runs.sh
hash() { grep -o '"params_hash":"[0-9a-f]*"' "$1/log.jsonl" | tail -n 1; }
# the log without the clock, and without what differs in the flags of two runs
events() {
    sed 's/,"ms":[^,}]*//; s/,"time":"[^"]*"//; s/"flags":{[^}]*},//; /"event":"resume"/d' \
        "$1/log.jsonl"
}
same() { # run, whole run, what
    [ -n "$(hash "$1")" ] && [ "$(hash "$1")" = "$(hash "$2")" ]
    ok $? "$3: other weights than in a run without a break"
    events "$1" > a.txt; events "$2" > b.txt
    cmp -s a.txt b.txt; ok $? "$3: another log: $(diff a.txt b.txt | head -n 2 | cut -c 1-100)"
}
