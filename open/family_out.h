/*
family_out.h -- a model as a family of transformers has it: import.h's tables, the other way round.

No second list says which model a family can express. One is written down in the family's words and
read back with the family's own reader: if the same model comes out, to the last row of ARCH, the
family says it exactly. Tensors go where import_row takes them from.
*/
#ifndef FAMILY_OUT_H
#define FAMILY_OUT_H
#include "../core/config.h"
#include "import.h"

// a model in a family's words; family is NULL if that does not say it exactly
struct FamilyFile : ModelFile {
    const Family* family = NULL;
    const char* architecture = "";               // its class in transformers
};

// Writes the model in the words of the family of this model_type, or, with "", of the first that
// says it. ours: its tensors by our names, which have to outlive the result.
FamilyFile family_file(const Arch& c, const std::string& type, const std::vector<StOut>& ours,
                       const Tokenizer& tok, const std::string& tokenizer_path);


// Lists the families that can be written, by model_type.
std::vector<std::string> families_written();
#endif // FAMILY_OUT_H
