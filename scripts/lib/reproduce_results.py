"""What results/TABLE-SCALE.json holds: each row's numbers beside the paper's, and the claims."""
import os
import shutil
import subprocess
import time

import runlog
from export import flat, mean, most, ratios
from jobs import Run
from reproduce_claims import not_judged, verdicts


def short(x): return float(f"{x:.5g}") if isinstance(x, float) else x


def fields(e):
    """an eval event as results/ keeps it: sinks in percent, attention as means
    over layers and heads"""
    percent = lambda v: None if v is None else short(100.0 * v)
    o = {"step": e["step"], "val_loss": short(e.get("val_loss")),
         "probe_loss": short(e.get("probe_loss")),
         "sink_1": percent(e["sink"]["sink_k"][0]), "proxy_1": percent(e["sink"]["proxy_k"][0]),
         "sink_star": percent(e["sink"].get("sink_star")),
         "proxy_k": [percent(x) for x in e["sink"]["proxy_k"]]}
    errors = e["sink"].get("proxy_k_error")
    if errors: o["proxy_1_error"] = percent(errors[0])
    for name, key in (("alpha_1", "alpha1"), ("alpha_1_proxy", "alpha1_proxy"),
                      ("alpha_star", "alpha_star"), ("mass", "mass"), ("entropy", "entropy")):
        if key in e: o[name] = short(mean(flat(e[key])))
    o["alpha1"] = [[short(x) for x in layer] for layer in e.get("alpha1_proxy", e["alpha1"])]
    for name in ("h_norm", "v_norm"):  # the first token's / the mean of the others', by layer
        first, rest = e.get(name + "_first") or [None], e.get(name + "_rest") or [None]
        o[name] = [short(a / b) if a is not None and b else None for a, b in zip(first, rest)]
    o["spike"] = short(most(ratios(e, "h_max", "h_median")))
    effective = runlog.gated_sink(e, e["sink"])
    if effective is not None: o["effective_1"] = percent(effective)
    return o


# what a log's config line must hold for a table
CONFIG = {"params!": "value", "commit!": "text",
          "flags!": {"total_batch!": "value", "batch!": "value", "seq!": "value",
                     "schedule!": "text", "lr!": "value"}}


def ours_of(row, o):
    """what the runs of a row say, seed by seed"""
    if row.skip: return []
    out = []
    for seed in o.seeds:
        run = Run(row, seed, o)
        config, evals, last, step = run.log()
        state = run.state()
        if state in ("none", "other") or not config:
            out.append({"seed": seed, "run": run.dir, "status": "missing"})
            continue
        runlog.check(f"{run.dir}/log.jsonl, line 1", config, CONFIG)
        f, stored = config["flags"], run.stored()
        batch = f["total_batch"] or f["batch"] * f["seq"]
        entry = {"seed": seed, "run": run.dir, "status": state if state != "partial" else "missing",
                 "steps": step,
                 "tokens": step * batch, "schedule": f["schedule"], "lr": f["lr"],
                 "params": config["params"],
                 "commit": config["commit"], "seconds": stored.get("seconds", 0)}
        if evals: entry["step0"], entry["last"] = fields(evals[0]), fields(evals[-1])
        out.append(entry)
    return out


def machine():
    model = ""
    try:
        model = next((l.split(":")[1].strip()
                      for l in open("/proc/cpuinfo") if l.startswith("model name")), "")
    except OSError: pass
    gpu = ""
    if shutil.which("nvidia-smi"):
        r = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
                           capture_output=True, text=True)
        gpu = ", " + ", ".join(r.stdout.split("\n")[:-1]) if r.returncode == 0 else ""
    return f"{os.cpu_count()} cores {model}{gpu}"


def setting_of(e):
    return f"{e['steps']} steps, {e['tokens'] / 1e6:.1f}M tokens, lr {e['lr']:g} {e['schedule']}"


def setting(entries):
    """what most runs of a table were trained with; rows that differ say so"""
    had = [setting_of(e) for e in entries if e["status"] == "done"]
    return max(had, key=had.count) if had else "no run is done"


def result(table, rows, o):
    """the contents of results/TABLE-SCALE.json"""
    cache = {}
    by_id = {r.id: r for r in rows}
    ours = lambda id: cache.setdefault(id, ours_of(by_id[id], o))
    mine = [r for r in rows if r.table == table]
    entries = [e for r in mine for e in ours(r.id)]
    out = {"table": table, "scale": o.label, "about": o.s["about"],
           "setting": setting(entries),
           "commit": " ".join(sorted({e["commit"] for e in entries if "commit" in e})),
           "source": o.source, "machine": machine(),
           "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
           "data": o.identity, "seeds": o.seeds,
           "units": "sink_*, proxy_* and the paper's values: percent; losses: nats", "rows": []}
    for r in mine:
        row = {"id": r.id, "where": r.where, "make": r.make,
               "flags": " ".join(r.words) if not r.skip else "",
               "paper": r.paper, "ours": ours(r.id)}
        if r.skip: row["skipped"] = r.skip
        if r.first != r.id: row["shares_run_with"] = r.first
        out["rows"].append(row)
    out["claims"] = verdicts(table, rows, ours, o)
    why = not_judged([r for r in mine if not r.skip], o.extra)
    for c in out["claims"] if why else []: c.update(verdict=f"not judged: {why}", numbers="")
    return out
