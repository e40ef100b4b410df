#!/usr/bin/env python3
"""size.py -- the rules that the source keeps, so that a file can be compiled, named and held.

    python3 dev/size.py           check all rules, print weights and densities; make size
    python3 dev/size.py --hops    list the functions of at most six lines that are called once
    python3 dev/size.py --text    check the rules that need no compiler
    python3 dev/size.py --write   write the rows of dev/weight.tsv again, each with its slack
    python3 dev/size.py --test    break every rule in a copy, and see that each is noticed

Rules: every header compiles alone; no include after the first definition; no file includes itself,
no two folders each other; base/ includes nothing, core/ base/ and the root, run/ all of these, and
none of them a folder that may be deleted, which the DOORS alone name; core/rest.h and a folder's all.h list
every .cpp and .cu file, once; so all files are one unit, in which no two define a static name
alike, and none leaves a macro behind;
lines of at most 100 columns; no ?: inside another; functions of at most 60 lines and 8
parameters; files of at most 700 lines, those with CUDA kernels 1,150; a folder weighs no more than
its row of dev/weight.tsv, which also limits the hops: functions of at most six lines that are
called once. Most name an idea; one that does not is a place where a reader must look up what
could stand at the call. A row leaves SLACK when it is committed, so that who adds a thing later
need not think of it; the same holds for the pages that CONTRIBUTING.md sends him to. A .cpp file opens with how it does its job. What breaks a rule with a
reason is a row of dev/size_exceptions.tsv. A row that is needed no longer is an error, too: the
list shrinks.

The weight of a folder is the number of names, numbers, strings and operators of its code. Comments,
brackets, commas and semicolons weigh nothing, nor do Unicode's tables: a line folded or aired
weighs the same, so a folder gets lighter only if something leaves it. Beside them stand the kilobytes of
that code without its blanks, and of its strings, which tokens hide; and those of mk/ and of tables (.tsv).
"""
import functools
import glob
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ["", *subprocess.check_output(["make", "-s", "folders"], cwd=ROOT, text=True).split()]
KINDS = ("*.h", "*.cuh", "*.cu", "*.cpp")
QUOTED = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
SLACK = 500                                  # tokens that a row leaves when it is committed; twice as many: lower it
SLACK_OF_SUMS = {"alone": 1500, "optional": 1500}      # one change may need some in several folders
# lines that a page leaves then, and the pages that grow with what is added
PAGE_LINES, PAGE_SLACK = 150, 10
GROWING = ["docs/json.md", "docs/metrics.md", "docs/open-models.md", "docs/README.md", "docs/findings/README.md"]
COLUMNS, LINES, PARAMETERS, FILE_LINES, KERNEL_LINES = 100, 60, 8, 700, 1150

HOP_LINES, HOPS_SLACK = 6, 3
# A function's first line: its type, its name, its parameters, and the brace of its body.
FUNCTION = re.compile(r"^ {0,4}(?!return\b|else\b|if\b|for\b|while\b|switch\b|do\b|struct\b|namespace\b)"
                      r"(?:template <[^;{}]*>\s+)?[A-Za-z_][\w:<>,*& ]*?[ *&](?!if\b|for\b|while\b|switch\b)"
                      r"(\w+)\([^;{}]*\)(?: const)?\s*\{", re.M)
DECLARED = re.compile(r"\s*(?:template <.*>\s+)?(?!return\b|else\b|case\b|throw\b|new\b)"
                      r"(?:[A-Za-z_][\w:<>,*&]*(?:\s+[*&]*|[*&] ?))+$")

# A file includes its own folder and those that are not above it: the root and core/ stand beside each other.
RANKS = {"base": 0, "": 1, "core": 1, "run": 2, "text": 3, "cpu": 3, "cuda": 3, "dist": 3, "open": 3, "after": 3}
OPTIONAL = ("cpu", "cuda", "dist", "text", "open", "after")
# They may include all: the program, and what names the folders that may be deleted.
DOORS = ("train_sink.cu", "optional.h", "core/variant.h", "core/variant.cu", "core/operations.h", "core/dist.h",
         "run/gpu.h")
# The lists of all files that are no header, for one unit: they include what defines something, and alone are nothing.
LISTS = ("core/rest.h", "cuda/all.cuh", *(f"{folder}/all.h" for folder in FOLDERS))
# Other compilers' headers, or libraries', which not every machine has; and what those two of dist/ share.
NOT_ALONE = ["cuda/*", "dist/mpi.h", "dist/nccl.h", "dist/shard.h"]


@functools.cache
def text_of(path):
    """Reads a file, once."""
    return open(path, errors="replace").read()


def matches(path, patterns):
    """True if the path is one of the patterns, FOLDER/* or NAME.*."""
    for p in patterns:
        if path == p or (p[-1] == "*" and path.startswith(p[:-1])):
            return True
    return False


def folder_of(path):
    """Returns the folder of a file at the top of the tree, "" for the root."""
    return path.split("/")[0] if "/" in path else ""


def sources(root):
    """Returns the paths of all source files, relative to the root."""
    found = []
    for folder in FOLDERS:
        for kind in KINDS:
            found += glob.glob(os.path.join(root, folder, kind))
    return sorted(os.path.relpath(f, root) for f in found)


def without_comments(text):
    """Blanks comments out; lines stay where they are."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def includes(text):
    """Yields (line number, name) of the project's own includes."""
    for number, line in enumerate(text.split("\n"), 1):
        m = re.match(r'\s*#include "([^"]+)"', line)
        if m:
            yield number, m[1]


def check_includes(root, path, text):
    """Yields what is wrong with the includes of one file."""
    if path in LISTS:
        return
    defined = False
    continued = False
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        if re.match(r'\s*#include (<|"[^"]+\.(h|cuh|cu)")', line) and defined and LISTS[0] not in line:
            yield "include", path, f"line {number} includes after the first definition"
        elif line.strip() and not line.startswith("#") and not continued:
            defined = True
        continued = line.endswith("\\")
    for number, name in includes(text):
        other = os.path.normpath(os.path.join(os.path.dirname(path), name))
        if path not in DOORS and os.path.exists(os.path.join(root, other)):
            mine, theirs = RANKS.get(folder_of(path), 3), RANKS.get(folder_of(other), 0)
            if folder_of(path) != folder_of(other) and mine < theirs:
                yield "upward", f"{path} -> {other}", f"line {number}: its folder stands above"


def find_folder_circles(root, files):
    """Yields every two folders of which each needs the other, by whatever stands between. The root is none."""
    below = {}
    for path in files:
        if folder_of(path) and path not in LISTS:
            for _, name in includes(text_of(os.path.join(root, path))):
                other = folder_of(os.path.normpath(os.path.join(os.path.dirname(path), name)))
                below.setdefault(folder_of(path), set()).add(other)
    for _ in below:
        for folder, others in below.items():
            below[folder] = others.union(*(below.get(other, set()) for other in others if other))
    for one in sorted(below):
        for two in sorted(below[one]):
            if one < two and one in below.get(two, set()):
                yield "folders", f"{one} and {two}", "each includes the other"


def find_circles(root, files):
    """Yields every include that closes a circle."""
    graph = {}
    for path in files:
        text = text_of(os.path.join(root, path))
        graph[path] = [os.path.normpath(os.path.join(os.path.dirname(path), name))
                       for _, name in includes(text)]
    state = {}

    def visit(path):
        state[path] = "open"
        for other in graph.get(path, []):
            if state.get(other) == "open":
                yield "circle", f"{path} -> {other}", "includes what includes it"
            elif other not in state:
                yield from visit(other)
        state[path] = "done"
    for path in files:
        if path not in state:
            yield from visit(path)


def check_lists(root, files):
    """Yields every file that the lists of one unit leave out, or name twice."""
    named = []
    for path in LISTS:
        if os.path.exists(os.path.join(root, path)):
            text = text_of(os.path.join(root, path))
            named += [os.path.normpath(os.path.join(os.path.dirname(path), name)) for _, name in includes(text)]
    for path in files:
        if path.endswith((".cpp", ".cu")) and path != "train_sink.cu" and named.count(path) != 1:
            yield "list", path, f"{named.count(path)} times in core/rest.h and all.h, wanted once"


# At a line's beginning: a static function, constant or array, or an inline function; a struct or an enum.
STATIC = re.compile(r"^(?:template <[^;{}]*>\s+)?(?:static|inline) [^=;{}()]*?[ *&](?!struct\b)(\w+)(?:\[\w*\])?\s*[({;=]", re.M)
TYPE = re.compile(r"^(?:struct|enum) (\w+)[^;()]*?\{", re.M)


def check_names(texts):
    """Yields names that two files of one unit define, and macros that a .cpp leaves behind: {path: text}."""
    defined = {}
    for path, text in texts.items():
        outside = re.sub(r"^namespace \w+ \{.*?^\} // namespace", "", text, flags=re.M | re.S)
        text, outside = (re.sub(QUOTED, '""', without_comments(part)) for part in (text, outside))
        if path.endswith(".cpp"):
            macros = re.findall(r"^ *#(define|undef) (\w+)", text, re.M)
            for name in {name for kind, name in macros if kind == "define"}:
                if [kind for kind, other in macros if other == name][-1] == "define":
                    yield "macro", path, f"leaves {name} behind: #undef it"
        for name in {m[1] for kind in (STATIC, TYPE) for m in kind.finditer(outside)}:
            defined.setdefault(name, []).append(path)
    for name, paths in defined.items():
        if len(paths) > 1 and any(path.endswith((".cpp", ".cu")) for path in paths):
            yield "name", " ".join(paths), f"each defines {name}"


def is_table_row(line):
    """True for a row of a table of macros, which may be as long as it needs."""
    return bool(re.match(r" *(X_[A-Z]+\(|\{ \"\w+\", |X\(|LAYER\(|HEAD\(|TAIL\(|// +\(type,|\"build through)", line)
                or line.endswith("\\"))


def check_lines(path, text):
    """Yields lines that are too long, and a file that has too many."""
    lines = text.split("\n")
    most = KERNEL_LINES if path.startswith("cuda/") else FILE_LINES
    if len(lines) - 1 > most:
        yield "file", path, f"{len(lines) - 1} lines, at most {most}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS and not is_table_row(line):
            yield "columns", path, f"line {number}: {len(line)} columns"


def is_nested(choice):
    """True if the text after a '?' has another one before the first choice has ended."""
    depth = 0
    for ch in choice:
        depth += ch in "([{"
        depth -= ch in ")]}"
        if depth < 0 or ch == ";" or (ch == "," and depth == 0):
            return False
        if ch == "?":
            return True
    return False


def check_choices(path, text):
    """Yields every `a ? b : c ? d : e`: two ifs, or a table, are easier to read."""
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', '""', without_comments(text))
    for m in re.finditer(r"\?", text):
        if is_nested(text[m.end():m.end() + 400]):
            number = text.count("\n", 0, m.start()) + 1
            yield "choice", path, f"line {number}: one ?: inside another"


def parameters_of(signature):
    """Counts the parameters of a function's signature."""
    depth = count = 0
    inside = signature[signature.index("("):]
    for i, ch in enumerate(inside):
        depth += ch in "([{<"
        depth -= ch in ")]}" or (ch == ">" and inside[i - 1] != "-")
        count += ch == "," and depth == 1
        if depth == 0:
            break
    return count + 1 if inside[1:i].strip() else 0


def check_functions(path, text):
    """Yields functions that are too long, or take too much."""
    lines = without_comments(text).split("\n")
    start = None
    for number, line in enumerate(lines):
        if re.match(r"[A-Za-z_\[].*\(", line) and not line.rstrip().endswith((";", "}")):
            start = number
        if start is None or line != "}":
            continue
        signature = " ".join(lines[start:start + 12]).split("{")[0]
        signature = re.sub(r"__(launch_bounds__|attribute__)\s*\(+[^)]*\)+", "", signature)
        name = re.search(r"([\w:~]+)\s*\(", signature)[1]
        if number - start + 1 > LINES:
            yield "long", f"{path} {name}", f"{number - start + 1} lines, at most {LINES}"
        if parameters_of(signature[signature.index(name):]) > PARAMETERS:
            many = parameters_of(signature[signature.index(name):])
            yield "parameters", f"{path} {name}", f"{many} parameters, at most {PARAMETERS}"
        start = None


def end_of(text, brace):
    """Returns the place of the brace that closes the one at a place."""
    depth = 0
    for i in range(brace, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
    return len(text)


def hops(texts):
    """Lists "FILE NAME" of the short functions that are called once and not named elsewhere: {path: text}."""
    code = {path: re.sub(QUOTED, '""', without_comments(text)) for path, text in texts.items()}
    defined = {}
    for path, text in code.items():
        for m in FUNCTION.finditer(text):
            lines = text[m.start():end_of(text, m.end() - 1)].count("\n") + 1
            defined.setdefault(m[1], []).append((path, lines))
    short = {name for name, places in defined.items() if len(places) == 1 and places[0][1] <= HOP_LINES}
    named = {name: [] for name in short}
    for text in code.values():
        for m in re.finditer(r"\w+", text):
            if m[0] in short and not DECLARED.match(text[text.rfind("\n", 0, m.start()) + 1:m.start()]):
                named[m[0]].append(re.match(r"(<[^;{}()]*>)?\(", text[m.end():m.end() + 99]) is not None)
    return sorted(f"{defined[name][0][0]} {name}" for name in short if named[name] == [True])


def wrong_hops(count, most):
    """Yields what is wrong with the number of hops."""
    if count > most:
        yield "hops", "the program", f"{count} functions of {HOP_LINES} lines or fewer are called once, at most " \
                                     f"{most}: write one where it is called (size.py --hops lists them)"
    elif count + 2 * HOPS_SLACK < most:
        yield "hops", "the program", f"{count}, and its row of dev/weight.tsv has {most}: lower it"


def check_header(root, path):
    """Compiles one header alone; returns what is wrong, or None."""
    switches = ["-DBACKEND=cpu", "-DPRECISION=fp32"]
    done = subprocess.run([os.environ.get("CXX", "g++"), "-std=c++17", "-fopenmp", "-fsyntax-only",
                           "-w", *switches, "-x", "c++", path], cwd=root, capture_output=True,
                          text=True)
    if done.returncode == 0:
        return None
    errors = [line for line in done.stderr.split("\n") if "error" in line]
    return "alone", path, "does not compile alone: " + (errors or [done.stderr])[0][:120]


def check_opening(path, text):
    """Yields a file that opens without its idea."""
    if re.search(r"-- what \S+ declares", text.split("*/")[0]):
        yield "opening", path, "its first lines say that it implements its header, not how"


def check_text(root, path, text):
    """Yields all that breaks a rule within one file."""
    yield from check_opening(path, text)
    yield from check_includes(root, path, text)
    yield from check_lines(path, text)
    yield from check_functions(path, text)
    yield from check_choices(path, text)


def broken_rules(root):
    """Returns all that breaks a rule: (rule, what, message)."""
    files = sources(root)
    found = []
    for path in files:
        text = text_of(os.path.join(root, path))
        found += check_text(root, path, text)
    found += wrong_hops(len(list_hops(root)), allowed_weights(root).get("hops", 0))
    found += find_circles(root, files)
    found += find_folder_circles(root, files)
    found += check_lists(root, files)
    found += check_names(texts_of(root))
    found += wrong_weights(weights(root), allowed_weights(root))
    found += check_committed(root)
    alone = [f for f in files if f.endswith((".h", ".cuh")) and not matches(f, NOT_ALONE) and f not in LISTS]
    alone = [] if "--text" in sys.argv else alone
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found += [wrong for wrong in pool.map(lambda f: check_header(root, f), alone) if wrong]
    return found


def exceptions_of(root):
    """Reads the rows of dev/size_exceptions.tsv: {(rule, what): reason}."""
    rows = {}
    for line in open(os.path.join(root, "dev/size_exceptions.tsv")):
        if line.strip() and not line.startswith("#"):
            rule, what, reason = line.rstrip("\n").split("\t")
            rows[rule, what] = reason
    return rows


def judge(broken, excused):
    """Returns messages of rules that are broken without a reason, and of reasons without need."""
    used, messages = set(), []
    for rule, what, message in broken:
        if (rule, what) in excused:
            used.add((rule, what))
        else:
            messages.append(f"{rule}: {what}: {message}")
    for rule, what in excused:
        if (rule, what) not in used:
            messages.append(f"{rule}: {what}: keeps the rule now; take its row off the exceptions")
    return messages


def check_all(root):
    """Returns the messages of all rules and of the list of exceptions."""
    return judge(broken_rules(root), exceptions_of(root))


def code_of(path, text):
    """Returns the text without comments; a Python docstring is one."""
    script = not path.endswith((".h", ".cuh", ".cu", ".cpp"))
    comment = r'"""(?:.*?)"""|(?<!\S)\#[^\n]*' if script else r"//[^\n]*|/\*.*?\*/"
    return re.sub(f"({comment})|{QUOTED}", lambda m: " " if m[1] else m[0], text, flags=re.S)


def weight_of(path, text):
    """Returns the tokens of a file."""
    return sizes_of(os.path.basename(path), text)[0]


@functools.cache
def sizes_of(name, text):
    """Returns the tokens of a file, and the bytes of its code and of the strings in it."""
    code = "" if name == "unicode_tables.h" else code_of(name, text)
    return (len(re.findall(QUOTED + r"|\w+|[^\w\s(){}\[\],;\\]", code)), len("".join(code.split())),
            sum(map(len, re.findall(QUOTED, code))))


def is_code(path):
    """True for C++, CUDA, Python and shell, by name or by the first line."""
    if path.endswith((".h", ".cuh", ".cu", ".cpp", ".py", ".sh")):
        return True
    if "." in os.path.basename(path):
        return False
    with open(path, "rb") as f:
        return f.read(2) == b"#!"


@functools.cache
def sizes(root):
    """Returns {folder: [tokens, bytes of code, of strings]} of the program, then of what is around it, then the sums."""
    folders = [folder or "root" for folder in FOLDERS if "/" not in folder]
    found = {}
    for folder in folders + ["test", "dev", "scripts"]:
        paths = glob.glob(os.path.join(root, "*" if folder == "root" else folder + "/**"), recursive=True)
        of = [sizes_of(os.path.basename(path), text_of(path)) for path in paths if os.path.isfile(path) and is_code(path)]
        found[folder] = list(map(sum, zip((0, 0, 0), *of)))
    for name, optional in (("alone", False), ("optional", True)):
        found[name] = list(map(sum, zip(*(found[folder] for folder in folders if (folder in OPTIONAL) == optional))))
    return found


def weights(root):
    """Returns {folder: tokens}."""
    return {folder: sizes[0] for folder, sizes in sizes(root).items()}


def allowed_weights(root):
    """Reads the rows of dev/weight.tsv: {folder: tokens}."""
    lines = open(os.path.join(root, "dev/weight.tsv")).read().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {folder: int(tokens) for folder, tokens, _ in rows}


def wrong_weights(found, allowed):
    """Yields every folder that is heavier than its row, or so much lighter that the row must go down."""
    for folder, tokens in found.items():
        most = allowed.get(folder, 0)
        if tokens > most:
            yield "weight", folder, f"{tokens} tokens, at most {most}: take something out, or raise " \
                                  "its row of dev/weight.tsv with the reason"
        elif tokens + 2 * slack_of(folder) < most:
            yield "weight", folder, f"{tokens} tokens, and its row of dev/weight.tsv has {most}: lower it"


def slack_of(folder):
    """Returns the tokens that a row leaves when it is committed."""
    return SLACK_OF_SUMS.get(folder, SLACK)


def too_little_slack(root, allowed):
    """Yields every row of dev/weight.tsv, and every page that grows, that leaves too little in a tree."""
    allowed = {**allowed, **dict.fromkeys(GROWING, PAGE_LINES)}
    found = {folder: (tokens, slack_of(folder)) for folder, tokens in weights(root).items()}
    found["hops"] = len(list_hops(root)), HOPS_SLACK
    for page in GROWING:
        found[page] = open(os.path.join(root, page), encoding="utf-8").read().count("\n"), PAGE_SLACK
    for what, (count, slack) in found.items():
        left = allowed.get(what, 0) - count
        if left < slack:
            yield "slack", what, f"left {left} when dev/weight.tsv was committed, at least {slack}: " \
                                 "dev/size.py --write (a page: shorten it), and commit"


def check_committed(root):
    """Yields what has too little slack in the commit that wrote dev/weight.tsv: later ones may use it up."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=root, capture_output=True).stdout
    commit = git("log", "-1", "--format=%H", "--", "dev/weight.tsv").decode().strip()
    if not commit or git("rev-parse", "--is-shallow-repository").strip() != b"false":
        return
    with tempfile.TemporaryDirectory() as copy:
        subprocess.run(["tar", "x"], cwd=copy, input=git("archive", commit), check=True)
        yield from too_little_slack(copy, allowed_weights(copy))


def write_weights(root):
    """Writes dev/weight.tsv again: each row leaves its slack and some tokens, as others commit, too."""
    now = {**weights(root), "hops": len(list_hops(root))}
    path, lines = os.path.join(root, "dev/weight.tsv"), []
    for line in open(path, encoding="utf-8").read().splitlines():
        folder, *rest = line.split("\t")
        if rest:
            most = now[folder] + HOPS_SLACK if folder == "hops" else (now[folder] + slack_of(folder) + 149) // 50 * 50
            line = "\t".join([folder, str(most), rest[1]])
        lines.append(line + "\n")
    open(path, "w", encoding="utf-8").writelines(lines)


def texts_of(root):
    """Reads all source files: {path: text}."""
    return {path: text_of(os.path.join(root, path)) for path in sources(root)}


@functools.cache
def list_hops(root):
    """Returns hops() of a tree."""
    return hops(texts_of(root))


def print_weights(root):
    """Prints what each folder weighs, beside what it may."""
    allowed = allowed_weights(root)
    print("folder         tokens   at most   kB of code   of strings")
    for folder, (tokens, code, strings) in sizes(root).items():
        print("%-10s %8d %9d %12.1f %12.1f" % (folder, tokens, allowed.get(folder, 0), code / 1000, strings / 1000))
    for what, files in (("mk/", "mk/*"), ("*.tsv", "[dst]*/**/*.tsv")):
        found = glob.glob(os.path.join(root, files), recursive=True)
        print("%-28s %12.1f" % (what, sum(map(os.path.getsize, found)) / 1000))
    print("\nfunctions of at most %d lines that are called once: %d, at most %d\n" %
          (HOP_LINES, len(list_hops(root)), allowed.get("hops", 0)))


def print_densities(root):
    """Prints the smoke alarm: how dense the lines of each folder are. Nothing fails by it."""
    print("folder       code lines   tokens a line   24 and more   ? per 100")
    for folder in FOLDERS:
        lines = tokens = dense = questions = 0
        for path in sources(root):
            if os.path.dirname(path) != folder:
                continue
            text = text_of(os.path.join(root, path))
            for line in without_comments(text).split("\n"):
                line = line.strip()
                if not line or re.match(r"X\(|X_|LAYER\(|HEAD\(|TAIL\(", line):
                    continue
                n = len(re.findall(r'"(?:\\.|[^"\\])*"|\w+|[^\w\s(){}\[\];,]', line))
                lines += 1
                tokens += n
                dense += n >= 24
                questions += line.count("?")
        if lines:
            print("%-10s %10d %15.1f %11.1f %% %11.1f" % (folder or "root", lines, tokens / lines,
                                                          100 * dense / lines,
                                                          100 * questions / lines))


def test_rules(root):
    """Breaks each rule in a copy of the tree and returns how many were not noticed."""
    broken = broken_rules(root)
    excused = exceptions_of(root)
    messages = judge(broken, excused)
    stale = judge(broken, {**excused, ("long", "a function that is short"): ""})
    failed = len(stale) != len(messages) + 1
    print(("FAIL " if failed else "ok   ") + "a row of the exceptions that is needed no longer")
    light = weight_of("a.h", 'int f(int a) {\n    // its sum\n    return g(a, "x // y");\n}\n')
    folded = weight_of("a.h", 'int f(int a){return g(a,"x // y");}/* its sum */')
    seen = [what for _, what, _ in wrong_weights({"a": 9, "b": 9, "c": 9, "d": 9},
                                                 {"a": 8, "b": 9, "c": 9 + 2 * SLACK + 1})]
    enough = {folder: tokens + slack_of(folder) for folder, tokens in weights(root).items()}
    enough.update(root=enough["root"] - 1, hops=len(list_hops(root)) + HOPS_SLACK)
    folders = [what for _, what, _ in too_little_slack(root, enough) if what not in GROWING]
    calls = "static int half(int x) { return x / 2; }\nint f(int x) {\n    return half(x);\n}\n"
    table = "static int row(int x) { return x; }\nint (*rows[])(int) = { row };\nint one();\n"
    many = [what for n in (9, 3, 1) for _, _, what in wrong_hops(n, 8)]
    for name, kept in (("comments and line breaks weigh nothing",
                        light == folded == 8 and sizes_of("a.sh", 'x="a b" # c\n') == (3, 6, 5)),
                       ("a hop, but not a row of a table or what is called twice",
                        hops({"a.h": calls, "b.h": table}) == ["a.h half"] and
                        hops({"a.h": calls, "b.h": "int y = half(2);"}) == []),
                       ("a row without slack", folders == ["root"]),
                       ("too many hops, and a row too high", len(many) == 2),
                       ("a folder too heavy, one with a row too high, one without a row",
                        seen == ["a", "c", "d"])):
        print(("ok   " if kept else "FAIL ") + name)
        failed += not kept
    long_name = "int spread_out(" + ", ".join(f"int p{i}" for i in range(9)) + ") {\n    return 0;\n}\n"
    breaks = [
        ("alone", "core/saves.h", lambda s: s.replace("#define SAVES_H\n",
                                                       "#define SAVES_H\nUnknown broken();\n")),
        ("include", "core/saves.cpp", lambda s: s + '#include "saves.h"\n'),
        ("upward", "base/common.h", lambda s: s.replace("#define COMMON_H\n",
                                                   '#define COMMON_H\n#include "../flags.h"\n')),
        ("upward", "core/saves.cpp", lambda s: s.replace('#include "saves.h"\n',
                                                        '#include "saves.h"\n#include "../open/import.h"\n')),
        ("circle", "arch.h", lambda s: s.replace("#define ARCH_H\n",
                                                 '#define ARCH_H\n#include "flags.h"\n')),
        ("folders", "cpu/product.h", lambda s: s.replace("#define CPU_PRODUCT_H\n",
                                                         '#define CPU_PRODUCT_H\n#include "../core/schedule.h"\n')),
        ("columns", "core/saves.cpp", lambda s: s + "//" + " long" * 25 + "\n"),
        ("long", "core/saves.cpp", lambda s: s + "int tall() {\n" + "    ;\n" * 60 + "}\n"),
        ("parameters", "core/saves.cpp", lambda s: s + long_name),
        ("file", "core/saves.cpp", lambda s: s + "\n" * 700),
        ("opening", "core/saves.cpp", lambda s: "/*\nsaves.cpp -- what saves.h declares.\n*/\n" + s),
        ("macro", "core/saves.cpp", lambda s: s + "#define LEFT 1\n"),
        ("name", "core/saves.cpp", lambda s: s + "static int add_norm_pair(int x) { return x; }\n"),
        ("list", "run/strange.cpp", lambda s: "int strange;\n"),
        ("choice", "core/saves.cpp", lambda s: s + "int sign(int x) { return x > 0 ? 1 : x ? -1 : 0; }\n"),
    ]
    for rule, path, change in breaks:
        with tempfile.TemporaryDirectory() as copy:
            for name in sources(root) + ["dev/size_exceptions.tsv"]:
                os.makedirs(os.path.join(copy, os.path.dirname(name)), exist_ok=True)
                os.symlink(os.path.join(root, name), os.path.join(copy, name))
            target = os.path.join(copy, path)
            text = open(target).read() if os.path.exists(target) else ""
            if os.path.lexists(target):
                os.unlink(target)
            open(target, "w").write(change(text))
            if rule == "alone":
                seen = check_header(copy, path) is not None
            else:
                text = open(target).read()
                found = check_text(copy, path, text)
                if rule == "circle":
                    found = find_circles(copy, sources(copy))
                if rule == "folders":
                    found = find_folder_circles(copy, sources(copy))
                if rule == "list":
                    found = check_lists(copy, sources(copy))
                if rule in ("macro", "name"):
                    found = check_names(texts_of(copy))
                seen = any(r == rule for r, _, _ in found)
        print(("ok   " if seen else "FAIL ") + f"a broken rule is noticed: {rule}")
        failed += not seen
    return failed, len(breaks) + 6, messages


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if "--test" in sys.argv:
        failed, tests, messages = test_rules(root)
        for message in messages:
            print("FAIL " + message)
        passed = tests - failed + (not messages)
        failed += len(messages)
        print(f"{passed} passed, {failed} failed")
        return failed > 0
    if "--write" in sys.argv:
        return write_weights(root)
    if "--hops" in sys.argv:
        print("\n".join(list_hops(root)))
        return 0
    print_weights(root)
    print_densities(root)
    messages = check_all(root)
    print("\n".join(messages) if messages else "all rules are kept")
    return bool(messages)


if __name__ == "__main__":
    sys.exit(main())
