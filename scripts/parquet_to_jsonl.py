#!/usr/bin/env python3
"""The texts of Parquet tables, as lines {"text": ..} that train_sink reads.

    python3 scripts/parquet_to_jsonl.py train-00000.parquet > train.jsonl
    python3 scripts/parquet_to_jsonl.py --column content DIR/*.parquet > train.jsonl
    python3 scripts/parquet_to_jsonl.py --column messages chat.parquet > chat.jsonl

--column is the column to take, text by default. A column of text becomes the field
text, whatever its name; any other (messages, conversations: lists) keeps its name, as --sft wants
it. Rows without a value are left out and counted. Tables are read part by part, so a table may be
larger than memory.

Needs pyarrow: pip install pyarrow
"""
import argparse
import json
import sys


def stop(message, hint):
    sys.exit(f"error: {message}\n---> HINT: {hint}")


def rows(path, column):
    """the values of a column"""
    import pyarrow
    import pyarrow.parquet
    try:
        table = pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as e:
        stop(f"{path}: {e}", "give files that end in .parquet")
    names = table.schema_arrow.names
    if column not in names:
        stop(f"{path}: got no column {column}, wanted one of {', '.join(names)}",
             f"--column {names[0] if names else 'NAME'}")
    for batch in table.iter_batches(batch_size=1024, columns=[column]):
        yield from batch.column(0).to_pylist()


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--column", default="text", metavar="NAME")
    p.add_argument("files", nargs="+", metavar="FILE.parquet")
    a = p.parse_args()
    try:
        import pyarrow.parquet                                           # noqa: F401
    except ImportError:
        stop("this python has no pyarrow", "pip install pyarrow")
    written = empty = 0
    for path in a.files:
        for value in rows(path, a.column):
            if value is None:
                empty += 1
                continue
            field = "text" if isinstance(value, str) else a.column
            try:
                sys.stdout.write(json.dumps({field: value}, allow_nan=False) + "\n")
            except (TypeError, ValueError) as e:
                stop(f"{path}: column {a.column}: {e}", "--column NAME, of text or lists of text")
            written += 1
    print(f"{written} lines" + f", {empty} empty rows left out" * bool(empty), file=sys.stderr)


if __name__ == "__main__":
    main()
