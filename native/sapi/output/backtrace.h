/* Reads a worker's PHP stack from outside, in its zygote.
 *
 * Promises
 * - The worker is not disturbed: no signal, no ptrace, no stop. Its system call is not interrupted, and no handler of the application
 *   notices.
 * - Reading is safe in any state of the worker's memory. Pointers are followed by process_vm_readv(2), which fails for unmapped
 *   addresses, and all lengths and the number of frames are bounded.
 * - No arguments and no values, which may be secret: only names, files and lines.
 *
 * It works because a worker is a fork of the zygote: the engine's globals and the structures' layouts are the same in both. The worker
 * runs during the reading, so the data may be inconsistent. Unless they form a stack, down to a function that the engine itself called,
 * they are dropped and read again.
 */
#ifndef HEARTH_SAPI_OUTPUT_BACKTRACE_H
#define HEARTH_SAPI_OUTPUT_BACKTRACE_H

#include <stddef.h>
#include <sys/types.h>

/* Writes a line for each running function into `to`, the innermost first, and returns the number of bytes; 0 if nothing is known. If
 * functions are missing, `why` is the reason; otherwise "". Borrowed: to. Static: why. */
size_t backtrace_of(pid_t pid, char *to, size_t room, const char **why);

#endif
