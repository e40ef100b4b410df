/*
text/text_cache.cpp -- makes an entry once, and finds it by the hash of text and tokenizer. An
entry is a directory NAME-HASH; while it is made it is called NAME-HASH.part, and is locked.
*/
#include "text_cache.h"
#include <limits.h>
#include "../base/lock.h"
#include "manifest.h"

void sft_options(const DataOptions& opt, const std::string& path, const Tokenizer& tok,
                 EncodeOptions* o) {
    if (opt.sft.empty()) { return; }
    const std::string what = "--sft " + opt.sft;
    require(opt.sft == "segments", what, "segments, which scripts/sft.py makes of conversations");
    require(tok.eos >= 0, what, "a tokenizer with an EOS");
    require(opt.bos != "doc" && text_format(path) == TEXT_JSONL, what,
            "a .jsonl of conversations, and no --bos doc");
    require(opt.sft_loss == "assistant" || opt.sft_loss == "all", "--sft-loss " + opt.sft_loss,
            "assistant or all");
    o->sft = opt.sft;
    o->assistant_only = opt.sft_loss == "assistant";
}

void sources_check(const DataOptions& opt, const std::vector<std::string>& names) {
    check_skip_bad(opt.skip_bad, names);
    for (auto& name : names) {
        if (!is_dir(name) || opt.sft.empty()) { continue; }
        die("--sft " + opt.sft + ": got a directory, wanted a .jsonl of conversations");
    }
}

// An entry of the cache: the text it is of, and where it is.
struct CacheEntry {
    const Tokenizer& tok;
    TokenizeOptions options;             // out: the directory while it is made
    std::string dir;
};

// Tells whether the directory holds the shards of this text, every byte as it was written. In an
// older manifest there are no hashes, and it is enough that the files are there.
static bool cache_intact(const CacheEntry& entry) {
    const std::string path = entry.dir + "/manifest.json";
    const TokenizeOptions& o = entry.options;
    // a file of the same size and time may hold other text: an archive unpacked, times preserved
    if (changed_since(o.files[0], path)) { return false; }
    const std::string text = file_read(path);
    const std::string made = tokenize_made(o, entry.tok, o.files, 1);
    Json manifest;
    std::string error;
    if (!contains(text, made) || !manifest_is_complete(text)) { return false; }
    if (!json_parse(text.data(), text.size(), &manifest, &error)) { return false; }
    const std::vector<ShardSums> all = manifest_sums(manifest);
    for (auto& sums : all) {
        if (!shard_fault(entry.dir, sums, true).empty()) { return false; }
    }
    return !all.empty() || file_exists(entry.dir + "/train_000000.bin");
}

// Tells whether this is a NAME-HASH.part of ours, in which the text of another run became shards,
// or would have.
static bool is_part(const std::string& name, const std::string& path) {
    const size_t dash = name.rfind('-');
    const size_t digits = 16;
    const size_t size = dash + 1 + digits + strlen(".part");
    const bool named = dash != name.npos && ends_with(name, ".part") && name.size() == size;
    const std::string manifest = path + "/manifest.json";
    if (!named || is_special(manifest)) { return false; }
    if (file_exists(manifest)) { return manifest_is_ours(file_read(manifest)); }
    return dir_list(path) == std::vector<std::string>({ "lock" });
}

// Removes what runs that failed or were killed left of other texts.
static void cache_clean(const std::string& root) {
    for (auto& name : dir_list(root)) {
        const std::string path = root + "/" + name;
        if (!is_part(name, path)) { continue; }
        DirLock lock = dir_try_lock(path);
        if (lock.fd < 0) { continue; }
        remove_ours(path, tokenize_ours);
        dir_unlock(&lock);
    }
}

// Makes the shards in the locked directory, then gives that its name.
static void cache_make(const CacheEntry& entry, DirLock* lock) {
    const std::string& dir = entry.dir;
    tokenize_main(entry.options);
    if (!remove_ours(dir, tokenize_ours)) {
        die(dir + ": holds files that train_sink did not make",
            "move them away: it is the cache of a text");
    }
    if (rename(entry.options.out.c_str(), dir.c_str())) {
        die(EXIT_MACHINE, cannot("write", dir),
            "its tokens are kept in data/cache: run where you may write");
    }
    lock->path = dir + "/lock";
    dir_unlock(lock);
    dir_sync(directory_of(dir));
}

static std::string cache_root(const DataOptions& opt) {
    return opt.cache.empty() ? "data/cache" : opt.cache;
}

// Returns the entry of a text. Its name has a hash of all that its ids depend on, but for the
// content of the file.
static CacheEntry cache_entry(const std::string& path, const std::string& real,
                              const Tokenizer& tok, const DataOptions& opt) {
    CacheEntry entry = { tok, TokenizeOptions(), "" };
    TokenizeOptions& o = entry.options;
    o.files = { path };
    if (tok.kind == TOKENIZER_BPE) { o.tokenizer = tok.name; }
    if (opt.bos == "doc") { o.bos = "doc"; }
    o.skip_bad = opt.skip_bad && text_format(path) == TEXT_JSONL;
    sft_options(opt, path, tok, &o);
    std::string key = strf("%s|%s|%d", real.c_str(), o.bos.c_str(), (int)o.skip_bad);
    // "2": until then weight, loss, train and mask of a message were not read
    if (!o.sft.empty()) { key += "|2|" + o.sft + (o.assistant_only ? "|assistant" : "|all"); }
    const std::string hash = hash_text(hash_string(key, tok.hash));
    const size_t most = 200;                     // of the 255 bytes that a name may have
    entry.dir = cache_root(opt) + "/" + file_name(path).substr(0, most) + "-" + hash;
    o.out = entry.dir + ".part";
    o.shown = entry.dir;                                 // the name it has when it is done
    o.locked = true;
    return entry;
}

std::string text_cache(const std::string& path, const Tokenizer& tok, const DataOptions& opt) {
    char real[PATH_MAX];
    if (!realpath(path.c_str(), real) || access(real, R_OK)) {
        die(cannot("open", path));
    }
    if (file_size(path) == 0) { die(path + ": got an empty file, wanted text"); }
    const CacheEntry entry = cache_entry(path, real, tok, opt);
    const std::string& part = entry.options.out;
    while (!cache_intact(entry)) {
        make_dirs(part, "./train_sink tokenize " + path + " -o DIR, and then -d DIR");
        DirLock lock = dir_lock(part, "", "makes tokens of the same text");
        if (lock.fd < 0) { continue; }                   // another process has just made them
        if (cache_intact(entry)) {
            remove_ours(part, tokenize_ours);
            dir_unlock(&lock);
            break;
        }
        cache_clean(cache_root(opt));
        cache_make(entry, &lock);
        break;
    }
    return entry.dir;
}
