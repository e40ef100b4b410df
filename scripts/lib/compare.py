"""report.py --compare A B: what sets two runs, or two groups of seeds, apart."""
import glob
import os
import statistics

import export
import jobs
import runlog
from runlog import die, say as print


def members(name):
    """Of each seed how its run was made, and what was measured last. The name is that of a run,
    of a directory of runs, or of NAME-seed1, NAME-seed2 .."""
    found = {}
    group = [] if os.path.exists(name) else sorted(glob.glob(glob.escape(name) + "-seed*[0-9]"))
    for run in runlog.read_runs([p for p in group if ".old" not in p] or [name]):
        e = runlog.at_step(run, None)
        made = {**run["config"]["switches"], **runlog.program_at(run, e["step"]),
                **runlog.flags_at(run), "last step": e["step"]}
        seed = made.pop("seed", None)
        if seed in found:
            die(f"{name}: got two runs of seed {seed}, wanted one of each", "--compare A-seed1 B-seed1")
        found[seed] = made, export.scalars(e, e["sink"])
    return found


def difference(x, y):
    """The means, and that of y - x with its standard deviation."""
    apart = [w - v for v, w in zip(x, y)]
    sd = f" (sd {statistics.stdev(apart):.2g})" if len(apart) > 1 else ""
    return [f"{jobs.mean(x):.4g}", f"{jobs.mean(y):.4g}", f"{jobs.mean(apart):+.4g}{sd}"]


def compare(names):
    if len(names) != 2:
        die(f"--compare: got {len(names)} names, wanted two", "scripts/report.py --compare A B")
    a, b = map(members, names)
    pairs = [(a[seed], b[seed]) for seed in a if seed in b] or list(zip(a.values(), b.values()))
    flags, measured = [["flag", "A", "B"]], [["measured last", "A", "B", "B - A"]]
    for part, rows in enumerate((flags, measured)):
        for name in {**pairs[0][0][part], **pairs[0][1][part]}:
            x, y = ([run[part].get(name) for run in side] for side in zip(*pairs))
            if x == y or name in runlog.QUIET_FLAGS or (part and None in x + y): continue
            told = lambda values: ", ".join(dict.fromkeys(map(str, values)))
            rows.append([name] + (difference(x, y) if part else [told(x), told(y)]))
    print(f"A: {names[0]}, B: {names[1]}: {len(pairs)} pairs of runs, of equal seeds if there are "
          f"such; sd: of the difference over the pairs\n")
    jobs.print_table(flags)
    print()
    jobs.print_table(measured)
