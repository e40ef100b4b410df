/*
run/log.cpp -- writes a run's log, reads it back, and makes the fields of an evaluation.
*/
#include "../log.h"
#include "../base/version.h"
#include "../base/look.h"
#include <filesystem>

// Tells whether the open log is what the path leads to.
static bool log_is_at(const Log& log, const std::string& path) {
    struct stat open;
    struct stat there;
    if (fstat(fileno(log.f), &open) || stat(path.c_str(), &there)) { return false; }
    return same_file(open, there);
}

void log_line(Log* log, JsonObject line) {
    if (!log->f) { return; }
    char now[32];
    const time_t seconds = time(NULL);
    struct tm utc;
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    line.text("time", now);
    const std::string text = line.all();
    if (log->error.empty()) {
        const bool failed = fprintf(log->f, "%s\n", text.c_str()) < 0 || fflush(log->f);
        if (failed) { log->error = cannot("write", log->path); }
    }
    if (!log->error.empty()) {
        log->unwritten.push_back(text);
    } else if (!log_is_at(*log, log->path)) {
        log->error = log->path + ": was removed or moved while the run was writing it";
    }
}

void log_sync(Log* log) {
    if (!log->f || !log->error.empty()) { return; }
    if (fsync(fileno(log->f)) && blame(errno) == EXIT_MACHINE) {         // a FIFO has no such call
        log->error = cannot("write", log->path);
    }
}

// Dies if the file exists and is not a run's log: opening it would truncate it.
static void log_check(const std::string& path) {
    if (!is_there(path) || is_special(path)) { return; }
    const std::string config = "{\"event\":\"config\"";
    const bool closed = access(path.c_str(), R_OK);          // or a link that leads nowhere
    if (closed || !starts_with(config, file_begin_bytes(path, config.size()))) {
        die(path + ": is not the log of a run, and would be replaced",
            "move it away, or choose another --out");
    }
}

void log_open(Log* log, bool more) {
    if (!more) { log_check(log->path); }
    log->f = xfopen(log->path, more ? "a" : "w");
    dir_sync(directory_of(log->path));
}

std::string log_directory(const Log& log) {
    if (!log.f) { return ""; }
    std::error_code failed;
    const std::string now =
        std::filesystem::read_symlink(strf("/proc/self/fd/%d", fileno(log.f)), failed);
    if (!log_is_at(log, now)) { return ""; }
    return now.substr(0, now.rfind('/'));
}

void log_each(const std::string& path, const std::function<void(const LogLine&)>& each) {
    if (!file_exists(path)) { return; }
    for (auto& text : split(file_read(path), '\n')) {
        LogLine line;
        line.text = text;
        std::string error;
        if (json_parse(text.data(), text.size(), &line, &error)) { each(line); }
    }
}

static bool is_event(const Json& line, const char* name) { return line["event"].string == name; }

void log_rewind(const std::string& path, long step, bool unevaluated, const Json& unwritten) {
    if (!file_exists(path)) { return; }
    log_check(path);
    const std::string dir = directory_of(path);
    const std::string log = file_name(path);
    for (auto& name : dir_list(dir)) {                   // left by a run that was killed here
        if (name != log && is_temporary(name, log)) { unlink((dir + "/" + name).c_str()); }
    }
    std::string kept;
    log_each(path, [&](const LogLine& j) {
        const double at = json_number(j, "step", -1);
        const bool later = at > step;
        const bool ended = is_event(j, "done") || is_event(j, "stopped");
        const bool again = is_event(j, "resume") || (unevaluated && !is_event(j, "train"));
        const bool in_vain = at >= step && again;
        if (!later && !ended && !in_vain) { kept += j.text + "\n"; }
    });
    for (auto& line : unwritten.items) {                 // (one may have got through after all)
        if (!contains(kept, line.string + "\n")) { kept += line.string + "\n"; }
    }
    file_write(path, kept);
}

void log_changes(const std::string& path, double first, double end, Json* flags) {
    log_each(path, [&](const LogLine& line) {
        const double at = json_number(line, "step", NAN);
        if (!is_event(line, "resume") || !(at >= first && at < end)) { return; }
        for (auto& field : flags->fields) {
            const std::vector<Json>& pair = line["changed"][field.first].items;
            if (pair.size() == 2) { field.second = pair[1]; }
        }
    });
}

Json log_flags(const std::string& path, double step) {
    Json flags = log_config(path)["flags"];
    log_changes(path, -INFINITY, step, &flags);
    return flags;
}

bool log_has(const std::string& path, const char* events) {
    bool found = false;
    log_each(path, [&](const LogLine& line) {
        found |= is_one_of(events, line["event"].string);
    });
    return found;
}

Json log_config(const std::string& path) {
    Json config;
    log_each(path, [&](const LogLine& line) {
        if (is_event(line, "config")) { config = line; }
    });
    return config;
}

// Returns the switches that make this model, with values: what is compiled in, and the rows of ARCH
// that a switch sets.
static std::vector<std::pair<std::string, std::string>> switches_of(Arch c) {
    std::vector<std::pair<std::string, std::string>> all;
    for (auto& s : SWITCH_VALUES) {
        all.push_back({ s.name, s.value });
        for (auto& r : arch_rows(&c)) {
            if (!strcmp(r.by, s.name)) { all.back().second = kind_name(r); }
        }
    }
    return all;
}

void program_fields(JsonObject* o) {
    o->text("version", VERSION);
    o->text("commit", COMMIT);
    o->text("precision", PRECISION_NAME);
    o->text("backend", BACKEND_NAME);
}

std::string program_json() {
    JsonObject o;
    program_fields(&o);
    return o.all();
}

std::string switches_json(const Arch& c) {
    JsonObject o;
    for (auto& s : switches_of(c)) { o.text(s.first, s.second); }
    return o.all();
}

std::string switches_text(const Arch& c) {
    std::string o;
    for (auto& s : switches_of(c)) { o += " " + s.first + "=" + s.second; }
    return o;
}

std::vector<ArchRow> arch_differs(Arch* c) {
    Arch plain;
    plain.k_dims = c->HS;                                // what 0 amounts to
    std::vector<ArchRow> found;
    for (auto& [ours, theirs] : rows_apart(c, &plain)) {
        const bool size = key_object(ours).empty() && ours.type == FIELD_int &&
                          strcmp(ours.field, "tied");
        if (is_flag(ours) && !size) { found.push_back(ours); }
    }
    return found;
}

std::string duration(double s) {
    const int m = (int)s / 60;
    const int h = m / 60;
    if (s < 60) { return strf("%.0fs", s); }
    if (h < 1) { return strf("%dm%02ds", m, (int)s % 60); }
    return strf("%dh%02dm", h, m % 60);
}

std::string count_text(double n) {
    if (n < 1e4) { return strf("%.0f", n); }
    if (n < 1e6) { return strf("%.1fk", n / 1e3); }
    if (n < 1e9) { return strf("%.1fM", n / 1e6); }
    return strf("%.2fB", n / 1e9);
}

// Writes Sink_k of every tracked token, at one threshold.
static std::string sink_json(const Metrics& r, const Sinks& s) {
    std::vector<double> k;
    for (size_t i = 1; i <= s.raw.size(); i++) { k.push_back(i); }
    JsonObject o;
    o.json("eps", strf("%g", s.eps));
    o.count("T", r.T);
    o.count("n", r.n);
    o.array("k", k);
    o.array("sink_k", s.raw);
    o.array("proxy_k", s.proxy);
    o.array("sink_k_error", s.raw_error);
    o.array("proxy_k_error", s.proxy_error);
    o.number("sink_star", s.star);
    if (r.has_gate) { o.number("sink_effective", s.effective); }
    return o.all();
}

// Adds one number per head, (L, NH), averaged over the sequences.
template <class Get>
static void add_heads(JsonObject* o, const std::string& key, const Metrics& r, Get get) {
    o->json(key, json_matrix(head_means(r, get), r.NH));
}

static void add_norm_pair(JsonObject* o, const std::string& key, const NormPair& p) {
    o->array(key + "_first", p.first);
    o->array(key + "_rest", p.rest);
}

// Adds what is measured of every head: alpha of the first token and of the extra key, and the rows
// of HEAD_METRICS.
static void add_head_metrics(JsonObject* o, const Metrics& r) {
    typedef const HeadMetrics& Head;
    const auto alpha1 = [](Head h) { return h.alpha[1]; };
    const auto proxy1 = [](Head h) { return h.proxy[1]; };
    add_heads(o, "alpha1", r, alpha1);
    add_heads(o, "alpha1_proxy", r, proxy1);
    o->json("alpha1_error", json_matrix(head_errors(r, alpha1), r.NH));
    o->json("alpha1_proxy_error", json_matrix(head_errors(r, proxy1), r.NH));
    if (r.has_extra) {
        add_heads(o, "alpha_star", r, [](Head h) { return h.alpha[0]; });
        add_heads(o, "alpha_star_proxy", r, [](Head h) { return h.proxy[0]; });
    }
    #define X(field, over, key, heads, help)                      \
        if (heads == EVERY_HEAD || r.has_gate) {                  \
            add_heads(o, key, r, [](Head h) { return h.field; }); \
        }
    HEAD_METRICS(X)
    #undef X
    if (!r.has_gate) { return; }
    const double others = std::max(1, r.T - 1);
    add_heads(o, "gate_rest", r, [&](Head h) { return (h.gate * r.T - h.gate_first) / others; });
}

void eval_fields(JsonObject* o, const char* event, long step, double val_loss, const Metrics& r) {
    o->text("event", event);
    o->count("step", step);
    o->number("val_loss", val_loss);
    if (r.without_attention()) {                 // the arrays below have a row for each of these
        o->array("layers", std::vector<double>(r.layers.begin(), r.layers.end()));
    }
    o->number("probe_loss", r.loss);
    o->json("sink", sink_json(r, r.sinks[0]));
    if (r.sinks.size() > 1) {
        std::vector<std::string> sinks;
        for (auto& s : r.sinks) { sinks.push_back(sink_json(r, s)); }
        o->json("sinks", json_list(sinks));
    }
    add_head_metrics(o, r);
    add_norm_pair(o, "h_norm", r.h);
    add_norm_pair(o, "k_norm", r.k);
    add_norm_pair(o, "v_norm", r.v);
    if (!r.pre.first.empty()) { add_norm_pair(o, "pre_norm", r.pre); }
    if (!r.h_star.empty()) { o->array("h_norm_star", r.h_star); }
    o->array("h_max", r.h_max);
    o->array("h_median", r.h_median);
}

double mean(const std::vector<double>& v) {
    double s = 0;
    for (double x : v) { s += x / v.size(); }
    return s;
}

// Writes first / rest in two digits; "-" if there is no rest, as in sequences of one token.
static std::string ratio_text(double first, double rest) {
    if (std::isnan(rest)) { return "-"; }
    return strf("%.2f", first / rest);
}

static std::string percent_text(double share) { return strf("%.1f%%", 100 * share); }

double eval_number(const std::string& name, double val_loss, const Metrics& r) {
    if (name == "val_loss") { return val_loss; }
    if (name == "probe_loss") { return r.loss; }
    if (name == "sink_1") { return r.sinks[0].first; }
    if (name == "sink_*") { return r.sinks[0].star; }
    return mean(head_means(r, [&](const HeadMetrics& h) {
        if (name == "mass") { return h.mass; }
        return r.sums_to_one ? h.alpha[1] : h.proxy[1];
    }));
}

std::string eval_text(double val_loss, const Metrics& r, const Sinks& s) {
    std::string line;
    if (!std::isnan(val_loss)) { line = strf("val %.4f | ", val_loss); }
    line += (r.sums_to_one ? "sink_1 " : "proxy_1 ") + percent_text(s.first) + " | sink_* " +
            (r.has_extra ? percent_text(s.star) : "-");
    line += strf(" | alpha_1 %.3f | mass %.2f", eval_number("alpha_1", NAN, r),
                 eval_number("mass", NAN, r));
    line += " | h first/rest " + ratio_text(r.h.first.back(), r.h.rest.back());
    line += " | v first/rest " + ratio_text(mean(r.v.first), mean(r.v.rest));
    if (r.without_attention()) {
        line += strf(" | attention in %d of %zu layers", r.L, r.h.first.size() - 1);
    }
    return line;
}
