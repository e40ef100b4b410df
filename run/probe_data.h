/*
probe_data.h -- the sequences that probe and eval measure: from the data of a run, from files,
random or repeated tokens.
*/
#ifndef PROBE_DATA_H
#define PROBE_DATA_H
#include "../flags.h"
#include "../base/json.h"
#include "../tokenizer.h"

// What a checkpoint says about the data it was trained on; without it, or with -d, `own` is false.
struct ProbeData {
    bool own = false;
    bool other_task = false;                     // a flag makes another one of the built-in task
    int T = 0;
    std::vector<long> held;
    std::vector<std::string> hashes;             // of the sources, as they were then
    std::vector<std::string> sources;
};

// Finds what to measure: -d, or without it the held-out part of what the checkpoint was trained on.
// Tokens that are drawn have one source, --probe-input.
ProbeData probe_data(Flags* f, const Json& state);

// The token that comes first. id: -1, nothing; label: as it is printed.
struct ProbeBos { int id = -1; std::string label = "none"; };

// Reads --bos: default (the tokenizer's own), none, seq or doc (its BOS), or a token, by its text
// or its id.
ProbeBos probe_bos(const Flags& f, int V);

// Another --bos, "" if there is none, and what to say of it.
struct OtherBos { std::string bos, note; };

// Finds the --bos that the model or its run had where this command has none: what is found at
// token 1 depends on it. state: of a run of ours, which knows its own --bos.
OtherBos bos_other(const Flags& f, const Json& state, int V);

// Prints the note. then: what follows from it for the user.
void bos_note(const OtherBos& other, const std::string& then);

// Returns the flags of the run that made a checkpoint; an object without fields for another's
// model.
Json trained_flags(const std::string& checkpoint);

// Returns what they say of data; given_data: whether they say any.
Flags trained_data(const Json& trained);

// Returns a note, as a line, if a run (trained_data) had a --random-token or --fix-token, and `f`
// has others or none; "" if not. After one if its built-in task is not that of `f`.
std::string trained_notes(const Flags& was, const Flags& f);

// Returns the token that every sequence of a run began with, by --fix-token 1:ID or --bos seq; -1
// if there was none.
long first_token(const Flags& f, const Tokenizer& tok);

// Lets the tokenizer put before a text what --bos of generate and score says: by default the token
// that the run began every sequence with, as the tokenizer of its export does; else its own. V: ids
// of the model. Returns a note of what the run had, as a line, or "".
std::string begin_texts(Tokenizer* tok, const Flags& f, int V);

// Sequences (n, T + 1), and what they are, in words.
struct ProbeInput { std::vector<int> x; int n = 0; std::string how; };

// Makes the sequences that --probe-input asks for, of source k of p.
ProbeInput probe_inputs(const Flags& f, const ProbeBos& bos, const ProbeData& p, size_t k,
                        int T, int V);

// Returns the flags that change what is read, or how, as they are typed: edits of tokens (those of
// the run, too), --window, --prefix; "" for none.
std::string input_flags(const Flags& f);

// Returns the name of --probe-input.
std::string input_name(const Flags& f);

// Adds what was measured: checkpoint, bos, flags and input.
void input_fields(JsonObject* o, const Flags& f, const std::string& bos, const ProbeInput& in);

// Checks that --random-token and --fix-token name what sequences of up to T tokens and V ids have,
// and that --json would replace no source.
void probe_files_check(const Flags& f, const ProbeData& p, int T, int V);
#endif // PROBE_DATA_H
