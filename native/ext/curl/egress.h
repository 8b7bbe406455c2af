/* The egress half of the extension: ext-curl's calls go through the broker. docs/internals/extension.md. */
#ifndef HEARTH_EXT_CURL_EGRESS_H
#define HEARTH_EXT_CURL_EGRESS_H

/* At MINIT, after ext-curl's. */
void egress_startup(int module_number);
/* At RINIT. */
void egress_activate(void);
/* NULL: calls go through the broker; otherwise why not. Static: the result. */
const char *egress_why_direct(void);
void egress_shutdown(int module_number);

/* In a process that serves many requests, before the first of them or the snapshot: makes the connection to the broker that calls will use,
 * so that each request finds it as it was. */
void egress_connect(void);
/* The request is over, maybe by longjmp: no call is under way after it. */
void egress_settle(void);
/* Calls of this process that went without libcurl. */
unsigned long egress_fast_calls(void);

#endif
