/*
dev/emulator/emu_cublas.h -- the few cublasLt functions that device.cuh calls, as plain loops over column-major
matrices. Emulating the library, not our wrapper, keeps the wrapper's own logic (swapped operands, leading dimensions,
transposes, types, strides) under test. TO ADD an attribute: handle it in its Set function below; an unknown one stops
the program.
*/
#ifndef EMU_CUBLAS_H
#define EMU_CUBLAS_H
#include <cublasLt.h>
#include <vector>
#include "emu.h"

namespace emu {
inline std::vector<int> algorithms;                  // of every product so far
struct MatmulDesc { int32_t transA = 0, transB = 0; };
struct MatrixLayout { cudaDataType type; size_t rows, cols; int64_t ld, offset; int32_t count; };
static_assert(sizeof(MatmulDesc) <= sizeof(cublasLtMatmulDescOpaque_t), "");
static_assert(sizeof(MatrixLayout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "");
typedef cublasLtMatrixLayout_t Layout;
inline const MatrixLayout& of(Layout l) { return *(const MatrixLayout*)l; }
inline float element(const void* x, cudaDataType type, size_t i) {
    return type == CUDA_R_32F ? ((const float*)x)[i] : widen(((const uint16_t*)x)[i]);
}

// op(X) of product number n as floats, (rows, cols) row-major
inline std::vector<float> widened(const void* x, const MatrixLayout& l, bool trans, int n) {
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
} // namespace emu

extern "C" {
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) { *h = nullptr; return CUBLAS_STATUS_SUCCESS; }
inline const char* cublasLtGetStatusString(cublasStatus_t) { return "CUBLAS_STATUS_EXECUTION_FAILED (emulated)"; }
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t how, cudaDataType_t scale) {
    if (how != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) { emu::fail("cublasLt: only fp32 compute is emulated"); }
    *d = (cublasLtMatmulDesc_t)new emu::MatmulDesc;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
    delete (emu::MatmulDesc*)d;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a,
                                                     const void* v, size_t n) {
    emu::MatmulDesc* m = (emu::MatmulDesc*)d;
    if (n == 4 && a == CUBLASLT_MATMUL_DESC_TRANSA) { m->transA = *(int32_t*)v; }
    else if (n == 4 && a == CUBLASLT_MATMUL_DESC_TRANSB) { m->transB = *(int32_t*)v; }
    else { emu::fail("cublasLt: descriptor attribute %d is not emulated", int(a)); }
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutCreate(emu::Layout* l, cudaDataType t, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
    if (ld < (int64_t)rows) { emu::fail("cublasLt: leading dimension %ld of %lu rows", (long)ld, (unsigned long)rows); }
    *l = (cublasLtMatrixLayout_t)new emu::MatrixLayout{t, rows, cols, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(emu::Layout l, cublasLtMatrixLayoutAttribute_t a,
                                                       const void* v, size_t n) {
    emu::MatrixLayout* m = (emu::MatrixLayout*)l;
    if (n == 4 && a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) { m->count = *(int32_t*)v; }
    else if (n == 8 && a == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) { m->offset = *(int64_t*)v; }
    else { emu::fail("cublasLt: layout attribute %d is not emulated", int(a)); }
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(emu::Layout l) {
    delete (emu::MatrixLayout*)l;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
    *p = nullptr;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                           cublasLtMatmulPreferenceAttributes_t, const void*, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
// three algorithms, all of them the same loops; data[0] tells them apart
inline size_t cublasLtGetVersion() { return 1; }
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, emu::Layout, emu::Layout,
        emu::Layout, emu::Layout, cublasLtMatmulPreference_t, int want, cublasLtMatmulHeuristicResult_t* r, int* n) {
    *n = want < 3 ? want : 3;
    memset((void*)r, 0, *n * sizeof *r);
    for (int i = 0; i < *n; i++) { r[i].algo.data[0] = i + 1; }
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, emu::Layout, emu::Layout, emu::Layout,
        emu::Layout, const cublasLtMatmulAlgo_t* a, cublasLtMatmulHeuristicResult_t* r) {
    memset((void*)r, 0, sizeof *r);
    return a->data[0] >= 1 && a->data[0] <= 3 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* A,
        emu::Layout la, const void* B, emu::Layout lb, const void* beta, const void* C, emu::Layout, void* D,
        emu::Layout ld, const cublasLtMatmulAlgo_t* algo, void*, size_t, cudaStream_t) {
    if (emu::fault("cublas")) { return CUBLAS_STATUS_EXECUTION_FAILED; }
    emu::algorithms.push_back((int)algo->data[0]);
    for (const void* p : {A, B, C, (const void*)D}) {
        if (!emu::is_device(p)) { emu::fail("cublasLtMatmul of a host pointer"); }
    }
    emu::Access access;
    const emu::MatmulDesc& m = *(emu::MatmulDesc*)desc;
    const emu::MatrixLayout &a = emu::of(la), &b = emu::of(lb), &d = emu::of(ld);
    size_t M = d.rows, N = d.cols, K = m.transA ? a.rows : a.cols;
    if ((m.transA ? a.cols : a.rows) != M || (m.transB ? b.cols : b.rows) != K || (m.transB ? b.rows : b.cols) != N) {
        emu::fail("cublasLt: the shapes of A, B and D do not fit");
    }
    if (!M || !N || !K) { emu::fail("cublasLt: a matrix has no elements"); }
    if (a.count != d.count || b.count != d.count) { emu::fail("cublasLt: A, B and D differ in how many they are"); }
    float al = *(const float*)alpha, be = *(const float*)beta;
    for (int n = 0; n < d.count; n++) {
        std::vector<float> x = emu::widened(A, a, !m.transA, n), y = emu::widened(B, b, m.transB, n); // (K, M), (K, N)
        std::vector<float> row(M);
        for (size_t j = 0; j < N; j++) {
            std::fill(row.begin(), row.end(), 0.0f);
            for (size_t k = 0; k < K; k++) {
                float w = y[k * N + j]; const float* xk = &x[k * M];
                for (size_t i = 0; i < M; i++) { row[i] += w * xk[i]; }
            }
            for (size_t i = 0; i < M; i++) {
                size_t at = n * d.offset + i + j * d.ld;
                float c = be == 0 ? 0 : be * emu::element(C, d.type, at);
                if (d.type == CUDA_R_32F) { ((float*)D)[at] = al * row[i] + c; }
                else { ((__nv_bfloat16*)D)[at] = __float2bfloat16(al * row[i] + c); }
            }
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}
}
#endif // EMU_CUBLAS_H
