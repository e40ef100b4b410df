/*
open/chat.cpp -- what chat.h declares.
*/
#include "chat.h"
#include "../files/directory.h"

static const char* const WRITE_ALL = "write the whole prompt, without --chat";

// Makes one message as a template reads it.
static JinjaValue message_of(const char* role, const std::string& content) {
    JinjaValue m = jinja_object();
    jinja_set(&m, "role", jinja_string(role));
    jinja_set(&m, "content", jinja_string(content));
    return m;
}

// Runs the template on a conversation, as transformers' apply_chat_template does; returns what is
// wrong, or "".
static std::string chat_run(const Chat& chat, const std::vector<JinjaValue>& messages, bool answer,
                            std::string* out) {
    std::map<std::string, JinjaValue> values;
    for (auto& token : chat.tokens) { values[token.first] = jinja_string(token.second); }
    values["messages"] = jinja_list();
    *values["messages"].items = messages;
    values["tools"] = values["documents"] = jinja_none();
    values["add_generation_prompt"] = jinja_bool(answer);
    return jinja_run(chat.text, values, out);
}

std::string chat_prompt(const Chat& chat, const std::string& system, const std::string& question) {
    const auto written = [&](const std::string& system, const std::string& question) {
        std::vector<JinjaValue> messages;
        if (!system.empty()) { messages.push_back(message_of("system", system)); }
        messages.push_back(message_of("user", question));
        std::string out;
        const std::string wrong = chat_run(chat, messages, true, &out);
        if (!wrong.empty()) { die(EXIT_USER, "the chat template " + wrong, WRITE_ALL); }
        return out;
    };
    const std::string prompt = written(system, question);
    if (prompt == written(system, question + " qzj")) {
        die(EXIT_USER, "the chat template leaves the question out", WRITE_ALL);
    }
    if (!system.empty() && prompt == written(system + " qzj", question)) {
        die(EXIT_USER, "--system: the model's chat template has no place for it",
            "put it in --prompt");
    }
    return prompt;
}

std::string chat_conversation(const Chat& chat, const std::string& question,
                              const std::string& answer, std::string* out) {
    return chat_run(chat, { message_of("user", question), message_of("assistant", answer) }, false,
                    out);
}

int chat_end(const Chat& chat, const Tokenizer& tok) {
    const std::string answer = "qzjxkvw";                // a word that no template has
    std::string out;
    const std::string wrong = chat_conversation(chat, "q", answer, &out);
    const size_t at = wrong.empty() ? out.find(answer) : std::string::npos;
    if (at == std::string::npos) { return -1; }
    const std::string rest = out.substr(at + answer.size());
    int end = -1;
    size_t longest = 0;
    for (auto& a : tok.added) {
        const bool here = rest.compare(0, a.text.size(), a.text) == 0;
        if (here && a.special && a.text.size() > longest) {
            longest = a.text.size();
            end = a.id;
        }
    }
    return end;
}

// Reads chat_template of tokenizer_config.json: a text, or a list of {"name", "template"}, of which
// the one called default counts.
static std::string template_of(const Json& v, const std::string& path) {
    if (v.type == Json::STRING) { return v.string; }
    if (v.type == Json::NUL) { return ""; }
    std::string names;
    for (auto& named : v.items) {
        const Json* name = named.get("name");
        const Json* one = named.get("template");
        if (name && one && name->string == "default") {
            return one->string;
        }
        list_add(&names, name ? name->string : "one without a name");
    }
    die(EXIT_USER, path + ": chat_template: got " + (names.empty() ? json_short(v) : names) +
                       ", wanted a text, or a list with a template called default", WRITE_ALL);
}

Chat chat_of_directory(const std::string& dir) {
    Chat chat;
    const std::string alone = dir + "/chat_template.jinja";
    const Json config = directory_object(dir, "tokenizer_config.json");
    const Json map = directory_object(dir, "special_tokens_map.json");
    if (file_exists(alone)) { chat.text = file_read(alone); }
    else if (const Json* v = config.get("chat_template")) {
        chat.text = template_of(*v, dir + "/tokenizer_config.json");
    }
    for (const char* key : { "bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                             "cls_token", "mask_token" }) {
        for (const Json* file : { &map, &config }) {     // the second counts
            const Json* v = file->get(key);
            const Json* content = v && v->type == Json::OBJECT ? v->get("content") : v;
            if (content && content->type == Json::STRING) {
                chat.tokens[key] = content->string;
            }
        }
    }
    return chat;
}
