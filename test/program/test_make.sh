# the Makefile, in a copy of the tree: good switches build what they say, bad ones stop
# with the message, a change of anything that goes into a binary rebuilds it, and nothing else does
. test/ok.sh
. test/tree.sh
copy=build/test/make
rm -rf $copy; mkdir -p $copy/dev/golden
copy_sources $copy; copy_objects $copy; mkdir -p $copy/scripts/lib; cp scripts/lib/flags.sh $copy/scripts/lib; cp scripts/modeling_train_sink.py scripts/demo.sh $copy/scripts
cp dev/golden/cases.tsv $copy/dev/golden
for t in test/check.h test/*/test_*.cpp; do mkdir -p "$copy/${t%/*}"; cp "$t" "$copy/$t"; done
cd $copy || exit 1
mk() { make --no-print-directory JOBS=1 "$@" 2>&1; }

# ---- what is built is what was asked for
out=$(mk train_sink)
[ -x build/cpu/train_sink ] && [ "$(readlink train_sink)" = build/cpu/train_sink ]
ok $? "make train_sink: $out"
./train_sink --help |
    grep -q "^this build: ATTN=softmax BIAS=none PE=rotary NORM=pre FFN=swiglu COMBINE=concat QKNORM=none GATE=none PRECISION=fp32 BACKEND=cpu"
ok $? "--help of the default build: $(./train_sink --help | grep '^this build')"
made=$(mk train_sink FFN=gelu ATTN=sigmoid BIAS=k)
[ "$(readlink train_sink)" = build/cpu-ATTN=sigmoid-BIAS=k-FFN=gelu/train_sink ]
ok $? "where ATTN=sigmoid BIAS=k FFN=gelu went: $(readlink train_sink) $made"
./train_sink --help |
    grep -q "^this build: ATTN=sigmoid BIAS=k PE=rotary NORM=pre FFN=gelu COMBINE=concat"
ok $? "--help of ATTN=sigmoid BIAS=k FFN=gelu"
# it has what the switches promise: k* in the checkpoint, and a refusal of the other build
# with the right make line
tiny="-b 4 -t 8 --bb-vocab 12 --width 8 --ffn-width 8 --val-seqs 4 --probe-seqs 4 --probe-len 8"
export OMP_NUM_THREADS=1
ran=$(./train_sink $tiny -n 2 -o k 2>&1) && grep -aq 'k_star' k/step_2/model.safetensors &&
    ! grep -aq 'gate_proj\|v_star' k/step_2/model.safetensors
ok $? "the tensors of BIAS=k FFN=gelu: $ran"
out=$(build/cpu/train_sink probe k/step_2 --bb-vocab 12 2>&1); code=$?
[ $code -eq 2 ] && echo "$out" | grep -q "HINT: make train_sink ATTN=sigmoid BIAS=k PE=rotary$"
ok $? "a checkpoint of another build: exit $code, $out"
out=$(./train_sink probe k/step_2 --bb-vocab 12 --probe-seqs 4 --probe-len 8 2>&1)
ok $? "a checkpoint of this build: $out"

# ---- a run that another commit of the program goes on with says so
mkdir other-git; printf '#!/bin/sh\n[ $1 = ls-files ] && AT=$UNKNOWN\necho "$AT"\n' > other-git/git; chmod +x other-git/git
made_at() { AT=$1 PATH=$PWD/other-git:$PATH mk train_sink; }
one=$(made_at 0123456 > out.txt && ./train_sink $tiny -n 2 -o c 2>&1)
ok $? "commit 0123456: $one $(cat out.txt)"
two=$(made_at 89abcde > out.txt && ./train_sink --resume -n 3 -o c 2>&1)
echo "$two" | grep -q '"COMMIT":\["0123456","89abcde"\]' &&
    grep '"event":"resume"' c/log.jsonl | grep -q '"COMMIT":\["0123456","89abcde"\].*"commit":"89abcde"'
ok $? "another commit: $two"
mk train_sink FFN=gelu ATTN=sigmoid BIAS=k > out.txt

# ---- a key that changes no output: make, the run and the probe say so, and no number counts it
edited=$(./train_sink eval k/step_2 --bb-vocab 12 --probe-seqs 4 --probe-len 8 \
    --edit 'A:*:1=x1' 2>&1)
shares=$(echo "$edited" | grep -o '[a-zS]*_1 [0-9.]*%, [a-zS]*_2 [0-9.]*%' | sort | uniq -c)
[ "$(echo "$shares" | awk '{ print $1 }')" = 2 ] && ! echo "$shares" | grep -q '_1 0\.0%, [a-zS]*_2 0\.0%'
ok $? "eval with and without an edit that changes nothing: $edited"
echo "$made" | grep -q "^note: the extra key of BIAS=k changes no output with ATTN=sigmoid unless a run is given --v-star"
ok $? "make's note: $made"
says() { mk -n train_sink "$@" | grep -c 'note: the extra key'; }
for pair in elu1:zero identity:logit sigmoid:zero; do
    [ "$(says ATTN=${pair%:*} BIAS=${pair#*:})" = 1 ]; ok $? "make's note of $pair"
done
for pair in softmax:k sigmoid:none sigmoid:kv sigmoid:v sigmoid_norm:k identity_norm:k sigmoid_p:zero; do
    [ "$(says ATTN=${pair%:*} BIAS=${pair#*:})" = 0 ]; ok $? "no note of $pair"
done
note="^note   the extra key of BIAS=k changes no output here"
[ "$(echo "$ran" | grep -c "$note")" = 1 ] && echo "$ran" | grep -q 'sink_\* - ' &&
    [ "$(grep -c '"sink_star":null' k/log.jsonl)" = 2 ] && ! grep -q alpha_star k/log.jsonl
ok $? "a run with an idle key: $ran"
[ "$(echo "$out" | grep -c "$note")" = 1 ] && echo "$out" | grep -q 'sink_\* - '
ok $? "a probe with an idle key: $out"
for v in ones:0 e1:2; do
    ran=$(./train_sink $tiny -n 2 --v-star $v -o v-$v 2>&1)
    said=$(echo "$ran" | grep -c "$note") stars=$(grep -c '"sink_star":[0-9]' v-$v/log.jsonl)
    case $v in ones:0) [ "$said-$stars" = 1-0 ] ;; *) [ "$said-$stars" = 0-2 ] ;; esac
    ok $? "--v-star $v: $ran"
done

# ---- nothing is built twice, and everything that goes into a binary rebuilds it
built=build/cpu/train_sink
stamp() { stat -c %Y.%y $built; }
rebuilds() { # yes|no why make-arguments...
    want=$1 why=$2; shift 2
    before=$(stamp); out=$(make --no-print-directory JOBS=1 "$@" train_sink 2>&1)
    if [ "$before" = "$(stamp)" ]; then got=no; else got=yes; fi
    [ $got = $want ]; ok $? "$why: $built rebuilt: $got, wanted $want: $out"
}
# a compiler that says what it would do is quick: it makes the output and the list of headers,
# as g++ does
cat > fake <<'X'
#!/bin/sh
[ "$1" = --version ] && { echo "fake 1"; exit 0; }
for a; do case $last in -o) : > "$a" ;; -MF) list=$a ;; -MT) echo "$a: $(ls *.cu *.h *.cuh */*.cu */*.cpp */*.h */*.cuh | grep -v '^test/\|extra' | tr '\n' ' ')" > "$list" ;; esac; last=$a; done
X
chmod +x fake; sed 's/fake 1/fake 2/' fake > fake2; chmod +x fake2
rebuilds yes "another compiler" CXX=./fake OPTIMIZE=-O0
for source in arch.h text/bpe.cpp; do
    sleep 0.05
    touch $source
    rebuilds yes "$source changed" CXX=./fake OPTIMIZE=-O0
done
rebuilds no "nothing changed" CXX=./fake OPTIMIZE=-O0
# with a unit for each folder all that follows takes a sixth of the time
export UNITS=few
rebuilds yes "a unit for each folder" CXX=./fake OPTIMIZE=-O0
rebuilds no "nothing changed" CXX=./fake OPTIMIZE=-O0
# the same compiler on a machine with another processor, which shares the disk
sed 's/^for a/[ "$2" = -dM ] \&\& { cat native; exit 0; }; for a/' fake > fake3; chmod +x fake3
echo '#define __AVX2__ 1' > native; rebuilds yes "-march=native with AVX2" CXX=./fake3 OPTIMIZE=-O0
rebuilds no "the same processor" CXX=./fake3 OPTIMIZE=-O0
echo '#define __AVX512F__ 1' > native
rebuilds yes "-march=native with AVX-512" CXX=./fake3 OPTIMIZE=-O0
rebuilds yes "the first compiler again" CXX=./fake OPTIMIZE=-O0
touch README.md test/check.h
rebuilds no "a file that is no part of it changed" CXX=./fake OPTIMIZE=-O0
# a header and a source of each folder: what the compiler lists is the same for all of them, and its
# lists are looked at below
some=
for folder in $folders; do
    some="$some $(ls $folder/*.h 2> /dev/null | head -n 1) $(ls $folder/*.cpp 2> /dev/null | tail -n 1)"
done
for header in arch.h attention_variants.cuh $some train_sink.cu core/variant.cu; do
    # clocks of file systems tick every few milliseconds
    sleep 0.05
    touch $header
    variant=$(stat -c %Y.%y build/cpu/variant.o)
    rebuilds yes "$header changed" CXX=./fake OPTIMIZE=-O0
    # a program that is only linked again would go on with the old model
    case $header in *.cpp | train_sink.cu) continue ;; esac
    [ "$variant" != "$(stat -c %Y.%y build/cpu/variant.o)" ]
    ok $? "$header changed, and build/cpu/variant.o was not compiled again"
done
rebuilds no "nothing changed again" CXX=./fake OPTIMIZE=-O0
# what is compiled goes by what the files hold: a date may be an old one
put_back() { mv kept base/version.h; }
edit() { cp -p base/version.h kept; echo "// $1" >> base/version.h; }
edit 1; rebuilds yes "an edited header" CXX=./fake OPTIMIZE=-O0
put_back; rebuilds yes "a header put back with its old date" CXX=./fake OPTIMIZE=-O0
rebuilds no "a header that was put back" CXX=./fake OPTIMIZE=-O0
edit 2; touch -r kept base/version.h; rebuilds yes "a header edited without a new date" CXX=./fake OPTIMIZE=-O0
put_back; mk CXX=./fake OPTIMIZE=-O0 ATTN=elu1 train_sink > /dev/null
rebuilds yes "a header put back before another model was built" CXX=./fake OPTIMIZE=-O0
other="CXX=./fake OPTIMIZE=-O0 ATTN=elu1" built=build/cpu-ATTN=elu1/variant.o
edit 3; rebuilds yes "another model's header" $other; rebuilds no "another model" $other
put_back; built=build/cpu/train_sink
cp -p Makefile kept; touch -r kept after/extra.cpp; rebuilds yes "a file that is new, with an old date" CXX=./fake OPTIMIZE=-O0
rm after/extra.cpp; rebuilds yes "a file that is gone" CXX=./fake OPTIMIZE=-O0
AT=0123456 UNKNOWN=core/new.cpp PATH=$PWD/other-git:$PATH mk CXX=./fake OPTIMIZE=-O0 binary > /dev/null
grep -q ' 0123456-dirty ' build/cpu/flags.txt; ok $? "a file that git does not know: $(cat build/cpu/flags.txt)"
mk CXX=./fake OPTIMIZE=-O0 binary > /dev/null
# what a killed make left goes, what one is writing stays
left="build/once/a.o.77 build/once/a.o.77.d build/cpu/train_sink.78 build/cpu/flags.txt.79"
for f in $left; do : > $f; touch -d '2 days ago' $f; done
: > build/once/b.o.80; edit 4; mk CXX=./fake OPTIMIZE=-O0 binary > /dev/null; put_back
! ls $left 2> /dev/null && [ -e build/once/b.o.80 ]; ok $? "what a killed make left: $(ls $left build/once/*.[0-9]*)"
rm build/once/b.o.80
# for a GPU all that no switch changes is one unit
gpu="BACKEND=cuda NVCC=./fake CXX=./fake GPU_ARCH=sm_80"
mk $gpu OPTIMIZE=-O0 train_sink > /dev/null
built=build/cuda/train_sink
rebuilds no "nothing changed" $gpu OPTIMIZE=-O0
for header in arch.h metrics.cuh cuda/ops.cuh run/log.cpp run/probe.cpp core/model.cpp train_sink.cu core/variant.cu core/rest.h; do
    sleep 0.05
    touch $header
    rebuilds yes "$header changed" $gpu OPTIMIZE=-O0
done
rebuilds yes "another flag" $gpu OPTIMIZE=-O1
built=build/cpu/train_sink
rebuilds yes "another flag" CXX=./fake OPTIMIZE=-O1
rebuilds yes "another ARCH" CXX=./fake OPTIMIZE=-O1 ARCH=x86-64
rebuilds yes "another version of the compiler" CXX=./fake2 OPTIMIZE=-O1 ARCH=x86-64
mk CXX=./fake2 ATTN=elu1 train_sink > /dev/null
rebuilds no "another model was built" CXX=./fake2 OPTIMIZE=-O1 ARCH=x86-64
[ "$(readlink train_sink)" = build/cpu/train_sink ]
ok $? "the link follows the last make, built or not: $(readlink train_sink)"
unset UNITS
# two makes at once share what no switch touches: neither takes the other's half of an object.
# This compiler takes two seconds for one of them
cat > slow <<'X'
#!/bin/sh
[ "$1" = --version ] && { echo "slow 1"; exit 0; }
for a; do case $last in -o) out=$a ;; -c) what=$a ;; -MF) : > "$a" ;; esac; last=$a; done
[ -n "$out" ] || exit 0                      # only asked whether it knows C++17
for a; do
    [ "${a%.a}" = "$a" ] || [ "$(ar p "$a" | grep -c begun)" = "$(ar p "$a" | grep -c done)" ] ||
        { echo "half an object in $a"; exit 1; }
done
echo begun $$ > "$out"
[ "$what" = "$SLOW" ] && { : > is_slow; sleep 2; }
[ "$(cat "$out")" = "begun $$" ] || { echo "two write to $out"; exit 1; }
echo done >> "$out"
X
chmod +x slow
begin() { # make-arguments..: until the compiler is at SLOW
    rm -f is_slow
    make -s binary CXX=./slow "$@" > first 2>&1 & first=$!
    while [ ! -e is_slow ] && kill -0 $first; do sleep 0.05; done
}
at_once() { # ARGUMENT ARGUMENT: of the first and of the second
    begin "$1"
    make -s binary CXX=./slow "$2" > second 2>&1
    ok $? "the second of two makes at once, $2: $(cat second)"
    wait $first
    ok $? "the first of two makes at once, $1: $(cat first)"
}
export SLOW=text/tokenizer_load.cpp
at_once ATTN=elu1 ATTN=sigmoid
SLOW=core/variant.cu
at_once OPTIMIZE=-O1 OPTIMIZE=-O2
# what was edited while it was compiled is compiled again
SLOW=base/field.cpp
begin OPTIMIZE=-O0; sleep 0.05; touch $SLOW; wait $first
begin OPTIMIZE=-O0; wait $first; [ -e is_slow ]
ok $? "an edit while it was compiled is in no binary"
# the demo's three models compile what they share once
cat > counting <<'X'
#!/bin/sh
for a; do [ "$last" = -c ] && { echo "$a" >> compiled; sleep 0.02; }; last=$a; done
exec ./fake "$@"
X
chmod +x counting
CXX=./counting JOBS=2 sh scripts/demo.sh bb > demo.out 2>&1
[ "$(sort compiled | uniq -d)" = core/variant.cu ]
ok $? "make demo compiles twice: $(sort compiled | uniq -d | tr '\n' ' ') $(tail -n 1 demo.out)"
# the list of headers that g++ really writes of the one unit has all that are included;
# those of dist/ belong to its builds
out=
defines="-DATTN=softmax -DBIAS=none -DPE=rotary -DNORM=pre -DFFN=swiglu -DCOMBINE=concat -DQKNORM=none -DGATE=none"
for dist in '' -DDIST=mpi -DDIST=nccl; do # -MG: their own headers may be absent here
    out=$out$(g++ -std=c++17 -MM -MG $defines $dist -DBACKEND=cpu -x c++ train_sink.cu)
done
for header in $(ls *.h *.cuh; for folder in $folders; do ls $folder/*.h 2> /dev/null; done); do
    echo "$out" | grep -q "$header"
    ok $? "no source file of the program depends on $header"
done

# ---- wrong names, wrong values, meaningless pairs
refused() { # message make-arguments...
    want=$1; shift
    rm -f train_sink
    out=$(make --no-print-directory CXX=./fake train_sink "$@" 2>&1); code=$?
    [ $code -ne 0 ] && [ ! -e train_sink ] && echo "$out" | grep -qF "$want"
    ok $? "make $*: exit $code, wanted '$want', got: $out"
}
refused "g++-77 is not in PATH ---> HINT: apt-get install g++" CXX=g++-77
printf '#!/bin/sh\n[ "$1" = --version ] && echo old\n' > old; chmod +x old     # does not know -std=c++17
refused "CXX=./old compiles no C++17 with OpenMP ---> HINT: g++ 11" CXX=./old
# make test and make demo say what is being compiled; make -s alone says nothing
make -s CXX=./fake binary > out.txt; sleep 0.05; touch train_sink.cu
out=$(SAY=1 make -s CXX=./fake binary); echo "$out" | grep -q '^compiling train_sink.cu$'
ok $? "SAY=1: $out"
# a first build says how far it is
mv build kept
out=$(SAY=1 make -s CXX=./fake binary | grep '^compiling'); parts=$(echo "$out" | wc -l)
[ "$parts" -gt 50 ] && [ "$(echo "$out" | sed 's/.*(\(.*\))/\1/')" = "$(seq $parts | sed "s/$/ of $parts/")" ]
ok $? "a first build: $out"
out=$(make CXX=./fake ATTN=sigmoid binary); echo "$out" | grep -q '^compiling build/cpu-ATTN=sigmoid (1 of 1)$'
ok $? "a second model: $out"
rm -r build; mv kept build
out=$(touch train_sink.cu; make -s CXX=./fake binary); [ -f "$out" ]; ok $? "make -s binary: not the path alone: $out"
out=$(make -s CXX=./fake binary); [ -f "$out" ]; ok $? "make -s binary again: $out"
refused "ATTN=sigmod is unknown; choose one of: softmax sigmoid " ATTN=sigmod
refused "ATTN=Softmax is unknown" ATTN=Softmax
refused "ATTN=softmax sigmoid is unknown" ATTN="softmax sigmoid"
refused "ATTN= is unknown" ATTN=
refused "BIAS=q is unknown; choose one of: none" BIAS=q
refused "PE=rope is unknown; choose one of: rotary nope" PE=rope
refused "NORM=rms is unknown; choose one of: pre post" NORM=rms
refused "FFN=glu is unknown; choose one of: swiglu" FFN=glu
refused "COMBINE=mean is unknown; choose one of: concat sum" COMBINE=mean
refused "BACKEND=tpu is unknown; choose one of:" BACKEND=tpu
refused "PRECISION=fp8 is unknown; choose one of:" PRECISION=fp8
refused "unknown switch ATN; known are: ATTN BIAS PE NORM FFN COMBINE" ATN=sigmoid
refused "unknown switch attn" attn=sigmoid
out=$(make --no-print-directory check BACKEND=cpu "OPTIMIZE=-O2 -march=x86-64" 2>&1)
ok $? "a value with blanks and =: $out"
refused "unknown switch steps" steps=10
sed -n 's/^ *X_CONFLICT(ATTN=\([a-z0-9_|]*\) *BIAS=\([a-z0-9_|]*\) *,.*/\1 \2/p' \
    attention_variants.cuh |
    while read -r attns biases; do
        for a in $(echo "$attns" | tr '|' ' '); do
            for b in $(echo "$biases" | tr '|' ' '); do echo "ATTN=$a BIAS=$b"; done
        done
    done > conflicts
[ $(wc -l < conflicts) -ge 19 ]
ok $? "$(wc -l < conflicts) conflicts are in attention_variants.cuh"
while read -r attn bias; do refused "$attn with $bias means nothing: " $attn $bias; done < conflicts
ATTN=sigmod make -s train_sink CXX=./fake > /dev/null 2>&1 && bad=1 || bad=0
ok $bad "a wrong switch in the environment"

# ---- a GPU is any /dev/nvidia[0-9]*, or under WSL /dev/dxg with NVIDIA's driver;
# nvidiactl alone is none
finds() { # cuda|cpu why files...
    want=build/$1 why=$2; shift 2
    rm -rf root; mkdir -p root/dev root/usr/lib/wsl/lib
    for f in "$@"; do : > "root/$f"; done
    cp mk/switches.mk kept
    sed "s|/dev/nvidia\[|$PWD/root&|; s|/dev/dxg|$PWD/root&|; s|/usr/lib/wsl|$PWD/root&|" kept > mk/switches.mk
    out=$(make --no-print-directory check NVCC=nvcc 2>&1)
    mv kept mk/switches.mk
    [ "$out" = "$want" ]; ok $? "$why: wanted $want, got $out"
}
finds cuda "GPU 0" dev/nvidia0 dev/nvidiactl
finds cuda "a container that was given GPU 3" dev/nvidia3 dev/nvidiactl
finds cuda "WSL" dev/dxg usr/lib/wsl/lib/libcuda.so.1
finds cpu "the driver without a card" dev/nvidiactl dev/nvidia-uvm
finds cpu "WSL with another maker's card" dev/dxg
finds cpu "nothing"

# ---- a card of 9.0 gets Hopper's kernels, whatever stands beside it; so do all if none is named
mkdir smi; printf '#!/bin/sh\nprintf "$SAYS"; exit "$STATUS"\n' > smi/nvidia-smi; chmod +x smi/nvidia-smi
hopper="-DHOPPER -gencode arch=compute_90a,code=sm_90a"
all_cards="$hopper -gencode arch=compute_80,code=[sm_80,compute_80]"
compiles() { # wanted, what nvidia-smi says, its exit status
    out=$(PATH=$PWD/smi:$PATH SAYS=$2 STATUS=$3 make -s nvcc_arch BACKEND=cuda NVCC=nvcc GPU_ARCH=native)
    [ "$(echo $out)" = "$1" ]; ok $? "nvidia-smi says '$2', exit $3: wanted $1, got $out"
}
compiles "$hopper" '9.0\n9.0\n' 0
compiles "$hopper -gencode arch=compute_120,code=sm_120 -gencode arch=compute_86,code=sm_86" '8.6\n9.0\n12.0\n' 0
compiles "$hopper" '7.5\n9.0\n' 0
compiles -arch=native '8.6\n' 0
compiles "$all_cards" 'Failed to initialize NVML: Driver/library version mismatch\n' 18
compiles "$all_cards" '[N/A]\n' 0
compiles "$all_cards" '' 127
! make -s nvcc_arch BACKEND=cpu > out 2>&1 && grep -q 'wanted BACKEND=cuda' out; ok $? "nvcc_arch of BACKEND=cpu: $(cat out)"

# ---- help names every row of every table, with the reason for it
make --no-print-directory help > help 2>&1; ok $? "make help"
for s in ATTN BIAS PE NORM FFN COMBINE QKNORM GATE PRECISION BACKEND; do
    rows=$(make -s values | sed -n "s/^$s //p")
    [ -n "$rows" ]; ok $? "$s has no rows"
    for row in $rows; do
        awk -v s=$s -v row=$row \
            '$0 == s { on = 1; next } !NF { on = 0 } on && $1 == row && NF > 1 { found = 1 } END { exit !found }' help
        ok $? "make help does not explain $s=$row"
    done
done
for word in train_sink test demo bench mutants clean; do
    grep -q "$word" help
    ok $? "make help does not name $word"
done
for word in $(sed -n 's/^make test |/test |/p' help | tr -d '|'); do # what it names can be made
    grep -A 1 "^$word:" Makefile | grep -q "^$(printf '\t')."; ok $? "make $word has no recipe"
done

# ---- clean
: > mine; mk CXX=./fake train_sink > /dev/null; make -s clean; ok $? "make clean"
[ ! -e build ] && [ ! -e train_sink ] && [ -e train_sink.cu ] && [ -e mine ]
ok $? "make clean left build, or took more"
cd ../../.. && rm -rf $copy
finish
