/*
commands/chat.cpp -- what chat.h declares.
*/
#include "chat.h"

static const ChatForm CHAT_FORMS[] = {
    { "chatml", "<|im_start|>", "<|im_start|>system\n%<|im_end|>\n",
      "<|im_start|>user\n%<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>",
      " <|im_start|> <|im_end|> <|endoftext|> <think> </think> <tool_call> </tool_call> <tools>"
      " </tools> <tool_response> </tool_response> ", "strftime_now" },
    { "llama3", "<|start_header_id|>", "<|start_header_id|>system<|end_header_id|>\n\n%<|eot_id|>",
      "<|start_header_id|>user<|end_header_id|>\n\n%<|eot_id|>",
      "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>",
      " <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|eom_id|>"
      " <|python_tag|> ", "" },
    { "gemma", "<start_of_turn>", NULL, "<start_of_turn>user\n%<end_of_turn>\n",
      "<start_of_turn>model\n", "<end_of_turn>",
      " <bos> <start_of_turn> <end_of_turn> <start_of_image> ", "" },
    { "llama2", "<<SYS>>", "<<SYS>>\n%\n<</SYS>>\n\n", "[INST] % [/INST]", "", "</s>",
      " <s> </s> [INST] [/INST] <<SYS>> <</SYS>> ", "" },
    { "mistral", "[INST]", NULL, "[INST] % [/INST]", "", "</s>",
      " <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS]"
      " [/TOOL_RESULTS] ", "" },
    { "phi3", "<|end|>", "<|system|>\n%<|end|>\n", "<|user|>\n%<|end|>\n", "<|assistant|>\n",
      "<|end|>",
      " <|system|> <|user|> <|assistant|> <|end|> <|endoftext|> ", "" },
    { "zephyr", "<|user|>", "<|system|>\n%</s>\n", "<|user|>\n%</s>\n", "<|assistant|>\n", "</s>",
      " <|system|> <|user|> <|assistant|> </s> ", "" },
};

// The special tokens that a template names: <|..|>, <..>, <<..>> and [CAPITALS].
static std::vector<std::string> chat_tokens(const std::string& text) {
    std::vector<std::string> found;
    for (size_t i = 0; i < text.size(); i++) {
        const bool angle = text[i] == '<', bracket = text[i] == '[';
        if (!angle && !bracket) { continue; }
        const size_t end = text.find(angle ? '>' : ']', i);
        if (end == std::string::npos) { continue; }
        std::string token = text.substr(i, end + 1 - i);
        if (text.compare(i, 2, "<<") == 0 && text.compare(end, 2, ">>") == 0) { token += '>'; }
        const char* letters = angle ? "<>|/_abcdefghijklmnopqrstuvwxyzSYI0123456789"
                                    : "[]/_ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        if (token.size() < 3 || token.find_first_not_of(letters) != std::string::npos) { continue; }
        found.push_back(token);
        i += token.size() - 1;
    }
    return found;
}

// The form of a template; NULL if it has none of these. *strange: a token or word that the form has
// not, or "".
static const ChatForm* chat_form(const std::string& text, std::string* strange) {
    strange->clear();
    for (auto& form : CHAT_FORMS) {
        if (text.find(form.marker) == std::string::npos) { continue; }
        for (auto& token : chat_tokens(text)) {
            const bool known = strstr(form.tokens, (" " + token + " ").c_str());
            if (!known && strange->empty()) { *strange = token; }
        }
        if (*form.never && text.find(form.never) != std::string::npos) { *strange = form.never; }
        return &form;
    }
    return NULL;
}

// `form` with `text` in place of its %.
static std::string chat_fill(std::string form, const std::string& text) {
    return form.replace(form.find('%'), 1, text);
}

static std::string chat_trim(const std::string& s) {
    const char* space = " \t\n\v\f\r";
    const size_t first = s.find_first_not_of(space);
    return first == std::string::npos ? "" : s.substr(first, s.find_last_not_of(space) + 1 - first);
}

// What a template says where no system message is given: words between head and tail of one.
static std::string chat_default_system(const ChatForm& form, const std::string& text) {
    if (!form.system) { return ""; }
    const std::string whole = form.system, head = whole.substr(0, whole.find('%')),
                      tail = whole.substr(whole.find('%') + 1);
    for (size_t at = text.find(head); at != std::string::npos; at = text.find(head, at + 1)) {
        const size_t begin = at + head.size(), end = text.find(tail, begin);
        const std::string words = end == std::string::npos ? "" : text.substr(begin, end - begin);
        if (!words.empty() && words.find_first_of("'\"{}") == std::string::npos) { return words; }
    }
    return "";
}

// The system message of LLaMA 3.1 and later begins with two dates.
static std::string chat_dates(const std::string& text) {
    char today[32] = "26 Jul 2024";
    const time_t now = time(NULL);
    if (text.find("strftime_now") != std::string::npos) {
        strftime(today, sizeof today, "%d %b %Y", localtime(&now));
    }
    return "Cutting Knowledge Date: December 2023\nToday Date: " + std::string(today) + "\n\n";
}

static std::string chat_without(std::string text, const std::string& part) {
    for (size_t at; (at = text.find(part)) != std::string::npos;) { text.erase(at, part.size()); }
    return text;
}

// Does the template end the user's turn as the form does? Others have the same tokens
static bool chat_ends_turn(const ChatForm& form, const std::string& text) {
    const std::string question = form.question, tail = question.substr(question.find('%') + 1);
    if (tail.find("[/INST]") != std::string::npos) { return true; }
    if (tail == "</s>\n") {                      // which may be written eos_token
        const size_t at = text.find("<|user|>"), end = text.find("}}", at);
        const std::string turn = at == std::string::npos ? "" : text.substr(at, end - at);
        return turn.find("eos_token") != turn.npos || turn.find("</s>") != turn.npos;
    }
    const std::string joined = chat_without(chat_without(text, "' + '"), "\" + \"");
    return joined.find(tail) != std::string::npos;
}

// How the answer begins; some make the model think first
static std::string chat_answer(const ChatForm& form, const std::string& text) {
    const std::string plain = form.answer, thinks = plain + "<think>\n";
    auto ends_in = [&](const std::string& part) {
        return text.find(part + "'") != std::string::npos ||
               text.find(part + "\"") != std::string::npos;
    };
    return !plain.empty() && ends_in(thinks) && !ends_in(plain) ? thinks : plain;
}

// Is there a place for a system message?
static bool chat_has_system(const ChatForm& form, const std::string& text) {
    for (const char* part : { "first_user_prefix", "system_message" }) {
        if (text.find(part) != std::string::npos) { return true; }
    }
    if (!form.system) { return false; }
    for (const char* part : { "system", "['role'] +", "[\"role\"] +", ".role +" }) {
        if (text.find(part) != std::string::npos) { return true; }
    }
    return false;
}

std::string chat_prompt(std::string text, const std::string& bos, std::string system,
                        const std::string& question, const ChatForm** form) {
    std::string names, strange;
    for (auto& f : CHAT_FORMS) { names += std::string(names.empty() ? "" : ", ") + f.name; }
    *form = chat_form(text, &strange);
    if (!*form || !strange.empty()) {
        const std::string got = *form ? "has " + strange + ", which no template of the form " +
                                            (*form)->name + " has"
                                      : "is none of " + names;
        die(EXIT_USER, "the chat template " + got, "write the whole prompt, without --chat");
    }
    const ChatForm& f = **form;
    for (size_t at; (at = text.find("\\n")) != std::string::npos;) { text.replace(at, 2, "\n"); }
    auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
    const std::string name = f.name;
    if (!chat_ends_turn(f, text)) {
        die(EXIT_USER, "the chat template has the tokens of the form " + name +
            ", but does not end a turn as that does", "write the whole prompt, without --chat");
    }
    const bool needed = !system.empty();
    system = chat_trim(system);
    if (!needed) { system = chat_default_system(f, text); }
    if (has("Cutting Knowledge Date")) { system = chat_dates(text) + system; }
    std::string out = has("bos_token") || has("<bos>") || has("<s>") ? bos : "";
    std::string q = chat_trim(question);
    if (needed && !chat_has_system(f, text)) {
        die(EXIT_USER, "--system: the model's chat template, " + name + ", has no place for it",
            "put it in --prompt");
    }
    if (name == "llama2" && !system.empty()) { q = chat_fill(f.system, system) + q; }
    else if (!f.system && !system.empty()) { q = system + "\n\n" + q; }
    else if (!system.empty()) { out += chat_fill(f.system, system); }
    std::string asks = f.question;
    if (name == "mistral" && !has("[INST] ")) { asks.replace(asks.find("] "), 2, "]"); }
    if (name == "mistral" && !has(" [/INST]")) { asks.replace(asks.find(" [/"), 3, "[/"); }
    if (has("' [INST]") || has("\" [INST]")) { asks = " " + asks; }
    return out + chat_fill(asks, q) + chat_answer(f, text);
}

std::string chat_template_of(const std::string& dir) {
    const std::string alone = dir + "/chat_template.jinja", config = dir + "/tokenizer_config.json";
    if (file_exists(alone)) { return file_read(alone); }
    if (!file_exists(config)) { return ""; }
    const std::string text = file_read(config);
    Json j;
    std::string error;
    const bool good = json_parse(text.data(), text.size(), &j, &error);
    if (!good) { die(EXIT_USER, config + ": " + error); }
    const Json* v = j.get("chat_template");
    if (!v) { return ""; }
    for (auto& named : v->items) {               // a list of {"name", "template"}
        const Json *name = named.get("name"), *one = named.get("template");
        if (name && one && name->string == "default") { return one->string; }
    }
    return v->string;
}
