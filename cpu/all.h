/*
cpu/all.h -- the files of cpu/ for core/rest.h: what needs the model, then the others.
*/
#include "cpu_model.cpp"
#ifndef ONCE_APART
#include "built_with.cpp"
#include "choice.cpp"
#include "cpu_folder.cpp"
#include "kernels.cpp"
#include "mapped_weights.cpp"
#include "processor.cpp"
#include "product.cpp"
#endif
