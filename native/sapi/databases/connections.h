/* The connections that databases.h observes: the state of each, and the reports of the libc shim.
 *
 * Promises
 * - The memory is the process's own: no restore puts it back, and no core dump has it.
 * - A connection is identified by its socket, not by its descriptor, which may belong to another
 *   connection by now.
 * - In a child that PHP code has forked a dead socket takes the place of each that is kept.
 */
#ifndef HEARTH_SAPI_DATABASES_CONNECTIONS_H
#define HEARTH_SAPI_DATABASES_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "sapi/databases/libc_shim.h"
#include "sapi/request/shared_counters.h"
#include "sessions/session.h"

enum {
    CONNECTIONS =
        64, /* observed at once; the others are closed at the snapshot, without their protocol's closing command */
    KEPT = 16,    /* more are cut like those that cannot be kept */
    LASTING = 16, /* good resets after which a connection was worth keeping */
};

struct connection {
    int fd; /* 0: free */
    bool kept, awaited;
    bool refused;           /* its connector has no place for it */
    bool heard;             /* the server has sent something */
    bool judged;            /* whether it is one that answers was found out */
    int connector;          /* whose sessions are counted (places.h) */
    int place_fd;           /* the place there; 0: none */
    uint64_t device, inode; /* of the socket: a number alone may be another connection by now */
    uint64_t server;        /* which one, for the guard */
    uint64_t last_word;     /* time of the server's last proof */
    uint64_t resets;
    uint64_t sent_at;                  /* of the reset under way; nanoseconds */
    struct connection_counters *place; /* NULL: the shared counters have none for it */
    char peer[144];
    struct session session;
};

/* Memory that no restore touches. */
struct databases {
    struct libc_shim shim;
    bool serves;   /* the snapshot was taken */
    bool starting; /* the callbacks run */
    bool keep;
    uint64_t idle_ms, lifetime_ms, answer_ms, connect_ms;
    uint64_t ends_at, retry_at; /* clock; 0: never */
    uint64_t wanted;            /* connectors that had no place for this worker: bits */
    uint64_t wanted_at;         /* when to look for one again; 0: never */
    uint64_t resets, reset_ns, goodbyes;
    uint64_t
        waited_ns; /* for the proofs of one request, with nothing else to do: a mean of the last ones */
    bool announces; /* READY, once the proofs have arrived */
    size_t places;  /* of the shared counters, in use */
    size_t kept;
    size_t used; /* places of `list` that ever were: the others' pages are not touched */
    uint8_t of_descriptor[LIBC_SHIM_DESCRIPTORS]; /* place in `list`, plus one */
    struct connection list[CONNECTIONS];
};
extern struct databases *db; /* NULL: nothing is followed */

/* The monotonic clock. */
uint64_t databases_milliseconds(void);
/* Random bytes; without them the process ends. */
void databases_draw(void *to, size_t len);
/* Between nine tenths and the whole, so that workers do not do the same at the same time. */
uint64_t databases_spread(uint64_t duration);
/* The earlier of two times; 0 means never. */
uint64_t databases_earlier(uint64_t first, uint64_t second);
/* Makes this worker end at that time, so that its successor tries again. */
void databases_try_again(uint64_t at);
/* Makes this worker end as soon as this connector has a free place. */
void databases_await_place(int connector);

/* Observes the process's connections from now on. */
void connections_follow(void);
/* Returns the connection; NULL: it is not observed. The descriptor is below
 * LIBC_SHIM_DESCRIPTORS. */
struct connection *connections_of(int fd);
/* Returns whether its descriptor still is the same socket. */
bool connections_is_same(const struct connection *connection);
/* Records that its server answers, so that workers that start later may connect to it. */
void connections_note_answer(struct connection *connection);
/* Forgets the connection. */
void connections_forget(struct connection *connection);
/* Gives back the place that it holds at its connector. */
void connections_give_place_back(struct connection *connection);
/* Calls over the broker's connection are over with their request (exchange_settle()): nothing of one is left for the next. Borrowed: address. */
bool connections_is_broker(const struct sockaddr *address, socklen_t len);

#endif
