/*
family.h -- a model of another family, as transformers saved it, in a build that test_families.cpp
does not have: loss, attention to the first ten tokens and the norms of the stream must be what
transformers computed. The switches of the build are defined before this is included.
*/
#ifndef FAMILY_H
#define FAMILY_H
#include "../core/defaults.h"
#include "model_unit.h"
#include "../run/open_model.cpp"
#include "answer.h"

static const int T = 33, N = 4;

static Model model_of(const std::string& dir, Stay stay = STAY_NONE) {
    Flags f;
    f.words = { dir };
    return model_from_checkpoint(&f, 0, stay);
}

// loss, attention to the first ten tokens and the norms of the stream; the weights as floats, or
// in their file
static void family_check(const std::string& name, Stay stay = STAY_NONE) {
    Model m = model_of(name, stay);
    CHECK(stay == STAY_NONE || cpu::mapped.all.size() > 8, "%s: %zu matrices stay",
          name.c_str(), cpu::mapped.all.size());
    const std::string file = file_read("test/open/families/tokens/val.bin");
    const uint16_t* ids = (const uint16_t*)(file.data() + 256 * sizeof(int));
    std::vector<int> seqs;
    for (int i = 0; i < N; i++) { for (int t = 0; t <= T; t++) { seqs.push_back(ids[i * T + t]); } }
    const Metrics r = measure(&m, seqs.data(), N, T, 2048);
    std::vector<double> alpha;
    for (int i = 0; i < N; i++) {
        for (int l = 0; l < r.L; l++) {
            for (int h = 0; h < r.NH; h++) {
                for (int k = 1; k <= METRIC_K; k++) { alpha.push_back(r.at(i, l, h).alpha[k]); }
            }
        }
    }
    answer_check(name, name, { r.loss, alpha, r.h.first, r.h.rest });
    model_free(&m);
}

static void model_from_directory(const std::string& dir) {
    Flags f;
    f.words = { dir };
    model_from_checkpoint(&f, 0, STAY_ALL);
}

// a copy of the model whose config.json has `to` in the place of the first `from` does not open
static void refused(const std::string& model, const std::string& from, const std::string& to,
                    const char* says) {
    const std::string dir = check_tmp();
    check_run("cp " + model + "/* " + dir);
    const std::string config = dir + "/config.json";
    file_write(config, replaced(file_read(config), from, to));
    check_ended(check_dies([&] { model_from_directory(dir); }), EXIT_USER, to, says);
    remove_tree(dir);
}
#endif // FAMILY_H
