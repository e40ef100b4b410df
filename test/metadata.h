// test/metadata.h -- the texts in a safetensors file's header, which the program checks and does not keep
#ifndef METADATA_H
#define METADATA_H
#include "../base/common.h"

inline Json metadata_of(const std::string& path) {
    const std::string text = file_read(path);
    const auto size = load<uint64_t>((const unsigned char*)text.data());
    return json_of(text.substr(8, size))["__metadata__"];
}
#endif // METADATA_H
