// fuzz_tokenizer.cpp -- libFuzzer: any tokenizer.json is loaded or refused,
// any text is encoded and decoded, without a crash.
//     dev/fuzz/libfuzzer.sh tokenizer -close_fd_mask=3 -max_total_time=600 -max_len=20000 CORPUS
//         test/vectors
// The input is a tokenizer.json; what follows a zero byte, if there is one, is text for it.
// A refusal throws instead of ending the program.
#include "../../text/tokenizer_build.h"
#include "../refused.h"
#include "../../text/encode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (!throws) { return 0; }
    std::string all((const char*)data, size),
        text = "Hello  <s>world\n\nit's 123 caf\xC3\xA9 e\xCC\x81 \xE2\x96\x81x";
    size_t zero = all.find('\0');
    if (zero != std::string::npos) { text += all.substr(zero + 1); all.resize(zero); }
    Json j; std::string error;
    TokenizerBuild t;
    t.path = "/nowhere/fuzz";
    t.kind = TOKENIZER_BPE; t.vocab_size = 0;
    t.hash = hash_bytes(all.data(), all.size());
    try {
        if (!json_parse(all.data(), all.size(), &j, &error)) { return 0; }
        tokenizer_load_json(&t, j);
        tokenizer_finish(&t);
    } catch (Refused&) { return 0; }
    std::vector<int> ids = tokenizer_encode(t, text, false);
    for (int id : ids) { if (id < 0 || id >= t.vocab_size) { abort(); } }
    for (int skip = 0; skip < 2; skip++) { tokenizer_decode(t, ids.data(), ids.size(), skip); }
    int odd[] = { -1, 0, t.vocab_size, 1 << 30 };
    tokenizer_decode(t, odd, 4, false);
    return 0;
}
