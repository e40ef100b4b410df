/*
export_card.h -- README.md of an exported model: what it is, how to open it, which run made it.
*/
#ifndef EXPORT_CARD_H
#define EXPORT_CARD_H
#include "../arch.h"

// Writes the text for a model of `params` numbers from the checkpoint `from`, and tells of the run
// where the checkpoint has a log beside it. about: how it is opened, a few sentences; begins: the
// last of them is of the token that all of its sequences began with.
std::string export_card(const Arch& c, const std::string& from, long params, std::string about,
                        bool begins);
#endif // EXPORT_CARD_H
