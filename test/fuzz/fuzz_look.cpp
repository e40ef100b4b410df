// fuzz_look.cpp -- libFuzzer: any first bytes are of some kind or of none, by every reader, and no
// byte behind them is read.
//     dev/fuzz/libfuzzer.sh look -max_total_time=600 -max_len=512
#include "../../text/kinds.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string first((const char*)data, size);
    first.shrink_to_fit();
    for (char reader : std::string("trgzbkjsfc") + '\0') {
        for (long whole : { -1L, (long)size, (long)size * 1000 }) {
            const FileKind k = kind_of(first, whole, (Reader)reader);
            if (k.what.empty() != k.hint.empty()) { abort(); }
            if (!k.hint.empty() && hint_for(k.hint, "a.bin").empty()) { abort(); }
        }
    }
    std::string shown = printable(first);
    if (printable(shown) != shown) { abort(); }
    return 0;
}
