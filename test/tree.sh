# test/tree.sh -- what builds the program, for tests that build it in a copy of the tree
rooms=$(make -s rooms)

copy_sources() { # DIR
    cp -rp Makefile mk ./*.cu ./*.cuh ./*.h $rooms "$1"
}
