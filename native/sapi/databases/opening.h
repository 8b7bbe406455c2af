/* Connections that a starting worker opens: the time limit for a silent server, and which worker asks such a server again.
 *
 * Promises
 * - A server that does not answer delays a worker up to the limit. Then the socket is shut down, and its client sees the same as when a server
 *   closes the connection.
 * - After that one worker at a time connects to it, after growing pauses. The others are refused at once and start without it.
 * - While a server is only suspected (guard.h), the others wait for that worker's result, no longer than the limit.
 * - The worker's own work between connecting and waiting does not count.
 * - A login is not an answer, because proxies accept clients before they have a server. Only the answer to a command counts.
 * - Only connections that the worker waits for in poll(2) are ended, not idle ones, nor those with a protocol other than a database's.
 */
#ifndef HEARTH_SAPI_DATABASES_OPENING_H
#define HEARTH_SAPI_DATABASES_OPENING_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* The callbacks of hearth_on_worker_start() come next. */
void opening_begin(uint64_t limit_ms);
/* A socket is being connected to `server` (guard.h). False: it must not be. Borrowed: address. */
bool opening_allows(int fd, uint64_t server, const struct sockaddr *address, socklen_t len);
/* Returns whether the first answer to this descriptor has not arrived yet. */
bool opening_awaits(int fd);
/* Records that the answer has arrived, or that none will. */
void opening_answered(void);
/* poll(2), for as long as the limit allows. Borrowed: fds. */
int opening_poll(struct pollfd *fds, nfds_t count, int timeout);
/* Called after the callbacks: logs the servers that did not answer. Returns when to try again, in the clock's milliseconds; 0 if all have
 * answered. */
uint64_t opening_end(void);

#endif
