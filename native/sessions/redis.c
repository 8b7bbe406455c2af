/* Redis and Valkey: RESP2 and RESP3, redis.io/docs/latest/develop/reference/protocol-spec.
 *
 * Invariants
 * - A command is an array of strings, an answer any value, so one reader serves both ways; a push (`>`) is no answer.
 * - Subscriptions answer more than they were asked, so only fewer answers than commands mean that something is under way. Whatever comes too
 *   late is found by the reset: its answers must begin with `+RESET`.
 */
#include <string.h>

#include "sessions/internal.h"

enum { DEPTH = 8 };
#define LONGEST ((uint64_t)1 << 40)

/* --- values ------------------------------------------------------------------------------------------------------------------------------ */

/* Digits of a line behind its type. False: no number. */
static bool line_number(const struct session_values *values, int64_t *number) {
    uint64_t n = 0;
    uint8_t at = 1;
    bool negative = values->line_len > 1 && values->line[1] == '-';
    at += negative;
    if (at >= values->line_len || values->long_line) {
        return false;
    }
    for (; at < values->line_len; at++) {
        if (values->line[at] < '0' || values->line[at] > '9' || n > LONGEST) {
            return false;
        }
        n = n * 10 + (uint64_t)(values->line[at] - '0');
    }
    *number = negative ? -1 : (int64_t)n;
    return true;
}

/* A value is complete. True: it was an outermost one. */
static bool value_ends(struct session_values *values) {
    while (values->depth > 0) {
        if (--values->left[values->depth - 1] > 0) {
            return false;
        }
        values->depth--;
    }
    return true;
}

enum step { MORE, VALUE, GARBLED };

/* A line is complete: starts or ends a value. */
static enum step line_ends(struct session_values *values) {
    uint8_t type = values->line_len > 0 ? values->line[0] : 0;
    int64_t n = 0;
    if (values->depth == 0) {
        values->top = type;
    }
    switch (type) {
    case '+':
    case '-':
    case ':':
    case '_':
    case '#':
    case ',':
    case '(':
        return value_ends(values) ? VALUE : MORE;
    case '$':
    case '=':
    case '!':
        if (!line_number(values, &n)) {
            return GARBLED;
        }
        values->text_len = 0;
        values->text_total = n;
        if (n < 0) {
            return value_ends(values) ? VALUE : MORE;
        }
        values->skip = (uint64_t)n + 2;
        return MORE;
    case '*':
    case '~':
    case '>':
    case '%':
        if (!line_number(values, &n)) {
            return GARBLED;
        }
        if (n <= 0) {
            return value_ends(values) ? VALUE : MORE;
        }
        if (values->depth == DEPTH) {
            return GARBLED;
        }
        values->left[values->depth++] = (uint64_t)n * (type == '%' ? 2 : 1);
        return MORE;
    default:
        return GARBLED;
    }
}

/* A word of a command is complete. RESET of Redis 7.0 leaves what the three do that are looked for; a session that debugs scripts answers any of
 * them wrongly. */
static void look_at_word(struct session_values *values) {
    enum { SCRIPT = 1, CLIENT };
    uint64_t total = (uint64_t)values->text_total;
    size_t len = total < values->text_len ? (size_t)total : values->text_len;
    const uint8_t *text = values->text;
    if (values->words == 0) {
        values->family = word_is(text, len, "SCRIPT")   ? SCRIPT
                         : word_is(text, len, "CLIENT") ? CLIENT
                                                        : 0;
    } else if (values->words == 1 && values->family != 0) {
        values->stays = values->family == SCRIPT
                            ? word_is(text, len, "DEBUG")
                            : word_is(text, len, "NO-EVICT") || word_is(text, len, "NO-TOUCH") ||
                                  /* of Valkey */
                                  word_is(text, len, "CAPA") || word_is(text, len, "IMPORT-SOURCE");
    }
    values->words += values->words < 2;
}

/* Takes bytes until an outermost value is complete. */
static enum step take(struct session_values *values, const uint8_t **at, const uint8_t *end) {
    while (*at < end) {
        if (values->skip > 0) {
            uint64_t have = (uint64_t)(end - *at);
            uint64_t n = have < values->skip ? have : values->skip;
            for (uint64_t i = 0; i < n && values->text_len < sizeof values->text; i++) {
                values->text[values->text_len++] = (*at)[i];
            }
            *at += n;
            values->skip -= n;
            if (values->skip == 0) {
                look_at_word(values);
            }
            if (values->skip == 0 && value_ends(values)) {
                return VALUE;
            }
            continue;
        }
        uint8_t byte = *(*at)++;
        if (byte != '\n') {
            if (byte == '\r') {
                continue;
            }
            if (values->line_len < sizeof values->line) {
                values->line[values->line_len++] = byte;
            } else {
                values->long_line = true;
            }
            continue;
        }
        enum step step = line_ends(values);
        bool keep = step == VALUE; /* for the code that reads it */
        if (!keep) {
            values->line_len = 0;
            values->long_line = false;
        }
        if (step != MORE) {
            return step;
        }
    }
    return MORE;
}

static void begin_next(struct session_values *values) {
    values->line_len = 0;
    values->long_line = false;
    values->words = 0;
    values->stays = false;
}

static bool rest(const struct session_values *values) {
    return values->depth == 0 && values->skip == 0 && values->line_len == 0 && !values->long_line;
}

/* --- both sides -------------------------------------------------------------------------------------------------------------------------- */

static void sent(struct session *session, const uint8_t *bytes, size_t len) {
    struct session_redis *redis = &session->redis;
    const uint8_t *end = bytes + len;
    enum step step;
    while (session->doubt == NULL && (step = take(&redis->sent, &bytes, end)) != MORE) {
        if (step == GARBLED || redis->sent.top != '*') {
            session_spoil(session, DOUBT_GARBLED);
            return;
        }
        if (redis->sent.stays && session->learned && !session->judging) {
            session_spoil(session,
                "the request said what RESET leaves (SCRIPT DEBUG, CLIENT NO-EVICT or NO-TOUCH)");
            return;
        }
        begin_next(&redis->sent);
        redis->commands++;
    }
}

/* The answers of a reset. */
static void judge(struct session *session) {
    struct session_redis *redis = &session->redis;
    const struct session_values *value = &redis->received;
    static const char reset_done[] = "+RESET";
    bool first = redis->answers == redis->reset_at;
    if (redis->answers >= redis->commands) {
        session_spoil(session, DOUBT_UNASKED);
    } else if (value->top == '-' || value->top == '!') {
        session_spoil(session, "the server refused a part of its reset");
    } else if (first && (value->line_len != sizeof reset_done - 1 ||
                            memcmp(value->line, reset_done, sizeof reset_done - 1) != 0)) {
        session_spoil(session, "the answer to its reset is not the right one");
    }
}

static void received(struct session *session, const uint8_t *bytes, size_t len) {
    struct session_redis *redis = &session->redis;
    const uint8_t *end = bytes + len;
    enum step step;
    while (session->doubt == NULL && (step = take(&redis->received, &bytes, end)) != MORE) {
        if (step == GARBLED) {
            session_spoil(session, DOUBT_GARBLED);
            return;
        }
        if (session->judging) {
            judge(session);
        }
        begin_next(&redis->received);
        session->served = true;
        redis->answers += redis->received.top != '>';
    }
}

/* --- decisions --------------------------------------------------------------------------------------------------------------------------- */

static const char *busy(const struct session *session) {
    const struct session_redis *redis = &session->redis;
    if (!rest(&redis->sent)) {
        return DOUBT_HALF_SENT;
    }
    if (!rest(&redis->received) || redis->answers < redis->commands) {
        return DOUBT_HALF_READ;
    }
    return NULL;
}

struct word {
    const uint8_t *text;
    size_t len;
};

/* One string of a command at *at. False: the record is damaged. */
static bool next_word(const uint8_t **at, const uint8_t *end, struct word *word) {
    uint64_t n = 0;
    if (*at == end || *(*at)++ != '$') {
        return false;
    }
    while (*at < end && **at >= '0' && **at <= '9' && n < SESSION_RECORD) {
        n = n * 10 + (uint64_t)(*(*at)++ - '0');
    }
    if ((uint64_t)(end - *at) < n + 4 || (*at)[0] != '\r' || (*at)[1] != '\n') {
        return false;
    }
    *word = (struct word){*at + 2, n};
    *at += n + 4;
    return true;
}

/* Commands that an initialisation may contain. */
enum use { REPEATED, IGNORED, CLEARING, REFUSED };

static enum use use_of(const struct word *name, const struct word *argument) {
    static const char *const repeated[] = {"AUTH", "HELLO", "SELECT", "READONLY", "READWRITE"};
    static const char *const of_client[] = {
        "SETNAME", "SETINFO", "NO-EVICT", "NO-TOUCH", "TRACKING", "CACHING"};
    static const char *const refused[] = {"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR",
        "MULTI", "WATCH", "SYNC", "PSYNC", "QUIT", "ASKING"};
    if (word_is(name->text, name->len, "RESET")) {
        return CLEARING;
    }
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
        if (word_is(name->text, name->len, repeated[i])) {
            return REPEATED;
        }
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (word_is(name->text, name->len, refused[i])) {
            return REFUSED;
        }
    }
    if (word_is(name->text, name->len, "SCRIPT") &&
        word_is(argument->text, argument->len, "DEBUG")) {
        return REFUSED;
    }
    if (!word_is(name->text, name->len, "CLIENT")) {
        return IGNORED; /* commands on data leave no trace in the session */
    }
    for (size_t i = 0; i < sizeof of_client / sizeof *of_client; i++) {
        if (word_is(argument->text, argument->len, of_client[i])) {
            return REPEATED;
        }
    }
    return word_is(argument->text, argument->len, "REPLY") ? REFUSED : IGNORED;
}

static const char *learn(struct session *session, struct growing *init) {
    const uint8_t *at = session->record;
    const uint8_t *end = at + session->record_len;
    while (at < end) {
        const uint8_t *command = at;
        uint64_t count = 0;
        if (*at++ != '*') {
            return DOUBT_GARBLED;
        }
        while (at < end && *at >= '0' && *at <= '9' && count < SESSION_RECORD) {
            count = count * 10 + (uint64_t)(*at++ - '0');
        }
        if (end - at < 2) {
            return DOUBT_HALF_SENT;
        }
        at += 2;
        struct word words[2] = {{at, 0}, {at, 0}};
        for (uint64_t i = 0; i < count; i++) {
            struct word word;
            if (!next_word(&at, end, &word)) {
                return DOUBT_HALF_SENT;
            }
            if (i < 2) {
                words[i] = word;
            }
        }
        switch (use_of(&words[0], &words[1])) {
        case REPEATED:
            growing_add(init, command, (size_t)(at - command));
            break;
        case CLEARING:
            init->len = 0;
            break;
        case REFUSED:
            return "its initialisation has a command that cannot be repeated";
        case IGNORED:
            break;
        }
    }
    return NULL;
}

static void reset(struct session *session, struct growing *to) {
    static const uint8_t reset_command[] = "*1\r\n$5\r\nRESET\r\n";
    uint8_t echo[] = "*2\r\n$4\r\nECHO\r\n$16\r\n0123456789abcdef\r\n";
    struct session_redis *redis = &session->redis;
    growing_add(to, reset_command, sizeof reset_command - 1);
    growing_add(to, session->init, session->init_len);
    memcpy(echo + 19, session->nonce, SESSION_NONCE);
    growing_add(to, echo, sizeof echo - 1);
    /* subscriptions have answered more than was asked: both counters start again */
    redis->commands = redis->answers = redis->reset_at = 0;
}

static const char *unproven(struct session *session) {
    const struct session_values *value = &session->redis.received;
    bool proven = value->top == '$' && value->text_total == SESSION_NONCE &&
                  value->text_len == SESSION_NONCE &&
                  memcmp(value->text, session->nonce, SESSION_NONCE) == 0;
    return proven ? NULL : DOUBT_UNPROVEN;
}

static size_t goodbye(const struct session *session, uint8_t *to) {
    (void)session;
    (void)to;
    return 0; /* Redis notes no connection that just ends */
}

const struct dialect dialect_redis = {
    .sent = sent,
    .received = received,
    .busy = busy,
    .learn = learn,
    .reset = reset,
    .unproven = unproven,
    .goodbye = goodbye,
};
