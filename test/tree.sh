# test/tree.sh -- what builds the program, for tests that build it in a copy of the tree
rooms="commands shell cpu cuda dist models text"

copy_sources() { # DIR
    cp -r Makefile mk ./*.cpp ./*.cu ./*.cuh ./*.h $rooms "$1"
}
