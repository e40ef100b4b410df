/*
version.h -- the version of train_sink, which stands here and nowhere else in the sources.
CITATION.cff and CHANGELOG.md repeat it, and test_version holds them to it.
*/
#ifndef VERSION_H
#define VERSION_H
#define VERSION "2.0"
#endif
