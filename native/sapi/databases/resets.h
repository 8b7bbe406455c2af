/* Resets over the descriptors of connections, and how connections and the process end.
 *
 * Promises
 * - A reset is written only to a socket that is still the same, at rest and quiet; its answer is awaited so long and no longer.
 * - When the process ends, it says goodbye to the servers whose connections are in a known state.
 * - What is not kept is told once by all workers together.
 */
#ifndef HEARTH_SAPI_DATABASES_RESETS_H
#define HEARTH_SAPI_DATABASES_RESETS_H

#include "sapi/databases/connections.h"

/* False: the socket did not take all of it at once, so the server's state is unknown. Borrowed: bytes. */
bool resets_write_bytes(int fd, const uint8_t *bytes, size_t len);
/* NULL: the reset is on its way. Otherwise why not; static. */
const char *resets_write(struct connection *connection);
/* One reason why not. */
extern const char resets_unanswered[];
/* NULL: the server's session is what its client remembers. Otherwise why not; static. */
const char *resets_finish(struct connection *connection);

/* In the shared counters, for the status. Borrowed: why it is not kept any more. */
void resets_tell(struct connection *connection, enum connection_state state, const char *why);
/* A connection that is not kept: the first worker that finds out says it, and its successors would only repeat it. Borrowed: what, why, end. */
void resets_say_refused(
    struct connection *connection, int level, const char *what, const char *why, const char *end);

/* The protocol's goodbye; the connection is not used any more. */
void resets_take_leave(struct connection *connection);
/* To the servers whose connections are kept, and as they should be. */
void resets_say_goodbyes(void);
/* Only while no request is under way: whatever the server has written ahead goes to another worker. Static: why. */
_Noreturn void resets_retire(struct connection *connection, const char *why);
/* The same, in order: nothing was wrong. Borrowed: why. */
_Noreturn void resets_leave(int level, const char *why);

#endif
