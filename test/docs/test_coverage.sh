# docs/findings/coverage.md: every command on a tiny model, its answer, and whether it is wanted: test/docs/coverage.py
#     sh test/docs/test_coverage.sh
. test/ok.sh
need_python 300 test_coverage
scratch
# builds that carry many of the switches at once: what a switch compiles, unoptimized, and the program as it is
shown() { make -s --eval="shown: ; @echo $1" shown BACKEND=cpu $2; }
objects=$(shown '$(PROGRAM) $(ONCE)')
build() { # a name, its switches
    # shellcheck disable=SC2086,SC2046
    $(shown '$(CXX) -std=c++17 -O0 -march=$(ARCH) -fopenmp -x c++ $(DEFS)' "$2") -c core/variant.cu -o "$dir/$1.o" &&
        $(shown '$(CXX) -fopenmp') "$dir/$1.o" $objects -o "$dir/$1"
}
parts="PE=learnable NORM=post FFN=gelu COMBINE=sum QKNORM=head GATE=head BIAS=zero"
sums="ATTN=softmax_p BIAS=kv"
bare="ATTN=relu NORM=none QKNORM=head"
{ build parts "$parts"; build nope PE=nope; build clip ATTN=softmax_clip; } > "$dir/one" 2>&1 & first=$!
{ build sums "$sums"; build alibi PE=alibi; build bare "$bare"; } > "$dir/two" 2>&1; two=$?
wait $first; one=$?
ok $one "build: $(tail -n 3 "$dir/one")"; ok $two "build: $(tail -n 3 "$dir/two")"
check() { # a page
    rm -rf "$dir/run"; mkdir "$dir/run"
    "$PYTHON" test/docs/coverage.py "$1" "$dir/run" "" build/cpu/train_sink ATTN=sigmoid build/cpu-ATTN=sigmoid/train_sink \
        BIAS=k build/cpu-BIAS=k/train_sink "$parts" "$dir/parts" "$sums" "$dir/sums" PE=nope "$dir/nope" PE=alibi "$dir/alibi" "$bare" "$dir/bare" \
        ATTN=softmax_clip "$dir/clip" > "$dir/out"
}
check docs/findings/coverage.md; ok $? "$(grep FAIL "$dir/out" | head -n 20)"
# and the check itself, on three rows: a field that is not there, a line that is not printed, a number that is another
sed -n -e 's/\["attn_spread"\]/["spread"]/p' -e 's/steps up"/steps over"/p' -e 's/\["v_norm_first"\]/["v_norm_rest"]/p' \
    docs/findings/coverage.md > "$dir/page.md"
check "$dir/page.md"
for said in "KeyError('spread')" "steps over" 'is 1.0, wanted `0 to 0.3`' "3 rows, wanted 90"; do grep -qF "$said" "$dir/out"; ok $? "not noticed: $said"; done
finish
