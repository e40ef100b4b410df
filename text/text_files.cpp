/*
text/text_files.cpp -- names the formats, starts the program that unpacks a file, and cuts
what it reads into blocks where no token can cross.
*/
#include "text_files.h"
#include <sys/wait.h>
#include "kinds.h"
#include "vocabulary.h"

// ----------------------------------------------------------------------------
// formats

TextFormat text_format(const std::string& path, const char** unpack) {
    std::string name = path;
    const char* tool = NULL;
    if (ends_with(name, ".zst")) { tool = "zstd"; }
    if (ends_with(name, ".gz")) { tool = "gzip"; }
    if (tool) { name.resize(name.rfind('.')); }
    if (unpack) { *unpack = tool; }
    if (path == "-" || ends_with(name, ".jsonl")) { return TEXT_JSONL; }
    return ends_with(name, ".txt") ? TEXT_TXT : TEXT_UNKNOWN;
}

void one_document_note(const std::string& data) {
    if (!file_exists(data) || is_dir(data) || text_format(data) != TEXT_TXT) { return; }
    printf("note   --bos doc: a .txt is one document, so only its first token gets a BOS; "
           "--bos seq gives every sequence one\n");
}

void check_skip_bad(bool skip_bad, const std::vector<std::string>& names) {
    const auto has_records = [](const std::string& name) {
        return !is_dir(name) && text_format(name) == TEXT_JSONL;
    };
    if (!skip_bad || std::any_of(names.begin(), names.end(), has_records)) { return; }
    die("--skip-bad: got no .jsonl, whose broken records it leaves out",
        "leave it out: a .txt has no records, and shards hold what was left of theirs");
}

static Reader unpacked_reader(TextFormat format) {
    return format == TEXT_TXT ? READS_TEXT : READS_RECORDS;
}

// Dies if a file is not what the end of its name says.
static void look_by_name(const std::string& path) {
    const char* unpack;
    const TextFormat format = text_format(path, &unpack);
    if (!is_regular(path)) { return; }
    const Reader packed = ends_with(path, ".gz") ? READS_GZIP : READS_ZSTD;
    look_file(path, unpack ? packed : unpacked_reader(format));
}

// Dies of a file whose name is that of no text.
[[noreturn]] static void reject_unknown(const std::string& path, const std::string& others) {
    const FileKind kind = kind_of_file(path);
    std::string what = begins_with(file_begin_bytes(path, 8));
    std::string hint;
    if (!kind.what.empty()) { what = "is " + kind.what; }
    if (!kind.hint.empty()) { hint = hint_for(kind.hint, path); }
    if (ends_with(path, ".gguf")) {
        hint = hint_for("a model is measured with probe FILE, and trained with train --init FILE",
                        path);
    }
    if (!is_there(path)) {
        what = "no such file";
        hint = list_beside(path, "*.txt *.jsonl*");
    }
    if (is_special(path)) {
        what = "got a pipe or a device";
        hint = "./train_sink tokenize - -o DIR reads lines of JSON from standard input";
    }
    die(path + ": " + what + ", wanted .txt, .jsonl (.zst, .gz) or " + others, hint);
}

void text_check(const std::string& path, const std::string& others) {
    if (text_format(path) == TEXT_UNKNOWN) { reject_unknown(path, others); }
    if (path == "-") { return; }
    if (access(path.c_str(), R_OK)) {
        die(cannot("open", path), list_beside(path, "*.txt *.jsonl*"));
    }
    if (is_special(path)) { close(file_open(path)); }    // dies
    look_by_name(path);
}

// ----------------------------------------------------------------------------
// opening and closing

// Becomes the program that unpacks: it reads the file as its standard input, so that no name needs
// quoting, and its own errors are not shown.
[[noreturn]] static void run_unpacker(const TextFile& t, int output) {
    const int silent = open("/dev/null", O_WRONLY);
    dup2(t.raw, 0);
    dup2(output, 1);
    dup2(silent, 2);
    unsetenv("GZIP");                                    // options of the user's own
    const char* window = t.unpack[0] == 'z' ? "--long=31" : NULL;        // as large as any
    execlp(t.unpack, t.unpack, "-dcq", window, (char*)NULL);
    _exit(127);
}

TextFile text_open(const std::string& path) {
    TextFile t;
    t.path = path;
    t.format = text_format(path, &t.unpack);
    if (path == "-") { return t; }
    look_by_name(path);
    t.raw = file_open(path);
    t.fd = t.raw;
    if (!t.unpack) { return t; }

    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) { die(EXIT_MACHINE, cannot("unpack by a pipe", path)); }
    fflush(stdout);
    t.child = fork();
    if (t.child == 0) { run_unpacker(t, ends[1]); }
    close(ends[1]);
    t.fd = ends[0];
    if (t.child < 0) {
        die(EXIT_MACHINE, cannot(std::string("start ") + t.unpack, path));
    }
    return t;
}

// Waits for a process. Returns false if nobody can tell how it ended.
static bool wait_for(pid_t child, int* status) {
    pid_t ended;
    do { ended = waitpid(child, status, 0); } while (ended < 0 && errno == EINTR);
    return ended == child;
}

void text_close(TextFile* t) {
    if (t->fd > 0) { close(t->fd); }
    const pid_t child = t->child;
    t->fd = 0;
    t->child = 0;
    if (!child) { return; }

    int status = 0;
    const bool known = wait_for(child, &status);
    const int error = errno;
    close(t->raw);
    const std::string path = t->path + ": ";
    if (!known) {
        t->error = path + strf("cannot tell whether %s unpacked all of it (%s)", t->unpack,
                               strerror(error));
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        t->error = path + strf("needs the program %s, which is not installed", t->unpack);
    } else if (status) {
        t->error = path + strf("%s cannot unpack it to the end: truncated or damaged (%s -t says "
                               "more)", t->unpack, t->unpack);
    }
}

std::string text_advice(const std::string& error) {
    if (contains(error, "got an array")) {
        return "put each record in a line of its own: jq -c '.[]' ARRAY.json > RECORDS.jsonl; or "
               "leave the line out with --skip-bad";
    }
    if (contains(error, "wanted a JSON") && starts_with(error, "-: line 1:")) {
        return "standard input is .jsonl; put other text into a .txt file, and name that";
    }
    if (contains(error, "got a conversation")) {
        return "scripts/sft.py and train --sft segments learn from conversations";
    }
    if (contains(error, ": line ")) {
        return "repair the record, or leave broken ones out with --skip-bad";
    }
    if (contains(error, "which is not installed")) {
        return "install it, or unpack the file elsewhere";
    }
    return "get the file again";
}

// ----------------------------------------------------------------------------
// blocks

bool text_cuts(const Tokenizer& tok, const char* text, size_t n, size_t i) {
    const unsigned char* s = (const unsigned char*)text;
    if (tok.kind == TOKENIZER_BYTES) { return true; }
    if (!tok.bpe || !tok.bpe->cut_at_lines || i < 2 || i + 1 >= n) { return false; }
    if (s[i - 1] == '\n') { return isgraph(s[i]) && isgraph(s[i - 2]); }
    return tok.bpe->cut_at_spaces && s[i] == ' ' && isalpha(s[i - 1]);
}

size_t text_cut(const Tokenizer& tok, const std::string& s) {
    for (size_t i = s.size(); i-- > 1;) {
        if (text_cuts(tok, s.data(), s.size(), i)) { return i; }
    }
    return 0;
}

// Reads once, toward `want` bytes in all. The buffer grows as strings do, so that a long line is
// not moved for each of a pipe's small answers.
static void text_read(TextFile* t, size_t want) {
    static thread_local std::vector<char> room(TEXT_BLOCK);
    const size_t most = std::min(room.size(), want - t->rest.size());
    const ssize_t n = read(t->fd, room.data(), most);
    const bool broken = n < 0 && errno != EINTR;
    if (broken) { t->error = cannot("read", t->path); }
    if (n > 0) { t->rest.append(room.data(), n); }
    t->at_end = n == 0 || broken;
}

// Reads until there is a place to cut. Returns it, or 0 if the end of the file came first.
static size_t read_to_cut(TextFile* t, const Tokenizer& tok) {
    size_t want = TEXT_BLOCK;
    while (!t->at_end) {
        if (t->rest.size() < want) {
            text_read(t, want);
            continue;
        }
        const bool lines = t->format != TEXT_TXT;
        const size_t cut = lines ? t->rest.rfind('\n') + 1 : text_cut(tok, t->rest);
        if (cut) { return cut; }
        want *= 2;
        const bool bounded = lines || t->unpack;         // a small file may unpack to any size
        if (bounded && t->rest.size() >= TEXT_LINE) {
            die(t->path + strf(": line %ld: got more than %d MiB without an end of line, wanted "
                               "one record per line, or lines of text", t->line + 1,
                               TEXT_LINE >> 20),
                lines ? "write its texts as several records, or the text alone into a .txt"
                      : hint_for(strf("if that is right, unpack it first: %s -d < FILE > NEW.txt",
                                    t->unpack), t->path));
        }
    }
    return 0;
}

// Dies if a file, unpacked, is not what its name says.
static void look_unpacked(const TextFile& t) {
    const std::string name = t.path + (t.unpack ? ", unpacked" : "");
    look(name, t.rest.substr(0, LOOK_BYTES), -1, unpacked_reader(t.format));
}

bool text_next(TextFile* t, const Tokenizer& tok, TextBlock* b) {
    b->file = t;
    b->line = t->line;
    b->first = t->line == 0;
    size_t cut = read_to_cut(t, tok);
    if (b->first && t->error.empty()) { look_unpacked(*t); }
    b->last = cut == 0;
    if (b->last) {
        text_close(t);
        cut = t->rest.size();
    }
    b->error = t->error;
    if (cut == 0 || !b->error.empty()) {
        b->text.clear();
        return !b->error.empty();
    }
    // the block itself is not copied, only the short rest behind it
    std::string tail = t->rest.substr(cut);
    t->rest.resize(cut);
    b->text.swap(t->rest);
    t->rest.swap(tail);
    t->line += t->format == TEXT_TXT ? 1 : std::count(b->text.begin(), b->text.end(), '\n');
    return true;
}
