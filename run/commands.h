/*
commands.h -- the functions of the commands, one file each: `train_sink NAME` calls command_NAME,
which returns what the process exits with. Their rows are in flags.h.
*/
#ifndef COMMANDS_H
#define COMMANDS_H
#include "../flags.h"

#define X(name, ...) int command_##name(Flags f);
COMMANDS(X)
#undef X
#endif // COMMANDS_H
