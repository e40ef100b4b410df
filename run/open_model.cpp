/*
run/open_model.cpp -- opens a checkpoint, settles its flags, and prints notes about its
tokenizer and its weights.
*/
#include "open_model.h"
#include "gpu.h"
#include "memory_needed.h"
#include "../core/directory.h"

void tokenizer_note(const Flags& f, const std::string& own, const std::string& model) {
    if (!f.given_tokenizer || own.empty() || f.tokenizer == own) { return; }
    if (tokenizer_of(f.tokenizer).hash == tokenizer_of(own).hash) { return; }
    note("--tokenizer " + f.tokenizer + " gives other ids than the tokenizer of " + model);
}

Model model_from_checkpoint(Flags* f, int T_max, Stay stay, bool gradients) {
    if (f->words.size() != 1) {
        die(strf("got %zu checkpoints, wanted one", f->words.size()),
            "name one: a run's directory" OTHER_MODELS);
    }
    const std::string& path = f->words[0];
    Checkpoint k = checkpoint_open(path);
    Arch c = k.c;
    tokenizer_note(*f, k.tokenizer, path);
    if (f->tokenizer.empty()) { f->tokenizer = k.tokenizer; }
    if (flag_given(*f, "prefix")) { c.prefix = f->arch.prefix; }
    if (flag_given(*f, "window")) {
        c.window = f->arch.window;
        require(c.window >= 1, strf("--window %d", c.window), "1 or more, or leave it out");
    }
    if (cpu_folder) { cpu_folder->stay(ops::reads_mapped ? stay : STAY_NONE); }
    const double spared = k.theirs ? open_files->floats_spared(k) : 0;
    memory_check(c, 1, std::max(1, T_max), gradients, spared);
    gpu_settle(f, c);
    Model m = model_new(c, T_max, gradients);
    checkpoint_read(&m, &k);
    if (!any_in_file()) {                        // are they those that were saved?
        const std::string was = state_of(path)["numbers"]["model"].string;
        if (!was.empty() && was != array_hash(&m, m.master)) {
            note(path + "/model.safetensors: its numbers have changed since it was saved");
        }
    }
    f->arch.V = c.V;
    return m;
}
