"""Are the figures that README and docs/ quote those of the stored runs? Run by test_quoted.sh.

Tables are found by their heading and read column by column; PROSE has sentences with {} for every
figure, and where it comes from. What is not listed here is not checked.
"""
import json
import re
import subprocess
import sys

sys.path.insert(0, "scripts/lib")
import expect as counts
import figures
import quoted_cut
import quoted_first
import quoted_outputs
import stored
from expect import end, expect
from figures import squeeze
from quoted_outputs import spread

TABLES, DEMO = (stored.read(f"docs/results/{name}.jsonl") for name in ("tables", "demo"))


def page(name):
    return open(name, encoding="utf-8").read()


HELD = figures.Held(page)


def results(name):
    """A table of the paper at a scale, or a file that holds one thing."""
    if name in TABLES: return TABLES[name][name + ".json"]
    return json.load(open(f"docs/results/{name}.json", encoding="utf-8"))


def seeds(row, get, at="last"):
    """A number of every finished seed of a row."""
    found = [get(o[at]) for o in row["ours"] if o.get("status") == "done" and o.get(at)]
    return [x for x in found if x is not None]


def of_proxy(e):
    return e["proxy_1"]


# column of a table: what it is of an evaluation, its digits, and of which
COLUMNS = {"here Sink_1": (of_proxy, 1, "last"), "here: Sink_1": (of_proxy, 1, "last"),
           "at step 0": (of_proxy, 1, "step0"),
           "here: Sink_*": (lambda e: e.get("sink_star"), 1, "last"),
           "here: alpha_1": (lambda e: e["alpha_1_proxy"], 2, "last"),
           "raw Sink_1": (lambda e: e["sink_1"], 1, "last"),
           "here: loss": (lambda e: e["val_loss"], 3, "last")}


def cells(line):
    return [c.strip().replace("**", "") for c in re.split(r"(?<!\\)\|", line)[1:-1]]


def tables(text):
    """(head, rows) of every table of a page; columns after 'here' are ours, those before it the
    paper's."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        lines = [cells(line) for line in block.splitlines()]
        head, ours = [], False
        for name in lines[0]:
            ours = ours or name.startswith("here")
            head.append(name if name.startswith("here") or not ours or name in COLUMNS
                        else "here: " + name)
        yield head, lines[2:]


def check_table(where, head, rows, stored, id_of):
    for row in rows:
        about = stored.get(id_of(row[0]))
        if about is None: continue
        for name, cell in zip(head, row):
            if name not in COLUMNS or about.get("skipped"): continue
            get, digits, at = COLUMNS[name]
            values = seeds(about, get, at)
            if not values: continue
            ours, short = spread(values, digits), spread(values, digits).split(" (")[0]
            expect(cell in (ours, short), f"{where}, {row[0]}, {name}: got '{cell}', wanted '{ours}'")
            if cell == ours: HELD.mark_cell(where, row[0], cell)


def by_id(names):
    return {row["id"]: row for name in names for row in results(name)["rows"]}


def counted():
    """Returns how many checks there were."""
    return counts.passed + len(counts.wrong)


def check_generated(name, suffix):
    """A page of scripts/reproduce --markdown: a table for each section."""
    before, checked = counted(), 0
    for part in re.split(r"^## ", page(name), flags=re.M)[1:]:
        table = part.split("\n")[0].strip()
        scale = re.search(r"^Scale (\w+)", part, re.M)
        try:
            stored = by_id([table + ("-" + scale[1] if scale else suffix)])
        except (FileNotFoundError, KeyError):
            continue
        for head, rows in tables(part):
            check_table(name, head, rows, stored, lambda cell: f"{table}-{cell}")
            checked += 1
    expect(checked and counted() - before > 4 * checked, f"{name}: {checked} tables read")


check_generated("docs/results/text.md", "-text")
check_generated("docs/results/text2.md", "-text2")
check_generated("docs/results/laptop.md", "-laptop")

interventions = by_id(["interventions-text"])
for head, rows in tables(page("docs/findings/interventions.md")):
    check_table("docs/findings/interventions.md", head, rows, interventions,
                lambda cell: "interventions-" + cell.split(" (")[0])

table4 = by_id(["table4-text"])
LARGER, larger = "docs/findings/text-larger.md", by_id(["table4-text2", "table13-text2"])
# ---- the stored runs of the demo: README's table, and how the sink forms
logs = {m: [json.loads(line) for line in open(f"test/demo/text-{m}/log.jsonl", encoding="utf-8")]
        for m in ("softmax", "sigmoid", "k")}
evals = {m: {o["step"]: o for o in log if o["event"] == "eval"} for m, log in logs.items()}
shown = subprocess.run(["sh", "scripts/demo.sh", "table"] +
                       [f"test/demo/text-{m}/log.jsonl" for m in logs],
                       capture_output=True, text=True).stdout
for line in shown.strip().splitlines():
    expect(squeeze(line.strip()) in squeeze(page("README.md")), f"README.md: lacks the row '{line}'")
    HELD.mark("README.md", line)


def ratio(e, key):
    first, rest = e[key + "_first"], e[key + "_rest"]
    return sum(first) / sum(rest)


def mean(map_):
    return sum(map(sum, map_)) / sum(map(len, map_))


for head, rows in tables(page("docs/findings/text.md")):
    if head[:2] != ["step", "softmax: loss"]: continue
    for row in rows:
        step = int(row[0].replace(",", ""))
        soft, sig, key = (evals[m][step] for m in ("softmax", "sigmoid", "k"))
        wanted = [f"{soft['val_loss']:.3f}", f"{mean(soft['alpha1']):.2f}",
                  f"{100 * soft['sink']['sink_k'][0]:.1f}%", f"{ratio(soft, 'v_norm'):.2f}",
                  f"{ratio(soft, 'k_norm'):.2f}", f"{100 * key['sink']['sink_star']:.0f}%",
                  f"{mean(sig['alpha1_proxy']):.2f}", f"{ratio(sig, 'v_norm'):.2f}"]
        expect(row[1:] == wanted, f"docs/findings/text.md, step {row[0]}: got {row[1:]}, wanted {wanted}")
        HELD.mark("docs/findings/text.md", f"| {row[0]} | " + " | ".join(wanted) + " |")

# ---- sentences: (page, text with {}, its figures as they are printed)
loss = lambda e: e["val_loss"]
star = lambda e: e.get("sink_star")
average = lambda stored, id_, get: sum(seeds(stored[id_], get)) / len(seeds(stored[id_], get))


def apart(a, b, get):
    """How far the runs of two tables are apart on average and at most, and two seeds of one row."""
    between, within = [], []
    for id_ in a:
        x, y = seeds(a[id_], get), seeds(b[id_], get)
        between += [abs(p - q) for p, q in zip(x, y)]
        within += [abs(p - q) for i, p in enumerate(x) for q in x[i + 1:]]
    return sum(between) / len(between), max(between), sum(within) / len(within), max(within)


bf16 = apart(by_id(["table4-text2"]), by_id(["table4-text2-float"]), loss)
one = lambda id_, get=loss, digits=3, s=interventions: f"{average(s, 'interventions-' + id_, get):.{digits}f}"
held = {s: [c["verdict"] for n in names for c in results(n + s).get("claims", [])]
        for s, names in {"-text": "table2 table3 table4 table5 table6 table9 table10 table11 table12 "
                         "table13 table15 figure5 figure6 figure29 section5".split()}.items()}
verdict = lambda s, v: str(sum(x == v for x in held[s]))
# the nine runs of the demo, three seeds each; and the model of SmolLM2's page
ends = {}
for name in ("softmax", "sigmoid", "extra-key"):
    for seed in (2, 3, 4):
        lines = DEMO[f"{name}-seed{seed}"]["log.jsonl"]
        ends.setdefault(name, []).append([o for o in lines if o["event"] == "eval"][-1])


def by_head(values):
    """(.38 .34), as the tables have alpha_1 of the heads of a layer."""
    return "(" + " ".join(f"{x:.2f}".lstrip("0") for x in values) + ")"


MODELS = (("softmax", "softmax"), ("sigmoid", "sigmoid"), ("extra-key", "K biases"))
for name, label in MODELS:
    of = lambda key: ", ".join(f"{ratio(e, key + '_norm'):.2f}" for e in ends[name])
    heads = lambda key: ", ".join(by_head(e[key][0]) for e in ends[name])
    rate = lambda key: ", ".join(f"{100 * (e['sink'][key][0] if key.endswith('_k') else e['sink'][key]):.1f}" for e in ends[name]) + "%"
    alpha, sink = heads("alpha1"), rate("sink_k")
    if name == "sigmoid": alpha, sink = alpha + f"; shares {heads('alpha1_proxy')}", sink + f"; by shares {rate('proxy_k')}"
    row = " | ".join([f"| {label}", ", ".join(f"{e['val_loss']:.3f}" for e in ends[name]), alpha, sink,
                      rate("sink_star") if name == "extra-key" else "-", of("v"), of("k"),
                      ", ".join(f"{e['h_norm_first'][-1] / e['h_norm_rest'][-1]:.2f}" for e in ends[name]) + " |"])
    expect(row in page("docs/findings/text.md"), f"docs/findings/text.md: lacks '{row}'")
    HELD.mark("docs/findings/text.md", row)
rates = [f"{100 * e['sink']['sink_k'][0]:.1f}".replace(".0", "") for e in ends["softmax"]]
dearer = [b["val_loss"] - a["val_loss"] for a, b in zip(ends["softmax"], ends["sigmoid"])]
finer = {o["step"]: o for o in DEMO["film-seed2"]["log.jsonl"] if o["event"] == "eval"}
smol = results("smollm2")
smol_alpha = sum(map(sum, smol["alpha1"])) / sum(map(len, smol["alpha1"]))
by_layer = [f"{100 * sum(x > 0.3 for x in row) / len(row):.0f}" for row in smol["alpha1"]]
seed1 = [o for o in table4["table4-none"]["ours"] if o["seed"] == 1][0]["last"]
dims = [seeds(larger[f"table13-d{n}"], of_proxy) for n in (1, 2, 4)]
mean_of = lambda x: sum(x) / len(x)
text2 = lambda kind, get: seeds(larger["table4-" + kind], get)
table3 = by_id(["table3-text"])
positions = [average(table3, f"table3-{pe}", lambda e: e["alpha_1_proxy"]) for pe in ("nope", "absolute", "learnable", "alibi")]
# the attention that the first of 64 tokens gets if every query attends to all that it sees alike
uniform = f"{sum(1 / t for t in range(1, 65)) / 64:.3f}"
PROSE = [
    ("docs/faq.md", "by {} on average in one table and by up to {} between the demo's runs", [f"{bf16[2]:.2f}",
     f"{max(abs(a['val_loss'] - b['val_loss']) for a in ends['softmax'] for b in ends['softmax']):.2f}"]),
    ("README.md", "(1 + 1/2 + ... + 1/64) / 64 = {}", [uniform]),
    ("docs/faq.md", "(1 + 1/2 + ... + 1/64) / 64 = {}", [uniform]),
    ("docs/metrics.md", "(1 + 1/2 + ... + 1/64) / 64 = {}", [uniform]),
    (LARGER, "without a bias Sink_1 is {}% ({}-{}), and KV and K biases take the whole sink, on every seed (Sink_* {} and {}%)",
     [f"{f(text2('none', of_proxy)):.1f}" for f in (mean_of, min, max)] + [f"{mean_of(text2(k, star)):.1f}" for k in ("kv", "k")]),
    (LARGER, "the sink token has Sink_* {}% ({}-{})", [f"{f(text2('sink_token-no-s', star)):.1f}" for f in (mean_of, min, max)]),
    (LARGER, "stays on the first token ({}, {} and {}%; {} to {}% on the others)", [f"{d[0]:.0f}" for d in dims]
     + [f"{f(x for d in dims for x in d[1:]):.1f}" for f in (min, max)]),
    ("docs/sinks.md", "Sink_1 {}, {} and {}% (seeds 2, 3, 4;", rates),
    ("docs/sinks.md", "has none, at {} to {} more loss", [f"{min(dearer):.2f}", f"{max(dearer):.2f}"]),
        ("docs/sinks.md", "takes all of the sink: Sink_\\* {}% and Sink_1 {}%; the loss changes by {}, {} and {} (same",
     [f"{100 * min(e['sink']['sink_star'] for e in ends['extra-key']):.0f}",
      f"{100 * max(e['sink']['sink_k'][0] for e in ends['extra-key']):.0f}"]
     + [f"{b['val_loss'] - a['val_loss']:.3f}" for a, b in zip(ends["softmax"], ends["extra-key"])]),

    ("docs/findings/text.md", "it is {}, {}, {}, {}, {}, {} and {}% from step 2,400 to 3,000",
     [f"{100 * finer[s]['sink']['sink_k'][0] - 1e-9:.0f}" for s in range(2400, 3001, 100)]),
    ("docs/findings/smollm2.md", "| natural | `none` | {} | {} | {} | {} |",
     [f"{smol['probe_loss']:.3f}", f"{100 * smol['sink']['sink_k'][0]:.1f}",
      f"{100 * smol['sink']['sink_k'][1]:.1f}", f"{smol_alpha:.3f}"]),
    ("docs/findings/smollm2.md", "in percent, natural text: {}.", [" ".join(by_layer)]),
    ("README.md", "eval 4000 | val {} | sink_1 {}%", [f"{seed1['val_loss']:.4f}", f"{seed1['sink_1']:.1f}"]),
    ("docs/faq.md", "changes the held-out loss by {} on average; changing the seed changes it by {}",
     [f"{bf16[0]:.3f}", f"{bf16[2]:.3f}"]),
    ("docs/findings/text-larger.md", "the loss differs by {} on average and by {} at most, where two seeds of one row "
     "differ by {} and {}", [f"{x:.3f}" for x in bf16]),
    ("docs/findings/text.md", "(|h_1| is {}, {} and {} times the others'", [
        f"{x:.1f}" for x in sorted(seeds(table4["table4-none"], lambda e: e["h_norm"][-1]))]),
    ("docs/findings/text.md", "the magnitudes are not ({}% against 18.2%)",
     [f"{average(table4, 'table4-none', of_proxy):.1f}"]),
    ("docs/findings/text.md", "V biases leave it (Sink_1 {}%)", [f"{average(table4, 'table4-v', of_proxy):.1f}"]),
    ("docs/findings/text.md", "the sink token takes {}% of the heads, at a lower loss ({} against {})",
     [f"{average(table4, 'table4-sink_token-no-s', star):.0f}",
      f"{average(table4, 'table4-sink_token-no-s', loss):.3f}",
      f"{average(table4, 'table4-none-no-s', loss):.3f}"]),
    ("docs/findings/text.md", "Of 34 claims, all written before the runs, {} hold on every seed, {} do not",
     [verdict("-text", "holds"), verdict("-text", "does not hold")]),
    ("docs/findings/interventions.md", "the mean loss is not above softmax's ({} to {} against {})",
     [min(one(i) for i in ("zero", "logit", "k", "kv")), max(one(i) for i in ("zero", "logit", "k", "kv")),
      one("softmax")]),
    ("docs/findings/text.md", "of {}% at p = 1/2 and {}% at p = 1/3", [
        f"{average(by_id(['figure29-text']), f'figure29-sigmoid_p{p}', of_proxy):.0f}" for p in ("0.5", "0.333333")]),
    ("docs/findings/text.md", "the first token keeps {} to {} of the attention on average", [f"{f(positions):.2f}" for f in (min, max)]),
    ("docs/findings/text.md", "end with a sink: {}%, and {}% ({}% at step 0)", [f"{average(table3, 'table3-rotary', of_proxy):.1f}",
     *(f"{mean_of(seeds(table3['table3-relative'], of_proxy, at)):.0f}" for at in ("last", "step0"))]),
    *(("docs/findings/asked.md", "| {} | {} | {} | {} |", [label, one(id_, of_proxy, 1), one(id_, lambda e: e["alpha_1_proxy"], 2), one(id_)])
      for label, id_ in (("softmax", "softmax"), ("a logit", "logit"), ("a K bias", "k"), ("a gate by head", "gate_head"),
                         ("a gate by channel", "gate_elem"))),
    ("docs/findings/interventions.md", "the logit takes a third less ({}%)", [one("gate_head-logit", star, 1)]),
    ("docs/findings/interventions.md", "the third lowest loss of the table, {}", [one("gate_elem")]),
    ("docs/findings/interventions.md", "has the best loss ({})", [one("wd0.0")]),
]


def check_prose(name, template, figures):
    filled = template
    for figure in figures:
        filled = filled.replace("{}", figure, 1)
    expect("{}" not in filled and squeeze(filled) in squeeze(page(name)),
           f"{name}: lacks '{filled}'")
    HELD.mark(name, filled)


for row in PROSE + quoted_cut.sentences() + quoted_first.sentences() + quoted_outputs.sentences():
    check_prose(*row)
if sys.argv[1:2] == ["--write"]: figures.write(HELD, *sys.argv[2:3])
for text in figures.check(HELD): expect(False, text)
expect(page("docs/results/first-token.md") == quoted_first.registry(),
       "docs/results/first-token.md: python3 test/docs/quoted_first.py prints another page")
end()
