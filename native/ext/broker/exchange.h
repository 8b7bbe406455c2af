/* Calls over the broker's frame listener, on a connection that the process keeps (docs/internals/egress.md, "The frame listener").
 *
 * Knows nothing of PHP and of libcurl.
 *
 * Promises
 * - EXCHANGE_UNREAD is returned only if the broker cannot have acted on the call. Only then may the caller make the call itself.
 * - Nothing is sent to a process of a user that is not trusted (peer.h): for the caller there is no broker then.
 * - A connection is used for the next call only when the one before has ended on it; one at a time, the others get their own.
 * - A child of fork() never uses a connection of its parent's.
 * - Memory per connection: what the largest frame needs; running out of it ends the process.
 */
#ifndef HEARTH_EXT_BROKER_EXCHANGE_H
#define HEARTH_EXT_BROKER_EXCHANGE_H

#include "wire/call.h"

/* What a call is made of. Borrowed: everything, until exchange_end(), but for `control` and `head`: until exchange_begin() returns. */
struct exchange_call {
    const char *socket;         /* path of the broker's socket */
    const char *(*token)(void); /* asked when a connection is made. NULL: none */
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
    EXCHANGE_UNREAD,   /* the broker is not there, or went away before it had read the call */
    EXCHANGE_LOST,     /* it went away, or speaks in riddles: the call may have gone out */
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
/* Waits for what comes next. After END, DECLINED, FAILED, UNREAD, LOST and LATE nothing does. */
enum exchange_event exchange_next(struct exchange *exchange, struct exchange_news *news);
/* Gives up what has not ended. NULL is fine. */
void exchange_end(struct exchange *exchange);

/* The same, and the connection is not used again. */
void exchange_drop(struct exchange *exchange);

/* Makes the connection that is kept, so that it is there before a snapshot is taken. */
void exchange_connect(const char *socket, const char *(*token)(void));
/* Ends what callers have left behind by longjmp: after it nothing is under way. */
void exchange_settle(void);

#endif
