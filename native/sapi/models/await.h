/* hearth_await_request(): an entry script of the application, such as index.php, runs up to that call before the request comes. Each
 * request continues from there to the script's end.
 *
 * Promises
 * - The request has superglobals, input, cookies, uploads, time limit and session of its own. Headers, output buffers and settings of the
 *   boot are kept, as in a script that did not wait.
 * - The answer's end is php-fpm's: shutdown functions, destructors of all objects, output callbacks, session, headers.
 * - A place in which no process can wait is refused with an Error that names it.
 */
#ifndef HEARTH_SAPI_MODELS_AWAIT_H
#define HEARTH_SAPI_MODELS_AWAIT_H

#include "sapi/models/worker_run.h"

/* Before the script boots: its variables, its output, and the file after which it waits by itself. */
void await_begin_boot(const struct worker_run *run);
/* Throws an Error if this is no place to wait. */
bool await_is_possible(const struct worker_run *run);
/* The process will wait here: closes the files that the engine keeps open for the script, and what the boot has begun of a session. */
void await_settle_boot(void);
/* Makes the received request the script's own. Returns true if the script is to continue; false: the request is answered already. */
bool await_begin_request(void);

#endif
