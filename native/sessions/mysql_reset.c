/* MySQL and MariaDB: how a session is reset, and whether that has worked.
 *
 * Invariants
 * - Statement ids belong to the server and cannot be repeated: a session with a prepared statement is not learned.
 * - A reset selects the current database only if that may be necessary. Each proof shows the database, so a wrong one is a doubt.
 * - The session's user is not reset: each proof shows it, and another one is a doubt.
 * - Settings that the login made are made again before the initialisation, which may change them.
 */
#include <stdio.h>
#include <string.h>

#include "sessions/mysql.h"

/* The session's user, in SESSION_PRINT characters. COM_RESET_CONNECTION keeps a role set by SET ROLE (seen on MariaDB 10.11). Version comments
 * select the servers with roles. MySQL 9.6 has no MD5() any more. */
#define WHO                                                                                        \
    "LEFT(SHA2(CONCAT_WS(' ',CURRENT_USER()/*!80000 ,CURRENT_ROLE()*//*M!100005 "                  \
    ",CURRENT_ROLE()*/),256),32)"

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

const char *mysql_learn(struct session *session, struct growing *init) {
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

/* MariaDB 10.11 and 11.8 set all variables to the server's own, and forget what the login made of three of them: of the client's capabilities and
 * of the account (CREATE USER ... WITH MAX_STATEMENT_TIME). MySQL restores the first two (THD::fix_capability_based_variables(),
 * sql/sql_class.cc), and has no such limit. */
static void add_login_settings(const struct session_mysql *my, struct growing *to) {
    char query[192] = "SET ";
    size_t start = strlen(query), len = start;
    if (my->interactive) {
        len += (size_t)snprintf(
            query + len, sizeof query - len, "wait_timeout=@@interactive_timeout,");
    }
    if (my->ignores_space) {
        len += (size_t)snprintf(query + len, sizeof query - len,
            "sql_mode=CONCAT_WS(',',NULLIF(@@sql_mode,''),'IGNORE_SPACE'),");
    }
    if (my->statement_limit[0] != 0) {
        len += (size_t)snprintf(
            query + len, sizeof query - len, "max_statement_time=%s,", my->statement_limit);
    }
    if (len > start) {
        add_command(to, COM_QUERY, (const uint8_t *)query, len - 1);
    }
}

/* COM_RESET_CONNECTION keeps the current database, but sets @@collation_database to the server's own until a client selects the database again.
 * (MariaDB 10.11; MySQL 8: THD::cleanup_connection() and THD::init(), sql/sql_class.cc.) So the database must be selected if both collations
 * differ. The first reset finds that out by asking before and after. */
void mysql_reset(struct session *session, struct growing *to) {
    static const uint8_t option[2][2] = {{1, 0}, {0, 0}}; /* off, on */
    static const char all[] = "@@collation_database,DATABASE()";
    struct session_mysql *my = &session->mysql;
    bool first = my->shown_len == 0;
    my->probes = first ? PROBE_BEFORE : 0;
    add_command(to, COM_RESET_CONNECTION, NULL, 0);
    if (my->multi != my->multi_learned) {
        add_command(to, COM_SET_OPTION, option[my->multi_learned], sizeof option[0]);
    }
    add_login_settings(my, to);
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

/* The account's limit in seconds, if it differs from the server's own. NULL for servers without it, by the version comment. */
#define STATEMENT_LIMIT                                                                            \
    "COALESCE(/*M!100101 CAST(NULLIF(@@max_statement_time,@@global.max_statement_time) AS "        \
    "DECIMAL(20,6)),*/NULL)"

/* MariaDB goes back to the character set of the login, other servers may go to their own default: the client would not know. */
void mysql_question(struct session *session, struct growing *to) {
    static const char query[] =
        "SELECT LEFT(SHA2(CONCAT_WS(' ', @@character_set_client, @@character_set_connection, "
        "@@character_set_results, @@collation_connection, @@sql_mode, @@time_zone, @@autocommit, "
        "@@foreign_key_checks, @@lc_time_names, @@collation_database, @@wait_timeout, "
        "/*M!100101 @@max_statement_time, */DATABASE(), " WHO "), 256), 32), " BEGINS
        ", " STATEMENT_LIMIT;
    struct session_mysql *my = &session->mysql;
    my->compares = my->printed;
    memcpy(my->first_print, my->print, SESSION_PRINT);
    my->printed = false;
    add_command(to, COM_QUERY, (const uint8_t *)query, sizeof query - 1);
}

const char *mysql_unproven(struct session *session) {
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
