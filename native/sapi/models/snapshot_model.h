/* Model "snapshot": the zygote boots the script; its forks serve requests, and each is restored to
 * its first state after every request. This file tells the engine in native/snapshot about PHP.
 */
#ifndef HEARTH_SAPI_MODELS_SNAPSHOT_MODEL_H
#define HEARTH_SAPI_MODELS_SNAPSHOT_MODEL_H

#include "sapi/models/worker_run.h"

extern const struct worker_model snapshot_model;

/* Called in the zygote, before the engine starts. `verifies`: the share of restores to verify, of 2^32. */
void snapshot_model_prepare(uint32_t verifies);

#endif
