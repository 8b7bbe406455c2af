/* One call of PHP's http wrapper, on the stream that the wrapper takes for a connection to the origin.
 *
 * Promises
 * - The wrapper writes its request and reads an answer, as from the origin: never a declined one, never a field of the hop.
 * - If the broker declines a call, it is made directly by the same stream that stock PHP would have used. From then on this stream *is*
 *   that stream, with its state.
 * - A call is made directly only if the origin has received no byte of it.
 */
#ifndef HEARTH_EXT_STREAMS_CALL_H
#define HEARTH_EXT_STREAMS_CALL_H

#include "ext/compat.h"

#include <php.h>
#include <stdbool.h>
#include <zend_smart_str.h>

/* How the last call that went directly after all failed to connect. */
struct call_failure {
    bool failed;
    zend_string *message; /* owned; NULL: stock PHP has none either */
};

/* Turns `stream`, made by the stock factory and not connected, into one to the broker. False: no broker listens there, and nothing is changed.
 * Taken over: options, origin. Borrowed: stream; name (`host:port`), failure, which lives as long as the program. */
bool call_begin(php_stream *stream, const char *name, size_t name_len,
    const struct timeval *timeout, php_stream_context *context, zend_string *origin,
    zend_string *options, struct call_failure *failure);

#endif
