# scripts/reproduce --models on tiny models under the paper's names: each number is that of its
# probe, and what is not there is named
. test/ok.sh
need_python 101 test_open_models
export OMP_NUM_THREADS=1
binary=build/cpu/train_sink; out=build/test/open_models; said=$out/stderr
rm -rf $out; mkdir -p $out
cp -r test/after/score/gpt2 $out/gpt2-xl
cp -r test/after/score/llama $out/Llama-2-7b-hf; cp -r test/after/score/gpt2 $out/gpt2-large
$PYTHON test/scripts/texts.py 6 60 > $out/text.jsonl
run() { # the tables, and what of
    $PYTHON scripts/reproduce -d $out/text.jsonl "$@" --out $out/results --binary $binary > $out/stdout 2> $said
    ok $? "reproduce $*: $(cat $said)"
}
probe() { works $binary probe "$@" --json $out/probe.json; } # the model, flags
loss_of() { # the same: its loss
    probe "$@"
    loss=$(python -c 'import json, sys; print("%.3f" % json.load(open(sys.argv[1]))["probe_loss"])' $out/probe.json)
}
run table1 figure12 figure18 figure19 --models $out/gpt2-xl $out/Llama-2-7b-hf $out/gpt2-large
# a model whose tokenizer begins a text with BOS is measured without it, too
loss_of $out/Llama-2-7b-hf --bos none -d $out/text.jsonl
grep -A1 "^table1-llama2-7b-base-natural " $out/stdout | grep -q "^  the same text without BOS .* loss $loss  bos none"
ok $? "without BOS: wanted loss $loss, got $(grep -A1 "^table1-llama2-7b-base-natural " $out/stdout)"
! grep -A1 "^table1-gpt2-xl-natural " $out/stdout | grep -q "without BOS"; ok $? "GPT-2, which has no BOS, twice"
# a probe that measured both ways is two rows of a report
probe $out/Llama-2-7b-hf -d $out/text.jsonl
$PYTHON scripts/report.py $out/probe.json --csv > $out/both.csv 2>&1
grep -q "with BOS" $out/both.csv && [ "$(wc -l < $out/both.csv)" -eq 3 ]; ok $? "report: $(cat $out/both.csv)"
for input in natural random repeated; do
    data=; [ $input = natural ] && data="-d $out/text.jsonl --bos default"
    loss_of $out/Llama-2-7b-hf --probe-input $input $data
    grep -q "^table1-llama2-7b-base-$input .* loss $loss " $out/stdout
    ok $? "$input: wanted loss $loss, got $(grep "^table1-llama2-7b-base-$input" $out/stdout)"
done
grep -q "^table1-gpt2-xl-repeated .* paper  62.28 " $out/stdout
ok $? "the paper's number: $(grep gpt2-xl-repeated $out/stdout)"
grep -q "^of the paper.s models these are not there, so not probed: .*Meta-Llama-3-8B (meta-llama/Meta-Llama-3-8B)" $out/stdout
ok $? "what is missing: $(tail -n 2 $out/stdout)"
[ "$(grep -c 'h_first *h_rest' $out/stdout)" -eq 1 ] && grep -q 'heads above' $out/stdout
ok $? "norms and heads"
works python - $out <<'END'
import sys
import dumps, open_models
dump = sys.argv[1] + "/results/models/figure18-gpt2-large"
rows = open_models.angles(dump)
assert [r[0] for r in rows] == [0, 1], rows
def matrix(path):
    T, numbers = dumps.read_npy(path)
    return [numbers[t * (T + 1):(t + 1) * (T + 1)] for t in range(T)]
maps = [[matrix(f"{dump}/1_{h}_{kind}.npy")
         for kind in ("cosine", "product")] for h in (0, 1)]
first = sum(m[0][t][1] for m in maps for t in range(1, 64)) / 126
other = sum(sum(m[1][t][2:t + 2]) / t for m in maps for t in range(1, 64)) / 126
assert abs(rows[1][1] - first) < 1e-6 and abs(rows[1][4] - other) < 1e-5, (rows, first, other)
assert all(-1 <= x <= 1 for m in maps for x in m[0][40][1:42]) and len(maps[0][0]) == 64
END
grep -q '"alpha1"' $out/results/*-models.html; ok $? "the page holds the probes"
# Figure 3, of any model: a line a length, those that the model has positions for,
# and a file for each model
$PYTHON test/scripts/texts.py 40 300 > $out/long.jsonl
run figure3 --models $out/gpt2-xl $out/Llama-2-7b-hf -d $out/long.jsonl
[ "$(grep -c '^  T ' $out/stdout)" = 10 ] && grep -q '^  T  1024  eps 0.1: ' $out/stdout
ok $? "lengths: $(cat $out/stdout)"
works python - $out <<'END'
import json, sys
out = sys.argv[1]
for name, lengths in (("gpt2-xl", [16, 32, 64]),
                      ("llama-2-7b-hf", [16, 32, 64, 128, 256, 512, 1024])):
    every = json.load(open(f"{out}/results/models/figure3-{name}.json"))["all"]
    assert [e["sink"]["T"] for e in every] == lengths, [e["sink"]["T"] for e in every]
    for e in every:
        said = "  ".join(f"eps {s['eps']:g}: {s['sink_k'][0] * 100:6.2f}" for s in e["sinks"])
        line = f"  T {e['sink']['T']:5d}  {said}"
        assert len(e["sinks"]) == 5 and line in open(out + "/stdout").read(), said
END
# Figures 25 to 27: of Jamba, its layers with attention alone, here the second of three
cp -r test/open/families/jamba $out/Jamba-v0.1
$PYTHON - $out/Jamba-v0.1 <<'END'
import json, sys
letters = sorted(set("the river a door light house 012345".replace(" ", "\u0120")))
json.dump({"added_tokens": [], "normalizer": None, "post_processor": None,
           "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
           "decoder": {"type": "ByteLevel"},
           "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []}},
          open(sys.argv[1] + "/tokenizer.json", "w"))
END
run figure25 figure26 figure27 --models $out/Jamba-v0.1
works python - $out <<'END'
import json, os, sys
out = sys.argv[1]
said = open(out + "/stdout").read()
e = json.load(open(f"{out}/results/models/figure27-jamba-v0.1.json"))
assert e["layers"] == [1] and len(e["alpha1"]) == 1 and len(e["alpha1"][0]) == 4, e
mean, top = sum(e["alpha1"][0]) / 4, max(e["alpha1"][0])
line = f"     2{mean:14.3f}{top:14.3f}"
assert said.count(line) == 2 and "paper  88.48" in said, (line, said)
assert "Jamba-1.5-Mini" in said.split("not there, so not probed: ")[1], said
dump = f"{out}/results/models/figure25-jamba-v0.1"
assert dump in said and sorted(n for n in os.listdir(dump) if "map" in n) == \
    [f"1_{h}_map.npy" for h in range(4)]
END
# Table 7: positions replaced and swapped, beside the paper's numbers; a swap is one:
# twice the same is the model as it is
run table7 --models $out/gpt2-xl
[ "$(grep -c '^table7-' $out/stdout)" = 11 ]; ok $? "table7: rows: $(cat $out/stdout)"
grep -q '^table7-as-it-is  .*paper  62.28' $out/stdout &&
    grep -q '^table7-swapped-5  .*paper   1.44  Sink_5 .*paper  57.63' $out/stdout \
    && grep -q '^table7-replaced-25 .*Sink_25 *[0-9.]*  paper   0.00' $out/stdout
    ok $? "table7: the paper's numbers: $(cat $out/stdout)"
works python - $out <<'END'
import json, sys
runs = lambda id: json.load(open(f"{sys.argv[1]}/results/models/table7-{id}.json"))["runs"]
plain, replaced, swapped = runs("as-it-is")[0], runs("replaced-5")[1], runs("swapped-5")[1]
assert runs("swapped-5")[0] == plain == runs("replaced-5")[0] and len(plain["sink_k"]) == 10
models = (plain, replaced, swapped)
assert len({round(x["loss"], 4) for x in models}) == 3, models
line = next(l for l in open(sys.argv[1] + "/stdout") if l.startswith("table7-swapped-20 "))
at = runs("swapped-20")[1]["sink_at"]
assert at["k"] == [20] and f"Sink_20{at['sink_k'][0][0] * 100:7.2f}  paper  51.70" in line, (at, line)
END
# --sink-at is Sink_k, in layers with a window, too
probe test/open/families/gpt_neo --probe-input random --sink-at 1,2,9,10 --eps 0.1,0.02
works python -c 'import json, sys; e = json.load(open(sys.argv[1]))
want = [[s["sink_k"][k - 1] for k in (1, 2, 9, 10)] for s in e["sinks"]]
assert e["sink_at"] == {"k": [1, 2, 9, 10], "eps": [0.1, 0.02], "sink_k": want}, (e["sink_at"], want)' $out/probe.json
# of a layer with a window alpha_1 is the mean over the queries that still see the first token
probe test/open/families/gpt_neo --probe-input random --probe-seqs 1 --dump $out/seen --dump-heads all
works python - $out test/open/families/gpt_neo/config.json <<'END'
import json, sys
import dumps
out, config = sys.argv[1], json.load(open(sys.argv[2]))
e = json.load(open(out + "/probe.json"))
T, kinds = e["sink"]["T"], config["attention_layers"]
assert config["window_size"] < T and len(set(kinds)) == 2, kinds
for l, heads in enumerate(e["alpha1"]):
    queries = config["window_size"] if kinds[l] == "local" else T
    for h, alpha in enumerate(heads):
        size, A = dumps.read_npy(f"{out}/seen/{l}_{h}_map.npy")
        want = sum(A[t * (size + 1) + 1] for t in range(queries)) / queries
        assert abs(alpha - want) < 1e-5, (l, h, alpha, want)
END
# the swap beside a model whose file has the two rows swapped
cp -r $out/gpt2-xl $out/swapped
works python - $out/swapped/model.safetensors <<'END'
import json, sys
data = bytearray(open(sys.argv[1], "rb").read())
n = int.from_bytes(data[:8], "little")
t = next(t for name, t in json.loads(data[8:8 + n]).items() if name.endswith("wpe.weight"))
row = (t["data_offsets"][1] - t["data_offsets"][0]) // t["shape"][0]
a, b = (8 + n + t["data_offsets"][0] + k * row for k in (0, 4))
data[a:a + row], data[b:b + row] = data[b:b + row], data[a:a + row]
open(sys.argv[1], "wb").write(data)
END
for model in "gpt2-xl --edit pe:1=from5;pe:5=from1" "swapped "; do
    works $binary eval $out/$model --probe-input repeated --json $out/${model%% *}.json
done
works python -c 'import json, sys; a, b = (json.load(open(p))["runs"][-1] for p in sys.argv[1:])
assert abs(a["by_position"][0] - b["by_position"][0]) < 1e-5 and a["sink_k"] == b["sink_k"], (a, b)' $out/gpt2-xl.json $out/swapped.json
grep -q "probes of open models, with --models" - <<END; ok $? "without --models"
$($PYTHON scripts/reproduce table8 --dry-run 2>&1; $PYTHON scripts/reproduce table8 --out $out/results 2>&1 | head -n 3)
END
refused "wanted 1 to 64" $binary probe test/open/families/gpt_neo --probe-input random --sink-at 65
# Figure 9: a line a source; Figure 10: accuracies, and how they go with Sink_1
cp -r test/after/score/gpt2 $out/gpt2
run figure9 figure10 --models $out/gpt2-xl $out/gpt2-large $out/gpt2 -d $out/text.jsonl,$out/long.jsonl \
    --task test/after/score/hellaswag.jsonl
for source in text long; do
    grep -q "^  $out/$source.jsonl  eps 0.2: .* eps 0.3: .* eps 0.4: " $out/stdout; ok $? "figure 9: no line of $source: $(cat $out/stdout)"
done
grep -q '^figure10-gpt2-xl .* acc [0-9.]*, acc_norm ' $out/stdout && grep -q '^correlation of Sink_1 and acc, 3 models of gpt: - ' $out/stdout
ok $? "figure 10: $(cat $out/stdout)"
python -c 'import open_models
open_models.correlations([("opt-%d" % i, i * i, i) for i in range(3)] + [("pythia-1", 9, 0.5), ("Pythia-2", 8, 3)])' > $out/stdout
[ "$(cat $out/stdout)" = "correlation of Sink_1 and acc, 3 models of opt: 0.96
correlation of Sink_1 and acc, 5 models of all families: 0.46" ]; ok $? "correlations: $(cat $out/stdout)"
refused "wanted a model's directory" \
    $PYTHON scripts/reproduce table1 --models $out/nothing -d $out/text.jsonl --binary $binary
refused "wanted text for each model's own tokenizer" \
    $PYTHON scripts/reproduce table1 --models $out/gpt2-xl --binary $binary
refused "none of these tables is of open models" \
    $PYTHON scripts/reproduce table4 --models $out/gpt2-xl -d $out/text.jsonl --binary $binary
for option in "--seeds 5" "--part 1/2" --dry-run --report --markdown "-- --steps 5"; do
    refused "${option%% *} with --models: got both" \
        $PYTHON scripts/reproduce table1 --models $out/gpt2-xl -d $out/text.jsonl $option
done
refused "got no figure10, wanted it among the tables" \
    $PYTHON scripts/reproduce table1 --models $out/gpt2-xl -d $out/text.jsonl --task x.jsonl
# without --models: nothing is written
for table in table1 "table8 figure25" figure12; do
    rm -rf $out/nowhere
    refused "got no models, wanted --models" $PYTHON scripts/reproduce $table --out $out/nowhere
    [ ! -e $out/nowhere ] && ! grep -q 'Commit ,\|no run is done after' $said.out
    ok $? "$table without --models: $(ls $out/nowhere 2>&1 | head -n 1)"
done
# a model of one's own, under a name that the paper does not have: one more row of each input
cp -r test/after/score/llama "$out/My model.v2"
run table1 figure12 figure3 --models "$out/My model.v2" $out/gpt2-xl
for row in table1-my-model.v2-natural table1-my-model.v2-random table1-my-model.v2-repeated figure12-my-model.v2 table1-gpt2-xl-random; do
    [ "$(grep -c "^$row " $out/stdout)" = 1 ]; ok $? "no row $row: $(grep '^table1' $out/stdout)"
done
grep '^table1-my-model.v2-natural ' $out/stdout | grep -q 'paper  *-  loss'; ok $? "numbers of the paper's beside one's own: $(grep my-model $out/stdout)"
[ -s $out/results/models/table1-my-model.v2-natural.json ]; ok $? "no probe of one's own model is kept"
# the list: every table has a title, and what is of open models has no empty columns
$PYTHON scripts/reproduce list > $out/list; ok $? "list"
for table in $(grep -v '^#' scripts/experiments.tsv | sed 1d | cut -f 1 | cut -d - -f 1 | sort -u); do
    grep -q "^$table  *[a-z1A-Z][a-zA-Z0-9_-]*[ :,;]" $out/list; ok $? "list: no title of $table: $(grep "^$table " $out/list)"
done
! grep -q ' 0  *0 ' $out/list; ok $? "list: empty rows"
# the runs it announces are those that are trained
for scale in laptop text; do
    column=$(grep '^  *paper \|^  *laptop ' $out/list | tr -s ' ' '\n' | grep . | grep -nx $scale | cut -d : -f 1)
    for table in table4 table10 figure5; do
        told=$(grep "^$table " $out/list | grep -o '[0-9]*: [0-9]' | sed -n ${column}p | cut -d : -f 1)
        runs=$($PYTHON scripts/reproduce $table --scale $scale --seeds 1 --dry-run | grep -c '/train_sink ')
        [ "$told" = "$runs" ]; ok $? "list: $table at $scale: $told runs, --dry-run has $runs"
    done
done
finish
