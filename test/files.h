// test/files.h -- files in the directory of a test, and those of test/
#ifndef FILES_H
#define FILES_H
#include "check.h"

static std::string dir;
// writes a file in `dir`, and returns its path
static inline std::string put(const std::string& name, const std::string& content) {
    file_write(dir + "/" + name, content);
    return dir + "/" + name;
}
// the directory of test/, wherever the test is called from
static inline std::string in_test() {
    const std::string f = __FILE__;
    return f.substr(0, f.rfind('/'));
}
#endif // FILES_H
