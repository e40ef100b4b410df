#!/bin/sh
# dev/gpu/sass.sh -- what became of the attention kernels in machine code. No GPU needed,
# only nvcc, cuobjdump and nvdisasm.
#   usage: dev/gpu/sass.sh quick               every ATTN, HS 96, sm_90, against
#                                          dev/gpu/budgets.tsv: 20 seconds
#          dev/gpu/sass.sh all                 every ATTN, HS 32, 64, 96, 128, sm_80 and sm_90,
#                                          one nvcc at a time: six minutes
#          dev/gpu/sass.sh update [quick]      writes today's figures into dev/gpu/budgets.tsv
#          HEADS=96 before all or update: of this head dimension only; ARCHS=sm_90: on this only
#          dev/gpu/sass.sh table [ATTN=.. BIAS=.. PE=.. PRECISION=..]
#                                          a markdown table of every kernel and head dimension, four
#                                          numbers a cell, for sm_80 / sm_86 / sm_89 / sm_90
#                                          (one number where they agree)
# What is counted against the budgets, and how: dev/gpu/sass_loops.py. In the table, blocks that fit
# an SM follow from registers, shared memory (1 KiB more a block) and 128 threads; limits: CUDA
# programming guide, table of compute capabilities. There HMMA mma, LDSM ldmatrix, LDGSTS cp.async,
# LDL + STL local memory are instructions in the text, not executed. cuobjdump and nvdisasm are
# looked for in PATH, in the toolkit, in build/tools and where pip puts them (pip install
# nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm). TO ADD an architecture to the table: a row in limits().
CDPATH= cd "$(dirname "$0")/../.." || exit 1
NVCC=${NVCC:-nvcc} CXX=${CXX:-g++} CUDA=${CUDA:-/usr/local/cuda} PYTHON=${PYTHON:-python3}
site=$($PYTHON -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2> /dev/null)
PATH=$PATH:$CUDA/bin:$site/nvidia/cu13/bin:$site/triton/backends/nvidia/bin
PATH=$PATH:$PWD/build/tools/nvidia/cu13/bin              # where .ci/run puts them
CUOBJDUMP=${CUOBJDUMP:-cuobjdump}
for tool in "$NVCC" "$CUOBJDUMP" nvdisasm "$PYTHON"; do
    command -v "$tool" > /dev/null && continue
    echo "skipped: 1 count of machine code, found no $tool in PATH, wanted the CUDA toolkit's"
    echo "0 passed, 0 failed"
    exit 0
done
what=${1:-quick}; [ $# -gt 0 ] && shift
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
# compiles a file of CUDA for the CPU
on_host() {
    $CXX -x c++ -std=c++17 -O0 -DEMU -fno-strict-aliasing -Wno-unknown-pragmas \
         -I. -I"$CUDA/include" -Idev/emulator "$@"
}
values=$(make -s values)
# counts HS.. : every ATTN of $attns on $archs, as rows of dev/gpu/budgets.tsv
counts() {
    cat > "$dir/tiles.cu" <<'TILES'
#define PRECISION bf16
#include "cuda/attention.cuh"
#define X(HS) \
    printf("forward %d %d\ndv %d %d\ndqk %d %d\n", HS, cuda::ForwardTile<HS>::BK * HS / 8, \
           HS, cuda::DvTile<HS>::BQ * HS / 8, HS, cuda::DqkTile<HS>::BX * HS / 8);
int main() { MMA_HEADS(X) }
TILES
    on_host "$dir/tiles.cu" -o "$dir/tiles" && "$dir/tiles" > "$dir/tiles.txt" || return 1
    { echo '#include "attention_variants.cuh"
#include "cuda/attention.cuh"
#include "cuda/attention_dqk.cu"
using namespace cuda; void* kernels[] = {'
      for a in $attns; do
          echo "(void*)&attention_forward<Attn_$a, Bias_none, Pe_rotary>,"
          echo "(void*)&attention_backward<Attn_$a, Bias_none, Pe_rotary>,"
      done
      echo '};'; } > "$dir/kernels.cu"
    gencode= # sm_90 with Hopper's own instructions
    for a in $archs; do
        case $a in sm_90) a=sm_90a ;; esac
        gencode="$gencode -gencode arch=compute_${a#sm_},code=$a"
    done
    for hs in "$@"; do
        $NVCC -std=c++17 -fatbin $gencode -Xptxas -v -DHOPPER -DPRECISION=bf16 "-DMMA_HEADS(X)=X($hs)" -I. \
            "$dir/kernels.cu" -o "$dir/$hs.fatbin" > "$dir/$hs.ptxas" 2>&1 ||
            { cat "$dir/$hs.ptxas"; return 1; }
        # C7519: ptxas has put in a wgmma.fence that is missing; the others: products wait
        if grep 'C75[0-9][0-9]' "$dir/$hs.ptxas" > "$dir/waits"; then
            echo "FAIL HS $hs: ptxas changes Hopper's products: $(head -n 1 "$dir/waits")"
            return 1
        fi
        $CUOBJDUMP -sass "$dir/$hs.fatbin" > "$dir/$hs.sass" || return 1
        if grep -q 'HGMMA.64x8x16' "$dir/$hs.sass"; then # what ptxas makes of a group of no product
            echo "FAIL HS $hs: a wgmma.commit_group without a product"
            return 1
        fi
        $PYTHON dev/gpu/sass_loops.py "$dir/tiles.txt" "$dir/$hs.ptxas" < "$dir/$hs.sass" \
            > "$dir/$hs.tsv" || return 1
    done
    for hs in "$@"; do cat "$dir/$hs.tsv"; done | awk 'NR == 1 || !/^attn\t/'
}
attns=$(echo "$values" | sed -n 's/^ATTN //p')
case "$what $1" in quick*|"update quick") archs=sm_90 heads=96 ;;
*) archs=${ARCHS:-sm_80 sm_90} heads=${HEADS:-32 64 96 128} ;;
esac
case $what in
quick|all) counts $heads > "$dir/counts.tsv" ||
    { cat "$dir/counts.tsv"; echo "0 passed, 1 failed"; exit 1; }
    $PYTHON dev/gpu/sass_loops.py --check dev/gpu/budgets.tsv "$dir/counts.tsv"; exit ;;
update) counts $heads > "$dir/counts.tsv" || { cat "$dir/counts.tsv"; exit 1; }
    $PYTHON dev/gpu/sass_loops.py --update dev/gpu/budgets.tsv "$dir/counts.tsv"; exit ;;
table) ;;
*) echo "usage: dev/gpu/sass.sh quick|all|update|table"; exit 2 ;;
esac
limits() { # architecture, KiB of shared memory an SM, KiB a block may ask for, warps, blocks
    echo "sm_80 164 163 64 32
sm_86 100 99 48 16
sm_89 100 99 48 24
sm_90 228 227 64 32"; }
# dynamic shared memory is decided by the host: ask it
cat > "$dir/smem.cu" <<'SMEM'
#define PRECISION bf16
#include "cuda/attention.cuh"
#define X(HS) \
    printf("attention_forward_mma_kernel %d %d\n", HS, cuda::ForwardTile<HS>::SMEM); \
    printf("attention_dv_mma_kernel %d %d\n", HS, cuda::DvTile<HS>::SMEM); \
    printf("attention_dqk_mma_kernel %d %d\n", HS, cuda::DqkTile<HS>::SMEM);
int main() { MMA_HEADS(X) }
SMEM
on_host "$dir/smem.cu" -o "$dir/smem" && "$dir/smem" > "$dir/smem.txt" || exit 1
defs="-DBACKEND=cuda"
defaults=$(echo "$values" | sed -n '/^PRECISION\|^BACKEND/d; s/^\([A-Z]*\) \([a-z0-9_]*\).*/\1=\2/p')
for s in $defaults PRECISION=bf16; do
    for a in "$@"; do case $a in "${s%=*}="*) s=$a ;; esac; done
    defs="$defs -D$s"
done
$NVCC -std=c++17 -fatbin -gencode 'arch=compute_80,code=[sm_80,sm_86,sm_89]' \
    -gencode arch=compute_90,code=sm_90 -Xptxas -v $defs \
    -DONCE_APART train_sink.cu -o "$dir/all.fatbin" > "$dir/ptxas" 2>&1 || { cat "$dir/ptxas"; exit 1; }
$CUOBJDUMP -sass "$dir/all.fatbin" > "$dir/sass" || exit 1
compiler=$($NVCC --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p')
echo "\`$(echo "$defs" | sed 's/-DBACKEND=cuda //; s/-D//g')\`," \
     "$compiler, $(git describe --always --dirty 2>/dev/null)"
echo
echo "| kernel | HS | registers | bytes spilled | shared memory, KiB | blocks an SM | warps an SM" \
     "| HMMA | LDSM | LDGSTS | LDL + STL |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
{ limits; cat "$dir/smem.txt" "$dir/ptxas" "$dir/sass"; } | awk '
    function name_of(line,   n) { # attention_dqk_mma_kernel 192: kernel, head dimension
        n = line; sub(/.*_ZN4cuda[0-9]+/, "", n)
        kernel = n; sub(/_kernel.*/, "_kernel", kernel)
        HS = "any"; if (match(n, /Li[0-9]+E/)) { HS = substr(n, RSTART + 2, RLENGTH - 3) }
        return kernel " | " HS
    }
    function least(a, b) { return a < b ? a : b }
    function cell(array, key,   i, v, all, same) {
        same = 1; all = array[key, arch[1]] + 0
        for (i = 2; i <= A; i++) {
            v = array[key, arch[i]] + 0
            if (v != array[key, arch[1]] + 0) { same = 0 }
            all = all " / " v
        }
        return same ? array[key, arch[1]] + 0 : all
    }
    /^sm_[0-9]+ [0-9]/ {
        arch[++A] = $1; sm[$1] = $2 * 1024; ask[$1] = $3 * 1024; warps[$1] = $4; most[$1] = $5
        next
    }
    /^attention_[a-z_]* [0-9]+ [0-9]+$/ { dynamic[$1, $2] = $3; next }
    /Compiling entry/ {
        on = $NF; gsub("\047", "", on); key = name_of($0); mine = kernel ~ /^attention/
        if (mine && !(key in seen)) { seen[key] = 1; order[++N] = key }
        next
    }
    mine && /bytes spill stores/ {
        s = $0; sub(/ bytes spill stores.*/, "", s); sub(/.*, /, "", s); spill[key, on] = s
        next
    }
    mine && /Used [0-9]+ registers/ {
        match($0, /Used [0-9]+/); r = substr($0, RSTART + 5, RLENGTH - 5) + 0; regs[key, on] = r
        static = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH - 11) + 0 : 0
        bytes = static + dynamic[kernel, HS]
        if (bytes > ask[on]) { print key " does not fit " on > "/dev/stderr"; bad = 1 }
        smem[key, on] = sprintf("%.1f", bytes / 1024)
        # registers come by 256 a warp, warps by 4 a block
        per_warp = int((r * 32 + 255) / 256) * 256
        b = least(int(65536 / (per_warp * 4)), int(sm[on] / (bytes + 1024)))
        b = least(b, least(most[on], int(warps[on] / 4)))
        blocks[key, on] = b; active[key, on] = b * 4; mine = 0; next
    }
    /code for sm_/ { on = $NF; next }
    /Function :/ { key = name_of($0); next }
    / HMMA\./ { hmma[key, on]++ }
    / LDSM\./ { ldsm[key, on]++ }
    / LDGSTS\./ { ldgsts[key, on]++ }
    / (LDL|STL)[. ]/ { local[key, on]++ }
    END {
        for (i = 1; i <= N; i++) {
            k = order[i]
            print "| " k " | " cell(regs, k) " | " cell(spill, k) " | " cell(smem, k) \
                " | " cell(blocks, k) " | " cell(active, k) " | " cell(hmma, k) \
                " | " cell(ldsm, k) " | " cell(ldgsts, k) " | " cell(local, k) " |" | "sort"
        }
        exit bad
    }'
