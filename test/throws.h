// throws.h -- for tests of damaged files: an error of the program is an exception and its message a
// string, so that a hundred thousand files need no hundred thousand processes.
// Included before what is tested, which `#undef exit` follows.
#ifndef THROWS_H
#define THROWS_H
#include <stdio.h>
#include <stdlib.h>
#include <string>

struct Exit { int code; };
static char* message;
static size_t message_bytes;
static FILE* const messages = open_memstream(&message, &message_bytes);

// Returns what the program said since the last rewind(messages).
static inline std::string said() {
    fflush(messages);
    return std::string(message, message_bytes);
}

// Returns the exit status that a body ends with, 0 if it returns; said() is what it said.
template <class Body> static int status_of(Body body) {
    rewind(messages);
    try { body(); } catch (Exit& e) { return e.code; }
    return 0;
}

#define exit(code) throw Exit{ code }
#undef stderr
#define stderr messages
#endif // THROWS_H
