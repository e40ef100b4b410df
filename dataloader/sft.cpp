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
    if (form != "segments" && form != "zephyr" && form != "chatml") {
        return "segments, zephyr or chatml";
    }
    if (form != "chatml") { return tok.eos >= 0 ? "" : "a tokenizer with an EOS"; }
    for (const char* text : { "<|im_start|>", "<|im_end|>" }) {
        if (sft_special(tok, text) < 0) { return strf("a tokenizer that has the token %s", text); }
    }
    return "";
}

// A piece of a record: one token if id is not -1, else a text.
struct Segment {
    std::string text;
    int id;
    bool counts;                                         // in the loss
};
typedef std::vector<Segment> Segments;

// ----------------------------------------------------------------------------
// what a record says about the loss

// Keys of a message: 0 or 1, false or true.
static const struct { const char* key; bool masks; } LOSS_KEYS[] = {
    { "weight", false }, { "loss", false },  { "train", false }, { "trainable", false },
    { "mask", true },
};

// A key of a record with one of these words in it may say that something is not to be learned.
static const char* const LOSS_WORDS[] = { "weight", "weights", "loss",  "train", "trainable",
                                          "mask",   "masks",   "label", "labels" };

// Keys of a message that say nothing about its text.
static const char* const IDLE_KEYS[] = { "id", "model", "timestamp" };

// Fields of a record that would be left out of the text.
static const char* const UNWRITTEN_IN_RECORD[] = { "tools", "history", "system" };

static bool is_empty(const Json& j) {
    return j.type == Json::NUL || (j.type == Json::STRING && j.string.empty()) ||
           (j.type == Json::ARRAY && j.items.empty()) ||
           (j.type == Json::OBJECT && j.fields.empty());
}

template <size_t N> static bool is_among(const char* const (&list)[N], const std::string& word) {
    return std::find(list, list + N, word) != list + N;
}

// Looks for keys of a record that would change what is learned. Returns "" or what is wrong.
static std::string check_record(const Json& record, const char* wanted) {
    for (auto& field : record.fields) {
        if (is_among(UNWRITTEN_IN_RECORD, field.first) && !is_empty(field.second)) {
            return strf("got a record with %s, which would be left out: %s", field.first.c_str(),
                        wanted);
        }
        const std::vector<std::string> words = split(field.first, '_');
        const bool about = std::any_of(words.begin(), words.end(), [](const std::string& word) {
            return is_among(LOSS_WORDS, word);
        });
        const Json& v = field.second;
        const bool whole = (v.type == Json::BOOL || v.type == Json::NUMBER) && v.number == 1;
        if (about && !whole && v.type != Json::NUL) {
            return strf("got a record with \"%s\": %s, which may say what the loss counts, wanted "
                        "weight, loss, train or mask in each message, or the record left out",
                        printable(field.first).c_str(), json_short(v).c_str());
        }
    }
    return "";
}

// Reads whether the loss counts a message, where it says so. Returns "" or what is wrong, such as
// another key than those of its text.
static std::string read_loss(const Json& message, const char* role, const char* content,
                             bool* counts) {
    for (auto& field : message.fields) {
        const Json& v = field.second;
        const std::string& key = field.first;
        if (key == role || key == content || is_empty(v) || is_among(IDLE_KEYS, key)) { continue; }
        const std::string got = strf("got a message with \"%s\": %s", printable(key).c_str(),
                                     json_short(v).c_str());
        auto row = std::find_if(std::begin(LOSS_KEYS), std::end(LOSS_KEYS),
                                [&](auto& r) { return key == r.key; });
        if (row == std::end(LOSS_KEYS)) {
            return got + ", which is not written, wanted a text alone; scripts/sft.py asks the "
                         "model's own template";
        }
        const bool is_flag = v.type == Json::BOOL || v.type == Json::NUMBER;
        if (!is_flag || (v.number != 0 && v.number != 1)) {
            return got + ", wanted 0 or 1, false or true";
        }
        *counts = (v.number == 1) != row->masks;
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
static const char* const WANTED_SEGMENTS =
    "wanted {\"segments\": [{\"text\": \"...\", \"loss\": 0 or 1}, ...]}, which "
    "scripts/sft.py writes, or {\"prompt\": \"...\", \"completion\": \"...\"}";

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

// What ShareGPT calls the roles.
static const struct { const char* name; const char* role; } SHAREGPT_ROLES[] = {
    { "human", "user" },   { "user", "user" }, { "gpt", "assistant" }, { "assistant", "assistant" },
    { "system", "system" },
};

static bool is_text(const Json* j) { return j && j->type == Json::STRING; }

// A turn of a conversation.
struct Message {
    std::string role, content;
    bool counts;                                         // in the loss
};

// Returns the role that a name of ShareGPT means, "" if it is none of them.
static std::string sharegpt_role(const std::string& name) {
    for (auto& row : SHAREGPT_ROLES) {
        if (name == row.name) { return row.role; }
    }
    return "";
}

// Adds the messages of a list. Returns "" or what is wrong.
static std::string add_list(const ListShape& shape, const Json& list,
                            std::vector<Message>* messages) {
    for (auto& message : list.items) {
        const Json* role = message.get(shape.role);
        const Json* content = message.get(shape.content);
        if (!is_text(role) || !is_text(content)) { return WANTED; }
        std::string name = role->string;
        if (!strcmp(shape.role, "from")) { name = sharegpt_role(name); }
        if (name.empty()) {
            return "got a message from " + json_str(role->string) +
                   ", wanted human, user, gpt, assistant or system";
        }
        bool counts = name == "assistant";
        const std::string wrong = read_loss(message, shape.role, shape.content, &counts);
        if (!wrong.empty()) { return wrong; }
        messages->push_back({ name, content->string, counts });
    }
    return "";
}

// Adds the messages of a question and its answer. Returns "" or what is wrong.
static std::string add_pair(const PairShape& shape, const Json& record,
                            std::vector<Message>* messages) {
    const Json* question = record.get(shape.question);
    const Json* input = shape.input ? record.get(shape.input) : NULL;
    const Json* answer = record.get(shape.answer);
    if (!is_text(question) || !is_text(answer)) { return WANTED; }
    const bool has_input = input && input->type != Json::NUL;
    if (has_input && !is_text(input)) { return WANTED; }
    std::string asked = question->string;
    if (has_input && !input->string.empty()) { asked += "\n\n" + input->string; }
    messages->push_back({ "user", asked, false });
    messages->push_back({ "assistant", answer->string, true });
    return "";
}

// Finds the messages of a record, in whichever known shape it has them. Returns "" or what is
// wrong.
static std::string read_messages(const Json& record, std::vector<Message>* messages) {
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
// segments: as they are, or made of messages

// Reads a record of segments, or of a prompt and its completion. Returns "" or what is wrong.
static std::string read_segments(const Tokenizer& tok, const Json& record, Segments* segments) {
    const Json* list = record.get("segments");
    const Json* prompt = record.get("prompt");
    const Json* completion = record.get("completion");
    if (!list && is_text(prompt) && is_text(completion)) {
        *segments = { { prompt->string, -1, false }, { completion->string, -1, true },
                      { "", tok.eos, true } };
        return "";
    }
    if (!list || list->type != Json::ARRAY || list->items.empty()) { return WANTED_SEGMENTS; }
    for (auto& item : list->items) {
        const Json* text = item.get("text");
        const Json* loss = item.get("loss");
        const bool has_loss = loss && (loss->type == Json::NUMBER || loss->type == Json::BOOL) &&
                              (loss->number == 0 || loss->number == 1);
        if (!is_text(text) || !has_loss || item.fields.size() != 2) { return WANTED_SEGMENTS; }
        segments->push_back({ text->string, -1, loss->number == 1 });
    }
    return "";
}

// Writes a conversation in one of the two plain forms.
static Segments plain_form(const Tokenizer& tok, bool chatml,
                           const std::vector<Message>& messages) {
    const int start = sft_special(tok, "<|im_start|>");
    const int end = chatml ? sft_special(tok, "<|im_end|>") : tok.eos;
    Segments segments;
    std::string between;                         // the line's end after the message before
    for (auto& message : messages) {
        if (chatml) {
            segments.push_back({ between, -1, false });
            segments.push_back({ "", start, false });
            segments.push_back({ message.role + "\n", -1, false });
        } else {
            segments.push_back({ between + "<|" + message.role + "|>\n", -1, false });
        }
        segments.push_back({ message.content, -1, message.counts });
        segments.push_back({ "", end, message.counts });
        between = "\n";
    }
    segments.push_back({ between, -1, false });
    return segments;
}

std::string sft_encode(const Tokenizer& tok, const std::string& form, bool assistant_only,
                       const Json& record, std::vector<uint32_t>* ids) {
    const bool plain = form != "segments";
    Segments segments;
    std::vector<Message> messages;
    std::string wrong = check_record(record, plain ? WANTED : WANTED_SEGMENTS);
    if (!wrong.empty()) { return wrong; }
    wrong = plain ? read_messages(record, &messages) : read_segments(tok, record, &segments);
    if (!wrong.empty()) { return wrong; }
    if (plain) { segments = plain_form(tok, form == "chatml", messages); }

    const size_t begin = ids->size();
    for (auto& segment : segments) {
        const size_t from = ids->size();
        if (segment.id >= 0) {
            ids->push_back(segment.id);
        } else {
            tokenizer_encode_to(tok, segment.text.data(), segment.text.size(), from == begin, ids);
        }
        if (segment.counts || !assistant_only) { continue; }
        for (size_t i = from; i < ids->size(); i++) { (*ids)[i] = sft_masked((*ids)[i]); }
    }
    if (tok.eos < 0) { return ""; }
    const uint32_t eos = tok.eos;
    const uint32_t last = ids->size() > begin ? ids->back() : 0;
    if (last != eos && last != sft_masked(eos)) {
        ids->push_back(assistant_only ? sft_masked(eos) : eos);
    }
    return "";
}
