/*
base/field.cpp -- the value of a field, from words and as words. A number is kept as it was given,
and has to be one that a float holds, because it is computed with as a float.
*/
#include "field.h"

bool kind_set(const Field& f, const std::string& name) {
    const auto found = std::find(f.names.begin(), f.names.end(), name);
    if (found == f.names.end()) { return false; }
    *(kind*)f.at = found - f.names.begin();
    return true;
}

std::string listed(const std::vector<std::string>& words, const char* last) {
    std::string all;
    for (auto& word : words) { list_add(&all, word, &word == &words.back() ? last : ", "); }
    return all;
}

double field_number(const Field& f) {
    if (f.type == FIELD_int) { return *(int*)f.at; }
    return f.type == FIELD_float ? *(float*)f.at : f.low;
}

std::string field_text(const Field& f, bool json) {
    if (f.type == FIELD_int)    { return strf("%d", *(int*)f.at); }
    if (f.type == FIELD_long)   { return strf("%ld", *(long*)f.at); }
    if (f.type == FIELD_bool)   { return json ? json_bool(*(bool*)f.at) : ""; }
    const double v = f.type == FIELD_double ? *(double*)f.at : field_number(f);
    if (f.type == FIELD_double && json) {        // a resumed run reads its flags from it
        const std::string digits = json_num(v);
        return !std::isfinite(v) || atof(digits.c_str()) == v ? digits : strf("%.17g", v);
    }
    if (f.type == FIELD_float && json) { return float_text(v); }
    if (f.type == FIELD_float || f.type == FIELD_double) { return strf("%g", v); }
    const std::string s = f.type == FIELD_kind ? kind_name(f) : *(str*)f.at;
    return json ? json_str(s) : s;
}

std::string field_wrong(const Field& f, double v) {
    if (v >= f.low && v <= f.high) { return ""; }         // not NaN
    const double most = 1e15;                             // a larger bound is none
    if (f.high >= most && v < f.low) { return number_text(f.low) + " or more"; }
    return number_text(f.low) + " to " + number_text(f.high);
}

std::string field_set(const Field& f, const std::string& text) {
    if (f.type == FIELD_str)  { *(str*)f.at = text; return ""; }
    if (f.type == FIELD_bool) { *(bool*)f.at = true; return ""; }
    if (f.type == FIELD_kind) {
        return kind_set(f, text) ? "" : listed(f.names, " or ");
    }
    long whole = 0;
    double number = 0;
    const bool counts = f.type == FIELD_int || f.type == FIELD_long;
    if (counts) {
        if (!parse_long(text, &whole)) { return "a whole number"; }
        number = whole;
    } else {
        if (!parse_double(text, &number)) { return "a number"; }
        // as a float it would be 0, which often means: as it is; or infinite
        if (float_loses(number) || fabs(number) > FLT_MAX) {
            return "0 or a magnitude from 1e-37 to 1e38";
        }
    }
    const std::string wrong = field_wrong(f, number);
    if (!wrong.empty()) { return wrong; }
    if (f.type == FIELD_int)    { *(int*)f.at = whole; }
    if (f.type == FIELD_long)   { *(long*)f.at = whole; }
    if (f.type == FIELD_float)  { *(float*)f.at = number; }
    if (f.type == FIELD_double) { *(double*)f.at = number; }
    return "";
}
