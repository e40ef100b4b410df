# scripts/reproduce: the flags of every row at every scale; two runs end to end,
# stopped and killed in the middle, against the same two undisturbed; a run that diverges;
# what is done is skipped; verdicts; bad input; the array job; one run a GPU. 35 s on 2 cores.
unset MAKEFLAGS MAKELEVEL MFLAGS
. test/ok.sh
. test/tree.sh
. test/once.sh
if ! command -v python3 > /dev/null || ! command -v pgrep > /dev/null || ! command -v flock > /dev/null || ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
    echo "skipped: 1 (scripts/reproduce needs Python 3.9, its test pgrep and flock)"
    echo "0 passed, 0 failed"; exit 0
fi
dir=build/test/reproduce
rm -rf $dir; mkdir -p $dir
for s in ATTN=softmax ATTN=sigmoid BIAS=k; do
    make -s binary BACKEND=cpu $s > $dir/make.txt 2>&1 || cat $dir/make.txt
done
link=$(readlink train_sink)                              # scripts/reproduce must not move it

# 1 every row of experiments.tsv is in the results of every scale once, with flags or with the
# reason why not; the binary takes the flags. Where a binary is built and the model small it starts
# (--steps 0), which checks ranges too
default=$(make -s check BACKEND=cpu)
for scale in paper hour minutes laptop laptop2 text text2 text12; do
    scripts/reproduce all --scale $scale --device cpu --seeds 1 --report --runs $dir/none \
        --out $dir/json > $dir/report.txt 2>&1
    [ $? -eq 1 ] && grep -q "^error: --report: got no run of these .*in $dir/none/$scale, wanted one" $dir/report.txt
    ok $? "$scale --report: $(tail -n 2 $dir/report.txt)"
    scripts/reproduce all --scale $scale --device cpu --seeds 1 --dry-run --runs $dir/none \
        > $dir/dry.txt 2>&1
    ok $? "$scale --dry-run: $(tail -n 2 $dir/dry.txt)"
    grep '^build/' $dir/dry.txt | while read -r binary words; do
        few=
        start=$dir/start/$(printf %s "$binary $words" | cksum | tr -d ' ')
        case $scale in laptop*|text) few="--steps 0 --val-seqs 1 --probe-seqs 1 -o $start" ;; esac
        [ -x "$binary" ] && [ -n "$few" ] || { binary=$default/train_sink; few=--help; }
        message=$(OMP_NUM_THREADS=1 $binary $(once $words $few) 2>&1 > /dev/null) && echo ok ||
            echo "FAIL $scale: $words: $message"
    done > $dir/flags.txt
    grep FAIL $dir/flags.txt
    [ "$(grep -c ok $dir/flags.txt)" -ge 50 ] && ! grep -q FAIL $dir/flags.txt
    ok $? "$scale: flags"
done
python3 - $dir/json > $dir/rows.txt <<'END'
import glob, json, sys
ids = [l.split("\t")[0] for l in open("scripts/experiments.tsv") if l[0] != "#"
       and not l.startswith("id\t")]
sys.dont_write_bytecode = True
sys.path.insert(0, "scripts/lib")
import types
from reproduce_rows import options_at, rows_at, rows_read
from reproduce_scales import SCALES
for scale in SCALES:   # one directory a run, one run a directory
    o = options_at(scale, "", [], [1],
                   types.SimpleNamespace(device="cpu", jobs=1, runs="", out=""))
    rows = [x for x in rows_at(o) if not x.skip]
    if len({x.first for x in rows}) != len({(x.make, *x.words) for x in rows}):
        print(f"{scale}: names and runs do not match")
    for x in rows:
        if len(set(x.words[::2])) != len(x.words) / 2:
            print(f"{scale}: {x.id}: a flag occurs twice: {x.words}")
# tables of which nothing is trained are those of --models, and are not written here
trained = {x.table for x in rows_read() if x.words[0] == "train"}
ids = [i for i in ids if i.split("-")[0] in trained]
for scale in ("paper", "hour", "minutes", "laptop", "laptop2", "text", "text2", "text12"):
    rows = [r for f in glob.glob(f"{sys.argv[1]}/*-{scale}.json")
            for r in json.load(open(f))["rows"]]
    names = [r["id"] for r in rows]
    for i in ids:
        if names.count(i) != 1: print(f"{scale}: {i} occurs {names.count(i)} times")
    for r in rows:
        if bool(r["flags"]) == bool(r.get("skipped")):
            print(f"{scale}: {r['id']} has flags '{r['flags']}', skipped '{r.get('skipped')}'")
    flags = {r["id"]: r["flags"] for r in rows}
    if scale == "paper" and "--heads 4" not in flags["table12-heads4"]: print("paper: --heads")
    if scale == "minutes":
        for i, want in (("figure6-window512", "--window 128"), ("table12-heads4", "--heads 2"),
                        ("figure5-data500M", "--train-tokens 390625"),
                        ("table10-batch0.25M", "--total-batch 4096"),
                        ("table10-fix2", "--fix-token 2:0")):
            if want not in flags[i]: print(f"{i}: got {flags[i]}, wanted {want}")
    if scale == "laptop":   # the rules, on values worked out by hand
        for i, want in (("figure6-window512", "--window 16"),
                        ("figure5-data500M", "--train-tokens 78125"),
                        ("table9-lr1e-4-80k", "--steps 3200"),
                        ("table9-lr1e-4-80k", "--lr 0.00125"), ("table10-batch0.25M", "-b 16"),
                        ("table10-fix2", "--bb-bos 0 --fix-token 2:256"),
                        ("table2-wd0.1", "--weight-decay 0.2"),
                        ("section5-random2", "--bb-bos 0 --random-token 2")):
            if want not in flags[i]: print(f"{i}: got {flags[i]}, wanted {want}")
        if flags["table4-none"] != flags["table3-rotary"]: print("the default setup is two runs")
    floats = [r["id"] for r in rows if not r.get("skipped") and "PRECISION=bf16" not in r["make"]]
    if scale in ("text2", "text12") and floats: print(f"{scale}: in float: {floats}")
    if scale == "text" and len(floats) < 100: print(f"{scale}: only {len(floats)} rows in float")
    if scale in ("text", "text2"):
        if "--fix-token 1:0" not in flags["table4-k"] or "--fix-token" in flags["table4-k-no-s"] or "--fix-token" in flags["section5-random1"] \
           or "--fix-token 2:0" not in flags["table10-fix2"] or flags["interventions-wd0.1"] != flags["table4-none"]: print(f"{scale}: the first token")
    if scale == "text12":
        for i, want, no in (("table4-k", "--random-token 1", "--fix-token"),
                            ("table4-k-no-s", "--layers 12", "--random-token"),
                            ("table10-fix2", "--fix-token 2:0", "--random-token"),
                            ("section5-random2", "--random-token 2", "--random-token 1")):
            if want not in flags[i] or no in flags[i]:
                print(f"{i}: got {flags[i]}, wanted {want} and no {no}")
END
[ ! -s $dir/rows.txt ]; ok $? "$(head -n 5 $dir/rows.txt)"

# 2 two runs undisturbed; then stopped by SIGTERM, then one process killed, then finished:
# the same bits
tables="table6-softmax table6-sigmoid --seeds 1 --jobs 2"
short="--steps 1200 -b 16 --eval-every 100 --val-seqs 20 --probe-seqs 20"
label=$(scripts/reproduce $tables --runs $dir/a --dry-run -- $short | sed -n 's|.*/a/\([^/]*\)/.*|\1|p' | head -n 1)
soft=$label/default-seed1 sigmoid=$label/ATTN=sigmoid-seed1
rm -f $(make -s check BACKEND=cpu)/reproduce.txt          # so that there is something to build
scripts/reproduce $tables --runs $dir/a --out $dir/out -- $short > $dir/a.txt 2>&1
ok $? "undisturbed: $(tail -n 2 $dir/a.txt)"
[ "$(readlink train_sink)" = "$link" ]; ok $? "./train_sink was moved to $(readlink train_sink)"
grep -q '^\[1/2\] table6-softmax seed 1$' $dir/a.txt && ! grep -q table3 $dir/a.txt
ok $? "a row is not called by its own name: $(grep '^\[' $dir/a.txt | head -n 2)"
[ "$(grep -c 'NOT JUDGED: --steps 1200 in place of 800, --batch 16, ' $dir/a.txt)" = 4 ] && ! grep -q 'HOLD' $dir/a.txt
ok $? "claims on runs of other flags: $(grep -A 2 '7.15' $dir/a.txt)"
# what is not there: named is what is, and results of runs that are gone stay
cp $dir/out/table6-$label.json $dir/kept.json
scripts/reproduce table6 --runs $dir/none --out $dir/out --report > $dir/x.txt 2>&1
[ $? -eq 1 ] && grep -q "^---> HINT: ls $dir/out/table6-$label.html" $dir/x.txt
ok $? "--report of what is not there: $(tail -n 2 $dir/x.txt)"
scripts/reproduce $tables --runs $dir/none --out $dir/out --report -- $short > $dir/x.txt 2>&1
cmp $dir/kept.json $dir/out/table6-$label.json; ok $? "--report took the results of runs that are gone"
page=$(ls $dir/out/table6-*.html) && grep -q '"name":"table6-softmax-seed1"' "$page"
ok $? "no page beside the results: $(tail -n 3 $dir/a.txt)"
steps() { grep -c '"event":"train"' "$1/log.jsonl" 2> /dev/null || true; }
reach() { # DIR N: waits until its log has N steps
    for i in $(seq 600); do [ "$(steps "$1")" -ge "$2" ] 2> /dev/null && return; sleep 0.05; done; ok 1 "$1 never reached step $2"
}
scripts/reproduce $tables --runs $dir/b --out $dir/out2 -- $short > $dir/b.txt 2>&1 & pid=$!
reach $dir/b/$soft 60; kill -TERM $pid; wait $pid; code=$?
[ $code -eq 143 ] && [ "$(steps $dir/b/$soft)" -lt 1200 ] &&
    grep -q '"stopped"' $dir/b/$soft/log.jsonl
ok $? "SIGTERM: exit status $code, $(tail -n 1 $dir/b.txt)"
scripts/reproduce $tables --runs $dir/b --out $dir/out2 -- $short > $dir/b.txt 2>&1 & pid=$!
reach $dir/b/$sigmoid 200; sleep 0.1
children=$(pgrep -f "train_sink.*$dir/b/") && kill -9 $children; ok $? "kill -9 came too late"
wait $pid; [ $? -eq 1 ] && grep -q '^error: .*seed1: got signal 9, wanted' $dir/b.txt; ok $? "a run that was killed: $(tail -n 2 $dir/b.txt)"
scripts/reproduce $tables --runs $dir/b --out $dir/out2 -- $short > $dir/b.txt 2>&1 & pid=$!
reach $dir/b/$sigmoid 250
kill -9 $pid; wait $pid 2> /dev/null                     # its children save and end
for i in $(seq 200); do pgrep -f "train_sink.*$dir/b/" > /dev/null || break; sleep 0.05; done
! pgrep -f "train_sink.*$dir/b/" && grep -q '"stopped"' $dir/b/$sigmoid/log.jsonl; ok $? "kill -9: $(tail -n 1 $dir/b/$sigmoid/log.jsonl)"
flock $dir/b/$label/.lock-ATTN=sigmoid-seed1 scripts/reproduce table6-sigmoid --seeds 1 --runs $dir/b \
    --out $dir/out2 -- $short > $dir/b2.txt 2>&1
grep -q "another process is at it" $dir/b2.txt; ok $? "two at one run: $(head -n 3 $dir/b2.txt)"
scripts/reproduce $tables --runs $dir/b --out $dir/out2 -- $short > $dir/b3.txt 2>&1
ok $? "finishing: $(tail -n 2 $dir/b3.txt)"
for run in $soft sigmoid; do
    [ $run = sigmoid ] && run=$sigmoid
    for event in eval done; do
        for i in a b; do
            grep "\"event\":\"$event\"" $dir/$i/$run/log.jsonl |
                sed 's/,"time":"[^"]*"//' > $dir/$i.lines
        done
        [ -s $dir/a.lines ] && cmp -s $dir/a.lines $dir/b.lines
        ok $? "$run: $event lines of the resumed run differ: $(diff $dir/a.lines $dir/b.lines | head -n 2 | cut -c 1-200)"
    done
done

# the table fits the terminal, but for paths; a table for a file is one line a row
COLUMNS=80 scripts/reproduce $tables --report --runs $dir/a --out $dir/out -- $short \
    > $dir/narrow.txt 2>&1
awk 'length > 80 && !/^(build|scripts\/plot.py table build)/ { print }' $dir/narrow.txt > $dir/wide.txt
[ ! -s $dir/wide.txt ] && grep -q 0.44 $dir/narrow.txt
ok $? "COLUMNS=80: $(head -n 1 $dir/wide.txt)"

# 3 what is done is not run again; what was made with another program is
touch $dir/before; sleep 0.05
scripts/reproduce $tables --runs $dir/a --out $dir/out -- $short > $dir/again.txt 2>&1
ok $? "again: $(tail -n 2 $dir/again.txt)"
grep -q '^2 runs, 2 of them done' $dir/again.txt &&
    [ -z "$(find $dir/a -name log.jsonl -newer $dir/before)" ]
ok $? "done runs were run again"
cmp -s $dir/a/$soft/log.jsonl $dir/a/$sigmoid/log.jsonl; [ $? -eq 1 ]; ok $? "both runs are one"
sed -i 's/"source": "[0-9a-f]*"/"source": "0"/' $dir/a/$sigmoid/reproduce.json
scripts/reproduce $tables --report --runs $dir/a --out $dir/out -- $short > $dir/stale.txt 2>&1
grep -q '^sigmoid .* 0/1' $dir/stale.txt; ok $? "a run of other sources counts as done"
scripts/reproduce table6-sigmoid --seeds 1 --runs $dir/a --out $dir/out -- $short \
    > $dir/stale.txt 2>&1
[ -d $dir/a/$sigmoid.old1 ] && grep -q '"done"' $dir/a/$sigmoid/log.jsonl
ok $? "a run of other sources: $(tail -n 2 $dir/stale.txt)"

# 4 the JSON, and a run that diverges
scripts/reproduce table6-softmax --seeds 1 --runs $dir/c --out $dir/out3 -- --steps 50 --lr 1e30 \
    > $dir/c.txt 2>&1
ok $? "a diverged run stops all: $(tail -n 2 $dir/c.txt)"
grep -q '^softmax .*0/1, 1 failed' $dir/c.txt; ok $? "a diverged run: $(grep '^softmax' $dir/c.txt)"
scripts/reproduce table6-softmax --seeds 1 --runs $dir/c --out $dir/out3 -- --steps 50 --lr 1e30 |
    grep -q '^1 runs, 1 of them done'
ok $? "a diverged run is run again"
python3 - $dir/out/table6-$label.json $dir/out3/table6-*.json $dir/a/$soft/log.jsonl \
    > $dir/json.txt <<'END'
import json, sys
a, c = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
want = lambda ok, what: ok or print(what)
rows = {r["id"]: r for r in a["rows"]}
soft = rows["table6-softmax"]
want(soft["paper"] == {"sink_k": {"1": 18.18}, "sink_star": None, "val_loss": 3.73, "note": ""}, f"paper: {soft['paper']}")
evals = [e for e in map(json.loads, open(sys.argv[3])) if e["event"] == "eval"]
mine = soft["ours"][0]
want((mine["status"], mine["steps"], mine["tokens"], mine["schedule"]) == ("done", 1200, 1200 * 16 * 64, "constant"), f"ours: {mine}")
for at, e in (("step0", evals[0]), ("last", evals[-1])):
    want(abs(mine[at]["val_loss"] / e["val_loss"] - 1) < 1e-4, f"{at}: {mine[at]['val_loss']}, the log has {e['val_loss']}")
    want(abs(mine[at]["sink_1"] - 100 * e["sink"]["sink_k"][0]) < 1e-3, f"{at}: {mine[at]['sink_1']}, the log has {e['sink']}")
    want(abs(mine[at]["alpha_1"] - e["alpha1"][0][0]) < 1e-4, f"{at}: alpha_1")
want(rows["table6-mlp"]["ours"][0]["status"] == "missing", "a run that is not there is not missing")
want({c["id"] for c in a["claims"]} == {"7.15", "7.16", "7.17", "7.18"} and all(c["verdict"] for c in a["claims"]), "claims")
want(c["rows"][0]["ours"][0]["status"] == "failed", "the diverged run is not failed")
END
[ ! -s $dir/json.txt ]; ok $? "$(cat $dir/json.txt)"

# scripts/after.py: evaluates both runs; what is there is kept, and made again when the program's
# sources are others: --report shows no answer of those
table=$dir/out/table6-$label.json
scripts/after.py $table > $dir/after.txt 2>&1; ok $? "after.py: $(tail -n 2 $dir/after.txt)"
grep -q '^softmax .*  1$' $dir/after.txt && grep -q '^sigmoid .*  1$' $dir/after.txt
ok $? "after.py: $(tail -n 3 $dir/after.txt)"
touch $dir/before; sleep 0.05
scripts/after.py $table > $dir/after2.txt 2>&1
[ -z "$(find $dir/a -name after.json -newer $dir/before)" ] && [ "$(tail -n 3 $dir/after.txt)" = "$(tail -n 3 $dir/after2.txt)" ]
ok $? "after.py again: $(tail -n 2 $dir/after2.txt)"
sed -i 's/"source": "[0-9a-f]*"/"source": "0"/' $dir/a/$soft/after.json
touch $dir/before; sleep 0.05
written=$(cksum < ${table%.json}-after.json)
scripts/after.py $table --report > $dir/after3.txt 2>&1
grep -q '^sigmoid ' $dir/after3.txt && ! grep -q '^softmax ' $dir/after3.txt &&
    [ "$written" = "$(cksum < ${table%.json}-after.json)" ]
ok $? "after.py --report of other sources: $(tail -n 2 $dir/after3.txt)"
scripts/after.py $table > $dir/after4.txt 2>&1
[ "$(find $dir/a -name after.json -newer $dir/before)" = $dir/a/$soft/after.json ] &&
    [ "$(tail -n 3 $dir/after.txt)" = "$(tail -n 3 $dir/after4.txt)" ]
ok $? "after.py, of other sources: $(tail -n 2 $dir/after4.txt)"

# 5 verdicts, on runs made up: softmax has a sink and the others none; one has;
# one has on the second seed (1.5 -> 40); softmax has none
for case in "50 1 1 holds" "50 40 1 does not hold" "50 1 1.5 does not hold" "2 1 1 cannot be tested at this scale: softmax has no sink either"; do
    set -- $case; soft_sink=$1 sigmoid_sink=$2 elu_sink=$3; shift 3
    got=$(python3 - $soft_sink $sigmoid_sink $elu_sink <<'END'
import sys, types
sys.dont_write_bytecode = True
sys.path.insert(0, "scripts/lib")
from reproduce_claims import verdicts
sinks = dict(zip(("table6-softmax", "table6-sigmoid", "table6-elu1"), map(float, sys.argv[1:])))
rows = [types.SimpleNamespace(id=i, skip="") for i in sinks]
point = lambda x: {"proxy_k": [x] * 10, "sink_star": None, "val_loss": 3.0}
sink = lambda id, s: sinks[id] if s == 1 else {50: 60, 1.5: 40}.get(sinks[id], sinks[id])
ours = lambda id: [{"seed": s, "status": "done", "step0": point(0.0), "last": point(sink(id, s))}
                   for s in (1, 2)]
o = types.SimpleNamespace(seeds=[1, 2], s={"also": []})
print(next(c for c in verdicts("table6", rows, ours, o) if c["id"] == "7.15")["verdict"])
END
)
    [ "$got" = "$*" ]; ok $? "verdict: got '$got', wanted '$*'"
done

# a flag after -- that no row has; harmless ones; rows that are equal
python3 - > $dir/x.txt 2>&1 <<'END'; ok $? "$(tail -n 1 $dir/x.txt)"
import sys, types
sys.dont_write_bytecode = True
sys.path.insert(0, "scripts/lib")
from reproduce_claims import not_judged
from reproduce_pages import marked
rows = [types.SimpleNamespace(plain=["--steps", n]) for n in ("8", "9")]
said = [not_judged(rows[:n], w.split()) for n, w in ((1, "-n 8 --sample 9"), (2, "-n=8 --ema 0.9"), (1, "--noise"))]
assert said == ["", "--steps 8 in place of 8 or 9, --ema 0.9", "--noise "], said
table = [{"id": "t-" + i, "ours": [{"seed": 1, "status": s, "last": i}]} for i, s in (("a", "done"), ("b", "missing"), ("c", "done"))]
table.append({**table[0], "id": "t-d"})
assert [twin for _, twin in marked(table)] == ["", "", "", " = t-a"], list(marked(table))
END

# 6 bad input: exit status 2, an error and a hint
refused() { # WHAT MESSAGE command..
    what=$1 says=$2; shift 2
    "$@" > $dir/x.txt 2> $dir/err.txt; code=$?
    [ $code -eq ${status:-2} ] && [ "$(wc -l < $dir/err.txt)" -eq 2 ] && head -n 1 $dir/err.txt |
        grep -q "^error: .*$says" && tail -n 1 $dir/err.txt | grep -q '^---> HINT: ..'
    ok $? "$what: exit status $code, $(cat $dir/err.txt)"
}
refused "no table"      "got no table"                   scripts/reproduce --scale laptop
refused "unknown table" "got 'table77', wanted list"     scripts/reproduce table77
refused "unknown scale" "got 'huge', wanted one of"      scripts/reproduce table4 --scale huge
refused "unknown flag"  "unrecognized arguments"         scripts/reproduce table4 --stepz 4
refused "seeds"         "got 'many', wanted a number"    scripts/reproduce table4 --seeds many
refused "part"          "got '5/4', wanted I/N"          scripts/reproduce table4 --part 5/4
refused "a binary"      "--binary: got no models, wanted" scripts/reproduce table4 --binary ./mine
refused "a list"        "list --seeds: got both, wanted" scripts/reproduce list --seeds 5
[ "$(scripts/reproduce list | awk 'length($0) > 100' | wc -l)" -eq 0 ]; ok $? "reproduce list is wider than 100 columns"
refused "a task"        "--task: got no models, wanted"   scripts/reproduce table4 --task x.jsonl
refused "many seeds"    "--seeds: got '99999999999999999999', wanted a whole" \
    scripts/reproduce table4 --seeds 99999999999999999999
refused "odd digits"    "--seeds: got '²', wanted a number" scripts/reproduce table4 --seeds ²
refused "many jobs"     "--jobs: got '9999999999', wanted a whole" \
    scripts/reproduce table4 --jobs 9999999999
touch $dir/file
status=1 refused "runs a file"   "file/x: got 'Not a directory'" \
    scripts/reproduce table6-softmax --seeds 1 --runs $dir/file/x
refused "no data"       "got neither nosuch nor data/nosuch" \
    scripts/reproduce table4 -d nosuch --runs $dir/d
refused "a lost part"   "got neither nosuch nor data/nosuch" \
    scripts/reproduce table4 -d README.md:0.7,nosuch:0.3 --runs $dir/d
refused "no tokenizer"  "got no tokenizer in 'nosuch.json', wanted tok" \
    scripts/reproduce table4 -d README.md --runs $dir/d -- --tokenizer nosuch.json
refused "no compiler"   "nosuchcc: got no such program" \
    env CXX=nosuchcc scripts/reproduce table4 --runs $dir/d
refused "its flags"     "unknown flag --stpes" \
    scripts/reproduce table6-softmax --seeds 1 --runs $dir/d -- --stpes 4
# the script's own flags after --, in any spelling
for word in "-d x" "-d=x" "--data x" --data=x "-o x" "--out x" --out=x "--seed 4" --seed=4 --resume; do
    flag=${word%%[ =]*}
    refused "$word after --" "$flag: got it after --, wanted " \
        scripts/reproduce table6-softmax --dry-run --runs $dir/d -- --steps 4 $word
    case $flag in -d | --data) type='-d ' ;; --resume) type='leave it out' ;; --seed) type='--seeds ' ;; *) type='--runs ' ;; esac
    tail -n 1 $dir/err.txt | grep -q -- "^---> HINT: .*$type"; ok $? "$word after --: $(cat $dir/err.txt)"
done
sed -i '3s/^{/[/' $dir/a/$soft/log.jsonl
refused "a damaged log" "log.jsonl, line 3: got" \
    scripts/reproduce table6-softmax --seeds 1 --runs $dir/a --out $dir/out -- $short

sed -i '3s/.*/{"event":"eval","step":1,"alpha1":[]}/' $dir/a/$soft/log.jsonl
refused "a field"       "log.jsonl, line 3: sink: got nothing, wanted an object with eps" \
    scripts/reproduce table6-softmax --seeds 1 --runs $dir/a --out $dir/out -- $short
sed -i '3d; 1s/"batch":[0-9]*,//' $dir/a/$soft/log.jsonl
refused "a flag"        "log.jsonl, line 1: flags.batch: got nothing, wanted a number" \
    scripts/reproduce table6-softmax --seeds 1 --runs $dir/a --out $dir/out -- $short
echo '[1]' > $dir/a/$soft/reproduce.json
scripts/reproduce table6-softmax --seeds 1 --report --runs $dir/a --out $dir/out -- $short \
    > $dir/x.txt 2>&1
ok $? "a reproduce.json that is a list: $(tail -n 1 $dir/x.txt)"

# 7 the array job: its task trains its share; SIGTERM saves and queues it again
mkdir -p $dir/bin
# train.sbatch hands ARGS on as a shell would have split them, and expands nothing
mkdir -p $dir/sbatch
printf '#!/bin/sh\necho node1\n' > $dir/sbatch/scontrol
printf '#!/bin/sh\nprintf "<%%s>" "$@"\n' > $dir/sbatch/srun
chmod +x $dir/sbatch/scontrol $dir/sbatch/srun
sbatch_says() { # ARGS, what srun has to get
    got=$(PATH=$PWD/$dir/sbatch:$PATH SLURM_JOB_ID=7 BINARY=/bin/true ARGS=$1 bash scripts/slurm/train.sbatch 2>&1)
    [ "$got" = "<--kill-on-bad-exit=1></bin/true>$2" ]; ok $? "train.sbatch $1: got $got"
}
sbatch_says '-m 1B -o runs/1B'         '<-m><1B><-o><runs/1B>'
sbatch_says '-o "a b" --only "x*,$HOME"' '<-o><a b><--only><x*,$HOME>'
sbatch_says "-n 5  --out=runs/*
  -d 'two words.txt'"                  '<-n><5><--out=runs/*><-d><two words.txt>'
# a run that is there goes on, whether it has a checkpoint or was killed before
mkdir $dir/sbatch/run; sbatch_says "-d bb -o $dir/sbatch/run" "<-d><bb><-o><$dir/sbatch/run><--resume>"
# a link may point to another model when the job starts
ln -s /bin/true $dir/sbatch/link
for binary in '' $dir/sbatch/link nowhere $dir; do
    PATH=$PWD/$dir/sbatch:$PATH SLURM_JOB_ID=7 BINARY=$binary ARGS='-o x' bash scripts/slurm/train.sbatch > $dir/sb.txt 2>&1
    [ $? -eq 2 ] && grep -q '^error: BINARY' $dir/sb.txt; ok $? "train.sbatch with BINARY '$binary': $(cat $dir/sb.txt)"
done
for args in '' '-n 5' '-o "unclosed'; do
    PATH=$PWD/$dir/sbatch:$PATH SLURM_JOB_ID=7 BINARY=/bin/true ARGS=$args bash scripts/slurm/train.sbatch > $dir/sb.txt 2>&1
    [ $? -eq 2 ] && grep -q '^error: ARGS' $dir/sb.txt; ok $? "train.sbatch '$args': $(cat $dir/sb.txt)"
done
printf '#!/bin/sh\necho "$@" > %s/scontrol.txt\n' $dir > $dir/bin/scontrol
chmod +x $dir/bin/scontrol
PATH=$PWD/$dir/bin:$PATH SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2 SLURM_JOB_ID=77 \
    TABLES="table6-softmax table6-sigmoid" SCALE=laptop \
    ARGS="--seeds 1 --runs $dir/e --out $dir/out4 -- --steps 100000 -b 16" bash \
    scripts/slurm/reproduce.sbatch > $dir/e.txt 2>&1 & pid=$!
for i in $(seq 400); do
    run=$(ls -d $dir/e/laptop*/*-seed1 2> /dev/null | head -n 1)
    [ "$(steps "$run")" -ge 20 ] 2> /dev/null && break
    sleep 0.05
done
kill -TERM $pid; wait $pid; code=$?
[ $code -eq 143 ] && grep -q 'requeue 77' $dir/scontrol.txt &&
    [ "$(ls -d $dir/e/laptop*/*-seed1 | wc -l)" -eq 1 ] && grep -q '"stopped"' "$run/log.jsonl"
ok $? "array job: exit status $code, $(tail -n 2 $dir/e.txt)"

# 8 two processes, each with several runs, on two GPUs, and a program that notes when it ran where:
# never two runs on one GPU, or as many as --jobs says, and then never those of the other process
cat > $dir/fake.sh <<'END'
#!/bin/sh
while [ $# -gt 1 ]; do case $1 in -o) out=$2 ;; esac; shift; done
note() { echo "$CUDA_VISIBLE_DEVICES $1 $PROCESS ${CUDA_MPS_PIPE_DIRECTORY:-none}" >> "$NOTES"; }
note start; sleep 0.4; note end
echo '{"event":"done","step":1}' > "$out/log.jsonl"
END
chmod +x $dir/fake.sh
on_gpus() { # JOBS, RUNS of each process: their notes
    rm -rf $dir/notes $dir/gpu
    for process in 1 2; do
        CUDA_VISIBLE_DEVICES=test-a,test-b NOTES=$PWD/$dir/notes PROCESS=$process \
            python3 $dir/on_gpus.py $dir $process $1 $2 > $dir/gpu$process.txt 2>&1 &
    done
    wait
}
cat > $dir/on_gpus.py <<'END'
import os, sys, types
sys.dont_write_bytecode = True
sys.path.insert(0, "scripts/lib")
import jobs
dir, process, at_once, count = sys.argv[1:]
o = types.SimpleNamespace(device=os.environ.get("DEVICE", "cuda"), jobs=int(at_once), threads=0, runs=f"{dir}/gpu", label=process, identity="", source="")
row = lambda i: types.SimpleNamespace(id=f"run{i}", first=f"run{i}", make="", words=[])
jobs.run_all([jobs.Run(row(i), 1, o) for i in range(int(count))],
             {"": os.path.abspath(f"{dir}/{os.environ.get('PROGRAM', 'fake.sh')}")}, o)
END
gpus_hold() { # runs on a GPU, NOTES, WHAT: never more, never of two processes, and sometimes as many
    awk -v most="$1" -v lines="$2" '
        $2 == "start" { n[$1]++; total[$1, $3]++ }
        $2 == "end" { n[$1]--; total[$1, $3]-- }
        n[$1] > most || total[$1, 1] && total[$1, 2] { bad = 1 }
        n[$1] == most { full = 1 }
        n["test-a"] && n["test-b"] { both = 1 }
        END { exit bad || !both || !full || NR != lines }' $dir/notes
    ok $? "GPUs, $3: $(tr '\n' ',' < $dir/notes) $(cat $dir/gpu1.txt $dir/gpu2.txt | grep -v '^\[')"
}
on_gpus 0 3; gpus_hold 1 12 "one run on each"
[ "$(cut -d' ' -f4 $dir/notes | sort -u)" = none ]; ok $? "MPS for one run on each GPU"
on_gpus 4 5; gpus_hold 2 20 "two runs on each, in turns"
grep -q '^up to 2 runs on a GPU: they take turns, as there is no MPS (no nvidia-cuda-mps-control)$' \
    $dir/gpu1.txt; ok $? "without MPS: $(head -n 1 $dir/gpu1.txt)"
# of one command on a CPU, whose first process was killed: its runs count until they end
sed 's/sleep 0.4/trap "" TERM; until [ -e $NOTES.go ]; do sleep 0.05; done/' $dir/fake.sh > $dir/deaf.sh; chmod +x $dir/deaf.sh
rm -rf $dir/notes $dir/gpu
till() { for i in $(seq 400); do [ "$(cat $2 2> /dev/null | grep -c "$1")" -ge $3 ] && break; sleep 0.05; done; } # WHAT FILE TIMES
for process in 1 2; do
    NOTES=$PWD/$dir/notes PROCESS=$process DEVICE=cpu PROGRAM=deaf.sh python3 $dir/on_gpus.py $dir same 2 3 > $dir/gpu$process.txt 2>&1 & pid=$!
    [ $process = 2 ] || { till start $dir/notes 2; kill -9 $pid; }
done
till '^waiting for one of 2 slots' $dir/gpu2.txt 1; touch $dir/notes.go; wait $pid
awk '$2 == "start" { n++ } $2 == "end" { n-- } n > 2 { bad = 1 } END { exit bad || NR != 6 }' $dir/notes
ok $? "runs of a killed process: $(tr '\n' ',' < $dir/notes) $(cat $dir/gpu2.txt)"
# with MPS: a server for each process, which its runs are told of, and which is stopped
mkdir -p $dir/mps
cat > $dir/mps/nvidia-cuda-mps-control <<END
#!/bin/sh
echo "\${1:-\$(cat)} \$CUDA_MPS_PIPE_DIRECTORY \${CUDA_VISIBLE_DEVICES:-all}" >> $PWD/$dir/mps.txt
[ ! "\$MPS_FAILS" ] || { echo "An instance of this daemon is already running"; exit 1; }
END
chmod +x $dir/mps/nvidia-cuda-mps-control
with_mps() { rm -f $dir/mps.txt; PATH=$PWD/$dir/mps:$PATH "$@"; }
with_mps on_gpus 4 5; gpus_hold 2 20 "two runs on each, by MPS"
sed -n 's/^-d \(.*\) all$/\1/p' $dir/mps.txt | sort > $dir/began
sed -n 's/^quit \(.*\) all$/\1/p' $dir/mps.txt | sort > $dir/ended
cut -d' ' -f4 $dir/notes | sort -u > $dir/told
[ "$(wc -l < $dir/began)" = 2 ] && cmp -s $dir/began $dir/ended && cmp -s $dir/began $dir/told
ok $? "MPS: $(tr '\n' ',' < $dir/mps.txt) $(tr '\n' ',' < $dir/told)"
[ "$(xargs ls -d < $dir/began 2> /dev/null | wc -l)" = 0 ]; ok $? "MPS left its directories"
MPS_FAILS=1; export MPS_FAILS
with_mps on_gpus 4 3; gpus_hold 2 12 "two runs on each, where MPS fails"
unset MPS_FAILS
grep -q 'take turns, as there is no MPS (An instance' $dir/gpu1.txt; ok $? "$(head -n 1 $dir/gpu1.txt)"
mkdir -p $dir/theirs; : > $dir/theirs/control; : > $dir/mps.txt
CUDA_MPS_PIPE_DIRECTORY=$PWD/$dir/theirs; export CUDA_MPS_PIPE_DIRECTORY
with_mps on_gpus 4 3; gpus_hold 2 12 "two runs on each, by a server that runs"
[ ! -e $dir/mps.txt ] && [ "$(cut -d' ' -f4 $dir/notes | sort -u)" = "$PWD/$dir/theirs" ]
ok $? "a server of somebody else: $(cat $dir/mps.txt 2> /dev/null)"
unset CUDA_MPS_PIPE_DIRECTORY

# what data are: the same shards are the same data wherever and whenever they were made
python3 - $dir > $dir/identity.txt 2>&1 <<'END'
import json, os, sys
sys.dont_write_bytecode = True
sys.path[:0] = ["scripts", "scripts/lib"]
import jobs
def identity(tokens=10, shard=b"abc", made="/here/a.txt", manifest=None):
    path = os.path.join(sys.argv[1], "shards")
    os.makedirs(path, exist_ok=True)
    text = json.dumps({"tokens": tokens, "tokenizer": made, "made": {"files": [[made, 3, "17.5"]]}})
    for name, data in (("train.bin", shard), ("manifest.json", (manifest or text).encode())):
        with open(os.path.join(path, name), "wb") as f: f.write(data)
    return jobs.data_identity(path)
first = identity()
if identity(made="/there/b.txt") != first: print("other paths: other data")
others = [identity(tokens=11), identity(shard=b"abd"), identity(manifest="{"), identity(manifest="[1]")]
if first in others: print(f"other data: the same identity {first}: {others}")
# of every shard, of a mixture, of the tokenizer of a scale and of one after --
import types
from reproduce_rows import options_at, rows_at
from reproduce_scales import SCALES, of_text
shards = os.path.join(sys.argv[1], "shards")
files = [os.path.join(sys.argv[1], n) for n in ("a.txt", "b.txt", "tokenizer.json", "shards/val.bin")]
a, b, tokenizer, val = files
def key(scale, data, extra):
    o = options_at(scale, data, extra, [1], types.SimpleNamespace(device="cpu", jobs=1, runs="", out=""))
    return jobs.Run(next(x for x in rows_at(o) if not x.skip), 1, o).key["data"]
SCALES["own"] = of_text(a, f"--tokenizer {tokenizer}", 1, 16, tokens_s=1, about="")
def write(path, text):
    with open(path, "w") as f: f.write(text)
for path in files: write(path, "one")
for case, changes in ((("laptop", f"{a}:0.7,{b}:0.3", []), (a, b)), (("laptop", shards, []), (val,)),
                      (("laptop", a, ["--tokenizer=" + tokenizer]), (a, tokenizer)),
                      (("text", "", ["--steps", "2", "--tokenizer", tokenizer]), (tokenizer,)),
                      (("own", "", []), (a, tokenizer))):
    for path in changes:
        write(path, "one"); before = key(*case); write(path, "two")
        if key(*case) == before: print(f"{case}: {path} changed, and not {before}")
import runlog
same = [runlog.same_data({"data": "pile_5B 3 bytes 0" + more}) for more in ("", " + a.txt 3 bytes 0")]
if same != [True, False]: print(f"losses beside the paper's, of the Pile and of a mixture with it: {same}")
END
[ ! -s $dir/identity.txt ]; ok $? "$(head -n 5 $dir/identity.txt)"

# 9 with a compiler that only writes an empty file: one run a GPU (jobs 0) builds too;
# make experiments leaves ./train_sink alone
tree=$dir/tree; mkdir -p $tree
copy_sources $tree; cp -r scripts $tree
cat > $tree/compiler <<'END'
#!/bin/sh
[ "$1" = --version ] && echo 1 && exit
while [ $# -gt 1 ]; do
    case $1 in -MF) : > "$2" ;; -o) echo '#!/bin/sh' > "$2"; chmod +x "$2" ;; esac; shift
done
END
chmod +x $tree/compiler; ln -s elsewhere $tree/train_sink
(cd $tree && CXX=./compiler python3 - <<'END'
import sys, types
sys.dont_write_bytecode = True
sys.path[:0] = ["scripts", "scripts/lib"]
import jobs
built = jobs.build_all(["", "ATTN=sigmoid"],
                       types.SimpleNamespace(device="cpu", jobs=0, source="x"))
assert len(set(built.values())) == 2, built
END
) > $dir/tree.txt 2>&1; ok $? "jobs 0: $(tail -n 1 $dir/tree.txt)"
(cd $tree && make -s experiments CXX=./compiler BACKEND=cpu) > $dir/tree.txt 2>&1
ok $? "make experiments: $(tail -n 1 $dir/tree.txt)"
[ "$(ls -d $tree/build/*/train_sink | wc -l)" -ge 25 ] &&
    [ "$(readlink $tree/train_sink)" = elsewhere ]
ok $? "make experiments: $(ls -d $tree/build/*/train_sink | wc -l) binaries, ./train_sink -> $(readlink $tree/train_sink)"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
