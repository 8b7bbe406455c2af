/* Decides whether calls may be sent to a broker's socket. They carry the broker's token and the application's credentials, and another
 * user of the machine could listen there.
 *
 * Knows nothing of PHP. packages/core (Egress/Broker.php) has the same rule.
 *
 * Promises
 * - Trusted users are root, this process's user, the configured one, and the owner of the socket's folder. The last only if no other user
 *   can replace that folder: each folder above it is writable for its owner only.
 */
#ifndef HEARTH_EXT_BROKER_PEER_H
#define HEARTH_EXT_BROKER_PEER_H

#include <stdbool.h>
#include <sys/types.h>

/* Sets a trusted user by its number, in decimal digits (HEARTH_EGRESS_OWNER). Any other text sets none. */
void peer_name(const char *number);

/* Returns whether calls may be sent to a process of this user that listens at this path. */
bool peer_is_trusted(uid_t user, const char *socket);
/* Checks the process at the other end of a connection (SO_PEERCRED, unix(7)). */
bool peer_of_connection_is_trusted(int fd, const char *socket);
/* Checks the owner of the socket file, for connections that libcurl opens. True if there is no file. */
bool peer_of_file_is_trusted(const char *socket);

#endif
