#!/bin/sh
# Every figure of docs/ from the stored results of docs/results/, as PNG and SVG; one film.
#     scripts/figures.sh [-o DIR] [NAME..]     all, or some of: first-sight text-dynamics
#                                              text-film text-map
#                                              interventions open-heads open-norms first-token
#                                              first-token-norms first-token-stays
#                                              first-token-border first-token-positions
#                                              first-token-changes first-token-ordinary
# Needs numpy and matplotlib (PYTHON=/path/python3 chooses a Python that has them). The looks are in
# scripts/plot.py. docs/results/README.md says how the stored results were made.
CDPATH= cd "$(dirname "$0")/.." || exit 1
PYTHON=${PYTHON:-python3}
out=docs/figures
if [ "$1" = -o ]; then out=$2; shift 2; fi
all="first-sight text-dynamics text-film text-map interventions open-heads open-norms first-token first-token-norms
    first-token-stays first-token-border first-token-positions first-token-changes
    first-token-ordinary"
[ $# -gt 0 ] || set -- $all
stored=docs/results
runs=$(mktemp -d) drawn=$(mktemp -d); trap 'rm -rf "$runs" "$drawn"' EXIT
for file in demo first-token; do "$PYTHON" scripts/lib/stored.py $stored/$file.jsonl "$runs" || exit; done
changes="softmax,an extra key of value 0,a learned logit,an extra key (BIAS=k),a key and a value (kv),a sink token"
changes="$changes,a gate for each head,a gate for each element,a gate and a logit,norms of q and k,sandwich norms"
changes="$changes,norms after branches,post norm,softpick (shares),capped scores,sigmoid (shares),elu + 1 with normalization"
changes="$changes,sigmoid from -ln T (shares),Muon,loss on long contexts only,weight decay 0,weight decay 0.1 (softmax again)"
changes="$changes,weight decay 0.5,one head of 64,four heads of 16,eight heads of 8"
plot() { # NAME TITLE FIGURE INPUT..; FIGURE ratios: the last picture of norms, else the first one
    name=$1 title=$2 drawing=$3 wanted='[!r]*'; shift 3
    [ "$drawing" != ratios ] || drawing=norms wanted='ratios*'
    rm -f "$drawn"/*
    "$PYTHON" scripts/plot.py "$drawing" "$@" --title "$title" -o "$drawn" > "$drawn/said" || exit
    for kind in png svg gif; do
        made=$(ls "$drawn"/$wanted.$kind 2> /dev/null | head -n 1)
        [ -n "$made" ] || continue
        mv "$made" "$out/$name.$kind" && echo "$out/$name.$kind" || exit
    done
}
mkdir -p "$out"
for figure in "$@"; do
    case $figure in
        first-sight)
            plot $figure "SmolLM2-135M reads a novel: most heads attend to the first token, whatever it is" \
                sight $stored/smollm2.json $stored/smollm2-map ;;
        text-dynamics)
            plot $figure "Three small models learn to read one novel, three seeds each" dynamics \
                --labels "softmax: the first token becomes a sink,sigmoid: no sink,softmax and an extra key: the key becomes the sink" \
                $runs/softmax-seed[234] $runs/sigmoid-seed[234] $runs/extra-key-seed[234] ;;
        text-film)
            plot $figure "Both heads of the softmax model come to rest on the first token" film $runs/film-seed2 ;;
        text-map)
            plot $figure "One head of the softmax model: beyond the nearest keys only the first token's is at an acute angle, and its norm is small" \
                maps $stored/demo-maps ;;
        interventions)
            plot $figure "No sink is left with an extra key or logit, a gate, norms of q and k or after the branches, softpick, sigmoid (three seeds)" \
                table --labels "$changes" $stored/interventions-text.json ;;
        open-heads)
            plot $figure "SmolLM2-135M: most heads rest on the first token, none in layers 0, 1, 10 and 11" heads $stored/smollm2.json ;;
        open-norms)
            plot $figure "SmolLM2-135M: layer 11 makes the first token's h over a hundred times as large, nearly all of it in one entry" norms $stored/smollm2.json ;;
        first-token)
            plot $figure "Twelve layers, four heads, a random first token: the last seven layers come to rest on it" \
                film $runs/rotary12h4-random-s1
            rm "$out/$figure.gif" ;;       # the strip is enough
        first-token-norms)
            plot $figure "A random first token gets 10 to 30 times the others' h and, where heads rest on it, small values; an ordinary one neither" \
                ratios --labels "12 layers and a random first token,12 layers and an ordinary one,8 layers and a random one" \
                $runs/rotary12-random-s2 $runs/rotary12-ordinary-s2 $runs/rotary8-random-s1 ;;
        first-token-stays)
            plot $figure "Seed 2 on ordinary text: the mark is gone in 500 steps at T 64, and stays at T 256 (dotted: uniform attention)" \
                onset --labels "T 64,T 128,T 256,T 1024" $runs/rotary12T256-random-then-ordinary-T64-s2 \
                $runs/rotary12T256-random-then-ordinary-T128-s2 $runs/rotary12T256-random-then-ordinary-s2 \
                $runs/rotary12T256-random-then-ordinary-T1024-s2 ;;
        first-token-border)
            plot $figure "Seed 2, weakened by 500 to 1,750 steps at T 128: at T 256 the sink grows back, or fades" \
                onset --labels "500 steps at T 128,1000 steps,1250 steps,1750 steps" $runs/rotary12back500-ordinary-then-ordinary-s2 \
                $runs/rotary12back1000-ordinary-then-ordinary-s2 $runs/rotary12back1250-ordinary-then-ordinary-s2 \
                $runs/rotary12back1750-ordinary-then-ordinary-s2 ;;
        first-token-positions)
            plot $figure "A first token that cannot be read costs 2.5 nats, all in the first eight positions; a K bias gains a little at each" \
                positions --labels "a random first token,an ordinary one,a random one and a K bias" \
                $runs/rotary8-random-s[123]/loss.json $runs/rotary8-ordinary-s[123]/loss.json \
                $runs/rotary8-random-k-s[123]/loss.json ;;
        first-token-changes)
            plot $figure "All seven make a mark; with softmax the first token's h is largest and its v smallest (median and range of three seeds; gray: softmax)" \
                ratios --step 20000 --labels "softmax,BIAS=k,BIAS=zero,BIAS=logit,GATE=head,ATTN=sigmoid,ATTN=softpick" \
                $runs/rotary12h4-random-s[123] $runs/rotary12h4-random-k-s[123] $runs/rotary12h4-random-zero-s[123] \
                $runs/rotary12h4-random-logit-s[123] $runs/rotary12h4-random-head-s[123] \
                $runs/rotary12h4-random-sigmoid-s[123] $runs/rotary12h4-random-softpick-s[123] ;;
        first-token-ordinary)
            plot $figure "Ordinary text from the first step, one seed each: with twelve layers of 256 the first token attracts attention (dotted: uniform)" \
                onset --labels "12 layers of 256 (T 512),4 layers of 128 (T 512),12 layers of 64 (T 256)" \
                $runs/rotary12w256T512-ordinary-s1 $runs/rotary4w128T512-ordinary-s1 \
                $runs/rotary12h4T256quiet-ordinary-s1 ;;
        *) echo "error: $figure: wanted one of" $all >&2
           echo "---> HINT: scripts/figures.sh" >&2; exit 2 ;;
    esac
done
