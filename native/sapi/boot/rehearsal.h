/* Warm-up without side effects. A temporary fork of the zygote serves the synthetic requests and reports the classes that
 * autoloaders have found (learned_classes.h), the regular expressions that they have compiled, the paths that they have resolved, and their calls of
 * ext-intl and setlocale() (learned_calls.h). The zygote then does the same, so that requests find it done. Code compiled by the fork stays in
 * opcache's shared memory.
 *
 * Promises
 * - No code of the application runs in the zygote; no state of a request stays in it.
 * - A fork that fails or takes too long costs the warm-up, never the boot.
 */
#ifndef HEARTH_SAPI_BOOT_REHEARSAL_H
#define HEARTH_SAPI_BOOT_REHEARSAL_H

#include <stdbool.h>

/* Called at the wait point: forks. Returns true in the temporary fork, which serves the requests and then calls
 * rehearsal_end(). Returns false in the zygote, once the fork has ended. Its classes wait for learned_classes_prepare(). */
bool rehearsal_begin(void);
_Noreturn void rehearsal_end(void);

#endif
