/* libcurl's cookie engine, which takes calls to the broker for calls to `http`. So it neither
 * sends nor accepts cookies for `https` only. Calls that would send some go directly; received
 * ones are stored here. */
#ifndef HEARTH_EXT_CURL_COOKIES_H
#define HEARTH_EXT_CURL_COOKIES_H

#include "ext/curl/handle.h"

/* Returns whether the engine holds a cookie for `https` only. */
bool cookies_any_secure(const struct handle *handle);

/* Collects cookies from a line of the answer's head. */
void cookies_note(struct handle *handle, const char *line, size_t len);
/* Passes the collected cookies to the engine. `url`: the URL that answered. */
void cookies_store(struct handle *handle, const char *url);

#endif
