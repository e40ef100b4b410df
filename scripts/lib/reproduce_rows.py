"""The rows of scripts/experiments.tsv, their flags at a scale, and their time and price.

rows_at gives every row the words of its run, or the reason why it has none. Rows of equal words
share a run, which is named after what differs from the default setup.
"""
import copy
import hashlib
import os
import re
import shlex

import jobs
import runlog
from jobs import ROOT, duration
from reproduce_scales import BUILD_SECONDS, DOLLARS_PER_GPU_HOUR, SCALES, SWEPT, Skip, at_scale
from runlog import die


# what a table or figure is about, for those who do not have the paper open
TITLES = {
    "table1": "open models: natural, random and repeated tokens",
    "table2": "weight decay",
    "table3": "positional embeddings: rotary, none, absolute, ..",
    "table4": "attention biases: sink token, KV, K, V",
    "table5": "a fixed v* of k*: how large may it be",
    "table6": "attention operations: softmax, sigmoid, elu + 1, ..",
    "table7": "open models: learned positions, swapped and copied",
    "table8": "open models: Sink_1 of each",
    "table9": "learning rates and steps",
    "table10": "batch sizes; a token fixed at a position",
    "table11": "activations of the FFN",
    "table12": "heads, their sum; biases that heads share",
    "table13": "how many entries of k* learn",
    "table14": "rows that sum to less than 1; sigmoid's settings",
    "table15": "attention operations, all of them",
    "figure2": "open models: norms and angles of one",
    "figure3": "any model: Sink_1 by length and threshold",
    "figure4": "learning rates; training over time; open models",
    "figure5": "prefixes; how much data",
    "figure6": "windows of attention",
    "figure9": "open models: Sink_1 by domain of the text",
    "figure10": "open models: Sink_1 beside HellaSwag",
    "figure28": "loss and Sink_1 over training",
    "figure29": "norms of h_1 with p-normalized attention",
    "figure30": "loss and gradient norm of fine-tuning",
    "section5": "random first and second tokens",
    "section7.2": "post-norm",
    "section7.4": "1B parameters, softmax and sigmoid",
    "interventions": "beyond the paper: what removes the sink",
    **{f"figure{i}": "open models: norms by layer" for i in range(11, 15)},
    **{f"figure{i}": "open models: angles of queries and keys" for i in range(15, 19)},
    **{f"figure{i}": "open models: attention to token 1, every head" for i in range(19, 25)},
    "figure25": "open models: maps of Jamba's heads",
    "figure26": "open models: maps of Jamba's heads",
    "figure27": "open models: attention to token 1 in Jamba",
}


class Row:
    def __init__(self, id, where, make, run, sink_k, sink_star, val_loss, note):
        self.id, self.where, self.table = id, where, id.split("-")[0]
        self.note = "" if note == "-" else note
        self.make = "" if make == "-" else make
        # words: at the chosen scale; first: its run's name
        self.words, self.skip, self.first = run.split(), "", id
        self.paper = {"sink_k": paper_sinks(sink_k), "sink_star": paper_number(sink_star),
                      "val_loss": paper_number(val_loss), "note": self.note}


def paper_number(text):
    try: return float(text)
    except ValueError: return "failed" if text == "failed" else None


def paper_sinks(text):
    pairs = [p.split(":") for p in text.split() if ":" in p]
    return {k: float(x) for k, x in pairs} if pairs else text if text == "failed" else None


def rows_read():
    path = f"{ROOT}/scripts/experiments.tsv"
    lines = runlog.read_text(path, "git checkout scripts/experiments.tsv").split("\n")
    rows = []
    for i, line in enumerate(lines, 1):
        if not line or line[0] == "#" or line.startswith("id\t"): continue
        columns = line.split("\t")
        if len(columns) != 8:
            die(f"{path}, line {i}: got {len(columns)} columns, wanted 8",
                "git checkout scripts/experiments.tsv")
        words = columns[3].split()
        trains = words[:1] == ["train"] and len(words) % 2 and "--steps" in words[1::2]
        if not trains and words[:1] not in (["probe"], ["eval"]):
            die(f"{path}, line {i}: run: got {runlog.shown(columns[3])}, wanted train, "
                "--steps N and flags with values",
                "git checkout scripts/experiments.tsv")
        rows.append(Row(*columns))
    return rows


def rows_at(o):
    """the rows with their words at o.scale, shared runs named;
    rows that mean nothing there keep why"""
    s, bb, rows = o.s, o.data == "bb", rows_read()
    for row in rows:
        if row.words[0] != "train":
            command = "./train_sink " + shlex.join(row.words)
            row.skip = f"not a run but {row.words[0]} of a checkpoint: {command}"
            continue
        words = row.words[1:]
        flags = list(zip(words[::2], words[1::2]))
        if o.scale == "paper":
            own = [w for f, x in flags for w in (f, o.data if f == "-d" else x)]
            row.words = own + s["flags"].split()
            continue
        swept = SWEPT.get(row.where)
        if swept and swept[0] not in words: flags.append(swept)
        try:
            mapped = [w for f, x in flags if f != "--steps" for w in at_scale(f, x, s, bb)]
            steps = dict(flags)["--steps"]
            row.words = row_words(s, o.data, at_scale("--steps", steps, s, bb))
            if {"--fix-token", "--random-token"} & set(words):
                row.words = ordinary_first(row.words, bb)
            row.words = once(row.words + mapped, row_words(s, o.data))
        except Skip as why: row.skip = str(why)
    for id, where, make, flags, note in s["also"] if o.data == s["data"] else []:
        row = Row(id, where, make, flags, "not given", "-", "not given", note)
        base = row_words(s, o.data)
        row.words = once(ordinary_first(base, bb) + flags.split(), base)
        last = max(i for i, r in enumerate(rows) if r.table == row.table)
        rows.insert(last + 1, row)
    name_runs([r for r in rows if not r.skip])
    for row in rows:
        row.plain = row.words                    # what follows -- is in o.label
        if not row.skip: row.words = row.plain + o.extra
        row.make = " ".join(row.make.split() + s.get("make", "").split())
    return rows


def once(words, base):
    """every flag once, with its last value, in the order of the scale's own:
    equal runs have equal words"""
    value = dict(zip(words[::2], words[1::2]))
    flags = dict.fromkeys([f for f in base[::2] if f in value] + list(value))
    return [w for flag in flags for w in (flag, value[flag])]


def ordinary_first(words, bb):
    """the words of a run without what the scale puts first in every sequence:
    the paper's data have ordinary first tokens"""
    for flag in ("--fix-token", "--random-token"):
        if flag in words: i = words.index(flag); return words[:i] + words[i + 2:]
    return words + ["--bb-bos", "0"] if bb else words


def name_runs(rows):
    """row.first: what differs from the default setup, which is that of most rows"""
    pairs = lambda r: list(zip(r.words[::2], r.words[1::2]))
    said = [tuple(r.words) for r in rows]
    usual = pairs(rows[said.index(max(said, key=said.count))]) if rows else []
    for row in rows:
        lost = [("no" + flag[1:], "") for flag, _ in usual if flag not in row.words]
        row.first = jobs.run_name(row.make, lost + [p for p in pairs(row) if p not in usual])


def row_words(s, data, steps=None):
    steps = steps or ["--steps", str(s["steps"])]
    return ["-d", data] + s["flags"].split() + steps + ["--lr", f"{s['lr']:g}"]


def options_at(scale, data, extra, seeds, o):
    s, x = SCALES[scale], copy.copy(o)
    x.scale, x.s, x.extra, x.seeds, x.data = scale, s, extra, seeds, data or s["data"]
    x.label = scale                              # names directories and results
    if x.data != s["data"]:
        x.label += "+" + re.sub(r"[^A-Za-z0-9_.-]", "_", os.path.basename(os.path.normpath(x.data)))
    if extra: x.label += "+" + hashlib.sha256(" ".join(extra).encode()).hexdigest()[:8]
    x.files = jobs.files_named(row_words(s, x.data) + extra)
    x.device = o.device or s["device"]
    x.identity, x.source = jobs.identity(*x.files), jobs.source_hash(x.device)
    x.threads, cores = s["threads"], os.cpu_count() or 1
    # 0: one per GPU
    x.jobs = o.jobs or (max(1, cores // (s["threads"] or cores)) if x.device == "cpu" else 0)
    return x


def choose(rows, names):
    """the rows that were asked for: of whole tables, or single"""
    known = list(dict.fromkeys(r.table for r in rows))
    wanted = f"wanted list, all, or some of {' '.join(known)}"
    if not names: die(f"scripts/reproduce: got no table, {wanted}", "scripts/reproduce list")
    chosen = []
    for name in known if "all" in names else names:
        mine = [r for r in rows if name in (r.table, r.id)]
        if not mine:
            die(f"scripts/reproduce: got {runlog.shown(name)}, {wanted}", "scripts/reproduce list")
        chosen += mine
    return chosen


# ---- time and price ------------------------------------------------------------------------------
def cost(runs, o):
    """The hours of a list of runs: their binaries, then the training. The 1B model has its own
    speed."""
    s = o.s
    hours = len({r.make for r in runs}) * BUILD_SECONDS[s["device"]] / 3600
    for r in runs:
        f = dict(zip(r.words[::2], r.words[1::2]))
        large = f.get("-m") == "1B" or "-1b" in f.get("--init", "")
        speed = s["tokens_s_1B" if large else "tokens_s"]
        batch = float(f.get("--total-batch", 0))
        batch = batch or float(f.get("-b", s["batch"] / s["seq"])) * s["seq"]
        hours += float(f["--steps"]) * batch / speed / 3600
    return hours


def cell_of(rows, options):
    """the runs of one seed, their time, and on a GPU their price"""
    unique = list({r.first: r for r in rows}.values())
    if not unique: return "-"
    hours = cost(unique, options)
    dollars = f", ${hours * DOLLARS_PER_GPU_HOUR:,.0f}" if options.s["device"] == "cuda" else ""
    return f"{len(unique)}: {duration(hours)}{dollars}"
