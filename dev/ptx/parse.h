// dev/ptx/parse.h -- the names of one kernel while its text is read.
#ifndef PTX_PARSE_H
#define PTX_PARSE_H
#include "machine.h"

namespace ptx {
struct Register {
    u32 slot;
    int bytes;
};
struct Names {
    Kernel* kernel;
    std::map<std::string, Register> registers;
    std::map<std::string, u32> variables;       // of shared memory: addresses
    std::map<std::string, int> labels;
    std::vector<std::pair<int, std::string>> branches;      // to labels that may still come
    std::map<std::pair<int, u64>, u32> constants;           // bytes and value: slot
    u32 end = 0;                                            // of the slots
};
// Cuts off white space at both ends.
std::string trimmed(const std::string& s);
// Splits at commas outside of braces and brackets.
std::vector<std::string> operands_of(const std::string& s);
// Splits "{a, b}"; anything else is a list of one.
std::vector<std::string> elements_of(const std::string& s);
// Bytes of a type such as u32, bf16x2 or pred; 0 if it is none.
int type_bytes(const std::string& type);
// Returns where a register, constant or address stands. bytes: those wanted of the register, 0: any
u32 slot_of(Names& names, const std::string& operand, int bytes, bool is_float = false);
u32 new_slot(Names& names, int bytes);
// Bytes of a register, 0 if the operand is none.
int register_bytes(const Names& names, const std::string& operand);
// Reads the number of an immediate operand.
u64 number_of(const std::string& s, int bytes, bool is_float);
} // namespace ptx
#endif
