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

#endif
