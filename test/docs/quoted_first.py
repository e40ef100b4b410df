"""What the pages of the first token quote of the stored runs: sentences() for quoted.py.

A sentence is (page, text with {} for every figure, the figures as they are printed).
"""
import sys
from statistics import mean

sys.path.insert(0, "scripts/lib")
import runlog
from quoted_outputs import change, error_of, interval, p_of, ratios
from stored import read

RUNS = read("docs/results/first-token.jsonl")

FIRST, CHANGES, NOTEBOOK = (f"docs/findings/first-token{page}.md" for page in ("", "-changes", "-notebook"))

# the stored runs that sentences name
GO_ON = "rotary12T256-random-then-ordinary"
SINK, SINK_K = GO_ON + "-s2", "rotary12T256ord-ordinary-then-ordinary-k-s2"
CONTROL = "rotary12at40k-ordinary-then-ordinary-T256-s2"
BACK = "rotary12back{}-ordinary-then-ordinary-s2"
FOUR, FOUR_CONTROL = "rotary12h4-random-s1", "rotary12h4-ordinary-s1"
FOUR_64, FOUR_256 = "rotary12h4at40k-random-then-ordinary-s1", "rotary12h4T256-random-then-ordinary-s1"
EARLY, LATE = "rotary12h4at20k-random-then-ordinary-s2", "rotary12h4late-random-then-ordinary-s2"
THIRD = "rotary12h4T256-random-then-ordinary-s3"
TAKEN = "rotary12T256taken-ordinary-then-ordinary-s1"

# layers, heads, stem of the stored runs, seeds, step
FORMING = [(8, 2, "rotary8-random", (1, 2, 3), 10000), (8, 2, "rotary8-random", (1,), 40000),
           (8, 4, "rotary8h4-random", (1,), 10000), (8, 8, "rotary8h8-random", (1,), 10000),
           (12, 2, "rotary12-random", (1, 2, 3, 4), 20000), (12, 2, "rotary12-random", (1, 2, 3, 4), 40000),
           (12, 4, "rotary12h4-random", (1, 2, 3), 20000), (12, 4, "rotary12h4-random", (1, 2), 40000),
           (12, 8, "rotary12h8-random", (1,), 11000)]
# heads, seed, steps before, T, stored run, its last step in the table
STAYING = [("4", "1", "40,000", 64, FOUR_64, 10000), ("4", "2", "40,000", 64, LATE, 5000),
           ("4", "2", "20,000", 64, EARLY, 5000), ("4", "1", "45,000", 256, FOUR_256, 10000),
           ("4", "3", "25,000", 256, THIRD, 2500),
           *(("2", str(seed), "40,000", 64, f"rotary12at40k-random-then-ordinary-s{seed}", step)
             for seed, step in ((1, 1000), (2, 5000), (3, 1000))),
           *(("2", "2", "45,000", T, f"{GO_ON}-T{T}-s2", step) for T, step in ((64, 2500), (128, 5000))),
           ("2", "2", "45,000", 256, SINK, 20000), ("2", "2, other text order", "45,000", 256, GO_ON + "-s12", 20000),
           *(("2", str(seed), "45,000", 256, f"{GO_ON}-s{seed}", 5000) for seed in (1, 3, 4)),
           *(("2", str(seed), "45,000", 1024, f"{GO_ON}-T1024-s{seed}", 5000) for seed in (2, 3))]
BILLION, QUIET = "rotary4h4T256-ordinary-s1", "rotary12h4T256quiet-ordinary-s1"
LARGE, SMALL = "rotary12w256T512-ordinary-s1", "rotary4w128T512-ordinary-s1"
BEGINNING = [("large", LARGE, (2000, 5000, 8000, 10000, 11500)), ("small", SMALL, (12210, 40293))]
NOISY, FALLING, DECAY = (f"rotary12w256T512{how}-ordinary-then-ordinary-s2" for how in ("noisy", "falling", "decay"))
GOING_ON = [("2,048 | 2e-3", NOISY, (1500,)), ("8,192 | 1e-3 to 0", FALLING, (0, 4500)),
            ("8,192, weight decay 0.5 | 1e-3 to 0", DECAY, (4500,))]
FOUR_LAYERS = [(f"{pe} | {kind}", f"{pe}-{kind}-s1", (10000,)) for pe in ("rotary", "learnable")
               for kind in ("fixed", "random", "free", "ordinary")]
# what changes, and the stored runs of three seeds
EIGHT_LAYERS = [("-", "random"), ("free first token", "free"), ("ordinary first token", "ordinary"),
           ("`BIAS=k`", "random-k"), ("`BIAS=zero`", "random-zero"),
           ("`ATTN=sigmoid`", "random-sigmoid"), ("`ATTN=softpick`", "random-softpick"),
           ("`GATE=head`", "random-head")]
TWELVE_LAYERS = [("`BIAS=k`", "k"), ("`BIAS=zero`", "zero"), ("`BIAS=logit`", "logit"), ("`GATE=head`", "head"),
                 ("`ATTN=sigmoid`", "sigmoid"), ("`ATTN=softpick`", "softpick")]
KEYS, SIX = ("k", "zero", "logit"), [stem for _, stem in TWELVE_LAYERS]
# and of seed 1 alone
HALF_RATE = "rotary12h4lr2-random-s1"
OF_ONE_SEED = [("`NORM=sandwich`", "rotary12h4-random-sandwich-s1"), ("`--optimizer muon`", "rotary12h4-random-muon-s1"),
               ("`QKNORM=head`", "rotary12h4-random-qknorm-s1"),
               ("`--weight-decay 0`", "rotary12h4-random-wd0-s1"), ("`--lr 2e-3`", HALF_RATE), ("`--window 32`", "rotary12h4w32-random-s1")]
PLACES = [("random, text", FOUR), ("random, random", "rotary12h4r12-ordinary-s1"), ("text, random", "rotary12h4r2-ordinary-s1"),
          ("text, fixed", "rotary12h4f2-ordinary-s1")]


# ---- what is stored of a run

def stored(name, file):
    return RUNS[name][file + ".json"]


def evaluations(name):
    """Returns the stored evaluations of a run."""
    return [o for o in RUNS[name]["log.jsonl"] if o["event"] == "eval"]


def evaluation(name, step):
    """Returns the evaluation of a run at a step."""
    return next(o for o in evaluations(name) if o["step"] == step)


def losses(name, first, last):
    """Returns the validation losses of a run from one step to another, by step."""
    return {int(step): loss for step, loss in stored(name, "losses").items()
            if first <= int(step) <= last}


def positions(name):
    """Returns the loss of all validation tokens in each eighth of T."""
    return stored(name, "loss")["runs"][0]["by_position"]


# ---- the columns of the tables

def step_of(o): return f"{o['step']:,}"
def loss_of(o): return f"{o['val_loss']:.3f}"
def sink_k(o, k):
    """Returns Sink_k in percent: of shares where rows do not sum to 1, where raw weights mean something else."""
    return runlog.sink(o, runlog.uses_proxy([o]), k)


def sink_1(o): return f"{sink_k(o, 1):.1f}"
def sink_2(o): return f"{sink_k(o, 2):.1f}"
def highest_alpha_1(o): return max(map(max, o["alpha1_proxy"]))
def alpha_1(o): return f"{highest_alpha_1(o):.2f}"                     # a share of the row, where it sums to less
def longest(o): return max(ratios(o, "h")[1:])
def h_ratio(o): return f"{longest(o):.1f}"
def v_ratio(o): return f"{min(ratios(o, 'v')):.2f}"
def massive(o): return max(a / b for a, b in zip(o["h_max"], o["h_median"]))
def max_median(o): return f"{massive(o):.0f}"


def sink_star(o):
    share = o["sink"]["sink_star"]
    return "-" if share is None else f"{100 * share:.0f}"


COLUMNS = (step_of, loss_of, sink_1, alpha_1, h_ratio, v_ratio, max_median)
WITH_STAR = (step_of, loss_of, sink_1, sink_star, alpha_1, h_ratio, v_ratio, max_median)


def in_cells(columns, runs):
    """Returns each column of some runs, their numbers in one cell."""
    cells = [" ".join(map(column, runs)) for column in columns]
    return ["-" if cell == "- - -" else cell for cell in cells]


def of_seed(stem, seed):
    """Returns the name of a stored run with twelve layers and four heads."""
    return f"rotary12h4-random{stem and '-' + stem}-s{seed}"


def ends(stem):
    """Returns the evaluations at step 20,000 of three such runs."""
    return [evaluation(of_seed(stem, seed), 20000) for seed in (1, 2, 3)]


def row(page, label, numbers):
    return page, f"| {label} |" + " {} |" * len(numbers), numbers


def table(page, runs):
    return [row(page, label, [column(evaluation(name, step)) for column in COLUMNS])
            for label, name, steps in runs for step in steps]


def strength(name, step=0):
    """Returns the part of alpha_1 above the uniform one, summed over the heads that have more, at T 256."""
    return sum(max(0, x - uniform(256)) for layer in evaluation(name, step)["alpha1_proxy"] for x in layer)


# ---- the pages

def row_of_forming(layers, heads, stem, seeds, step):
    """Returns a row of the models that grow a sink on a random first token, with all seeds in a cell."""
    runs = [evaluation(f"{stem}-s{seed}", step) for seed in seeds]
    return row(FIRST, f"{layers} | {heads} | {' '.join(map(str, seeds))} | {step:,}",
               in_cells(COLUMNS[2:], runs))


def row_of_staying(heads, seed, before, T, name, step):
    """Returns a row of the models that continue on ordinary text: at step 0 and at the end."""
    begin, end = evaluation(name, 0), evaluation(name, step)
    assert begin["sink"]["T"] == T and T == RUNS[name]["log.jsonl"][0]["flags"]["seq"]
    return row(FIRST, f"{heads} | {seed} | {before} | {T} | {step:,}",
               [f"{column(begin)} | {column(end)}" for column in (sink_1, alpha_1, h_ratio)])


def uniform(T):
    """Returns the alpha_1 of even attention."""
    return mean(1 / t for t in range(1, T + 1))


def state_of(name):
    """Returns what the last two stored evaluations of a run show: formed, onset, mark or nothing."""
    last = [o for o in evaluations(name) if o["step"]][-2:]
    if all(max(sink_k(o, k) for k in (1, 2)) >= 20 for o in last): return "formed"
    if all(highest_alpha_1(o) > 2 * uniform(o["sink"]["T"]) for o in last): return "onset"
    return "mark" if all(longest(o) > 2 for o in last) else "nothing"


def first_token_of(flags):
    """Returns what the first token of a run is."""
    share = flags.get("random_share") or 1
    if flags["random_token"]: return f"random: {flags['random_token']}" + (f", in {share:g} of all" if share < 1 else "")
    if flags["fix_token"]: return "fixed: " + flags["fix_token"]
    return "free" if flags["min_context"] == 2 else "ordinary"


def registry():
    """Returns docs/results/first-token.md: every stored run with its outcome."""
    lines = ["# Every run of the first-token pages", "",
             "Printed by `python3 test/docs/quoted_first.py` from `first-token.jsonl`; the last stored evaluation of each of its",
             f"{len(RUNS)} runs. [first-token.md](../findings/first-token.md) says what the states and columns mean. States are those of",
             "the last two stored evaluations, up to 2,500 steps apart: by evaluations between them `rotary12-random-s1` and",
             "`rotary12h4-random-s3` have formed as well. *Formed* may be on the second token. T is that of the measurement and, if another, of the training in brackets. A run that",
             "continues another says from which step; its name says from which run.", "",
             "| run | layers, heads, width | T | first token | changed | step | loss | Sink_1, % | best head | \\|h\\| ratio, max | \\|v\\| ratio, min | "
             "max/median | state |", "|" + "---|" * 13]
    for name in sorted(RUNS):
        config, o = RUNS[name]["log.jsonl"][0], evaluations(name)[-1]
        flags, T = config["flags"], o["sink"]["T"]
        changed = [f"{k}={v}" for k, v in config["switches"].items()
                   if v != {"ATTN": "softmax", "PE": "rotary", "NORM": "pre", "FFN": "swiglu", "COMBINE": "concat"}.get(k, "none")]
        usual = {"lr": 0.004, "weight_decay": 0.1, "schedule": "constant", "optimizer": "adamw", "window": 0}
        changed += [f"{k} {flags[k]}" for k, v in usual.items() if flags.get(k, v) != v]
        tokens = flags["total_batch"] or flags["batch"] * flags["seq"]
        if tokens != 2048: changed.append(f"{tokens:,} tokens a step")
        if flags["init"]: changed.append(f"from step {int(flags['init'][5:]):,}")
        trained = "" if flags["seq"] == T else f" ({flags['seq']})"
        lines.append("| " + " | ".join([
            name, f"{flags['layers']}, {flags['heads']}, {flags['width']}", f"{T}{trained}", first_token_of(flags),
            ", ".join(changed) or "-", step_of(o), loss_of(o), sink_1(o), alpha_1(o), h_ratio(o), v_ratio(o), max_median(o),
            state_of(name)]) + " |")
    return "\n".join(lines) + "\n"


def of_first():
    """Returns the sentences of docs/findings/first-token.md."""
    at = {step: evaluation(FOUR, step) for step in (20000, 40000)}
    begin_64, end_64 = (evaluation(FOUR_64, step) for step in (0, 10000))
    end_256 = evaluation(FOUR_256, 10000)
    three = [sink_k(o, 1) for o in ends("")]
    swings = [sink_k(o, 1) for o in evaluations(GO_ON + "-T1024-s2")]
    back = lambda steps, step=0: strength(BACK.format(steps), step)
    found = [row_of_forming(*what) for what in FORMING]
    found += [row_of_staying(*what) for what in STAYING]
    for steps in (500, 1000, 1250, 1750):
        later = [evaluation(BACK.format(steps), step) for step in (0, 1000, 5000)]
        found.append((FIRST, "|" + " {} |" * 8, [f"{steps:,}", f"{back(steps):.2f}",
                                                 *map(sink_1, later), *map(h_ratio, later)]))
    return found + [
        (FIRST, "Sink_1 {}%, a norm of h {} times the others', values a twentieth of theirs, an entry of h {} times "
         "the median", [sink_1(at[40000]), f"{longest(at[40000]):.0f}", f"{10 * round(massive(at[40000]) / 10):,}"]),
        (FIRST, "Sink_1 {}% after 10,000 steps at T 64, {}% at T 256", [sink_1(end_64), sink_1(end_256)]),
        (FIRST, "Weakened until Sink_1 is {}%, the one of two heads grows back at T 256, to {}%",
         [sink_1(evaluation(BACK.format(1000), step)) for step in (0, 1000)]),
        (FIRST, "h shrinks from {} to {} times the others', max/median from {} to {}",
         [f"{longest(begin_64):.0f}", h_ratio(end_64), f"{massive(begin_64):,.0f}", max_median(end_64)]),
        (FIRST, "seed 2 came to T 256 with {}; seeds 1, 3 and 4 with {}, {} and {}",
         [f"{strength(f'{GO_ON}-s{seed}'):.2f}" for seed in (2, 1, 3, 4)]),
        (FIRST, "By the strength at the start the border lies between {} and {}, but strength is not the whole state: "
         "the run from {} rises to {} by step 1,000",
         [f"{x:.2f}" for x in (back(1250), back(1000), back(1250), back(1250, 1000))]),
        (FIRST, "seed 3, from step 20,000, came with {} and lost its mark", [f"{strength(THIRD):.2f}"]),
        (FIRST, "Sink_1 is {}% on average, 95% interval {} to {}.", interval(three, 1)),
        (FIRST, "Sink_1 swings between {} and {}%", [f"{min(swings):.1f}", f"{max(swings):.1f}"]),
        (FIRST, "but with Sink_1 at {}, {} and {}%: what they lost is no", [sink_1(evaluation(f"{GO_ON}-s{seed}", 0)) for seed in (1, 3, 4)])]


def early(x):
    """Returns the loss of the first eight positions, summed."""
    return 8 * x[0]


def late(x):
    return mean(x[1:])


def differences(a, b, get):
    """Returns by how much the losses of three seeds are above another kind's."""
    return [get(positions(f"rotary8-{a}-s{seed}")) - get(positions(f"rotary8-{b}-s{seed}")) for seed in (1, 2, 3)]


def of_balance():
    """Returns the sentences of what a sink costs, and gains after the first eighth of T 64."""
    mean_loss = lambda name, first, last: f"{mean(losses(name, first, last).values()):.3f}"
    costs = differences("random", "ordinary", early)
    gain_early, gain_late = (differences("random", "random-k", get) for get in (early, late))
    margin = 4.303 * error_of(gain_late)
    pays = [8 + (mean(costs) - mean(gain_early)) / (mean(gain_late) + sign * margin) for sign in (0, 1, -1)]
    twelve = late(positions("rotary12-random-s2")) - late(positions("rotary12-ordinary-s2"))
    paired = [loss - losses(SINK, step, step)[step] for step, loss in losses(CONTROL, 5500, 10000).items()]
    return [
        (CHANGES, "costs {} nats in the first eight positions ({} to {}:", interval(costs, 2)),
        (CHANGES, "and {} in the whole sequence ({} to {})", interval(differences("random", "ordinary", lambda x: 64 * mean(x)), 2)),
        (CHANGES, "0.039 nats per token at T 64, 0.010 at T 256, {} at T 1024", [f"{mean(costs) / 1024:.3f}"]),
        (CHANGES, "A K bias lowers the loss by {} nats ({} to {}) in the first eight positions", interval(gain_early, 2)),
        (CHANGES, "and then by {} ({} to {}) per token", interval(gain_late, 3)),
        (CHANGES, "from T {} on; the interval of the rate leaves anything from T {} to T {}.",
         [f"{5 * round(pays[0] / 5)}", f"{5 * round(pays[1] / 5)}", f"{1000 * round(pays[2] / 1000):,}"]),
        (CHANGES, "the difference is {} ({} to {}) with eight layers and {} with twelve",
         interval(differences("ordinary", "random", late), 3) + [f"{twelve:.3f}"]),
        (CHANGES, "is {} with the sink and {} without; step by step the difference is {} (one seed; standard error {} over steps)",
         [mean_loss(SINK, 5500, 10000), mean_loss(CONTROL, 5500, 10000), f"{mean(paired):.3f}", f"{error_of(paired):.3f}"]),
        (CHANGES, "its loss is {}; the model with the sink had {} in those steps of its own, and {} from step 17,500",
         [mean_loss(SINK_K, 2500, 5000), mean_loss(SINK, 2500, 5000), mean_loss(SINK, 17500, 20000)]),
        (NOTEBOOK, "by {} on average ({} to {}, all validation tokens", interval(differences("random", "random-k", mean), 3))]


def worth_of_k(stem):
    """Returns by how much a K bias lowers the loss of ordinary text, by seed and eighth of T."""
    return [[x - y for x, y in zip(*(positions(f"rotary{stem}-ordinary{k}-s{seed}") for k in ("", "-k")))]
            for seed in (1, 2, 3)]


def row_of_worth(layers, width, T, stem):
    """Returns the row of what a K bias is worth to such a model."""
    gains = worth_of_k(stem)
    whole = [*map(mean, gains)]
    stars = [sink_star(evaluations(f"rotary{stem}-ordinary-k-s{seed}")[-1]) for seed in (1, 2, 3)]
    return row(CHANGES, f"{layers} | {width} | {T}", [" ".join(f"{x:.3f}" for x in whole), "{} ({} to {})".format(*interval(whole, 3)), p_of(whole), " ".join(stars)])


def of_worth():
    """Returns the sentences of what a place for spare attention is worth on ordinary text."""
    two, four, wide, longer = ([*map(mean, worth_of_k(stem))] for stem in ("2c", "4c", "4cw128", "4c30k"))
    four_early, four_late = ([get(x) for x in worth_of_k("4c")] for get in (early, late))
    rows = [row_of_worth(*what) for what in (
        (2, 64, 64, "2c"), (4, 64, 64, "4c"), (8, 64, 64, "8c"), (4, 128, 64, "4cw128"), (4, 64, 256, "4cT256"),
        (4, 64, 1024, "4cT1024"))] + [row_of_worth("4, 30,000 steps", 64, 64, "4c30k")]
    of_sequence = [[T * mean(gain) for gain in worth_of_k(stem)] for T, stem in (
        (64, "4c"), (256, "4cT256"), (1024, "4cT1024"))]
    rise = [y - x for x, y in zip(two, four)]
    less, wider = ([x - y for x, y in zip(four, others)] for others in (longer, wide))
    return rows + [
        (CHANGES, "by {} on average, but not significantly (by seed {} to {}, p = {})",
         [*interval(rise, 3), f"{float(p_of(rise)):.2f}"]),
        (CHANGES, "it is worth as much: less by {} ({} to {}).", interval(less, 3)),
        (CHANGES, "it is worth less on every seed, by {} ({} to {}, p = {})", [*interval(wider, 3), f"{float(p_of(wider)):.2f}"]),
        (CHANGES, "three seeds can show, p = {})", [f"{float(p_of([*map(mean, worth_of_k('4cT1024'))])):.2f}"]),
        (CHANGES, "Per sequence it is worth {} ({} to {}), {} ({} to {}) and {} nats ({} to {}) at T 64, 256 and 1024; an unreadable "
         "first token costs {}.", [x for worth in of_sequence for x in interval(worth, 1)]
         + [f"{mean(differences('random', 'ordinary', early)):.1f}"]),
]


def trend(column):
    """Returns two means over ten evaluations of a billion tokens: the last, and evaluations 6 to 15."""
    evals = [o for o in evaluations(BILLION) if o["step"] > 0]
    before, after = ([*map(column, part)] for part in (evals[5:15], evals[-10:]))
    return mean(before), mean(after)


def of_billion():
    """Returns the sentences of a billion tokens."""
    evals = [o for o in evaluations(BILLION) if o["step"] > 0]
    h, alpha = trend(longest), trend(highest_alpha_1)
    return [
        (NOTEBOOK, "In {} evaluations Sink_1 is {}% and the best head's alpha_1 is that of uniform attention, {}",
         [str(len(evals)), max(map(sink_1, evals)), f"{max(map(highest_alpha_1, evals)):.3f}"]),
        (NOTEBOOK, "The |h| ratio rises from {} to {} (means", [f"{x:.3f}" for x in h]),
        (NOTEBOOK, "and max/median from {} to {},", [f"{x:.1f}" for x in trend(massive)]),
        (NOTEBOOK, "while alpha_1 falls by {}", [f"{alpha[0] - alpha[1]:.4f}"])]


def untrained_softmax(name):
    """Tells whether step 0 of a run is an untrained model with softmax alone."""
    config, first = RUNS[name]["log.jsonl"][0], evaluations(name)[0]
    plain = config["switches"]["BIAS"] == "none" and config["switches"]["ATTN"] == "softmax"
    return plain and not config["flags"]["init"] and first["step"] == 0 and config["switches"]["PE"] == "rotary" and config["switches"]["NORM"] == "pre"


def of_tried():
    """Returns the sentences of what made no sink, and of the K bias that takes one."""
    alone = evaluation(FOUR_CONTROL, 20000)
    before, taken, after = (evaluation(name, step)["val_loss"] for name, step in (
        ("rotary12T256k-ordinary-k-s1", 10000), (TAKEN, 0), (TAKEN, 500)))
    quiet = [evaluation(QUIET, step) for step in (500, 1000, 7000)]
    nope = {o["step"]: f"{highest_alpha_1(o):.3f}" for o in evaluations("nope12T256-ordinary-s1")}
    assert all("0.045" < nope[step] < "0.085" for step in nope if step >= 7500) and nope[22000]
    untrained = [longest(evaluations(name)[0]) for name in RUNS if untrained_softmax(name)]
    return [
        (NOTEBOOK, "the best head gives {}, the uniform value, while the |v| ratio falls slowly, from {} after 33 million tokens "
         "to {}. The loss still falls ({}, where the large model had {} at its onset)",
         [f"{highest_alpha_1(quiet[2]):.3f}", v_ratio(quiet[1]), v_ratio(quiet[2]), loss_of(quiet[2]), loss_of(evaluation(LARGE, 5000))]),
        (NOTEBOOK, "comes to {}, more than twice the uniform one, by step 7,500, and stays between 0.05 and 0.08 to step {}:",
         [nope[7500], f"{max(nope):,}"]),
        (NOTEBOOK, "{} million tokens at T 256 after {} at T 64", [f"{steps * 2048 / 1e6:.0f}" for steps in (30000, 40000)]),
        (NOTEBOOK, "after {} million tokens the best head", [f"{7000 * 32768 / 1e6:.0f}"]),
        (FIRST, "showed no onset in {} million tokens", [f"{7000 * 32768 / 1e6:.0f}"]),
        (NOTEBOOK, "Untrained models have a mark (|h| ratio {} to {})", [f"{f(untrained):.1f}" for f in (min, max)]),
        (NOTEBOOK, "after 500 steps of the quiet run it is {}.", [f"{longest(quiet[0]):.2f}"])] + [
        (CHANGES, "|" + " {} |" * 8, [column(evaluation(SINK_K, step)) for column in WITH_STAR])
        for step in (0, 500, 5000)] + [
        (NOTEBOOK, "20,000 steps: |h| ratio {} and best head {}, where random first tokens bring Sink_1 to {}%", [h_ratio(alone), alpha_1(alone), sink_1(evaluation(FOUR, 20000))]),
        (NOTEBOOK, "the loss jumps by {} nats and is back within {} after 500 steps",
         [f"{taken - before:.1f}", f"{after - before:.2f}"])]


def against_baseline(name):
    """Returns by how much the loss of a run is above the baseline's of its seed, from step 16,000 to 20,000."""
    own, base = losses(name, 16000, 20000), losses(of_seed("", name[-1]), 16000, 20000)
    return mean(own[step] - base[step] for step in range(16000, 20001, 1000))


def long_after(o):
    """Returns the number of layers after which h of the first token is five times the others'."""
    return str(next((layers for layers, ratio in enumerate(ratios(o, "h")) if ratio >= 5), "-"))


STATE = (sink_1, sink_star, alpha_1, h_ratio, long_after, v_ratio, max_median)


def span_of(stems, column):
    """Returns the least and the greatest of a column over three seeds of these changes."""
    cells = [column(o) for stem in stems for o in ends(stem)]
    cells.sort(key=lambda cell: 99 if cell == "-" else float(cell))
    return [cells[0], cells[-1]]


def against_softmax(stem):
    return [against_baseline(of_seed(stem, seed)) for seed in (1, 2, 3)]


def rows_of_changes():
    """Returns the rows of six changes and the baseline, three seeds in each cell."""
    found = [row(CHANGES, "-", ["- | -"] + in_cells(STATE, ends("")))]
    for label, stem in TWELVE_LAYERS:
        x = against_softmax(stem)
        middle, low, high = interval(x, 3, signed=True)
        found.append(row(CHANGES, label, [f"{middle} ({low} to {high})", p_of(x), *in_cells(STATE, ends(stem))]))
    return found


def rows_of_one_seed():
    found = []
    for label, name in [("-", FOUR)] + OF_ONE_SEED:
        loss = "-" if name == FOUR else f"{against_baseline(name):+.3f}"
        columns = [column for column in STATE if column not in (sink_star, long_after)]
        found.append(row(CHANGES, label, [loss] + [column(evaluation(name, 20000)) for column in columns]))
    return found


def rows_of_places():
    return [row(NOTEBOOK, label, [f(evaluation(name, 20000)) for f in (
        sink_1, sink_2, alpha_1, h_ratio, v_ratio, max_median)]) for label, name in PLACES]


def heads_above(stem, times):
    """Returns, for three seeds, how many heads give the first token more than so many times even attention."""
    return [sum(x > times * uniform(64) for layer in o["alpha1_proxy"] for x in layer) for o in ends(stem)]


def of_changes():
    """Returns the sentences of what ends a sink."""
    base = ends("")
    worth = {stem: f"{abs(mean(against_softmax(stem))):.3f}" for _, stem in TWELVE_LAYERS}
    probes = {share: stored(f"rotary12h4q{share}-random-s1", "after")["probes"] for share in (50, 75)}
    highest = lambda share, kind: f"{max(probes[share][kind]['alpha1_max']):.3f}"
    entries = lambda share, kind: f"{max(probes[share][kind]['spike']):.0f}"
    no_decay = OF_ONE_SEED[3][1]
    half = [sink_1(evaluation(name, step)) for name, step in (
        (HALF_RATE, 20000), (HALF_RATE, 40000), (FOUR, 20000), (FOUR, 40000))]
    three = lambda stem, column: [*map(column, ends(stem))]
    dead, window = evaluation(of_seed("sigmoid", 2), 20000), evaluation(OF_ONE_SEED[5][1], 20000)
    apart = [massive(k) - massive(logit) for k, logit in zip(ends("k"), ends("logit"))]
    assert all(max(heads_above(stem, 2)) <= 2 for stem in ("head", "sigmoid", "softpick"))
    assert all(len({x > 0 for x in against_softmax(stem)}) == 1 for stem in SIX)
    assert min(p_of(against_softmax(stem)) for stem in SIX) > "0.008"
    assert all(massive(o) < massive(plain) / 2 + 0.5 for stem in SIX for o, plain in zip(ends(stem), base))
    return rows_of_changes() + rows_of_one_seed() + rows_of_places() + [
        (CHANGES, "Sink_1 of the shares is {}, {} and {}%, and {}, {} and {}%", three("sigmoid", sink_1) + three("softpick", sink_1)),
        (CHANGES, "heads {}, {} and {} give more than the uniform value with a gate, {}, {} and {} with sigmoid, {}, {} and {} with softpick",
         [str(n) for stem in ("head", "sigmoid", "softpick") for n in heads_above(stem, 1)]),
        (CHANGES, "give *every* key {}, so the raw Sink_1 is {}%",
         [f"{dead['alpha1'][0][0]:.2f}", f"{100 * dead['sink']['sink_k'][0]:.1f}"]),
        (CHANGES, "token 1 gets {} of the row", [f"{dead['alpha1_proxy'][0][0]:.3f}"]),
        (CHANGES, "both with p = {} and {}", [p_of(against_softmax(stem))[:4] if p_of(against_softmax(stem))[4] < "5" else
                                              f"{float(p_of(against_softmax(stem))):.2f}" for stem in ("sigmoid", "softpick")]),
        (CHANGES, "with K biases ({}, {}, {}) and sigmoid ({}, {}, {}) only", three("k", max_median) + three("sigmoid", max_median)),
        (CHANGES, "logit has p = {}", [f"{float(p_of(apart)):.2f}"]),
        (CHANGES, "alpha_1 of {} is {} times uniform attention ({}), and for the 32 queries that see the first token it is {}",
         [alpha_1(window), f"{highest_alpha_1(window) / (32 / 64 * uniform(32)):.1f}", f"{32 / 64 * uniform(32):.3f}",
          f"{2 * highest_alpha_1(window):.2f}"]),
        (NOTEBOOK, "the entry of {} times the median is then not", [max_median(evaluation(PLACES[3][1], 20000))]),
        (CHANGES, "{}% after 20,000 steps and {}% after 40,000, where the baseline has {} and {}%. The loss is lower by {}", [
            *half, f"{-against_baseline(HALF_RATE):.2f}"]),
        (CHANGES, "Sink_1 is {}%, with an entry of {} times, as large as the baseline's, and a loss lower by {}", [
            *(f(evaluation(no_decay, 20000)) for f in (sink_1, max_median)), f"{-against_baseline(no_decay):.2f}"]),
        (NOTEBOOK, "({} on those, {} on random ones), with entries of h at {} and {} times the median",
         [f(75, kind) for f in (highest, entries) for kind in ("ordinary", "random")]),
        (NOTEBOOK, "With half it rises slowly to the end ({}, {})", [highest(50, kind) for kind in ("ordinary", "random")]),
        (CHANGES, "Sink_1 {}, {} and {}%)", [*map(sink_1, base)]),
        (CHANGES, "a K bias lowers the loss by {}, a zero key by {}, a logit by {}",
         [worth[stem] for stem in ("k", "zero", "logit")]),
        (CHANGES, "Sink_\\* is {} to {}%", span_of(KEYS, sink_star)),
        (CHANGES, "best heads give {} to {} (uniform", span_of(["head", "sigmoid", "softpick"], alpha_1)),
        (CHANGES, "from {} to {} times the median to {} to {}", span_of([""], max_median) + span_of(SIX, max_median)),
        (CHANGES, "The |h| ratio is {} to {} with softmax and {} to {} with the changes, all still marks (above 2); the |v| ratio is "
         "{} to {} and {} to {}.", [x for column in (h_ratio, v_ratio) for stems in ([""], SIX)
                                                     for x in span_of(stems, column)]),
        (CHANGES, "softmax needs {} to {} layers, an extra key {} to {}",
         span_of([""], long_after) + span_of(KEYS, long_after)),
        (CHANGES, "Sink_1 is {} and {}% with NORM=sandwich and with Muon, and the largest entry of h {} and {} times the "
         "median", [f(evaluation(name, 20000)) for f in (sink_1, max_median) for _, name in OF_ONE_SEED[:2]]),
        (CHANGES, "A gate per head lowers it more, by {}. Sigmoid costs {}, softpick {}",
         [worth[stem] for stem in ("head", "sigmoid", "softpick")])]


def of_ordinary():
    """Returns the sentences of docs/findings/first-token-ordinary.md."""
    after, last = stored(LARGE, "after"), evaluation(LARGE, 11500)
    h = ratios(last, "h")
    tokens = lambda step, of_a_step: f"{step * of_a_step / 1e6:.0f}"
    percent = lambda x: f"{100 * x:.1f}"
    onset = next(o["step"] for o in evaluations(LARGE) if o["step"] and highest_alpha_1(o) > 0.148)
    found = table(FIRST, BEGINNING) + table(NOTEBOOK, GOING_ON)
    five, decayed = evaluations(FALLING)[-5:], evaluations(DECAY)[-5:]
    of_five = [mean(o["sink"]["sink_k"][0] for o in last_five) for last_five in (five, decayed)]
    for label, kind in (("books", "ordinary"), ("books, a random first token", "random"),
                        ("books, `<\\|endoftext\\|>` first", "fixed"), ("one token, repeated", "repeated")):
        o = after["probes"][kind]
        found.append(row(NOTEBOOK, label, [
            percent(o["sink_1"]), f"{max(o['alpha1_max']):.2f}", f"{max(o['h_ratio'][1:]):.1f}", f"{min(o['v_ratio']):.2f}"]))
    for label, name in (("the first token is masked", "A:*:1=mask"), ("its values are 0", "v:*:1=0"),
                        ("its values are those of the others, on average", "v:*:1=mean"),
                        ("three channels of its h after layer 6, the seventh, are 0", "h:6:1:top3=0"),
                        ("the same, at their mean", "h:6:1:top3=mean")):
        o = next(o for o in after["edits"] if o["name"] == name)
        found.append((NOTEBOOK, f"| {label} | {{}} +- {{}} | {{}} | {{}} |\n", [
            *change(o), percent(o["sink_1"]), percent(o["sink_2"])]))
    return found + [
        (FIRST, "one head gives the first token {} after {} million tokens, four times",
         [alpha_1(last), tokens(11500, 32768)]),
        (FIRST, "Sink_1 is {}%. Massive activations have not come either: the largest entry of h is {} times the median",
         [sink_1(last), max_median(last)]),
        (FIRST, "in two evaluations in a row from step {} on, after {} million tokens", [f"{onset:,}", tokens(onset, 32768)]),
        (FIRST, "after one to five layers ({} to {} times), twice that after six to eleven layers ({} to {}), and less after the last ({})", [f"{f(h[a:b]):.2f}" for f, a, b in (
             (min, 1, 6), (max, 1, 6), (min, 6, 12), (max, 6, 12), (max, 12, 13))]),
        (NOTEBOOK, "it is {}% at\n  the end and {}% on average over the last five evaluations, where {}% was",
         [sink_1(five[-1]), percent(of_five[0]), sink_1(evaluation(FALLING, 0))]),
        (NOTEBOOK, "{}% on average over the last five evaluations, {} times as much",
         [percent(of_five[1]), f"{of_five[1] / of_five[0]:.1f}"]),
        (NOTEBOOK, "while the loss is {} higher", [f"{decayed[-1]['val_loss'] - five[-1]['val_loss']:.2f}"]),
        (FIRST, "Sink_1 comes to [{}%]", [sink_1(five[-1])])]


def in_percent(o):
    return [f"{100 * o[key]:.1f}" for key in ("sink_1", "sink_2")]


def edits_of_twelve():
    """Returns the rows of what twelve layers lose by edits, before and after ordinary text."""
    both = ([o for o in stored(name, "after")["edits"] if not o["name"].endswith("in the text")] for name in ("rotary12-random-s2", SINK))
    caches = {"0+16, positions in the cache": "the last 16 (64) keys", "1+15, positions in the cache": "the first and the last 15 (63) keys"}
    for pair in zip(*both):
        cells = [cell for o in pair for cell in (" +- ".join(change(o)), *in_percent(o))]
        name = pair[0]["name"]
        yield f"| {caches.get(name, f'`{name}`')} | " + " | ".join(cells) + " |"


def of_notebook():
    """Returns the rows of docs/findings/first-token-notebook.md."""
    fixed, random, free, ordinary, *learned = (evaluation(name, 10000) for _, name, _ in FOUR_LAYERS)
    found = [(NOTEBOOK, "only the fixed token becomes a sink (Sink_1 {}%, best head {}; random {}, free {}, ordinary {})",
              [sink_1(fixed), *map(alpha_1, (fixed, random, free, ordinary))]),
             (NOTEBOOK, "its |h| is {} times the others'", [h_ratio(random)]),
             (NOTEBOOK, "none does (best head {}, {}, {} and {})", [*map(alpha_1, learned)])]
    for label, stem in EIGHT_LAYERS:                      # the numbers of all seeds in a cell
        runs = [evaluation(f"rotary8-{stem}-s{seed}", 10000) for seed in (1, 2, 3)]
        found.append(row(NOTEBOOK, label, in_cells((sink_1, sink_star, alpha_1, max_median), runs)))
    for stem, text in (("zero", "A zero key takes most of it (by the table {}, {} to {})"),
                       ("head", "a gate for each head leaves little ({}, {} to {})"),
                       ("sigmoid", "Sigmoid costs {} ({} to {})"), ("softpick", "softpick {} ({} to {})")):
        costs = [evaluation(f"rotary8-random-{stem}-s{seed}", 10000)["val_loss"]
                  - evaluation(f"rotary8-random-s{seed}", 10000)["val_loss"] for seed in (1, 2, 3)]
        found.append((NOTEBOOK, text, interval([abs(mean(costs)) / mean(costs) * x for x in costs], 3)))
    found.append((NOTEBOOK, "(seed 1: {}% before any further training) as with two ({}%)",
                  [sink_1(evaluation(FOUR_64, 0)), sink_1(evaluation("rotary12at40k-random-then-ordinary-s2", 0))]))
    for o in stored("rotary12-random-s2", "after")["probes"].values():
        found.append((NOTEBOOK, "| {} | {} | {} | {} | {} |\n",
                      [f"{o['probe_loss']:.3f}", *in_percent(o), f"{max(o['h_ratio']):.1f}", f"{max(o['spike']):.0f}"]))
    return found + [(NOTEBOOK, "{}\n", [line]) for line in edits_of_twelve()]


def sentences():
    return (of_first() + of_balance() + of_worth() + of_billion() + of_tried() + of_changes() + of_ordinary()
            + of_notebook())


if __name__ == "__main__":
    print(registry(), end="")
