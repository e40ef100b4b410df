/*
plural.h -- a number and what it counts, for people.
*/
#ifndef PLURAL_H
#define PLURAL_H
#include "common.h"

// Writes "1 layer", "2 layers".
inline std::string plural(long n, const char* thing) {
    return strf("%ld %s%s", n, thing, n == 1 ? "" : "s");
}
#endif // PLURAL_H
