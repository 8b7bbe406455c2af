/* The models with a worker script: "worker" (A), "prespawn" (C), "fork" (D), "snapshot" (S). The script boots once and calls
 * hearth_handle_request() in a loop; the models differ in which process boots it and in what happens after a request.
 *
 * Promises
 * - A: what PHP itself keeps for a request (superglobals, headers, output, session, uploads, ini changes, time limit, last error) begins
 *   each request as the boot left it; the rest is shared. After a fatal error or an uncaught exception the script boots again.
 * - C and D: the process ends after one request. S: it is put back as it was before its first one.
 * - However a handler ends, its answer is complete. What the loop does behind a handler (terminate) still runs.
 * - A script that ends before its first request ends the process with EXIT_BOOT and a log line that says why.
 */
#ifndef HEARTH_SAPI_MODELS_WORKER_MODEL_H
#define HEARTH_SAPI_MODELS_WORKER_MODEL_H

#include "sapi/options.h"

/* Serves until the server wants no more. In the zygote of D and S it boots the script and forks; what returns then is a worker.
 * Returns the exit code. Static: options. */
int worker_model_run(const struct options *options);

#endif
