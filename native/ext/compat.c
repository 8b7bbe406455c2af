/* See compat.h. */
#include "ext/compat.h"

#include <php.h>
#include <stdbool.h>
#include <zend_smart_str.h>

bool ZEND_FASTCALL compat_smart_str_ferealloc(smart_str *str, size_t len, bool fallible);

bool ZEND_FASTCALL compat_smart_str_ferealloc(smart_str *str, size_t len, bool fallible) {
    (void)fallible;
    smart_str_erealloc(str, len);
    return true;
}
