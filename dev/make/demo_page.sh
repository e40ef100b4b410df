#!/bin/sh
# Writes docs/demo.html, or another file: the page of scripts/report.py about the demo's three models.
#     sh dev/make/demo_page.sh [FILE]
CDPATH= cd "$(dirname "$0")/../.." || exit 1
root=$PWD runs=$(mktemp -d); trap 'rm -rf "$runs"' EXIT
to=$(realpath "${1:-docs/demo.html}")
models="demo/softmax-seed2 demo/sigmoid-seed2 demo/extra-key-seed2"
CDPATH= cd "$runs" && python3 "$root/scripts/lib/stored.py" "$root/docs/results/demo.jsonl" demo &&
    python3 "$root/scripts/report.py" $models -o "$to"
