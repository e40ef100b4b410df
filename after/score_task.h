/*
score_task.h -- what score asks: a task file, its items, and each item as tokens. All records of a
file have one of four forms:

    {"context": "..", "choices": ["..", ".."], "gold": 0}        which choice is the likeliest?
    {"contexts": ["..", ".."], "continuation": "..", "gold": 1}  after which context is it that?
    {"context": "..", "continuation": ".."}                      is each of its tokens that?
    {"text": "..", "words": 12, "bytes": 60}                     all of it (counted if not given)

A blank separates context and continuation, unless a record has another "delimiter", or one of the
two brings white space of its own: a blank is not doubled.
*/
#ifndef SCORE_TASK_H
#define SCORE_TASK_H
#include "../tokenizer.h"

// The tokens from `from` on are scored, each given all before it.
struct ScoreRequest {
    std::vector<int> tokens;
    size_t from = 0;
    double loglik = 0;                           // the sum of log p, in nats
    bool greedy = true;                          // each of them is the likeliest
};

enum ScoreForm { SCORE_CHOICES, SCORE_CONTEXTS, SCORE_CONTINUATION, SCORE_TEXT };

struct ScoreItem {
    long number = 0;                             // of its record in the file, from 0
    std::string cannot;                          // why it cannot be scored, or ""
    std::vector<ScoreRequest> requests;
    std::vector<long> characters;                // of each choice, without the delimiter
    long gold = 0;
    long words = 0;
    long bytes = 0;
};

// An item that cannot be scored: which record, from 0; where it stands and why.
struct ScoreLeft {
    long number;
    std::string why;
};

struct ScoreTask {
    std::string path;
    ScoreForm form = SCORE_CHOICES;
    std::vector<ScoreItem> items;
    long cut = 0;                                // requests that lost the start of their context
    std::vector<ScoreLeft> left;
};

// How text becomes tokens.
struct ScoreText {
    const Tokenizer& tok;
    int prefix;                                  // what precedes a text without a context
    std::string prefix_text;
    long longest;                                // tokens that the model sees at once
    int V;                                       // ids of the model
};

// Returns BOS, or EOS if the tokenizer's own files name no BOS; -1 if it has neither.
int score_prefix(const Tokenizer& tok);

// Reads the first `limit` records of a file (0: all). Ends the program at a record that is none, or
// if no item can be scored.
ScoreTask score_read(const std::string& path, const ScoreText& how, long limit);
#endif // SCORE_TASK_H
