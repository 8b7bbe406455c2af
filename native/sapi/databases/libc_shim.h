/* libc's calls on sockets, exported by the program in libc's place, so that conversations of PHP's libraries can be followed.
 *
 * Promises
 * - Each call does what libc's does, once; what was sent and received is told afterwards, in order, as far as it really went.
 * - Before libc_shim_open(), in other threads than the one that called it, and for descriptors that are not followed, they only pass on.
 * - Not seen: raw system calls, and system calls of sanitizers' builds, which interpose these functions themselves.
 */
#ifndef HEARTH_SAPI_DATABASES_LIBC_SHIM_H
#define HEARTH_SAPI_DATABASES_LIBC_SHIM_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { LIBC_SHIM_DESCRIPTORS = 1024 }; /* those above are not followed */

struct libc_shim {
    /* A socket is being connected, and will be to what stands in *address afterwards, which is static if it is another. False: it must not be;
     * to its client it looks like a server that did not answer. Borrowed: *address. */
    bool (*connecting)(int fd, const struct sockaddr **address, socklen_t *len);
    /* It was refused at once, or no server is there to refuse it. */
    void (*refused)(int fd);
    /* In place of poll(2); NULL: libc's own. Borrowed: fds. */
    int (*waiting)(struct pollfd *fds, nfds_t count, int timeout);
    /* Only for descriptors that are followed. Borrowed: bytes. */
    void (*sent)(int fd, const void *bytes, size_t len);
    void (*received)(int fd, const void *bytes, size_t len);
    /* It has another number or owner as well, or options that are not restored. Static: how. */
    void (*shared)(int fd, const char *how);
    /* A message with descriptors has gone to another process. */
    void (*passed)(void);
    bool followed[LIBC_SHIM_DESCRIPTORS];
};

/* From now on the calls of this thread are reported to `shim`; NULL: not at all. Static: shim. */
void libc_shim_open(struct libc_shim *shim);
/* False in builds without it. */
bool libc_shim_works(void);
/* poll(2) itself. Borrowed: fds. */
int libc_shim_poll(struct pollfd *fds, nfds_t count, int timeout);

#endif
