/* One request inside a script that runs on: what php_request_startup() and php_request_shutdown() do around a whole script, done around
 * the handler alone.
 *
 * Promises
 * - What PHP itself keeps for a request (superglobals, headers, output, uploads, time limit) starts fresh with each request.
 * - Whatever PHP code throws or exits in here has been dealt with when the call returns, or has bailed out.
 */
#ifndef HEARTH_SAPI_REQUEST_SCRIPT_REQUEST_H
#define HEARTH_SAPI_REQUEST_SCRIPT_REQUEST_H

#include <stdint.h>

#include <php.h>

/* Between requests: output goes to stdout, headers nowhere. */
void script_request_open_idle(void);
/* Ends output and headers, of a request or of the time between two. */
void script_request_close(void);
/* Called before a worker's first request: frees the superglobals of the boot, or of the last warm-up, except $_ENV. They
 * are empty arrays afterwards. */
void script_request_empty_superglobals(void);
/* Puts what the engine notes about each superglobal in a request side by side, so that this is one page to put back. The engine's shutdown would free
 * them: for a process that never reaches it. */
void script_request_gather_superglobals(void);
/* Closes the request's body, and the php://input streams on it. */
void script_request_close_body(void);
void script_request_forget_last_error(void);

/* Before the snapshot: starts the time limit for this request and all that the process is put back for. */
void script_request_start_limit(void);

/* Makes the received request PHP's current one. No request may be open. */
void script_request_begin(void);
/* The same for a script that has run up to here without a request, and continues: its headers and its output buffers stay. */
void script_request_continue(void);
/* Calls the handler. Borrowed: both. */
void script_request_call(zend_fcall_info *fci, zend_fcall_info_cache *fcc);
/* Runs the request's shutdown functions, ends its output and session, and sends what is left of the answer with `flags` of END. */
void script_request_answer(uint8_t flags);

#endif
