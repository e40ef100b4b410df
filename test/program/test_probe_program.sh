# the command probe, as it is used: what it says to a person is what --json says, and it shows that it works on
# standard error alone, if that is a terminal
#     sh test/program/test_probe_program.sh
. test/ok.sh
scratch
command -v python3 > /dev/null || skip_all "no python3"
train() { works "$program" train --eval-every 0 --sample 0 "$@"; }
train -n 40 --lr 2e-2 --layers 12 --width 16 --heads 2 --ffn-width 16 --seq 32 -b 8 -o "$dir/deep"
train -n 1 -o "$dir/one"
cat > "$dir/check.py" << 'END'
import json, os, pty, re, subprocess, sys
program, checkpoint, out, *flags = sys.argv[1:]
command = [program, "probe", checkpoint, "--json", out, *flags]
# standard output into a pipe, standard error a terminal
master, slave = pty.openpty()
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, text=True)
os.close(slave)
shown = b""
try:
    while block := os.read(master, 65536): shown += block
except OSError:
    pass
said = process.stdout.read()
assert process.wait() == 0, said
assert b" of 50 sequences" in shown and b"layer 1 of " in shown, shown[:300]
assert shown.rstrip().endswith(b"\x1b[K"), shown[-80:]     # the line is taken away at the end
assert "\r" not in said and "\x1b" not in said, said
said_once = subprocess.run(command, capture_output=True, text=True).stderr    # to a log: what is to be done
assert re.fullmatch(r"note   measuring 50 sequences of \d+ tokens, \d+ layers\n", said_once), said_once

o = json.load(open(out))
sinks = o.get("sinks", [o["sink"]])
for s in sinks:
    share = s["sink_k"][0]
    many = ("less than 1" if 0 < share < 0.01 else "more than 99" if 0.99 < share < 1
            else f"{100 * share:.0f}")
    line = (f"  in {many}% of all (head, sequence) pairs, token 1 gets more than "
            f"{s['eps']:g} of the attention\n")
    assert line in said, (line, said)
tenths = "".join(str(min(9, int(10 * sum(row) / len(row)))) for row in o["alpha1"])
row = re.search(r"by layer, in tenths: ([0-9 ]+)   \(uniform attention: ([0-9.]+)", said)
assert row[1].replace(" ", "") == tenths, (row[1], tenths)
assert [len(part) for part in row[1].split(" ")] == [10] * (len(tenths) // 10) + [len(tenths) % 10] * (len(tenths) % 10 > 0)
T = o["sink"]["T"]
assert abs(float(row[2]) - sum(1 / i for i in range(1, T + 1)) / T) < 0.0051
where = lambda i: f"after layer {i - 1}" if i else "in the embedding"
def worst(above, below):
    ratios = [a / b for a, b in zip(above, below)]
    i = max(range(len(ratios)), key=ratios.__getitem__)
    return ratios[i], where(i)
for text, above, below in ((r"token 1 has up to (\S+) times the norm of the others', (.*)", "h_norm_first", "h_norm_rest"),
                           (r"entry of any hidden state is up to (\S+) times the median, (.*)", "h_max", "h_median")):
    if T == 1 and "rest" in below:
        assert not re.search(text, said), said
        continue
    found = re.search(text, said)
    ratio, place = worst(o[above], o[below])
    assert abs(float(found[1]) / ratio - 1) < 0.01 and found[2] == place, (found[0], ratio, place)
assert f"next: scripts/plot.py all {out};" in said, said
END
for flags in "" "--eps 0.05,0.3,0.999999" "--probe-len 1"; do
    for run in deep/step_40 one/step_1; do
        # shellcheck disable=SC2086
        works python3 "$dir/check.py" "$program" "$dir/$run" "$dir/p.json" --probe-seqs 50 $flags
    done
done
# where there is no second eigenvalue, no sentence speaks of one
train -n 1 --width 1 --heads 1 --head-dim 2 --layers 2 --ffn-width 8 --seq 16 -o "$dir/thin"
"$program" probe "$dir/thin" --anatomy > "$dir/out" 2>&1 && grep -q "steps up" "$dir/out" && ! grep -qw "nan\|-nan" "$dir/out"
ok $? "width 1: $(grep nan "$dir/out")"
# without --json the next command says how
"$program" probe "$dir/one/step_1" > "$dir/out" 2>&1 && grep -q '^next: the same with --json p.json, then scripts/plot.py all p.json' "$dir/out"
ok $? "no next step: $(tail -n 1 "$dir/out")"
# a tokenizer or a run that puts BOS first: measured without it, as ever, and with it, each to the bit as --bos says
mkdir "$dir/words"; cp test/vectors/llama2.json "$dir/words/tokenizer.json"
for i in $(seq 300); do echo "{\"text\": \"A man sat on a bench, $i by $i, and said: one two three four five six seven.\"}"; done > "$dir/text.jsonl"
tail -n +2 "$dir/text.jsonl" | sed 's/.*"text": "\(.*\)"}/\1/' > "$dir/text.txt"
train -n 2 -d "$dir/text.txt" --tokenizer "$dir/words" --layers 2 --width 16 --heads 2 --ffn-width 16 --seq 32 -b 8 -o "$dir/alone"
train -n 2 -d "$dir/text.txt" --tokenizer "$dir/words" --bos seq --layers 2 --width 16 --heads 2 --ffn-width 16 --seq 32 -b 8 -o "$dir/begun"
works "$program" export "$dir/alone/step_2" -o "$dir/theirs"
probe() { said=$dir/$3.out works "$program" probe "$1" -d "$dir/$2" --probe-len 16 --json "$dir/$3.json" $4; }
both() { # model, the --bos that is measured, too, what the note says
    for text in text.jsonl text.txt; do
        probe "$1" $text p ""; probe "$1" $text none "--bos none"; probe "$1" $text with "--bos $2"
        check "both ways, $1 $text" python3 - "$dir" "$3" << 'END'
import json, sys
dir, note = sys.argv[1:]
p, none, given = (json.load(open(f"{dir}/{n}.json")) for n in ("p", "none", "with"))
said = open(f"{dir}/p.out").read()
also = p.pop("with_bos")
assert p == none, "without BOS"
assert "with_bos" not in given and also["bos"] == given["bos"] != none["bos"], (also["bos"], given["bos"])
assert all(also[k] == given[k] for k in ("sink", "alpha1", "probe_loss", "input")), "with BOS"
assert also["alpha1"] != p["alpha1"], "the two are one"
assert note in said and "measured both ways" in said, said
for o in (p, also):
    assert f"bos {o['bos']} | loss {o['probe_loss']:.4f} |" in said, said
END
    done
}
both "$dir/theirs" default "begins a text with <s>, and here it does not"
both "$dir/begun/step_2" seq "was trained with --bos seq, and here no BOS is added"
probe "$dir/alone/step_2" text.txt p ""
! grep -q "both ways\|BOS" "$dir/p.out"; ok $? "a run without BOS: $(cat "$dir/p.out")"
"$program" eval "$dir/theirs" -d "$dir/text.txt" --probe-len 16 > "$dir/out" 2>&1 && grep -q "does not: --bos default adds it" "$dir/out"
ok $? "eval says it: $(tail -n 1 "$dir/out")"
rm "$dir/theirs/tokenizer.json"
"$program" probe "$dir/theirs" -d test/open/families/tokens --probe-len 16 > "$dir/out" 2>&1
grep -q "note   no tokenizer says whether this model wants a BOS" "$dir/out"; ok $? "no tokenizer: $(tail -n 3 "$dir/out")"
finish
