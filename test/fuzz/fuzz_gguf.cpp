// fuzz_gguf.cpp -- libFuzzer: any file is opened as GGUF, or refused, and all that it promises can
// be read; its tokenizer is taken or refused, and encodes and decodes.
//     dev/fuzz/libfuzzer.sh gguf -close_fd_mask=3 -max_total_time=600 -max_len=8192 CORPUS
//         test/vectors/gguf
#include "../../open/gguf.h"
#include "../../text/encode.h"
#include "../refused.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (!throws) { return 0; }
    // the reader sees the bytes at the end of a block of memory:
    // one byte too far and the sanitizer knows
    std::vector<char> copy(data, data + size);
    copy.shrink_to_fit();
    Gguf g;
    double sum = 0;
    try { gguf_parse({ copy.data(), size }, &g); } catch (Refused&) { return 0; }
    for (auto& v : g.values) {
        try { sum += gguf_number(g, v.first, 0); } catch (Refused&) {}
        try { for (auto& s : gguf_strings(g, v.first)) { sum += s.size(); } } catch (Refused&) {}
        try { for (float x : gguf_floats(g, v.first)) { sum += x; } } catch (Refused&) {}
    }
    for (auto& t : g.weights.tensors) {
        std::vector<float> x(t.count);
        try { weight_rows(t, 0, t.rows(), x.data()); } catch (Refused&) { continue; }
        for (float y : x) { sum += y; }
    }
    static std::string path = strf("/tmp/fuzz_gguf_%d.gguf", (int)getpid());
    if (FILE* f = fopen(path.c_str(), "wb")) { fwrite(data, 1, size, f); fclose(f); }
    Tokenizer tok;
    try { tok = tokenizer_load(path); } catch (Refused&) { return 0; }
    std::vector<int> ids = tokenizer_encode(
        tok, "Hello  <s>world\n\nit's 123 caf\xC3\xA9 e\xCC\x81 \xE2\x96\x81x", true);
    for (int id : ids) { if (id < 0 || id >= tok.vocab_size) { abort(); } }
    for (int skip = 0; skip < 2; skip++) { tokenizer_decode(tok, ids.data(), ids.size(), skip); }
    return sum == 42e42;  // 0; but the compiler must do every read to know it
}
