/* Model "request" (G): the engine starts and shuts down for each request; nothing of one is left for the next.
 *
 * Promises
 * - The client has its whole answer before the engine cleans up.
 * - However a script ends (exit, fatal error, limits), its answer is complete and the next request is served.
 */
#ifndef HEARTH_SAPI_MODELS_REQUEST_MODEL_H
#define HEARTH_SAPI_MODELS_REQUEST_MODEL_H

#include <stdbool.h>

/* Serves until the server sends no more requests, or one request only. Returns the exit code. */
int request_model_run(bool one_shot);

#endif
