/* The connection options in a stream's context, encoded for the broker (`Hearth-Control`, docs/internals/egress.md).
 *
 * Promises
 * - If an option is unknown, or the broker cannot fulfil it, the call goes directly. No option is silently ignored.
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
