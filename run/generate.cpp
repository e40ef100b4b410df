/*
run/generate.cpp -- the command generate: text from a checkpoint.
*/
#include "generate.h"
#include <sstream>
#include "../core/directory.h"
#include "../core/positions.h"
#include "../core/train_sink.h"
#include "commands.h"
#include "open_model.h"
#include "probe_data.h"
#include "../core/kv_cache.h"

// Names the first place in the model where what is loaded gives values that are not all finite.
// Layers count from 0.
static std::string first_not_finite(Model* m) {
    std::vector<real> x((size_t)rows(m) * m->arch.C);
    std::string first;
    auto look = [&](const real* device, const std::string& name) {
        ops::to_host(x.data(), device, x.size() * sizeof(real));
        auto not_finite = [](real v) { return !std::isfinite((float)v); };
        if (first.empty() && std::any_of(x.begin(), x.end(), not_finite)) { first = name; }
    };
    model_layers(m, [&](int l) {
        if (l < 0) {
            look(act_x(m, 0), "the embedding");
            return;
        }
        const std::string layer = strf("layer %d", l);
        if (m->arch.parallel) {
            look(act_x(m, 2 * l + 2), layer);
            return;
        }
        const std::string mixer = m->sizes.has_attention(l) ? "attention" : mixer_of(m->arch);
        look(act_x(m, 2 * l + 1), "the " + mixer + " of " + layer);
        look(act_x(m, 2 * l + 2), "the FFN of " + layer);
    });
    look(lm_head_input(m), "the last norm");
    return first.empty() ? "the head" : first;
}

void die_not_finite(Model* m) {
    die(EXIT_DIVERGED, "the model's values are not finite, first in " + first_not_finite(m),
        "its run diverged: use an earlier checkpoint");
}

// A token and its logit, or its share.
typedef std::pair<double, int> Likely;

// Orders tokens from the likeliest; of equal ones the smaller id comes first.
static bool likelier(const Likely& a, const Likely& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// Sets p (V) to the logits of the token that follows.
static void next_logits(Model* m, const std::vector<int>& tokens, std::vector<Likely>* p) {
    const int C = m->arch.C;
    const int V = m->arch.V;
    const real* n_last = model_forward_last(m, tokens);
    ops::matmul_forward(m->acts.logits, n_last, m->params.lmw.w, m->params.lmb.w, NULL, 1, C, V);
    std::vector<real> logits(V);
    ops::to_host(logits.data(), m->acts.logits, V * sizeof(real));

    const double cap = m->arch.logit_cap;
    p->resize(V);
    for (int v = 0; v < V; v++) {
        double l = (float)logits[v];
        if (cap) { l = cap * tanh(l / cap); }
        if (!std::isfinite(l) && !work_stopped()) { die_not_finite(m); }
        (*p)[v] = { l, v };
    }
}

// Draws one of the `keep` likeliest tokens.
static int draw_token(std::vector<Likely>* logits, long keep, double temperature, Rng* rng) {
    std::vector<Likely>& p = *logits;
    const long V = p.size();
    std::partial_sort(p.begin(), p.begin() + (keep < V ? keep : 1), p.end(), likelier);
    double sum = 0;
    const double top = p[0].first;
    for (long k = 0; k < keep; k++) {
        p[k].first = keep == 1 ? 1 : exp((p[k].first - top) / temperature);
        sum += p[k].first;
    }

    double u = rng_uniform(rng) * sum;
    long k = 0;
    while (k < keep - 1) {
        u -= p[k].first;
        if (u < 0) { break; }
        k++;
    }
    return p[k].second;
}

void generate(Model* m, std::vector<int>* tokens, long n, double temperature, long top_k,
              Rng* rng, const std::vector<int>& stops) {
    const int V = m->arch.V;
    long keep = V;
    if (top_k > 0) {
        keep = std::min<long>(top_k, V);
    }
    if (temperature == 0) {
        keep = 1;
    }

    std::vector<Likely> p;
    model_cache(m, std::min<size_t>(tokens->size() + n, m->arch.T));
    for (long i = 0; i < n; i++) {
        next_logits(m, *tokens, &p);
        if (work_stopped()) { break; }
        const int token = draw_token(&p, keep, temperature, rng);
        if (has(stops, token)) { break; }
        tokens->push_back(token);
    }
    model_cache(m, 0);
}

// Returns the prompt as tokens: of text, or ids.
static std::vector<int> prompt_tokens(const Flags& f, const Tokenizer& tok, int V) {
    require(tok.kind != TOKENIZER_BPE || utf8_valid(f.prompt),
            "--prompt: bytes that are not UTF-8", "UTF-8");
    if (has_text(tok)) { return text_folder->encode(tok, f.prompt, false); }
    std::vector<int> tokens;
    std::istringstream words(f.prompt);
    for (std::string w; words >> w;) {
        long id = 0;
        require(parse_long(w, &id) && id >= 0 && id < V, "--prompt " + w,
                strf("token ids 0..%d, separated by spaces: there is no tokenizer", V - 1));
        tokens.push_back(id);
    }
    return tokens;
}

// Puts around the tokens of a text what the tokenizer does. A text that begins with it already gets
// no second one. Returns how many stand before the text now.
static size_t put_around(const Tokenizer& tok, std::vector<int>* ids) {
    const std::vector<int>& first = tok.before;
    const bool begun = ids->size() >= first.size() &&
                       std::equal(first.begin(), first.end(), ids->begin());
    if (!begun) { ids->insert(ids->begin(), first.begin(), first.end()); }
    ids->insert(ids->end(), tok.after.begin(), tok.after.end());
    return begun ? 0 : first.size();
}

// Returns the tokens that end a text, as the tokenizer and the model's files say, and sets *first
// to the BOS of those files, if they name one.
static std::vector<int> generation_config(const std::string& dir, const Tokenizer& tok, int V,
                                          int* first) {
    std::vector<int> ends = tok.ends;
    if (tok.eos >= 0) { ends.push_back(tok.eos); }
    if (text_folder) {
        const std::vector<int> said = text_folder->generation(dir, V, first);
        ends.insert(ends.end(), said.begin(), said.end());
        return ends;
    }
    const std::string path = dir + "/generation_config.json";
    if (file_exists(path)) { note(path + ": without the folder text/, it is not read"); }
    ends.push_back(json_number(json_if_there(dir + "/config.json"), "eos_token_id", -1));
    return ends;
}

// Prints the text that continues a prompt, with the prompt in front if it was typed.
int command_generate(Flags f) {
    flags_check(f, COMMAND_generate);
    Model m = model_from_checkpoint(&f, 0, STAY_ALL);
    Tokenizer tok = f.tokenizer.empty() ? tokenizer_ids("ids", m.arch.V)
                                        : tokenizer_of(f.tokenizer);
    const bool text = has_text(tok);
    if (text) { text_folder->vocabulary_check(tok, m.arch.V); }
    fprintf(stderr, "%s", begin_texts(&tok, f, m.arch.V).c_str());

    int first = text_begin(tok, m.arch.V);
    const std::vector<int> ends = generation_config(f.words[0], tok, m.arch.V, &first);
    const bool piped = f.prompt == "-";
    if (piped) {
        f.prompt.clear();
        for (int c; (c = getchar()) != EOF;) { f.prompt += (char)c; }
    }
    std::vector<int> tokens = prompt_tokens(f, tok, m.arch.V);
    const size_t before = put_around(tok, &tokens);
    if (text) { text_folder->ids_check(tok, tokens.data(), tokens.size(), m.arch.V); }
    if (tokens.empty()) {
        tokens.push_back(first);
        f.prompt.clear();
    }

    const size_t given = piped || f.prompt.empty() ? tokens.size() : before;
    Rng rng = rng_stream(f.seed, SEED_GENERATE);
    // the last token that is written is not read
    const long most = rope_limit(m.arch);
    long room = f.tokens;
    if (most < LONG_MAX) { room = std::min(room, std::max(0L, most + 1 - (long)tokens.size())); }
    const size_t full = tokens.size() + room;
    generate(&m, &tokens, room, f.temperature, f.top_k, &rng, ends);
    std::string answer = tokenizer_decode(tok, tokens.data() + given, tokens.size() - given, true);
    if (isatty(1)) { answer = printable(answer, "\n\t"); }           // a file gets it as it is
    fwrite(answer.data(), 1, answer.size(), stdout);
    printf("\n");
    fflush(stdout);
    if (room < f.tokens && tokens.size() == full) {
        positions_extend(&m, most + 1 + sink_rows(&m));
    }
    model_free(&m);
    return 0;
}
