/* What calls of ext-intl and of setlocale() leave in a process: ICU's data of a language, parsed rules, the C library's locales. The first use of
 * each costs up to a few ten milliseconds, later ones some microseconds. The temporary fork of a rehearsal notes these calls, and the zygote
 * makes them, too.
 *
 * Promises
 * - Text that the request has formatted, compared or converted is not reported: a fixed text stands for it. Names of languages, time zones and
 *   encodings, patterns, rules and numbers are.
 * - In the zygote no code of the application runs, no setting changes, and no object stays.
 */
#ifndef HEARTH_SAPI_BOOT_LEARNED_CALLS_H
#define HEARTH_SAPI_BOOT_LEARNED_CALLS_H

#include <php.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_ARGUMENTS = 8 };

static inline bool is_of_intl(const zend_module_entry *module) {
    return module != NULL && strcmp(module->name, "intl") == 0;
}

static inline bool is_constructor(const zend_function *function) {
    return (function->common.fn_flags & ZEND_ACC_CTOR) != 0;
}

/* In the temporary fork: notes calls from here on. */
void learned_calls_watch(void);

/* The calls as text, NULL without any. Owned by the caller. */
zend_string *learned_calls_report(void);

/* In the zygote: makes the calls of a report. */
void learned_calls_repeat(const char *report, size_t len);

#endif
