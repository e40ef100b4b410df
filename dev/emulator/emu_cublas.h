/*
dev/emulator/emu_cublas.h -- the few cublasLt functions that cuda/device.cuh calls,
as plain loops over column-major matrices. Emulating the library, not our wrapper,
keeps the wrapper's own logic (swapped operands, leading dimensions, transposes, types, strides)
under test. It is as strict as the library, and where the library would be silent it stops:
  - A and B of one type, C and D of one, and the two a pair that the library's table of types has;
    C laid out like D; D is C or shares no byte with A, B, C or the workspace;
    every matrix lies inside one allocation;
  - attributes are known ones of the right size; a description that was destroyed is no longer one;
  - an algorithm belongs to the description and the alignments that it was proposed for,
    and runs nowhere else. It needs a workspace of its own size, which must be there,
    and it fills the workspace with NaN;
  - there are three algorithms, each adds in another order, and which is proposed first
    depends on the description;
  - EMU_FAULT = cublas (every product fails) | noalgo (none is proposed) | badstate (the
    first proposal says that it cannot) | badalgo (the first proposal fails when it runs)
    | refused (the first proposal says when it is to run that it cannot)
    | cublasinit (the library does not start).
TO ADD an attribute: handle it in its Set function below; an unknown one stops the program.
*/
#ifndef EMU_CUBLAS_H
#define EMU_CUBLAS_H
#include <cublasLt.h>
#include <algorithm>
#include <vector>
#include "emu.h"

namespace emu {
inline std::vector<int> algorithms;  // the number, 1 to 3, of that of every product so far
enum : uint64_t { LIVE = 0x6576696C79726576, DEAD = 0x6461656464616564 };
struct MatmulDesc { uint64_t live = LIVE; int32_t transA = 0, transB = 0; };
struct MatrixLayout {
    uint64_t live;
    cudaDataType type;
    size_t rows, cols;
    int64_t ld, offset;
    int32_t count;
};
struct Preference {
    uint64_t live = LIVE, workspace = 0;
    uint32_t reduction = ~0u, align[4] = { 256, 256, 256, 256 };
};
static_assert(sizeof(MatmulDesc) <= sizeof(cublasLtMatmulDescOpaque_t), "");
static_assert(sizeof(MatrixLayout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "");
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "");
typedef cublasLtMatrixLayout_t Layout;
inline char blas_handle;                             // its address is the handle

template <class T> T& of(const void* p, const char* what) {
    if (!p || ((T*)p)->live != LIVE) { fail("cublasLt: %s was destroyed, or never made", what); }
    return *(T*)p;
}
inline const MatrixLayout& of(Layout l) { return of<MatrixLayout>(l, "a matrix layout"); }
// frees nothing, so that a later use is seen; `graves` is where a leak detector finds what is dead
inline auto& graves = *new std::vector<const void*>;
template <class T> cublasStatus_t destroy(const void* p, const char* what) {
    of<T>(p, what).live = DEAD;
    graves.push_back(p);
    return CUBLAS_STATUS_SUCCESS;
}
inline size_t width(cudaDataType type) {
    if (type != CUDA_R_32F && type != CUDA_R_16BF) {
        fail("cublasLt: type %d is not emulated", int(type));
    }
    return type == CUDA_R_32F ? 4 : 2;
}
RT inline float element(const void* x, cudaDataType type, size_t i) {
    return type == CUDA_R_32F ? ((const float*)x)[i] : widen(((const uint16_t*)x)[i]);
}
// bytes from the first to the last element
inline size_t extent(const MatrixLayout& l) {
    return ((l.count - 1) * l.offset + (l.cols - 1) * l.ld + l.rows) * width(l.type);
}
inline bool overlap(const void* p, size_t n, const void* q, size_t m) {
    return (char*)p < (char*)q + m && (char*)q < (char*)p + n;
}

// do two matrices share an element? They may lie between each other's rows
inline bool share(const void* p, const MatrixLayout& a, const void* q, const MatrixLayout& b) {
    if (!overlap(p, extent(a), q, extent(b))) { return false; }
    std::vector<bool> taken(extent(a));
    auto each = [](const MatrixLayout& l, auto f) {
        for (int n = 0; n < l.count; n++) {
            for (size_t c = 0; c < l.cols; c++) {
                f((n * l.offset + c * l.ld) * width(l.type), l.rows * width(l.type));
            }
        }
    };
    each(a, [&](size_t at, size_t n) { std::fill_n(taken.begin() + at, n, true); });
    bool found = false;
    each(b, [&](size_t at, size_t n) {
        for (size_t i = 0; i < n && !found; i++) {
            const long where = (char*)q + at + i - (char*)p;
            found = where >= 0 && where < (long)taken.size() && taken[where];
        }
    });
    return found;
}
inline void must_hold(const void* p, const MatrixLayout& l, const char* name) {
    for (auto& m : memory) { if (in(m, p, extent(l))) { return; } }
    fail("cublasLtMatmul: %s, %zu bytes, does not lie in one device allocation", name, extent(l));
}

// all that an algorithm depends on
inline uint64_t description(const MatmulDesc& m, Layout la, Layout lb, Layout lc, Layout ld) {
    uint64_t h = 14695981039346656037u;
    auto add = [&](uint64_t x) {
        for (int i = 0; i < 8; i++) { h = (h ^ (x >> 8 * i & 255)) * 1099511628211u; }
    };
    add(m.transA); add(m.transB);
    for (Layout x : {la, lb, lc, ld}) {
        const MatrixLayout& l = of(x);
        add(l.type); add(l.rows); add(l.cols); add(l.ld); add(l.offset); add(l.count);
    }
    return h;
}
inline void check_types(const MatrixLayout& a, const MatrixLayout& b, const MatrixLayout& c,
                        const MatrixLayout& d) {
    if (a.type != b.type) { fail("cublasLt: A and B differ in type"); }
    if (c.type != d.type) { fail("cublasLt: C and D differ in type"); }
    if (a.type == CUDA_R_32F && d.type != CUDA_R_32F) {
        fail("cublasLt: no product of fp32 matrices has a bf16 result");
    }
    if (c.rows != d.rows || c.cols != d.cols || c.count != d.count) {
        fail("cublasLt: C and D differ in shape");
    }
}
enum { ALGORITHMS = 3 };
inline uint64_t workspace_of(int number) { return (number - 1) * 128; }
inline cublasLtMatmulAlgo_t algorithm(int number, uint64_t hash, const uint32_t (&align)[4]) {
    cublasLtMatmulAlgo_t a{};
    a.data[0] = number; a.data[1] = hash;
    for (int i = 0; i < 4; i++) { a.data[2] |= (uint64_t)align[i] << 16 * i; }
    return a;
}

// op(X) of product number n as floats, (rows, cols) row-major
RT inline std::vector<float> widened(const void* x, const MatrixLayout& l, bool trans, int n) {
    size_t rows = trans ? l.cols : l.rows, cols = trans ? l.rows : l.cols;
    std::vector<float> out(rows * cols);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            size_t i = n * l.offset + (trans ? c + r * l.ld : r + c * l.ld);
            out[r * cols + c] = element(x, l.type, i);
        }
    }
    return out;
}
// row (M) = sum_k y_k x_k (K, M): from the first on, from the last on, or two halves
RT inline void sum_products(std::vector<float>& row, const float* x, const float* y, size_t step,
                            size_t M, size_t K, int order) {
    std::vector<float> half(order == 3 ? M : 0, 0.0f);
    std::fill(row.begin(), row.end(), 0.0f);
    for (size_t i = 0; i < K; i++) {
        const size_t k = order == 2 ? K - 1 - i : i;
        const float w = y[k * step]; const float* xk = x + k * M;
        float* to = order == 3 && k >= K / 2 ? half.data() : row.data();
        for (size_t j = 0; j < M; j++) { to[j] += w * xk[j]; }
    }
    for (size_t j = 0; j < half.size(); j++) { row[j] += half[j]; }
}
// small numbers of both signs: where only accesses are counted, what a product
// really is does not matter
RT inline void fill(void* D, const MatrixLayout& d) {
    for (int n = 0; n < d.count; n++) {
        for (size_t j = 0; j < d.cols; j++) {
            for (size_t i = 0; i < d.rows; i++) {
                const size_t at = n * d.offset + j * d.ld + i;
                const float x = 0.01f * ((int)((i * 5 + j * 3) % 7) - 3);
                if (d.type == CUDA_R_32F) { ((float*)D)[at] = x; }
                else { ((__nv_bfloat16*)D)[at] = __float2bfloat16(x); }
            }
        }
    }
}
} // namespace emu

extern "C" {
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
    if (emu::fault("cublasinit")) { return CUBLAS_STATUS_NOT_INITIALIZED; }
    *h = (cublasLtHandle_t)&emu::blas_handle;
    return CUBLAS_STATUS_SUCCESS;
}
inline const char* cublasLtGetStatusString(cublasStatus_t s) {
    return s == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED (emulated)"
         : s == CUBLAS_STATUS_NOT_INITIALIZED ? "CUBLAS_STATUS_NOT_INITIALIZED (emulated)"
         : "CUBLAS_STATUS_EXECUTION_FAILED (emulated)";
}
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t how,
                                               cudaDataType_t scale) {
    if (how != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
        emu::fail("cublasLt: only fp32 compute is emulated");
    }
    *d = (cublasLtMatmulDesc_t)new emu::MatmulDesc;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    return emu::destroy<emu::MatmulDesc>(d, "a description");
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                                     cublasLtMatmulDescAttributes_t a,
                                                     const void* v, size_t n) {
    emu::MatmulDesc& m = emu::of<emu::MatmulDesc>(d, "a description");
    if (a != CUBLASLT_MATMUL_DESC_TRANSA && a != CUBLASLT_MATMUL_DESC_TRANSB) {
        emu::fail("cublasLt: descriptor attribute %d is not emulated", int(a));
    }
    const int32_t op = n == 4 ? *(const int32_t*)v : -1;
    if (n != 4) {
        emu::fail("cublasLt: descriptor attribute %d of %zu bytes, wanted 4", int(a), n);
    }
    if (op != CUBLAS_OP_N && op != CUBLAS_OP_T) {
        emu::fail("cublasLt: transposition %d is not emulated", op);
    }
    (a == CUBLASLT_MATMUL_DESC_TRANSA ? m.transA : m.transB) = op;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutCreate(emu::Layout* l, cudaDataType t, uint64_t rows,
                                                 uint64_t cols, int64_t ld) {
    emu::width(t);
    if (!rows || !cols) { emu::fail("cublasLt: a matrix has no elements"); }
    if (ld < (int64_t)rows) {
        emu::fail("cublasLt: leading dimension %ld of %lu rows", (long)ld, (unsigned long)rows);
    }
    *l = (cublasLtMatrixLayout_t)new emu::MatrixLayout{emu::LIVE, t, rows, cols, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(emu::Layout l,
                                                       cublasLtMatrixLayoutAttribute_t a,
                                                       const void* v, size_t n) {
    emu::MatrixLayout& m = emu::of<emu::MatrixLayout>(l, "a matrix layout");
    const bool count = a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
    if (!count && a != CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) {
        emu::fail("cublasLt: layout attribute %d is not emulated", int(a));
    }
    if (n != (count ? 4 : 8)) {
        emu::fail("cublasLt: layout attribute %d of %zu bytes, wanted %d", int(a), n,
                  count ? 4 : 8);
    }
    if (count) { m.count = *(const int32_t*)v; } else { m.offset = *(const int64_t*)v; }
    if (m.count < 1 || m.offset < 0) {
        emu::fail("cublasLt: %d matrices, %ld numbers apart", m.count, (long)m.offset);
    }
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(emu::Layout l) {
    return emu::destroy<emu::MatrixLayout>(l, "a matrix layout");
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
    *p = (cublasLtMatmulPreference_t)new emu::Preference;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    return emu::destroy<emu::Preference>(p, "a preference");
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
        cublasLtMatmulPreferenceAttributes_t a, const void* v, size_t n) {
    emu::Preference& x = emu::of<emu::Preference>(p, "a preference");
    // A, B, C, D follow one another
    const int which = int(a) - int(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
    const bool align = which >= 0 && which < 4,
               space = a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    if (!align && !space && a != CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
        emu::fail("cublasLt: preference attribute %d is not emulated", int(a));
    }
    if (n != (space ? 8 : 4)) {
        emu::fail("cublasLt: preference attribute %d of %zu bytes, wanted %d", int(a), n,
                  space ? 8 : 4);
    }
    if (space) { x.workspace = *(const uint64_t*)v; }
    else if (align) { x.align[which] = *(const uint32_t*)v; }
    else { x.reduction = *(const uint32_t*)v; }
    if (align && (!x.align[which] || x.align[which] & (x.align[which] - 1))) {
        emu::fail("cublasLt: alignment %u is not a power of two", x.align[which]);
    }
    return CUBLAS_STATUS_SUCCESS;
}
inline size_t cublasLtGetVersion() { return 1; }
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                                     emu::Layout la, emu::Layout lb, emu::Layout lc,
                                                     emu::Layout ld,
                                                     cublasLtMatmulPreference_t pref, int want,
                                                     cublasLtMatmulHeuristicResult_t* r, int* n) {
    if (h != (cublasLtHandle_t)&emu::blas_handle) { emu::fail("cublasLt: no handle"); }
    const emu::Preference& p = emu::of<emu::Preference>(pref, "a preference");
    const uint64_t hash = emu::description(emu::of<emu::MatmulDesc>(desc, "a description"), la, lb,
                                           lc, ld);
    emu::check_types(emu::of(la), emu::of(lb), emu::of(lc), emu::of(ld));
    if (want < 1) { emu::fail("cublasLt: %d proposals asked for", want); }
    memset((void*)r, 0xFF, want * sizeof *r);        // what is not filled in is not zero either
    *n = 0;
    for (int i = 0; i < emu::ALGORITHMS && *n < want && !emu::fault("noalgo"); i++) {
        const int number = (hash + i) % emu::ALGORITHMS + 1;
        if (emu::workspace_of(number) > p.workspace) { continue; }
        cublasLtMatmulHeuristicResult_t& x = r[(*n)++];
        memset((void*)&x, 0, sizeof x);
        x.algo = emu::algorithm(number, hash, p.align);
        x.workspaceSize = emu::workspace_of(number);
        x.wavesCount = 1;
        if (*n > 1) { continue; }
        if (emu::fault("badstate")) { x = {}; x.state = CUBLAS_STATUS_NOT_SUPPORTED; }
        if (emu::fault("badalgo")) { x.algo.data[7] = 1; }  // fails when it runs
        if (emu::fault("refused")) { x.algo.data[7] = 2; }
    }
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              emu::Layout la, emu::Layout lb, emu::Layout lc,
                                              emu::Layout ld, const cublasLtMatmulAlgo_t* a,
                                              cublasLtMatmulHeuristicResult_t* r) {
    memset((void*)r, 0, sizeof *r);
    const uint64_t hash = emu::description(emu::of<emu::MatmulDesc>(desc, "a description"), la, lb,
                                           lc, ld);
    if (a->data[0] < 1 || a->data[0] > emu::ALGORITHMS || a->data[1] != hash) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    r->workspaceSize = emu::workspace_of((int)a->data[0]);
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc,
                                     const void* alpha, const void* A, emu::Layout la,
                                     const void* B, emu::Layout lb, const void* beta, const void* C,
                                     emu::Layout lc, void* D, emu::Layout ld,
                                     const cublasLtMatmulAlgo_t* algo, void* workspace,
                                     size_t workspace_size, cudaStream_t stream) {
    if (emu::fault("cublas") && !emu::fault("cublasinit")) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (h != (cublasLtHandle_t)&emu::blas_handle) { emu::fail("cublasLt: no handle"); }
    if (!algo) { emu::fail("cublasLtMatmul without an algorithm is not emulated"); }
    if (emu::is_device(alpha) || emu::is_device(beta)) {
        emu::fail("cublasLtMatmul: alpha and beta on the device");
    }
    const float al = *(const float*)alpha, be = *(const float*)beta;
    const cublasLtMatmulAlgo_t kept = *algo;
    auto again = [=] { // a graph has the numbers, not their addresses
        if (cublasLtMatmul(h, desc, &al, A, la, B, lb, &be, C, lc, D, ld, &kept, workspace,
                           workspace_size, stream) != CUBLAS_STATUS_SUCCESS) {
            emu::fail("cublasLtMatmul of a graph is refused");
        }
    };
    if (emu::keep(stream, again)) { return CUBLAS_STATUS_SUCCESS; }
    for (const void* p : {A, B, C, (const void*)D}) {
        if (!emu::is_device(p)) { emu::fail("cublasLtMatmul of a host pointer"); }
    }
    const emu::MatmulDesc& m = emu::of<emu::MatmulDesc>(desc, "a description");
    const emu::MatrixLayout &a = emu::of(la), &b = emu::of(lb), &c = emu::of(lc), &d = emu::of(ld);
    emu::check_types(a, b, c, d);
    const size_t M = d.rows, N = d.cols, K = m.transA ? a.rows : a.cols;
    if ((m.transA ? a.cols : a.rows) != M || (m.transB ? b.cols : b.rows) != K ||
        (m.transB ? b.rows : b.cols) != N) {
        emu::fail("cublasLt: the shapes of A, B and D do not fit");
    }
    if (a.count != d.count || b.count != d.count) {
        emu::fail("cublasLt: A, B and D differ in how many they are");
    }
    if (d.count > 1 && !d.offset) { emu::fail("cublasLt: %d products into one D", d.count); }
    emu::must_hold(A, a, "A");
    emu::must_hold(B, b, "B");
    emu::must_hold(C, c, "C");
    emu::must_hold(D, d, "D");
    if (emu::share(D, d, A, a) || emu::share(D, d, B, b)) {
        emu::fail("cublasLtMatmul: D shares memory with A or B");
    }
    const bool same = C == D && c.ld == d.ld && c.offset == d.offset;
    if (!same && emu::share(D, d, C, c)) {
        emu::fail("cublasLtMatmul: D shares memory with C and is not C");
    }

    const int number = (int)algo->data[0];
    if (number < 1 || number > emu::ALGORITHMS ||
        algo->data[1] != emu::description(m, la, lb, lc, ld)) {
        emu::fail("cublasLtMatmul: the algorithm was proposed for another description");
    }
    const void* pointers[4] = {A, B, C, D};
    for (int i = 0; i < 4; i++) {
        const uint64_t align = algo->data[2] >> 16 * i & 0xFFFF;
        if (!align || (uintptr_t)pointers[i] % align) {
            emu::fail("cublasLtMatmul: %c is not aligned to %d bytes, for which the algorithm was "
                      "proposed",
                      "ABCD"[i], int(align));
        }
    }
    const size_t need = emu::workspace_of(number);
    if (workspace_size < need) {
        emu::fail("cublasLtMatmul: a workspace of %zu bytes, the algorithm needs %zu",
                  workspace_size, need);
    }
    bool held = !workspace_size;
    for (auto& x : emu::memory) { held = held || emu::in(x, workspace, workspace_size); }
    if (!held || (uintptr_t)workspace % 16) {
        emu::fail("cublasLtMatmul: the workspace is not device memory, smaller than said, or not "
                  "16-byte aligned");
    }
    for (auto [p, l] : { std::pair<const void*, const emu::MatrixLayout*>{ A, &a },
                         { B, &b },
                         { C, &c },
                         { D, &d } }) {
        if (emu::overlap(workspace, workspace_size, p, emu::extent(*l))) {
            emu::fail("cublasLtMatmul: a matrix lies in the workspace");
        }
    }
    if (algo->data[7] == 2) { return CUBLAS_STATUS_NOT_SUPPORTED; }
    if (algo->data[7]) { return CUBLAS_STATUS_EXECUTION_FAILED; }
    for (const void* p : {A, B, C, (const void*)workspace}) { emu::touch(p, false, stream); }
    emu::touch(D, true, stream); emu::touch(workspace, true, stream);
    emu::algorithms.push_back(number);
    emu::Access access;
    memset(workspace, 0xFF, std::min(workspace_size, size_t(1) << 16));
    COUNT(if (emu::counting_on) { emu::fill(D, d); return CUBLAS_STATUS_SUCCESS; })
    for (int n = 0; n < d.count; n++) {
        std::vector<float> x = emu::widened(A, a, !m.transA, n),
                           y = emu::widened(B, b, m.transB, n);  // (K, M), (K, N)
        std::vector<float> row(M);
        for (size_t j = 0; j < N; j++) {
            emu::sum_products(row, x.data(), y.data() + j, N, M, K, number);
            for (size_t i = 0; i < M; i++) {
                const size_t at = n * d.offset + i + j * d.ld, from = n * c.offset + i + j * c.ld;
                const float old = be == 0 ? 0 : be * emu::element(C, c.type, from);
                if (d.type == CUDA_R_32F) { ((float*)D)[at] = al * row[i] + old; }
                else { ((__nv_bfloat16*)D)[at] = __float2bfloat16(al * row[i] + old); }
            }
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}
}
#endif // EMU_CUBLAS_H
