/* What the protocols of sessions/ share. Nobody else includes this. */
#ifndef HEARTH_SESSIONS_INTERNAL_H
#define HEARTH_SESSIONS_INTERNAL_H

#include "sessions/session.h"

/* Bytes that grow until their room is full; then `full` is set and nothing is added. */
struct growing {
    uint8_t *bytes;
    size_t len, room;
    bool full;
};
void growing_add(struct growing *growing, const void *bytes, size_t len);

/* Takes one message's bytes from [*at, end) of a stream whose headers have `header` bytes. `measure` reads the payload's length from a header.
 * Returns true when a message is complete: its length and the first 40 bytes of its payload stand in `messages`. */
bool messages_take(struct session_messages *messages, const uint8_t **at, const uint8_t *end,
    size_t header, uint32_t (*measure)(const uint8_t *header));
/* Between two messages. */
bool messages_rest(const struct session_messages *messages);

/* One protocol. `sent` and `received` follow; the others as in session.h, for sessions without a doubt. */
struct dialect {
    void (*sent)(struct session *session, const uint8_t *bytes, size_t len);
    void (*received)(struct session *session, const uint8_t *bytes, size_t len);
    /* Whatever is not at rest; NULL: all is. */
    const char *(*busy)(const struct session *session);
    /* Adds what the record says to `init`. NULL, or why it cannot be repeated. */
    const char *(*learn)(struct session *session, struct growing *init);
    void (*reset)(struct session *session, struct growing *to);
    /* NULL: none. */
    void (*question)(struct session *session, struct growing *to);
    /* All answers are there: was the last the nonce, or the question's the right one? */
    bool (*proven)(const struct session *session);
    size_t (*goodbye)(const struct session *session, uint8_t *to);
};
extern const struct dialect dialect_mysql, dialect_postgres, dialect_redis;

/* Whether SQL of an initialisation may be said again before each request: it sets or reads, and changes no data. */
bool statement_may_be_repeated(const uint8_t *text, size_t len);
/* Is it `word`, whatever its case? `word` in capitals. */
bool word_is(const uint8_t *text, size_t len, const char *word);

static const char DOUBT_GARBLED[] = "it said what its protocol does not know";
static const char DOUBT_UNASKED[] = "the server spoke unasked";
static const char DOUBT_HALF_SENT[] = "the client stopped in the midst of a command";
static const char DOUBT_HALF_READ[] = "an answer was not read to its end";

#endif
