R"PYTHON("
"""
modeling_train_sink.py -- a model of train_sink in PyTorch, for transformers:

    AutoModelForCausalLM.from_pretrained(DIRECTORY, trust_remote_code=True)

Every attention, learned bias, position, norm, FFN and gate that train_sink trains. It is written
from the formulas, a line for each, with the whole map of weights: to be read and to be right, not
to be fast. `./train_sink export` puts a copy beside the weights, and refuses a model with a value
that is not in KINDS or a key that is not in ROWS or STRETCH: a new one needs its line there, and
its formula below.

    rows          what config.json says, with what an absent key means
    positions     tables, angles, biases of the scores
    attention     scores, weights, outputs
    the model     layers, cache, loss, generate

Letters: B sequences, T tokens, S keys (those of a cache, too), C channels, NH heads, KV key/value
heads, HS head size. `output_attentions` gives (B, NH, T, S), the weights of the tokens alone; what
a learned key or the sink token gets is in `star_attentions`, (B, NH, T) for each layer.
"""
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Callable, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.configuration_utils import PretrainedConfig
from transformers.modeling_outputs import CausalLMOutputWithPast, ModelOutput

# ---- rows: the object "train_sink" of config.json
# what is one of several names; an absent key means the first
KINDS = dict(
    attn="softmax sigmoid sigmoid_norm elu1 elu1_norm kernel_elu kernel_elu_norm identity "
         "identity_norm mlp mlp_norm softmax_p sigmoid_p softpick softcap softmax_clip relu",
    bias="none sink_token kv k zero logit v",
    pe="rotary nope absolute learnable relative alibi",
    norm="pre post sandwich branch none",
    ffn="swiglu geglu reglu relu gelu swish geglu_tanh gelu_tanh relu2",
    combine="concat sum",
    qknorm="none head all",
    gate="none head elem static value",
    norm_kind="rms ln",
    alibi_slopes="even published",
    bias_share="none heads",
    rope_type="none linear llama3 yarn dynamic longrope")
# the others
ROWS = dict(
    tokenizer="", norm_bias=1, norm_embed=0, parallel=0,
    qkv_bias=0, out_bias=0, ffn_bias=0, head_bias=0, embed_scale=1.0, logit_cap=0.0,
    logit_divisor=1.0, residual_scale=1.0,
    rope_local=0.0, rope_part=1.0, rope_layers="", rope_most=0,
    bias_layers="", k_dims=0, v_star="", attn_p=1.0, attn_clip=0.0, attn_alpha=1.0, attn_bias_init=0.0,
    attn_cap=50.0, score_scale=0.0, prefix=0, window=0, local_layers="",
    seq=0)                                       # of the run that made it, if shorter
# the object "rope_scaling", beside its kind
STRETCH = dict(factor=1.0, original_max_position_embeddings=8192,
               low_freq_factor=1.0, high_freq_factor=4.0, beta_fast=32.0, beta_slow=1.0,
               attention_factor=0.0, truncate=1, short_factor=(), long_factor=())
# what no model here has: older files say these values
NEVER = dict(experts=0, experts_used=0, expert_shares=0, expert_limit=0, router_bias=0,
             expert_layers="", shared_expert=0, attn_layers="", mamba_width=0, mamba_state=0,
             mamba_conv=0, mamba_rank=0, delta_keys=0, delta_values=0, delta_key_size=0,
             delta_value_size=0, delta_conv=0)


def filled(given, defaults, kinds, what):
    """The defaults with what is given in their place. A key or a name that is not known may change
    what the model computes: it is an error."""
    names = {k: KINDS[k].split() for k in kinds}
    defaults = {**defaults, **{k: n[0] for k, n in names.items()}}
    for key, value in given.items():
        known = key in defaults or NEVER.get(key, ...) == value
        if not known:
            raise ValueError(f"config.json: {what}: {key} is not known to this file")
        if key in names and value not in names[key]:
            raise ValueError(f"config.json: {key} is {value}, which is not known to this file; it "
                             f"knows {', '.join(names[key])}")
    return {**defaults, **{k: v for k, v in given.items() if k in defaults}}


class TrainSinkConfig(PretrainedConfig):
    model_type = "train_sink"

    def __init__(self, vocab_size=0, hidden_size=0, num_hidden_layers=0, num_attention_heads=0,
                 num_key_value_heads=0, head_dim=0, intermediate_size=0, rms_norm_eps=1e-5,
                 rope_theta=10000.0, max_position_embeddings=0, tie_word_embeddings=False,
                 train_sink=None, rope_scaling=None, **others):
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.num_key_value_heads = num_key_value_heads or num_attention_heads
        self.head_dim = head_dim or hidden_size // max(num_attention_heads, 1)
        self.intermediate_size, self.rms_norm_eps = intermediate_size, rms_norm_eps
        self.rope_theta, self.max_position_embeddings = rope_theta, max_position_embeddings
        self.train_sink = dict(train_sink or {})
        # transformers gives rope_scaling a meaning of its own
        self.rope_stretch = dict(rope_scaling or others.pop("rope_stretch", None) or {})
        super().__init__(tie_word_embeddings=bool(tie_word_embeddings), **others)

    def to_dict(self):
        out = super().to_dict()
        stretch = out.pop("rope_stretch", None)
        if stretch:
            out["rope_scaling"] = stretch
        return out

    def rows(self):
        """All of it by short names: c.attn, c.window, c.HS."""
        mine = [k for k in KINDS if k != "rope_type"]
        c = SimpleNamespace(**filled(self.train_sink, ROWS, mine, "train_sink"))
        c.stretch = SimpleNamespace(**filled(self.rope_stretch, STRETCH, ["rope_type"],
                                             "rope_scaling"))
        c.C, c.L, c.V = self.hidden_size, self.num_hidden_layers, self.vocab_size
        c.NH, c.KV, c.HS = self.num_attention_heads, self.num_key_value_heads, self.head_dim
        c.F, c.T, c.eps = self.intermediate_size, self.max_position_embeddings, self.rms_norm_eps
        c.base = self.rope_theta
        c.operation, c.star = ATTN[c.attn], BIAS[c.bias]
        c.token, c.extra = c.star.token, c.star.extra
        return c


def in_pattern(pattern, layer):
    """The value for a layer of a pattern such as 1110, which repeats; an empty one says 1."""
    return not pattern or pattern[layer % len(pattern)] == "1"


# ---- positions
def sinusoids(positions, C):
    """Eq. 5, all sines before all cosines: (B, T, C)."""
    angle = positions[..., None].double()
    angle = angle * 10000.0 ** (-2 * torch.arange(C // 2, device=positions.device).double() / C)
    return torch.cat([angle.sin(), angle.cos()], -1)


def bucket(distance):
    """Eq. 6: up to 15 as it is, then 16 buckets whose width grows by equal factors, up to 128."""
    far = 16 + (distance.clamp(min=16) / 16.0).log() / math.log(8.0) * 16
    return torch.where(distance < 16, distance.clamp(min=0), far.long().clamp(max=31))


def frequencies(c, base, stretched, device):
    """What each pair of channels turns by per position, and the length of what has turned."""
    turning = int(c.HS * c.rope_part) // 2 * 2
    pair = torch.arange(turning // 2, device=device).double()
    theta, r = base ** (-2 * pair / turning), c.stretch
    if not stretched or r.rope_type == "none":
        return theta, 1.0
    slow = theta / r.factor
    if r.rope_type == "linear":
        return slow, 1.0
    context = r.original_max_position_embeddings
    if r.rope_type == "llama3":
        turns = context * theta / (2 * math.pi)
        keep = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor)
        keep = keep.clamp(0, 1)
        return keep * theta + (1 - keep) * slow, 1.0
    if r.rope_type == "dynamic":
        return theta, 1.0                                  # up to the context that was trained
    if r.rope_type == "longrope":
        divisors = torch.tensor(r.short_factor, device=device).double()
        grown = math.sqrt(1 + math.log(r.factor) / math.log(context)) if r.factor > 1 else 1.0
        return theta / divisors, r.attention_factor or grown
    # yarn: the pair that makes `turns` turns in the context
    pair_of = lambda turns: turning * math.log(context / (2 * math.pi * turns)) / 2 / math.log(base)
    low, high = pair_of(r.beta_fast), pair_of(r.beta_slow)
    if r.truncate:
        low, high = math.floor(low), math.ceil(high)
    low = max(low, 0)
    high = max(min(high, turning - 1), low + 0.001)
    share = ((pair - low) / (high - low)).clamp(0, 1)
    grown = 0.1 * math.log(r.factor) + 1 if r.factor > 1 else 1.0
    return share * slow + (1 - share) * theta, r.attention_factor or grown


def reach_check(c, positions):
    """These two have other angles for a longer text, which are not computed here."""
    by_length = c.stretch.rope_type in ("dynamic", "longrope")
    most = c.rope_most or (c.stretch.original_max_position_embeddings if by_length else 0)
    if most and int(positions.max()) >= most:
        raise ValueError(f"position {int(positions.max())}: this model is computed up to {most}")


def turn(x, positions, theta, length):
    """x (B, H, T, HS): channels i and i + half turn as a pair; those after the pairs stay."""
    half = len(theta)
    angle = positions[:, None, :, None].double() * theta
    cos, sin = (length * angle.cos()).to(x.dtype), (length * angle.sin()).to(x.dtype)
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


def score_bias(c, distance):
    """What the position adds to the scores, from distance (B, T, S): (B, NH or 1, T, S)."""
    if c.pe == "relative":
        return bucket(distance)[:, None].float()
    if c.pe == "alibi":
        n = c.NH if c.alibi_slopes == "even" else 2 ** int(math.log2(c.NH))
        head = torch.arange(1, c.NH + 1, device=distance.device).float()
        slope = 2 ** (-8 * torch.where(head <= n, head, head - n - 0.5) / n)
        return -slope[:, None, None] * distance.clamp(min=0)[:, None].float()
    return torch.zeros((), device=distance.device)


# ---- attention
def softmax(c, s, seen):
    return s.masked_fill(~seen, -math.inf).softmax(-1)


def softmax_p(c, s, seen):
    s = s.masked_fill(~seen, -math.inf)
    w = (s - s.amax(-1, keepdim=True)).exp()
    return w / (w ** c.attn_p).sum(-1, keepdim=True) ** (1 / c.attn_p)


def softmax_clip(c, s, seen):
    A = c.attn_alpha * softmax(c, s, seen)
    return ((1 + c.attn_clip) * A - c.attn_clip).relu() / c.attn_alpha


def softpick(c, s, seen):
    """relu(e^s - 1) / (sum |e^s - 1| + 1e-6), numerator and sum over e^m"""
    m = s.masked_fill(~seen, 0).amax(-1, keepdim=True).clamp(min=0)
    w = ((s - m).exp() - (-m).exp()).masked_fill(~seen, 0)
    return w.relu() / (w.abs().sum(-1, keepdim=True) + 1e-6 * (-m).exp())


def relu(c, s, seen):
    """relu(s) over the tokens that a query sees"""
    tokens = seen[..., 1:] if c.extra else seen
    return s.relu().masked_fill(~seen, 0) / tokens.sum(-1, keepdim=True)


def over(Z, f):
    """The operation f(s) / Z: Z is a function of the weights of a row."""
    def rows(c, s, seen):
        w = f(s).masked_fill(~seen, 0)
        return w / Z(c, w)
    return rows


def one(c, w):
    return 1


def total(c, w):
    return w.sum(-1, keepdim=True) + 1e-8


def at_least_1(c, w):
    return w.sum(-1, keepdim=True).abs().clamp(min=1)


def p_norm(c, w):
    least = max(math.exp(-87 / c.attn_p), 1e-37)           # w^p is 0 before w is
    return ((w ** c.attn_p).sum(-1, keepdim=True) ** (1 / c.attn_p)).clamp(min=least)


def elu1(x):
    return F.elu(x) + 1


def itself(x):
    return x


class Operation(NamedTuple):
    rows: Callable               # scores (B, NH, T, S), which of them count -> A / alpha
    kernel: str = ""             # what q and k go through first
    capped: bool = False


class Bias(NamedTuple):
    extra: str = ""              # the place that is no token's: its score is of a key, or a logit
    learn_k: bool = False
    learn_v: bool = False
    add_v: bool = False          # v* in every output
    token: bool = False          # a row before every sequence


ATTN = dict(
    softmax=Operation(softmax),
    sigmoid=Operation(over(one, torch.sigmoid)),
    sigmoid_norm=Operation(over(total, torch.sigmoid)),
    elu1=Operation(over(one, elu1)),
    elu1_norm=Operation(over(total, elu1)),
    kernel_elu=Operation(over(one, itself), "elu"),
    kernel_elu_norm=Operation(over(total, itself), "elu"),
    identity=Operation(over(one, itself)),
    identity_norm=Operation(over(at_least_1, itself)),
    mlp=Operation(over(one, itself), "mlp"),
    mlp_norm=Operation(over(at_least_1, itself), "mlp"),
    softmax_p=Operation(softmax_p),
    sigmoid_p=Operation(over(p_norm, torch.sigmoid)),
    softpick=Operation(softpick),
    softcap=Operation(softmax, capped=True),
    softmax_clip=Operation(softmax_clip),
    relu=Operation(relu))
BIAS = dict(
    none=Bias(),
    sink_token=Bias(token=True),
    kv=Bias("key", learn_k=True, learn_v=True),
    k=Bias("key", learn_k=True),
    zero=Bias("key"),
    logit=Bias("logit", learn_k=True),
    v=Bias(add_v=True))


class Norm(nn.Module):
    """RMSNorm, or a LayerNorm with or without its bias."""

    def __init__(self, size, eps, kind="rms", bias=True):
        super().__init__()
        self.eps, self.kind = eps, kind
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size)) if kind == "ln" and bias else None

    def forward(self, x):
        y = x.float()
        if self.kind == "ln":
            y = y - y.mean(-1, keepdim=True)
        y = y * (y.pow(2).mean(-1, keepdim=True) + self.eps).rsqrt()
        y = y * self.weight.float()
        if self.bias is not None:
            y = y + self.bias.float()
        return y.to(x.dtype)


def norm_of(c):
    """A norm of the stream."""
    return Norm(c.C, c.eps, c.norm_kind, c.norm_bias)


class Attention(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.c, self.layer = c, layer
        self.local = bool(c.window) and in_pattern(c.local_layers, layer)
        self.biased = in_pattern(c.bias_layers, layer)
        self.q_proj = nn.Linear(c.C, c.NH * c.HS, bias=bool(c.qkv_bias))
        self.k_proj = nn.Linear(c.C, c.KV * c.HS, bias=bool(c.qkv_bias))
        self.v_proj = nn.Linear(c.C, c.KV * c.HS, bias=bool(c.qkv_bias))
        together = c.HS if c.combine == "sum" else c.NH * c.HS
        self.o_proj = nn.Linear(together, c.C, bias=bool(c.out_bias))
        if c.qknorm != "none":
            every = c.qknorm == "all"
            self.q_norm = Norm(c.HS * (c.NH if every else 1), c.eps)
            self.k_norm = Norm(c.HS * (c.KV if every else 1), c.eps)
        gates = dict(head=c.NH, elem=c.NH * c.HS, value=c.KV * c.HS)
        if c.gate in gates:
            self.gate_proj = nn.Linear(c.C, gates[c.gate], bias=False)
        if c.gate == "static":
            self.gate = nn.Parameter(torch.zeros(c.NH * c.HS))
        if c.operation.kernel == "mlp":
            self.phi_fc1 = nn.Linear(c.HS, c.HS, bias=False)
            self.phi_fc2 = nn.Linear(c.HS, c.HS, bias=False)
        shared = c.bias_share == "heads"
        if c.extra == "logit" and self.biased:
            self.sinks = nn.Parameter(torch.zeros(c.NH))
        elif c.star.learn_k and self.biased:
            self.k_star = nn.Parameter(torch.zeros(1 if shared else c.KV, c.HS))
        if (c.star.learn_v or c.star.add_v) and self.biased:
            heads = c.NH if c.star.add_v else c.KV
            self.v_star = nn.Parameter(torch.zeros(1 if shared else heads, c.HS))

    def prepared(self, x, positions):
        """q, k, v of x (B, T, C), (B, heads, T, HS): normed, turned, through the kernel."""
        c = self.c
        heads = lambda z: z.view(*z.shape[:2], -1, c.HS).transpose(1, 2)
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if c.gate == "value":
            v = v * self.gate_proj(x).float().sigmoid().to(x.dtype)
        v = heads(v)
        if c.qknorm == "all":
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = heads(q), heads(k)
        if c.qknorm == "head":
            q, k = self.q_norm(q), self.k_norm(k)
        if c.pe == "rotary" and in_pattern(c.rope_layers, self.layer):
            other = self.local and c.rope_local > 0
            base = c.rope_local if other else c.base
            reach_check(c, positions)
            theta, length = frequencies(c, base, not other, x.device)
            q, k = turn(q, positions, theta, length), turn(k, positions, theta, length)
        if c.operation.kernel == "elu":
            q, k = elu1(q), elu1(k)
        if c.operation.kernel == "mlp":
            q, k = (self.phi_fc2(self.phi_fc1(z).relu()) for z in (q, k))
        return q, k, v

    def extra_key(self, q, scale):
        """The scores (B, NH, T, 1) of the place that is no token's, and its value (NH, 1, HS)."""
        c = self.c
        value = torch.zeros(c.NH, 1, c.HS, device=q.device)
        if not self.biased:                      # a place that is not seen
            return q[..., :1].float() * 0, value
        if c.extra == "logit":
            return self.sinks.float()[:, None, None].expand(*q.shape[:3], 1), value
        per_head = lambda z: z.float().repeat_interleave(c.NH // len(z), 0)
        key = torch.zeros(c.NH, c.HS, device=q.device)
        if c.star.learn_k:
            learned = torch.arange(c.HS, device=q.device) < (c.k_dims or c.HS)
            key = per_head(self.k_star) * learned
        if c.star.learn_v:
            value = per_head(self.v_star)[:, None]
        elif c.v_star:                           # Table 5: a fixed one, of this norm
            kind, norm = c.v_star.split(":")
            fixed = torch.zeros(c.HS, device=q.device)
            if kind == "ones":
                fixed += float(norm) / math.sqrt(c.HS)
            else:
                fixed[0] = float(norm)
            value = fixed.expand(c.NH, 1, c.HS)
        return (q.float() @ key[:, :, None]) * scale, value

    def forward(self, x, place, cache):
        c = self.c
        q, k, v = self.prepared(x, place.query)
        if cache is not None:
            k, v = cache.update(k, v, self.layer)
        k, v = (z.repeat_interleave(c.NH // c.KV, 1) for z in (k, v))
        scale = c.score_scale or c.HS ** -0.5
        s = q.float() @ k.float().transpose(-1, -2) * scale + score_bias(c, place.distance)
        s = s + c.attn_bias_init
        seen = place.local if self.local else place.full
        seen = seen[:, None].expand(-1, c.NH, -1, -1)
        v = v.float()
        if c.extra == "key":
            z, value = self.extra_key(q, scale)
            s = torch.cat([z, s], -1)
        if c.operation.capped:                   # of q.k; a learned logit is no such score
            s = c.attn_cap * torch.tanh(s / c.attn_cap)
        if c.extra == "logit":
            z, value = self.extra_key(q, scale)
            s = torch.cat([z, s], -1)
        if c.extra:
            seen = F.pad(seen, (1, 0), value=self.biased)
            v = torch.cat([value.expand(len(v), -1, -1, -1), v], 2)
        A = c.attn_alpha * c.operation.rows(c, s, seen)
        o = (A @ v).to(x.dtype)
        if c.gate in ("head", "elem", "static"):
            g = self.gate.expand(*x.shape[:2], -1) if c.gate == "static" else self.gate_proj(x)
            g = g.float().sigmoid().to(x.dtype)
            o = o * g.view(*g.shape[:2], c.NH, -1).transpose(1, 2)
        if c.star.add_v and self.biased:
            o = o + self.v_star[:, None]
        o = o.sum(1) if c.combine == "sum" else o.transpose(1, 2).flatten(2)
        return self.o_proj(o), A


class FFN(nn.Module):
    ACTS = dict(relu=F.relu, gelu=F.gelu, swish=F.silu, relu2=lambda x: F.relu(x).square(),
                gelu_tanh=lambda x: F.gelu(x, approximate="tanh"))
    GATED = dict(swiglu="swish", geglu="gelu", reglu="relu", geglu_tanh="gelu_tanh")

    def __init__(self, c):
        super().__init__()
        self.gated = c.ffn in self.GATED
        self.act = self.ACTS[self.GATED.get(c.ffn, c.ffn)]
        if self.gated:
            self.gate_proj = nn.Linear(c.C, c.F, bias=bool(c.ffn_bias))
        self.up_proj = nn.Linear(c.C, c.F, bias=bool(c.ffn_bias))
        self.down_proj = nn.Linear(c.F, c.C, bias=bool(c.ffn_bias))

    def forward(self, x):
        up = self.up_proj(x)
        return self.down_proj(self.act(self.gate_proj(x)) * up if self.gated else self.act(up))


class Layer(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.c = c
        self.self_attn, self.mlp = Attention(c, layer), FFN(c)
        norm = lambda there: norm_of(c) if there else nn.Identity()
        before, after = c.norm in ("pre", "sandwich"), c.norm not in ("pre", "none")
        self.input_layernorm = norm(before)
        # LLaMA's name of the norm before the FFN is, in models with norms after, that after
        # attention
        self.post_attention_layernorm = norm(before or after)
        self.pre_feedforward_layernorm = norm(before and after)
        self.post_feedforward_layernorm = norm(after)

    def forward(self, x, place, cache):
        c = self.c
        o, A = self.self_attn(self.input_layernorm(x), place, cache)
        if c.norm == "pre":                      # Eq. 2
            after = x + c.residual_scale * o
            read = self.post_attention_layernorm(x if c.parallel else after)
            return after + c.residual_scale * self.mlp(read), A
        if c.norm == "post":                     # Eq. 3
            x = self.post_attention_layernorm(x + o)
            return self.post_feedforward_layernorm(x + self.mlp(x)), A
        x = x + self.post_attention_layernorm(o)           # a norm that is not there changes nothing
        y = self.mlp(self.pre_feedforward_layernorm(x))
        return x + self.post_feedforward_layernorm(y), A


# ---- the model
CACHE = "cache" if hasattr(CausalLMOutputWithPast(), "cache") else "past_key_values"


@dataclass
class TrainSinkOutput(ModelOutput):
    loss: torch.Tensor = None
    logits: torch.Tensor = None
    cache: object = None
    past_key_values: object = None               # its name before transformers 5.20
    last_hidden_state: torch.Tensor = None
    hidden_states: tuple = None                  # L + 1, the last after the final norm
    attentions: tuple = None
    star_attentions: tuple = None


class TrainSinkPreTrainedModel(PreTrainedModel):
    config_class = TrainSinkConfig
    base_model_prefix = "model"
    _no_split_modules = ["Layer"]
    _supports_sdpa = _supports_flash_attn = _supports_flash_attn_2 = False

    def _init_weights(self, module):
        """As train_sink begins: N(0, 2 / (5 fan_in)); what leaves the FFN 1 / fan_in / L^2."""
        if isinstance(module, nn.Linear):
            std = math.sqrt(0.4 / module.in_features)
            nn.init.normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=math.sqrt(0.4 / module.embedding_dim))
        if isinstance(module, Norm):
            nn.init.ones_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, FFN):
            deep = self.config.num_hidden_layers * math.sqrt(module.down_proj.in_features)
            nn.init.normal_(module.down_proj.weight, std=1 / deep)
        for name in ("k_star", "v_star", "sink_token"):
            if isinstance(getattr(module, name, None), nn.Parameter):
                nn.init.normal_(getattr(module, name), std=0.02)


class TrainSinkModel(TrainSinkPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.c = c = config.rows()
        self.embed_tokens = nn.Embedding(c.V, c.C)
        if c.pe == "learnable":
            self.embed_positions = nn.Embedding(c.T + c.token, c.C)
        if c.token:
            self.sink_token = nn.Parameter(torch.zeros(c.C))
        if c.norm_embed:
            self.embed_norm = norm_of(c)
        self.layers = nn.ModuleList(Layer(c, n) for n in range(c.L))
        if c.norm != "post":
            self.norm = norm_of(c)
        self.post_init()

    def get_input_embeddings(self):
        return self.embed_tokens

    def set_input_embeddings(self, value):
        self.embed_tokens = value

    def places(self, B, rows, past, mask, given, device):
        """Where the rows are, and what they see: `rows` of them after `past` in the cache, the sink
        token among either. mask (B, all tokens): 0 where a batch is padded."""
        c, S = self.c, past + rows
        tokens = S - c.token
        if mask is None:
            mask = torch.ones(B, tokens, device=device)
        if mask.dim() != 2 or mask.shape[1] != tokens:
            raise ValueError(f"attention_mask: got {tuple(mask.shape)}, wanted {(B, tokens)}")
        there = F.pad(mask.bool().to(device), (int(c.token), 0), value=True)
        at = (there.long().cumsum(-1) - 1).clamp(min=0)
        query = at[:, past:]
        if given is not None:
            n = min(given.shape[-1], rows)
            same = (given[..., -n:] + c.token == query[:, -n:]) | ~there[:, -n:]
            if not bool(same.all()):
                raise ValueError("position_ids: wanted those that follow from attention_mask")
        prefix = c.prefix + c.token if c.prefix else 0
        if prefix and past and int(there[:, :past].sum(-1).min()) < prefix:
            raise ValueError("a prefix sees itself from end to end: read it in one call")
        distance = query[:, :, None] - at[:, None, :]
        index = torch.arange(S, device=device)
        row = index[past:, None]
        causal = (index[None, :] <= row) & there[:, None, :]
        front = (at < prefix)[:, None, :] & there[:, None, :]
        itself = index[None, :] == row           # so that a row of padding sees something
        return SimpleNamespace(query=query, distance=distance, full=causal | front | itself,
                               local=causal & (distance < c.window) | front | itself)

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, cache=None,
                past_key_values=None, inputs_embeds=None, use_cache=None, output_attentions=None,
                output_hidden_states=None, return_dict=None, **others):
        c = self.c
        cache = cache if cache is not None else past_key_values
        if use_cache and cache is None:
            cache = DynamicCache()
        past = cache.get_seq_length() if cache is not None else 0
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        x = x * c.embed_scale
        first = c.token and past == 0
        if first:
            x = torch.cat([self.sink_token.to(x.dtype).expand(len(x), 1, -1), x], 1)
        place = self.places(len(x), x.shape[1], past, attention_mask, position_ids, x.device)
        if c.pe == "learnable":
            x = x + self.embed_positions(place.query)
        if c.pe == "absolute":
            x = x + sinusoids(place.query, c.C).to(x.dtype)
        if c.norm_embed:
            x = self.embed_norm(x)
        states, maps = [x], []
        for layer in self.layers:
            x, A = layer(x, place, cache)
            states.append(x)
            maps.append(A)
        if c.norm != "post":
            x = states[-1] = self.norm(x)
        skip, real = int(first), int(c.token or bool(c.extra))  # rows, columns that are no token's
        out = TrainSinkOutput(last_hidden_state=x[:, skip:])
        if cache is not None:
            out[CACHE] = cache
        if output_hidden_states or getattr(self.config, "output_hidden_states", False):
            out.hidden_states = tuple(h[:, skip:] for h in states)
        if output_attentions or getattr(self.config, "output_attentions", False):
            out.attentions = tuple(A[:, :, skip:, real:] for A in maps)
            if real:
                out.star_attentions = tuple(A[:, :, skip:, 0] for A in maps)
        return out if return_dict is not False else out.to_tuple()


class TrainSinkForCausalLM(TrainSinkPreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = TrainSinkModel(config)
        c = self.model.c
        self.lm_head = nn.Linear(c.C, c.V, bias=bool(c.head_bias))
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head

    def set_output_embeddings(self, value):
        self.lm_head = value

    def forward(self, input_ids=None, labels=None, logits_to_keep=0, return_dict=None,
                num_items_in_batch=None, **others):
        """labels as everywhere in transformers: the input_ids, -100 where there is no loss. With a
        prefix the loss begins after it."""
        c = self.model.c
        out = self.model(input_ids, **others)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(out.last_hidden_state[:, keep] / c.logit_divisor).float()
        if c.logit_cap:
            logits = c.logit_cap * torch.tanh(logits / c.logit_cap)
        out.logits = logits
        if labels is not None:
            targets = labels[:, 1:].clone()
            targets[:, :max(c.prefix - 1, 0)] = -100
            total = F.cross_entropy(logits[:, :-1].transpose(1, 2), targets.to(logits.device),
                                    ignore_index=-100, reduction="sum")
            out.loss = total / (num_items_in_batch or (targets != -100).sum())
        return out if return_dict is not False else out.to_tuple()

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, cache=None,
                                      past_key_values=None, use_cache=True, inputs_embeds=None,
                                      **others):
        c = self.model.c
        cache = cache if cache is not None else past_key_values
        there = input_ids.shape[1] if attention_mask is None else int(attention_mask.sum(-1).min())
        if cache is None or use_cache is False or there < c.prefix:      # a prefix changes as a
            cache, use_cache = None, False                               # whole until it is there
        past = cache.get_seq_length() if cache is not None else 0
        given = dict(attention_mask=attention_mask, cache=cache, use_cache=use_cache)
        if inputs_embeds is not None and input_ids.shape[1] == 0:
            return dict(given, inputs_embeds=inputs_embeds)
        return dict(given, input_ids=input_ids[:, max(past - c.token, 0):])
# )PYTHON"
