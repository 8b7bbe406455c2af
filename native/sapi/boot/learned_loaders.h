/* Autoloaders whose code is known: which file they include for a class follows from their own state alone. These are Composer's ClassLoader,
 * MediaWiki's AutoLoader, and closures that only compute a file's name (learned_loaders_code.h).
 *
 * Promises
 * - While learned_loaders_are_same(), a class comes from the file that it came from before, and no loader does anything else.
 * - Runs no code of the application.
 */
#ifndef HEARTH_SAPI_BOOT_LEARNED_LOADERS_H
#define HEARTH_SAPI_BOOT_LEARNED_LOADERS_H

#include <php.h>
#include <stdbool.h>

/* Before the application's first code: sees from now on when it registers autoloaders, or leaves the current folder. */
void learned_loaders_watch(void);
/* At the wait point: remembers the state of all autoloaders. */
void learned_loaders_remember(void);
/* Returns whether all autoloaders are known, and would look for this class as at the wait point. */
bool learned_loaders_are_same(zend_string *class);

#endif
