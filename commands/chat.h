/*
chat.h -- one question to a model that was trained to answer, as its chat template writes it.

A template is a program (Jinja) that comes with a tokenizer. It is not run here: its text says which
of the forms in chat.cpp it has, whether BOS begins it, and what replaces a system message
where none is given. A template with other special tokens is refused by name. White space
at the ends of question and system message is dropped, as most templates do.
*/
#ifndef CHAT_H
#define CHAT_H
#include <time.h>
#include "../common.h"

// % stands for the system message, and for the question.
struct ChatForm {
    const char *name, *marker;   // marker: a token that only templates of this form have
    const char* system;          // NULL: the system message goes in front of the question
    const char *question, *answer, *stop;
    const char* tokens;          // all special tokens that its templates may have
    const char* never;           // a word of templates that say more than this form does
};

// The text that a model with this template is to continue. bos: as its tokenizer writes BOS. Dies
// if the template has no form that is known, or no place for a system message.
std::string chat_prompt(std::string text, const std::string& bos, std::string system,
                        const std::string& question, const ChatForm** form);

// The chat template of a directory: chat_template.jinja, or in tokenizer_config.json; "" if none.
std::string chat_template_of(const std::string& dir);
#endif // CHAT_H
