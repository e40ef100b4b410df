/*
eval_change.h -- what a run of eval changes of a model: numbers anywhere in it, bits, and what a
query still sees. A model runs its stages as ever; the change comes before, after or in place of a
stage (Model::around).
*/
#ifndef EVAL_CHANGE_H
#define EVAL_CHANGE_H
#include "eval_cache.h"
#include "eval_quantize.h"

// What a run does around the stages.
struct Change : KeysLeft {
    Bits bits;
    bool record = false;                 // a plain run, which collects what means are made of
    std::vector<HeadMetrics> seen;       // where it sees less: of each head and sequence
    std::function<void(int l)> after_layer;

    // Tells whether attention is computed here. Its statistics are then not those of the model's
    // own mask.
    bool sees_less() const {
        bool weights = false;
        for (auto& e : edits) { weights = weights || e.place == PLACE_A; }
        return stream.on || evict.on || (weights && !record);
    }
};

// The tensor that a layer leaves at a place; what is meant is x - base, if that is not NULL.
struct PlaceTensor {
    real* x;
    const real* base;
    Columns columns;
};

// Returns the tensor of a place of layer l. A and pe have none: they are edited in attention and in
// the weights.
inline PlaceTensor place_tensor(const Model* m, Place place, int l) {
    const Sizes& d = m->sizes;
    const long C = d.C;
    const long W = d.qkv_width;
    const long HS = d.HS;
    real* qkv = act_qkv(m, l);
    real* before = act_x(m, 2 * l);
    real* between = act_x(m, 2 * l + 1);
    real* after = act_x(m, 2 * l + 2);
    switch (place) {
        case PLACE_q:    return { qkv, NULL, { W, 0, d.q_width, HS } };
        case PLACE_k:    return { qkv, NULL, { W, d.q_width, d.kv_width, HS } };
        case PLACE_v:    return { qkv, NULL, { W, d.qk_width, d.kv_width, HS } };
        case PLACE_head: return { act_att(m, l), NULL, { d.q_width, 0, d.q_width, HS } };
        case PLACE_gate:
            return { act_gate(m, l), NULL, { d.gate_width, 0, d.gate_width, gates_per_head(m) } };
        case PLACE_attn: return { between, before, { C, 0, C, 1 } };
        case PLACE_mlp:  return { after, between, { C, 0, C, 1 } };
        case PLACE_h:    return { after, NULL, { C, 0, C, 1 } };
        default:         return {};
    }
}

// Returns these columns of x, a copy of a tensor in host memory, minus `base` if there is one.
inline Rows rows_of(const Model* m, const Columns& columns, Host* x, const Host* base = NULL) {
    return { columns, x, base, m->B, m->T, sink_rows(m) };
}

// Makes all edits of a place of layer l, or collects what their means are made of. The gate is
// edited after its sigmoid, and then applied to what the heads gave.
inline void change_place(Change* e, Model* m, Place place, int l) {
    const bool gate = place == PLACE_gate;
    const PlaceTensor p = place_tensor(m, place, l);
    std::vector<Edit*> edits;
    for (auto& edit : e->edits) {
        if (edit.place == place && edit.layers.has(l)) { edits.push_back(&edit); }
    }
    if (edits.empty() || !p.x) { return; }

    const size_t n = rows(m) * p.columns.stride;
    Host x = host_read(p.x, n);
    const Host base = host_read(p.base, n);
    const Rows r = rows_of(m, p.columns, &x, p.base ? &base : NULL);
    if (gate) {
        for (auto& g : x) { g = sigmoid_(g); }
    }
    for (Edit* edit : edits) {
        if (!e->record) { edit_apply(*edit, l, r); }
        if (e->record && edit->how == EDIT_MEAN) { edit_record(edit, l, r); }
    }
    if (e->record) { return; }
    if (!gate) { host_write(p.x, x); return; }

    const Sizes& d = m->sizes;
    Host att = host_read(act_att(m, l), (size_t)rows(m) * d.q_width);
    const bool by_head = gates_per_head(m) == 1;
    for (size_t i = 0; i < att.size(); i++) { att[i] *= x[by_head ? i / d.HS : i]; }
    host_write(act_gated(m, l), att);
}

// Makes the edits of one stage of layer l: those of q, k and v before it, all others after it.
inline void change_edits(Change* e, Model* m, StageRole stage, int l, bool before) {
    for (auto& row : PLACES) {
        const Place place = (Place)(&row - PLACES);
        const bool is_read = place == PLACE_q || place == PLACE_k || place == PLACE_v;
        if (row.stage == stage && is_read == before) { change_place(e, m, place, l); }
    }
}

// Rounds the keys and values of layer l before attention reads them.
inline void change_kv(Change* e, Model* m, int l) {
    Host x = host_read(act_qkv(m, l), (size_t)rows(m) * m->sizes.qkv_width);
    for (Place place : { PLACE_k, PLACE_v }) {
        const Rows r = rows_of(m, place_tensor(m, place, l).columns, &x);
        bits_apply(&e->bits, PLACES[place].name, l, r, e->bits.kv, true);
    }
    if (!e->bits.calibrating) { host_write(act_qkv(m, l), x); }
}

// Rounds what the product of a stage reads, and returns what it was. Without a norm before it that
// is the stream, so the caller puts it back when the product is done.
inline Host change_input(Change* e, Model* m, const Stage& stage, StageInput input, int l) {
    const int width = input.width;
    const Host was = host_read(input.x, (size_t)rows(m) * width);
    Host x = was;
    const Rows all = rows_of(m, { width, 0, width, width }, &x);
    bits_apply(&e->bits, stage.name, l, all, e->bits.inputs, false);
    host_write(input.x, x);
    return was;
}

// Runs a stage of layer l with the change around it.
inline void change_stage(Change* e, Model* m, const Stage& stage, int l) {
    const bool attention = stage.role == ROLE_ATTENTION;
    change_edits(e, m, stage.role, l, true);
    if (attention && e->bits.kv) { change_kv(e, m, l); }
    StageInput input = { NULL, 0 };
    Host was;
    if (stage.reads && e->bits.inputs) { input = stage.reads(m, l); }
    if (input.x) { was = change_input(e, m, stage, input, l); }
    if (attention && e->sees_less()) {
        eval_attention(m, l, *e, &e->seen);
    } else {
        stage.forward(m, l);
    }
    if (input.x) { host_write(input.x, was); }
    change_edits(e, m, stage.role, l, false);
    if (stage.role == ROLE_FFN_OUT && e->after_layer) { e->after_layer(l); }
}

// Tells whether a query can stand at its place in the cache: not with learned or absolute
// positions, nor where it was turned before a kernel, which cannot be undone.
inline bool cache_has_positions(const Model* m) {
    return m->sizes.pe.rotary ? Attn::phi == PHI_NONE : m->sizes.pe.score_bias;
}

// Dies if the edit names what this model, or a sequence of T tokens, does not have.
inline void edit_check(const Edit& edit, const Model* m, int T) {
    const Arch& c = m->arch;
    const PlaceRow& row = PLACES[edit.place];
    const std::string what = "--edit " + edit.text;
    const bool extra = (Bias::extra != NO_EXTRA && !extra_has_no_effect(c)) || sink_rows(m);
    const bool has_0 = edit.place == PLACE_A && extra && edit.how != EDIT_SELF;
    require(has_0 || !edit.names(0), what, "tokens from 1 on; 0, the extra key, only with A");
    require(!edit.layers.beyond(c.L), what, strf("layers 0..%d", c.L - 1));
    require(!edit.tokens.beyond(T + 1), what, strf("tokens up to %d", T));

    const bool of_keys = edit.place == PLACE_k || edit.place == PLACE_v;
    const int heads = of_keys ? c.KV : c.NH;
    const int channels = row.by_head ? heads : c.C;
    const char* of = row.by_head ? "heads" : "channels";
    require(!edit.channels.beyond(channels), what, strf("%s 0..%d", of, channels - 1));
    require(edit.from <= T, what, strf("from 1 to %d", T));

    const bool branch = edit.place == PLACE_attn || edit.place == PLACE_mlp;
    require(!branch || !m->sizes.norm.stream, what,
            "a model whose branches add to the stream, not NORM=post");
    require(edit.place != PLACE_gate || m->sizes.gates_output, what,
            "a model with a gate (GATE=head, elem or static)");
    require(edit.place != PLACE_pe || m->params.wpe.w, what,
            "a model with learned positions (PE=learnable)");
}

// Dies if the change means nothing for this model and T tokens.
inline void change_check(const Change& e, const Model* m, int T) {
    const Arch& c = m->arch;
    require(m->sizes.all_attend(),
            strf("eval of a model with %s in place of attention", mixer_of(c)),
            "attention in all layers");
    const bool rounds_products = e.bits.weights || e.bits.inputs;
    const bool mixture = !forward_only_part(c).empty();
    require(!mixture || !rounds_products, "--quant of a mixture of experts",
            "kv8 or kv4, because its experts would not be rounded");
    for (auto& edit : e.edits) { edit_check(edit, m, T); }

    const bool plain_mask = !c.window && !c.prefix;
    require(!e.stream.on || plain_mask, strf("--stream %d+%d", e.stream.n, e.stream.W),
            "a model without a window and a prefix");
    if (!e.evict.on) { return; }
    const int rows = T + m->sizes.bias.token;
    require(e.evict.kept >= 1 && e.evict.prompt < rows, "--evict", "a prompt, and some of it kept");
    require(c.prefix <= e.evict.prompt, "--evict", "a prefix that is part of the prompt");
}
#endif // EVAL_CHANGE_H
