/*
text/sample.cpp -- a text that a run's model writes at an evaluation.
*/
#include "../optional.h"
#include "../run/generate.h"
#include "../run/train.h"
#include "bos.h"
#include "encode.h"

// Writes a text from the model as it is now, in the log and, unless it is noise, on the screen.
static void run_sample(Run* r, long step) {
    const Flags& f = r->f;
    const Tokenizer& tok = r->data.tokenizer;
    if (dist::rank() > 0 || !f.sample || !has_text(tok)) { return; }
    Rng rng = rng_stream(f.seed, mix64(SEED_SAMPLE, step));
    const long first = first_token(f, tok);
    std::vector<int> tokens = { first < 0 ? text_begin(tok, r->m.arch.V) : (int)first };
    ops::tune_products(false);                           // a length for each token, used once
    generate(&r->m, &tokens, f.sample, 1.0, 0, &rng);
    ops::tune_products(true);
    if (work_stopped()) { return; }
    std::string text = decode(tok, tokens.data() + 1, tokens.size() - 1, true);
    utf8_repair(&text);

    JsonObject o;
    o.text("event", "sample");
    o.count("step", step);
    o.text("text", text);
    log_line(&r->log, o);
    if (step > 0 || !f.init.empty()) {           // the weights are no longer random
        printf("sample %s\n", printable(json_str(text)).c_str());
    }
}

extern const TextModel TEXT_MODEL;
const TextModel TEXT_MODEL = { bos_named, bos_of_probe, bos_of_template, run_sample };
