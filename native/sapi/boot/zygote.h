/* The zygote: forks a worker for each SPAWN, tells of those that end, ends them all when the server is gone.
 *
 * Promises
 * - Has one thread, so a fork is a whole copy.
 * - Signals only processes that are its living children.
 * - A worker gets descriptors 0 to 3, the signal mask and the dispositions that the zygote was started with.
 */
#ifndef HEARTH_SAPI_BOOT_ZYGOTE_H
#define HEARTH_SAPI_BOOT_ZYGOTE_H

#include <stdbool.h>

/* The server's socket; log lines go through it from now on. */
void zygote_begin(int fd);
/* Says HELLO, then serves the conversation on `fd`; workers are kept from each other where it `confines`. Returns in a new worker only, whose conversation is on `fd` then; the zygote exits. */
void zygote_run(int fd, bool confines);

#endif
