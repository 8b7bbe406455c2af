/* Descriptors that the script's boot has opened, when its process is forked. Files get their own
 * position in each worker. Connections are reported and closed, because two processes cannot share
 * one.
 *
 * Promises
 * - A worker never reads or writes a stream socket that another process holds too.
 */
#ifndef HEARTH_SAPI_BOOT_BOOT_DESCRIPTORS_H
#define HEARTH_SAPI_BOOT_BOOT_DESCRIPTORS_H

#include <stddef.h>
#include <sys/socket.h>

/* Called before the script runs, and before a worker's start callbacks: descriptors open at that
 * time do not belong to them. */
void boot_descriptors_mark(void);
/* Called at the wait point: logs each connection that the boot has left open. */
void boot_descriptors_report(void);
/* Called in a worker after the fork. */
void boot_descriptors_isolate(void);
/* Only files and folders: in a process that serves a warm-up and is thrown away. */
void boot_descriptors_isolate_files(void);

/* Calls `each` for every connection to another process that was opened since the mark: no listener, and no pair of this process's own. */
void boot_descriptors_each_new(void (*each)(int fd));

/* `a connection to 127.0.0.1:3306`, always ended. */
void socket_name_peer(int fd, char *to, size_t len);
void socket_name_address(const struct sockaddr *given, socklen_t given_len, char *to, size_t len);
/* Replaces a connection by a socket whose other end is closed: reads find the end, writes fail,
 * and clients connect again. Only system calls, so it may be called in the child of a fork. */
void socket_cut(int fd);

#endif
