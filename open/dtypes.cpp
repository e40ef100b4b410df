/*
open/dtypes.cpp -- a function for each type of number.
*/
#include "dtypes.h"

void read_f64(const unsigned char* p, long n, float* out) {
    for (long i = 0; i < n; i++) {
        out[i] = (float)load<double>(p + 8 * i);
    }
}

void read_f16(const unsigned char* p, long n, float* out) {
    for (long i = 0; i < n; i++) {
        out[i] = half_at(p + 2 * i);
    }
}

void read_bf16(const unsigned char* p, long n, float* out) {
    for (long i = 0; i < n; i++) {
        const uint32_t high = load<uint16_t>(p + 2 * i);
        out[i] = float_of_bits(high << 16);
    }
}

static const WeightType DTYPES[] = {
    { "BF16", 1, 2, read_bf16 }, { "F16", 1, 2, read_f16 },
    { "F64", 1, 8, read_f64 },   { "I8",  1, 1, NULL },
    { "I16",  1, 2, NULL },      { "I64",  1, 8, NULL },
    { "U8",  1, 1, NULL },       { "U16",  1, 2, NULL },
    { "U32", 1, 4, NULL },       { "U64",  1, 8, NULL },
    { "BOOL", 1, 1, NULL },      { "F8_E4M3", 1, 1, NULL },
    { "F8_E5M2", 1, 1, NULL },   { "F8_E8M0", 1, 1, NULL },
};

const WeightType* dtype_of(const std::string& name) {
    for (auto& t : DTYPES) { if (name == t.name) { return &t; } }
    return NULL;
}

static const char* const GGUF_READABLE =
    "F32, F16, BF16, F64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, "
    "IQ4_XS or MXFP4";

// Finds row i, which is elsewhere in a head with `pairs`: first come the first halves of all pairs,
// then the second halves.
const unsigned char* weight_row(const Weight& w, long r) {
    const long row_bytes = w.cols() / w.type->block * w.type->bytes;
    const long i = w.pairs ? r % w.pairs : 0;
    const long half = w.pairs / 2;
    const long from = w.pairs ? r - i + 2 * (i % half) + i / half : r;
    return (const unsigned char*)w.data + from * row_bytes;
}

void weight_rows(const Weight& w, long r0, long r1, float* out) {
    if (!w.type->read && ends_with(w.file, ".gguf")) {
        die(w.file + ": tensor '" + w.name + "' is of type " + w.type->name + ", wanted " +
            GGUF_READABLE, "python3 scripts/import_gguf.py " + w.file + " NEW.gguf");
    }
    weight_check(w);
    if (w.pairs && w.shape.size() == 1) {                // a bias: each number is a row of its own
        Weight column = w;
        column.shape = { w.count, 1 };
        return weight_rows(column, 0, w.count, out);
    }
    const long cols = w.cols();
    if (!w.pairs) {
        w.type->read(weight_row(w, r0), (r1 - r0) * cols, out);
    }
    for (long r = r0; w.pairs && r < r1; r++) {
        w.type->read(weight_row(w, r), cols, out + (r - r0) * cols);
    }
}
