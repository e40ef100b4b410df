# where a number is from is said: the task of a run, the program, flags and tokenizer behind --json, and
# what a model card says of a run
#     sh test/program/test_origin.sh
. test/ok.sh
scratch
small="-b 4 --seq 16 --width 16 --eval-every 0 --sample 0 --val-seqs 4 --probe-seqs 4 --probe-len 16"
probe="--probe-seqs 4 --probe-len 16"
say() { said=$("$@" 2>&1); code=$?; }
has() { echo "$said" | grep -q -e "$1"; }
seq 4000 > "$dir/text.txt"; seq 4001 8000 > "$dir/more.txt"

# the built-in task of a run is another with other --bb- flags
"$program" train $small -n 20 --lr 5e-3 --bb-table 9 --bb-temp 3 -o "$dir/bb" > "$dir/out" 2>&1 || cat "$dir/out"
say "$program" probe "$dir/bb" $probe --json "$dir/p.json"
has ', bos <s> |' && has 'held out by the run' && ! has 'note   the run was'; ok $? "the run's own task: $said"
grep -q '"program":{"version":"[^"]*","commit":"[^"]*","precision":"fp32","backend":"cpu"}' "$dir/p.json"
ok $? "--json names no program: $(cat "$dir/p.json")"
note='note   the run was trained with --bb-temp 3 --bb-table 9; here it is --bb-temp 2 --bb-table 1'
say "$program" probe "$dir/bb" $probe -d bb; has "$note"; ok $? "probe -d bb: $said"
say "$program" probe "$dir/bb" $probe --bb-temp 4 --json "$dir/p.json"
has "of another task than the run's" && ! has 'held out' && grep -q '"flags":"--bb-temp 4"' "$dir/p.json"
ok $? "probe --bb-temp 4: $said"
say "$program" eval "$dir/bb" $probe --stream 4+4 --json "$dir/e.json"
has 'bos <s>' && grep -q '"bos":"<s>"' "$dir/e.json" && grep -q '"proxy_k":' "$dir/e.json" && grep -q '"eps":0.3' "$dir/e.json"
ok $? "eval of the built-in task: $said"
loss() { sed -n 's/^eval  *0 | val \([0-9.]*\).*/\1/p' "$1"; }
"$program" train $small -n 1 --init "$dir/bb" -o "$dir/on" > "$dir/own.txt" 2>&1
"$program" train $small -n 1 --init "$dir/bb" --bb-table 9 --bb-temp 3 -o "$dir/on2" > "$dir/typed.txt" 2>&1
"$program" train $small -n 1 --init "$dir/bb" -d bb -o "$dir/on3" > "$dir/other.txt" 2>&1
[ -n "$(loss "$dir/own.txt")" ] && [ "$(loss "$dir/own.txt")" = "$(loss "$dir/typed.txt")" ]
ok $? "--init of a run of bb goes on with its task: $(loss "$dir/own.txt") $(loss "$dir/typed.txt")"
[ "$(loss "$dir/own.txt")" != "$(loss "$dir/other.txt")" ] && grep -q "$note" "$dir/other.txt"
ok $? "--init with -d bb: $(cat "$dir/other.txt")"

# other flags of the text, and another tokenizer
say "$program" train $small -n 2 -d "$dir/text.txt" --fix-token 1:65 -o "$dir/run"
! has 'sinks are measured'; ok $? "T of the sinks: $said"
say "$program" train $(echo $small | sed 's/--probe-len 16//') -n 1 -d "$dir/text.txt" -o "$dir/short"
has 'note   sinks are measured at T 16, the length of a sequence, and not at 64'; ok $? "a short sequence: $said"
say "$program" probe "$dir/run" $probe --probe-input random --seed 5 --json "$dir/p.json"
grep -q '"flags":"[^"]*--seed 5' "$dir/p.json"; ok $? "the seed of random tokens: $said"
say "$program" probe "$dir/run" $probe -d "$dir/text.txt" --tokenizer demo/tokenizer.json
[ $code = 2 ] && has 'note   --tokenizer demo/tokenizer.json gives other ids than the tokenizer of'
ok $? "another tokenizer: $said"
say "$program" train --resume -o "$dir/run" --tokenizer demo/tokenizer.json
[ $code = 2 ] && has 'tokenizer'; ok $? "--resume with another tokenizer: $said"
say "$program" train --resume -o "$dir/run" -n 4 --min-lr 1e-5
[ $code = 2 ] && has -- '--min-lr 1e-05 has no effect without --schedule cosine'; ok $? "--resume with a flag that nothing reads: $said"
say "$program" train $small -n 1 -d "$dir/text.txt" --prefix 8 --min-context 4 -o "$dir/no"
[ $code = 2 ] && has -- '--min-context 4 has no effect without a value above --prefix'; ok $? "--min-context within the prefix: $said"
say "$program" train $small -n 1 -d "$dir/text.txt" --bos doc -o "$dir/doc"
has 'note   --bos doc: a .txt is one document'; ok $? "--bos doc of one document: $said"
say "$program" probe "$dir/doc" $probe; has 'before documents |'; ok $? "bos of documents: $said"
say "$program" train $small -n 2 -d "$dir/text.txt:1,$dir/more.txt:3" --only embed --init "$dir/run" -o "$dir/mix"
say "$program" eval "$dir/mix" $probe
[ $code = 2 ] && has 'was trained on' && has "HINT: -d $dir/text.txt"; ok $? "eval of a mixture: $said"

# the model card: the flags of this step, not of the first
"$program" train --resume -o "$dir/run" -n 4 --lr 1e-2 --schedule cosine --min-lr 1e-3 --warmup 1 > "$dir/out" 2>&1 || cat "$dir/out"
"$program" export "$dir/run" --out "$dir/card" > "$dir/out" 2>&1 || cat "$dir/out"
said=$(cat "$dir/card/README.md")
has '| flags | --fix-token 1:65 .*--steps 4 --lr 0.01 --warmup 1 --schedule cosine --min-lr 0.001 ' && has '| train_sink | [0-9.]* |'
ok $? "the card of a run that went on otherwise: $said"
"$program" export "$dir/mix" --out "$dir/card2" > "$dir/out" 2>&1 || cat "$dir/out"
said=$(cat "$dir/card2/README.md")
has "| data | text.txt:1,more.txt:3 |" && has '| flags | .*--init .*--only embed'
ok $? "the card of a mixture: $said"

# a tokenizer may have added tokens that its model has no row for, as long as no text has one
"$program" train $small -n 1 -d "$dir/text.txt" --tokenizer demo/tokenizer.json -o "$dir/ids" > "$dir/out" 2>&1 || cat "$dir/out"
sed 's/"added_tokens":\[/&{"id":512,"content":"<x>","special":true},/' demo/tokenizer.json > "$dir/ids/step_1/tokenizer.json"
printf '{"text":"%s"}\n' $(seq 1000000 1000020 | sed 's/$/_a_longer_text_than_seventeen_tokens_in_any_case/') > "$dir/r.jsonl"
for data in "$dir/text.txt" "$dir/r.jsonl"; do
    say "$program" probe "$dir/ids" $probe -d "$data"; [ $code = 0 ]; ok $? "a spare id, $data: $said"
done
cp "$dir/text.txt" "$dir/late.txt"; echo '<x> 1' >> "$dir/late.txt"
say "$program" train $small -n 1 -d "$dir/late.txt" --init "$dir/ids" -o "$dir/late"
[ $code = 2 ] && has 'the text has token 512, "<x>"' && [ ! -d "$dir/late" ]; ok $? "training on it: $said"
say "$program" generate "$dir/ids" --prompt 12 --tokens 2; [ $code = 0 ]; ok $? "generate with a spare id: $said"
say "$program" generate "$dir/ids" --prompt '12 <x>' --tokens 2
[ $code = 2 ] && has 'the text has token 512, "<x>", and the model has 512 ids'; ok $? "generate of it: $said"
echo '<x>' >> "$dir/more.txt"; sed -i '1s/^/<x> /' "$dir/more.txt"
say "$program" probe "$dir/ids" --probe-seqs 400 --probe-len 16 -d "$dir/more.txt"
[ $code = 2 ] && has '512'; ok $? "a text with it: $said"

# what is not downloaded
say "$program" probe google/gemma-3-1b-it -d "$dir/text.txt"
[ $code = 2 ] && has 'HINT: scripts/fetch_models.py models google/gemma-3-1b-it gets it, then give models/gemma-3-1b-it$'; ok $? "a name of the hub: $said"
finish
