# dev/gpu_run.sh without a GPU: the hint for each of the likeliest errors, what it does with a step
# that fails, and its comparison
command -v python3 > /dev/null || {
    echo "skipped: 23 checks of dev/gpu_run.sh, no python3"
    echo "0 passed, 0 failed"
    exit 0
}
. test/ok.sh
dir=build/test/gpu_run
rm -rf $dir; mkdir -p $dir
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

# bench on a card of 24 GiB, by a program that says what the real one would: the large preset is
# left out, and what comes after it runs; any other error of it ends the step
sed -n '/^bench_ops() {/,/^}/p; /^bench_large() {/,/^}/p; /^bench() {/,/^}/p' dev/gpu_run.sh \
    > $dir/bench.sh
bench_with() { # what the large preset says
    mkdir -p $dir/card
    printf '#!/bin/sh\ncase "$*" in *1B*) echo "error: %s" >&2; exit 1 ;; esac\necho "{$*}"\n' \
        "$1" > $dir/card/train_sink
    chmod +x $dir/card/train_sink
    (cd $dir/card && OUT=. DRY= MODEL="-m 60M" LARGE="-m 1B" TOKENS=8 bash -c '
        make_it() { :; }; variants() { echo softmax; }; . ../bench.sh; bench' > said 2>&1)
}
bench_with "GPU memory: wanted 6.00 GiB more, 0.50 of 23.64 GiB are free" &&
    [ "$(grep -c '^{bench -m 60M --heads' $dir/card/said)" = 6 ] &&
    grep -q 'left out: -m 1B' $dir/card/said
ok $? "bench where 1B does not fit: $(tail -n 2 $dir/card/said)"
bench_with "GPU: norm_forward_kernel: misaligned address"
[ $? = 1 ] && ! grep -q 'left out' $dir/card/said
ok $? "bench where 1B fails otherwise: $(tail -n 2 $dir/card/said)"

# the table of docs/gpu.md is what dev/predict.py prints today
sed -n '/^<!-- dev\/predict.py writes/,/^<!-- to here/p' docs/gpu.md | grep '^|' > $dir/written
python3 dev/predict.py > $dir/printed; ok $? "dev/predict.py"
cmp -s $dir/written $dir/printed; ok $? "docs/gpu.md is behind: python3 dev/predict.py --write"

# the steps that build nothing: a comparison from a given figure, then from none
mkdir -p $dir/out
echo '{"attn":"softmax","bias":"none","L":10,"C":768,"NH":8,"F":1536,"V":50432,"T":2048,"B":16,"params":1,"ms":1,"tokens_per_s":400000,"flops_per_token":1,"gflops":1.0,"product_gflops":1,"of_product":0.500}' > $dir/out/bench.txt
DRY=1 OUT=$dir/out bash dev/gpu_run.sh machine compare > $dir/run.txt 2>&1
ok $? "the script: $(tail -n 3 $dir/run.txt)"
sent=$dir/out/send-back.md
grep -q '^| machine | ok ' $sent && grep -q '^| compare | ok ' $sent
ok $? "send-back.md does not say that both steps went well"
# 256 tokens in a dry run
grep -q '^| measured | 0.6 | 400 |' $sent; ok $? "the measured step: $(grep measured $sent)"
grep -q '^| predicted for H100 SXM | [0-9.]* | [0-9]* |' $sent
ok $? "the prediction: $(grep predicted $sent)"
grep -q 'llm.c: not at hand' $sent; ok $? "llm.c"
rm -f $dir/out/bench.txt $dir/out/compare.done
DRY=1 OUT=$dir/out bash dev/gpu_run.sh machine compare > $dir/run.txt 2>&1
grep -q 'machine: done before' $dir/run.txt
ok $? "a second run does not go on where the first stopped"
grep -q '^| compare | FAILED ' $sent && grep -q 'compare failed; the end of what it said' $sent
ok $? "a step that fails is not in send-back.md"
rm -rf $dir
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
