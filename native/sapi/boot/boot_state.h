/* State that the engine keeps for a request and that the worker script's boot has changed. It is recorded
 * once and restored after each request.
 *
 * Promises
 * - Covers ini settings, the session module and shutdown functions; nothing that the application holds itself.
 * - Costs a few comparisons when a request changed nothing.
 */
#ifndef HEARTH_SAPI_BOOT_BOOT_STATE_H
#define HEARTH_SAPI_BOOT_BOOT_STATE_H

/* After the boot, before the first request. */
void boot_state_remember(void);
/* After a request's handler: runs the shutdown functions that the request registered. May run PHP code, and bail out. */
void boot_state_run_shutdown_functions(void);
/* After a request's answer: closes its session, undoes its ini changes. May run PHP code (session handlers), and bail out. */
void boot_state_end_session(void);
void boot_state_restore(void);
/* Called when a request's superglobals exist: prepares the session module (session.auto_start). May run PHP
 * code, and bail out. */
void boot_state_begin_session(void);
/* Forgets what ext/filter keeps of the variables of the boot. */
void boot_state_forget_input(void);
/* Starts zlib.output_compression for a request, if the boot could not: it depends on the client. */
void boot_state_begin_compression(void);
/* Before the engine's own request shutdown: gives the boot's shutdown functions back to it, in front of the request's. */
void boot_state_release(void);

#endif
