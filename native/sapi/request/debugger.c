/* See debugger.h. */
#include "sapi/request/debugger.h"

#include <php.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zend_ini.h>

static const char CONNECT[] = "xdebug_connect_to_client";
static const char START[] = "xdebug.start_with_request";

static enum { NEVER, ON_TRIGGER, ALWAYS } connects;

static const char *setting(const char *name) {
    const char *value = zend_ini_string(name, strlen(name), 0);
    return value != NULL ? value : "";
}

/* src/lib/lib.c of Xdebug: XDEBUG_MODE is stronger than xdebug.mode, and `default` is `trigger` for step debugging. */
void debugger_prepare(void) {
    const char *mode = getenv("XDEBUG_MODE");
    mode = mode != NULL && *mode != 0 ? mode : setting("xdebug.mode");
    if (strstr(mode, "debug") == NULL ||
        !zend_hash_str_exists(CG(function_table), CONNECT, strlen(CONNECT))) {
        return;
    }
    const char *start = setting(START);
    if (strcmp(start, "no") == 0 || *start == 0 || strcmp(start, "0") == 0) {
        return;
    }
    connects = strcmp(start, "yes") == 0 || strcmp(start, "1") == 0 ? ALWAYS : ON_TRIGGER;
    if (connects == ALWAYS) {
        /* not `no`, with which xdebug_connect_to_client() does nothing */
        zend_string *name = zend_string_init(START, strlen(START), true);
        zend_alter_ini_entry_chars(
            name, "trigger", strlen("trigger"), ZEND_INI_SYSTEM, ZEND_INI_STAGE_STARTUP);
        zend_string_release(name);
    }
}

/* Whether a list such as `a, b` has a value. */
static bool has(const char *list, const char *value) {
    size_t len = strlen(value);
    for (const char *at = list; *at != 0;) {
        at += strspn(at, ", ");
        size_t part = strcspn(at, ", ");
        if (part == len && len > 0 && memcmp(at, value, len) == 0) {
            return true;
        }
        at += part;
    }
    return false;
}

static bool is_triggered(void) {
    static const char *const NAMES[] = {"XDEBUG_TRIGGER", "XDEBUG_SESSION", "XDEBUG_SESSION_START"};
    static const int PLACES[] = {
        TRACK_VARS_ENV, TRACK_VARS_GET, TRACK_VARS_POST, TRACK_VARS_COOKIE};
    const char *secret = setting("xdebug.trigger_value");
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++) {
        zval *place = &PG(http_globals)[PLACES[i]];
        for (size_t j = 0; Z_TYPE_P(place) == IS_ARRAY && j < sizeof NAMES / sizeof *NAMES; j++) {
            zval *value = zend_hash_str_find(Z_ARRVAL_P(place), NAMES[j], strlen(NAMES[j]));
            bool is_text = value != NULL && Z_TYPE_P(value) == IS_STRING;
            if (value != NULL && (*secret == 0 || (is_text && has(secret, Z_STRVAL_P(value))))) {
                return true;
            }
        }
    }
    return false;
}

void debugger_connect(void) {
    if (connects == NEVER || (connects == ON_TRIGGER && !is_triggered())) {
        return;
    }
    zval name, result;
    ZVAL_STRINGL(&name, CONNECT, strlen(CONNECT));
    ZVAL_UNDEF(&result);
    call_user_function(NULL, NULL, &name, &result, 0, NULL);
    zval_ptr_dtor(&result);
    zval_ptr_dtor(&name);
}
