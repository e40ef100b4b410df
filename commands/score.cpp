/*
commands/score.cpp -- the command score: how likely a model finds given texts. Multiple choice
(HellaSwag, ARC, PIQA, WinoGrande), the last word of a passage (LAMBADA), and whole texts
(WikiText). The numbers are those of lm-evaluation-harness 0.4.13, item by item
(dev/peers/check_score.py).

A task is a .jsonl file; all its records have one of four forms:

    {"context": "..", "choices": ["..", ".."], "gold": 0}        which choice is the likeliest?
    {"contexts": ["..", ".."], "continuation": "..", "gold": 1}  after which context is it that?
    {"context": "..", "continuation": ".."}                      is each of its tokens that?
    {"text": "..", "words": 12, "bytes": 60}                     all of it (counted if not given)

A blank separates context and continuation, unless a record has another "delimiter", or one of the
two brings white space of its own: a blank is not doubled.

An item that cannot be scored, such as a continuation without a token of its own, is named, counted
and left out.
*/
#include "../log.h"
#include "../shell/process.h"
#include "../shell/run_dir.h"
#include "../text/look.h"
#include "../train_sink.h"
#include "commands.h"
#include "generate.h"
#include "open_model.h"
#include "../kv_cache.h"

// ---- what is asked

// The tokens from `from` on are scored, each given all before it.
struct ScoreRequest {
    std::vector<int> tokens;
    size_t from = 0;
    double loglik = 0;                           // the sum of log p, in nats
    bool greedy = true;                          // is each of them the likeliest?
};

enum ScoreForm { SCORE_CHOICES, SCORE_CONTEXTS, SCORE_CONTINUATION, SCORE_TEXT };

struct ScoreItem {
    long number = 0;                             // of its record in the file, from 0
    std::string cannot;                          // why it cannot be scored, or ""
    std::vector<ScoreRequest> requests;
    std::vector<long> characters; // of each choice, without the delimiter
    long gold = 0, words = 0, bytes = 0;
};

// An item that cannot be scored: which record, from 0; where it stands and why.
struct ScoreLeft { long number; std::string why; };

struct ScoreTask {
    std::string path;
    ScoreForm form = SCORE_CHOICES;
    std::vector<ScoreItem> items;
    long cut = 0; // requests that lost the beginning of their context
    std::vector<ScoreLeft> left;
};

// How text becomes tokens.
struct ScoreText {
    const Tokenizer& tok;
    bool specials;               // with the tokens that the tokenizer puts around a text
    int prefix;                  // what precedes a text without a context
    std::string prefix_text;
    long longest;                // tokens that the model sees at once
};

// ---- text to tokens

// What Python calls white space, as rstrip and \s have it.
static bool is_python_space(long c) {
    static const long OTHERS[] = { 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000 };
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || (c >= 0x2000 && c <= 0x200a)
        || std::find(std::begin(OTHERS), std::end(OTHERS), c) != std::end(OTHERS);
}

// The length of s without the white space at its end.
static size_t without_trailing_space(const std::string& s) {
    size_t end = 0;
    for (size_t i = 0; i < s.size();) {
        const long c = utf8_next(s.data(), s.size(), &i);
        if (!is_python_space(c)) { end = i; }
    }
    return end;
}

static long count_characters(const std::string& s) {
    return std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

// Stretches of white space + 1: empty words at both ends count, as in the harness.
static long count_words(const std::string& s) {
    long words = 1;
    bool before = false;
    for (size_t i = 0; i < s.size();) {
        const bool space = is_python_space(utf8_next(s.data(), s.size(), &i));
        words += space && !before;
        before = space;
    }
    return words;
}

// BOS; EOS where the tokenizer's own files name no BOS.
static int score_prefix(const Tokenizer& tok) {
    for (auto& file : tok.files) {
        if (file.first != "tokenizer_config.json") { continue; }
        Json config;
        std::string error;
        json_parse(file.second.data(), file.second.size(), &config, &error);
        const Json* bos = config.get("bos_token");
        if ((!bos || bos->type == Json::NUL) && tok.eos >= 0) { return tok.eos; }
    }
    return tok.bos >= 0 ? tok.bos : tok.eos;
}

// Tokens of a text; the specials are left out where the text begins with BOS itself.
static std::vector<int> score_encode(const ScoreText& how, const std::string& text) {
    const bool has_prefix = text.compare(0, how.prefix_text.size(), how.prefix_text) == 0;
    return tokenizer_encode(how.tok, text, how.specials && !has_prefix);
}

// What stands between context and continuation: the record's own delimiter as it is; without one a
// blank, where neither of the two brings white space of its own.
static std::string score_delimiter(const Json* given, const std::string& context,
                                   const std::string& continuation) {
    if (given) { return given->string; }
    size_t next = 0;
    const bool begins = !continuation.empty() &&
                        is_python_space(utf8_next(continuation.data(), continuation.size(), &next));
    const bool ends = without_trailing_space(context) < context.size();
    return begins || ends ? "" : " ";
}

// The request for `continuation` after `context`. White space at the end of the context goes to the
// continuation, as tokens begin with it. *cannot: why there is none, where one of them has no
// tokens of its own, or the continuation too many.
static ScoreRequest score_request(const ScoreText& how, std::string context,
                                  std::string continuation, std::string* cannot) {
    ScoreRequest r;
    const size_t end = without_trailing_space(context);
    continuation = context.substr(end) + continuation;
    if (context.empty()) {
        r.tokens = tokenizer_encode(how.tok, continuation, false);
        const bool begun = !r.tokens.empty() && r.tokens[0] == how.prefix;
        if (!begun) { r.tokens.insert(r.tokens.begin(), how.prefix); }
        r.from = 1;
    } else {
        context.resize(end);
        r.tokens = score_encode(how, context + continuation);
        r.from = score_encode(how, context).size();
    }
    const long n = (long)r.tokens.size() - (long)r.from;
    if (r.from < 1) { *cannot = "the context has no token"; }
    else if (n < 1) { *cannot = "the continuation has no token after those of the context"; }
    else if (n > how.longest) {
        *cannot = strf("a continuation of %ld tokens, and the model sees %ld at once", n,
                       how.longest);
    }
    return r;
}

// Drops the beginning of what the model cannot see at once.
static bool score_cut(ScoreRequest* r, long longest) {
    const long extra = (long)r->tokens.size() - (longest + 1);
    if (extra <= 0) { return false; }
    r->tokens.erase(r->tokens.begin(), r->tokens.begin() + extra);
    r->from -= extra;
    return true;
}

// A whole text as windows: each token is predicted once. All windows but the last are disjoint; the
// last is as long as the others and scores only what is left.
static std::vector<ScoreRequest> score_windows(const ScoreText& how, const std::string& text,
                                               std::string* cannot) {
    std::vector<int> all = score_encode(how, text);
    if (all.empty()) { *cannot = "the text has no token"; }
    all.insert(all.begin(), how.prefix);
    std::vector<ScoreRequest> windows;
    const long n = all.size() - 1, most = how.longest;
    for (long done = 0; done < n;) {
        const long end = std::min(n, done + most), begin = done ? end - most : 0;
        ScoreRequest r;
        r.tokens.assign(all.begin() + begin, all.begin() + end + 1);
        r.from = done + 1 - begin;
        windows.push_back(r);
        done = end;
    }
    return windows;
}

// ---- the file

static const std::string& score_text(const Json& record, const char* key,
                                     const std::string& where) {
    const Json* v = record.get(key);
    require(v && v->type == Json::STRING, where + ": " + key, "text");
    return v->string;
}

static std::vector<std::string> score_texts(const Json& record, const char* key,
                                            const std::string& where) {
    const Json* v = record.get(key);
    std::vector<std::string> texts;
    require(v && v->type == Json::ARRAY && !v->items.empty(), where + ": " + key,
            "a list of texts");
    for (auto& item : v->items) {
        require(item.type == Json::STRING, where + ": " + key, "a list of texts");
        texts.push_back(item.string);
    }
    return texts;
}

// A whole number from `low` to `high`.
static long score_number(const Json& record, const char* key, long low, long high,
                         const std::string& where) {
    const Json* v = record.get(key);
    const bool whole = v && v->type == Json::NUMBER && v->number == floor(v->number);
    require(whole && v->number >= low && v->number <= high, where + ": " + key,
            strf("a whole number, %ld to %ld", low, high));
    return (long)v->number;
}

static ScoreForm score_form(const Json& record, const std::string& where) {
    static const struct { const char* keys; ScoreForm form; } FORMS[] = {
        { " context choices gold delimiter ",       SCORE_CHOICES },
        { " contexts continuation gold delimiter ", SCORE_CONTEXTS },
        { " context continuation delimiter ",       SCORE_CONTINUATION },
        { " text words bytes ",                     SCORE_TEXT },
    };
    for (auto& f : FORMS) {
        bool all = record.type == Json::OBJECT && !record.fields.empty();
        for (auto& field : record.fields) {
            all = all && strstr(f.keys, (" " + field.first + " ").c_str());
        }
        if (all) { return f.form; }
    }
    std::string keys = record.fields.empty() ? "none" : "";
    for (auto& field : record.fields) { list_add(&keys, field.first); }
    die(EXIT_USER, where + ": got the keys " + keys + ", wanted context, choices, gold; "
        "contexts, continuation, gold; context, continuation; or text",
        "python3 scripts/tasks.py --help");
}

// Is the right answer one of several that are the same tokens? Then no model can choose it.
static bool score_twice(const ScoreItem& item) {
    const ScoreRequest& right = item.requests[item.gold];
    long same = 0;
    for (auto& r : item.requests) { same += r.from == right.from && r.tokens == right.tokens; }
    return same > 1;
}

// One record as an item.
static ScoreItem score_item(const Json& j, ScoreForm form, const ScoreText& how,
                            const std::string& where) {
    ScoreItem item;
    if (form == SCORE_TEXT) {
        const std::string& text = score_text(j, "text", where);
        item.requests = score_windows(how, text, &item.cannot);
        const long most = 1L << 40;
        item.words = j.get("words") ? score_number(j, "words", 1, most, where) : count_words(text);
        item.bytes = j.get("bytes") ? score_number(j, "bytes", 1, most, where) : (long)text.size();
        return item;
    }
    const bool choices = form == SCORE_CHOICES, one = form == SCORE_CONTINUATION;
    if (j.get("delimiter")) { score_text(j, "delimiter", where); }
    std::vector<std::string> contexts, continuations;
    if (choices || one) { contexts = { score_text(j, "context", where) }; }
    else { contexts = score_texts(j, "contexts", where); }
    if (choices) { continuations = score_texts(j, "choices", where); }
    else { continuations = { score_text(j, "continuation", where) }; }
    for (auto& context : contexts) {
        for (auto& continuation : continuations) {
            const std::string between = score_delimiter(j.get("delimiter"), context, continuation);
            item.requests.push_back(
                score_request(how, context, between + continuation, &item.cannot));
            item.characters.push_back(count_characters(continuation));
            if (continuation.empty()) {
                item.cannot = choices ? "a choice is empty" : "the continuation is empty";
            }
        }
    }
    if (one) { return item; }
    item.gold = score_number(j, "gold", 0, item.requests.size() - 1, where);
    if (item.cannot.empty() && score_twice(item)) {
        item.cannot = "another answer is the same tokens as the right one";
    }
    return item;
}

// The first `limit` records of a file (0: all).
static ScoreTask score_read(const std::string& path, const ScoreText& how, long limit) {
    ScoreTask task;
    task.path = path;
    long number = 0, records = 0;
    const std::string text = file_read(path, "python3 scripts/tasks.py --help");
    look(path, text.substr(0, LOOK_BYTES), text.size(), READS_RECORDS);
    for (auto& line : split(text, '\n')) {
        const std::string where = path + strf(":%ld", ++number);
        if (without_trailing_space(line) == 0) { continue; }
        if (limit && records == limit) { break; }
        if (!utf8_valid(line)) {
            die(EXIT_USER, where + ": bytes that are not UTF-8",
                "convert the file first, such as: iconv -f latin1 -t utf-8");
        }
        Json record;
        std::string error;
        const bool good = json_parse(line.data(), line.size(), &record, &error);
        if (!good) { die(EXIT_USER, where + ": " + error); }
        const ScoreForm form = score_form(record, where);
        if (records == 0) { task.form = form; }
        require(form == task.form, where + ": a record of another form than the first",
                "one form in a file");
        ScoreItem item = score_item(record, form, how, where);
        item.number = records++;
        if (!item.cannot.empty()) {
            task.left.push_back({ item.number, where + ": " + item.cannot });
            continue;
        }
        for (auto& r : item.requests) { task.cut += score_cut(&r, how.longest); }
        task.items.push_back(item);
    }
    require(records > 0, path + ": no records", "one or more");
    require(!task.items.empty(), task.left[0].why, "at least one item that can be scored");
    return task;
}

// ---- through the model

// Row `row` of what lm_head reads predicts `token` of the request.
struct ScoreRow { long row; int token; ScoreRequest* request; };

// Adds log p of every row to its request, R rows of the head at a time.
static void score_head(Model* m, const std::vector<ScoreRow>& heads, bool greedy) {
    const Arch& c = m->arch;
    const size_t C = c.C, V = c.V;
    const int at_once = m->lm_head_rows;
    std::vector<real> top(rows(m) * C);
    std::vector<real> some(at_once * C);
    std::vector<real> logits(greedy ? at_once * V : 0);
    std::vector<int> targets(at_once);
    std::vector<acc> losses(at_once);
    real* device = (real*)ops::device_malloc(some.size() * sizeof(real));
    ops::to_host(top.data(), act_top(m), top.size() * sizeof(real));
    for (size_t first = 0; first < heads.size(); first += at_once) {
        const int n = std::min<size_t>(at_once, heads.size() - first);
        for (int i = 0; i < n; i++) {
            std::copy_n(&top[heads[first + i].row * C], C, &some[i * C]);
            targets[i] = heads[first + i].token;
        }
        ops::to_device(device, some.data(), n * C * sizeof(real));
        ops::to_device(m->targets, targets.data(), n * sizeof(int));
        if (ops::lm_head_part && !greedy) {
            lm_head_losses(m, m->acts.losses, device, m->targets, n);
        } else {
            ops::matmul_forward(m->acts.logits, device, m->weights.lmw, m->weights.lmb, NULL, n, C,
                                V);
            ops::classifier(m->acts.losses, m->acts.logits, m->targets, 0, c.logit_cap, n, V);
        }
        ops::to_host(losses.data(), m->acts.losses, n * sizeof(acc));
        if (greedy) { ops::to_host(logits.data(), m->acts.logits, n * V * sizeof(real)); }
        for (int i = 0; i < n; i++) {
            ScoreRequest* r = heads[first + i].request;
            r->loglik -= losses[i];
            const real* l = &logits[greedy ? i * V : 0];
            if (greedy && std::max_element(l, l + V) - l != targets[i]) { r->greedy = false; }
        }
    }
    ops::device_free(device);
}

// How many tokens all of an item's requests begin with; the last token of a request is not read.
static size_t score_common(const ScoreItem& item) {
    const std::vector<int>& a = item.requests[0].tokens;
    size_t n = a.size() - 1;
    for (auto& r : item.requests) {
        n = std::min(n, r.tokens.size() - 1);
        n = std::mismatch(a.begin(), a.begin() + n, r.tokens.begin()).first - a.begin();
    }
    return n;
}

// Items first .. last - 1 in one batch without padding: what the requests of an item begin with is
// computed once.
static void score_forest(Model* m, ScoreItem* first, ScoreItem* last, bool greedy) {
    std::vector<int> tokens;
    std::vector<Span> forest;
    std::vector<ScoreRow> heads;
    for (ScoreItem* item = first; item < last; item++) {
        const long common = score_common(*item), root = tokens.size();
        const int parent = common ? (int)forest.size() : -1;
        const std::vector<int>& any = item->requests[0].tokens;
        if (common) { forest.push_back({ (int)root, 1, (int)common, 0, -1 }); }
        tokens.insert(tokens.end(), any.begin(), any.begin() + common);
        for (auto& r : item->requests) {
            const long own = tokens.size(), n = (long)r.tokens.size() - 1 - common;
            if (n) { forest.push_back({ (int)own, 1, (int)n, (int)common, parent }); }
            tokens.insert(tokens.end(), r.tokens.begin() + common, r.tokens.end() - 1);
            for (size_t k = r.from; k < r.tokens.size(); k++) {
                const long at = (long)k - 1;
                heads.push_back({ at < common ? root + at : own + at - common, r.tokens[k], &r });
            }
        }
    }
    model_load_forest(m, tokens, forest);
    model_body(m);
    score_head(m, heads, greedy);
}

// Requests of one length as a batch of whole sequences.
static void score_batch(Model* m, ScoreRequest* const* first, ScoreRequest* const* last,
                        bool greedy) {
    const int T = (int)(*first)->tokens.size() - 1;
    std::vector<int> seqs;
    std::vector<ScoreRow> heads;
    for (auto r = first; r < last; r++) {
        seqs.insert(seqs.end(), (*r)->tokens.begin(), (*r)->tokens.end());
    }
    model_load(m, seqs.data(), last - first, T);
    for (auto r = first; r < last; r++) {
        const long row = (r - first) * m->T + m->sizes.bias.token;
        for (size_t k = (*r)->from; k < (*r)->tokens.size(); k++) {
            heads.push_back({ row + (long)k - 1, (*r)->tokens[k], *r });
        }
    }
    model_body(m);
    score_head(m, heads, greedy);
}

static void score_progress(long done, long all) {
    const int columns = terminal_columns();
    if (columns) { progress_show({ strf("%ld of %ld items", done, all) }, columns); }
}

// All requests, in batches of one length and at most batch_rows rows.
static void score_whole(Model* m, ScoreTask* task, long batch_rows, bool greedy) {
    std::vector<ScoreRequest*> all;
    for (auto& item : task->items) { for (auto& r : item.requests) { all.push_back(&r); } }
    std::stable_sort(all.begin(), all.end(), [](ScoreRequest* a, ScoreRequest* b) {
        return a->tokens.size() < b->tokens.size();
    });
    for (size_t i = 0, end; i < all.size(); i = end) {
        const size_t n = all[i]->tokens.size(), most = std::max<size_t>(1, batch_rows / n);
        for (end = i; end < all.size() && end < i + most && all[end]->tokens.size() == n; end++) {}
        score_progress(i * task->items.size() / all.size(), task->items.size());
        score_batch(m, &all[i], all.data() + end, greedy);
    }
}

// All requests of the task, batch_rows rows at a time, or one item.
static void score_run(Model* m, ScoreTask* task, long batch_rows) {
    const bool greedy = task->form == SCORE_CONTINUATION;
    std::vector<ScoreItem>& items = task->items;
    if (!forest_fits(m)) { score_whole(m, task, batch_rows, greedy); return; }
    for (size_t i = 0, end; i < items.size(); i = end) {
        long n = 0;
        for (end = i; end < items.size() && (n < batch_rows || end == i); end++) {
            const long common = score_common(items[end]);
            n += common;
            for (auto& r : items[end].requests) { n += (long)r.tokens.size() - 1 - common; }
        }
        score_progress(i, items.size());
        score_forest(m, &items[i], items.data() + end, greedy);
    }
}

// ---- the results

struct ScoreResult { std::string name; double value, stderr_; };

static ScoreResult score_mean(const std::string& name, const std::vector<double>& x) {
    const Mean m = mean_of(x);
    return { name, m.mean, m.error };
}

// Which request has the largest value; of equals the first.
static long score_best(const ScoreItem& item, bool by_character) {
    std::vector<double> x;
    for (size_t i = 0; i < item.requests.size(); i++) {
        x.push_back(item.requests[i].loglik / (by_character ? (double)item.characters[i] : 1.0));
    }
    return std::max_element(x.begin(), x.end()) - x.begin();
}

static double score_sum(const ScoreItem& item) {
    double sum = 0;
    for (auto& r : item.requests) { sum += r.loglik; }
    return sum;
}

// sum a / sum b over the items, and the standard error of that ratio (to first order).
static ScoreResult score_ratio(const std::string& name, const std::vector<double>& a,
                               const std::vector<double>& b) {
    const size_t n = a.size();
    double sum_a = 0, sum_b = 0;
    for (size_t i = 0; i < n; i++) { sum_a += a[i]; sum_b += b[i]; }
    std::vector<double> rest;
    for (size_t i = 0; i < n; i++) { rest.push_back((a[i] - sum_a / sum_b * b[i]) * n / sum_b); }
    return { name, sum_a / sum_b, score_mean("", rest).stderr_ };
}

// exp of a mean and its standard error, to first order.
static ScoreResult score_exp(const std::string& name, const ScoreResult& r) {
    return { name, exp(r.value), exp(r.value) * r.stderr_ };
}

static std::vector<ScoreResult> score_results(const ScoreTask& task) {
    std::vector<double> acc, norm, loss, words, bytes, bits;
    for (auto& item : task.items) {
        const double sum = score_sum(item);
        loss.push_back(-sum);
        words.push_back(item.words);
        bytes.push_back(item.bytes);
        bits.push_back(-sum / log(2));
        if (task.form == SCORE_CONTINUATION) { acc.push_back(item.requests[0].greedy); continue; }
        if (task.form == SCORE_TEXT) { continue; }
        acc.push_back(score_best(item, false) == item.gold);
        if (task.form == SCORE_CHOICES) { norm.push_back(score_best(item, true) == item.gold); }
    }
    if (task.form == SCORE_CONTINUATION) {
        return { score_mean("acc", acc), score_exp("perplexity", score_mean("", loss)) };
    }
    if (task.form == SCORE_TEXT) {
        return { score_exp("word_perplexity", score_ratio("", loss, words)),
                 score_exp("byte_perplexity", score_ratio("", loss, bytes)),
                 score_ratio("bits_per_byte", bits, bytes) };
    }
    if (task.form == SCORE_CONTEXTS) { return { score_mean("acc", acc) }; }
    return { score_mean("acc", acc), score_mean("acc_norm", norm) };
}

static std::string score_left_json(const ScoreTask& task, const ScoreLeft& left) {
    return "{\"task\":" + json_str(task.path) + strf(",\"item\":%ld", left.number) +
           ",\"left_out\":" + json_str(left.why) + "}\n";
}

// One line of --items for every item, in the order of the file: the log-likelihoods of its
// requests.
static std::string score_items_json(const ScoreTask& task) {
    std::string o;
    auto left = task.left.begin();
    for (auto& item : task.items) {
        for (; left != task.left.end() && left->number < item.number; left++) {
            o += score_left_json(task, *left);
        }
        std::string loglik, greedy;
        for (auto& r : item.requests) {
            list_add(&loglik, json_num(r.loglik), ",");
            list_add(&greedy, r.greedy ? "true" : "false", ",");
        }
        if (task.form == SCORE_TEXT) { loglik = json_num(score_sum(item)); }
        o += "{\"task\":" + json_str(task.path) + strf(",\"item\":%ld", item.number);
        o += ",\"loglik\":[" + loglik + "]";
        if (task.form == SCORE_CONTINUATION) { o += ",\"greedy\":[" + greedy + "]"; }
        o += "}\n";
    }
    for (; left != task.left.end(); left++) { o += score_left_json(task, *left); }
    return o;
}

// Prints the results of a task and returns them as an object.
static std::string score_report(const ScoreTask& task, const std::string& bos, double seconds) {
    const size_t n = task.items.size();
    progress_end();
    printf("%s: %zu items, bos %s, %.1f items/s", printable(task.path).c_str(), n,
           printable(bos).c_str(), n / seconds);
    if (task.cut) { printf(", %ld cut at the front to fit the model", task.cut); }
    if (!task.left.empty()) { printf(", %zu left out", task.left.size()); }
    printf("\n");
    std::string o = "{\"task\":" + json_str(task.path);
    o += strf(",\"n\":%zu,\"cut\":%ld,\"left_out\":%zu,\"bos\":", n, task.cut, task.left.size()) +
         json_str(bos);
    o += ",\"seconds\":" + json_num(seconds);
    for (auto& r : score_results(task)) {
        const bool percent = r.name.compare(0, 3, "acc") == 0;
        const double by = percent ? 100 : 1;
        printf("  %-16s %10.4f%s", printable(r.name).c_str(), r.value * by, percent ? " %" : "");
        printf(std::isnan(r.stderr_) ? "\n" : "  +- %.4f\n", r.stderr_ * by);
        o += ",\"" + r.name + "\":" + json_num(r.value);
        o += ",\"" + r.name + "_stderr\":" + json_num(r.stderr_);
    }
    return o + "}";
}

// ---- the command

// refuses at once what could only fail after the work is done
static std::vector<std::string> score_files(const Flags& f) {
    const std::vector<std::string> files = split(f.task, ',');
    const char* make = "make one: python3 scripts/tasks.py --help";
    if (files.empty()) {
        die(EXIT_USER, "--task: wanted a .jsonl of records, or several: A,B", make);
    }
    for (auto& path : files) { if (!file_exists(path)) { file_read(path, make); } }
    std::vector<std::string> others = files_read(f, files);
    for (auto& path : { f.json, f.items }) {
        output_check(path, others);
        others.push_back(path);
    }
    return files;
}

// how this model's tokenizer reads text, as the flags want it
static ScoreText score_how(const Flags& f, const Model& m, const Tokenizer& tok) {
    const std::string bos = f.given_bos ? f.bos : "default";
    require(tok.vocab_size <= m.arch.V,
            "tokenizer " + tok.name + strf(": got %d ids", tok.vocab_size),
            strf("at most the model's %d", m.arch.V));
    require(bos == "default" || bos == "none", "--bos " + bos,
            "default (what the tokenizer puts there) or none");
    require(f.max_length <= m.arch.T || !m.sizes.pe.learnable,
            strf("--max-length %ld", f.max_length),
            strf("at most the %d positions of the model", m.arch.T));
    const int prefix = score_prefix(tok);
    require(prefix >= 0, "tokenizer " + tok.name + ": no BOS and no EOS",
            "one, to begin a text with");
    return { tok, bos == "default", prefix, tokenizer_decode(tok, &prefix, 1, false),
             f.max_length ? f.max_length : m.arch.T };
}

// Names the items that were left out, the first of many, and dies: what is printed is not the whole
// task.
static void score_left_check(const std::vector<ScoreLeft>& left, long all) {
    if (left.empty()) { return; }
    const size_t most = 20;
    for (size_t i = 0; i < left.size() && i < most; i++) {
        fprintf(stderr, "left out %s\n", printable(left[i].why).c_str());
    }
    if (left.size() > most) { fprintf(stderr, "and %zu more\n", left.size() - most); }
    die(EXIT_USER, strf("%zu of %ld items could not be scored and were left out", left.size(), all),
        "the numbers are those of the others; mend these records to score all");
}

// each file of --task: prints what was found, writes --json and --items
int command_score(Flags f) {
    const std::vector<std::string> files = score_files(f);
    Model m = model_from_checkpoint(&f, f.max_length, cpu::STAY_ALL);
    require(!m.arch.prefix, f.words[0] + strf(": prefix %d", m.arch.prefix),
            "none: a continuation must not see itself");
    require(!f.tokenizer.empty(),
            f.words[0] + ": the checkpoint has no tokenizer to read text with",
            "--tokenizer tokenizer.json, or bytes");
    const Tokenizer tok = tokenizer_of(f.tokenizer);
    const ScoreText how = score_how(f, m, tok);
    const std::string bos = how.specials && !tok.before.empty() ? tok.text[tok.before[0]] : "none";
    std::string objects, items;
    std::vector<ScoreLeft> left;
    long all = 0;
    for (auto& path : files) {
        ScoreTask task = score_read(path, how, f.limit);
        const double begin = now_ms();
        score_run(&m, &task, ops::on_host ? 2048 : 8192);
        for (auto& item : task.items) {
            if (!std::isfinite(score_sum(item))) { die_not_finite(&m); }
        }
        list_add(&objects, score_report(task, bos, (now_ms() - begin) / 1e3), ",");
        items += score_items_json(task);
        left.insert(left.end(), task.left.begin(), task.left.end());
        all += task.items.size() + task.left.size();
    }
    const std::string checkpoint = "{\"checkpoint\":" + json_str(f.words[0]);
    if (!f.json.empty()) { file_write(f.json, checkpoint + ",\"tasks\":[" + objects + "]}\n"); }
    if (!f.items.empty()) { file_write(f.items, items); }
    model_free(&m);
    score_left_check(left, all);
    return 0;
}
