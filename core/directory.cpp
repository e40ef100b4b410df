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
    std::string error;
    if (file_size(path) < 0 || file_size(path) > most) { return state; }
    const std::string text = file_read(path);
    const bool read = json_parse(text.data(), text.size(), &state, &error);
    return read ? state : Json();
}

std::vector<int> directory_ends(const std::string& dir, const std::string& name) {
    const Json ids = json_if_there(dir + "/" + name)["eos_token_id"];
    std::vector<int> ends;
    if (ids.type == Json::NUL) { return ends; }
    std::vector<Json> list = ids.items;
    if (ids.is_number()) { list.push_back(ids); }
    bool good = ids.is_number() || ids.type == Json::ARRAY;
    for (auto& id : list) {
        const bool whole = id.is_number() && id.number == floor(id.number);
        good = good && whole && id.number >= 0 && id.number < 1 << 30;
        ends.push_back(good ? (int)id.number : -1);
    }
    if (!good) {
        die(dir + "/" + name + ": eos_token_id: wanted an id or a list of ids");
    }
    return ends;
}
