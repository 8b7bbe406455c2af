/* curl_easy_getinfo() for calls made by the broker: libcurl's values about the hop are replaced by
 * those of the origin. */
#ifndef HEARTH_EXT_CURL_INFO_H
#define HEARTH_EXT_CURL_INFO_H

#include "ext/curl/handle.h"

CURLcode info_get(struct handle *handle, CURLINFO info, void *value);

/* The effective URL of the current or last step. Borrowed: until the next call of these
 * functions. */
const char *info_effective_url(struct handle *handle);

/* Number of the request's bytes sent in this step, without those that Hearth added. */
long info_request_size(const struct handle *handle);

/* The call is over: keeps what libcurl forgets when its options are put back. */
void info_remember(struct handle *handle);
/* A new call begins, or a new step. */
void info_forget(struct handle *handle);
/* A redirect is being followed: adds this step to the sums. */
void info_add_up(struct handle *handle);

#endif
