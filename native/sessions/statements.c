/* Which SQL an initialisation may contain (when in doubt: not), and which changes the current database of MySQL (when in doubt: it does).
 *
 * Invariants
 * - Literals are not understood: a word or parenthesis inside one is taken for the statement's. That refuses too much, never too little,
 *   because a quote cannot hide what is outside it. */
#include "sessions/internal.h"

#include <string.h>

static uint8_t capital(uint8_t c) {
    return c >= 'a' && c <= 'z' ? (uint8_t)(c - 'a' + 'A') : c;
}

static bool is_word(uint8_t c) {
    return (capital(c) >= 'A' && capital(c) <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c >= 0x80;
}

bool word_is(const uint8_t *text, size_t len, const char *word) {
    if (len != strlen(word)) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (capital(text[i]) != (uint8_t)word[i]) {
            return false;
        }
    }
    return true;
}

static bool is_one_of(
    const uint8_t *text, size_t len, const char *const *words, size_t words_count) {
    for (size_t i = 0; i < words_count; i++) {
        if (word_is(text, len, words[i])) {
            return true;
        }
    }
    return false;
}

/* The first word of a statement determines its kind. */
static const char *const first_words[] = {"SET", "USE", "SHOW", "SELECT", "DEALLOCATE", "RESET"};
/* Anywhere in it: reaches beyond the session, writes, or locks. */
static const char *const forbidden[] = {"GLOBAL", "PERSIST", "PERSIST_ONLY", "PASSWORD", "INTO",
    "FOR", "LOCK", "INSERT", "UPDATE", "DELETE", "MERGE", "EXECUTE", "STATEMENT", "CALL", "BEGIN",
    "PROCEDURE", "OUTFILE"};
/* Functions that only look, or set what belongs to the session. */
static const char *const functions[] = {"VERSION", "DATABASE", "SCHEMA", "CURRENT_SCHEMA",
    "CURRENT_SCHEMAS", "CURRENT_DATABASE", "CURRENT_SETTING", "SET_CONFIG", "PG_BACKEND_PID",
    "CONNECTION_ID", "USER", "SESSION_USER", "CURRENT_USER", "NOW", "CONCAT", "REPLACE"};
/* The most frequent statements; not SET, which MariaDB allows before any other (`SET STATEMENT ... FOR`). */
static const char *const at_home[] = {"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH",
    "SHOW", "START", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool is_space(uint8_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Returns whether the parenthesis at `at` calls nothing but `functions`. The last word before it: text[word] to text[word_end]. */
static bool only_calls_functions(const uint8_t *text, size_t at, size_t word, size_t word_end) {
    static const char operators[] = "=,(<>!+-*/%|&^~'";
    while (at > 0 && is_space(text[at - 1])) {
        at--;
    }
    if (at == 0) {
        return false; /* a statement that begins with one is not ours */
    }
    uint8_t before = text[at - 1];
    if (memchr(operators, before, sizeof operators - 1) != NULL) {
        return true;
    }
    at -= before == '"' || before == '`'; /* a name between quotes calls, too */
    return at == word_end && is_one_of(text + word, word_end - word, functions, COUNT(functions));
}

static bool one_may_be_repeated(const uint8_t *text, size_t len) {
    bool first = true;
    size_t word = 0, end = 0;
    for (size_t at = 0; at < len;) {
        if (!is_word(text[at])) {
            bool comment = (text[at] == '-' && at + 1 < len && text[at + 1] == '-') ||
                           (text[at] == '/' && at + 1 < len && text[at + 1] == '*') ||
                           text[at] == '#';
            if (comment || (text[at] == '(' && !only_calls_functions(text, at, word, end))) {
                return false;
            }
            at++;
            continue;
        }
        word = end = at;
        while (end < len && is_word(text[end])) {
            end++;
        }
        at = end;
        if ((first && !is_one_of(text + word, end - word, first_words, COUNT(first_words))) ||
            is_one_of(text + word, end - word, forbidden, COUNT(forbidden))) {
            return false;
        }
        first = false;
    }
    return true;
}

bool statement_may_be_repeated(const uint8_t *text, size_t len) {
    size_t start = 0;
    for (size_t at = 0; at <= len; at++) {
        if (at == len || text[at] == ';') {
            if (!one_may_be_repeated(text + start, at - start)) {
                return false;
            }
            start = at + 1;
        }
    }
    return true;
}

/* The first word of the text; *at is moved behind it. */
static size_t first_word(const uint8_t *text, size_t len, size_t *at) {
    while (*at < len && is_space(text[*at])) {
        ++*at;
    }
    size_t start = *at;
    while (*at < len && is_word(text[*at])) {
        ++*at;
    }
    return start;
}

/* Returns whether the text is `name`, perhaps between backquotes or with a `;` at its end. */
static bool names(const uint8_t *text, size_t len, const uint8_t *name, size_t name_len) {
    while (len > 0 && is_space(*text)) {
        text++, len--;
    }
    while (len > 0 && (is_space(text[len - 1]) || text[len - 1] == ';')) {
        len--;
    }
    if (len > 2 && text[0] == '`' && text[len - 1] == '`') {
        text++, len -= 2;
    }
    return len > 0 && len == name_len && memcmp(text, name, len) == 0;
}

enum statement_moves statement_moves(
    const uint8_t *text, size_t len, const uint8_t *name, size_t name_len) {
    for (size_t at = 0, behind = 0; at < len; at = behind) {
        size_t word = first_word(text, len, &at);
        if (word_is(text + word, at - word, "USE")) {
            bool alone = behind == 0 && names(text + at, len - at, name, name_len);
            return alone ? STATEMENT_MOVES_TO_NAME : STATEMENT_MOVES;
        }
        const uint8_t *next = memchr(text + at, ';', len - at);
        behind = next != NULL ? (size_t)(next - text) + 1 : len;
    }
    return STATEMENT_STAYS;
}

bool statement_begins_at_home(const uint8_t *text, size_t len) {
    size_t end = 0;
    size_t word = first_word(text, len, &end);
    return is_one_of(text + word, end - word, at_home, COUNT(at_home));
}

static bool prepares_xa(const uint8_t *text, size_t len, size_t at) {
    size_t end = at + 2;
    if (at + 1 >= len || capital(text[at + 1]) != 'A') {
        return false;
    }
    size_t word = first_word(text, len, &end);
    return word > at + 2 && word_is(text + word, end - word, "PREPARE");
}

static bool is_digit(uint8_t c) {
    return c >= '0' && c <= '9';
}

/* Returns whether a word begins here. Digits in front do not belong to it: in `!50000XA` they belong to the comment, as the server
 * reads it. */
static bool begins_word(const uint8_t *text, size_t at) {
    if (!is_word(text[at]) || is_digit(text[at])) {
        return false;
    }
    while (at > 0 && is_digit(text[at - 1])) {
        at--;
    }
    return at == 0 || !is_word(text[at - 1]);
}

/* Returns whether the text contains a SET anywhere: in a literal or a block it may be a statement, too. */
static bool one_sets(const uint8_t *text, size_t len) {
    for (size_t at = 0; at < len; at++) {
        size_t end = at;
        if (capital(text[at]) == 'S' && begins_word(text, at)) {
            first_word(text, len, &end);
            if (word_is(text + at, end - at, "SET")) {
                return true;
            }
        }
    }
    return false;
}

/* Whether a statement sets the variable that begins here. */
static bool sets(const uint8_t *text, size_t len, size_t at, const char *variable) {
    size_t end = at;
    first_word(text, len, &end);
    return word_is(text + at, end - at, variable) && one_sets(text, at);
}

const char *statement_stays(const uint8_t *text, size_t len) {
    for (size_t at = 0; at < len; at++) {
        uint8_t c = capital(text[at]);
        if ((c != 'X' && c != 'P' && c != 'O' && c != 'R') || !begins_word(text, at)) {
            continue;
        }
        if (c == 'X' && prepares_xa(text, len, at)) {
            return "the request prepared a transaction (XA PREPARE)";
        }
        if (c == 'P' && sets(text, len, at, "PROFILING")) {
            return "the request had its statements profiled (SET profiling)";
        }
        if (c == 'O' && sets(text, len, at, "OPTIMIZER_TRACE")) {
            return "the request had its statements traced (SET optimizer_trace)"; /* kept by MySQL 8 */
        }
        /* MariaDB 10.11.19 and 11.8.9 seed RAND() again, older ones do not (THD::init(), sql/sql_class.cc) */
        if (c == 'R' && (sets(text, len, at, "RAND_SEED1") || sets(text, len, at, "RAND_SEED2"))) {
            return "the request seeded the random numbers (SET rand_seed1, rand_seed2)";
        }
    }
    return NULL;
}
