/*
init.h -- train --init CHECKPOINT: a run that begins with the weights of a model that is there
already, ours or another family's. What the checkpoint says of its model is kept, and its tokenizer.
Two things may be new: a shorter --seq, and the BIAS of this build where the model has none, so that
one can watch whether a sink moves to a place that it did not have. And --only, which trains nothing
but that.
*/
#ifndef INIT_H
#define INIT_H
#include "open_model.h"

// a switch of this build that somebody chose, and that the model does not have
static void init_switches(const Arch& theirs, const std::string& from) {
    Arch model = theirs, build;
    const std::vector<ArchRow> wanted = arch_rows(&model), got = arch_rows(&build);
    for (size_t i = 0; i < got.size(); i++) {
        if (got[i].type != ARCH_kind || is_flag(got[i]) || *(kind*)got[i].at == 0) { continue; }
        const std::string ours = kind_name(got[i]), its = kind_name(wanted[i]);
        if (ours == its) { continue; }
        die(EXIT_USER, strf("--init %s: has %s=%s, and this build %s", from.c_str(), got[i].by,
                            its.c_str(), ours.c_str()),
            strf("make train_sink without %s=%s: a build takes it from the model", got[i].by,
                 ours.c_str()));
    }
}

// the model of --init: its rows become the flags'. The caller reads the weights, and so closes it
static Checkpoint init_open(Flags* f) {
    Checkpoint k = checkpoint_open(f->init, f->adapter, true);
    init_switches(k.c, f->init);
    adapter_said(k, f->adapter);
    require(!k.c.experts && !k.c.mamba_width,
            "--init " + f->init + ", with experts or Mamba layers",
            "a model without them: they only run forward");
    require(!k.adds_bias || !bias_of(k.c).token || !pe_of(k.c).learnable,
            "--init " + f->init + ", whose positions are learned, and BIAS=sink_token",
            "another BIAS: there is no position for one more token");
    require(k.adds_bias || !f->given_init_logit, strf("--init-logit %g", f->init_logit),
            "a model that has no z of its own, in a build with BIAS=logit");
    if (flag_given(*f, "seq") && !pe_of(k.c).learnable) {
        k.c.context = std::max(k.c.context, k.c.T);
        k.c.T = f->arch.T;
    }
    if (k.adds_bias) {
        k.c.bias_share = f->arch.bias_share;
        k.c.v_star = f->arch.v_star;
        if (f->arch.k_dims) { k.c.k_dims = f->arch.k_dims; }
    }
    arch_keep(f, k.c, f->init);
    return k;
}

// --init-logit: every head's z
static void init_logits(Model* m, const Flags& f) {
    if (!f.given_init_logit) { return; }
    require(bias_of(m->c).column == LOGIT_COLUMN && bias_of(m->c).learn_k,
            strf("--init-logit %g", f.init_logit), "a build with BIAS=logit");
    for (auto& t : m->tensors) {
        if (!ends_with(t.name, ".sinks")) { continue; }
        const std::vector<acc> z(t.count, acc(f.init_logit));
        ops::to_device(array_place(m, m->master) + t.at, z.data(), t.count * sizeof(acc));
    }
    weights_keep(m);
}

// --only: the words; each has to be in the name of some tensor
static void only_settle(Model* m, const Flags& f) {
    m->only = split(f.only, ',');
    for (auto& word : m->only) {
        std::string names;
        bool found = false;
        for (auto& t : m->tensors) {
            found = found || has_word(t, word);
            const size_t layer = t.name.find("layers.");
            if (layer == t.name.npos || t.name.compare(layer, 9, "layers.0.") == 0) {
                names += " " + t.name;
            }
        }
        require(found, "--only " + word, "a word of one of these names:" + names);
    }
}
#endif // INIT_H
