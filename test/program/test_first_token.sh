# what stood first is said: a probe and an eval of a run with --fix-token name its edits, let typed
# ones take their place, and say where the text is read without; data and weights that have changed
#     sh test/program/test_first_token.sh
. test/ok.sh
scratch
seq 4000 > "$dir/text.txt"
train() {
    "$program" train -d "$dir/text.txt" --width 16 --seq 16 -n 2 --batch 2 --eval-every 0 --sample 0 --val-seqs 4 \
        --probe-seqs 4 --probe-len 16 "$@" > "$dir/train.txt" 2>&1
}
train --fix-token 1:65,3:66 --random-token 2 -o "$dir/run" || cat "$dir/train.txt"
own="--random-token 2 --fix-token 1:65,3:66"
# measured FLAGS..: $said is what probe said, $line its result, $flags and $loss those of --json
measured() {
    said=$("$program" probe "$dir/run" --probe-seqs 4 --probe-len 16 --json "$dir/p.json" "$@" 2>&1)
    line=$(echo "$said" | grep ', eps ')
    flags=$(sed 's/.*"flags":"\([^"]*\)".*/\1/' "$dir/p.json")
    loss=$(sed 's/.*"probe_loss":\([0-9.]*\).*/\1/' "$dir/p.json")
}
has() { echo "$said" | grep -q -e "$1"; }
without() { ! has "was trained with"; }
measured
[ "$flags" = "$own" ] && has "bos none, $own | loss" && has "note   $own takes the place of what stood" && without
ok $? "the run's own edits: $line"
! has "have changed since"; ok $? "a change where nothing has changed: $said"
whole=$loss
measured --random-token 1
[ "$flags" = "--random-token 1 --fix-token 3:66" ] && [ "$loss" != "$whole" ] &&
    has "note   the run was trained with $own; here it is --random-token 1 --fix-token 3:66"
ok $? "a random token takes the place of a fixed one: $said"
measured --fix-token 2:70
[ "$flags" = "--fix-token 2:70" ] && has "was trained with"; ok $? "a fixed token takes the place of a random one: $flags"
measured --fix-token 3:66,1:65
without; ok $? "the same edits in another order: $said"
measured --bos default
[ "$flags" = "$own" ] && has "bos default: fixed," && without; ok $? "--bos default, which is there: $said"
measured --fix-token= --random-token=
[ "$flags" = "" ] && has "; the text is read without$"; ok $? "no edits: $flags"
measured --bos 70
[ "$flags" = "--random-token 2 --fix-token 3:66" ] && has "bos F,"; ok $? "--bos takes the first place: $line"
measured --window 4
[ "$flags" = "$own --window 4" ]; ok $? "a window: $flags"
measured -d "$dir/text.txt"
[ "$flags" = "" ] && has "; the text is read without$"; ok $? "other data: $said"
measured -d "$dir/text.txt" --bos default; has "bos default: A |" && has "; here it is --bos default$"; ok $? "--bos default of other data: $said"
measured -d "$dir/text.txt" --random-token 2 --fix-token 1:65,3:66
[ "$flags" = "$own" ] && without; ok $? "other data with the same edits: $said"
grep -q '"checkpoint":"[^"]*/run/step_2"' "$dir/p.json"; ok $? "no checkpoint in --json"
"$program" eval "$dir/run" --probe-len 16 --probe-seqs 1 --stream 0+16,0+4 --json "$dir/e.json" > "$dir/e.txt" 2>&1
grep -q "bos none, $own$" "$dir/e.txt" && grep -q "\"flags\":\"$own\"" "$dir/e.json"; ok $? "eval: $(cat "$dir/e.txt")"
[ "$(grep -c 'the change had no effect' "$dir/e.txt")" = 2 ]; ok $? "the rows of --stream 0+16, and no other: $(cat "$dir/e.txt")"
! grep -q nan "$dir/e.txt"; ok $? "an error of one sequence: $(cat "$dir/e.txt")"
"$program" generate "$dir/run" --prompt 1 --tokens 2 2> "$dir/note.txt" > "$dir/g.txt"
printf '%s\n' "note   token 65 is put before a text: the run's sequences began with it" \
    "note   the run was trained with --random-token 2 --fix-token 3:66; the text is read without" > "$dir/wanted.txt"
grep -v newest "$dir/note.txt" | cmp -s - "$dir/wanted.txt"; ok $? "generate: $(cat "$dir/note.txt")"
for bos in default 65 A none B; do
    "$program" generate "$dir/run" --bos $bos --prompt 1 --tokens 9 --temperature 0 2> "$dir/note.txt" > "$dir/g.$bos"
    [ "$(cut -c 1 "$dir/g.$bos" | head -n 1)" = 1 ]; ok $? "generate --bos $bos: $(cat "$dir/g.$bos" "$dir/note.txt")"
done
cmp -s "$dir/g.default" "$dir/g.65" && cmp -s "$dir/g.A" "$dir/g.65"; ok $? "--bos default is the run's first token"
"$program" train --resume -o "$dir/run" -n 3 --sample 8 --eval-every 1 > "$dir/train.txt" 2>&1
grep -q '"event":"sample"' "$dir/run/log.jsonl"; ok $? "a sample: $(cat "$dir/train.txt")"
rm -rf "$dir/run/step_3"
! grep -q note "$dir/g.txt"; ok $? "a note within the text of generate"
# --init
train --init "$dir/run" -o "$dir/more"; grep -q "note   the run was trained with $own; the text is read without" "$dir/train.txt"
ok $? "--init: $(cat "$dir/train.txt")"
"$program" train --init "$dir/run" -n 1 -o "$dir/no" > "$dir/no.txt" 2>&1
[ $? = 2 ] && grep -q "got no --data: wanted the text to go on with: --data FILE" "$dir/no.txt"; ok $? "--init without data: $(cat "$dir/no.txt")"
# what has changed since
seq 4001 8000 > "$dir/text.txt"
measured; has "of data that have changed since the run$"; ok $? "other text in the same file: $said"
seq 4000 > "$dir/text.txt"
measured; has "held out by the run$" && [ "$loss" = "$whole" ]; ok $? "the same text again: $said"
# weights of another family that stay in their file have not changed, nor has text that is read otherwise
"$program" train --init test/open/families/mistral -d bb --bb-vocab 20 -n 1 --seq 16 --batch 2 --sample 0 --val-seqs 2 \
    --probe-seqs 2 -o "$dir/family" > "$dir/train.txt" 2>&1
said=$("$program" probe "$dir/family" --probe-seqs 2 2>&1)
[ $? = 0 ] && ! has "have changed since"; ok $? "another family's run: $said"
printf '{"text":"%s"}\n' $(seq 600) > "$dir/docs.jsonl"
"$program" train -d "$dir/docs.jsonl" --bos doc --width 16 --seq 16 -n 1 --batch 2 --sample 0 --val-seqs 2 --probe-seqs 2 \
    --probe-len 16 -o "$dir/docs" > "$dir/train.txt" 2>&1
said=$("$program" probe "$dir/docs" --probe-seqs 2 --probe-len 16 --bos none 2>&1)
has "held out by the run" && ! has "have changed since"; ok $? "documents without their BOS: $said"
# a damaged state.json costs generate its note, and what another wrote there cannot draw on the terminal
cp -r "$dir/run/step_2" "$dir/damaged"
echo '{"flags": ' > "$dir/damaged/state.json"
"$program" generate "$dir/damaged" --prompt 1 --tokens 2 > "$dir/g.txt" 2>&1; ok $? "generate without state.json: $(cat "$dir/g.txt")"
printf '{"flags":{"fix_token":"1:5\\u001b[31mRED\\nerror: gone"}}' > "$dir/damaged/state.json"
"$program" generate "$dir/damaged" --prompt 1 --tokens 2 > "$dir/g.txt" 2>&1
grep -q "trained with" "$dir/g.txt" && ! grep -q "$(printf '\033')" "$dir/g.txt" && ! grep -q '^error: gone' "$dir/g.txt"
ok $? "a note of state.json as it is: $(cat -v "$dir/g.txt")"
printf 'abcd' | dd of="$dir/run/step_2/model.safetensors" bs=1 seek=9000 conv=notrunc 2> /dev/null
measured; has "model.safetensors: its numbers have changed since it was saved"; ok $? "other weights: $said"
finish
