/* Whether a broker's socket is one that calls may be sent to: they carry the broker's token and the application's credentials, and another user of
 * the machine could listen there in the broker's place.
 *
 * Knows nothing of PHP. packages/core (Egress/Broker.php) has the same rule.
 *
 * Promises
 * - Trusted users: root, this process's own, the one that was named, and the owner of the socket's folder if no other user can replace that
 *   folder, because each folder above it is only its owner's to write.
 */
#ifndef HEARTH_EXT_BROKER_PEER_H
#define HEARTH_EXT_BROKER_PEER_H

#include <stdbool.h>
#include <sys/types.h>

/* Names a trusted user by its number, in decimal digits (HEARTH_EGRESS_OWNER). Anything else names none. */
void peer_name(const char *number);

/* Whether calls may be sent to a process of this user that listens at this path. */
bool peer_is_trusted(uid_t user, const char *socket);
/* The same of the process that listens at the other end of a connection (SO_PEERCRED, unix(7)). */
bool peer_of_connection_is_trusted(int fd, const char *socket);
/* The same of the file's owner, for connections that are not made here. True where there is no file. */
bool peer_of_file_is_trusted(const char *socket);

#endif
