/*
export_gguf.h -- a model as a GGUF file, for llama.cpp: the tables of gguf_families.h, the other way
round. As in family_out.h, a model is written down and read back with the reader of GGUF files: if
the same model comes out, the file says it exactly. The column `computes` has what llama.cpp leaves
out of a family.
*/
#ifndef EXPORT_GGUF_H
#define EXPORT_GGUF_H
#include "export.h"
#include "family_out.h"
#include "gguf_out.h"

// what was written
struct GgufWritten {
    std::string arch;                            // llama.cpp's name of the family
    int other = 0;                               // tensors that are f16: no whole blocks in a row
};

// Writes a model to a file that is not there yet. ours: its tensors by our names; from: what errors
// call it. Dies, naming what llama.cpp lacks, if no family of it computes this model.
GgufWritten gguf_export(const std::string& path, const std::string& type, const std::string& from,
                        const Arch& c, const std::vector<StOut>& ours, const Tokenizer& tok);

// Adds the keys of a tokenizer for a model of V tokens (open/gguf_vocabulary.cpp). Dies if no
// GGUF file can say it.
void gguf_put_tokenizer(GgufOut* o, const Tokenizer& tok, int V);
#endif // EXPORT_GGUF_H
