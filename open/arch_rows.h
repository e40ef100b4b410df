/*
arch_rows.h -- what the rows of OPEN_ARCH (rows.h) say of a model.
*/
#ifndef ARCH_ROWS_H
#define ARCH_ROWS_H
#include "../arch.h"

// Names what replaces attention in some layers, "Mamba" or "delta rule"; NULL if all have
// attention.
const char* mixer_name(const Arch& arch);

// Names what a model has that only runs forward: "Mamba layers", "a mixture of 8 experts"; "" if
// the whole model can be trained.
std::string forward_only(const Arch& arch);

// Dies if the rows do not fit together.
void check_rows(ArchCheck* check);
#endif // ARCH_ROWS_H
