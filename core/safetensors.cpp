/*
core/safetensors.cpp -- reads a header and checks every place in it; writes a checkpoint under
another name and renames it.
*/
#include "safetensors.h"
#include "../base/look.h"
#include "../optional.h"
#include "../tokenizer.h"

// ----------------------------------------------------------------------------
// safetensors
static const char* const DAMAGED = "the file is damaged or was cut short: use another checkpoint";

// Reads the header of a safetensors file of `size` bytes at `base`; says where the data begin.
static Json safetensors_header(const std::string& path, const char* base, long size,
                               uint64_t* data_at) {
    uint64_t header; memcpy(&header, base, 8);
    if (header > (uint64_t)size - 8 || header > 100000000) {
        die(strf("%s: header says %llu bytes, the file has %ld", path.c_str(),
            (unsigned long long)header, size), DAMAGED);
    }
    Json j; std::string error;
    if (!json_parse(base + 8, header, &j, &error) || j.type != Json::OBJECT) {
        die(path + ": header is not a JSON object (" + error + ")", DAMAGED);
    }
    *data_at = 8 + header;
    return j;
}

// Reads one entry of the header, whose data must lie in the `room` bytes at `data`.
static Weight safetensors_tensor(const std::string& path, const std::string& name,
                                 const Json& entry, const char* data, uint64_t room) {
    auto whole = [](const Json& x) {             // digits alone: 16.0, 1e3 and -0 are none
        const bool digits = x.string.find_first_not_of("0123456789") == x.string.npos;
        return x.type == Json::NUMBER && digits && x.number < 9e15;
    };
    const Json& dtype = entry["dtype"];
    const Json& shape = entry["shape"];
    const std::vector<Json>& places = entry["data_offsets"].items;
    const WeightType* type = number_type(dtype.string);
    bool ok = type && shape.type == Json::ARRAY &&
              places.size() == 2 && whole(places[0]) && whole(places[1]);
    double count = 1;
    for (auto& d : shape.items) {
        ok = ok && whole(d);
        count *= d.number;
    }
    const double a = ok ? places[0].number : 0;
    const double b = ok ? places[1].number : 0;
    if (!ok || a > b || b > room || b - a != count * type->bytes) {
        die(strf("%s: tensor '%s' says it lies at bytes %s..%s of %llu, which does "
            "not fit its shape and dtype (%s)", path.c_str(), name.c_str(),
            number_text(a).c_str(), number_text(b).c_str(), (unsigned long long)room,
            json_short(dtype).c_str()), type || open_files ? DAMAGED : OPEN_MISSING);
    }
    Weight t = { name, path, type, {}, data + (uint64_t)a, (size_t)(b - a), (long)count };
    for (auto& d : shape.items) { t.shape.push_back((long)d.number); }
    return t;
}

// Dies unless the tensors fill the data: no hole, no overlap, nothing behind the last.
static void safetensors_check_places(const Weights& w, const char* data, const char* data_end) {
    std::vector<const Weight*> order;
    for (auto& t : w.tensors) { order.push_back(&t); }
    std::sort(order.begin(), order.end(), [](const Weight* a, const Weight* b) {
        return std::make_pair(a->data, a->bytes) < std::make_pair(b->data, b->bytes);
    });
    const char* end = data;
    for (auto t : order) {
        if (t->data != end) {
            die(strf("%s: tensor '%s' begins at byte %ld of the data, wanted %ld, where "
                "the one before it ends", w.path.c_str(), t->name.c_str(), (long)(t->data - data),
                (long)(end - data)), DAMAGED);
        }
        end += t->bytes;
    }
    if (end != data_end) {
        die(strf("%s: the tensors end at byte %ld of the data, which has %ld",
            w.path.c_str(), (long)(end - data), (long)(data_end - data)), DAMAGED);
    }
}

Weights safetensors_open(const std::string& path) {
    Weights w;
    w.path = path;
    look_file(path, READS_SAFETENSORS);
    w.maps.push_back(file_map(path, 8, "safetensors"));
    const FileMap map = w.maps[0];
    uint64_t data_at;
    const Json j = safetensors_header(path, map.data, map.size, &data_at);
    const char* data = map.data + data_at;
    for (auto& [name, entry] : j.fields) {
        if (name != "__metadata__") {
            weights_add(&w, safetensors_tensor(path, name, entry, data, map.size - data_at));
            continue;
        }
        bool texts = entry.type == Json::OBJECT || entry.type == Json::NUL;
        for (auto& m : entry.fields) { texts = texts && m.second.is_text(); }
        if (!texts) { die(path + ": __metadata__: wanted an object of texts", DAMAGED); }
    }
    safetensors_check_places(w, data, map.data + map.size);
    return w;
}

Weights safetensors_open_dir(const std::string& dir) {
    const std::string one = dir + "/model.safetensors";
    if (file_exists(one)) { return safetensors_open(one); }
    if (open_files && file_exists(one + ".index.json")) { return open_files->open_index(dir); }
    const FileKind other = kind_in_dir(dir, READS_CHECKPOINT);       // what is there instead
    die(dir + ": has no weights, wanted model.safetensors, or "
        "model.safetensors.index.json and the files it names" + other.what,
        other.hint.empty() ? "give a directory such as runs/NAME/step_1000" : other.hint);
}

static size_t bytes_of(const StOut& t) {
    size_t count = 1;
    for (long d : t.shape) { count *= d; }
    return count * sizeof(float);
}

// Describes a tensor whose bytes begin at `begin` in the file's data.
static std::string tensor_json(const StOut& t, size_t begin) {
    std::vector<std::string> dims;
    for (long d : t.shape) { dims.push_back(strf("%ld", d)); }
    const size_t end = begin + bytes_of(t);
    JsonObject o;
    o.text("dtype", "F32");
    o.json("shape", json_list(dims));
    o.json("data_offsets", json_list({ strf("%zu", begin), strf("%zu", end) }));
    return o.all();
}

void safetensors_write(const std::string& path, const std::vector<StOut>& tensors) {
    JsonObject header;
    header.json("__metadata__", "{\"format\":\"pt\"}");
    size_t at = 0;
    for (auto& t : tensors) {
        header.json(t.name, tensor_json(t, at));
        at += bytes_of(t);
    }
    std::string h = header.all();
    while (h.size() % 8) { h += ' '; }
    FileOut o = file_begin(path);
    uint64_t n = h.size();
    file_put(&o, &n, 8);
    file_put(&o, h.data(), h.size());
    for (auto& t : tensors) { file_put(&o, t.data, bytes_of(t)); }
    file_commit(&o);
}

// ----------------------------------------------------------------------------
// checkpoint directories OUT/step_N. While one is written it is OUT/step_N.tmp; if a step_N was
// there before, it steps aside as step_N.old for the instant between two renames, and is found
// under that name should the machine stop there.

// Tells whether this is the name of a file of a checkpoint.
static bool of_checkpoint(const std::string& name) {
    for (const char* file : { "model.safetensors", "optimizer.safetensors", "ema.safetensors",
                              "config.json", "state.json" }) {
        if (name == file || is_temporary(name, file)) { return true; }
    }
    return tokenizer_ours(name);
}

bool checkpoint_remove(const std::string& dir) { return remove_ours(dir, of_checkpoint); }

// Returns what checkpoint_begin has made and checkpoint_commit has not named yet.
static std::string unfinished;

void checkpoint_abandon() {
    if (!unfinished.empty()) { checkpoint_remove(unfinished); }
    unfinished.clear();
}

std::string checkpoint_begin(const std::string& out, long step) {
    const std::string tmp = strf("%s/step_%ld.tmp", out.c_str(), step);
    checkpoint_remove(tmp);
    if (is_there(tmp) && !S_ISDIR(own_mode_of(tmp))) {
        die(tmp + ": got something else, wanted a directory to write a checkpoint in",
            "remove it, or choose another --out");
    }
    unfinished = tmp;
    static const int once = atexit(checkpoint_abandon);
    (void)once;
    make_dirs(tmp);
    return tmp;
}

void checkpoint_commit(const std::string& out, long step) {
    const std::string dir = strf("%s/step_%ld", out.c_str(), step);
    std::string old = dir + ".old";
    dir_sync(dir + ".tmp");
    if (S_ISLNK(own_mode_of(dir))) { unlink(dir.c_str()); }
    if (is_there(dir)) {
        // an .old may hold what somebody else put into a checkpoint: that stays
        for (int n = 2; !checkpoint_remove(old); n++) {
            old = strf("%s.old%d", dir.c_str(), n);
        }
        rename(dir.c_str(), old.c_str());
    }
    if (rename((dir + ".tmp").c_str(), dir.c_str())) {
        die(EXIT_MACHINE, cannot("rename into place", dir), write_hint());
    }
    unfinished.clear();
    dir_sync(out);
    if (!checkpoint_remove(old)) {
        printf("note   %s holds files that are not of a checkpoint: they are left there\n",
               old.c_str());
    }
}
