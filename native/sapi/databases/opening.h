/* Connections that a starting worker opens: how long it waits for a server that says nothing, and which worker asks such a server again.
 *
 * Promises
 * - A server that does not answer within the limit holds up a worker that long and no longer: its socket is shut down, and its client finds
 *   what it finds when a server hangs up.
 * - After that one worker at a time connects to it, after pauses that grow; the others are refused at once, and start without it.
 * - While a server is only suspected (guard.h), the others wait for what that one finds out, no longer than the limit.
 * - What the worker does between connecting and waiting does not count.
 * - A login is no answer: proxies let clients in before they have a server. What counts is the answer to a command.
 * - Only what the worker waits for in poll(2) is ended: a connection that lies idle, or is used by a protocol that is not a database's, is not.
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
/* Whether the first answer to this descriptor is still to come. */
bool opening_awaits(int fd);
/* It has come, or none will. */
void opening_answered(void);
/* poll(2), for as long as the limit allows. Borrowed: fds. */
int opening_poll(struct pollfd *fds, nfds_t count, int timeout);
/* The callbacks are over: says what was not answered, and returns when to try again, in the clock's milliseconds; 0: all was. */
uint64_t opening_end(void);

#endif
