/*
arch_check.h -- a model while it is checked: whether its rows fit together, and how to say that they
do not.
*/
#ifndef ARCH_CHECK_H
#define ARCH_CHECK_H
#include "../arch.h"

// where: "" for flags, else the config.json that the rows came from; errors then speak of its keys
struct ArchCheck {
    Arch c;
    std::string where;

    // Writes what was given: "--width 32 --heads 5", or "config.json: hidden_size 32,
    // num_attention_heads 5".
    std::string got(std::initializer_list<const char*> fields);

    // Dies unless it is ok, with what was given and what is wanted.
    void need(bool ok, std::initializer_list<const char*> fields, const std::string& wanted);

    void norms();
    void sizes();
    void positions();
    void attention();
};
#endif // ARCH_CHECK_H
