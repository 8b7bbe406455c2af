/* libc's calls on sockets, exported by the program in libc's place, so that conversations of PHP's libraries can be followed.
 *
 * Promises
 * - Each call does what libc's does, once; what was sent and received is told afterwards, in order, as far as it really went.
 * - Before tap_open(), in other threads than the one that called it, and for descriptors that nobody follows, they only pass on.
 * - Not seen: raw system calls, and system calls of sanitizers' builds, which interpose these functions themselves.
 */
#ifndef HEARTH_SAPI_TAP_H
#define HEARTH_SAPI_TAP_H

#include <stdbool.h>
#include <stddef.h>

enum { TAP_DESCRIPTORS = 1024 }; /* those above are not followed */

struct tap {
    /* A socket is being connected. */
    void (*connecting)(int fd);
    /* Only for descriptors that are followed. Borrowed: bytes. */
    void (*sent)(int fd, const void *bytes, size_t len);
    void (*received)(int fd, const void *bytes, size_t len);
    /* It has another number or owner as well, or options that nobody puts back. Static: how. */
    void (*shared)(int fd, const char *how);
    /* A message with descriptors has gone to another process. */
    void (*passed)(void);
    bool followed[TAP_DESCRIPTORS];
};

/* From now on the calls of this thread are told to `tap`; NULL: to nobody. Static: tap. */
void tap_open(struct tap *tap);
/* False in builds without it. */
bool tap_works(void);

#endif
