/*
test_chat.cpp -- prompts of generate --chat: templates are run, and must write what transformers
renders (dev/peers/check_chat.py --save): those of many models, seven that have the tokens of ChatML and
write something else, and what Jinja has. What cannot be run is refused by name, in a time and with
a memory that do not grow faster than the template. And --sft writes what the template of its form
writes.

    build/test/test_chat DIR BOS SYSTEM QUESTION      only prints the prompt
                                                      of a directory's template
*/
#include "../check.h"
#include "../../open/chat.h"
#include "../../dataloader/sft.h"

static Chat chat_of(const std::string& text, const std::string& bos, const std::string& eos) {
    Chat chat;
    chat.text = text;
    if (!bos.empty()) { chat.tokens["bos_token"] = bos; }
    if (!eos.empty()) { chat.tokens["eos_token"] = eos; }
    return chat;
}

static void refused(const std::string& text, const std::string& system, const char* says) {
    const Died d = check_dies([&] { chat_prompt(chat_of(text, "<s>", "</s>"), system, "Why?"); });
    CHECK(d.code == EXIT_USER && d.says(says), "%s: exit %d, wanted '%s', got %s",
          text.substr(0, 200).c_str(), d.code, says, d.err.c_str());
}

static std::string rendered(const std::string& text) {
    return chat_prompt(chat_of(text + "{{ messages[-1].content }}", "<s>", "</s>"), "", "Why?");
}

// every template of the file, every conversation
static int vectors_check() {
    int templates = 0;
    for (auto& line : split(file_read("test/vectors/chat.jsonl"), '\n')) {
        if (line.empty()) { continue; }
        const Json j = json_of(line);
        const Chat chat = chat_of(j.get("template")->string, j.get("bos")->string,
                                  j.get("eos")->string);
        const std::string name = j.get("name")->string;
        templates++;
        for (auto& c : j.get("cases")->items) {
            const std::string got = chat_prompt(chat, c.get("system")->string,
                                                c.get("question")->string);
            CHECK(got == c.get("text")->string, "%s: got\n%s\nwanted\n%s", name.c_str(),
                  got.c_str(), c.get("text")->string.c_str());
        }
        if (name == "gemma" || name == "refuses") {
            refused(chat.text, "Be brief.",
                    name == "gemma" ? "System role not supported" : "no system");
        }
        if (name == "drops") { refused(chat.text, "Be brief.", "has no place for it"); }
    }
    return templates;
}

// what ends an answer: the special token that the template writes behind one
static void ends_check() {
    Tokenizer t = tokenizer_bytes();
    t.added.push_back({ "<|im_end|>", 300, true, false, false, false });
    t.added.push_back({ "</s>", 301, true, false, false, false });
    const std::string each = "{% for m in messages %}";
    const struct { const char* turn; int end; } rows[] = {
        { "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}", 300 },
        { "{{ m.content + eos_token }}", 301 },
        { "{{ m.content }}\n", -1 },
        { "{{ m.role }}", -1 },
        { "{{ m.content.nothing.there }}", -1 },
    };
    for (auto& row : rows) {
        const int end = chat_end(chat_of(each + row.turn + "{% endfor %}", "", "</s>"), t);
        CHECK(end == row.end, "%s: ends with %d, wanted %d", row.turn, end, row.end);
    }
}

static void refusals_check() {
    refused("{{ messages[0].content", "", "without its }}");
    refused("{% if true %}x", "", "ends before its endif");
    refused("{% include 'x' %}", "", "the tag 'include', which is not known");
    refused("{{ messages | shuffle }}", "", "the filter 'shuffle'");
    refused("{{ bos_token.zfill(3) }}", "", "the method 'zfill'");
    refused("{{ open('/etc/passwd') }}", "", "calls 'open'");
    refused("{{ messages is divisibleby 3 }}", "", "the test 'divisibleby'");
    refused("{{ messages }}", "", "writes a list as text");
    refused("{{ nothing.there }}", "", "looks into an undefined value");
    refused("{{ 'a' + 1 }}", "", "adds a number to a text");
    refused("{{ raise_exception('no, thanks') }}", "", "says: no, thanks");
    refused("no question at all", "", "leaves the question out");
    refused("{{ messages[0].content[:1] }}", "", "leaves the question out");
}

// templates made to take for ever, or all memory
static void bombs_check() {
    const size_t n = 1 << 20;
    const std::string q = "{{ messages[-1].content }}";
    auto many = [&](const std::string& part) {
        std::string s;
        while (s.size() < n) { s += part; }
        return s;
    };
    const std::string lines(n, '\n');
    CHECK(rendered(lines) == lines + "Why?", "1 MB of line ends");
    CHECK(rendered("{{ 'a' }}  {% if true %}b{% endif %}") == "a  bWhy?", "blanks behind a value");
    CHECK(rendered(many(" ' + '")).size() > n, "1 MB of plus signs");
    CHECK(rendered("{{ '' " + many("+ '' ") + "}}") == "Why?", "a long sum");
    CHECK(rendered(many("{# #}")) == "Why?" && rendered(many("{% if true %}{% endif %}")) == "Why?",
          "many tags");
    CHECK(rendered("{% if false %}" + many("{% elif false %}") + "{% endif %}") == "Why?", "elif");
    refused(many("{{"), "", "");
    refused("{{ " + many("(") + "1 }}", "", "without its }}");
    refused("{{ " + many("not ") + "1 }}", "", "nested too deep");
    refused("{{ " + many("- ") + "1 }}", "", "nested too deep");
    refused("{{ 1" + many("[0]") + " }}", "", "chain too long");
    refused("{{ 1" + many("|abs") + " }}", "", "chain too long");
    refused(many("{% if true %}") + q, "", "nested too deep");
    refused(
        "{% set x = namespace(s='aaaaaaaaaa') %}{% for i in range(40) %}{% set x.s = x.s + x.s %}"
        "{% endfor %}" +
            q,
        "", "too long a text");
    refused("{% set x = namespace(s='a') %}{% for i in range(9) %}{% set x.s = x.s.replace('a', "
            "'aaaaaaaaaa') %}{% endfor %}" + q, "", "too long a text");
    refused("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}" + q,
            "", "too many steps");
    refused("{% for i in range(10000000) %}{% endfor %}", "", "too long a range");
    const std::string big = "9223372036854775807";
    const char* large = "a number that is too large";
    refused("{{ (-" + big + " - 1) // -1 }}" + q, "", large);
    refused("{{ (-" + big + " - 1) % -1 }}" + q, "", large);
    refused("{{ " + big + " + 1 }}" + q, "", large);
    refused("{{ 9007199254740992 * 9007199254740992 }}" + q, "", large);
    refused("{{ 'abc'[::-" + big + "] }}" + q, "", large);
    refused("{{ range(9007199254740991, " + big + ", " + big + ") }}" + q, "", large);
    refused("{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = [n.l] %}{% "
            "endfor %}" +
                q,
            "", "nests values too deep");
    refused("{% set n = namespace(a=1) %}{% set n.a = [n] %}{{ n.a | tojson }}", "",
            "keeps a namespace in a namespace");
    refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "", "too deep");
    refused("{% for i in range(99999) %}{{ '" + std::string(1000, 'x') + "' }}{% endfor %}" + q, "",
            "too long a text");
}

// --sft: the tokens of a conversation are the text of its form's template
static void sft_check_forms() {
    Tokenizer t = tokenizer_bytes();
    t.added.push_back({ "<|im_start|>", 257, true, false, false, false });
    t.added.push_back({ "<|im_end|>", 258, true, false, false, false });
    t.vocab_size = 259;
    const std::string turns = "{% for m in messages %}";
    const struct { const char *form, *turn; } rows[] = {
        { "chatml", "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}" },
        { "zephyr", "{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}" },
    };
    const Json messages = json_of("[{\"role\":\"system\",\"content\":\"S\"},"
                                  "{\"role\":\"user\",\"content\":\"hi\"}]");
    for (auto& row : rows) {
        std::vector<uint32_t> ids;
        CHECK(sft_encode(t, row.form, false, &messages, &ids).empty(), "%s", row.form);
        std::string text;
        for (size_t i = 0; i + 1 < ids.size(); i++) {            // the last is EOS, of the document
            if (ids[i] == 257) { text += "<|im_start|>"; }
            else if (ids[i] == 258) { text += "<|im_end|>"; }
            else { text += ids[i] == 256 ? std::string("$") : std::string(1, (char)ids[i]); }
        }
        const std::string want =
            chat_prompt(chat_of(turns + row.turn + "{% endfor %}", "", "$"), "S", "hi");
        CHECK(text == want, "--sft %s: got\n%s\nwanted\n%s", row.form, text.c_str(), want.c_str());
    }
}

static void directory_check_all() {
    const std::string dir = check_tmp();
    file_write(dir + "/tokenizer_config.json",
               "{\"chat_template\": \"one\", \"bos_token\": {\"content\": \"<s>\"}, "
               "\"eos_token\": null}");
    file_write(dir + "/special_tokens_map.json",
               "{\"bos_token\": \"<b>\", \"eos_token\": \"</s>\"}");
    Chat chat = chat_of_directory(dir);
    CHECK(chat.text == "one" && chat.tokens["bos_token"] == "<s>" &&
              chat.tokens["eos_token"] == "</s>",
          "as text: %s", chat.text.c_str());
    file_write(dir + "/tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"a\"}, "
               "{\"name\": \"default\", \"template\": \"b\"}]}");
    CHECK(chat_of_directory(dir).text == "b", "as a list");
    for (const char* bad : { "[{\"name\": \"rag\", \"template\": \"a\"}]", "7", "{}" }) {
        file_write(dir + "/tokenizer_config.json", std::string("{\"chat_template\": ") + bad + "}");
        const Died d = check_dies([&] { chat_of_directory(dir); });
        CHECK(d.code == EXIT_USER && d.says("a template called default"), "%s: %s", bad,
              d.err.c_str());
    }
    file_write(dir + "/chat_template.jinja", "two");
    CHECK(chat_of_directory(dir).text == "two", "as a file");
    CHECK(chat_of_directory("test/vectors").text.empty(), "a directory without one");
    remove_tree(dir);
}

int main(int argc, char** argv) {
    if (argc == 5) {
        Chat chat = chat_of_directory(argv[1]);
        printf("%s", chat_prompt(chat, argv[3], argv[4]).c_str());
        return 0;
    }
    CHECK(vectors_check() >= 32, "templates are missing");
    ends_check();
    refusals_check();
    bombs_check();
    sft_check_forms();
    directory_check_all();
    return check_done();
}
