/*
open/import_config.h -- inside of import.cpp and family_more.h: the config.json of another family
while it is read.
*/
#ifndef IMPORT_CONFIG_H
#define IMPORT_CONFIG_H
#include <map>
#include "../core/directory.h"
#include "import.h"

// Reads config.json and records each key it used; unused keys are reported at the end.
struct Import {
    const Json& json;
    std::string where;
    const Family* family;
    Arch c;
    std::string attn;                            // the operation that the model wants
    std::set<std::string>& used;                 // keys that were asked for
    std::map<std::string, std::string> said;     // field of ARCH -> the key that set it

    // Returns NULL if the key is absent or null.
    const Json* get(const std::string& key) {
        used.insert(key);
        const Json* v = json.get(key);
        return v && v->type != Json::NUL ? v : NULL;
    }

    // Does the same; returns a value of no type if the key is absent.
    const Json& of(const std::string& key) {
        used.insert(key);
        return json[key];
    }

    // Reads a number that a float can hold; true and false are none.
    double number(const std::string& key, double otherwise) {
        const Json* v = get(key);
        if (!v) { return otherwise; }
        need(v->is_number(), key, "a number");
        const double size = fabs(v->number);
        need(size == 0 || (size >= FLT_MIN && size <= FLT_MAX), key,
             "0 or a magnitude from 1e-37 to 1e38");
        return v->number;
    }

    // Reads a whole number, `least` or more, written without point and exponent.
    int whole(const std::string& key, int otherwise, int least) {
        const Json* v = get(key);
        long n = otherwise;
        need(!v || (v->is_number() && parse_long(v->string, &n) && n >= least && n <= 1 << 30),
             key, strf("a whole number, %d or more", least));
        return (int)n;
    }

    // Reads true or false; other programs also write 1 and 0.
    bool yes(const std::string& key, bool otherwise) {
        const Json* v = get(key);
        if (!v) { return otherwise; }
        const bool number = v->is_number() && (v->number == 0 || v->number == 1);
        need(v->type == Json::BOOL || number, key, "true or false");
        return v->number != 0;
    }

    [[noreturn]] void fail(const std::string& what) {
        die(where + ": " + what, "docs/open-models.md lists what opens, and what is missing");
    }

    [[noreturn]] void refuse(const std::string& key, const std::string& wanted) {
        const Json* v = json.get(key);
        fail(key + " is " + (v ? json_short(*v) : "missing") + ", wanted " + wanted);
    }

    // Refuses a key unless it is ok.
    void need(bool ok, const std::string& key, const std::string& wanted) {
        if (!ok) { refuse(key, wanted); }
    }
};

// Reads sliding_window.
void import_window(Import* in, int otherwise);

// Reads layer_types, a list of full_attention and `other`. Returns a pattern with 1 for the layers
// of the other type, "" if the file has no list.
str import_layers_of(Import* in, const std::string& other);

// Reads which layers have the window from layer_types, if the file has it.
void import_layer_types(Import* in);

// Lists the model types that are known: "llama, mistral, ..".
std::string family_types();
#endif // IMPORT_CONFIG_H
