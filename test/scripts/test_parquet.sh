# scripts/parquet_to_jsonl.py: what it makes of tables is what train_sink reads, and what is no table or lacks the column is
# refused. PYTHON=/path/python3 chooses another python, such as one with pyarrow
. test/ok.sh
need_python 9 test_parquet
out=build/test/parquet; rm -rf $out; mkdir -p $out
convert() { $PYTHON scripts/parquet_to_jsonl.py "$@" > $out/stdout 2> $out/stderr; }
refused() { # [status], what it says, what it is
    [ "$1" -eq 1 ] && grep -q "^error: .*$2" $out/stderr && grep -q -e '^---> HINT: ' $out/stderr &&
        ! grep -q Traceback $out/stderr && [ ! -s $out/stdout ]
    ok $? "$3: $(cat $out/stderr)"
}
# a module that cannot be imported, in front of the real one
mkdir $out/without; echo 'raise ImportError("none")' > $out/without/pyarrow.py
PYTHONPATH=$out/without convert x.parquet
refused $? "no pyarrow" "without pyarrow"
grep -q 'pip install pyarrow' $out/stderr; ok $? "the hint without pyarrow"
if $PYTHON -c 'import pyarrow.parquet' 2> /dev/null; then
    $PYTHON - $out <<'END'
import sys
import pyarrow as pa, pyarrow.parquet as pq
out = sys.argv[1]
talk = [[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]] * 2
pq.write_table(pa.table({"id": [1, 2, 3], "text": ["a\nb", None, "\u00e9\U0001f600"],
                         "content": ["x", "y", ""]}), out + "/a.parquet")
pq.write_table(pa.table({"messages": talk, "text": pa.array(["p", "q"]).dictionary_encode(),
                         "raw": [b"1", b"2"]}), out + "/b.parquet")
END
    convert $out/a.parquet $out/b.parquet
    [ $? -eq 0 ] && grep -q '^4 lines, 1 empty rows left out$' $out/stderr &&
        printf '{"text": "a\\nb"}\n{"text": "\\u00e9\\ud83d\\ude00"}\n{"text": "p"}\n{"text": "q"}\n' | cmp - $out/stdout
    ok $? "the column text of two tables: $(cat $out/stdout $out/stderr)"
    convert --column content $out/a.parquet &&
        printf '{"text": "x"}\n{"text": "y"}\n{"text": ""}\n' | cmp - $out/stdout
    ok $? "another column: $(cat $out/stdout $out/stderr)"
    convert --column messages $out/b.parquet &&
        [ "$(head -n 1 $out/stdout)" = \
          '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}' ]
    ok $? "conversations: $(cat $out/stdout $out/stderr)"
    convert --column words $out/a.parquet
    refused $? "no column words, wanted one of id, text, content" "no such column"
    convert --column raw $out/b.parquet
    refused $? "column raw: " "a column of bytes"
    echo words > $out/c.parquet; convert $out/c.parquet
    refused $? "c.parquet" "no table"
    convert nowhere.parquet
    refused $? "nowhere.parquet" "no file"
else
    echo "skipped: 7 checks of test_parquet (no pyarrow)"
fi
finish
