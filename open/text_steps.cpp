/*
open/text_steps.cpp -- normalizers as a table, expressions as matches of pattern.h.
*/
#include "text_steps.h"
#include "expressions.h"
#include "normal_forms.h"
#include "pattern.h"

// growth: times as long as it makes a text at most, and where it does
static const struct {
    const char* type;
    std::string (*change)(const std::string&);
    double growth;
} NORMALIZERS[] = {
    { "NFD", [](const std::string& s) { return normal_form(s, FORM_D); }, 3 },       // U+0390
    { "NFKC", [](const std::string& s) { return normal_form(s, FORM_KC); }, 11 },    // U+FDFA
    { "NFKD", [](const std::string& s) { return normal_form(s, FORM_KD); }, 11 },
    { "Lowercase", lower_case, 1.5 },                                        // U+0130, U+023A
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

bool pattern_step(const std::string& regex, Step* step) {
    const auto expression = std::make_shared<Pattern>();
    step->kind = SPLIT_PATTERN;
    step->match = [=](const std::string& s, size_t i, size_t* next) {
        return pattern_match(*expression, s, i, next);
    };
    return pattern_parse(regex, expression.get());
}

bool splitter_step(const std::string& regex, Step* step) {
    static const char* const KNOWN[] = { EXPRESSION_DEEPSEEK_V3, EXPRESSION_TEKKEN,
                                         EXPRESSION_O200K, EXPRESSION_QWEN3_5 };
    Pattern expression;
    const bool linear = pattern_parse(regex, &expression) && pattern_is_linear(expression);
    return (linear || has(KNOWN, regex)) && pattern_step(regex, step);
}
