/*
rope.h -- rotary positions beyond those that a model was trained with: the rows of OPEN_POSITIONS
(rows.h).
*/
#ifndef OPEN_ROPE_H
#define OPEN_ROPE_H
#include "../core/arch_check.h"

// Dies if the rows do not fit together.
void check_rope(ArchCheck* check);

// Adds what a config.json has in the object rope_scaling.
void rope_fields(JsonObject* object, const Arch& arch);

// The same with the object itself, if the model has one.
void rope_write(JsonObject* config, const Arch& arch);

// Reads a value of it: a list of numbers, or what any other row has.
void rope_row_read(const ArchRow& row, const Json& value, const std::string& where);

// Stretches the angles of a rotation. Returns what rotated vectors are multiplied by.
double rope_stretch(const Arch& arch, double base, std::vector<double>* angles);

// Returns the number of positions up to which a model is computed here: with dynamic and longrope
// those that were trained, as the angles are other ones for a longer text.
long rope_limit_of(const Arch& arch);
#endif // OPEN_ROPE_H
