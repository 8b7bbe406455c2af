/* See opcache_guard.h. */
#include "sapi/boot/opcache_guard.h"

#include <php.h>

#include "sapi/output/log.h"

static ZEND_FUNCTION(refuse_reset) {
    ZEND_PARSE_PARAMETERS_NONE();
    log_line(LOG_WARNING, LOG_SOURCE_WORKER,
        "opcache_reset() has no effect on an application that has booted ahead: restart the server "
        "to load new code");
    RETURN_FALSE;
}

void opcache_guard_install(void) {
    zend_function *reset =
        zend_hash_str_find_ptr(CG(function_table), "opcache_reset", sizeof "opcache_reset" - 1);
    if (reset != NULL && reset->type == ZEND_INTERNAL_FUNCTION) {
        reset->internal_function.handler = ZEND_FN(refuse_reset);
    }
}
