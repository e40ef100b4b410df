/*
dev/emulator/selftest_counts.cu -- the emulator's counters (emu_counts.h) against kernels whose
figures are known by hand. Built as emu_counts.h says and run by test/gpu/test_counts.sh.
*/
#define MMA_HEADS(X) X(64)
#include "../../cuda/gemm.cuh"
#include "../../cuda/attention_dqk.cu"
#include "../../cuda/attention_forward.cuh"
#include "../../attention_variants.cuh"
using namespace cuda;

static int passed, failed;
static void check(const char* what, uint64_t got, uint64_t want) {
    got == want ? passed++ : failed++;
    if (got != want) {
        printf("FAIL %s: %lu, wanted %lu\n", what, (unsigned long)got, (unsigned long)want);
    }
}

// half of the blocks have nothing to do
__global__ void copies(float* out, const float* in, int n) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) { out[i] = in[i]; }
}
__global__ void vector_copies(float* out, const float* in) {
    store<4>(out + 4 * threadIdx.x, load<4>(in + 4 * threadIdx.x));
}
// begins at bank 0, and a vector of four floats may be stored anywhere in it
struct alignas(128) Banks {
    float word[1024];
};
// what each line costs beyond its one cycle
__global__ void banks(float* out) {
    SMEM(Banks, shared);
    float* s = shared.word;
    const int t = threadIdx.x;
    s[t] = 1;                                        // 0
    __syncwarp();
    s[2 * t] = 2;                                    // 1: lanes 16 apart meet in a bank
    __syncwarp();
    s[32 * t % 1024] = 3;                            // 31
    __syncwarp();
    const float one = s[0];                          // 0: one word for all
    __syncwarp();
    store<4>(&s[4 * t], Vec<float, 4>{{1, 2, 3, one}});  // 0: eight lanes at a time, all banks once
    out[t] = one;
}
// n bytes, twice
__global__ void twice(const float* in, float* out, int n) {
    float sum = 0;
    for (int k = 0; k < 2; k++) { for (int i = threadIdx.x; i < n / 4; i += 32) { sum += in[i]; } }
    out[threadIdx.x] = sum;
}
__global__ void async_reads(const float* in) {
    float* s = dynamic_smem<float>();
    cp_async(s + 4 * threadIdx.x, in + 4 * threadIdx.x, threadIdx.x < 16);
    cp_async_commit();
    cp_async_wait<0>();
}

int main() {
    setenv("EMU_COUNTS", "/dev/null", 1);
    setenv("EMU_L2", "32", 1);                       // KiB
    setenv("EMU_RESIDENT", "1", 1);
    float *a = (float*)device_malloc(1 << 17), *b = (float*)device_malloc(1 << 17);
    auto& kernels = emu::counting.kernels;
    LAUNCH(copies, dim3(8), dim3(32), 0, a, b, 128);
    check("copies: blocks", kernels["copies"].blocks, 8);
    check("copies: empty blocks", kernels["copies"].empty, 4);
    check("copies: bytes read", kernels["copies"].read, 512);
    check("copies: bytes written", kernels["copies"].written, 512);
    LAUNCH(vector_copies, dim3(1), dim3(32), 0, a, b);
    check("vector copies: bytes read", kernels["vector_copies"].read, 512);
    LAUNCH(banks, dim3(2), dim3(32), 0, a);
    check("bank conflicts", kernels["banks"].conflicts, 2 * 32);
    LAUNCH(twice, dim3(1), dim3(32), 0, a + 8192, b, 16 << 10);  // fits the cache: fetched once
    check("L2: bytes read", kernels["twice"].read, 32 << 10);
    check("L2: bytes missed, small", kernels["twice"].missed, 16 << 10);
    kernels["twice"].missed = 0;
    // does not: an LRU has always just lost what comes next
    LAUNCH(twice, dim3(1), dim3(32), 0, a + 16384, b, 64 << 10);
    check("L2: bytes missed, large", kernels["twice"].missed, 128 << 10);
    check("L2: bytes written back, overwritten before", kernels["copies"].evicted, 0);
    check("L2: bytes written back", kernels["vector_copies"].evicted, 512 - 128);
    check("L2: bytes written back, by another kernel's misses", kernels["banks"].evicted, 128);
    LAUNCH(async_reads, dim3(1), dim3(32), 512, b);
    check("cp.async: bytes read", kernels["async_reads"].read, 256);
    // two blocks an SM, 64 KiB for each. The tiles of a head run side by side, so what two of them
    // read is fetched once: q, k, v, and the cells of ds that are not all masked
    emu::counting.most_resident = 8;
    emu::counting.l2.capacity = 4096;
    const AttnShape s = { 1, 256, 8, 8, 64 };
    const int n = 1 << 18;                           // bytes of q, of k and of v
    auto large = [] { return (bf16*)device_malloc(1 << 20); };
    attention_forward_mma<Attn_softmax, Bias_none, Pe_nope, 64>(
        large(), a, { (real*)large(), {}, s });
    check("forward: missed", kernels["attention_forward_mma_kernel"].missed, 3 * n);
    dqk_launch<64>(large(), { large(), 0, 8, 0, 0, 256, 16 }, { large(), NULL, NULL, NULL, s });
    check("dq, dk: missed", kernels["attention_dqk_mma_kernel"].missed, 2 * n + 8 * 136 * 512);
    emu::counting.between = "copies";                // from after its first launch to its second
    for (int i = 0; i < 3; i++) {
        LAUNCH(vector_copies, dim3(1), dim3(32), 0, a, b);
        LAUNCH(copies, dim3(8), dim3(32), 0, a, b, 128);
    }
    check("between: vector copies", kernels["vector_copies"].launches, 2);
    check("between: copies", kernels["copies"].launches, 2);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
