/* Where PHP's settings come from, weakest first: the defaults here, php.ini, the scan directory, --ini.
 *
 * Promises
 * - PHPRC and PHP_INI_SCAN_DIR count as with every PHP; without them one directory holds both: HEARTH_INI_DIR, else
 *   /etc/php/8.x/hearth, else /etc/php/8.x/fpm, else what this PHP was built with.
 * - The environment that PHP's own child processes inherit is not changed.
 */
#ifndef HEARTH_SAPI_BOOT_INI_H
#define HEARTH_SAPI_BOOT_INI_H

#include <SAPI.h>

#include "sapi/options.h"

/* Before the engine starts. */
void ini_prepare(sapi_module_struct *module, const struct options *options);
/* After it has. */
void ini_restore_environment(void);

#endif
