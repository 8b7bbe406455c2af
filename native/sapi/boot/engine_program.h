/* PHP's own program as the engine.
 *
 * The engine of a library reaches its own variables and functions through tables that the loader fills, and that of a program does not: the
 * same script takes less processor time in it. So hearth-worker executes PHP's command line program, if there is one of its version, with
 * hearth-preload-8.x.so, which has the worker's code and runs it in the place of the program's main().
 *
 * Promises
 * - The program is tried first, in a process of its own: if the loader does not find a name, the worker stays with the library.
 * - Arguments, descriptors, the process's name and the environment stay as they were. LD_PRELOAD is as before once
 *   engine_program_settle() has returned, so that programs that PHP starts do not get it.
 */
#ifndef HEARTH_ENGINE_PROGRAM_H
#define HEARTH_ENGINE_PROGRAM_H

#include <stdbool.h>

/* The argument with which the program is tried, and the status with which it ends then. */
#define ENGINE_PROGRAM_TRIAL "--hearth-trial"
enum { ENGINE_PROGRAM_WORKS = 42 };

/* True in hearth-preload-8.x.so, which PHP's program has loaded. */
extern const bool engine_program_inside;

/* Executes PHP's program. Returns if there is none, or none that works. */
void engine_program_enter(char **argv);

/* Inside the program: takes what engine_program_enter() has added out of the environment. */
void engine_program_settle(void);

#endif
