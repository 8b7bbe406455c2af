/* Differences between the patch releases of one PHP version: a program built with one of them runs beside the others.
 * Differences between 8.2, 8.3, 8.4 and 8.5 are in sapi/compat.h.
 *
 * Include it before any of PHP's headers. If a name of a newer release is imported, native/tests/engine_symbols fails. */
#ifndef HEARTH_EXT_COMPAT_H
#define HEARTH_EXT_COMPAT_H

#ifdef ZEND_SMART_STR_H
#error "ext/compat.h comes before the headers of PHP"
#endif

/* The inline functions of zend_smart_str.h in PHP 8.2.36 call smart_str_ferealloc(), which 8.2.32 does not export. They never let it fail, and
 * then it does what smart_str_erealloc() does, which all releases have. */
#define smart_str_ferealloc compat_smart_str_ferealloc

#endif
