/* Recognising, recording, and what all protocols have in common. See session.h. */
#include "sessions/session.h"

#include <string.h>

#include "sessions/internal.h"

enum {
    TLS_HANDSHAKE = 0x16, /* ContentType, RFC 8446 section 5.1 */
    TLS_MAJOR = 3,
    MYSQL_HEAD = 5, /* header and the version of the protocol */
    MYSQL_VERSION = 10,
    POSTGRES_HEAD = 8,
};
#define POSTGRES_MAJOR 3U /* in the upper half; libpq of PostgreSQL 18 may begin with 3.2 */
#define POSTGRES_TLS 80877103U
#define POSTGRES_GSS 80877104U

/* --- helpers of the protocols ----------------------------------------------------------------------------------------------------------- */

void growing_add(struct growing *growing, const void *bytes, size_t len) {
    if (growing->full || len > growing->room - growing->len) {
        growing->full = true;
        return;
    }
    if (len > 0) {
        memcpy(growing->bytes + growing->len, bytes, len);
        growing->len += len;
    }
}

bool messages_take(struct session_messages *messages, const uint8_t **at, const uint8_t *end,
    size_t header, uint32_t (*measure)(const uint8_t *header)) {
    while (messages->header_len < header) {
        if (*at == end) {
            return false;
        }
        messages->header[messages->header_len++] = *(*at)++;
    }
    if (!messages->inside) {
        messages->inside = true;
        messages->len = messages->left = measure(messages->header);
        /* the one before may have had a password in it */
        memset(messages->prefix, 0, messages->prefix_len);
        messages->prefix_len = 0;
    }
    size_t have = (size_t)(end - *at);
    uint32_t take = have < messages->left ? (uint32_t)have : messages->left;
    size_t room = sizeof messages->prefix - messages->prefix_len;
    size_t looked = take < room ? take : room;
    memcpy(messages->prefix + messages->prefix_len, *at, looked);
    messages->prefix_len += (uint8_t)looked;
    *at += take;
    messages->left -= take;
    if (messages->left > 0) {
        return false;
    }
    messages->inside = false;
    messages->header_len = 0;
    return true;
}

bool messages_rest(const struct session_messages *messages) {
    return messages->header_len == 0;
}

/* --- recognising ------------------------------------------------------------------------------------------------------------------------- */

static const struct dialect *dialect_of(const struct session *session) {
    switch ((enum session_protocol)session->protocol) {
    case SESSION_MYSQL:
        return &dialect_mysql;
    case SESSION_POSTGRES:
        return &dialect_postgres;
    case SESSION_REDIS:
        return &dialect_redis;
    default:
        return NULL;
    }
}

const char *session_protocol_name(enum session_protocol protocol) {
    switch (protocol) {
    case SESSION_MYSQL:
        return "MySQL";
    case SESSION_POSTGRES:
        return "PostgreSQL";
    case SESSION_REDIS:
        return "Redis";
    case SESSION_TLS:
        return "TLS";
    default:
        return "unknown";
    }
}

static uint32_t big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Detects the protocol by the client's first bytes, before it has received anything. */
static enum session_protocol recognise_client(const uint8_t *head, size_t len) {
    if (head[0] == TLS_HANDSHAKE) {
        return len < 2 ? SESSION_UNKNOWN : head[1] == TLS_MAJOR ? SESSION_TLS : SESSION_FOREIGN;
    }
    if (head[0] == '*') {
        if (len < 2) {
            return SESSION_UNKNOWN;
        }
        return head[1] >= '1' && head[1] <= '9' ? SESSION_REDIS : SESSION_FOREIGN;
    }
    if (head[0] != 0) {
        return SESSION_FOREIGN;
    }
    if (len < POSTGRES_HEAD) {
        return SESSION_UNKNOWN;
    }
    uint32_t code = big_endian(head + 4);
    return code >> 16 == POSTGRES_MAJOR || code == POSTGRES_TLS || code == POSTGRES_GSS
               ? SESSION_POSTGRES
               : SESSION_FOREIGN;
}

/* Detects the protocol by the first bytes of a server that sends first. */
static enum session_protocol recognise_server(const uint8_t *head, size_t len) {
    if (len < MYSQL_HEAD) {
        return SESSION_UNKNOWN;
    }
    return head[3] == 0 && head[4] == MYSQL_VERSION && head[2] == 0 ? SESSION_MYSQL
                                                                    : SESSION_FOREIGN;
}

/* Stores bytes in the head until the protocol is known. Returns how many. */
static size_t recognise(struct session *session, const uint8_t *bytes, size_t len, bool server) {
    size_t took = 0;
    if (session->head_len > 0 && session->greeted_first != server) {
        session->protocol = SESSION_FOREIGN;
        return 0;
    }
    session->greeted_first = server;
    while (session->protocol == SESSION_UNKNOWN && took < len) {
        session->head[session->head_len++] = bytes[took++];
        session->protocol = (uint8_t)(server ? recognise_server(session->head, session->head_len)
                                             : recognise_client(session->head, session->head_len));
        if (session->protocol == SESSION_UNKNOWN && session->head_len == sizeof session->head) {
            session->protocol = SESSION_FOREIGN;
        }
    }
    return took;
}

/* --- following --------------------------------------------------------------------------------------------------------------------------- */

void session_begin(struct session *session, bool recording) {
    memset(session, 0, offsetof(struct session, record));
    session->recording = recording;
}

void session_spoil(struct session *session, const char *why) {
    if (session->doubt == NULL) {
        session->doubt = why;
    }
}

static void follow(struct session *session, const uint8_t *bytes, size_t len, bool server) {
    if (session->protocol == SESSION_UNKNOWN && len > 0) {
        size_t took = recognise(session, bytes, len, server);
        bytes += took;
        len -= took;
        const struct dialect *dialect = dialect_of(session);
        if (dialect != NULL) {
            (server ? dialect->received : dialect->sent)(session, session->head, session->head_len);
        }
    }
    const struct dialect *dialect = dialect_of(session);
    if (dialect != NULL && session->doubt == NULL && len > 0) {
        (server ? dialect->received : dialect->sent)(session, bytes, len);
    }
}

void session_sent(struct session *session, const void *bytes, size_t len) {
    session->used = true;
    if (session->recording && !session->overflow) {
        if (len > sizeof session->record - session->record_len) {
            session->overflow = true;
        } else {
            memcpy(session->record + session->record_len, bytes, len);
            session->record_len += (uint32_t)len;
        }
    }
    follow(session, bytes, len, false);
}

void session_received(struct session *session, const void *bytes, size_t len) {
    follow(session, bytes, len, true);
}

enum session_protocol session_protocol(const struct session *session) {
    return (enum session_protocol)session->protocol;
}

bool session_is_used(const struct session *session) {
    return session->used;
}

bool session_is_served(const struct session *session) {
    return session->served;
}

const char *session_doubt(const struct session *session) {
    const struct dialect *dialect = dialect_of(session);
    if (session->doubt != NULL) {
        return session->doubt;
    }
    return dialect != NULL ? dialect->busy(session) : "its protocol is not known";
}

/* --- learning, resetting, judging --------------------------------------------------------------------------------------------------------- */

static const char too_long[] = "its initialisation is longer than 8 KB";

/* A password may be in it. */
static void forget_record(struct session *session) {
    explicit_bzero(session->record, session->record_len);
    session->record_len = 0;
}

/* Returns NULL, or why this session can never be kept, whatever follows. */
static const char *hopeless(const struct session *session) {
    return session->protocol == SESSION_TLS ? "it is encrypted"
           : dialect_of(session) == NULL    ? "its protocol is not known"
           : session->doubt != NULL         ? session->doubt
           : session->refused != NULL       ? session->refused
           : session->overflow              ? too_long
           : !session->recording            ? "its beginning was not seen"
                                            : NULL;
}

const char *session_learn(struct session *session) {
    const struct dialect *dialect = dialect_of(session);
    const char *why = hopeless(session);
    session->learned = false;
    if (session->protocol == SESSION_UNKNOWN) {
        return session_doubt(session);
    }
    if (why == NULL) {
        why = dialect->busy(session);
        why = why == NULL && dialect->amid != NULL ? dialect->amid(session) : why;
        if (why != NULL) {
            return why; /* that passes: the next look has the whole record */
        }
        struct growing init = {
            .bytes = session->init, .len = session->init_len, .room = sizeof session->init};
        why = dialect->learn(session, &init);
        why = why == NULL && init.full ? too_long : why;
        session->init_len = (uint32_t)init.len;
        session->refused = why;
    }
    forget_record(session);
    session->learned = why == NULL;
    session->used = false;
    return why;
}

size_t session_write_reset(
    struct session *session, const uint8_t nonce[SESSION_NONCE], uint8_t *to) {
    if (!session->learned || session_doubt(session) != NULL) {
        return 0;
    }
    const struct dialect *dialect = dialect_of(session);
    struct growing reset = {.bytes = to, .room = SESSION_RESET};
    memcpy(session->nonce, nonce, SESSION_NONCE);
    dialect->reset(session, &reset);
    if (reset.full) {
        session_spoil(session, "its reset is too long");
        return 0;
    }
    session->judging = true;
    session->used = false;
    dialect->sent(session, to, reset.len);
    return session->doubt == NULL ? reset.len : 0;
}

size_t session_write_question(struct session *session, uint8_t *to) {
    const struct dialect *dialect = dialect_of(session);
    if (!session->learned || session_doubt(session) != NULL || dialect->question == NULL) {
        return 0;
    }
    struct growing question = {.bytes = to, .room = SESSION_RESET};
    dialect->question(session, &question);
    if (question.len == 0) {
        return 0;
    }
    session->judging = session->asking = true;
    dialect->sent(session, to, question.len);
    return question.len;
}

enum session_verdict session_judge(struct session *session, const void *bytes, size_t len) {
    const struct dialect *dialect = dialect_of(session);
    if (!session->judging) {
        session_spoil(session, DOUBT_UNASKED);
    }
    if (session->doubt == NULL) {
        dialect->received(session, bytes, len);
    }
    if (session->doubt != NULL) {
        return SESSION_WRONG;
    }
    if (dialect->busy(session) != NULL) {
        return SESSION_WAIT;
    }
    const char *why = dialect->unproven(session);
    if (why != NULL) {
        session_spoil(session, why);
        return SESSION_WRONG;
    }
    session->judging = session->asking = false;
    explicit_bzero(session->nonce, sizeof session->nonce);
    return SESSION_CLEAN;
}

void session_end(struct session *session) {
    forget_record(session);
    explicit_bzero(session->init, session->init_len);
    explicit_bzero(session, offsetof(struct session, record));
}

size_t session_write_goodbye(const struct session *session, uint8_t *to) {
    const struct dialect *dialect = dialect_of(session);
    return dialect != NULL && session->doubt == NULL ? dialect->goodbye(session, to) : 0;
}
