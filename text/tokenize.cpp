/*
text/tokenize.cpp -- reads, encodes and writes in one loop. In reading order: the job; series
of shards; reading, encoding, writing; what is checked before; the directory; tokenize_main.
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
};

static void write_manifest(const Job& job, bool complete) {
    const std::vector<SeriesSums> all(job.series.begin(), job.series.end());
    manifest_write(job.o.out, job.tok, job.o.bos, job.counts, all, job.made, complete);
}

static std::string made_now(const Job& job) {
    return tokenize_made(job.o, job.tok, job.names, job.val_from);
}

// ----------------------------------------------------------------------------
// series of shards

static std::string shard_name(const ShardSeries& s) {
    return s.name + strf("_%06zu.bin", s.shards.size());
}

static void series_commit(ShardSeries* s) {
    shard_commit(&s->out);
    s->shards.push_back({ shard_name(*s), s->out.n, s->out.hashes, {} });
    s->open = false;
}

static void series_put(ShardSeries* s, const Job& job, const uint32_t* ids, long n) {
    const long most = job.o.shard_tokens;
    const bool masked = !job.o.sft.empty();              // those ids take 4 bytes
    const int width = job.tok.vocab_size <= 65536 && !masked ? 2 : 4;
    while (n > 0) {
        if (s->open && s->out.n == most) { series_commit(s); }
        if (!s->open) { s->out = shard_begin(job.o.out + "/" + shard_name(*s), width); }
        s->open = true;
        const long count = std::min(n, most - s->out.n);
        shard_put(&s->out, ids, count);
        s->tokens += count;
        ids += count;
        n -= count;
    }
}

// Returns the series that a document goes to, made when it is first met; NULL if it is not wanted.
static ShardSeries* series_of(Job* job, const TextDoc& doc, bool val_file) {
    const bool chosen = mix64(job->document, STREAM_VAL) < job->o.val_fraction * 0x1p64;
    const bool val = val_file || chosen;
    double share = 0;
    if (!job->shares.empty()) {
        const auto is_this = [&](const DomainShare& d) { return d.domain == doc.domain; };
        const auto wanted = std::find_if(job->shares.begin(), job->shares.end(), is_this);
        if (wanted == job->shares.end()) { return NULL; }
        share = wanted->share;
    }
    std::string name = val ? "val" : "train";
    if (!doc.domain.empty()) { name += "_" + doc.domain; }
    for (auto& s : job->series) {
        if (s.name != name) { continue; }
        const bool reached = s.limit && s.tokens >= s.limit;
        return reached ? NULL : &s;
    }
    job->series.emplace_back();
    ShardSeries* s = &job->series.back();
    s->name = name;
    const bool limited = !val && share > 0;
    if (limited) { s->limit = std::max(1L, (long)(job->o.tokens * share)); }     // 0 is no limit
    return s;
}

// Tells whether there are as many training tokens as were asked for.
static bool is_full(const Job& job) {
    if (!job.o.tokens) { return false; }
    long tokens = 0;
    long shares = 0;
    long reached = 0;
    for (auto& s : job.shares) { shares += s.share > 0; }
    for (auto& s : job.series) {
        if (starts_with(s.name, "train")) { tokens += s.tokens; }
        reached += s.limit > 0 && s.tokens >= s.limit;
    }
    return shares ? reached == shares : tokens >= job.o.tokens;
}

// Puts a document, or a part of one, into its series.
static void put_document(Job* job, ShardSeries* s, const uint32_t* ids, long n, bool whole) {
    series_put(s, *job, ids, n);
    s->documents += whole;
    job->counts.documents += whole;
    job->counts.tokens += n;
}

static bool in_val_file(const Job& job, const TextBlock& b) {
    return job.val_from <= (size_t)(b.file - job.files.data());
}

// Puts a document of a block, ids [begin, doc.end), where it goes.
static void write_document(Job* job, const TextBlock& b, const TextDoc& doc, size_t begin) {
    const bool val_file = in_val_file(*job, b);
    if (job->full && !val_file) { return; }
    ShardSeries* s = series_of(job, doc, val_file);
    if (!s) {
        job->counts.dropped += doc.whole;
        return;
    }
    put_document(job, s, &b.ids[begin], (long)(doc.end - begin), doc.whole);
    job->full = is_full(*job);
    const bool reached = s->limit ? s->tokens >= s->limit : job->full;
    if (reached && !doc.whole && !val_file) {            // a long text ends here
        const uint32_t eos = job->tok.eos;
        put_document(job, s, &eos, 1, true);
    }
}

static void write_block(Job* job, const TextBlock& b) {
    size_t begin = 0;
    for (auto& doc : b.docs) {
        write_document(job, b, doc, begin);
        begin = doc.end;
        job->document += doc.whole;
    }
    TextCounts& all = job->counts;
    all.bytes += b.counts.bytes;
    all.replaced += b.counts.replaced;
    all.skipped += b.counts.skipped;
    all.begun += b.counts.begun;
}

// ----------------------------------------------------------------------------
// reading, encoding, writing

// Returns how many bytes of the files are read, packed as they are.
static long bytes_read(const Job& job) {
    long done = 0;
    for (size_t i = 0; i < job.file; i++) { done += file_size(job.names[i]); }
    const bool open_file = job.file < job.files.size() && job.files[job.file].raw > 0;
    if (open_file) { done += std::max(0L, (long)lseek(job.files[job.file].raw, 0, SEEK_CUR)); }
    return done;
}

static void show_progress(Job* job) {
    if (job->o.quiet || !isatty(2) || now_ms() - job->shown_ms < 300) { return; }
    job->shown_ms = now_ms();
    const double seconds = (job->shown_ms - job->start_ms) / 1e3;
    const double done = std::min(1.0, (double)bytes_read(*job) / std::max(1L, job->total_bytes));
    const double left = done > 0 ? seconds / done - seconds : 0;
    const double mb = job->counts.bytes / 1e6;
    fprintf(stderr, "\rtokenize %3.0f%% | %.1f MB text | %.1f MB/s | %.2fM tokens | ETA %d:%02d ",
            done * 100, mb, mb / seconds, job->counts.tokens / 1e6, (int)(left / 60),
            (int)left % 60);
}

// Reads the next block of the files. Returns false if there is none.
static bool read_block(Job* job, TextBlock* b) {
    const bool rest_unwanted = job->full && job->file < job->val_from;
    if (rest_unwanted) { job->file = job->val_from; }
    while (job->file < job->files.size()) {
        TextFile& t = job->files[job->file];
        if (t.path.empty()) { t = text_open(job->names[job->file]); }
        const bool got = text_next(&t, job->tok, b);
        job->file += !got || b->last;
        if (got) { return true; }
    }
    return false;
}

// The blocks that are read, encoded and written at once: the first n of them.
struct Batch {
    std::vector<TextBlock> blocks;
    size_t n = 0;
};

static void read_batch(Job* job, Batch* b) {
    b->n = 0;
    while (b->n < b->blocks.size() && read_block(job, &b->blocks[b->n])) { b->n++; }
}

// Writes the blocks in the order of the text. Returns the error of the first broken record, or "".
// What was read ahead when there were tokens enough is left out: how much that is depends on the
// number of threads.
static std::string write_batch(Job* job, const Batch& batch) {
    for (size_t k = 0; k < batch.n; k++) {
        const TextBlock& b = batch.blocks[k];
        if (job->full && !in_val_file(*job, b)) { continue; }
        write_block(job, b);
        if (!b.error.empty()) { return b.error; }
    }
    show_progress(job);
    return "";
}

// Encodes a batch, some blocks for each thread, while one thread writes the batch before it and
// reads the next. Returns the error of a broken record, or "".
static std::string run_batches(Job* job) {
    const int wanted = job->o.threads > 0 ? job->o.threads : omp_get_max_threads();
    const int threads = std::max(1, threads_given(wanted + 1) - 1);  // one writes and reads
    Batch before, now, next;
    for (auto* b : { &before, &now, &next }) { b->blocks.resize(3 * threads); }
    std::string error;
    const auto write_and_read = [&] {
        error = write_batch(job, before);
        if (error.empty()) { read_batch(job, &next); }
    };
    read_batch(job, &now);
    while (now.n > 0 && error.empty()) {
        std::future<void> beside = std::async(write_and_read);
        #pragma omp parallel for schedule(dynamic) num_threads(threads)
        for (size_t k = 0; k < now.n; k++) { text_encode(job->tok, job->o, &now.blocks[k]); }
        beside.get();
        std::swap(before, now);
        std::swap(now, next);
    }
    return error.empty() ? write_batch(job, before) : error;
}

static void run_job(Job* job) {
    const std::string error = run_batches(job);
    if (isatty(2) && !job->o.quiet) { fprintf(stderr, "\r\033[K"); }
    for (auto& s : job->series) {                        // what came before a bad record is kept
        if (s.open) { series_commit(&s); }
    }
    if (!error.empty()) { die(error, text_advice(error)); }
}

// ----------------------------------------------------------------------------
// what is checked before

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
        const bool text = is_dir(below) || text_format(below) != TEXT_UNKNOWN;
        if (text) { add_file(below, out, seen); }
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
    const bool number = parse_double(given.substr(colon + 1), &domain.share);
    if (!number || domain.share <= 0) {
        die("--domains " + given + ": wanted NAME or NAME:SHARE");
    }
    return domain;
}

static void set_shares(Job* job) {
    TokenizeOptions& o = job->o;
    if (o.domains == "paper") { o.domains = PAPER_DOMAINS; }
    if (o.domains == "all") { return; }
    double sum = 0;
    for (auto& given : split(o.domains, ',')) {
        const DomainShare domain = parse_domain(given);
        for (auto& other : job->shares) {
            if (other.domain == domain.domain) {
                die("--domains " + o.domains + ": wanted every domain once");
            }
        }
        job->shares.push_back(domain);
        sum += domain.share;
        if ((domain.share > 0) != (job->shares[0].share > 0)) {
            die("--domains: some have a share and some have none");
        }
    }
    if (sum == 0) { return; }
    for (auto& domain : job->shares) { domain.share /= sum; }
    if (!o.tokens) {
        die("--domains with shares: wanted the number of tokens to share out",
            "add --train-tokens N");
    }
}

// Dies if there is no text, and says what is there instead.
static void check_files(const Job& job) {
    if (!job.files.empty()) { return; }
    FileKind other;
    for (auto& path : job.o.files) {
        if (other.what.empty()) { other = kind_in_dir(path, READS_TOKENS); }
    }
    die("tokenize: got no text files" + other.what,
        other.hint.empty() ? "./train_sink tokenize FILE... -o DIR" : other.hint);
}

// Dies if a file of --val is read for training, too. Prints a note of one that is read twice.
static void check_twice(const Job& job) {
    std::map<std::pair<dev_t, ino_t>, std::vector<size_t>> seen;     // place -> its files
    for (size_t i = 0; i < job.names.size(); i++) {
        const std::string& path = job.names[i];
        struct stat st;
        if (path == "-" || stat(path.c_str(), &st) || !S_ISREG(st.st_mode)) { continue; }
        std::vector<size_t>& same = seen[{ st.st_dev, st.st_ino }];
        same.push_back(i);
        const bool both = same[0] < job.val_from && i >= job.val_from;
        if (both) {
            die("--val " + path + ": this file is also in the training data",
                "leave --val out: a part of the text is held out; or name other text");
        }
        if (same.size() == 2) { note(path + ": is read more than once"); }
    }
}

static void check_job(Job* job) {
    const TokenizeOptions& o = job->o;
    set_shares(job);
    if (o.val_fraction < 0 || o.val_fraction >= 1) {
        die(strf("--val-fraction %g: wanted 0 or more, and less than 1", o.val_fraction));
    }
    if (o.bos != "none" && o.bos != "doc") {
        die("--bos " + o.bos + ": wanted none or doc");
    }
    if (o.shard_tokens < 1 || o.shard_tokens > 2000000000) {
        die(strf("--shard-tokens %ld: wanted 1 to 2000000000", o.shard_tokens));
    }
    if (job->tok.eos < 0) {
        die(job->tok.name + ": the tokenizer has no EOS to put after documents",
            "name it in tokenizer_config.json: {\"eos_token\": ...}");
    }
    if (o.bos == "doc" && job->tok.bos < 0) {
        die(job->tok.name + ": the tokenizer has no BOS", "leave --bos out");
    }
    check_files(*job);
    check_twice(*job);
}

// ----------------------------------------------------------------------------
// the directory

// Returns the first source whose text may be another than when the manifest was written, though its
// name, size and time are the same: standard input, a FIFO, a file that was replaced. "" if none.
static std::string source_unsure(const Job& job, const std::string& manifest) {
    for (auto& path : job.names) {
        const bool file = path != "-" && is_regular(path);
        if (!file || changed_since(path, manifest)) { return path; }
    }
    return "";
}

// Tells whether a finished directory holds the shards of this very text. Dies if they are others.
static void check_finished(const Job& job, const std::string& path, const std::string& manifest) {
    const std::string hint = "choose another -o, or remove that directory";
    if (!contains(manifest, job.made)) {
        die(job.o.out + ": holds shards of other text, or made with other options",
            hint);
    }
    const std::string unsure = source_unsure(job, path);
    if (unsure.empty()) { return; }
    const std::string what = unsure == "-" ? "standard input" : unsure;
    die(job.o.out + ": holds shards already, and " + what +
            " may be other text than theirs", hint);
}

// Makes the output directory ready: it is new, or left unfinished by an earlier run, which starts
// over. Returns false if all is there already. Removes nothing but what tokenize made.
static bool prepare_directory(const Job& job) {
    const std::string path = job.o.out + "/manifest.json";
    const std::string manifest = is_there(path) ? file_read(path) : "";
    if (manifest_is_complete(manifest)) {
        check_finished(job, path, manifest);
        return false;
    }
    const bool unfinished = manifest_is_ours(manifest);
    for (auto& name : dir_list(job.o.out)) {
        const bool new_file = name == "lock" || is_temporary(name, "manifest.json");
        const bool made = unfinished ? tokenize_ours(name) : new_file;
        if (made) { continue; }
        die(job.o.out + ": holds files that tokenize did not make, such as " + name,
            "choose an empty directory for -o");
    }
    for (auto& name : dir_list(job.o.out)) {
        if (name != "lock") { unlink((job.o.out + "/" + name).c_str()); }
    }
    write_manifest(job, false);                          // nobody takes what follows for all of it
    // the tokenizer goes with its shards: -d DIR needs nothing else
    for (auto& file : job.tok.files) { file_write(job.o.out + "/" + file.first, file.second); }
    return true;
}

// ----------------------------------------------------------------------------

// Prints a line for each domain with a share: its tokens, and what was wanted. Warns of those that
// the text has too little of.
static void print_domains(const Job& job) {
    long all = 0;
    std::string few;
    for (auto& domain : job.shares) {
        if (!domain.share) { continue; }
        const double wanted = job.o.tokens * domain.share;
        long got = 0;
        for (auto& s : job.series) {
            if (s.name == "train_" + domain.domain) { got = s.tokens; }
        }
        all += got;
        if (got < 0.95 * wanted) { list_add(&few, domain.domain, ", "); }
        fprintf(stderr, "domain %-20s wanted %11.0f tokens, got %11ld (%.0f%%)\n",
                printable(domain.domain).c_str(), wanted, got, 100 * got / wanted);
    }
    if (few.empty()) { return; }
    fprintf(stderr, "warning: %ld of %ld training tokens: less than 95%% of the share of %s\n",
            all, job.o.tokens, printable(few).c_str());
}

static void print_summary(const Job& job) {
    const TextCounts& c = job.counts;
    const double seconds = std::max(1e-3, (now_ms() - job.start_ms) / 1e3);
    const double mb = c.bytes / 1e6;
    std::string also;
    if (c.replaced) { also += strf("; %ld ill-formed sequences became U+FFFD", c.replaced); }
    if (c.skipped) { also += strf("; %ld bad records skipped", c.skipped); }
    if (c.begun) { also += strf("; %ld documents bring BOS and got no second one", c.begun); }
    if (c.dropped) {
        also += strf("; %ld documents of other domains or over their share left out", c.dropped);
    }
    const std::string name = printable(job.o.shown.empty() ? job.o.out : job.o.shown);
    const std::string documents = plural(c.documents, "document");
    fprintf(stderr, "%s: %s, %ld tokens (%s), %.1f MB in %.1f s, %.1f MB/s%s\n", name.c_str(),
            documents.c_str(), c.tokens, printable(job.tok.name).c_str(), mb, seconds,
            mb / seconds, also.c_str());
}

static void find_files(Job* job) {
    add_files(job->o.files, &job->names);
    job->val_from = job->names.size();
    add_files(job->o.val_files, &job->names);
    check_skip_bad(job->o.skip_bad, job->names);
    job->files.resize(job->names.size());
    for (auto& name : job->names) { job->total_bytes += std::max(0L, file_size(name)); }
}

// Tokenizes into a directory that is ready.
static void make_shards(Job* job) {
    job->start_ms = now_ms();
    run_job(job);
    if (job->counts.documents == 0) {
        const char* which = job->counts.dropped ? " of these domains" : "";
        die(job->names[0] + ": got no documents" + which);
    }
    if (made_now(*job) != job->made) {
        die(job->names[0] + ": a file of this text was written to while it was read",
            "try again when nobody writes to it");
    }
    write_manifest(*job, true);
    dir_sync(job->o.out);
    if (job->o.quiet) { return; }
    print_domains(*job);
    print_summary(*job);
}

void print_text(const TokenizeOptions& o) {
    Job job;
    job.o = o;
    find_files(&job);
    check_files(job);
    job.tok = tokenizer_bytes();
    TextBlock b;
    while (read_block(&job, &b)) {
        text_encode(job.tok, o, &b);
        for (uint32_t id : b.ids) { putchar(id == (uint32_t)job.tok.eos ? 0 : (int)id); }
        if (!b.error.empty()) { die(b.error, text_advice(b.error)); }
    }
    if (fflush(stdout) || ferror(stdout)) { die(EXIT_MACHINE, cannot("write", "the text")); }
}

int tokenize_main(const TokenizeOptions& o) {
    if (o.out.empty()) {
        const bool one_file = o.files.size() == 1 && o.files[0] != "-";
        die("tokenize: wanted a directory for the shards",
            one_file ? hint_for("./train_sink tokenize FILE -o data/NAME", o.files[0])
                     : "./train_sink tokenize FILE... -o DIR");
    }
    Job job;
    job.o = o;
    find_files(&job);
    job.tok = tokenizer_of(o.tokenizer.empty() ? "bytes" : o.tokenizer);
    check_job(&job);
    job.made = made_now(job);
    DirLock lock;
    make_dirs(o.out);
    if (!o.locked) { lock = dir_lock(o.out, "wait until it ends, or choose another -o"); }
    if (prepare_directory(job)) {
        make_shards(&job);
    } else {
        fprintf(stderr, "%s: complete already, from the same files\n", printable(o.out).c_str());
    }
    dir_unlock(&lock);
    return 0;
}
