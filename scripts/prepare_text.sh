#!/bin/sh
# prepare_text.sh FOLDER OUT [TOKENIZER] -- any folder of text into token shards:
# ./train_sink -d OUT
#
# Every .txt is one document, every line of a .jsonl[.zst|.gz] is one; other text files
# (.md .py .c .h .cpp .tex .html .rst) are taken as .txt. 1% of the documents is held out.
# Without TOKENIZER the tokens are bytes. Disk: 2 bytes per token.
set -eu
[ $# -ge 2 ] || { sed -n '2,3p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }
folder=$1 out=$2 tokenizer=${3:-}
train_sink=${TRAIN_SINK:-./train_sink}
[ -d "$folder" ] || { echo "error: $folder: not a folder" >&2; exit 2; }
if [ ! -x "$train_sink" ]; then
    echo "error: $train_sink: not built" >&2
    echo "---> HINT: make train_sink" >&2
    exit 2
fi

list=$(mktemp -d)                                   # links with the endings that tokenize knows
trap 'rm -rf "$list"' EXIT
n=0
find "$(CDPATH= cd "$folder" && pwd)" -type f -size +0 \
    \( -name '*.txt' -o -name '*.jsonl' -o -name '*.jsonl.zst' -o -name '*.jsonl.gz' \
    -o -name '*.md' -o -name '*.py' -o -name '*.c' -o -name '*.h' -o -name '*.cpp' \
    -o -name '*.tex' -o -name '*.html' -o -name '*.rst' \) | sort > "$list/names"
while IFS= read -r f; do
    n=$((n + 1))
    case $f in
        *.jsonl) end=jsonl ;;
        *.jsonl.zst) end=jsonl.zst ;;
        *.jsonl.gz) end=jsonl.gz ;;
        *) end=txt ;;
    esac
    ln -s "$f" "$list/$(printf %09d "$n").$end"
done < "$list/names"
[ "$n" -gt 0 ] || { echo "error: $folder: got no text files" >&2; exit 2; }
mb=$(tr '\n' '\0' < "$list/names" | xargs -0 cat | wc -c | awk '{ printf "%d", $1 / 1000000 + 1 }')
echo "$out: $n files, $mb MB (packed files count as they are)," \
     "at most $((mb * 2)) MB of disk for shards"
"$train_sink" tokenize "$list" ${tokenizer:+--tokenizer "$tokenizer"} -o "$out" --val-fraction 0.01
