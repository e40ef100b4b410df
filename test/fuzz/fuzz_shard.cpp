// fuzz_shard.cpp -- libFuzzer: any file is read as a shard, or refused, and every token
// it promises can be read.
//     dev/fuzz/libfuzzer.sh shard -close_fd_mask=3 -max_total_time=600 -max_len=4096
#include "../../dataloader.h"
#include "../refused.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (!throws) { return 0; }
    static std::string path = strf("/tmp/fuzz_shard_%d.bin", (int)getpid());
    // the reader sees the bytes at the end of a block of memory:
    // one byte too far and the sanitizer knows
    Shard s;
    unsigned char* copy = (unsigned char*)malloc(size);
    memcpy(copy, data, size);
    try { s = shard_parse(path, copy, (long)size, size % 3); } catch (Refused&) { free(copy); return 0; }
    uint64_t sum = 0;
    for (long i = 0; i < s.n; i++) { sum += (uint64_t)shard_token(s, i); }
    Tokens t;
    tokens_add(&t, s); tokens_add(&t, s);
    std::vector<int> out(s.n + 1);
    try { if (s.n) { tokens_copy(t, s.n / 2, s.n, 1 << 30, out.data()); } } catch (Refused&) {}
    free(copy);
    return sum == 42 && out.empty();  // 0; but the compiler must do every read to know it
}
