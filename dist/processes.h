/*
dist/processes.h -- who the other processes are, and what they tell each other besides tensors.

Every process knows its rank from what started it: mpirun, srun or torchrun leave it in the
environment. Each then has two TCP connections to rank 0:

    talk     the main thread's: small messages in one order, the same on all ranks (sums, flags,
             "shall we stop?")
    watch    a thread's at either end: a beat a second, an error on its way to the screen, the end

So a process that dies, or falls silent, ends all of them, and one error says which it was. Tensors
travel by MPI or NCCL.
*/
#ifndef DIST_PROCESSES_H
#define DIST_PROCESSES_H
#include "place.h"      // rank and world size, from the environment
#include "sockets.h"    // connections and messages
#include "watch.h"      // one error, one end
#include "meet.h"       // how the processes find each other
#include "talk.h"       // sum, any, gather, spread, agree
#endif // DIST_PROCESSES_H
