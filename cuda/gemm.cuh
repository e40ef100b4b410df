/*
gemm.cuh -- matrix products by cublasLt: which algorithm takes each, and the call itself.
*/
#ifndef CUDA_GEMM_CUH
#define CUDA_GEMM_CUH
#include "device.cuh"
#include <fcntl.h>
#include <functional>
#include <map>
#include <sys/file.h>
#include <unistd.h>

namespace cuda {
// ----------------------------------------------------------------------------
// Matrix products by cublasLt, which thinks in columns: row-major D = A B is asked for as D^T = B^T
// A^T. Inputs of one type, sums in fp32 (no TF32), output of the inputs' type or fp32. One stream
// and one workspace: deterministic.

// Where the matrices are parts of larger ones, Strides says how far apart rows are (0: dense),
// how many products of one shape there are, and how far apart their matrices are. C is laid out
// as D is.
struct Strides { int lda = 0, ldb = 0, ldd = 0, count = 1; long a = 0, b = 0, d = 0; };

template <class T> cudaDataType blas_type() { return sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_16BF; }
inline uint32_t blas_alignment(const void* p) {
    uintptr_t a = (uintptr_t)p;
    return a % 256 ? (uint32_t)(a & -a) : 256;
}

// as cublasLt sees it: d (l, batched) = op(a) op(b) + beta c. Its descriptions go with it, however
// it ends
struct Product {
    cublasLtMatmulDesc_t desc = NULL;
    cublasLtMatrixLayout_t la = NULL, lb = NULL, ld = NULL;
    const void *a = NULL, *b = NULL, *c = NULL;
    void* d = NULL;
    float beta = 0;
    double flops = 0;
    size_t bytes = 0; // from the first to the last element of d
    std::string key;  // everything that an algorithm depends on

    Product() {}
    Product(const Product&) = delete;

    ~Product() {
        for (cublasLtMatrixLayout_t l : { la, lb, ld }) {
            if (l) { cublasLtMatrixLayoutDestroy(l); }
        }
        if (desc) { cublasLtMatmulDescDestroy(desc); }
    }
};

inline cublasStatus_t product_run(const Product& p, const cublasLtMatmulAlgo_t& algo, const void* c,
                                  void* d) {
    const float one = 1.0f;
    return cublasLtMatmul(device_blas, p.desc, &one, p.a, p.la, p.b, p.lb, &p.beta, c, p.ld, d,
                          p.ld, &algo, device_workspace, DEVICE_WORKSPACE, device_stream);
}

// Which algorithm: cuBLAS proposes some for each product. Before many steps a large product is
// timed with each of them, once; the fastest is kept in a file of this GPU and this cuBLAS under
// gemm_cache, so that the next run takes the same one: same seed, same bits. cuBLAS documents that
// an algorithm may be stored as it is, for the same version of the library. Jobs that share the
// file agree: a line is only ever added at its end, in one piece and under a lock, and of all lines
// of a product the first that can run counts, also for the job that has just added another.
inline std::string gemm_cache = emulated ? "" : "data/cache";     // "": no file, the first proposal
inline bool gemm_search_wanted;
inline void tune_products() { gemm_search_wanted = true; }
// (the CPU backend keeps in attention's forward pass what its metrics need)
inline void keep_rows_for_metrics(bool) {}
const double GEMM_SEARCH_FLOPS = shrunk ? 1e4 : 2e9;
enum { GEMM_PROPOSALS = 32 };
inline std::map<std::string, cublasLtMatmulAlgo_t> gemm_chosen;
// of each product, in the file's order
typedef std::map<std::string, std::vector<cublasLtMatmulAlgo_t>> GemmKept;

inline std::string gemm_file() {
    std::string name = device_name;
    for (char& ch : name) { if (!isalnum((unsigned char)ch)) { ch = '-'; } }
    return strf("%s/matmul-%s-%zu.txt", gemm_cache.c_str(), name.c_str(), cublasLtGetVersion());
}

// lines of a key, " : " and the algorithm's eight words
inline GemmKept gemm_read(const std::string& path, bool complain) {
    GemmKept out;
    int bad = 0;
    for (auto& line : split(file_exists(path) ? file_read(path) : "", '\n')) {
        if (line.empty()) { continue; }
        const size_t colon = line.find(" : ");
        cublasLtMatmulAlgo_t algo; unsigned long long w[8]; int end = -1;
        if (colon != std::string::npos) {
            sscanf(line.c_str() + colon + 3, "%llx %llx %llx %llx %llx %llx %llx %llx%n",
                   w, w + 1, w + 2, w + 3, w + 4, w + 5, w + 6, w + 7, &end);
        }
        if (end < 0 || line[colon + 3 + end]) { bad++; continue; }
        for (int i = 0; i < 8; i++) { algo.data[i] = w[i]; }
        out[line.substr(0, colon)].push_back(algo);
    }
    if (bad && complain) {
        fprintf(
            stderr,
            "%s: %d lines are not as this program writes them; those products are timed again\n",
            path.c_str(), bad);
    }
    return out;
}

// the first algorithm kept for a product that can run here
inline bool gemm_kept(const GemmKept& kept, const Product& p, cublasLtMatmulAlgo_t* algo) {
    auto it = kept.find(p.key);
    if (it == kept.end()) { return false; }
    for (auto& x : it->second) {
        cublasLtMatmulHeuristicResult_t found;
        if (cublasLtMatmulAlgoCheck(device_blas, p.desc, p.la, p.lb, p.ld, p.ld, &x, &found) !=
            CUBLAS_STATUS_SUCCESS) {
            continue;
        }
        if (found.workspaceSize <= DEVICE_WORKSPACE) { *algo = x; return true; }
    }
    return false;
}

// for the test: what another job does at the worst moment
inline std::function<void()> gemm_before_keeping;
// adds a line to the file and says whose choice counts from now on: the first one's. Without a
// file, the own
inline cublasLtMatmulAlgo_t gemm_keep(const std::string& file, const Product& p,
                                      cublasLtMatmulAlgo_t algo) {
    std::string line = p.key + " :";
    for (uint64_t w : algo.data) { line += strf(" %llx", (unsigned long long)w); }
    line += "\n";
    if (gemm_before_keeping) { gemm_before_keeping(); }
    const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0) { return algo; }
    flock(fd, LOCK_EX); // where the file system knows no locks, O_APPEND has to do
    const bool written = write(fd, line.data(), line.size()) == (ssize_t)line.size();
    close(fd);
    if (written) { gemm_kept(gemm_read(file, false), p, &algo); }
    return algo;
}

// The fastest of n proposals, by events: all are run in turn until the clocks are up, then in turn
// again, and the shortest time of each counts. Writes to a copy of d; false if there is no memory
// for one
inline bool gemm_search(const Product& p, const cublasLtMatmulHeuristicResult_t* found, int n,
                        cublasLtMatmulAlgo_t* best) {
    enum { ROUNDS = 10 };
    const double WARM_UP_MS = shrunk ? 0 : 50;
    void* d = NULL;
    if (cudaMalloc(&d, p.bytes) != cudaSuccess) { cudaGetLastError(); return false; }
    cudaEvent_t from, to;
    for (cudaEvent_t* e : { &from, &to }) {
        device_check(cudaEventCreateWithFlags(e, cudaEventDefault), "making an event");
    }
    std::vector<float> ms(n, 0);                     // infinite: cannot run
    auto round = [&](bool timed) {
        for (int i = 0; i < n; i++) {
            if (ms[i] == INFINITY) { continue; }
            device_check(cudaEventRecord(from, device_stream), "recording an event");
            if (product_run(p, found[i].algo, d, d) != CUBLAS_STATUS_SUCCESS) {
                ms[i] = INFINITY;
                continue;
            }
            device_check(cudaEventRecord(to, device_stream), "recording an event");
            device_check(cudaEventSynchronize(to), "timing a matrix product");
            float took = 0;
            device_check(cudaEventElapsedTime(&took, from, to), "timing a matrix product");
            if (timed) { ms[i] = ms[i] == 0 ? took : std::min(ms[i], took); }
        }
    };
    for (const double start = now_ms(); now_ms() - start <= WARM_UP_MS;) { round(false); }
    for (int k = 0; k < ROUNDS; k++) { round(true); }
    for (cudaEvent_t e : {from, to}) { device_check(cudaEventDestroy(e), "freeing an event"); }
    device_free(d);
    *best = found[std::min_element(ms.begin(), ms.end()) - ms.begin()].algo;
    return true;
}

// what cuBLAS proposes, best first; at least one, at most GEMM_PROPOSALS
inline int gemm_propose(const Product& p, uint32_t align_a, uint32_t align_b, uint32_t align_d,
                        cublasLtMatmulHeuristicResult_t* found) {
    const std::string what = "no algorithm for a matrix product " + p.key;
    cublasLtMatmulPreference_t pref; int n = 0;
    blas_check(cublasLtMatmulPreferenceCreate(&pref), what);
    auto set = [&](cublasLtMatmulPreferenceAttributes_t attr, const void* v, size_t size) {
        blas_check(cublasLtMatmulPreferenceSetAttribute(pref, attr, v, size), what);
    };
    // partial sums in fp32, in a fixed order
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &DEVICE_WORKSPACE, sizeof DEVICE_WORKSPACE);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction);
    // it assumes 256 if not told
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_a, sizeof align_a);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_b, sizeof align_b);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_d, sizeof align_d);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_d, sizeof align_d);
    blas_check(cublasLtMatmulAlgoGetHeuristic(device_blas, p.desc, p.la, p.lb, p.ld, p.ld, pref,
                                              GEMM_PROPOSALS, found, &n),
               what);
    n = (int)(std::remove_if(found, found + n,
                             [](auto& f) { return f.state != CUBLAS_STATUS_SUCCESS; }) -
              found);
    if (n == 0) { blas_check(CUBLAS_STATUS_NOT_SUPPORTED, what); }
    cublasLtMatmulPreferenceDestroy(pref);
    return n;
}

// algorithms for a product that this run has not met before, best first
typedef std::vector<cublasLtMatmulAlgo_t> GemmAlgos;
inline GemmAlgos gemm_choose(const Product& p, uint32_t align_a, uint32_t align_b,
                             uint32_t align_d) {
    cublasLtMatmulAlgo_t algo;
    const bool large = !gemm_cache.empty() && p.flops >= GEMM_SEARCH_FLOPS;
    const std::string file = large ? gemm_file() : "";
    if (large) {
        static std::string have; static GemmKept kept;
        if (have != file) { have = file; kept = gemm_read(file, true); }
        if (gemm_kept(kept, p, &algo)) { return { algo }; }
    }
    cublasLtMatmulHeuristicResult_t found[GEMM_PROPOSALS];
    const int n = gemm_propose(p, align_a, align_b, align_d, found);
    GemmAlgos all;
    for (int i = 0; i < n; i++) { all.push_back(found[i].algo); }
    if (!large || !gemm_search_wanted) { return all; }
    for (size_t i = 1; i <= gemm_cache.size(); i++) {          // mkdir -p, if it may be
        if (i == gemm_cache.size() || gemm_cache[i] == '/') {
            mkdir(gemm_cache.substr(0, i).c_str(), 0777);
        }
    }
    // a choice that is not kept would change from run to run
    if (access(gemm_cache.c_str(), W_OK) != 0 || !gemm_search(p, found, n, &algo)) { return all; }
    return { gemm_keep(file, p, algo) };
}

// the product by the first of these algorithms that does not refuse it: cuBLAS has proposed some
// that then did (PyTorch, pull requests 76021 and 91436). One that refuses has computed nothing
inline cublasLtMatmulAlgo_t gemm_first(const Product& p, const GemmAlgos& algos,
                                       const std::string& what) {
    for (size_t i = 0;; i++) {
        const cublasStatus_t s = product_run(p, algos[i], p.c, p.d);
        if (s == CUBLAS_STATUS_NOT_SUPPORTED && i + 1 < algos.size()) { continue; }
        blas_check(s, what);
        return algos[i];
    }
}

// D (M, N) = op(A) op(B) [+ C (M, N), unless NULL; may be D], all row-major: A is (M, K), or (K, M)
// if transA; B is (K, N), or (N, K) if transB
template <class TD, class T>
void gemm(TD* D, const TD* C, const T* A, const T* B, int M, int N, int K, bool transA, bool transB,
          Strides x = {}) {
    device_start();
    if (!device_workspace) { device_workspace = device_reserve(DEVICE_WORKSPACE); }
    const uint32_t align_a = blas_alignment(B), align_b = blas_alignment(A);
    const uint32_t align_d = std::min(blas_alignment(C ? C : D), blas_alignment(D));
    Product p; // column-major: B comes first
    p.a = B; p.b = A; p.c = C ? C : D; p.d = D;
    p.beta = C ? 1.0f : 0.0f;
    p.flops = 2.0 * M * N * K * x.count;
    p.bytes = ((x.count - 1) * (size_t)x.d + (M - 1) * (size_t)(x.ldd ? x.ldd : N) + N) *
              sizeof(TD);
    p.key = strf(
        "(%d, %d) x (%d, %d)%s%s%s %zu->%zu strides %d,%d,%d of %d: %ld,%ld,%ld aligned %u,%u,%u",
        M, K, K, N, transA ? " A^T" : "", transB ? " B^T" : "", C ? " +C" : "", sizeof(T),
        sizeof(TD), x.lda, x.ldb, x.ldd, x.count, x.a, x.b, x.d, align_a, align_b, align_d);
    const std::string what = "matrix product " + p.key;
    const int32_t op_a = transB ? CUBLAS_OP_T : CUBLAS_OP_N,
                  op_b = transA ? CUBLAS_OP_T : CUBLAS_OP_N;
    blas_check(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), what);
    blas_check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a,
                                              sizeof op_a),
               what);
    blas_check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b,
                                              sizeof op_b),
               what);
    // row-major
    auto layout = [&](cublasLtMatrixLayout_t* l, cudaDataType type, int rows, int cols, int stride,
                      long apart) {
        blas_check(cublasLtMatrixLayoutCreate(l, type, cols, rows, stride ? stride : cols), what);
        if (x.count == 1) { return; }
        const int64_t offset = apart;
        blas_check(cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                    &x.count, sizeof x.count),
                   what);
        blas_check(cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                    &offset, sizeof offset),
                   what);
    };
    layout(&p.la, blas_type<T>(), transB ? N : K, transB ? K : N, x.ldb, x.b);
    layout(&p.lb, blas_type<T>(), transA ? K : M, transA ? M : K, x.lda, x.a);
    layout(&p.ld, blas_type<TD>(), M, N, x.ldd, x.d);
    auto it = gemm_chosen.find(p.key);
    if (it == gemm_chosen.end()) {
        gemm_chosen[p.key] = gemm_first(p, gemm_choose(p, align_a, align_b, align_d), what);
        return;
    }
    profiled(p.key.substr(0, p.key.find(" strides")).c_str(),
             [&] { blas_check(product_run(p, it->second, p.c, p.d), what); });
}
} // namespace cuda
#endif // CUDA_GEMM_CUH
