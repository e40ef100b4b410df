/*
lock.h -- one writer at a time. A run, a directory of shards and an entry of the text cache each
have a file called `lock`. It names the process and the machine that writes there, and that process
holds an flock on it until it ends, however it ends. The kernel keeps flocks apart for all
processes of a machine and its containers; on NFS, for all machines.
*/
#ifndef LOCK_H
#define LOCK_H
#include "common.h"

struct DirLock { std::string path; int fd = -1; pid_t process = 0; };

// Locks a directory that exists. If another process holds it: dies and says which, with `hint`; or,
// if `wait` says what that one does, waits until it ends. Then fd is -1 if the directory is gone.
DirLock dir_lock(const std::string& dir, const char* hint, const char* wait = NULL);

// Locks it if nobody else holds it; else fd is -1.
DirLock dir_try_lock(const std::string& dir);

// Removes the file and lets the next process in. Also done to every lock when the program ends.
void dir_unlock(DirLock* lock);
#endif // LOCK_H
