# scripts/sweep: eight short runs, their table against their logs; the same command skips them;
# one more seed trains only that; bad input
unset MAKEFLAGS MAKELEVEL MFLAGS JOBS
. test/ok.sh
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2> /dev/null; then
    echo "skipped: 1 (scripts/sweep needs Python 3.9)"; echo "0 passed, 0 failed"; exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
dir=build/test/sweep
rm -rf $dir; mkdir -p $dir
make -s binary BACKEND=cpu > $dir/make.txt 2>&1 || cat $dir/make.txt
link=$(readlink train_sink)
axes="BACKEND=cpu ATTN=softmax,sigmoid --lr 1e-3,3e-3 --out $dir/runs --jobs 2"
fixed="-- -d bb -n 20 --eval-every 10 --val-seqs 10 --probe-seqs 10 --sample 0 -b 4"
scripts/sweep $axes --seed 1,2 $fixed > $dir/a.txt 2>&1; ok $? "sweep: $(tail -n 3 $dir/a.txt)"
grep -q '^8 runs, 0 of them done' $dir/a.txt &&
    [ "$(grep -l '"event":"done"' $dir/runs/*/log.jsonl | wc -l)" -eq 8 ]
ok $? "not eight runs: $(ls $dir/runs)"
[ -f $dir/runs/ATTN=sigmoid,lr=3e-3-seed2/log.jsonl ]; ok $? "names: $(ls $dir/runs)"
[ "$(readlink train_sink)" = "$link" ]; ok $? "./train_sink was moved"
python3 - $dir/runs $dir/a.txt > $dir/numbers.txt 2>&1 <<'END'; ok $? "the table: $(tail -n 1 $dir/numbers.txt)"
import json, sys
lines = open(sys.argv[2]).read().split("\n")
for attn in ("softmax", "sigmoid"):
    for lr in ("1e-3", "3e-3"):
        ends = [[json.loads(l) for l in open(f"{sys.argv[1]}/ATTN={attn},lr={lr}-seed{s}/log.jsonl")
                 if '"event":"eval"' in l][-1] for s in (1, 2)]
        x = [e["val_loss"] for e in ends]
        sinks = [100 * e["sink"]["proxy_k"][0] for e in ends]
        row = next(l for l in lines if l.startswith(f"{attn} ") and f" {lr} " in l)
        want = f"{sum(x) / 2:.4f} ({min(x):.4f}-{max(x):.4f})"
        assert want in row and row.endswith("2/2"), (want, row)
        assert f"  {sum(sinks) / 2:.1f}" in row, (sinks, row)
assert x[0] != x[1]
END
touch $dir/before; sleep 0.05
scripts/sweep $axes --seed 1,2 $fixed > $dir/b.txt 2>&1
grep -q '^8 runs, 8 of them done' $dir/b.txt &&
    [ -z "$(find $dir/runs -name log.jsonl -newer $dir/before)" ]
ok $? "what is done was run again: $(head -n 3 $dir/b.txt)"
scripts/sweep $axes --seed 1,2,5 $fixed > $dir/c.txt 2>&1
grep -q '^12 runs, 8 of them done' $dir/c.txt &&
    [ "$(find $dir/runs -name log.jsonl -newer $dir/before | wc -l)" -eq 4 ]
ok $? "one more seed: $(head -n 3 $dir/c.txt)"
scripts/sweep $axes --seed 1,2,5,6 --report $fixed > $dir/d.txt 2>&1
[ "$(grep -c '3/4, 1 missing' $dir/d.txt)" -eq 4 ]
ok $? "--report with a seed that is not there: $(tail -n 4 $dir/d.txt)"
COLUMNS=60 scripts/sweep $axes --seed 1,2 --report $fixed > $dir/e.txt 2>&1
awk '/^the page/ { next } length > 60 { bad = 1 } END { exit bad }' $dir/e.txt
ok $? "COLUMNS=60: $(awk 'length > 60' $dir/e.txt | head -n 1)"
scripts/sweep BACKEND=cpu BIAS=none,k --seed 3 --dry-run -- -n 5 > $dir/dry.txt 2>&1
[ "$(grep -c '^make ' $dir/dry.txt)" -eq 2 ] &&
    [ "$(grep -c -- '-n 5 --seed 3 --resume -o runs/sweep-' $dir/dry.txt)" -eq 2 ]
ok $? "--dry-run: $(cat $dir/dry.txt)"

# bad input: one error, one hint, exit status 2, and nothing is trained
refused() { # WHAT MESSAGE words..
    what=$1 says=$2; shift 2
    scripts/sweep "$@" > $dir/x.txt 2> $dir/err.txt; code=$?
    [ $code -eq 2 ] && [ "$(wc -l < $dir/err.txt)" -eq 2 ] && head -n 1 $dir/err.txt |
        grep -q "^error: .*$says" && tail -n 1 $dir/err.txt | grep -q '^---> HINT: ..'
    ok $? "$what: exit status $code, $(cat $dir/err.txt)"
}
refused "twice"          "ATTN: got 'softmax,softmax', wanted different"   ATTN=softmax,softmax
refused "an empty value" "lr: got '1e-3,', wanted different values"        --lr 1e-3, -- -n 3
refused "no value"       "lr: got nothing, wanted a value"                 --lr --seed 1
refused "a word"         "got 'x', wanted SWITCH=value"                    x
refused "a switch"       "unknown switch ATN"                              ATN=x -- -n 3
refused "its value"      "ATTN=sofmax is unknown" \
    ATTN=softmax,sofmax BACKEND=cpu -- -n 3
refused "both sides"     "steps: stands on both sides of --"               -n 3,4 -- --steps 5
refused "two lists"      "lr: got it twice"                                --lr 1 --lr 2
refused "a seed"         "seed: got 'x', wanted a whole number"            --seed 1,x
refused "a long seed"    "seed: got '99999999999999999999', wanted a" \
    --seed 99999999999999999999
refused "out after --"   "out: stands after --"                            -- -o x
refused "too many"       "got 1,000,000 runs, wanted 10,000 or fewer" \
    --lr $(seq -s, 1000) --seed $(seq -s, 1000)
refused "no data"        "got neither nosuch nor data/nosuch"              BACKEND=cpu -- -d nosuch
refused "a flag"         "unknown flag --lrr" \
    BACKEND=cpu --lrr 1,2 --out $dir/none -- -n 3
[ ! -e $dir/none ]; ok $? "a run with an unknown flag began"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
