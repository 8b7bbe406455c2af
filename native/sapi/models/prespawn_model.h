/* Model "prespawn" (C): a process boots the script ahead of its request, serves that one and ends. */
#ifndef HEARTH_SAPI_MODELS_PRESPAWN_MODEL_H
#define HEARTH_SAPI_MODELS_PRESPAWN_MODEL_H

#include "sapi/models/worker_run.h"

extern const struct worker_model prespawn_model;

#endif
