/* A call without libcurl, over the process's kept connection to the broker (ext/broker/exchange.h).
 *
 * Promises
 * - The application sees the same callbacks, errors and CURLINFO values as with libcurl.
 * - Only calls known to be simple are made here. For all others fast_prepare() returns false, and libcurl makes the
 *   hop.
 */
#ifndef HEARTH_EXT_CURL_FAST_H
#define HEARTH_EXT_CURL_FAST_H

#include "ext/curl/handle.h"
#include "ext/curl/route.h"

/* Prepares the step to `url`. False: not for this way. */
bool fast_prepare(struct handle *handle, const char *url, const struct target *target);
/* Whether the step's request has a body. */
bool fast_has_body(const struct handle *handle);
/* Makes the call. CURLE_COULDNT_CONNECT: the broker has not read it, so the caller may make it itself. A refusal is
 * in the step's verdict. */
CURLcode fast_perform(struct handle *handle);
/* curl_easy_getinfo() for the step. */
CURLcode fast_info(const struct handle *handle, CURLINFO info, void *value);
/* How many steps were made so, in this process. */
unsigned long fast_count(void);

#endif
