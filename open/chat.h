/*
chat.h -- one question to a model that was trained to answer, as its own chat template writes it.

A template is a program (Jinja) that comes with a tokenizer. It is run (open/jinja.h), so that the
model reads what it was trained on; what cannot be run here is refused by name. Where an answer ends
follows from the same template: it is what the template writes behind one.
*/
#ifndef CHAT_H
#define CHAT_H
#include "jinja.h"
#include "../tokenizer.h"

// A chat template, and the names it may use: bos_token and so on, as texts.
struct Chat {
    std::string text;
    std::map<std::string, std::string> tokens;
};

// Reads the template of a directory: chat_template.jinja, or in tokenizer_config.json; its text is
// "" if there is none. The tokens are those that the directory's files name.
Chat chat_of_directory(const std::string& dir);

// Writes the text that the model is to continue. system: "" for none. Dies if the template cannot
// be run or has no place for the system message.
std::string chat_prompt(const Chat& chat, const std::string& system, const std::string& question);

// Writes a question and its answer by the template; returns what is wrong, or "".
std::string chat_conversation(const Chat& chat, const std::string& question,
                              const std::string& answer, std::string* out);

// Finds the special token that ends an answer, by what the template writes after one; -1 if there
// is none.
int chat_end(const Chat& chat, const Tokenizer& tok);
#endif // CHAT_H
