/* What the boot of an entry script has written into $_SERVER, as loaders of .env files do. Each request finds it in its own.
 *
 * Promises
 * - What a request brings takes precedence: only entries that it does not have are added, and of the environment those that the boot has changed.
 */
#ifndef HEARTH_SAPI_REQUEST_KEPT_VARIABLES_H
#define HEARTH_SAPI_REQUEST_KEPT_VARIABLES_H

/* At the wait point. */
void kept_variables_remember(void);
/* After a request's $_SERVER was made. */
void kept_variables_add(void);

#endif
