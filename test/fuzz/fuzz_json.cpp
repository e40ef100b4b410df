// fuzz_json.cpp -- libFuzzer: the JSON reader never crashes, and what it reads it reads again from
// what it writes.
//     dev/fuzz/libfuzzer.sh json -max_total_time=600
#include "../../base/common.h"

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
