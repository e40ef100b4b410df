#!/usr/bin/env python3
"""Reads the files of docs/results that hold many runs: a line of JSON for each run.

    {"run": NAME, FILE: CONTENT, ...}     the run's files; log.jsonl is a list of its lines

python3 scripts/lib/stored.py STORED DIR [NAME ...] writes all runs, or these, as directories in DIR.
"""
import json
import os
import sys

import runlog

HINT = "see docs/results/README.md"


def read(path):
    """Returns the files of every run, by the run's name."""
    runs = {}
    for line in runlog.read_text(path, HINT).splitlines():
        try:
            files = json.loads(line)
            runs[files.pop("run")] = files
        except (ValueError, KeyError, AttributeError):
            runlog.die(f"{path}: got a line without a run, wanted one run in each", HINT)
    return runs


def unpack(path, folder, names):
    """Writes the files of these runs, or of all, into a directory for each."""
    runs = read(path)
    missing = [name for name in names if name not in runs]
    if missing:
        runlog.die(f"{missing[0]}: got no such run in {path}, wanted one of its {len(runs)}", HINT)
    for name in names or runs:
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        for file, content in runs[name].items():
            lines = content if file.endswith(".jsonl") else [content]
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            runlog.write_whole(f"{folder}/{name}/{file}", text)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        runlog.die(f"words: got {len(sys.argv) - 1}, wanted a file and a directory", HINT)
    unpack(sys.argv[1], sys.argv[2], sys.argv[3:])
