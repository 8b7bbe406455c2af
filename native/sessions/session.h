/* One conversation with a database server, followed byte by byte: MySQL and MariaDB, PostgreSQL, Redis and Valkey.
 *
 * The client may be restored to an earlier state while the server continues. This code decides, from the bytes alone, whether the server's
 * session can be reset, which bytes do so, and whether the server's answer proves it.
 *
 * Promises
 * - It uses no descriptor, clock or own memory. The caller moves bytes and provides the memory, so every decision can be tested on a transcript.
 * - A peer's bytes never cause access outside that memory. Bytes that are not understood are a doubt, and a doubt is final.
 * - A session is CLEAN only if the server answered all earlier commands, and each command of the reset without an error. The last answer is an
 *   unpredictable number, with nothing after it.
 * - Secrets of the initialisation (AUTH) are kept only for the replay. Passwords of MySQL and PostgreSQL are erased when the session is learned,
 *   refused or ended.
 *
 * docs/internals/sessions.md; the protocols: dev.mysql.com/doc/dev/mysql-server (Client/Server Protocol), postgresql.org/docs (Frontend/Backend
 * Protocol), redis.io (RESP2, RESP3).
 */
#ifndef HEARTH_SESSIONS_SESSION_H
#define HEARTH_SESSIONS_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SESSION_NONCE = 16,                 /* characters; letters and digits */
    SESSION_RECORD = 8192,              /* bytes of an initialisation; a longer one is not kept */
    SESSION_RESET = 2 * SESSION_RECORD, /* bytes that a reset may have */
    SESSION_GOODBYE = 8,
    SESSION_PREFIX = 128,   /* bytes of a message that are looked at */
    SESSION_DATABASE = 256, /* bytes of MySQL's current database */
    SESSION_PENDING = 256,  /* commands under way at once; more is a doubt */
    SESSION_PRINT = 32,     /* characters of a digest of MySQL's settings */
    SESSION_SECONDS = 24,   /* characters of a time limit */
    SESSION_TOLD = 8,       /* settings that PostgreSQL reports to clients, and that clients set */
};

enum session_protocol {
    SESSION_UNKNOWN, /* no bytes yet */
    SESSION_MYSQL,
    SESSION_POSTGRES,
    SESSION_REDIS,
    SESSION_TLS,     /* encrypted: the session cannot be followed */
    SESSION_FOREIGN, /* none of these */
};
/* `MySQL`, `PostgreSQL`, `Redis`, `TLS`, `unknown`. Static. */
const char *session_protocol_name(enum session_protocol protocol);

enum session_verdict {
    SESSION_WAIT,  /* more of the answer must come */
    SESSION_CLEAN, /* the server's session is what it was when it was learned */
    SESSION_WRONG, /* session_doubt() has the reason */
};

/* --- what the protocols keep; for sessions/ only --------------------------------------------------------------------------------------- */

/* A stream of messages with a header of fixed size: MySQL and PostgreSQL. */
struct session_messages {
    uint8_t header[5], header_len;
    bool inside; /* the header is complete, the payload is not */
    uint32_t len, left;
    uint8_t prefix[SESSION_PREFIX], prefix_len; /* of the payload */
};

struct session_mysql {
    struct session_messages sent, received;
    uint8_t state; /* of the answer that is awaited first */
    bool greeted, responded, ready, short_rows, split, multi, multi_learned, row_is_nonce;
    uint16_t status;  /* of the last OK or EOF */
    uint32_t columns; /* definitions still to come */
    uint32_t rows, after;
    uint32_t statements; /* prepared and not closed; of the initialisation */
    uint8_t pending[SESSION_PENDING];
    uint32_t pending_first, pending_count;
    uint8_t print[SESSION_PRINT], first_print[SESSION_PRINT];
    bool printed, compares;
    bool begins;                     /* the server runs statements for each client (init_connect) */
    bool interactive, ignores_space; /* capabilities of the client, which MariaDB's reset forgets */
    char statement_limit
        [SESSION_SECONDS]; /* of the account (MAX_STATEMENT_TIME), in seconds; empty: the server's own */
    uint32_t database_len;
    uint8_t database[SESSION_DATABASE];
    /* The state that a reset's proof must show besides the nonce; none before the first reset, which finds it out. */
    uint8_t shown[SESSION_PREFIX];
    uint32_t shown_len;
    uint8_t probes;      /* proofs of the first reset that are still to come */
    bool says;           /* each reset selects the current database */
    bool moved;          /* the client may have changed the current database */
    const char *strayed; /* the value that differed in the last proof; static */
};

struct session_postgres {
    struct session_messages sent, received;
    bool typed; /* the untyped messages of the start are over */
    bool asked; /* for encryption: one byte will be the answer */
    bool ready; /* was, once */
    bool unsynced, row_is_nonce;
    uint8_t
        origin_matched;  /* bytes of the name of the function that sets up a replication origin */
    uint8_t transaction; /* of the last ReadyForQuery: I, T or E */
    uint32_t pending;    /* ReadyForQuery still to come */
    uint64_t told[SESSION_TOLD], told_learned[SESSION_TOLD]; /* digests of their values */
    uint8_t server[12], server_learned[12]; /* which of the server's processes has proved it */
    bool has_login_triggers;                /* the server is PostgreSQL 17 or newer */
    bool runs_none;                         /* it said that none is enabled */
};

struct session_values {
    uint8_t line[40],
        line_len; /* of the line that is being read; the rest of a longer one is dropped */
    bool long_line;
    uint64_t skip;                         /* bytes of a string, with its end */
    int64_t text_total;                    /* bytes of the last string; -1: none */
    uint8_t text[SESSION_NONCE], text_len; /* its beginning */
    uint8_t top;                           /* type of the outermost value */
    uint8_t words, family;                 /* of a command: how many were read, and its first */
    bool stays;                            /* RESET does not undo its effect */
    uint8_t depth;
    uint64_t left[8];
};

struct session_redis {
    struct session_values sent, received;
    uint64_t commands, answers;
    uint64_t reset_at; /* answers before the reset's own */
};

/* --- the session ------------------------------------------------------------------------------------------------------------------------- */

/* To be treated as opaque. No pointers but to static text: it may be copied. */
struct session {
    uint8_t protocol; /* enum session_protocol */
    bool used, served, recording, overflow, judging, asking, learned, greeted_first;
    const char *doubt;
    const char *refused; /* why its initialisation cannot be repeated: no later look changes that */
    uint8_t head[8], head_len;
    uint8_t nonce[SESSION_NONCE];
    union {
        struct session_mysql mysql;
        struct session_postgres postgres;
        struct session_redis redis;
    };
    uint32_t record_len, init_len;
    uint8_t record[SESSION_RECORD]; /* the client's bytes while recording */
    uint8_t init[SESSION_RECORD];   /* the bytes that a reset repeats */
};

/* A new connection. `recording`: it may be learned later. */
void session_begin(struct session *session, bool recording);

/* Bytes that the client has sent or received, in order. Borrowed. */
void session_sent(struct session *session, const void *bytes, size_t len);
void session_received(struct session *session, const void *bytes, size_t len);
/* The client or other code did something that cannot be followed. Static: why. */
void session_spoil(struct session *session, const char *why);

enum session_protocol session_protocol(const struct session *session);
/* Returns whether the client has sent anything since the session was learned or reset. */
bool session_is_used(const struct session *session);
/* Returns whether the server has answered a command. A login does not count, because proxies accept clients before they have a server. */
bool session_is_served(const struct session *session);
/* NULL: everything that was asked is answered, to the last byte. Otherwise what is not. Static. */
const char *session_doubt(const struct session *session);

/* Makes the bytes so far the initialisation. It may be called again when there are more, or when a temporary obstacle may have passed: an answer
 * in transit, a transaction, an open statement. A refusal for the bytes themselves is final. Returns NULL, or why this session cannot be kept.
 * Static. */
const char *session_learn(struct session *session);

/* Writes the commands that reset the server's session; from now on session_judge() awaits the answer. `nonce` must be unpredictable. Returns
 * the bytes written to `to`, which has room for SESSION_RESET; 0 when there is a doubt. Borrowed: nonce. */
size_t session_write_reset(
    struct session *session, const uint8_t nonce[SESSION_NONCE], uint8_t *to);
/* For a learned session: queries the state that not every reset restores. It is asked before the first reset and again after it. session_judge()
 * awaits the answer, and is wrong if the second differs from the first, or if no reset restores the state. Returns the bytes written to `to`,
 * which has room for SESSION_RESET; 0 if there is no query. */
size_t session_write_question(struct session *session, uint8_t *to);
/* Bytes that came after the reset or question was written. Borrowed. */
enum session_verdict session_judge(struct session *session, const void *bytes, size_t len);

/* Called when its connection has ended or is not observed any more: erases its secrets. */
void session_end(struct session *session);

/* Writes the protocol's closing command, at most SESSION_GOODBYE bytes; 0 if none can be sent now. */
size_t session_write_goodbye(const struct session *session, uint8_t *to);

#endif
