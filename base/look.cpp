/*
base/look.cpp -- opens files, lists and makes directories, and says what files begin with. What they
are is told by text/.
*/
#include "look.h"
#include <limits.h>
#include <filesystem>

// ----------------------------------------------------------------------------
// opening

int file_open(const std::string& path, const std::string& hint) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st = {};
    const bool there = fd >= 0 && fstat(fd, &st) == 0;
    const bool directory = S_ISDIR(st.st_mode);
    if (directory) { errno = EISDIR; }
    if (!there || directory) { die(blame(errno), cannot("open", path), hint); }
    char real[PATH_MAX];
    if (!S_ISREG(st.st_mode) && realpath(path.c_str(), real)) {
        die(path + ": got a pipe or a device, wanted a file",
            "write what comes from there into a file first");
    }
    fcntl(fd, F_SETFL, O_RDONLY);                        // wait for what is read, from now on
    return fd;
}

std::vector<std::string> dir_list(const std::string& path) {
    std::vector<std::string> names;
    std::error_code failed;
    std::filesystem::directory_iterator at(path, failed), end;
    for (; at != end; at.increment(failed)) { names.push_back(at->path().filename()); }
    std::sort(names.begin(), names.end());
    return names;
}

std::string link_target(std::string path) {
    std::error_code failed;
    for (int hops = 0; hops < 40; hops++) {
        const std::filesystem::path target = std::filesystem::read_symlink(path, failed);
        if (failed) { break; }
        path = std::filesystem::path(path).parent_path() / target;
    }
    return path;
}

void make_dirs(const std::string& path, const std::string& elsewhere) {
    std::error_code failed;
    std::filesystem::create_directories(path, failed);
    if (!failed) { return; }
    std::filesystem::path first = path;                  // the first part that could not be made
    while (first.has_parent_path() && !is_dir(first.parent_path())) { first = first.parent_path(); }
    const int code = blame(failed.value());
    die(code, cannot("create this directory", first, failed.value()),
        code == EXIT_MACHINE ? "free some disk space" : elsewhere);
}

std::string directory_above(std::string path) {
    do {
        const size_t slash = path.find_last_of('/');
        path = slash == path.npos ? "" : path.substr(0, slash);
    } while (!path.empty() && !is_dir(path));
    return path;
}

std::string list_beside(const std::string& path, const std::string& patterns) {
    const std::string above = directory_above(path);
    return above.empty() ? "ls " + patterns : hint_for("ls FILE", above);
}

std::string file_read(const std::string& path, const std::string& hint) {
    FILE* f = fdopen(file_open(path, hint), "rb");
    std::string s;
    char part[1 << 14];
    while (const size_t n = fread(part, 1, sizeof part, f)) { s.append(part, n); }
    if (ferror(f)) { die(EXIT_MACHINE, cannot("read", path)); }
    fclose(f);
    return s;
}

// ----------------------------------------------------------------------------
// looking

std::string file_begin_bytes(const std::string& path, long n) {
    std::string s(n, 0);
    FILE* f = is_regular(path) ? fopen(path.c_str(), "r") : NULL;
    s.resize(f ? fread(&s[0], 1, n, f) : 0);
    if (f) { fclose(f); }
    return s;
}

std::string begins_with(const std::string& first) {
    std::string bytes = "begins with the bytes";
    for (unsigned char c : first.substr(0, 8)) { bytes += strf(" %02X", c); }
    return first.empty() ? "is empty" : bytes;
}

std::string hint_for(const std::string& hint, const std::string& path) {
    bool plain = !path.empty() && path[0] != '-';
    for (unsigned char c : path) { plain = plain && (isalnum(c) || strchr("._/+-=@:,", c)); }
    std::string out = hint;
    if (!plain) { return out; }
    for (size_t at = 0; (at = out.find("FILE", at)) != out.npos; at += path.size()) {
        out.replace(at, 4, path);
    }
    return out;
}

void look_file(const std::string& path, Reader reader) {
    look(path, file_begin_bytes(path, LOOK_BYTES), file_size(path), reader);
}
