/*
core/dist.h -- many processes train one model (data parallel), if the build says so:

    make train_sink DIST=mpi        tensors in host memory, by MPI         dist/mpi.h
    make train_sink DIST=nccl       tensors on GPUs, by NCCL               dist/nccl.h
                                    one process, the default               dist_none.h

The folder dist/ may be deleted; this file alone names it.

Each process, a rank, holds all weights and works on its own sequences of a step. Then the gradients
are summed, each rank updates its shard of the weights, and all weights are gathered again (ZeRO
stage 1: Rajbhandari et al. 2019, arXiv:1910.02054). A rank holds only its shard of the sum of the
gradients, of the optimizer's state and of the weights in acc: dist/shard.h.

What each of the three gives, under namespace dist. All ranks call in the same order:

    rank(), world()        which process this is, of how many
    local(), neighbors()   the same among those on this machine
    start(), stop()        finds its place among the others; leaves them

    small things, on the host, equal on all ranks afterward:
    any(x), least(x), sum(x, n), barrier()
    spread(&text), agree(what, text, hint)

    tensors:
    tensors_start(out)                   before the first one, and before the first small thing
    shard_of, shard_send, shard_gather, shard_keep       which numbers are this rank's: dist/shard.h
    arrive()                             waits for them; until then nothing may write them

    what many do with a run:
    run_agree(f), run_share(f)           the same flags on all; this rank's part of a step
    sum_metrics(r, ..)                   adds up the reports of all ranks

Small things are sums, too: dist/agree.h. When a rank dies, what started the ranks ends the others.
*/
#ifndef DIST_H
#define DIST_H
#include "variant.h"               // acc
#ifndef DIST
#include "dist_none.h"
#elif __has_include(STR(../dist/DIST.h))
#include STR(../dist/DIST.h)
#else
#error "-DDIST: wanted mpi or nccl, whose folder has to be here, or no -DDIST"
#endif
#endif // DIST_H
