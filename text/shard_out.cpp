/*
text/shard_out.cpp -- tokens and their hashes as they come, the header at the end.
*/
#include "shard_out.h"

ShardOut shard_begin(const std::string& path, int width) {
    const std::string blank(shard_header(0, width).size(), '\0');
    ShardOut out = { file_begin(path), width, 0, "", {} };
    file_put(&out.file, blank.data(), blank.size());
    return out;
}

// Takes the hashes of whole blocks; last: also of what is left.
static void shard_hash(ShardOut* out, bool last) {
    size_t done = 0;
    for (;;) {
        const size_t left = out->block.size() - done;
        const size_t n = std::min(left, (size_t)SHARD_BLOCK);
        if (n == 0 || (n < SHARD_BLOCK && !last)) { break; }
        out->hashes.push_back(hash_bytes(out->block.data() + done, n));
        done += n;
    }
    out->block.erase(0, done);
}

void shard_put(ShardOut* out, const uint32_t* ids, long n) {
    const void* source = ids;
    if (out->width == 2) {
        static thread_local std::vector<uint16_t> narrow;
        narrow.assign(ids, ids + n);
        source = narrow.data();
    }
    const long bytes = n * out->width;
    file_put(&out->file, source, bytes);
    out->block.append((const char*)source, bytes);
    shard_hash(out, false);
    out->n += n;
}

void shard_commit(ShardOut* out) {
    shard_hash(out, true);
    const std::string header = shard_header(out->n, out->width);
    if (fseek(out->file.f, 0, SEEK_SET)) { file_abort(&out->file); }
    file_put(&out->file, header.data(), header.size());
    file_commit(&out->file);
}
