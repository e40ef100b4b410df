/*
text/shards_of_others.cpp -- token files of lit-gpt, TinyLlama and Megatron.
*/
#include "shards_of_others.h"
#include "../base/look.h"

// Returns how many bytes a token has by the code that LITPKDS and Megatron give its dtype; 0 if it
// is no integer.
static int width_of_dtype(int code) {
    const int widths[] = { 0, 1, 1, 2, 4, 8, 0, 0, 2 };
    return code >= 0 && code <= 8 ? widths[code] : 0;
}

// Parses lit-gpt's and TinyLlama's form: a header of 24 bytes, then as many tokens as it says.
void litpkds_parse(Shard* s, const unsigned char* p, long size) {
    const int code = p[15];
    const auto version = load<uint64_t>(p + 7);
    const auto count = load<uint64_t>(p + 16);
    s->width = width_of_dtype(code);
    if (version != 1 || !s->width) {
        die(s->path + strf(": got LITPKDS version %llu, dtype %d, wanted version 1 and "
                           "an integer dtype", (unsigned long long)version, code));
    }
    const long held = (size - 24) / s->width;
    if (count > (uint64_t)held) {
        die(s->path + strf(": got %ld tokens, wanted the %llu its header promises: "
                           "truncated", held, (unsigned long long)count),
            "make it again with: ./train_sink tokenize FILE... -o DIR");
    }
    s->format = "LITPKDS";
    s->tokens = p + 24;
    s->n = count;
}

int bare_width(const std::string& path, int bare) {
    const std::string index = path.substr(0, path.rfind('.')) + ".idx";
    const std::string header = file_begin_bytes(index, 18);
    if (header.size() < 18 || header.compare(0, 9, std::string("MMIDIDX\0\0", 9))) {
        return bare;
    }
    const int width = width_of_dtype(header[17]);
    if (!width) {
        die(path + strf(": got dtype %d by %s, wanted an integer", header[17], index.c_str()));
    }
    if (bare && bare != width) {
        die(path + strf(": got tokens of %d bytes by its .idx, wanted %d by --bin", width, bare),
            "leave --bin out");
    }
    return width;
}
