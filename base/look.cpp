/*
base/look.cpp -- opens files, and compares their first bytes with a table of kinds, each with its
hint.
*/
#include "look.h"
#include <limits.h>

// ----------------------------------------------------------------------------
// opening

int file_open(const std::string& path, const std::string& hint) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st = {};
    const bool there = fd >= 0 && fstat(fd, &st) == 0;
    if (there && S_ISDIR(st.st_mode)) { errno = EISDIR; }
    if (!there || S_ISDIR(st.st_mode)) {
        die(blame(errno), cannot("open", path), hint);
    }
    char real[PATH_MAX];
    if (!S_ISREG(st.st_mode) && realpath(path.c_str(), real)) {
        die(path + ": got a pipe or a device, wanted a file",
            "write what comes from there into a file first");
    }
    fcntl(fd, F_SETFL, O_RDONLY);                        // wait for what is read, from now on
    return fd;
}

std::string directory_above(std::string path) {
    do {
        const size_t slash = path.find_last_of('/');
        path = slash == path.npos ? "" : path.substr(0, slash);
    } while (!path.empty() && !is_dir(path));
    return path;
}

std::string list_beside(const std::string& path, const std::string& patterns) {
    const std::string above = directory_above(path);
    return above.empty() ? "ls " + patterns : hint_for("ls FILE", above);
}

std::string file_read(const std::string& path, const std::string& hint) {
    FILE* f = fdopen(file_open(path, hint), "rb");
    std::string s;
    long size = file_size(path);
    s.resize(size > 0 ? size : 0);
    size_t n = fread(&s[0], 1, s.size(), f);
    s.resize(n);
    for (int c; (c = fgetc(f)) != EOF;) { s.push_back((char)c); }  // pipes, and files that grew
    if (ferror(f)) { die(EXIT_MACHINE, cannot("read", path)); }
    fclose(f);
    return s;
}


// ----------------------------------------------------------------------------
// kinds that no magic number tells

static uint64_t little(const std::string& s, size_t at, int bytes) {
    uint64_t v = 0;
    for (size_t i = at + bytes; i-- > at;) {
        const unsigned char byte = i < s.size() ? s[i] : 0;
        v = v << 8 | byte;
    }
    return v;
}

static size_t skip_space(const std::string& s, size_t i = 0) {
    while (i < s.size() && isspace((unsigned char)s[i])) { i++; }
    return i;
}

// Tells whether the text begins with this word, whatever the case, after blanks.
static bool begins(const std::string& s, const char* word) {
    const size_t at = skip_space(s), n = strlen(word);
    return s.size() >= at + n && strncasecmp(s.data() + at, word, n) == 0;
}

static bool is_html(const std::string& s, long) {
    return begins(s, "<!doctype html") || begins(s, "<html") || begins(s, "<head");
}

static bool is_json_array(const std::string& s, long) {
    const size_t at = skip_space(s), next = skip_space(s, at + 1);
    return next < s.size() && s[at] == '[' && strchr("[{\"]-0123456789", s[next]);
}

// Looks for 8 bytes of length, then a JSON object.
static bool is_safetensors(const std::string& s, long size) {
    const uint64_t header = little(s, 0, 8);
    const uint64_t room = size < 0 ? UINT64_MAX : (uint64_t)size;
    return header >= 2 && header <= 100000000 && 8 + header <= room && s.size() > 9 &&
           s[8] == '{' && (s[9] == '"' || s[9] == '}');
}

// Looks for the number that the old form of PyTorch begins with, or for a zip of its new one.
static bool is_torch(const std::string& s, long) {
    if (!starts_with(s, "PK\3\4")) { return starts_with(s, "\x80\x02\x8a\x0al"); }
    const std::string first = s.substr(std::min<size_t>(s.size(), 30), little(s, 26, 2));
    return ends_with(first, "/data.pkl") || ends_with(first, "version");
}

// Looks for what a hub sends in place of a file that is not there, or not yours: a few words.
static bool is_answer(const std::string& s, long) {
    const size_t short_text = 512;
    for (auto words : { "entry not found", "repository not found", "access to model", "not found",
                        "access to dataset", "invalid username", "invalid credentials", "<?xml",
                        "{\"error\"", "unauthorized", "# xet version" }) {
        if (s.size() < short_text && begins(s, words)) { return true; }
    }
    return false;
}

// Returns the number of the dictionary in a zstd frame's header, 0 if it has none.
static uint64_t zstd_dictionary(const std::string& s) {
    const int bytes[] = { 0, 1, 2, 4 };
    const int flags = (int)little(s, 4, 1);
    const bool has_window = !(flags & 32);
    return little(s, 5 + has_window, bytes[flags & 3]);
}

static bool is_with_dictionary(const std::string& s, long) {
    return starts_with(s, "\x28\xB5\x2F\xFD") && zstd_dictionary(s);
}

// Looks for the mark in front of a text in UTF-16 or UTF-32.
static bool is_wide_text(const std::string& s, long) {
    const size_t zeros = s.compare(0, 2, "\0\0", 2) == 0 ? 2 : 0;
    return s.compare(zeros, 2, "\xFF\xFE") == 0 || s.compare(zeros, 2, "\xFE\xFF") == 0;
}

// Looks for a file of Arrow, or the stream of record batches that the `datasets` library keeps.
static bool is_arrow(const std::string& s, long size) {
    const uint64_t n = little(s, 4, 4);
    const bool stream = starts_with(s, "\xFF\xFF\xFF\xFF") && n > 0 && n % 8 == 0 &&
                        (size < 0 || n < (uint64_t)size);
    return stream || starts_with(s, std::string("ARROW1\0\0", 8));
}

// ----------------------------------------------------------------------------
// the table: the first row that fits is it

static const char* const PY_TRANSFORMERS =
    "python3 -c \"from transformers import AutoModelForCausalLM as M; "
    "M.from_pretrained('DIR').save_pretrained('NEW')\"";
static const char* const LFS =
    "git lfs pull, in the directory that it is from, gets the file itself";
static const char* const PAGE_AGAIN =
    "get the file again: its address has /resolve/ where the page's has /blob/";
static const char* const ANSWERED =
    "get the file again, logged in to the hub, by the name that it has there";
static const char* const TABLE_LINES =
    "python3 -c \"import pandas as p; "
    "p.read_csv('FILE').to_json('FILE.jsonl', orient='records', lines=True)\"";
static const char* const ARROW_LINES =
    "python3 -c \"from datasets import Dataset as D; D.from_file('FILE').to_json('FILE.jsonl')\"";
static const char* const ARRAY_LINES =
    "python3 -c \"import json; [print(json.dumps(r)) for r in json.load(open('FILE'))]\" "
    "> FILE.jsonl";

// what: as in "x.txt: is ..". magic: `size` bytes at the start, size below 0 if the kind itself is
// text. fits: a test where no such bytes tell. reads: letters of the readers that read it, or that
// cannot be sure: a shard without a header may begin with any few bytes. use: m a model, d data.
// hint: a command, or SHARD and an expression of numpy that gives ids
struct KindRow {
    const char* what;
    const char* magic; int size;
    bool (*fits)(const std::string& first, long size);
    const char *reads, *use, *hint;
};
#define MAGIC(bytes) bytes, (int)sizeof bytes - 1
#define TEXT_MAGIC(text) text, -((int)sizeof text - 1)        // of a kind that is itself text

static const KindRow KINDS[] = {
    { "a GGUF file", MAGIC("GGUF"), NULL, "f", "m", "mv FILE MODEL.gguf, and give that file" },
    { "a safetensors file", NULL, 0, is_safetensors, "s", "m",
      "call it model.safetensors, put it beside its config.json, and give that directory" },
    { "a PyTorch file (a pickle)", NULL, 0, is_torch, "", "m", PY_TRANSFORMERS },
    { "a Parquet table", MAGIC("PAR1"), NULL, "", "d",
      "python3 scripts/parquet_to_jsonl.py FILE > FILE.jsonl" },
    { "an Arrow file", NULL, 0, is_arrow, "b", "d", ARROW_LINES },
    { "a NumPy array", MAGIC("\x93NUMPY"), NULL, "", "d", "SHARD n.load('FILE').ravel()" },
    { "packed with gzip", MAGIC("\x1F\x8B\x08"), NULL, "g", "", "gunzip < FILE > NEW" },
    { "packed with zstd and a dictionary", NULL, 0, is_with_dictionary, "", "",
      "zstd -d -D DICTIONARY < FILE > NEW" },
    { "packed with zstd", MAGIC("\x28\xB5\x2F\xFD"), NULL, "z", "", "zstd -d < FILE > NEW" },
    { "a pointer of Git LFS to a file that was not fetched",
      TEXT_MAGIC("version https://git-lfs.github.com/spec/"), NULL, "", "", LFS },
    { "a web page", NULL, 0, is_html, "t", "", PAGE_AGAIN },
    { "what a hub answers in place of a file", NULL, 0, is_answer, "", "", ANSWERED },
    { "text that is not UTF-8", NULL, 0, is_wide_text, "bsgzfc", "",
      "UTF-16, or UTF-32 with that name: iconv -f UTF-16 -t UTF-8 FILE > NEW" },
    { "a JSON array", NULL, 0, is_json_array, "jkrtb", "", ARRAY_LINES },
};
#undef TEXT_MAGIC
#undef MAGIC

// what each reader wants, as in "wanted .."
static const struct { char reader; const char* wanted; } READER_WANTS[] = {
    { READS_TEXT, "text in UTF-8" },
    { READS_RECORDS, "lines of JSON" },
    { READS_GZIP, "what gzip writes" },
    { READS_ZSTD, "what zstd writes" },
    { READS_TOKENS, "token ids" },
    { READS_TOKENIZER, "a tokenizer.json, or vocab.json with merges.txt" },
    { READS_JSON, "JSON" },
    { READS_SAFETENSORS, "a safetensors file" },
    { READS_GGUF, "a GGUF file" },
    { READS_CHECKPOINT, "a checkpoint: a directory with config.json and model.safetensors, or a "
                        "GGUF file" },
};

// ----------------------------------------------------------------------------

// Counts what is no character of a text in UTF-8. The last one may be cut.
static size_t count_odd(const std::string& s) {
    size_t odd = 0;
    for (size_t i = 0; i < s.size();) {
        const long c = utf8_next(s, &i);
        const bool control = c < 0x20 && (c <= 0 || !strchr("\t\n\v\f\r\x1B", (int)c));
        odd += control && (c >= 0 || i < s.size());
    }
    return odd;
}

bool is_text(const std::string& s) { return count_odd(s) == 0; }

// Finds the kind by the first bytes. A text may begin with the word GGUF, and is none for that.
static const KindRow* kind_row(const std::string& first, long size) {
    const bool text = is_text(first);
    for (auto& k : KINDS) {
        const size_t n = labs(k.size);
        const bool magic = k.magic && first.size() >= n && (k.size < 0 || !text) &&
                           !memcmp(first.data(), k.magic, n);
        if (magic || (k.fits && k.fits(first, size))) { return &k; }
    }
    return NULL;
}

static bool can_read(Reader reader, const KindRow& k) { return reader && strchr(k.reads, reader); }

Kind kind_of(const std::string& first, long size, Reader reader) {
    const KindRow* k = kind_row(first, size);
    if (!k || can_read(reader, *k)) { return Kind(); }
    const uint64_t number = k->fits == is_with_dictionary ? zstd_dictionary(first) : 0;
    return { k->what + (number ? strf(", number %llu", (unsigned long long)number) : ""), k->hint };
}

std::string file_begin_bytes(const std::string& path, long n) {
    std::string s(n, 0);
    const int fd = is_regular(path) ? open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    const ssize_t got = fd < 0 ? 0 : read(fd, &s[0], n);
    if (fd >= 0) { close(fd); }
    s.resize(std::max<ssize_t>(got, 0));
    return s;
}

std::string begins_with(const std::string& first) {
    std::string bytes = "begins with the bytes";
    for (unsigned char c : first.substr(0, 8)) { bytes += strf(" %02X", c); }
    return first.empty() ? "is empty" : bytes;
}

Kind kind_of_file(const std::string& path) {
    const std::string first = file_begin_bytes(path, LOOK_BYTES);
    const Kind kind = kind_of(first, file_size(path), READS_NOTHING);
    if (!kind.what.empty() || first.empty()) { return kind; }
    if (ends_with(path, ".bin")) {
        return { "tokens by its name", "put it into a directory, and give that: -d DIR" };
    }
    if (!is_text(first)) { return Kind(); }
    if (ends_with(path, ".csv")) { return { "a table of text", TABLE_LINES }; }
    if (first[skip_space(first)] == '{') { return { "JSON", "mv FILE FILE.jsonl, if each line is "
                                                            "one object {\"text\": ..}" }; }
    return { "text", "cp FILE FILE.txt" };
}

std::string hint_for(const std::string& hint, const std::string& path) {
    if (starts_with(hint, "SHARD ")) { return hint_for(shard_command(hint.substr(6)), path); }
    bool plain = !path.empty() && path[0] != '-';
    for (unsigned char c : path) { plain = plain && (isalnum(c) || strchr("._/+-=@:,", c)); }
    std::string out = hint;
    if (!plain) { return out; }
    for (size_t at = 0; (at = out.find("FILE", at)) != out.npos; at += path.size()) {
        out.replace(at, 4, path);
    }
    return out;
}

void look(const std::string& path, const std::string& first, long size, Reader reader) {
    const Kind k = kind_of(first, size, reader);
    const bool json = reader == READS_JSON || reader == READS_TOKENIZER;
    const bool words = json || reader == READS_TEXT || reader == READS_RECORDS;
    const size_t odd = count_odd(first);
    // in UTF-16 without a mark a text may have no zero for long; but then it has no blanks, either
    const size_t blanks = std::count(first.begin(), first.end(), ' ');
    const bool wide = odd >= 16 && 10 * odd > first.size() && 50 * blanks < first.size();
    const bool binary = words && (has(first, '\0') || wide);
    const bool empty = json && size == 0;
    // of numbers or records, not a text: neither an object nor longer than what a hub answers
    const bool records = words && reader != READS_TEXT;
    const bool brief = first.size() < LOOK_BYTES && first.find_first_of("{[") == first.npos;
    const bool numbers = has(std::string("sfgz"), (char)reader);
    const bool blank = first.find_first_not_of(" \r\n") == first.npos;
    const bool answer = !odd && !blank && (numbers || (records && brief));
    if (k.what.empty() && !empty && !binary && !answer) { return; }
    std::string got = begins_with(first);
    std::string hint = "is it the file that you mean? a text of another encoding, such as UTF-16LE "
                       "or UTF-16BE: " + hint_for("iconv -f ENCODING -t UTF-8 FILE > NEW", path);
    if (!k.what.empty()) {
        got = "is " + k.what;
        hint = hint_for(k.hint, path);
    } else if (answer) {
        got = "is text, '" + first.substr(0, std::min<size_t>(first.find('\n'), 80)) + "'";
        hint = ANSWERED;
    } else if (empty) {
        got = "got an empty file";
        hint = "get the file again";
    }
    for (auto& w : READER_WANTS) {
        if (w.reader != reader) { continue; }
        die(path + ": " + got + ", wanted " + w.wanted, hint);
    }
}

void look_file(const std::string& path, Reader reader) {
    look(path, file_begin_bytes(path, LOOK_BYTES), file_size(path), reader);
}

Kind kind_in_dir(const std::string& dir, Reader reader) {
    const char use = reader == READS_TOKENS ? 'd' : 'm';
    for (auto& name : dir_list(dir)) {
        const std::string path = dir + "/" + name;
        const KindRow* k = kind_row(file_begin_bytes(path, LOOK_BYTES), file_size(path));
        // tokens may begin with any bytes, but are called .bin
        const bool read = k && strchr(k->reads, reader) && (use == 'm' || ends_with(name, ".bin"));
        if (!k || *k->use != use || read) { continue; }
        const std::string what = "; its " + name + " is " + k->what;
        if (ends_with(name, ".safetensors") && contains(name, "-of-")) {
            return { what + ", one of several", "get the others, and model.safetensors.index.json, "
                     "which says what is in each" };
        }
        if (name == "consolidated.safetensors") {
            return { what + " with Mistral's own names",
                     "get the same model in Hugging Face's format, or as GGUF" };
        }
        return { what, hint_for(k->hint, path) };
    }
    return Kind();
}

std::string shard_command(const std::string& ids) {
    return "python3 -c \"import numpy as n; x = n.uint32(" + ids + "); "
           "h = n.zeros(256, n.int32); "
           "h[:3] = 20240801, 7, x.size; open('NEW.bin', 'wb').write(h.tobytes() + x.tobytes())\"";
}
