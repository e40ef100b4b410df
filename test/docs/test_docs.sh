# the text of the repository, checked by test/docs/docs.py: spelling, percents
#     sh test/docs/test_docs.sh
. test/ok.sh
need_python 14 test_docs
scratch
"$PYTHON" test/docs/docs.py > "$dir/out"; ok $? "$(grep -v passed "$dir/out" | head -n 20)"
"$PYTHON" test/docs/hops.py > "$dir/out"; ok $? "$(grep -v passed "$dir/out" | head -n 20)"
# a link of the tour's lists is broken, or a figure is wrong
unlinked() { # file, what of it, what in its place, what is said
    rm -rf "$dir/hops"; mkdir "$dir/hops"
    git ls-files '*.h' '*.cuh' '*.cu' '*.cpp' docs/tour.md | tar cT - | tar x -C "$dir/hops"
    sed -i "s/$2/$3/" "$dir/hops/$1"; hops=$PWD/test/docs/hops.py
    ! (cd "$dir/hops" && "$PYTHON" "$hops") > "$dir/out" && grep -q "^FAIL docs.tour.md: $4" "$dir/out"
    ok $? "$1: $2: $(head -n 1 "$dir/out")"
}
unlinked train_sink.cu "model_layers(m);" "model_lm_head(m);" "accumulate_loaded (train_sink.cu) does not call model_layers"
unlinked core/variant.cu "ops::attention_forward<" "ops::other<" "attend_forward (train_sink.cu) does not call attention_forward"
unlinked core/measure.cpp "measure_layer(m, on_device, l);" "" "model_layers (train_sink.cu) does not call measure_layer"
unlinked cpu/attention.h "row_forward<A>(&rows" "other<A>(\&rows" "queries_forward (cpu.attention.h) does not call row_forward"
unlinked docs/tour.md "in 10 calls" "in 9 calls" "'9 calls and 3 files' are 10 calls and 3"
# and the check itself, in a directory that git does not know
mkdir "$dir/copy"; cp -r test "$dir/copy"; cd "$dir/copy" || exit 1
noticed() { # file, its text, what is said
    echo "$2" > "$1"
    ! "$PYTHON" test/docs/docs.py "$1" > "$dir/out" && grep -q "^FAIL $3" "$dir/out"
    ok $? "$1: $2: $(head -n 1 "$dir/out")"
    rm "$1"
}
noticed a.cpp "// the optimiser's step" "not American: a.cpp:1: optimiser"
noticed a.md "a Colour" "not American: a.md:1: Colour"
noticed a.md "half, 50 % of it" "a blank before %: a.md:1"
noticed README.md 'see `scripts/nowhere.py` for it' "README.md: scripts/nowhere.py is not in the repository"
noticed README.md 'what `each_sum_gone` does' "README.md: each_sum_gone is not a name of the source"
noticed README.md 'see [this](docs/nowhere.md)' "README.md: a link to docs/nowhere.md, which is not there"
noticed README.md '    ./train_sink probe x' "README.md:1: a command that no test sees"
finish
