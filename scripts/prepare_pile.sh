#!/bin/sh
# prepare_pile.sh PILE TOKENIZER [OUT] [TOKENS] -- the Pile, as the paper uses it,
# into token shards: ./train_sink -d pile_5B
#
#   PILE       a folder with the Pile (NN.jsonl.zst, val.jsonl.zst)
#              or RegMix's re-split of it (train/DOMAIN-N.jsonl, valid/...)
#   TOKENIZER  GPT-NeoX's tokenizer.json (huggingface.co/EleutherAI/gpt-neox-20b), 50277 ids
#   OUT        data/pile_5B          TOKENS     5000000000: section 5 of the paper trains on 5B
#
# The 17 domains of pile-uncopyrighted, with the shares they have in RegMix's 5B-token sample
# (sail-sg/regmix, synthesize_mixture.py). Documents are taken in file order until each
# domain has its share; all domains are pooled in training, as in the paper's code. Needs:
# zstd for .zst, 2 bytes of disk a token. Speed measured: about 20 MB of text a second and core.
set -eu
[ $# -ge 2 ] || { sed -n '2,8p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }
text=$1 tokenizer=$2 out=${3:-data/pile_5B} tokens=${4:-5000000000}
shares=pile_cc:.2369,pubmed_central:.1854,arxiv:.1133,github:.1018,freelaw:.0796
shares=$shares,stackexchange:.0665,wikipedia_en:.0511,uspto_backgrounds:.0464
shares=$shares,pubmed_abstracts:.0388,gutenberg_pg_19:.0271,dm_mathematics:.0160,ubuntu_irc:.0118
shares=$shares,hackernews:.0080,europarl:.0079,nih_exporter:.0039,philpapers:.0037
shares=$shares,enron_emails:.0018
train_sink=${TRAIN_SINK:-./train_sink}
if [ ! -x "$train_sink" ]; then
    echo "error: $train_sink: not built" >&2
    echo "---> HINT: make train_sink" >&2
    exit 2
fi

if [ -d "$text/train" ]; then                       # RegMix
    train=$text/train; val=$text/valid
else                                  # the Pile: everything but val and test is for training
    val=$(ls "$text"/val.jsonl* 2> /dev/null | head -1)
    train=$(ls "$text"/[0-9]*.jsonl* 2> /dev/null || true)
fi
[ -n "$train" ] || { echo "error: $text: got neither train/ nor NN.jsonl.zst" >&2; exit 2; }

mkdir -p "$(dirname "$out")"
cores=$(getconf _NPROCESSORS_ONLN)
need=$((tokens * 2 / 1000000 + 100))
free=$(($(df -Pk "$(dirname "$out")" | awk 'END { print $4 }') / 1000))
minutes=$((tokens * 4 / 20000000 / cores / 60 + 1))
echo "$out: $tokens tokens, $need MB of disk ($free MB free)," \
     "about $minutes min on $cores cores"
if [ "$free" -le "$need" ]; then
    echo "error: $(dirname "$out"): got $free MB of free disk, wanted $need" >&2
    exit 2
fi

# shellcheck disable=SC2086 # file names of the Pile have no spaces
"$train_sink" tokenize $train --tokenizer "$tokenizer" -o "$out" --domains "$shares" \
    --train-tokens "$tokens" ${val:+--val "$val"}
echo "next: $train_sink -d '$out'     (on a GPU: 60M, the paper's run)"
