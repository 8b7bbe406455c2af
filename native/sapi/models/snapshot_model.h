/* Model "snapshot" (S): what the engine of native/snapshot needs to know of PHP.
 *
 * Promises
 * - Everything is inert in the other models.
 */
#ifndef HEARTH_SAPI_MODELS_SNAPSHOT_MODEL_H
#define HEARTH_SAPI_MODELS_SNAPSHOT_MODEL_H

#include <stdbool.h>

/* In the zygote, before the engine starts. */
void snapshot_model_prepare(void);
/* In the zygote at the wait point, before it forks: its memory is shared by all workers' snapshots. */
void snapshot_model_share(void);
/* In a worker at the wait point, with the engine between requests: takes the snapshot and returns true. Returns once more with false after
 * each snapshot_model_restore(). */
bool snapshot_model_take(void);
/* Between two requests: checks everything once in a while, when no request waits. */
void snapshot_model_wait(void);
/* The request is over, its answer sent. */
_Noreturn void snapshot_model_restore(void);
/* HEARTH_SNAPSHOT_STATISTICS=1: prints what the restores have cost. */
void snapshot_model_say_statistics(void);

#endif
