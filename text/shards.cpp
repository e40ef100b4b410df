/*
text/shards.cpp -- what shards.h declares.
*/
#include "shards.h"
#include "sft.h"
#include <set>

// ----------------------------------------------------------------------------
// shards

enum { SHARD_HEADER = 1024 };
enum {
    SHARD_MAGIC_16 = 20240520,
    SHARD_VERSION_16 = 1,
    SHARD_MAGIC_32 = 20240801,
    SHARD_VERSION_32 = 7
};

// a header of llm.c is zeros after its third word: this file has one, whatever its magic says
static bool shard_blank_header(const unsigned char* p, long size) {
    for (long i = 12; i < std::min(size, (long)SHARD_HEADER); i++) { if (p[i]) { return false; } }
    return true;
}

Shard shard_parse(const std::string& path, const unsigned char* p, long size) {
    const char* hint = "make it again with: ./train_sink tokenize FILE... -o DIR";
    Shard s = { path, "", p, 2, 0, NULL };
    if (size == 0) {
        die(EXIT_USER, strf("%s: got an empty file, wanted token ids", path.c_str()), hint);
    }
    int32_t head[3] = {0};
    memcpy(head, p, std::min(size, 12L));
    // lit-gpt, TinyLlama: 24-byte header, then chunk_size tokens
    if (size >= 24 && !memcmp(p, "LITPKDS", 7)) {
        uint64_t version, chunk; memcpy(&version, p + 7, 8); memcpy(&chunk, p + 16, 8);
        int widths[] = { 0, 1, 1, 2, 4, 8, 0, 0, 2 }, code = p[15];
        s.width = code <= 8 ? widths[code] : 0;
        if (version != 1 || !s.width) {
            die(EXIT_USER,
                strf(
                    "%s: got LITPKDS version %llu, dtype %d, wanted version 1 and an integer dtype",
                    path.c_str(), (unsigned long long)version, code));
        }
        s.format = "LITPKDS"; s.tokens = p + 24; s.n = (size - 24) / s.width;
        if (chunk > (uint64_t)s.n) {
            die(EXIT_USER,
                strf("%s: got %ld tokens, wanted the %llu its header promises: truncated",
                     path.c_str(), s.n, (unsigned long long)chunk),
                hint);
        }
        s.n = chunk;
    } else if (head[0] == SHARD_MAGIC_16 || head[0] == SHARD_MAGIC_32) {
        bool wide = head[0] == SHARD_MAGIC_32;
        int want = wide ? SHARD_VERSION_32 : SHARD_VERSION_16;
        if (size < SHARD_HEADER) {
            die(EXIT_USER,
                strf("%s: got %ld bytes, wanted a header of 1024: truncated", path.c_str(), size),
                hint);
        }
        if (head[1] != want) {
            die(EXIT_USER,
                strf("%s: got shard version %d, wanted %d for magic %d", path.c_str(), head[1],
                     want, head[0]),
                hint);
        }
        s.format = wide ? "llm.c uint32" : "llm.c uint16"; s.width = wide ? 4 : 2;
        s.tokens = p + SHARD_HEADER; s.n = head[2];
        if (s.n < 0 || SHARD_HEADER + s.n * s.width != size) {
            die(EXIT_USER,
                strf("%s: got %ld bytes, wanted %ld for the %ld tokens its header promises: "
                     "truncated or "
                     "not a shard",
                     path.c_str(), size, SHARD_HEADER + s.n * s.width, s.n),
                hint);
        }
    } else if (size % 2 == 0 && !shard_blank_header(p, size)) { // nanoGPT: ids and nothing else
        s.format = RAW_FORMAT; s.tokens = p; s.n = size / 2;
    } else {
        die(EXIT_USER,
            strf("%s: got magic %d, wanted %d (uint16) or %d (uint32): not a token shard",
                 path.c_str(), head[0], SHARD_MAGIC_16, SHARD_MAGIC_32),
            hint);
    }
    return s;
}

// Megatron keeps tokens without a header, and beside them an index that says how wide they are
static void shard_index_check(const std::string& path) {
    static const struct { const char* type; int bytes; } TYPES[] = {
        { "", 0 }, { "uint8", 1 }, { "int8", 1 }, { "int16", 2 }, { "int32", 4 }, { "int64", 8 },
        { "float64", 8 }, { "float32", 4 }, { "uint16", 2 },
    };
    const std::string index = path.substr(0, path.rfind('.')) + ".idx";
    if (!is_regular(index)) { return; }
    const std::string first = file_begin_bytes(index, 18);
    if (first.size() < 18 || first.compare(0, 9, std::string("MMIDIDX\0\0", 9))) { return; }
    const size_t code = (unsigned char)first[17];
    const bool known = code < sizeof TYPES / sizeof *TYPES;
    if (code == 8) { return; }
    const std::string type = known ? TYPES[code].type : "";
    die(EXIT_USER,
        strf("%s: got tokens of type %s, as %s says, wanted uint16 or a shard with a header",
             path.c_str(), known ? type.c_str() : "unknown", index.c_str()),
        hint_for(shard_command("n.fromfile('FILE', n." + (known ? type : "int32") + ")"), path));
}

Shard shard_open(const std::string& path) {
    look_file(path, READS_TOKENS);
    if (is_regular(path) && file_size(path) == 0) { return shard_parse(path, NULL, 0); } // dies
    const FileMap map = file_map(path, 1, "token");
    const Shard s = shard_parse(path, (const unsigned char*)map.data, (long)map.size);
    if (s.format == RAW_FORMAT) { shard_index_check(path); }
    return s;
}

// What is in a file of ids of 16 bits when its `width` bytes are one id: is all but the first 16
// bits, of those that were looked at, below `bound`, and is any id more than that?
static bool raw_is_wide(const Shard& s, int width, long bound) {
    const long halves = width / 2, n = s.n / halves, step = std::max(1L, n / 65536);
    if (s.n % halves || n < 2) { return false; }
    bool any = false;
    for (long i = 0; i < n; i += step) {
        for (long k = 1; k < halves; k++) {
            if (shard_token(s, i * halves + k) > (k == 1 ? bound : 0)) { return false; }
        }
        any = any || shard_token(s, i * halves) > bound;
    }
    return any;
}

void shard_raw_check(const Shard& s, long V) {
    const long bound = V > 65536 ? (V - 1) >> 16 : 0;
    auto refuse = [&](const std::string& what, const std::string& type) {
        die(EXIT_USER, s.path + ": " + what + ", wanted uint16 or a shard with a header",
            hint_for(shard_command("n.fromfile('FILE', n." + type + ")"), s.path));
    };
    for (int width : { 8, 4 }) {
        if (!raw_is_wide(s, width, bound)) { continue; }
        const int bits = 8 * width;
        refuse(strf("looks like ids of %d bits each, without a header", bits),
               strf("uint%d", bits));
    }
    const std::string first((const char*)s.tokens, std::min(2 * s.n, (long)LOOK_BYTES));
    if (s.n >= 32 && is_text(first)) { refuse("looks like text, or ids of 8 bits each", "uint8"); }
    if (V > 65536) {
        refuse(strf("got ids of 16 bits each, without a header, for a vocabulary of %ld", V),
               "uint32");
    }
}

long shard_token(const Shard& s, long i) {
    const unsigned char* p = s.tokens + i * s.width;
    if (s.width == 2) { uint16_t v; memcpy(&v, p, 2); return v; }
    if (s.width == 4) { uint32_t v; memcpy(&v, p, 4); return v; }
    if (s.width == 8) { int64_t v; memcpy(&v, p, 8); return v; }
    return *p;
}

static long blocks_of(long bytes) { return (bytes + SHARD_BLOCK - 1) / SHARD_BLOCK; }

// the hash of block k of n tokens
static uint64_t block_hash(const unsigned char* tokens, long n, int width, long k) {
    const long from = k * SHARD_BLOCK, bytes = std::min(n * width - from, (long)SHARD_BLOCK);
    return hash_bytes(tokens + from, bytes);
}

long shard_changed(const Shard& s, long from, long n) {
    if (!s.sums || n <= 0) { return -1; }
    ShardSums& sums = *s.sums;
    const long last = (from + n) * s.width - 1;
    for (long k = from * s.width / SHARD_BLOCK; k <= last / SHARD_BLOCK; k++) {
        if (sums.compared[k]) { continue; }
        const uint64_t hash = block_hash(s.tokens, s.n, s.width, k);
        if (hash != sums.hashes[k]) { return k * SHARD_BLOCK / s.width; }
        sums.compared[k] = 1;
    }
    return -1;
}

static std::string shard_header(long n, int width) {
    const bool wide = width == 4;
    const int32_t words[3] = { wide ? SHARD_MAGIC_32 : SHARD_MAGIC_16,
                               wide ? SHARD_VERSION_32 : SHARD_VERSION_16, (int32_t)n };
    std::string head(SHARD_HEADER, '\0');
    memcpy(&head[0], words, sizeof words);
    return head;
}

std::string shard_fault(const std::string& dir, const ShardSums& sums, bool whole) {
    const std::string path = dir + "/" + sums.name;
    const long size = file_size(path), bytes = size - SHARD_HEADER;
    if (size < 0 || !is_regular(path)) { return "is missing"; }
    const int width = bytes == 4 * sums.tokens ? 4 : 2;
    if (bytes != width * sums.tokens || (long)sums.hashes.size() != blocks_of(bytes)) {
        return strf("got %ld bytes, wanted %ld tokens", size, sums.tokens);
    }
    if (!whole) { return ""; }
    const FileMap map = file_map(path, SHARD_HEADER, "token");
    bool same = (long)map.size == size && shard_header(sums.tokens, width).compare(
                                              0, SHARD_HEADER, map.data, SHARD_HEADER) == 0;
    const unsigned char* tokens = (const unsigned char*)map.data + SHARD_HEADER;
    #pragma omp parallel for reduction(&& : same)
    for (long k = 0; k < (long)sums.hashes.size(); k++) {
        same = same && block_hash(tokens, sums.tokens, width, k) == sums.hashes[k];
    }
    map_close(map);
    return same ? "" : "its bytes are not those that tokenize wrote";
}

static ShardOut shard_begin(const std::string& path, int width) {
    ShardOut o = { file_begin(path), width, 0, "", {} };
    file_put(&o.file, std::string(SHARD_HEADER, '\0').data(), SHARD_HEADER);
    return o;
}

// Takes the hashes of the blocks that are whole; `last`: of what is left, too.
static void shard_hash(ShardOut* o, bool last) {
    size_t from = 0;
    while (o->block.size() - from >= SHARD_BLOCK || (last && from < o->block.size())) {
        const size_t n = std::min(o->block.size() - from, (size_t)SHARD_BLOCK);
        o->hashes.push_back(hash_bytes(o->block.data() + from, n));
        from += n;
    }
    o->block.erase(0, from);
}

static void shard_put(ShardOut* o, const uint32_t* ids, long n) {
    const void* bytes = ids;
    if (o->width == 2) {
        static thread_local std::vector<uint16_t> narrow;
        narrow.assign(ids, ids + n);
        bytes = narrow.data();
    }
    file_put(&o->file, bytes, n * o->width);
    o->block.append((const char*)bytes, n * o->width);
    shard_hash(o, false);
    o->n += n;
}

static void shard_commit(ShardOut* o) {
    shard_hash(o, true);
    if (fseek(o->file.f, 0, SEEK_SET)) { file_abort(&o->file); }
    file_put(&o->file, shard_header(o->n, o->width).data(), SHARD_HEADER);
    file_commit(&o->file);
}

void tokens_add(Tokens* t, const Shard& s) {
    t->shards.push_back(s);
    t->n += s.n;
    t->end.push_back(t->n);
}

void tokens_copy(const Tokens& t, long at, long n, int V, int* out) {
    at += t.from;
    size_t k = std::upper_bound(t.end.begin(), t.end.end(), at) - t.end.begin();
    while (n > 0) {
        const Shard& s = t.shards[k];
        long i = at - (t.end[k] - s.n), take = std::min(n, s.n - i);
        const long changed = shard_changed(s, i, take);
        if (changed >= 0) {
            die(EXIT_USER,
                strf("%s: from token %ld on, its bytes are not those that tokenize wrote",
                     s.path.c_str(), changed),
                "get the file again, or run tokenize again into another directory");
        }
        for (long j = 0; j < take; j++) {
            long id = shard_token(s, i + j);
            const bool masked = s.width == 4 && sft_is_masked(id) && ~(int)(uint32_t)id < V;
            if (!masked && (id < 0 || id >= V)) {
                die(EXIT_USER,
                    strf("%s: got id %ld at token %ld, wanted ids below the vocabulary of %d",
                         s.path.c_str(), id, i + j, V),
                    "give the tokenizer these shards were made with: --tokenizer tokenizer.json, "
                    "or a larger --vocab");
            }
            out[j] = (int)(uint32_t)id;
        }
        out += take; at += take; n -= take; k++;
    }
}

// ----------------------------------------------------------------------------
// text: files of documents, read in blocks of whole lines, so that many threads can encode what one
// reads and writes

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

// dies if a file is not what the end of its name says
static void text_look(const std::string& path) {
    const char* unpack;
    const TextFormat format = text_format(path, &unpack);
    if (path == "-" || !is_regular(path)) { return; }
    Reader reader = format == TEXT_TXT ? READS_TEXT : READS_RECORDS;
    if (unpack) { reader = !strcmp(unpack, "gzip") ? READS_GZIP : READS_ZSTD; }
    look_file(path, reader);
    const double window = reader == READS_ZSTD ? zstd_window(file_begin_bytes(path, 18)) : 0;
    if (window > 0x1p27) {
        die(EXIT_USER,
            strf("%s: packed with a window of %.0f MiB, wanted 128 or less", path.c_str(),
                 window / 0x1p20),
            hint_for("zstd -dc --long=31 FILE | zstd -o NEW.zst", path));
    }
}

TextFile text_open(const std::string& path) {
    TextFile t = { path, TEXT_UNKNOWN, NULL, 0, 0, 0, "", false, 0, "" };
    t.format = text_format(path, &t.unpack);
    if (path == "-") { return t; }
    text_look(path);
    t.raw = t.fd = file_open(path);
    if (!t.unpack) { return t; }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) { die(EXIT_MACHINE, strf("pipe: %s", strerror(errno))); }
    fflush(stdout);
    t.child = fork();
    if (t.child == 0) { // the file is its standard input: no name needs quoting
        const int silent = open("/dev/null", O_WRONLY);          // the error is ours to say
        dup2(t.raw, 0); dup2(ends[1], 1); dup2(silent, 2);
        execlp(t.unpack, t.unpack, "-dcq", (char*)NULL);
        _exit(127);
    }
    close(ends[1]);
    t.fd = ends[0];
    if (t.child < 0) {
        die(EXIT_MACHINE,
            strf("%s: cannot start %s (%s)", path.c_str(), t.unpack, strerror(errno)));
    }
    return t;
}

void text_close(TextFile* t) {
    int status = 0;
    bool known = true;                           // how the child ended
    if (t->fd > 0) { close(t->fd); }
    if (t->child) {
        pid_t ended;
        do { ended = waitpid(t->child, &status, 0); } while (ended < 0 && errno == EINTR);
        known = ended == t->child;
        close(t->raw);
    }
    t->fd = t->child = 0;
    if (!known) {
        t->error = strf("%s: nobody can tell whether %s unpacked all of it (%s)", t->path.c_str(),
                        t->unpack, strerror(errno));
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        t->error = strf("%s: needs the program %s, which is not installed", t->path.c_str(),
                        t->unpack);
    }
    else if (status) {
        t->error = strf("%s: %s cannot unpack it to the end: truncated or damaged", t->path.c_str(),
                        t->unpack);
    }
}

bool text_cuts(const Tokenizer& tok, const char* s, size_t n, size_t i) {
    if (tok.kind == TOKENIZER_BYTES) { return true; }
    if (!tok.cut_at_lines || i < 2 || i + 1 >= n) { return false; }
    const auto printed = [&](size_t k) { return s[k] > 0x20 && s[k] < 0x7F; };
    const auto letter = [&](size_t k) { return (s[k] | 32) >= 'a' && (s[k] | 32) <= 'z'; };
    if (s[i-1] == '\n') { return printed(i) && printed(i - 2); }
    return tok.cut_at_spaces && s[i] == ' ' && letter(i - 1);
}

size_t text_cut(const Tokenizer& tok, const std::string& s) {
    for (size_t i = s.size(); i-- > 1;) {
        if (text_cuts(tok, s.data(), s.size(), i)) { return i; }
    }
    return 0;
}

// reads once, toward `want` bytes in all. The buffer grows as strings do, so that a long line is
// not moved for each of a pipe's small answers
static void text_read(TextFile* t, size_t want) {
    static thread_local std::vector<char> piece(TEXT_BLOCK);
    const size_t most = std::min(piece.size(), want - t->rest.size());
    const ssize_t n = read(t->fd, piece.data(), most);
    const bool broken = n < 0 && errno != EINTR;
    if (broken) { t->error = strf("%s: cannot read (%s)", t->path.c_str(), strerror(errno)); }
    t->rest.append(piece.data(), std::max<ssize_t>(n, 0));
    t->at_end = n == 0 || broken;
}

bool text_next(TextFile* t, const Tokenizer& tok, TextBlock* b) {
    size_t cut = 0, want = TEXT_BLOCK;
    b->file = t; b->line = t->line; b->first = t->line == 0; b->error.clear();
    while (!t->at_end && cut == 0) {
        if (t->rest.size() < want) { text_read(t, want); continue; }
        if (t->format == TEXT_TXT) {
            cut = text_cut(tok, t->rest);
        } else {
            cut = t->rest.rfind('\n') + 1;
        }
        want *= 2;                                       // no place to cut: read on
        if (!cut && t->format == TEXT_JSONL && t->rest.size() >= TEXT_LINE) {
            die(EXIT_USER,
                strf("%s: line %ld: got more than %d MiB without an end of line, wanted one record "
                     "per line",
                     t->path.c_str(), t->line + 1, TEXT_LINE >> 20),
                "write its texts as several records, or the text alone into a .txt");
        }
    }
    if (b->first && t->error.empty()) {          // now it is unpacked
        const Reader reader = t->format == TEXT_TXT ? READS_TEXT : READS_RECORDS;
        look(t->path + (t->unpack ? ", unpacked" : ""), t->rest.substr(0, LOOK_BYTES), -1, reader);
    }
    b->last = cut == 0;
    if (b->last) { text_close(t); cut = t->rest.size(); }
    b->error = t->error;
    if (cut == 0 || !b->error.empty()) { b->text.clear(); return !b->error.empty(); }
    std::string tail = t->rest.substr(cut);
    t->rest.resize(cut);
    // the block is not copied, what is left of it is short
    b->text.swap(t->rest); t->rest.swap(tail);
    t->line += t->format == TEXT_TXT ? 1 : std::count(b->text.begin(), b->text.end(), '\n');
    return true;
}

// ----------------------------------------------------------------------------
// tokenize: one thread reads blocks and writes shards, the others encode; the order is the text's
// with any number of them

static const char* const PAPER_DOMAINS =
    "arxiv,dm_mathematics,enron_emails,europarl,freelaw,github,gutenberg_pg_19,hackernews,nih_"
    "exporter,philpapers,"
    "pile_cc,pubmed_abstracts,pubmed_central,stackexchange,ubuntu_irc,uspto_backgrounds,wikipedia_"
    "en";

// "Gutenberg (PG-19)" -> gutenberg_pg_19: the Pile's names as RegMix spells them
static std::string domain_name(const std::string& set) {
    std::string out;
    for (unsigned char c : set) {
        if (isalnum(c)) {
            out += (char)tolower(c);
        } else if (!out.empty() && out.back() != '_') {
            out += '_';
        }
    }
    while (!out.empty() && out.back() == '_') { out.pop_back(); }
    return out;
}

// the domain of a record: meta.pile_set_name, else the part of the file's name before '-'
// (RegMix)
static std::string text_domain(const Json& record, const std::string& path) {
    const Json* meta = record.get("meta");
    const Json* set = meta ? meta->get("pile_set_name") : NULL;
    if (set) { return domain_name(set->string); }
    std::string name = path.substr(path.rfind('/') + 1);
    return name.find('-') == std::string::npos ? "" : domain_name(name.substr(0, name.find('-')));
}

static void text_document(const Tokenizer& tok, const TokenizeOptions& o, TextBlock* b,
                          const char* s, size_t n, const std::string& domain, bool first,
                          bool last) {
    enum { PART = 1 << 12 };                             // bytes encoded before a look at their ids
    const size_t before = b->ids.size();
    // growing step by step, a long document would take twice the room
    if (tok.kind == TOKENIZER_BYTES && n > TEXT_BLOCK) { b->ids.reserve(before + n + 2); }
    if (first && o.bos == "doc") { b->ids.push_back(tok.bos); }
    for (size_t at = 0, to; at < n; at = to) {
        to = o.first ? at + PART : n;
        while (to < n && !text_cuts(tok, s, n, to)) { to++; }
        to = std::min(to, n);
        tokenizer_encode_to(tok, s + at, to - at, first && at == 0, &b->ids);
        const bool bos = first && at == 0 && o.bos == "doc";
        if (bos && b->ids.size() > before + 1 && b->ids[before + 1] == (uint32_t)tok.bos) {
            b->ids.erase(b->ids.begin() + before + 1);   // one BOS is enough
            b->counts.begun++;
        }
        if (o.first && (long)(b->ids.size() - before) >= o.first) { break; }
    }
    if (last) { b->ids.push_back(tok.eos); }
    b->docs.push_back({ b->ids.size(), domain, last });
    b->counts.documents += last;
}

// a record of --sft; returns "" or what is wrong with it
static std::string text_conversation(const Tokenizer& tok, const TokenizeOptions& o, TextBlock* b,
                                     const Json& record) {
    const size_t before = b->ids.size();
    const Json* messages = record.get("messages");
    const std::string error = sft_encode(tok, o.sft, o.assistant_only, messages, &b->ids);
    if (!error.empty()) { b->ids.resize(before); return error; }
    b->docs.push_back({ b->ids.size(), "", true });
    b->counts.documents++;
    return "";
}

void text_encode(const Tokenizer& tok, const TokenizeOptions& o, TextBlock* b) {
    b->ids.clear(); b->docs.clear(); b->counts = TextCounts();
    b->counts.bytes = (long)b->text.size();
    if (!b->error.empty()) { return; }
    if (b->file->format == TEXT_TXT) {
        if (tok.kind != TOKENIZER_BYTES) { b->counts.replaced += utf8_repair(&b->text); }
        std::string domain = o.domains.empty() ? "" : text_domain(Json(), b->file->path);
        text_document(tok, o, b, b->text.data(), b->text.size(), domain, b->first, b->last);
        return;
    }
    std::vector<const char*> keep;               // of a conversation all: its messages are a list
    if (o.sft.empty()) { keep = { "text", "meta", "pile_set_name" }; }
    long line = b->line;
    for (size_t i = 0, end; i < b->text.size(); i = end + 1) {
        end = std::min(b->text.find('\n', i), b->text.size());
        line++;
        if (b->text.find_first_not_of(" \t\r", i) >= end) { continue; }
        Json record; std::string error, domain;
        const Json* field = NULL;
        if (json_parse(&b->text[i], end - i, &record, &error, &b->counts.replaced, keep)) {
            field = record.get("text");
            if (!o.sft.empty()) {
                error = text_conversation(tok, o, b, record);
                if (error.empty()) { continue; }
            } else if (!field || field->type != Json::STRING) {
                error = "wanted {\"text\": \"...\"}, got a record without text";
            } else if (!o.domains.empty() &&
                       (domain = text_domain(record, b->file->path)).empty()) {
                error = "wanted meta.pile_set_name, got a record without it";
            }
        }
        if (error.empty()) {
            text_document(tok, o, b, field->string.data(), field->string.size(), domain, true,
                          true);
        } else if (o.skip_bad) {
            b->counts.skipped++;
        } else {
            b->error = strf("%s: line %ld: %s", b->file->path.c_str(), line, error.c_str());
            return;
        }
    }
}

static std::string shard_name(const ShardSeries& s, int number) {
    return strf("%s_%06d.bin", s.name.c_str(), number);
}

static void series_commit(ShardSeries* s) {
    shard_commit(&s->out);
    s->written.push_back({ shard_name(*s, s->shards - 1), s->out.n, s->out.hashes, {} });
}

static void series_put(ShardSeries* s, const std::string& dir, int width, long shard_tokens,
                       const uint32_t* ids, long n) {
    for (long take; n > 0; ids += take, n -= take) {
        if (s->shards && s->out.n == shard_tokens) { series_commit(s); }
        if (!s->shards || s->out.n == shard_tokens) {
            s->out = shard_begin(dir + "/" + shard_name(*s, s->shards++), width);
        }
        take = std::min(n, shard_tokens - s->out.n);
        shard_put(&s->out, ids, take);
        s->tokens += take;
    }
}

static void tokenizing_work(Tokenizing* z) {
    for (;;) {
        std::unique_lock<std::mutex> hold(z->lock);
        z->change.wait(hold, [&] { return z->stop || z->taken < z->read; });
        if (z->taken == z->read) { return; }
        size_t k = z->taken++ % z->ring.size();
        z->state[k] = BLOCK_BUSY;
        hold.unlock();
        text_encode(z->tok, z->o, &z->ring[k]);
        hold.lock();
        z->state[k] = BLOCK_DONE;
        z->change.notify_all();
    }
}

// the series a document goes to, made when it is first met; NULL if it is not wanted
static ShardSeries* tokenizing_series(Tokenizing* z, const TextDoc& doc, bool val_file) {
    bool val = val_file || mix64(z->document, STREAM_VAL) < z->o.val_fraction * 0x1p64;
    double share = 0;
    if (!z->shares.empty()) {
        size_t k = 0;
        while (k < z->shares.size() && z->shares[k].first != doc.domain) { k++; }
        if (k == z->shares.size()) { return NULL; }
        share = z->shares[k].second;
    }
    std::string name = std::string(val ? "val" : "train") +
                       (doc.domain.empty() ? "" : "_" + doc.domain);
    for (auto& s : z->series) {
        if (s.name == name) { return s.limit && s.tokens >= s.limit ? NULL : &s; }
    }
    z->series.emplace_back();
    z->series.back().name = name;
    const bool limited = !val && share > 0;              // by one token at least: 0 is no limit
    z->series.back().limit = limited ? std::max(1L, (long)(z->o.tokens * share)) : 0;
    return &z->series.back();
}

// are there as many training tokens as were asked for?
static bool tokenizing_full(const Tokenizing& z) {
    if (!z.o.tokens) { return false; }
    long tokens = 0, wanted = 0, reached = 0;
    for (auto& s : z.shares) { wanted += s.second > 0; }
    for (auto& s : z.series) {
        tokens += s.name.compare(0, 5, "train") ? 0 : s.tokens;
        reached += s.limit > 0 && s.tokens >= s.limit;
    }
    return wanted ? reached == wanted : tokens >= z.o.tokens;
}

// a document, or a part of one, into its series
static void tokenizing_put(Tokenizing* z, ShardSeries* s, const uint32_t* ids, long n, bool whole) {
    // masked ids take 4 bytes
    const int width = z->tok.vocab_size <= 65536 && z->o.sft.empty() ? 2 : 4;
    series_put(s, z->o.out, width, z->o.shard_tokens, ids, n);
    s->documents += whole;
    z->counts.documents += whole;
    z->counts.tokens += n;
}

static bool in_val_file(const Tokenizing& z, const TextBlock& b) {
    return z.val_from <= (size_t)(b.file - z.files.data());
}

static void tokenizing_write(Tokenizing* z, TextBlock* b) {
    const bool val_file = in_val_file(*z, *b);
    size_t from = 0;
    for (auto& doc : b->docs) {
        const bool over = z->full && !val_file;
        ShardSeries* s = over ? NULL : tokenizing_series(z, doc, val_file);
        if (s) {
            tokenizing_put(z, s, &b->ids[from], (long)(doc.end - from), doc.whole);
            z->full = tokenizing_full(*z);
            const bool reached = s->limit ? s->tokens >= s->limit : z->full;
            if (reached && !doc.whole && !val_file) {    // a long text ends here
                const uint32_t eos = z->tok.eos;
                tokenizing_put(z, s, &eos, 1, true);
            }
        } else if (!over) { z->dropped += doc.whole; }
        from = doc.end;
        z->document += doc.whole;
    }
    z->counts.bytes += b->counts.bytes;
    z->counts.replaced += b->counts.replaced;
    z->counts.skipped += b->counts.skipped;
    z->counts.begun += b->counts.begun;
}

static void tokenizing_progress(Tokenizing* z) {
    if (z->o.quiet || !isatty(2) || now_ms() - z->shown_ms < 300) { return; }
    z->shown_ms = now_ms();
    long done = 0;
    for (size_t i = 0; i < z->files.size(); i++) {
        TextFile& t = z->files[i];
        if (i < z->file) { done += file_size(t.path); }
        if (i == z->file && t.raw > 0) { done += std::max<long>(0, lseek(t.raw, 0, SEEK_CUR)); }
    }
    double s = (z->shown_ms - z->start_ms) / 1e3,
           part = std::min(1.0, (double)done / std::max(1L, z->total_bytes));
    double eta = part > 0 ? s / part - s : 0, mb = z->counts.bytes / 1e6;
    fprintf(stderr, "\rtokenize %3.0f%% | %.1f MB text | %.1f MB/s | %.2fM tokens | ETA %d:%02d ",
        part * 100, mb, mb / s, z->counts.tokens / 1e6, (int)(eta / 60), (int)eta % 60);
}

// the main thread: reads blocks, writes blocks, waits when there is neither
static void tokenizing_run(Tokenizing* z) {
    int threads = z->o.threads > 0 ? z->o.threads : (int)std::thread::hardware_concurrency();
    threads = std::max(1, threads);              // 0: the system does not say
    z->ring.resize(3 * threads + 2); z->state.assign(z->ring.size(), BLOCK_FREE);
    std::vector<std::thread> pool;
    try { for (int i = 0; i < threads; i++) { pool.emplace_back(tokenizing_work, z); } }
    catch (const std::system_error&) { // a limit of processes: those that did start do the work
        if (pool.empty()) {
            die(EXIT_MACHINE, "threads: the system gave none", "raise the limit: ulimit -u");
        }
    }
    std::string error;
    bool more = true, opened = false;
    for (;;) {
        std::unique_lock<std::mutex> hold(z->lock);
        size_t r = z->read % z->ring.size(), w = z->written % z->ring.size();
        z->change.wait(hold, [&] {
            return z->state[w] == BLOCK_DONE || (more && z->state[r] == BLOCK_FREE) ||
                   (!more && z->written == z->read);
        });
        if (z->state[w] == BLOCK_DONE) {
            hold.unlock();
            // what was read ahead when there were tokens enough depends on the number of threads
            const bool ahead = z->full && !in_val_file(*z, z->ring[w]);
            if (!ahead) {
                tokenizing_write(z, &z->ring[w]);
                error = z->ring[w].error;
            }
            tokenizing_progress(z);
            hold.lock();
            z->state[w] = BLOCK_FREE; z->written++;
            if (!error.empty()) { break; }
            continue;
        }
        if (!more) { break; }
        hold.unlock();
        if (z->full && z->file < z->val_from) { z->file = z->val_from; opened = false; }
        bool got = false;
        while (!got && z->file < z->files.size()) {
            TextFile& t = z->files[z->file];
            if (!opened) { t = text_open(t.path); opened = true; }
            got = text_next(&t, z->tok, &z->ring[r]);
            if (!got || z->ring[r].last) { z->file++; opened = false; }
        }
        hold.lock();
        more = got;
        if (got) { z->state[r] = BLOCK_READ; z->read++; z->change.notify_all(); }
    }
    { std::lock_guard<std::mutex> hold(z->lock); z->stop = true; z->taken = z->read; }
    z->change.notify_all();
    for (auto& t : pool) { t.join(); }
    if (isatty(2) && !z->o.quiet) { fprintf(stderr, "\r\033[K"); }
    for (auto& s : z->series) { series_commit(&s); }     // what came before a bad record is kept
    if (!error.empty()) {
        const bool line = error.find("line ") != std::string::npos;
        die(EXIT_USER, error, line ? "repair the line, or leave broken records out with --skip-bad"
                                   : "get the file, or the program, again");
    }
}

void text_check(const std::string& path, const std::string& what) {
    if (text_format(path) == TEXT_UNKNOWN) {
        const bool pipe = is_special(path);
        const Kind k = kind_of_file(path);
        const std::string is = k.what.empty() ? "got an unknown kind of file" : "is " + k.what,
                          hint = k.hint.empty() ? "" : hint_for(k.hint, path);
        die(EXIT_USER, path + ": " + (pipe ? "got a pipe or a device" : is) + ", wanted .txt, "
            ".jsonl (.zst, .gz) or " + what,
            pipe ? "./train_sink tokenize - -o DIR reads lines of JSON from standard input" : hint);
    }
    if (path == "-") { return; }
    if (access(path.c_str(), R_OK)) {
        die(EXIT_USER, strf("%s: cannot open (%s)", path.c_str(), strerror(errno)),
            list_beside(path, "*.txt *.jsonl*"));
    }
    if (is_special(path)) { close(file_open(path)); }    // dies
    text_look(path);
}

// where a directory is, whatever its name; links may lead to it again and again
typedef std::set<std::pair<dev_t, ino_t>> Places;

// every .txt and .jsonl below a directory, each once
static void tokenizing_below(const std::string& dir, std::vector<std::string>* out, Places* seen) {
    struct stat st;
    if (stat(dir.c_str(), &st) || !seen->insert({ st.st_dev, st.st_ino }).second) { return; }
    for (auto& name : dir_list(dir)) {
        const std::string path = dir + "/" + name;
        if (is_dir(path)) { tokenizing_below(path, out, seen); continue; }
        if (text_format(path) == TEXT_UNKNOWN) { continue; }
        text_check(path, "a directory of them");
        out->push_back(path);
    }
}

// the texts of a directory, or the file itself
static void tokenizing_files(const std::string& path, std::vector<std::string>* out) {
    Places seen;
    if (is_dir(path)) { tokenizing_below(path, out, &seen); return; }
    text_check(path, "a directory of them");
    out->push_back(path);
}

static void json_field(std::string* object, const char* key, const std::string& value) {
    *object += strf("%s\"%s\": ", object->size() > 1 ? ", " : "", key) + value;
}

std::string tokenizing_made(const Tokenizing& z) {
    std::string files, out = "{";
    for (auto& t : z.files) {
        struct stat st = {};
        char real[PATH_MAX];
        bool known = t.path != "-" && !stat(t.path.c_str(), &st) && realpath(t.path.c_str(), real);
        std::string name = json_str(known ? real : "-");
        files += strf("%s\n    [%s, %lld, \"%lld.%09ld\"]", files.empty() ? "" : ",", name.c_str(),
            (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    }
    json_field(&out, "bos", json_str(z.o.bos));
    json_field(&out, "domains", json_str(z.o.domains));
    if (!z.o.sft.empty()) { json_field(&out, "sft", json_str(z.o.sft)); }
    if (z.o.assistant_only) { json_field(&out, "sft_loss", "\"assistant\""); }
    json_field(&out, "val_fraction", json_num(z.o.val_fraction));
    json_field(&out, "tokens", strf("%ld", z.o.tokens));
    json_field(&out, "shard_tokens", strf("%ld", z.o.shard_tokens));
    json_field(&out, "skip_bad", z.o.skip_bad ? "true" : "false");
    json_field(&out, "tokenizer_hash", strf("\"%016llx\"", (unsigned long long)z.tok.hash));
    json_field(&out, "val_from", strf("%zu", z.val_from));
    json_field(&out, "files", "[" + files + "]");
    return out + "}";
}

// [["train_000000.bin", tokens, "a hash of 16 digits for each block"], ..]
static std::string written_json(const ShardSeries& s) {
    std::string out;
    for (auto& shard : s.written) {
        std::string hashes;
        for (uint64_t h : shard.hashes) { hashes += strf("%016llx", (unsigned long long)h); }
        out += strf("%s\n      [%s, %ld, \"%s\"]", out.empty() ? "" : ",",
                    json_str(shard.name).c_str(), shard.tokens, hashes.c_str());
    }
    return "[" + out + "]";
}

std::vector<ShardSums> manifest_sums(const Json& manifest) {
    std::vector<ShardSums> all;
    const Json *series = manifest.get("series"), none;
    for (auto& s : (series ? *series : none).items) {
        const Json* files = s.get("files");
        for (auto& file : (files ? *files : none).items) {
            if (file.items.size() != 3) { continue; }
            ShardSums sums;
            sums.name = file.items[0].string;
            sums.tokens = (long)file.items[1].number;
            const std::string& digits = file.items[2].string;
            for (size_t i = 0; i + 16 <= digits.size(); i += 16) {
                sums.hashes.push_back(strtoull(digits.substr(i, 16).c_str(), NULL, 16));
            }
            sums.compared.assign(sums.hashes.size(), 0);
            all.push_back(sums);
        }
    }
    return all;
}

static void tokenizing_manifest(const Tokenizing& z, bool complete) {
    std::string series, out = "{";
    for (auto& s : z.series) {
        series += strf("%s\n    {\"name\": %s, \"shards\": %d, \"documents\": %ld, \"tokens\": %ld",
                       series.empty() ? "" : ",", json_str(s.name).c_str(), s.shards, s.documents,
                       s.tokens);
        series += ", \"files\": " + written_json(s) + "}";
    }
    json_field(&out, "complete", complete ? "true" : "false");
    json_field(&out, "tokenizer", json_str(z.tok.name));
    json_field(&out, "tokenizer_hash", strf("\"%016llx\"", (unsigned long long)z.tok.hash));
    json_field(&out, "vocab", strf("%d", z.tok.vocab_size));
    json_field(&out, "eos", strf("%d", z.tok.eos));
    json_field(&out, "bos", json_str(z.o.bos));
    json_field(&out, "documents", strf("%ld", z.counts.documents));
    json_field(&out, "tokens", strf("%ld", z.counts.tokens));
    json_field(&out, "bytes", strf("%ld", z.counts.bytes));
    json_field(&out, "replaced", strf("%ld", z.counts.replaced));
    json_field(&out, "skipped", strf("%ld", z.counts.skipped));
    json_field(&out, "dropped", strf("%ld", z.dropped));
    json_field(&out, "series", "[" + series + "]");
    json_field(&out, "made", z.made);
    file_write(z.o.out + "/manifest.json", out + "}\n");
}

// the tokenizer goes with its shards: -d DIR needs nothing else
static void tokenizing_keep_tokenizer(const Tokenizing& z) {
    for (auto& file : z.tok.files) { file_write(z.o.out + "/" + file.first, file.second); }
}

static void tokenizing_check(Tokenizing* z) {
    TokenizeOptions& o = z->o;
    if (o.domains == "paper") { o.domains = PAPER_DOMAINS; }
    double sum = 0;
    for (auto& d : o.domains == "all" ? std::vector<std::string>() : split(o.domains, ',')) {
        std::string name = d; double share = 0;
        size_t colon = d.find(':');
        if (colon != std::string::npos) {
            name = d.substr(0, colon);
            if (!parse_double(d.substr(colon + 1), &share) || share <= 0) {
                die(EXIT_USER, strf("--domains %s: wanted NAME or NAME:SHARE", d.c_str()));
            }
        }
        for (auto& other : z->shares) {
            if (other.first == domain_name(name)) {
                die(EXIT_USER, strf("--domains %s: wanted every domain once", o.domains.c_str()));
            }
        }
        z->shares.push_back({ domain_name(name), share });
        sum += share;
        if ((share > 0) != (z->shares[0].second > 0)) {
            die(EXIT_USER, "--domains: some have a share and some have none");
        }
    }
    for (auto& s : z->shares) { if (sum > 0) { s.second /= sum; } }
    if (sum > 0 && !o.tokens) {
        die(EXIT_USER, "--domains with shares: wanted the number of tokens to share out",
            "add --train-tokens N");
    }
    if (o.val_fraction < 0 || o.val_fraction >= 1) {
        die(EXIT_USER,
            strf("--val-fraction %g: wanted 0 or more, and less than 1", o.val_fraction));
    }
    if (o.bos != "none" && o.bos != "doc") {
        die(EXIT_USER, strf("--bos %s: wanted none or doc", o.bos.c_str()));
    }
    if (o.shard_tokens < 1 || o.shard_tokens > 2000000000) {
        die(EXIT_USER, strf("--shard-tokens %ld: wanted 1 to 2000000000", o.shard_tokens));
    }
    if (z->tok.eos < 0) {
        die(EXIT_USER,
            strf("%s: the tokenizer has no EOS to put after documents", z->tok.name.c_str()),
            "name it in tokenizer_config.json: {\"eos_token\": ...}");
    }
    if (o.bos == "doc" && z->tok.bos < 0) {
        die(EXIT_USER, strf("%s: the tokenizer has no BOS", z->tok.name.c_str()),
            "leave --bos out");
    }
    if (z->files.empty()) {
        Kind other;                              // what is there instead
        for (auto& path : o.files) {
            if (other.what.empty()) { other = kind_in_dir(path, READS_TOKENS); }
        }
        die(EXIT_USER, "tokenize: got no text files" + other.what,
            other.hint.empty() ? "./train_sink tokenize FILE... -o DIR" : other.hint);
    }
}

// train_000000.bin, val_pile_cc_000012.bin
static bool is_shard_name(const std::string& name) {
    const size_t digits = name.rfind('_') + 1;
    const bool series = name.compare(0, 6, "train_") == 0 || name.compare(0, 4, "val_") == 0;
    if (!series || !ends_with(name, ".bin") || name.size() < digits + 10) { return false; }
    for (size_t i = digits; i < name.size() - 4; i++) {
        if (!isdigit((unsigned char)name[i])) { return false; }
    }
    return true;
}

bool tokenizing_ours(const std::string& name) {
    const size_t bin = name.find(".bin.");
    if (bin != std::string::npos) {
        const std::string shard = name.substr(0, bin + 4);
        return is_shard_name(shard) && is_temporary(name, shard);
    }
    const std::string manifest = "manifest.json";
    if (name == manifest || is_temporary(name, manifest)) { return true; }
    return name == "lock" || tokenizer_ours(name) || is_shard_name(name);
}

bool tokenizing_manifest_ours(const std::string& text) {
    for (const char* first : { "{\"complete\": false, \"tokenizer\": ",
                               "{\"complete\": true, \"tokenizer\": " }) {
        if (text.find(first) == 0) { return true; }
    }
    return false;
}

bool changed_since(const std::string& path, const std::string& other) {
    struct stat text, made;
    if (stat(path.c_str(), &text) || stat(other.c_str(), &made)) { return true; }
    const struct timespec a = text.st_ctim, b = made.st_mtim;
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

// the first source whose text may be another than when `manifest` was written, though its name,
// size and time are the same: standard input, a FIFO, a file that was replaced. "" if none
static std::string source_unsure(const Tokenizing& z, const std::string& manifest) {
    for (auto& t : z.files) {
        struct stat st;
        const bool file = t.path != "-" && !stat(t.path.c_str(), &st) && S_ISREG(st.st_mode);
        if (!file || changed_since(t.path, manifest)) { return t.path; }
    }
    return "";
}

// The output directory: new, or left unfinished by an earlier run, which starts over. False if all
// is there already. Nothing is removed but what tokenize made.
static bool tokenizing_directory(const Tokenizing& z) {
    const std::string path = z.o.out + "/manifest.json",
                      another = "choose another -o, or remove that directory";
    const bool there = is_there(path);
    const std::string old = there ? file_read(path) : "";
    const bool ours = tokenizing_manifest_ours(old),
               complete = ours && old.find("{\"complete\": true") == 0,
               unfinished = ours && !complete;
    if (complete && old.find(z.made) != std::string::npos) {
        const std::string unsure = source_unsure(z, path);
        if (unsure.empty()) { return false; }
        const std::string what = unsure == "-" ? "standard input" : unsure;
        die(EXIT_USER,
            z.o.out + ": holds shards already, and " + what + " may be other text than theirs",
            another);
    }
    if (complete) {
        die(EXIT_USER, z.o.out + ": holds shards of other text, or made with other options",
            another);
    }
    for (auto& name : dir_list(z.o.out)) {
        const bool made = unfinished ? tokenizing_ours(name)
                                     : name == "lock" || is_temporary(name, "manifest.json");
        if (!made) {
            die(EXIT_USER, z.o.out + ": holds files that tokenize did not make, such as " + name,
                "choose an empty directory for -o");
        }
    }
    for (auto& name : dir_list(z.o.out)) {
        if (name != "lock") { unlink((z.o.out + "/" + name).c_str()); }
    }
    tokenizing_manifest(z, false);                       // nobody takes what follows for all of it
    tokenizing_keep_tokenizer(z);
    return true;
}

int tokenize_main(const TokenizeOptions& o) {
    // lives to the end: if the program dies, threads may still look at it
    Tokenizing* z = new Tokenizing;
    z->o = o;
    if (o.out.empty()) {
        die(EXIT_USER, "tokenize: wanted a directory for the shards",
            o.files.size() == 1 && o.files[0] != "-"
                ? hint_for("./train_sink tokenize FILE -o data/NAME", o.files[0])
                : "./train_sink tokenize FILE... -o DIR");
    }
    std::vector<std::string> names;
    for (auto& f : o.files) { tokenizing_files(f, &names); }
    z->val_from = names.size();
    for (auto& f : o.val_files) { tokenizing_files(f, &names); }
    for (auto& name : names) {
        z->files.push_back(TextFile());
        z->files.back().path = name;
        z->total_bytes += std::max(0L, file_size(name));
    }
    z->tok = tokenizer_of(o.tokenizer.empty() ? "bytes" : o.tokenizer);
    tokenizing_check(z);
    z->made = tokenizing_made(*z);
    DirLock lock;
    make_dirs(o.out);
    if (!o.locked) { lock = dir_lock(o.out, "wait until it ends, or choose another -o"); }
    if (!tokenizing_directory(*z)) {
        fprintf(stderr, "%s: complete already, from the same files\n",
                printable(o.out).c_str());
        dir_unlock(&lock);
        delete z;
        return 0;
    }
    z->start_ms = now_ms();
    tokenizing_run(z);
    const TextCounts& c = z->counts;
    if (c.documents == 0) {
        die(EXIT_USER, strf("%s: got no documents%s", names[0].c_str(),
                            z->dropped ? " of these domains" : ""));
    }
    if (tokenizing_made(*z) != z->made) {
        die(EXIT_USER, names[0] + ": a file of this text was written to while it was read",
            "try again when nobody writes to it");
    }
    tokenizing_manifest(*z, true);
    dir_sync(z->o.out);
    double s = std::max(1e-3, (now_ms() - z->start_ms) / 1e3);
    if (!o.quiet) {
        std::string also;
        if (c.replaced) { also += strf("; %ld ill-formed sequences became U+FFFD", c.replaced); }
        if (c.skipped) { also += strf("; %ld bad records skipped", c.skipped); }
        if (c.begun) { also += strf("; %ld documents bring BOS and got no second one", c.begun); }
        if (z->dropped) {
            also += strf("; %ld documents of other domains or over their share left out",
                         z->dropped);
        }
        const std::string name = printable(o.shown.empty() ? o.out : o.shown);
        fprintf(stderr, "%s: %ld document%s, %ld tokens (%s), %.1f MB in %.1f s, %.1f MB/s%s\n",
                name.c_str(), c.documents, c.documents == 1 ? "" : "s", c.tokens,
                printable(z->tok.name).c_str(), c.bytes / 1e6, s, c.bytes / 1e6 / s, also.c_str());
    }
    dir_unlock(&lock);
    delete z;
    return 0;
}
