# scripts/reproduce: the flags of every row at every scale; two runs end to end,
# stopped and killed in the middle, against the same two undisturbed; a run that diverges;
# what is done is skipped; verdicts; bad input; the array job; one run a GPU. 35 s on 2 cores.
unset MAKEFLAGS MAKELEVEL MFLAGS
. test/ok.sh
. test/tree.sh
. test/once.sh
if ! command -v python3 > /dev/null || ! command -v pgrep > /dev/null || ! command -v flock > /dev/null || ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
    skip_all "1 (scripts/reproduce needs Python 3.9, its test pgrep and flock)"
fi
export PYTHONDONTWRITEBYTECODE=1
dir=build/test/reproduce; said=$dir/x.txt
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
    all="scripts/reproduce all --scale $scale --device cpu --seeds 1 --runs $dir/none"
    $all --report --out $dir/json > $said 2>&1
    [ $? -eq 1 ] && grep -q "^error: --report: got no run of these .*in $dir/none/$scale, wanted one" $said
    ok $? "$scale --report: $(tail -n 2 $said)"
    works $all --dry-run
    grep '^build/' $said | while read -r binary words; do
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
python - $dir/json > $dir/rows.txt 2>&1 <<'END'
import glob, json, sys, types
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
ids = [i for i in (l.split("\t")[0] for l in open("scripts/experiments.tsv")) if i.split("-")[0] in trained]
for scale in SCALES:
    rows = [r for f in glob.glob(f"{sys.argv[1]}/*-{scale}.json")
            for r in json.load(open(f))["rows"]]
    names = [r["id"] for r in rows]
    for i in ids:
        if names.count(i) != 1: print(f"{scale}: {i} occurs {names.count(i)} times")
    for r in rows:
        if bool(r["flags"]) == bool(r.get("skipped")):
            print(f"{scale}: {r['id']} has flags '{r['flags']}', skipped '{r.get('skipped')}'")
    flags = {r["id"]: r["flags"] for r in rows}
    for line in (   # the rules, on values worked out by hand
            "paper table12-heads4 has --heads 4",
            "minutes figure6-window512 has --window 128", "minutes table12-heads4 has --heads 2",
            "minutes figure5-data500M has --train-tokens 390625", "minutes table10-batch0.25M has --total-batch 4096",
            "minutes table10-fix2 has --fix-token 2:0",
            "laptop figure6-window512 has --window 16", "laptop figure5-data500M has --train-tokens 78125",
            "laptop table9-lr1e-4-80k has --steps 3200", "laptop table9-lr1e-4-80k has --lr 0.00125",
            "laptop table10-batch0.25M has -b 16", "laptop table10-fix2 has --bb-bos 0 --fix-token 2:256",
            "laptop table2-wd0.1 has --weight-decay 0.2", "laptop section5-random2 has --bb-bos 0 --random-token 2",
            "text table4-k has --fix-token 1:0", "text table4-k-no-s lacks --fix-token",
            "text section5-random1 lacks --fix-token", "text table10-fix2 has --fix-token 2:0",
            "text2 table4-k has --fix-token 1:0", "text2 table4-k-no-s lacks --fix-token",
            "text2 section5-random1 lacks --fix-token", "text2 table10-fix2 has --fix-token 2:0",
            "text12 table4-k has --random-token 1", "text12 table4-k lacks --fix-token",
            "text12 table4-k-no-s has --layers 12", "text12 table4-k-no-s lacks --random-token",
            "text12 table10-fix2 has --fix-token 2:0", "text12 table10-fix2 lacks --random-token",
            "text12 section5-random2 has --random-token 2", "text12 section5-random2 lacks --random-token 1"):
        at, i, how, words = line.split(" ", 3)
        if at == scale and (words in flags[i]) != (how == "has"): print(f"got {flags[i]}, wanted: {line}")
    equal = {"laptop": "table3-rotary", "text": "interventions-wd0.1", "text2": "interventions-wd0.1"}.get(scale)
    if equal and flags["table4-none"] != flags[equal]: print(f"{scale}: the default setup is two runs")
    floats = [r["id"] for r in rows if not r.get("skipped") and "PRECISION=bf16" not in r["make"]]
    if scale in ("text2", "text12") and floats: print(f"{scale}: in float: {floats}")
    if scale == "text" and len(floats) < 100: print(f"{scale}: only {len(floats)} rows in float")
END
[ ! -s $dir/rows.txt ]; ok $? "$(head -n 5 $dir/rows.txt)"

# 2 two runs undisturbed; then stopped by SIGTERM, then one process killed, then finished:
# the same bits
tables="table6-softmax table6-sigmoid --seeds 1 --jobs 2"
short="--steps 1200 -b 16 --eval-every 100 --val-seqs 20 --probe-seqs 20"
label=$(scripts/reproduce $tables --runs $dir/a --dry-run -- $short | sed -n 's|.*/a/\([^/]*\)/.*|\1|p' | head -n 1)
of_a="scripts/reproduce $tables --runs $dir/a --out $dir/out"
of_b="scripts/reproduce $tables --runs $dir/b --out $dir/out2 -- $short"
one="scripts/reproduce table6-softmax --seeds 1 --runs $dir/a --out $dir/out"
soft=$label/default-seed1 sigmoid=$label/ATTN=sigmoid-seed1
rm -f $(make -s check BACKEND=cpu)/reproduce.txt          # so that there is something to build
said=$dir/a.txt works $of_a -- $short
[ "$(readlink train_sink)" = "$link" ]; ok $? "./train_sink was moved to $(readlink train_sink)"
grep -q '^\[1/2\] table6-softmax seed 1$' $dir/a.txt && ! grep -q table3 $dir/a.txt
ok $? "a row is not called by its own name: $(grep '^\[' $dir/a.txt | head -n 2)"
[ "$(grep -c 'NOT JUDGED: --steps 1200 in place of 800, --batch 16, ' $dir/a.txt)" = 4 ] && ! grep -q 'HOLD' $dir/a.txt
ok $? "claims on runs of other flags: $(grep -A 2 '7.15' $dir/a.txt)"
# what is not there: named is what is, and results of runs that are gone stay
cp $dir/out/table6-$label.json $dir/kept.json
status=1 refused "got no run" scripts/reproduce table6 --runs $dir/none --out $dir/out --report
grep -q "^---> HINT: ls $dir/out/table6-$label.html" $said; ok $? "--report of what is not there: $(tail -n 1 $said)"
scripts/reproduce $tables --runs $dir/none --out $dir/out --report -- $short > $said 2>&1
cmp $dir/kept.json $dir/out/table6-$label.json; ok $? "--report took the results of runs that are gone"
page=$(ls $dir/out/table6-*.html) && grep -q '"name":"table6-softmax-seed1"' "$page"
ok $? "no page beside the results: $(tail -n 3 $dir/a.txt)"
steps() { grep -c '"event":"train"' "$1/log.jsonl" 2> /dev/null || true; }
# DIR N: waits until its log has N steps, the last of them made after this was called
reach() {
    had=$(tail -n 1 "$1/log.jsonl" 2> /dev/null)
    for i in $(seq 1200); do
        has=$(tail -n 1 "$1/log.jsonl" 2> /dev/null)
        case $has in "$had") ;; *'"event":"train"'*) [ "$(steps "$1")" -lt "$2" ] || return ;; esac
        sleep 0.05
    done
    ok 1 "$1 never reached step $2"
}
$of_b > $dir/b.txt 2>&1 & pid=$!
reach $dir/b/$soft 60; kill -TERM $pid; wait $pid; code=$?
[ $code -eq 143 ] && [ "$(steps $dir/b/$soft)" -lt 1200 ] &&
    grep -q '"stopped"' $dir/b/$soft/log.jsonl
ok $? "SIGTERM: exit status $code, $(tail -n 1 $dir/b.txt)"
$of_b > $dir/b.txt 2>&1 & pid=$!
reach $dir/b/$sigmoid 200; sleep 0.1
children=$(pgrep -f "train_sink.*$dir/b/") && kill -9 $children; ok $? "kill -9 came too late"
wait $pid; [ $? -eq 1 ] && grep -q '^error: .*seed1: got signal 9, wanted' $dir/b.txt; ok $? "a run that was killed: $(tail -n 2 $dir/b.txt)"
$of_b > $dir/b.txt 2>&1 & pid=$!
reach $dir/b/$sigmoid 250
kill -9 $pid; wait $pid 2> /dev/null                     # its children save and end
for i in $(seq 1200); do pgrep -f "train_sink.*$dir/b/" > /dev/null || break; sleep 0.05; done
! pgrep -f "train_sink.*$dir/b/" && grep -q '"stopped"' $dir/b/$sigmoid/log.jsonl; ok $? "kill -9: $(tail -n 1 $dir/b/$sigmoid/log.jsonl)"
flock $dir/b/$label/.lock-ATTN=sigmoid-seed1 scripts/reproduce table6-sigmoid --seeds 1 --runs $dir/b \
    --out $dir/out2 -- $short > $dir/b2.txt 2>&1
grep -q "another process is at it" $dir/b2.txt; ok $? "two at one run: $(head -n 3 $dir/b2.txt)"
works $of_b
for run in $soft $sigmoid; do
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
COLUMNS=80 $of_a --report -- $short > $dir/narrow.txt 2>&1
awk 'length > 80 && !/^(build|scripts\/plot.py table build)/ { print }' $dir/narrow.txt > $dir/wide.txt
[ ! -s $dir/wide.txt ] && grep -q 0.44 $dir/narrow.txt
ok $? "COLUMNS=80: $(head -n 1 $dir/wide.txt)"

# 3 what is done is not run again; what was made with another program is
touch $dir/before; sleep 0.05
works $of_a -- $short
grep -q '^2 runs, 2 of them done' $said &&
    [ -z "$(find $dir/a -name log.jsonl -newer $dir/before)" ]
ok $? "done runs were run again"
cmp -s $dir/a/$soft/log.jsonl $dir/a/$sigmoid/log.jsonl; [ $? -eq 1 ]; ok $? "both runs are one"
sed -i 's/"source": "[0-9a-f]*"/"source": "0"/' $dir/a/$sigmoid/reproduce.json
works $of_a --report -- $short
grep -q '^sigmoid .* 0/1' $said; ok $? "a run of other sources counts as done"
works scripts/reproduce table6-sigmoid --seeds 1 --runs $dir/a --out $dir/out -- $short
[ -d $dir/a/$sigmoid.old1 ] && grep -q '"done"' $dir/a/$sigmoid/log.jsonl; ok $? "a run of other sources"

# 4 the JSON, and a run that diverges
diverging="scripts/reproduce table6-softmax --seeds 1 --runs $dir/c --out $dir/out3 -- --steps 50 --lr 1e30"
works $diverging
grep -q '^softmax .*0/1, 1 failed' $said; ok $? "a diverged run: $(grep '^softmax' $said)"
$diverging | grep -q '^1 runs, 1 of them done'; ok $? "a diverged run is run again"
works python - $dir/out/table6-$label.json $dir/out3/table6-*.json $dir/a/$soft/log.jsonl <<'END'
import json, sys
a, c = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
rows = {r["id"]: r for r in a["rows"]}
soft = rows["table6-softmax"]
assert soft["paper"] == {"sink_k": {"1": 18.18}, "sink_star": None, "val_loss": 3.73, "note": ""}, soft["paper"]
evals = [e for e in map(json.loads, open(sys.argv[3])) if e["event"] == "eval"]
mine = soft["ours"][0]
assert (mine["status"], mine["steps"], mine["tokens"], mine["schedule"]) == ("done", 1200, 1200 * 16 * 64, "constant"), mine
for at, e in (("step0", evals[0]), ("last", evals[-1])):
    o = mine[at]
    assert abs(o["val_loss"] / e["val_loss"] - 1) < 1e-4, (o, e["val_loss"])
    assert abs(o["sink_1"] - 100 * e["sink"]["sink_k"][0]) < 1e-3, (o, e["sink"])
    assert abs(o["alpha_1"] - e["alpha1"][0][0]) < 1e-4, (o, e["alpha1"])
assert rows["table6-mlp"]["ours"][0]["status"] == "missing"
assert {c["id"] for c in a["claims"]} == {"7.15", "7.16", "7.17", "7.18"} and all(c["verdict"] for c in a["claims"])
assert c["rows"][0]["ours"][0]["status"] == "failed"
END

# scripts/after.py: evaluates both runs; what is there is kept, and made again when the program's
# sources are others: --report shows no answer of those
table=$dir/out/table6-$label.json
works scripts/after.py $table
tail -n 3 $said > $dir/after.txt
grep -q '^softmax .*  1$' $dir/after.txt && grep -q '^sigmoid .*  1$' $dir/after.txt
ok $? "after.py: $(cat $dir/after.txt)"
touch $dir/before; sleep 0.05
works scripts/after.py $table
[ -z "$(find $dir/a -name after.json -newer $dir/before)" ] && tail -n 3 $said | cmp -s - $dir/after.txt
ok $? "after.py again: $(tail -n 2 $said)"
sed -i 's/"source": "[0-9a-f]*"/"source": "0"/' $dir/a/$soft/after.json
touch $dir/before; sleep 0.05
written=$(cksum < ${table%.json}-after.json)
works scripts/after.py $table --report
grep -q '^sigmoid ' $said && ! grep -q '^softmax ' $said && [ "$written" = "$(cksum < ${table%.json}-after.json)" ]
ok $? "after.py --report of other sources: $(tail -n 2 $said)"
works scripts/after.py $table
[ "$(find $dir/a -name after.json -newer $dir/before)" = $dir/a/$soft/after.json ] && tail -n 3 $said | cmp -s - $dir/after.txt
ok $? "after.py, of other sources: $(tail -n 2 $said)"

# 5 verdicts, on runs made up: softmax has a sink and the others none; one has;
# one has on the second seed (1.5 -> 40); softmax has none
for case in "50 1 1 holds" "50 40 1 does not hold" "50 1 1.5 does not hold" "2 1 1 cannot be tested at this scale: softmax has no sink either"; do
    set -- $case; soft_sink=$1 sigmoid_sink=$2 elu_sink=$3; shift 3
    got=$(python - $soft_sink $sigmoid_sink $elu_sink <<'END'
import sys, types
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
works python - <<'END'
import types
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
refused "got no table"                   scripts/reproduce --scale laptop
refused "got 'table77', wanted list"     scripts/reproduce table77
refused "got 'huge', wanted one of"      scripts/reproduce table4 --scale huge
refused "unrecognized arguments"         scripts/reproduce table4 --stepz 4
refused "got 'many', wanted a number"    scripts/reproduce table4 --seeds many
refused "got '5/4', wanted I/N"          scripts/reproduce table4 --part 5/4
refused "--binary: got no models, wanted" scripts/reproduce table4 --binary ./mine
refused "list --seeds: got both, wanted" scripts/reproduce list --seeds 5
[ "$(scripts/reproduce list | awk 'length($0) > 100' | wc -l)" -eq 0 ]; ok $? "reproduce list is wider than 100 columns"
refused "--task: got no models, wanted"   scripts/reproduce table4 --task x.jsonl
refused "--seeds: got '99999999999999999999', wanted a whole" \
    scripts/reproduce table4 --seeds 99999999999999999999
refused "--seeds: got '²', wanted a number" scripts/reproduce table4 --seeds ²
refused "--jobs: got '9999999999', wanted a whole" \
    scripts/reproduce table4 --jobs 9999999999
touch $dir/file
status=1 refused "file/x: got 'Not a directory'" \
    scripts/reproduce table6-softmax --seeds 1 --runs $dir/file/x
refused "got neither nosuch nor data/nosuch" \
    scripts/reproduce table4 -d nosuch --runs $dir/d
refused "got neither nosuch nor data/nosuch" \
    scripts/reproduce table4 -d README.md:0.7,nosuch:0.3 --runs $dir/d
refused "got no tokenizer in 'nosuch.json', wanted tok" \
    scripts/reproduce table4 -d README.md --runs $dir/d -- --tokenizer nosuch.json
refused "nosuchcc: got no such program" \
    env CXX=nosuchcc scripts/reproduce table4 --runs $dir/d
refused "unknown flag --stpes" \
    scripts/reproduce table6-softmax --seeds 1 --runs $dir/d -- --stpes 4
# the script's own flags after --, in any spelling
for word in "-d x" "-d=x" "--data x" --data=x "-o x" "--out x" --out=x "--seed 4" --seed=4 --resume; do
    flag=${word%%[ =]*}
    refused "$flag: got it after --, wanted " \
        scripts/reproduce table6-softmax --dry-run --runs $dir/d -- --steps 4 $word
    case $flag in -d | --data) type='-d ' ;; --resume) type='leave it out' ;; --seed) type='--seeds ' ;; *) type='--runs ' ;; esac
    tail -n 1 $said | grep -q -- "^---> HINT: .*$type"; ok $? "$word after --: $(cat $said)"
done
sed -i '3s/^{/[/' $dir/a/$soft/log.jsonl
refused "log.jsonl, line 3: got" \
    $one -- $short

sed -i '3s/.*/{"event":"eval","step":1,"alpha1":[]}/' $dir/a/$soft/log.jsonl
refused "log.jsonl, line 3: sink: got nothing, wanted an object with eps" \
    $one -- $short
sed -i '3d; 1s/"batch":[0-9]*,//' $dir/a/$soft/log.jsonl
refused "log.jsonl, line 1: flags.batch: got nothing, wanted a number" \
    $one -- $short
echo '[1]' > $dir/a/$soft/reproduce.json
works $one --report -- $short     # a reproduce.json that is a list

# 7 the array job: its task trains its share; SIGTERM saves and queues it again
# train.sbatch hands ARGS on as a shell would have split them, and expands nothing
program() { # FILE: a program of these lines
    mkdir -p ${1%/*}; { echo '#!/bin/sh'; cat; } > $1; chmod +x $1
}
echo 'echo node1' | program $dir/sbatch/scontrol
echo 'printf "<%s>" "$@"' | program $dir/sbatch/srun
train_sbatch() { # BINARY, ARGS
    PATH=$PWD/$dir/sbatch:$PATH SLURM_JOB_ID=7 BINARY=$1 ARGS=$2 bash scripts/slurm/train.sbatch 2>&1
}
sbatch_says() { # ARGS, what srun has to get
    got=$(train_sbatch /bin/true "$1")
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
    train_sbatch "$binary" '-o x' > $said
    [ $? -eq 2 ] && grep -q '^error: BINARY' $said; ok $? "train.sbatch with BINARY '$binary': $(cat $said)"
done
for args in '' '-n 5' '-o "unclosed'; do
    train_sbatch /bin/true "$args" > $said
    [ $? -eq 2 ] && grep -q '^error: ARGS' $said; ok $? "train.sbatch '$args': $(cat $said)"
done
echo "echo \"\$@\" > $dir/scontrol.txt" | program $dir/bin/scontrol
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
program $dir/fake.sh <<'END'
while [ $# -gt 1 ]; do case $1 in -o) out=$2 ;; esac; shift; done
note() { echo "$CUDA_VISIBLE_DEVICES $1 $PROCESS ${CUDA_MPS_PIPE_DIRECTORY:-none}" >> "$NOTES"; }
note start; sleep 0.4; note end
printf '%s\n' '{"event":"config","switches":{},"flags":{}}' '{"event":"done","step":1}' > "$out/log.jsonl"
END
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
sed 's/sleep 0.4/trap "" TERM; until [ -e $NOTES.go ]; do sleep 0.05; done/' $dir/fake.sh | program $dir/deaf.sh
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
program $dir/mps/nvidia-cuda-mps-control <<END
echo "\${1:-\$(cat)} \$CUDA_MPS_PIPE_DIRECTORY \${CUDA_VISIBLE_DEVICES:-all}" >> $PWD/$dir/mps.txt
[ ! "\$MPS_FAILS" ] || { echo "An instance of this daemon is already running"; exit 1; }
END
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
python - $dir > $dir/identity.txt 2>&1 <<'END'
import json, os, sys, types
import jobs
import runlog
from reproduce_rows import options_at, rows_at
from reproduce_scales import SCALES, of_text
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
same = [runlog.same_data({"data": "pile_5B 3 bytes 0" + more}) for more in ("", " + a.txt 3 bytes 0")]
if same != [True, False]: print(f"losses beside the paper's, of the Pile and of a mixture with it: {same}")
END
[ ! -s $dir/identity.txt ]; ok $? "$(head -n 5 $dir/identity.txt)"

# 9 with a compiler that only writes an empty file: one run a GPU (jobs 0) builds too;
# make experiments leaves ./train_sink alone
tree=$dir/tree; mkdir -p $tree
copy_sources $tree; cp -r scripts $tree
program $tree/compiler <<'END'
[ "$1" = --version ] && echo 1 && exit
while [ $# -gt 1 ]; do
    case $1 in -MF) : > "$2" ;; -o) echo '#!/bin/sh' > "$2"; chmod +x "$2" ;; esac; shift
done
END
ln -s elsewhere $tree/train_sink
(cd $tree && CXX=./compiler python - <<'END'
import types
import jobs
built = jobs.build_all(["", "ATTN=sigmoid"],
                       types.SimpleNamespace(device="cpu", jobs=0, source="x"))
assert len(set(built.values())) == 2, built
END
) > $said 2>&1; ok $? "jobs 0: $(tail -n 1 $said)"
works make -C $tree -s experiments CXX=./compiler BACKEND=cpu
[ "$(ls -d $tree/build/*/train_sink | wc -l)" -ge 25 ] &&
    [ "$(readlink $tree/train_sink)" = elsewhere ]
ok $? "make experiments: $(ls -d $tree/build/*/train_sink | wc -l) binaries, ./train_sink -> $(readlink $tree/train_sink)"
finish
