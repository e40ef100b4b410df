"""
model.py -- the model family of "When Attention Sink Emerges in Language Models" (Gu et al. 2024) in PyTorch float64,
written from the paper's formulas, one line per formula, T x T maps and all. It is the witness the C++ reference is
compared with, so it shares no code and no trick with it: gradients come from autograd.

To add a variant: one branch in `attention` (or `ffn`), its weights in `shapes`, a row in cases.tsv.

Letters: B batch, T tokens, C width, NH heads, KV key/value heads, HS head size, F FFN width, L layers, V vocabulary.
"""
import math
import numpy as np
import torch
import torch.nn.functional as fn

SWITCHES = dict(ATTN="softmax", BIAS="none", PE="rotary", NORM="pre", FFN="swiglu", COMBINE="concat")
GLU = {"swiglu": fn.silu, "geglu": fn.gelu, "reglu": torch.relu}          # fn.gelu is the erf form
ACT = {"swish": fn.silu, "gelu": fn.gelu, "relu": torch.relu}
SUMS_TO_ONE = ("softmax", "sigmoid_norm", "elu1_norm", "kernel_elu_norm")  # by construction, if alpha = 1
UNNORMED = ("sigmoid", "elu1", "kernel_elu", "identity", "mlp")

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

def shapes(c):
    """name -> shape of every parameter; c holds the switches and the flags"""
    HS, s = c.width // c.heads, {}
    rows = dict(none=c.heads if c.BIAS == "v" else c.kv_heads, heads=1)[c.bias_share]
    s["model.embed_tokens.weight"] = (c.vocab, c.width)
    if c.PE == "learnable":
        s["model.embed_positions.weight"] = (c.seq + (c.BIAS == "sink_token"), c.width)
    if c.BIAS == "sink_token":
        s["model.sink_token"] = (c.width,)
    for n in range(c.layers):
        at, mlp = f"model.layers.{n}.self_attn.", f"model.layers.{n}.mlp."
        if c.NORM == "pre":
            s[f"model.layers.{n}.input_layernorm.weight"] = (c.width,)
        s[at + "q_proj.weight"] = (c.heads * HS, c.width)
        s[at + "k_proj.weight"] = (c.kv_heads * HS, c.width)
        s[at + "v_proj.weight"] = (c.kv_heads * HS, c.width)
        s[at + "o_proj.weight"] = (c.width, HS if c.COMBINE == "sum" else c.heads * HS)
        if c.BIAS in ("k", "kv"):
            s[at + "k_star"] = (rows, HS)
        if c.BIAS in ("v", "kv"):
            s[at + "v_star"] = (rows, HS)
        if c.ATTN.startswith("mlp"):
            s[at + "phi_fc1.weight"] = s[at + "phi_fc2.weight"] = (HS, HS)
        s[f"model.layers.{n}.post_attention_layernorm.weight"] = (c.width,)
        if c.FFN in GLU:
            s[mlp + "gate_proj.weight"] = (c.ffn_width, c.width)
        s[mlp + "up_proj.weight"] = (c.ffn_width, c.width)
        s[mlp + "down_proj.weight"] = (c.width, c.ffn_width)
        if c.NORM == "post":
            s[f"model.layers.{n}.post_feedforward_layernorm.weight"] = (c.width,)
    if c.NORM == "pre":
        s["model.norm.weight"] = (c.width,)
    s["lm_head.weight"] = (c.vocab, c.width)
    return s

def weights(c, dtype=torch.float64):
    p = {}
    for name, shape in shapes(c).items():
        u = 2 * uniforms(name, math.prod(shape)) - 1
        w = (1 + 0.2 * u if name.endswith("norm.weight") else 0.5 * u).astype(np.float32).reshape(shape)
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

def rotary(x):
    """x (.., T, HS): the pair (i, i + HS/2) turns by t * 10000^(-2i/HS)"""
    T, HS = x.shape[-2:]
    angle = torch.arange(T).double()[:, None] * 10000.0 ** (-2 * torch.arange(HS // 2).double() / HS)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :HS // 2], x[..., HS // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

def relative_bucket(d, buckets=32, farthest=128):
    """Eq. 6, with the floor around the product as in T5 (as printed, all of 16..127 would share one bucket)"""
    half = buckets // 2
    if d < half:
        return max(d, 0)    # d < 0: a prefix key ahead of its query
    return min(half + math.floor(math.log(d / half) / math.log(farthest / half) * half), buckets - 1)

def score_bias(c, T):
    """g(t - j), (NH, T, T) or 0"""
    d = torch.arange(T)[:, None] - torch.arange(T)[None, :]
    if c.PE == "alibi":     # Eq. 7
        slope = 2.0 ** (-8 * torch.arange(1, c.heads + 1).double() / c.heads)
        return -slope[:, None, None] * d
    if c.PE == "relative":
        return torch.tensor([[relative_bucket(x) for x in row] for row in d.tolist()]).double()
    return torch.zeros(())

# ----------------------------------------------------------------------------
# the block

def rmsnorm(x, g):
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * g

def visible(c, T):
    t, j = torch.arange(T)[:, None], torch.arange(T)[None, :]
    seen = j <= t
    if c.window:
        seen = seen & (j > t - c.window)
    return seen | (j < c.prefix)

def attention(c, p, x):
    """x (B, T, C) -> output (B, T, C) and what the metrics need. Column 0 of the map is k* if there is one."""
    B, T, C = x.shape
    NH, KV, HS = c.heads, c.kv_heads, c.width // c.heads
    heads = lambda name, n: (x @ p[name + "_proj.weight"].T).view(B, T, n, HS).transpose(1, 2)
    q, k, v = heads("q", NH), heads("k", KV), heads("v", KV)
    if c.PE == "rotary":
        q, k = rotary(q), rotary(k)
    if c.ATTN.startswith("kernel_elu"):
        q, k = fn.elu(q) + 1, fn.elu(k) + 1
    if c.ATTN.startswith("mlp"):
        q, k = (torch.relu(z @ p["phi_fc1.weight"].T) @ p["phi_fc2.weight"].T for z in (q, k))
    norms = k.norm(dim=-1).mean(1), v.norm(dim=-1).mean(1)                # (B, T), heads averaged
    k, v = (z.repeat_interleave(NH // KV, 1) for z in (k, v))             # query head h uses kv head h / (NH/KV)

    s = q @ k.transpose(-1, -2) / math.sqrt(HS) + score_bias(c, T).to(x.dtype)
    seen = visible(c, T)
    if c.BIAS in ("k", "kv"):
        per_head = lambda z: z.repeat_interleave(NH // z.shape[0], 0)[:, None, :].expand(NH, 1, HS)
        keep = torch.arange(HS) < (c.k_dims or HS)
        s = torch.cat([q @ per_head(p["k_star"] * keep).transpose(-1, -2) / math.sqrt(HS), s], -1)
        seen = torch.cat([torch.ones(T, 1, dtype=torch.bool), seen], 1)
        if c.BIAS == "kv":
            v_star = per_head(p["v_star"])
        else:
            kind, norm = (c.v_star or "ones:0").split(":")
            v_star = torch.ones(HS) / math.sqrt(HS) if kind == "ones" else torch.eye(HS)[0]
            v_star = per_head((float(norm) * v_star.double()).to(x.dtype)[None])
        v = torch.cat([v_star.expand(B, NH, 1, HS), v], 2)

    if c.ATTN.startswith("softmax"):                                       # shifted by the row's maximum: A is the same
        s = s.masked_fill(~seen, -math.inf)
        w = (s - s.amax(-1, keepdim=True).detach()).exp()
    elif c.ATTN.startswith("sigmoid"):
        w = s.sigmoid() * seen
    elif c.ATTN.startswith("elu1"):
        w = (fn.elu(s) + 1) * seen
    else:                                                                  # the similarity is the product itself
        w = s * seen
    total = w.sum(-1, keepdim=True)
    if c.ATTN in UNNORMED:
        Z = torch.ones_like(total)
    elif c.ATTN.endswith("_p"):                                            # Eq. 43; a masked w must not meet 0^(p-1)
        Z = (torch.where(seen, w, torch.ones_like(w)) ** c.attn_p * seen).sum(-1, keepdim=True) ** (1 / c.attn_p)
    elif c.ATTN in ("identity_norm", "mlp_norm"):
        Z = total.abs().clamp(min=1)
    else:
        Z = total if c.ATTN == "softmax" else total + 1e-8
    A = c.attn_alpha * w / Z                                               # Eq. 30

    o = A @ v                                                              # (B, NH, T, HS)
    if c.BIAS == "v":
        o = o + p["v_star"][:, None, :]
    o = o.sum(1) if c.COMBINE == "sum" else o.transpose(1, 2).reshape(B, T, NH * HS)
    proxy = w.abs() / w.abs().sum(-1, keepdim=True).clamp(min=1e-30)     # a row of zeros stays zeros
    return o @ p["o_proj.weight"].T, (A, proxy, *norms)

def ffn(c, p, x):
    up = x @ p["up_proj.weight"].T
    h = GLU[c.FFN](x @ p["gate_proj.weight"].T) * up if c.FFN in GLU else ACT[c.FFN](up)
    return h @ p["down_proj.weight"].T

def forward(c, p, ids):
    """ids (B, T+1) -> loss, loss of every token (B, T; 0 where not counted), hidden states L+1, map statistics L"""
    sub = lambda prefix: {k[len(prefix):]: v for k, v in p.items() if k.startswith(prefix)}
    x = p["model.embed_tokens.weight"][ids[:, :-1]]
    sink = int(c.BIAS == "sink_token")
    if sink:
        x = torch.cat([p["model.sink_token"].expand(len(ids), 1, c.width), x], 1)
    if c.PE == "learnable":
        x = x + p["model.embed_positions.weight"]
    if c.PE == "absolute":
        x = x + absolute_rows(x.shape[1], c.width).to(x.dtype)
    hidden, maps = [x], []
    for n in range(c.layers):
        layer = f"model.layers.{n}."
        g = {k[:-7]: v for k, v in sub(layer).items() if k.endswith("norm.weight")}
        at, ff = sub(layer + "self_attn."), sub(layer + "mlp.")
        if c.NORM == "pre":                                                # Eq. 2
            o, m = attention(c, at, rmsnorm(x, g["input_layernorm"]))
            x = x + o
            x = x + ffn(c, ff, rmsnorm(x, g["post_attention_layernorm"]))
        else:                                                              # Eq. 3
            o, m = attention(c, at, x)
            x = rmsnorm(x + o, g["post_attention_layernorm"])
            x = rmsnorm(x + ffn(c, ff, x), g["post_feedforward_layernorm"])
        hidden.append(x)
        maps.append(m)
    y = rmsnorm(x, p["model.norm.weight"]) if c.NORM == "pre" else x
    logits = y[:, sink:] @ p["lm_head.weight"].T
    token_loss = fn.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    counted = torch.arange(c.seq) >= max(c.prefix - 1, 0)                  # the targets after the prefix
    token_loss = token_loss * counted
    return token_loss.sum() / (len(ids) * counted.sum()), token_loss, hidden, maps

# ----------------------------------------------------------------------------
# metrics; "real" leaves out the sink token and k*

def metrics(c, hidden, maps, K=10):
    sink, extra, T = int(c.BIAS == "sink_token"), int(c.BIAS in ("sink_token", "k", "kv")), c.seq
    first = lambda z: z[:, sink].mean()
    rest = lambda z: z[:, sink + 1:].mean()
    def alphas(A):      # alpha_k = mean over i >= k of A_ik (section 3.2); 0 for k > T
        real = A[:, :, sink:, extra:]
        return torch.stack([real[:, :, k:, k].mean(-1) if k < T else real[:, :, 0, 0] * 0 for k in range(K)], -1)
    names = "alpha proxy_alpha mass entropy k_norm_first k_norm_rest v_norm_first v_norm_rest"
    out = {name: [] for name in names.split()}
    star = []
    for A, P, k_norm, v_norm in maps:
        real = P[:, :, sink:]
        out["alpha"].append(alphas(A))
        out["proxy_alpha"].append(alphas(P))
        out["mass"].append(A[:, :, sink:, extra:].sum(-1).mean((0, 2)))
        out["entropy"].append(-torch.xlogy(real, real).sum(-1).mean((0, 2)))
        for name, z in (("k_norm", k_norm), ("v_norm", v_norm)):
            out[name + "_first"].append(first(z))
            out[name + "_rest"].append(rest(z))
        M = A if c.ATTN in SUMS_TO_ONE and c.attn_alpha == 1 else P
        star.append((M[..., 0].sum(-1) + 1 - sink) / (T + 1))              # k*'s own query row is one-hot
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
                m[k] = beta1 * m[k] + (1 - beta1) * g
                v[k] = beta2 * v[k] + (1 - beta2) * g * g
                step = m[k] / (1 - beta1**t) / ((v[k] / (1 - beta2**t)).sqrt() + eps)
                w -= c.lr * (step + c.weight_decay * w)
    return torch.stack(losses), torch.stack(norms)
