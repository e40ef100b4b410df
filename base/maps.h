/*
maps.h -- files mapped into memory, and what happens when one changes under us. A file that is cut
short while it is mapped ends a process by SIGBUS; maps_watch makes an error of that which names the
file. A file that is written over in place gives other numbers in silence; maps_changed finds it.
*/
#ifndef MAPS_H
#define MAPS_H
#include "common.h"
#include <sys/mman.h>

struct FileMap { const char* data; size_t size; };

// Maps a file of at least `least` bytes, and of `kind` in words; it stays until map_close.
FileMap file_map(const std::string& path, long least, const char* kind);

void map_close(const FileMap& map);

// Makes an access behind the end of a mapped file an error that names it, exit status 1.
void maps_watch();

// Lets `lost` be called with the name before that: a handler's rules hold for it.
typedef void (*MapLost)(const char* path);
void maps_on_lost(MapLost lost);

// Returns the first file written to, in place, since it was mapped; "" if all are as they were.
std::string maps_changed();

// Takes the files as they are now: what maps_changed says is about changes from now on.
void maps_accept();
#endif // MAPS_H
