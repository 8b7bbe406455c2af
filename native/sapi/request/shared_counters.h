/* Shared counters: memory shared with the server, in which the worker counts the requests it has taken (docs/internals/frames.md).
 *
 * Promises
 * - The count is raised after a request has been read and before any of it is acted on.
 * - A request that the server wrote ahead is begun here or withdrawn by the server, never both.
 * - The page is shared, so no restore resets it.
 */
#ifndef HEARTH_SAPI_REQUEST_SHARED_COUNTERS_H
#define HEARTH_SAPI_REQUEST_SHARED_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "snapshot/snapshot.h"

/* Maps the memory that came with SPAWN; the descriptor may be closed then. False when the system refuses. */
bool shared_counters_open(int fd);
/* Counts one more request. False: the server has withdrawn it, and it must not be served. */
bool shared_counters_begin(void);
/* Returns whether the server marks here that a request's client is gone. If not, it sends ABORT frames. */
bool shared_counters_know_aborts(void);
/* Returns whether the client of the request taken last is gone. */
bool shared_counters_say_aborted(void);
enum {
    COUNTED_CONNECTIONS = 16,
    TIME_BUCKETS = 80, /* of times: four in each power of two of microseconds */
};

/* The counters of one database connection that the worker kept or refused to keep; only the first
 * ones are counted. Written by the worker alone; text ends with a NUL. The layout is that of
 * docs/internals/frames.md. */
struct connection_counters {
    uint64_t state; /* 0: none; else enum connection_state */
    uint64_t resets, nanoseconds, longest;
    char protocol[16];
    char server[144];
    char why[96]; /* it is not kept, or the worker ended */
    uint32_t times[TIME_BUCKETS];
};
enum connection_state { CONNECTION_KEPT = 1, CONNECTION_REFUSED, CONNECTION_FAILED };

/* The places, COUNTED_CONNECTIONS of them; NULL when the server looks at none. */
struct connection_counters *shared_counters_connections(void);
/* Records that the session was reset in this many nanoseconds. */
void shared_counters_add_reset(struct connection_counters *place, uint64_t nanoseconds);
/* Bytes of the snapshot that this worker has taken, and how many of them lie in the file that all workers of the zygote map. */
void shared_counters_tell_snapshot(uint64_t bytes, uint64_t shared_bytes);
/* Restores that were verified; NULL when the server looks at none. */
struct snapshot_verified *shared_counters_verified(void);
/* What the server knows of the worker's requests, and what the worker has made of it; NULL without a server. */
enum scheduling_bits {
    REQUESTS_ARE_LONG = 1,       /* set by the server */
    POLICY_OF_LONG_REQUESTS = 2, /* set by the worker */
};
_Atomic uint32_t *shared_counters_scheduling(void);
/* This process ends in good order, and of itself: it is to be replaced, and nothing is wrong with it. */
void shared_counters_tell_leaving(void);

#endif
