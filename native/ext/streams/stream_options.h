/* What a stream's context wants of the connection, as the broker is told it (`Hearth-Control`, docs/internals/egress.md).
 *
 * Promises
 * - An option that is not known, or that the broker cannot fulfil, lets the call go directly: none is left out in silence.
 */
#ifndef HEARTH_EXT_STREAMS_STREAM_OPTIONS_H
#define HEARTH_EXT_STREAMS_STREAM_OPTIONS_H

#include "ext/compat.h"

#include <php.h>
#include <stdbool.h>
#include <zend_smart_str.h>

/* Appends the options, each after a comma, for a call to `host`. Borrowed: all. False: the call goes directly. */
bool stream_options_encode(php_stream_context *context, bool https, const char *host,
    size_t host_len, const struct timeval *timeout, smart_str *options);

#endif
