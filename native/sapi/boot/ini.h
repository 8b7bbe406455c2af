/* Where PHP's settings come from, weakest first: the defaults here, php.ini, the scan directory, --ini and --ini-stdin.
 *
 * Promises
 * - PHPRC and PHP_INI_SCAN_DIR work as in every PHP. Without them both are in one directory: HEARTH_INI_DIR, else
 *   /etc/php/8.x/hearth, else /etc/php/8.x/fpm, else this PHP's built-in one.
 * - The environment that PHP's own child processes inherit is not changed.
 */
#ifndef HEARTH_SAPI_BOOT_INI_H
#define HEARTH_SAPI_BOOT_INI_H

#include <SAPI.h>

#include "sapi/options.h"

/* The file that is standard input, and two null bytes; read from its beginning, so that a program that takes the place of
 * this one can do it again. NULL: it is no file, or cannot be read. Owned by the caller: the result. */
char *ini_of_stdin(void);
/* Before the engine starts. */
void ini_prepare(sapi_module_struct *module, const struct options *options);
/* After it has. */
void ini_restore_environment(void);

#endif
