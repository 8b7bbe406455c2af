/* Xdebug's step debugger in models that run one script for many requests.
 *
 * Xdebug connects to the editor when a script begins, which is the boot there, once and before the workers are forked. Here
 * it connects when a request begins, on the conditions that Xdebug itself has: `xdebug.start_with_request`, or a trigger
 * in the request. Boot and warm-up are not debugged. Without Xdebug, or in other modes of Xdebug, nothing happens. */
#ifndef HEARTH_DEBUGGER_H
#define HEARTH_DEBUGGER_H

/* Before the script begins. */
void debugger_prepare(void);

/* When a request's superglobals are set, and before its handler is called or its script continues. */
void debugger_connect(void);

#endif
