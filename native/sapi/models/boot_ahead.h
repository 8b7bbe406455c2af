/* The models whose zygote boots the script, "fork" and "snapshot": warm-ups, the wait point, and the processes that start there.
 *
 * Promises
 * - Every request finds the memory as it was after the boot and the worker's start callbacks.
 * - A request that fails is answered, and its process continues as its model defines. A warm-up that fails only ends the
 *   warm-ups.
 */
#ifndef HEARTH_SAPI_MODELS_BOOT_AHEAD_H
#define HEARTH_SAPI_MODELS_BOOT_AHEAD_H

#include "sapi/models/worker_run.h"

/* Functions for struct worker_model. */
void boot_ahead_begin(const struct worker_run *run);
bool boot_ahead_handle(struct worker_run *run, struct worker_call call);
bool boot_ahead_await(struct worker_run *run);
void boot_ahead_script_ended(const struct worker_run *run);
void boot_ahead_again(void);

#endif
