/* See kept_variables.h. */
#include "sapi/request/kept_variables.h"

#include "ext/compat.h"

#include <php.h>
#include <php_globals.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static HashTable *added;   /* entries that the boot's own $_SERVER did not begin with */
static HashTable *changed; /* the boot's values of variables of the environment */

/* The variable of PHP code, which is a copy of the engine's array once it was written to. */
static zval *server(void) {
    zval *variable = zend_hash_str_find(&EG(symbol_table), ZEND_STRL("_SERVER"));
    if (variable != NULL) {
        ZVAL_DEREF(variable);
    }
    return variable != NULL && Z_TYPE_P(variable) == IS_ARRAY ? variable : NULL;
}

static zval *find(HashTable *table, zend_string *key, zend_ulong index) {
    return key != NULL ? zend_hash_find(table, key) : zend_hash_index_find(table, index);
}

static void put(HashTable *table, zend_string *key, zend_ulong index, zval *value) {
    Z_TRY_ADDREF_P(value);
    if (key != NULL) {
        zend_hash_update(table, key, value);
    } else {
        zend_hash_index_update(table, index, value);
    }
}

/* Whether an entry has the value that the environment gives to it. */
static bool is_of_environment(const zend_string *key, const zval *value) {
    const char *text = key != NULL ? getenv(ZSTR_VAL(key)) : NULL;
    return text != NULL && Z_TYPE_P(value) == IS_STRING && strcmp(Z_STRVAL_P(value), text) == 0;
}

void kept_variables_remember(void) {
    const zval *now = server();
    zval *first = &PG(http_globals)[TRACK_VARS_SERVER];
    if (now == NULL || Z_TYPE_P(first) != IS_ARRAY || Z_ARRVAL_P(now) == Z_ARRVAL_P(first)) {
        return;
    }
    added = zend_new_array(0);
    changed = zend_new_array(0);
    zend_ulong index;
    zend_string *key;
    zval *value;
    ZEND_HASH_FOREACH_KEY_VAL(Z_ARRVAL_P(now), index, key, value) {
        ZVAL_DEREF(value);
        const zval *before = find(Z_ARRVAL_P(first), key, index);
        if (before == NULL) {
            put(added, key, index, value);
        } else if (is_of_environment(key, before) && !is_of_environment(key, value)) {
            put(changed, key, index, value);
        }
    }
    ZEND_HASH_FOREACH_END();
}

void kept_variables_add(void) {
    zval *now = server();
    if (now == NULL || added == NULL) {
        return;
    }
    SEPARATE_ARRAY(now);
    zend_ulong index;
    zend_string *key;
    zval *value;
    ZEND_HASH_FOREACH_KEY_VAL(added, index, key, value) {
        if (find(Z_ARRVAL_P(now), key, index) == NULL) {
            put(Z_ARRVAL_P(now), key, index, value);
        }
    }
    ZEND_HASH_FOREACH_END();
    ZEND_HASH_FOREACH_STR_KEY_VAL(changed, key, value) {
        const zval *of_request = zend_hash_find(Z_ARRVAL_P(now), key);
        if (of_request != NULL && is_of_environment(key, of_request)) {
            put(Z_ARRVAL_P(now), key, 0, value);
        }
    }
    ZEND_HASH_FOREACH_END();
}
