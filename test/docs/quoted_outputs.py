"""What README, start.md, eval.md, sinks.md, text.md, smollm2.md and interventions.md quote of stored outputs:
sentences() for quoted.py. docs/results/outputs.jsonl holds what `probe --json` and `eval --json` wrote.

A sentence is (page, text with {} for every figure, the figures as they are printed).
"""
import json
import sys
from statistics import mean

sys.path.insert(0, "scripts/lib")
from stored import read

OUT, DEMO = (read(f"docs/results/{name}.jsonl") for name in ("outputs", "demo"))
README, START, AFTER, SINKS = "README.md", "docs/start.md", "docs/eval.md", "docs/sinks.md"
TEXT, SMOL, CHANGES, NOTEBOOK = (f"docs/findings/{name}.md" for name in ("text", "smollm2", "interventions", "text-notebook"))
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
                  (page, "the hidden state of token 1 is up to {} times as long as the others', after layer {}", [f"{max(h):.0f}", str(h.index(max(h)) - 1)]),
                  (page, "the largest entry of any hidden state is up to {} times the median, after layer {}", [f"{spike:.2e}", "11"])]
    return found + [
        (START, "**The first line is Sink_1**, {}% here", [f"{100 * o['sink']['sink_k'][0]:.1f}"]),
        (START, "({} times the others' after layer 11, {} after the last)", [f"{max(h):.0f}", f"{h[-1]:.1f}"]),
        (SINKS, "more than 0.3 of the attention in {}% of all", [f"{100 * o['sink']['sink_k'][0]:.0f}"]),
        (SINKS, "after layer 11, the first token's hidden state is {} times as long", [f"{max(h):.0f}"])]


def of_training():
    """Returns the evaluations of the README's training."""
    found = []
    for o in OUT["readme-train"]["log.jsonl"][1:]:
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
        (AFTER, "without it every one of them loses {} to {} nats", [f"{f(dropped):.1f}" for f in (min, max)]),
        (AFTER, "Masking token 1 in every layer costs {}, masking it from layer 12 on costs {},", [
            f"{at(6)['change']:.3f}", f"{at(3)['change']:.3f}"]),
        (AFTER, "and becomes the sink ({}%, as", [percent(at(6), 2)]),
        (SINKS, "SmolLM2-135M loses {} nats on windows of 256 tokens; if it keeps token 1 as well, {}.", [
            f"{stream[f'{cache}, positions in the cache']['change']:.3f}" for cache in ("0+64", "1+63")]),
        (START, "Without token 1, the loss rises by {} nats; with it, by {}.", [
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


def of_smollm2():
    """Returns the table of inputs of smollm2.md."""
    found = []
    for label, name in INPUTS:
        o = probe("smollm2-" + name)
        found.append((SMOL, f"| {label} |" + " {} |" * 5, [
            f"{o['probe_loss']:.3f}", *(f"{100 * x:.1f}" for x in o["sink"]["sink_k"][:2]),
            f"{mean(sum(o['alpha1'], [])):.3f}", f"{max(o['h_max']):,.0f}"]))
    h = ratios(probe("smollm2-natural"), "h")
    return found + [(TEXT, "In SmolLM2-135M it is {} times as long after layer 11 and {} times after the last", [
        f"{h[12]:.0f}", f"{h[-1]:.1f}"])]


def of_settings():
    """Returns the stored rows of text-notebook.md's second table."""
    logs = [(label, OUT[name]["log.jsonl"]) for label, name in SETTINGS if name in OUT]
    logs += [(f"the demo, seed {seed}", DEMO[f"softmax-seed{seed}"]["log.jsonl"]) for seed in (2, 3, 4)]
    found = []
    for label, log in logs:
        for o in log:
            if o["event"] != "eval" or o["step"] not in (2000, 4000): continue
            heads = " ".join("(" + " ".join(f"{x:.2f}".lstrip("0") for x in layer) + ")" for layer in o["alpha1"])
            found.append((NOTEBOOK, f"| {label} | {{}} | {{}} | {heads} | {{}}% | {{}} | {{}} |", [
                f"{o['step']:,}", f"{o['val_loss']:.3f}", f"{100 * o['sink']['sink_k'][0]:.1f}",
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
    found = []
    for row in stored["rows"]:
        name = row["id"].removeprefix("interventions-")
        last, first = ([o[at] for o in row["ours"]] for at in ("last", "step0"))
        column = lambda get, digits, of=last: "-" if get(of[0]) is None else spread([get(o) for o in of], digits)
        label = name + (f" ({named[name][0]})" if name in named else "")
        found.append((CHANGES, f"| {label} |" + " {} |" * 10, [
            column(lambda o: o["proxy_1"], 1), column(lambda o: o["proxy_1"], 1, first), column(lambda o: o["sink_star"], 1),
            column(lambda o: o["alpha_1_proxy"], 2), column(lambda o: o["sink_1"], 1), column(lambda o: o.get("effective_1"), 1),
            column(lambda o: o["spike"], 1), column(lambda o: o["v_norm"][0], 2), column(lambda o: o["val_loss"], 3),
            f"{len(last)}/{len(row['ours'])}"]))
    shown = ("gradient at token 1", "0+16", "1+15", "half evicted", "token 1 dropped", "token 1 masked", "W8A8", "W4A4", "KV4")
    for cells in after["rows"]:
        row, name = dict(zip(after["head"], cells)), cells[0].split()[0]
        label = name + (f" ({named[name][1]})" if name in named else "")
        if name == "wd0.1": continue                                       # softmax again
        values = [row[key] if name == "softmax" else row[key].split(" (")[0] for key in shown]
        values = [value.replace("-+", " to +") if "(+" in value else value.replace("-", " to ") if "(" in value else value for value in values]
        found.append((CHANGES, f"| {label} |" + " {} |" * len(values), values))
    return found


def of_text12():
    """Returns the table of first-token-changes.md's models after training."""
    path, found = "docs/results/interventions-text12", []
    with open(path + ".json", encoding="utf-8") as file: stored = json.load(file)
    with open(path + "-after.json", encoding="utf-8") as file: after = json.load(file)
    shown = ("gradient at token 1", "0+16", "1+15", "token 1 dropped", "token 1 masked", "W8A8", "W4A4", "KV4")
    ran = {row["id"].split("-", 1)[1]: row["ours"][0].get("last") for row in stored["rows"] if row["ours"]}
    for cells in after["rows"][:-1]:                                           # wd0.1 is softmax again
        last, lost = ran[cells[0]], dict(zip(after["head"], cells))
        found.append(("docs/findings/first-token-changes.md", f"| {cells[0]} |" + " {} |" * 10, [
            f"{last['proxy_1']:.1f}", f"{last['spike']:.0f}", *(lost[key] for key in shown)]))
    return found


def sentences():
    return (of_probe() + of_training() + of_after() + of_text() + of_smollm2() + of_settings() + of_interventions() +
            of_text12())
