/* Model "snapshot" (S): the zygote boots the script, forks of it serve requests and are put back after each to what they were before the first.
 * What the engine of native/snapshot needs to know of PHP.
 */
#ifndef HEARTH_SAPI_MODELS_SNAPSHOT_MODEL_H
#define HEARTH_SAPI_MODELS_SNAPSHOT_MODEL_H

#include "sapi/models/worker_run.h"

extern const struct worker_model snapshot_model;

/* In the zygote, before the engine starts. */
void snapshot_model_prepare(void);

#endif
