/*
text/bos.cpp -- which token --bos means, by the tokenizer of a model.
*/
#include "bos.h"
#include "encode.h"

long bos_named(const Flags& f, const Tokenizer& tok, int V) {
    const std::string given = "--bos " + f.bos;
    if (f.bos == "seq" || f.bos == "doc") {
        require(tok.bos >= 0, given + ": the tokenizer " + tok.name + " has no BOS", "none");
        return tok.bos;
    }
    const bool by_default = f.bos == "default";
    const std::vector<int> ids = tokenizer_encode(tok, by_default ? "" : f.bos, by_default);
    long id = ids.size() == 1 ? ids[0] : -1;
    if (by_default) { return id; }
    const bool number = parse_long(f.bos, &id);
    require(ids.size() == 1 || number, given, "default, none, seq, doc, or one token of the model");
    require(id >= 0 && id < V, given, strf("an id below %d", V));
    return id;
}

ProbeBos bos_of_probe(const Flags& f, int V) {
    const Tokenizer tok = tokenizer_of(f.tokenizer);
    const bool by_default = f.bos == "default";
    const bool fixed = by_default && first_token(f, tok) >= 0;
    long id = -1;
    if (by_default && !fixed) { id = first_token(trained_data(trained_flags(f.words[0])), tok); }
    if (id < 0 && !fixed) { id = bos_named(f, tok, V); }
    require(id < V, "--bos " + f.bos, strf("an id below %d", V));
    const int one = id;
    std::string label = fixed ? "fixed" : "none";
    if (one >= 0) { label = tokenizer_decode(tok, &one, 1, false); }
    if (by_default) { label = "default: " + label; }
    if (f.bos == "doc") { label += " before documents"; }
    return { one, label };
}

OtherBos bos_of_template(const Flags& f, int V) {
    const Tokenizer tok = tokenizer_of(f.tokenizer);
    if (tok.before.empty()) { return {}; }
    const std::string first = tokenizer_decode(tok, tok.before.data(), tok.before.size(), false);
    const std::string begins = "the model's tokenizer begins a text with " + printable(first);
    const std::string note = begins + ", and here it does not";
    if (tok.before.size() == 1 && tok.before[0] < V) { return { "default", note }; }
    return { "", note + ": it is not one token of the model" };
}
