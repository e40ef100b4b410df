"""The scales of scripts/reproduce: what changes with the scale, in one place.

SCALES holds a data set, flags and a speed for each. at_scale turns a flag of the paper's scale
into flags of another; what means nothing there raises Skip and says why.
"""
import math

# The default setup of the paper (section 4), to which every rule below refers.
PAPER = dict(steps=20000, batch=1048576, seq=2048, lr=4e-4, heads=8)

# flags: of every run beside those of the row. batch: tokens per step. decay:
# what stands for the paper's weight decay 0.1 in rows that set it (laptop:
# lr x steps x decay as in the paper; its default, the demo's, is 1e-4: almost none).
# head_size: bounds --k-dims. threads: of a run on the CPU. tokens_s: of a run, for `list`;
# how it was measured. also: rows beside the paper's. fixed: the id of a fixed first token.
ORDINARY = [
    # At the small scales a first token becomes a sink where it is always the same (<s>,
    # --fix-token), and not where it is an ordinary one (dev/log/text-runs.md), so the default
    # run has such a token (text12: a random one). It is a fixed first token (Table 10), a place made
    # for spare attention: whether a learned key takes that attention is also asked without it.
    ("table4-none-no-s",       "Table 4, no <s>", "-", "", "no <s>, no bias: the control"),
    ("table4-sink_token-no-s", "Table 4, no <s>", "BIAS=sink_token", "", "-"),
    ("table4-kv-no-s",         "Table 4, no <s>", "BIAS=kv", "", "-"),
    ("table4-k-no-s",          "Table 4, no <s>", "BIAS=k", "", "-"),
    ("table4-v-no-s",          "Table 4, no <s>", "BIAS=v", "", "-"),
    ("table10-no-s",           "Table 10 right",  "-", "", "no token fixed: the control"),
    ("figure5-prefix5-no-s",   "Figure 5 middle", "-", "--prefix 5", "-"),
    ("section5-no-s",          "Section 5",       "-", "", "no random token: the control"),
]
LAPTOP = dict(
    data="bb", device="cpu", threads=1,
    flags="-m bb --beta2 0.99 --warmup 20 --weight-decay 1e-4 --eval-every 50 --sample 0",
    steps=800, batch=4096, seq=64, lr=5e-3, decay=0.2, also=ORDINARY)


def of_text(data, words, layers, sequences, first="--fix-token 1:0", steps=4000, heads=2, **rest):
    """a scale: natural text, `sequences` of T 64 a step;
    words: how the text becomes tokens; first: what the first token of a sequence is"""
    flags = (f"{words} {first} --layers {layers} --width 64 --heads {heads} --ffn-width 128 "
             f"--seq 64 -b {sequences} --warmup 100 --weight-decay 0.1 --eval-every 500 --sample 0")
    return dict(data=data, flags=flags, device="cpu", threads=1, fixed="0",
                heads=heads, head_size=64 // heads, steps=steps, batch=64 * sequences, seq=64,
                lr=4e-3, decay=0.1, also=ORDINARY,
                measured="measured by CPU time, one core of a busy machine", **rest)


SCALES = {
    "paper":   dict(about="the paper's own: 60M (or 1B) parameters, 20,000 steps of 1M tokens",
                    data="pile_5B", device="cuda", threads=0, head_size=96, decay=0.1, also=[],
                    flags="--save-every 5000 --sample 0", **PAPER,
                    tokens_s=635e3, tokens_s_1B=57e3,
                    measured="timed on one H100, no run of it yet"),
    "hour":    dict(about="60M parameters, T 1024, 2,000 steps of 131k tokens: "
                          "a table in about an hour of one GPU",
                    data="pile_5B", device="cuda", threads=0, head_size=96, decay=0.1, also=[],
                    flags="-m 60M --weight-decay 0.1 --eval-every 50 --sample 0",
                    steps=2000, batch=131072, seq=1024, lr=1e-3, heads=8,
                    tokens_s=635e3, measured="timed on one H100 at T 2048, no run of it yet"),
    # the first evening with a GPU: the same rules as the scale text, a model that a GPU ends in
    # seconds and a CPU in an hour. The learning rate was not tuned
    "minutes": dict(about="books of your own: 4 layers, 4 heads of 64, T 512, 1,000 steps of "
                          "16k tokens: all tables in one to two hours of one GPU",
                    data="books", device="cuda", threads=0, heads=4, head_size=64, fixed="0",
                    flags="--vocab 1024 --fix-token 1:0 --layers 4 --width 256 --heads 4 "
                          "--ffn-width 512 --seq 512 --total-batch 16384 --warmup 100 "
                          "--weight-decay 0.1 --eval-every 100 --sample 0",
                    steps=1000, batch=16384, seq=512, lr=2e-3, decay=0.1, also=ORDINARY,
                    tokens_s=4e6,
                    measured="estimated for one H100 from flops and launches; "
                             "the start of a run adds seconds"),
    "laptop":  dict(about="the model of make demo-bb, 28k parameters: 1 layer, 1 head",
                    heads=1, head_size=32, **LAPTOP,
                    tokens_s=256e3, measured="measured, one core of a busy machine"),
    "laptop2": dict(about="40k parameters: 2 layers, 2 heads", heads=2, head_size=16, **LAPTOP,
                    tokens_s=128e3, measured="measured, one core of a busy machine"),
    # the recipe of scripts/demo.sh: one novel that lies in the repository, 512 ids
    "text":    of_text("demo/bleak-house.jsonl.gz", "--tokenizer demo/tokenizer.json", 1, 16,
                       about="one novel, the demo's model: "
                             "1 layer, 2 heads of 32, 4,000 steps, 4.1M tokens", tokens_s=88e3),
    # docs/findings/text.md, "A larger text and two layers": data/books holds shards that any text makes
    # (scripts/prepare_text.sh), by a tokenizer of 1,024 ids or one that was cut to them
    "text2":   of_text("books", "--vocab 1024", 2, 32, tokens_s=90e3, make="PRECISION=bf16",
                       about="books of your own: "
                             "2 layers, 2 heads of 32, 4,000 steps, 8.2M tokens, in bf16"),
    # docs/findings/first-token.md: deep enough to make a sink of a first token by its place
    "text12":  of_text("books", "--vocab 1024", 12, 32, "--random-token 1", 20000, 4,
                       tokens_s=47e3, make="PRECISION=bf16",
                       about="books of your own, a random first token: "
                             "12 layers, 4 heads of 16, 20,000 steps, 41.0M tokens, in bf16"),
}
SCALES["laptop2"]["flags"] += " --layers 2 --heads 2"
# for the estimates of `list`
DOLLARS_PER_GPU_HOUR = 3.0                       # an assumption
BUILD_SECONDS = {"cuda": 30, "cpu": 5}           # one more binary: nvcc, g++


class Skip(Exception):
    """a row or a claim that means nothing at a scale, and why"""


class Missing(Skip):
    """what is not there yet"""


def only(ok, value, why):
    if not ok: raise Skip(why)
    return value


def at_scale(flag, value, s, bb):
    """a flag of the paper's scale -> flags of scale s, or Skip"""
    number = lambda: float(value)
    share = lambda of: number() * s[of] / PAPER[of]          # the same multiple of the scale's
    whole = lambda x: str(int(round(x)))
    if flag == "-m":
        return only(value == "60M", [], f"one model at this scale, the row wants {value}")
    if flag in ("-d", "--seq"):  return []                                          # the scale's
    if flag == "--steps":        return ["--steps", whole(share("steps"))]
    if flag == "--lr":           return ["--lr", f"{share('lr'):g}"]
    if flag == "--weight-decay": return ["--weight-decay", f"{number() * s['decay'] / 0.1:g}"]
    if flag == "--total-batch":  # the same multiple of the default
        tokens = int(share("batch"))
        if bb or s["device"] == "cpu":
            return [] if tokens == s["batch"] else ["-b", whole(tokens / s["seq"])]
        return ["--seq", str(s["seq"]), "--total-batch", str(tokens)]
    if flag == "--train-tokens":  # as many epochs
        return ["--train-tokens",
                whole(number() * s["steps"] * s["batch"] / (PAPER["steps"] * PAPER["batch"]))]
    if flag == "--window":  # the same share of T
        return ["--window", whole(max(1, share("seq")))]
    if flag == "--heads":  # the same share of the heads
        heads = share("heads")
        return [flag, whole(only(heads >= 1, heads, f"{s['heads']} head(s) at this scale, "
                                                    f"the row wants {value} of 8"))]
    if flag == "--attn-bias-init": return [flag, f"{-math.log(s['seq']):.6g}"]       # -ln T
    if flag == "--attn-clip":                                                     # as 1 / T
        return [flag, f"{number() * PAPER['seq'] / s['seq']:g}"]
    # the same share of T
    if flag == "--min-context":
        return [flag, whole(share("seq"))]
    if flag == "--prefix":
        return [flag, only(4 * number() <= s["seq"], value,
                           f"a prefix of {value} is over a quarter of T {s['seq']}")]
    if flag == "--k-dims":
        return [flag, only(number() <= s["head_size"], value,
                           f"a head has {s['head_size']} dimensions, not {value}")]
    # id 1 is padding in the paper's tokenizer: it occurs nowhere else. Such a token is <s>,
    # id 256, in bb, and <|endoftext|>, id 0, in the texts
    if flag == "--fix-token" and (bb or "fixed" in s):
        return [flag, value.split(":")[0] + ":" + ("256" if bb else s["fixed"])]
    if flag in ("--fix-token", "--random-token", "--attn-p", "--attn-alpha", "--bias-share",
                "--v-star", "--optimizer"):
        return [flag, value]
    raise Skip(f"no rule for {flag} at this scale")


# rows in whose table a default stands for the value of a swept flag
SWEPT = {"Table 2": ["--weight-decay", "0.1"], "Table 14 right": ["--weight-decay", "0.1"],
         "Beyond the paper: weight decay": ["--weight-decay", "0.1"]}
