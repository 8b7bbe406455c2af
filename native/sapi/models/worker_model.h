/* Model "worker": a process serves requests one after another, and its script continues.
 *
 * Promises
 * - PHP's own state of a request is as after the boot when each request begins; the rest is shared. It includes superglobals, headers,
 *   output, session, uploads, ini changes, time limit and last error. After a fatal error or an uncaught exception the script boots
 *   again.
 */
#ifndef HEARTH_SAPI_MODELS_WORKER_MODEL_H
#define HEARTH_SAPI_MODELS_WORKER_MODEL_H

#include "sapi/models/worker_run.h"

extern const struct worker_model worker_model;

#endif
