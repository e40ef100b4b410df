/*
shell/log.cpp -- what log.h declares.
*/
#include "../log.h"
#include <functional>

static std::string time_text() { // now, as 2025-01-31T23:59:59Z
    char text[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return text;
}

void log_line(Log* log, std::string json) {
    if (!log->f || !log->error.empty()) { return; }
    json.pop_back();
    if (fprintf(log->f, "%s,\"time\":\"%s\"}\n", json.c_str(), time_text().c_str()) < 0 ||
        fflush(log->f)) {
        log->error = log->path + ": cannot write (" + strerror(errno) + ")";
        return;
    }
    struct stat open, there;
    if (fstat(fileno(log->f), &open) || stat(log->path.c_str(), &there) ||
        open.st_ino != there.st_ino) {
        log->error = log->path + ": was removed or moved while the run wrote to it";
    }
}

void log_sync(const Log& log) {
    if (log.f) { fsync(fileno(log.f)); }                 // a FIFO cannot, and need not
}

// Dies if a file is there that no run has written: it would be cut.
static void log_check(const std::string& path) {
    const std::string config = "{\"event\":\"config\"";
    const bool link = is_there(path) && !file_exists(path);
    std::string begin(config.size(), '\0');
    if (!is_there(path) || is_special(path)) { return; }
    if (FILE* f = fopen(path.c_str(), "rb")) {
        begin.resize(fread(&begin[0], 1, begin.size(), f));
        fclose(f);
    }
    if (link || config.compare(0, begin.size(), begin)) {
        die(EXIT_USER, path + ": is not the log of a run, and would be replaced",
            "move it away, or choose another --out");
    }
}

void log_open(Log* log, bool more) {
    if (!more) { log_check(log->path); }
    log->f = xfopen(log->path, more ? "a" : "w");
    dir_sync(directory_of(log->path));
}

std::string log_directory(const Log& log) {
    char path[4096];
    struct stat open, there;
    if (!log.f) { return ""; }
    const std::string link = strf("/proc/self/fd/%d", fileno(log.f));
    const ssize_t n = readlink(link.c_str(), path, sizeof path - 1);
    const std::string now(path, std::max<ssize_t>(0, n));
    const bool same = n > 0 && !fstat(fileno(log.f), &open) && !stat(now.c_str(), &there) &&
                      open.st_ino == there.st_ino;
    return same ? now.substr(0, now.rfind('/')) : "";
}

// the objects of a log in order; a line that is none, as the one the machine died in, is left out
static void log_each(const std::string& path,
                     const std::function<void(const std::string&, const Json&)>& each) {
    if (!file_exists(path)) { return; }
    for (auto& line : split(file_read(path), '\n')) {
        Json j; std::string error;
        if (json_parse(line.data(), line.size(), &j, &error)) { each(line, j); }
    }
}

static bool is_event(const Json& line, const char* name) {
    const Json* event = line.get("event");
    return event && event->string == name;
}

void log_rewind(const std::string& path, long step) {
    std::string kept;
    if (!file_exists(path)) { return; }
    log_check(path);
    const std::string dir = directory_of(path), log = path.substr(path.rfind('/') + 1);
    for (auto& name : dir_list(dir)) {                   // a run was killed just here
        if (name != log && is_temporary(name, log)) { unlink((dir + "/" + name).c_str()); }
    }
    log_each(path, [&](const std::string& line, const Json& j) {
        const Json* at = j.get("step");
        const bool later = at && at->number > step,
                   ended = is_event(j, "done") || is_event(j, "stopped"),
                   again = is_event(j, "resume") && at && at->number >= step; // and came to nothing
        if (!later && !ended && !again) { kept += line + "\n"; }
    });
    file_write(path, kept);
}

// replaces the values of `flags` by those that a resume brought
static void flags_overlay(Json* flags, const Json& changed) {
    for (auto& field : flags->fields) {
        const Json* pair = changed.get(field.first.c_str());
        if (pair && pair->items.size() == 2) { field.second = pair->items[1]; }
    }
}

// *flags <- what each --resume from `first` on and before `end` changed
static void log_overlay(const std::string& path, double first, double end, Json* flags) {
    log_each(path, [&](const std::string&, const Json& j) {
        const Json *changed = j.get("changed"), *at = j.get("step");
        const bool now = is_event(j, "resume") && changed && at && at->number >= first &&
                         at->number < end;
        if (now) { flags_overlay(flags, *changed); }
    });
}

Json log_flags(const std::string& path, double step) {
    Json flags;
    log_each(path, [&](const std::string&, const Json& j) {
        const Json* began = j.get("flags");
        if (is_event(j, "config") && began) { flags = *began; }
    });
    log_overlay(path, -INFINITY, step, &flags);
    return flags;
}

void log_flags_after(const std::string& path, double step, Json* flags) {
    log_overlay(path, step, INFINITY, flags);
}

bool log_has_steps(const std::string& path) {
    bool found = false;
    log_each(path, [&](const std::string&, const Json& j) { found |= is_event(j, "train"); });
    return found;
}

std::string json_array(const std::vector<double>& v, size_t from, size_t n) {
    std::string o = "[";
    for (size_t i = from; i < v.size() && i - from < n; i++) {
        o += (i > from ? "," : "") + json_num(v[i]);
    }
    return o + "]";
}

std::string json_matrix(const std::vector<double>& v, int cols) {
    std::string o = "[";
    for (size_t i = 0; i < v.size(); i += cols) { o += (i ? "," : "") + json_array(v, i, cols); }
    return o + "]";
}

// the switches that make this model, with values: what is compiled in, and the rows of ARCH that a
// switch sets
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

std::string switches_json(const Arch& c) {
    std::string o;
    for (auto& s : switches_of(c)) {
        o += (o.empty() ? "{" : ",") + json_str(s.first) + ":" + json_str(s.second);
    }
    return o + "}";
}

std::string switches_text(const Arch& c) {
    std::string o;
    for (auto& s : switches_of(c)) { o += " " + s.first + "=" + s.second; }
    return o;
}

std::string duration(double s) {
    const int m = (int)s / 60, h = m / 60;
    if (s < 60) { return strf("%.0fs", s); }
    return h < 1 ? strf("%dm%02ds", m, (int)s % 60) : strf("%dh%02dm", h, m % 60);
}

std::string count_text(double n) {
    if (n < 1e4) { return strf("%.0f", n); }
    if (n < 1e6) { return strf("%.1fk", n / 1e3); }
    return n < 1e9 ? strf("%.1fM", n / 1e6) : strf("%.2fB", n / 1e9);
}

static std::string sink_json(const Metrics& r, double eps) {
    std::vector<double> k, raw, proxy;
    for (int i = 1; i <= std::min<int>(METRIC_K, r.T); i++) {
        k.push_back(i);
        raw.push_back(sink_rate(r, i, eps, false));
        proxy.push_back(sink_rate(r, i, eps, true));
    }
    const std::string star = r.has_star ? json_num(sink_rate(r, 0, eps, !r.sums_to_one)) : "null";
    const std::string gated =
        r.has_gate ? ",\"sink_effective\":" + json_num(gated_sink_rate(r, eps)) : "";
    return strf("{\"eps\":%g,\"T\":%d,\"n\":%d,\"k\":", eps, r.T, r.n) + json_array(k) +
           ",\"sink_k\":" + json_array(raw) + ",\"proxy_k\":" + json_array(proxy) +
           ",\"sink_star\":" + star + gated + "}";
}

std::string eval_json(long step, double val_loss, const Metrics& r,
                      const std::vector<double>& eps) {
    typedef const HeadMetrics& Head;
    auto array = [](const std::string& key, const std::vector<double>& v) {
        return ",\"" + key + "\":" + json_array(v);
    };
    auto pair = [&](const std::string& key, const NormPair& p) {
        return array(key + "_first", p.first) + array(key + "_rest", p.rest);
    };
    auto matrix = [&](const std::string& key, auto get) {
        return ",\"" + key + "\":" + json_matrix(head_means(r, get), r.NH);
    };
    std::string o = strf("\"event\":\"eval\",\"step\":%ld,\"val_loss\":", step) +
                    json_num(val_loss);
    if (r.without_attention()) {                 // the rows of what follows are of these layers
        o += array("layers", std::vector<double>(r.layers.begin(), r.layers.end()));
    }
    o += ",\"probe_loss\":" + json_num(r.loss) + ",\"sink\":" + sink_json(r, eps[0]);
    if (eps.size() > 1) {
        o += ",\"sinks\":[";
        for (size_t i = 0; i < eps.size(); i++) { o += (i ? "," : "") + sink_json(r, eps[i]); }
        o += "]";
    }
    o += matrix("alpha1", [](Head h) { return h.alpha[1]; });
    o += matrix("alpha1_proxy", [](Head h) { return h.proxy[1]; });
    if (r.has_star) {
        o += matrix("alpha_star", [](Head h) { return h.alpha[0]; });
        o += matrix("alpha_star_proxy", [](Head h) { return h.proxy[0]; });
    }
    #define X(field, over, key, heads, help) \
        if (heads == EVERY_HEAD || r.has_gate) { o += matrix(key, [](Head h) { return h.field; }); }
    HEAD_METRICS(X)
    #undef X
    if (r.has_gate) {
        const double most = std::max(1, r.T - 1);
        o += matrix("gate_rest", [&](Head h) { return (h.gate * r.T - h.gate_first) / most; });
    }
    o += pair("h_norm", r.h) + pair("k_norm", r.k) + pair("v_norm", r.v);
    if (!r.pre.first.empty()) { o += pair("pre_norm", r.pre); }
    if (!r.h_star.empty()) { o += array("h_norm_star", r.h_star); }
    return o + array("h_max", r.h_max) + array("h_median", r.h_median);
}

double mean(const std::vector<double>& v) {
    double s = 0;
    for (double x : v) { s += x / v.size(); }
    return s;
}

// first / rest in two digits; "-" where there is no rest, as of sequences of one token
static std::string ratio_text(double first, double rest) {
    return std::isnan(rest) ? "-" : strf("%.2f", first / rest);
}

std::string eval_text(double val_loss, const Metrics& r, double eps) {
    typedef const HeadMetrics& Head;
    const bool proxy = !r.sums_to_one;
    const std::string star = r.has_star ? strf("%.1f%%", 100 * sink_rate(r, 0, eps, proxy)) : "-";
    const double alpha_1 = mean(
        head_means(r, [=](Head h) { return proxy ? h.proxy[1] : h.alpha[1]; }));
    const double mass = mean(head_means(r, [](Head h) { return h.mass; }));
    return (std::isnan(val_loss) ? "" : strf("val %.4f | ", val_loss)) +
           strf("%s_1 %.1f%% | sink_* %s | ", proxy ? "proxy" : "sink",
                100 * sink_rate(r, 1, eps, proxy), star.c_str()) +
           strf("alpha_1 %.3f | mass %.2f", alpha_1, mass) +
           " | h first/rest " + ratio_text(r.h.first.back(), r.h.rest.back()) +
           " | v first/rest " + ratio_text(mean(r.v.first), mean(r.v.rest)) +
           (!r.without_attention()
                ? ""
                : strf(" | attention in %d of %zu layers", r.L, r.h.first.size() - 1));
}
