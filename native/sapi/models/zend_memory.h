/* The engine's own heap, prepared for a snapshot: which of its bytes will not be read before they are written.
 *
 * Promises
 * - Layouts that php-src keeps private are found by looking and checked against what the heap says of itself; when the check fails nothing
 *   is called dead, and all that is lost is speed.
 */
#ifndef HEARTH_SAPI_MODELS_ZEND_MEMORY_H
#define HEARTH_SAPI_MODELS_ZEND_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "snapshot/snapshot.h"

/* Whether the heap's free slots were found. Without them zend_memory_detach() does nothing. */
bool zend_memory_is_known(void);

/* Gives up the free slots of pages that are partly in use: what a request allocates then lies in pages of its own, not between the
 * boot's objects, and need not be put back. Called before zend_memory_dead(); nothing may be freed in between. */
void zend_memory_detach(void);

/* Free pages of the heap, the unused end of PHP's stack and of the compiler's arena. Writes at most `max` ranges, returns how many.
 * Allocates nothing. */
size_t zend_memory_dead(struct snapshot_range *ranges, size_t max);

#endif
