/* Differences between PHP 8.2, 8.3, 8.4 and 8.5. They sit here, those between patch releases in ext/compat.h, and nowhere else. */
#ifndef HEARTH_SAPI_COMPAT_H
#define HEARTH_SAPI_COMPAT_H

#include "ext/compat.h"

#include <php.h>
#include <php_main.h>

#if PHP_VERSION_ID < 80200
#error "PHP 8.2 or newer is needed"
#endif
#ifdef ZTS
#error "a PHP without ZTS is needed: a worker has one thread"
#endif

/* The engine must know that it runs in a fork (main/main.c). */
#if PHP_VERSION_ID >= 80500
#define compat_child_init() php_child_init()
#else
#define compat_child_init() ((void)0)
#endif

/* In newer releases an exhausted memory limit is a state of the executor in which no PHP function is called. php_request_shutdown() ends it
 * before the shutdown functions (main/main.c). An older library of the same PHP version has no such field; that memory belongs to something
 * else. */
#ifdef ZEND_HAS_OOM
#pragma weak zend_handle_delayed_oom
#define compat_end_oom()                                                                           \
    ((void)(zend_handle_delayed_oom != NULL && (EG(delayed_oom).state = ZEND_OOM_STATE_NONE, true)))
#else
#define compat_end_oom() ((void)0)
#endif

#endif
