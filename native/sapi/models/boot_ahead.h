/* The models whose zygote boots the script, "fork" (D) and "snapshot" (S): warm-ups, the wait point, and lives that begin there.
 *
 * Promises
 * - Every request finds the memory as the boot, and the callbacks that a worker starts with, have left it.
 * - A request that ends badly is answered and its process goes on as its model says; a warm-up that ends badly costs the warm-ups.
 */
#ifndef HEARTH_SAPI_MODELS_BOOT_AHEAD_H
#define HEARTH_SAPI_MODELS_BOOT_AHEAD_H

#include "sapi/models/worker_run.h"

/* For struct worker_model. */
void boot_ahead_begin(const struct worker_run *run);
bool boot_ahead_handle(struct worker_run *run, struct worker_call call);
void boot_ahead_script_ended(const struct worker_run *run);
void boot_ahead_again(void);

#endif
