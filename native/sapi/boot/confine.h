/* Keeps workers from each other, where PHP is confined.
 *
 * Promises
 * - A worker that has called it reads and writes no memory of its zygote or of other workers, not through /proc either, and signals
 *   no process but those it has started itself (signals from Linux 6.12 on). The zygote still signals it and looks at its stack.
 * - It holds for the rest of the process's life, and for everything that the process starts.
 */
#ifndef HEARTH_SAPI_BOOT_CONFINE_H
#define HEARTH_SAPI_BOOT_CONFINE_H

#include <stdbool.h>

/* False: the kernel refused; it is said on stderr. True where the kernel has no Landlock, which the server has told about at the start. */
bool confine_worker(void);

#endif
