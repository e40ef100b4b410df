/*
test_checkpoint.cpp -- safetensors and JSON, in and out: what was written comes back,
other dtypes are read as they are defined, a file that lies is refused, and whatever bytes are read,
nothing outside the file is ever touched. Also built with sanitizers.
*/
#include <sys/sysmacros.h>
#include "../throws.h"
#include "../../core/saves.h"
#include "../../optional.h"
#undef exit
#include "../check.h"
#include "../metadata.h"
#include "../mutated.h"

static std::string dir, path;

static std::string file_of(const std::string& header, const std::string& data) {
    const uint64_t n = header.size();
    return std::string((const char*)&n, 8) + header + data;
}
static Weights open_bytes(const std::string& bytes) {
    file_write(path, bytes);
    return safetensors_open(path);
}
// the exit status that opening and reading all of it ends with, 0 if it is accepted
static int reads(const std::string& bytes) {
    int code = 0;
    rewind(messages);
    FILE* f = fopen(path.c_str(), "wb");  // not file_write: a sync each would take the time
    fwrite(bytes.data(), 1, bytes.size(), f);
    fclose(f);
    Weights st;
    try {
        st = safetensors_open(path);
        for (auto& t : st.tensors) {
            const char* base = st.maps[0].data;
            const bool inside = t.data >= base + 8 && t.data + t.bytes <= base + bytes.size() &&
                                t.count >= 0 && t.bytes == (size_t)t.count * t.type->bytes;
            if (!inside) { return -1; }
            std::vector<float> x(t.count);
            try { weight_floats(t, x.data()); } catch (Exit& e) { code = e.code; }
        }
    } catch (Exit& e) { code = e.code; }
    weights_close(&st);
    return code;
}

static void test_round_trip() {
    Rng rng{ 5 };
    std::vector<float> a(3 * 5), b(7), c, d(1, -0.0f);
    for (auto& x : a) { x = rng_normal(&rng); }
    for (auto& x : b) { x = rng_normal(&rng) * 1e30f; }
    b[1] = INFINITY; b[2] = 1e-45f;
    safetensors_write(path,
                      { { "a.weight", { 3, 5 }, a.data() },
                        { "b \"quoted\"\n\xc3\xa4", { 7 }, b.data() },
                        { "empty", { 0, 4 }, c.data() },
                        { "scalar", {}, d.data() } });
    Weights st = safetensors_open(path);
    const Json said = metadata_of(path);
    CHECK(st.tensors.size() == 4 && said["format"].string == "pt" &&
              said.fields.size() == 1,
          "round trip: %zu tensors", st.tensors.size());
    auto same = [&](const char* name, const std::vector<float>& want,
                    const std::vector<long>& shape) {
        const Weight* t = st.find(name);
        if (!CHECK(t && t->shape == shape && t->count == (long)want.size() &&
                       t->type == number_type("F32"),
                   "round trip: %s", name)) {
            return;
        }
        std::vector<float> got(t->count);
        weight_floats(*t, got.data());
        CHECK(got.empty() || !memcmp(got.data(), want.data(), 4 * got.size()),
              "round trip: %s has other bits", name);
    };
    same("a.weight", a, { 3, 5 });
    same("b \"quoted\"\n\xc3\xa4", b, { 7 });
    same("empty", c, { 0, 4 });
    same("scalar", d, {});
    CHECK(!st.find("a") && !file_exists(path + ".tmp"), "round trip: found what is not there");
    // as the format wants it: the header's length first, then data that begin at a multiple of 8
    const std::string s = file_read(path);
    uint64_t header; memcpy(&header, s.data(), 8);
    CHECK(header % 8 == 0 && s[8] == '{' && s.size() == 8 + header + 4 * (15 + 7 + 1),
          "round trip: header of %llu bytes, file of %zu", (unsigned long long)header, s.size());
    weights_close(&st);
}
static void test_dtypes() {
    // values by the definition of each format: sign, exponent, fraction
    const struct {
        const char* dtype;
        std::vector<uint64_t> bits;
        std::vector<double> want;
        int width;
    } cases[] = {
#if HAS_OPEN
        { "BF16",
          { 0x3F80, 0xC000, 0x0000, 0x8000, 0x3DCD, 0x7F80, 0x0001 },
          { 1, -2, 0, -0.0, 0.10009765625, INFINITY, 0x1p-133 },
          2 },
        { "F16",
          { 0x3C00, 0xC000, 0x0001, 0x03FF, 0x7BFF, 0x7C00, 0xFC00, 0x8000, 0x3555 },
          { 1, -2, 0x1p-24, 1023 * 0x1p-24, 65504, INFINITY, -INFINITY, -0.0, 0.333251953125 },
          2 },
        { "F64",
          { 0x3FF0000000000000, 0xC008000000000000, 0x3FB999999999999A },
          { 1, -3, (double)0.1f },
          8 },
#endif
        { "F32", { 0x3F800000, 0x80000001 }, { 1, -0x1p-149 }, 4 },
    };
    for (auto& c : cases) {
        std::string data;
        for (uint64_t b : c.bits) { data.append((const char*)&b, c.width); }
        Weights st = open_bytes(
            file_of(strf("{\"x\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
                         c.dtype, c.bits.size(), data.size()),
                    data));
        std::vector<float> got(c.bits.size());
        weight_floats(st.tensors[0], got.data());
        for (size_t i = 0; i < got.size(); i++) {
            CHECK(got[i] == (float)c.want[i] && std::signbit(got[i]) == std::signbit(c.want[i]),
                  "%s %llx reads as %.9g, wanted %.9g", c.dtype, (unsigned long long)c.bits[i],
                  got[i], c.want[i]);
        }
        weights_close(&st);
    }
#if HAS_OPEN
    const std::string nan = file_of(
        "{\"x\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]}}", "\x01\x7e");
    Weights st = open_bytes(nan);
    float x = 0;
    weight_floats(st.tensors[0], &x);
    CHECK(x != x, "F16 NaN reads as %g", x);
#endif
    CHECK(reads(file_of("{\"x\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
                        "12345678")) == EXIT_USER,
          "an I64 tensor was read as floats");
}
static void test_lies() {
    const std::string data(24, 'x');
    const char* refused[] = {
        "", "{", "[]", "5", "null", "{}x", "{\"a\":5}", "{\"a\":{}}", "{\"a\":null}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6]}}",
        "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,24]}}",
        "{\"a\":{\"shape\":[6],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F99\",\"shape\":[6],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":5,\"shape\":[6],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":6,\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-6],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2,-3],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5,4],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[\"6\"],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,28]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[0,28]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[24,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[-24,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,\"24\"]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6.0],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6e0],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[-0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0.0,24]}}",
        "{\"__metadata__\":[],\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}",
        "{\"__metadata__\":\"x\",\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}",
        "{\"__metadata__\":{\"k\":1},\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]"
        "}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[1e300,1e300]}}",
        // 2^64 numbers are 0 bytes, to careless arithmetic
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,1e999],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",  // nothing behind it
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}", // nothing before it
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]},\"b\":{\"dtype\":\"F32\","
        "\"shape\":[6],\"data_offsets\":[0,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"b\":{\"dtype\":\"F32\","
        "\"shape\":[4],\"data_offsets\":[8,24]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"b\":{\"dtype\":\"F32\","
        "\"shape\":[2],\"data_offsets\":[0,8]}}", // 24 bytes in all, the last 8 nobody's
    };
    for (const char* header : refused) {
        const int code = reads(file_of(header, data));
        CHECK(code == EXIT_USER, "header %s: status %d", header, code);
    }
    const std::string good = "{\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]},"
                             "\"a\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,12]}}";
    CHECK(reads(file_of(good, data)) == 0, "tensors in another order than their data were refused");
    CHECK(reads(file_of("{\"__metadata__\":{}}", "")) == 0 && reads(file_of("{}", "")) == 0,
          "a file without tensors was refused");
    const std::string whole = file_of(good, data);
    for (size_t n = 0; n < whole.size(); n++) {
        const int code = reads(whole.substr(0, n));
        CHECK(code == EXIT_USER, "cut to %zu bytes: status %d", n, code);
    }
    const uint64_t lengths[] = { 0, 1, 7, 200, 1ull << 32, 1ull << 63, ~0ull, ~0ull - 7 };
    for (uint64_t n : lengths) {
        const int code = reads(std::string((const char*)&n, 8) + whole.substr(8));
        const char* wanted = n < 200 ? "header is not a JSON object" : "header says";
        CHECK(code == EXIT_USER && contains(said(), wanted),
              "a header length of %llu: status %d, %s", (unsigned long long)n, code,
              said().c_str());
    }
    CHECK(reads(file_of(std::string(100000, '['), "")) == EXIT_USER, "100000 brackets");
}
static void test_latest() {
    const std::string out = dir + "/run";
    auto latest = [&] {
        long step;
        const std::string at = checkpoint_latest(out, &step);
        return strf("%ld ", step) + at.substr(std::min(at.size(), out.size()));
    };
    auto put = [&](const char* name) {
        make_dirs(out + "/" + name);
        file_write(out + "/" + name + "/state.json", "{}");
    };
    CHECK(latest() == "-1 ", "no directory: %s", latest().c_str());
    make_dirs(out);
    CHECK(latest() == "-1 ", "an empty directory: %s", latest().c_str());
    put("step_5.tmp");
    put("step_x");
    put("step_");
    put("step_7x");
    put("steps_9");
    put("step_ 9");
    put("step_9.old.tmp");
    make_dirs(out + "/step_8");
    file_write(out + "/step_99", "a file");
    CHECK(latest() == "-1 ", "no whole checkpoint: %s", latest().c_str());
    put("step_3.old");
    CHECK(latest() == "3 /step_3.old", "an .old without its successor: %s", latest().c_str());
    put("step_3");
    CHECK(latest() == "3 /step_3", "an .old with its successor: %s", latest().c_str());
    put("step_0"); put("step_10"); put("step_9");
    CHECK(latest() == "10 /step_10", "10 comes after 9: %s", latest().c_str());
    // begin, write, commit: the old one is there until the new one is
    file_write(checkpoint_begin(out, 10) + "/state.json", "new");
    CHECK(file_read(out + "/step_10/state.json") == "{}" && latest() == "10 /step_10",
          "a checkpoint being written shows");
    checkpoint_commit(out, 10);
    CHECK(file_read(out + "/step_10/state.json") == "new" && !file_exists(out + "/step_10.tmp") &&
              !file_exists(out + "/step_10.old"),
          "a committed checkpoint does not show");
    checkpoint_begin(out, 11);
    for (auto name : { "model.safetensors", "state.json.host-12-0.tmp", "notes.txt" }) {
        file_write(out + "/step_11.tmp/" + name, "x");
    }
    CHECK(dir_list(checkpoint_begin(out, 11)) == std::vector<std::string>({ "notes.txt" }),
          "a new checkpoint has files of an old try, or lost what is not its own");
    // what somebody else put into a checkpoint that is replaced stays, in step_10.old
    file_write(out + "/step_10/notes.txt", "mine");
    file_write(checkpoint_begin(out, 10) + "/state.json", "newer");
    checkpoint_commit(out, 10);
    CHECK(file_read(out + "/step_10/state.json") == "newer" &&
              dir_list(out + "/step_10.old") == std::vector<std::string>({ "notes.txt" }),
          "a file that is not a checkpoint's was removed with it");
    make_dirs(out + "/elsewhere"); file_write(out + "/elsewhere/model.safetensors", "x");
    CHECK(!symlink("elsewhere", (out + "/step_12.tmp").c_str()), "no symlink");
    CHECK(status_of([&] { checkpoint_begin(out, 12); }) &&
              contains(said(), "step_12.tmp: got something"),
          "a checkpoint is written through a symlink: %s", said().c_str());
    CHECK(file_exists(out + "/elsewhere/model.safetensors"), "a file behind a symlink is gone");
}
static void test_json() {
    const char* good[] = { "0", "-0.5e+3", " [ ] ", "{}", "[1,[2,{\"a\":null}],true,false]",
                           "\"\\u00e9\\ud83d\\ude00\\n\"", "1e308", "\"\"" };
    const char* bad[] = { "",      " ",         "01",        "1.",         ".5",
                          "+1",    "1e",        "[1,]",      "{\"a\":1,}", "{a:1}",
                          "\"",    "\"\\x\"",   "\"\\u12\"", "tru",        "nul",
                          "[1 2]", "{\"a\" 1}", "1 2",       "'a'",        "\"\x01\"",
                          "NaN",   "Infinity",  "1e999",     "[-1e400]",   "-",
                          "[",     "{\"a\":" };
    Json j; std::string error;
    for (const char* s : good) {
        CHECK(json_parse(s, strlen(s), &j, &error), "JSON %s: %s", s, error.c_str());
    }
    for (const char* s : bad) {
        error.clear();
        CHECK(!json_parse(s, strlen(s), &j, &error) && error.compare(0, 5, "byte ") == 0,
              "JSON %s was taken: %s", s, error.c_str());
    }
    // every beginning of a text, in memory that ends where it does:
    // the sanitizer sees a step too far
    const std::string text =
        "[{\"a\\u00e9\": [true, null, -1.5e+10]}, \"\\ud83d\\ude00\", \"\xf0\x9f\x98\x80\", false]";
    for (size_t n = 0; n <= text.size(); n++) {
        std::vector<char> copy(text.begin(), text.begin() + n);
        copy.shrink_to_fit();
        CHECK(json_parse(copy.data(), n, &j, &error) == (n == text.size()),
              "JSON cut to %zu bytes: %s", n, error.c_str());
    }
    for (std::string s : { std::string("a\0b", 3), std::string("\"\\/\b\f\n\r\t\x1f\x7f"),
                           std::string("\xc3\xa4\xf0\x9f\x98\x80") }) {
        const std::string text = json_str(s);
        CHECK(json_parse(text.data(), text.size(), &j, &error) && j.string == s,
              "JSON string %s comes back as %s", text.c_str(), j.string.c_str());
    }
    CHECK(json_num(NAN) == "null" && json_num(-INFINITY) == "null" &&
              json_num(0.1f) == "0.100000001",
          "json_num");
    // an object is written as it reads, dense or spaced
    for (JsonLayout layout : { JSON_DENSE, JSON_SPACED }) {
        JsonObject inner(layout), o(layout);
        inner.array("x", { 1, NAN, 0.5 });
        inner.json("none", json_list({}));
        o.text("a \"key\"", "line\n");
        o.boolean("yes", true);
        o.number("inf", INFINITY);
        o.count("tokens", 1234567890123);
        o.decimals("ms", 2.0 / 3, 3);
        o.json("inner", inner.all());
        o.json("rows", json_matrix({ 1, 2, 3, 4 }, 2));
        std::string want = "{\"a \\\"key\\\"\":\"line\\n\",\"yes\":true,\"inf\":null,"
                           "\"tokens\":1234567890123,\"ms\":0.667,"
                           "\"inner\":{\"x\":[1,null,0.5],\"none\":[]},\"rows\":[[1,2],[3,4]]}";
        if (layout == JSON_SPACED) {
            want = "{\"a \\\"key\\\"\": \"line\\n\", \"yes\": true, \"inf\": null, "
                   "\"tokens\": 1234567890123, \"ms\": 0.667, "
                   "\"inner\": {\"x\": [1,null,0.5], \"none\": []}, \"rows\": [[1,2],[3,4]]}";
        }
        CHECK(o.all() == want, "an object is written as %s", o.all().c_str());
        const Json back = json_of(o.all());
        CHECK(back.get("a \"key\"")->string == "line\n" && back.get("rows")->items.size() == 2,
              "the object does not read back");
    }
    CHECK(JsonObject().all() == "{}", "an object without fields");
    CHECK(json_list({ "1", "[]" }, JSON_SPACED) == "[1, []]", "a list with blanks");
    // a value that was read, as an error shows it
    const char* const shorts[][2] = {
        { "null", "null" }, { "true", "true" }, { "1e3", "1e3" }, { "\"a\\n\"", "\"a\\n\"" },
        { "[]", "[]" }, { "[1]", "a list" }, { "{}", "{}" }, { "{\"a\":1}", "an object" },
    };
    for (auto& v : shorts) {
        const std::string shown = json_short(json_of(v[0]));
        CHECK(shown == v[1], "%s is shown as %s", v[0], shown.c_str());
    }
    JsonObject lines(JSON_LINES);
    lines.count("a", 1);
    lines.text("b", "x");
    CHECK(lines.all() == "{\n  \"a\": 1,\n  \"b\": \"x\"\n}", "a line each: %s",
          lines.all().c_str());
}
static void test_json_rules() {
    Json j; std::string error;
    auto parse = [&](const std::string& text, const std::vector<const char*>& keep = {}) {
        error.clear();
        return json_parse(text.data(), text.size(), &j, &error, NULL, keep);
    };
    // a key occurs once, at any depth, also when it is written in two ways
    for (const char* s : { "{\"a\":1,\"a\":2}", "[{\"b\":0,\"a\":1,\"c\":3,\"a\":null}]",
                           "{\"x\":{\"a\":1,\"\\u0061\":1}}" }) {
        CHECK(!parse(s) && contains(error, "the key \"a\" occurs twice"),
              "JSON %s: %s", s, error.c_str());
    }
    CHECK(parse("{\"a\":{\"a\":1},\"b\":{\"a\":1}}"), "the same key in different objects: %s",
          error.c_str());
    CHECK(!parse("\xEF\xBB\xBF{}") && contains(error, "byte order mark"),
          "a BOM: %s", error.c_str());
    // what is not wanted is checked, and not stored
    const std::string record =
        "{\"x\":[1,2,[3]],\"text\":\"t\",\"meta\":{\"y\":0,\"name\":\"n\"},\"text2\":{\"text\":1}}";
    CHECK(parse(record, { "text", "meta", "name" }) && j.fields.size() == 2 &&
              j.get("text")->string == "t" && j.get("meta")->fields.size() == 1,
          "keep: %zu fields, %s", j.fields.size(), error.c_str());
    CHECK(!parse("{\"x\":[1,2,tru],\"text\":\"t\"}", { "text" }) &&
              !parse("{\"x\":{\"y\" 1}}", { "text" }),
          "keep: what is not wanted was not checked");
    std::string zeros = "[0";
    for (int i = 0; i < 5000000; i++) { zeros += ",0"; }
    CHECK(!parse(zeros + "]") && contains(error, "more than 4000000 values"),
          "5 million values: %s", error.c_str());
    j = Json();
    CHECK(parse("{\"x\":" + zeros + "],\"text\":" + zeros + "]}", { "text" }) &&
              j.get("text")->items.empty(),
          "5 million values that nobody wants: %s", error.c_str());
    const std::string path = json_str("a\xff\xc3");
    CHECK(path == "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"", "json_str of bytes that are no text: %s",
          path.c_str());
}
static void test_files() {
    const std::string at = dir + "/files";
    make_dirs(at);
    // a device and a FIFO are written to, and stay what they are
    const std::string fifo = at + "/fifo";
    CHECK(!mkfifo(fifo.c_str(), 0600), "no FIFO");
    const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
    file_check(fifo);
    file_write(fifo, "through");
    char got[16] = {};
    struct stat st;
    CHECK(read(reader, got, sizeof got) == 7 && !strcmp(got, "through") &&
              !lstat(fifo.c_str(), &st) && S_ISFIFO(st.st_mode),
          "a FIFO: '%s'", got);
    close(reader);
    if (!mknod((at + "/null").c_str(), S_IFCHR | 0666, makedev(1, 3))) { // only root may
        file_check(at + "/null");
        file_write(at + "/null", "nothing");
        CHECK(!lstat((at + "/null").c_str(), &st) && S_ISCHR(st.st_mode), "a device was replaced");
    }
    // a symlink stays one, and its target is written: beside it, elsewhere,
    // not there yet, through another
    make_dirs(at + "/there");
    for (auto pair : { std::pair<const char*, const char*>("near", "target"),
                       { "far", "there/target" },
                       { "abs", NULL } }) {
        const std::string link = at + "/" + pair.first,
                          to = pair.second ? pair.second : at + "/there/absolute";
        CHECK(!symlink(to.c_str(), link.c_str()), "no symlink");
        file_check(link);
        for (const char* text : { "first", "second" }) {
            file_write(link, text);
            const std::string target = to[0] == '/' ? to : at + "/" + to;
            CHECK(!lstat(link.c_str(), &st) && S_ISLNK(st.st_mode) && file_read(target) == text,
                  "the symlink %s", link.c_str());
        }
    }
    CHECK(!symlink("far", (at + "/chain").c_str()), "no symlink");
    file_write(at + "/chain", "third");
    CHECK(file_read(at + "/there/target") == "third", "a symlink to a symlink");
    CHECK(dir_list(at + "/there").size() == 2, "file_check or file_write left a file");
    // what somebody else has beside it stays, whatever it is called
    const std::string plain = at + "/plain", first = temporary_name(plain, 0);
    file_write(plain + ".tmp", "other");
    file_write(at + "/victim", "other");
    CHECK(!symlink("victim", first.c_str()), "no symlink");
    file_check(plain);
    file_write(plain, "mine");
    CHECK(file_read(plain + ".tmp") == "other" && file_read(at + "/victim") == "other" &&
              !lstat(first.c_str(), &st) && S_ISLNK(st.st_mode) && file_read(plain) == "mine",
          "a file beside the output was overwritten or removed");
    // eight processes write one file at once: each writes it whole
    const std::string same = at + "/same";
    for (int i = 0; i < 8; i++) {
        if (fork()) { continue; }
        for (int k = 0; k < 20; k++) { file_write(same, std::string(10000, 'a' + i)); }
        _exit(0);
    }
    int status, failed = 0;
    while (wait(&status) > 0) { failed += status != 0; }
    const std::string text = file_read(same);
    CHECK(!failed && text == std::string(10000, text[0]), "%d of 8 writers of one file failed",
          failed);
    // a name as long as the disk takes
    const std::string longest(255, 'n');
    file_write(at + "/" + longest, "long");
    CHECK(file_read(at + "/" + longest) == "long", "a name of 255 bytes");
    unlink(first.c_str());
    for (auto& name : dir_list(at)) {
        CHECK(!ends_with(name, ".tmp") || name == "plain.tmp", "%s was left", name.c_str());
    }
    CHECK(is_temporary(first.substr(at.size() + 1), "plain") &&
              is_temporary("plain.tmp", "plain") && !is_temporary("plain.my.tmp", "plain") &&
              !is_temporary("plain2.tmp", "plain") && !is_temporary("plain", "plain") &&
              !is_temporary("plain.a-b-1.tmp", "plain"),
          "which names are those of temporaries");
    // a file that may not be written is not replaced either, though its directory would allow it
    if (getuid()) {
        file_write(at + "/locked", "x");
        chmod((at + "/locked").c_str(), 0400);
        const Died d = check_dies([&] { file_check(at + "/locked"); });
        check_ended(d, EXIT_USER, "read-only", "Permission denied");
    }
    // of a directory only what is ours is removed, and the directory if that was all
    auto ours = [](const std::string& name) { return name == "mine" || name == "link"; };
    make_dirs(at + "/keep"); make_dirs(at + "/tree/mine");
    file_write(at + "/keep/mine", "x"); file_write(at + "/tree/theirs", "x");
    CHECK(!symlink("../keep", (at + "/tree/link").c_str()), "no symlink");
    CHECK(!remove_ours(at + "/tree", ours) && file_exists(at + "/tree/theirs") &&
              is_dir(at + "/tree/mine") && file_exists(at + "/keep/mine") &&
              !is_there(at + "/tree/link"),
          "remove_ours took what is not ours");
    CHECK(!symlink("keep", (at + "/link").c_str()), "no symlink");
    CHECK(!remove_ours(at + "/link", ours) && file_exists(at + "/keep/mine"),
          "remove_ours went through a symlink");
    CHECK(remove_ours(at + "/keep", ours) && !is_there(at + "/keep") &&
              remove_ours(at + "/keep", ours),
          "remove_ours left what is ours");
    make_dirs(at + "/keep"); file_write(at + "/keep/file", "x");
    // a checkpoint's place that is a symlink
    CHECK(!symlink("../keep", (at + "/there/step_3").c_str()), "no symlink");
    checkpoint_begin(at + "/there", 3);
    checkpoint_commit(at + "/there", 3);
    CHECK(file_exists(at + "/keep/file") && !lstat((at + "/there/step_3").c_str(), &st) &&
              S_ISDIR(st.st_mode),
          "a checkpoint over a symlink");
    // the error is the one of mkdir, not of what came after
    CHECK(status_of([] { make_dirs("/proc/nothing"); }) && contains(said(), "No such file"),
          "a directory in /proc: %s", said().c_str());
    file_write(at + "/file", "x");
    CHECK(status_of([&] { make_dirs(at + "/file/x"); }) &&
              (contains(said(), "directory (Not a directory)") || contains(said(), "File exists")),
          "a directory in a file: %s", said().c_str());
    CHECK(printable("a\x1b[31m\n\x7f") == "a?[31m??", "printable");
    CHECK(blame(ENOSPC) == EXIT_MACHINE && blame(ENOENT) == EXIT_USER, "blame");
}

static void test_float_text() {
    Rng rng{ 3 };
    for (int i = 0; i < 100000; i++) {
        const float v = float_of_bits((uint32_t)rng_next(&rng));
        if (!std::isfinite(v)) { continue; }
        CHECK(strtof(float_text(v).c_str(), NULL) == v, "%.9g is written as %s", v,
              float_text(v).c_str());
    }
    const std::pair<float, const char*> known[] = {
        { 1e-5f, "1e-05" }, { 1e-6f, "1e-06" }, { 0.3f, "0.3" }, { 10000, "10000" },
        { 16777216, "16777216" }, { 0, "0" }, { 0.70710678f, "0.70710677" }, { -2.5f, "-2.5" } };
    for (auto& k : known) {
        CHECK(float_text(k.first) == k.second, "%.9g is written as %s, wanted %s", k.first,
              float_text(k.first).c_str(), k.second);
    }
}

static void test_fuzz(long tries) {
    Rng rng{ (uint64_t)(now_ms() * 1e6) };
    const uint64_t seed = rng.state;
    const std::string header = "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\","
                               "\"shape\":[2,3],\"data_offsets\":[0,24]},\"b\\u00e9\":{\"dtype\":"
                               "\"F32\",\"shape\":[2],\"data_offsets\":[24,32]}}";
    const std::string whole = file_of(header, std::string(32, 'x'));
    const std::vector<std::string> pieces = {
        "0", "9", "-", ".", "e", "[", "]", "{", "}", ",", ":", "\"", "\\", "\\u", "\\ud800",
        "\xff", "\xc3", "null", "F64", "1e308",
        "18446744073709551615", "9007199254740993", "32", "24" };
    const auto mutate = [&](const std::string& s) { return mutated(&rng, s, pieces); };
    long tried = 0, taken = 0, strange = 0, parsed = 0;
    for (; tried < tries; tried++) {
        const bool keep_length = tried % 2;  // half of them have a header length that fits
        const std::string h = mutate(header),
                          s = keep_length ? file_of(h, std::string(32, 'x')) : mutate(whole);
        const int code = reads(s);
        taken += code == 0;
        if (code != 0 && code != EXIT_USER) {
            strange++;
            CHECK(false, "fuzz (seed %llu, try %ld): status %d for %s", (unsigned long long)seed,
                  tried, code, json_str(s).c_str());
        }
        // what the JSON reader takes, it takes again when written out
        Json j; std::string error;
        // without a byte behind it, so that the sanitizer sees a step too far
        char* copy = (char*)malloc(h.size());
        memcpy(copy, h.data(), h.size());
        if (json_parse(copy, h.size(), &j, &error)) { parsed++; }
        else {
            CHECK(!error.empty(), "fuzz: JSON refused without a reason: %s", json_str(h).c_str());
        }
        free(copy);
    }
    CHECK(taken > 0 && taken < tried && parsed > 0 && strange == 0,
          "fuzz: %ld tried, %ld taken, %ld parsed", tried, taken, parsed);
}

int main() {
    dir = check_tmp();
    path = dir + "/x.safetensors";
    CASE("round_trip") { test_round_trip(); }
    CASE("dtypes") { test_dtypes(); }
    CASE("lies") { test_lies(); }
    CASE("latest") { test_latest(); }
    CASE("json") { test_json(); }
    CASE("json_rules") { test_json_rules(); }
    CASE("float_text") { test_float_text(); }
    CASE("files") { test_files(); }
    CASE("fuzz") { test_fuzz(2000); }
    remove_tree(dir);
    return check_done();
}
