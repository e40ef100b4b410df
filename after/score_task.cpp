/*
after/score_task.cpp -- makes tokens of contexts and choices as the evaluation harness does, then
reads the file.
*/
#include "score_task.h"
#include "../base/look.h"
#include "../optional.h"

// ---- text to tokens

static size_t characters_in(const std::string& s) {
    return std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

// Tells whether Python calls it white space, as rstrip and \s have it: Unicode's, and four control
// characters. c is -1 for what is not UTF-8.
static bool is_python_space(long c) {
    const bool ascii = (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
    const bool latin = c == 0x85 || c == 0xA0;
    const bool wide = (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029;
    return ascii || latin || wide || c == 0x1680 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Returns the length of s without the white space at its end.
static size_t without_trailing_space(const std::string& s) {
    size_t end = 0;
    for (size_t i = 0; i < s.size();) {
        const long c = utf8_next(s, &i);
        if (!is_python_space(c)) { end = i; }
    }
    return end;
}

// Returns the stretches of white space + 1: empty words at both ends count, as in the harness.
static long count_words(const std::string& s) {
    long words = 1;
    bool before = false;
    for (size_t i = 0; i < s.size();) {
        const bool space = is_python_space(utf8_next(s, &i));
        words += space && !before;
        before = space;
    }
    return words;
}

int score_prefix(const Tokenizer& tok) {
    for (auto& file : tok.files) {
        if (file.first != "tokenizer_config.json") { continue; }
        const bool none = json_of(file.second)["bos_token"].type == Json::NUL;
        if (none && tok.eos >= 0) { return tok.eos; }
    }
    return tok.bos >= 0 ? tok.bos : tok.eos;
}

// Encodes a text. The specials are left out if the text begins with BOS itself.
static std::vector<int> score_encode(const ScoreText& how, const std::string& text) {
    return text_folder->encode(how.tok, text, !starts_with(text, how.prefix_text));
}

// Returns what stands between context and continuation: the record's own delimiter as it is;
// without one a blank, if neither of the two brings white space of its own.
static std::string score_delimiter(const Json* given, const std::string& context,
                                   const std::string& continuation) {
    if (given) { return given->string; }
    size_t next = 0;
    const std::string& s = continuation;
    const bool begins = !s.empty() && is_python_space(utf8_next(s, &next));
    const bool ends = without_trailing_space(context) < context.size();
    return begins || ends ? "" : " ";
}

// Returns why the request cannot be scored, or "".
static std::string request_fault(const ScoreRequest& r, long longest) {
    const long n = (long)r.tokens.size() - (long)r.from;
    if (r.from < 1) { return "the context has no token"; }
    if (n < 1)      { return "the continuation adds no token to the context"; }
    if (n <= longest) { return ""; }
    return strf("a continuation of %ld tokens, and the model sees %ld at once", n, longest);
}

// Returns the request for `continuation` after `context`. White space at the end of the context
// goes to the continuation, as tokens begin with it. Sets *cannot if it cannot be scored.
static ScoreRequest score_request(const ScoreText& how, std::string context,
                                  std::string continuation, std::string* cannot) {
    ScoreRequest r;
    const size_t end = without_trailing_space(context);
    continuation = context.substr(end) + continuation;
    if (context.empty()) {
        r.tokens = text_folder->encode(how.tok, continuation, false);
        const bool begun = !r.tokens.empty() && r.tokens[0] == how.prefix;
        if (!begun) { r.tokens.insert(r.tokens.begin(), how.prefix); }
        r.from = 1;
    } else {
        context.resize(end);
        r.tokens = score_encode(how, context + continuation);
        r.from = score_encode(how, context).size();
    }
    text_folder->ids_check(how.tok, r.tokens.data(), r.tokens.size(), how.V);
    const std::string fault = request_fault(r, how.longest);
    if (!fault.empty()) { *cannot = fault; }
    return r;
}

// Drops the beginning of what the model cannot see at once. Returns false if that is nothing.
static bool score_cut(ScoreRequest* r, long longest) {
    const long extra = (long)r->tokens.size() - (longest + 1);
    if (extra <= 0) { return false; }
    r->tokens.erase(r->tokens.begin(), r->tokens.begin() + extra);
    r->from -= extra;
    return true;
}

// Cuts a whole text into windows, so that each token is predicted once. All windows but the last
// are disjoint; the last is as long as the others and scores only what is left.
static std::vector<ScoreRequest> score_windows(const ScoreText& how, const std::string& text,
                                               std::string* cannot) {
    std::vector<int> all = score_encode(how, text);
    if (all.empty()) { *cannot = "the text has no token"; }
    all.insert(all.begin(), how.prefix);
    std::vector<ScoreRequest> windows;
    const long n = all.size() - 1;
    const long most = how.longest;
    for (long done = 0; done < n;) {
        const long end = std::min(n, done + most);
        const long begin = done ? end - most : 0;
        ScoreRequest r;
        r.tokens.assign(all.begin() + begin, all.begin() + end + 1);
        r.from = done + 1 - begin;
        windows.push_back(r);
        done = end;
    }
    return windows;
}

// ---- the file

// Returns the text of a key. Ends the program if there is none.
static const std::string& score_text(const Json& record, const char* key,
                                     const std::string& where) {
    const Json& v = record[key];
    require(v.is_text(), where + ": " + key, "text");
    return v.string;
}

// Returns the texts of a key. Ends the program if it has no list of texts.
static std::vector<std::string> score_texts(const Json& record, const char* key,
                                            const std::string& where) {
    const std::string what = where + ": " + key;
    const Json& v = record[key];
    std::vector<std::string> texts;
    require(v.type == Json::ARRAY && !v.items.empty(), what, "a list of texts");
    for (auto& item : v.items) {
        require(item.is_text(), what, "a list of texts");
        texts.push_back(item.string);
    }
    return texts;
}

// Returns the whole number of a key. Ends the program if it is not from `low` to `high`.
static long score_number(const Json& record, const char* key, long low, long high,
                         const std::string& where) {
    const Json& v = record[key];
    const bool whole = v.is_number() && v.number == floor(v.number);
    require(whole && v.number >= low && v.number <= high, where + ": " + key,
            strf("a whole number, %ld to %ld", low, high));
    return v.number;
}

// Returns the number that a record may give of its text, `counted` if it does not.
static long score_size(const Json& record, const char* key, long counted,
                       const std::string& where) {
    if (!record.get(key)) { return counted; }
    return score_number(record, key, 1, 1L << 40, where);
}

// Returns the form of a record by its keys. Ends the program if they are of no form.
static ScoreForm score_form(const Json& record, const std::string& where) {
    static const struct { const char* keys; ScoreForm form; } FORMS[] = {
        { " context choices gold delimiter ",       SCORE_CHOICES },
        { " contexts continuation gold delimiter ", SCORE_CONTEXTS },
        { " context continuation delimiter ",       SCORE_CONTINUATION },
        { " text words bytes ",                     SCORE_TEXT },
    };
    for (auto& f : FORMS) {
        bool all = record.type == Json::OBJECT && !record.fields.empty();
        for (auto& field : record.fields) { all = all && is_one_of(f.keys, field.first); }
        if (all) { return f.form; }
    }
    std::string keys = record.fields.empty() ? "none" : "";
    for (auto& field : record.fields) { list_add(&keys, field.first); }
    die(where + ": got the keys " + keys + ", wanted context, choices, gold; "
        "contexts, continuation, gold; context, continuation; or text",
        "python3 scripts/tasks.py --help");
}

// Tells whether the right answer is one of several that are the same tokens. No model can choose
// it then.
static bool score_twice(const ScoreItem& item) {
    const ScoreRequest& right = item.requests[item.gold];
    long same = 0;
    for (auto& r : item.requests) {
        same += r.from == right.from && r.tokens == right.tokens;
    }
    return same > 1;
}

// Makes an item of a record with a whole text.
static ScoreItem text_item(const Json& j, const ScoreText& how, const std::string& where) {
    ScoreItem item;
    const std::string& text = score_text(j, "text", where);
    item.requests = score_windows(how, text, &item.cannot);
    item.words = score_size(j, "words", count_words(text), where);
    item.bytes = score_size(j, "bytes", text.size(), where);
    return item;
}

// Makes an item of a record of another form: every continuation after every context.
static ScoreItem choice_item(const Json& j, ScoreForm form, const ScoreText& how,
                             const std::string& where) {
    const Json* delimiter = j.get("delimiter");
    if (delimiter) { score_text(j, "delimiter", where); }
    const auto texts = [&](bool several, const char* list, const char* one) {
        if (several) { return score_texts(j, list, where); }
        return std::vector<std::string>{ score_text(j, one, where) };
    };
    const bool choices = form == SCORE_CHOICES;
    const auto contexts = texts(form == SCORE_CONTEXTS, "contexts", "context");
    const auto continuations = texts(choices, "choices", "continuation");

    ScoreItem item;
    for (auto& context : contexts) {
        for (auto& continuation : continuations) {
            const std::string rest =
                score_delimiter(delimiter, context, continuation) + continuation;
            item.requests.push_back(score_request(how, context, rest, &item.cannot));
            item.characters.push_back(characters_in(continuation));
            if (continuation.empty()) {
                item.cannot = choices ? "a choice is empty" : "the continuation is empty";
            }
        }
    }
    if (form == SCORE_CONTINUATION) { return item; }
    item.gold = score_number(j, "gold", 0, item.requests.size() - 1, where);
    if (item.cannot.empty() && score_twice(item)) {
        item.cannot = "another answer is the same tokens as the right one";
    }
    return item;
}

// Reads a line as a record. Ends the program if it is none.
static Json score_record(const std::string& line, const std::string& where) {
    if (!utf8_valid(line)) {
        die(where + ": bytes that are not UTF-8",
            "convert the file first, such as: iconv -f latin1 -t utf-8");
    }
    Json record;
    std::string error;
    if (!json_parse(line.data(), line.size(), &record, &error)) { die(where + ": " + error); }
    return record;
}

ScoreTask score_read(const std::string& path, const ScoreText& how, long limit) {
    ScoreTask task;
    task.path = path;
    long number = 0;
    long records = 0;
    const std::string text = file_read(path, "python3 scripts/tasks.py --help");
    look(path, text.substr(0, LOOK_BYTES), text.size(), READS_RECORDS);
    for (auto& line : split(text, '\n')) {
        const std::string where = path + strf(":%ld", ++number);
        if (without_trailing_space(line) == 0) { continue; }
        if (limit && records == limit) { break; }
        const Json record = score_record(line, where);
        const ScoreForm form = score_form(record, where);
        if (records == 0) { task.form = form; }
        require(form == task.form, where + ": a record of another form than the first",
                "one form in a file");
        ScoreItem item = form == SCORE_TEXT ? text_item(record, how, where)
                                            : choice_item(record, form, how, where);
        item.number = records++;
        if (!item.cannot.empty()) {
            task.left.push_back({ item.number, where + ": " + item.cannot });
            continue;
        }
        for (auto& r : item.requests) { task.cut += score_cut(&r, how.longest); }
        task.items.push_back(item);
    }
    require(records > 0, path + ": no records", "one or more");
    if (task.items.empty()) {
        require(false, task.left[0].why, "at least one item that can be scored");
    }
    return task;
}
