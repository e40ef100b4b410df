"""Runs and probes for other tools: a CSV file, and event files for TensorBoard.
report.py --csv and --tensorboard.

Numbers are the log's own: rates from 0 to 1, losses in nats; maps by layer and head
as mean and maximum.
"""
import csv
import datetime
import io
import os
import shlex
import sys

import runlog
from runlog import die


def finite(xs):
    return [x for x in xs if x is not None]


def mean(xs):
    xs = finite(xs)
    return sum(xs) / len(xs) if xs else None


def most(xs):
    return max(finite(xs), default=None)


def flat(x):
    return [z for y in x for z in y] if x and isinstance(x[0], list) else x


def ratios(e, above, below):
    """Layer by layer, where both were measured."""
    return [a / b for a, b in zip(e.get(above) or [], e.get(below) or []) if a is not None and b]


def scalars(e, sink):
    """The numbers of one evaluation at one threshold."""
    out = {"val_loss": e.get("val_loss"), "probe_loss": e.get("probe_loss")}
    for name in ("sink", "proxy"):
        out.update({f"{name}_{k}": x for k, x in zip(sink["k"], sink[name + "_k"])})
    out["sink_star"] = sink.get("sink_star")
    effective = runlog.gated_sink(e, sink)
    if effective is not None:
        out["sink_effective"] = effective
    for name in runlog.MAPS + runlog.GATES:
        if e.get(name):
            out[name + "_mean"], out[name + "_max"] = mean(flat(e[name])), most(flat(e[name]))
    out["h_first_over_rest_max"] = most(ratios(e, "h_norm_first", "h_norm_rest"))
    out["v_first_over_rest_mean"] = mean(ratios(e, "v_norm_first", "v_norm_rest"))
    out["h_max_over_median_max"] = most(ratios(e, "h_max", "h_median"))
    return out


# ---- CSV: one row for each run and evaluation, and threshold where a probe has several -----------
def probed(e):
    """What a probe says of itself: the model, how its text began, what changed it."""
    names = ("checkpoint", "bos", "flags", "input")
    return {f"probe_{name}": e[name] for name in names if name in e}


def rows(run, same_as=""):
    train = {t["step"]: t for t in run["train"]}
    about = {"run": run["name"], "path": run["path"], "status": run["status"],
             "same_as": same_as, "notes": "; ".join(runlog.said_in(run["path"])),
             **run["config"]["switches"]}
    for e in run["evals"]:
        now = train.get(e["step"], {})
        flags = {k: v for k, v in runlog.flags_at(run, e["step"]).items()
                 if k not in runlog.QUIET_FLAGS}
        for sink in runlog.sinks_of(e):
            yield {**about, **flags, "params": run["config"].get("params"),
                   **(e.get("program") or runlog.program_at(run, e["step"])), **probed(e),
                   "step": e["step"],
                   "time": e.get("time"), "tokens": now.get("tokens"),
                   "train_loss": now.get("loss"), "probe_data": e.get("data"),
                   "probe_eps": sink["eps"],
                   "probe_T": sink["T"], "probe_n": sink.get("n"), **scalars(e, sink)}


def plain(cell):
    """A text that a spreadsheet would compute (=HYPERLINK(..), +1, @x) begins with an apostrophe,
    and what would break its row is ?; numbers stay as they are."""
    if not isinstance(cell, str):
        return cell
    text = runlog.printable(cell, "")
    return "'" + text if text[:1] in tuple("=+-@") and runlog.as_number(text) is text else text


def csv_text(runs):
    table, first = [], {}
    for run in runs:
        ended = run["status"] in ("done", "probed")          # at step 0 many are equal
        key = runlog.numbers(run["evals"]) if ended else run["name"]
        twin = first.setdefault(key, run["name"])
        table += [{name: plain(cell) for name, cell in row.items()}
                  for row in rows(run, twin * (twin != run["name"]))]
    columns = list(dict.fromkeys(name for row in table for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


# ---- TensorBoard ---------------------------------------------------------------------------------
def wall_time(o, otherwise):
    """Seconds since 1970 of a line with a time, else those of the file."""
    try:
        return datetime.datetime.fromisoformat(o["time"].replace("Z", "+00:00")).timestamp()
    except (KeyError, ValueError, OverflowError):
        return otherwise


def points(run):
    """(tag, number, step, line of the log) of everything that is a number at a step."""
    for t in run["train"]:
        for key in ("loss", "grad_norm", "lr"):
            yield "train/" + key, t.get(key), t["step"], t
    for e in run["evals"]:
        for key, x in scalars(e, e["sink"]).items():
            yield "eval/" + key, x, e["step"], e


def tensorboard(runs, out):
    """One directory of event files for each run. Numbers that are not finite are left out."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        python = os.path.basename(sys.executable)
        die("tensorboard: not installed, wanted for --tensorboard",
            f"{python} -m pip install tensorboard")
    for run in runs:
        where = os.path.join(out, run["name"].replace("/", "-"))
        if os.path.exists(where):
            die(f"{where}: got an earlier export, wanted a new directory",
                f"rm -r {shlex.quote(out)}")
        writer, written = EventFileWriter(where), os.path.getmtime(run["log"])
        for tag, x, step, line in points(run):
            if x is not None:
                value = Summary.Value(tag=tag, simple_value=x)
                writer.add_event(Event(wall_time=wall_time(line, written),
                                       step=min(step, 2 ** 63 - 1), summary=Summary(value=[value])))
        writer.close()
