"""Is every figure of the pages held? Imported by quoted.py.

A figure is a word that begins with a digit, outside of code and of the targets of links. It is held if
it stands in a sentence or a table row that quoted.py compares with a stored number, or in a row of
test/docs/figures.tsv, which names the page, the reason, the first words of the paragraph or table, and
its figures in their order. Two reasons are checked: the path of a file, which must have each of these
figures, and "above", for a figure that a held place of the same page has.

    python3 test/docs/quoted.py --write [REASON]    writes the rows again; a new figure has the reason ?, or this
"""
import collections
import glob
import re

REASONS = "test/docs/figures.tsv"
PAGES = ["README.md"] + sorted(glob.glob("docs/*.md") + glob.glob("docs/findings/*.md"))
PAGES += sorted(glob.glob("after/*.md")) + ["dev/gpu-checks.md", "dev/many.md"]
FIGURE = re.compile(r"(?<![\w\-.,/^*\\#=])[+-]?\.?\d(?:[\w.,/\-]*\w)?%?")


def squeeze(text):
    return re.sub(r"\s+", " ", text)


def prose(text):
    """Returns a page with blanks in the place of what is not prose: code and targets of links."""
    blank = lambda m: re.sub(r"\S", " ", m[0])
    text = re.sub(r"(?ms)^```.*?^```", blank, text)
    text = re.sub(r"(?s)<!-- dev/gpu/predict.*?<!-- to here -->", blank, text)   # test_predict compares it
    text = re.sub(r"(?s)`[^`]*`", blank, text)
    return re.sub(r"\]\([^)]*\)", blank, text)


def blocks(text):
    """Returns the start and end of every paragraph, list item, and table."""
    found, begin, kind = [], 0, ""
    position = 0
    for line in text.splitlines(keepends=True):
        now = ("table" if line.startswith("|") else "" if not line.strip() else
               "code" if line.startswith("    ") and kind in ("", "code") else "text")
        item = re.match(r"\s*(?:[*-] |\d+\. |#)", line) and now == "text"
        if now != kind or item:
            if kind: found.append((begin, position))
            begin, kind = position, now
        position += len(line)
    return found + ([(begin, position)] if kind else [])


class Held:
    """The places of each page that are compared with something stored."""

    def __init__(self, read):
        self.texts = {page: read(page) for page in PAGES}
        self.held = {page: bytearray(len(text)) for page, text in self.texts.items()}

    def mark(self, page, filled):
        """Marks every place of a text, whose blanks may be line ends on the page."""
        if page not in self.texts: return
        wanted = r"\s+".join(map(re.escape, filled.split()))
        for m in re.finditer(wanted, self.texts[page]): self.hold(page, *m.span())

    def mark_cell(self, page, row, cell):
        """Marks a cell of the rows that begin with this cell."""
        for line in re.finditer(rf"(?m)^\| {re.escape(row)} \|.*$", self.texts.get(page, "")):
            for m in re.finditer(rf"(?<=\| )(\*\*)?{re.escape(cell)}(\*\*)?(?= \|)", line[0]):
                self.hold(page, line.start() + m.start(), line.start() + m.end())

    def hold(self, page, begin, end):
        self.held[page][begin:end] = b"1" * (end - begin)

    def figures(self, page):
        """Returns the figures in the held places of a page."""
        held = self.held[page]
        return {bare(m[0]) for m in FIGURE.finditer(self.texts[page]) if all(held[m.start():m.end()])}

    def left(self, page):
        """Returns (words, figures) of each block, of the figures that nothing holds."""
        text = self.texts[page]
        plain, held, seen = prose(text), self.held[page], collections.Counter()
        for begin, end in blocks(text):
            figures = [m[0] for m in FIGURE.finditer(plain, begin, end)
                       if not all(held[m.start():m.end()])]
            words = " ".join(squeeze(text[begin:end]).split()[:6])
            seen[words] += 1                                       # tables may begin alike
            if figures: yield words + f" #{seen[words]}" * (seen[words] > 1), figures


def reasons():
    """Returns the rows of the list: page, reason, words, figures."""
    with open(REASONS, encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t") for line in file]


def bare(figure):
    return figure.rstrip("%").lstrip("+").replace(",", "")


def in_file(path):
    """Returns the figures of a file, as `bare` has them."""
    with open(path, encoding="utf-8") as file: text = file.read()
    return {bare(m[0]) for m in re.finditer(r"(?<![\w.])[+-]?\.?\d(?:[\w.,/\-]*\w)?%?", text)}


def write(held, reason_of_new="?"):
    """Writes the list again. A figure keeps the reason that it had in its paragraph; a new one gets another."""
    old = collections.defaultdict(list)
    for page, reason, words, figures in reasons(): old[page, words].append((reason, figures.split()))
    lines = []
    for page in PAGES:
        for words, figures in held.left(page):
            rest = list(figures)
            for reason, had in old[page, words]:
                kept = [x for x in had if x in rest and not rest.remove(x)]
                if kept: lines.append((page, reason, words, " ".join(kept)))
            if rest: lines.append((page, reason_of_new, words, " ".join(rest)))
    with open(REASONS, "w", encoding="utf-8") as file: file.writelines("\t".join(line) + "\n" for line in lines)


def check(held):
    """Returns what is wrong: figures that nothing holds, rows that no page has, files without a figure."""
    wrong, listed, known = [], collections.defaultdict(list), {}
    for page, reason, words, figures in reasons():
        listed[page, words].append(figures.split())
        if reason == "?": wrong.append(f"{REASONS}: {page}, '{words}': a row without a reason")
        source = page if reason == "above" else reason if "/" in reason and " " not in reason else None
        if not source: continue
        key = reason == "above", source
        if key not in known: known[key] = held.figures(page) if reason == "above" else in_file(source)
        wrong += [f"{page}: {x} is not in {source}" for x in figures.split() if bare(x) not in known[key]]
    for page in PAGES:
        for words, figures in held.left(page):
            rows = listed.get((page, words), [])
            if sorted(figures) == sorted(sum(rows or [], [])): listed[page, words] = None
            else: wrong.append(f"{page}: '{words} ..': nothing holds {' '.join(figures[:12])}")
    return wrong + [f"{REASONS}: {page} has no '{words}' any more" for (page, words), rows in listed.items() if rows]
