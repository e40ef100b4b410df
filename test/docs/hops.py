"""hops.py -- docs/tour.md lists how calls lead from main to the lines that matter. Does each body call the
next function of its list, and is each list as long as the page says? Run by test_docs.sh, which also
breaks links.

A list is a block of rows `FILE  NAME > NAME`; its length is told above it as "N calls and M files". A call is a name with
parentheses, a command, a row of LAYER_STAGES (attend for attend_forward), measure_layer's at_layer, or a pointer that
core/variant.cu sets to ops::NAME.
"""
import re

from expect import end, expect

PAGE = "docs/tour.md"


def code_of(path):
    """Returns the text of a file without comments, at commands without their macros."""
    with open(path, encoding="utf-8") as f:
        return re.sub(r"//[^\n]*|/\*.*?\*/", "", f.read(), flags=re.S)


def body_of(name, path):
    """Returns the body of a function, a lambda in it included; None if the file defines none."""
    code = code_of(path)
    for m in re.finditer(rf"\b{name}\(", code):
        head = re.match(r"[^;{}]*\)[ \w]*\{", code[m.start():])
        if not head:
            continue
        depth, at = 0, m.start() + head.end() - 1
        for i in range(at, len(code)):
            depth += (code[i] == "{") - (code[i] == "}")
            if depth == 0:
                return code[at:i]
    return None


def calls(body, caller, name):
    """Tells whether a body calls a function: by its name, a macro, a stage, a callback or a pointer."""
    if re.search(rf"\b{name}(<[\w, ]*>)?\(", body):
        return True
    command = re.match(r"command_(\w+)$", name)
    if command and "command_##name(" in body and f"X({command[1]}," in code_of("flags.h"):
        return True
    stage = re.match(r"(\w+)_forward$", name)
    if stage and "stage.forward(" in body and f"BOTH({stage[1]})" in code_of("train_sink.cu"):
        return True
    if name == "measure_layer" and "at_layer(l)" in body:
        return "[&](int l) { measure_layer(" in code_of("core/measure.cpp")
    pointers = re.findall(r"variant::(\w+)", body)
    return any(re.search(rf"\b{p}(\[2\])? = (\{{ )?ops::{name}<", code_of("core/variant.cu")) for p in pointers)


def rows_of(block):
    """Returns (name, file) of every function in a list."""
    rows, path = [], None
    for word in block.split():
        if "." in word:
            path = word
        elif word != ">":
            rows.append((word, path))
    return rows


def check(told, rows):
    """Checks one list: every link, then its length as told."""
    for (caller, path), (name, _) in zip(rows, rows[1:]):
        body = body_of(caller, path)
        expect(body is not None, f"{PAGE}: {path} does not define {caller}")
        expect(body is None or calls(body, caller, name), f"{PAGE}: {caller} ({path}) does not call {name}")
    name, path = rows[-1]
    expect(body_of(name, path) is not None, f"{PAGE}: {path} does not define {name}")
    true = f"{len(rows) - 1} calls and {len({path for _, path in rows})} files"
    expect(told == true, f"{PAGE}: '{told}' are {true}")


with open(PAGE, encoding="utf-8") as f:
    page = f.read()
told = re.findall(r"\d+ calls and \d+ files", page)
lists = re.findall(r"((?:    \S+\.\w+  \w+.*\n)+)", page[page.index("## From main"):page.index("## The files")])
expect(len(lists) == len(told) == 3, f"{PAGE}: {len(lists)} lists of calls, {len(told)} lengths, wanted 3")
for length, block in zip(told, lists):
    check(length, rows_of(block))
end()
