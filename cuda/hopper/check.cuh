/*
hopper/check.cuh -- whether attention can use Hopper's kernels: what they need, and before they
are trusted, a comparison with the kernels for every card.

It is made in a process of its own, the program run again before this one has touched the GPU: one
that faults or never ends says "no" by that. What it said is kept beside the choices of products
(gemm.cuh), in a file of this GPU, for this driver and this program.
*/
#ifndef CUDA_HOPPER_CHECK_CUH
#define CUDA_HOPPER_CHECK_CUH
#include "../attention.cuh"
#include <sys/wait.h>

namespace cuda {
// ----------------------------------------------------------------------------
// The comparison.

// Returns n normal numbers, as large as makes softmax peaked. positive: none below 0, for variants
// that divide by a sum of products.
inline std::vector<real> check_numbers(size_t n, bool positive) {
    Rng rng = rng_stream(n, 0);
    std::vector<real> x;
    while (x.size() < n) {
        const float drawn = 1.7 * rng_normal(&rng);
        x.push_back(real(positive ? fabsf(drawn) : drawn));
    }
    return x;
}

template <class T> T* to_new_memory(const std::vector<T>& x) {
    T* p = (T*)device_malloc(x.size() * sizeof(T));
    to_device(p, x.data(), x.size() * sizeof(T));
    return p;
}

// Tells whether out, dq, dk and dv, one after the other, each differ by at most 1% of their root
// mean square, and nowhere by 3% of their largest number; else prints the errors. Rounding is 0.2%.
inline bool check_same(const std::vector<real>& got, const std::vector<real>& want,
                       const AttnShape& s) {
    struct Part { double apart, size, worst, largest; } parts[4] = {};
    const size_t outs = (size_t)s.B * s.T * s.NH * s.HS;
    for (size_t i = 0; i < want.size(); i++) {
        const int head = i < outs ? -1 : (int)((i - outs) % attn_row(s) / s.HS);
        Part& p = parts[(head >= 0) + (head >= s.NH) + (head >= s.NH + s.KV)];
        const double right = (float)want[i];
        const double by = fabs((float)got[i] - right);
        p.apart += by * by;
        p.size += right * right;
        p.worst = by <= p.worst ? p.worst : by;          // NaN stays
        p.largest = std::max(p.largest, fabs(right));
    }
    bool same = true;
    double error[4];
    for (int i = 0; i < 4; i++) {
        const Part& p = parts[i];
        same = same && p.apart <= 1e-4 * p.size && p.worst <= 0.03 * p.largest;
        error[i] = sqrt(p.apart / p.size);
    }
    if (!same) {
        printf("HS %d: errors of out %.4f, dq %.4f, dk %.4f, dv %.4f\n", s.HS, error[0], error[1],
               error[2], error[3]);
    }
    return same;
}

// Tells whether both ways agree on two sequences: all heads of queries on two of keys, tiles that
// are whole, on the diagonal and ragged, as many blocks as fill a GPU; narrow: with a window and a
// prefix. The process ends then, and so its memory is not freed.
template <class A, class Bi, class Pe> bool hopper_agrees(int HS, bool narrow) {
    AttnShape s = {};
    s.B = s.KV = 2;
    s.T = shrunk ? 200 : 1100;
    s.NH = shrunk ? 4 : 16;
    s.HS = s.k_dims = s.rot = HS;
    s.p = 2;
    s.alpha = 1;
    s.cap = 5;
    s.scale = 1 / sqrt((double)HS);
    s.window = narrow ? s.T / 10 : 0;
    s.prefix = narrow ? s.T * 13 / 20 : 0;
    const bool positive = A::phi == PHI_ELU1;
    const size_t rows = (size_t)s.B * s.T, outs = rows * s.NH * HS;
    const std::vector<real> inputs = check_numbers(rows * attn_row(s), positive);
    std::vector<acc> turns;
    for (int i = 0; i < s.T * HS; i++) { turns.push_back(i % 2 ? sinf(i / 2) : cosf(i / 2)); }
    real* dout = to_new_memory(check_numbers(outs, false));
    real* k_star = to_new_memory(check_numbers(s.KV * HS, positive));
    acc* table = to_new_memory(turns);
    const acc* rope_table = Pe::rotary && !positive ? table : NULL;
    const ExtraKey<const real> extra = { Bi::learn_k ? k_star : NULL,
                                         Bi::learn_v && Bi::extra ? dout : NULL };
    std::vector<real> results[2];
    for (bool hopper : { true, false }) {
        use_hopper(hopper);
        results[hopper].resize(outs + inputs.size());
        real* qkv = to_new_memory(inputs);               // turned in place
        real* out = to_new_memory(results[hopper]);
        acc* stat = to_new_memory(std::vector<acc>(2 * rows * s.NH));
        attention_forward<A, Bi, Pe>(out, stat, qkv, extra, rope_table, s);
        attention_backward<A, Bi, Pe>(out + outs, {}, dout, { out, stat }, qkv, extra, rope_table,
                                      s);
        to_host(results[hopper].data(), out, results[hopper].size() * sizeof(real));
    }
    return check_same(results[true], results[false], s);
}

enum { CHECK_SECONDS = shrunk ? 120 : 20 };

// Compares at every head dimension: the process of its own. Returns the status to exit with; a
// kernel that never ends is ended.
template <class A, class Bi, class Pe> int hopper_check() {
    gpu.number = atoi(getenv("HOPPER_CHECK"));
    device_start();
    alarm(CHECK_SECONDS);
    bool agree = true;
    for (bool narrow : { false, true }) {
        for (int HS = 1; hopper_head(HS); HS++) {
            if (is_mma_head(HS)) { agree = agree && hopper_agrees<A, Bi, Pe>(HS, narrow); }
        }
    }
    return agree ? 0 : 1;
}

// ----------------------------------------------------------------------------
// The verdict.

const std::string hopper_cache = "data/cache";
const char* const hopper_yes = "they agree";

// Returns why attention of such heads, or (0) of any, does not go by Hopper's kernels, or nothing.
template <class A> std::string hopper_lacks(int HS) {
    if (!hopper_built) {
        return "got a program without them, wanted one of make GPU_ARCH=sm_90a, or of nvcc with "
               "-gencode arch=compute_90a,code=sm_90a -DHOPPER";
    }
    if (!hopper_here()) { return "got " + gpu.name + ", wanted a card of sm_90"; }
    if (sizeof(real) != 2) { return "got PRECISION=fp32, wanted bf16"; }
    if (!one_pass<A>) { return "got an ATTN that clips its weights, wanted another"; }
    if (HS == 0) { return ""; }
    if (!hopper_head(HS) || !is_mma_head(HS)) {
        return strf("got heads of %d channels, wanted 32, 64, 96 or 128", HS);
    }
    return gpu.hopper_check == hopper_yes ? "" : "they fail their check here: " + gpu.hopper_check;
}

// Runs the check and returns what it says. *keep: whether it would say so again.
inline std::string hopper_run_check(bool* keep) {
    const std::string command = strf("exec env HOPPER_CHECK=%d /proc/%d/exe < /dev/null 2>&1",
                                     gpu.number, (int)getpid());
    FILE* child = popen(command.c_str(), "r");
    std::string said;
    char part[256];
    while (child && fgets(part, sizeof part, child)) { said += part; }
    const int status = child ? pclose(child) : -1;
    const bool late = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    *keep = !late && child;
    if (status == 0) { return hopper_yes; }
    if (late) { return strf("it has not ended within %d s", CHECK_SECONDS); }
    said = said.substr(0, said.find('\n'));
    return said.empty() ? strf("it ended with status %d", status) : said;
}

// Settles gpu.hopper_check: as it was kept, unless `again`. To be called before device_start.
template <class A> void hopper_ask(bool again) {
    device_find();
    if (!hopper_lacks<A>(0).empty()) { return; }
    const std::string program = file_read("/proc/self/exe");
    const std::string version = "/proc/driver/nvidia/version";
    const std::string driver = file_exists(version) ? file_read(version) : "";
    const uint64_t hash = hash_string(program);
    const std::string key = hash_text(hash_string(driver, hash)) + " : ";
    const std::string file = hopper_cache + "/hopper-" + device_in_file() + ".txt";
    const bool kept = !again && file_exists(file);
    bool keep = true;
    gpu.hopper_check.clear();
    for (auto& line : split(kept ? file_read(file) : "", '\n')) {
        if (starts_with(line, key)) { gpu.hopper_check = line.substr(key.size()); }
    }
    if (!gpu.hopper_check.empty()) { return; }
    gpu.hopper_check = hopper_run_check(&keep);
    if (!keep) { return; }
    make_cache(hopper_cache);
    add_line(file, key + gpu.hopper_check + "\n");
}
} // namespace cuda
#endif // CUDA_HOPPER_CHECK_CUH
