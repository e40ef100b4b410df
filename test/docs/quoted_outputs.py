"""What README, start.md, eval.md, sinks.md, text.md, smollm2.md and interventions.md quote of stored outputs:
sentences() for quoted.py. docs/results/outputs.jsonl holds what `probe --json` and `eval --json` wrote.

A sentence is (page, text with {} for every figure, the figures as they are printed).
"""
import array
import json
import sys
from statistics import mean, stdev

sys.path.insert(0, "scripts/lib")
from stored import read

OUT, DEMO = (read(f"docs/results/{name}.jsonl") for name in ("outputs", "demo"))
README, START, AFTER, SINKS = "README.md", "docs/start.md", "docs/eval.md", "docs/sinks.md"
TEXT, SMOL, CHANGES, NOTEBOOK = (f"docs/findings/{name}.md" for name in ("text", "smollm2", "interventions", "text-notebook"))
FIRST_CHANGES, SEARCH = "docs/findings/first-token-changes.md", "dev/log/text-runs.md"
# rows of eval.md: label, stored output
EDITS = ("h:11:1:top3=0", "h:11:1:top3=mean", "A:12..:1=mask", "v:12..:1=0", "v:12..:1=mean", "A:*:1=mask", "mlp:11:1=0",
         "v:*:1=0", "k:*:1=from 2")
# rows of text-notebook.md: label, stored run
SETTINGS = (("the demo, seed 1", "readme-train"), ("one head of 64", "one-head"), ("four heads of 16", "four-heads"),
            ("four heads of 16, seed 2", "four-heads-s2"), ("four heads of 16, seed 3", "four-heads-s3"),
            ("eight heads of 8", "eight-heads"), ("eight heads of 8, seed 2", "eight-heads-s2"), ("two layers", "two-layers"),
            ("**ordinary first token**", "ordinary"), ("four layers", "four-layers"), ("lr 2e-3", "lr-2e-3"), ("lr 8e-3", "lr-8e-3"),
            ("4 sequences per step", "four-sequences"), ("weight decay 0.5", "wd05"), ("beta2 0.999", "beta2"),
            ("T 128, 8 sequences per step", "T128"), ("only the first 100,000 tokens, repeated", "few-tokens"))
# rows of smollm2.md
INPUTS = (("natural | `none`", "natural"), ("natural, 512 tokens | `none`", "natural512"),
          ("natural | `<\\|im_start\\|>`", "imstart"), ("natural | `<\\|endoftext\\|>`", "eot"),
          ("random tokens | `none`", "random"), ("one token repeated | `none`", "repeated"))


def error_of(x):
    """Returns the standard error of a mean."""
    return stdev(x) / len(x) ** 0.5


def t_of(x):
    """Returns Student's t of a mean against 0."""
    return abs(mean(x)) / error_of(x)


def interval(x, digits, signed=False):
    """Returns the mean of three seeds and its 95% interval: Student's t on two degrees of freedom."""
    assert len(x) == 3
    sign = "+" if signed else ""
    return [f"{v:{sign}.{digits}f}" for v in (mean(x), mean(x) - 4.303 * error_of(x), mean(x) + 4.303 * error_of(x))]


def p_of(x):
    """Returns the two-sided p of a mean of three seeds against 0, in closed form for two degrees of freedom."""
    assert len(x) == 3
    p = 1 - t_of(x) / (2 + t_of(x) ** 2) ** 0.5
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def probe(name): return OUT[name]["probe.json"]


def runs_of(name):
    """Returns the rows of an `eval --json`, by name."""
    return {o["name"]: o for o in OUT[name]["eval.json"]["runs"]}


def change(o, digits=3):
    return [f"{o['change']:+.{digits}f}", f"{o['change_error']:.{digits}f}"]


def percent(o, k=1):
    return f"{100 * o['sink_k'][k - 1]:.1f}"


def ratios(o, key):
    return [a / b for a, b in zip(o[key + "_norm_first"], o[key + "_norm_rest"])]


def of_probe():
    """Returns the lines of the README's probe, and what pages say of it."""
    o = probe("readme-probe")
    h = ratios(o, "h")
    spike = max(a / b for a, b in zip(o["h_max"], o["h_median"]))
    tenths = "".join(str(int(10 * mean(layer))) for layer in o["alpha1"])
    by_ten = " ".join(tenths[i:i + 10] for i in range(0, 30, 10))
    found = []
    for page in (README, START):
        found += [(page, "in {}% of all (head, sequence) pairs", [f"{100 * o['sink']['sink_k'][0]:.0f}"]),
                  (page, "by layer, in tenths: {} ", [by_ten]),
                  (page, "the hidden state of token 1 has up to {} times the norm of the others', after layer {}", [f"{max(h):.0f}", str(h.index(max(h)) - 1)]),
                  (page, "the largest entry of any hidden state is up to {} times the median, after layer {}", [f"{spike:.2e}", "11"])]
    return found + [
        (START, "**The first line is Sink_1** ({}% before rounding)", [f"{100 * o['sink']['sink_k'][0]:.1f}"]),
        (START, "({} times the others' after layer 11, {} after the last)", [f"{max(h):.0f}", f"{h[-1]:.1f}"]),
        (SINKS, "more than 0.3 of the attention in {}% of all", [f"{100 * o['sink']['sink_k'][0]:.0f}"]),
        (SINKS, "after layer 11, the norm of the first token's hidden state is {} times", [f"{max(h):.0f}"])]


def of_training():
    """Returns the evaluations of the README's training."""
    found = []
    shown = [o for o in OUT["readme-train"]["log.jsonl"][1:] if o["step"] in (0, 4000)]
    for o in shown:
        v = [sum(o[f"v_norm_{which}"]) for which in ("first", "rest")]
        found.append((README, "eval {} | val {} | sink_1 {}% | sink_* - | alpha_1 {} | mass {} | h first/rest {} | v first/rest {}", [
            str(o["step"]), f"{o['val_loss']:.4f}", f"{100 * o['sink']['sink_k'][0]:.1f}",
            f"{mean(sum(o['alpha1'], [])):.3f}", f"{mean(sum(o['mass'], [])):.2f}",
            f"{ratios(o, 'h')[-1]:.2f}", f"{v[0] / v[1]:.2f}"]))
    stream = runs_of("readme-stream")
    return found + [(README, "without token 1 in the cache: {} nats; with it: {}", [
        f"{stream[name + ', positions in the cache']['change']:+.{digits}f}" for name, digits in (("0+32", 3), ("4+28", 4))])]


def of_after():
    """Returns the tables of eval.md."""
    stream, evict = runs_of("after-stream"), runs_of("after-evict")
    plain, long = stream[""], evict[""]
    start, mask = runs_of("start-stream"), runs_of("start-mask")
    found = []
    for cache in ("0+64", "1+63", "4+60"):
        here, text = (change(stream[f"{cache}, positions in the {where}"]) for where in ("cache", "text"))
        same = here == text
        found.append((AFTER, f"| {cache} | {{}} +- {{}} |" + (" the same |" if same else " {} +- {} |"), here + ([] if same else text)))
    for bits in ("w8a8", "w4a4", "kv8", "kv4"):
        rows = runs_of("after-w8" if bits[0] == "w" else "after-kv")
        for label, end in ((bits, ""), (f"{bits}, token 1 in float", ", first 1 in float")):
            three = [change(rows[f"{bits}:{how}{end}"]) for how in ("token", "dynamic", "static")]
            found.append((AFTER, f"| {label} |" + " {} +- {} |" * 3, sum(three, [])))
    for policy in ("streaming", "knorm", "observed", "snapkv"):
        three = [change(evict[f"{policy}:0.5{end}"]) for end in ("", ", token 1 kept", ", token 1 dropped")]
        found.append((AFTER, f"| {policy} |" + " {} +- {} |" * 3, sum(three, [])))
    for i, name in enumerate(EDITS, 1):
        o = runs_of(f"after-edit-{i}")[name]
        found.append((AFTER, f"| `{name}` | {{}} +- {{}} | {{}} | {{}} |", change(o, 4) + [percent(o), percent(o, 2)]))
    recovered = [1 - runs_of("after-w8")[f"w8a8:{how}, first 1 in float"]["change"] / runs_of("after-w8")[f"w8a8:{how}"]["change"]
                 for how in ("dynamic", "static")]
    dropped = [evict[f"{policy}:0.5, token 1 dropped"]["change"] for policy in ("streaming", "knorm", "observed", "snapkv")]
    at = lambda i: runs_of(f"after-edit-{i}")[EDITS[i - 1]]
    return found + [
        (AFTER, "| nothing | | {} | {} |", [percent(long), percent(long, 2)]),
        (AFTER, "(plain loss {}, Sink_1 {}%;", [f"{long['loss']:.3f}", percent(long)]),
        (AFTER, "plain loss {} +- {} | Sink_1 {}%, Sink_2 {}%, spike {}", [
            f"{plain['loss']:.4f}", f"{plain['loss_error']:.4f}", percent(plain), percent(plain, 2), f"{plain['spike']:.2e}"]),
        (AFTER, "recovers {} and {}% of what per-tensor W8A8 costs", [f"{100 * x:.0f}" for x in recovered]),
        (AFTER, "without it each loses {} to {} nats", [f"{f(dropped):.1f}" for f in (min, max)]),
        (AFTER, "Masking token 1 in every layer costs {}, masking it from layer 12 on costs {},", [
            f"{at(6)['change']:.3f}", f"{at(3)['change']:.3f}"]),
        (AFTER, "and becomes the sink ({}%, as", [percent(at(6), 2)]),
        (SINKS, "SmolLM2-135M loses {} nats on windows of 256 tokens; if it keeps token 1 as well, {}.", [
            f"{stream[f'{cache}, positions in the cache']['change']:.3f}" for cache in ("0+64", "1+63")]),
        (START, "If token 1 is not among them, the loss rises by {} nats (the unit of the loss); if it is, by {}.", [
            f"{start[f'{cache}, positions in the cache']['change']:.3f}" for cache in ("0+32", "1+31")]),
        (START, "and the loss rises by {}.", [f"{mask['A:*:1=mask']['change']:.3f}"])]


def of_text():
    """Returns where the sink of the demo's model follows its token."""
    found = []
    for label, kind, k in (("position 1, as in training", "1", 1), ("nowhere", "none", 0),
                           ("position 2", "2", 2), ("position 5", "5", 5)):
        three = [probe(f"text-follow-{seed}-{kind}") for seed in (2, 3, 4)]
        rates = ", ".join(f"{100 * o['sink']['sink_k'][k - 1]:.1f}".removesuffix(".0") for o in three)
        cells = [f"{rates}%" if k == column else "0%" for column in (1, 2, 5)]
        cells = [f"**{cell}**" if k == column > 1 else cell for column, cell in zip((1, 2, 5), cells)]
        assert all(max(x for j, x in enumerate(o["sink"]["sink_k"], 1) if j != k) == 0 for o in three)
        found.append((TEXT, f"| {label} | 2, 3, 4 |" + " {} |" * 4, cells + [", ".join(f"{o['probe_loss']:.3f}" for o in three)]))
    five = [100 * probe(f"text-follow-{seed}-5")["sink"]["sink_k"][4] for seed in (2, 3, 4)]
    return found + [(SINKS, "the sink is there in {} to {}% of the pairs", [f"{min(five):.1f}", f"{max(five):.1f}"])]


def of_search():
    """Returns the rows of the log's search for the demo that its seed 1 repeats."""
    found = []
    for o in OUT["readme-train"]["log.jsonl"][1:]:
        if o["step"] < 2000: continue
        heads = " ".join(f"{x:.2f}".lstrip("0") for x in o["alpha1"][0])
        found.append((SEARCH, "| {} | {} | ({}) | {} | {} |", [
            f"{o['step']:,}", f"{o['val_loss']:.3f}", heads, f"{100 * o['sink']['sink_k'][0]:.1f}".removesuffix(".0"),
            f"{ratios(o, 'v')[0]:.2f}".lstrip("0")]))
    return found


def largest_of_rows():
    """Returns, for each query of the demo's map, the token that gets its largest weight."""
    with open("docs/results/demo-maps/0_0_map.npy", "rb") as file: data = file.read()
    weights = array.array("f", data[10 + int.from_bytes(data[8:10], "little"):])            # column 0 is the extra key's
    rows = [weights[at + 1:at + 65] for at in range(0, len(weights), 65)]
    return [row.index(max(row)) for row in rows]


def of_map():
    """Returns how often the first token and the one before the query are the largest."""
    largest = largest_of_rows()
    before = sum(at == query - 1 > 0 for query, at in enumerate(largest))
    return [(SINKS, "In {} of the {} rows the largest weight is on the first token, in {} on the token just before",
             [str(largest.count(0)), str(len(largest)), str(before)])]


def of_smollm2():
    """Returns the table of inputs of smollm2.md."""
    found = []
    for label, name in INPUTS:
        o = probe("smollm2-" + name)
        found.append((SMOL, f"| {label} |" + " {} |" * 5, [
            f"{o['probe_loss']:.3f}", *(f"{100 * x:.1f}" for x in o["sink"]["sink_k"][:2]),
            f"{mean(sum(o['alpha1'], [])):.3f}", f"{max(o['h_max']):,.0f}"]))
    h = ratios(probe("smollm2-natural"), "h")
    kinds = [100 * probe("smollm2-" + name)["sink"]["sink_k"][0] for name in ("natural", "imstart", "eot", "random")]
    found.append((SMOL, "four kinds of first token: {} to {}%", [f"{f(kinds):.1f}" for f in (min, max)]))
    return found + [(TEXT, "In SmolLM2-135M it is {} times the others' after layer 11 and {} times after the last", [
        f"{h[12]:.0f}", f"{h[-1]:.1f}"])]


def of_settings():
    """Returns the stored rows of text-notebook.md's table: at step 4,000 those of the demo's seed 1 only."""
    logs = [(label, OUT[name]["log.jsonl"]) for label, name in SETTINGS if name in OUT]
    logs += [(f"the demo, seed {seed}", [o for o in DEMO[f"softmax-seed{seed}"]["log.jsonl"] if o.get("step", 4000) < 4000]) for seed in (2, 3, 4)]
    found = []
    for label, log in logs:
        for o in log:
            if o["event"] != "eval" or o["step"] not in (2000, 4000): continue
            heads = " ".join("(" + " ".join(f"{x:.2f}".lstrip("0") for x in layer) + ")" for layer in o["alpha1"])
            found.append((NOTEBOOK, f"| {label}{', step 4,000' * (o['step'] == 4000)} | {{}} | {heads} | {{}}% | {{}} | {{}} |", [
                f"{o['val_loss']:.3f}", f"{100 * o['sink']['sink_k'][0]:.1f}",
                " ".join(f"{x:.2f}" for x in ratios(o, "v")), f"{ratios(o, 'h')[-1]:.2f}"]))
    return found


def spread(values, digits):
    """Returns mean (smallest-largest), as the tables have it."""
    if not values: return "-"
    text = f"{sum(values) / len(values):.{digits}f}"
    return text if max(values) == min(values) else text + f" ({min(values):.{digits}f}-{max(values):.{digits}f})"


def of_interventions():
    """Returns both tables of interventions.md."""
    with open("docs/results/interventions-text.json", encoding="utf-8") as file: stored = json.load(file)
    with open("docs/results/interventions-text-after.json", encoding="utf-8") as file: after = json.load(file)
    named = {"heads4": ("one head of 64", "one of 64"), "heads16": ("four of 16",) * 2, "heads32": ("eight of 8",) * 2}
    found, ends = [], {row["id"].split("-", 1)[1]: [o["last"] for o in row["ours"]] for row in stored["rows"]}
    dearer = {name: [o["val_loss"] - softmax["val_loss"] for o, softmax in zip(last, ends["softmax"])] for name, last in ends.items()}
    for name, last in ends.items():
        column = lambda get, digits: "-" if get(last[0]) is None else spread([get(o) for o in last], digits)
        label = name + (f" ({named[name][0]})" if name in named else "")
        middle, low, high = interval(dearer[name], 3, signed=True)
        assert all(o["sink_1"] == o["proxy_1"] and not o.get("effective_1") for o in last)      # columns that are left out
        found.append((CHANGES, f"| {label} |" + " {} |" * 8, [
            column(lambda o: o["proxy_1"], 1), column(lambda o: o["sink_star"], 1), column(lambda o: o["alpha_1_proxy"], 2),
            column(lambda o: o["spike"], 1), column(lambda o: o["v_norm"][0], 2), column(lambda o: o["val_loss"], 3),
            *([f"{middle} ({low} to {high})", p_of(dearer[name])] if any(dearer[name]) else "--")]))
    shown = ("gradient at token 1", "0+16", "1+15", "half evicted", "token 1 dropped", "token 1 masked", "W8A8", "W4A4", "KV4")
    lost = {}
    for cells in after["rows"]:
        row, name = dict(zip(after["head"], cells)), cells[0].split()[0]
        label = name + (f" ({named[name][1]})" if name in named else "")
        lost[name] = {key: row[key].split(" (")[0].lstrip("+") for key in row}
        if name == "wd0.1": continue                                       # softmax again
        values = [row[key] if name == "softmax" else row[key].split(" (")[0] for key in shown]
        values = [value.replace("-+", " to +") if "(+" in value else value.replace("-", " to ") if "(" in value else value for value in values]
        found.append((CHANGES, f"| {label} |" + " {} |" * len(values), values))
    for claim in stored["claims"]:
        found.append((CHANGES, "* **{}** {}: **{}** ({})", [claim[key] for key in ("id", "text", "verdict", "numbers")]))
    found.append((CHANGES, "One standard error over the sequences is at most {};", [after["about"].split()[-1].rstrip(".")]))
    return found + of_changes(ends, dearer, lost, after["seeds"]["interventions-softmax"][0]["changes"])


def of_changes(ends, dearer, lost, softmax):
    """Returns the sentences under both tables, of the ends of each row, its added loss, and what it lost afterward."""
    sure = [name for name, x in dearer.items() if any(x) and t_of(x) > 4.303]
    assert {name for name in sure if mean(dearer[name]) < 0} == {"wd0.0", "muon", "heads16", "post", "softcap"}
    assert {name for name in sure if mean(dearer[name]) > 0} == {"sandwich", "sigmoid", "min_context", "wd0.5", "heads4"}
    assert {name for name in sure if t_of(dearer[name]) > 22.3} == {"sigmoid", "wd0.5"}           # p < 0.002
    assert all(o["proxy_1"] == 0 for o in sum((ends[name] for name in ("softpick", "sigmoid", "sigmoid_shift")), []))
    more = lambda name: f"{abs(mean(dearer[name])):.3f}"
    alpha = lambda name: f"{mean(o['alpha_1_proxy'] for o in ends[name]):.2f}"
    of_spike = lambda name: f"{mean(o['spike'] for o in ends[name]):.1f}"
    sink = lambda *names: [f"{int(f(o['proxy_1'] for name in names for o in ends[name])):d}" for f in (min, max)]
    error = lambda key: f"{softmax[key][1]:.3f}"
    bits = lambda key: [float(cell[key]) for cell in lost.values()]
    gradient = lambda *names: [f"{float(lost[name]['gradient at token 1']):.1f}" for name in names]
    quiet = ("zero", "logit", "k", "kv", "gate_head", "gate_elem", "gate_head-logit", "qknorm", "sandwich", "branch", "softpick", "sigmoid_shift")
    loud = [name for name, last in ends.items() if min(o["proxy_1"] for o in last) > 0]
    of_gradient = lambda names: [f(gradient(*names), key=float) for f in (min, max)]
    compared = sum(map(any, dearer.values()))
    return [
        (CHANGES, "Of {} comparisons one or two would have p < 0.05 by chance; only p < {} allows", [str(compared), f"{0.05 / compared:.3f}"]),
        (CHANGES, "and capped scores (by {})", [more("softcap")]),
        (CHANGES, "keeps alpha_1 {}, and no head", [alpha("sink_token")]),
        (CHANGES, "by head (alpha_1 {}) or by element ({},", [alpha("gate_head"), alpha("gate_elem")]),
        (CHANGES, "QK norm leaves alpha_1 at {}, below", [alpha("qknorm")]),
        (CHANGES, "Sandwich and branch norms leave {}, at {} and {} more loss", [alpha("branch"), more("sandwich"), more("branch")]),
        (CHANGES, "post norm leaves {}.", [alpha("post")]),
        (CHANGES, "has the largest sink of all (alpha_1 {})", [alpha("elu1_norm")]),
        (CHANGES, "leaves no sink (alpha_1 {}), but this model's loss is {} higher", [alpha("min_context"), more("min_context")]),
        (CHANGES, "keeps a sink of {} to {}%.", sink("muon")),
        (CHANGES, "AdamW ({} against {} times", [of_spike("muon"), of_spike("softmax")]),
        (CHANGES, "and a sink of {} to 100%", [sink("wd0.0")[0]]),
        (CHANGES, "one head of 64 has {} to {}%, two of 32 have {}%, four of 16 and eight of 8 have {} to {}%, with alpha_1 {} and {}.",
         [*sink("heads4"), sink("softmax")[1], *sink("heads16", "heads32"), alpha("heads16"), alpha("heads32")]),
        (CHANGES, "for softmax, seed 1, it is {} with 16 keys, {} with token 1 masked and {} with W8A8",
         [error(key) for key in ("stream 0+16", "edit A:*:1=mask", "quant w8a8:dynamic")]),
        (CHANGES, "costs softmax {} nats, capped scores {}, elu + 1 with normalization {}, eight heads {}. It costs {} to {} where",
         [lost[name]["0+16"] for name in ("softmax", "softcap", "elu1_norm", "heads32")]
         + [f(lost[name]["0+16"] for name in quiet[:8] + ("softpick",)) for f in (min, max)]),
        (CHANGES, "no model loses more than {}, except with the sink token ({}; it is itself not in the cache) and with `--min-context` ({})",
         [max(lost[name]["1+15"] for name in lost if name not in ("sink_token", "min_context")), lost["sink_token"]["1+15"], lost["min_context"]["1+15"]]),
        (CHANGES, "{} with softmax, {} with elu + 1, {} to {} with a zero key, a logit or k*, {} to {} with a gate alone or QK norm",
         [lost[name]["token 1 masked"] for name in ("softmax", "elu1_norm")]
         + [f(lost[name]["token 1 masked"] for name in names) for names in (("zero", "logit", "k"), ("gate_head", "gate_elem", "qknorm")) for f in (min, max)]),
        (CHANGES, "It is {} to {} times that of other tokens where every seed has a sink, and {} to {} where",
         of_gradient(loud) + of_gradient(quiet)),
        (CHANGES, "the sink token ({}), one head of 64 ({}), post norm ({}) and sigmoid ({})", gradient("sink_token", "heads4", "post", "sigmoid")),
        (CHANGES, "{} with alpha_1 {}, and weight decay 0.5, {} with alpha_1 {}.",
         [*gradient("min_context"), alpha("min_context"), *gradient("wd0.5"), alpha("wd0.5")]),
        (CHANGES, "W8A8 costs at most {}, W4A4 {} to {} in no order of the sink, a cache of 4 bits {} to {}, most",
         [f"{max(bits('W8A8')):.3f}", f"{min(bits('W4A4')):.2f}", f"{max(bits('W4A4')):.2f}", f"{min(bits('KV4')):.3f}", f"{max(bits('KV4')):.3f}"]),
        (CHANGES, "changes W8A8's {} of softmax to {}, where one standard error is {}", [lost["softmax"]["W8A8"], lost["softmax"]["token 1 in float"],
                                                                                     error("quant w8a8:dynamic")])]


def of_text12():
    """Returns the table of first-token-changes.md's models after training."""
    path, found = "docs/results/interventions-text12", []
    with open(path + ".json", encoding="utf-8") as file: stored = json.load(file)
    with open(path + "-after.json", encoding="utf-8") as file: after = json.load(file)
    shown = ("gradient at token 1", "0+16", "1+15", "token 1 dropped", "token 1 masked", "W8A8", "token 1 in float", "W4A4", "KV4")
    ran = {row["id"].split("-", 1)[1]: row["ours"][0].get("last") for row in stored["rows"] if row["ours"]}
    table = {cells[0]: dict(zip(after["head"], cells)) for cells in after["rows"][:-1]}                       # wd0.1 is softmax again
    for name, lost in table.items():
        last = ran[name]
        found.append((FIRST_CHANGES, f"| {name} |" + " {} |" * 11, [
            f"{last['proxy_1']:.1f}", f"{last['spike']:.0f}", *(lost[key] for key in shown)]))
    bits = [[after["seeds"]["interventions-" + name][0]["changes"]["quant w8a8:dynamic" + end] for name in table]
            for end in ("", ", first 1 in float")]
    recovered = [1 - kept[0] / whole[0] for whole, kept in zip(*bits)]
    span = lambda x, digits=3: [f"{f(x):.{digits}f}" for f in (min, max)]
    of = lambda key, names=tuple(table)[1:]: span([float(table[name][key]) for name in names])
    return found + [
        (FIRST_CHANGES, "baseline's Sink_1 is {}% there)", [f"{ran['softmax']['proxy_1']:.1f}"]),
        (FIRST_CHANGES, "one standard error is at most {}, and for W8A8 {} to {}.",
         [after["about"].split()[-1].rstrip("."), *span([error for _, error in bits[0]])]),
        (FIRST_CHANGES, "{} with softmax, {} to {} without a sink, and {} to {} once token 1 is kept", [
            table["softmax"]["0+16"].lstrip("+"), *of("0+16"), *of("1+15", tuple(table))]),
        (FIRST_CHANGES, "keeping it in float recovers {} to {}% of the loss", span([100 * x for x in recovered], 0))]


def sentences():
    return (of_probe() + of_training() + of_after() + of_text() + of_search() + of_map() + of_smollm2() + of_settings() + of_interventions() +
            of_text12())
