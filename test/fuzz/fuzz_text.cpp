// fuzz_text.cpp -- libFuzzer: real tokenizers on any text. Ids in range;
// the parts of a text that may be cut give the ids of the whole.
//     dev/fuzz/libfuzzer.sh text -max_total_time=600
#include "../../text/text_files.h"
#include "../../text/encode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static std::vector<Tokenizer>* all = [] {
        std::string here = __FILE__;
        here = here.find('/') == std::string::npos ? "." : here.substr(0, here.rfind('/'));
        auto* v = new std::vector<Tokenizer>;
        for (auto name : {"neox", "gpt2", "llama3", "llama2", "llama2_first"}) {
            v->push_back(tokenizer_load(here + "/../vectors/" + name + ".json"));
        }
        return v;
    }();
    if (!size) { return 0; }
    std::string text((const char*)data + 1, size - 1);   // the first byte chooses the tokenizer
    utf8_repair(&text);
    const Tokenizer& t = (*all)[data[0] % all->size()];
    std::vector<int> ids = tokenizer_encode(t, text, false);
    for (int id : ids) { if (id < 0 || id >= t.vocab_size) { abort(); } }
    std::string back = tokenizer_decode(t, ids.data(), ids.size(), false);
    if (contains(t.name, "gpt2") && back != text) { abort(); }
    size_t cut = text_cut(t, text);
    if (!cut) { return 0; }
    Ids parts;
    tokenizer_encode_to(t, text.data(), cut, true, &parts);
    tokenizer_encode_to(t, text.data() + cut, text.size() - cut, false, &parts);
    if (std::vector<int>(parts.begin(), parts.end()) != ids) { abort(); }
    return 0;
}
