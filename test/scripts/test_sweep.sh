# scripts/sweep: eight short runs, their table against their logs; the same command skips them;
# one more seed trains only that; bad input
unset MAKEFLAGS MAKELEVEL MFLAGS JOBS
. test/ok.sh
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2> /dev/null; then
    skip_all "1 (scripts/sweep needs Python 3.9)"
fi
export PYTHONDONTWRITEBYTECODE=1
dir=build/test/sweep; said=$dir/x.txt
rm -rf $dir; mkdir -p $dir
make -s binary BACKEND=cpu > $dir/make.txt 2>&1 || cat $dir/make.txt
link=$(readlink train_sink)
axes="BACKEND=cpu ATTN=softmax,sigmoid --lr 1e-3,3e-3 --out $dir/runs --jobs 2"
fixed="-- -d bb -n 20 --eval-every 10 --val-seqs 10 --probe-seqs 10 --sample 0 -b 4"
two="scripts/sweep $axes --seed 1,2"
said=$dir/a.txt works $two $fixed
grep -q '^8 runs, 0 of them done' $dir/a.txt &&
    [ "$(grep -l '"event":"done"' $dir/runs/*/log.jsonl | wc -l)" -eq 8 ]
ok $? "not eight runs: $(ls $dir/runs)"
[ -f $dir/runs/ATTN=sigmoid,lr=3e-3-seed2/log.jsonl ]; ok $? "names: $(ls $dir/runs)"
[ "$(readlink train_sink)" = "$link" ]; ok $? "./train_sink was moved"
works python - $dir/runs $dir/a.txt <<'END'
import json, sys
lines = open(sys.argv[2]).read().split("\n")
for attn in ("softmax", "sigmoid"):
    for lr in ("1e-3", "3e-3"):
        ends = [[json.loads(l) for l in open(f"{sys.argv[1]}/ATTN={attn},lr={lr}-seed{s}/log.jsonl")
                 if '"event":"eval"' in l][-1] for s in (1, 2)]
        x = [e["val_loss"] for e in ends]
        sinks = [100 * e["sink"]["proxy_k"][0] for e in ends]
        row = next(l for l in lines if f"  {attn} " in l and f" {lr} " in l)
        want = f"{sum(x) / 2:.4f} ({min(x):.4f}-{max(x):.4f})"
        assert want in row and "  2/2" in row, (want, row)
        assert f"  {sum(sinks) / 2:.1f}" in row, (sinks, row)
assert x[0] != x[1]
END
# --sort, the best row, and the numbers of the seeds as --spread says, in each form
works python - $dir "$two" "$fixed" <<'END'
import json, statistics, subprocess, sys
def table(*more):
    out = subprocess.run([*sys.argv[2].split(), "--report", *more, *sys.argv[3].split()], capture_output=True, text=True)
    assert out.returncode == 0, out
    return out.stdout
want = {}
for attn in ("softmax", "sigmoid"):
    for lr in ("1e-3", "3e-3"):
        x = [[json.loads(l) for l in open(f"{sys.argv[1]}/runs/ATTN={attn},lr={lr}-seed{s}/log.jsonl")
              if '"event":"eval"' in l][-1]["val_loss"] for s in (1, 2)]
        want[attn, lr] = sum(x) / 2, statistics.stdev(x), min(x), max(x)
order = sorted(want, key=lambda key: want[key][0])
lines = table("--markdown", "--spread", "sd", "--sort", "val_loss").split("\n")
rows = [[c.strip() for c in l.split("|")[1:-1]] for l in lines if l[:1] == "|"]
head, rows = rows[0], rows[2:]
assert head[:4] == ["row", "ATTN", "lr", "val loss"] and [(r[1], r[2]) for r in rows] == order, (lines, order)
assert [r[0] for r in rows] == [str(1 + list(want).index(key)) for key in order], rows
for row, key in zip(rows, order):
    mean, sd, low, high = want[key]
    assert row[3] == f"{mean:.4f} ({low:.4f}-{high:.4f}; sd {sd:.4f})", (row, sd)
assert [r[-1] for r in rows] == ["2/2, best", "2/2", "2/2", "2/2"], rows
latex = table("--latex", "--spread", "t")
assert latex.count("\\\\") == 5 and latex.strip().endswith("\\end{tabular}") and "Student" in latex, latex
for (attn, lr), (mean, sd, *_) in want.items():    # of two seeds the half is 12.706 sd / sqrt 2
    half = 12.706 * sd / 2 ** 0.5
    assert f"{attn} & {lr} & {mean:.4f} $\\pm$ {half:.4f} &" in latex, (latex, half)
END
touch $dir/before; sleep 0.05
works $two $fixed
grep -q '^8 runs, 8 of them done' $said && [ -z "$(find $dir/runs -name log.jsonl -newer $dir/before)" ]
ok $? "what is done was run again: $(head -n 3 $said)"
works scripts/sweep $axes --seed 1,2,5 $fixed
grep -q '^12 runs, 8 of them done' $said && [ "$(find $dir/runs -name log.jsonl -newer $dir/before | wc -l)" -eq 4 ]
ok $? "one more seed: $(head -n 3 $said)"
# notes of the runs once, with their rows; rows that only a flag without effect sets apart
works scripts/sweep BACKEND=cpu --warmup 1,30 --save-every 5,20 --out "$dir/the same" $fixed
[ "$(grep -c '^[24] .* 20 .* = row [13]$' $said)" = 2 ] && [ "$(grep -c 'best$' $said)" = 1 ] && ! grep -q ' = row ' $dir/a.txt
ok $? "equal rows: $(cat $said)"
[ "$(grep -c '^note   all runs: -m bb: the toy\|^note   row 3, row 4: --warmup 30 is more' $said)" = 2 ]
ok $? "notes: $(grep note $said)"
grep -q "the page: scripts/report.py '$dir/the same';" $said; ok $? "a name with a blank: $(tail -n 1 $said)"
csv=$(scripts/report.py "$dir/the same" --csv)
[ "$(echo "$csv" | grep -c 'every=5-seed1"[^,]*,done,"warmup=.*every=20-seed1",.*toy')" = 6 ]; ok $? "same_as and notes: $csv"
# a run of other sources is there, and not missing; one that was moved aside is no run of the sweep
last=$dir/runs/ATTN=sigmoid,lr=3e-3-seed2
cp -r $last $last.old1
sed -i 's/"source": "/"source": "x/' $last/reproduce.json
works $two --report $fixed
grep -q '1/2, 1 out of date' $said && grep -q 'moves such runs aside' $said
ok $? "--report with a run of other sources: $(tail -n 6 $said)"
works scripts/report.py $dir/runs --csv -o $dir/runs.csv
! grep -q 'old1' $dir/runs.csv; ok $? "--csv has a run that was moved aside"
head -n 1 $dir/runs.csv | grep -q ',version,commit,backend,precision,'
ok $? "columns of --csv: $(head -n 1 $dir/runs.csv)"
rm -r $last; mv $last.old1 $last
works scripts/sweep $axes --seed 1,2,5,6 --report $fixed
[ "$(grep -c '3/4, 1 missing' $said)" -eq 4 ]
ok $? "--report with a seed that is not there: $(tail -n 4 $said)"
works env COLUMNS=60 $two --report $fixed
! awk 'length > 60' $said | grep -v '^the page'; ok $? "COLUMNS=60"
dry="scripts/sweep BACKEND=cpu BIAS=none,k --seed 3 --out $dir/dry --dry-run -- -n 5 -b 2 --val-seqs 2"
$dry > $dir/dry.txt 2>&1
[ "$(grep -c '^make ' $dir/dry.txt)" -eq 2 ] &&
    [ "$(grep -c -- "-n 5 -b 2 --val-seqs 2 --seed 3 -o $dir/dry/" $dir/dry.txt)" -eq 2 ]
ok $? "--dry-run: $(cat $dir/dry.txt)"
# the program takes the lines as they are printed: of new runs, where another is in the way, and of
# those that go on
for time in 1 2; do
    works sh -c "set -e; $(grep 'BIAS=none-seed3' $dir/dry.txt)"
    $dry > $dir/dry.txt 2>&1
done
[ "$(grep -c '^mv ' $dir/dry.txt)" -eq 1 ]; ok $? "--dry-run over another run: $(cat $dir/dry.txt)"
scripts/sweep $axes --seed 1 --dry-run $fixed > $dir/again.txt 2>&1
works sh -c "$(grep train_sink $dir/again.txt | head -n 1)"
grep -q -- '--resume' $dir/again.txt; ok $? "--dry-run of what is done: $(cat $dir/again.txt)"

# a run is of the contents of its data and its tokenizer, however they were spelled
python - $dir > $dir/identity.txt 2>&1 <<'END'
import importlib.machinery, importlib.util, os, sys
loader = importlib.machinery.SourceFileLoader("sweep", "scripts/sweep")
sweep = importlib.util.module_from_spec(importlib.util.spec_from_loader("sweep", loader))
loader.exec_module(sweep)
x, y, heavy, t, run, base = [os.path.join(sys.argv[1], n) for n in (
    "x.txt", "y.txt", "z:2.txt", "tok", "run", "base")]
def identities(words):
    rows = list(sweep.settings(sweep.arguments(words)))
    return [sweep.jobs.Run(r, 1, o).key["data"] for r in rows]
class o: runs, label, source, device = "runs", "x", "", "cpu"
def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f: f.write(text)
texts = {x: "a" * (2 << 20), y: "bbb", heavy: "ccc", f"{t}/vocab.json": "{}", f"{t}/merges.txt": "m",
         f"{run}/step_90/state.json": "{4}", f"{run}/step_100/state.json": "{4}",
         f"{run}/step_100/config.json": "{4}", f"{run}/step_100/model.safetensors": "{4}",
         f"{t}/tokenizer_config.json": "{1}", f"{t}/a/tokenizer.json": "{2}", f"{t}/b/m.gguf": "GGUF",
         **{f"{base}/{n}": "{3}" for n in ("config.json", "model.safetensors", "tokenizer.json")}}
for path, text in texts.items(): write(path, text)
pair, tokens = f"{x}:0.7,{y}:3e-1", lambda name: ["--", "-d", y, "--tokenizer", f"{t}{name}"]
for words, changes in ((["--", "-d", x], [x]), (["--", "--data", x], [x]), (["--", f"--data={x}"], [x]),
                       (["--", "-d", "bb", f"--data={x}", "-n", "3"], [x]),
                       (["--", f"--data={y}", "-d", x], [x]), (["-d", x, "--lr", "1,2"], [x]),
                       (["--", "-d", pair], [x, y]), (["--", f"--data={x},{y}"], [x, y]),
                       (["--", "-d", f"{heavy}:1,{y}:2"], [heavy, y]), (["--", "-d", heavy], [heavy]),
                       (tokens(""), [f"{t}/vocab.json", f"{t}/merges.txt", f"{t}/tokenizer_config.json"]),
                       (tokens("/vocab.json"), [f"{t}/vocab.json", f"{t}/merges.txt"]),
                       (tokens("/a"), [f"{t}/a/tokenizer.json"]), (tokens("/b/m.gguf"), [f"{t}/b/m.gguf"]),
                       (["--", "-d", y, "--init", base], list(texts)[-3:]), (["--init", base], list(texts)[-3:]),
                       (["--", f"--init={t}/b/m.gguf"], [f"{t}/b/m.gguf"]),
                       (["--", "--init", run], [f"{run}/step_100/config.json",
                                                f"{run}/step_100/model.safetensors"]),
                       (["--", f"--data={y}", f"--tokenizer={t}/a/tokenizer.json"], [f"{t}/a/tokenizer.json"])):
    first = identities(words)
    if first != identities(words): print(f"{words}: two identities of the same files: {first}")
    for path in changes:         # its last byte
        write(path, texts[path][:-1] + "#")
        if set(first) & set(identities(words)): print(f"{words}: {path} changed, and not {first}")
        write(path, texts[path])
END
[ ! -s $dir/identity.txt ]; ok $? "identity: $(head -n 20 $dir/identity.txt)"
# a file of the directory that the sweep is called from, and its --out
mkdir -p $dir/elsewhere; head -n 60 README.md > $dir/elsewhere/mine.txt
elsewhere() { # the checkout, what follows -d, the line that it becomes
    (cd $dir/elsewhere && $1/scripts/sweep BACKEND=cpu --out here --dry-run -- -d $2 -n 5) > $said 2>&1
    grep -q -- "-d $3 -n 5 --seed 1 -o $dir/elsewhere/here/" $said; ok $? "-d $2 from another directory: $(cat $said)"
}
elsewhere ../../../.. mine.txt:2,bb.txt:1 $dir/elsewhere/mine.txt:2,bb.txt:1
# words that are no files, whole paths, and a checkout that is reached through a link
mkdir -p $dir/elsewhere/bb; ln -sfn "$PWD" $dir/link
whole=$PWD/$dir/elsewhere/mine.txt
elsewhere ../link bb bb; elsewhere ../link mine.txt $dir/elsewhere/mine.txt; elsewhere ../link "$whole" "$whole"
head -n 60 README.md > $dir/a.txt; cp README.md $dir/b.txt
texts="BACKEND=cpu --out $dir/texts -- -n 2 -b 2 --eval-every 0 --val-seqs 2 --probe-seqs 2 --sample 0 --data=$dir/a.txt:2,$dir/b.txt:1"
works scripts/sweep $texts
echo more >> $dir/b.txt; works scripts/sweep $texts
grep -q '^1 runs, 0 of them done' $said && [ -d $dir/texts/default-seed1.old1 ]
ok $? "of a text that changed: $(head -n 2 $said)"
scripts/sweep $texts 2>&1 | grep -q '^1 runs, 1 of them done'; ok $? "of a text that did not change"

# every flag reaches the program once: the last value, in any spelling; those that add are kept
scripts/sweep BACKEND=cpu --out $dir/once --dry-run -- -n 5 --only a -d bb --steps=6 --graph --only b --graph > $said 2>&1
grep -q -- 'train_sink --steps=6 --only a -d bb --graph --only b --seed' $said; ok $? "a flag given twice: $(cat $said)"
# whatever ends the sweep, its runs save and end, too: a closed terminal, SIGKILL, a reader that went away
running() { pgrep -f "train_sink.*$dir/ended/" > /dev/null; }
gone() { # how: none is left
    for i in $(seq 200); do running || break; sleep 0.05; done
    ! running; ok $? "$1: $(cat $said)"
}
long="scripts/sweep BACKEND=cpu --seed 1,2,3 --jobs 2 --out $dir/ended -- -d bb -n 1000000 --sample 0"
for how in HUP QUIT KILL; do
    rm -rf $dir/ended; $long > $said 2>&1 & pid=$!
    for i in $(seq 400); do [ "$(cat $dir/ended/*/log.jsonl 2> /dev/null | grep -c '"step":9,')" = 2 ] && break; sleep 0.05; done
    kill -$how $pid; wait $pid 2> /dev/null
    gone $how; [ "$(grep -l '"event":"stopped"' $dir/ended/*/log.jsonl | wc -l)" = 2 ]; ok $? "$how: no run was saved"
done
rm -rf $dir/ended; $long 2>&1 | head -n 1 > $said; gone pipe
# bad input: one error, one hint, exit status 2, and nothing is trained
refused_sweep() { # words of the error, words of the command
    words=$1; shift; refused "$words" scripts/sweep "$@"
}
refused_sweep 'wanted different values' --lr 1e-3,0.001 -- -d bb
refused_sweep 'wanted different values' --seed 1,01 -- -d bb
refused_sweep 'got it after --' --lr 1e-3 -- -d bb --report
grep -q 'put it before --' $said; ok $? "--report: $(cat $said)"
# a make that is killed is one error, wherever it is
mkdir -p $dir/bin; touch $dir/bin/make; chmod +x $dir/bin/make
for target in folders switches which binary; do
    printf '#!/bin/sh\ncase $* in *%s*) kill -9 $$ ;; esac\nexec %s "$@"\n' $target "$(command -v make)" > $dir/bin/make
    PATH=$PWD/$dir/bin:$PATH refused_sweep "make .*got signal 9, wanted" NORM=branch FFN=relu2 --out $dir/killed
done
refused_sweep "ATTN: got 'softmax,softmax', wanted different"   ATTN=softmax,softmax
refused_sweep "lr: got '1e-3,', wanted different values"        --lr 1e-3, -- -n 3
refused_sweep "lr: got nothing, wanted a value"                 --lr --seed 1
refused_sweep "csv: got a flag of other scripts"                --csv ATTN=softmax
refused_sweep "latex --markdown: got both, wanted one"          --latex --markdown
refused_sweep "spread: got 'x', wanted one of range sd t"       --spread x
refused_sweep "sort: got 'loss', wanted one of val_loss"        --sort loss
refused_sweep "latex: got it after --"                          -- --latex
# losses of other tasks are not compared
works scripts/sweep BACKEND=cpu --bb-vocab 20,30 --out $dir/tasks -- -n 2 -b 2 --eval-every 0 --val-seqs 2 --sample 0
! grep -q best $said; ok $? "the best of two tasks: $(cat $said)"
refused_sweep "got 'x', wanted SWITCH=value"                    x
refused_sweep "unknown switch ATN"                              ATN=x -- -n 3
refused_sweep "ATTN=sofmax is unknown" \
    ATTN=softmax,sofmax BACKEND=cpu -- -n 3
refused_sweep "steps: got it after --"                          -n 3,4 -- --steps 5
refused_sweep "lr: got it twice"                                --lr 1 --lr 2
refused_sweep "seed: got 'x', wanted a whole number"            --seed 1,x
refused_sweep "seed: got '99999999999999999999', wanted a" \
    --seed 99999999999999999999
refused_sweep "o: got it after --"                              -- -o x
refused_sweep "got 1,000,000 runs, wanted 10,000 or fewer" \
    --lr $(seq -s, 1000) --seed $(seq -s, 1000)
refused_sweep "got neither nosuch nor data/nosuch"              BACKEND=cpu -- -d nosuch
refused_sweep "got neither nosuch nor data/nosuch"              BACKEND=cpu -- --data=nosuch
refused_sweep "got neither nosuch nor data/nosuch"              BACKEND=cpu -- -d nosuch:1,README.md:2
refused_sweep "got neither nosuch nor data/nosuch"              BACKEND=cpu -- -d README.md,nosuch
refused_sweep "got neither nosuch nor data/nosuch"              BACKEND=cpu -- -d bb --data nosuch
refused_sweep "-d: got no name in 'README.md,'"                 BACKEND=cpu -- -d README.md,
refused_sweep "-d: got bb in 'bb,README.md', wanted it alone"   BACKEND=cpu -- -d bb,README.md
refused_sweep "got no tokenizer in 'nosuch', wanted tok"        BACKEND=cpu -- -d README.md --tokenizer=nosuch
refused_sweep "got no tokenizer in 'scripts', wanted tok"       BACKEND=cpu -- -d README.md --tokenizer scripts
refused_sweep "two combinations in only=a_b, wanted a directory" --only 'a b,a_b' -- -n 3
refused_sweep "unknown flag --lrr" \
    BACKEND=cpu --lrr 1,2 --out $dir/none -- -n 3
[ ! -e $dir/none ]; ok $? "a run with an unknown flag began"
finish
