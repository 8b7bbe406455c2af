/* Where a worker's PHP code is, as its zygote sees it from outside.
 *
 * Promises
 * - The worker is not touched: no signal, no ptrace, no stop. A call that it waits in is not cut short, and no handler of the
 *   application's sees anything.
 * - Whatever state its memory is in, reading it cannot harm: every pointer is followed by process_vm_readv(2), which fails where
 *   nothing is, every length is bounded, and so is the number of frames.
 * - No arguments and no values, which may be secret: only names, files and lines.
 *
 * It works because a worker is a fork of the zygote: the engine's globals and the structures' layouts are the same in both. What is read
 * while the worker runs on may be torn; what does not look like a stack, down to a function that the engine called itself, is dropped, and
 * reading starts again.
 */
#ifndef HEARTH_SAPI_OUTPUT_BACKTRACE_H
#define HEARTH_SAPI_OUTPUT_BACKTRACE_H

#include <stddef.h>
#include <sys/types.h>

/* Writes a line for each function under way into `to`, the innermost first, and returns how many bytes: 0 when nothing is known.
 * `why` is then, or when not all is there, the reason; else "". Borrowed: to. Static: why. */
size_t backtrace_of(pid_t pid, char *to, size_t room, const char **why);

#endif
