/* Connections to databases: kept open while a process is put back after each request (model S), taken leave of where it ends (D).
 *
 * A worker opens them in its callbacks of hearth_on_worker_start(). What their clients say meanwhile is learned. After each request that used
 * one, the server's session is put back as well (sessions/session.h): the reset is written before the memory is put back, its answer is read
 * afterwards, before the next request.
 *
 * Promises
 * - A request finds a connection either as the snapshot knows it, at both ends, or not at all. Any doubt ends the process with
 *   SNAPSHOT_EXIT_RETIRED and a log line, before the next request is taken: that one goes to another worker.
 * - A connection that cannot be kept is cut before the snapshot, and a log line says why: one that is encrypted, speaks another protocol, or
 *   has said nothing yet. Only the broker's is left.
 * - Through a connector only so many stay as its sessions allow (places.h).
 * - Connections that do not last are not kept for a while (guard.h), and a failing callback does not stop the worker.
 * - Connections that the request opened are taken leave of in their own protocol when they are still open at its end.
 * - What was said in confidence is in memory that is in no core dump.
 */
#ifndef HEARTH_SAPI_DATABASES_DATABASES_H
#define HEARTH_SAPI_DATABASES_DATABASES_H

#include <stdbool.h>

/* In a process that will serve requests, before its start callbacks. Reads HEARTH_DATABASES: see databases.c. `keeps`: it will take a snapshot;
 * otherwise connections are only taken leave of. */
void databases_open(bool keeps);
/* The callbacks come next: no server holds them up for long (opening.h). */
void databases_start(void);
/* Whether all connections that are open now will be kept. The callbacks run. False in other models. */
bool databases_keep(void);
/* The callbacks are over; the snapshot comes next. */
void databases_settle(bool callbacks_worked);

/* After the snapshot, and after each restore: the answers to resets. Returns whether READY is due now. */
bool databases_await(void);
/* Until the next request is there, watches the connections that are kept. */
void databases_wait(void);
/* The request has ended and is cleaned up: writes resets and goodbyes. */
void databases_end_request(void);
/* Whether the proofs of what this request uses will come so late that the next request is better off with another worker. */
bool databases_prove_late(void);
/* After databases_end_request(): the same, and then databases_await() returns true, once. */
bool databases_announce_later(void);

/* No more requests will come. */
void databases_close(void);
/* Nothing is followed any more: the processes that are forked next open what they need. */
void databases_leave(void);

/* HEARTH_SNAPSHOT_STATISTICS: tells standard error what was done, for benchmarks. */
void databases_say_statistics(void);

#endif
