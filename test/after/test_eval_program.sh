# the command eval, as it is used: on a checkpoint of the program's own
#     sh test/after/test_eval_program.sh
. test/ok.sh
scratch
refuses() { # text of the error, arguments of eval
    text=$1; shift
    "$program" eval "$dir/r/step_20" "$@" > "$dir/out" 2>&1
    [ $? -eq 2 ] && grep -q "$text" "$dir/out"; ok $? "eval $*: $(head -n 5 "$dir/out")"
}
has() { grep -q -- "$1" "$dir/e.json"; }
works "$program" train -d bb -n 20 --lr 5e-3 --eval-every 20 -o "$dir/r"
check "all of it" "$program" eval "$dir/r/step_20" --probe-seqs 8 --probe-len 40 --stream 4+8,0+12 --evict snapkv:0.5,observed:0.5 \
    --quant w8a8:static,kv4 --quant-keep 0,2 --calibrate 3 --edit 'h:0:1:top2=mean;A:0:1=0' \
    --gradients --json "$dir/e.json"
cp "$dir/out" "$dir/all.txt"; cp "$dir/e.json" "$dir/all.json"
check "runs" [ "$(grep -o '"kind":"[a-z]*"' "$dir/e.json" | sort | uniq -c | tr -s ' \n' ' ')" = \
    ' 1 "kind":"edit" 6 "kind":"evict" 1 "kind":"plain" 4 "kind":"quant" 4 "kind":"stream" ' ]
for word in '"n":8' '"T":40' '"outliers":{"largest":\[' '"change_error":' '"by_position":\[' '"gradients":{"first":\[' 'kv4:token, first 2 in float'; do
    check "$word" has "$word"
done
# four fifths of a sequence are the prompt, whose keys are dropped: what follows it counts
check "six evictions from token 33 on" [ "$(grep -o '"kind":"evict"[^}]*"from":33,' "$dir/e.json" | wc -l)" = 6 ]
check "an edit of token 1 from token 2 on" grep -q '"kind":"edit"[^}]*"from":2,' "$dir/e.json"
# static ranges come from the last sequence, which is not measured: another one there, other losses
cp README.md "$dir/some.txt"
works "$program" train -d "$dir/some.txt" -n 3 --layers 2 --width 16 --heads 2 --ffn-width 32 --seq 40 -b 2 --eval-every 0 \
    --sample 0 --probe-seqs 4 --probe-len 16 --val-seqs 4 -o "$dir/t"
for last in '0123456789 9876543210 0123456789 9876543210 0123' 'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz'; do
    for record in 'It was the best of times, it was the worst of times' 'a season of Light, a season of Darkness, we had' "$last"; do
        printf '{"text":"%s"}\n' "$record"
    done > "$dir/three.jsonl"
    "$program" eval "$dir/t/step_3" -d "$dir/three.jsonl" --probe-from start --probe-seqs 2 --probe-len 40 --calibrate 1 \
        --quant w8a8:static,w8a8:dynamic --json "$dir/e.json" > "$dir/out" 2>&1 || cat "$dir/out"
    grep -o '"name":"\(w8a8:[a-z]*\)\?","from":1,"loss":[0-9.]*' "$dir/e.json"
done | sort | uniq -c | awk '{ print $1 }' > "$dir/same"
check "plain and dynamic twice the same, static once each" [ "$(tr '\n' ' ' < "$dir/same")" = '2 2 1 1 ' ]
# given twice, it is both, in order; several edits are several runs, each with its own means
many="--probe-seqs 4 --probe-len 24"
check "twice" "$program" eval "$dir/r/step_20" $many --edit 'h:0:1=0' --edit 'h:0:2=mean;v:0:1=mean' --stream 0+4 --edit 'h:0:1=0' --stream 1+3 --json "$dir/e.json"
check "each is a run" [ "$(grep -o '"name":"[^",]*' "$dir/e.json" | cut -d: -f 2- | tr '\n' ' ')" = \
    '" "0+4 "0+4 "1+3 "1+3 "h:0:1=0 "h:0:2=mean;v:0:1=mean "h:0:1=0 ' ]
cp "$dir/e.json" "$dir/twice.json"
for edit in 'h:0:1=0' 'h:0:2=mean;v:0:1=mean'; do
    check "$edit alone" "$program" eval "$dir/r/step_20" $many --edit "$edit" --json "$dir/e.json"
    alone=$(grep -o "\"name\":\"$edit\",\"from\":[^}]*" "$dir/e.json")
    check "the same" sh -c "[ '$alone' ] && grep -qF '$alone' '$dir/twice.json'"
done
# the plain run is the model: the loss of the run's own probe sequences
check "as the run measured" "$program" eval "$dir/r/step_20" --json "$dir/e.json"
want=$(grep '"event":"eval","step":20' "$dir/r/log.jsonl" | sed 's/.*"probe_loss":\([0-9.]*\).*/\1/')
got=$(sed 's/.*"from":1,"loss":\([0-9.]*\).*/\1/' "$dir/e.json")
check "plain loss $got, the run's $want" \
    awk "BEGIN { exit !($want > 1 && $got - $want < 1e-5 && $want - $got < 1e-5) }"
# a cache that holds everything, and edits that change nothing, give the plain run
check "nothing taken away" \
    "$program" eval "$dir/r/step_20" --stream 4+60 --edit 'h:0:*=x1' --json "$dir/e.json"
check "no change" awk '{ gsub(/"change":/, "\n&") } 1' "$dir/e.json"
check "small changes" awk -F'"change":' '{ for (i = 2; i <= NF; i++) { split($i, v, ","); if (v[1] > 1e-5 || v[1] < -1e-5) { exit 1 } } exit NF != 5 }' "$dir/e.json"
# every row has the plain loss that its change is from: that of the tokens which count there
for run in $(sed 's/"kind"/\n&/g' "$dir/all.json" | grep -o '"loss":[^,]*\|"plain":[^,]*\|"change":[^,]*' |
    cut -d : -f 2 | paste -d , - - -); do
    echo "$run" | awk -F, '{ d = $1 - $2 - $3; if (NF != 3 || d > 1e-6 || d < -1e-6) exit 1 }' ||
        bad "loss, plain, change: $run"
done
check "the baseline of an eviction is not the whole text's" \
    [ "$(sed 's/"kind"/\n&/g' "$dir/all.json" | grep -o '"plain":[^,]*' | sort -u | wc -l)" = 3 ]
check "the baseline is printed" grep -q '^evict snapkv:0.5 .* | plain there [0-9.]* | change ' "$dir/all.txt"
# near uniform attention of 8 tokens: the first gets 0.34, the second 0.25, and 0.37 if the first is masked
works "$program" train -d bb -n 1 --lr 1e-9 --eval-every 0 --sample 0 -o "$dir/u"
check "sinks" "$program" eval "$dir/u/step_1" --probe-len 8 --stream 8+8,0+1 --edit 'A:*:1=mask' --quant kv8
cp "$dir/out" "$dir/sinks.txt"
first='Sink_1 9[0-9]\.[0-9]%, Sink_2 [0-9]\.[0-9]%'
second='Sink_1 0\.0%, Sink_2 9[0-9]\.[0-9]%'
for row in "plain .* $first" "stream 8+8, .* $first" "quant kv8.* $first" "edit A:.*=mask .* $second" \
    'stream 0+1, .* Sink_1 0\.0%, Sink_2 0\.0%'; do
    check "no $row in $(cat "$dir/sinks.txt")" grep -q "^$row" "$dir/sinks.txt"
done
# with a window in some layers, alpha_1 is the mean over the queries that see token 1, in every row
works "$program" train -d bb -n 60 --layers 2 --width 32 --heads 2 --ffn-width 32 --seq 64 -b 8 --window 8 --local-layers 10 \
    --lr 5e-3 --eval-every 0 --sample 0 -o "$dir/w"
check "a window in some layers" "$program" eval "$dir/w/step_60" --probe-seqs 20 --edit 'A:*:1=x1'
sinks=$(grep -o 'Sink_1 [0-9.]*%' "$dir/out" | sort -u)
check "one Sink_1 where nothing is changed: $sinks" [ "$(echo "$sinks" | grep -c .)" = 1 ]
check "a Sink_1 to compare: $sinks" [ "$sinks" != 'Sink_1 0.0%' ]
refuses "wanted n+W" --stream 4
refuses "wanted POLICY:RATIO" --evict h2o:0.5
refuses "wanted POLICY:RATIO" --evict snapkv:1
refuses "wanted w8a8" --quant w8
refuses "wanted w8a8" --quant kv4:often
refuses "layers 0..0" --edit h:1:1=0
refuses "tokens up to" --edit h:0:65=0
refuses "layers 0..0" --edit h:9..:1=0
refuses "tokens up to 64" --edit h:0:70..=0
refuses "channels 0..31" --edit h:0:1:32=0
refuses "heads 0..0" --edit q:0:1:1=0
refuses "one has to be predicted" --edit h:0:64=0
refuses "from 1 to 64" --edit 'h:0:1=from 65'
refuses "GATE=head" --edit gate:0:1=0
refuses "the extra key, only with A" --edit A:0:0=mask
refuses "PE=learnable" --edit pe:1=0
refuses "learned positions" --edit wpe:1=0
"$program" eval "$dir/r/step_20" > /dev/full 2> "$dir/err"
check "a full disk under what is printed: exit $?" grep -q "could not be written" "$dir/err"
refuses "wanted one length" --probe-len 16,32
finish
