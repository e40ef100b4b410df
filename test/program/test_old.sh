# checkpoints that commit 3a5150d wrote, before a model was a table of rows,
# are opened and measured as they were then. A key that they do not have means the default
#     test/old/NAME/      as 3a5150d saved them: --window 9; BIAS=sink_token FFN=gelu COMBINE=sum; BIAS=v PE=absolute
#     test/old/runs/raw/  a run of 20d141f on test/old/runs/ids, before --bin
#     probe.json          what its `probe -d bb --bb-vocab 24 --probe-seqs 4 --probe-len 12 --json` wrote
. test/ok.sh
scratch
# the numbers of a list of fields, one line each
numbers() {
    for field in probe_loss sink_k proxy_k alpha1 alpha1_proxy mass entropy h_norm_first h_norm_rest k_norm_first k_norm_rest v_norm_first v_norm_rest; do
        grep -o "\"$field\":\(\[\[[^]]*\]\(,\[[^]]*\]\)*\]\|\[[^]]*\]\|[^,}]*\)" "$1" | head -n 1 |
            tr '[],:' '    ' | sed "s/\"$field\"/$field/"
    done
}
for old in test/old/*/config.json; do
    old=$(dirname "$old"); name=$(basename "$old")
    check "$name does not open" "$program" probe "$old" -d bb --bb-vocab 24 --probe-seqs 4 --probe-len 12 \
        --json "$dir/$name.json"
    numbers "$old/probe.json" > "$dir/then"; numbers "$dir/$name.json" > "$dir/now"
    [ "$(wc -l < "$dir/then")" -ge 10 ]
    ok $? "$name: too few fields are compared: $(cut -d' ' -f 1 "$dir/then" | tr '\n' ' ')"
    paste -d' ' "$dir/then" "$dir/now" | awk '{
        half = NF / 2; if (NF % 2 || half < 2) { print "other numbers of " $1; exit 1 }
        for (i = 2; i <= half; i++) { d = $i - $(i + half); if (d > 1e-5 || d < -1e-5) { print $1 ": was " $i ", is " $(i + half); exit 1 } }
    }' > "$dir/out"
    ok $? "$name: $(cat "$dir/out")"
done
# version 2.0 looked at a .bin without a header, and took it for uint16; the log alone says so
cp -r test/old/runs/* "$dir"
cd "$dir" || exit 1
check "a run on ids without a header is not probed" "$program" probe raw/step_2
for steps in 4 6; do check "it does not go on" "$program" train --resume -o raw -n $steps; done
check "the run does not keep the type that it found" grep '"bin":"uint16"' raw/step_6/state.json
finish
