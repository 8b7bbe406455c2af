/* Model "worker" (A): a process serves requests one after another, and its script runs on.
 *
 * Promises
 * - What PHP itself keeps for a request (superglobals, headers, output, session, uploads, ini changes, time limit, last error) begins each
 *   request as the boot left it; the rest is shared. After a fatal error or an uncaught exception the script boots again.
 */
#ifndef HEARTH_SAPI_MODELS_WORKER_MODEL_H
#define HEARTH_SAPI_MODELS_WORKER_MODEL_H

#include "sapi/models/worker_run.h"

extern const struct worker_model worker_model;

#endif
