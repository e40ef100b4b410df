"""The paper's takeaways as checkable statements, for scripts/reproduce.

Each is a sentence of sections 4-7 or of a table's caption and a function of the rows of one seed,
which returns whether it holds and {name: number}. It holds if it does for every seed.
v is a View: v.sink(row, k) is Sink_k in percent, of the proxy where rows do not sum to 1;
v.star Sink_*; v.loss the loss; v.need(..) skips the claim where it means nothing.
They were written and committed before the first run of their rows; a claim that fails stays.
"""
from jobs import flag_of, mean, values_of
from reproduce_scales import Missing, Skip, only

# "has a sink": Sink_k of 5% at least, and 5 points more than before training
# (the paper's smallest sinks: 9-14%; its "no sink": up to 2.5%)
SINK = 5.0
# "comparable loss", nats (the paper's largest difference under such words: 0.11, Table 3)
CLOSE = 0.1
# "massive activation": |h_1| five times the mean |h_t| after some layer
MASSIVE = 5.0
CLAIMS = []


def claim(name, table, sentence):
    return lambda f: CLAIMS.append((name, table, sentence, f)) or f


def one_sink(v, row, name="Sink_1"):
    return v.has_sink(row), {name: v.sink(row)}


def each(measure, rows, names):
    """what is measured of these rows, by their names behind `rows`"""
    return {name: measure(rows + name) for name in names.split()}


def all_sink(v, rows, names):
    x = each(v.sink, rows, names)
    return all(v.has_sink(rows + name) for name in x), x


def ordered(v, rows, names):
    """strictly rising along rows; Sink_1 at its ceiling or its floor in all of them says nothing"""
    found = each(v.sink, rows, names)
    x = list(found.values())
    v.need(not (min(x) >= 99.5 or max(x) <= 0.5), "Sink_1 is saturated in every row")
    return all(a < b for a, b in zip(x, x[1:])), found


@claim("4.1", "table4",
       "A sink emerges in the course of effective training: none at step 0, one at the end")
def _(v):
    d = "table4-none"
    x = {"step 0": v.null(d), "end": v.sink(d)}
    return v.null(d) < SINK and v.has_sink(d) and v.loss(d) < v.loss0(d), x

@claim("4.2", "table9", "With smaller learning rates and as many steps the sink is less obvious")
def _(v): return ordered(v, "table9-", "lr1e-4-20k lr2e-4-20k lr4e-4-20k lr8e-4-20k")

@claim("4.3", "table9", "More steps do not make up for a smaller learning rate")
def _(v): return ordered(v, "table9-", "lr1e-4-80k lr2e-4-40k lr4e-4-20k lr8e-4-10k")

@claim("4.4", "table10", "The batch size does not decide whether there is a sink")
def _(v): return all_sink(v, "table10-", "batch0.25M batch0.5M batch1M batch2M")

@claim("5.1", "figure5", "With little training data there is no sink, and the model overfits")
def _(v):
    few, many = "figure5-data50M", "figure5-data5B"
    v.need(v.has_sink(many), "no sink with all the data either")
    x = {"50M": v.sink(few), "5B": v.sink(many), "loss 50M": v.loss(few), "loss 5B": v.loss(many)}
    return not v.has_sink(few) and v.loss(few) > v.loss(many), x

@claim("5.2", "table10", "A token that is fixed at position 1, 2 or 3 takes the sink there, "
                         "and no other token has one")
def _(v):
    x = {f"fixed {p}, Sink_{k}": v.sink(f"table10-fix{p}", k) for p in (1, 2, 3) for k in (1, 2, 3)}
    return all(v.has_sink(f"table10-fix{p}", k) == (p == k) for p in (1, 2, 3)
               for k in (1, 2, 3)), x

@claim("5.3", "section5", "With a random first token the sink is still on the first")
def _(v): return one_sink(v, "section5-random1")

@claim("5.4", "section5", "With random first and second tokens the sink moves to the second")
def _(v):
    r = "section5-random1-2"
    x = {"Sink_1": v.sink(r), "Sink_2": v.sink(r, 2)}
    return v.has_sink(r, 2) and x["Sink_2"] > x["Sink_1"], x

@claim("5.5", "section5", "With only the second token random the sink is on the first")
def _(v):
    r = "section5-random2"
    return v.has_sink(r) and v.sink(r) > v.sink(r, 2), {"Sink_1": v.sink(r), "Sink_2": v.sink(r, 2)}

@claim("6.1", "table2", "A sink emerges without weight decay too")
def _(v): return one_sink(v, "table2-wd0.0")

DECAYS = "0.0 0.001 0.01 0.1 0.5 1.0"

@claim("6.2", "table2", "Weight decay up to a point gives more sinks")
def _(v):
    x = each(v.sink, "table2-wd", DECAYS)
    v.need(x["0.0"] < 99.5, "Sink_1 is at its ceiling without weight decay")
    return max(x.values()) > x["0.0"] + 1, x

@claim("6.3", "table2", "Very large weight decay costs loss and sinks")
def _(v):
    best = max((s, w) for w, s in each(v.sink, "table2-wd", DECAYS).items())[1]
    a, b = f"table2-wd{best}", "table2-wd5.0"
    x = {f"best {best}": v.sink(a), "5.0": v.sink(b),
         "loss best": v.loss(a), "loss 5.0": v.loss(b)}
    return v.sink(b) < v.sink(a) and v.loss(b) > v.loss(a), x

@claim("6.4", "figure5",
       "With a prefix of 5 the sink is among the prefix tokens, not on the first only")
def _(v):
    x = [v.sink("figure5-prefix5", k) for k in range(1, 11)]
    first = {f"Sink_{k}": x[k - 1] for k in range(1, 7)}
    return max(x[1:5]) >= SINK and max(x[5:]) < max(x[:5]), first

@claim("6.5", "figure6", "With a wide window the sink is on the first token of the sequence")
def _(v): return one_sink(v, "figure6-window1024", "window T/2")

@claim("6.6", "figure6", "A small window prevents the sink")
def _(v):
    # alpha_1 is a mean over all 64 queries of a probe
    narrow = int(v.flag("figure6-window32", "--window"))
    v.need(narrow / 64 > 0.3,
           f"with a window of {narrow}, {narrow} of 64 queries see the first token: alpha_1 < 0.3")
    v.need(v.has_sink("figure6-window1024"), "no sink with the widest window either")
    x = {"T/64": v.sink("figure6-window32"), "T/2": v.sink("figure6-window1024")}
    return not v.has_sink("figure6-window32"), x

POSITIONS = "nope absolute learnable relative alibi rotary"

@claim("7.1", "table3", "Every positional embedding, and none, leaves the sink")
def _(v): return all_sink(v, "table3-", POSITIONS)

@claim("7.2", "table3",
       "Only relative positions are hard to train: the loss is the worst, by 0.5 nats or more")
def _(v):
    x = each(v.loss, "table3-", POSITIONS)
    return x["relative"] > max(y for p, y in x.items() if p != "relative") + 0.5, x

@claim("7.3", "section7.2", "Post-norm models have a sink too")
def _(v): return one_sink(v, "section7.2-post")

@claim("7.4", "table11", "The activation of the FFN does not decide whether there is a sink")
def _(v): return all_sink(v, "table11-", "relu gelu swish reglu geglu swiglu")

@claim("7.5", "table12",
       "Neither the number of heads nor adding them up decides whether there is a sink")
def _(v):
    names = [f"heads{n}" for n in (8, 4, 2, 1) if v.exists(f"table12-heads{n}")]
    v.need(len(names) > 1, "one number of heads only")
    return all_sink(v, "table12-", " ".join(names + ["sum"]))

def takes_over(v, tail):
    x, ok = {}, True
    for b in ("sink_token", "kv", "k"):
        r = f"table4-{b}{tail}"
        x[f"{b} Sink_1"], x[f"{b} Sink_*"] = v.sink(r), v.star(r)
        ok = ok and v.sink(r) < SINK <= v.star(r)
    return ok, x

@claim("7.6", "table4", "With a sink token, KV or K biases the sink is on the learned key and not "
                        "on the first token")
def _(v):
    v.need(v.has_sink("table4-none"), "the default run has no sink to move")
    return takes_over(v, "")

@claim("7.6b", "table4", "The same where no <s> stands before the text (laptop scales only)")
def _(v): return takes_over(v, "-no-s")

@claim("7.7", "table4", "V biases leave the sink on the first token")
def _(v):
    v.need(v.has_sink("table4-none"), "the default run has no sink")
    return v.has_sink("table4-v"), each(v.sink, "table4-", "none v")

@claim("7.8", "table4", f"All attention biases reach a comparable loss (within {CLOSE})")
def _(v):
    x = each(v.loss, "table4-", "none sink_token kv k v")
    return max(x.values()) - min(x.values()) <= CLOSE, x

@claim("7.9", "table4", "The sink adds little to the values: |v_1| is below the mean of the others "
                        "in the last layer")
def _(v):
    v.need(v.has_sink("table4-none"), "the default run has no sink")
    x = v.ratio("table4-none", "v_norm")[-1]
    return x < 1, {"|v_1| / |v_t|": x}

@claim("7.10", "table4",
       "The default has massive activations at the first token; with KV or K biases there are none")
def _(v):
    x = {b: max(v.ratio(f"table4-{b}", "h_norm")) for b in ("none", "kv", "k")}
    v.need(x["none"] >= MASSIVE,
           f"|h_1| / |h_t| of the default is {x['none']:.1f}, massive would be {MASSIVE:g}")
    return x["kv"] < MASSIVE and x["k"] < MASSIVE, x

@claim("7.11", "table5",
       "The larger the norm of a fixed v*, the more the sink goes from k* back to the first token")
def _(v):
    ok, x = True, {}
    for d in ("e1", "ones"):
        a, b = "table5-0", f"table5-{d}-20"
        x.update({"0 Sink_*": v.star(a), "0 Sink_1": v.sink(a), f"{d}:20 Sink_*": v.star(b),
                  f"{d}:20 Sink_1": v.sink(b)})
        ok = ok and v.star(b) < v.star(a) and v.sink(b) > v.sink(a)
    return ok, x

@claim("7.12", "table12",
       "KV biases shared by the heads give some of the sink back to the first token")
def _(v):
    a, b = "table12-kv-own", "table12-kv-shared"
    return v.sink(b) > v.sink(a) + 1, {"own": v.sink(a), "shared": v.sink(b)}

@claim("7.13", "table13",
       "One learnable dimension of k* is enough for a sink on it, and all make it more obvious")
def _(v):
    dims = [d for d in (64, 32, 16) if v.exists(f"table13-d{d}")]
    v.need(dims, "no row with more than 8 dimensions")
    a, b = v.star("table13-d1"), v.star(f"table13-d{dims[0]}")
    return SINK <= a < b, {"1": a, str(dims[0]): b}

@claim("7.14", "table14", "Rows that sum to less than 1 have fewer sinks, and still some")
def _(v):
    ok, x = ordered(v, "table14-", "alpha0.1 alpha0.2 alpha1.0 alpha2.0")
    smallest = v.sink("table14-alpha0.05")
    return ok and smallest > 1, dict(x, **{"alpha0.05": smallest})

@claim("7.15", "table6", "Attention without normalization (sigmoid, elu + 1) has no sink")
def _(v):
    v.need(v.has_sink("table6-softmax"), "softmax has no sink either")
    x = each(v.sink, "table6-", "softmax sigmoid elu1")
    return max(x["sigmoid"], x["elu1"]) < SINK, x

@claim("7.16", "table6", "Normalized sigmoid attention has one")
def _(v): return one_sink(v, "table6-sigmoid_norm", "sigmoid_norm")

@claim("7.17", "table6", "Identity and MLP kernels, whose weights can be negative, have no sink")
def _(v):
    v.need(v.has_sink("table6-softmax"), "softmax has no sink either")
    x = each(v.sink, "table6-", "identity mlp mlp_norm")
    return max(x.values()) < SINK, x

@claim("7.18", "table6",
       f"Without normalization the loss is comparable (within {CLOSE} of softmax)")
def _(v):
    x = each(v.loss, "table6-", "softmax sigmoid elu1")
    return max(x["sigmoid"], x["elu1"]) <= x["softmax"] + CLOSE, x

@claim("7.19", "table14",
       "Sigmoid attention has no sink at any of these learning rates and weight decays")
def _(v):
    x = each(v.sink, "table14-", "lr4e-4-wd0.0 lr4e-4-wd0.1 lr4e-4-wd0.5 lr4e-4-wd1.0 "
                                 "lr1e-3-wd0.1 lr1e-4-wd0.1")
    return max(x.values()) < SINK, x

@claim("7.20", "table15",
       "Normalized elu + 1, normalized identity and the elu kernel not normalized fail to train")
def _(v):
    x = each(v.failed, "table15-", "elu1_norm kernel_elu identity_norm")
    return all(x.values()), {f"{a} failed": y for a, y in x.items()}

@claim("7.21", "section7.4", "At 1B parameters softmax has a sink and sigmoid has not")
def _(v):
    a, b = "section7.4-1b", "section7.4-1b-sigmoid"
    return v.has_sink(a) and not v.has_sink(b), {"softmax": v.sink(a), "sigmoid": v.sink(b)}

@claim("C.1", "figure29", "p-normalized softmax fails to train for p above 1 and trains below")
def _(v):
    x = each(v.failed, "figure29-softmax_p", "0.25 0.333333 0.5 2 3 4")
    numbers = {f"p {p} failed": y for p, y in x.items()}
    return all(y == (float(p) > 1) for p, y in x.items()), numbers


# Beyond the paper: what was said of each by those who proposed it, at scales far above these.
def beyond(v, names):
    v.need(v.has_sink("interventions-softmax"), "softmax has no sink either")
    return each(v.sink, "interventions-", names)


def gone(v, names):
    x = beyond(v, names)
    return max(x.values()) < SINK, x

@claim("I.1", "interventions",
       "A place for spare attention, learned or fixed at 0, takes the sink from the first token")
def _(v): return gone(v, "zero logit k kv sink_token")

@claim("I.2", "interventions", "A gate on the outputs of the heads leaves no sink")
def _(v): return gone(v, "gate_head gate_elem gate_head-logit")

@claim("I.3", "interventions",
       "Norms of q and k, and other places of the block's norms, leave the sink")
def _(v):
    x = beyond(v, "qknorm sandwich branch post")
    return all(v.has_sink(f"interventions-{n}") for n in x), x

@claim("I.4", "interventions", "Rectified softmax (softpick) has no sink; capped scores have one")
def _(v):
    x = beyond(v, "softpick softcap")
    return x["softpick"] < SINK and v.has_sink("interventions-softcap"), x

@claim("I.5", "interventions", f"None of these costs more than {CLOSE} of loss")
def _(v):
    x = each(v.loss, "interventions-",
             "softmax zero logit k kv sink_token gate_head gate_elem gate_head-logit qknorm "
             "sandwich branch softpick softcap")
    return max(x.values()) <= x["softmax"] + CLOSE, x

@claim("I.6", "interventions",
       "A norm after each branch keeps the stream's largest entry smaller, against its median")
def _(v):
    x = each(v.spike, "interventions-", "softmax sandwich branch")
    return max(x["sandwich"], x["branch"]) < x["softmax"], x

@claim("I.7", "interventions", "Sigmoid scores that begin from -ln T leave no sink")
def _(v): return gone(v, "sigmoid_shift")

@claim("I.8", "interventions", "Trained on long contexts alone, no sink forms")
def _(v): return gone(v, "min_context")

@claim("I.9", "interventions",
       "Muon keeps the stream's largest entry smaller, against its median, than AdamW")
def _(v):
    x = each(v.spike, "interventions-", "softmax muon")
    return x["muon"] < x["softmax"], x


# ---- the rows as claims see them -----------------------------------------------------------------
class View:
    """the rows as a claim sees them, for one seed"""
    def __init__(self, ours, rows, seed): self.ours, self.rows, self.seed = ours, rows, seed

    def entry(self, id):
        row = self.rows.get(id)
        if row is None: raise Skip(f"no row {id} at this scale")
        if row.skip: raise Skip(f"{id}: {row.skip}")
        e = next(e for e in self.ours(id) if e["seed"] == self.seed)
        if e["status"] == "missing": raise Missing(f"{id} seed {self.seed} is not done")
        return e

    def last(self, id):
        e = self.entry(id)
        if e["status"] == "failed" or e["last"]["val_loss"] is None:
            raise Skip(f"{id} failed to train")
        return e["last"]

    def need(self, ok, why):
        if not ok: raise Skip(why)

    def flag(self, id, name):
        self.entry(id)
        words = self.rows[id].words
        return words[words.index(name) + 1]
    def exists(self, id): return id in self.rows and not self.rows[id].skip    # at this scale

    # equal to sink_k where rows sum to 1
    def sink(self, id, k=1): return self.last(id)["proxy_k"][k - 1]
    def null(self, id, k=1): self.last(id); return self.entry(id)["step0"]["proxy_k"][k - 1]
    def has_sink(self, id, k=1):
        return self.sink(id, k) >= SINK and self.sink(id, k) - self.null(id, k) >= SINK
    def star(self, id): return self.last(id)["sink_star"]
    def loss(self, id): return self.last(id)["val_loss"]
    def loss0(self, id): self.last(id); return self.entry(id)["step0"]["val_loss"]
    def ratio(self, id, norm): return self.last(id)[norm]
    def spike(self, id):
        return only(self.last(id)["spike"], self.last(id)["spike"],
                    f"{id}: max|h| was not measured")
    def failed(self, id): return float(self.entry(id)["status"] == "failed")


def verdicts(table, rows, ours, o):
    out, by_id = [], {r.id: r for r in rows}
    for name, where, sentence, f in CLAIMS:
        if where != table or (name == "7.6b" and not o.s["also"]): continue
        held, numbers, why = [], {}, []
        for seed in o.seeds:
            try: ok, x = f(View(ours, by_id, seed))
            except Missing as s: why.append(f": {s}"); continue
            except Skip as s: why.append(f" at this scale: {s}"); continue
            held.append(ok)
            for k, y in x.items(): numbers.setdefault(k, []).append(y)
        text = ", ".join(f"{k} {mean(v):.4g}" for k, v in numbers.items())
        if held:
            verdict = "holds" if all(held) else "does not hold"
            text += f"; on {sum(held)} of {len(held)} seeds"
            if why: text += f", {len(why)} left out{reasons(why)}"
        else: verdict = "cannot be tested" + reasons(why)
        out.append({"id": name, "table": table, "text": sentence, "verdict": verdict,
                    "numbers": text})
    return out


# flags after -- that change neither what is trained nor how well it is measured
HARMLESS = ("--print-every --save-every --save-minutes --save-optimizer --stop-after --eval-every "
            "--sample --product --graph --hopper").split()


def not_judged(rows, extra):
    """What follows -- and is another value than these rows have: a claim is about theirs."""
    changed = []
    for flag in dict.fromkeys(flag_of(word) for word in extra if word.startswith("-")):
        value, theirs = values_of(extra, flag)[-1:], [values_of(r.plain, flag) for r in rows]
        if flag in HARMLESS or all(t == value for t in theirs): continue
        said = " or ".join(dict.fromkeys(sum(theirs, [])))
        changed.append(f"{flag} {value[0]}" + f" in place of {said}" * bool(said))
    return ", ".join(changed)


def reasons(why):
    """Each once, whichever seeds they are of."""
    first, *more = dict.fromkeys(why)
    return first + "".join("; " + w.partition(": ")[2] for w in more)
