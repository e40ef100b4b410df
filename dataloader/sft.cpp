/*
dataloader/sft.cpp -- what sft.h declares.
*/
#include "sft.h"

// Returns the id of an added token, -1 if the tokenizer has none of that text.
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

// ----------------------------------------------------------------------------
// the shapes of a record. TO ADD one: a row here

static const char* const WANTED =
    "wanted {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]}, "
    "{\"conversations\": [{\"from\": \"human\", \"value\": \"...\"}, ...]}, "
    "{\"prompt\": \"...\", \"completion\": \"...\"} or "
    "{\"instruction\": \"...\", \"input\": \"...\", \"output\": \"...\"}";

struct ListShape {
    const char* list;
    const char* role;
    const char* content;
};
static const ListShape LIST_SHAPES[] = {
    { "messages",      "role", "content" },
    { "conversations", "role", "content" },
    { "conversations", "from", "value" },
};

// A question and its answer.
struct PairShape {
    const char* question;
    const char* input;                                   // goes behind the question, NULL: none
    const char* answer;
};
static const PairShape PAIR_SHAPES[] = {
    { "prompt",      NULL,    "completion" },
    { "instruction", "input", "output" },                // Alpaca
};

// Fields of a record that would be left out of the text.
static const char* const UNWRITTEN_IN_RECORD[] = { "tools", "history", "system" };

// What ShareGPT calls the roles.
static const struct { const char* name; const char* role; } SHAREGPT_ROLES[] = {
    { "human", "user" },   { "user", "user" }, { "gpt", "assistant" }, { "assistant", "assistant" },
    { "system", "system" },
};

// Fields of a message that neither template writes, so that it would be learned without them.
static const char* const UNWRITTEN[] = { "tool_calls", "function_call", "reasoning_content",
                                         "thinking" };

static bool is_text(const Json* j) { return j && j->type == Json::STRING; }

static bool is_empty(const Json* j) {
    if (!j || j->type == Json::NUL) { return true; }
    return j->items.empty() && j->fields.empty() && j->string.empty();
}

static Json text_value(const std::string& text) {
    Json j;
    j.type = Json::STRING;
    j.string = text;
    return j;
}

static void add_message(Json* messages, const std::string& role, const std::string& content) {
    Json message;
    message.type = Json::OBJECT;
    message.fields.push_back({ "role", text_value(role) });
    message.fields.push_back({ "content", text_value(content) });
    messages->items.push_back(message);
}

// Returns the role that a name of ShareGPT means, "" if it is none of them.
static std::string sharegpt_role(const std::string& name) {
    for (auto& row : SHAREGPT_ROLES) {
        if (name == row.name) { return row.role; }
    }
    return "";
}

// Adds the messages of a list. Returns "" or what is wrong.
static std::string add_list(const ListShape& shape, const Json& list, Json* messages) {
    for (auto& message : list.items) {
        const Json* role = message.get(shape.role);
        const Json* content = message.get(shape.content);
        for (const char* key : UNWRITTEN) {
            if (is_empty(message.get(key))) { continue; }
            return strf("got a message with %s, which neither template writes: %s", key, WANTED);
        }
        if (!is_text(role) || !is_text(content)) { return WANTED; }
        std::string name = role->string;
        if (!strcmp(shape.role, "from")) { name = sharegpt_role(name); }
        if (name.empty()) {
            return "got a message from " + json_str(role->string) +
                   ", wanted human, user, gpt, assistant or system";
        }
        add_message(messages, name, content->string);
    }
    return "";
}

// Adds the messages of a question and its answer. Returns "" or what is wrong.
static std::string add_pair(const PairShape& shape, const Json& record, Json* messages) {
    const Json* question = record.get(shape.question);
    const Json* input = shape.input ? record.get(shape.input) : NULL;
    const Json* answer = record.get(shape.answer);
    if (!is_text(question) || !is_text(answer)) { return WANTED; }
    const bool has_input = input && input->type != Json::NUL;
    if (has_input && !is_text(input)) { return WANTED; }
    std::string asked = question->string;
    if (has_input && !input->string.empty()) { asked += "\n\n" + input->string; }
    add_message(messages, "user", asked);
    add_message(messages, "assistant", answer->string);
    return "";
}

std::string sft_messages(const Json& record, Json* messages) {
    messages->type = Json::ARRAY;
    messages->items.clear();
    for (const char* key : UNWRITTEN_IN_RECORD) {
        if (is_empty(record.get(key))) { continue; }
        return strf("got a record with %s, which would be left out: %s", key, WANTED);
    }
    for (auto& shape : LIST_SHAPES) {
        const Json* list = record.get(shape.list);
        if (!list || list->type != Json::ARRAY || list->items.empty()) { continue; }
        if (list->items[0].get(shape.role)) { return add_list(shape, *list, messages); }
    }
    if (record.get("messages") || record.get("conversations")) { return WANTED; }
    for (auto& shape : PAIR_SHAPES) {
        if (record.get(shape.question)) { return add_pair(shape, record, messages); }
    }
    return WANTED;
}

// ----------------------------------------------------------------------------

std::string sft_encode(const Tokenizer& tok, const std::string& form, bool assistant_only,
                        const Json* messages, std::vector<uint32_t>* ids) {
    const bool chatml = form == "chatml";
    const int start = sft_special(tok, "<|im_start|>"),
              end = chatml ? sft_special(tok, "<|im_end|>") : tok.eos;
    if (!messages || messages->type != Json::ARRAY || messages->items.empty()) { return WANTED; }
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
        if (!is_text(role) || !is_text(content)) { return WANTED; }
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
