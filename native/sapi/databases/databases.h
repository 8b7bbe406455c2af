/* Connections to databases. They stay open while a process is restored after each request (model `snapshot`), and are closed politely if it
 * ends (`fork`).
 *
 * A worker opens them in its callbacks of hearth_on_worker_start(). The bytes that their clients send meanwhile are recorded. After each
 * request that used a connection, the server's session is reset as well (sessions/session.h). The reset is written before the memory is
 * restored, and its answer is read afterwards, before the next request.
 *
 * Promises
 * - A request finds a connection either as the snapshot knows it, at both ends, or not at all. Any doubt ends the process with
 *   SNAPSHOT_EXIT_RETIRED and a log line, before the next request is read. Another worker gets that request.
 * - A connection that cannot be kept is closed before the snapshot, with the reason in a log line: it is encrypted, has another protocol, or
 *   has sent nothing yet. Only the broker's connection is left open.
 * - Through a connector, the number of kept connections is limited by its sessions (places.h).
 * - Short-lived connections are not kept for a while (guard.h), and a failing callback does not stop the worker.
 * - Connections that a request leaves open at its end are closed in the way of their protocol.
 * - Passwords are kept in memory that is excluded from core dumps.
 */
#ifndef HEARTH_SAPI_DATABASES_DATABASES_H
#define HEARTH_SAPI_DATABASES_DATABASES_H

#include <stdbool.h>

/* Called in a process that will serve requests, before its start callbacks. Reads HEARTH_DATABASES (databases.c). `keeps`: it will take a
 * snapshot; otherwise connections are only closed politely. */
void databases_open(bool keeps);
/* The callbacks come next: no server holds them up for long (opening.h). */
void databases_start(void);
/* Returns whether all connections that are open now will be kept. Called while the callbacks run. False in other models. */
bool databases_keep(void);
/* Called where databases_keep() may be: returns whether files that are opened and locked now will outlive requests. False also for a while
 * after workers with such files have not lasted; the log says so once. */
bool databases_keep_files(void);
/* The callbacks are over; the snapshot comes next. */
void databases_settle(bool callbacks_worked);

/* After the snapshot, and after each restore: the answers to resets. Returns whether READY is due now. */
bool databases_await(void);
/* Watches the kept connections until the next request arrives. */
void databases_wait(void);
/* The request has ended and is cleaned up: writes resets and goodbyes. */
void databases_end_request(void);
/* Returns whether the proofs for this request will come so late that another worker should serve the next request. */
bool databases_prove_late(void);
/* After databases_end_request(): the same, and then databases_await() returns true, once. */
bool databases_announce_later(void);

/* No more requests will come. */
void databases_close(void);
/* Stops observing: processes forked from now on open their own connections. */
void databases_leave(void);

/* HEARTH_SNAPSHOT_STATISTICS: writes figures to standard error, for benchmarks. */
void databases_say_statistics(void);

#endif
