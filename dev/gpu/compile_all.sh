#!/bin/sh
# dev/gpu/compile_all.sh -- compiles the program's device code with nvcc for many sets of switches
# and for four architectures, and fails where a kernel does not compile or spills registers. No GPU
# needed.
#   usage: dev/gpu/compile_all.sh covering      every value of every switch at least once
#                                           (16 sets; dev/log/cuda.md)
#          dev/gpu/compile_all.sh covering 4    the first four of them
#          dev/gpu/compile_all.sh pairwise      every two values together at least once
#                                           (140 sets; make compile-all)
#          dev/gpu/compile_all.sh list covering|pairwise           only prints the sets
#   NVCC, JOBS, ARCHS="sm_80 sm_86 sm_89 sm_90". Registers of every kernel: build/nvcc/registers.txt
#   PROGRAM=FILE: the first set is README's line, which compiles and links the whole program
# One nvcc per set: sm_80, sm_86 and sm_89 share their front end,
# which takes as long as one of them.
CDPATH= cd "$(dirname "$0")/../.." || exit 1
NVCC=${NVCC:-nvcc} JOBS=${JOBS:-$(nproc)} ARCHS=${ARCHS:-sm_80 sm_86 sm_89 sm_90}
only_list=; [ "$1" = list ] && { only_list=1; shift; }
kind=${1:-covering} first=$2
DIR=build/nvcc
mkdir -p $DIR
export NVCC DIR
# A set starts from a value (covering) or two values together (pairwise) that no set has yet,
# and grows by the value that brings most that is new; never by a conflict.
sets() {
    make -s values | grep -v '^PRECISION\|^BACKEND'
    echo "PRECISION bf16 fp32"
    sed -n 's/^ *X_CONFLICT(ATTN=\([a-z0-9_|]*\) *BIAS=\([a-z0-9_|]*\) *,.*/CONFLICT \1 \2/p' \
        attention_variants.cuh
}
sets | awk -v kind="$kind" '
    $1 == "CONFLICT" {
        A = split($2, attn, "|"); B = split($3, bias, "|")
        for (a = 1; a <= A; a++) {
            for (b = 1; b <= B; b++) { conflict["ATTN=" attn[a], "BIAS=" bias[b]] = 1 }
        }
        next
    }
    { name[++S] = $1; count[S] = NF - 1; for (i = 2; i <= NF; i++) { value[S, i - 1] = $1 "=" $i } }
    function clash(s, v, t, u) {
        return (value[s, v], value[t, u]) in conflict || (value[t, u], value[s, v]) in conflict
    }
    # what value v of switch s would bring to the set that is being built
    function gain(s, v,   t, n) {
        n = ((s, v) in seen ? 0 : 500) - used[s, v]
        for (t = 1; t <= S; t++) {
            if (t == s || !set[t]) { continue }
            if (clash(s, v, t, set[t])) { return -1e9 }
            if (kind == "pairwise" && !((s, v, t, set[t]) in done)) { n += 1000 }
        }
        return n
    }
    function start(   s, v, t, u) {                    # false when there is nothing new left
        for (s = 1; s <= S; s++) { set[s] = 0 }
        for (s = 1; s <= S; s++) {
            for (v = 1; v <= count[s]; v++) {
                if (kind != "pairwise" && !((s, v) in seen)) { set[s] = v; return 1 }
                for (t = 1; kind == "pairwise" && t < s; t++) {
                    for (u = 1; u <= count[t]; u++) {
                        if ((s, v, t, u) in done || clash(s, v, t, u)) { continue }
                        set[s] = v; set[t] = u
                        return 1
                    }
                }
            }
        }
        return 0
    }
    END {
        while (start()) {
            line = ""
            for (s = 1; s <= S; s++) {
                if (set[s]) { continue }
                best = 1
                for (v = 2; v <= count[s]; v++) { if (gain(s, v) > gain(s, best)) { best = v } }
                set[s] = best
            }
            for (s = 1; s <= S; s++) {
                line = line " -D" value[s, set[s]]
                seen[s, set[s]] = 1
                used[s, set[s]]++
                for (t = 1; t <= S; t++) { done[s, set[s], t, set[t]] = 1 }
            }
            print line
        }
    }' > $DIR/$kind.sets
# the first set of fp32 with NCCL, where that is installed
echo '#include <nccl.h>' | $NVCC -E -x cu - > /dev/null 2>&1 &&
    sed -i '0,/=fp32/s/=fp32$/& -DDIST=nccl/' $DIR/$kind.sets
[ -z "$first" ] || sed -i "${first}q" $DIR/$kind.sets
[ "$only_list" ] && { cat $DIR/$kind.sets; exit 0; }
ampere=$(echo $ARCHS | tr ' ' '\n' | grep sm_8 | paste -sd, -)
hopper=$(echo $ARCHS | tr ' ' '\n' | grep sm_9 | paste -sd, -)
GENCODE="${ampere:+-gencode arch=compute_80,code=[$ampere]}
         ${hopper:+-gencode arch=compute_90,code=[$hopper]}"
# with Hopper's own kernels, which take as long again
[ $kind = pairwise ] &&
    GENCODE=$(echo "$GENCODE -DHOPPER" | sed 's/compute_90,/compute_90a,/; s/sm_90/sm_90a/')
export GENCODE
cat > $DIR/one.sh <<'ONE'
source=$1; shift
log=$DIR/$(echo "$*" | sed 's/-D[A-Z]*=//g' | tr ' ' '-').log
start=$(date +%s)
what="-fatbin -DBACKEND=cuda" out=$log.fatbin
# README's line names no switch
[ "$source" != whole ] || { source=train_sink.cu what="-Xcompiler -fopenmp -x cu -lcublasLt" out=$PROGRAM; set --; }
$NVCC -std=c++17 $what $GENCODE -Xptxas -v "$@" $source -o "$out" > "$log" 2>&1 ||
    { echo "$*: does not compile"; head -n 5 "$log"; exit; }
rm -f "$log.fatbin"
# architecture, name, registers, bytes spilled, of every kernel
awk '/Compiling entry/ {
        arch = $NF; gsub("\047", "", arch)
        name = $0; sub(/.*_ZN4cuda[0-9]+/, "", name); sub(/E+v.*|EP.*/, "", name)
    }
    /spill stores/ { spill = $0; sub(/ bytes spill stores.*/, "", spill); sub(/.*, /, "", spill) }
    /Used/ && name {
        match($0, /Used [0-9]+/); print arch, name, substr($0, RSTART + 5, RLENGTH - 5), spill
        n++; if (spill > 0) { bad = 1 }
    }
    /C75[0-9][0-9]/ { bad = 1 }  # ptxas puts a fence into products of Hopper, or makes them wait
    END { exit bad || !n }' "$log" > "$log.registers" && echo "ok, $(($(date +%s) - start)) s:$*" ||
    { echo "$*: spills"; awk '$4 > 0' "$log.registers"; }
ONE
rm -f $DIR/*.log $DIR/*.registers
# the switches change attention alone: the other kernels are compiled once for each PRECISION
awk '{ print (done[/PRECISION=bf16/]++ ? "core/variant.cu" : "train_sink.cu -DONCE_APART") $0 }' $DIR/$kind.sets |
    sed "${PROGRAM:+1s/train_sink.cu -DONCE_APART/whole/}" |
    xargs -d '\n' -P "$JOBS" -I{} sh -c 'sh $DIR/one.sh $1' sh {} | tee $DIR/report
cat $DIR/*.registers | sort -u > $DIR/registers.txt
passed=$(grep -c '^ok' $DIR/report) all=$(wc -l < $DIR/$kind.sets)
echo "$ARCHS: most registers $(awk '$3 > most { most = $3; name = $2 " on " $1 }
                                    END { print most, name }' $DIR/registers.txt)"
echo "$passed passed, $((all - passed)) failed"
[ "$passed" = "$all" ]
