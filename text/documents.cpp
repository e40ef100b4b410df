/*
text/documents.cpp -- finds a document's text and domain in a record, and encodes it.
*/
#include "documents.h"
#include "sft.h"

// ----------------------------------------------------------------------------
// domains

std::string domain_name(const std::string& set) {
    std::string name;
    for (unsigned char c : set) {
        if (isalnum(c)) {
            name += (char)tolower(c);
        } else if (!name.empty() && name.back() != '_') {
            name += '_';
        }
    }
    while (!name.empty() && name.back() == '_') { name.pop_back(); }
    return name;
}

// Returns the domain that a file's name begins with, before '-', as RegMix's do.
static std::string file_domain(const std::string& path) {
    const std::string name = file_name(path);
    return contains(name, "-") ? domain_name(name.substr(0, name.find('-'))) : "";
}

// ----------------------------------------------------------------------------
// documents

// A document of a block, or a part of one.
struct Document {
    const char* text;
    size_t bytes;
    std::string domain;
    bool first;                          // it begins here
    bool last;                           // and ends here
};

// Encodes what a block holds, and adds it there.
struct DocumentEncoder {
    const Tokenizer& tok;
    const EncodeOptions& o;
    TextBlock* b;

    // Returns where the stretch that starts at s[i] ends. Where only the first ids are wanted a
    // text is encoded in stretches, so that what comes after them is not.
    size_t stretch_end(const Document& d, size_t i) const {
        const size_t stretch = 1 << 12;
        if (!o.first) { return d.bytes; }
        size_t end = i + stretch;
        while (end < d.bytes && !text_cuts(tok, d.text, d.bytes, end)) { end++; }
        return std::min(end, d.bytes);
    }

    void encode_document(const Document& d) const {
        const size_t before = b->ids.size();
        const bool puts_bos = d.first && o.bos == "doc";
        // growing step by step, a long document would take twice the room
        if (tok.kind == TOKENIZER_BYTES && d.bytes > TEXT_BLOCK) {
            b->ids.reserve(before + d.bytes + 2);
        }
        if (puts_bos) { b->ids.push_back(tok.bos); }
        size_t end;
        for (size_t i = 0; i < d.bytes; i = end) {
            end = stretch_end(d, i);
            tokenizer_encode_to(tok, d.text + i, end - i, d.first && i == 0, &b->ids);
            const bool has_text = b->ids.size() > before + 1;
            const bool second_bos = i == 0 && puts_bos && has_text &&
                                    b->ids[before + 1] == (uint32_t)tok.bos;
            if (second_bos) {            // one BOS is enough
                b->ids.erase(b->ids.begin() + before + 1);
                b->counts.begun++;
            }
            if (o.first && (long)(b->ids.size() - before) >= o.first) { break; }
        }
        if (d.last) { b->ids.push_back(tok.eos); }
        b->docs.push_back({ b->ids.size(), d.domain, d.last });
    }

    // Encodes a record of --sft. Returns what is wrong with it, or "".
    std::string encode_conversation(const Json& record) const {
        const std::string error = sft_encode(tok, o.assistant_only, record, &b->ids);
        if (error.empty()) { b->docs.push_back({ b->ids.size(), "", true }); }
        return error;
    }

    // Encodes a record of text. Returns what is wrong with it, or "".
    std::string encode_text_record(const Json& record) const {
        if (record.type == Json::ARRAY) { return "got an array, wanted one record"; }
        if (!record["text"].is_text()) {
            const bool talk = record.get("messages") || record.get("conversations");
            const char* got = talk ? "got a conversation" : "got a record without text";
            return std::string("wanted {\"text\": \"...\"}, ") + got;
        }
        std::string domain;
        if (!o.domains.empty()) {
            const Json* set = record["meta"].get("pile_set_name");
            domain = set ? domain_name(set->string) : file_domain(b->file->path);
            if (domain.empty()) { return "wanted meta.pile_set_name, got a record without it"; }
        }
        const std::string& s = record["text"].string;
        encode_document({ s.data(), s.size(), domain, true, true });
        return "";
    }

    // Encodes one line of a .jsonl. Returns what is wrong with it, or "".
    std::string encode_line(const char* s, size_t n) const {
        // of a conversation everything is kept: its messages are a list
        std::vector<const char*> keep;
        if (o.sft.empty()) {
            keep = { "text", "meta", "pile_set_name", "messages", "conversations" };
        }
        Json record;
        std::string error;
        if (!json_parse(s, n, &record, &error, &b->counts.replaced, keep)) { return error; }
        if (!o.sft.empty()) { return encode_conversation(record); }
        return encode_text_record(record);
    }

    void encode_lines() const {
        const std::string& text = b->text;
        long line = b->line;
        size_t end;
        for (size_t i = 0; i < text.size(); i = end + 1) {
            end = std::min(text.find('\n', i), text.size());
            line++;
            const bool blank = text.find_first_not_of(" \t\r", i) >= end;
            if (blank) { continue; }
            const std::string error = encode_line(&text[i], end - i);
            if (error.empty()) { continue; }
            if (!o.skip_bad) {
                b->error = b->file->path + strf(": line %ld: ", line) + error;
                return;
            }
            b->counts.skipped++;
        }
    }
};

void text_encode(const Tokenizer& tok, const EncodeOptions& o, TextBlock* b) {
    b->ids.clear();
    b->docs.clear();
    b->counts = TextCounts();
    b->counts.bytes = (long)b->text.size();
    if (!b->error.empty()) { return; }
    const DocumentEncoder encoder = { tok, o, b };
    if (b->file->format != TEXT_TXT) {
        encoder.encode_lines();
        return;
    }
    if (tok.kind != TOKENIZER_BYTES) { b->counts.replaced += utf8_repair(&b->text); }
    std::string domain;
    if (!o.domains.empty()) { domain = file_domain(b->file->path); }
    encoder.encode_document({ b->text.data(), b->text.size(), domain, b->first, b->last });
}
