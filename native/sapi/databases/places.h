/* Places for connections that stay, where a server's sessions are counted: at a connector of `hearth serve`.
 *
 * A place is a byte of a file that the server makes as long as there are places, and a lock on it: a worker that holds one may keep a connection to
 * that connector; the others give theirs back and borrow one for each request.
 *
 * Promises
 * - A worker without a place finds as many sessions free as workers have opened connections to that connector at their start, or all are
 *   borrowed: a worker that holds one and waits for another would wait for ever if the rest is kept.
 * - A place is held by one process, and free again when that process has ended, however it did.
 * - Workers reach their own server's connectors, whosever sockets have the names.
 */
#ifndef HEARTH_SAPI_DATABASES_PLACES_H
#define HEARTH_SAPI_DATABASES_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum {
    PLACES_UNCOUNTED = -1, /* this server's sessions are not ours to count */
    PLACES_ALL_TAKEN = -2,
    PLACES_NONE = -3,   /* there are none for this worker, and none will be free */
    PLACES_FAILED = -4, /* unknown: errno says why */
};

/* Lines `socket TAB file TAB sessions TAB workers` of connectors, each with its line's end. While the server takes the place of another one,
 * sockets of a fixed name lie beside it, and `TAB name` follows. Static: lines. */
void places_open(const char *lines);
/* Which connector an address is: a number for places_take(), or PLACES_UNCOUNTED. Borrowed: address. */
int places_find(const struct sockaddr *address, socklen_t len);
/* Of an address that is the fixed name of a connector of ours: where it listens, static. Others stay as they are. Borrowed: *address. */
void places_lead_home(const struct sockaddr **address, socklen_t *len);
/* This worker has so many connections to it, at once. To be said before a place is taken. */
void places_want(int connector, size_t count);
/* One for which there was no place has ended: with one it would still be there. */
void places_missed(int connector);
/* A descriptor, which holds the place until it is closed; or why there is none. `held`: how many of its places this worker has. */
int places_take(int connector, size_t held);
/* Whether this worker has more than it may hold, by all that is known now: its successor knows it from the start. */
bool places_are_too_many(int connector, size_t held);
/* Whether there is a free one. */
bool places_are_free(int connector);

#endif
