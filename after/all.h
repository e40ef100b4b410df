/*
after/all.h -- the files of after/ for core/rest.h. All need the model.
*/
#include "anatomy.cpp"
#include "anywhere.cpp"
#include "control.cpp"
#include "eval.cpp"
#include "probe_more.cpp"
#include "score.cpp"
#include "score_task.cpp"
