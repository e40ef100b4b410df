#!/usr/bin/env python3
"""Evaluation sets, in the format that lm-evaluation-harness reads them,
to what `train_sink score --task` takes.

    python3 scripts/tasks.py hellaswag hellaswag_val.jsonl > hellaswag.jsonl
    train_sink score DIR --task hellaswag.jsonl

    hellaswag    {"ctx_a", "ctx_b", "activity_label", "endings", "label"}
    arc          {"question", "choices": {"text", "label"}, "answerKey"};
                 also AI2's own {"question": {"stem", "choices"}, ..}
    piqa         {"goal", "sol1", "sol2", "label"};
                 AI2's own file has no label: --labels FILE, one per line
    winogrande   {"sentence", "option1", "option2", "answer"}
    lambada      {"text"}
    wikitext     {"page"}, or a .txt that is one page
    text         {"text"}, or a .txt: as it is

The input is .jsonl, .jsonl.gz, or .parquet (with pyarrow); several files are read one after
the other. Prompts are those of the harness' tasks hellaswag 1.0, arc_easy and arc_challenge 1.0,
piqa 1.0, winogrande 1.0, lambada_openai 1.0 and wikitext 2.0.
"""
import argparse, gzip, json, re, sys


def clean(text):
    """HellaSwag: marks of the pages that its texts were taken from"""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def hellaswag(r):
    context = r["activity_label"] + ": " + r["ctx_a"] + " " + r["ctx_b"].capitalize()
    return {"context": clean(context), "choices": [clean(e) for e in r["endings"]],
            "gold": int(r["label"])}


def arc(r):
    question, choices = r["question"], r.get("choices")
    if isinstance(question, dict):                                       # AI2's own files
        choices = {k: [c[k] for c in question["choices"]] for k in ("text", "label")}
        question = question["stem"]
    gold = choices["label"].index(r["answerKey"])
    return {"context": f"Question: {question}\nAnswer:",
            "choices": list(choices["text"]), "gold": gold}


def piqa(r):
    return {"context": f"Question: {r['goal']}\nAnswer:", "choices": [r["sol1"], r["sol2"]],
            "gold": int(r["label"])}


def winogrande(r):
    before, after = r["sentence"].split("_", 1)
    return {"contexts": [before + r["option1"], before + r["option2"]],
            "continuation": after.strip(), "gold": int(r["answer"]) - 1}


def lambada(r):
    context, word = r["text"].rsplit(" ", 1)
    return {"context": context, "continuation": word}


# what undoes WikiText's tokenization, in order: patterns, and what takes their place
WIKITEXT = [
    (r"s '", "s'"), (r"/' [0-9]/", "/'[0-9]/"), (r" @-@ ", "-"), (r" @,@ ", ","), (r" @\.@ ", "."),
    (r" : ", ": "),
    (r" ; ", "; "), (r" \. ", ". "), (r" ! ", "! "), (r" \? ", "? "), (r" , ", ", "),
    (r"\(\s*([^\)]*?)\s*\)", r"(\1)"),
    (r"\[\s*([^\]]*?)\s*\]", r"[\1]"), (r"{\s*([^}]*?)\s*}", r"{\1}"),
    (r"\"\s*([^\"]*?)\s*\"", r'"\1"'),
    (r"'\s*([^']*?)\s*'", r"'\1'"), (r"= = = =", "===="), (r"= = =", "==="), (r"= =", "=="),
    (" \u00b0 ", "\u00b0"), (r" \n", "\n"), (r"\n ", "\n"), (r" N ", " 1 "), (r" 's", "'s"),
]


def counted(text, page):
    return {"text": text, "words": len(re.split(r"\s+", page)), "bytes": len(page.encode())}


def wikitext(r):
    text = r["page"]
    for pattern, by in WIKITEXT:
        text = re.sub(pattern, by, text)
    return counted(text, r["page"])


def text(r):
    return counted(r["text"], r["text"])


def checked(record):
    """Returns the record, if its right answer is one of its choices."""
    answers = len(record.get("choices") or record.get("contexts") or [0])
    gold = record.get("gold", 0)
    if not 0 <= gold < answers: raise ValueError(f"the right answer is number {gold} of {answers}")
    return record


def delimited(record):
    """The harness puts a blank between context and continuation even where one of them has white
    space there; `score` does so only if the record says it."""
    contexts = record.get("contexts", [record.get("context", "")])
    answers = record.get("choices", [record.get("continuation", "")])
    if any(c != c.rstrip() for c in contexts) or any(a != a.lstrip() for a in answers):
        record["delimiter"] = " "
    return record


LABELED = ("hellaswag", "piqa")          # whose records have a label
TASKS = {f.__name__: f for f in (hellaswag, arc, piqa, winogrande, lambada, wikitext, text)}


def records(path, task):
    """the records of a file"""
    if path.endswith(".parquet"):
        import pyarrow.parquet
        yield from pyarrow.parquet.read_table(path).to_pylist()
        return
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8", newline="") as f:
        if path.endswith(".txt"):
            yield {"page" if task == "wikitext" else "text": f.read()}
            return
        for number, line in enumerate(f.read().split("\n"), 1):
            try:
                if line.strip():
                    yield json.loads(line)
            except ValueError as e:
                sys.exit(f"error: {path}:{number}: {e}")


def labels_of(path, task):
    """Returns the labels of a file, one for every record; of no file, none."""
    if path is None: return []
    if task not in LABELED:
        sys.exit(f"error: --labels with {task}: wanted one of {' '.join(LABELED)}: no other reads a label\n"
                 f"---> HINT: leave --labels out")
    try:
        with open(path, encoding="utf-8") as f: labels = f.read().split()
    except OSError as e:
        sys.exit(f"error: --labels {path}: {e.strerror}")
    except UnicodeDecodeError:
        sys.exit(f"error: --labels {path}: not UTF-8")
    if not labels: sys.exit(f"error: {path}: got no label, wanted one for every record")
    return labels


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--labels", metavar="FILE",
                        help="piqa, hellaswag: the right answers, from 0, one per line")
    a = parser.parse_args()
    labels = labels_of(a.labels, a.task)
    number = 0
    for path in a.files:
        try:
            for number, r in enumerate(records(path, a.task), number + 1):
                if number <= len(labels): r["label"] = labels[number - 1]
                elif labels: continue                         # too few: told at the end
                print(json.dumps(delimited(checked(TASKS[a.task](r))), ensure_ascii=False))
        except OSError as e:
            sys.exit(f"error: {path}: {e.strerror}")
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
            sys.exit(f"error: {path}, record {number}: "
                     f"not as {a.task} has it ({type(e).__name__}: {e})\n"
                     f"---> HINT: python3 scripts/tasks.py --help")
    if labels and len(labels) != number:
        sys.exit(f"error: {a.labels}: got {len(labels)} labels, wanted {number}, one for every record\n"
                 f"---> HINT: python3 scripts/tasks.py --help")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(1)
