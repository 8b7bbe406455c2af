/* Warm-up without side effects. A temporary fork of the zygote serves the synthetic requests and reports the regular expressions
 * that they have compiled, the paths that they have resolved, their calls of ext-intl and setlocale() (learned_calls.h), and in worker scripts the
 * classes that they have loaded. The zygote then does the same, so that requests find it done. Code compiled by the fork stays in opcache's shared
 * memory.
 *
 * Promises
 * - Behind a wait point no code of the application runs in the zygote, unless it is known what that does: classes are left to the requests, each
 *   of which is to find what php-fpm would give it. In a worker script the autoloaders run, as they do there once for all requests.
 * - No state of a request stays in the zygote.
 * - A fork that fails or takes too long costs the warm-up, never the boot.
 */
#ifndef HEARTH_SAPI_BOOT_REHEARSAL_H
#define HEARTH_SAPI_BOOT_REHEARSAL_H

#include <stdbool.h>

/* Called at the wait point: forks. `classes`: the zygote loads the classes, too. Returns true in the temporary fork, which serves the requests and then calls
 * rehearsal_end(). Returns false in the zygote, once the fork has ended and what it reports has been repeated. Loading may bail out. */
bool rehearsal_begin(bool classes);
_Noreturn void rehearsal_end(void);

#endif
