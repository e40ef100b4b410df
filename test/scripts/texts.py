"""texts.py COUNT WORDS: prints so many documents of a few words, as JSON Lines."""
import json
import sys

count, words = map(int, sys.argv[1:])
for i in range(count):
    parts = ["the river", "a door", "light", f"house {i}"]
    print(json.dumps({"text": " ".join(parts[i * k % 4] for k in range(1, words))}))
