"""
model.py -- the model family of "When Attention Sink Emerges in Language Models" (Gu et al. 2024)
in PyTorch float64, written from the paper's formulas, one line per formula, T x T maps and all.
It is the witness the C++ reference is compared with, so it shares no code and no trick with it:
gradients come from autograd.

To add a variant: one branch in `attention` (or `ffn`), its weights in `shapes`, a row in cases.tsv.

Letters: B batch, T tokens, C width, NH heads, KV key/value heads, HS head size, F FFN width,
L layers, V vocabulary.
"""
import math
import numpy as np
import torch
import torch.nn.functional as fn

SWITCHES = dict(ATTN="softmax", BIAS="none", PE="rotary", NORM="pre", FFN="swiglu",
                COMBINE="concat", QKNORM="none", GATE="none")
gelu_tanh = lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
# fn.gelu is the erf form
GLU = {"swiglu": fn.silu, "geglu": fn.gelu, "reglu": torch.relu, "geglu_tanh": gelu_tanh}
ACT = {"swish": fn.silu, "gelu": fn.gelu, "relu": torch.relu, "gelu_tanh": gelu_tanh,
       "relu2": lambda x: torch.relu(x)**2}
# by construction, if alpha = 1
SUMS_TO_ONE = ("softmax", "softcap", "sigmoid_norm", "elu1_norm", "kernel_elu_norm")
UNNORMED = ("sigmoid", "elu1", "kernel_elu", "identity", "mlp", "relu")

# ----------------------------------------------------------------------------
# weights: every element follows from the tensor's name, so fixtures need not store them

def uniforms(name, n):
    """n numbers of [0, 1): splitmix64 whose first state is FNV-1a-64 of the name"""
    state, mask = 0xCBF29CE484222325, 2**64 - 1
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 & mask
    out = np.empty(n)
    for i in range(n):
        state = state + 0x9E3779B97F4A7C15 & mask
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        out[i] = ((z ^ z >> 31) >> 11) * 2.0**-53
    return out

def norms_of(c):
    """our names of the norms of a layer, by place: before and after attention,
    before and after the FFN"""
    ffn_in = "pre_feedforward_layernorm" if c.NORM == "sandwich" else "post_attention_layernorm"
    places = dict(attn_in="input_layernorm", attn_out="post_attention_layernorm", ffn_in=ffn_in,
                  ffn_out="post_feedforward_layernorm")
    wanted = {"pre": ("attn_in", "ffn_in"), "sandwich": tuple(places), "none": ()}
    return {place: places[place] for place in wanted.get(c.NORM, ("attn_out", "ffn_out"))}

def biased(c, n):
    """has layer n what BIAS adds to a layer?"""
    return not c.bias_layers or c.bias_layers[n % len(c.bias_layers)] == "1"

def shapes(c):
    """name -> shape of every parameter; c holds the switches and the flags"""
    HS, s = c.head_dim or c.width // c.heads, {}
    rows = dict(none=c.heads if c.BIAS == "v" else c.kv_heads, heads=1)[c.bias_share]
    OC = HS if c.COMBINE == "sum" else c.heads * HS
    def linear(name, rows, columns, bias):
        s[name + ".weight"] = (rows, columns)
        if bias:
            s[name + ".bias"] = (rows,)
    def norm(name):
        s[name + ".weight"] = (c.width,)
        if c.norm_kind == "ln" and c.norm_bias:
            s[name + ".bias"] = (c.width,)
    s["model.embed_tokens.weight"] = (c.vocab, c.width)
    if c.PE == "learnable":
        s["model.embed_positions.weight"] = (c.seq + (c.BIAS == "sink_token"), c.width)
    if c.BIAS == "sink_token":
        s["model.sink_token"] = (c.width,)
    if c.norm_embed:
        norm("model.embed_norm")
    for n in range(c.layers):
        layer = f"model.layers.{n}."
        at, mlp = layer + "self_attn.", layer + "mlp."
        for name in norms_of(c).values():
            norm(layer + name)
        linear(at + "q_proj", c.heads * HS, c.width, c.qkv_bias)
        linear(at + "k_proj", c.kv_heads * HS, c.width, c.qkv_bias)
        linear(at + "v_proj", c.kv_heads * HS, c.width, c.qkv_bias)
        linear(at + "o_proj", c.width, OC, c.out_bias)
        if c.QKNORM != "none":
            s[at + "q_norm.weight"] = (HS * (c.heads if c.QKNORM == "all" else 1),)
            s[at + "k_norm.weight"] = (HS * (c.kv_heads if c.QKNORM == "all" else 1),)
        if c.GATE == "static":
            s[at + "gate"] = (c.heads * HS,)
        elif c.GATE != "none":
            gates = {"head": c.heads, "elem": c.heads * HS, "value": c.kv_heads * HS}[c.GATE]
            s[at + "gate_proj.weight"] = (gates, c.width)
        if c.BIAS == "logit" and biased(c, n):
            s[at + "sinks"] = (c.heads,)
        if c.BIAS in ("k", "kv") and biased(c, n):
            s[at + "k_star"] = (rows, HS)
        if c.BIAS in ("v", "kv") and biased(c, n):
            s[at + "v_star"] = (rows, HS)
        if c.ATTN.startswith("mlp"):
            s[at + "phi_fc1.weight"] = s[at + "phi_fc2.weight"] = (HS, HS)
        if c.FFN in GLU:
            linear(mlp + "gate_proj", c.ffn_width, c.width, c.ffn_bias)
        linear(mlp + "up_proj", c.ffn_width, c.width, c.ffn_bias)
        linear(mlp + "down_proj", c.width, c.ffn_width, c.ffn_bias)
    if c.NORM != "post":
        norm("model.norm")
    if not c.tied:
        s["lm_head.weight"] = (c.vocab, c.width)
    if c.head_bias:
        s["lm_head.bias"] = (c.vocab,)
    return s

def weights(c, dtype=torch.float64):
    p = {}
    for name, shape in shapes(c).items():
        u = 2 * uniforms(name, math.prod(shape)) - 1
        w = 1 + 0.2 * u if name.endswith("norm.weight") else 0.5 * u
        w = w.astype(np.float32).reshape(shape)
        if name.endswith("k_star") and c.k_dims:
            w[:, c.k_dims:] = 0
        p[name] = torch.tensor(w, dtype=dtype, requires_grad=True)
    return p

def tokens(c):
    u = uniforms("tokens", c.batch * (c.seq + 1)).reshape(c.batch, c.seq + 1)
    return torch.tensor(np.floor(u * c.vocab).astype(np.int64))

# ----------------------------------------------------------------------------
# positions: functions of t (position, 0 first) or of the distance d = t - j

def absolute_rows(T, C):
    angle = torch.arange(T).double()[:, None] * 10000.0 ** (-2 * torch.arange(C // 2).double() / C)
    return torch.cat([angle.sin(), angle.cos()], 1)

def inverse_frequencies(c, base, scaled):
    """theta_i of the rot / 2 pairs, and the length of the turned vectors (notation of the papers
    and of Meta's code)"""
    HS = c.head_dim or c.width // c.heads
    rot = int(HS * c.rope_part) // 2 * 2
    theta = base ** (-2 * torch.arange(rot // 2).double() / rot)
    kind, factor, L0 = c.rope_scaling if scaled else "none", c.rope_factor, c.rope_context
    if kind == "linear":
        return theta / factor, 1.0
    # wavelengths above L0 / low are stretched, below L0 / high kept, between blended
    if kind == "llama3":
        wave = 2 * math.pi / theta
        smooth = (L0 / wave - c.rope_low) / (c.rope_high - c.rope_low)
        blend = (1 - smooth) * theta / factor + smooth * theta
        out = torch.where(wave > L0 / c.rope_low, theta / factor,
                          torch.where(wave < L0 / c.rope_high, theta, blend))
        return out, 1.0
    if kind == "yarn":
        dim = lambda turns: rot * math.log(L0 / (turns * 2 * math.pi)) / (2 * math.log(base))
        low, high = dim(c.rope_fast), dim(c.rope_slow)
        if c.rope_round:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rot - 1)
        ramp = ((torch.arange(rot // 2).double() - low) / max(high - low, 0.001)).clamp(0, 1)
        length = c.rope_length or 0.1 * math.log(factor) + 1
        return theta / factor * ramp + theta * (1 - ramp), length
    return theta, 1.0

def rotary(c, x, n):
    """x (.., T, HS) of layer n: the pair (i, i + rot/2) of the first rot channels
    turns by t theta_i"""
    if c.rope_layers and c.rope_layers[n % len(c.rope_layers)] == "0":
        return x
    local = local_layer(c, n) and c.rope_local
    theta, length = inverse_frequencies(c, c.rope_local if local else c.rope_base, not local)
    half = len(theta)
    angle = torch.arange(x.shape[-2]).double()[:, None] * theta
    cos, sin = (length * angle.cos()).to(x.dtype), (length * angle.sin()).to(x.dtype)
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

def local_layer(c, n):
    """has layer n the window?"""
    return bool(c.window) and (not c.local_layers or c.local_layers[n % len(c.local_layers)] == "1")

def relative_bucket(d, buckets=32, farthest=128):
    """Eq. 6, with the floor around the product as in T5 (as printed, all of 16..127
    would share one bucket)"""
    half = buckets // 2
    if d < half:
        return max(d, 0)    # d < 0: a prefix key ahead of its query
    return min(half + math.floor(math.log(d / half) / math.log(farthest / half) * half),
               buckets - 1)

def score_bias(c, T):
    """g(t - j), (NH, T, T) or 0"""
    d = torch.arange(T)[:, None] - torch.arange(T)[None, :]
    if c.PE == "alibi":     # Eq. 7
        slope = 2.0 ** (-8 * torch.arange(1, c.heads + 1).double() / c.heads)
        # a prefix key ahead of its query counts as near
        return -slope[:, None, None] * d.clamp(min=0)
    if c.PE == "relative":
        return torch.tensor([[relative_bucket(x) for x in row] for row in d.tolist()]).double()
    return torch.zeros(())

# ----------------------------------------------------------------------------
# the block

def rmsnorm(c, x, g):
    return x / (x.pow(2).mean(-1, keepdim=True) + c.norm_eps).sqrt() * g

def norm(c, p, name, x):
    """p holds name.weight and, of most LayerNorms, name.bias"""
    if c.norm_kind == "rms":
        return rmsnorm(c, x, p[name + ".weight"])
    centered = x - x.mean(-1, keepdim=True)
    return (centered / (centered.pow(2).mean(-1, keepdim=True) + c.norm_eps).sqrt()
            * p[name + ".weight"] + p.get(name + ".bias", 0))

def linear(p, name, x):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y

def visible(c, T, n):
    t, j = torch.arange(T)[:, None], torch.arange(T)[None, :]
    seen = j <= t
    if local_layer(c, n):
        seen = seen & (j > t - c.window)
    return seen | (j < c.prefix)

def attention(c, p, x, n):
    """x (B, T, C) -> output (B, T, C) and what the metrics need. Column 0 of the map
    is k* if there is one."""
    B, T, C = x.shape
    NH, KV, HS = c.heads, c.kv_heads, c.head_dim or c.width // c.heads
    scale = c.score_scale or 1 / math.sqrt(HS)
    split = lambda z: z.view(B, T, -1, HS).transpose(1, 2)
    q, k, v = (linear(p, name + "_proj", x) for name in "qkv")
    bias = c.BIAS if biased(c, n) else "none"
    if c.GATE == "value":
        v = v * torch.sigmoid(linear(p, "gate_proj", x))
    if c.QKNORM == "all":
        q, k = rmsnorm(c, q, p["q_norm.weight"]), rmsnorm(c, k, p["k_norm.weight"])
    q, k, v = split(q), split(k), split(v)
    if c.QKNORM == "head":
        q, k = rmsnorm(c, q, p["q_norm.weight"]), rmsnorm(c, k, p["k_norm.weight"])
    if c.PE == "rotary":
        q, k = rotary(c, q, n), rotary(c, k, n)
    if c.ATTN.startswith("kernel_elu"):
        q, k = fn.elu(q) + 1, fn.elu(k) + 1
    if c.ATTN.startswith("mlp"):
        q, k = (torch.relu(z @ p["phi_fc1.weight"].T) @ p["phi_fc2.weight"].T for z in (q, k))
    norms = k.norm(dim=-1).mean(1), v.norm(dim=-1).mean(1)                # (B, T), heads averaged
    # query head h uses kv head h / (NH/KV)
    k, v = (z.repeat_interleave(NH // KV, 1) for z in (k, v))

    s = q @ k.transpose(-1, -2) * scale + score_bias(c, T).to(x.dtype)
    seen = visible(c, T, n)
    s = s + c.attn_bias_init
    if bias in ("k", "kv"):
        per_head = lambda z: z.repeat_interleave(NH // z.shape[0], 0)[:, None, :].expand(NH, 1, HS)
        keep = torch.arange(HS) < (c.k_dims or HS)
        s = torch.cat([q @ per_head(p["k_star"] * keep).transpose(-1, -2) * scale, s], -1)
        seen = torch.cat([torch.ones(T, 1, dtype=torch.bool), seen], 1)
        if bias == "kv":
            v_star = per_head(p["v_star"])
        else:
            kind, norm = (c.v_star or "ones:0").split(":")
            v_star = torch.ones(HS) / math.sqrt(HS) if kind == "ones" else torch.eye(HS)[0]
            v_star = per_head((float(norm) * v_star.double()).to(x.dtype)[None])
        v = torch.cat([v_star.expand(B, NH, 1, HS), v], 2)

    if c.ATTN == "softcap":                                  # of q . k; a logit z is no such score:
        s = c.attn_cap * torch.tanh(s / c.attn_cap)          # z = -inf must give softcap without it
    if bias in ("zero", "logit"):                            # a score of its own, and no value
        z = p["sinks"] if bias == "logit" else torch.zeros(NH, dtype=x.dtype)
        s = torch.cat([z[:, None, None].expand(B, NH, T, 1), s], -1)
        seen = torch.cat([torch.ones(T, 1, dtype=torch.bool), seen], 1)
        v = torch.cat([torch.zeros(B, NH, 1, HS, dtype=x.dtype), v], 2)

    # relu(e^s - 1) / (sum |e^s - 1| + 1e-6), over and under e^m with m >= 0.
    # (Its authors' code adds the 1e-6 after that shift: A then differs by less than 1e-6,
    # and its gradient is no longer that of a formula)
    if c.ATTN == "softpick":
        m = s.masked_fill(~seen, 0).amax(-1, keepdim=True).clamp(min=0).detach()
        w = torch.where(seen, (s - m).exp() - (-m).exp(), torch.zeros_like(s))
        return finish(c, p, torch.relu(w),
                      w.abs().sum(-1, keepdim=True) + 1e-6 * (-m).exp(), x, v, norms)
    # shifted by the row's maximum: A is the same
    if c.ATTN.startswith("softmax") or c.ATTN == "softcap":
        s = s.masked_fill(~seen, -math.inf)
        w = (s - s.amax(-1, keepdim=True).detach()).exp()
    elif c.ATTN.startswith("sigmoid"):
        w = s.sigmoid() * seen
    elif c.ATTN == "relu":                                   # over the tokens that are seen
        w = torch.relu(s) * seen / visible(c, T, n).sum(-1, keepdim=True)
    elif c.ATTN.startswith("elu1"):
        w = (fn.elu(s) + 1) * seen
    else:  # the similarity is the product itself
        w = s * seen
    total = w.sum(-1, keepdim=True)
    if c.ATTN in UNNORMED:
        Z = torch.ones_like(total)
    elif c.ATTN.endswith("_p"):  # Eq. 43; a masked w must not meet 0^(p-1)
        powers = torch.where(seen, w, torch.ones_like(w)) ** c.attn_p * seen
        Z = powers.sum(-1, keepdim=True) ** (1 / c.attn_p)
    elif c.ATTN in ("identity_norm", "mlp_norm"):
        Z = total.abs().clamp(min=1)
    else:
        Z = total if c.ATTN in ("softmax", "softmax_clip", "softcap") else total + 1e-8
    return finish(c, p, w, Z, x, v, norms)

def finish(c, p, w, Z, x, v, norms):
    """weights and their Z -> output, and what the metrics need"""
    B, T, NH, HS = len(x), x.shape[1], c.heads, v.shape[-1]
    A = c.attn_alpha * w / Z                               # Eq. 30
    if c.ATTN == "softmax_clip":
        A = torch.relu((1 + c.attn_clip) * A - c.attn_clip)
    o = A @ v                                              # (B, NH, T, HS)
    if c.GATE not in ("none", "value"):                    # a number per head, or per channel of it
        gate = p["gate"].expand(B, T, -1) if c.GATE == "static" else linear(p, "gate_proj", x)
        gate = torch.sigmoid(gate)
        o = o * gate.view(B, T, NH, -1).transpose(1, 2)
    if "v_star" in p and c.BIAS == "v":
        o = o + p["v_star"][:, None, :]
    o = o.sum(1) if c.COMBINE == "sum" else o.transpose(1, 2).reshape(B, T, NH * HS)
    proxy = A.abs() / A.abs().sum(-1, keepdim=True).clamp(min=1e-30)  # a row of zeros stays zeros
    return linear(p, "o_proj", o), (A, proxy, *norms)

def ffn(c, p, x):
    up = linear(p, "up_proj", x)
    h = GLU[c.FFN](linear(p, "gate_proj", x)) * up if c.FFN in GLU else ACT[c.FFN](up)
    return linear(p, "down_proj", h)

def forward(c, p, ids):
    """ids (B, T+1) -> loss, loss of every token (B, T; 0 where not counted), hidden states L+1,
    map statistics L"""
    sub = lambda prefix: {k[len(prefix):]: v for k, v in p.items() if k.startswith(prefix)}
    x = p["model.embed_tokens.weight"][ids[:, :-1]] * c.embed_scale
    sink = int(c.BIAS == "sink_token")
    if sink:
        x = torch.cat([p["model.sink_token"].expand(len(ids), 1, c.width), x], 1)
    if c.PE == "learnable":
        x = x + p["model.embed_positions.weight"]
    if c.PE == "absolute":
        x = x + absolute_rows(x.shape[1], c.width).to(x.dtype)
    if c.norm_embed:
        x = norm(c, p, "model.embed_norm", x)
    hidden, maps = [x], []
    for n in range(c.layers):
        layer, names = f"model.layers.{n}.", norms_of(c)
        at, ff = sub(layer + "self_attn."), sub(layer + "mlp.")
        at_place = lambda place, z: norm(c, p, layer + names[place], z) if place in names else z
        if c.NORM == "post":  # Eq. 3: a norm of the stream
            o, m = attention(c, at, x, n)
            x = at_place("attn_out", x + o)
            x = at_place("ffn_out", x + ffn(c, ff, x))
        else:  # Eq. 2, and what Gemma and OLMo made of it
            before = x
            o, m = attention(c, at, at_place("attn_in", x), n)
            x = x + c.residual_scale * at_place("attn_out", o)
            read = at_place("ffn_in", before if c.parallel else x)
            x = x + c.residual_scale * at_place("ffn_out", ffn(c, ff, read))
        hidden.append(x)
        maps.append(m)
    y = x if c.NORM == "post" else norm(c, p, "model.norm", x)
    head = p["model.embed_tokens.weight" if c.tied else "lm_head.weight"]
    logits = y[:, sink:] / c.logit_divisor @ head.T + (p["lm_head.bias"] if c.head_bias else 0)
    if c.logit_cap:
        logits = c.logit_cap * torch.tanh(logits / c.logit_cap)
    token_loss = fn.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    # targets after the prefix, with enough before them, and not too many
    before = torch.arange(c.seq) + 1
    counted = (before >= max(c.prefix, c.min_context)) & (before <= (c.max_context or c.seq))
    token_loss = token_loss * counted
    return token_loss.sum() / (len(ids) * counted.sum()), token_loss, hidden, maps

# ----------------------------------------------------------------------------
# metrics; "real" leaves out the sink token and k*

def metrics(c, hidden, maps, K=10):
    sink = int(c.BIAS == "sink_token")
    extra = int(c.BIAS in ("sink_token", "k", "kv", "zero", "logit"))
    T = c.seq
    first = lambda z: z[:, sink].mean()
    rest = lambda z: z[:, sink + 1:].mean()
    # alpha_k = mean over i >= k of A_ik (section 3.2); 0 for k > T. Where layer n has a window
    # and others have none, over those that see k
    def alphas(A, n):
        real = A[:, :, sink:, extra:]
        end = lambda k: k + c.window if c.local_layers and local_layer(c, n) and not c.prefix else T
        return torch.stack([real[:, :, k:end(k), k].mean(-1) if k < T else real[:, :, 0, 0] * 0
                            for k in range(K)], -1)
    names = "alpha proxy_alpha mass entropy k_norm_first k_norm_rest v_norm_first v_norm_rest"
    out = {name: [] for name in names.split()}
    star = []
    for n, (A, P, k_norm, v_norm) in enumerate(maps):
        if extra and not sink and not biased(c, n):         # a column that gets nothing
            A, P = (fn.pad(z, (1, 0)) for z in (A, P))
        real = P[:, :, sink:]
        out["alpha"].append(alphas(A, n))
        out["proxy_alpha"].append(alphas(P, n))
        out["mass"].append(A[:, :, sink:, extra:].sum(-1).mean((0, 2)))
        out["entropy"].append(-torch.xlogy(real, real).sum(-1).mean((0, 2)))
        for name, z in (("k_norm", k_norm), ("v_norm", v_norm)):
            out[name + "_first"].append(first(z))
            out[name + "_rest"].append(rest(z))
        M = A if c.ATTN in SUMS_TO_ONE and c.attn_alpha == 1 else P
        # k*'s own query row is one-hot
        star.append((M[..., 0].sum(-1) + (1 - sink) * biased(c, n)) / (T + 1))
    out = {k: torch.stack(v, 1 if "alpha" in k else 0) for k, v in out.items()}
    if extra:
        out["alpha_star"] = torch.stack(star, 1)
    norms = [h.norm(dim=-1) for h in hidden]
    out["h_norm_first"] = torch.stack([first(h) for h in norms])
    out["h_norm_rest"] = torch.stack([rest(h) for h in norms])
    return out

# ----------------------------------------------------------------------------
# AdamW (Eq. 36-39), decoupled weight decay on every parameter, gradient clipped to norm 1

def gradients(c, p, ids):
    loss, token_loss, hidden, maps = forward(c, p, ids)
    grads = torch.autograd.grad(loss, list(p.values()))
    return loss, dict(zip(p, grads)), token_loss, hidden, maps

def by_muon(name):
    """the matrices of a layer's products; not the gate's"""
    if "self_attn.gate_proj" in name:
        return False
    return any(x in name for x in ("q_proj.w", "k_proj.w", "v_proj.w", "o_proj.w",
                                   "mlp.gate_proj.w", "up_proj.w", "down_proj.w", "phi_fc"))

def orthogonal(u):
    """five Newton-Schulz steps (Jordan et al. 2024)"""
    a, b, d = 3.4445, -4.7750, 2.0315
    x = u / (u.norm() + 1e-7)
    x = x.T if u.shape[0] > u.shape[1] else x
    for _ in range(5):
        A = x @ x.T
        x = a * x + (b * A + d * A @ A) @ x
    return x.T if u.shape[0] > u.shape[1] else x

def train(c, p, ids, beta1=0.9, beta2=0.95, eps=1e-8):
    losses, norms = [], []
    m = {k: torch.zeros_like(v) for k, v in p.items()}
    v = {k: torch.zeros_like(v) for k, v in p.items()}
    for t in range(1, c.steps + 1):
        loss, grads, *_ = gradients(c, p, ids)
        norm = sum(g.pow(2).sum() for g in grads.values()).sqrt()
        losses.append(loss.detach())
        norms.append(norm)
        with torch.no_grad():
            for k, w in p.items():
                g = grads[k] * min(1.0, c.grad_clip / (norm.item() + 1e-6))
                if c.optimizer == "muon" and by_muon(k):
                    m[k] = 0.95 * m[k] + g
                    step = 0.2 * math.sqrt(max(w.shape)) * orthogonal(g + 0.95 * m[k])
                    w -= c.lr * (step + c.weight_decay * w)
                    continue
                m[k] = beta1 * m[k] + (1 - beta1) * g
                v[k] = beta2 * v[k] + (1 - beta2) * g * g
                step = m[k] / (1 - beta1**t) / ((v[k] / (1 - beta2**t)).sqrt() + eps)
                w -= c.lr * (step + c.weight_decay * w)
    return torch.stack(losses), torch.stack(norms)
