"""spoil.py PAGES STORED [SEED] -- in a copy of the tree: changes a digit of so many figures of pages, one
after the other, and of so many stored numbers, and says which changes no check notices. Figures and
numbers are drawn at random.
"""
import glob
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, "test/docs")
import figures

pages, stored, seed = [*map(int, sys.argv[1:]), 1][:3]
random.seed(seed)


def noticed(path):
    """Tells whether the pages or the checksums fail now."""
    if path.startswith("docs/results/"):
        return subprocess.run(["sha256sum", "-c", "--quiet", "sums.txt"], cwd="docs/results", capture_output=True).returncode
    return subprocess.run([sys.executable, "test/docs/quoted.py"], capture_output=True).returncode


def spoilt(text, at):
    """Returns a text with another digit in one place."""
    return text[:at] + str((int(text[at]) + random.randint(1, 9)) % 10) + text[at + 1:]


places = [(page, random.choice([i for i in range(*m.span()) if text[i].isdigit()]))
          for page in figures.PAGES for text in [open(page, encoding="utf-8").read()]
          for m in figures.FIGURE.finditer(figures.prose(text))]
tried = random.sample(places, pages)
files = sorted(glob.glob("docs/results/*.json*"))
for path in random.choices(files, [os.path.getsize(f) for f in files], k=stored):
    with open(path, encoding="utf-8") as file:
        tried.append((path, random.choice([m.start() for m in re.finditer(r"(?<=[:,\[.])\d", file.read())])))
missed = 0
for path, at in tried:
    with open(path, encoding="utf-8") as file: text = file.read()
    with open(path, "w", encoding="utf-8") as file: file.write(spoilt(text, at))
    if not noticed(path):
        missed += 1
        print(f"FAIL {path}: '{spoilt(text, at)[max(0, at - 30):at + 20]}' was not noticed")
    with open(path, "w", encoding="utf-8") as file: file.write(text)
print(f"{len(tried) - missed} passed, {missed} failed")
sys.exit(bool(missed))
