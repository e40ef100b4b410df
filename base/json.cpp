/*
base/json.cpp -- a strict parser that descends into values and reports the byte of an error; and
the writers of values and objects.
*/
#include "look.h"
#include <set>

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
    const char* s;
    size_t n;
    std::vector<const char*> keep;
    size_t i = 0;
    int depth = 0;
    long values = 0;                                     // stored so far
    long replaced = 0;                   // ill-formed UTF-8 and lone surrogates, read as U+FFFD
    std::string error = "";
    Json unwanted = Json();                              // where values go that are not stored

    bool fail(const std::string& why) {
        if (error.empty()) { error = strf("byte %zu: ", i + 1) + why; }
        return false;
    }
    // steps over one byte, if it is this one
    bool take(char c) {
        const bool is = i < n && s[i] == c;
        i += is;
        return is;
    }
    void space() {
        while (take(' ') || take('\t') || take('\n') || take('\r')) {}
    }
    bool digits() {
        const size_t from = i;
        while (i < n && isdigit((unsigned char)s[i])) { i++; }
        return i > from;
    }
    bool word(const char* w) {
        const size_t l = strlen(w);
        if (n - i < l || memcmp(s + i, w, l)) { return fail("wanted a JSON value"); }
        i += l;
        return true;
    }
    bool hex4(uint32_t* out) {
        *out = 0;
        for (int k = 0; k < 4; k++, i++) {
            const unsigned char c = i < n ? s[i] : 0;
            if (!isxdigit(c)) { return fail("wanted four hex digits after \\u"); }
            *out = *out * 16 + (isdigit(c) ? c - '0' : (c | 32) - 'a' + 10);
        }
        return true;
    }
    // what follows \u: a code point, or the first half of one
    bool code_point(std::string* out) {
        uint32_t u = 0, v = 0;
        if (!hex4(&u)) { return false; }
        const size_t back = i;
        if (u >= 0xD800 && u < 0xDC00 && take('\\') && take('u') && !hex4(&v)) { return false; }
        if (v >= 0xDC00 && v < 0xE000) {
            u = 0x10000 + ((u - 0xD800) << 10) + (v - 0xDC00);
        } else {
            i = back;
        }
        if (u >= 0xD800 && u < 0xE000) { u = 0xFFFD; replaced++; }
        utf8_append(out, u);
        return true;
    }
    bool str(std::string* out) {
        i++;                                             // the opening quote
        out->clear();
        while (!take('"')) {
            const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t";
            if (i >= n) { return fail("string without an end"); }
            if ((unsigned char)s[i] < 0x20) { return fail("control character in a string"); }
            if (!take('\\')) { out->push_back(s[i++]); continue; }
            if (take('u')) {
                if (!code_point(out)) { return false; }
                continue;
            }
            const char* p = i < n && s[i] ? strchr(from, s[i]) : NULL;
            if (!p) { return fail(i < n ? "unknown escape in a string" : "string without an end"); }
            out->push_back(to[p - from]);
            i++;
        }
        replaced += utf8_repair(out);
        return true;
    }
    // stored: an infinity that is in a value nobody asked for does no harm
    bool num(Json* out, bool stored) {
        const size_t start = i;
        take('-');
        if (!take('0') && !digits()) { return fail("wanted a JSON value"); }
        if (take('.') && !digits()) { return fail("wanted a digit after the point"); }
        if (take('e') || take('E')) {
            if (!take('+')) { take('-'); }
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
    // one key and its value; into `out` if it is wanted. keys: those of this object so far
    bool field(Json* out, std::set<std::string>* keys) {
        std::string key;
        if (i >= n || s[i] != '"') { return fail("wanted a key in quotes"); }
        if (!str(&key)) { return false; }
        space();
        if (!take(':')) { return fail("wanted ':'"); }
        const bool wanted = keep.empty() || has(keep, key);
        if (out == &unwanted || !wanted) { return value(&unwanted); }
        // one rule for every JSON that is read: a key occurs once
        if (!keys->insert(key).second) {
            return fail("the key \"" + key + "\" occurs twice in one object");
        }
        out->fields.push_back({ key, Json() });
        return value(&out->fields.back().second);
    }
    // one item of a list; into `out` if all is wanted
    bool item(Json* out) {
        if (out == &unwanted || !keep.empty()) { return value(&unwanted); }
        out->items.emplace_back();
        return value(&out->items.back());
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
        const bool object = take('{');
        if (!object && !take('[')) { return num(out, stored); }
        const char close = object ? '}' : ']';
        std::set<std::string> keys;
        out->type = object ? Json::OBJECT : Json::ARRAY;
        depth++;
        space();
        for (bool more = !take(close); more;) {
            space();
            if (!(object ? field(out, &keys) : item(out))) { return false; }
            space();
            more = take(',');
            if (!more && !take(close)) {
                return fail(object ? "wanted ',' or '}'" : "wanted ',' or ']'");
            }
        }
        depth--;
        return true;
    }
};

bool json_parse(const char* s, size_t n, Json* out, std::string* error, long* replaced,
                const std::vector<const char*>& keep) {
    JsonReader r = { s, n, keep };
    *out = Json();
    bool ok = r.value(out);
    r.space();
    if (ok && r.i < n) { ok = r.fail("more text after the JSON value"); }
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

std::string json_array(const std::vector<double>& v) {
    std::vector<std::string> numbers;
    for (double x : v) { numbers.push_back(json_num(x)); }
    return json_list(numbers);
}

std::string json_matrix(const std::vector<double>& v, int cols) {
    std::vector<std::string> rows;
    for (auto row = v.begin(); row != v.end(); row += cols) {
        rows.push_back(json_array({ row, row + cols }));
    }
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

Json json_of(const std::string& text, const std::string& name) {
    Json j; std::string error;
    if (!json_parse(text.data(), text.size(), &j, &error)) {
        die(name + ": not JSON, " + error,
            "the file is damaged or was cut short: get it again, or use another");
    }
    return j;
}

Json json_file(const std::string& path) {
    const std::string text = file_read(path);
    look(path, text.substr(0, LOOK_BYTES), text.size(), READS_JSON);
    return json_of(text, path);
}
