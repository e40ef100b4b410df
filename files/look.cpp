/*
files/look.cpp -- what look.h declares, and how common.h opens a file.
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
        die(blame(errno), strf("%s: cannot open (%s)", path.c_str(), strerror(errno)), hint);
    }
    char real[PATH_MAX];
    if (!S_ISREG(st.st_mode) && realpath(path.c_str(), real)) {
        die(EXIT_USER, path + ": got a pipe or a device, wanted a file",
            "write what comes from there into a file first");
    }
    fcntl(fd, F_SETFL, O_RDONLY);                        // wait for what is read, from now on
    return fd;
}

std::string directory_above(std::string path) {
    do {
        const size_t slash = path.find_last_of('/');
        path = slash == std::string::npos ? "" : path.substr(0, slash);
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
    if (ferror(f)) {
        die(EXIT_MACHINE, strf("%s: cannot read (%s)", path.c_str(), strerror(errno)));
    }
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

static bool is_xml(const std::string& s, long) {
    return begins(s, "<?xml") || begins(s, "<error>");
}

static bool is_json(const std::string& s, long) {
    const size_t at = skip_space(s), next = skip_space(s, at + 1);
    if (at >= s.size() || next >= s.size()) { return false; }
    return (s[at] == '{' && (s[next] == '"' || s[next] == '}')) ||
           (s[at] == '[' && strchr("[{\"]-0123456789", s[next]));
}

// Looks for 8 bytes of length, then a JSON object.
static bool is_safetensors(const std::string& s, long size) {
    const uint64_t header = little(s, 0, 8);
    const uint64_t room = size < 0 ? UINT64_MAX : (uint64_t)size;
    return header >= 2 && header <= 100000000 && 8 + header <= room && s.size() > 9 &&
           s[8] == '{' && (s[9] == '"' || s[9] == '}');
}

// Looks for a zip whose first entry is called so.
static bool zip_of(const std::string& s, const char* name) {
    const size_t n = little(s, 26, 2), at = std::min<size_t>(s.size(), 30);
    return s.compare(0, 4, "PK\3\4") == 0 && ends_with(s.substr(at, n), name);
}

static bool is_torch_zip(const std::string& s, long) {
    return zip_of(s, "/data.pkl") || zip_of(s, "/version") || zip_of(s, "/.format_version");
}

static bool is_npz(const std::string& s, long) { return zip_of(s, ".npy"); }

// Looks for the number that the old form of PyTorch begins with, or the frame of other pickles.
static bool is_pickle(const std::string& s, long size) {
    const bool torch = s.compare(0, 5, "\x80\x02\x8a\x0al") == 0;
    const bool framed = s.size() > 11 && s[0] == '\x80' && (s[1] == 4 || s[1] == 5);
    const bool fits = size < 0 || little(s, 3, 8) <= (uint64_t)size;
    return torch || (framed && s[2] == '\x95' && fits);
}

static bool is_bzip2(const std::string& s, long) {
    return s.size() > 6 && s.compare(0, 3, "BZh") == 0 && s.compare(4, 3, "1AY") == 0;
}

// Looks for protocol buffers: the version of ONNX, then the name of the program that wrote it.
static bool is_onnx(const std::string& s, long) {
    if (s.size() < 12 || s[0] != 8 || s[1] < 1 || s[1] > 20 || s[2] != 0x12) { return false; }
    const size_t n = (unsigned char)s[3];
    if (n < 2 || n > 40 || s.size() < 4 + n) { return false; }
    const std::string name = s.substr(4, n);
    return printable(name) == name;
}

// Looks for protocol buffers: pieces, each with a text and a score.
static bool is_sentencepiece(const std::string& s, long) {
    if (s.size() < 16 || s[0] != 0x0A || s[2] != 0x0A) { return false; }
    const size_t whole = (unsigned char)s[1], text = (unsigned char)s[3];
    return text + 7 <= whole && whole < 128 && 4 + text < s.size() && s[4 + text] == 0x15;
}

static bool is_tekken(const std::string& s, long size) {
    return is_json(s, size) && (s.find("\"token_bytes\"") != std::string::npos ||
                                s.find("\"default_num_special_tokens\"") != std::string::npos);
}

// Looks for lines `base64 number`, the numbers from 0.
static bool is_tiktoken(const std::string& s, long) {
    const std::vector<std::string> lines = split(s.substr(0, 512), '\n');
    for (size_t i = 0; i < 3; i++) {
        if (i >= lines.size()) { return false; }
        const std::vector<std::string> words = split(lines[i], ' ');
        if (words.size() != 2 || words[1] != strf("%zu", i) || words[0].size() % 4) {
            return false;
        }
        for (unsigned char c : words[0]) {
            if (!isalnum(c) && !strchr("+/=", c)) { return false; }
        }
    }
    return true;
}

// Tells whether every second byte of a text is 0, from `odd` on, and hardly any other.
static bool every_second_zero(const std::string& s, size_t odd) {
    size_t zeros = 0, others = 0;
    for (size_t i = 0; i < s.size(); i++) {
        if (s[i]) { continue; }
        (i % 2 == odd ? zeros : others)++;
    }
    return s.size() >= 16 && zeros * 10 >= s.size() / 2 * 7 && others * 20 <= s.size();
}

static bool is_utf16(const std::string& s, long) {
    if (s.compare(0, 2, "\xFF\xFE") == 0 || s.compare(0, 2, "\xFE\xFF") == 0) { return true; }
    return every_second_zero(s, 1) || every_second_zero(s, 0);
}

static bool is_utf32(const std::string& s, long) {
    return s.compare(0, 4, std::string("\xFF\xFE\0\0", 4)) == 0 ||
           s.compare(0, 4, std::string("\0\0\xFE\xFF", 4)) == 0;
}

// Looks for the stream of record batches that the `datasets` library keeps.
static bool is_arrow_stream(const std::string& s, long size) {
    const uint64_t n = little(s, 4, 4);
    return s.compare(0, 4, "\xFF\xFF\xFF\xFF") == 0 && n > 0 && n % 8 == 0 &&
           (size < 0 || n < (uint64_t)size);
}

// ----------------------------------------------------------------------------
// the table: the first row that fits is it

#define PY_TRANSFORMERS \
    "python3 -c \"from transformers import AutoModelForCausalLM as M; " \
    "M.from_pretrained('DIR').save_pretrained('NEW')\""
#define PY_LINES(read) \
    "python3 -c \"import pandas as p; p.read_" read "('FILE').to_json('FILE.jsonl', " \
    "orient='records', lines=True)\""

#define GET_GGUF "get the model as GGUF, or as config.json with .safetensors"
#define GIVE_DIR "give its directory: -d DIR"
#define LFS "git lfs pull, in the directory that it is from, gets the file itself"
#define WITHIN ", and give what is in it"
#define GET_AGAIN "get the file again: its address has /resolve/ where the page's has /blob/"

// what: as in "x.txt: is ..". magic: `size` bytes at `at`, size below 0 if the kind itself is text.
// fits: a test where no such bytes tell. reads: letters of the readers that read it, or that cannot
// be sure: a shard without a header may begin with any few bytes. use: m a model, k a tokenizer,
// d data. hint: UNPACK ending program, SHARD expression, or a command as it is
struct KindRow {
    const char* what;
    const char* magic; int size, at;
    bool (*fits)(const std::string& first, long size);
    const char *reads, *use, *hint;
};
#define MAGIC(bytes) bytes, (int)sizeof bytes - 1
#define WORDS(text) text, -((int)sizeof text - 1)        // of a kind that is itself text

static const KindRow KINDS[] = {
    // models
    { "a GGUF file", MAGIC("GGUF"), 0, NULL, "f", "m", "mv FILE MODEL.gguf, and give that file" },
    { "a ggml file from before GGUF", MAGIC("tjgg"), 0, NULL, "", "m", GET_GGUF },
    { "a ggml file from before GGUF", MAGIC("fmgg"), 0, NULL, "", "m", GET_GGUF },
    { "a ggml file from before GGUF", MAGIC("lmgg"), 0, NULL, "", "m", GET_GGUF },
    { "a ggml adapter (LoRA)", MAGIC("algg"), 0, NULL, "", "m",
      "merge it into its model, and give the merged model" },
    { "a safetensors file", NULL, 0, 0, is_safetensors, "s", "m",
      "call it model.safetensors, put it beside its config.json, and give that directory" },
    { "a PyTorch file (a zip of pickles)", NULL, 0, 0, is_torch_zip, "", "m", PY_TRANSFORMERS },
    { "a pickle, as PyTorch writes", NULL, 0, 0, is_pickle, "", "m", PY_TRANSFORMERS },
    { "an HDF5 file, as Keras writes", MAGIC("\x89HDF\r\n\x1A\n"), 0, NULL, "", "m",
      PY_TRANSFORMERS },
    { "a TensorFlow Lite model", MAGIC("TFL3"), 4, NULL, "", "m", GET_GGUF },
    { "an ONNX model", NULL, 0, 0, is_onnx, "b", "m", GET_GGUF },
    // tokenizers
    { "a SentencePiece model", NULL, 0, 0, is_sentencepiece, "b", "k",
      "python3 dev/make/spm_to_json.py FILE > tokenizer.json" },
    { "a Tekken vocabulary, as Mistral writes", NULL, 0, 0, is_tekken, "rtj", "k",
      "python3 dev/make/tiktoken_to_json.py FILE > tokenizer.json" },
    { "tiktoken's ranks", NULL, 0, 0, is_tiktoken, "t", "k",
      "python3 dev/make/tiktoken_to_json.py FILE > tokenizer.json, if it splits text as LLaMA 3 "
      "does" },
    { "a list of merges", WORDS("#version: 0.2"), 0, NULL, "t", "k",
      "give the directory that has it as merges.txt, with vocab.json" },
    { "a WordPiece vocabulary", WORDS("[PAD]\n"), 0, NULL, "t", "k",
      "only BPE is read: give a model with another tokenizer" },
    // data
    { "a Parquet table", MAGIC("PAR1"), 0, NULL, "", "d",
      "python3 scripts/parquet_to_jsonl.py FILE > FILE.jsonl" },
    { "an Arrow file", MAGIC("ARROW1"), 0, NULL, "", "d", PY_LINES("feather") },
    { "a Feather file", MAGIC("FEA1"), 0, NULL, "", "d", PY_LINES("feather") },
    { "a stream of Arrow batches", NULL, 0, 0, is_arrow_stream, "b", "d",
      "python3 -c \"from datasets import Dataset as D; "
      "D.from_file('FILE').to_json('FILE.jsonl')\"" },
    { "an ORC table", MAGIC("ORC\n"), 0, NULL, "", "d", PY_LINES("orc") },
    { "an Avro file", MAGIC("Obj\1"), 0, NULL, "", "d", "write its texts as lines {\"text\": ..}" },
    { "a NumPy array", MAGIC("\x93NUMPY"), 0, NULL, "", "d", "SHARD n.load('FILE').ravel()" },
    { "a zip of NumPy arrays", NULL, 0, 0, is_npz, "", "d",
      "SHARD n.load('FILE')['NAME'].ravel()" },
    { "the index of Megatron's tokens, which are in the .bin beside it",
      MAGIC("MMIDIDX\0\0"), 0, NULL, "", "d", "SHARD n.fromfile('THE.bin', n.uint16)" },
    { "a shard of tokens", MAGIC("\x88\xD8\x34\x01"), 0, NULL, "b", "d", GIVE_DIR },
    { "a shard of tokens", MAGIC("\xA1\xD9\x34\x01"), 0, NULL, "b", "d", GIVE_DIR },
    { "a shard of tokens", MAGIC("LITPKDS"), 0, NULL, "b", "d", GIVE_DIR },
    { "an SQLite database", MAGIC("SQLite format 3\0"), 0, NULL, "", "d",
      "write its texts as lines {\"text\": ..}" },
    // archives
    { "packed with gzip", MAGIC("\x1F\x8B\x08"), 0, NULL, "g", "", "UNPACK gz gunzip" },
    { "packed with zstd", MAGIC("\x28\xB5\x2F\xFD"), 0, NULL, "z", "", "UNPACK zst zstd -d" },
    { "packed with xz", MAGIC("\xFD" "7zXZ\0"), 0, NULL, "", "", "UNPACK xz unxz" },
    { "packed with bzip2", NULL, 0, 0, is_bzip2, "", "", "UNPACK bz2 bunzip2" },
    { "packed with lz4", MAGIC("\x04\x22\x4D\x18"), 0, NULL, "", "", "UNPACK lz4 lz4 -d" },
    { "packed with compress", MAGIC("\x1F\x9D"), 0, NULL, "b", "", "UNPACK Z uncompress" },
    { "packed with lzip", MAGIC("LZIP"), 0, NULL, "", "", "UNPACK lz lzip -d" },
    { "a 7z archive", MAGIC("7z\xBC\xAF\x27\x1C"), 0, NULL, "", "", "7z x FILE" WITHIN },
    { "a RAR archive", MAGIC("Rar!\x1A\x07"), 0, NULL, "", "", "unrar x FILE" WITHIN },
    { "a zip archive", MAGIC("PK\3\4"), 0, NULL, "", "", "unzip FILE" WITHIN },
    { "a tar archive", MAGIC("ustar"), 257, NULL, "", "", "tar -xf FILE" WITHIN },
    // documents and the rest
    { "a PDF document", WORDS("%PDF-"), 0, NULL, "", "", "pdftotext FILE FILE.txt" },
    { "an RTF document", WORDS("{\\rtf"), 0, NULL, "", "", "save it as plain text in UTF-8" },
    { "an Office document", MAGIC("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"), 0, NULL, "", "",
      "save it as plain text in UTF-8" },
    { "a program", MAGIC("\x7F" "ELF"), 0, NULL, "", "", "is it the file that you mean?" },
    { "a picture", MAGIC("\x89PNG\r\n\x1A\n"), 0, NULL, "", "", "is it the file that you mean?" },
    { "a picture", MAGIC("\xFF\xD8\xFF"), 0, NULL, "b", "", "is it the file that you mean?" },
    { "a pointer of Git LFS to a file that was not fetched",
      WORDS("version https://git-lfs.github.com/spec/"), 0, NULL, "", "", LFS },
    { "a web page", NULL, 0, 0, is_html, "t", "", GET_AGAIN },
    { "XML, as servers answer with an error", NULL, 0, 0, is_xml, "tb", "", GET_AGAIN },
    { "text in UTF-32", NULL, 0, 0, is_utf32, "b", "", "iconv -f UTF-32 -t UTF-8 FILE > NEW" },
    { "text in UTF-16", NULL, 0, 0, is_utf16, "bsgzfc", "", "iconv -f UTF-16 -t UTF-8 FILE > NEW" },
    { "JSON", NULL, 0, 0, is_json, "jkrtb", "", "is it the file that you mean?" },
};

// by the end of the name, where the first bytes do not tell
static const struct { const char *tail, *what, *hint; } ENDINGS[] = {
    { ".csv", "a table of text", PY_LINES("csv") },
    { ".json", "JSON", "write one object {\"text\": ..} for each line into a .jsonl" },
    { ".ndjson", "lines of JSON", "mv FILE FILE.jsonl" },
    { ".jsonlines", "lines of JSON", "mv FILE FILE.jsonl" },
    { ".md", "text", "cp FILE FILE.txt" },
    { ".text", "text", "cp FILE FILE.txt" },
    { ".bin", "tokens by its name", "put it into a directory, and give that: -d DIR" },
};

// what each reader wants, as in "wanted .."
static const struct { char reader; const char* wanted; } WANTED[] = {
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

bool is_text(const std::string& s) {
    for (size_t i = 0; i < s.size();) {
        const long c = utf8_next(s.data(), s.size(), &i);
        if (c < 0 && i < s.size()) { return false; }
        if (c >= 0 && c < 0x20 && !strchr("\t\n\v\f\r\x1B", (int)c)) { return false; }
        if (c == 0) { return false; }
    }
    return true;
}

// Finds the kind by the first bytes. A text may begin with the word GGUF, and is none for that.
static const KindRow* kind_row(const std::string& first, long size) {
    const bool text = is_text(first);
    for (auto& k : KINDS) {
        const size_t n = labs(k.size);
        const bool magic = k.magic && first.size() >= k.at + n && (k.size < 0 || !text) &&
                           !memcmp(first.data() + k.at, k.magic, n);
        if (magic || (k.fits && k.fits(first, size))) { return &k; }
    }
    return NULL;
}

static bool can_read(Reader reader, const KindRow& k) { return reader && strchr(k.reads, reader); }

Kind kind_of(const std::string& first, long size, Reader reader) {
    const KindRow* k = kind_row(first, size);
    if (!k || can_read(reader, *k)) { return Kind(); }
    return { k->what, k->hint };
}

bool is_regular(const std::string& path) {
    struct stat st;
    return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

std::string file_begin_bytes(const std::string& path, long n) {
    std::string s(n, 0);
    struct stat st;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool regular = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
    const ssize_t got = regular ? read(fd, &s[0], n) : 0;
    if (fd >= 0) { close(fd); }
    s.resize(std::max<ssize_t>(got, 0));
    return s;
}

// ----------------------------------------------------------------------------
// a file that was cut into pieces, as `split` and upload limits make them: NAME.gguf-split-a,
// NAME.gguf.part1of2, NAME.jsonl.000

// Tells whether this, in lower case, is how the end of a piece's name goes on behind that of the
// whole. mark: what all pieces have in common.
static bool is_piece_end(const std::string& tail, std::string* mark) {
    size_t at = 0;
    for (const char* word : { "split", "part" }) {
        if (tail.compare(0, strlen(word), word) == 0) { at = strlen(word); }
    }
    const bool named = at > 0;
    while (at < tail.size() && strchr("-_.", tail[at])) { at++; }
    *mark = tail.substr(0, at);
    const std::string number = tail.substr(at);
    const size_t digits = number.find_first_not_of("0123456789");
    if (number.empty()) { return false; }
    if (digits == std::string::npos) { return named || number.size() > 1; }   // .1 is a copy
    if (digits == 0) {                                   // aa, ab ..
        const bool letters = number.find_first_not_of("abcdefghijklmnopqrstuvwxyz") ==
                             std::string::npos;
        return letters && (named ? number.size() <= 3 : number[0] == 'a' && number.size() == 2);
    }
    const std::string rest = number.substr(digits);
    return rest.compare(0, 2, "of") == 0 && rest.size() > 2 &&
           rest.find_first_not_of("0123456789", 2) == std::string::npos;
}

// Returns what a piece of a larger file is, and the command that puts the pieces together.
static Kind piece_kind(const std::string& path) {
    for (const std::string ending : { ".gguf", ".safetensors", ".jsonl", ".parquet", ".json",
                                      ".txt", ".bin", ".zst", ".gz", ".ggml" }) {
        const size_t place = path.rfind(ending);
        if (place == std::string::npos || path.find('/', place) != std::string::npos) { continue; }
        const size_t end = place + ending.size();
        if (end >= path.size() || !strchr("-_.", path[end])) { continue; }
        std::string mark;
        std::string tail = path.substr(end + 1);
        for (char& c : tail) { c = (char)tolower((unsigned char)c); }
        if (!is_piece_end(tail, &mark)) { continue; }
        const std::string whole = path.substr(0, end);
        const std::string begin = path.substr(end, 1 + mark.size());
        const std::string name = whole.substr(whole.rfind('/') + 1);
        const std::string command = hint_for("cat $(ls -v FILE" + begin + "*) > FILE", whole);
        return { "a piece of " + name + ", which was cut into several",
                 command + ", and give that file" };
    }
    return Kind();
}

Kind kind_of_file(const std::string& path) {
    const long size = file_size(path);
    const Kind kind = kind_of(file_begin_bytes(path, LOOK_BYTES), size, READS_NOTHING);
    if (size <= 0) { return kind; }
    const Kind piece = piece_kind(path);
    if (!piece.what.empty()) { return piece; }
    if (!kind.what.empty()) { return kind; }
    for (auto& e : ENDINGS) {
        if (ends_with(path, e.tail)) { return { e.what, e.hint }; }
    }
    return Kind();
}

std::string hint_for(const std::string& hint, const std::string& path) {
    bool plain = !path.empty() && path[0] != '-';
    for (unsigned char c : path) { plain = plain && (isalnum(c) || strchr("._/+-=@:,", c)); }
    const std::string name = plain ? path : "FILE";
    std::string out;
    const std::vector<std::string> words = split(hint, ' ');
    if (words[0] == "SHARD") { return hint_for(shard_command(hint.substr(6)), path); }
    if (words[0] == "UNPACK") { // ending program: it wants a name with its ending
        const std::string tail = "." + words[1];
        const bool named = ends_with(path, tail);
        for (size_t i = 2; i < words.size(); i++) { out += words[i] + " "; }
        return (named ? "" : "mv " + name + " " + name + tail + " && ") + out + name +
               (named ? "" : tail);
    }
    for (size_t i = 0; i < hint.size();) {
        if (hint.compare(i, 4, "FILE") == 0) { out += name; i += 4; } else { out += hint[i++]; }
    }
    return out;
}

void look(const std::string& path, const std::string& first, long size, Reader reader) {
    Kind k = kind_of(first, size, reader);
    const Kind piece = piece_kind(path);
    // the first piece of a model begins as the whole does, so there the name alone tells
    const bool model = reader == READS_CHECKPOINT || reader == READS_GGUF ||
                       reader == READS_SAFETENSORS;
    const bool readable = k.what.empty() && !model;
    if (!piece.what.empty() && !readable) { k = piece; }
    const bool empty = size == 0 && (reader == READS_JSON || reader == READS_TOKENIZER);
    if (k.what.empty() && !empty) { return; }
    std::string wanted;
    for (auto& w : WANTED) { if (w.reader == reader) { wanted = w.wanted; } }
    if (empty) {
        die(EXIT_USER, path + ": got an empty file, wanted " + wanted, "get the file again");
    }
    die(EXIT_USER, path + ": is " + k.what + ", wanted " + wanted, hint_for(k.hint, path));
}

void look_file(const std::string& path, Reader reader) {
    look(path, file_begin_bytes(path, LOOK_BYTES), file_size(path), reader);
}

Kind kind_in_dir(const std::string& dir, Reader reader) {
    char use = 'm';
    if (reader == READS_TOKENIZER) { use = 'k'; }
    if (reader == READS_TOKENS) { use = 'd'; }
    for (auto& name : dir_list(dir)) {
        const std::string path = dir + "/" + name;
        const KindRow* k = kind_row(file_begin_bytes(path, LOOK_BYTES), file_size(path));
        if (!k || *k->use != use || strchr(k->reads, reader)) { continue; }
        const std::string what = "; its " + name + " is " + k->what;
        if (ends_with(name, ".safetensors") && name.find("-of-") != std::string::npos) {
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

double zstd_window(const std::string& first) {
    static const int id_bytes[] = { 0, 1, 2, 4 };
    if (first.size() < 18 || first.compare(0, 4, "\x28\xB5\x2F\xFD")) { return 0; }
    const int how = (unsigned char)first[4];
    const bool single = how & 32;
    if (!single) {                                       // exponent and eighths
        const int window = (unsigned char)first[5];
        return ldexp(1 + (window & 7) / 8.0, 10 + (window >> 3));
    }
    const int code = how >> 6, bytes = 1 << code;        // one segment: the size of what is in it
    const double content = little(first, 5 + id_bytes[how & 3], bytes);
    return content + (code == 1 ? 256 : 0);
}

std::string shard_command(const std::string& ids) {
    return "python3 -c \"import numpy as n; x = n.uint32(" + ids + "); "
           "h = n.zeros(256, n.int32); "
           "h[:3] = 20240801, 7, x.size; open('NEW.bin', 'wb').write(h.tobytes() + x.tobytes())\"";
}
