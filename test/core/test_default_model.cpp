/*
test_default_model.cpp -- the model and the run of a command line that names none, by its data and
backend; and which runs say that no sink is expected.
*/
#include "../../core/defaults.h"
#include "../model_unit.h"
#include "../../run/open_model.cpp"
#include "../../run/default_model.cpp"
#include "../check.h"

static Flags typed(const std::string& line) {
    const std::vector<std::string> words = split("train_sink train " + line, ' ');
    std::vector<char*> argv;
    for (auto& w : words) {
        if (!w.empty()) { argv.push_back((char*)w.c_str()); }
    }
    char command;
    return flags_parse(argv.size(), argv.data(), &command);
}

struct Wanted { const char* line; bool gpu; const char* model; long tokens, steps; int T, V; };
static const Wanted ROWS[] = {
    // the command of the project's own statement
    { "-d pile_5B", true, "60M", 1048576, 20000, 2048, 0 },
    { "-d pile_5B", false, "nano", 0, 1000, 128, 0 },
    { "-d my.txt --tokenizer t.json", false, "nano", 0, 1000, 128, 0 },
    { "-d A:3,B:1", true, "60M", 1048576, 20000, 2048, 0 },
    { "", true, "bb", 0, 1000, 64, 0 },
    { "-d bb", false, "bb", 0, 1000, 64, 0 },
    // what is given stays
    { "-d pile_5B -n 7 --total-batch 4096 --vocab 999", true, "60M", 4096, 7, 2048, 999 },
    { "-d pile_5B -t 1000", true, "60M", 1048000, 20000, 1000, 0 },
    { "-d pile_5B -t 512 -b 3", true, "60M", 1047552, 20000, 512, 0 },
    { "-d pile_5B --layers 2", true, "60M", 1048576, 20000, 2048, 0 },
    { "-d my.txt --layers 2", false, "nano", 0, 1000, 128, 0 },
    // a model is named: only its sizes
    { "-d pile_5B -m 60M", true, "60M", 0, 1000, 2048, 50432 },
    { "-d my.txt -m nano", true, "nano", 0, 1000, 128, 0 },
    { "-d my.txt --layers 1 --width 8 --heads 1 --ffn-width 8", true, "bb", 0, 1000, 64, 0 },
    { "--init runs/x -d my.txt", true, "bb", 0, 1000, 64, 0 },
};

static void models() {
    for (auto& w : ROWS) {
        Flags f = typed(w.line);
        const std::string note = default_model(&f, w.gpu);
        preset_apply(&f);
        const char* line = w.line;
        CHECK(f.model == w.model, "%s: -m %s", line, f.model.c_str());
        CHECK(f.total_batch == w.tokens, "%s: --total-batch %ld", line, f.total_batch);
        CHECK(f.steps == w.steps, "%s: -n %ld", line, f.steps);
        CHECK(f.arch.T == w.T, "%s: T %d", line, f.arch.T);
        CHECK(f.arch.V == w.V, "%s: V %d", line, f.arch.V);
        CHECK(f.lr == 4e-4 && f.warmup == 100, "%s: lr %g, warm-up %ld", line, f.lr, f.warmup);
        const bool chosen = !f.given_model && f.init.empty() && f.arch.C != 8;
        CHECK(note.empty() != chosen, "%s: says '%s'", line, note.c_str());
        CHECK(!chosen || contains(note, "-m " + f.model), "%s: %s", line, note.c_str());
    }
    Flags f = typed("-d my.txt");
    const std::string note = default_model(&f, false);
    const char* other = "-m 60M --total-batch 1048576 -n 20000";
    CHECK(contains(note, other), "a CPU: the paper's run is not named: %s", note.c_str());
    CHECK(contains(note, " days"), "a CPU: no days: %s", note.c_str());
}

static void notes() {
    struct { const char* line; TokenizerKind kind; long parameters; bool says; } rows[] = {
        { "-d my.txt", TOKENIZER_BYTES, 1000, true },
        { "-d my.txt --fix-token 1:0", TOKENIZER_BYTES, 1000, true },
        { "-d my.txt --fix-token 1:0", TOKENIZER_BPE, 1000, false },
        { "-d my.txt --fix-token 2:0", TOKENIZER_BPE, 1000, true },
        { "-d my.txt --random-token 1", TOKENIZER_BPE, 1000, false },
        { "-d my.txt --random-token 3,2", TOKENIZER_IDS, 1000, true },
        { "-d my.txt --bos seq", TOKENIZER_BPE, 1000, false },
        { "-d my.txt", TOKENIZER_BPE, 1000, true },
        { "-d my.txt", TOKENIZER_BPE, 100000000, false },          // of the paper's size
        { "-d my.txt --init runs/x", TOKENIZER_BPE, 1000, false },
        { "", TOKENIZER_BYTES, 1000, false },
    };
    for (auto& row : rows) {
        Data data;
        data.tokenizer.kind = row.kind;
        const std::string note = no_sink_note(typed(row.line), data, row.parameters);
        CHECK(!note.empty() == row.says, "%s: says '%s'", row.line, note.c_str());
        CHECK(note.empty() || contains(note, "docs/start.md"), "%s", note.c_str());
    }
}

int main() {
    CASE("models") { models(); }
    CASE("notes") { notes(); }
    return check_done();
}
