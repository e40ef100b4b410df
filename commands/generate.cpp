/*
commands/generate.cpp -- the command generate: text from a checkpoint.
*/
#include "generate.h"
#include "../models/directory.h"
#include "../models/gguf.h"
#include "../text/look.h"
#include "../train_sink.h"
#include "commands.h"
#include "open_model.h"
#include "../kv_cache.h"

// the first place in the model where what is loaded gives values that are not all finite, in words.
// Layers count from 0
static std::string first_not_finite(Model* m) {
    std::vector<real> x((size_t)rows(m) * m->arch.C);
    std::string first;
    auto look = [&](const real* device, const std::string& name) {
        ops::to_host(x.data(), device, x.size() * sizeof(real));
        const bool bad = std::any_of(x.begin(), x.end(),
                                     [](real v) { return !std::isfinite((float)v); });
        if (bad && first.empty()) { first = name; }
    };
    model_body(m, [&](int l) {
        if (l < 0) { look(act_x(m, 0), "the embedding"); return; }
        const char* mixer = m->sizes.attends(l) ? "attention" : mixer_of(m->arch);
        if (!m->arch.parallel) { look(act_x(m, 2 * l + 1), strf("the %s of layer %d", mixer, l)); }
        look(act_x(m, 2 * l + 2), strf(m->arch.parallel ? "layer %d" : "the FFN of layer %d", l));
    });
    look(act_top(m), "the last norm");
    return first.empty() ? "the head" : first;
}

[[noreturn]] void die_not_finite(Model* m) {
    const std::string where = first_not_finite(m);
    die(EXIT_DIVERGED, "the model's values are not finite, first in " + where,
        "the run it is from diverged: use an earlier checkpoint");
}

void generate(Model* m, std::vector<int>* tokens, long n, double temperature, long top_k,
              Rng* rng, const std::vector<int>& stops) {
    const int V = m->arch.V;
    std::vector<real> logits(V);
    std::vector<std::pair<double, int>> p(V);
    model_cache(m, std::min<size_t>(tokens->size() + n, m->arch.T));
    for (long i = 0; i < n; i++) {
        const real* n_last = model_read(m, *tokens);
        ops::matmul_forward(m->acts.logits, n_last, m->weights.lmw, m->weights.lmb, NULL, 1,
                            m->arch.C, V);
        ops::to_host(logits.data(), m->acts.logits, V * sizeof(real));
        const double cap = m->arch.logit_cap;
        for (int v = 0; v < V; v++) {
            const double l = (float)logits[v];
            p[v] = { cap ? cap * tanh(l / cap) : l, v };
        }
        for (auto& l : p) { if (!std::isfinite(l.first)) { die_not_finite(m); } }
        long keep = top_k > 0 ? std::min<long>(top_k, V) : V;
        if (temperature == 0) { keep = 1; }
        auto likelier = [](const std::pair<double, int>& a, const std::pair<double, int>& b) {
            return a.first != b.first ? a.first > b.first : a.second < b.second;
        };
        std::partial_sort(p.begin(), p.begin() + (keep < V ? keep : 1), p.end(), likelier);
        double sum = 0;
        const double top = p[0].first;
        for (long k = 0; k < keep; k++) {
            p[k].first = keep == 1 ? 1 : exp((p[k].first - top) / temperature);
            sum += p[k].first;
        }
        double u = rng_uniform(rng) * sum;
        long k = 0;
        while (k < keep - 1 && (u -= p[k].first) >= 0) { k++; }
        if (std::count(stops.begin(), stops.end(), p[k].second)) { break; }
        tokens->push_back(p[k].second);
    }
    model_cache(m, 0);
}

Chat chat_of(const std::string& checkpoint, const Tokenizer& tok, int* end) {
    const std::string gguf = checkpoint_gguf(checkpoint);
    *end = -1;
    if (gguf.empty()) { return chat_of_directory(checkpoint); }
    Chat chat;
    Gguf g = gguf_open(gguf);
    const char* key = "tokenizer.chat_template";
    if (g.find(key)) { chat.text = gguf_string(g, key); }
    *end = (int)gguf_number(g, "tokenizer.ggml.eot_token_id", -1);
    weights_close(&g.weights);
    if (tok.bos >= 0) { chat.tokens["bos_token"] = tok.text[tok.bos]; }
    if (tok.eos >= 0) { chat.tokens["eos_token"] = tok.text[tok.eos]; }
    return chat;
}

// the prompt of --chat as tokens; adds the tokens that end an answer to *ends
static std::vector<int> chat_tokens_of(const Flags& f, const Tokenizer& tok,
                                       std::vector<int>* ends) {
    int turn = -1;
    const Chat chat = chat_of(f.words[0], tok, &turn);
    require(!f.prompt.empty(), "--chat", "also --prompt, the question");
    if (chat.text.empty()) {
        die(EXIT_USER, f.words[0] + ": has no chat template, so it was not trained to answer",
            "without --chat the model continues the prompt");
    }
    const std::string prompt = chat_prompt(chat, f.system, f.prompt);
    for (int id : { turn, chat_end(chat, tok), tok.eos }) { if (id >= 0) { ends->push_back(id); } }
    return tokenizer_encode(tok, prompt, false);
}

// a text with what the tokenizer puts around it; one that brings what comes first gets no second
// one
static std::vector<int> encode_once(const Tokenizer& tok, const std::string& text) {
    std::vector<int> ids = tokenizer_encode(tok, text, false);
    const std::vector<int>& first = tok.before;
    const bool begun = ids.size() >= first.size() &&
                       std::equal(first.begin(), first.end(), ids.begin());
    if (!begun) { ids.insert(ids.begin(), first.begin(), first.end()); }
    ids.insert(ids.end(), tok.after.begin(), tok.after.end());
    return ids;
}

// the prompt as tokens: ids, a chat, or text
static std::vector<int> prompt_tokens(const Flags& f, const Tokenizer& tok, int V,
                                      std::vector<int>* ends) {
    require(f.system.empty() || f.chat, "--system", "also --chat");
    require(tok.kind != TOKENIZER_BPE || utf8_valid(f.prompt + f.system),
            "--prompt, --system: bytes that are not UTF-8", "UTF-8");
    if (tok.kind == TOKENIZER_BPE && f.chat) { return chat_tokens_of(f, tok, ends); }
    if (f.chat) {
        const bool none = f.tokenizer.empty();
        die(EXIT_USER, f.words[0] + (none ? ": has no tokenizer" : ": reads bytes") +
                           ", and --chat needs one with a chat template",
            none ? "--tokenizer tokenizer.json, or --prompt without --chat"
                 : "--prompt without --chat: the model continues it");
    }
    if (tok.kind != TOKENIZER_IDS) { return encode_once(tok, f.prompt); }
    std::vector<int> tokens;
    for (auto& w : split(f.prompt, ' ')) {
        long id = 0;
        require(parse_long(w, &id) && id >= 0 && id < V, "--prompt " + w,
                strf("token ids 0..%d, separated by spaces: this model has no tokenizer", V - 1));
        tokens.push_back(id);
    }
    return tokens;
}

// generation_config.json of a directory: the tokens that end a text; *first: its BOS, if it has
// one. What it says about drawing tokens is not done here, and that is said
static std::vector<int> generation_config(const std::string& dir, int V, int* first) {
    const std::string name = "generation_config.json", path = dir + "/" + name;
    if (!file_exists(path)) { return {}; }
    const Json config = directory_object(dir, name);
    directory_check(name, path, config);
    const std::string said = directory_said(name, config);
    if (!said.empty()) {
        fprintf(stderr, "note   %s: %s: not done here\n", path.c_str(), printable(said).c_str());
    }
    const std::vector<int> ends = directory_ends(dir);
    for (int id : ends) {
        require(id < V, path + strf(": eos_token_id %d", id), strf("below %d", V));
    }
    const double bos = json_number(config, "bos_token_id", *first);
    require(bos == floor(bos) && bos >= 0 && bos < V, path + strf(": bos_token_id %g", bos),
            strf("an id below %d", V));
    *first = (int)bos;
    return ends;
}

int command_generate(Flags f) {
    reject_unused_flags(f, "top_k", f.temperature > 0, "--temperature above 0");
    Model m = model_from_checkpoint(&f, 0, cpu::STAY_DOT);
    const Tokenizer tok = f.tokenizer.empty() ? tokenizer_ids("ids", m.arch.V)
                                              : tokenizer_of(f.tokenizer);
    require(tok.vocab_size <= m.arch.V,
            strf("tokenizer %s: got %d ids", tok.name.c_str(), tok.vocab_size),
            strf("at most the model's %d", m.arch.V));
    int first = tok.eos >= 0 ? tok.eos : m.arch.V - 1;
    std::vector<int> ends = generation_config(f.words[0], m.arch.V, &first);
    std::vector<int> tokens = prompt_tokens(f, tok, m.arch.V, &ends);
    if (tokens.empty()) { tokens.push_back(first); f.prompt.clear(); }
    const size_t given = f.prompt.empty() || f.chat ? tokens.size() : 0;
    Rng rng = rng_stream(f.seed, SEED_GENERATE);
    generate(&m, &tokens, f.tokens, f.temperature, f.top_k, &rng, ends);
    std::string text = tokenizer_decode(tok, tokens.data() + given, tokens.size() - given, true);
    if (isatty(1)) { text = printable(text, "\n\t"); }           // a file gets it as it is
    fwrite(text.data(), 1, text.size(), stdout);
    printf("\n");
    model_free(&m);
    return 0;
}
