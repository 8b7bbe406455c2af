/* Model "snapshot": the zygote boots the script; its forks serve requests, and each is restored to
 * its first state after every request. This file tells the engine in native/snapshot about PHP.
 */
#ifndef HEARTH_SAPI_MODELS_SNAPSHOT_MODEL_H
#define HEARTH_SAPI_MODELS_SNAPSHOT_MODEL_H

#include "sapi/models/worker_run.h"

extern const struct worker_model snapshot_model;

/* Called in the zygote, before the engine starts. */
void snapshot_model_prepare(void);

#endif
