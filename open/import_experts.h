/*
import_experts.h -- the weights of a mixture of experts, by our names.

We keep the experts of a layer as two matrices, one expert under the other: gate over up, and down.
Others have a tensor for each matrix of each expert, or, gpt-oss, one for all experts: turned, with
the rows of gate and up in turn, or as MXFP4.
*/
#ifndef IMPORT_EXPERTS_H
#define IMPORT_EXPERTS_H
#include "import.h"

// Reads a tensor of a mixture of experts; returns false if `name` is none. *wrong says what is
// missing, or "".
bool import_experts(const Weights& files, const Arch& c, const std::string& name, float* out,
                    std::set<std::string>* used, std::string* wrong);
#endif // IMPORT_EXPERTS_H
