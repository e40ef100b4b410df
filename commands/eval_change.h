/*
eval_change.h -- what a run of eval changes of a model: numbers anywhere in it, bits, and what a
query still sees. A model runs its stages as ever; the change comes before, after or in place of a
stage (Model::around).
*/
#ifndef EVAL_CHANGE_H
#define EVAL_CHANGE_H
#include "../models/experts.h"
#include "eval_cache.h"
#include "eval_quantize.h"

// What a run does around the stages.
struct Change {
    std::vector<Edit> edits;
    Stream stream; Evict evict; Bits bits;
    bool record = false; // a plain run, which collects what means are made of
    std::vector<HeadMetrics> seen;               // where it sees less: of each head and sequence
    std::function<void(int l)> after_layer;

    // is attention computed here? its statistics are then not those of the model's own mask
    bool sees_less() const {
        bool weights = false;
        for (auto& e : edits) { weights = weights || e.place == PLACE_A; }
        return stream.on || evict.on || (weights && !record);
    }
};

// the numbers of a place of layer l, for an edit or for rounding: x as read from `device`
inline Rows place_rows(const Model* m, Host* x, const Host* base, int stride, int offset, int width,
                       int group) {
    return { x, base, m->B, m->T, m->sizes.bias.token, stride, offset, width, group };
}

inline void edit_or_record(Change* e, Edit* edit, int l, const Rows& r) {
    if (!e->record) { edit_apply(*edit, l, r); }
    if (e->record && edit->how == EDIT_MEAN) { edit_record(edit, l, r); }
}

// the edit at its place of layer l, with the stage done (q, k, v: before it)
inline void change_edit(Change* e, Model* m, Edit* edit, int l) {
    const Sizes& d = m->sizes;
    const size_t N = rows(m);
    auto work = [&](real* device, const real* base_device, int stride, int offset, int width,
                    int group) {
        Host x = host_read(device, N * stride), base = host_read(base_device, N * stride);
        edit_or_record(e, edit, l,
                       place_rows(m, &x, base_device ? &base : NULL, stride, offset, width, group));
        if (!e->record) { host_write(device, x); }
    };
    switch (edit->place) {
        case PLACE_q:    work(act_qkv(m, l), NULL, d.qkv_width, 0, d.q_width, d.HS); break;
        case PLACE_k:    work(act_qkv(m, l), NULL, d.qkv_width, d.q_width, d.kv_width, d.HS); break;
        case PLACE_v:
            work(act_qkv(m, l), NULL, d.qkv_width, d.qk_width, d.kv_width, d.HS);
            break;
        case PLACE_head: work(act_att(m, l), NULL, d.q_width, 0, d.q_width, d.HS); break;
        case PLACE_attn: work(act_x(m, 2 * l + 1), act_x(m, 2 * l), d.C, 0, d.C, 1); break;
        case PLACE_mlp:  work(act_x(m, 2 * l + 2), act_x(m, 2 * l + 1), d.C, 0, d.C, 1); break;
        case PLACE_h:    work(act_x(m, 2 * l + 2), NULL, d.C, 0, d.C, 1); break;
        case PLACE_gate: {
            Host g = host_read(act_gate(m, l), N * d.gate_width);
            Host att = host_read(act_att(m, l), N * d.q_width);
            for (auto& x : g) { x = sigmoid_(x); }
            const int per_head = gates_per_head(m);
            edit_or_record(e, edit, l,
                           place_rows(m, &g, NULL, d.gate_width, 0, d.gate_width, per_head));
            for (size_t i = 0; i < att.size(); i++) {
                att[i] *= g[per_head == 1 ? i / d.HS : i];
            }
            if (!e->record) { host_write(act_gated(m, l), att); }
            break;
        }
        default: break;                          // A is edited in attention, pe in the weights
    }
}

// keys and values of layer l, rounded before attention reads them
inline void change_kv(Change* e, Model* m, int l) {
    const Sizes& d = m->sizes;
    Host x = host_read(act_qkv(m, l), (size_t)rows(m) * d.qkv_width);
    const Rows k = place_rows(m, &x, NULL, d.qkv_width, d.q_width, d.kv_width, d.HS);
    const Rows v = place_rows(m, &x, NULL, d.qkv_width, d.qk_width, d.kv_width, d.HS);
    bits_apply(&e->bits, "k", l, k, e->bits.kv, true);
    bits_apply(&e->bits, "v", l, v, e->bits.kv, true);
    if (!e->bits.calibrating) { host_write(act_qkv(m, l), x); }
}

// a stage of layer l, and the change around it
inline void change_stage(Change* e, Model* m, const Stage& stage, int l) {
    const bool attention = stage.role == ROLE_ATTENTION;
    auto edit = [&](bool before) {
        for (auto& row : PLACES) {
            const Place place = (Place)(&row - PLACES);
            const bool is_before = place == PLACE_q || place == PLACE_k || place == PLACE_v;
            for (auto& one : e->edits) {
                if (one.place != place || row.stage != stage.role || is_before != before) {
                    continue;
                }
                if (one.layers.has(l)) { change_edit(e, m, &one, l); }
            }
        }
    };
    if (attention) { edit(true); }
    if (attention && e->bits.kv) { change_kv(e, m, l); }
    StageInput input = { NULL, 0 };
    if (e->bits.inputs) { input = stage.reads(m, l); }
    Host was;
    if (input.x) { // for this product alone: without a norm before it, what it reads is the stream
        was = host_read(input.x, (size_t)rows(m) * input.width);
        Host x = was;
        bits_apply(&e->bits, stage.name, l,
                   place_rows(m, &x, NULL, input.width, 0, input.width, input.width),
                   e->bits.inputs, false);
        host_write(input.x, x);
    }
    if (attention && e->sees_less()) {
        eval_attention(m, l, e->stream, e->evict, e->edits, &e->seen);
    } else {
        stage.forward(m, l);
    }
    if (input.x) { host_write(input.x, was); }
    edit(false);
    if (stage.role == ROLE_FFN_OUT && e->after_layer) { e->after_layer(l); }
}

// can a query be at its place in the cache? Not by learned or absolute positions, nor where it was
// turned before a kernel, which cannot be undone
inline bool cache_has_positions(const Model* m) {
    return m->sizes.pe.rotary ? Attn::phi == PHI_NONE : m->sizes.pe.score_bias;
}

// does the change mean anything for this model and T tokens? dies if not
inline void change_check(const Change& e, const Model* m, int T) {
    const Arch& c = m->arch;
    const int R = T + m->sizes.bias.token;
    auto refuse = [](const std::string& what, const std::string& wanted) {
        die(EXIT_USER, what + ": wanted " + wanted);
    };
    if (mixer_of(c)) {
        refuse(strf("eval of a model with %s layers", mixer_of(c)), "attention in all layers");
    }
    if (c.experts && (e.bits.weights || e.bits.inputs)) {
        refuse("--quant of a mixture of experts", "kv8 or kv4: its experts would not be rounded");
    }
    for (auto& edit : e.edits) {
        const std::string what = "--edit " + edit.text;
        const long last = edit.tokens.last();
        if (edit.tokens.has(0) && last < LONG_MAX) { refuse(what, "tokens from 1 on"); }
        if (edit.layers.beyond(c.L)) { refuse(what, strf("layers 0..%d", c.L - 1)); }
        if (edit.tokens.beyond(T + 1)) { refuse(what, strf("tokens up to %d", T)); }
        const bool of_keys = edit.place == PLACE_k || edit.place == PLACE_v;
        const int heads = of_keys ? c.KV : c.NH,
                  channels = PLACES[edit.place].by_head ? heads : c.C;
        if (edit.channels.beyond(channels)) {
            const char* of = PLACES[edit.place].by_head ? "heads" : "channels";
            refuse(what, strf("%s 0..%d", of, channels - 1));
        }
        if (edit.from > T) { refuse(what, strf("from 1 to %d", T)); }
        const bool branch = edit.place == PLACE_attn || edit.place == PLACE_mlp;
        if (branch && m->sizes.norm.stream) {
            refuse(what, "a model whose branches add to the stream, not NORM=post");
        }
        if (edit.place == PLACE_gate && !m->sizes.gate) {
            refuse(what, "a model with a gate (GATE=head or elem)");
        }
        if (edit.place == PLACE_pe && !m->weights.wpe) {
            refuse(what, "a model with learned positions (PE=learnable)");
        }
    }
    if (e.stream.on) {
        const std::string what = strf("--stream %d+%d", e.stream.n, e.stream.W);
        if (c.window || c.prefix) { refuse(what, "a model without a window and a prefix"); }
    }
    if (e.evict.on && (e.evict.kept < 1 || e.evict.prompt >= R)) {
        refuse("--evict", "a prompt, and some of it kept");
    }
    if (e.evict.on && c.prefix > e.evict.prompt) {
        refuse("--evict", "a prefix that is part of the prompt");
    }
}
#endif // EVAL_CHANGE_H
