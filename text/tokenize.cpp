/*
text/tokenize.cpp -- reads, encodes and writes in one loop. In reading order: files and domains that
are named; the job: series of shards, reading, encoding, writing, what is checked before, the
directory; tokenize_main.
*/
#include "tokenize.h"
#include <future>
#include <map>
#include <set>
#include <omp.h>
#include "../base/threads.h"
#include "../base/lock.h"
#include "../base/look.h"
#include "manifest.h"
#include "../base/plural.h"

static const char* const PAPER_DOMAINS =
    "arxiv,dm_mathematics,enron_emails,europarl,freelaw,github,gutenberg_pg_19,hackernews,"
    "nih_exporter,philpapers,pile_cc,pubmed_abstracts,pubmed_central,stackexchange,ubuntu_irc,"
    "uspto_backgrounds,wikipedia_en";

// ----------------------------------------------------------------------------
// the job

// One series of shards being written.
struct ShardSeries : SeriesSums {
    ShardOut out;                        // the last one, if it is
    bool open = false;
    long limit = 0;                      // tokens wanted, 0: all
};

// A domain that is wanted; share 0: all of it.
struct DomainShare {
    std::string domain;
    double share;
};

static std::string shard_name(const ShardSeries& s) {
    return s.name + strf("_%06zu.bin", s.shards.size());
}

static void series_commit(ShardSeries* s) {
    shard_commit(&s->out);
    s->shards.push_back({ shard_name(*s), s->out.n, s->out.hashes, {} });
    s->open = false;
}

// The blocks that are read, encoded and written at once: the first n of them.
struct Batch {
    std::vector<TextBlock> blocks;
    size_t n = 0;
};

// The places of directories, whatever their names: links may lead to one again and again.
typedef std::set<std::pair<dev_t, ino_t>> Places;

// Appends a file, or every .txt and .jsonl below a directory, each directory once.
static void add_file(const std::string& path, std::vector<std::string>* out, Places* seen) {
    struct stat st;
    if (!is_dir(path)) {
        text_check(path, "a directory of them");
        out->push_back(path);
        return;
    }
    if (stat(path.c_str(), &st)) { return; }
    const bool first_visit = seen->insert({ st.st_dev, st.st_ino }).second;
    if (!first_visit) { return; }
    for (auto& name : dir_list(path)) {
        const std::string below = path + "/" + name;
        if (is_dir(below) || text_format(below) != TEXT_UNKNOWN) { add_file(below, out, seen); }
    }
}

static void add_files(const std::vector<std::string>& given, std::vector<std::string>* out) {
    for (auto& path : given) {
        Places seen;
        add_file(path, out, &seen);
    }
}

// Reads NAME or NAME:SHARE.
static DomainShare parse_domain(const std::string& given) {
    const size_t colon = given.find(':');
    DomainShare domain = { domain_name(given.substr(0, colon)), 0 };
    require(!domain.domain.empty(), "--domains '" + given + "'", "the name of a domain");
    if (colon == given.npos) { return domain; }
    require(parse_double(given.substr(colon + 1), &domain.share) && domain.share > 0,
            "--domains " + given, "NAME or NAME:SHARE");
    return domain;
}

// All of a run of tokenize: what is wanted, what has been read, and what it became.
struct Job {
    TokenizeOptions o;
    Tokenizer tok;
    std::vector<std::string> names;      // of the files
    std::vector<TextFile> files;
    size_t val_from = 0;                 // files from here on go into val shards
    std::string made;                    // of tokenize_made, before the first byte is read
    std::vector<DomainShare> shares;

    size_t file = 0;                     // the one that is read
    std::vector<ShardSeries> series;
    TextCounts counts;
    uint64_t document = 0;
    bool full = false;                   // as many training tokens as were asked for
    double start_ms = 0;
    double shown_ms = 0;
    long total_bytes = 0;

    void write_manifest(bool complete) const {
        const std::vector<SeriesSums> all(series.begin(), series.end());
        manifest_write(o, tok, counts, all, made, complete);
    }

    std::string made_now() const { return tokenize_made(o, tok, names, val_from); }

    // ---- series of shards

    void series_put(ShardSeries* s, const uint32_t* ids, long n) const {
        const long most = o.shard_tokens;
        const bool masked = !o.sft.empty();              // those ids take 4 bytes
        const int width = tok.vocab_size <= 65536 && !masked ? 2 : 4;
        while (n > 0) {
            if (s->open && s->out.n == most) { series_commit(s); }
            if (!s->open) { s->out = shard_begin(o.out + "/" + shard_name(*s), width); }
            s->open = true;
            const long count = std::min(n, most - s->out.n);
            shard_put(&s->out, ids, count);
            s->tokens += count;
            ids += count;
            n -= count;
        }
    }

    // Returns the series that a document goes to, made when it is first met; NULL if it is not
    // wanted.
    ShardSeries* series_of(const TextDoc& doc, bool val_file) {
        const bool chosen = mix64(document, STREAM_VAL) < o.val_fraction * 0x1p64;
        const bool val = val_file || chosen;
        double share = 0;
        if (!shares.empty()) {
            const auto is_this = [&](const DomainShare& d) { return d.domain == doc.domain; };
            const auto wanted = std::find_if(shares.begin(), shares.end(), is_this);
            if (wanted == shares.end()) { return NULL; }
            share = wanted->share;
        }
        std::string name = val ? "val" : "train";
        if (!doc.domain.empty()) { name += "_" + doc.domain; }
        for (auto& s : series) {
            if (s.name != name) { continue; }
            const bool reached = s.limit && s.tokens >= s.limit;
            return reached ? NULL : &s;
        }
        ShardSeries& s = series.emplace_back();
        s.name = name;
        // 0 is no limit
        if (!val && share > 0) { s.limit = std::max(1L, (long)(o.tokens * share)); }
        return &s;
    }

    // Tells whether there are as many training tokens as were asked for.
    bool is_full() const {
        if (!o.tokens) { return false; }
        long tokens = 0;
        long shared = 0;                 // domains that have a share
        long reached = 0;
        for (auto& s : shares) { shared += s.share > 0; }
        for (auto& s : series) {
            if (starts_with(s.name, "train")) { tokens += s.tokens; }
            reached += s.limit > 0 && s.tokens >= s.limit;
        }
        return shared ? reached == shared : tokens >= o.tokens;
    }

    // Puts a document, or a part of one, into its series.
    void put_document(ShardSeries* s, const uint32_t* ids, long n, bool whole) {
        series_put(s, ids, n);
        s->documents += whole;
        counts.documents += whole;
        counts.tokens += n;
    }

    bool in_val_file(const TextBlock& b) const {
        return val_from <= (size_t)(b.file - files.data());
    }

    // Puts a document of a block, ids [begin, doc.end), where it goes.
    void write_document(const TextBlock& b, const TextDoc& doc, size_t begin) {
        const bool val_file = in_val_file(b);
        if (full && !val_file) { return; }
        ShardSeries* s = series_of(doc, val_file);
        if (!s) {
            counts.dropped += doc.whole;
            return;
        }
        put_document(s, &b.ids[begin], (long)(doc.end - begin), doc.whole);
        full = is_full();
        const bool reached = s->limit ? s->tokens >= s->limit : full;
        if (reached && !doc.whole && !val_file) {        // a long text ends here
            const uint32_t eos = tok.eos;
            put_document(s, &eos, 1, true);
        }
    }

    void write_block(const TextBlock& b) {
        size_t begin = 0;
        for (auto& doc : b.docs) {
            write_document(b, doc, begin);
            begin = doc.end;
            document += doc.whole;
        }
        counts.bytes += b.counts.bytes;
        counts.replaced += b.counts.replaced;
        counts.skipped += b.counts.skipped;
        counts.begun += b.counts.begun;
    }

    // ---- reading, encoding, writing

    // Returns how many bytes of the files are read, packed as they are.
    long bytes_read() const {
        long done = 0;
        for (size_t i = 0; i < file; i++) { done += file_size(names[i]); }
        if (file < files.size() && files[file].raw > 0) {
            done += std::max(0L, (long)lseek(files[file].raw, 0, SEEK_CUR));
        }
        return done;
    }

    void show_progress() {
        if (!isatty(2) || now_ms() - shown_ms < 300) { return; }
        shown_ms = now_ms();
        const double seconds = (shown_ms - start_ms) / 1e3;
        const double done = std::min(1.0, (double)bytes_read() / std::max(1L, total_bytes));
        const double left = done > 0 ? seconds / done - seconds : 0;
        const double mb = counts.bytes / 1e6;
        fprintf(stderr,
                "\rtokenize %3.0f%% | %.1f MB text | %.1f MB/s | %.2fM tokens | ETA %d:%02d ",
                done * 100, mb, mb / seconds, counts.tokens / 1e6, (int)(left / 60),
                (int)left % 60);
    }

    // Reads the next block of the files. Returns false if there is none.
    bool read_block(TextBlock* b) {
        if (full && file < val_from) { file = val_from; }        // the rest is not wanted
        while (file < files.size()) {
            TextFile& t = files[file];
            if (t.path.empty()) { t = text_open(names[file]); }
            const bool got = text_next(&t, tok, b);
            file += !got || b->last;
            if (got) { return true; }
        }
        return false;
    }

    void read_batch(Batch* b) {
        b->n = 0;
        while (b->n < b->blocks.size() && read_block(&b->blocks[b->n])) { b->n++; }
    }

    // Writes the blocks in the order of the text. Returns the error of the first broken record, or
    // "". What was read ahead when there were tokens enough is left out: how much that is depends
    // on the number of threads.
    std::string write_batch(const Batch& batch) {
        for (size_t k = 0; k < batch.n; k++) {
            const TextBlock& b = batch.blocks[k];
            if (full && !in_val_file(b)) { continue; }
            write_block(b);
            if (!b.error.empty()) { return b.error; }
        }
        show_progress();
        return "";
    }

    // Encodes a batch, some blocks for each thread, while one thread writes the batch before it and
    // reads the next. Returns the error of a broken record, or "".
    std::string run_batches() {
        const int wanted = o.threads > 0 ? o.threads : omp_get_max_threads();
        const int threads = std::max(1, threads_given(wanted + 1) - 1);  // one writes and reads
        Batch before, now, next;
        for (auto* b : { &before, &now, &next }) { b->blocks.resize(3 * threads); }
        std::string error;
        const auto write_and_read = [&] {
            error = write_batch(before);
            if (error.empty()) { read_batch(&next); }
        };
        read_batch(&now);
        while (now.n > 0 && error.empty()) {
            std::future<void> beside = std::async(write_and_read);
            #pragma omp parallel for schedule(dynamic) num_threads(threads)
            for (size_t k = 0; k < now.n; k++) { text_encode(tok, o, &now.blocks[k]); }
            beside.get();
            std::swap(before, now);
            std::swap(now, next);
        }
        return error.empty() ? write_batch(before) : error;
    }

    void run_job() {
        const std::string error = run_batches();
        if (isatty(2)) { fprintf(stderr, "\r\033[K"); }
        for (auto& s : series) {         // what came before a bad record is kept
            if (s.open) { series_commit(&s); }
        }
        if (!error.empty()) { die(error, text_advice(error)); }
    }

    // ---- what is checked before

    void set_shares() {
        if (o.domains == "paper") { o.domains = PAPER_DOMAINS; }
        if (o.domains == "all") { return; }
        double sum = 0;
        for (auto& given : split(o.domains, ',')) {
            const DomainShare domain = parse_domain(given);
            for (auto& other : shares) {
                require(other.domain != domain.domain, "--domains " + o.domains,
                        "every domain once");
            }
            shares.push_back(domain);
            sum += domain.share;
            if ((domain.share > 0) != (shares[0].share > 0)) {
                die("--domains: some have a share and some have none");
            }
        }
        if (sum == 0) { return; }
        for (auto& domain : shares) { domain.share /= sum; }
        if (!o.tokens) {
            die("--domains with shares: wanted the number of tokens to share out",
                "add --train-tokens N");
        }
    }

    // Dies if there is no text, and says what is there instead.
    void check_files() const {
        if (!files.empty()) { return; }
        FileKind other;
        for (auto& path : o.files) {
            if (other.what.empty()) { other = kind_in_dir(path, READS_TOKENS); }
        }
        die("tokenize: got no text files" + other.what,
            other.hint.empty() ? "./train_sink tokenize FILE... -o DIR" : other.hint);
    }

    // Dies if a file of --val is read for training, too. Prints a note of one that is read twice.
    void check_twice() const {
        std::map<std::pair<dev_t, ino_t>, std::vector<size_t>> seen;     // place -> its files
        for (size_t i = 0; i < names.size(); i++) {
            const std::string& path = names[i];
            struct stat st;
            if (path == "-" || stat(path.c_str(), &st) || !S_ISREG(st.st_mode)) { continue; }
            std::vector<size_t>& same = seen[{ st.st_dev, st.st_ino }];
            same.push_back(i);
            if (same[0] < val_from && i >= val_from) {
                die("--val " + path + ": this file is also in the training data",
                    "leave --val out: a part of the text is held out; or name other text");
            }
            if (same.size() == 2) { note(path + ": is read more than once"); }
        }
    }

    void check_job() {
        set_shares();
        require(o.val_fraction < 1, strf("--val-fraction %g", o.val_fraction),
                "0 or more, and less than 1");
        require(o.bos == "none" || o.bos == "doc", "--bos " + o.bos, "none or doc");
        if (tok.eos < 0) {
            die(tok.name + ": the tokenizer has no EOS to put after documents",
                "name it in tokenizer_config.json: {\"eos_token\": ...}");
        }
        if (o.bos == "doc" && tok.bos < 0) {
            die(tok.name + ": the tokenizer has no BOS", "leave --bos out");
        }
        check_files();
        check_twice();
    }

    // ---- the directory

    // Returns the first source whose text may be another than when the manifest was written, though
    // its name, size and time are the same: standard input, a FIFO, a file that was replaced. "" if
    // none.
    std::string source_unsure(const std::string& manifest) const {
        for (auto& path : names) {
            const bool file = path != "-" && is_regular(path);
            if (!file || changed_since(path, manifest)) { return path; }
        }
        return "";
    }

    // Tells whether a finished directory holds the shards of this very text. Dies if they are
    // others.
    void check_finished(const std::string& path, const std::string& manifest) const {
        const std::string hint = "choose another -o, or remove that directory";
        if (!contains(manifest, made)) {
            die(o.out + ": holds shards of other text, or made with other options", hint);
        }
        const std::string unsure = source_unsure(path);
        if (unsure.empty()) { return; }
        const std::string what = unsure == "-" ? "standard input" : unsure;
        die(o.out + ": holds shards already, and " + what +
                " may be other text than theirs", hint);
    }

    // Makes the output directory ready: it is new, or left unfinished by an earlier run, which
    // starts over. Returns false if all is there already. Removes nothing but what tokenize made.
    bool prepare_directory() const {
        const std::string path = o.out + "/manifest.json";
        const std::string manifest = is_there(path) ? file_read(path) : "";
        if (manifest_is_complete(manifest)) {
            check_finished(path, manifest);
            return false;
        }
        const bool unfinished = manifest_is_ours(manifest);
        for (auto& name : dir_list(o.out)) {
            const bool new_file = name == "lock" || is_temporary(name, "manifest.json");
            if (unfinished ? tokenize_ours(name) : new_file) { continue; }
            die(o.out + ": holds files that tokenize did not make, such as " + name,
                "choose an empty directory for -o");
        }
        for (auto& name : dir_list(o.out)) {
            if (name != "lock") { unlink((o.out + "/" + name).c_str()); }
        }
        write_manifest(false);           // nobody takes what follows for all of it
        // the tokenizer goes with its shards: -d DIR needs nothing else
        for (auto& file : tok.files) { file_write(o.out + "/" + file.first, file.second); }
        return true;
    }

    // ---- what is said in the end

    // Prints a line for each domain with a share: its tokens, and what was wanted. Warns of those
    // that the text has too little of.
    void print_domains() const {
        long all = 0;
        std::string few;
        for (auto& domain : shares) {
            if (!domain.share) { continue; }
            const double wanted = o.tokens * domain.share;
            long got = 0;
            for (auto& s : series) {
                if (s.name == "train_" + domain.domain) { got = s.tokens; }
            }
            all += got;
            if (got < 0.95 * wanted) { list_add(&few, domain.domain, ", "); }
            fprintf(stderr, "domain %-20s wanted %11.0f tokens, got %11ld (%.0f%%)\n",
                    printable(domain.domain).c_str(), wanted, got, 100 * got / wanted);
        }
        if (few.empty()) { return; }
        fprintf(stderr, "warning: %ld of %ld training tokens: less than 95%% of the share of %s\n",
                all, o.tokens, printable(few).c_str());
    }

    void print_summary() const {
        const TextCounts& c = counts;
        const double seconds = std::max(1e-3, (now_ms() - start_ms) / 1e3);
        const double mb = c.bytes / 1e6;
        std::string also;
        if (c.replaced) { also += strf("; %ld ill-formed sequences became U+FFFD", c.replaced); }
        if (c.skipped) { also += strf("; %ld bad records skipped", c.skipped); }
        if (c.begun) { also += strf("; %ld documents bring BOS and got no second one", c.begun); }
        if (c.dropped) {
            also += strf("; %ld documents of other domains or over their share left out",
                         c.dropped);
        }
        const std::string name = printable(o.shown.empty() ? o.out : o.shown);
        const std::string documents = plural(c.documents, "document");
        fprintf(stderr, "%s: %s, %ld tokens (%s), %.1f MB in %.1f s, %.1f MB/s%s\n", name.c_str(),
                documents.c_str(), c.tokens, printable(tok.name).c_str(), mb, seconds,
                mb / seconds, also.c_str());
    }

    void find_files() {
        add_files(o.files, &names);
        val_from = names.size();
        add_files(o.val_files, &names);
        check_skip_bad(o.skip_bad, names);
        files.resize(names.size());
        for (auto& name : names) { total_bytes += std::max(0L, file_size(name)); }
    }

    // Tokenizes into a directory that is ready.
    void make_shards() {
        start_ms = now_ms();
        run_job();
        if (counts.documents == 0) {
            const char* which = counts.dropped ? " of these domains" : "";
            die(names[0] + ": got no documents" + which);
        }
        if (made_now() != made) {
            die(names[0] + ": a file of this text was written to while it was read",
                "try again when nobody writes to it");
        }
        write_manifest(true);
        dir_sync(o.out);
        print_domains();
        print_summary();
    }
};

void print_text(const TokenizeOptions& o) {
    Job job;
    job.o = o;
    job.find_files();
    job.check_files();
    job.tok = Tokenizer();                               // of raw bytes
    TextBlock b;
    while (job.read_block(&b)) {
        text_encode(job.tok, o, &b);
        for (uint32_t id : b.ids) { putchar(id == (uint32_t)job.tok.eos ? 0 : (int)id); }
        if (!b.error.empty()) { die(b.error, text_advice(b.error)); }
    }
    if (fflush(stdout) || ferror(stdout)) { die(EXIT_MACHINE, cannot("write", "the text")); }
}

void tokenize_main(const TokenizeOptions& o) {
    if (o.out.empty()) {
        const bool one_file = o.files.size() == 1 && o.files[0] != "-";
        die("tokenize: wanted a directory for the shards",
            one_file ? hint_for("./train_sink tokenize FILE -o data/NAME", o.files[0])
                     : "./train_sink tokenize FILE... -o DIR");
    }
    Job job;
    job.o = o;
    job.find_files();
    job.tok = tokenizer_of(o.tokenizer.empty() ? "bytes" : o.tokenizer);
    job.check_job();
    job.made = job.made_now();
    DirLock lock;
    make_dirs(o.out);
    if (!o.locked) { lock = dir_lock(o.out, "wait until it ends, or choose another -o"); }
    if (job.prepare_directory()) {
        job.make_shards();
    } else {
        fprintf(stderr, "%s: complete already, from the same files\n", printable(o.out).c_str());
    }
    dir_unlock(&lock);
}
