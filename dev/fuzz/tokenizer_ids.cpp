// tokenizer_ids TOKENIZER [specials] < strings.jsonl -- one JSON string a line in, {"ids", "text",
// "skipped"} a line out: for fuzz_tokenizer.py
#include "../../text/encode.h"
#include <iostream>

int main(int argc, char** argv) {
    if (argc < 2) { die("usage: tokenizer_ids TOKENIZER [specials] < strings.jsonl"); }
    Tokenizer t = tokenizer_load(argv[1]);
    std::string line, error;
    while (std::getline(std::cin, line)) {
        Json j;
        if (!json_parse(line.data(), line.size(), &j, &error)) { die(error); }
        std::vector<int> ids = tokenizer_encode(t, j.string, argc > 2);
        printf("{\"ids\":[");
        for (size_t i = 0; i < ids.size(); i++) { printf("%s%d", i ? "," : "", ids[i]); }
        printf("],\"text\":%s,\"skipped\":%s}\n",
               json_str(tokenizer_decode(t, ids.data(), ids.size(), false)).c_str(),
               json_str(tokenizer_decode(t, ids.data(), ids.size(), true)).c_str());
    }
}
