/* The egress part of the extension: ext-curl's calls go through the broker
 * (docs/internals/extension.md). */
#ifndef HEARTH_EXT_CURL_EGRESS_H
#define HEARTH_EXT_CURL_EGRESS_H

/* Called at MINIT, after that of ext-curl. */
void egress_startup(int module_number);
/* Called at RINIT. */
void egress_activate(void);
/* Returns NULL if calls go through the broker, otherwise the reason. Static: the result. */
const char *egress_why_direct(void);
void egress_shutdown(int module_number);

/* Opens the connection to the broker that calls will use. A process for many requests calls it
 * before the first of them or the snapshot, so that each request finds the connection in the same
 * state. */
void egress_connect(void);
/* Called when the request is over, possibly by longjmp. It ends all running calls. */
void egress_settle(void);
/* Returns the number of this process's calls without libcurl. */
unsigned long egress_fast_calls(void);

#endif
