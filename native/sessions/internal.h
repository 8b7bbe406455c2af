/* Shared by the protocols of sessions/. No other folder includes this. */
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

/* Takes one message's bytes from [*at, end) of a stream whose headers have `header` bytes. `measure` reads the payload's
 * length from a header. Returns true when a message is complete: its length and the first SESSION_PREFIX bytes of its payload
 * are in `messages`. */
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
    /* Returns the state of an idle session that prevents learning it, and that may end; NULL: none. May be NULL. */
    const char *(*amid)(const struct session *session);
    /* Adds the record to `init`. NULL, or why it cannot be repeated. */
    const char *(*learn)(struct session *session, struct growing *init);
    void (*reset)(struct session *session, struct growing *to);
    /* Writes nothing if this server needs no question. NULL: none does. */
    void (*question)(struct session *session, struct growing *to);
    /* Called when all answers have arrived. NULL: the last one was the nonce, or the right answer to the question. Otherwise
     * the reason of the doubt. */
    const char *(*unproven)(struct session *session);
    size_t (*goodbye)(const struct session *session, uint8_t *to);
};
extern const struct dialect dialect_mysql, dialect_postgres, dialect_redis;

/* Returns whether SQL of an initialisation may be repeated before each request: it sets or reads, and changes no data. */
bool statement_may_be_repeated(const uint8_t *text, size_t len);
/* The effect of SQL on the current database: none, `name` in any case, or unknown. */
enum statement_moves { STATEMENT_STAYS, STATEMENT_MOVES_TO_NAME, STATEMENT_MOVES };
enum statement_moves statement_moves(
    const uint8_t *text, size_t len, const uint8_t *name, size_t name_len);
/* Returns whether SQL that begins so leaves the current database unchanged; statements behind a `;` are not checked. */
bool statement_begins_at_home(const uint8_t *text, size_t len);
/* What SQL, or SQL in a literal of it, does that no reset of MySQL takes back: why. Static; NULL: nothing. */
const char *statement_stays(const uint8_t *text, size_t len);
/* Returns whether the text is `word`, in any case. `word` in capitals. */
bool word_is(const uint8_t *text, size_t len, const char *word);

static const char DOUBT_UNPROVEN[] = "the answer to its reset is not the right one";
static const char DOUBT_GARBLED[] = "it said what its protocol does not know";
static const char DOUBT_UNASKED[] = "the server spoke unasked";
static const char DOUBT_HALF_SENT[] = "the client stopped in the midst of a command";
static const char DOUBT_HALF_READ[] = "an answer was not read to its end";

#endif
