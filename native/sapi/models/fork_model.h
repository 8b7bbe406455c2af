/* Model "fork" (D): the zygote boots the script, a fork of it serves one request and ends. */
#ifndef HEARTH_SAPI_MODELS_FORK_MODEL_H
#define HEARTH_SAPI_MODELS_FORK_MODEL_H

#include "sapi/models/worker_run.h"

extern const struct worker_model fork_model;

#endif
