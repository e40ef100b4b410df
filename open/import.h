/*
import.h -- models of other families: their config.json as rows of ARCH, their tensors by our names.

A family is a row of FAMILIES: the model type, the rows of ARCH that it begins with, its own names
for keys, the keys that may only have one value, and a table of tensor names, each with the way it
is folded. Nothing is ignored in silence: a key that is read nowhere is refused by name, and so is a
tensor, unless it is in a list of what changes nothing.

TO ADD a family that needs no new operation: in families.cpp its row, in family_more.h a function
more_NAME for what a row cannot say, in family_names.h its tensors where they are not LLaMA's. Then
a case in dev/peers/check_families.py, which compares it with transformers. Facts: transformers
5.24, configuration_*.py and modeling_*.py of each family.
*/
#ifndef IMPORT_H
#define IMPORT_H
#include <set>
#include "../arch.h"
#include "dtypes.h"

// The line that makes a language model of one of text and images, for a hint. FILE: its directory.
// The text part of Qwen-VL is a Qwen 2 or 3, and whether its head is the embedding is looked at.
static const char* const TEXT_PART =
    "python3 -c \"import re, sys; from transformers import AutoModelForImageTextToText as I, "
    "AutoModelForCausalLM as C, AutoConfig as A; m = I.from_pretrained(sys.argv[1]); b = m.model; "
    "b = getattr(b, 'language_model', None) or b.text_model; c = b.config.to_dict(); "
    "k = re.sub('(_5)?_vl_text', '', c.pop('model_type')); "
    "c['tie_word_embeddings'] = m.lm_head.weight is b.embed_tokens.weight; "
    "t = C.from_config(A.for_model(k, **c)); t.model = b; t.lm_head = m.lm_head; "
    "t.save_pretrained(sys.argv[2])\" FILE NEW && cp FILE/*token* NEW";

// ---- tensors: ours without .weight and .bias, theirs, and how ours is part of it
enum Fold {
    AS_IT_IS,
    STACKED_Q, STACKED_K, STACKED_V,             // of q over k over v in one tensor
    GROUPS_Q, GROUPS_K, GROUPS_V,                // the same for each key head, one after the other
    FIRST_HALF, LAST_ROWS,                       // of gate over up; LAST_ROWS: or up by itself
    GATED_Q, GATED_GATE,                         // q of a head over the gate of its output
    DELTA_QKV, DELTA_Z, DELTA_B, DELTA_A,        // of q, k, v, z of each key head; of its b, a
    PAIRED,                                      // rotary pairs side by side, not in two halves
    HALVES_SWAPPED,                              // pairs that turn the other way
    ALL_ONES,                                        // a norm without weights: in no file
    NORM_FACTOR,                                 // a norm that is x w in a family with x (1 + w)
    SKIP_TWO                                     // all but the first two rows: positions of OPT
};
struct NameRow {
    const char *ours = NULL, *theirs = NULL;
    Fold fold = AS_IT_IS;
    const NameRow* then = NULL;                  // in the last row: the table that follows
};
// ---- the families
struct Checkpoint;
struct Import;
// What the object of positions in config.json has in a family, and not in LLaMA.
struct RopeForm {
    const char* other_keys = "";                 // " a b ", that `more` reads or a text needs not
    const char* longrope = "";                   // its names; then nothing else stretches positions
    int trained = 0;                             // longrope's context where no key says it
    bool by_layer = false;                       // it may have an object for each type of layers
};
struct Family {
    const char *name;                            // its model_type
    const char *rows;                            // of ARCH, where they are not LLaMA's
    const char *keys;                            // "theirs:field", beside the names of ARCH; a key
                                                 // "theirs:" changes nothing
    const char *wanted;                          // "key=value"
    void (*more)(Import*) = NULL;                // what the row cannot say
    const NameRow* names = NULL;                 // of its tensors; NULL: LLaMA's
    RopeForm rope = {};
    bool plus_one = false;                       // norms are x (1 + w)
    const char* act = "hidden_act";              // the key of its activation; whether its FFN has a
                                                 // gate is in the rows
    const char* prefix = "";                     // of tensor names; it may be missing
    bool transposed = false;                     // products as [in, out]
};

// Returns what stands before and behind the first `by` of a pair, such as "key=value".
inline std::pair<std::string, std::string> halves_of(const std::string& pair, char by) {
    const size_t at = pair.find(by);
    return { pair.substr(0, at), pair.substr(at + 1) };
}

// Returns the family of a config.json, or NULL if it has our own names or no known family.
const Family* family_of(const Json& config);

// Does the same for a file: GGUF has products as [out, in] and the factors of norms as they are,
// under names of its own.
Family family_of_file(const Json& config, bool gguf);

// Returns the family of this model_type, or NULL if there is none.
const Family* family_named(const std::string& type);

// Reads another family's config.json. *attn: the operation that the model wants; *asked: each key
// that the family's reader looks for, up to the one that it rejects.
Arch arch_import(const Json& json, const std::string& where, std::string* attn,
                 std::set<std::string>* asked = NULL);

// Returns the families' name for the activation of an FFN of ours, "" if it has none.
std::string activation_name(kind ffn);

// Returns the table of a model's names in a family. two_norms: Falcon with a norm for attention and
// one for the FFN
const NameRow* family_names(const Family& family, const Arch& c, bool two_norms);

// Finds the family's name of one of our tensors, and how ours is part of it. Returns false if it
// has none.
bool family_name(const Family& family, const NameRow* names, const std::string& ours,
                 std::string* theirs, Fold* fold);

// Tells whether one of our tensors is a norm that the family keeps as x (1 + w).
bool norm_plus_one(const Family& family, Fold fold, const std::string& ours);

// Returns the row of theirs that is row i of ours.
long import_row(Fold fold, const Arch& c, long i, long theirs_rows);

// Returns how many rows their tensor must have if ours has n. R: how many it has, -1 while it is
// being made
long import_rows(Fold fold, const Arch& c, long n, long R);

// ---- weights by our names

// "model.layers.3.mlp.up_proj.weight" in pieces: "3", "mlp.up_proj", ".weight".
struct OurName {
    std::string layer, stem, kind;
};

OurName our_name(const std::string& name);

// Their tensor that holds ours, and how.
struct TensorSource {
    const Weight* w;
    Fold fold;
};

// Finds one of ours in their files; w is NULL if it is not there.
TensorSource import_source(const Family& family, const Arch& c, const Weights& files,
                           const std::string& ours);

// Leaves `rows` rows of w in their file as our matrix at `out` (CpuFolder, optional.h); row_of(i)
// is our row i. Returns false, and does nothing, if the command or the type does not allow it.
bool weight_stays(const Weight& w, long rows, std::function<long(long)> row_of, const float* out);

// Returns how many more bytes the weights that stay in their file would take as floats.
double floats_spared(const Checkpoint& k);

// Reads one of our tensors from their files, rows x cols floats; returns what is wrong, or "".
std::string import_tensor(const Family& family, const Arch& c, const Weights& files,
                          const std::string& name, long rows, long cols, float* out,
                          std::set<std::string>* used);

// Folds OPT-350m's matrices into one of ours: its embedding is E P_in^T, its head E P_out. Returns
// false if these files have none.
bool import_projected(const Weights& files, const Arch& c, const std::string& name, float* out,
                      std::set<std::string>* used);

// Tells whether a tensor of theirs is a buffer, not a parameter.
bool is_buffer(const std::string& name);
#endif // IMPORT_H
