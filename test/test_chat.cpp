/*
test_chat.cpp -- prompts of generate --chat: every form, against what transformers renders from
templates of that form (dev/check_chat.py --save); templates of none, and with tokens that none has,
are refused by name.

    build/test/test_chat DIR BOS SYSTEM QUESTION      only prints the prompt
                                                      of a directory's template
*/
#include "check.h"
#include "../commands/chat.h"

static std::string prompt(const std::string& text, const std::string& bos,
                          const std::string& system, const std::string& question) {
    const ChatForm* form;
    return chat_prompt(text, bos, system, question, &form);
}

static void refused(const std::string& text, const std::string& system, const char* says) {
    const Died d = check_dies([&] { prompt(text, "<s>", system, "Why?"); });
    CHECK(d.code == EXIT_USER && d.says(says), "%s: exit %d, wanted '%s', got %s", text.c_str(),
          d.code, says, d.err.c_str());
}

int main(int argc, char** argv) {
    if (argc == 5) {
        printf("%s", prompt(chat_template_of(argv[1]), argv[2], argv[3], argv[4]).c_str());
        return 0;
    }
    std::string plain;
    for (auto& line : split(file_read("test/vectors/chat.jsonl"), '\n')) {
        Json j;
        std::string error;
        if (line.empty()) { continue; }
        if (!CHECK(json_parse(line.data(), line.size(), &j, &error), "%s: %s", line.c_str(),
                   error.c_str())) {
            continue;
        }
        const std::string& text = j.get("template")->string;
        if (plain.empty()) { plain = text; }
        for (auto& c : j.get("cases")->items) {
            const std::string got = prompt(text, j.get("bos")->string, c.get("system")->string,
                                           c.get("question")->string);
            CHECK(got == c.get("text")->string, "%s: got\n%s\nwanted\n%s",
                  j.get("name")->string.c_str(), got.c_str(), c.get("text")->string.c_str());
        }
        if (j.get("name")->string == "gemma" || j.get("name")->string == "mistral") {
            refused(text, "Be brief.", "has no place for it");
        }
    }
    CHECK(prompt(plain, "", " \n", "\n Why? \n") == prompt(plain, "", "", "Why?"),
          "white space at the ends");
    refused("", "", "is none of chatml, llama3, gemma, llama2, mistral, phi3, zephyr");
    refused("{{ bos_token }}{% for m in messages %}{{ '<|turn|>' + m['content'] }}{% endfor %}", "",
            "is none of chatml");
    // the tokens of a form, put together in another way: Tulu, a ChatML without line ends, and the
    // first Phi-3, which leaves a system message out
    const std::string each = "{% for m in messages %}", turn = " + m['content'] ";
    const char* const ends = "does not end a turn as that does";
    refused(each + "{% if m['role'] == 'user' %}{{ '<|user|>\\n'" + turn + "+ '\\n' }}{% else %}" +
                "{{ '<|assistant|>\\n'" + turn + "+ eos_token }}{% endif %}{% endfor %}", "", ends);
    refused(each + "{{ '<|im_start|>' + m['role'] + '\\n'" + turn +
                "+ '<|im_end|>' }}{% endfor %}", "", ends);
    refused(each + "{% if m['role'] == 'user' %}{{ '<|user|>\\n'" + turn + "+ '<|end|>\\n' }}" +
                "{% endif %}{% endfor %}{{ '<|assistant|>\\n' }}", "Be brief.",
            "has no place for it");
    refused(plain + "{{ '<|im_sep|>' }}", "",
            "has <|im_sep|>, which no template of the form chatml has");
    refused(plain + "{{ '[INST]' }}", "", "has [INST], which no template of the form chatml has");
    refused(plain + "{{ strftime_now('%d') }}", "", "has strftime_now");

    const std::string dir = check_tmp();
    file_write(dir + "/tokenizer_config.json", "{\"chat_template\": \"one\"}");
    CHECK(chat_template_of(dir) == "one", "as text: %s", chat_template_of(dir).c_str());
    file_write(dir + "/tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"a\"}, "
               "{\"name\": \"default\", \"template\": \"b\"}]}");
    CHECK(chat_template_of(dir) == "b", "as a list: %s", chat_template_of(dir).c_str());
    file_write(dir + "/chat_template.jinja", "two");
    CHECK(chat_template_of(dir) == "two", "as a file: %s", chat_template_of(dir).c_str());
    CHECK(chat_template_of("test/vectors").empty(), "a directory without one");
    remove_tree(dir);
    return check_done();
}
