/* Resets over the descriptors of connections, and how connections and the process end.
 *
 * Promises
 * - A reset is written only to a socket that is still the same and idle. Its answer has a time limit.
 * - When the process ends, connections in a known state are closed in the way of their protocol.
 * - Connections that are not kept are logged once for all workers.
 */
#ifndef HEARTH_SAPI_DATABASES_RESETS_H
#define HEARTH_SAPI_DATABASES_RESETS_H

#include "sapi/databases/connections.h"

/* False: the socket did not take all of it at once, so the server's state is unknown. Borrowed: bytes. */
bool resets_write_bytes(int fd, const uint8_t *bytes, size_t len);
/* Writes the reset. NULL: it is sent. Otherwise why not; static. */
const char *resets_write(struct connection *connection);
/* The reason for an unanswered reset. */
extern const char resets_unanswered[];
/* NULL: the server's session is what its client remembers. Otherwise why not; static. */
const char *resets_finish(struct connection *connection);

/* Writes the connection's state to the shared counters, for the status. Borrowed: why it is not kept
 * any more. */
void resets_tell(struct connection *connection, enum connection_state state, const char *why);
/* Logs a connection that is not kept. Only the first worker that finds out logs it; its successors
 * would repeat the line. Borrowed: what, why, end. */
void resets_say_refused(
    struct connection *connection, int level, const char *what, const char *why, const char *end);

/* The protocol's goodbye; the connection is not used any more. */
void resets_take_leave(struct connection *connection);
/* Sends the closing command to servers whose connections are kept and in order. */
void resets_say_goodbyes(void);
/* Called only while no request runs, so that requests written ahead go to another worker. Static: why. */
_Noreturn void resets_retire(struct connection *connection, const char *why);
/* Ends the process in the same way without an error. Borrowed: why. */
_Noreturn void resets_leave(int level, const char *why);

#endif
