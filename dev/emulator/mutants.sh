#!/bin/sh
# dev/emulator/mutants.sh -- plants one bug at a time in a copy of the kernels and demands
# that test_cuda notices. A line of MUTANTS is: file | text to replace (once, must be there)
# | replacement | fp32, bf16 (HS 96), heads (HS 192) or tsan, the build that must fail; or hopper: test_hopper
# must; or ptx: nvcc compiles the bug, the emulator does not, and the interpreter of dev/ptx must notice;
# or hopper_ptx: the same of test_hopper. A bug of kind hopper is planted for both. The program's own check
# (hopper_agrees) has to see one of kind check, and says of one of kind hopper whether it does.
# Takes some 15 s of one core per mutant. usage: dev/emulator/mutants.sh [number..|check]
CDPATH= cd "$(dirname "$0")/../.." || exit 1
CUDA=${CUDA:-/usr/local/cuda} CXX=${CXX:-g++} JOBS=${JOBS:-$(nproc)}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
# attention on the CPU, which the tests compare with, takes its products from there
PRODUCT=$(make -s once BACKEND=cpu CXX="$CXX")
folders=$(make -s folders)
export CUDA CXX PRODUCT work folders OMP_NUM_THREADS=1 TSAN_OPTIONS="halt_on_error=1 exitcode=66"
export CHECK_FIRST=1            # one failed check is enough
export NVCC=${NVCC:-nvcc}
export PTX_FLAGS="-DPRECISION=bf16 -DFEW_VARIANTS -DONE_VARIANT -DONLY_HEADS -DMMA_HEADS(X)=X(64)"
export HOPPER_FLAGS="-DPRECISION=bf16 -DHOPPER -DFOR_PTX -DMMA_HEADS(X)=X(64)X(96)"
cat > "$work/list" <<'MUTANTS'
cuda/attention_forward.cuh|        cp_async_wait<1>(); // all but|        cp_async_wait<2>(); // all but|bf16
cuda/attention_forward.cuh|        __syncthreads(); // before this buffer is filled again|        // before this buffer is filled again|bf16
cuda/attention_backward.cuh|        __syncthreads(); // the tile in use has arrived for all|        // the tile in use has arrived for all|bf16
cuda/mma.cuh|ldmatrix_trans(right,|ldmatrix(right,|bf16
cuda/mma.cuh|const bool valid = WHOLE \|\| row + i < rows;|const bool valid = true;|bf16
cuda/mma.cuh|if (t < out.T) {|if (t <= out.T) {|bf16
cuda/attention_forward.cuh|x.l[r] *= attn_mass<A>(Fast(shrink), Fast(s.p)).v;|x.l[r] *= 1;|bf16
cuda/attention_forward.cuh|            float& w_j = element(w, r, 4 * k + i);|            float& w_j = element(w, r, i);|bf16
cuda/attention_forward.cuh|fmaxf(m * LOG2_E, -FLT_MAX);|m * LOG2_E;|bf16
cuda/mma.cuh|product_step<HS, MT>(c, left, x, 16 * k, by_column);|product_step<HS, MT>(c, left, x, 0, by_column);|bf16
cuda/attention_backward.cuh|            next = first;\n            next_bh++;|            next = t0 + BQ;\n            next_bh++;|bf16
cuda/attention_backward.cuh|const bool sees = FULL \| ((t < s.T) & (j < s.T) & attn_sees(s, t, j));|const bool sees = true;|bf16
cuda/mma.cuh|    v += __shfl_xor_sync(~0u, v, 1);\n    return|    return|bf16
cuda/mma.cuh|(chunk & ~3) \| ((chunk ^ (row >> 1)) & 3);|chunk;|bf16
cuda/mma.cuh|const int among_8 = chunk ^ (row & 7);|const int among_8 = chunk;|heads
cuda/attention_dqk.cu|if constexpr (SIDE == QUERIES) {\n            ldmatrix_trans(a|if constexpr (false) {\n            ldmatrix_trans(a|heads
cuda/mma.cuh|at ^ k % PERIOD * 16;|at + k % PERIOD * 16;|bf16
cuda/attention_backward.cuh|sequence[1] = b * s.NH;|sequence[1] = 0;|bf16
cuda/attention_panels.cuh|std::min(s.T, std::max(x.t1, s.prefix))|x.t1|fp32
cuda/attention_panels.cuh|x.j0 = first_key / 8 * 8;|x.j0 = first_key / 8 * 8 + 8;|fp32
cuda/attention_panels.cuh|if (s.window && !s.prefix) {|if (s.window) {|fp32
cuda/attention_panels.cuh|return n < count * queries();|return n <= count * queries();|fp32
cuda/attention_panels.cuh|add ? rows.p : NULL;|NULL;|fp32
cuda/attention_panels.cuh|gemm(keys, keys.p, transposed|gemm(keys, NULL, transposed|fp32
cuda/attention_panels.cuh|            device_zero(memory.dk, 2 * panel_sums(s) * sizeof(float));|            if (g == 0) { device_zero(memory.dk, 2 * panel_sums(s) * sizeof(float)); }|fp32
cuda/attention_panels.cuh|        top = warp_max(top);\n|\n|fp32
cuda/attention_panels.cuh|if (Bi::column) { sum += score_mass|if (false) { sum += score_mass|fp32
cuda/attention_common.cu|qkv_at(s, b0, 0, 0)|qkv_at(s, 0, 0, 0)|fp32
cuda/attention_panels.cuh|return { p, width, (long)s.T * width };|return { p, width, 0 };|fp32
cuda/attention_panels.cuh|return b + n / queries();|return n / queries();|fp32
cuda/sums.cuh|    sums[warp][lane] = sum;\n    __syncthreads();|    sums[warp][lane] = sum;|fp32
cuda/sums.cuh|    if (warp > 0 \|\| c >= C \|\| c % width >= limit) { return; }|    if (warp > 0 \|\| c >= C) { return; }|fp32
cuda/norms.cuh|        __syncthreads();\n        FOR_STRIDE(c, threadIdx.x, C, blockDim.x) {|        FOR_STRIDE(c, threadIdx.x, C, blockDim.x) {|tsan
cuda/ops.cuh|const float x_y = counts ? capped((float)x[y]) : 0.0f;|const float x_y = 0;|fp32
cuda/norms.cuh|const int end = min(a.s.N, first + NORM_ROWS);|const int end = first + NORM_ROWS;|fp32
cuda/gemm.cuh|if (k.transposed_b) { std::swap|if (!k.transposed_b) { std::swap|fp32
cuda/gemm.cuh|stride ? stride : columns;|columns;|fp32
cuda/attention_tiles.cuh|                a = (float)bf16(a);|                |heads
cuda/attention_dqk.cu|if (last && in.rope_table) { rows_turn<HS>(d[i]|if (false) { rows_turn<HS>(d[i]|bf16
cuda/attention.cuh|if (turn_last) {|if (false) {|fp32
cuda/metrics.cuh|sum += select_or_zero(j >= skip, w);|sum += w;|fp32
cuda/metrics.cuh|weight(skip + lane - 1) : 0.0f;|weight(lane - 1) : 0.0f;|fp32
cuda/metrics.cuh|score(j - x.j0)|score(j)|fp32
cuda/metrics.cuh|row_at(s, b - x.b, x.h, t) * METRIC_SUMS|row_at(s, b, x.h, t) * METRIC_SUMS|fp32
cuda/metrics.cuh|out + (long)b * s.NH, count|out, count|fp32
cuda/attention_common.cu|t < T; t += METRIC_WARPS|t < T - 1; t += METRIC_WARPS|fp32
cuda/optimizer.cuh|    if (isnan(scale)) { return; }\n    FOR_FLAT(i, N, n) {|    FOR_FLAT(i, N, n) {|fp32
cuda/attention_tiles.cuh|head_slope = pe_slope<Pe>(s, h);|head_slope = Pe::slope(h, s.NH);|bf16
cuda/attention_tiles.cuh|blockIdx.z * gridDim.x + blockIdx.x|blockIdx.z + blockIdx.x|bf16
cuda/attention_panels.cuh|slope(pe_slope<Pe>(s, x.h))|slope(Pe::slope(x.h, s.NH))|fp32
cuda/rows.cuh|    return p ? load_real<N>(p + at) : all_of<N>(otherwise);|    return p ? load_real<N>(p) : all_of<N>(otherwise);|fp32
cuda/rows.cuh|i += (long)gridDim.x * ROW_THREADS * N)|i += (long)gridDim.x * ROW_THREADS * N * 2)|fp32
cuda/norms.cuh|const Floats<N> g = a.add ? before.at(k, c) : all_of<N>(0);|const Floats<N> g = all_of<N>(0);|fp32
cuda/heads.cuh|gate_read<N>(gate_h, c % s.HS, width)|gate_read<N>(gate_h, 0, width)|fp32
cuda/optimizer.cuh|sums->loss += sum / count;|sums->loss = sum / count;|fp32
cuda/device.cuh|        device_check(cudaEventSynchronize(taken[slot]), "waiting for the GPU");|        |fp32
cuda/magnitudes.cuh|block_sum<512>(below) <= n / 2|block_sum<512>(below) < n / 2|fp32
cuda/magnitudes.cuh|sizeof(real) == 2 ? 16 : 0;|sizeof(real) == 2 ? 16 : 8;|fp32
cuda/gemm.cuh|[](auto& f) { return f.state != CUBLAS_STATUS_SUCCESS; }|[](auto&) { return false; }|fp32
cuda/gemm.cuh|k.align_b = blas_alignment(B.p);|k.align_b = 256;|fp32
cuda/gemm.cuh|CUBLASLT_MATMUL_DESC_TRANSA, &op_first,\n                                              sizeof op_first)|CUBLASLT_MATMUL_DESC_TRANSA, &op_first, 8)|fp32
cuda/gemm.cuh|                          DEVICE_WORKSPACE, device_stream);|                          16, device_stream);|fp32
cuda/device.cuh|    if (smem > 40 << 10) {|    if (false) {|bf16
cuda/device.cuh|    if (smem > 40 << 10) {|    if (smem > 48 << 10) {|fp32
cuda/device.cuh|    if (p) { device_sync(); }\n|\n|fp32
cuda/device.cuh|"copying from the GPU");\n    device_sync();|"copying from the GPU");|fp32
cuda/attention.cuh|mma ? ds_bytes(s) : 0;|mma ? ds_bytes(s) + 4 : 0;|bf16
cuda/instructions.cuh|"{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}|"{%0,%1,%2,%3}, {%4,%6,%5,%7}, {%8,%9}|ptx
cuda/instructions.cuh|m8n8.x4.trans.shared|m8n8.x4.shared|ptx
cuda/instructions.cuh|__floats2bfloat162_rn(lo, hi);|__floats2bfloat162_rn(hi, lo);|ptx
cuda/attention_forward.cuh|        __syncthreads(); // before this buffer is filled again|        // before this buffer is filled again|ptx
cuda/attention_forward.cuh|        cp_async_wait<1>(); // all but|        cp_async_wait<2>(); // all but|ptx
cuda/attention_forward.cuh|    cp_async_commit();\n    for (int buf = 0; j0 < end; buf ^= 1) {|    for (int buf = 0; j0 < end; buf ^= 1) {|ptx
cuda/attention_tiles.cuh|load<4>(turn + 16 * n);|load<4>(turn + 16 * n + 1);|ptx
cuda/attention_forward.cuh|attn_sees(s, t, key));|attn_sees(s, t + 1, key));|ptx
cuda/mma.cuh|__shfl_xor_sync(~0u, v, 2);|__shfl_xor_sync(0x7fffffffu, v, 2);|ptx
cuda/mma.cuh|const bool valid = WHOLE \|\| row + i < rows;|const bool valid = true;|ptx
cuda/mma.cuh|    __syncwarp();\n    FOR_LANES(i, 16 * CHUNKS) {|    FOR_LANES(i, 16 * CHUNKS) {|ptx
cuda/attention_forward.cuh|        w_j = sees ? w_j : attn_masked<A, float>();|        w_j = sees ? w_j * (FULL ? 2 : 1) : attn_masked<A, float>();|bf16
cuda/attention_backward.cuh|            tile_weights_ds<true, A, Pe, MT, BQ>(w, ds, score, own_rows, t, lane_row, s);|            tile_weights_ds<true, A, Pe, MT, BQ>(w, ds, score, own_rows, t, lane_row, s); w[0][0][0] *= 2; ds[0][0][1] *= 2;|bf16
cuda/hopper/forward.cuh|        fence_async();\n        __syncthreads(); // K of|        __syncthreads(); // K of|hopper
cuda/hopper/forward.cuh|        __syncthreads(); // K of this tile|        // K of this tile|hopper
cuda/hopper/forward.cuh|        cp_async_wait<0>();\n        fence_async();\n        __syncthreads(); // K of|        fence_async();\n        __syncthreads(); // K of|hopper
cuda/hopper/forward.cuh|        wgmma_fence();\n        begin_rows|        begin_rows|hopper
cuda/hopper/forward.cuh|wgmma_wait<FIRST ? 0 : 1>(); // for the scores|wgmma_wait<1>();|hopper
cuda/hopper/forward.cuh|        wgmma_wait<0>();\n        hold(x.o[0]);|        hold(x.o[0]);|hopper
cuda/hopper/forward.cuh|values + (buf ^ 1) * TILE);|values + buf * TILE);|hopper
cuda/hopper/forward.cuh|panels<HS, BQ>(sq, group * GROUP_ROWS)|panels<HS, BQ>(sq)|hopper
cuda/hopper/forward.cuh|element(x.o, r, i) *= shrink[r];|element(x.o, r, i) *= shrink[0];|hopper
cuda/hopper/forward.cuh|        fence_async();\n        __syncthreads();\n        wgmma_fence();\n        begin_values();|        wgmma_fence();\n        begin_values();|hopper
cuda/hopper/wgmma.cuh|const int place = W == 64 ? c ^ (row & 7)|const int place = W == 64 ? c|hopper
cuda/hopper/wgmma.cuh|constexpr uint64_t SBO = 8 * W * 2 / 16;|constexpr uint64_t SBO = 4 * W * 2 / 16;|hopper
cuda/hopper/wgmma.cuh|constexpr uint64_t LBO = ROWS * W * 2 / 16;|constexpr uint64_t LBO = W;|hopper
cuda/hopper/wgmma.cuh|return p + (-smem_address(p) & 1023) / 2;|return p;|hopper
cuda/hopper/wgmma.cuh|b + rows_on<HS>(k)|b + rows_on<HS>(0)|hopper
cuda/hopper/wgmma.cuh|* ROWS * W + 16 * k % W)|* ROWS * W)|hopper
cuda/hopper/backward.cuh|        STAGES = 3, |        STAGES = 2, |hopper
cuda/hopper/backward.cuh|cell[1 * 32] = movmatrix(d[n][2]);|cell[1 * 32] = movmatrix(d[n][1]);|hopper
cuda/hopper/backward.cuh|begin_columns<HS, BQ>(dk, d, queries + before * TILE);|begin_columns<HS, BQ>(dk, d, queries + stage * TILE);|hopper
cuda/hopper/backward.cuh|begin_columns<HS, BQ>(dv, p, douts|begin_columns<HS, BQ>(dv, d, douts|hopper
cuda/hopper/backward.cuh|        ds_store_turned<BQ>(cells, c.width(), d);\n        wgmma_fence();|        wgmma_fence();|hopper
cuda/hopper/backward.cuh|wgmma_wait<FIRST ? 0 : 1>(); // for both|wgmma_wait<1>(); // for both|hopper
cuda/hopper/backward.cuh|        wgmma_wait<0>();\n        hold(dv[0]);|        hold(dv[0]);|hopper
cuda/hopper/backward.cuh|        fence_async();\n        __syncthreads(); // the tile|        __syncthreads(); // the tile|hopper
cuda/hopper/backward.cuh|            next = first;\n            next_bh++;|            next = t0 + BQ;\n            next_bh++;|hopper
cuda/hopper/backward.cuh|panels<HS, BK>(sv, group * GROUP_ROWS)|panels<HS, BK>(sv)|hopper
cuda/hopper/backward.cuh|rows + to * ROWS + thread, from|rows + thread, from|hopper
cuda/hopper/backward.cuh|        ds_store_turned<BQ>(cells, c.width(), d);\n        wgmma_fence();\n        begin_columns<HS, BQ>(dv, p, douts + before * TILE);\n        begin_columns<HS, BQ>(dk, d, queries + before * TILE);\n        wgmma_commit();|        wgmma_fence();\n        begin_columns<HS, BQ>(dv, p, douts + before * TILE);\n        begin_columns<HS, BQ>(dk, d, queries + before * TILE);\n        wgmma_commit();\n        ds_store_turned<BQ>(cells, c.width(), d);|hopper
cuda/hopper/forward.cuh|        wgmma_fence();\n        begin_rows|        wgmma_fence();\n        UNROLL(i, HS / 4) { element(x.o, 0, i) *= (float)opaque(1); }\n        begin_rows|hopper_ptx
cuda/hopper/dq.cuh|a[i][m] = ahead[i][m];|a[i][m] = a[i][m];|hopper
cuda/hopper/dq.cuh|a[i][m] = stored ? pair : 0;|a[i][m] = pair;|hopper
cuda/hopper/dq.cuh|        cp_async_wait<1>(); // all but|        cp_async_wait<2>(); // all but|hopper
cuda/hopper/dq.cuh|        wgmma_wait<0>();\n        hold(d[0]);|        hold(d[0]);|hopper
cuda/hopper/wgmma.cuh|"}," B ",1,1,1,1;"|"}," B ",1,1,1,0;"|hopper_ptx
cuda/hopper/wgmma.cuh|setp.ne.b32 p, " P ", 0;"|setp.ne.b32 p, " P ", 7;"|hopper_ptx
cuda/hopper/wgmma.cuh|#define R_16 "%0,%1,|#define R_16 "%1,%0,|hopper_ptx
cuda/hopper/wgmma.cuh|fence.proxy.async.shared::cta;|fence.proxy.async;|hopper_ptx
cuda/hopper/wgmma.cuh|wait_group.sync.aligned %0;" ::"n"(KEEP)|wait_group.sync.aligned %0;" ::"n"(KEEP + 1)|hopper_ptx
cuda/hopper/forward.cuh|rope_table + row * HS + 2 * pair, +1);\n    }\n    __syncthreads();|rope_table + row * HS + 2 * pair, +1);\n    }|hopper
cuda/hopper/forward.cuh|rope_table + (long)of.t0 * HS;|rope_table;|hopper
cuda/hopper/backward.cuh|cell[0 * 32] = movmatrix(d[n][0]);|cell[0 * 32] = d[n][0];|check
cuda/hopper/backward.cuh|(dk, d, queries|(dk, d, douts|check
cuda/hopper/backward.cuh|(w, keys, queries|(w, keys + 16, queries|check
MUTANTS
cat > "$work/one.sh" <<'ONE'
n=$1; dir=$work/$n
mkdir -p "$dir" && cp -r --parents ./*.cu ./*.h ./*.cuh $folders test dev "$dir"
line=$(sed -n "${n}p" "$work/list")
kind=${line##*|}
LINE=$line awk 'BEGIN {
    line = ENVIRON["LINE"]; gsub(/\\\|/, "\001", line); split(line, f, "|")
    for (i in f) { gsub("\001", "|", f[i]); gsub(/\\n/, "\n", f[i]) }
    file = ARGV[1] "/" f[1]; while ((getline l < file) > 0) { text = text l "\n" }
    at = index(text, f[2]); if (!at) { exit 1 }
    printf "%s%s%s", substr(text, 1, at - 1), f[3], substr(text, at + length(f[2])) > file
}' "$dir" || { echo "mutant $n: its text is gone"; exit; }
source=test/gpu/test_cuda.cu
case $kind in hopper*|check) source=test/gpu/test_hopper.cu ;; esac
case $kind in
check) flags="-DPRECISION=bf16 -DHOPPER -DOWN_CHECK -DMMA_HEADS(X)=X(64)" ;;
hopper) flags="-DPRECISION=bf16 -DHOPPER -DFEW -DMMA_HEADS(X)=X(64)X(96)" ;;
bf16) flags="-DPRECISION=bf16 -DMMA_HEADS(X)=X(96)" ;;
heads) flags="-DPRECISION=bf16 -DMMA_HEADS(X)=X(192)" ;;
tsan) flags="-fsanitize=thread" ;;
*)    flags= ;;
esac
in_ptx() { # PROGRAM ARCHITECTURE FLAGS: the program, which has no bug, beside the bug's PTX
    [ -f "$work/$1" ] || { echo "mutant $n: skipped, the interpreter needs nvcc"; exit; }
    $NVCC -std=c++17 -O3 -ptx -arch=$2 -lineinfo -w -DPTX_SHRUNK $3 -I"$dir" "$dir/$source" \
        -o "$dir/run.ptx" > "$dir/log" 2>&1 || { echo "mutant $n: does not compile"; exit; }
    PTX=$dir/run.ptx timeout 400 "$work/$1" > "$dir/log" 2>&1
}
emulated() {
    $CXX -x c++ -std=c++17 -O1 -march=native -ffp-contract=off -w -DEMU -DFEW_VARIANTS $flags \
        -fno-strict-aliasing -fstack-clash-protection -Wno-unknown-pragmas \
        -I"$CUDA/include" -I"$dir/dev/emulator" "$dir/$source" -x none "$PRODUCT" -lgomp \
        -o "$dir/program" > "$dir/log" 2>&1 || { echo "mutant $n: does not compile"; exit; }
    timeout 400 "$dir/program" > "$dir/log" 2>&1
}
tell() { # STATUS
    if [ $1 = 0 ] || [ $1 = 124 ]; then
        echo "mutant $n: NOT NOTICED, exit status $1: $line"
        exit
    fi
    said=$(grep -m 1 -E 'EMU ERROR|SUMMARY|FAIL|PTX [A-Z]+|errors of' "$dir/log" | cut -c 1-110)
    echo "mutant $n: noticed, $said"
}
case $kind in
ptx) in_ptx ptx compute_80 "$PTX_FLAGS"; tell $? ;;
hopper_ptx) in_ptx hopper compute_90a "$HOPPER_FLAGS"; tell $? ;;
hopper)
    emulated; tell $?
    [ -f "$work/hopper" ] && { in_ptx hopper compute_90a "$HOPPER_FLAGS"; tell $?; }
    flags="-DPRECISION=bf16 -DHOPPER -DOWN_CHECK -DMMA_HEADS(X)=X(64)X(96)"
    emulated && echo "mutant $n: the check agrees" || echo "mutant $n: the check: $(head -n 1 "$dir/log")" ;;
*) emulated; tell $? ;;
esac
rm -rf "$dir"
ONE
[ $# -gt 0 ] || set -- $(seq "$(wc -l < "$work/list")")
[ "$1" != check ] || set -- $(grep -n '|check$' "$work/list" | cut -d: -f1)
# of all mutants in PTX the emulated side is the same: tests of attention at HS 64, or of Hopper's
for n in "$@"; do sed -n "${n}p" "$work/list"; done > "$work/chosen"
program() { # NAME SOURCE FLAGS
    sh dev/ptx/build.sh && $CXX -x c++ -std=c++17 -O1 -march=native -ffp-contract=off -w -DEMU \
        -DPTX_RUN $3 -fno-strict-aliasing -fstack-clash-protection -fno-ipa-icf \
        -I"$CUDA/include" -Idev/emulator $2 -x none build/ptx/*.o "$PRODUCT" \
        -fopenmp -rdynamic -ldl -o "$work/$1" || exit 1
}
if command -v "$NVCC" > /dev/null; then
    grep -q '|ptx$' "$work/chosen" && program ptx test/gpu/test_cuda.cu "$PTX_FLAGS"
    grep -q '|hopper' "$work/chosen" && program hopper test/gpu/test_hopper.cu "$HOPPER_FLAGS"
fi
printf '%s\n' "$@" | xargs -P "$JOBS" -I{} sh "$work/one.sh" {} | tee "$work/report"
bad=$(grep -cv ': noticed\|: skipped' "$work/report")
echo "$(($# - bad)) passed, $bad failed"
[ "$bad" = 0 ]
