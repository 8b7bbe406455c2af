/* Replacements for libc's socket calls, exported by the program, which let Hearth observe the connections of PHP's libraries.
 *
 * Promises
 * - Each call does the same as libc's, once. The bytes that were really sent and received are reported afterwards, in order.
 * - Before libc_shim_open(), in threads other than the one that called it, and for descriptors that are not observed, they only call
 *   libc.
 * - They do not see raw system calls, nor calls in builds with sanitizers, which interpose these functions themselves.
 */
#ifndef HEARTH_SAPI_DATABASES_LIBC_SHIM_H
#define HEARTH_SAPI_DATABASES_LIBC_SHIM_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { LIBC_SHIM_DESCRIPTORS = 1024 }; /* those above are not followed */

struct libc_shim {
    /* Called before a socket connects. It may set *address to another address, which must be static. False: the socket must not
     * connect; to its client the server seems not to answer. Borrowed: *address. */
    bool (*connecting)(int fd, const struct sockaddr **address, socklen_t *len);
    /* The connection was refused at once, or no server exists to refuse it. */
    void (*refused)(int fd);
    /* Called instead of poll(2); NULL: libc's own. Borrowed: fds. */
    int (*waiting)(struct pollfd *fds, nfds_t count, int timeout);
    /* Called for observed descriptors only. Borrowed: bytes. */
    void (*sent)(int fd, const void *bytes, size_t len);
    void (*received)(int fd, const void *bytes, size_t len);
    /* The socket was duplicated or passed to another owner, or its options cannot be restored. Static: how. */
    void (*shared)(int fd, const char *how);
    /* A message with descriptors has gone to another process. */
    void (*passed)(void);
    bool followed[LIBC_SHIM_DESCRIPTORS];
};

/* Reports the calls of this thread to `shim` from now on; NULL: not at all. Static: shim. */
void libc_shim_open(struct libc_shim *shim);
/* False in builds without it. */
bool libc_shim_works(void);
/* poll(2) itself. Borrowed: fds. */
int libc_shim_poll(struct pollfd *fds, nfds_t count, int timeout);

#endif
