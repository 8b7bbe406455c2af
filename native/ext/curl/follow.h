/* The target of a redirect, and the parts of the request that are sent again. Follows libcurl's
 * Curl_follow(), lib/transfer.c (lib/http.c from 8.10 on), for answers through the broker. */
#ifndef HEARTH_EXT_CURL_FOLLOW_H
#define HEARTH_EXT_CURL_FOLLOW_H

#include "ext/curl/handle.h"

/* Fills `next`, whose strings the caller owns. On failure returns the reason; `message` is static
 * or NULL. */
CURLcode follow(struct handle *handle, struct onward *next, const char **message);

/* `location` as seen from `base`, owned by the caller, or NULL. `lenient`: only to be shown. */
char *follow_resolve(
    const struct handle *handle, const char *base, const char *location, bool lenient);

#endif
