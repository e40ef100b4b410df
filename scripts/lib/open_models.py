"""The paper's tables and figures of open models, for scripts/reproduce NAME --models DIR..
-d TEXT.jsonl: rows of experiments.tsv that probe models/NAME are run on the directory whose name
is NAME, and models that are not there are named.

    1 probes     a row's probe, kept as results/models/ID.json: what report.py and plot.py draw;
                 of Table 7 its eval
    2 tables     what is printed of each: Sink_1 next to the paper's, norms by layer,
                 angles of queries and keys
    3 run
"""
import copy, glob, json, os, re, shlex, statistics, subprocess, sys, tempfile

import dumps, jobs, runlog
from runlog import die, say as print


# ==================================================================================================
# 1 probes
def is_open(row):
    of_model = row.words[0] in ("probe", "eval") and row.words[1].startswith("models/")
    return of_model or row.table == "figure3"


def label(row, name):
    """what a row of this model is called; Figure 3 is of any model"""
    return f"{row.id}-{name}" if row.table == "figure3" else row.id


def file_of(row, name, o, first="default"):
    """where what was measured of a row is kept"""
    alone = "" if first == "default" else "-no-bos"
    return os.path.join(o.out, "models", label(row, name) + alone + ".json")


def dump_of(row, o):
    """the directory of a row's maps, if it has some"""
    return os.path.join(o.out, "models", row.id) if "--dump" in row.words else ""


def directories(paths):
    """their last name, in lower case -> directory or GGUF file"""
    found = {}
    for path in paths:
        if not os.path.exists(path):
            die(f"--models: got {path}, wanted a model's directory or a GGUF file", "ls models")
        found[runlog.last_name(path).lower()] = path
    return found


def words_of(row, directory, data, dump):
    """the probe of a row on a directory and this text"""
    given = {"-d": data, "--dump": dump}
    out = [word for flag, value in zip(row.words[2::2], row.words[3::2])
           for word in (flag, given.get(flag, value))]
    # records are seldom as long as that
    windows = ["--probe-from", "windows"] if row.table == "figure3" else []
    return [row.words[0], directory] + out + windows


def probe(row, name, directory, o, done, first="default"):
    """what probe or eval wrote for a row; of equal ones the first is taken. first: --bos"""
    path, dump = file_of(row, name, o, first), dump_of(row, o)
    words = words_of(row, directory, o.data, dump)
    key = (first, *(w for w in words if w != dump))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if key not in done:
        # section 3.3 leaves BOS out of random and repeated tokens: natural text is taken to have it
        bos = ["--bos", first] if "-d" in words else []
        call = lambda: subprocess.run([o.binary] + words + bos + ["--json", path],
                                      capture_output=True, text=True)
        r = call()
        most = re.search(r"--probe-len \d+: wanted at most (\d+), the number of learned positions", r.stderr)
        if most and row.table == "figure3":  # the lengths that this model has positions for
            at = words.index("--probe-len") + 1
            words[at] = ",".join(n for n in words[at].split(",") if int(n) <= int(most.group(1)))
            r = call()
        if r.returncode: return {"error": (r.stderr.strip().split("\n") or [""])[0]}
        done[key] = path
    if done[key] != path:
        with open(done[key]) as f, open(path, "w") as g: g.write(f.read())
    with open(path) as f: return json.load(f)


# ==================================================================================================
# 2 tables
def measured(row, e):
    """the text of Sink_k beside the paper's, and the loss; of eval those of its last run,
    which is the edited one"""
    one = e["runs"][-1] if "runs" in e else e["sink"]
    ours = dict(enumerate(one["sink_k"], 1))
    more = e.get("sink_at") or one.get("sink_at")  # beyond the tenth
    if more: ours.update(zip(more["k"], more["sink_k"][0]))
    theirs = row.paper["sink_k"] or {"1": None}
    value = lambda x: "      -" if x is None else f"{x:7.2f}"
    text = ""
    for k, paper in theirs.items():
        if k != "1": text += f"  Sink_{k}"
        here = ours[int(k)] * 100 if int(k) in ours else None
        text += f"{value(here)}  paper{value(paper)}"
    return text, one["loss"] if "runs" in e else e["probe_loss"]


def angles(dump):
    """by layer: means over heads and queries t > 1 of cosine and norm product with key 1,
    and with keys 2..t; column 0 is the extra key"""
    layers = {}
    for path in glob.glob(f"{dump}/*_cosine.npy"):
        layer = int(os.path.basename(path).split("_")[0])
        for k, kind in enumerate(("cosine", "product")):
            T, x = dumps.read_npy(path.replace("_cosine", "_" + kind))
            for t in range(1, T):
                row = x[t * (T + 1):(t + 1) * (T + 1)]
                sums = layers.setdefault(layer, [[0.0, 0.0], [0.0, 0.0], 0])
                sums[k][0] += row[1]
                sums[k][1] += sum(row[2:t + 2]) / t
                sums[2] += k == 0
    return [[b] + [x / n for x in cosine] + [x / n for x in product]
            for b, (cosine, product, n) in sorted(layers.items())]


def numbers(rows, head):
    print("      " + "".join(f"{h:>14}" for h in head))
    for r in rows: print(f"{r[0]:6d}" + "".join(f"{x:14.3f}" for x in r[1:]))


def details(row, e, dump):
    figure = int(row.table[6:]) if re.fullmatch(r"figure[0-9]+", row.table) else 0
    if figure in (3, 9):  # by length; by source
        for one in e.get("all", [e]):
            sinks = runlog.sinks_of(one)
            print((f"  T {sinks[0]['T']:5d}  " if figure == 3 else f"  {one['data']}  ")
                  + "  ".join(f"eps {s['eps']:g}: {s['sink_k'][0] * 100:6.2f}" for s in sinks))
    if figure in (2, 11, 12, 13, 14):
        keys = ("h_norm_first", "h_norm_rest", "k_norm_first", "k_norm_rest", "v_norm_first",
                "v_norm_rest")
        # a layer without attention has no keys and values
        row_of = {l + 1: i for i, l in enumerate(runlog.attending(e))}
        def value(k, l):
            if k[0] == "h": return e[k][l]
            return e[k][row_of[l]] if l in row_of else float("nan")
        numbers([[l] + [value(k, l) for k in keys] for l in range(len(e["h_norm_first"]))],
                [k.replace("_norm", "") for k in keys])
    if figure in (25, 26): print(f"  every head's map: scripts/plot.py maps {shlex.quote(dump)}")
    elif dump: numbers(angles(dump), ["cos(q, k_1)", "cos, others", "|q||k_1|", "others"])
    if 19 <= figure <= 27:
        numbers([[l + 1, sum(a) / len(a), max(a), sum(x > e["sink"]["eps"] for x in a)]
                 for l, a in zip(runlog.attending(e), e["alpha1"])],
                ["mean alpha_1", "largest", "heads above"])


def hellaswag(binary, directory, task):
    """acc of HellaSwag, None where there is none; and what to print"""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as f:
        r = subprocess.run([binary, "score", directory, "--task", task, "--json", f.name],
                           capture_output=True, text=True)
        if r.returncode: return None, "  HellaSwag: " + r.stderr.strip().split("\n")[-1]
        with open(f.name) as written: one = json.load(written)["tasks"][0]
    return one["acc"], f"  acc {one['acc'] * 100:.2f}, acc_norm {one['acc_norm'] * 100:.2f}"


def correlations(points):
    """prints how Sink_1 and acc go together: within each family, and over all models.
    points: (model, Sink_1, acc)"""
    families = {}
    for model, *point in points:
        families.setdefault(re.match(r"[A-Za-z]*", model)[0].lower(), []).append(point)
    for name, some in [*families.items(), ("all families", sum(families.values(), []))]:
        if len(some) < 3: continue
        sinks, accs = zip(*some)
        vary = len(set(sinks)) > 1 and len(set(accs)) > 1
        r = f"{statistics.correlation(sinks, accs):.2f}" if vary else "- (one of them is the same in all)"
        print(f"correlation of Sink_1 and acc, {len(some)} models of {name}: {r}")


# ==================================================================================================
# 3 run
def model_of(row):
    return os.path.basename(row.words[1])


def own_rows(rows, name):
    """the rows that a table would have of a model that is not the paper's: those of its first
    model, without numbers to compare with"""
    first = [r for r in rows if model_of(r) == model_of(rows[0])]
    for row in first:
        own = copy.copy(row)
        inputs = {"natural", "random", "repeated"} & {row.id.split("-")[-1]}
        own.id = "-".join([row.table, re.sub(r"[^\w.]+", "-", name), *inputs])
        own.paper = {**row.paper, "sink_k": None, "note": ""}
        yield own


def rows_of(rows, models):
    """(row, model's name, directory or None); Figure 3 is of any model. A model that the paper does
    not have gets rows of its own, after those of each table"""
    paper = {model_of(r).lower() for r in rows if r.table != "figure3"}
    for table in dict.fromkeys(r.table for r in rows):
        mine = [r for r in rows if r.table == table]
        for row in mine:
            if table == "figure3":
                for name, directory in models.items(): yield row, name, directory
            else:
                yield row, model_of(row), models.get(model_of(row).lower())
        for name, directory in models.items() if table != "figure3" else ():
            if name in paper: continue
            for row in own_rows(mine, name): yield row, name, directory


def run(rows, o):
    rows = [r for r in rows if is_open(r)]
    if not rows:
        die("--models: none of these tables is of open models",
            "scripts/reproduce table1 --models DIR.. -d TEXT.jsonl")
    if not all(os.path.isfile(file) for file in o.data.split(",")):
        die(f"--models: got data {o.data}, wanted text for each model's own tokenizer",
            "-d TEXT.jsonl")
    o.binary = o.binary or jobs.build_all([""], o)[""]
    models, done, missing, written, table = directories(o.models), {}, {}, [], ""
    points = []
    for row, name, directory in rows_of(rows, models):
        if row.table != table:
            table = row.table
            print(f"\n{row.where.split(' l')[0].split(' r')[0]}: Sink_1 in %, "
                  "ours beside the paper's")
        if not directory:
            missing[name] = row.paper["note"].split(": ")[-1].split(";")[0]
            continue
        e = probe(row, name, directory, o, done)
        if "error" in e: print(f"{label(row, name):36} {e['error']}"); continue
        if "runs" not in e: written.append(file_of(row, name, o))
        sinks, loss = measured(row, e)
        acc, more = None, ""
        if table == "figure10" and o.task: acc, more = hellaswag(o.binary, directory, o.task)
        if acc is not None: points.append((name, e["sink"]["sink_k"][0], acc))
        print(f"{label(row, name):36} {sinks}  loss {loss:.3f}  bos {e.get('bos', 'none')}{more}",
              flush=True)
        begun = e.get("bos", "none").removeprefix("default: ") != "none"
        if begun and "--dump" not in row.words:
            sinks, loss = measured(row, probe(row, name, directory, o, done, "none"))
            print(f"{'  the same text without BOS':36} {sinks}  loss {loss:.3f}  bos none",
                  flush=True)
            written.append(file_of(row, name, o, "none"))
        details(row, e, dump_of(row, o))
    if points: correlations(points)
    if missing:
        print("\nof the paper's models these are not there, so not probed: "
              + ", ".join(f"{n} ({link})" for n, link in missing.items()))
    if written:
        page = os.path.join(o.out, "-".join(dict.fromkeys(r.table for r in rows)) + "-models.html")
        subprocess.run([sys.executable, f"{jobs.ROOT}/scripts/report.py",
                        *written, "-o", page])
