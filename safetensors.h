/*
safetensors.h -- safetensors files and checkpoint directories, in and out.

safetensors: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, then the data. A
file is believed only after every number in its header has been checked against the file's size.
A checkpoint is a directory step_N, written under another name, synced, then renamed: it is there whole or not at all.
*/
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
#include <sys/mman.h>
#include "common.h"

// ----------------------------------------------------------------------------
// safetensors

struct StTensor { std::string name, dtype; std::vector<long> shape; const char* data; size_t bytes; long count; };
struct Safetensors {
    std::string path;
    std::vector<StTensor> tensors;
    std::vector<std::pair<std::string, std::string>> metadata;
    void* map = NULL; size_t map_bytes = 0;
    const StTensor* find(const std::string& name) const {
        for (auto& t : tensors) { if (t.name == name) { return &t; } }
        return NULL;
    }
    std::string meta(const char* key) const {
        for (auto& m : metadata) { if (m.first == key) { return m.second; } }
        return "";
    }
};
inline int dtype_bytes(const std::string& d) {
    return d == "F32" || d == "I32" || d == "U32" ? 4 : d == "BF16" || d == "F16" || d == "I16" || d == "U16" ? 2
         : d == "F64" || d == "I64" || d == "U64" ? 8 : d == "I8" || d == "U8" || d == "BOOL" ? 1 : 0;
}
static const char* const DAMAGED = "the file is damaged or was cut short: use another checkpoint";

// the header of a safetensors file of `size` bytes at `base`; says where the data begin
inline Json safetensors_header(const std::string& path, const char* base, long size, uint64_t* data_at) {
    uint64_t header; memcpy(&header, base, 8);
    if (header > (uint64_t)size - 8 || header > 100000000) {
        die(EXIT_USER, strf("%s: header says %llu bytes, the file has %ld", path.c_str(),
            (unsigned long long)header, size), DAMAGED);
    }
    Json j; std::string error;
    if (!json_parse(base + 8, header, &j, &error) || j.type != Json::OBJECT) {
        die(EXIT_USER, strf("%s: header is not a JSON object (%s)", path.c_str(), error.c_str()), DAMAGED);
    }
    *data_at = 8 + header;
    return j;
}
// one entry of the header, whose data must lie in the `room` bytes at `data`
inline StTensor safetensors_tensor(const std::string& path, const std::string& name, const Json& entry,
                                   const char* data, uint64_t room) {
    auto whole = [](const Json& x) {
        return x.type == Json::NUMBER && x.number >= 0 && x.number < 9e15 && x.number == floor(x.number);
    };
    const Json *dtype = entry.get("dtype"), *shape = entry.get("shape"), *off = entry.get("data_offsets");
    bool ok = dtype && dtype_bytes(dtype->string) && shape && shape->type == Json::ARRAY
           && off && off->items.size() == 2 && whole(off->items[0]) && whole(off->items[1]);
    double count = 1;
    for (size_t i = 0; ok && i < shape->items.size(); i++) {
        ok = whole(shape->items[i]); count *= shape->items[i].number;
    }
    const double a = ok ? off->items[0].number : 0, b = ok ? off->items[1].number : 0;
    if (!ok || a > b || b > room || b - a != count * dtype_bytes(dtype->string)) {
        die(EXIT_USER, strf("%s: tensor '%s' says it lies at bytes %.0f..%.0f of %llu, which does not fit "
            "its shape and dtype", path.c_str(), name.c_str(), a, b, (unsigned long long)room), DAMAGED);
    }
    StTensor t{ name, dtype->string, {}, data + (uint64_t)a, (size_t)(b - a), (long)count };
    for (auto& d : shape->items) { t.shape.push_back((long)d.number); }
    return t;
}
inline Safetensors safetensors_open(const std::string& path) {
    Safetensors st;
    st.path = path;
    int fd = open(path.c_str(), O_RDONLY);
    if (fd < 0) { die(EXIT_USER, strf("%s: cannot open (%s)", path.c_str(), strerror(errno)), "ls runs/*/"); }
    const long size = file_size(path);
    if (size < 8) {
        die(EXIT_USER, strf("%s: got %ld bytes, wanted a safetensors file of at least 8", path.c_str(), size), DAMAGED);
    }
    st.map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    st.map_bytes = size;
    close(fd);
    if (st.map == MAP_FAILED) { die(EXIT_MACHINE, strf("%s: cannot map (%s)", path.c_str(), strerror(errno))); }
    const char* base = (const char*)st.map;
    uint64_t data_at;
    const Json j = safetensors_header(path, base, size, &data_at);
    const char* data = base + data_at;
    for (auto& f : j.fields) {
        if (f.first != "__metadata__") {
            st.tensors.push_back(safetensors_tensor(path, f.first, f.second, data, size - data_at));
            continue;
        }
        for (auto& m : f.second.fields) { st.metadata.push_back({ m.first, m.second.string }); }
    }
    // the tensors fill the data: no hole, no overlap, nothing behind the last
    std::vector<const StTensor*> order;
    for (auto& t : st.tensors) { order.push_back(&t); }
    std::sort(order.begin(), order.end(), [](const StTensor* a, const StTensor* b) {
        return a->data != b->data ? a->data < b->data : a->bytes < b->bytes;
    });
    const char* end = data;
    for (auto t : order) {
        if (t->data != end) {
            die(EXIT_USER, strf("%s: tensor '%s' begins at byte %ld of the data, wanted %ld, where the one "
                "before it ends", path.c_str(), t->name.c_str(), (long)(t->data - data), (long)(end - data)), DAMAGED);
        }
        end += t->bytes;
    }
    if (end != base + size) {
        die(EXIT_USER, strf("%s: the tensors end at byte %ld, the file has %ld", path.c_str(), (long)(end - base),
            size), DAMAGED);
    }
    return st;
}
inline void safetensors_close(Safetensors* st) {
    if (st->map) { munmap(st->map, st->map_bytes); }
    st->map = NULL;
    st->tensors.clear();
}
// out[i] = element i as a float; F32, BF16, F16, F64 can be read
inline void safetensors_read(const Safetensors& st, const StTensor& t, float* out) {
    if (t.dtype == "F32") { if (t.bytes) { memcpy(out, t.data, t.bytes); } return; }
    for (long i = 0; i < t.count; i++) {
        if (t.dtype == "BF16") {
            uint16_t h; memcpy(&h, t.data + 2 * i, 2);
            const uint32_t u = (uint32_t)h << 16; memcpy(&out[i], &u, 4);
        }
        else if (t.dtype == "F64") { double d; memcpy(&d, t.data + 8 * i, 8); out[i] = (float)d; }
        else if (t.dtype == "F16") {
            uint16_t h; memcpy(&h, t.data + 2 * i, 2);
            const int e = h >> 10 & 31, f = h & 1023;
            const double v = e == 0 ? ldexp(f, -24) : e == 31 ? (f ? NAN : INFINITY) : ldexp(1024 + f, e - 25);
            out[i] = h >> 15 ? -v : v;
        } else {
            die(EXIT_USER, strf("%s: tensor '%s' has dtype %s, wanted F32, BF16, F16 or F64", st.path.c_str(),
                t.name.c_str(), t.dtype.c_str()));
        }
    }
}
// what to write: F32 tensors in host memory
struct StOut { std::string name; std::vector<long> shape; const float* data; };
inline void safetensors_write(const std::string& path, const std::vector<StOut>& tensors,
                              const std::string& metadata_json) {
    std::string h = "{\"__metadata__\":" + metadata_json;
    size_t at = 0;
    for (auto& t : tensors) {
        size_t count = 1;
        std::string dims;
        for (long d : t.shape) { count *= d; dims += strf("%s%ld", dims.empty() ? "" : ",", d); }
        h += "," + json_str(t.name) + ":{\"dtype\":\"F32\",\"shape\":[" + dims;
        h += strf("],\"data_offsets\":[%zu,%zu]}", at, at + 4 * count);
        at += 4 * count;
    }
    h += "}";
    while (h.size() % 8) { h += ' '; }
    FileOut o = file_begin(path);
    uint64_t n = h.size();
    file_put(&o, &n, 8);
    file_put(&o, h.data(), h.size());
    for (auto& t : tensors) {
        size_t count = 1;
        for (long d : t.shape) { count *= d; }
        file_put(&o, t.data, 4 * count);
    }
    file_commit(&o);
}

// ----------------------------------------------------------------------------
// checkpoint directories OUT/step_N. While one is written it is OUT/step_N.tmp; if a step_N was there before, it steps
// aside as step_N.old for the instant between two renames, and is found under that name should the machine stop there.

inline std::string checkpoint_begin(const std::string& out, long step) {
    std::string tmp = strf("%s/step_%ld.tmp", out.c_str(), step);
    remove_tree(tmp);
    make_dirs(tmp);
    return tmp;
}
inline void checkpoint_commit(const std::string& out, long step) {
    std::string dir = strf("%s/step_%ld", out.c_str(), step);
    dir_sync(dir + ".tmp");
    if (file_exists(dir)) { remove_tree(dir + ".old"); rename(dir.c_str(), (dir + ".old").c_str()); }
    if (rename((dir + ".tmp").c_str(), dir.c_str())) {
        die(EXIT_MACHINE, strf("%s: cannot rename into place (%s)", dir.c_str(), strerror(errno)));
    }
    dir_sync(out);
    remove_tree(dir + ".old");
}
// the newest whole checkpoint in OUT, or "": *step says which
inline std::string checkpoint_latest(const std::string& out, long* step) {
    std::string best;
    *step = -1;
    for (auto& name : dir_list(out)) {
        if (name.compare(0, 5, "step_")) { continue; }
        std::string digits = name.substr(5);
        const bool old = ends_with(digits, ".old");
        if (old) { digits.resize(digits.size() - 4); }
        long n;
        if (!parse_long(digits, &n) || n < *step || (n == *step && old)) { continue; } // .tmp ends here: no number
        if (!file_exists(out + "/" + name + "/state.json")) { continue; }
        *step = n;
        best = out + "/" + name;
    }
    return best;
}
inline Json json_of(const std::string& text, const std::string& name = "JSON") {
    Json j; std::string error;
    if (!json_parse(text.data(), text.size(), &j, &error)) { die(EXIT_USER, name + ": not JSON, " + error, DAMAGED); }
    return j;
}
inline Json json_file(const std::string& path) { return json_of(file_read(path), path); }
#endif // SAFETENSORS_H
