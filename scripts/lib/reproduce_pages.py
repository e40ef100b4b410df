"""Tables of scripts/reproduce as text, Markdown and JSON, with a page and a figure beside it.

results_write is the way in.
"""
import glob
import importlib.util
import json
import os
import shlex
import subprocess
import sys

import jobs
import runlog
from jobs import ROOT, mean, spread
from runlog import die, say as print
from reproduce_results import machine, result, setting_of


def paper_text(x):                               # of Sink_1 alone the value, of several 1:74.11 2:0
    if isinstance(x, dict):
        return f"{x['1']:g}" if list(x) == ["1"] else " ".join(f"{k}:{y:g}" for k, y in x.items())
    return x if isinstance(x, str) else "-" if x is None else f"{x:g}"


# what the paper says of a row, in the order of the printed columns
PAPER_COLUMNS = ("sink_k", "sink_star", "val_loss")


# rows of a table, and after how many seeds each stands: " = NAME" of the first of the same numbers
def marked(rows):
    first = {}
    for row in rows:
        numbers = json.dumps([[e["seed"], e.get("step0"), e["last"]] for e in row["ours"]
                              if e["status"] == "done" and "last" in e])
        twin = first.setdefault(numbers, row["id"]) if numbers != "[]" else row["id"]
        yield row, f" = {twin}" * (twin != row["id"])


def cells(row, twin, usual, shown, loss):
    """one line of the printed table, each cell after its title; shown: which of its optional
    columns; loss: the title of the paper's"""
    done = [e for e in row["ours"] if e["status"] == "done"]
    failed = sum(e["status"] == "failed" for e in row["ours"])
    get = lambda name, at="last": [e[at].get(name) for e in done if at in e]
    sinks = lambda at, k: [e[at]["proxy_k"][k - 1] for e in done]
    note = f"{len(done)}/{len(row['ours'])}" + (f", {failed} failed" if failed else "") + twin
    if done and setting_of(done[0]) != usual: note += "; " + setting_of(done[0])
    if row.get("skipped"): note = "skipped: " + row["skipped"]
    out = [("row", row["id"].split("-", 1)[-1])]
    if "paper" in shown:
        out += zip(("paper Sink_1", "Sink_*", loss),
                   (paper_text(row["paper"][k]) for k in PAPER_COLUMNS))
    out += [("here Sink_1", spread(sinks("last", 1)) + error_of(done)),
            ("at step 0", spread(sinks("step0", 1)))]
    if "moved" in shown:
        out += [("Sink_2..5", " ".join(f"{k}: {mean(sinks('last', k)):.1f}" for k in range(2, 6))
                 if done else "-")]
    out += [("Sink_*", spread(get("sink_star"))),
            ("alpha_1", spread(get("alpha_1_proxy"), "{:.2f}"))]
    if "inside" in shown:
        out += [("raw Sink_1", spread(get("sink_1"))),
                ("effective Sink_1", spread(get("effective_1"))),
                ("max/median |h|", spread(get("spike"))),
                ("|v_1|/|v|", spread(map(mean, get("v_norm")), "{:.2f}"))]
    return out + [("loss", spread(get("val_loss"), "{:.3f}")), ("seeds", note)]


def error_of(done):
    """of one seed alone, the standard error of its Sink_1 over the sequences"""
    error = done[0]["last"].get("proxy_1_error") if len(done) == 1 else None
    return "" if error is None else f" (error {error:.1f})"


def report(res, o):
    rows = res["rows"]
    movers = ("--fix-token 2", "--random-token", "--prefix")
    shown = set()
    if any(w in r["flags"] for r in rows for w in movers): shown.add("moved")
    elif res["table"] == "interventions": shown.add("inside")
    if any(r["paper"][k] is not None for r in rows for k in PAPER_COLUMNS): shown.add("paper")
    proxy = any("proxy" in (r["paper"]["note"] or "") for r in rows)
    loss = "loss" if runlog.same_data(res) else "loss, Pile"
    lines = [list(zip(*cells(*pair, res["setting"], shown, loss))) for pair in marked(rows)]
    table = [lines[0][0]] + [texts for _, texts in lines]
    seeds = " ".join(map(str, res["seeds"]))
    done = f"{res['setting']} after warm-up, unless a row says otherwise"
    made = f"Commit {res['commit']}, {res['date']}. " if res["commit"] else ""
    about = (f"Scale {res['scale']} ({res['about']}), data {res['data']}: "
             f"{done if made else 'no run is done yet'}; seeds {seeds}. {made}"
             f"Here: mean {jobs.SPREADS[o.spread]} of the seeds, Sink in %"
             + (", of the proxy where rows do not sum to 1" if proxy else "") + ".")
    if o.latex: return jobs.print_form(table, o, f"{res['table']}. {about}")
    print(f"\n{'## ' * o.markdown}{res['table']}\n")
    jobs.print_form(table, o, about)
    for c in res["claims"]:
        verdict, why = verdict_of(c)
        if o.markdown:
            print(f"\n* **{c['id']}** {c['text']}: **{verdict}**{why}", end="")
            continue
        print()
        jobs.print_text(c["text"], f"  {c['id']:5} ", " " * 8)
        jobs.print_text(verdict.upper() + why, " " * 8, " " * 8)
    if o.markdown: print()


def verdict_of(claim):
    """holds, does not hold, cannot be tested; and what follows it"""
    verdict, _, why = claim["verdict"].partition(":")
    return verdict, f":{why}" * bool(why) + f" ({claim['numbers']})" * bool(claim["numbers"])


def summary(results, o):
    """the head of a Markdown report"""
    entries = [e for res in results for r in res["rows"]
               for e in r["ours"] if e["status"] != "missing"]
    runs = {e["run"]: e for e in entries}.values()
    claims = [c for res in results for c in res["claims"]]
    verdict = lambda start: [c for c in claims if c["verdict"].startswith(start)]
    minutes = sum(e["seconds"] for e in runs) / 60
    seeds, tables = " ".join(map(str, o.seeds)), " ".join(res["table"] for res in results)
    print(f"# The paper's tables at the scale `{o.label}`\n\n{o.s['about']}. {machine()}; "
          f"{len(runs)} runs, seeds {seeds}, {minutes:.0f} minutes in all\n"
          f"if run one after another; at least {o.jobs} ran at a time. Made by "
          f"`scripts/reproduce {tables} --scale {o.scale} --report --markdown`.\n")
    print(f"Of {len(claims)} claims {len(verdict('holds'))} hold on every seed.")
    claims_listed("do not", verdict("does"))
    claims_listed("are not judged", verdict("not"))
    claims_listed("cannot be tested at this scale", verdict("cannot"))


def claims_listed(what, claims):
    if claims: print(f"\n{len(claims)} {what}:\n")
    for c in claims:
        why = c["verdict"].partition(":")[2]
        print(f"* {c['id']} ({c['table']}) {c['text']}{why and ':' + why}")


def results_write(tables, rows, o):
    os.makedirs(o.out, exist_ok=True)
    results = {os.path.join(o.out, f"{t}-{o.label}.json"): result(t, rows, o) for t in tables}
    for path, res in results.items():
        if not runs_of([res]) and os.path.exists(path): continue  # of runs that were there
        head = {k: v for k, v in res.items() if k not in ("rows", "claims")}
        text = json.dumps(head)[:-1] + ',\n"rows": [\n'
        text += ",\n".join(json.dumps(r) for r in res["rows"])        # one line a row
        text += '],\n"claims": [\n'
        text += ",\n".join(json.dumps(c) for c in res["claims"]) + "]}\n"
        runlog.write_whole(path, text)
    if o.markdown: summary(list(results.values()), o)
    for path, res in results.items():
        report(res, o)
        if not (o.markdown or o.latex): print(f"\n{path}", flush=True); pictures(path, res)
    runs = runs_of(results.values())
    if not o.latex: jobs.print_notes(runs)
    if runs or not o.report: return
    pages = [p for t in tables for p in sorted(glob.glob(f"{glob.escape(o.out)}/{t}-*.html"))]
    die(f"--report: got no run of these flags, data and sources in {o.runs}/{o.label}, wanted one"
        + "; there are others" * bool(pages), shlex.join(["ls", *pages]) if pages
        else "the same command without --report trains them", 1)


# row -> directories of the runs that are there
def runs_of(results):
    runs = {}
    for r, e in ((r, e) for res in results for r in res["rows"] for e in r["ours"]):
        if e["status"] != "missing": runs.setdefault(r["id"], []).append(e["run"])
    return runs


def pictures(path, res):
    """beside the JSON: the page, and the figure where matplotlib is installed"""
    runs = sorted({e["run"] for r in res["rows"] for e in r["ours"] if e["status"] == "done"})
    if not runs: return
    def script(name, *words):
        subprocess.run([sys.executable, f"{ROOT}/scripts/{name}", *words])
    script("report.py", path, *runs, "-o", path[:-5] + ".html")
    if importlib.util.find_spec("matplotlib"):
        script("plot.py", "table", path, "-o", os.path.dirname(path))
    else:
        print(f"the figure: {os.path.basename(sys.executable)} -m pip install numpy matplotlib,\n"
              f"scripts/plot.py table {shlex.quote(path)}")
