/*
base/look.cpp -- opens files, lists and makes directories, and says what files begin with. The table
of their kinds is text/'s.
*/
#include "look.h"
#include <limits.h>
#include <filesystem>

// ----------------------------------------------------------------------------
// opening

int file_open(const std::string& path, const std::string& hint) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st = {};
    const bool there = fd >= 0 && fstat(fd, &st) == 0;
    const bool directory = S_ISDIR(st.st_mode);
    if (directory) { errno = EISDIR; }
    if (!there || directory) { die(blame(errno), cannot("open", path), hint); }
    char real[PATH_MAX];
    if (!S_ISREG(st.st_mode) && realpath(path.c_str(), real)) {
        die(path + ": got a pipe or a device, wanted a file",
            "write what comes from there into a file first");
    }
    fcntl(fd, F_SETFL, O_RDONLY);                        // wait for what is read, from now on
    return fd;
}

std::vector<std::string> dir_list(const std::string& path) {
    std::vector<std::string> names;
    std::error_code failed;
    std::filesystem::directory_iterator at(path, failed), end;
    for (; at != end; at.increment(failed)) { names.push_back(at->path().filename()); }
    std::sort(names.begin(), names.end());
    return names;
}

std::string link_target(std::string path) {
    std::error_code failed;
    for (int hops = 0; hops < 40; hops++) {
        const std::filesystem::path target = std::filesystem::read_symlink(path, failed);
        if (failed) { break; }
        path = std::filesystem::path(path).parent_path() / target;
    }
    return path;
}

void make_dirs(const std::string& path, const std::string& elsewhere) {
    std::error_code failed;
    std::filesystem::create_directories(path, failed);
    if (!failed) { return; }
    std::filesystem::path first = path;                  // the first part that could not be made
    while (first.has_parent_path() && !is_dir(first.parent_path())) { first = first.parent_path(); }
    const int code = blame(failed.value());
    die(code, cannot("create this directory", first, failed.value()),
        code == EXIT_MACHINE ? "free some disk space" : elsewhere);
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
    char part[1 << 14];
    while (const size_t n = fread(part, 1, sizeof part, f)) { s.append(part, n); }
    if (ferror(f)) { die(EXIT_MACHINE, cannot("read", path)); }
    fclose(f);
    return s;
}


// ----------------------------------------------------------------------------
// looking

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

std::string file_begin_bytes(const std::string& path, long n) {
    std::string s(n, 0);
    FILE* f = is_regular(path) ? fopen(path.c_str(), "r") : NULL;
    s.resize(f ? fread(&s[0], 1, n, f) : 0);
    if (f) { fclose(f); }
    return s;
}

std::string begins_with(const std::string& first) {
    std::string bytes = "begins with the bytes";
    for (unsigned char c : first.substr(0, 8)) { bytes += strf(" %02X", c); }
    return first.empty() ? "is empty" : bytes;
}

std::string hint_for(const std::string& hint, const std::string& path) {
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
        hint = "get the file again, logged in to the hub, by the name that it has there";
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
