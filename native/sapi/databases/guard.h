/* What workers know of their predecessors: connections that never last are not kept for a while.
 *
 * Promises
 * - One page, shared by all forks of a zygote; numbers in it may be lost in a race, never torn.
 * - A worker whose connections served well before they failed counts as nothing.
 */
#ifndef HEARTH_SAPI_DATABASES_GUARD_H
#define HEARTH_SAPI_DATABASES_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* In the zygote, before the first fork; again, it does nothing. */
void databases_guard_open(void);

/* A connection to this server and port has ended its worker after so few good resets that keeping it is of no use. `now`: milliseconds of
 * the monotonic clock. */
void databases_guard_failed(uint64_t server, uint64_t now);
/* It has lasted. */
void databases_guard_lasted(uint64_t server);
/* When connections to this server may be kept (again), in the clock's milliseconds; 0: now. */
uint64_t databases_guard_until(uint64_t server, uint64_t now);

/* A server has not answered a worker that started, or one that used it. Returns when one worker is to ask again: after as
 * long as it was waited for, then after twice that, up to eight times. */
uint64_t databases_guard_unanswered(uint64_t server, uint64_t now, uint64_t limit_ms);
void databases_guard_suspected(uint64_t server);
/* It has answered, closed or refused the connection: waiting for it does not take long. */
void databases_guard_answered(uint64_t server);
/* Until when this worker must not connect to it; 0: it may, and if the server did not answer last it is the only one for so many
 * milliseconds. */
uint64_t databases_guard_silent_until(uint64_t server, uint64_t now, uint64_t limit_ms);

/* Whether that is a suspicion only: no worker has tried to connect in vain since. Who tries now will know soon. */
bool databases_guard_is_suspicion(uint64_t server);

/* Callbacks of hearth_on_worker_start() have failed. Returns when to try again, in the clock's milliseconds. */
uint64_t databases_guard_start_failed(uint64_t now);
/* They have not. Returns whether they had, in the workers before. */
bool databases_guard_started(void);

/* Whether no worker has said this line yet, nor will. Of many lines the newest are always news. */
bool databases_guard_is_news(const char *line);
/* Whether no worker has said that a callback failed since they worked last. */
bool databases_guard_is_first_failure(void);

#endif
