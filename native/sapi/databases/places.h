/* Places for kept connections at a connector of `hearth serve`, which limits a server's sessions.
 *
 * A place is a lock on one byte of a file that has a byte for each place. A worker that holds a place may keep a connection to that connector. The
 * others return theirs and borrow one for each request.
 *
 * Promises
 * - Enough sessions are left for a worker without a place: as many as a worker opens connections to that connector at its start. If fewer were
 *   left, all are borrowed: a worker that holds one and waits for another would wait forever.
 * - A place is held by one process, and becomes free when that process ends, for whatever reason.
 * - Workers reach their own server's connectors, even if the named sockets belong to another server.
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
    PLACES_FAILED = -4, /* unknown: errno has the reason */
};

/* Lines `socket TAB file TAB sessions TAB workers` of connectors, each with its line's end. While the server takes the place of another one,
 * sockets of a fixed name lie beside it, and `TAB name` follows. Static: lines. */
void places_open(const char *lines);
/* Returns the connector of an address: a number for places_take(), or PLACES_UNCOUNTED. Borrowed: address. */
int places_find(const struct sockaddr *address, socklen_t len);
/* If the address is the fixed name of one of our connectors, sets it to the real address, which is static. Other addresses stay. Borrowed:
 * *address. */
void places_lead_home(const struct sockaddr **address, socklen_t *len);
/* Records how many connections this worker has to it at once. Call it before a place is taken. */
void places_want(int connector, size_t count);
/* Records that a connection without a place has ended; with a place it would still be open. */
void places_missed(int connector);
/* Takes a place. Returns a descriptor that holds it until it is closed, or why there is none. `held`: how many of its places this worker has. */
int places_take(int connector, size_t held);
/* Returns whether this worker has more than it may hold, by what is now known; its successor knows it from the start. */
bool places_are_too_many(int connector, size_t held);
/* Returns whether a place is free. */
bool places_are_free(int connector);

#endif
