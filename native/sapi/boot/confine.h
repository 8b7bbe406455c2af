/* Isolates workers from each other, if PHP is confined.
 *
 * Promises
 * - A worker that has called it cannot read or write memory of its zygote or of other workers, not through /proc either. From
 *   Linux 6.12 on it can signal only processes that it has started. The zygote can still signal it and read its stack.
 * - This applies until the process ends, and to every process that it starts.
 */
#ifndef HEARTH_SAPI_BOOT_CONFINE_H
#define HEARTH_SAPI_BOOT_CONFINE_H

#include <stdbool.h>

/* False: the kernel refused, which is reported on stderr. True if the kernel has no Landlock, which the server has reported
 * at the start. */
bool confine_worker(void);

#endif
