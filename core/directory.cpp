/*
core/directory.cpp -- what the keys in the files beside a model's weights ask for. Their table is
text/'s.
*/
#include "directory.h"
#include "../optional.h"

bool directory_key(const std::string& file, const std::string& key, const std::string& path,
                   const Json& value) {
    return text_folder && text_folder->key(file, key, path, value);
}

Json json_if_there(const std::string& path) {
    return file_exists(path) ? json_file(path) : Json();
}

Json state_of(const std::string& dir) {
    const std::string path = dir + "/state.json";
    const long most = 64 << 20;
    Json state;
    if (file_size(path) < 0 || file_size(path) > most) { return state; }
    const std::string text = file_read(path);            // one that cannot be opened is an error
    failure_of([&] { state = json_of(text); });
    return state;
}
