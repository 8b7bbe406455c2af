/* $_SERVER, $_ENV and getenv(): what php-fpm makes of the environment and of a request's CGI variables.
 *
 * Promises
 * - The environment that the process began with is turned into PHP strings once.
 * - ext/filter learns of a request's variables when a script asks it, unless it is set to change their values.
 * - HTTP_PROXY of a request is dropped: a client must not name a proxy (httpoxy, CVE-2016-5385).
 */
#ifndef HEARTH_SAPI_REQUEST_VARIABLES_H
#define HEARTH_SAPI_REQUEST_VARIABLES_H

#include <php.h>

#include "sapi/options.h"

/* Once, after php_module_startup(). */
void variables_startup(void);
/* Before a request's superglobals are imported. */
void variables_begin(void);
/* Between requests of the worker model the script sees its own $_SERVER; NULL: none. Static: script. */
void variables_set_script(const char *script);

/* For sapi_module_struct. */
void variables_register(zval *array);
char *variables_getenv(const char *name, size_t name_len);

#endif
