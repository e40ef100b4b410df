// fuzz_json.cpp -- libFuzzer: the JSON reader never crashes, and what it reads it reads again from
// what it writes. clang++ -std=c++17 -g -O1 -fsanitize=fuzzer,address,undefined test/fuzz/fuzz_json.cpp
// text/*.cpp models/*.cpp -o build/fuzz_json && build/fuzz_json -max_total_time=600
#include "../../common.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    Json j, again; std::string error;
    if (!json_parse((const char*)data, size, &j, &error)) {
        if (error.empty()) { abort(); }
        return 0;
    }
    if (j.type == Json::STRING) {
        std::string text = json_str(j.string);
        if (!json_parse(text.data(), text.size(), &again, &error) || again.string != j.string) {
            abort();
        }
    }
    return 0;
}
