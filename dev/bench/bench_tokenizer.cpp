// bench_tokenizer TOKENIZER DOCS.jsonl [IDS] -- encode each document (a JSON string a line)
// five times on one thread; prints CPU seconds of the best round, bytes and ids;
// writes the ids as int32, -1 after each document. For bench_tokenizer.py.
#include "../../text/bpe.h"
#include "../../text/encode.h"

static double cpu_s() {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char** argv) {
    if (argc < 3) { die("usage: bench_tokenizer TOKENIZER DOCS.jsonl [IDS]"); }
    Tokenizer t = tokenizer_load(argv[1]);
    std::vector<std::string> docs;
    long bytes = 0, count = 0;
    for (auto& line : split(file_read(argv[2]), '\n')) {
        Json j; std::string error;
        if (line.empty()) { continue; }
        if (!json_parse(line.data(), line.size(), &j, &error)) { die(error); }
        docs.push_back(j.string); bytes += (long)j.string.size();
    }
    double best = 1e30;
    Ids ids;
    for (int round = 0; round < 5; round++) {
        double start = cpu_s();
        count = 0;
        for (auto& d : docs) {
            ids.clear();
            tokenizer_encode_to(t, d.data(), d.size(), true, &ids);
            count += (long)ids.size();
        }
        best = std::min(best, cpu_s() - start);
    }
    printf("{\"seconds\": %.6f, \"bytes\": %ld, \"ids\": %ld}\n", best, bytes, count);
    if (argc > 3) {
        FILE* f = xfopen(argv[3], "wb");
        for (auto& d : docs) {
            ids.clear();
            tokenizer_encode_to(t, d.data(), d.size(), true, &ids);
            ids.push_back(NO_ID);
            fwrite(ids.data(), 4, ids.size(), f);
        }
        fclose(f);
    }
}
