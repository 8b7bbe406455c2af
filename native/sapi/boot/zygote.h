/* The zygote forks a worker for each SPAWN, reports workers that end, and ends all of them when the server
 * has gone.
 *
 * Promises
 * - Has one thread, so a fork is a whole copy.
 * - Signals only processes that are its living children.
 * - A worker gets the descriptors 0 to 3, the signal mask and the dispositions with which the zygote was
 *   started.
 */
#ifndef HEARTH_SAPI_BOOT_ZYGOTE_H
#define HEARTH_SAPI_BOOT_ZYGOTE_H

#include <stdbool.h>

/* The server's socket; log lines go through it from now on. */
void zygote_begin(int fd);
/* Sends HELLO, then serves the server's commands on `fd`. Workers are isolated from each other if it
 * `confines`. Returns only in a new worker, with its own connection on `fd`; the zygote exits. */
void zygote_run(int fd, bool confines);

#endif
