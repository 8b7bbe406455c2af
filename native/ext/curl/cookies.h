/* The cookie engine of libcurl, which believes that calls to the broker go to `http`: it neither sends nor takes cookies for `https` only.
 * The first is avoided (such calls go directly), the second is done here. */
#ifndef HEARTH_EXT_CURL_COOKIES_H
#define HEARTH_EXT_CURL_COOKIES_H

#include "ext/curl/handle.h"

/* Whether the engine holds a cookie for `https` only. */
bool cookies_any_secure(const struct handle *handle);

/* Notes a line of the answer's head. */
void cookies_note(struct handle *handle, const char *line, size_t len);
/* Gives the engine what was noted. `url`: what the answer came from. */
void cookies_store(struct handle *handle, const char *url);

#endif
