/*
dist/all.h -- the file of dist/ for core/rest.h. It needs the model.
*/
#include "many.cpp"
