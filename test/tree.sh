# test/tree.sh -- what builds the program, for tests that build it in a copy of the tree
folders=$(make -s folders)

copy_sources() { # DIR
    cp -rp --parents Makefile mk ./*.cu ./*.cuh ./*.h $folders "$1"
}

# and the objects of the program for a CPU: the copy compiles only what it changes
copy_objects() { # DIR
    for objects in $(make -s -j"${JOBS:-2}" objects BACKEND=cpu); do
        mkdir -p "$1/${objects%/*}"
        cp -rp "$objects" "$1/$objects"
    done
}
