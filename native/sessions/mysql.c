/* MySQL and MariaDB: the Client/Server Protocol, dev.mysql.com/doc/dev/mysql-server "Command Phase", mariadb.com/kb "clientserver-protocol".
 *
 * Invariants
 * - Each command that has an answer waits in `pending` until its last packet has arrived. An answer's end is known from its packets, never from
 *   silence.
 */
#include <string.h>

#include "sessions/mysql.h"

/* The remaining packets of the first awaited answer. */
enum {
    FIRST,       /* the first packet of an answer */
    DEFINITIONS, /* `columns` of them */
    DEFINITIONS_END,
    ROWS,
    PARAMETERS, /* of a prepared statement: `columns` of them, `after` definitions follow */
    PARAMETERS_END,
};

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
    my->interactive = (capabilities & CLIENT_INTERACTIVE) != 0;
    my->ignores_space = (capabilities & CLIENT_IGNORE_SPACE) != 0;
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

/* The column at *at, which moves behind it. Returns its length; 0 also for NULL and for a column that is not seen as a whole. */
static size_t column(const uint8_t **at, const uint8_t *end) {
    if (*at < end && **at == 0xfb) {
        ++*at;
        return 0;
    }
    uint64_t len = number(at, end);
    return len <= (uint64_t)(end - *at) ? (size_t)len : 0;
}

/* A requested digest, whether the server runs init_connect for clients, and the account's time limit for statements. */
static void take_print(struct session_mysql *my, const struct session_messages *packet) {
    const uint8_t *at = packet->prefix;
    const uint8_t *end = at + packet->prefix_len;
    my->printed =
        packet->len == packet->prefix_len && column(&at, end) == SESSION_PRINT && at < end;
    if (!my->printed) {
        return;
    }
    memcpy(my->print, at, SESSION_PRINT);
    at += SESSION_PRINT;
    size_t len = column(&at, end);
    my->begins = len == 1 && *at == '1';
    at += len;
    len = column(&at, end);
    memset(my->statement_limit, 0, sizeof my->statement_limit);
    for (size_t i = 0; i < len; i++) {
        /* it becomes a part of a statement */
        bool is_decimal = (at[i] >= '0' && at[i] <= '9') || at[i] == '.';
        my->printed &= is_decimal && len < sizeof my->statement_limit;
    }
    if (my->printed) {
        memcpy(my->statement_limit, at, len);
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
    .learn = mysql_learn,
    .reset = mysql_reset,
    .question = mysql_question,
    .unproven = mysql_unproven,
    .goodbye = goodbye,
};
