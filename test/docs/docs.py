"""Is the text of the repository written as CONTRIBUTING.md wants it? Run by test_docs.sh.

    spelling     American, everywhere: code, comments, messages, pages
    percent      12%, without a blank, in what is read by people
    pages        README.md and docs/: links lead somewhere, names are those of the source, the index lists
                 all, lines and pages are short
    commands     each stands in a block that test_readme.sh runs or parses, or is listed here with a reason
"""
import glob
import os
import re
import subprocess
import sys

import figures
from expect import end, expect

# what others wrote, word for word; and a key that is misspelled on purpose
FOREIGN = ("test/vectors/", "test/open/families", "test/open/experts", "demo/tokenizer.json", "LICENSE",
           "test/docs/docs.py", "test/docs/test_docs.sh")
# numbers that programs wrote, whose words are checked where they stand in the source
STORED = re.compile(r"docs/(results|figures)/.*(?<!\.md)$")
ON_PURPOSE = [("test_directory.cpp", "normalised")]
# British spellings: parts of words, then whole words
BRITISH = re.compile(
    r"(?i)(?:(?:optim|normal|initial|quant|token|vector|organ|recogn|general|summar|minim|maxim|real"
    r"|special|serial|visual|parallel|factor|regular|util|memor|synchron|random|standard|penal"
    r"|character|custom|linear|stabil|final|local|sanit|categor|prior|amort|item|symmetr|binar"
    r"|discret|central|capital|equal|material|formal|emphas)is(?:e|ed|es|er|ers|ing|ation|ations|able)\b"
    r"|colour|behaviour|neighbour|favour|honour|flavour|rigour|centred\b|modell|labell|cancelled"
    r"|cancelling|signall|travell|misspelt|fulfil\b|artefact|catalogue|judgement|analyse"
    r"|\b(?:centre|centres|metre|metres|grey|licence|defence|offence|spelt|learnt|burnt|afterwards"
    r"|towards|whilst|amongst|programme|sceptical|maths)\b)")
PERCENT = re.compile(r"\d %(?=[ .,;:)|]|$)")
# where "3 % 2" is a remainder
ARITHMETIC = (".h", ".cpp", ".cuh", ".cu", ".py", ".sh", "Makefile", ".html", ".mk")


def files():
    names = subprocess.run(["git", "ls-files"], capture_output=True, text=True).stdout.split()
    for name in names or sys.argv[1:]:
        if name.startswith(FOREIGN) or STORED.match(name): continue
        try:
            yield name, open(name, encoding="utf-8").read()
        except (UnicodeDecodeError, FileNotFoundError):
            continue


def check_words():
    for name, text in files():
        bad = [f"{name}:{i}: {m[0]}" for i, line in enumerate(text.split("\n"), 1)
               for m in BRITISH.finditer(line)
               if not any(name.endswith(n) and m[0] == w for n, w in ON_PURPOSE)]
        expect(not bad, "not American: " + "; ".join(bad[:5]))
        if name.endswith(ARITHMETIC) or "." not in name.split("/")[-1]: continue
        bad = [f"{name}:{i}" for i, line in enumerate(text.split("\n"), 1) if PERCENT.search(line)]
        expect(not bad, "a blank before %: " + "; ".join(bad[:5]))


# ---- pages
WIDEST, LONGEST, README_LONGEST = 130, 150, 200
PAGES = figures.PAGES[1:]                               # but README.md
# printed by programs: as long and as wide as they print it
OUTPUT = sorted(glob.glob("docs/results/*.md"))


def anchors(text):
    """What GitHub calls the headings of a page."""
    heads = re.findall(r"(?m)^#+ (.*)", prose(text))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def prose(text):
    return re.sub(r"(?ms)^```.*?^```", "", text)


def check_links(name, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if target.startswith(("http:", "https:", "mailto:")): continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        expect(os.path.exists(path), f"{name}: a link to {target}, which is not there")
        if anchor and os.path.isfile(path):
            with open(path, encoding="utf-8") as f: there = anchors(f.read())
            expect(anchor in there, f"{name}: a link to {target}: that page has no such heading")


# what a page calls by its place in the repository, in backquotes or after a program's name
PLACE = re.compile(r"`(?:python3 |sh )?((?!models/NAME)(?:test|dev|scripts|docs|cpu|cuda|core|files|tokenizer|dataloader|open|after|commands|shell|dist|demo)/[\w./-]*)")


def check_places(name, text):
    for place in PLACE.findall(text):
        expect(os.path.exists(place.rstrip(".")), f"{name}: {place} is not in the repository")


# a function, a struct or a table that a page names
NAME = re.compile(r"`([A-Za-z]\w*_\w+)`")


def names_of_source():
    return {word for name, text in files() if not name.endswith(".md")
            for word in re.findall(r"[A-Za-z]\w*_\w+", text)}


def check_names(name, text, known):
    for word in NAME.findall(text):
        expect(word in known, f"{name}: {word} is not a name of the source")


def check_shape(name, text):
    lines = text.split("\n")
    longest = README_LONGEST if name == "README.md" else LONGEST
    expect(len(lines) - 1 <= longest, f"{name}: {len(lines) - 1} lines, wanted {longest} or fewer")
    wide = [f"{name}:{i}" for i, line in enumerate(lines, 1)
            if len(line) > WIDEST and not line.startswith(("|", "<!--"))]
    expect(not wide, f"a line wider than {WIDEST}: " + "; ".join(wide[:5]))


# ---- a script that can be typed can be run
def check_modes():
    for name in glob.glob("scripts/**", recursive=True):
        if not os.path.isfile(name): continue
        with open(name, "rb") as f: typed = f.read(2) == b"#!"
        expect(not typed or os.access(name, os.X_OK), f"{name}: begins with #! and is not executable")


# ---- commands
COMMAND = re.compile(r"^\s*(?:\$ )?(?:\./train_sink|train_sink |scripts/|python3 |make |dev/|pip |git |sh |mpirun |torchrun "
                     r"|sbatch |tar )")
# blocks "sh elsewhere": by page, where their commands are tested, or why they are not
ELSEWHERE = {
    "README.md": "a clone has no address here, and test_demo.sh runs make demo",
    "dev/gpu-checks.md": "test_gpu_run.sh packs and runs with a stand-in for the GPU",
    "dev/many.md": "test_dist.sh and test_nccl.sh start ranks; here there is no cluster",
}


def check_commands(name, text):
    kind, used = None, set()
    for i, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            kind = line[3:].strip() if kind is None else None
            if kind == "sh elsewhere": used.add(name)
            continue
        command = COMMAND.match(line) and (kind is not None or line.startswith("    "))
        if not command or kind in ("sh", "sh parsed", "python"): continue
        if kind == "sh elsewhere" and name in ELSEWHERE: continue
        expect(False, f"{name}:{i}: a command that no test sees: {line.strip()[:60]}")
    expect(True, "")
    return used


def check_pages():
    used, known = set(), names_of_source()
    for name in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"] + PAGES + OUTPUT:
        if not os.path.exists(name): continue
        with open(name, encoding="utf-8") as f: text = f.read()
        check_links(name, text)
        if name in OUTPUT: continue
        check_shape(name, text)
        check_places(name, text)
        check_names(name, text, known)
        used |= check_commands(name, text)
    for name in ELSEWHERE if PAGES else []:
        expect(name in used, f"{name} has no commands that are tested elsewhere: leave it out of ELSEWHERE")
    for name in PAGES:                                   # each folder's README.md lists its pages
        folder, short = os.path.split(name)
        index = os.path.join(folder, "README.md")
        if short == "README.md" or not os.path.exists(index): continue
        with open(index, encoding="utf-8") as f:
            expect(f"]({short})" in f.read(), f"{index} does not list {short}")


# ---- what the tables of the source and of the pages both list
def check_tables():
    if not os.path.exists("Makefile"): return
    values = subprocess.run(["make", "-s", "values"], stdout=subprocess.PIPE, text=True).stdout.splitlines()
    tables = {switch: rows for switch, *rows in map(str.split, values)}
    readme, interop, compare = (open(name, encoding="utf-8").read()
                                for name in ("README.md", "docs/interop.md", "docs/findings/compare.md"))
    for switch, values in tables.items():
        if switch in ("PRECISION", "BACKEND"): continue
        told = re.search(rf"^\| {switch} \| ([^|]*) \|", readme, re.M)
        expect(told and told[1].split() == values, f"README.md: {switch} is not {' '.join(values)}")
        expect(f"| {switch} | {', '.join(values)} |" in interop, f"docs/interop.md: {switch} is not {', '.join(values)}")
        if switch == "ATTN": expect(f"| attention operations | {len(values)}, compiled in |" in compare,
                                    f"docs/findings/compare.md: wanted {len(values)} attention operations")
    if not os.path.exists("metrics.cuh"): return
    with open("docs/json.md", encoding="utf-8") as f: page = f.read()
    with open("metrics.cuh", encoding="utf-8") as f:
        for key in re.findall(r'^ *X\(\w+, *\w+_(?:MEAN|SUM), *"(\w+)"', f.read(), re.M):
            expect(f"`{key}`" in page, f"docs/json.md: lacks {key} of HEAD_METRICS")


# ---- the program's size, to a twentieth: a change of some lines need not change README
def check_size():
    with open("README.md", encoding="utf-8") as f: readme = f.read().replace("\n", " ")
    told = re.search(r"is ([\d,]+) lines, of which the ([\d,]+) lines in the root .* ([\d,]+) more lines", readme)
    lines = {}
    for name, text in files():
        if name.endswith((".h", ".cuh", ".cu", ".cpp")):
            folder = name.split("/")[0] if "/" in name else "root"
            lines[folder] = lines.get(folder, 0) + text.count("\n")
    optional = sum(lines.pop(folder, 0) for folder in ("text", "cpu", "cuda", "dist", "open", "after"))
    alone = sum(n for folder, n in lines.items() if folder not in ("test", "dev"))
    for figure, count in zip(told.groups(), (alone, lines["root"], optional)):
        quoted = int(figure.replace(",", ""))
        expect(abs(quoted - count) < count / 20, f"README.md: {figure} lines of the program are {count}")


check_words()
check_modes()
if os.path.exists("README.md"): check_tables()
if os.path.exists("open") and os.path.exists("after"): check_size()
check_pages()
end()
