/* Tests sessions/ on transcripts: constructed conversations with MySQL, PostgreSQL and Redis, whole, cut and damaged.
 * No server is needed; real ones are tested end to end. Usage: sessions */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "sessions/internal.h"

enum { ROOM = 65536, ROUNDS = 20000 };

static void check_text(const char *got, const char *expected) {
    if (got != expected && (got == NULL || expected == NULL || strcmp(got, expected) != 0)) {
        printf("FAIL  %s: \"%s\" instead of \"%s\"\n", test_name, got != NULL ? got : "(nothing)",
            expected != NULL ? expected : "(nothing)");
        failures++;
    }
}

/* --- writing transcripts ------------------------------------------------------------------------------------------------------------------ */

struct bytes {
    size_t len;
    uint8_t at[ROOM];
};

static void add(struct bytes *to, const void *bytes, size_t len) {
    if (to->len + len > sizeof to->at) {
        abort();
    }
    memcpy(to->at + to->len, bytes, len);
    to->len += len;
}

static void add_text(struct bytes *to, const char *text) {
    add(to, text, strlen(text));
}

/* A packet of MySQL. */
static void my(struct bytes *to, uint8_t sequence, const void *payload, size_t len) {
    uint8_t header[4] = {(uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16), sequence};
    add(to, header, sizeof header);
    add(to, payload, len);
}

static void my_command(struct bytes *to, uint8_t command, const char *text) {
    uint8_t payload[1024] = {command};
    memcpy(payload + 1, text, strlen(text));
    my(to, 0, payload, 1 + strlen(text));
}

static void my_ok(struct bytes *to, uint16_t status) {
    uint8_t ok[7] = {0, 0, 0, (uint8_t)status, (uint8_t)(status >> 8)};
    my(to, 1, ok, sizeof ok);
}

static void my_eof(struct bytes *to, uint8_t sequence, uint16_t status) {
    uint8_t eof[5] = {0xfe, 0, 0, (uint8_t)status, (uint8_t)(status >> 8)};
    my(to, sequence, eof, sizeof eof);
}

/* One column, `count` rows of `text`. */
static void my_rows(struct bytes *to, const char *text, unsigned count, uint16_t status) {
    uint8_t row[256] = {(uint8_t)strlen(text)};
    memcpy(row + 1, text, strlen(text));
    my(to, 1, "\1", 1);
    my(to, 2, "\3def\0\0\0\1a\0\x0c\x3f\0\x10\0\0\0\xfd\1\0\0\0\0", 23);
    my_eof(to, 3, status);
    for (unsigned i = 0; i < count; i++) {
        my(to, (uint8_t)(4 + i), row, 1 + strlen(text));
    }
    my_eof(to, (uint8_t)(4 + count), status);
}

/* A message of PostgreSQL; type 0: none. */
static void pg(struct bytes *to, char type, const void *payload, size_t len) {
    uint32_t length = (uint32_t)len + 4;
    uint8_t header[5] = {(uint8_t)type, (uint8_t)(length >> 24), (uint8_t)(length >> 16),
        (uint8_t)(length >> 8), (uint8_t)length};
    add(to, header + (type == 0), sizeof header - (type == 0));
    add(to, payload, len);
}

static void pg_query(struct bytes *to, const char *text) {
    pg(to, 'Q', text, strlen(text) + 1);
}

static void pg_done(struct bytes *to, const char *tag, char status) {
    pg(to, 'C', tag, strlen(tag) + 1);
    pg(to, 'Z', &status, 1);
}

/* The number, the server process, and the result of setseed(): nothing. */
static void pg_proof(struct bytes *to, const char *number, const char *process) {
    uint8_t row[64] = {0, 3, 0, 0, 0, (uint8_t)strlen(number)};
    size_t len = 6 + strlen(number);
    memcpy(row + 6, number, strlen(number));
    row[len + 3] = (uint8_t)strlen(process);
    memcpy(row + len + 4, process, strlen(process));
    pg(to, 'T', "\0\3", 2);
    pg(to, 'D', row, len + 4 + strlen(process) + 4);
}

static void pg_row(struct bytes *to, const char *text) {
    uint8_t row[64] = {0, 1, 0, 0, 0, (uint8_t)strlen(text)};
    memcpy(row + 6, text, strlen(text));
    pg(to, 'T', "\0\1a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0", 22);
    pg(to, 'D', row, 6 + strlen(text));
}

/* --- the three servers as far as they matter here --------------------------------------------------------------------------------------- */

static const uint8_t nonce[] = "00112233445566ff";

struct server {
    const char *name;
    void (*login)(struct session *session);
    /* Says settings; then a request that leaves much behind, and its answers. */
    void (*initialise)(struct session *session);
    void (*request)(struct bytes *asked, struct bytes *answered);
    /* The right answer to the reset. */
    void (*answer)(struct bytes *to, const char *number);
    const char *reset; /* the texts that it must contain, in this order, separated by | */
};

static void say(struct session *session, const struct bytes *asked, const struct bytes *answered) {
    session_sent(session, asked->at, asked->len);
    session_received(session, answered->at, answered->len);
}

static void my_login_with(struct session *session, uint32_t capabilities) {
    static struct bytes greeting, response, ok;
    greeting.len = response.len = ok.len = 0;
    uint8_t hello[60] = {10, '1', '0', '.', '1', '1', 0};
    my(&greeting, 0, hello, sizeof hello);
    uint8_t body[128] = {(uint8_t)capabilities, (uint8_t)(capabilities >> 8),
        (uint8_t)(capabilities >> 16), (uint8_t)(capabilities >> 24)};
    memcpy(body + 32, "root\0\3abcshop\0mysql_native_password", 36);
    my(&response, 1, body, 32 + 36);
    my_ok(&ok, 2);
    session_received(session, greeting.at, 4); /* mysqlnd reads header and packet by themselves */
    session_received(session, greeting.at + 4, greeting.len - 4);
    say(session, &response, &ok);
}

static void my_login(struct session *session) {
    my_login_with(session, 0x0008 | 0x0200 | 0x8000 | 1 << 16);
}

static void my_initialise(struct session *session) {
    static struct bytes asked, answered;
    asked.len = answered.len = 0;
    my_command(&asked, 3, "set names 'utf8mb4'");
    my_ok(&answered, 2);
    say(session, &asked, &answered);
    asked.len = answered.len = 0;
    my_command(&asked, 0x16, "set session sql_mode='STRICT_ALL_TABLES'");
    my(&answered, 1, "\0\1\0\0\0\0\0\0\0\0\0\0", 12);
    say(session, &asked, &answered);
    asked.len = answered.len = 0;
    my(&asked, 0, "\x17\1\0\0\0\0\1\0\0\0", 10);
    my_ok(&answered, 2);
    say(session, &asked, &answered);
    asked.len = 0;
    my(&asked, 0, "\x19\1\0\0\0", 5);
    session_sent(session, asked.at, asked.len);
}

static void my_request(struct bytes *asked, struct bytes *answered) {
    my_command(asked, 3, "begin");
    my_ok(answered, 3);
    my_command(asked, 3, "select a from t; select b from t");
    my_rows(answered, "row", 3, 2 | 8);
    my_rows(answered, "other", 0, 3);
    my_command(asked, 0x16, "select ? from t");
    my(answered, 1, "\0\5\0\0\0\1\0\1\0\0\0\0", 12);
    my(answered, 2, "\3def\0\0\0\1?", 9);
    my_eof(answered, 3, 2);
    my(answered, 4, "\3def\0\0\0\1?", 9);
    my_eof(answered, 5, 2);
    my_command(asked, 3, "selct");
    my(answered, 1, "\xff\x28\4#42000no", 11);
}

/* The bytes written last, which the answers are for. */
static uint8_t reset[SESSION_RESET];
static size_t reset_len;

static const char another_name[] = "0123456789abcdef0123456789abcdef";

/* A proof: the number, then the session's user and state. */
static void my_proof(struct bytes *to, const char *number, const char *who, const char *shown) {
    const char *const columns[] = {number, who, shown};
    uint8_t row[512];
    size_t len = 0;
    my(to, 1, "\3", 1);
    for (uint8_t i = 0; i < 3; i++) {
        row[len] = (uint8_t)strlen(columns[i]);
        memcpy(row + len + 1, columns[i], row[len]);
        len += 1u + row[len];
        my(to, 2 + i, "\3def\0\0\0\1a\0\x0c\x3f\0\x10\0\0\0\xfd\1\0\0\0\0", 23);
    }
    my_eof(to, 5, 2);
    my(to, 6, row, len);
    my_eof(to, 7, 2);
}

/* The answer about a session's database: after COM_RESET_CONNECTION only, and after the whole reset, with the
 * database's name. `who`: a user other than the first. */
struct shown {
    const char *before, *after, *name, *who;
};
static const struct shown home = {
    .before = "latin1_swedish_ci shop", .after = "latin1_swedish_ci shop", .name = "shop"};

/* Answers each command that was written last. */
static void my_answer_showing(struct bytes *to, const char *number, struct shown shown) {
    static const char proof[] = "\3SELECT '0011";
    const char *who = shown.who != NULL ? shown.who : another_name;
    bool first = true;
    for (size_t at = 0; at < reset_len;) {
        size_t len = reset[at] + ((size_t)reset[at + 1] << 8);
        const uint8_t *command = reset + at + 4;
        if (len < sizeof proof || memcmp(command, proof, sizeof proof - 1) != 0) {
            my_ok(to, 2);
        } else if (memmem(command, len, "@@collation_database,", 21) == NULL) {
            my_proof(to, number, who, shown.name);
        } else {
            my_proof(to, number, who, first ? shown.before : shown.after);
            first = false;
        }
        at += 4 + len;
    }
}

static void my_answer(struct bytes *to, const char *number) {
    my_answer_showing(to, number, home);
}

static void pg_login(struct session *session) {
    static struct bytes asked, answered;
    asked.len = answered.len = 0;
    pg(&asked, 0, "\4\xd2\x16\x2f", 4); /* SSLRequest */
    session_sent(session, asked.at, asked.len);
    session_received(session, "N", 1);
    asked.len = 0;
    pg(&asked, 0, "\0\3\0\0user\0me\0\0", 13);
    pg(&answered, 'R', "\0\0\0\3", 4);
    say(session, &asked, &answered);
    asked.len = answered.len = 0;
    pg(&asked, 'p', "sehr geheim", 12);
    pg(&answered, 'R', "\0\0\0\0", 4);
    pg(&answered, 'S', "TimeZone\0UTC", 13);
    pg(&answered, 'K', "\0\0\0\1\0\0\0\2", 8);
    pg(&answered, 'Z', "I", 1);
    say(session, &asked, &answered);
}

static void pg_initialise(struct session *session) {
    static struct bytes asked, answered;
    asked.len = answered.len = 0;
    pg(&asked, 'P', "s1\0set search_path to shop\0\0\0", 29);
    pg(&asked, 'S', "", 0);
    pg(&answered, '1', "", 0);
    pg(&answered, 'Z', "I", 1);
    pg(&asked, 'B', "\0s1\0\0\0\0\0\0\0", 10);
    pg(&asked, 'E', "\0\0\0\0\0", 5);
    pg(&asked, 'S', "", 0);
    pg(&answered, '2', "", 0);
    pg_done(&answered, "SET", 'I');
    pg_query(&asked, "DEALLOCATE s1");
    pg_done(&answered, "DEALLOCATE", 'I');
    say(session, &asked, &answered);
}

static void pg_request(struct bytes *asked, struct bytes *answered) {
    pg_query(asked, "begin");
    pg_done(answered, "BEGIN", 'T');
    pg_query(asked, "select a from t");
    pg_row(answered, "row");
    pg_done(answered, "SELECT 1", 'T');
    pg_query(asked, "selct");
    pg(answered, 'E', "SERROR\0\0", 8);
    pg(answered, 'Z', "E", 1);
    pg(answered, 'A', "\0\0\0\1ch\0\0", 8);
}

static void pg_answer(struct bytes *to, const char *number) {
    pg_done(to, "ROLLBACK", 'I');
    pg(to, 'S', "TimeZone\0UTC", 13);
    pg_done(to, "DISCARD ALL", 'I');
    pg(to, '1', "", 0);
    pg(to, 'Z', "I", 1);
    pg(to, '2', "", 0);
    pg_done(to, "SET", 'I');
    pg_done(to, "DEALLOCATE", 'I');
    pg_proof(to, number, "4711");
    pg_done(to, "SELECT 1", 'I');
}

static void redis_login(struct session *session) {
    static const char auth[] = "*2\r\n$4\r\nAUTH\r\n$6\r\ngeheim\r\n";
    session_sent(session, auth, sizeof auth - 1);
    session_received(session, "+OK\r\n", 5);
}

static void redis_initialise(struct session *session) {
    static const char select[] = "*2\r\n$6\r\nselect\r\n$1\r\n2\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    session_sent(session, select, sizeof select - 1);
    session_received(session, "+OK\r\n$-1\r\n", 10);
}

static void redis_request(struct bytes *asked, struct bytes *answered) {
    add_text(asked, "*1\r\n$5\r\nMULTI\r\n");
    add_text(answered, "+OK\r\n");
    add_text(asked, "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$3\r\n\r\nb\r\n");
    add_text(answered, "*3\r\n$3\r\n\r\nx\r\n:12\r\n*2\r\n$-1\r\n*0\r\n");
    add_text(asked, "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n");
    add_text(answered,
        "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n1\r\n");
    add_text(asked, "*1\r\n$3\r\nBAD\r\n");
    add_text(answered, "-ERR unknown command that is described in more than forty characters\r\n");
}

static void redis_answer(struct bytes *to, const char *number) {
    add_text(to, "+RESET\r\n+OK\r\n+OK\r\n$16\r\n");
    add_text(to, number);
    add_text(to, "\r\n");
}

static const struct server servers[] = {
    {"MySQL", my_login, my_initialise, my_request, my_answer,
        "\x1f|shop|set names 'utf8mb4'|sql_mode|SELECT '00112233445566ff',|DATABASE()"},
    {"PostgreSQL", pg_login, pg_initialise, pg_request, pg_answer,
        "ROLLBACK|DISCARD ALL|set search_path to shop|DEALLOCATE s1|SELECT '00112233445566ff'|"
        "setseed('0.8899001122334422')"},
    {"Redis", redis_login, redis_initialise, redis_request, redis_answer,
        "RESET|AUTH|geheim|select|ECHO|00112233445566ff"},
};
enum { SERVERS = sizeof servers / sizeof *servers };

/* --- helpers ----------------------------------------------------------------------------------------------------------------------------- */

static struct session session, twin;
static struct bytes asked, answered;

static void learned(const struct server *server) {
    session_begin(&session, true);
    server->login(&session);
    server->initialise(&session);
    check_text(session_learn(&session), NULL);
    check_text(session_protocol_name(session_protocol(&session)), server->name);
}

static void requested(const struct server *server) {
    asked.len = answered.len = 0;
    server->request(&asked, &answered);
    say(&session, &asked, &answered);
}

static size_t write_reset(void) {
    reset_len = session_write_reset(&session, nonce, reset);
    return reset_len;
}

static bool contains_in_order(const uint8_t *bytes, size_t len, const char *parts) {
    const uint8_t *end = bytes + len;
    while (*parts != 0) {
        size_t part = strcspn(parts, "|");
        const uint8_t *found = memmem(bytes, (size_t)(end - bytes), parts, part);
        if (found == NULL) {
            return false;
        }
        bytes = found + part;
        parts += part + (parts[part] == '|');
    }
    return true;
}

static unsigned seed = 1;
static unsigned draw(unsigned below) {
    seed = seed * 1103515245 + 12345;
    return (seed >> 16 & 0x7fff) % below;
}

/* --- tests ------------------------------------------------------------------------------------------------------------------------------- */

static void a_used_session_is_put_back_and_proves_it(void) {
    for (int i = 0; i < SERVERS; i++) {
        learned(&servers[i]);
        check(!session_is_used(&session), "learning uses nothing");
        for (int turn = 0; turn < 3; turn++) {
            requested(&servers[i]);
            check(session_is_used(&session), "the request used it");
            check_text(session_doubt(&session), NULL);
            size_t len = write_reset();
            check(contains_in_order(reset, len, servers[i].reset), "the reset says what it must");
            check(!session_is_used(&session), "a reset is no use");
            answered.len = 0;
            servers[i].answer(&answered, (const char *)nonce);
            check(session_judge(&session, answered.at, answered.len) == SESSION_CLEAN, "clean");
        }
    }
}

static void pieces_of_any_size_mean_the_same(void) {
    for (int i = 0; i < SERVERS; i++) {
        learned(&servers[i]);
        asked.len = answered.len = 0;
        servers[i].request(&asked, &answered);
        for (size_t at = 0; at < asked.len; at++) {
            session_sent(&session, asked.at + at, 1);
        }
        for (size_t at = 0; at < answered.len; at++) {
            session_received(&session, answered.at + at, 1);
        }
        check_text(session_doubt(&session), NULL);
        write_reset();
        answered.len = 0;
        servers[i].answer(&answered, (const char *)nonce);
        for (size_t at = 0; at + 1 < answered.len; at++) {
            check(session_judge(&session, answered.at + at, 1) == SESSION_WAIT, "not yet");
        }
        check(session_judge(&session, answered.at + answered.len - 1, 1) == SESSION_CLEAN, "clean");
    }
}

static void what_is_half_said_or_half_read_is_a_doubt(void) {
    for (int i = 0; i < SERVERS; i++) {
        asked.len = answered.len = 0;
        servers[i].request(&asked, &answered);
        learned(&servers[i]);
        session_sent(&session, asked.at, asked.len - 1);
        check_text(session_doubt(&session), DOUBT_HALF_SENT);
        check(write_reset() == 0, "no reset behind half a command");
        learned(&servers[i]);
        session_sent(&session, asked.at, asked.len);
        session_received(&session, answered.at, answered.len - 1);
        check_text(session_doubt(&session), DOUBT_HALF_READ);
        learned(&servers[i]);
        session_sent(&session, asked.at, asked.len);
        check_text(session_doubt(&session), DOUBT_HALF_READ);
    }
}

static void an_answer_of_before_is_not_taken_for_the_resets(void) {
    for (int i = 0; i < SERVERS; i++) {
        learned(&servers[i]);
        requested(&servers[i]);
        write_reset();
        answered.len = 0;
        asked.len = 0;
        servers[i].request(&asked, &answered); /* answers that were still under way */
        servers[i].answer(&answered, (const char *)nonce);
        check(session_judge(&session, answered.at, answered.len) == SESSION_WRONG, "wrong");
    }
}

static void another_number_more_or_less_is_never_clean(void) {
    for (int i = 0; i < SERVERS; i++) {
        learned(&servers[i]);
        requested(&servers[i]);
        write_reset();
        twin = session;
        answered.len = 0;
        servers[i].answer(&answered, "00112233445566fe");
        check(session_judge(&session, answered.at, answered.len) == SESSION_WRONG, "number");
        answered.len = 0;
        servers[i].answer(&answered, "00112233445566ff0");
        session = twin;
        check(session_judge(&session, answered.at, answered.len) == SESSION_WRONG, "longer");
        answered.len = 0;
        servers[i].answer(&answered, (const char *)nonce);
        for (size_t len = 0; len < answered.len; len++) {
            session = twin;
            check(session_judge(&session, answered.at, len) == SESSION_WAIT, "less");
        }
        session = twin;
        answered.at[answered.len] = answered.at[0];
        check(session_judge(&session, answered.at, answered.len + 1) != SESSION_CLEAN, "more");
    }
}

static void errors_in_the_answer_are_wrong(void) {
    learned(&servers[0]);
    write_reset();
    answered.len = 0;
    my_ok(&answered, 2);
    my(&answered, 1, "\xff\x28\4#42000no", 11);
    check(session_judge(&session, answered.at, answered.len) == SESSION_WRONG, "MySQL");
    learned(&servers[1]);
    write_reset();
    answered.len = 0;
    pg(&answered, 'E', "SERROR\0\0", 8);
    check(session_judge(&session, answered.at, answered.len) == SESSION_WRONG, "PostgreSQL");
    learned(&servers[2]);
    write_reset();
    static const char redis[] = "-ERR unknown command 'RESET'\r\n";
    check(session_judge(&session, redis, sizeof redis - 1) == SESSION_WRONG, "Redis");
}

/* Anybody may change a byte: the answer is never clean unless the number is in it and all before it is answered. */
static void damaged_transcripts_do_no_harm(void) {
    for (int round = 0; round < ROUNDS; round++) {
        const struct server *server = &servers[round % SERVERS];
        learned(server);
        asked.len = answered.len = 0;
        server->request(&asked, &answered);
        struct bytes *damaged = draw(2) ? &asked : &answered;
        for (unsigned n = draw(4); n > 0; n--) {
            damaged->at[draw((unsigned)damaged->len)] = (uint8_t)draw(256);
        }
        damaged->len -= draw(2) ? draw((unsigned)damaged->len) : 0;
        session_sent(&session, asked.at, asked.len);
        session_received(&session, answered.at, answered.len);
        if (write_reset() == 0) {
            check(session_doubt(&session) != NULL, "it says why");
            continue;
        }
        answered.len = 0;
        server->answer(&answered, (const char *)nonce);
        size_t at = draw((unsigned)answered.len);
        uint8_t was = answered.at[at];
        answered.at[at] = (uint8_t)draw(256);
        bool has_nonce = memmem(answered.at, answered.len, nonce, SESSION_NONCE) != NULL;
        enum session_verdict verdict = session_judge(&session, answered.at, answered.len);
        check(verdict != SESSION_CLEAN || has_nonce, "clean without the number");
        check(verdict != SESSION_CLEAN || answered.at[at] == was || session_doubt(&session) == NULL,
            "clean and in doubt");
    }
}

static void noise_is_no_database(void) {
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t noise[256];
        for (size_t i = 0; i < sizeof noise; i++) {
            noise[i] = (uint8_t)draw(256);
        }
        static const uint8_t starts[][6] = {
            {60, 0, 0, 0, 10, '5'}, {0, 0, 0, 8, 4, 0xd2}, {'*', '1', '\r', '\n', '$', '1'}};
        memcpy(noise, starts[round % 3], 6);
        session_begin(&session, true);
        for (int turn = 0; turn < 8; turn++) {
            size_t from = draw(128);
            if ((turn + (round % 3 != 0)) % 2) {
                session_sent(&session, noise + (turn ? from : 0), 1 + draw(100));
            } else {
                session_received(&session, noise + (turn ? from : 0), 1 + draw(100));
            }
        }
        if (session_learn(&session) == NULL) {
            check(session_protocol(&session) == SESSION_REDIS, "only Redis has no login");
        }
        session_write_goodbye(&session, reset);
    }
}

static void my_asked(uint8_t what, const char *text, uint16_t status) {
    asked.len = answered.len = 0;
    my_command(&asked, what, text);
    if (what == 0x16) {
        my(&answered, 1, "\0\1\0\0\0\0\0\0\0\0\0\0", 12);
    } else {
        my_ok(&answered, status);
    }
    if (status & 8) {
        my_ok(&answered, 2);
    }
    say(&session, &asked, &answered);
}

static void what_cannot_be_kept_says_why(void) {
    static const struct {
        const char *sql, *why;
    } statements[] = {
        {"select 1", NULL},
        {"SELECT VERSION(), @@sql_mode", NULL},
        {"set time_zone = '+01:00'; set names utf8", NULL},
        {"insert into t values (1)", "its initialisation does more than settings"},
        {"set a = 1; delete from t", "its initialisation does more than settings"},
        {"select get_lock('a', 1)", "its initialisation does more than settings"},
        {"select nextval ('s')", "its initialisation does more than settings"},
        {"set global max_connections = 1", "its initialisation does more than settings"},
        {"select 1 into outfile 'x'", "its initialisation does more than settings"},
        {"/*! set global x = 1 */", "its initialisation does more than settings"},
        {"(select 1)", "its initialisation does more than settings"},
        {"select pg_catalog . \"current_setting\" ('a'), `version`\r\n()", NULL},
        {"set sql_mode = (select concat(@@sql_mode, ',ANSI'))", NULL},
        {"select \"audit_login\"()", "its initialisation does more than settings"},
        {"select `shop`.`log_login` ()", "its initialisation does more than settings"},
        {"select \"my version \"()", "its initialisation does more than settings"},
        {"select pg_catalog.\"nextval\"\f('s')", "its initialisation does more than settings"},
        {"select audit_login\r\n()", "its initialisation does more than settings"},
        {"select version$()", "its initialisation does more than settings"},
    };
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        session_begin(&session, true);
        my_login(&session);
        asked.len = answered.len = 0;
        my_command(&asked, 3, statements[i].sql);
        my_ok(&answered, 2);
        say(&session, &asked, &answered);
        check_text(session_learn(&session), statements[i].why);
        session_begin(&session, true);
        pg_login(&session);
        asked.len = answered.len = 0;
        pg_query(&asked, statements[i].sql);
        pg_done(&answered, "x", 'I');
        say(&session, &asked, &answered);
        check_text(session_learn(&session), statements[i].why);
    }
    session_begin(&session, true);
    my_login(&session);
    asked.len = answered.len = 0;
    my_command(&asked, 0x16, "select 1");
    my(&answered, 1, "\0\1\0\0\0\0\0\0\0\0\0\0", 12);
    say(&session, &asked, &answered);
    check_text(session_learn(&session), "it holds a prepared statement");
    session_begin(&session, true);
    my_login(&session);
    asked.len = answered.len = 0;
    my_command(&asked, 3, "set autocommit=0");
    my_ok(&answered, 1);
    say(&session, &asked, &answered);
    check_text(session_learn(&session), "it is in a transaction");
    session_begin(&session, true);
    my_login_with(&session, 0x200 | 0x20);
    check_text(session_learn(&session), "it is compressed");
    session_begin(&session, true);
    redis_login(&session);
    session_sent(&session, "*1\r\n$5\r\nMULTI\r\n", 15);
    session_received(&session, "+OK\r\n", 5);
    check_text(session_learn(&session), "its initialisation has a command that cannot be repeated");
    session_begin(&session, false);
    redis_login(&session);
    check_text(session_learn(&session), "its beginning was not seen");
}

/* One command whose answer has no data. */
static void one_command(int server, const char *text) {
    asked.len = answered.len = 0;
    if (server == 0) {
        my_command(&asked, 3, text);
        my_ok(&answered, 2);
    } else if (server == 1) {
        pg_query(&asked, text);
        pg_done(&answered, "x", 'I');
    } else {
        char command[128];
        snprintf(command, sizeof command, "*1\r\n$%zu\r\n%s\r\n", strlen(text), text);
        add_text(&asked, command);
        add_text(&answered, "+OK\r\n");
    }
}

static void what_was_refused_once_is_refused_at_each_later_look(void) {
    static const char *const said[SERVERS] = {
        "create temporary table t (a int)", "create temp table t (a int)", "MULTI"};
    static const char *const harmless[SERVERS] = {"set role limited", "set role limited", "PING"};
    for (int i = 0; i < SERVERS; i++) {
        const char *why = i == 2 ? "its initialisation has a command that cannot be repeated"
                                 : "its initialisation does more than settings";
        session_begin(&session, true);
        servers[i].login(&session);
        servers[i].initialise(&session);
        one_command(i, said[i]);
        say(&session, &asked, &answered);
        for (int look = 0; look < 3; look++) {
            check_text(session_learn(&session), why);
            check(write_reset() == 0, "what is not learned has no reset");
            one_command(i, harmless[i]);
            say(&session, &asked, &answered);
        }
        /* the same of one that was learned before */
        learned(&servers[i]);
        one_command(i, said[i]);
        say(&session, &asked, &answered);
        check_text(session_learn(&session), why);
        check_text(session_learn(&session), why);
        check(write_reset() == 0, "what is not learned any more has no reset");
        check(session.record_len == 0, "its record is forgotten");
    }
}

/* Another connection is asked for while this one sends its initialisation. */
static void a_look_in_the_midst_of_an_initialisation_loses_nothing_of_it(void) {
    for (int i = 0; i < SERVERS; i++) {
        session_begin(&session, true);
        servers[i].login(&session);
        servers[i].initialise(&session);
        one_command(i, i == 2 ? "READONLY" : "set a = 1");
        session_sent(&session, asked.at, asked.len - 1);
        check_text(session_learn(&session), DOUBT_HALF_SENT);
        session_sent(&session, asked.at + asked.len - 1, 1);
        check_text(session_learn(&session), DOUBT_HALF_READ);
        check(write_reset() == 0, "what is not learned has no reset");
        session_received(&session, answered.at, answered.len);
        check_text(session_learn(&session), NULL);
        size_t len = write_reset();
        check(len > 0 && memmem(reset, len, asked.at, asked.len) != NULL, servers[i].name);
        static const char *const before[SERVERS] = {"utf8mb4", "search_path", "select"};
        check(contains_in_order(reset, len, before[i]), servers[i].name);
    }
    session_begin(&session, true);
    my_login(&session);
    my_asked(3, "set autocommit=0", 3);
    check_text(session_learn(&session), "it is in a transaction");
    my_asked(0x16, "set a = 2", 2);
    asked.len = answered.len = 0;
    my_command(&asked, 0x0e, "");
    my_ok(&answered, 2);
    say(&session, &asked, &answered);
    check_text(session_learn(&session), "it holds a prepared statement");
    session_sent(&session, "\5\0\0\0\x19\1\0\0\0", 9);
    check_text(session_learn(&session), NULL);
    check(contains_in_order(reset, write_reset(), "set autocommit=0|set a = 2"), "all of it");
    session_begin(&session, true);
    pg_login(&session);
    asked.len = answered.len = 0;
    pg_query(&asked, "begin");
    pg_done(&answered, "BEGIN", 'T');
    say(&session, &asked, &answered);
    check_text(session_learn(&session), "it is in a transaction");
    one_command(1, "commit");
    say(&session, &asked, &answered);
    check_text(session_learn(&session), "its initialisation does more than settings");
}

static void what_was_said_in_confidence_is_forgotten_at_the_end(void) {
    session_begin(&session, true);
    redis_login(&session);
    session_sent(&session, "*1\r\n", 4);
    check_text(session_learn(&session), DOUBT_HALF_SENT);
    session_end(&session);
    check(memmem(&session, sizeof session, "geheim", 6) == NULL, "of one that was not learned");
    learned(&servers[2]);
    session_end(&session);
    check(memmem(&session, sizeof session, "geheim", 6) == NULL, "of one that was learned");
}

static void encryption_is_seen_wherever_it_begins(void) {
    session_begin(&session, true);
    session_sent(&session, "\x16\3\1\2\0\1", 6);
    check(session_protocol(&session) == SESSION_TLS, "at once");
    session_begin(&session, true);
    my_login_with(&session, 0x200 | 0x800);
    check(session_protocol(&session) == SESSION_TLS, "MySQL");
    session_begin(&session, true);
    session_sent(&session, "\0\0\0\x08\4\xd2\x16\x2f", 8);
    session_received(&session, "S", 1);
    check(session_protocol(&session) == SESSION_TLS, "PostgreSQL");
    check_text(session_learn(&session), "it is encrypted");
    session_begin(&session, true);
    session_sent(&session, "GET / HTTP/1.1\r\n", 16);
    check(session_protocol(&session) == SESSION_FOREIGN, "HTTP");
    session_begin(&session, true);
    session_received(&session, "220 mail ESMTP\r\n", 16);
    check(session_protocol(&session) == SESSION_FOREIGN, "SMTP");
}

/* postgresql.org/docs/18/protocol-overview.html#PROTOCOL-VERSIONS: a server answers a minor version that it does not know with its newest. */
static void each_minor_version_of_postgresql_is_followed(void) {
    for (char minor = 0; minor <= 3; minor++) {
        const char start[] = "\0\3\0\0user\0me\0";
        uint8_t begin[sizeof start];
        memcpy(begin, start, sizeof start);
        begin[3] = (uint8_t)minor;
        uint8_t key[4 + 32] = {0, 0, 0, 1}; /* 3.2 has longer keys */
        session_begin(&session, true);
        asked.len = answered.len = 0;
        pg(&asked, 0, begin, sizeof begin);
        pg(&answered, 'v', "\0\3\0\2\0\0\0\0", 8);
        pg(&answered, 'R', "\0\0\0\0", 4);
        pg(&answered, 'K', key, minor < 2 ? 8 : sizeof key);
        pg(&answered, 'Z', "I", 1);
        say(&session, &asked, &answered);
        check(session_protocol(&session) == SESSION_POSTGRES, "recognised");
        pg_initialise(&session);
        check_text(session_learn(&session), NULL);
        size_t len = write_reset();
        check(contains_in_order(reset, len, "DISCARD ALL|search_path|SELECT"), "its reset");
        answered.len = 0;
        pg_done(&answered, "DISCARD ALL", 'I');
        pg(&answered, '1', "", 0);
        pg(&answered, 'Z', "I", 1);
        pg(&answered, '2', "", 0);
        pg_done(&answered, "SET", 'I');
        pg_done(&answered, "DEALLOCATE", 'I');
        pg_proof(&answered, (const char *)nonce, "7");
        pg_done(&answered, "SELECT 1", 'I');
        check(session_judge(&session, answered.at, answered.len) == SESSION_CLEAN, "clean");
    }
    session_begin(&session, true);
    session_sent(&session, "\0\0\0\x0c\0\2\0\0", 8);
    check(session_protocol(&session) == SESSION_FOREIGN, "another major version");
}

/* DISCARD ALL keeps the origin, and only superusers could query it. */
static void a_session_with_a_replication_origin_is_not_reset(void) {
    static const struct {
        const char *sql;
        bool spoils;
    } cases[] = {
        {"select pg_replication_origin_session_setup('a')", true},
        {"SELECT PG_Replication_Origin_Session_Setup('a')", true},
        {"select pg_catalog.\"pg_replication_origin_session_setup\"('a')", true},
        {"select pg_reppg_replication_origin_session_setup('a')", true},
        {"select pg_replication_origin_session_reset()", false},
        {"select pg_replication_origin_session_is_setup()", false},
        {"select 'pg_replication_origin', 'session_setup'", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t piece = 1; piece <= 64; piece += 9) {
            session_begin(&session, true);
            pg_login(&session);
            asked.len = answered.len = 0;
            pg_query(&asked, cases[i].sql);
            for (size_t at = 0; at < asked.len; at += piece) {
                size_t rest = asked.len - at;
                session_sent(&session, asked.at + at, rest < piece ? rest : piece);
            }
            const char *doubt = session_doubt(&session);
            check((doubt != NULL && strstr(doubt, "replication origin") != NULL) == cases[i].spoils,
                cases[i].sql);
        }
    }
}

static void passwords_are_not_kept(void) {
    learned(&servers[1]);
    check(memmem(&session, sizeof session, "sehr geheim", 11) == NULL, "PostgreSQL's");
    learned(&servers[2]);
    check(memmem(session.record, sizeof session.record, "geheim", 6) == NULL, "Redis's record");
}

enum sha2 { FAST, SWITCHED, BY_KEY };

/* caching_sha2_password, MySQL's default since 8.0. The server knows the password already, or requests this method
 * instead of another, or sends its key so that the password is encrypted with it. dev.mysql.com/doc/dev/mysql-server,
 * "Caching_sha2_password information". */
static void my_login_by_sha2(enum sha2 way) {
    static const char plugin[] = "caching_sha2_password";
    static struct bytes packet;
    uint8_t hello[80] = {10, '9', '.', '7', 0};
    uint8_t response[160] = {0x08, 0x82, 0x09}; /* with a database, 4.1, secure, plugins */
    memcpy(response + 32, "root\0\40", 6);
    memset(response + 38, 0xaa, 32);
    size_t len = 32 + 6 + 32;
    memcpy(response + len, "shop\0caching_sha2_password", 5 + sizeof plugin);
    len += 5 + sizeof plugin;
    uint8_t scramble[256];
    memset(scramble, 0xbb, sizeof scramble);
    uint8_t sequence = 0;
#define SERVER(bytes, count)                                                                       \
    (packet.len = 0, my(&packet, sequence++, bytes, count),                                        \
        session_received(&session, packet.at, packet.len))
#define CLIENT(bytes, count)                                                                       \
    (packet.len = 0, my(&packet, sequence++, bytes, count),                                        \
        session_sent(&session, packet.at, packet.len))
    SERVER(hello, sizeof hello);
    CLIENT(response, len);
    if (way == SWITCHED) {
        uint8_t other[1 + sizeof plugin + 21] = {0xfe};
        memcpy(other + 1, plugin, sizeof plugin);
        SERVER(other, sizeof other);
        CLIENT(scramble, 32);
    }
    if (way == BY_KEY) {
        static const char key[] = "\1-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n";
        SERVER("\1\4", 2);
        CLIENT("\2", 1);
        SERVER(key, sizeof key - 1);
        CLIENT(scramble, sizeof scramble);
    } else {
        SERVER("\1\3", 2);
    }
    check_text(session_doubt(&session), "its login is not complete");
    SERVER("\0\0\0\2\0\0\0", 7);
#undef SERVER
#undef CLIENT
}

static void each_way_to_log_in_by_sha2_is_followed_and_forgotten(void) {
    for (enum sha2 way = FAST; way <= BY_KEY; way++) {
        session_begin(&session, true);
        my_login_by_sha2(way);
        check_text(session_doubt(&session), NULL);
        my_initialise(&session);
        check_text(session_learn(&session), NULL);
        uint8_t scramble[32];
        for (int value = 0xaa; value <= 0xbb; value += 0x11) {
            memset(scramble, value, sizeof scramble);
            check(memmem(&session, sizeof session, scramble, sizeof scramble) == NULL, "forgotten");
        }
        size_t len = write_reset();
        check(contains_in_order(reset, len, servers[0].reset), "the reset says what it must");
        answered.len = 0;
        my_answer(&answered, (const char *)nonce);
        check(session_judge(&session, answered.at, answered.len) == SESSION_CLEAN, "clean");
    }
}

static void a_goodbye_is_said_between_commands_only(void) {
    static const char *const words[SERVERS] = {"\1\0\0\0\1", "X\0\0\0\4", ""};
    static const size_t lens[SERVERS] = {5, 5, 0};
    for (int i = 0; i < SERVERS; i++) {
        session_begin(&session, false);
        check(session_write_goodbye(&session, reset) == 0, "without a protocol");
        servers[i].login(&session);
        size_t len = session_write_goodbye(&session, reset);
        check(len == lens[i] && memcmp(reset, words[i], len) == 0, servers[i].name);
        session_sent(&session, "\x20", 1);
        check(session_write_goodbye(&session, reset) == 0, "in a command");
    }
}

static void options_that_a_reset_leaves_are_put_back(void) {
    learned(&servers[0]);
    asked.len = answered.len = 0;
    my(&asked, 0, "\x1b\1\0", 3);
    my_eof(&answered, 1, 2);
    say(&session, &asked, &answered);
    size_t len = write_reset();
    check(memmem(reset, len, "\3\0\0\0\x1b\0\0", 7) != NULL, "statements by the many, again");
}

static bool says_database(void) {
    return memmem(reset, reset_len, "\5\0\0\0\2shop", 9) != NULL;
}

/* Writes a reset, whose proofs show this. Returns NULL, or the doubt. */
static const char *my_judged(struct shown shown) {
    check(write_reset() > 0, "a reset is written");
    answered.len = 0;
    my_answer_showing(&answered, (const char *)nonce, shown);
    return session_judge(&session, answered.at, answered.len) == SESSION_CLEAN
               ? NULL
               : session_doubt(&session);
}

static void the_current_database_is_said_where_a_request_may_have_left_it(void) {
    static const struct {
        uint8_t command;
        const char *text;
        uint16_t status;
        bool says;
    } requests[] = {
        {3, "select 1", 2, false},
        {3, " \n\tInsert into t values (1)", 2, false},
        {0x16, "update t set a = ?", 2, false},
        {3, "commit", 2, false},
        {0x0e, "", 2, false},
        {2, "other", 2, true},
        {3, "use other", 2, true},
        {3, " USE`other`", 2, true},
        {0x16, "use other", 2, true},
        {3, "/*! use other */", 2, true},
        {3, "prepare s from 'use other'", 2, true},
        {3, "set statement max_statement_time=1 for use other", 2, true},
        {3, "selects", 2, true},
        {3, "select 1; use other", 2 | 8, true},
    };
    learned(&servers[0]);
    check_text(my_judged(home), NULL);
    check(says_database(), "the first says it to find out what it does");
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        my_asked(requests[i].command, requests[i].text, requests[i].status);
        check_text(my_judged(home), NULL);
        check(says_database() == requests[i].says, requests[i].text);
    }
    my_asked(3, "select moves()", 2);
    check_text(my_judged((struct shown){.name = "other"}),
        "its reset does not bring its current database back");
}

static void a_session_that_acts_as_another_name_else_is_found_out(void) {
    struct shown other = {.name = "shop", .who = "0123456789abcdef0123456789abcdee"};
    learned(&servers[0]);
    check_text(my_judged(home), NULL);
    my_asked(3, "set role limited", 2);
    check_text(my_judged(other), "its reset does not bring its user and role back (SET ROLE)");
    learned(&servers[0]);
    check_text(my_judged(home), NULL);
    other.who = "";
    check_text(my_judged(other), "the answer to its reset is not the right one");
}

static void what_no_reset_takes_back_ends_its_session(void) {
    static const char xa[] = "the request prepared a transaction (XA PREPARE)";
    static const char profiled[] = "the request had its statements profiled (SET profiling)";
    static const char traced[] = "the request had its statements traced (SET optimizer_trace)";
    static const char seeded[] =
        "the request seeded the random numbers (SET rand_seed1, rand_seed2)";
    static const struct {
        const char *text, *why;
    } requests[] = {
        {"xa prepare 'a'", xa},
        {"XA\n\tPrepare 'a'", xa},
        {"select 1;xa  prepare 'a'", xa},
        {"execute immediate 'xa prepare 1'", xa},
        {"xa start 'prepare'", NULL},
        {"xaprepare 'a'", NULL},
        {"select ixa prepare", NULL},
        {"xa", NULL},
        {"SET profiling = 1", profiled},
        {"set optimizer_trace='enabled=on'", traced},
        {"set session optimizer_trace = 'enabled=on'", traced},
        {"select optimizer_trace from settings", NULL},
        {"set optimizer_trace_limit = 5", NULL},
        {"set sql_mode='ANSI', @@session.Profiling:=1", profiled},
        {"select 1; set `profiling`=1", profiled},
        {"execute immediate 'set profiling=1'", profiled},
        {"select profiling from settings", NULL},
        {"/* app */ SET profiling=1", profiled},
        {"-- one\nset profiling=1", profiled},
        {"/*!50000SET profiling=1*/", profiled},
        {"begin not atomic set profiling=1; end", profiled},
        {"/*!50000XA PREPARE 'a'*/", xa},
        {"update offsets_set, my_settings profiling", NULL},
        {"set profiling_history_size = 0", NULL},
        {"show profiles", NULL},
        {"SET rand_seed1=1, rand_seed2=2", seeded},
        {"set @a=1, @@session.Rand_Seed2 := 2", seeded},
        {"select @@rand_seed1", NULL},
        {"set @rand_seed = rand()", NULL},
        {"p", NULL},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        learned(&servers[0]);
        check_text(my_judged(home), NULL);
        my_asked(3, requests[i].text, 2);
        check_text(session_doubt(&session), requests[i].why);
    }
}

static void what_redis_does_not_reset_ends_its_session(void) {
    static const char stays[] =
        "the request said what RESET leaves (SCRIPT DEBUG, CLIENT NO-EVICT or NO-TOUCH)";
    static const struct {
        const char *text, *why;
    } requests[] = {
        {"*3\r\n$6\r\nSCRIPT\r\n$5\r\nDEBUG\r\n$3\r\nYES\r\n", stays},
        {"*3\r\n$6\r\nclient\r\n$8\r\nno-evict\r\n$2\r\non\r\n", stays},
        {"*3\r\n$6\r\nCLIENT\r\n$4\r\nCAPA\r\n$8\r\nredirect\r\n", stays},
        {"*1\r\n$4\r\nPING\r\n*3\r\n$6\r\nCLIENT\r\n$8\r\nNO-TOUCH\r\n$2\r\nON\r\n", stays},
        {"*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n", NULL},
        {"*2\r\n$6\r\nCLIENT\r\n$5\r\nDEBUG\r\n", NULL},
        {"*3\r\n$3\r\nSET\r\n$6\r\nSCRIPT\r\n$5\r\nDEBUG\r\n", NULL},
        {"*2\r\n$0\r\n\r\n$5\r\nDEBUG\r\n", NULL},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        const char *text = requests[i].text;
        learned(&servers[2]);
        for (const char *at = text; *at != 0; at++) {
            session_sent(&session, at, 1);
        }
        session_received(&session, "+OK\r\n+OK\r\n", i == 2 ? 10 : 5);
        check_text(session_doubt(&session), requests[i].why);
    }
    /* repeated after each reset */
    session_begin(&session, true);
    redis_login(&session);
    session_sent(&session, requests[1].text, strlen(requests[1].text));
    session_received(&session, "+OK\r\n", 5);
    check_text(session_learn(&session), NULL);
    check(write_reset() > 0, "a reset is written");
    check(contains_in_order(reset, reset_len, "RESET|no-evict|ECHO"), "and says it");
    check_text(session.doubt, NULL);
}

static void a_database_with_a_collation_of_its_own_is_said_each_time(void) {
    learned(&servers[0]);
    struct shown own = {.before = home.before, .after = "utf8mb4_bin shop", .name = "shop"};
    check_text(my_judged(own), NULL);
    my_asked(3, "select 1", 2);
    check_text(my_judged(own), NULL);
    check(says_database(), "COM_RESET_CONNECTION takes its collation for the server's");
    static char name[200];
    memset(name, 'n', sizeof name - 1);
    struct shown longest = {.before = name, .after = name, .name = name};
    learned(&servers[0]);
    check_text(my_judged(longest), NULL);
    my_asked(3, "select 1", 2);
    check_text(my_judged(longest), NULL);
    check(says_database(), "of a name that is not seen to its end nothing is guessed");
    longest.name++;
    check_text(my_judged(longest), "its reset does not bring its current database back");
}

/* A database that was never selected cannot be restored. */
static void a_request_that_enters_a_database_from_none_is_found_out(void) {
    session_begin(&session, true);
    my_login_with(&session, 0x0200 | 0x8000);
    check_text(session_learn(&session), NULL);
    struct shown none = {.before = "latin1_swedish_ci", .after = "latin1_swedish_ci", .name = ""};
    check_text(my_judged(none), NULL);
    my_asked(3, "select 1", 2);
    check_text(my_judged(none), NULL);
    my_asked(3, "use shop", 2);
    check_text(my_judged(home), "its reset does not bring its current database back");
    check(!says_database(), "there is nothing to say");
}

static void an_initialisation_that_names_its_database_again_is_not_said(void) {
    static const struct {
        uint8_t command;
        const char *text;
        bool again;
    } initialisations[] = {
        {3, "use `shop`;", false},
        {3, "USE shop", false},
        {2, "shop", false},
        {3, "use Shop", true},
        {3, "use other", true},
        {2, "other", true},
        {3, "use shop; set names utf8", true},
        {3, "set names utf8; use shop", true},
    };
    for (size_t i = 0; i < sizeof initialisations / sizeof *initialisations; i++) {
        const char *text = initialisations[i].text;
        session_begin(&session, true);
        my_login(&session);
        my_asked(initialisations[i].command, text, 2);
        check_text(session_learn(&session), NULL);
        for (int turn = 0; turn < 3; turn++) {
            check_text(my_judged(home), NULL);
            const uint8_t *said = memmem(reset, reset_len, text, strlen(text));
            bool is_said = said != NULL && (turn > 0 || initialisations[i].again);
            check(is_said == initialisations[i].again, text);
            my_asked(3, "select 1", 2);
        }
    }
}

/* The answer to the question: a digest, whether the server runs init_connect, the account's limit. NULL: the value is NULL. */
static void my_print_limited(
    struct bytes *to, const char *digest, const char *begins, const char *limit) {
    const char *const columns[] = {digest, begins, limit};
    uint8_t row[128];
    size_t len = 0;
    my(to, 1, "\3", 1);
    for (uint8_t i = 0; i < 3; i++) {
        size_t text = columns[i] != NULL ? strlen(columns[i]) : 0;
        row[len++] = columns[i] != NULL ? (uint8_t)text : 0xfb;
        memcpy(row + len, columns[i] != NULL ? columns[i] : "", text);
        len += text;
        my(to, 2 + i, "\3def\0\0\0\1a\0\x0c\x3f\0\x10\0\0\0\xfd\1\0\0\0\0", 23);
    }
    my_eof(to, 5, 2);
    my(to, 6, row, len);
    my_eof(to, 7, 2);
}

static void my_print(struct bytes *to, const char *digest, const char *begins) {
    my_print_limited(to, digest, begins, NULL);
}

static void a_reset_that_loses_settings_is_found_before_it_matters(void) {
    static const char before[] = "0123456789abcdef0123456789abcdef";
    static const char other[] = "0123456789abcdef0123456789abcdee";
    for (int right = 0; right < 2; right++) {
        learned(&servers[0]);
        check(session_write_question(&session, reset) > 0, "there is a question");
        answered.len = 0;
        my_print(&answered, before, "0");
        check(session_judge(&session, answered.at, answered.len) == SESSION_CLEAN, "the first");
        check(!session_is_used(&session), "asking is no use");
        write_reset();
        answered.len = 0;
        my_answer(&answered, (const char *)nonce);
        check(session_judge(&session, answered.at, answered.len) == SESSION_CLEAN, "the reset");
        session_write_question(&session, reset);
        answered.len = 0;
        my_print(&answered, right ? before : other, "0");
        enum session_verdict verdict = session_judge(&session, answered.at, answered.len);
        check(verdict == (right ? SESSION_CLEAN : SESSION_WRONG), "the second");
    }
    learned(&servers[0]);
    session_write_question(&session, reset);
    answered.len = 0;
    my_print(&answered, before, "0");
    session_judge(&session, answered.at, answered.len);
    my_initialise(&session);
    check_text(session_learn(&session), NULL);
    session_write_question(&session, reset);
    answered.len = 0;
    my_print(&answered, other, NULL);
    check(session_judge(&session, answered.at, answered.len) == SESSION_CLEAN, "learned again");
    check(session_write_question(&session, reset) > 0, "and again");
    answered.len = 0;
    my_print(&answered, "short", "0");
    check(session_judge(&session, answered.at, answered.len) == SESSION_WRONG, "no digest");
    learned(&servers[1]);
    check(session_write_question(&session, reset) == 0, "PostgreSQL says all of it again");
}

static void a_server_that_says_something_to_each_client_is_not_put_back(void) {
    learned(&servers[0]);
    session_write_question(&session, reset);
    answered.len = 0;
    my_print(&answered, another_name, "1");
    check(session_judge(&session, answered.at, answered.len) == SESSION_WRONG, "init_connect");
    check_text(session_doubt(&session),
        "its reset does not say again what the server says to each client (init_connect)");
}

/* Learns a session of a client with more capabilities, and of an account with a limit for statements. Returns the doubt. */
static const char *my_limited(uint32_t capabilities, const char *limit) {
    session_begin(&session, true);
    my_login_with(&session, 0x0008 | 0x0200 | 0x8000 | 1 << 16 | capabilities);
    my_initialise(&session);
    check_text(session_learn(&session), NULL);
    check(session_write_question(&session, reset) > 0, "there is a question");
    answered.len = 0;
    my_print_limited(&answered, another_name, "0", limit);
    session_judge(&session, answered.at, answered.len);
    return session_doubt(&session);
}

static void what_the_login_sets_is_set_again_before_the_initialisation(void) {
    enum { IGNORE_SPACE = 1 << 8, INTERACTIVE = 1 << 10 };
    static const struct {
        uint32_t capabilities;
        const char *limit, *says;
    } logins[] = {
        {INTERACTIVE, NULL, "\3SET wait_timeout=@@interactive_timeout"},
        {IGNORE_SPACE, NULL, "\3SET sql_mode=CONCAT_WS(',',NULLIF(@@sql_mode,''),'IGNORE_SPACE')"},
        {0, "7.500000", "\3SET max_statement_time=7.500000"},
        {INTERACTIVE | IGNORE_SPACE, "12345678901234567.000000", NULL}, /* one character too many */
        {INTERACTIVE | IGNORE_SPACE, "1234567890123456.000000",
            "\3SET wait_timeout=@@interactive_timeout,sql_mode=CONCAT_WS(',',NULLIF(@@sql_mode,''),"
            "'IGNORE_SPACE'),max_statement_time=1234567890123456.000000"},
        {0, "7.5;SET a=1", NULL},
        {0, NULL, ""},
    };
    for (size_t i = 0; i < sizeof logins / sizeof *logins; i++) {
        const char *says = logins[i].says;
        const char *doubt = my_limited(logins[i].capabilities, logins[i].limit);
        check((doubt == NULL) == (says != NULL), "a number is expected");
        if (says == NULL) {
            continue;
        }
        for (int turn = 0; turn < 2; turn++) {
            check_text(my_judged(home), NULL);
            const uint8_t *at = memmem(reset, reset_len, says, strlen(says));
            const uint8_t *after = memmem(reset, reset_len, "\3set names", 10);
            bool is_before = at != NULL && after != NULL && at < after;
            check(is_before, says);
            if (is_before && *says != 0) {
                const uint8_t *end = at + strlen(says);
                check(end[3] == 0, "the next packet follows");
            } else if (*says == 0) {
                check(memmem(reset, reset_len, "\3SET ", 5) == NULL, "nothing is set");
            }
            my_asked(3, "select 1", 2);
        }
    }
}

/* The answer to the reset of a session of PostgreSQL that was learned. */
static const char *pg_judged(const char *setting, const char *process) {
    check(write_reset() > 0, "a reset is written");
    answered.len = 0;
    pg(&answered, 'S', setting, strlen(setting) + 1 + strlen(setting + strlen(setting) + 1) + 1);
    pg_done(&answered, "DISCARD ALL", 'I');
    pg(&answered, '1', "", 0);
    pg(&answered, 'Z', "I", 1);
    pg(&answered, '2', "", 0);
    pg_done(&answered, "SET", 'I');
    pg_done(&answered, "DEALLOCATE", 'I');
    pg_proof(&answered, (const char *)nonce, process);
    pg_done(&answered, "SELECT 1", 'I');
    return session_judge(&session, answered.at, answered.len) == SESSION_CLEAN
               ? NULL
               : session_doubt(&session);
}

/* The answer to the question whether the database has an enabled login event trigger. */
static const char *pg_asked(const char *exists) {
    check(session_write_question(&session, reset) > 0, "there is a question");
    answered.len = 0;
    pg_row(&answered, exists);
    pg_done(&answered, "SELECT 1", 'I');
    return session_judge(&session, answered.at, answered.len) == SESSION_CLEAN
               ? NULL
               : session_doubt(&session);
}

/* PostgreSQL 17 has event triggers that run at each login. DISCARD ALL does not run them. */
static void a_database_with_login_triggers_is_not_put_back(void) {
    static const struct {
        const char *setting;
        size_t len;
        bool asks;
    } versions[] = {
        {"server_version\00015.14 (Debian 15.14-0+deb12u1)", 45, false},
        {"server_version\00016.9", 20, false},
        {"server_version\00017.6 (Debian 17.6-0+deb13u1)", 43, true},
        {"server_version\00018beta1", 23, true},
        {"server_version_num\000170000", 26, false},
        {"server_version\000", 16, false},
    };
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        for (int right = 0; right < 2; right++) {
            learned(&servers[1]);
            answered.len = 0;
            pg(&answered, 'S', versions[i].setting, versions[i].len);
            session_received(&session, answered.at, answered.len);
            if (!versions[i].asks) {
                check(session_write_question(&session, reset) == 0, versions[i].setting + 15);
                check_text(pg_judged("TimeZone\0UTC", "4711"), NULL);
                continue;
            }
            check_text(pg_asked(right ? "f" : "t"),
                right ? NULL
                      : "its reset does not run the database's login event triggers again (CREATE "
                        "EVENT TRIGGER ... ON login)");
            if (right) {
                check_text(pg_judged("TimeZone\0UTC", "4711"), NULL);
                check_text(pg_asked("f"), NULL);
            }
        }
    }
}

/* PgBouncer turns a client's start-up message into SETs, and in transaction mode changes the server connection. */
static void poolers_that_lose_settings_are_found(void) {
    learned(&servers[1]);
    check_text(pg_judged("TimeZone\0UTC", "4711"), NULL);
    check_text(pg_judged("TimeZone\0UTC", "4711"), NULL);
    check_text(pg_judged("TimeZone\0Asia/Tokyo", "4711"),
        "its reset does not bring back what the client said when it began: say it with SET");
    learned(&servers[1]);
    check_text(pg_judged("in_hot_standby\0on", "4711"), NULL);
    check_text(pg_judged("TimeZone\0UTC", "4712"),
        "a pooler in transaction mode has changed the server behind it");
    learned(&servers[1]);
    check_text(pg_judged("TimeZone\0UTC", "a process that is none"),
        "the answer to its reset is not the right one");
}

/* A proxy lets clients in before it has a server. */
static void a_login_is_no_answer_to_a_command(void) {
    for (int i = 0; i < SERVERS; i++) {
        bool says_login_as_a_command = servers[i].login == redis_login;
        session_begin(&session, true);
        servers[i].login(&session);
        check(session_is_served(&session) == says_login_as_a_command, servers[i].name);
        asked.len = answered.len = 0;
        servers[i].request(&asked, &answered);
        session_sent(&session, asked.at, asked.len);
        check(session_is_served(&session) == says_login_as_a_command, servers[i].name);
        session_received(&session, answered.at, answered.len);
        check(session_is_served(&session), servers[i].name);
    }
}

int main(void) {
    RUN(a_used_session_is_put_back_and_proves_it);
    RUN(pieces_of_any_size_mean_the_same);
    RUN(what_is_half_said_or_half_read_is_a_doubt);
    RUN(an_answer_of_before_is_not_taken_for_the_resets);
    RUN(another_number_more_or_less_is_never_clean);
    RUN(errors_in_the_answer_are_wrong);
    RUN(damaged_transcripts_do_no_harm);
    RUN(noise_is_no_database);
    RUN(what_cannot_be_kept_says_why);
    RUN(what_was_refused_once_is_refused_at_each_later_look);
    RUN(a_look_in_the_midst_of_an_initialisation_loses_nothing_of_it);
    RUN(what_was_said_in_confidence_is_forgotten_at_the_end);
    RUN(encryption_is_seen_wherever_it_begins);
    RUN(each_minor_version_of_postgresql_is_followed);
    RUN(a_session_with_a_replication_origin_is_not_reset);
    RUN(passwords_are_not_kept);
    RUN(each_way_to_log_in_by_sha2_is_followed_and_forgotten);
    RUN(a_goodbye_is_said_between_commands_only);
    RUN(options_that_a_reset_leaves_are_put_back);
    RUN(the_current_database_is_said_where_a_request_may_have_left_it);
    RUN(a_session_that_acts_as_another_name_else_is_found_out);
    RUN(what_no_reset_takes_back_ends_its_session);
    RUN(what_redis_does_not_reset_ends_its_session);
    RUN(a_database_with_a_collation_of_its_own_is_said_each_time);
    RUN(a_request_that_enters_a_database_from_none_is_found_out);
    RUN(an_initialisation_that_names_its_database_again_is_not_said);
    RUN(a_reset_that_loses_settings_is_found_before_it_matters);
    RUN(a_server_that_says_something_to_each_client_is_not_put_back);
    RUN(what_the_login_sets_is_set_again_before_the_initialisation);
    RUN(a_database_with_login_triggers_is_not_put_back);
    RUN(poolers_that_lose_settings_are_found);
    RUN(a_login_is_no_answer_to_a_command);
    printf("sessions: %d tests, %d failed\n", checked, failures);
    return failures > 0;
}
