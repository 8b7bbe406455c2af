/* State of earlier workers for later ones: short-lived connections are not kept for a while.
 *
 * Promises
 * - One page, shared by all forks of a zygote; numbers in it may be lost in a race, never torn.
 * - A worker whose connections or files lasted before they failed does not count.
 */
#ifndef HEARTH_SAPI_DATABASES_GUARD_H
#define HEARTH_SAPI_DATABASES_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* Called in the zygote before the first fork. A second call does nothing. */
void databases_guard_open(void);

/* A connection to this server and port has ended its worker after so few good resets that keeping it is of no use. `now`: milliseconds of
 * the monotonic clock. */
void databases_guard_failed(uint64_t server, uint64_t now);
/* Records that a connection to this server has lasted. */
void databases_guard_lasted(uint64_t server);
/* Returns when connections to this server may be kept (again), in the clock's milliseconds; 0:
 * now. */
uint64_t databases_guard_until(uint64_t server, uint64_t now);

/* Records that a server has not answered a starting worker, or one that used it. Returns when one
 * worker is to ask again: after the time that this one waited, then after pauses that double, up
 * to eight times as long. */
uint64_t databases_guard_unanswered(uint64_t server, uint64_t now, uint64_t limit_ms);
void databases_guard_suspected(uint64_t server);
/* Records that the server has answered, closed or refused a connection: waiting for it does not
 * take long. */
void databases_guard_answered(uint64_t server);
/* Returns until when this worker must not connect to the server; 0: it may. If the server did not
 * answer last, this worker is the only one for the given number of milliseconds. */
uint64_t databases_guard_silent_until(uint64_t server, uint64_t now, uint64_t limit_ms);

/* Returns whether the silence is only a suspicion, because no worker has since tried to connect
 * without success. A worker that tries now will know soon. */
bool databases_guard_is_suspicion(uint64_t server);

/* A worker retires after this many requests. If they were few, a file that its start has opened may be the reason: after five in a row no
 * start opens one for a while. */
void databases_guard_retired(uint64_t requests, uint64_t now);
/* Returns whether a worker's start may open files that stay open. */
bool databases_guard_allows_files(uint64_t now);

/* Callbacks of hearth_on_worker_start() have failed. Returns when to try again, in the clock's milliseconds. */
uint64_t databases_guard_start_failed(uint64_t now);
/* Records that the callbacks have not failed. Returns whether they had failed in earlier
 * workers. */
bool databases_guard_started(void);

/* Returns whether no worker has logged this line yet, and marks it as logged. If there are many
 * lines, only the older ones are remembered. */
bool databases_guard_is_news(const char *line);
/* Returns whether no worker has logged that a callback failed since callbacks last worked. */
bool databases_guard_is_first_failure(void);

#endif
