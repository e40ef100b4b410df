/*
dev/emulator/nccl.h -- NCCL between emulated GPUs: found by #include <nccl.h> before the real one,
whose types it takes.

Every rank is a process, every GPU one of EMU_DEVICES; tensors pass through shared memory.
The real library hangs, or adds up what does not belong together, where ranks do not agree
or buffers are used too early; this one ends with EMU ERROR:
  - ranks that do not call the same operation, with the same type and count, in the same order;
  - pointers that are not device memory, or too short; buffers that overlap other than
    in place as NCCL allows it;
  - types, sums and streams that it does not know; operations outside of what ncclCommInitRank made,
    or after its end;
  - ncclGroupEnd without a beginning, the end of a communicator inside a group
    or with work under way;
  - a second rank on one GPU (ncclInvalidUsage, as the real one says);
  - a stream that has not waited for what wrote the tensor, and one that uses the result without
    waiting for it (emu.h);
  - a tensor that is changed before its operation has been waited for:
    its bytes are remembered until then.
Sums go around the ring as NCCL's do: piece r begins at rank r + 1 and ends at rank r.
EMU_FAULT=nccl:NAME fails on purpose. It cannot see: time-outs, networks, topologies,
weak memory order, speed.
*/
#ifndef EMU_NCCL_H
#define EMU_NCCL_H
#include "emu.h"
#include_next <nccl.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <atomic>

namespace emu_nccl {
using emu::fail;
enum { MOST = 16, CHUNK = 1 << 20 };  // ranks; bytes that a rank has in flight

// kind: 0 init, 1 reduce-scatter, 2 all-gather, 3 all-reduce
struct Call { int kind, type, op; size_t count; };
struct Shared {                                            // in a file in memory that all ranks map
    std::atomic<int> arrived, round;
    Call call[MOST];
    int device[MOST], world[MOST];
    char data[MOST][CHUNK];
};
struct Op { Call call; const char* send; char* receive; cudaStream_t stream; struct Comm* comm; };
struct Comm {
    int magic, rank, world;
    Shared* shared;
    char path[128];
    int last_stream;
    long last_number;
};
enum { MAGIC = 0x6E63636C, DEAD = 0x64656164 };

inline emu::Array<Op> group;
inline int group_depth;
inline char last_error[256];

inline ncclResult_t refuse(ncclResult_t r, const char* why) {
    snprintf(last_error, sizeof last_error, "%s", why);
    return r;
}
inline ncclResult_t fault(const char* name) {
    char full[64];
    snprintf(full, sizeof full, "nccl:%s", name);
    return strcmp(emu::settings.fault, full) ? ncclSuccess
                                             : refuse(ncclSystemError, "an error on purpose");
}

// a tensor that is on its way: nobody may change it before somebody has waited for it
struct Way { const char* p; size_t n; uint64_t hash; int stream; long number; };
inline emu::Array<Way> ways;
inline uint64_t hash_of(const char* p, size_t n) {
    uint64_t h = 1469598103934665603ull;
    for (size_t i = 0; i < n; i++) { h = (h ^ (unsigned char)p[i]) * 1099511628211ull; }
    return h;
}
inline void waited(int stream, long number) {  // all of this stream up to here is done
    emu::Access access;
    for (size_t i = 0; i < ways.n;) {
        const Way w = ways[i];
        if (w.stream != stream || w.number > number) { i++; continue; }
        if (hash_of(w.p, w.n) != w.hash) {
            fail("NCCL: %zu bytes were changed while they were on their way", w.n);
        }
        ways.erase(i, 1);
    }
}

// all ranks have come here
inline void barrier(Comm* c) {
    const int round = c->shared->round;
    if (c->shared->arrived.fetch_add(1) == c->world - 1) {
        c->shared->arrived = 0;
        c->shared->round++;
        return;
    }
    for (int tries = 0; c->shared->round == round; tries++) { if (tries > 100) { usleep(20); } }
}

inline size_t size_of(int type) {
    return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : type == ncclBfloat16 ? 2 : 0;
}

// element i of type at p
inline double load(const char* p, size_t i, int type) {
    if (type == ncclFloat64) { return ((const double*)p)[i]; }
    if (type == ncclFloat32) { return ((const float*)p)[i]; }
    return __bfloat162float(((const __nv_bfloat16*)p)[i]);
}
inline void store(char* p, size_t i, int type, double x) {
    if (type == ncclFloat64) { ((double*)p)[i] = x; }
    else if (type == ncclFloat32) { ((float*)p)[i] = x; }
    else { ((__nv_bfloat16*)p)[i] = __float2bfloat16(x); }
}

inline const char* name_of(int kind) {
    return kind == 1 ? "ncclReduceScatter" : kind == 2 ? "ncclAllGather" : "ncclAllReduce";
}

inline void check_memory(const char* what, const void* p, size_t n) {
    const emu::Memory* m = emu::device_memory(p);
    if (!m || !emu::in(*m, p, n)) {
        fail("NCCL: %s: %zu bytes at %p are not device memory", what, n, p);
    }
}

inline void check_call(const Op& o) {
    Comm* c = o.comm;
    c->shared->call[c->rank] = o.call;
    barrier(c);
    for (int r = 0; r < c->world; r++) {
        const Call& other = c->shared->call[r];
        if (other.kind != o.call.kind || other.type != o.call.type || other.op != o.call.op ||
            other.count != o.call.count) {
            fail("NCCL: rank %d is at operation %d of %zu numbers of type %d, rank %d at %d of %zu "
                 "of type %d",
                 c->rank, o.call.kind, o.call.count, o.call.type, r, other.kind, other.count,
                 other.type);
        }
    }
    barrier(c);
}

// now, although the host would not wait: others see the result only after they
// have waited for its number
inline void run(const Op& o) {
    Comm* c = o.comm;
    Shared* s = c->shared;
    const size_t size = size_of(o.call.type), one = o.call.count * size, all = one * c->world;
    const bool reduce = o.call.kind == 1;
    const bool whole = o.call.kind == 3;     // every rank gets the sum of all
    const int stream = emu::stream_next(o.stream);
    emu::kernel = name_of(o.call.kind);
    emu::Memory* from = emu::device_memory(o.send);
    for (int i = 0; i < emu::n_streams; i++) {
        if (i != stream && from->wrote[i] > emu::streams[stream].after[i]) {
            fail("%s: the stream has not waited for what wrote the tensor", emu::kernel);
        }
    }
    emu::touch(o.receive, true, o.stream);
    check_call(o);
    emu::Access access;
    const size_t sent = reduce ? all : one, step = CHUNK / (reduce ? c->world : 1) / 64 * 64 / size;
    if (o.send != o.receive) {
        ways.push(Way{ o.send, sent, hash_of(o.send, sent), stream, emu::streams[stream].issued });
    }
    for (size_t at = 0; at < o.call.count; at += step) {
        const size_t n = at + step < o.call.count ? step : o.call.count - at;
        for (int r = 0; r < (reduce ? c->world : 1); r++) {
            memcpy(s->data[c->rank] + r * n * size, o.send + r * one + at * size, n * size);
        }
        barrier(c);
        for (size_t i = 0; (reduce || whole) && i < n; i++) {
            const int first = whole ? 0 : c->rank + 1;
            const size_t mine = (whole ? 0 : c->rank * n) + i;
            double sum = load(s->data[first % c->world], mine, o.call.type);
            for (int k = 1; k < c->world; k++) {
                sum += load(s->data[(first + k) % c->world], mine, o.call.type);
                if (o.call.type != ncclFloat64) { sum = (float)sum; }
            }
            store(o.receive, at + i, o.call.type, sum);
        }
        for (int r = 0; !reduce && !whole && r < c->world; r++) {
            memcpy(o.receive + r * one + at * size, s->data[r], n * size);
        }
        barrier(c);
    }
    c->last_stream = stream;
    c->last_number = emu::streams[stream].issued;
}

inline ncclResult_t enqueue(Op o) {
    const char* what = name_of(o.call.kind);
    if (fault(what) != ncclSuccess) { return ncclSystemError; }
    if (!o.comm || o.comm->magic != MAGIC) {
        return refuse(ncclInvalidArgument, "no communicator");
    }
    const size_t one = o.call.count * size_of(o.call.type), all = one * o.comm->world;
    if (!size_of(o.call.type) || o.call.op != ncclSum) {
        return refuse(ncclInvalidArgument, "a type or sum that is not emulated");
    }
    if (!o.stream || emu::stream_of(o.stream) >= emu::n_streams) { fail("%s: not a stream", what); }
    const size_t sent = o.call.kind == 1 ? all : one, got = o.call.kind == 2 ? all : one;
    check_memory(what, o.send, sent);
    check_memory(what, o.receive, got);
    // where a rank's own part of the longer buffer is, and with it the place of the shorter one
    const size_t mine = o.call.kind == 3 ? 0 : o.comm->rank * one;
    const bool in_place = o.call.kind == 1 ? o.send + mine == o.receive : o.receive + mine == o.send;
    const bool overlap = o.send < o.receive + got && o.receive < o.send + sent;
    if (overlap && !in_place) { fail("%s: the buffers overlap", what); }
    if (group_depth) { group.push(o); } else { run(o); }
    return ncclSuccess;
}
} // namespace emu_nccl

extern "C" {
inline const char* ncclGetErrorString(ncclResult_t r) {
    return r == ncclInvalidUsage      ? "invalid usage"
           : r == ncclInvalidArgument ? "invalid argument"
                                      : "unhandled system error";
}
inline const char* ncclGetLastError(ncclComm_t) { return emu_nccl::last_error; }
inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    if (emu_nccl::fault("id") != ncclSuccess) { return ncclSystemError; }
    memset((void*)id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/dev/shm/emu_nccl_%d_%lx", (int)getpid(),
             (long)emu::random());
    const int fd = open(id->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(emu_nccl::Shared))) {
        return emu_nccl::refuse(ncclSystemError, "no shared memory");
    }
    close(fd);
    return ncclSuccess;
}
inline ncclResult_t ncclCommInitRank(ncclComm_t* comm, int world, ncclUniqueId id, int rank) {
    using namespace emu_nccl;
    if (fault("init") != ncclSuccess) { return ncclSystemError; }
    if (rank < 0 || rank >= world || world > MOST) {
        return refuse(ncclInvalidArgument, "a rank that is none");
    }
    const int fd = open(id.internal, O_RDWR);
    if (fd < 0) { return refuse(ncclInvalidArgument, "an id that ncclGetUniqueId did not make"); }
    Comm* c = new Comm{ MAGIC, rank, world, nullptr, {}, 0, 0 };
    snprintf(c->path, sizeof c->path, "%s", id.internal);
    c->shared = (Shared*)mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    c->shared->device[rank] = emu::device + 1;
    c->shared->world[rank] = world;
    barrier(c);
    unlink(c->path);
    for (int r = 0; r < world; r++) {
        if (c->shared->world[r] != world) {
            fail("NCCL: rank %d says %d ranks, rank %d says %d", rank, world, r,
                 c->shared->world[r]);
        }
        if (r != rank && c->shared->device[r] == emu::device + 1) {
            return refuse(ncclInvalidUsage, "Duplicate GPU detected");
        }
    }
    emu::on_wait = waited;
    *comm = (ncclComm_t)c;
    return ncclSuccess;
}
inline ncclResult_t ncclGroupStart() { emu_nccl::group_depth++; return ncclSuccess; }
inline ncclResult_t ncclGroupEnd() {
    using namespace emu_nccl;
    if (!group_depth) { return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart"); }
    if (--group_depth) { return ncclSuccess; }
    for (auto& o : group) { run(o); }
    group.n = 0;
    return fault("group");
}
inline ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count,
                                      ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream) {
    return emu_nccl::enqueue({ { 1, type, op, count },
                               (const char*)send,
                               (char*)receive,
                               stream,
                               (emu_nccl::Comm*)comm });
}
inline ncclResult_t ncclAllGather(const void* send, void* receive, size_t count,
                                  ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
    return emu_nccl::enqueue({ { 2, type, ncclSum, count },
                               (const char*)send,
                               (char*)receive,
                               stream,
                               (emu_nccl::Comm*)comm });
}
inline ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count,
                                  ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                  cudaStream_t stream) {
    return emu_nccl::enqueue({ { 3, type, op, count },
                               (const char*)send,
                               (char*)receive,
                               stream,
                               (emu_nccl::Comm*)comm });
}
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* e) {
    *e = emu_nccl::fault("async");
    return ncclSuccess;
}
inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    using namespace emu_nccl;
    Comm* c = (Comm*)comm;
    if (!c || c->magic != MAGIC) { return refuse(ncclInvalidArgument, "no communicator"); }
    if (group_depth) { fail("ncclCommDestroy inside a group"); }
    if (c->last_number > emu::host_after[c->last_stream]) {
        fail("ncclCommDestroy while work is under way");
    }
    c->magic = DEAD;
    munmap(c->shared, sizeof(Shared));
    return ncclSuccess;
}
}
#endif // EMU_NCCL_H
