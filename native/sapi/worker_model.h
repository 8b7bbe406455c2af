/* Model "worker" (A): the script boots once and serves requests in a loop; what it holds is shared between them.
 *
 * Promises
 * - What PHP itself keeps for a request (superglobals, headers, output, session, uploads, ini changes, time limit, last error)
 *   begins each request as the boot left it.
 * - However a handler ends, its answer is complete. After a fatal error or an uncaught exception the script is booted anew in
 *   the same process; exit() only ends the request.
 * - A script that ends before its first request ends the process with EXIT_BOOT and a log line that says why.
 */
#ifndef HEARTH_SAPI_WORKER_MODEL_H
#define HEARTH_SAPI_WORKER_MODEL_H

/* Serves until the server wants no more. Returns the exit code. Static: script. */
int worker_model_run(const char *script);

#endif
