// dev/ptx/decode.cpp -- from the text of one instruction to what performs it and to its registers.
#include "parse.h"
#include <stdlib.h>
#include <algorithm>

namespace ptx {
struct Text {                                   // of an instruction
    std::string opcode;
    std::vector<std::string> parts;             // of the opcode, between dots
    std::vector<std::string> operands;
    const std::string& base() const { return parts[0]; }
    const std::string& type() const { return parts.back(); }
    bool has(const char* part) const {
        return std::find(parts.begin(), parts.end(), part) != parts.end();
    }
};
static std::vector<std::string> split_dots(const std::string& s) {
    std::vector<std::string> out(1);
    for (char ch : s) {
        if (ch == '.') { out.emplace_back(); }
        else { out.back() += ch; }
    }
    return out;
}
static void do_nothing(Context&, const Instruction&, u32) {}
static void unknown(Context& c, const Instruction& i, u32) {
    c.at = &i;
    die("unknown instruction: %s\n  %s", i.text.c_str(), where(c, 0).c_str());
}
// Reads [register + offset] or [name + offset].
static void address_of(Names& names, Instruction& i, const std::string& text, Space space) {
    std::string s = trimmed(text.substr(1, text.size() - 2));
    const size_t plus = s.find('+');
    i.offset = plus == std::string::npos ? 0 : strtoll(s.c_str() + plus + 1, nullptr, 0);
    s = trimmed(s.substr(0, plus));
    if (space == PARAM) {
        for (const Parameter& p : names.kernel->params) {
            if (p.name == s) { i.offset += p.at; return; }
        }
    }
    const auto variable = names.variables.find(s);
    if (variable != names.variables.end()) {
        i.offset += variable->second + (space == SHARED ? 0 : SHARED_WINDOW);
        return;
    }
    i.base = (int)slot_of(names, s, 0);
    i.base64 = register_bytes(names, s) == 8;
}

// ----------------------------------------------------------------------------
// each returns whether the instruction was its own

static bool control(Names& names, Instruction& i, const Text& t) {
    i.perform = do_nothing;
    if (t.base() == "bra") {
        i.kind = BRANCH;
        names.branches.push_back({ (int)names.kernel->code.size(), t.operands[0] });
        return true;
    }
    if (t.base() == "ret" || t.base() == "exit") {
        i.kind = EXIT;
        return true;
    }
    const bool bar = t.base() == "bar" || t.base() == "barrier";
    if (bar && t.has("sync") && !t.has("warp") && t.operands.size() == 1) {
        if (t.operands[0] != "0") { die("%s", i.text.c_str()); }
        i.kind = BARRIER;
        return true;
    }
    i.perform = nullptr;
    return false;
}
static void shuffle_operands(Names& names, Instruction& i, const Text& t) {
    const size_t bar = t.operands[0].find('|');         // d|p
    i.operand[0] = slot_of(names, t.operands[0].substr(0, bar), 4);
    i.operand[1] = NO_SLOT;
    if (bar != std::string::npos) {
        i.operand[1] = slot_of(names, t.operands[0].substr(bar + 1), 4);
    }
    for (int k = 1; k < 4; k++) { i.operand[k + 1] = slot_of(names, t.operands[k], 4); }
    i.writes = 1 + (i.operand[1] != NO_SLOT);
    i.used = 5;
    i.mask = (int)slot_of(names, t.operands[4], 4);
    i.immediate = t.has("bfly") ? BUTTERFLY : t.has("idx") ? INDEX : t.has("up") ? UP : DOWN;
    i.perform = shuffle;
}
static void product_operands(Names& names, Instruction& i, const Text& t) {
    const int counts[4] = { 4, 4, 2, 4 };
    int n = 0;
    for (int k = 0; k < 4; k++) {
        const std::vector<std::string> list = elements_of(t.operands[k]);
        if ((int)list.size() != counts[k]) { die("%s", i.text.c_str()); }
        const bool is_float = k == 0 || k == 3;
        for (const std::string& x : list) { i.operand[n++] = slot_of(names, x, 4, is_float); }
    }
    i.writes = 4;
    i.used = n;
    i.aligned = true;
    i.perform = multiply_matrices;
}
static void matrix_operands(Names& names, Instruction& i, const Text& t) {
    const std::vector<std::string> list = elements_of(t.operands[0]);
    i.count = i.writes = i.used = (int)list.size();
    for (int k = 0; k < i.count; k++) { i.operand[k] = slot_of(names, list[k], 4); }
    address_of(names, i, t.operands[1], SHARED);
    const int count = t.has("x4") ? 4 : t.has("x2") ? 2 : 1;
    if (i.count != count || !t.has("b16") || !t.has("m8n8") || !t.has("shared") || i.base64) {
        die("%s", i.text.c_str());
    }
    i.immediate = t.has("trans");
    i.aligned = true;
    i.perform = load_matrix;
}
// Reads "sums, a, b, scale-d, 1, 1, a transposed, b transposed"; of a left side in registers there
// is no transposing. It is K-major; the other side is that beside memory, and else columns.
static void wgmma_operands(Names& names, Instruction& i, const Text& t) {
    const std::string& shape = t.parts[4];
    const int n = shape.compare(0, 4, "m64n") ? 0 : atoi(shape.c_str() + 4);
    const std::string name = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) +
                             "k16.f32.bf16.bf16";
    const std::vector<std::string> sums = elements_of(t.operands[0]);
    const std::vector<std::string> left = elements_of(t.operands[1]);
    const bool in_registers = left.size() > 1;
    const size_t most = in_registers ? 7 : 8;
    if (t.opcode != name || n < 8 || n > 256 || n % 8 || (int)sums.size() != n / 2 ||
        (in_registers && left.size() != 4) || t.operands.size() != most ||
        t.operands[4] != "1" || t.operands[5] != "1" || (!in_registers && t.operands[6] != "0")) {
        die("%s", i.text.c_str());
    }
    i.count = n;
    i.immediate = t.operands.back() == "1";     // b by columns
    for (const std::string& x : sums) { i.list.push_back(slot_of(names, x, 4, true)); }
    if (in_registers) {
        for (const std::string& x : left) { i.list.push_back(slot_of(names, x, 4)); }
    }
    i.operand[0] = in_registers ? NO_SLOT : slot_of(names, t.operands[1], 8);
    i.operand[1] = slot_of(names, t.operands[2], 8);
    i.operand[2] = slot_of(names, t.operands[3], 4);
    i.perform = products_begin;
}
// What Hopper adds, and warps or groups of four perform together.
static bool of_warpgroups(Names& names, Instruction& i, const Text& t) {
    i.aligned = true;
    if (t.opcode == "movmatrix.sync.aligned.m8n8.trans.b16") {
        for (int k = 0; k < 2; k++) { i.operand[k] = slot_of(names, t.operands[k], 4); }
        i.writes = 1;
        i.used = 2;
        i.perform = transpose_matrix;
    } else if ((t.opcode == "bar.sync" || t.opcode == "bar.arrive") && t.operands.size() == 2) {
        for (int k = 0; k < 2; k++) { i.operand[k] = slot_of(names, t.operands[k], 4); }
        i.immediate = t.has("sync");
        i.perform = named_barrier;
    } else if (t.opcode == "wgmma.fence.sync.aligned") {
        i.perform = products_fence;
    } else if (t.opcode == "wgmma.commit_group.sync.aligned") {
        i.perform = products_commit;
    } else if (t.opcode == "wgmma.wait_group.sync.aligned") {
        i.immediate = atoi(t.operands[0].c_str());
        i.perform = products_wait;
    } else if (t.base() == "wgmma" && t.has("mma_async")) {
        wgmma_operands(names, i, t);
    } else {
        i.aligned = false;
        return false;
    }
    names.kernel->has_wgmma |= t.base() == "wgmma";
    return true;
}
static bool collective(Names& names, Instruction& i, const Text& t) {
    i.kind = COLLECTIVE;
    if (of_warpgroups(names, i, t)) { return true; }
    if (t.base() == "bar" && t.has("warp")) {
        i.mask = (int)slot_of(names, t.operands[0], 4);
        i.perform = sync_warp;
    } else if (t.base() == "shfl") {
        shuffle_operands(names, i, t);
    } else if (t.base() == "vote" && t.has("ballot") && t.operands[1][0] != '!') {
        for (int k = 0; k < 2; k++) { i.operand[k] = slot_of(names, t.operands[k], 4); }
        i.writes = 1;
        i.used = 2;
        i.mask = (int)slot_of(names, t.operands[2], 4);
        i.perform = ballot;
    } else if (t.opcode == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") {
        product_operands(names, i, t);
    } else if (t.base() == "ldmatrix") {
        matrix_operands(names, i, t);
    } else {
        i.kind = NORMAL;
        return false;
    }
    return true;
}
static bool async(Names& names, Instruction& i, const Text& t) {
    if (t.opcode == "fence.proxy.async.shared::cta") {
        i.perform = fence_proxy;
        return true;
    }
    if (t.base() != "cp" || !t.has("async")) { return false; }
    if (t.has("commit_group")) {
        i.perform = copy_commit;
        return true;
    }
    if (t.has("wait_group") || t.has("wait_all")) {
        i.immediate = t.has("wait_all") ? -1 : atoi(t.operands[0].c_str());
        i.perform = copy_wait;
        return true;
    }
    if (!t.has("shared") || !t.has("global")) { return false; }
    Instruction to, from;
    address_of(names, to, t.operands[0], SHARED);
    address_of(names, from, t.operands[1], GLOBAL);
    i.immediate = atoi(t.operands[2].c_str());
    const bool small = i.immediate == 4 || i.immediate == 8;
    const bool size = i.immediate == 16 || (small && !t.has("cg"));
    if (to.base < 0 || from.base < 0 || to.base64 || !from.base64 || !size) {
        die("%s", i.text.c_str());
    }
    i.operand[0] = to.base;
    i.operand[1] = from.base;
    i.offset = to.offset;
    i.source_offset = from.offset;
    i.operands = (int)t.operands.size() > 3 ? 3 : 2;
    if (i.operands > 2) { i.operand[2] = slot_of(names, t.operands[3], 4); }
    i.perform = copy_async;
    return true;
}
static bool memory(Names& names, Instruction& i, const Text& t) {
    const bool store = t.base() == "st";
    if (!store && t.base() != "ld") { return false; }
    i.space = t.has("global") ? GLOBAL : t.has("shared") ? SHARED : t.has("param") ? PARAM
            : t.has("local") ? LOCAL : GENERIC;
    if (t.has("const")) { return false; }
    const std::vector<std::string> list = elements_of(t.operands[store]);
    i.element = type_bytes(t.type());
    i.is_signed = t.type()[0] == 's';
    i.count = (int)list.size();
    if (i.count != (t.has("v4") ? 4 : t.has("v2") ? 2 : 1)) { die("%s", i.text.c_str()); }
    for (const std::string& x : list) {
        const int bytes = register_bytes(names, x);
        if (bytes && i.register_bytes && bytes != i.register_bytes) { die("%s", i.text.c_str()); }
        i.register_bytes = std::max(i.register_bytes, bytes);
    }
    if (!i.register_bytes) { i.register_bytes = i.element == 8 ? 8 : 4; }
    if (i.register_bytes < i.element) { die("%s", i.text.c_str()); }
    for (int k = 0; k < i.count; k++) {
        i.operand[k] = slot_of(names, list[k], i.register_bytes, t.type()[0] == 'f');
    }
    i.used = i.count;
    i.writes = store ? 0 : i.count;
    address_of(names, i, t.operands[!store], i.space);
    i.perform = store ? store_memory : load_memory;
    return true;
}
static bool moves(Names& names, Instruction& i, const Text& t) {
    if (t.base() == "cvta") {
        for (int k = 0; k < 2; k++) { i.operand[k] = slot_of(names, t.operands[k], 8); }
        if (!t.has("global") && !t.has("shared")) { return false; }
        const u64 window = t.has("global") ? 0 : SHARED_WINDOW;
        i.operand[2] = slot_of(names, std::to_string(window), 8);
        i.perform = arithmetic({ t.has("to") ? "sub" : "add", "u64" });
        return true;
    }
    if (t.base() != "mov" || t.type() == "pred") { return false; }
    const int bytes = type_bytes(t.type());
    const bool splits = t.operands[0][0] == '{', joins = t.operands[1][0] == '{';
    if (!splits && !joins) {
        i.operand[0] = slot_of(names, t.operands[0], bytes);
        i.operand[1] = slot_of(names, t.operands[1], bytes, t.type()[0] == 'f');
        i.operand[2] = slot_of(names, "0", bytes);
        i.writes = 1;
        i.used = 2;
        i.moves = register_bytes(names, t.operands[1]) != 0;
        i.perform = arithmetic({ "or", bytes == 8 ? "b64" : bytes == 2 ? "b16" : "b32" });
        return true;
    }
    const std::vector<std::string> list = elements_of(t.operands[splits ? 0 : 1]);
    i.operands = (int)list.size();
    i.element = bytes / i.operands;
    for (int k = 0; k < i.operands; k++) {
        u32& to = i.operand[splits ? k : k + 1];
        to = list[k] == "_" ? NO_SLOT : slot_of(names, list[k], i.element);
    }
    i.operand[splits ? i.operands : 0] = slot_of(names, t.operands[splits], bytes);
    i.writes = splits ? i.operands : 1;
    i.used = i.operands + 1;
    i.perform = splits ? split_register : join_registers;
    return true;
}
static bool converts(Names& names, Instruction& i, const Text& t) {
    if (t.base() != "cvt") { return false; }
    const std::string &from = t.type(), &to = t.parts[t.parts.size() - 2];
    const int from_bytes = type_bytes(from), to_bytes = type_bytes(to);
    const int from_register = register_bytes(names, t.operands[1]);
    const int to_register = register_bytes(names, t.operands[0]);
    auto whole = [](const std::string& type) { return type[0] == 'u' || type[0] == 's'; };
    auto fits = [](int bytes, int type) { return bytes == std::max(2, type) && type > 1; };
    const bool fit = fits(to_register, to_bytes) &&
                     (from_register ? fits(from_register, from_bytes) : from_bytes > 1);
    if (t.parts.size() == 3 && whole(from) && whole(to) && !fit) {
        i.writes = 1;
        i.used = 2;
        i.operand[0] = slot_of(names, t.operands[0], 0);
        i.operand[1] = slot_of(names, t.operands[1], from_register ? 0 : from_bytes);
        i.register_bytes = to_register;
        i.count = from_register ? from_register : std::max(4, from_bytes);
        i.element = from_bytes;
        i.immediate = to_bytes;
        i.is_signed = from[0] == 's';
        i.result_signed = to[0] == 's';
        i.perform = convert_integers;
        return true;
    }
    i.writes = 1;
    i.used = (int)t.operands.size();
    i.operand[0] = slot_of(names, t.operands[0], to_bytes);
    for (size_t k = 1; k < t.operands.size(); k++) {
        i.operand[k] = slot_of(names, t.operands[k], from_bytes, from[0] == 'f');
    }
    i.perform = conversion(t.parts);
    return true;
}
// Bytes of operand k of an arithmetic instruction, whose type has `bytes`.
static int operand_bytes(const Text& t, size_t k, int bytes) {
    const std::string& op = t.base();
    if (t.type() == "pred") { return 4; }
    if (op == "setp" || op == "popc" || op == "clz") { return k == 0 ? 4 : bytes; }
    if (op == "shl" || op == "shr") { return k == 2 ? 4 : bytes; }
    if (op == "bfi") { return k > 2 ? 4 : bytes; }
    if (op == "bfe") { return k > 1 ? 4 : bytes; }
    if (op == "selp") { return k == 3 ? 4 : bytes; }
    if (t.has("wide")) { return k == 0 || k == 3 ? 2 * bytes : bytes; }
    return bytes;
}
static void registers_only(Names& names, Instruction& i, const Text& t) {
    const int bytes = type_bytes(t.type());
    const bool is_float = t.type() == "f32" || t.type() == "f64";
    if (t.base() == "setp" && t.operands[0].find('|') != std::string::npos) { return; }
    i.perform = arithmetic(t.parts);
    if (!i.perform || bytes == 0) { return; }
    i.writes = 1;
    i.used = (int)t.operands.size();
    for (size_t k = 0; k < t.operands.size(); k++) {
        i.operand[k] = slot_of(names, t.operands[k], operand_bytes(t, k, bytes), is_float);
    }
    if (t.base() == "lop3") { i.immediate = (int)number_of(t.operands[4], 4, false); }
}
void decode(Names& names, Instruction& i, const std::string& opcode, const std::string& rest) {
    const Text t = { opcode, split_dots(opcode), operands_of(rest) };
    const bool known = control(names, i, t) || collective(names, i, t) || async(names, i, t) ||
                       memory(names, i, t) || moves(names, i, t) || converts(names, i, t);
    if (!known) { registers_only(names, i, t); }
    if (!i.perform) { i.perform = unknown; }
}
} // namespace ptx
