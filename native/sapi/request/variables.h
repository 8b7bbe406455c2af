/* $_SERVER, $_ENV and getenv(), set from the environment and a request's CGI variables as php-fpm does.
 *
 * Promises
 * - The initial environment is converted to PHP strings once.
 * - ext/filter gets a request's variables when a script uses it, unless it is configured to change their
 *   values.
 * - HTTP_PROXY of a request is dropped: a client must not set a proxy (httpoxy, CVE-2016-5385).
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
/* The same for a script of the application below a document root, which runs up to its wait point: it sees a plain GET request for itself.
 * Static: both. */
void variables_set_entry(const char *script, const char *document_root);
/* Adds strings to the $_SERVER of a worker script's requests, where neither the request nor the environment has that name. They are kept
 * until the process ends. Borrowed: values. */
void variables_add(HashTable *values);
/* That document root, or NULL. */
const char *variables_entry_root(void);

/* Members of sapi_module_struct. */
void variables_register(zval *array);
char *variables_getenv(const char *name, size_t name_len);

#endif
