/* Connections to databases: kept open while a process is put back after each request (model S), taken leave of where it ends (D).
 *
 * A worker opens them in its callbacks of hearth_on_worker_start(). What their clients say meanwhile is learned. After each request that used
 * one, the server's session is put back as well (sessions/session.h): the reset is written before the memory is put back, its answer is read
 * afterwards, before the next request.
 *
 * Promises
 * - A request finds a connection either as the snapshot knows it, at both ends, or not at all. Any doubt ends the process with
 *   SNAPSHOT_EXIT_RETIRED and a log line, before the next request is taken: that one goes to another worker.
 * - A connection that is encrypted, or speaks a database's protocol and cannot be kept, is cut before the snapshot, and a log line says why.
 *   What speaks another protocol is left as the application made it.
 * - Connections that do not last are not kept for a while (databases_guard.h), and a failing callback does not stop the worker.
 * - Connections that the request opened are taken leave of in their own protocol when they are still open at its end.
 * - What was said in confidence is in memory that is in no core dump.
 */
#ifndef HEARTH_SAPI_DATABASES_H
#define HEARTH_SAPI_DATABASES_H

#include <stdbool.h>

/* In a process that will serve requests, before its start callbacks. Reads HEARTH_DATABASES: see databases.c. `keeps`: it will take a snapshot;
 * otherwise connections are only taken leave of. */
void databases_open(bool keeps);
/* Whether all connections of databases that are open now will be kept. The callbacks run. False in other models. */
bool databases_keep(void);
/* The callbacks are over; the snapshot comes next. */
void databases_settle(bool callbacks_worked);

/* After the snapshot, and after each restore: the answers to resets. */
void databases_await(void);
/* Until the next request is there, watches the connections that are kept. */
void databases_wait(void);
/* The request is over, its leavings are gone: writes resets and goodbyes. */
void databases_end_request(void);

/* No more requests will come. */
void databases_close(void);

/* HEARTH_SNAPSHOT_STATISTICS: tells standard error what was done, for benchmarks. */
void databases_say_statistics(void);

#endif
