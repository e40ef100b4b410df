/*
gemm.cuh -- matrix products by cublasLt: D = A B, or D = A B + C.

cublasLt thinks in columns, so row-major D = A B is asked for as D^T = B^T A^T. Inputs have one
type; sums are in fp32 (no TF32); D has the inputs' type or fp32. One stream and one workspace:
deterministic. What a product needs beside its pointers, its descriptions and its algorithm, is made
once and found again by its ProductKey.

Which algorithm: cuBLAS proposes some for each product. Before many steps a large product is timed
with each of them, once; the fastest is kept in a file of this GPU and this cuBLAS in data/cache, so
that the next run takes the same one: same seed, same bits. cuBLAS documents that an algorithm
may be stored as it is, for the same version of the library. Jobs that share the file agree: a line
is only ever added at its end, in one piece and under a lock, and of all lines of a product the
first that can run counts, also for the job that has just added another.
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
// What a product is.

// A matrix, row-major, or several of them. Make one with matrix().
struct Matrix {
    const void* p;         // what a product writes is not const, whatever this says
    int bytes;             // of a number
    int stride;            // numbers from one row to the next; 0: dense
    long apart;            // numbers from one matrix to the next
    bool transposed = false;                 // what is stored is the transpose of what is meant
};

template <class T> Matrix matrix(T* p, int stride = 0, long apart = 0) {
    return { p, sizeof(T), stride, apart };
}

inline Matrix transposed(Matrix m) {
    m.transposed = !m.transposed;
    return m;
}

// D is (M, N), A is (M, K), B is (K, N); `count` products at once.
struct ProductShape { int M, N, K, count = 1; };

// All that descriptions and algorithm depend on; nothing between the numbers, so that keys compare
// as bytes.
struct ProductKey {
    int M, N, K, count;
    int stride_a, stride_b, stride_d;
    uint32_t align_a, align_b, align_d;
    int bytes_in, bytes_out;
    int transposed_a, transposed_b, add;
    int padding = 0;
    long apart_a, apart_b, apart_d;
    bool operator<(const ProductKey& k) const { return memcmp(this, &k, sizeof k) < 0; }
};
static_assert(sizeof(ProductKey) == 16 * sizeof(int) + 3 * sizeof(long), "a gap between numbers");

// Writes a product for people: its sizes, and what is transposed or added.
inline std::string product_name(const ProductKey& k) {
    std::string name = strf("(%d, %d) x (%d, %d)", k.M, k.K, k.K, k.N);
    if (k.transposed_a) { name += " A^T"; }
    if (k.transposed_b) { name += " B^T"; }
    if (k.add) { name += " +C"; }
    return name + strf(" %d->%d", k.bytes_in, k.bytes_out);
}

typedef cublasLtMatmulAlgo_t Algo;
typedef std::vector<Algo> Algos;
typedef cublasLtMatmulHeuristicResult_t Proposal;

// A product as cublasLt sees it: B comes first.
struct Product {
    cublasLtMatmulDesc_t desc = NULL;
    cublasLtMatrixLayout_t first = NULL, second = NULL, result = NULL;
    std::string text, name;              // for the file of algorithms; its part for people
    float beta = 0;
    double flops = 0;
    size_t bytes = 0;                    // from the first to the last element of D
    bool chosen = false;
    Algo algo;

    Product() {}
    Product(const Product&) = delete;
    ~Product() {
        for (cublasLtMatrixLayout_t layout : { first, second, result }) {
            if (layout) { cublasLtMatrixLayoutDestroy(layout); }
        }
        if (desc) { cublasLtMatmulDescDestroy(desc); }
    }
};
struct ProductPointers { const void *first, *second, *add; void* result; };

inline uint32_t blas_alignment(const void* p) {
    const uintptr_t address = (uintptr_t)p;
    return address % 256 ? (uint32_t)(address & -address) : 256;
}

// Describes a row-major matrix (rows, columns).
inline cublasLtMatrixLayout_t product_layout(const ProductKey& k, int bytes, int rows, int columns,
                                             int stride, long apart) {
    const char* doing = "describing a matrix";
    cublasLtMatrixLayout_t layout;
    const int ld = stride ? stride : columns;
    const cudaDataType type = bytes == 4 ? CUDA_R_32F : CUDA_R_16BF;
    blas_check(cublasLtMatrixLayoutCreate(&layout, type, columns, rows, ld), doing);
    if (k.count == 1) { return layout; }
    const int64_t offset = apart;
    blas_check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                &k.count, sizeof k.count),
               doing);
    blas_check(cublasLtMatrixLayoutSetAttribute(
                   layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof offset),
               doing);
    return layout;
}

inline void product_describe(Product* p, const ProductKey& k) {
    const int32_t op_first = k.transposed_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t op_second = k.transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const char* doing = "describing a product";
    p->name = product_name(k);
    p->text = p->name +
              strf(" strides %d,%d,%d of %d: %ld,%ld,%ld aligned %u,%u,%u", k.stride_a, k.stride_b,
                   k.stride_d, k.count, k.apart_a, k.apart_b, k.apart_d, k.align_b, k.align_a,
                   k.align_d);
    p->beta = k.add ? 1.0f : 0.0f;
    p->flops = 2.0 * k.M * k.N * k.K * k.count;
    const size_t stride_d = k.stride_d ? k.stride_d : k.N;
    const size_t last_matrix = (k.count - 1) * (size_t)k.apart_d;
    const size_t last_row = (k.M - 1) * stride_d;
    p->bytes = (last_matrix + last_row + k.N) * k.bytes_out;
    blas_check(cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), doing);
    blas_check(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_first,
                                              sizeof op_first),
               doing);
    blas_check(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_second,
                                              sizeof op_second),
               doing);
    int rows_a = k.M, columns_a = k.K;   // as they are stored
    int rows_b = k.K, columns_b = k.N;
    if (k.transposed_a) { std::swap(rows_a, columns_a); }
    if (k.transposed_b) { std::swap(rows_b, columns_b); }
    p->first = product_layout(k, k.bytes_in, rows_b, columns_b, k.stride_b, k.apart_b);
    p->second = product_layout(k, k.bytes_in, rows_a, columns_a, k.stride_a, k.apart_a);
    p->result = product_layout(k, k.bytes_out, k.M, k.N, k.stride_d, k.apart_d);
}

inline cublasStatus_t product_run(const Product& p, const Algo& algo, const ProductPointers& x) {
    const float one = 1.0f;
    return cublasLtMatmul(gpu.blas, p.desc, &one, x.first, p.first, x.second, p.second, &p.beta,
                          x.add, p.result, x.result, p.result, &algo, gpu.workspace,
                          DEVICE_WORKSPACE, gpu.stream);
}

// ----------------------------------------------------------------------------
// The file of algorithms.

// The products that this program has made, and how the algorithm of one is chosen.
struct Products {
    std::string cache = emulated ? "" : "data/cache";    // "": no file, the first proposal
    bool search;
    std::function<void()> before_keeping;                // for the test: what another job does then
    // some dozens, never destroyed: at the end of the program cuBLAS may be gone
    std::map<ProductKey, Product>& made = *new std::map<ProductKey, Product>;
};
inline Products products;
inline void tune_products(bool wanted) { products.search = wanted; }
const double GEMM_SEARCH_FLOPS = shrunk ? 1e4 : 1e8;
enum { GEMM_PROPOSALS = 32 };
enum { ALGO_WORDS = 8 };                                 // of 64 bits
static_assert(sizeof(Algo) == ALGO_WORDS * 8, "an algorithm is written as eight words");
typedef std::map<std::string, Algos> GemmKept;           // of each product, in the file's order

// Returns the name of this GPU as part of a file's.
inline std::string device_in_file() {
    std::string name = gpu.name;
    for (char& ch : name) { if (!isalnum((unsigned char)ch)) { ch = '-'; } }
    return name;
}

inline std::string gemm_file() {
    return strf("%s/matmul-%s-%zu.txt", products.cache.c_str(), device_in_file().c_str(),
                cublasLtGetVersion());
}

// Makes the directory of such files, and its parents, if it may.
inline void make_cache(const std::string& cache) {
    for (size_t i = 1; i <= cache.size(); i++) {
        if (i == cache.size() || cache[i] == '/') { mkdir(cache.substr(0, i).c_str(), 0777); }
    }
}

// Adds a line at the end of a file, in one piece, and tells whether it could.
inline bool add_line(const std::string& file, const std::string& line) {
    const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0) { return false; }
    flock(fd, LOCK_EX);    // where the file system knows no locks, O_APPEND has to do
    const bool written = write(fd, line.data(), line.size()) == (ssize_t)line.size();
    close(fd);
    return written;
}

// Reads the words of an algorithm, in hexadecimal, and returns false if there is anything else.
inline bool algo_read(const char* text, Algo* algo) {
    char* end = (char*)text;
    for (int i = 0; i < ALGO_WORDS; i++) {
        const char* from = end;
        algo->data[i] = strtoull(from, &end, 16);
        if (end == from) { return false; }
    }
    return *end == 0;
}

// Reads lines of a product's text, " : " and its algorithm's words.
inline GemmKept gemm_read(const std::string& path, bool complain) {
    GemmKept out;
    int bad = 0;
    for (auto& line : split(file_exists(path) ? file_read(path) : "", '\n')) {
        if (line.empty()) { continue; }
        const size_t colon = line.find(" : ");
        const std::string words = colon == std::string::npos ? "" : line.substr(colon + 3);
        Algo algo;
        if (algo_read(words.c_str(), &algo)) {
            out[line.substr(0, colon)].push_back(algo);
        } else {
            bad++;
        }
    }
    if (bad && complain) {
        fprintf(stderr,
                "%s: %d lines are not as this program writes them; those products are timed "
                "again\n",
                path.c_str(), bad);
    }
    return out;
}

// Finds the first algorithm kept for a product that can run here.
inline bool gemm_kept(const GemmKept& kept, const Product& p, Algo* algo) {
    auto lines = kept.find(p.text);
    if (lines == kept.end()) { return false; }
    for (auto& a : lines->second) {
        Proposal found;
        const cublasStatus_t status = cublasLtMatmulAlgoCheck(
            gpu.blas, p.desc, p.first, p.second, p.result, p.result, &a, &found);
        if (status == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= DEVICE_WORKSPACE) {
            *algo = a;
            return true;
        }
    }
    return false;
}

// Adds a line to the file and returns whose choice counts from now on: the first one's. Without a
// file that is our own.
inline Algo gemm_keep(const std::string& file, const Product& p, Algo algo) {
    std::string line = p.text + " :";
    for (uint64_t w : algo.data) { line += strf(" %llx", (unsigned long long)w); }
    line += "\n";
    if (products.before_keeping) { products.before_keeping(); }
    if (add_line(file, line)) { gemm_kept(gemm_read(file, false), p, &algo); }
    return algo;
}

// ----------------------------------------------------------------------------
// The search.

// Returns the milliseconds of one run, or infinity if cuBLAS cannot run it.
inline float gemm_time(const Product& p, const Algo& algo, const ProductPointers& x,
                       cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    device_check(cudaEventRecord(from, gpu.stream), "recording an event");
    if (product_run(p, algo, x) != CUBLAS_STATUS_SUCCESS) { return INFINITY; }
    device_check(cudaEventRecord(to, gpu.stream), "recording an event");
    device_check(cudaEventSynchronize(to), "timing a matrix product");
    device_check(cudaEventElapsedTime(&ms, from, to), "timing a matrix product");
    return ms;
}

// Finds the fastest of n proposals: all are run in turn until the clocks are up, then in turn
// again, and the shortest time of each counts. Writes to a copy of D; returns false if there is no
// memory for one.
inline bool gemm_search(const Product& p, ProductPointers x, const Proposal* found, int n,
                        Algo* best) {
    enum { ROUNDS = 10 };
    const double WARM_UP_MS = shrunk ? 0 : 50;
    if (cudaMalloc(&x.result, p.bytes) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    x.add = x.result;
    cudaEvent_t from, to;
    device_check(cudaEventCreateWithFlags(&from, cudaEventDefault), "making an event");
    device_check(cudaEventCreateWithFlags(&to, cudaEventDefault), "making an event");
    std::vector<float> shortest(n, 0);               // 0: not timed yet; infinite: cannot run
    auto round = [&](bool timed) {
        for (int i = 0; i < n; i++) {
            if (shortest[i] == INFINITY) { continue; }
            const float ms = gemm_time(p, found[i].algo, x, from, to);
            const bool better = shortest[i] == 0 || ms < shortest[i];
            if (ms == INFINITY || (timed && better)) { shortest[i] = ms; }
        }
    };
    const double start = now_ms();
    while (now_ms() - start <= WARM_UP_MS) { round(false); }
    for (int k = 0; k < ROUNDS; k++) { round(true); }
    device_check(cudaEventDestroy(from), "freeing an event");
    device_check(cudaEventDestroy(to), "freeing an event");
    device_free(x.result);
    *best = found[std::min_element(shortest.begin(), shortest.end()) - shortest.begin()].algo;
    return true;
}

// Asks cuBLAS for proposals, best first: at least one, at most GEMM_PROPOSALS.
inline int gemm_propose(const Product& p, const ProductKey& k, Proposal* found) {
    const std::string doing = "no algorithm for a matrix product " + p.text;
    cublasLtMatmulPreference_t pref;
    blas_check(cublasLtMatmulPreferenceCreate(&pref), doing);
    auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void* v, size_t size) {
        blas_check(cublasLtMatmulPreferenceSetAttribute(pref, attribute, v, size), doing);
    };
    // partial sums in fp32, in a fixed order
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &DEVICE_WORKSPACE, sizeof DEVICE_WORKSPACE);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction);
    // it assumes 256 if not told
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &k.align_b, sizeof k.align_b);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &k.align_a, sizeof k.align_a);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &k.align_d, sizeof k.align_d);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &k.align_d, sizeof k.align_d);
    int n = 0;
    blas_check(cublasLtMatmulAlgoGetHeuristic(gpu.blas, p.desc, p.first, p.second, p.result,
                                              p.result, pref, GEMM_PROPOSALS, found, &n),
               doing);
    auto cannot = [](auto& f) { return f.state != CUBLAS_STATUS_SUCCESS; };
    n = (int)(std::remove_if(found, found + n, cannot) - found);
    if (n == 0) { blas_check(CUBLAS_STATUS_NOT_SUPPORTED, doing); }
    cublasLtMatmulPreferenceDestroy(pref);
    return n;
}

// Returns algorithms for a product that this run has not met before, best first.
inline Algos gemm_choose(const Product& p, const ProductKey& k, const ProductPointers& x) {
    Algo algo;
    const bool large = !products.cache.empty() && p.flops >= GEMM_SEARCH_FLOPS;
    const std::string file = large ? gemm_file() : "";
    if (large) {
        static std::string have;
        static GemmKept kept;
        if (have != file) {
            have = file;
            kept = gemm_read(file, true);
        }
        if (gemm_kept(kept, p, &algo)) { return { algo }; }
    }
    Proposal found[GEMM_PROPOSALS];
    const int n = gemm_propose(p, k, found);
    Algos all;
    for (int i = 0; i < n; i++) { all.push_back(found[i].algo); }
    if (!large || !products.search) { return all; }
    make_cache(products.cache);
    // a choice that is not kept would change from run to run
    if (access(products.cache.c_str(), W_OK) != 0) { return all; }
    if (!gemm_search(p, x, found, n, &algo)) { return all; }
    return { gemm_keep(file, p, algo) };
}

// Runs a product by the first algorithm that does not refuse it: cuBLAS has proposed some that then
// did (PyTorch, pull requests 76021 and 91436). One that refuses has computed nothing.
inline Algo gemm_first(const Product& p, const Algos& algos, const ProductPointers& x) {
    for (size_t i = 0;; i++) {
        const cublasStatus_t status = product_run(p, algos[i], x);
        if (status == CUBLAS_STATUS_NOT_SUPPORTED && i + 1 < algos.size()) { continue; }
        blas_check(status, "matrix product " + p.text);
        return algos[i];
    }
}

// ----------------------------------------------------------------------------
// The product.

// Computes D = A B [+ C, unless NULL; may be D, and is laid out as D is].
// A and B have one type, C and D have one.
inline void gemm(Matrix D, const void* C, Matrix A, Matrix B, ProductShape shape) {
    device_start();
    if (!gpu.workspace) { gpu.workspace = device_reserve(DEVICE_WORKSPACE); }
    const void* add = C ? C : D.p;
    ProductKey k;
    k.M = shape.M;
    k.N = shape.N;
    k.K = shape.K;
    k.count = shape.count;
    k.stride_a = A.stride;
    k.stride_b = B.stride;
    k.stride_d = D.stride;
    k.align_a = blas_alignment(A.p);
    k.align_b = blas_alignment(B.p);
    k.align_d = std::min(blas_alignment(add), blas_alignment(D.p));
    k.bytes_in = A.bytes;
    k.bytes_out = D.bytes;
    k.transposed_a = A.transposed;
    k.transposed_b = B.transposed;
    k.add = C != NULL;
    k.apart_a = A.apart;
    k.apart_b = B.apart;
    k.apart_d = D.apart;
    const ProductPointers x = { B.p, A.p, add, (void*)D.p };
    Product& p = products.made[k];
    if (!p.chosen) {
        if (!p.desc) { product_describe(&p, k); }
        p.algo = gemm_first(p, gemm_choose(p, k, x), x);
        p.chosen = true;
        return;
    }
    profiled(p.name.c_str(), [&] {
        const cublasStatus_t status = product_run(p, p.algo, x);
        if (status != CUBLAS_STATUS_SUCCESS) { blas_check(status, "matrix product " + p.text); }
    });
}
} // namespace cuda
#endif // CUDA_GEMM_CUH
