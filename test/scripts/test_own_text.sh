# what a first hour types: a tokenizer of one's own, `generate -n`, plot.py --help without numpy,
# runs one directory deeper
#     sh test/scripts/test_own_text.sh
. test/ok.sh
need_python 24 test_own_text
scratch
make="$PYTHON scripts/make_tokenizer.py"
works $make --help
echo "one two three" > "$dir/my.txt"
refused "257 or more" $make "$dir/my.txt" -o "$dir/tok" --vocab 200
mkdir "$dir/full"; echo '{}' > "$dir/full/tokenizer.json"
refused "holds a tokenizer already" $make "$dir/my.txt" -o "$dir/full"
mkdir "$dir/none"; echo "raise ImportError('no', name='tokenizers')" | tee "$dir/none/tokenizers.py" > "$dir/none/numpy.py"
PYTHONPATH=$dir/none refused "tokenizers is not here" $make "$dir/my.txt" -o "$dir/tok"
PYTHONPATH=$dir/none $PYTHON scripts/plot.py --help > "$dir/out" 2>&1 && grep -q dynamics "$dir/out"
ok $? "plot.py --help without numpy: $(tail -n 2 "$dir/out")"
PYTHONPATH=$dir/none refused "not installed" $PYTHON scripts/plot.py dynamics x

run() { # OUT, flags
    out=$1; shift
    works "$program" train "$@" --seq 16 -b 2 --layers 1 --width 16 --heads 1 --ffn-width 16 -n 1 --eval-every 0 \
        --sample 0 -o "$out"
}
run "$dir/runs/one"
run "$dir/runs/sweep/two"
works $PYTHON scripts/report.py "$dir/runs" --csv -o "$dir/runs.csv"
grep -q one "$dir/runs.csv" && grep -q two "$dir/runs.csv"; ok $? "report.py: no run one directory deeper: $(cat "$dir/out")"
# what eval --json writes is a table of the page
works "$program" eval "$dir/runs/one" --probe-len 16 --probe-seqs 4 --edit 'h:0:1=0' --json "$dir/e.json"
works $PYTHON scripts/report.py "$dir/e.json" "$dir/runs" -o "$dir/page.html"
grep -o '"evaluated":\[{.*\]}\]' "$dir/page.html" | grep -q '"kind":"plain".*"name":"h:0:1=0".*"change":'
ok $? "the page has no rows of eval: $(grep -o '"evaluated".\{300\}' "$dir/page.html")"
echo '{"runs": [{"name": 3}]}' > "$dir/bad.json"
refused "runs.0..name: got '3', wanted text" $PYTHON scripts/report.py "$dir/bad.json" -o "$dir/page.html"
# names of files are text in what scripts print: one place each
for script in reproduce sweep after.py plot.py fetch_models.py make_tokenizer.py lib/jobs.py lib/open_models.py \
    lib/reproduce_pages.py; do
    grep -q '^from runlog import .*say as print' "scripts/$script"; ok $? "scripts/$script prints names as they are"
done
bad=$(printf 'r\033[31mx')
$PYTHON scripts/after.py "$dir/$bad" > "$dir/out" 2>&1
python -c "import sys; from runlog import say; say(sys.argv[1], 2)" "$bad" >> "$dir/out"
! grep -q "$(printf '\033')" "$dir/out" && [ "$(grep -c 'r?\[31mx' "$dir/out")" -eq 2 ]; ok $? "$(cat -v "$dir/out")"
"$program" generate "$dir/runs/one" --prompt "1 2 3" --temperature 0 -n 4 > "$dir/text" 2> "$dir/out"
[ $? -eq 0 ] && [ "$(wc -w < "$dir/text")" -eq 7 ]; ok $? "generate -n 4: $(cat "$dir/text" "$dir/out")"

# the text of documents as train reads them, which make_tokenizer.py learns from
printf '{"text":"a\\nb"}\n\n{"text":"c\\ud800"}\n' > "$dir/a.jsonl"; cp "$dir/a.jsonl" "$dir/a.ndjson"
printf '{"text":"d"}\nx\n' > "$dir/bad.jsonl"; gzip -c "$dir/a.jsonl" > "$dir/z.jsonl.gz"
printf 'a\nb\000c\357\277\275\000' > "$dir/wanted"
for file in a.jsonl z.jsonl.gz; do
    "$program" tokenize --text "$dir/$file" > "$dir/text" 2> "$dir/out" && cmp "$dir/text" "$dir/wanted"
    ok $? "tokenize --text $file: $(cat "$dir/out")"
done
[ "$("$program" tokenize --text --skip-bad "$dir/bad.jsonl" | tr '\000' .)" = d. ]; ok $? "--text --skip-bad"
for flag in "-o $dir/x" "--val-fraction 0.5" "--tokenizer bytes"; do
    refused "with --text: wanted --skip-bad alone" "$program" tokenize --text "$dir/a.jsonl" $flag
done
"$program" tokenize --text "$dir/a.jsonl" > /dev/full 2> "$dir/out"; [ $? -eq 1 ]; ok $? "--text to a full disk: $(cat "$dir/out")"
if $PYTHON -c "import tokenizers" 2> /dev/null; then
    $PYTHON -c "print(open('README.md').read() * 20)" > "$dir/my.txt"
    works $make "$dir/my.txt" -o "$dir/tok" --vocab 300 --binary "$program"
    run "$dir/runs/mine" -d "$dir/my.txt" --tokenizer "$dir/tok" --fix-token 1:0
    grep -q '"V":300\|"vocab":300\|300 ids' "$dir/out"; ok $? "not 300 ids: $(cat "$dir/out")"
    refused "wanted .txt, .jsonl" $make "$dir/a.ndjson" -o "$dir/tok2" --binary "$program"
    refused "line 2: byte 1: wanted a JSON" $make "$dir/bad.jsonl" -o "$dir/tok2" --binary "$program"
    refused "/proc/x: " $make "$dir/my.txt" -o /proc/x --binary "$program"
    (ulimit -f 1; $make "$dir/my.txt" -o "$dir/tok2" --binary "$program" > "$dir/out" 2>&1)
    [ $? -eq 2 ] && grep -q "tok2: File too large" "$dir/out" && [ "$(ls -A "$dir/tok2")" = tokenizer_config.json ]
    ok $? "a full disk leaves $(ls -A "$dir/tok2"): $(cat "$dir/out")"
    works $make "$dir/a.jsonl" -o "$dir/tok2" --vocab 257 --binary "$program"
else
    echo "skipped: 9 (no tokenizers)"
fi
finish
