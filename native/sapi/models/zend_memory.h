/* The engine's own heap, prepared for a snapshot: finds the bytes that will not be read before they are written.
 *
 * Promises
 * - php-src's private layouts are found by inspection and checked against the heap's own figures. If the check fails, no memory is
 *   reported as dead, which only costs speed.
 */
#ifndef HEARTH_SAPI_MODELS_ZEND_MEMORY_H
#define HEARTH_SAPI_MODELS_ZEND_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "snapshot/snapshot.h"

/* Returns whether the heap's free slots were found. Without them zend_memory_detach() does nothing. */
bool zend_memory_is_known(void);

/* Gives up the free slots of partly used pages. A request's allocations then lie in separate pages, not between the boot's objects, and
 * need not be restored. Call it before zend_memory_dead(); nothing may be freed in between. */
void zend_memory_detach(void);

/* Gives up the handles of objects that the boot has freed: they lie between those of its other objects, and each one that a request uses is a
 * write there. A request gets handles behind the boot's last. Call it in the zygote. */
void zend_memory_detach_handles(void);

/* Free pages of the heap, the unused ends of the table of objects, the unused end of PHP's stack and of
 * the compiler's arena. Writes at most `max` ranges, returns how many.
 * Allocates nothing. */
size_t zend_memory_dead(struct snapshot_range *ranges, size_t max);

/* Called in a restored process whose memory was detached: links slots for the next request. */
void zend_memory_refill(void);
/* Called at a request's end: records how many slots it needed. */
void zend_memory_learn(void);

#endif
