// dev/ptx/parse.cpp -- reads the PTX that nvcc writes: kernels, their parameters, registers, shared
// memory, labels. load() reads the file, read_kernel() one kernel; decode.cpp says what an
// instruction does.
#include "parse.h"
#include <stdio.h>
#include <stdlib.h>
#include <algorithm>

namespace ptx {
std::map<std::string, Kernel> kernels;
std::map<int, std::string> files;

// ----------------------------------------------------------------------------
// words

std::string trimmed(const std::string& s) {
    const size_t first = s.find_first_not_of(" \t\r\n"), last = s.find_last_not_of(" \t\r\n");
    return first == std::string::npos ? "" : s.substr(first, last - first + 1);
}
std::vector<std::string> operands_of(const std::string& s) {
    std::vector<std::string> out;
    std::string word;
    int depth = 0;
    for (char ch : s) {
        depth += ch == '{' || ch == '[';
        depth -= ch == '}' || ch == ']';
        if (ch != ',' || depth) { word += ch; continue; }
        out.push_back(trimmed(word));
        word.clear();
    }
    if (!trimmed(word).empty()) { out.push_back(trimmed(word)); }
    return out;
}
std::vector<std::string> elements_of(const std::string& s) {
    if (s[0] != '{') { return { s }; }
    return operands_of(s.substr(1, s.size() - 2));
}
int type_bytes(const std::string& type) {
    if (type == "pred" || type == "bf16x2") { return 4; }
    if (type == "bf16") { return 2; }
    return type.empty() ? 0 : atoi(type.c_str() + 1) / 8;
}
u64 number_of(const std::string& s, int bytes, bool is_float) {
    const bool bits = s.size() > 2 && s[0] == '0' && strchr("fFdD", s[1]);
    if (bits) { return strtoull(s.c_str() + 2, nullptr, 16); }
    if (!is_float && s[0] == '-') { return (u64)strtoll(s.c_str(), nullptr, 0); }
    if (!is_float) { return strtoull(s.c_str(), nullptr, 0); }
    const double v = atof(s.c_str());
    if (bytes == 4) { return bits_of((float)v); }
    u64 out;
    memcpy(&out, &v, 8);
    return out;
}

// ----------------------------------------------------------------------------
// registers and constants

u32 new_slot(Names& names, int bytes) {
    const u32 slot = names.end;
    names.end += bytes == 8 ? 256 : 128;
    return slot;
}
static u32 constant(Names& names, int bytes, u64 value) {
    bytes = bytes == 8 ? 8 : 4;
    if (bytes == 4) { value = (u32)value; }
    const auto key = std::make_pair(bytes, value);
    const auto known = names.constants.find(key);
    if (known != names.constants.end()) { return known->second; }
    const u32 slot = new_slot(names, bytes);
    names.constants[key] = slot;
    names.kernel->presets.push_back(Preset{slot, bytes, value});
    return slot;
}
// Makes a register such as %tid.x, which a block finds filled.
static u32 special(Names& names, const std::string& name) {
    int which = -1;
    const char* known[] = { "%tid.", "%ntid.", "%ctaid.", "%nctaid." };
    for (int k = 0; k < 4; k++) {
        if (name.find(known[k]) == 0) { which = k + 4 * (name.back() - 'x'); }
    }
    if (name == "%laneid") { which = LANE; }
    if (which < 0) { die("unknown special register %s", name.c_str()); }
    const u32 slot = new_slot(names, 4);
    names.registers[name] = Register{slot, 4};
    names.kernel->presets.push_back(Preset{slot, 0, (u64)which});
    return slot;
}
u32 slot_of(Names& names, const std::string& s, int bytes, bool is_float) {
    const auto found = names.registers.find(s);
    if (found != names.registers.end()) {
        if (bytes && found->second.bytes != bytes) {
            die("kernel %s: %s has %d bytes, wanted %d", names.kernel->name.c_str(), s.c_str(),
                found->second.bytes, bytes);
        }
        return found->second.slot;
    }
    const bool number = isdigit((unsigned char)s[0]) || (s[0] == '-' && s.size() > 1);
    if (number) { return constant(names, bytes, number_of(s, bytes, is_float)); }
    if (s.find("__local_depot") == 0) { return constant(names, bytes, LOCAL_START); }
    const auto variable = names.variables.find(s);
    if (variable != names.variables.end()) {
        return constant(names, bytes, variable->second + (bytes == 8 ? SHARED_WINDOW : 0));
    }
    if (s[0] == '%') { return special(names, s); }
    for (const Parameter& p : names.kernel->params) { // its address among the parameters
        if (p.name == s) { return constant(names, bytes, p.at); }
    }
    die("kernel %s: unknown operand %s", names.kernel->name.c_str(), s.c_str());
}
int register_bytes(const Names& names, const std::string& operand) {
    const auto found = names.registers.find(operand);
    return found == names.registers.end() ? 0 : found->second.bytes;
}
// Reads ".reg .b32 %r<12>".
static void read_registers(Names& names, const std::string& statement) {
    char type[16];
    int used = 0;
    if (sscanf(statement.c_str(), ".reg .%15s%n", type, &used) < 1) {
        die("%s", statement.c_str());
    }
    const int bytes = std::max(2, type_bytes(type));
    auto add = [&](const std::string& name) {
        if (!names.registers.count(name)) {
            names.registers[name] = Register{new_slot(names, bytes), bytes};
        }
    };
    for (const std::string& r : operands_of(statement.substr(used))) {
        const size_t bracket = r.find('<');
        const int n = bracket == std::string::npos ? 0 : atoi(r.c_str() + bracket + 1);
        if (bracket == std::string::npos) { add(r); }
        for (int k = 0; k < n; k++) { add(r.substr(0, bracket) + std::to_string(k)); }
    }
}

// ----------------------------------------------------------------------------
// what a kernel declares

// Reads ".param .align 8 .b8 NAME[24]", ".param .u64 NAME" or the same of .shared.
struct Declared {
    std::string name;
    size_t alignment;
    size_t bytes;
    bool outside;               // .extern
};
static Declared read_declaration(const std::string& text) {
    Declared d = { "", 0, 0, text.find(".extern") != std::string::npos };
    std::string s = text;
    std::replace(s.begin(), s.end(), '\t', ' ');
    const size_t last = trimmed(s).find_last_of(' ');
    d.name = trimmed(s).substr(last + 1);
    size_t count = 1;
    const size_t bracket = d.name.find('[');
    if (bracket != std::string::npos) {
        count = strtoul(d.name.c_str() + bracket + 1, nullptr, 10);
        d.name = d.name.substr(0, bracket);
    }
    const std::vector<std::string> words = [&] {
        std::vector<std::string> out;
        char word[200];
        int used;
        for (const char* p = s.c_str(); sscanf(p, "%199s%n", word, &used) == 1; p += used) {
            out.push_back(word);
        }
        return out;
    }();
    size_t element = 0;
    for (size_t k = 0; k + 1 < words.size(); k++) {
        if (words[k] == ".align") { d.alignment = strtoul(words[k + 1].c_str(), nullptr, 10); }
        if (words[k][0] == '.' && isdigit((unsigned char)words[k].back())) {
            element = type_bytes(words[k].substr(1));
        }
    }
    d.bytes = count * element;
    if (!d.alignment) { d.alignment = element; }
    return d;
}
static void read_parameters(Kernel& k, const std::string& list) {
    for (const std::string& s : operands_of(list)) {
        const Declared d = read_declaration(s);
        const size_t at = (k.param_bytes + d.alignment - 1) / d.alignment * d.alignment;
        k.params.push_back(Parameter{d.name, at, d.bytes, d.alignment});
        k.param_bytes = at + d.bytes;
    }
}
// Places shared variables apart, each at its alignment and at no larger one.
static void place_shared(Names& names, const std::vector<Declared>& variables) {
    Kernel& k = *names.kernel;
    auto place = [](size_t from, size_t alignment) {
        const size_t twice = 2 * alignment;
        return (u32)((from + twice - 1) / twice * twice + alignment);
    };
    size_t end = 1024;
    for (const Declared& v : variables) {
        if (v.outside) { continue; }
        const u32 at = place(end, v.alignment);
        names.variables[v.name] = at;
        k.variables.push_back(Variable{v.name, at, v.bytes});
        k.statics = (k.statics + v.alignment - 1) / v.alignment * v.alignment + v.bytes;
        end = at + v.bytes + 256;
    }
    for (const Declared& v : variables) {
        if (!v.outside) { continue; }
        k.dynamic = place(end, v.alignment);
        names.variables[v.name] = k.dynamic;
        k.variables.push_back(Variable{"dynamic", k.dynamic, 0});
        end = k.dynamic;
    }
    k.shared_end = end;
}

// ----------------------------------------------------------------------------
// a kernel

struct Body {
    std::string head;           // from .entry to the parameters' end
    std::string text;
    int line;                   // of the file, where the text starts
};
static void read_loc(const std::string& s, Place& at, Place& from) {
    int file, line, column;
    if (sscanf(s.c_str(), ".loc %d %d %d", &file, &line, &column) < 2) { return; }
    at = from = Place{file, line};
    const size_t inlined = s.find("inlined_at");
    if (inlined == std::string::npos) { return; }
    sscanf(s.c_str() + inlined, "inlined_at %d %d", &from.file, &from.line);
}
static void read_instruction(Names& names, Instruction i, std::string s) {
    i.text = s;
    for (char& ch : i.text) { if (ch == '\t' || ch == '\n') { ch = ' '; } }
    if (s[0] == '@') {
        const size_t end = s.find_first_of(" \t");
        i.negated = s[1] == '!';
        i.predicate = (int)slot_of(names, s.substr(1 + i.negated, end - 1 - i.negated), 4);
        s = trimmed(s.substr(end));
    }
    const size_t end = s.find_first_of(" \t");
    const std::string rest = end == std::string::npos ? "" : trimmed(s.substr(end));
    decode(names, i, s.substr(0, end), rest);
    names.kernel->code.push_back(i);
}
static void read_directive(Names& names, const std::string& s) {
    auto starts = [&](const char* word) { return s.compare(0, strlen(word), word) == 0; };
    if (starts(".reg")) { read_registers(names, s); return; }
    if (starts(".local")) {
        const size_t bytes = read_declaration(s).bytes;
        names.kernel->local_bytes = (bytes + 15) / 16 * 16;
        return;
    }
    if (!starts(".shared") && !starts(".pragma")) { die("unknown directive %s", s.c_str()); }
}
static void read_statements(Names& names, const Body& body) {
    const std::string& t = body.text;
    int line = body.line;
    Instruction next;           // its place in the source
    size_t at = 0;
    while (at < t.size()) {
        const char ch = t[at];
        if (isspace((unsigned char)ch) || ch == '{' || ch == '}' || ch == ';') {
            line += ch == '\n';
            at++;
            continue;
        }
        const size_t line_end = std::min(t.find('\n', at), t.size());
        if (t.compare(at, 2, "//") == 0) { at = line_end; continue; }
        if (t.compare(at, 5, ".loc\t") == 0 || t.compare(at, 5, ".loc ") == 0) {
            std::string loc = t.substr(at, line_end - at);
            std::replace(loc.begin(), loc.end(), '\t', ' ');
            read_loc(loc, next.at, next.from);
            at = line_end;
            continue;
        }
        size_t end = at;        // a label ends with ':'
        while (end < t.size() && t[end] != ';' && !(t[end] == ':' && ch == '$')) { end++; }
        const std::string s = trimmed(t.substr(at, end - at));
        next.ptx_line = line;
        line += (int)std::count(t.begin() + at, t.begin() + end, '\n');
        at = end + 1;
        if (end < t.size() && t[end] == ':') {
            names.labels[s] = (int)names.kernel->code.size();
        } else if (s[0] == '.') {
            read_directive(names, s);
        } else { read_instruction(names, next, s); }
    }
}
static void read_kernel(const Body& body, const std::vector<Declared>& of_module) {
    Kernel k;
    Names names;
    names.kernel = &k;
    const std::string& head = body.head;
    const size_t entry = head.find(".entry") + 6, open = head.find('('), close = head.find(')');
    k.name = trimmed(head.substr(entry, open - entry));
    read_parameters(k, head.substr(open + 1, close - open - 1));
    const size_t threads = head.find(".maxntid");
    if (threads != std::string::npos) {
        unsigned n[3] = { 1, 1, 1 };
        sscanf(head.c_str() + threads + 8, "%u , %u , %u", n, n + 1, n + 2);
        k.most_threads = n[0] * n[1] * n[2];
    }
    // the shared variables of the body, and those of the module that it names
    std::vector<Declared> variables;
    const std::string& t = body.text;
    const char* word = ".shared .align";
    for (size_t at = t.find(word); at != std::string::npos; at = t.find(word, at + 5)) {
        variables.push_back(read_declaration(t.substr(at, t.find(';', at) - at)));
    }
    for (const Declared& v : of_module) {
        if (t.find(v.name) != std::string::npos) { variables.push_back(v); }
    }
    place_shared(names, variables);
    read_statements(names, body);
    for (auto& [at, label] : names.branches) {
        const auto found = names.labels.find(label);
        if (found == names.labels.end()) {
            die("kernel %s: no label %s", k.name.c_str(), label.c_str());
        }
        k.code[at].target = found->second;
    }
    k.register_bytes = names.end;
    const std::string name = k.name;
    kernels[name] = std::move(k);
}

// ----------------------------------------------------------------------------
// the file

static std::string read_file() {
    const char* path = getenv("PTX");
    if (!path) { die("PTX= names no file"); }
    FILE* f = fopen(path, "r");
    if (!f) { die("cannot read %s", path); }
    std::string text;
    char buffer[1 << 16];
    size_t n;
    while ((n = fread(buffer, 1, sizeof buffer, f))) { text.append(buffer, n); }
    fclose(f);
    return text;
}
static void read_file_name(const std::string& line) {
    int n;
    char name[400];
    if (sscanf(line.c_str(), " .file %d \"%399[^\"]", &n, name) != 2) { return; }
    const char* slash = strrchr(name, '/');
    files[n] = slash ? slash + 1 : name;
}
void load() {
    static bool done = false;
    if (done) { return; }
    done = true;
    const std::string t = read_file();
    std::vector<Declared> shared;
    std::vector<Body> bodies;
    int line = 1;
    for (size_t at = 0; at < t.size();) {
        size_t end = std::min(t.find('\n', at), t.size());
        const std::string s = t.substr(at, end - at);
        auto has = [&](const char* word) { return s.find(word) != std::string::npos; };
        if (has(".entry")) {
            const size_t open = t.find("\n{", at), close = t.find("\n}", open);
            const int start = line + (int)std::count(t.begin() + at, t.begin() + open + 2, '\n');
            const std::string text = t.substr(open + 2, close - open - 2);
            bodies.push_back(Body{t.substr(at, open - at), text, start});
            end = close + 1;
        } else if (s[0] == '.' && has(".shared .align")) {
            shared.push_back(read_declaration(s.substr(0, s.find(';'))));
        } else if (has(".file")) {
            read_file_name(s);
        } else if (has(".func") || has(".const") || (s[0] == '.' && has(".global"))) {
            die("functions and global variables are not read: %s", s.c_str());
        }
        line += (int)std::count(t.begin() + at, t.begin() + std::min(end + 1, t.size()), '\n');
        at = end + 1;
    }
    for (const Body& b : bodies) { read_kernel(b, shared); }
}
} // namespace ptx
