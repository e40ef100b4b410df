/*
text/sft.cpp -- what sft.h declares.
*/
#include "sft.h"

// the id of an added token, -1 if the tokenizer has none of that text
static int sft_special(const Tokenizer& tok, const char* text) {
    for (auto& a : tok.added) { if (a.text == text) { return a.id; } }
    return -1;
}

std::string sft_check(const Tokenizer& tok, const std::string& form) {
    if (form != "zephyr" && form != "chatml") { return "zephyr or chatml"; }
    if (form == "zephyr") { return tok.eos >= 0 ? "" : "a tokenizer with an EOS"; }
    for (const char* text : { "<|im_start|>", "<|im_end|>" }) {
        if (sft_special(tok, text) < 0) { return strf("a tokenizer that has the token %s", text); }
    }
    return "";
}

std::string sft_encode(const Tokenizer& tok, const std::string& form, bool assistant_only,
                        const Json* messages, std::vector<uint32_t>* ids) {
    const bool chatml = form == "chatml";
    const int start = sft_special(tok, "<|im_start|>"),
              end = chatml ? sft_special(tok, "<|im_end|>") : tok.eos;
    const std::string wanted =
        "wanted {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]}";
    if (!messages || messages->type != Json::ARRAY || messages->items.empty()) { return wanted; }
    auto add = [&](const std::string& text, bool first, bool counts) {
        const size_t from = ids->size();
        tokenizer_encode_to(tok, text.data(), text.size(), first, ids);
        for (size_t i = from; i < ids->size() && !counts; i++) {
            (*ids)[i] = sft_masked((*ids)[i]);
        }
    };
    auto one = [&](int id, bool counts) { ids->push_back(counts ? id : sft_masked(id)); };
    std::string between;                         // the line's end after the message before
    for (auto& message : messages->items) {
        const Json *role = message.get("role"), *content = message.get("content");
        if (!role || role->type != Json::STRING || !content || content->type != Json::STRING) {
            return wanted;
        }
        const bool counts = !assistant_only || role->string == "assistant";
        const bool first = between.empty();
        if (chatml) {
            if (!first) { add(between, false, !assistant_only); }
            one(start, !assistant_only);
            add(role->string + "\n", false, !assistant_only);
        } else {
            add(between + "<|" + role->string + "|>\n", first, !assistant_only);
        }
        add(content->string, false, counts);
        one(end, counts);
        between = "\n";
    }
    add(between, false, !assistant_only);
    if (tok.eos >= 0) { one(tok.eos, !assistant_only); }
    return "";
}
