/* The board: memory shared with the server, in which the worker counts the requests it has taken (docs/internals/frames.md).
 *
 * Promises
 * - The count is raised after a request has been read and before any of it is acted on.
 * - The page is shared, so it is no part of what a snapshot puts back.
 */
#ifndef HEARTH_SAPI_BOARD_H
#define HEARTH_SAPI_BOARD_H

#include <stdbool.h>
#include <stdint.h>

/* Maps the board that came with SPAWN; the descriptor may be closed then. False when the system refuses. */
bool board_open(int fd);
/* One more request taken. */
void board_count(void);
/* What has become of connections of databases: how many are kept now, how often sessions were put back, nanoseconds that took. */
void board_tell_databases(uint64_t kept, uint64_t resets, uint64_t nanoseconds);
/* This process ends because of one of them. */
void board_tell_database_failed(void);

#endif
