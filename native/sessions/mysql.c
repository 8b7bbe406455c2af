/* MySQL and MariaDB: the Client/Server Protocol, dev.mysql.com/doc/dev/mysql-server "Command Phase", mariadb.com/kb "clientserver-protocol".
 *
 * Invariants
 * - Each command that has an answer waits in `pending` until its last packet has arrived. An answer's end is known from its packets, never from
 *   silence.
 * - Statement ids belong to the server and cannot be repeated: a session with a prepared statement is not learned.
 * - A reset selects the current database only if that may be necessary. Each proof shows the database, so a wrong one is a doubt.
 * - The session's user is not reset: each proof shows it, and another one is a doubt.
 */
#include <stdio.h>
#include <string.h>

#include "sessions/internal.h"

enum { HEADER = 4, MOST = 0xffffff };

/* Capabilities of the client, in its handshake response. */
enum {
    CLIENT_WITH_DB = 1 << 3,
    CLIENT_COMPRESS = 1 << 5,
    CLIENT_PROTOCOL_41 = 1 << 9,
    CLIENT_SSL = 1 << 11,
    CLIENT_SECURE_CONNECTION = 1 << 15,
    CLIENT_MULTI_STATEMENTS = 1 << 16,
    CLIENT_LENENC_AUTH = 1 << 21,
    CLIENT_DEPRECATE_EOF = 1 << 24,
    CLIENT_ZSTD = 1 << 26,
};

enum {
    STATUS_IN_TRANSACTION = 1,
    STATUS_MORE_RESULTS = 8,
    STATUS_CURSOR = 0x40,
};

enum {
    COM_QUIT = 0x01,
    COM_INIT_DB = 0x02,
    COM_QUERY = 0x03,
    COM_FIELD_LIST = 0x04,
    COM_STATISTICS = 0x09,
    COM_PING = 0x0e,
    COM_CHANGE_USER = 0x11,
    COM_STMT_PREPARE = 0x16,
    COM_STMT_EXECUTE = 0x17,
    COM_STMT_SEND_LONG_DATA = 0x18,
    COM_STMT_CLOSE = 0x19,
    COM_STMT_RESET = 0x1a,
    COM_SET_OPTION = 0x1b,
    COM_STMT_FETCH = 0x1c,
    COM_RESET_CONNECTION = 0x1f,
};

/* The proofs of the first reset, counted down: the state without the initialisation, the state after it, and the proof that later ones must
 * equal. */
enum { PROBE_EXPECTED = 1, PROBE_AFTER, PROBE_BEFORE };

/* The remaining packets of the first awaited answer. */
enum {
    FIRST,       /* the first packet of an answer */
    DEFINITIONS, /* `columns` of them */
    DEFINITIONS_END,
    ROWS,
    PARAMETERS, /* of a prepared statement: `columns` of them, `after` definitions follow */
    PARAMETERS_END,
};

static uint32_t measure(const uint8_t *header) {
    return (uint32_t)header[0] | (uint32_t)header[1] << 8 | (uint32_t)header[2] << 16;
}

static uint16_t two(const uint8_t *bytes) {
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

/* A length-encoded number at *at, which moves behind it. */
static uint64_t number(const uint8_t **at, const uint8_t *end) {
    if (*at == end) {
        return 0;
    }
    uint8_t first = *(*at)++;
    int bytes = first == 0xfc ? 2 : first == 0xfd ? 3 : first == 0xfe ? 8 : 0;
    if (bytes == 0) {
        return first;
    }
    uint64_t value = 0;
    for (int i = 0; i < bytes && *at < end; i++) {
        value |= (uint64_t) * (*at)++ << (8 * i);
    }
    return value;
}

/* --- the client's side ------------------------------------------------------------------------------------------------------------------- */

static void responded(struct session *session, const struct session_messages *packet) {
    struct session_mysql *my = &session->mysql;
    if (packet->prefix_len < HEADER) {
        session_spoil(session, DOUBT_GARBLED);
        return;
    }
    uint32_t capabilities = measure(packet->prefix) | (uint32_t)packet->prefix[3] << 24;
    my->responded = true;
    if (capabilities & CLIENT_SSL) {
        session->protocol = SESSION_TLS;
    } else if ((capabilities & (CLIENT_COMPRESS | CLIENT_ZSTD)) != 0) {
        session_spoil(session, "it is compressed");
    } else if ((capabilities & CLIENT_PROTOCOL_41) == 0) {
        session_spoil(session, "its protocol is older than MySQL 4.1");
    }
    my->short_rows = (capabilities & CLIENT_DEPRECATE_EOF) != 0;
    my->multi = my->multi_learned = (capabilities & CLIENT_MULTI_STATEMENTS) != 0;
}

static void await(struct session *session, uint8_t command) {
    struct session_mysql *my = &session->mysql;
    if (my->pending_count == SESSION_PENDING) {
        session_spoil(session, "too many commands are under way");
        return;
    }
    my->pending[(my->pending_first + my->pending_count++) % SESSION_PENDING] = command;
}

/* Returns whether the statement may change the current database. Only the first of several statements in a packet is checked: the answers
 * report the others (STATUS_MORE_RESULTS). */
static bool may_move(const struct session_messages *packet) {
    switch (packet->prefix[0]) {
    case COM_INIT_DB:
        return true;
    case COM_QUERY:
    case COM_STMT_PREPARE:
        return !statement_begins_at_home(packet->prefix + 1, packet->prefix_len - 1u);
    default:
        return false;
    }
}

static void command(struct session *session, const struct session_messages *packet) {
    struct session_mysql *my = &session->mysql;
    uint8_t what = packet->prefix_len > 0 ? packet->prefix[0] : 0;
    my->moved |= !session->judging && packet->prefix_len > 0 && may_move(packet);
    if (what == COM_QUERY || what == COM_STMT_PREPARE) {
        /* MariaDB 10.11: after COM_RESET_CONNECTION a session with a prepared transaction cannot use any InnoDB table ("doesn't have this
         * option"), and keeps its locks. When the session ends, the documented behaviour returns. A session with profiling shows the next
         * client the last statements, with their literals, and continues to record them */
        const char *stays = statement_stays(packet->prefix + 1, packet->prefix_len - 1u);
        if (stays != NULL) {
            session_spoil(session, stays);
            return;
        }
    }
    switch (what) {
    case COM_QUIT:
        session_spoil(session, "the client has said goodbye");
        break;
    case COM_STMT_CLOSE:
        my->statements -= my->statements > 0;
        break;
    case COM_STMT_SEND_LONG_DATA:
        break;
    case COM_SET_OPTION:
        my->multi = packet->prefix_len >= 3 && two(packet->prefix + 1) == 0;
        await(session, what);
        break;
    case COM_INIT_DB:
    case COM_QUERY:
    case COM_FIELD_LIST:
    case COM_STATISTICS:
    case COM_PING:
    case COM_STMT_PREPARE:
    case COM_STMT_EXECUTE:
    case COM_STMT_RESET:
    case COM_STMT_FETCH:
    case COM_RESET_CONNECTION:
        await(session, what);
        break;
    case COM_CHANGE_USER:
        session_spoil(session, "the client changed its user");
        break;
    default:
        session_spoil(session, "the client used a command that cannot be undone");
    }
}

static void sent(struct session *session, const uint8_t *bytes, size_t len) {
    struct session_mysql *my = &session->mysql;
    const uint8_t *end = bytes + len;
    while (session->doubt == NULL && session->protocol == SESSION_MYSQL &&
           messages_take(&my->sent, &bytes, end, HEADER, measure)) {
        if (!my->greeted) {
            session_spoil(session, DOUBT_GARBLED);
        } else if (!my->responded) {
            responded(session, &my->sent);
        } else if (my->ready && my->sent.header[3] == 0) {
            command(session, &my->sent);
        } else if (my->ready && my->pending_count == 0) {
            /* the rest of a command of 16 MB; any other packet has another number */
            session_spoil(session, "the client sent a packet out of order");
        }
    }
}

/* --- the server's side ------------------------------------------------------------------------------------------------------------------- */

static void done(struct session_mysql *my) {
    my->state = FIRST;
    my->pending_first = (my->pending_first + 1) % SESSION_PENDING;
    my->pending_count--;
}

/* The end of a result, which another one may follow. */
static void result_ends(struct session_mysql *my, uint16_t status) {
    my->status = status;
    if (status & STATUS_MORE_RESULTS) {
        my->state = FIRST;
        my->moved = true; /* of whatever statement that is */
    } else {
        done(my);
    }
}

static uint16_t ok_status(const struct session_messages *packet) {
    const uint8_t *at = packet->prefix + 1;
    const uint8_t *end = packet->prefix + packet->prefix_len;
    number(&at, end);
    number(&at, end);
    return end - at >= 2 ? two(at) : 0;
}

static uint16_t eof_status(const struct session_messages *packet) {
    return packet->prefix_len >= 5 ? two(packet->prefix + 3) : 0;
}

static void failed(struct session *session) {
    if (session->judging) {
        session_spoil(session, "the server refused a part of its reset");
    }
    done(&session->mysql);
}

/* The first packet of the answer to a query or an execution. */
static void first_of_result(struct session *session, const struct session_messages *packet) {
    struct session_mysql *my = &session->mysql;
    uint8_t kind = packet->prefix[0];
    if (kind == 0) {
        result_ends(my, ok_status(packet));
        return;
    }
    if (kind == 0xfb) {
        session_spoil(session, "the server asked for a file of the client");
        return;
    }
    const uint8_t *at = packet->prefix;
    my->columns = (uint32_t)number(&at, packet->prefix + packet->prefix_len);
    my->state = my->columns > 0 ? DEFINITIONS : DEFINITIONS_END;
}

static void first(struct session *session, const struct session_messages *packet) {
    struct session_mysql *my = &session->mysql;
    uint8_t what = my->pending[my->pending_first];
    if (packet->prefix_len == 0) {
        session_spoil(session, DOUBT_GARBLED);
        return;
    }
    session->served = true;
    my->rows = 0;
    my->row_is_nonce = false;
    uint8_t kind = packet->prefix[0];
    if (kind == 0xff) {
        failed(session);
        return;
    }
    switch (what) {
    case COM_QUERY:
    case COM_STMT_EXECUTE:
        first_of_result(session, packet);
        return;
    case COM_STMT_PREPARE:
        if (kind != 0 || packet->prefix_len < 9) {
            session_spoil(session, DOUBT_GARBLED);
            return;
        }
        my->statements++;
        my->after = two(packet->prefix + 5);
        my->columns = two(packet->prefix + 7);
        if (my->columns > 0) {
            my->state = PARAMETERS;
        } else if (my->after > 0) {
            my->columns = my->after;
            my->after = 0;
            my->state = PARAMETERS;
        } else {
            done(my);
        }
        return;
    case COM_STATISTICS: /* a sentence */
        done(my);
        return;
    case COM_FIELD_LIST:
    case COM_STMT_FETCH:
        my->state = ROWS;
        return;
    case COM_SET_OPTION:
        if (kind != 0xfe && kind != 0) {
            session_spoil(session, DOUBT_GARBLED);
        }
        done(my);
        return;
    default:
        if (kind != 0) {
            session_spoil(session, DOUBT_GARBLED);
            return;
        }
        my->status = ok_status(packet);
        done(my);
    }
}

/* The session's user, in SESSION_PRINT characters. COM_RESET_CONNECTION keeps a role set by SET ROLE (seen on MariaDB 10.11). Version comments
 * select the servers with roles. MySQL 9.6 has no MD5() any more. */
#define WHO                                                                                        \
    "LEFT(SHA2(CONCAT_WS(' ',CURRENT_USER()/*!80000 ,CURRENT_ROLE()*//*M!100005 "                  \
    ",CURRENT_ROLE()*/),256),32)"

/* A row that begins with the nonce, followed by the session's user and current database. */
static bool is_nonce(struct session *session, const struct session_messages *packet) {
    struct session_mysql *my = &session->mysql;
    enum { SHOWN = 1 + SESSION_NONCE, OF_WHO = 1 + SESSION_PRINT };
    if (packet->len <= SHOWN || packet->prefix[0] != SESSION_NONCE ||
        memcmp(packet->prefix + 1, session->nonce, SESSION_NONCE) != 0) {
        return false;
    }
    const uint8_t *shown = packet->prefix + SHOWN;
    uint32_t len = packet->len - SHOWN;
    size_t seen = (size_t)packet->prefix_len - SHOWN;
    if (seen < OF_WHO || shown[0] != SESSION_PRINT) {
        return false;
    }
    bool same = len == my->shown_len && memcmp(shown, my->shown, seen) == 0;
    if (my->probes > 0) {
        /* of a name that is too long to be seen as a whole nothing is guessed */
        my->says |= (my->probes == PROBE_AFTER && !same) || seen < len;
        memcpy(my->shown, shown, seen);
        my->shown_len = len;
        my->probes--;
    } else {
        my->strayed = memcmp(shown, my->shown, OF_WHO) != 0
                          ? "its reset does not bring its user and role back (SET ROLE)"
                      : !same ? "its reset does not bring its current database back"
                              : NULL;
    }
    return true;
}

/* A requested digest, and whether the server runs init_connect for clients. */
static void take_print(struct session_mysql *my, const struct session_messages *packet) {
    enum { PRINTED = 1 + SESSION_PRINT };
    my->printed = packet->len > PRINTED && packet->prefix[0] == SESSION_PRINT;
    if (my->printed) {
        memcpy(my->print, packet->prefix + 1, SESSION_PRINT);
        my->begins = packet->prefix[PRINTED] == 1 && packet->prefix[PRINTED + 1] == '1';
    }
}

static void row(struct session *session, const struct session_messages *packet) {
    struct session_mysql *my = &session->mysql;
    uint8_t kind = packet->prefix_len > 0 ? packet->prefix[0] : 0;
    if (kind == 0xff) {
        failed(session);
    } else if (kind == 0xfe && my->short_rows && packet->len < MOST && packet->len >= 5) {
        result_ends(my, ok_status(packet));
    } else if (kind == 0xfe && packet->len < 9) {
        result_ends(my, eof_status(packet));
    } else {
        my->rows += my->rows < 2;
        my->row_is_nonce = session->judging && is_nonce(session, packet);
        if (session->asking) {
            take_print(my, packet);
        }
    }
}

static void definitions_end(struct session *session, const struct session_messages *packet) {
    struct session_mysql *my = &session->mysql;
    uint8_t kind = packet->prefix_len > 0 ? packet->prefix[0] : 0;
    if (kind == 0xff) {
        failed(session);
        return;
    }
    if (kind != 0xfe) {
        session_spoil(session, DOUBT_GARBLED);
        return;
    }
    bool executes = my->pending[my->pending_first] == COM_STMT_EXECUTE;
    my->status = eof_status(packet);
    if (executes && (my->status & STATUS_CURSOR)) {
        done(my); /* rows come by COM_STMT_FETCH */
    } else {
        my->state = ROWS;
    }
}

static void parameters_end(struct session_mysql *my) {
    if (my->after > 0) {
        my->columns = my->after;
        my->after = 0;
        my->state = PARAMETERS;
    } else {
        done(my);
    }
}

static void answer(struct session *session, const struct session_messages *packet) {
    struct session_mysql *my = &session->mysql;
    switch (my->state) {
    case FIRST:
        first(session, packet);
        if (my->state == ROWS) {
            row(session, packet);
        }
        break;
    case DEFINITIONS:
        if (--my->columns == 0) {
            my->state = my->short_rows ? ROWS : DEFINITIONS_END;
        }
        break;
    case DEFINITIONS_END:
        definitions_end(session, packet);
        break;
    case ROWS:
        row(session, packet);
        break;
    case PARAMETERS:
        if (--my->columns == 0) {
            if (my->short_rows) {
                parameters_end(my);
            } else {
                my->state = PARAMETERS_END;
            }
        }
        break;
    case PARAMETERS_END:
        parameters_end(my);
        break;
    }
}

/* Messages until the server's OK: the greeting, then the login. */
static void login(struct session *session, const struct session_messages *packet) {
    struct session_mysql *my = &session->mysql;
    uint8_t kind = packet->prefix_len > 0 ? packet->prefix[0] : 0xff;
    if (!my->greeted) {
        my->greeted = true;
    } else if (kind == 0xff) {
        session_spoil(session, "the server refused the login");
    } else if (my->responded && kind == 0) {
        my->status = ok_status(packet);
        my->ready = true;
    }
}

static void received(struct session *session, const uint8_t *bytes, size_t len) {
    struct session_mysql *my = &session->mysql;
    const uint8_t *end = bytes + len;
    while (session->doubt == NULL && session->protocol == SESSION_MYSQL &&
           messages_take(&my->received, &bytes, end, HEADER, measure)) {
        bool goes_on = my->split;
        my->split = my->received.len == MOST;
        if (goes_on) {
            continue; /* of a row that is larger than a packet */
        }
        if (!my->ready) {
            login(session, &my->received);
        } else if (my->pending_count == 0) {
            session_spoil(session, DOUBT_UNASKED);
        } else {
            answer(session, &my->received);
        }
    }
}

/* --- decisions --------------------------------------------------------------------------------------------------------------------------- */

static const char *busy(const struct session *session) {
    const struct session_mysql *my = &session->mysql;
    if (!my->ready) {
        return "its login is not complete";
    }
    if (!messages_rest(&my->sent)) {
        return DOUBT_HALF_SENT;
    }
    if (my->pending_count > 0 || !messages_rest(&my->received) || my->split) {
        return DOUBT_HALF_READ;
    }
    return NULL;
}

static const char *amid(const struct session *session) {
    const struct session_mysql *my = &session->mysql;
    return my->statements > 0                   ? "it holds a prepared statement"
           : my->status & STATUS_IN_TRANSACTION ? "it is in a transaction"
                                                : NULL;
}

/* The current database, from the handshake response: HandshakeResponse41. */
static void learn_database(struct session_mysql *my, const uint8_t *at, size_t len) {
    enum { FIXED = 32 };
    const uint8_t *end = at + len;
    if (len <= FIXED) {
        return;
    }
    uint32_t capabilities = measure(at) | (uint32_t)at[3] << 24;
    at += FIXED;
    at = memchr(at, 0, (size_t)(end - at));
    if (at == NULL || (capabilities & CLIENT_WITH_DB) == 0) {
        return;
    }
    at++;
    uint64_t auth;
    if (capabilities & CLIENT_LENENC_AUTH) {
        auth = number(&at, end);
    } else if (capabilities & CLIENT_SECURE_CONNECTION) {
        auth = at < end ? *at++ : 0;
    } else {
        const uint8_t *nul = memchr(at, 0, (size_t)(end - at));
        auth = nul != NULL ? (uint64_t)(nul - at) + 1 : (uint64_t)(end - at);
    }
    if (auth > (uint64_t)(end - at)) {
        return;
    }
    at += auth;
    const uint8_t *nul = memchr(at, 0, (size_t)(end - at));
    size_t name = nul != NULL ? (size_t)(nul - at) : (size_t)(end - at);
    if (name < sizeof my->database) {
        memcpy(my->database, at, name);
        my->database_len = (uint32_t)name;
    }
}

static void add_command(
    struct growing *to, uint8_t what, const uint8_t *argument, size_t argument_len) {
    size_t len = 1 + argument_len;
    uint8_t head[HEADER + 1] = {(uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16), 0, what};
    growing_add(to, head, sizeof head);
    growing_add(to, argument, argument_len);
}

/* One command of the initialisation. NULL: it is in `init`, or need not be. */
static const char *learn_command(
    struct session_mysql *my, struct growing *init, const uint8_t *packet, size_t len) {
    enum statement_moves moves;
    switch (len > 0 ? packet[0] : 0) {
    case COM_QUERY:
    case COM_STMT_PREPARE:
        if (!statement_may_be_repeated(packet + 1, len - 1)) {
            return "its initialisation does more than settings";
        }
        if (packet[0] == COM_STMT_PREPARE && memchr(packet, '?', len) != NULL) {
            return "its initialisation uses a prepared statement with parameters";
        }
        moves = statement_moves(packet + 1, len - 1, my->database, my->database_len);
        if (moves == STATEMENT_MOVES_TO_NAME && !my->says) {
            return NULL; /* there it is already: Laravel's `use` */
        }
        my->says |= moves != STATEMENT_STAYS;
        add_command(init, COM_QUERY, packet + 1, len - 1);
        return NULL;
    case COM_INIT_DB:
        if (!my->says && len - 1 == my->database_len &&
            memcmp(packet + 1, my->database, len - 1) == 0) {
            return NULL;
        }
        my->says = true;
        if (len - 1 < sizeof my->database) {
            memcpy(my->database, packet + 1, len - 1);
            my->database_len = (uint32_t)(len - 1);
        }
        add_command(init, COM_INIT_DB, packet + 1, len - 1);
        return NULL;
    case COM_RESET_CONNECTION:
        init->len = 0;
        return NULL;
    case COM_PING:
    case COM_STATISTICS:
    case COM_SET_OPTION:
    case COM_STMT_EXECUTE:
    case COM_STMT_CLOSE:
    case COM_STMT_RESET:
    case COM_FIELD_LIST:
        return NULL;
    default:
        return "its initialisation has a command that cannot be repeated";
    }
}

static const char *learn(struct session *session, struct growing *init) {
    struct session_mysql *my = &session->mysql;
    const uint8_t *at = session->record;
    const uint8_t *end = at + session->record_len;
    bool first_time = !session->learned && init->len == 0;
    while (end - at >= HEADER) {
        size_t len = measure(at);
        uint8_t sequence = at[3];
        at += HEADER;
        if (len > (size_t)(end - at)) {
            return DOUBT_HALF_SENT;
        }
        if (sequence == 0) {
            const char *why = learn_command(my, init, at, len);
            if (why != NULL) {
                return why;
            }
        } else if (sequence == 1 && first_time) {
            learn_database(my, at, len);
        }
        first_time = false;
        at += len;
    }
    my->multi_learned = my->multi;
    my->printed = false; /* settings may differ from those learned before */
    my->shown_len = 0;
    return NULL;
}

static void add_proof(const struct session *session, struct growing *to, const char *shows) {
    static const char select[] = "SELECT '0123456789abcdef',";
    uint8_t query[256];
    size_t len = (size_t)snprintf((char *)query, sizeof query, "%s" WHO ",%s", select, shows);
    memcpy(query + sizeof "SELECT '" - 1, session->nonce, SESSION_NONCE);
    add_command(to, COM_QUERY, query, len);
}

/* COM_RESET_CONNECTION keeps the current database, but sets @@collation_database to the server's own until a client selects the database again.
 * (MariaDB 10.11; MySQL 8: THD::cleanup_connection() and THD::init(), sql/sql_class.cc.) So the database must be selected if both collations
 * differ. The first reset finds that out by asking before and after. */
static void reset(struct session *session, struct growing *to) {
    static const uint8_t option[2][2] = {{1, 0}, {0, 0}}; /* off, on */
    static const char all[] = "@@collation_database,DATABASE()";
    struct session_mysql *my = &session->mysql;
    bool first = my->shown_len == 0;
    my->probes = first ? PROBE_BEFORE : 0;
    add_command(to, COM_RESET_CONNECTION, NULL, 0);
    if (my->multi != my->multi_learned) {
        add_command(to, COM_SET_OPTION, option[my->multi_learned], sizeof option[0]);
    }
    if (first) {
        add_proof(session, to, all);
    }
    if (my->database_len > 0 && (first || my->says || my->moved)) {
        add_command(to, COM_INIT_DB, my->database, my->database_len);
    }
    growing_add(to, session->init, session->init_len);
    if (first) {
        add_proof(session, to, all);
    }
    add_proof(session, to, "DATABASE()");
    my->rows = 0;
    my->row_is_nonce = my->moved = false;
    my->strayed = NULL;
    my->statements = 0;
}

/* Statements that an administrator makes servers run for each login without SUPER (init_connect), which COM_RESET_CONNECTION does not repeat. A
 * comparison with the rest shows whether the reset restores character sets. */
#define BEGINS                                                                                     \
    "@@init_connect NOT REGEXP _utf8mb4'^ *(set +names +.?[[:alnum:]_]+.?"                         \
    "( +collate +.?[[:alnum:]_]+.?)?)? *;? *$'"

/* MariaDB goes back to the character set of the login, other servers may go to their own default: the client would not know. */
static void question(struct session *session, struct growing *to) {
    static const char query[] =
        "SELECT LEFT(SHA2(CONCAT_WS(' ', @@character_set_client, @@character_set_connection, "
        "@@character_set_results, @@collation_connection, @@sql_mode, @@time_zone, @@autocommit, "
        "@@foreign_key_checks, @@lc_time_names, @@collation_database, DATABASE(), " WHO
        "), 256), 32), " BEGINS;
    struct session_mysql *my = &session->mysql;
    my->compares = my->printed;
    memcpy(my->first_print, my->print, SESSION_PRINT);
    my->printed = false;
    add_command(to, COM_QUERY, (const uint8_t *)query, sizeof query - 1);
}

static const char *unproven(struct session *session) {
    struct session_mysql *my = &session->mysql;
    if (session->asking && my->begins) {
        return "its reset does not say again what the server says to each client (init_connect)";
    }
    if (session->asking) {
        bool same = my->printed && my->rows == 1 &&
                    (!my->compares || memcmp(my->print, my->first_print, SESSION_PRINT) == 0);
        return same ? NULL : "its reset does not bring the server's settings back";
    }
    bool proven = my->row_is_nonce && my->rows == 1 && (my->status & STATUS_IN_TRANSACTION) == 0;
    my->moved = false; /* initialisations may have several results, too */
    return proven ? my->strayed : DOUBT_UNPROVEN;
}

static size_t goodbye(const struct session *session, uint8_t *to) {
    static const uint8_t quit[] = {1, 0, 0, 0, COM_QUIT};
    if (!session->mysql.ready || !messages_rest(&session->mysql.sent)) {
        return 0;
    }
    memcpy(to, quit, sizeof quit);
    return sizeof quit;
}

const struct dialect dialect_mysql = {
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
