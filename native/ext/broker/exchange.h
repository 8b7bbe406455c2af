/* Calls over the broker's frame listener, on a connection that the process keeps (docs/internals/egress.md, "The frame listener").
 *
 * Knows nothing of PHP and of libcurl.
 *
 * Promises
 * - EXCHANGE_UNREAD is returned only if the broker cannot have acted on the call. Only then may the caller make the call itself.
 * - Nothing is sent to a process of an untrusted user (peer.h): the caller gets the same result as without a broker.
 * - A connection carries one call at a time, and the next one only after its end. Concurrent calls get their own connections.
 * - A child of fork() never uses a connection of its parent's.
 * - Each connection has memory for the largest frame. If there is none, the process ends.
 */
#ifndef HEARTH_EXT_BROKER_EXCHANGE_H
#define HEARTH_EXT_BROKER_EXCHANGE_H

#include "wire/call.h"

/* A call. All pointers are borrowed until exchange_end(), `control` and `head` only until exchange_begin() returns. */
struct exchange_call {
    const char *socket;         /* path of the broker's socket */
    const char *(*token)(void); /* called for each new connection. NULL: no token */
    const char *control;        /* options, may be empty */
    size_t control_len;
    const char *head; /* of HTTP/1.1, target in absolute form, with its empty line */
    size_t head_len;
    const char *body; /* NULL: none */
    size_t body_len;
    int64_t deadline; /* microseconds of CLOCK_MONOTONIC, INT64_MAX: none */
};

enum exchange_event {
    EXCHANGE_INTERIM,  /* bytes: a head */
    EXCHANGE_ANSWER,   /* answer */
    EXCHANGE_BODY,     /* bytes */
    EXCHANGE_TRAILERS, /* bytes: field lines */
    EXCHANGE_END,
    EXCHANGE_DECLINED, /* why */
    EXCHANGE_FAILED,   /* why */
    EXCHANGE_UNREAD,   /* no broker listens, or it closed before it had read the call */
    EXCHANGE_LOST,     /* it closed or sent invalid frames: the call may have been made */
    EXCHANGE_LATE,     /* the deadline has passed */
};

/* Borrowed: until the next call of these functions. */
struct exchange_news {
    const char *bytes;
    size_t len;
    struct call_answer answer;
    struct call_no_answer why;
};

struct exchange;

/* Sends a call. NULL: EXCHANGE_UNREAD. */
struct exchange *exchange_begin(const struct exchange_call *call);
/* Waits for the next event. None follows END, DECLINED, FAILED, UNREAD, LOST and LATE. */
enum exchange_event exchange_next(struct exchange *exchange, struct exchange_news *news);
/* Cancels the call if it has not ended. NULL is fine. */
void exchange_end(struct exchange *exchange);

/* Cancels the call and closes its connection. */
void exchange_drop(struct exchange *exchange);

/* Opens the kept connection, so that it exists before a snapshot is taken. */
void exchange_connect(const char *socket, const char *(*token)(void));
/* Ends the calls that callers have abandoned by longjmp. */
void exchange_settle(void);

#endif
