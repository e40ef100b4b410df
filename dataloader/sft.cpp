/*
dataloader/sft.cpp -- checks each key of a record, makes segments of its messages, and encodes each
segment with its mask.
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

// Keys of a message: 0 or 1, false or true; mask says the opposite.
static const char* const LOSS_KEYS[] = { "weight", "loss", "train", "trainable", "mask" };

// A key of a record with one of these words in it may say that something is not to be learned.
static const char* const LOSS_WORDS[] = { "weight", "weights", "loss",  "train", "trainable",
                                          "mask",   "masks",   "label", "labels" };

// Keys of a message that say nothing about the loss.
static const char* const IDLE_KEYS[] = { "role", "content", "id", "model", "timestamp" };

// Fields of a record that would be left out of the text.
static const char* const UNWRITTEN_IN_RECORD[] = { "tools", "history", "system" };

static bool is_empty(const Json& j) {
    const bool simple = j.type == Json::BOOL || j.is_number();
    return !simple && j.string.empty() && j.items.empty() && j.fields.empty();
}

// Tells whether a value is 0 or 1, false or true.
static bool is_yes_or_no(const Json& j) {
    return (j.type == Json::BOOL || j.is_number()) && (j.number == 0 || j.number == 1);
}

// Looks for keys of a record that would change what is learned. Returns "" or what is wrong.
static std::string check_record(const Json& record, const char* wanted) {
    for (auto& field : record.fields) {
        if (has(UNWRITTEN_IN_RECORD, field.first) && !is_empty(field.second)) {
            return strf("got a record with %s, which would be left out: %s", field.first.c_str(),
                        wanted);
        }
        const std::vector<std::string> words = split(field.first, '_');
        const bool about = std::any_of(words.begin(), words.end(), [](const std::string& word) {
            return has(LOSS_WORDS, word);
        });
        const Json& v = field.second;
        const bool whole = is_yes_or_no(v) && v.number == 1;
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
static std::string read_loss(const Json& message, bool* counts) {
    bool said = false;
    for (auto& field : message.fields) {
        const Json& v = field.second;
        const std::string& key = field.first;
        if (is_empty(v) || has(IDLE_KEYS, key)) { continue; }
        const std::string got = strf("got a message with \"%s\": %s", printable(key).c_str(),
                                     json_short(v).c_str());
        if (!has(LOSS_KEYS, key)) {
            return got + ", which is not written, wanted a text alone; scripts/sft.py asks the "
                         "model's own template";
        }
        if (!is_yes_or_no(v)) { return got + ", wanted 0 or 1, false or true"; }
        const bool now = (v.number == 1) != (key == "mask");
        if (said && now != *counts) { return got + ", and a key that says the opposite"; }
        *counts = now;
        said = true;
    }
    return "";
}

// ----------------------------------------------------------------------------
// messages, of the two plain forms

static const char* const WANTED =
    "wanted {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]} or "
    "{\"prompt\": \"...\", \"completion\": \"...\"}";
static const char* const ELSEWHERE =
    "; of records of another shape scripts/sft.py makes segments, by a model's own template";
static const char* const WANTED_SEGMENTS =
    "wanted {\"segments\": [{\"text\": \"...\", \"loss\": 0 or 1}, ...]}, which "
    "scripts/sft.py writes, or {\"prompt\": \"...\", \"completion\": \"...\"}";

// Tells whether a record is a prompt and its completion, and has no list of this name.
static bool is_pair(const Json& record, const char* list) {
    return !record.get(list) && record["prompt"].is_text() && record["completion"].is_text();
}

// A turn of a conversation.
struct Message {
    std::string role, content;
    bool counts;                                         // in the loss
};

// Reads the messages of a record, or its prompt and completion. Returns "" or what is wrong.
static std::string read_messages(const Json& record, std::vector<Message>* messages) {
    if (is_pair(record, "messages")) {
        *messages = { { "user", record["prompt"].string, false },
                      { "assistant", record["completion"].string, true } };
        return "";
    }
    const std::vector<Json>& list = record["messages"].items;
    if (list.empty()) { return std::string(WANTED) + ELSEWHERE; }
    for (auto& message : list) {
        const Json& role = message["role"];
        const Json& content = message["content"];
        if (!role.is_text() || !content.is_text()) { return WANTED; }
        bool counts = role.string == "assistant";
        const std::string wrong = read_loss(message, &counts);
        if (!wrong.empty()) { return wrong; }
        messages->push_back({ role.string, content.string, counts });
    }
    return "";
}

// ----------------------------------------------------------------------------
// segments: as they are, or made of messages

// Reads a record of segments, or of a prompt and its completion. Returns "" or what is wrong.
static std::string read_segments(const Tokenizer& tok, const Json& record, Segments* segments) {
    if (is_pair(record, "segments")) {
        *segments = { { record["prompt"].string, -1, false },
                      { record["completion"].string, -1, true }, { "", tok.eos, true } };
        return "";
    }
    const std::vector<Json>& list = record["segments"].items;
    if (list.empty()) { return WANTED_SEGMENTS; }
    for (auto& item : list) {
        const Json& text = item["text"];
        const Json& loss = item["loss"];
        const bool both = text.is_text() && is_yes_or_no(loss);
        if (!both || item.fields.size() != 2) { return WANTED_SEGMENTS; }
        segments->push_back({ text.string, -1, loss.number == 1 });
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
    const uint32_t eos = tok.eos;
    const uint32_t last = ids->size() > begin ? ids->back() : 0;
    if (tok.eos >= 0 && last != eos && last != sft_masked(eos)) {
        ids->push_back(assistant_only ? sft_masked(eos) : eos);
    }
    return "";
}
