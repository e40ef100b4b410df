/*
text/sft.cpp -- checks each key of a record, and encodes each segment with its mask.
*/
#include "sft.h"

// A piece of a record.
struct Segment {
    std::string text;
    bool counts;                                         // in the loss
};
typedef std::vector<Segment> Segments;

// ----------------------------------------------------------------------------
// what a record says about the loss

// A key of a record with one of these words in it may say that something is not to be learned.
static const char* const LOSS_WORDS[] = { "weight", "weights", "loss",  "train", "trainable",
                                          "mask",   "masks",   "label", "labels" };

// Fields of a record that would be left out of the text.
static const char* const UNWRITTEN_IN_RECORD[] = { "tools", "history", "system" };

static bool is_empty(const Json& j) {
    const bool simple = j.type == Json::BOOL || j.is_number();
    return !simple && j.string.empty() && j.items.empty() && j.fields.empty();
}

static bool is_yes_or_no(const Json& j) {
    return (j.type == Json::BOOL || j.is_number()) && (j.number == 0 || j.number == 1);
}

// Looks for keys of a record that would change what is learned. Returns "" or what is wrong.
static std::string check_record(const Json& record) {
    for (auto& field : record.fields) {
        if (has(UNWRITTEN_IN_RECORD, field.first) && !is_empty(field.second)) {
            return strf("got a record with %s, which would be left out", field.first.c_str());
        }
        const auto words = split(field.first, '_');
        const bool about = std::any_of(words.begin(), words.end(), [](const std::string& word) {
            return has(LOSS_WORDS, word);
        });
        const Json& v = field.second;
        const bool whole = is_yes_or_no(v) && v.number == 1;
        if (about && !whole && v.type != Json::NUL) {
            return strf("got a record with \"%s\": %s, which may say what the loss counts, wanted "
                        "segments, each with its loss, or the record left out",
                        printable(field.first).c_str(), json_short(v).c_str());
        }
    }
    return "";
}

// ----------------------------------------------------------------------------
// segments

static const char* const SEGMENTS_WANTED =
    "wanted {\"segments\": [{\"text\": \"...\", \"loss\": 0 or 1}, ...]}, which "
    "scripts/sft.py writes, or {\"prompt\": \"...\", \"completion\": \"...\"}";

// Reads a record of segments, or of a prompt and its completion. Returns "" or what is wrong.
static std::string read_segments(const Json& record, Segments* segments) {
    const bool pair = record["prompt"].is_text() && record["completion"].is_text();
    if (!record.get("segments") && pair) {
        *segments = { { record["prompt"].string, false }, { record["completion"].string, true } };
        return "";
    }
    const std::vector<Json>& list = record["segments"].items;
    if (list.empty()) { return SEGMENTS_WANTED; }
    for (auto& item : list) {
        const Json& text = item["text"];
        const Json& loss = item["loss"];
        const bool both = text.is_text() && is_yes_or_no(loss);
        if (!both || item.fields.size() != 2) { return SEGMENTS_WANTED; }
        segments->push_back({ text.string, loss.number == 1 });
    }
    return "";
}

std::string sft_encode(const Tokenizer& tok, bool assistant_only, const Json& record,
                       std::vector<uint32_t>* ids) {
    Segments segments;
    std::string wrong = check_record(record);
    if (wrong.empty()) { wrong = read_segments(record, &segments); }
    if (!wrong.empty()) { return wrong; }

    const size_t begin = ids->size();
    for (auto& segment : segments) {
        const size_t from = ids->size();
        tokenizer_encode_to(tok, segment.text.data(), segment.text.size(), from == begin, ids);
        if (segment.counts || !assistant_only) { continue; }
        for (size_t i = from; i < ids->size(); i++) { (*ids)[i] = sft_masked((*ids)[i]); }
    }
    const uint32_t eos = tok.eos;
    const uint32_t last = ids->size() > begin ? ids->back() : 0;
    const bool completion = !record.get("segments");                     // whose end counts
    if (completion || (last != eos && last != sft_masked(eos))) {
        ids->push_back(completion || !assistant_only ? eos : sft_masked(eos));
    }
    return "";
}
