/* Which SQL an initialisation may contain. When in doubt: not.
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

/* What a statement does is told by its first word. */
static const char *const first_words[] = {"SET", "USE", "SHOW", "SELECT", "DEALLOCATE", "RESET"};
/* Anywhere in it: reaches beyond the session, writes, or locks. */
static const char *const forbidden[] = {"GLOBAL", "PERSIST", "PERSIST_ONLY", "PASSWORD", "INTO",
    "FOR", "LOCK", "INSERT", "UPDATE", "DELETE", "MERGE", "EXECUTE", "STATEMENT", "CALL", "BEGIN",
    "PROCEDURE", "OUTFILE"};
/* Functions that only look, or set what belongs to the session. */
static const char *const functions[] = {"VERSION", "DATABASE", "SCHEMA", "CURRENT_SCHEMA",
    "CURRENT_SCHEMAS", "CURRENT_DATABASE", "CURRENT_SETTING", "SET_CONFIG", "PG_BACKEND_PID",
    "CONNECTION_ID", "USER", "SESSION_USER", "CURRENT_USER", "NOW", "CONCAT", "REPLACE"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool one_may_be_repeated(const uint8_t *text, size_t len) {
    bool first = true;
    for (size_t at = 0; at < len;) {
        if (!is_word(text[at])) {
            bool comment = (text[at] == '-' && at + 1 < len && text[at + 1] == '-') ||
                           (text[at] == '/' && at + 1 < len && text[at + 1] == '*') ||
                           text[at] == '#';
            /* a `(` behind a word is judged with the word; what begins with one is no statement of ours */
            if (comment || (first && text[at] == '(')) {
                return false;
            }
            at++;
            continue;
        }
        size_t end = at;
        while (end < len && is_word(text[end])) {
            end++;
        }
        const uint8_t *word = text + at;
        size_t word_len = end - at;
        at = end;
        while (at < len && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n')) {
            at++;
        }
        bool calls = at < len && text[at] == '(';
        if (first && (calls || !is_one_of(word, word_len, first_words, COUNT(first_words)))) {
            return false;
        }
        if (is_one_of(word, word_len, forbidden, COUNT(forbidden)) ||
            (calls && !is_one_of(word, word_len, functions, COUNT(functions)))) {
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
