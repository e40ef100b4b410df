"""Are the figures that README and docs/ quote those of the stored runs? Run by test_quoted.sh.

Tables are found by their heading and read column by column; PROSE has sentences with {} for every
figure, and where it comes from. What is not listed here is not checked.
"""
import json
import re
import subprocess
import sys
from statistics import mean as mean_of, stdev

passed, wrong = 0, []


def expect(ok, text):
    global passed
    passed += bool(ok)
    if not ok: wrong.append(text)


def page(name):
    return open(name, encoding="utf-8").read()


def results(name):
    return json.load(open(f"docs/results/{name}.json", encoding="utf-8"))


def seeds(row, get, at="last"):
    """A number of every finished seed of a row."""
    found = [get(o[at]) for o in row["ours"] if o.get("status") == "done" and o.get(at)]
    return [x for x in found if x is not None]


def spread(values, digits):
    """mean (smallest-largest), as the tables have it."""
    if not values: return "-"
    text = f"{sum(values) / len(values):.{digits}f}"
    if len(values) > 1 and max(values) != min(values):
        text += f" ({min(values):.{digits}f}-{max(values):.{digits}f})"
    return text


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


def by_id(names):
    return {row["id"]: row for name in names for row in results(name)["rows"]}


def check_generated(name, suffix):
    """A page of scripts/reproduce --markdown: a table for each section."""
    before, checked = passed + len(wrong), 0
    for part in re.split(r"^## ", page(name), flags=re.M)[1:]:
        table = part.split("\n")[0].strip()
        scale = re.search(r"^Scale (\w+)", part, re.M)
        try:
            stored = by_id([table + ("-" + scale[1] if scale else suffix)])
        except FileNotFoundError:
            continue
        for head, rows in tables(part):
            check_table(name, head, rows, stored, lambda cell: f"{table}-{cell}")
            checked += 1
    expect(checked and passed + len(wrong) - before > 4 * checked, f"{name}: {checked} tables read")


check_generated("docs/results/text.md", "-text")
check_generated("docs/results/text2.md", "-text2")
check_generated("docs/results/laptop.md", "-laptop")

interventions = by_id(["interventions-text"])
for head, rows in tables(page("docs/interventions.md")):
    check_table("docs/interventions.md", head, rows, interventions,
                lambda cell: "interventions-" + cell.split(" (")[0])

table4 = by_id(["table4-text"])
for head, rows in tables(page("docs/text.md")):
    if head[0] == "BIAS":
        check_table("docs/text.md", head, rows, table4,
                    lambda cell: "table4-" + cell.replace(", ordinary first token", "-no-s"))

# ---- the stored runs of the demo: README's table, and how the sink forms
logs = {m: [json.loads(line) for line in open(f"test/demo/text-{m}/log.jsonl", encoding="utf-8")]
        for m in ("softmax", "sigmoid", "k")}
evals = {m: {o["step"]: o for o in log if o["event"] == "eval"} for m, log in logs.items()}
shown = subprocess.run(["sh", "scripts/demo.sh", "table"] +
                       [f"test/demo/text-{m}/log.jsonl" for m in logs],
                       capture_output=True, text=True).stdout
squeeze = lambda text: re.sub(r"\s+", " ", text)
for line in shown.strip().splitlines():
    expect(squeeze(line.strip()) in squeeze(page("README.md")), f"README.md: lacks the row '{line}'")


def ratio(e, key):
    first, rest = e[key + "_first"], e[key + "_rest"]
    return sum(first) / sum(rest)


def mean(map_):
    return sum(map(sum, map_)) / sum(map(len, map_))


for head, rows in tables(page("docs/text.md")):
    if head[:2] != ["step", "softmax: loss"]: continue
    for row in rows:
        step = int(row[0].replace(",", ""))
        soft, sig, key = (evals[m][step] for m in ("softmax", "sigmoid", "k"))
        wanted = [f"{soft['val_loss']:.3f}", f"{mean(soft['alpha1']):.2f}",
                  f"{100 * soft['sink']['sink_k'][0]:.1f}%", f"{ratio(soft, 'v_norm'):.2f}",
                  f"{ratio(soft, 'k_norm'):.2f}", f"{100 * key['sink']['sink_star']:.0f}%",
                  f"{mean(sig['alpha1_proxy']):.2f}", f"{ratio(sig, 'v_norm'):.2f}"]
        expect(row[1:] == wanted, f"docs/text.md, step {row[0]}: got {row[1:]}, wanted {wanted}")

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
        path = f"docs/results/demo/{name}-seed{seed}/log.jsonl"
        lines = [json.loads(line) for line in open(path, encoding="utf-8")]
        ends.setdefault(name, []).append([o for o in lines if o["event"] == "eval"][-1])
rates = [f"{100 * e['sink']['sink_k'][0]:.1f}".replace(".0", "") for e in ends["softmax"]]
dearer = [b["val_loss"] - a["val_loss"] for a, b in zip(ends["softmax"], ends["sigmoid"])]
finer = {o["step"]: o for o in map(json.loads, open("docs/results/demo/film-seed2/log.jsonl",
                                                    encoding="utf-8")) if o["event"] == "eval"}
smol = results("smollm2")
smol_alpha = sum(map(sum, smol["alpha1"])) / sum(map(len, smol["alpha1"]))
by_layer = [f"{100 * sum(x > 0.3 for x in row) / len(row):.0f}" for row in smol["alpha1"]]
cut = results("cut-smollm2")
cut_at = {name: {p["T"]: p for p in o["probes"]} for name, o in cut["cuts"].items()}
of_cut = lambda p: f"{100 * p['sink_1']:.1f}"
trained = {name: {o["step"]: o for o in rows} for name, rows in cut["runs"].items()}
CUT_PROSE = [("docs/smollm2.md", "| {} | {} | {} | {} |",
              [name, of_cut(o[64]), " ".join(f"{x:.2f}" for x in o[64]["alpha1_max"]),
               " ".join(f"{x:.1f}" for x in o[64]["h_ratio"][1:])])
             for name, o in cut_at.items() if not name.endswith("M")]
CUT_PROSE += [("docs/smollm2.md", "| {} | {} | {} | {} | {} | {} | {} |",
               [str(step), f"{o['val_loss']:.3f}", of_cut(o), f"{o['heads_above'][2]}, {o['heads_above'][3]}",
                f"{max(o['alpha1_max']):.2f}", f"{o['h_ratio'][3]:.1f}", f"{o['v_ratio'][3]:.2f}"])
              for step, o in trained["9M-s1"].items() if step in (0, 25, 50) or step % 100 == 0]
CUT_PROSE += [("docs/smollm2.md", "| `{}` | +{} +- {} | {} | {} |",
               [o["name"], f"{o['change']:.3f}", f"{o['change_error']:.3f}", of_cut(o),
                f"{100 * o['sink_2']:.1f}"]) for o in cut["edits"] if o["kind"] == "edit"]
CUT_PROSE += [("docs/smollm2.md", "{}, positions in the cache | +{} +- {} |",
               [o["name"].split(",")[0], f"{o['change']:.3f}", f"{o['change_error']:.3f}"])
              for o in cut["edits"] if o["name"].endswith("in the cache")]
control = max(trained["9M-control-s1"].items())
CUT_PROSE += [("docs/smollm2.md", "Three seeds (of the order of the text) end at {}, {} and {}%.",
               [of_cut(trained[f"9M-s{seed}"][500]) for seed in (1, 2, 3)]),
              ("docs/smollm2.md", "At T 256 Sink_1 was {}% as cut, and is {}, {} and\n{}% at the end.",
               [of_cut(cut_at["9M"][256])] + [of_cut(cut["inputs"][f"{of}step 500, T 256"])
                                              for of in ("", "seed 2, ", "seed 3, ")]),
              ("docs/smollm2.md", "has none: Sink_1 is {}% and the loss {} at step {}.",
               [of_cut(control[1]), f"{control[1]['val_loss']:.3f}", str(control[0])]),
              ("docs/smollm2.md", "weaker as cut, {}%, and training ends it: {}% after 100 steps",
               [of_cut(cut_at["3M"][64]), of_cut(trained["3M-s1"][100])]),
              ("docs/smollm2.md", "A random first token, or two, keep the sink ({}%)",
               [of_cut(cut["inputs"]["random first token"])])]
seed1 = [o for o in table4["table4-none"]["ours"] if o["seed"] == 1][0]["last"]
PROSE = [
    ("docs/sinks.md", "Sink_1 {}, {} and {}% (seeds 2, 3, 4;", rates),
    ("docs/sinks.md", "has none, at {} to {} more loss", [f"{min(dearer):.2f}", f"{max(dearer):.2f}"]),
    ("docs/sinks.md", "at no cost: Sink_\\* {}% and Sink_1 {}%",
     [f"{100 * min(e['sink']['sink_star'] for e in ends['extra-key']):.0f}",
      f"{100 * max(e['sink']['sink_k'][0] for e in ends['extra-key']):.0f}"]),
    ("docs/text.md", "it is {}, {}, {}, {}, {}, {} and {}% from step 2,400 to 3,000",
     [f"{100 * finer[s]['sink']['sink_k'][0] - 1e-9:.0f}" for s in range(2400, 3001, 100)]),
    ("docs/smollm2.md", "| natural | `none` | {} | {} | {} | {} |",
     [f"{smol['probe_loss']:.3f}", f"{100 * smol['sink']['sink_k'][0]:.1f}",
      f"{100 * smol['sink']['sink_k'][1]:.1f}", f"{smol_alpha:.3f}"]),
    ("docs/smollm2.md", "in percent, natural text: {}.", [" ".join(by_layer)]),
    ("README.md", "eval 4000 | val {} | sink_1 {}%", [f"{seed1['val_loss']:.4f}", f"{seed1['sink_1']:.1f}"]),
    ("README.md", "changes the held-out loss by {} on average; changing the seed changes it by {}",
     [f"{bf16[0]:.3f}", f"{bf16[2]:.3f}"]),
    ("docs/text-larger.md", "the loss differs by {} on average and by {} at most, where two seeds of one row "
     "differ by {} and {}", [f"{x:.3f}" for x in bf16]),
    ("docs/text.md", "the magnitudes are not ({}% against 18.2%)",
     [f"{average(table4, 'table4-none', of_proxy):.1f}"]),
    ("docs/text.md", "the sink token takes {}% of the heads, at a lower loss ({} against {})",
     [f"{average(table4, 'table4-sink_token-no-s', star):.0f}",
      f"{average(table4, 'table4-sink_token-no-s', loss):.3f}",
      f"{average(table4, 'table4-none-no-s', loss):.3f}"]),
    ("docs/text.md", "Of 34 claims, all written before the runs, {} hold on every seed, {} do not",
     [verdict("-text", "holds"), verdict("-text", "does not hold")]),
    ("docs/interventions.md", "a loss that is not above softmax's ({} to {} against {})",
     [min(one(i) for i in ("zero", "logit", "k", "kv")), max(one(i) for i in ("zero", "logit", "k", "kv")),
      one("softmax")]),
    ("docs/interventions.md", "the logit takes a third less ({}%)", [one("gate_head-logit", star, 1)]),
    ("docs/interventions.md", "the third lowest loss of the table, {}", [one("gate_elem")]),
    ("docs/interventions.md", "has the best loss ({})", [one("wd0.0")]),
]

# docs/first-token.md, what it is worth, and the notebook: label of a row, the stored run, its step
FIRST, WORTH, NOTEBOOK = ("docs/first-token.md", "docs/first-token-worth.md", "docs/first-token-notebook.md")
four_layers = [(f"{pe} | {kind}", f"{pe}-{kind}-s1", 10000) for pe in ("rotary", "learnable")
               for kind in ("fixed", "random", "free", "ordinary")]
GO_ON, BACK = "rotary12T256-random-then-ordinary", "rotary12back{}-ordinary-then-ordinary-s2"
FOUR_64, FOUR_256 = ("rotary12h4at40k-random-then-ordinary-s1", "rotary12h4T256-random-then-ordinary-s1")
first_runs = ([(f"8 | 2 | {seed}", f"rotary8-random-s{seed}", step)
               for seed, step in ((1, 10000), (1, 40000), (2, 10000), (3, 10000))]
              + [(f"8 | {heads} | 1", f"rotary8h{heads}-random-s1", 10000) for heads in (4, 8)]
              + [(f"12 | 2 | {seed}", f"rotary12-random-s{seed}", step)
                 for seed in (1, 2, 3, 4) for step in (20000, 40000)]
              + [(f"12 | **4** | {seed}", f"rotary12h4-random-s{seed}", step)
                 for seed, step in ((1, 20000), (1, 40000), (2, 20000), (2, 40000), (3, 20000))]
              + [(f"2 | 2 | {T}", f"{GO_ON}-T{T}-s2", step) for T, steps in ((64, (500, 2500)), (128, (500, 5000)))
                 for step in steps]
              + [("2 | 2 | **256**", GO_ON + "-s2", step) for step in (5000, 20000)]
              + [("2 | 2b | 256", GO_ON + "-s12", 20000)]
              + [(f"2 | {seed} | 256", f"{GO_ON}-s{seed}", 5000) for seed in (1, 3, 4)]
              + [(f"2 | {seed} | 1024", f"{GO_ON}-T1024-s{seed}", 5000) for seed in (2, 3)]
              + [("**4** | 1 | 64", FOUR_64, step) for step in (500, 2500, 10000)]
              + [("4 | 2 | 64", "rotary12h4late-random-then-ordinary-s2", 5000),
                 ("4 | 2, from 20,000 | 64", "rotary12h4at20k-random-then-ordinary-s2", 500),
                 ("4 | 2, from 20,000 | 64", "rotary12h4at20k-random-then-ordinary-s2", 5000),
                 ("**4** | 1 | 256", FOUR_256, 10000),
                 ("4 | 3, from 20,000 | 256", "rotary12h4T256-random-then-ordinary-s3", 2500)])
worth_runs = ([("more tokens | 12 | 2", "rotary12at40k-ordinary-then-ordinary-T256-s2", 30000),
               ("learned positions | 12 | 1", "learnable12T256-ordinary-s1", 10000)]
              + [("no positions | 12 | 1", "nope12T256-ordinary-s1", step) for step in (10000, 20000)]
              + [("a K bias, taken away | 12 | 1", "rotary12T256taken-ordinary-then-ordinary-s1", step)
                 for step in (500, 10000)])


def first_eval(name, step):
    """Returns the evaluation of a stored run at a step."""
    lines = map(json.loads, open(f"docs/results/first-token/{name}/log.jsonl", encoding="utf-8"))
    return next(o for o in lines if o["event"] == "eval" and o["step"] == step)


def strength(name, step=0):
    """Returns the part of alpha_1 above the uniform one, summed over the heads that have more, at T 256."""
    uniform = sum(1 / t for t in range(1, 257)) / 256
    return sum(max(0, x - uniform) for layer in first_eval(name, step)["alpha1_proxy"] for x in layer)


def first_cells(name, step):
    """Returns what the tables have of an evaluation: step, loss, Sink_1, Sink_*, alpha_1, ratios of h and v,
    max/median. alpha_1 is a share of the row, if its weights do not sum to 1."""
    o = first_eval(name, step)
    ratio = lambda x: [a / b for a, b in zip(o[x + "_norm_first"], o[x + "_norm_rest"])]
    sink_star = o["sink"]["sink_star"]
    return [f"{o['step']:,}", f"{o['val_loss']:.3f}", f"{100 * o['sink']['sink_k'][0]:.1f}",
            "-" if sink_star is None else f"{100 * sink_star:.0f}",
            f"{max(map(max, o['alpha1_proxy'])):.2f}", f"{max(ratio('h')[1:]):.1f}",
            f"{min(ratio('v')):.2f}", f"{max(a / b for a, b in zip(o['h_max'], o['h_median'])):.0f}"]


FIRST_PROSE = []
for file, runs in ((FIRST, first_runs), (WORTH, worth_runs), (NOTEBOOK, four_layers)):
    for label, name, step in runs:
        numbers = first_cells(name, step)
        del numbers[3]                           # these tables have no Sink_*
        FIRST_PROSE.append((file, f"| {label} |" + " {} |" * len(numbers), numbers))
# the border: a weakened sink at T 256
for steps in (500, 1000, 1250, 1750):
    name = BACK.format(steps)
    of_steps = [first_cells(name, step) for step in (0, 1000, 5000)]
    numbers = [f"{steps:,}", f"{strength(name):.2f}"] + [o[2] for o in of_steps] + [o[5] for o in of_steps]
    FIRST_PROSE.append((FIRST, "|" + " {} |" * len(numbers), numbers))
FIRST_PROSE.append((FIRST, "By the strength at the start the border lies between {} and {}. But strength is not the whole "
                    "state: the run from {} rises to {} by step 1,000",
                    [f"{strength(BACK.format(steps), step):.2f}"
                     for steps, step in ((1250, 0), (1000, 0), (1250, 0), (1250, 1000))]))
FIRST_PROSE.append((FIRST, "seed 2 came to T 256 with {}; seeds 1, 3 and 4 with {}, {} and {}",
                    [f"{strength(f'{GO_ON}-s{seed}'):.2f}" for seed in (2, 1, 3, 4)]))
FIRST_PROSE.append((FIRST, "Sink_1 {}% after 10,000 steps at T 64, {}% at T 256",
                    [first_cells(name, 10000)[2] for name in (FOUR_64, FOUR_256)]))
FIRST_PROSE.append((FIRST, "Sink_1 {}%, an h {} times as long as the others', values a twentieth as long, an entry of h "
                    "{} times the median", [f(first_cells("rotary12h4-random-s1", 40000)) for f in (
                        lambda o: o[2], lambda o: f"{float(o[5]):.0f}", lambda o: f"{10 * round(int(o[7]) / 10):,}")]))
FIRST_PROSE.append((FIRST, "it is there, too ({}% without further training; two heads, seed 2: {}%",
                    [first_cells(name, 0)[2] for name in (FOUR_64, "rotary12at40k-random-then-ordinary-s2")]))
start, end = (first_cells(FOUR_64, step) for step in (0, 10000))
FIRST_PROSE.append((FIRST, "At T 64 Sink_1 is {}% at the beginning and {}% after 10,000 steps",
                    [start[2], end[2]]))
FIRST_PROSE.append((FIRST, "h shrinks from {} to {} times the others', max/median from {} to {}",
                    [f"{float(start[5]):.0f}", end[5], f"{int(start[7]):,}", end[7]]))
start, end = (first_cells(FOUR_256, step) for step in (0, 10000))
FIRST_PROSE.append((FIRST, "At T 256 both stay (10,000 of 20,000 planned steps: Sink_1 {} to {}%, max/median {} to {})",
                    [start[2], end[2], *(f"{int(x[7]):,}" for x in (start, end))]))
FIRST_PROSE.append((FIRST, "Seed 2 from step 20,000 loses its sink at T 64 ({} to {}%)",
                    [first_cells("rotary12h4at20k-random-then-ordinary-s2", step)[2] for step in (0, 5000)]))
three = strength("rotary12h4T256-random-then-ordinary-s3")
FIRST_PROSE.append((FIRST, "seed 3, from step 20,000, came with {} and lost its sink. Divided by the number of heads, "
                    "which we thought of later, it came with {}, and the border of two heads lies between {} and {}",
                    [f"{three:.2f}", f"{three / 48:.3f}"]
                    + [f"{strength(BACK.format(steps)) / 24:.3f}" for steps in (1250, 1000)]))
alone = first_cells("rotary12h4-ordinary-s1", 20000)
FIRST_PROSE.append((WORTH, "20,000 steps: h first/rest {} and alpha_1 {} (uniform is 0.074), where random first tokens "
                    "bring Sink_1 to {}%", [alone[5], alone[4], first_cells("rotary12h4-random-s1", 20000)[2]]))
FIRST_PROSE.append((FIRST, "from step 40,000 it keeps it, by that one for Sink_1 ({} to {}% in 5,000 steps)",
                    [first_cells("rotary12h4late-random-then-ordinary-s2", step)[2] for step in (0, 5000)]))
FIRST_PROSE.append((FIRST, "Weakened until Sink_1 is {}%, the one of two heads grows back at T 256, to {}%",
                    [first_cells(BACK.format(1000), step)[2] for step in (0, 1000)]))
taken = [first_eval(name, step)["val_loss"] for name, step in (
    ("rotary12T256k-ordinary-k-s1", 10000), ("rotary12T256taken-ordinary-then-ordinary-s1", 0),
    ("rotary12T256taken-ordinary-then-ordinary-s1", 500))]
FIRST_PROSE.append((WORTH, "The loss jumps by {} nats and is back within {} after 500 steps",
                    [f"{taken[1] - taken[0]:.1f}", f"{taken[2] - taken[0]:.2f}"]))
# the table of changes: all seeds in a cell
for label, stem in ([("-", "random"), ("free first token", "free"), ("ordinary first token", "ordinary")]
                    + [(f"`{x}`", "random-" + x.split("=")[1]) for x in (
                        "BIAS=k", "BIAS=zero", "ATTN=sigmoid", "ATTN=softpick", "GATE=head")]):
    of_seeds = [first_cells(f"rotary8-{stem}-s{seed}", 10000) for seed in (1, 2, 3)]
    numbers = [" ".join(x) for x in zip(*of_seeds)][1:]
    numbers[2] = "-" if "-" in numbers[2] else numbers[2]
    FIRST_PROSE.append((NOTEBOOK, f"| {label} |" + " {} |" * len(numbers), numbers))


def error_of(x):
    """Returns the standard error of a mean."""
    return stdev(x) / len(x) ** 0.5


def first_positions(name):
    return results(f"first-token/{name}/loss")["runs"][0]["by_position"]


def first_losses(name, first, last):
    """Returns the losses of a run by step, from one step to another."""
    return {int(step): loss for step, loss in results(f"first-token/{name}/losses").items()
            if first <= int(step) <= last}


# what being unreadable costs, and what a K bias and a sink gain after the first eighth of T 64
first_eighths = {kind: [first_positions(f"rotary8-{kind}-s{seed}") for seed in (1, 2, 3)]
                 for kind in ("random", "ordinary", "random-k")}


def first_differ(a, b, get):
    """Returns by how much the losses of one kind are above another's, by seed."""
    return [get(x) - get(y) for x, y in zip(first_eighths[a], first_eighths[b])]


def early(x):
    return 8 * x[0]


def late(x):
    return mean_of(x[1:])


def paired(a, b, first, last):
    """Returns by how much the losses of one run are above another's, at equal steps."""
    below = first_losses(b, first, last)
    return [loss - below[step] for step, loss in first_losses(a, first, last).items()]


def mean_loss(name, first, last):
    return mean_of(first_losses(name, first, last).values())


costs = first_differ("random", "ordinary", early)
gain_early, gain_late = (first_differ("random", "random-k", get) for get in (early, late))
pays_from = [8 + (mean_of(costs) - mean_of(gain_early)) / (mean_of(gain_late) + sign * error_of(gain_late))
             for sign in (0, 1, -1)]
twelve = late(first_positions("rotary12-random-s2")) - late(first_positions("rotary12-ordinary-s2"))
SINK, CONTROL, SINK_K = ("rotary12T256-random-then-ordinary-s2", "rotary12at40k-ordinary-then-ordinary-T256-s2",
                         "rotary12T256ord-ordinary-then-ordinary-k-s2")
beside = [x - y for x, y in zip(first_positions(SINK), first_positions(CONTROL))]
FIRST_PROSE += [
    (WORTH, "costs {} nats per sequence (standard error {}",
     [f"{f(costs):.2f}" for f in (mean_of, error_of)]),
    (WORTH, "0.039 nats per token at T 64, 0.010 at T 256, {} at T 1024", [f"{mean_of(costs) / 1024:.3f}"]),
    (WORTH, "A K bias lowers the loss by {} nats ({}) in the first eight positions",
     [f"{f(gain_early):.2f}" for f in (mean_of, error_of)]),
    (WORTH, "and then by {} ({}) per token", [f"{f(gain_late):.3f}" for f in (mean_of, error_of)]),
    (WORTH, "from T {} on ({} to {} within one standard error)", [f"{5 * round(x / 5)}" for x in pays_from]),
    (WORTH, "the difference is {} ({}) with eight layers and {} with twelve",
     [f"{f(first_differ('ordinary', 'random', late)):.3f}" for f in (mean_of, error_of)]
     + [f"{twelve:.3f}"]),
    (WORTH, "is {} with the sink and {} without; step by step the difference is {} ({}, one seed)",
     [f"{mean_loss(name, 5500, 10000):.3f}" for name in (SINK, CONTROL)]
     + [f"{f(paired(CONTROL, SINK, 5500, 10000)):.3f}" for f in (mean_of, error_of)]),
    (WORTH, "is worse by {} nats in the first 32 positions, and better by {} at each",
     [f"{32 * beside[0]:.2f}", f"{-mean_of(beside[1:]):.3f}"]),
    (WORTH, "its loss is {}; the model with the sink had {} in those steps of its own, and {} from step 17,500",
     [f"{mean_loss(name, 2500, 5000):.3f}" for name in (SINK_K, SINK)] + [f"{mean_loss(SINK, 17500, 20000):.3f}"]),
    (NOTEBOOK, "{} on average (standard error {}, all validation tokens",
     [f"{f(first_differ('random', 'random-k', mean_of)):.3f}" for f in (mean_of, error_of)])]


def worth_by_position(layers):
    """Returns by how much a K bias lowers the loss of ordinary text, by seed and position."""
    return [[x - y for x, y in zip(*(first_positions(f"rotary{layers}c-ordinary{k}-s{seed}")
                                     for k in ("", "-k")))] for seed in (1, 2, 3)]


two, four = ([*map(mean_of, worth_by_position(layers))] for layers in (2, 4))
four_early, four_late = ([get(x) for x in worth_by_position(4)] for get in (early, late))
FIRST_PROSE += [
    (WORTH, "a K bias lowers it by {} nats (standard error {}): by {} per token in the first eight positions, "
     "and by {} at the later ones",
     [f"{f(four):.3f}" for f in (mean_of, error_of)]
     + [f"{mean_of(four_early) / 8:.3f}", f"{mean_of(four_late):.3f}"]),
    (WORTH, "it lowers the loss by {} nats (standard error {}; by seed {}, {}, {})",
     [f"{x:.3f}" for x in (mean_of(two), error_of(two), *two)]),
    (WORTH, "({} ({}) from two layers to four)",
     [f"{mean_of(four) - mean_of(two):.3f}", f"{(error_of(two) ** 2 + error_of(four) ** 2) ** 0.5:.3f}"]),
    (WORTH, "from T {} on",
     [f"{5 * round((8 + (mean_of(costs) - mean_of(four_early)) / mean_of(four_late)) / 5)}"])]
FIRST_PROSE += [(WORTH, "|" + " {} |" * 8, first_cells(SINK_K, step))
                for step in (0, 500, 1000, 5000)]
first_after = [results(f"first-token/{name}/after")
               for name in ("rotary12-random-s2", "rotary12T256-random-then-ordinary-s2")]
FIRST_PROSE += [(NOTEBOOK, "| {} | {} | {} | {} | {} |\n",
                 [f"{o['probe_loss']:.3f}", of_cut(o), f"{100 * o['sink_2']:.1f}",
                  f"{max(o['h_ratio']):.1f}", f"{max(o['spike']):.0f}"])
                for o in first_after[0]["probes"].values()]
FIRST_PROSE += [(NOTEBOOK, "| {} +- {} | {} | {} |\n",
                 [f"{o['change']:+.3f}", f"{o['change_error']:.3f}", of_cut(o),
                  f"{100 * o['sink_2']:.1f}"])
                for after in first_after for o in after["edits"]
                if not o["name"].endswith("in the text")]


def check_prose(name, template, figures):
    filled = template
    for figure in figures:
        filled = filled.replace("{}", figure, 1)
    expect("{}" not in filled and squeeze(filled) in squeeze(page(name)),
           f"{name}: lacks '{filled}'")


for row in PROSE + CUT_PROSE + FIRST_PROSE: check_prose(*row)
for text in wrong: print("FAIL", text)
print(f"{passed} passed, {len(wrong)} failed")
sys.exit(bool(wrong))
