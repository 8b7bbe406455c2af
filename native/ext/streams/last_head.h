/* The last answer's head for PHP code: $http_response_header, http_get_last_response_headers(). It
 * is restored for a call that stock PHP would have ended before it changes them. */
#ifndef HEARTH_EXT_STREAMS_LAST_HEAD_H
#define HEARTH_EXT_STREAMS_LAST_HEAD_H

#include <php.h>

/* Remembers the calling PHP code's $http_response_header; undefined where it has none. Owned by the caller: before. */
void last_head_keep(zval *before);
/* Puts it back, and forgets the last head. Borrowed: before. */
void last_head_put_back(const zval *before);

#endif
