/* Model "request" (G): the engine starts and shuts down for each request; nothing of one is left for the next.
 *
 * Promises
 * - The client has its whole answer before the engine cleans up.
 * - However a script ends (exit, fatal error, limits), its answer is complete and the next request is served.
 */
#ifndef HEARTH_SAPI_REQUEST_MODEL_H
#define HEARTH_SAPI_REQUEST_MODEL_H

/* Serves until the server wants no more. Returns the exit code. */
int request_model_run(void);

#endif
