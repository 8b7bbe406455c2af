/* A call made without libcurl: over the connection to the broker that the process keeps (ext/broker/exchange.h).
 *
 * Promises
 * - What the application sees of it is what libcurl would have shown: callbacks, errors, CURLINFO.
 * - Only what is known to be simple is done here; for anything else fast_prepare() says no, and libcurl makes the hop.
 */
#ifndef HEARTH_EXT_CURL_FAST_H
#define HEARTH_EXT_CURL_FAST_H

#include "ext/curl/handle.h"
#include "ext/curl/route.h"

/* Prepares the step to `url`. False: not for this way. */
bool fast_prepare(struct handle *handle, const char *url, const struct target *target);
/* Makes the call. CURLE_COULDNT_CONNECT: the broker does not have it, and the caller may make it itself. A refusal is in the step's verdict. */
CURLcode fast_perform(struct handle *handle);
/* curl_easy_getinfo() for the step. */
CURLcode fast_info(const struct handle *handle, CURLINFO info, void *value);
/* How many steps were made so, in this process. */
unsigned long fast_count(void);

#endif
