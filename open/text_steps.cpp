/*
open/text_steps.cpp -- normalizers as a table, expressions as matches of pattern.h.
*/
#include "text_steps.h"
#include <memory>
#include "expressions.h"
#include "normal_forms.h"
#include "pattern.h"

static std::string to_nfd(const std::string& s)  { return normal_form(s, FORM_D); }
static std::string to_nfkc(const std::string& s) { return normal_form(s, FORM_KC); }
static std::string to_nfkd(const std::string& s) { return normal_form(s, FORM_KD); }

// growth: times as long as it makes a text at most, and where it does
static const struct {
    const char* type;
    std::string (*change)(const std::string&);
    double growth;
} NORMALIZERS[] = {
    { "NFD",          to_nfd,          3 },              // U+0390
    { "NFKC",         to_nfkc,         11 },             // U+FDFA
    { "NFKD",         to_nfkd,         11 },
    { "Lowercase",    lower_case,      1.5 },            // U+0130, U+023A
    { "StripAccents", without_accents, 1 },
};

bool normalizer_step(const Json& component, Step* step) {
    const std::string type = json_string(component, "type");
    step->kind = NORM_OTHER;
    for (auto& row : NORMALIZERS) {
        if (type != row.type) { continue; }
        step->change = row.change;
        step->growth = row.growth;
        return true;
    }
    if (type != "Strip") { return false; }
    const bool left = json_true(component, "strip_left");
    const bool right = json_true(component, "strip_right");
    step->change = [=](const std::string& s) { return without_space(s, left, right); };
    return true;
}

// Makes the step of an expression that has been read.
static void matching_step(const Pattern& expression, Step* step) {
    const auto shared = std::make_shared<Pattern>(expression);
    step->kind = SPLIT_PATTERN;
    step->match = [=](const std::string& s, size_t i, size_t* next) {
        return pattern_match(*shared, s, i, next);
    };
}

bool pattern_step(const std::string& regex, Step* step) {
    Pattern expression;
    if (!pattern_parse(regex, &expression)) { return false; }
    matching_step(expression, step);
    return true;
}

bool splitter_step(const std::string& regex, Step* step) {
    static const char* const KNOWN[] = { EXPRESSION_DEEPSEEK_V3, EXPRESSION_TEKKEN,
                                         EXPRESSION_O200K, EXPRESSION_QWEN3_5 };
    Pattern expression;
    if (!pattern_parse(regex, &expression)) { return false; }
    const bool known = std::any_of(std::begin(KNOWN), std::end(KNOWN),
                                   [&](const char* k) { return regex == k; });
    if (!known && !pattern_is_linear(expression)) { return false; }
    matching_step(expression, step);
    return true;
}
