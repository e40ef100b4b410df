/*
normal_forms.h -- text -> text, as few tokenizers want it: normal forms other than C, lower case, no
accents, no spaces at the ends. All text here is valid UTF-8.
*/
#ifndef NORMAL_FORMS_H
#define NORMAL_FORMS_H
#include "../text/unicode.h"

enum NormalForm { FORM_D, FORM_KC, FORM_KD };

// Returns the normal form of s.
std::string normal_form(const std::string& s, NormalForm form);

// Returns s with each character in lower case, whatever stands around it.
std::string lower_case(const std::string& s);

// Returns s without its accents: the marks that StripAccents of the library takes out.
std::string without_accents(const std::string& s);

// Returns s without the spaces at its start, at its end, or both.
std::string without_space(const std::string& s, bool start, bool end);
#endif // NORMAL_FORMS_H
