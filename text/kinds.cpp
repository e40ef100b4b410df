/*
text/kinds.cpp -- what a file is by its first bytes: a table of kinds, each with its hint, and what
readers want instead.
*/
#include "kinds.h"
#include "text_files.h"

// ----------------------------------------------------------------------------
// text

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

static bool is_text(const std::string& s) { return count_odd(s) == 0; }

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

static bool is_lfs_pointer(const std::string& s, long) {
    return starts_with(s, "version https://git-lfs.github.com/spec/");
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
static const char* const TABLE_LINES =
    "python3 -c \"import pandas as p; "
    "p.read_csv('FILE').to_json('FILE.jsonl', orient='records', lines=True)\"";
static const char* const ANSWERED =
    "get the file again, logged in to the hub, by the name that it has there";
static const char* const ARROW_LINES =
    "python3 -c \"from datasets import Dataset as D; D.from_file('FILE').to_json('FILE.jsonl')\"";
static const char* const ARRAY_LINES =
    "python3 -c \"import json; [print(json.dumps(r)) for r in json.load(open('FILE'))]\" "
    "> FILE.jsonl";
// ids that numpy has saved, as a shard
static const char* const NUMPY_SHARD =
    "python3 -c \"import numpy as n; x = n.uint32(n.load('FILE').ravel()); "
    "h = n.zeros(256, n.int32); "
    "h[:3] = 20240801, 7, x.size; open('NEW.bin', 'wb').write(h.tobytes() + x.tobytes())\"";

// what: as in "x.txt: is ..". magic: the bytes at the start of a kind that is no text. fits: a test
// where no such bytes tell. reads: letters of the readers that read it, or that cannot be sure: a
// shard without a header may begin with any few bytes. use: m a model, d data. hint: a command
struct KindRow {
    const char *what, *magic;
    bool (*fits)(const std::string& first, long size);
    const char *reads, *use, *hint;
};

static const KindRow KINDS[] = {
    { "a GGUF file", "GGUF", NULL, "f", "m", "mv FILE MODEL.gguf, and give that file" },
    { "a safetensors file", NULL, is_safetensors, "s", "m",
      "call it model.safetensors, put it beside its config.json, and give that directory" },
    { "a PyTorch file (a pickle)", NULL, is_torch, "", "m", PY_TRANSFORMERS },
    { "a Parquet table", "PAR1", NULL, "", "d",
      "python3 scripts/parquet_to_jsonl.py FILE > FILE.jsonl" },
    { "an Arrow file", NULL, is_arrow, "b", "d", ARROW_LINES },
    { "a NumPy array", "\x93NUMPY", NULL, "", "d", NUMPY_SHARD },
    { "packed with gzip", "\x1F\x8B\x08", NULL, "g", "", "gunzip < FILE > NEW" },
    { "packed with zstd and a dictionary", NULL, is_with_dictionary, "", "",
      "zstd -d -D DICTIONARY < FILE > NEW" },
    { "packed with zstd", "\x28\xB5\x2F\xFD", NULL, "z", "", "zstd -d < FILE > NEW" },
    { "a pointer of Git LFS to a file that was not fetched", NULL, is_lfs_pointer, "", "", LFS },
    { "a web page", NULL, is_html, "t", "", PAGE_AGAIN },
    { "what a hub answers in place of a file", NULL, is_answer, "", "", ANSWERED },
    { "text that is not UTF-8", NULL, is_wide_text, "bsgzfc", "",
      "UTF-16, or UTF-32 with that name: iconv -f UTF-16 -t UTF-8 FILE > NEW" },
    { "a JSON array", NULL, is_json_array, "jkrtb", "", ARRAY_LINES },
};

// Finds the kind by the first bytes. A text may begin with the word GGUF, and is none for that.
static const KindRow* kind_row(const std::string& first, long size) {
    const bool text = is_text(first);
    for (auto& k : KINDS) {
        const bool magic = k.magic && !text && starts_with(first, k.magic);
        if (magic || (k.fits && k.fits(first, size))) { return &k; }
    }
    return NULL;
}

FileKind kind_of(const std::string& first, long size, Reader reader) {
    const KindRow* k = kind_row(first, size);
    const bool read = k && reader && strchr(k->reads, reader);
    if (!k || read) { return FileKind(); }
    const uint64_t number = k->fits == is_with_dictionary ? zstd_dictionary(first) : 0;
    return { k->what + (number ? strf(", number %llu", (unsigned long long)number) : ""), k->hint };
}

FileKind kind_of_file(const std::string& path) {
    const std::string first = file_begin_bytes(path, LOOK_BYTES);
    const FileKind kind = kind_of(first, file_size(path), READS_NOTHING);
    if (!kind.what.empty() || first.empty()) { return kind; }
    if (ends_with(path, ".bin")) {
        return { "tokens by its name", "put it into a directory, and give that: -d DIR" };
    }
    if (!is_text(first)) { return FileKind(); }
    if (ends_with(path, ".csv")) { return { "a table of text", TABLE_LINES }; }
    if (first[skip_space(first)] == '{') { return { "JSON", "mv FILE FILE.jsonl, if each line is "
                                                            "one object {\"text\": ..}" }; }
    return { "text", "cp FILE FILE.txt" };
}

FileKind text_kind_in_dir(const std::string& dir, Reader reader) {
    const char use = reader == READS_TOKENS ? 'd' : 'm';
    const auto names = dir_list(dir);
    for (auto& name : names) {
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
    for (auto& name : names) {
        if (use == 'd' && text_format(name) != TEXT_UNKNOWN) {
            return { "", "scripts/prepare_text.sh " + dir + " OUT" };
        }
    }
    return FileKind();
}

// ----------------------------------------------------------------------------
// what readers want

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

void text_look(const std::string& path, const std::string& first, long size, Reader reader) {
    const FileKind k = kind_of(first, size, reader);
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
        if (w.reader == reader) { die(path + ": " + got + ", wanted " + w.wanted, hint); }
    }
}
