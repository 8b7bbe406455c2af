/* PostgreSQL: the Frontend/Backend Protocol 3.0, postgresql.org/docs/current/protocol-flow.html and protocol-message-formats.html.
 *
 * Invariants
 * - Each Query, Sync and FunctionCall is answered by one ReadyForQuery. The session is busy until the last of them.
 * - The initialisation is repeated byte for byte, prepared statements included, because DISCARD ALL has freed their names.
 * - After a reset, the settings that the server reports equal those when the session was learned. Behind a pooler, start-up parameters may
 *   differ: the pooler sends them as SETs, which DISCARD ALL undoes.
 * - The proof always comes from the same server process. Poolers that change it between transactions lose settings of the initialisation.
 * - A session of a database with an enabled login event trigger (PostgreSQL 17) is never reset: the server runs it for each login, and not
 *   after DISCARD ALL. The question before the first reset asks for one.
 * - A session whose client names pg_replication_origin_session_setup() is never reset. DISCARD ALL keeps the origin, and only superusers may
 *   query or reset it (src/backend/catalog/system_functions.sql), so no proof can show it.
 */
#include <string.h>

#include "sessions/internal.h"

enum { UNTYPED_HEADER = 4, HEADER = 5, LENGTH = 4 };

static uint32_t big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* A length counts itself. */
static uint32_t payload(uint32_t length) {
    return length >= LENGTH ? length - LENGTH : 0;
}

static uint32_t measure_untyped(const uint8_t *header) {
    return payload(big_endian(header));
}

static uint32_t measure(const uint8_t *header) {
    return payload(big_endian(header + 1));
}

/* strchr() alone would also find the end of the set. */
static bool is_in(uint8_t type, const char *set) {
    return type != 0 && strchr(set, type) != NULL;
}

/* --- the client's side ------------------------------------------------------------------------------------------------------------------- */

static void started(struct session *session, const struct session_messages *message) {
    struct session_postgres *pg = &session->postgres;
    uint32_t code = message->prefix_len >= 4 ? big_endian(message->prefix) : 0;
    if (code >> 16 == 3) {
        pg->typed = true;
        pg->pending = 1; /* ReadyForQuery ends the login, too */
    } else if (code == 80877103 || code == 80877104) {
        pg->asked = true;
    } else {
        session_spoil(session, DOUBT_GARBLED);
    }
}

static void said(struct session *session, uint8_t type) {
    struct session_postgres *pg = &session->postgres;
    switch (type) {
    case 'Q':
    case 'F':
    case 'S':
        pg->pending++;
        pg->unsynced = false;
        break;
    case 'P':
    case 'B':
    case 'D':
    case 'E':
    case 'C':
    case 'H':
        pg->unsynced = true;
        break;
    case 'X':
        session_spoil(session, "the client has said goodbye");
        break;
    case 'p': /* password */
    case 'c': /* COPY is done, failed, or goes on */
    case 'f':
    case 'd':
        break;
    default:
        session_spoil(session, DOUBT_GARBLED);
    }
}

/* Returns whether the name, in any case, occurs in the client's bytes so far. It may arrive in pieces. */
static bool names_origin_setup(struct session_postgres *pg, const uint8_t *bytes, size_t len) {
    static const char name[] = "pg_replication_origin_session_setup";
    enum {
        NAME = sizeof name - 1,
        REPEATED = 6
    }; /* "pg_rep" ends as the name begins: with a "p" */
    for (size_t i = 0; i < len; i++) {
        uint8_t c = bytes[i] >= 'A' && bytes[i] <= 'Z' ? (uint8_t)(bytes[i] - 'A' + 'a') : bytes[i];
        while (pg->origin_matched > 0 && c != (uint8_t)name[pg->origin_matched]) {
            pg->origin_matched = pg->origin_matched == REPEATED;
        }
        pg->origin_matched += c == (uint8_t)name[pg->origin_matched];
        if (pg->origin_matched == NAME) {
            pg->origin_matched = 0;
            return true;
        }
    }
    return false;
}

static void sent(struct session *session, const uint8_t *bytes, size_t len) {
    struct session_postgres *pg = &session->postgres;
    const uint8_t *end = bytes + len;
    if (names_origin_setup(pg, bytes, len)) {
        session_spoil(session,
            "the request set up a replication origin (pg_replication_origin_session_setup)");
    }
    while (session->doubt == NULL && session->protocol == SESSION_POSTGRES) {
        if (pg->asked && bytes < end) {
            /* the client sends nothing before the server has answered */
            session_spoil(session, DOUBT_GARBLED);
        } else if (!messages_take(&pg->sent, &bytes, end, pg->typed ? HEADER : UNTYPED_HEADER,
                       pg->typed ? measure : measure_untyped)) {
            break;
        } else if (!pg->typed) {
            started(session, &pg->sent);
        } else {
            said(session, pg->sent.header[0]);
        }
    }
}

/* --- the server's side ------------------------------------------------------------------------------------------------------------------- */

/* The positions in a row of the number, the server process and an empty text. */
enum { NUMBER = 2 + LENGTH, PROCESS = NUMBER + SESSION_NONCE + LENGTH };

static bool is_nonce(const struct session *session, const struct session_messages *row) {
    static const uint8_t first[] = {0, 3, 0, 0, 0, SESSION_NONCE}, last[LENGTH] = {0};
    return row->len > PROCESS + LENGTH &&
           row->len <= PROCESS + sizeof session->postgres.server + LENGTH &&
           row->len == row->prefix_len && memcmp(row->prefix, first, sizeof first) == 0 &&
           memcmp(row->prefix + NUMBER, session->nonce, SESSION_NONCE) == 0 &&
           big_endian(row->prefix + PROCESS - LENGTH) == row->len - PROCESS - LENGTH &&
           memcmp(row->prefix + row->len - LENGTH, last, sizeof last) == 0;
}

static void take_server(struct session_postgres *pg, const struct session_messages *row) {
    memset(pg->server, 0, sizeof pg->server);
    memcpy(pg->server, row->prefix + PROCESS, row->len - PROCESS - LENGTH);
}

/* ParameterStatus: a name and a value, each with its NUL. Of long values the beginning counts, and how long they are. */
static void take_setting(struct session_postgres *pg, const struct session_messages *message) {
    static const char *const names[SESSION_TOLD] = {"client_encoding", "DateStyle", "TimeZone",
        "IntervalStyle", "application_name", "search_path", "session_authorization",
        "standard_conforming_strings"};
    const uint8_t *nul = memchr(message->prefix, 0, message->prefix_len);
    for (size_t i = 0; nul != NULL && i < SESSION_TOLD; i++) {
        if (strcmp((const char *)message->prefix, names[i]) == 0) {
            uint64_t hash = 0xcbf29ce484222325 ^ message->len; /* FNV-1a */
            for (const uint8_t *at = nul + 1; at < message->prefix + message->prefix_len; at++) {
                hash = (hash ^ *at) * 0x100000001b3;
            }
            pg->told[i] = hash;
        }
    }
}

/* Takes the server's version from its own message: PostgreSQL has login event triggers since 17. */
static void take_version(struct session_postgres *pg, const struct session_messages *message) {
    static const char name[] = "server_version";
    if (message->prefix_len <= sizeof name || memcmp(message->prefix, name, sizeof name) != 0) {
        return;
    }
    int major = 0;
    for (size_t i = sizeof name; i < message->prefix_len && major < 1000; i++) {
        if (message->prefix[i] < '0' || message->prefix[i] > '9') {
            break;
        }
        major = 10 * major + message->prefix[i] - '0';
    }
    pg->has_login_triggers = major >= 17;
}

static void heard(struct session *session, const struct session_messages *message) {
    struct session_postgres *pg = &session->postgres;
    uint8_t type = message->header[0];
    if (session->judging) {
        if (type == 'E') {
            session_spoil(session, "the server refused a part of its reset");
        } else if (pg->pending == 0) {
            session_spoil(session, DOUBT_UNASKED);
        } else if (!is_in(type, "ZCTDNSA123ntsI")) {
            session_spoil(session, DOUBT_GARBLED);
        } else if (type == 'D' && session->asking) {
            static const uint8_t no[] = {0, 1, 0, 0, 0, 1, 'f'};
            pg->runs_none =
                message->len == sizeof no && memcmp(message->prefix, no, sizeof no) == 0;
        } else if (type == 'D') {
            pg->row_is_nonce = pg->pending == 1 && is_nonce(session, message);
            if (pg->row_is_nonce) {
                take_server(pg, message);
            }
        }
    }
    if (pg->ready && pg->pending > 0 && !is_in(type, "NSA")) {
        session->served = true;
    }
    if (type == 'S') {
        take_setting(pg, message);
        take_version(pg, message);
    }
    if (type != 'Z') {
        /* notices, settings and notifications may come at any time; all else belongs to a command */
        if (pg->pending == 0 && !pg->unsynced && !is_in(type, "NSA")) {
            session_spoil(session, DOUBT_UNASKED);
        }
        return;
    }
    if (pg->pending == 0 || message->prefix_len != 1) {
        session_spoil(session, DOUBT_GARBLED);
        return;
    }
    pg->pending--;
    pg->transaction = message->prefix[0];
    pg->ready = true;
}

static void received(struct session *session, const uint8_t *bytes, size_t len) {
    struct session_postgres *pg = &session->postgres;
    const uint8_t *end = bytes + len;
    if (pg->asked && bytes < end) {
        uint8_t answer = *bytes++;
        pg->asked = false;
        if (answer != 'N') {
            session->protocol = SESSION_TLS; /* or GSS */
        }
    }
    while (session->doubt == NULL && session->protocol == SESSION_POSTGRES &&
           messages_take(&pg->received, &bytes, end, HEADER, measure)) {
        heard(session, &pg->received);
    }
}

/* --- decisions --------------------------------------------------------------------------------------------------------------------------- */

static const char *busy(const struct session *session) {
    const struct session_postgres *pg = &session->postgres;
    if (!pg->ready) {
        return "its login is not complete";
    }
    if (!messages_rest(&pg->sent) || pg->unsynced) {
        return DOUBT_HALF_SENT;
    }
    if (pg->pending > 0 || !messages_rest(&pg->received)) {
        return DOUBT_HALF_READ;
    }
    return NULL;
}

static const char *amid(const struct session *session) {
    return session->postgres.transaction != 'I' ? "it is in a transaction" : NULL;
}

/* The SQL in a Query or Parse; NULL: the message is damaged. */
static const uint8_t *statement(
    uint8_t type, const uint8_t *at, size_t len, size_t *statement_len) {
    const uint8_t *end = at + len;
    if (type == 'P') {
        const uint8_t *nul = memchr(at, 0, len);
        if (nul == NULL) {
            return NULL;
        }
        at = nul + 1;
    }
    const uint8_t *nul = memchr(at, 0, (size_t)(end - at));
    *statement_len = nul != NULL ? (size_t)(nul - at) : 0;
    return nul != NULL ? at : NULL;
}

static const char *learn(struct session *session, struct growing *init) {
    struct session_postgres *pg = &session->postgres;
    const uint8_t *at = session->record;
    const uint8_t *end = at + session->record_len;
    /* the start: messages without a type, whose length begins with a zero */
    while (end - at >= UNTYPED_HEADER && at[0] == 0) {
        uint32_t len = big_endian(at);
        if (len < LENGTH || len > (size_t)(end - at)) {
            return DOUBT_HALF_SENT;
        }
        at += len;
    }
    while (end - at >= HEADER) {
        uint8_t type = at[0];
        size_t len = measure(at);
        if (len > (size_t)(end - at) - HEADER) {
            return DOUBT_HALF_SENT;
        }
        if (type == 'Q' || type == 'P') {
            size_t text_len;
            const uint8_t *text = statement(type, at + HEADER, len, &text_len);
            if (text == NULL || !statement_may_be_repeated(text, text_len)) {
                return "its initialisation does more than settings";
            }
        }
        if (is_in(type, "QPBDECHS")) {
            growing_add(init, at, HEADER + len);
        } else if (type != 'p') {
            return "its initialisation has a command that cannot be repeated";
        }
        at += HEADER + len;
    }
    memcpy(pg->told_learned, pg->told, sizeof pg->told);
    memset(pg->server_learned, 0, sizeof pg->server_learned);
    return NULL;
}

static void add_query(struct growing *to, const char *text) {
    size_t len = strlen(text) + 1;
    uint32_t length = (uint32_t)len + LENGTH;
    uint8_t head[HEADER] = {'Q', (uint8_t)(length >> 24), (uint8_t)(length >> 16),
        (uint8_t)(length >> 8), (uint8_t)length};
    growing_add(to, head, sizeof head);
    growing_add(to, text, len);
}

/* DISCARD ALL does not reset what setseed() did to random(), so every proof seeds it again with an unpredictable number. */
static void add_proof(const struct session *session, struct growing *to) {
    char query[] = "SELECT '0123456789abcdef', pg_catalog.pg_backend_pid(), "
                   "pg_catalog.setseed('0.0123456789abcdef')";
    char *seed = query + sizeof query - sizeof "')" - SESSION_NONCE;
    memcpy(query + sizeof "SELECT '" - 1, session->nonce, SESSION_NONCE);
    for (int i = 0; i < SESSION_NONCE; i++) {
        seed[i] = (char)('0' + session->nonce[i] % 10);
    }
    add_query(to, query);
}

static void reset(struct session *session, struct growing *to) {
    struct session_postgres *pg = &session->postgres;
    if (pg->transaction != 'I') {
        add_query(
            to, "ROLLBACK"); /* outside a transaction it would be a warning in the server's log */
    }
    add_query(to, "DISCARD ALL"); /* alone: it cannot stand in a list of statements */
    growing_add(to, session->init, session->init_len);
    add_proof(session, to);
    pg->row_is_nonce = false;
}

static void question(struct session *session, struct growing *to) {
    struct session_postgres *pg = &session->postgres;
    if (pg->has_login_triggers) {
        add_query(to, "SELECT EXISTS(SELECT FROM pg_catalog.pg_event_trigger "
                      "WHERE evtevent = 'login' AND evtenabled <> 'D')");
    }
    pg->runs_none = false;
}

/* NULL: it has. */
static const char *unproven(struct session *session) {
    struct session_postgres *pg = &session->postgres;
    if (session->asking) {
        return pg->runs_none ? NULL
                             : "its reset does not run the database's login event triggers again "
                               "(CREATE EVENT TRIGGER ... ON login)";
    }
    if (!pg->row_is_nonce || pg->transaction != 'I') {
        return DOUBT_UNPROVEN;
    }
    if (memcmp(pg->told, pg->told_learned, sizeof pg->told) != 0) {
        return "its reset does not bring back what the client said when it began: say it with SET";
    }
    if (pg->server_learned[0] == 0) {
        memcpy(pg->server_learned, pg->server, sizeof pg->server);
    }
    return memcmp(pg->server, pg->server_learned, sizeof pg->server) == 0
               ? NULL
               : "a pooler in transaction mode has changed the server behind it";
}

static size_t goodbye(const struct session *session, uint8_t *to) {
    static const uint8_t terminate[] = {'X', 0, 0, 0, 4};
    if (!session->postgres.ready || !messages_rest(&session->postgres.sent)) {
        return 0;
    }
    memcpy(to, terminate, sizeof terminate);
    return sizeof terminate;
}

const struct dialect dialect_postgres = {
    .sent = sent,
    .received = received,
    .busy = busy,
    .amid = amid,
    .learn = learn,
    .reset = reset,
    .question = question,
    .unproven = unproven,
    .goodbye = goodbye,
};
