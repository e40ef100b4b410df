"""Is the text of the repository written as CONTRIBUTING.md wants it? Run by test_docs.sh.

    spelling     American, everywhere: code, comments, messages, pages
    percent      12%, without a blank, in what is read by people
"""
import re
import subprocess
import sys

passed, wrong = 0, []


def expect(ok, text):
    global passed
    passed += bool(ok)
    if not ok: wrong.append(text)


# what others wrote, word for word; and a key that is misspelled on purpose
FOREIGN = ("test/vectors/", "test/families/", "test/experts/", "demo/tokenizer.json", "LICENSE",
           "test/docs.py", "test/test_docs.sh")
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
        if name.startswith(FOREIGN): continue
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


check_words()
for w in wrong: print("FAIL", w)
print(f"{passed} passed, {len(wrong)} failed")
sys.exit(bool(wrong))
