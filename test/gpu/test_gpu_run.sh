# dev/gpu_run.sh without a GPU, without make, nvcc, git and python in its way: every step, by the
# program built for the emulator; what it does where a step fails or hangs, and where it is cut off
# at any moment; where cuBLAS is looked for; the hint for each of the likeliest errors
. test/dist.sh
top=$PWD
dir=$top/build/test/gpu_run
rm -rf $dir; mkdir -p $dir/tree/dev $dir/bin $dir/path
CXX=${CXX:-g++} CUDA=${CUDA:-/usr/local/cuda}
cp dev/gpu_run.sh $dir/tree/dev
# a PATH without nvcc, make, git and python
for tool in bash sh awk sed grep cat cp mv rm mkdir mktemp date head tail tr cut paste printf timeout sleep ls \
            nproc free df uname sort uniq tee ldd wc ldconfig dirname env; do
    found=$(command -v $tool) && ln -sf "$found" $dir/path/$tool
done
valid() { # FILE: is JSON, if there is a python to ask
    command -v python3 > /dev/null || return 0
    python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$1" 2> $dir/json
}
gpu_run() { # OUT, VARIABLES..
    to=$1; shift
    (cd $dir/tree && env -i PATH=$dir/path HOME=/none TMPDIR=$dir/tmp OMP_NUM_THREADS=2 OUT=$to \
        PREBUILT=$dir/bin "$@" bash dev/gpu_run.sh) > $to.txt 2>&1
}
mkdir -p $dir/tmp

# ---- hints
sed -n '/^hint() {/,/^}/p' dev/gpu_run.sh > $dir/hint.sh
hinted() { # words of the hint, what the machine said
    printf 'line before\n%s\nline after\n' "$2" > $dir/said
    out=$(bash -c ". $dir/hint.sh; hint $dir/said")
    echo "$out" | grep -qF -- "---> HINT: " && echo "$out" | grep -qF -- "$1"
    ok $? "'$2': wanted a hint with '$1', got '$out'"
}
hinted LD_LIBRARY_PATH "./train_sink: error while loading shared libraries: libcublasLt.so.13: cannot open shared object file: No such file or directory"
hinted "toolkit is not in PATH" "bash: line 1: nvcc: command not found"
hinted "--gpus all" "dev/gpu_run.sh: line 21: nvidia-smi: command not found"
hinted reboot "Failed to initialize NVML: Driver/library version mismatch"
hinted "CXX=" "#error -- unsupported GNU version! gcc versions later than 14 are not supported!"
hinted "newer toolkit" "nvcc fatal   : Unsupported gpu architecture 'compute_120'"
hinted libcublas-dev "/usr/bin/ld: cannot find -lcublasLt: No such file or directory"
hinted "disk is full" "fatal error: error writing to /tmp/x.s: No space left on device"
hinted "pip install torch" "ModuleNotFoundError: No module named 'torch'"
hinted JOBS "g++: fatal error: Killed signal terminated program cc1plus"
hinted "lower --batch" "error: GPU memory: wanted 3.00 GiB more
---> HINT: lower --batch"
printf 'all went well\n' > $dir/said
[ -z "$(bash -c ". $dir/hint.sh; hint $dir/said")" ]; ok $? "a hint where nothing went wrong"

# ---- programs that only say what the real ones would, for how the script treats them
cat > $dir/stub <<'STUB'
#!/bin/sh
name=${0##*/}; sleep "${NAP:-0}"
case " $HANG " in *" $name "*) sleep 1000 ;; esac
case " $BREAK " in *" $name "*) echo "error: GPU: misaligned address"; exit 1 ;; esac
# of programs that run at once the second fails
if [ "$BREAK_SECOND" ] && [ "$5" = 32 ]; then
    mkdir "$BREAK_SECOND" 2> /dev/null || { mkdir "$BREAK_SECOND/2" 2> /dev/null && exit 1; }
fi
case $name in selftest|selftest_wgmma|test_cuda-*) echo "7 passed, 0 failed"; exit 0 ;; esac
if [ "$1" = bench ]; then
    case "$*" in *"-b 1"*) echo "error: GPU memory: wanted 6.00 GiB more"; exit 1 ;; esac
    echo "{\"attn\":\"${name#train_sink-}\",\"tokens_per_step\":768,\"ms\":1.9,\"tokens_per_s\":400000}"; exit 0
fi
for last; do :; done
mkdir -p "$last"
for i in 1 2 3; do echo "{\"event\":\"train\",\"step\":$i,\"loss\":4.5,\"grad_norm\":1.25}"; done > "$last/log.jsonl"
echo '{"event":"done","params_hash":"12ab"}' >> "$last/log.jsonl"
[ -z "$PROFILE" ] || printf 'kernel or product times ms\na step 3.5\n'
echo "done"
STUB
stubs() {
    rm -f $dir/bin/*
    for p in selftest selftest_wgmma test_cuda-bf16 test_cuda-fp32 train_sink-cpu train_sink-fp32 train_sink-softmax \
             train_sink-sigmoid train_sink-k; do cp $dir/stub $dir/bin/$p; done
    chmod +x $dir/bin/*
    echo abc123 > $dir/bin/commit
    echo '{"card": "H100 SXM", "step_ms": 219.0, "tokens_per_s": 597000}' > $dir/bin/predicted.jsonl
}
result() { # OUT STEP: its last result
    sed -n "s/.*\"step\":\"$2\",\"result\":\"\([^\"]*\)\".*/\1/p" $1/results.json | tail -n 1
}
stubs
gpu_run $dir/no; status=$?
[ $status = 1 ] && [ "$(wc -l < $dir/no.txt)" = 1 ] && grep -q '^no GPU here' $dir/no.txt
ok $? "without a GPU: status $status, $(cat $dir/no.txt)"
valid $dir/no/results.json && [ "$(result $dir/no machine)" = FAILED ] &&
    grep -q '"said":"no GPU here' $dir/no/results.json
ok $? "results.json without a GPU: $(cat $dir/no/results.json)"
gpu_run $dir/all DRY=1 CARD="H100 SXM"; ok $? "all steps: $(tail -n 3 $dir/all.txt)"
for step in machine selftest hopper beside bits attention ncu step profile small bench peers compare real train ops \
            sanitizer; do
    [ "$(result $dir/all $step)" = ok ]; ok $? "$step: $(result $dir/all $step)"
done
valid $dir/all/results.json; ok $? "results.json: $(tail -n 1 $dir/json)"
[ "$(grep -c '^a step' $dir/all/log.txt)" = 1 ] && [ "$(tail -n 1 $dir/all/log.txt)" != "done" ] &&
    grep -q '^profile: ok, .*: a step 3.5' $dir/all.txt
ok $? "the profile: $(grep '^profile: ' $dir/all.txt)"
grep -q 'predicted: .*219.0' $dir/all/results.json; ok $? "no prediction"
grep -q 'measured: 1.9 ms for a step of 768 tokens' $dir/all/results.json; ok $? "no step to compare"
grep -q '"attn":"k"' $dir/all/results.json; ok $? "a variant of bench is missing"
[ "$(ls $dir/all | wc -l)" = 2 ]; ok $? "more files than results.json and log.txt: $(ls $dir/all)"
[ "$(ls $dir/tmp | wc -l)" = 0 ]; ok $? "left behind: $(ls $dir/tmp)"
# what the profiler and the sanitizer say is not lost in a pipe
for tool in compute-sanitizer ncu; do
    printf '#!/bin/sh\necho "========= ERROR SUMMARY: 3 errors"\nexit 9\n' > $dir/path/$tool
    chmod +x $dir/path/$tool
done
gpu_run $dir/tools DRY=1 STEPS="sanitizer ncu"
for step in sanitizer ncu; do
    [ "$(result $dir/tools $step)" = FAILED ]; ok $? "a $step that fails: $(result $dir/tools $step)"
done
grep -q '"step":"sanitizer".*memcheck, selftest_wgmma.*racecheck, test_cuda-bf16 simple 1 260' $dir/tools/results.json
ok $? "what the sanitizer was asked: $(cat $dir/tools/results.json)"
printf '#!/bin/sh\necho "========= ERROR SUMMARY: 0 errors"\n' > $dir/path/compute-sanitizer
gpu_run $dir/tools DRY=1 STEPS=sanitizer
[ "$(result $dir/tools sanitizer)" = ok ]; ok $? "a sanitizer that finds nothing: $(cat $dir/tools/results.json)"
rm $dir/path/compute-sanitizer $dir/path/ncu
# of several runs at once, one that fails is missed
gpu_run $dir/small DRY=1 STEPS=small BREAK_SECOND=$dir/second
[ "$(result $dir/small small)" = FAILED ]; ok $? "one of several runs fails: $(result $dir/small small)"
# no step's failure takes another with it
gpu_run $dir/broken DRY=1 BREAK="selftest test_cuda-bf16 train_sink-sigmoid"
for step in selftest hopper ops bench; do
    [ "$(result $dir/broken $step)" = FAILED ]; ok $? "a broken $step: $(result $dir/broken $step)"
done
for step in machine real bits train profile peers compare; do
    [ "$(result $dir/broken $step)" = ok ]; ok $? "$step beside broken ones: $(result $dir/broken $step)"
done
# one that hangs is cut off, and what no longer fits is left out
start=$(date +%s)
gpu_run $dir/hangs DRY=1 BUDGET=16 HANG=selftest
took=$(($(date +%s) - start))
[ "$(result $dir/hangs selftest)" = "cut off" ]; ok $? "a hanging step: $(result $dir/hangs selftest)"
[ "$(result $dir/hangs compare)" = "left out: no time" ]; ok $? "$(result $dir/hangs compare)"
valid $dir/hangs/results.json; ok $? "results.json of a run that hung: $(tail -n 1 $dir/json)"
# cut off at ten moments, by TERM and by KILL: what is there is whole
for i in 1 2 3 4 5 6 7 8 9 10; do
    out=$dir/cut$i
    moment=$(awk -v i=$i -v seed=$$ 'BEGIN { srand(seed + i); printf "%.2f", 0.3 + 2.5 * rand() }')
    (cd $dir/tree && exec env -i PATH=$dir/path TMPDIR=$dir/tmp OUT=$out PREBUILT=$dir/bin DRY=1 NAP=0.05 \
        bash dev/gpu_run.sh) > $out.txt 2>&1 &
    child=$!
    sleep "$moment"
    kill -$([ $((i % 2)) = 0 ] && echo TERM || echo KILL) $child 2> /dev/null
    wait $child 2> /dev/null
    [ ! -f $out/results.json ] || valid $out/results.json
    ok $? "cut off after $moment s: $(tail -n 1 $dir/json)"
    said=$(grep -c ': ok, ' $out.txt) held=$(grep -o '"result":"ok"' $out/results.json 2> /dev/null | wc -l)
    [ "$held" -ge "$said" ]; ok $? "cut off after $moment s: $said steps ended, $held in results.json"
done

# ---- where cuBLAS is looked for
{ sed -n '/^find_cublas() {/,/^}/p' dev/gpu_run.sh; echo find_cublas; } > $dir/find.sh
wheel=$dir/home/.local/lib/python3.12/site-packages/nvidia/cu13/lib
mkdir -p $wheel $dir/toolkit/lib64; touch $wheel/libcublasLt.so.13
found=$(env -i HOME=$dir/home CUDA=/none PATH=$PATH bash $dir/find.sh)
[ -e "$found/libcublasLt.so.13" ]; ok $? "cuBLAS of a wheel: found '$found'"
touch $dir/toolkit/lib64/libcublasLt.so.13
found=$(env -i HOME=$dir/home CUDA=$dir/toolkit PATH=$PATH bash $dir/find.sh)
[ "$found" = $dir/toolkit/lib64 ]; ok $? "cuBLAS of the toolkit: found '$found'"

printf '#!/bin/sh\necho "\tlibcublasLt.so.12 => not found"\n' > $dir/toolkit/ldd; chmod +x $dir/toolkit/ldd
old=$dir/home/.local/lib/python3.12/site-packages/nvidia/cublas/lib; mkdir -p $old; touch $old/libcublasLt.so.12
found=$(env -i HOME=$dir/home CUDA=$dir/toolkit PATH=$dir/toolkit:$PATH PREBUILT=$dir/bin bash $dir/find.sh)
[ "$found" = $old ]; ok $? "cuBLAS 12 of a wheel for a program of toolkit 12: found '$found'"

# ---- and once for good, by the programs built for the emulator
if [ -f "$CUDA/include/cublasLt.h" ]; then
    once=$(make -s once BACKEND=cpu CXX="$CXX")
    emulated() { # NAME SOURCE FLAGS..
        name=$1 source=$2; shift 2
        $CXX -x c++ -std=c++17 -O1 -march=native -ffp-contract=off -w -DEMU -fno-strict-aliasing \
            -fstack-clash-protection -fopenmp -Idev/emulator -I"$CUDA/include" \
            '-DMMA_HEADS(X)=X(96)' "$@" $source -x none $once -o $dir/bin/$name > $dir/said 2>&1
        ok $? "$name does not compile: $(head -n 3 $dir/said)"
    }
    defs="$(default_switches | grep -v 'PRECISION\|BACKEND') -DBACKEND=cuda"
    make -s binary > /dev/null 2>&1
    rm -f $dir/bin/train_sink-*
    cp "$(make -s check)/train_sink" $dir/bin/train_sink-cpu
    emulated train_sink-softmax train_sink.cu -DONCE_APART $defs -DPRECISION=fp32 -DREAL_SIZES
    # of the script, not of the programs, which test_cuda_train compares; test_cuda runs the self-tests
    for p in fp32 sigmoid; do cp $dir/bin/train_sink-softmax $dir/bin/train_sink-$p; done
    # bench, which repeats everything, would take a minute
    gpu_run $dir/emulated DRY=1 CLOCK=20 STEPS="machine beside real bits train profile"
    ok $? "with the emulator: $(tail -n 3 $dir/emulated.txt)"
    for step in machine beside real bits train profile; do
        [ "$(result $dir/emulated $step)" = ok ]
        ok $? "$step in the emulator: $(grep "\"$step\"" $dir/emulated/results.json | cut -c 1-400)"
    done
    valid $dir/emulated/results.json; ok $? "results.json: $(tail -n 1 $dir/json)"
    # more rows of logits than are alive at once
    for p in cpu softmax; do
        $dir/bin/train_sink-$p train -d bb -b 66 -t 130 --layers 1 --width 8 --heads 1 --ffn-width 8 --lr 0.01 --warmup 2 \
            --eval-every 0 --val-seqs 4 --probe-seqs 4 -n 2 -o $dir/rows-$p > $dir/said 2>&1
        sed -n 's/.*"event":"train".*"loss":\([0-9.]*\).*/\1/p' $dir/rows-$p/log.jsonl
    done | paste -s > $dir/rows
    awk '{ a = $1 - $3; b = $2 - $4; exit !(NF == 4 && a * a < 1e-8 && b * b < 1e-8) }' $dir/rows
    ok $? "8580 rows at once: $(cat $dir/rows)"
    grep -q 'update_kernel.* 1 ' $dir/emulated/log.txt; ok $? "no update in the profile"
    grep -q 'bf16, batch [0-9]*: loss' $dir/emulated/results.json; ok $? "no real size was compared"
    grep -q 'with --graph [0-9.]* ms per step, .*: the same bits' $dir/emulated/results.json
    ok $? "no graph was compared: $(grep '"train"' $dir/emulated/results.json | cut -c 1-400)"
else echo "skipped: 13 checks of dev/gpu_run.sh, no CUDA headers in $CUDA/include (set CUDA=)"; fi

# the table of docs/gpu.md is what dev/gpu/predict.py prints today
if command -v python3 > /dev/null; then
    sed -n '/^<!-- dev\/gpu\/predict.py writes/,/^<!-- to here/p' docs/gpu.md | grep -v '^<!' > $dir/written
    python3 dev/gpu/predict.py > $dir/printed; ok $? "dev/gpu/predict.py"
    # which kernel PyTorch ran, by the names that the profiler has
    (cd dev/bench && python3 - <<'NAMES'
from bench_torch import attention_kernels, other_kernel
cudnn = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0"
fa2 = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<96, 128, 64>>"
flex = "triton_tem_fused_flex_attention_0"
gemm = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
wanted = {"cudnn": cudnn, "fa2": fa2, "flex": flex}
for path, own in wanted.items():
    for name in wanted.values():
        assert (other_kernel(path, [gemm, name]) is None) == (name == own), (path, name)
assert "ran " + fa2 in other_kernel("cudnn", [gemm, fa2]) and "no attention" in other_kernel("fa2", [gemm])
assert attention_kernels([gemm, fa2, fa2, cudnn]) == [cudnn, fa2] and other_kernel("eager", [gemm]) is None
NAMES
    ); ok $? "bench_torch.py takes one attention kernel for another"
    cmp -s $dir/written $dir/printed; ok $? "docs/gpu.md is behind: python3 dev/gpu/predict.py --write"
fi
rm -rf $dir
finish
