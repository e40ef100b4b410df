/*
text/manifest.cpp -- writes and parses manifest.json, and tells which files of a directory are
ours.
*/
#include "manifest.h"
#include <limits.h>

static const char* const MANIFEST = "manifest.json";

// ----------------------------------------------------------------------------
// writing

// Writes a list with a line for each item, which begins with `line`.
template <class List, class ItemJson>
static std::string json_lines(const std::string& line, const List& list, ItemJson json) {
    std::string all;
    for (auto& item : list) { list_add(&all, line + json(item), ","); }
    return "[" + all + "]";
}

// Returns [path, bytes, "time"] of a source of text.
static std::string file_json(const std::string& path) {
    struct stat st = {};
    char real[PATH_MAX];
    const bool known = path != "-" && !stat(path.c_str(), &st) && realpath(path.c_str(), real);
    const std::string name = json_str(known ? real : "-");
    return strf("[%s, %lld, \"%lld.%09ld\"]", name.c_str(), (long long)st.st_size,
                (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

std::string tokenize_made(const TokenizeOptions& o, const Tokenizer& tok,
                          const std::vector<std::string>& files, size_t val_from) {
    JsonObject out(JSON_SPACED);
    out.text("bos", o.bos);
    out.text("domains", o.domains);
    if (!o.sft.empty()) { out.text("sft", o.sft); }
    if (o.assistant_only) { out.text("sft_loss", "assistant"); }
    out.number("val_fraction", o.val_fraction);
    out.count("tokens", o.tokens);
    out.count("shard_tokens", o.shard_tokens);
    out.boolean("skip_bad", o.skip_bad);
    out.text("tokenizer_hash", hash_text(tok.hash));
    out.count("val_from", val_from);
    out.json("files", json_lines("\n    ", files, file_json));
    return out.all();
}

// Returns ["train_000000.bin", tokens, "a hash of 16 digits for each block"].
static std::string shard_json(const ShardSums& shard) {
    std::string hashes;
    for (uint64_t hash : shard.hashes) { hashes += hash_text(hash); }
    const std::string tokens = strf("%ld", shard.tokens);
    return json_list({ json_str(shard.name), tokens, json_str(hashes) }, JSON_SPACED);
}

static std::string series_json(const SeriesSums& series) {
    JsonObject out(JSON_SPACED);
    out.text("name", series.name);
    out.count("shards", series.shards.size());
    out.count("documents", series.documents);
    out.count("tokens", series.tokens);
    out.json("files", json_lines("\n      ", series.shards, shard_json));
    return out.all();
}

void manifest_write(const TokenizeOptions& o, const Tokenizer& tok, const TextCounts& counts,
                    const std::vector<SeriesSums>& series, const std::string& made,
                    bool complete) {
    JsonObject out(JSON_SPACED);
    out.boolean("complete", complete);
    out.text("tokenizer", tok.name);
    out.text("tokenizer_hash", hash_text(tok.hash));
    out.count("vocab", tok.vocab_size);
    out.count("eos", tok.eos);
    out.text("bos", o.bos);
    out.count("documents", counts.documents);
    out.count("tokens", counts.tokens);
    out.count("bytes", counts.bytes);
    out.count("replaced", counts.replaced);
    out.count("skipped", counts.skipped);
    out.count("dropped", counts.dropped);
    out.json("series", json_lines("\n    ", series, series_json));
    out.json("made", made);
    file_write(o.out + "/" + MANIFEST, out.all() + "\n");
}

// ----------------------------------------------------------------------------
// reading

bool manifest_is_complete(const std::string& text) {
    return starts_with(text, "{\"complete\": true, \"tokenizer\": ");
}

bool manifest_is_ours(const std::string& text) {
    return manifest_is_complete(text) ||
           starts_with(text, "{\"complete\": false, \"tokenizer\": ");
}

// ----------------------------------------------------------------------------
// names

// Tells whether a name is like train_000000.bin, val_pile_cc_000012.bin.
static bool is_shard_name(const std::string& name) {
    const bool series = starts_with(name, "train_") || starts_with(name, "val_");
    const size_t digits = name.rfind('_') + 1;
    if (!series || !ends_with(name, ".bin") || name.size() < digits + 10) { return false; }
    const auto is_digit = [](unsigned char c) { return isdigit(c) != 0; };
    return std::all_of(name.begin() + digits, name.end() - 4, is_digit);
}

bool tokenize_ours(const std::string& name) {
    const size_t bin = name.find(".bin.");
    if (bin != name.npos) {
        const std::string shard = name.substr(0, bin + 4);
        return is_shard_name(shard) && is_temporary(name, shard);
    }
    if (name == MANIFEST || is_temporary(name, MANIFEST)) { return true; }
    return name == "lock" || tokenizer_ours(name) || is_shard_name(name);
}

bool changed_since(const std::string& path, const std::string& other) {
    struct stat text;
    struct stat made;
    if (stat(path.c_str(), &text) || stat(other.c_str(), &made)) { return true; }
    const auto order = [](const timespec& t) { return std::make_pair(t.tv_sec, t.tv_nsec); };
    return order(text.st_ctim) > order(made.st_mtim);
}
