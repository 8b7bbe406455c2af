/* The egress half of the extension: ext-curl's calls go through the broker. docs/internals/extension.md. */
#ifndef HEARTH_EXT_CURL_EGRESS_H
#define HEARTH_EXT_CURL_EGRESS_H

/* At MINIT, after ext-curl's. NULL: calls are intercepted; otherwise why not. Static: the result. */
const char *egress_startup(int module_number);
void egress_shutdown(int module_number);

#endif
