/*
base/json.cpp -- a strict parser that descends into values and reports the byte of an error; and
the writers of values and objects.
*/
#include "look.h"

// ----------------------------------------------------------------------------
// UTF-8

void utf8_append(std::string* s, uint32_t c) {
    auto lead = [&](uint32_t byte) { s->push_back((char)byte); };
    auto tail = [&](int shift) { s->push_back((char)(0x80 | (c >> shift & 63))); };
    if (c < 0x80)         { lead(c); }
    else if (c < 0x800)   { lead(0xC0 | c >> 6);  tail(0); }
    else if (c < 0x10000) { lead(0xE0 | c >> 12); tail(6);  tail(0); }
    else                  { lead(0xF0 | c >> 18); tail(12); tail(6); tail(0); }
}

long utf8_next(const std::string& s, size_t* i) {
    const unsigned char* p = (const unsigned char*)s.data() + *i;
    size_t left = s.size() - *i;
    unsigned char a = p[0];
    if (a < 0x80) { *i += 1; return a; }
    int len = 0;
    if (a >= 0xC2 && a <= 0xDF) { len = 2; }
    if (a >= 0xE0 && a <= 0xEF) { len = 3; }
    if (a >= 0xF0 && a <= 0xF4) { len = 4; }
    if (!len) { *i += 1; return -1; }
    unsigned char lo = 0x80, hi = 0xBF;          // of the second byte
    if (a == 0xE0) { lo = 0xA0; }
    if (a == 0xF0) { lo = 0x90; }
    if (a == 0xED) { hi = 0x9F; }
    if (a == 0xF4) { hi = 0x8F; }
    long c = a & (0x7F >> len);
    for (int k = 1; k < len; k++, lo = 0x80, hi = 0xBF) {
        if ((size_t)k >= left || p[k] < lo || p[k] > hi) { *i += k; return -1; }
        c = c << 6 | (p[k] & 63);
    }
    *i += len;
    return c;
}

bool utf8_valid(const std::string& s) {
    for (size_t i = 0; i < s.size();) {
        if (utf8_next(s, &i) < 0) { return false; }
    }
    return true;
}

long utf8_repair(std::string* s) {
    if (utf8_valid(*s)) { return 0; }
    long bad = 0;
    std::string out;
    for (size_t i = 0; i < s->size();) {
        size_t start = i;
        if (utf8_next(*s, &i) < 0) {
            bad++;
            out += "\xEF\xBF\xBD";
        } else {
            out.append(*s, start, i - start);
        }
    }
    s->swap(out);
    return bad;
}

std::string printable(const std::string& s, const char* kept) {
    std::string out;
    for (size_t i = 0, from = 0; i < s.size(); from = i) {
        const long c = utf8_next(s, &i);
        const bool control = c < 0x20 || (c >= 0x7F && c < 0xA0);
        const bool turns = (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
        const bool keep = c > 0 && c < 0x20 && strchr(kept, (int)c);
        if ((control || turns) && !keep) { out += '?'; } else { out.append(s, from, i - from); }
    }
    return out;
}

// ----------------------------------------------------------------------------
// JSON

struct JsonReader {
    const char* s; size_t n, i = 0; std::string error; int depth = 0;
    long replaced = 0; // ill-formed UTF-8 and lone surrogates, read as U+FFFD
    long values = 0;                                     // stored so far
    std::vector<const char*> keep;
    Json unwanted;                                       // where values go that are not stored
    bool fail(const std::string& why) {
        if (error.empty()) { error = strf("byte %zu: ", i + 1) + why; }
        return false;
    }
    bool wanted(const std::string& key) const {
        for (auto k : keep) { if (key == k) { return true; } }
        return keep.empty();
    }
    // one rule for every JSON that is read: a key occurs once
    bool no_key_twice(const Json& object) {
        std::vector<const std::string*> keys;
        for (auto& f : object.fields) { keys.push_back(&f.first); }
        std::sort(keys.begin(), keys.end(), [](auto a, auto b) { return *a < *b; });
        for (size_t k = 1; k < keys.size(); k++) {
            if (*keys[k - 1] == *keys[k]) {
                return fail("the key \"" + *keys[k] + "\" occurs twice in one object");
            }
        }
        return true;
    }
    void space() {
        while (i < n && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r')) { i++; }
    }
    bool word(const char* w) {
        size_t l = strlen(w);
        if (n - i < l || memcmp(s + i, w, l)) { return fail("wanted a JSON value"); }
        i += l; return true;
    }
    bool hex4(uint32_t* out) {
        if (n - i < 4) { return fail("wanted four hex digits after \\u"); }
        *out = 0;
        for (int k = 0; k < 4; k++, i++) {
            const char c = s[i];
            if (!isxdigit((unsigned char)c)) { return fail("wanted four hex digits after \\u"); }
            *out = *out * 16 + (isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10);
        }
        return true;
    }
    bool str(std::string* out) {
        i++;                                             // the opening quote
        out->clear();
        for (;;) {
            size_t start = i;
            while (i < n && s[i] != '"' && s[i] != '\\' && (unsigned char)s[i] >= 0x20) { i++; }
            out->append(s + start, i - start);
            if (i >= n) { return fail("string without an end"); }
            if (s[i] == '"') { i++; break; }
            if (s[i] != '\\') { return fail("control character in a string"); }
            if (++i >= n) { return fail("string without an end"); }
            char c = s[i++];
            const char* from = "\"\\/bfnrt"; const char* to = "\"\\/\b\f\n\r\t";
            if (c == 'u') {
                uint32_t u = 0, v = 0;
                if (!hex4(&u)) { return false; }
                if (u >= 0xD800 && u < 0xDC00 && n - i >= 6 && s[i] == '\\' && s[i+1] == 'u') {
                    size_t back = i; i += 2;
                    if (!hex4(&v)) { return false; }
                    const bool pair = v >= 0xDC00 && v < 0xE000;
                    if (pair) {
                        u = 0x10000 + ((u - 0xD800) << 10) + (v - 0xDC00);
                    } else {
                        i = back;
                    }
                }
                if (u >= 0xD800 && u < 0xE000) { u = 0xFFFD; replaced++; }
                utf8_append(out, u);
            } else if (const char* p = c ? strchr(from, c) : NULL) { out->push_back(to[p - from]); }
            else { i--; return fail("unknown escape in a string"); }
        }
        replaced += utf8_repair(out);
        return true;
    }
    // stored: an infinity that is in a value nobody asked for does no harm
    bool num(Json* out, bool stored) {
        size_t start = i;
        auto digits = [&] {
            size_t from = i;
            while (i < n && s[i] >= '0' && s[i] <= '9') { i++; }
            return i > from;
        };
        if (s[i] == '-') { i++; }
        if (i < n && s[i] == '0') {
            i++;
        } else if (!digits()) {
            return fail("wanted a JSON value");
        }
        if (i < n && s[i] == '.') {
            i++;
            if (!digits()) { return fail("wanted a digit after the point"); }
        }
        if (i < n && (s[i] == 'e' || s[i] == 'E')) {
            i++; if (i < n && (s[i] == '+' || s[i] == '-')) { i++; }
            if (!digits()) { return fail("wanted a digit in the exponent"); }
        }
        out->type = Json::NUMBER;
        out->string.assign(s + start, i - start);
        out->number = strtod(out->string.c_str(), NULL);
        if (stored && std::isinf(out->number)) {
            i = start;
            return fail("the number is too large: " + out->string.substr(0, 40));
        }
        return true;
    }
    // one key and its value; into `out` if it is wanted
    bool field(Json* out) {
        std::string key;
        space();
        if (i >= n || s[i] != '"') { return fail("wanted a key in quotes"); }
        if (!str(&key)) { return false; }
        space();
        if (i >= n || s[i] != ':') { return fail("wanted ':'"); }
        i++;
        if (out == &unwanted || !wanted(key)) { return value(&unwanted); }
        out->fields.emplace_back();
        out->fields.back().first.swap(key);
        return value(&out->fields.back().second);
    }
    bool value(Json* out) {
        const bool stored = out != &unwanted;
        space();
        if (i >= n) { return fail("wanted a JSON value, got the end"); }
        if (depth > 200) { return fail("nested more than 200 deep"); }
        if (stored && ++values > JSON_MOST) {
            return fail(strf("more than %d values", (int)JSON_MOST));
        }
        if (!i && n > 3 && !memcmp(s, "\xEF\xBB\xBF", 3)) {
            return fail("got a byte order mark (BOM), which JSON does not allow");
        }
        const char c = s[i];
        if (c == '"') { out->type = Json::STRING; return str(&out->string); }
        if (c == 't') { out->type = Json::BOOL; out->number = 1; return word("true"); }
        if (c == 'f') { out->type = Json::BOOL; return word("false"); }
        if (c == 'n') { return word("null"); }
        if (c != '[' && c != '{') { return num(out, stored); }
        const bool object = c == '{'; const char close = object ? '}' : ']';
        out->type = object ? Json::OBJECT : Json::ARRAY;
        i++; depth++; space();
        for (bool first = true;; first = false) {
            if (i < n && s[i] == close && first) { break; }
            if (object) { if (!field(out)) { return false; } }
            else if (!stored || !keep.empty()) { if (!value(&unwanted)) { return false; } }
            else { out->items.emplace_back(); if (!value(&out->items.back())) { return false; } }
            space();
            if (i < n && s[i] == ',') { i++; continue; }
            if (i < n && s[i] == close) { break; }
            return fail(object ? "wanted ',' or '}'" : "wanted ',' or ']'");
        }
        i++; depth--;
        return !object || no_key_twice(*out);
    }
};

bool json_parse(const char* s, size_t n, Json* out, std::string* error, long* replaced,
                const std::vector<const char*>& keep) {
    JsonReader r = JsonReader();
    r.s = s; r.n = n; r.keep = keep;
    *out = Json();
    bool ok = r.value(out);
    if (ok) { r.space(); if (r.i < n) { ok = r.fail("more text after the JSON value"); } }
    if (!ok) { *error = r.error; }
    if (replaced) { *replaced += r.replaced; }
    return ok;
}

std::string json_str(std::string s) {
    std::string o = "\"";
    utf8_repair(&s);
    for (unsigned char c : s) {
        if (c == '"' || c == '\\') { o += '\\'; o += (char)c; }
        else if (c == '\n') { o += "\\n"; }
        else if (c == '\t') { o += "\\t"; }
        else if (c < 0x20)  { o += strf("\\u%04x", c); }
        else                { o += (char)c; }
    }
    return o + "\"";
}

std::string json_num(double v) {
    return std::isfinite(v) ? strf("%.9g", v) : "null";
}

std::string json_short(const Json& v) {
    switch (v.type) {
        case Json::NUL:    return "null";
        case Json::BOOL:   return json_bool(v.number);
        case Json::NUMBER: return v.string;
        case Json::STRING: return json_str(v.string);
        case Json::ARRAY:  return v.items.empty() ? "[]" : "a list";
        default:           return v.fields.empty() ? "{}" : "an object";
    }
}

static const char* const BETWEEN[] = { ",", ", ", ",\n  " };    // by JsonLayout

std::string json_list(const std::vector<std::string>& values, JsonLayout layout) {
    std::string list;
    for (auto& value : values) { list_add(&list, value, BETWEEN[layout]); }
    return "[" + list + "]";
}

std::string json_array(const std::vector<double>& v, size_t from, size_t n) {
    std::vector<std::string> numbers;
    for (size_t i = from; i < v.size() && i - from < n; i++) { numbers.push_back(json_num(v[i])); }
    return json_list(numbers);
}

std::string json_matrix(const std::vector<double>& v, int cols) {
    std::vector<std::string> rows;
    for (size_t i = 0; i < v.size(); i += cols) { rows.push_back(json_array(v, i, cols)); }
    return json_list(rows);
}

void JsonObject::json(const std::string& key, const std::string& value) {
    const char* colon = layout == JSON_DENSE ? ":" : ": ";
    list_add(&fields, json_str(key) + colon + value, BETWEEN[layout]);
}

std::string JsonObject::all() const {
    if (layout == JSON_LINES) { return "{\n  " + fields + "\n}"; }
    return "{" + fields + "}";
}

void JsonObject::decimals(const std::string& key, double value, int digits) {
    json(key, strf("%.*f", digits, value));
}

static const char* const JSON_DAMAGED =
    "the file is damaged or was cut short: get it again, or use another";

Json json_of(const std::string& text, const std::string& name) {
    Json j; std::string error;
    if (!json_parse(text.data(), text.size(), &j, &error)) {
        die(name + ": not JSON, " + error, JSON_DAMAGED);
    }
    return j;
}

Json json_file(const std::string& path) {
    const std::string text = file_read(path);
    look(path, text.substr(0, LOOK_BYTES), text.size(), READS_JSON);
    return json_of(text, path);
}
