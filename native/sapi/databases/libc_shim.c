/* See libc_shim.h. The calls go to the kernel directly: a symbol looked up by name would find this file again in some builds. */
#include "sapi/databases/libc_shim.h"

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__linux__) &&                         \
    !defined(__SANITIZE_ADDRESS__)
#define LIBC_SHIM 1
#else
#define LIBC_SHIM 0
#endif

#if LIBC_SHIM

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct libc_shim *shim;
static pthread_t thread;

void libc_shim_open(struct libc_shim *given) {
    thread = pthread_self();
    shim = given;
}

bool libc_shim_works(void) {
    return true;
}

static inline bool is_followed(int fd) {
    return __builtin_expect(shim != NULL, 0) && (unsigned)fd < LIBC_SHIM_DESCRIPTORS &&
           shim->followed[fd] && pthread_self() == thread;
}

static void tell_sent(int fd, const void *bytes, ssize_t len) {
    if (len > 0 && is_followed(fd)) {
        int saved = errno;
        shim->sent(fd, bytes, (size_t)len);
        errno = saved;
    }
}

static void tell_received(int fd, const void *bytes, ssize_t len, int flags) {
    if (len > 0 && (flags & MSG_PEEK) == 0 && is_followed(fd)) {
        int saved = errno;
        shim->received(fd, bytes, (size_t)len);
        errno = saved;
    }
}

/* Tells the pieces of a vector that `len` bytes have gone through. */
static void tell_vector(int fd, const struct iovec *iov, size_t count, ssize_t len, bool sent) {
    for (size_t i = 0; i < count && len > 0; i++) {
        ssize_t piece = (size_t)len < iov[i].iov_len ? len : (ssize_t)iov[i].iov_len;
        if (sent) {
            tell_sent(fd, iov[i].iov_base, piece);
        } else {
            tell_received(fd, iov[i].iov_base, piece, 0);
        }
        len -= piece;
    }
}

int connect(int fd, const struct sockaddr *address, socklen_t len) {
    if (shim == NULL || fd < 0 || fd >= LIBC_SHIM_DESCRIPTORS || pthread_self() != thread) {
        return (int)syscall(SYS_connect, fd, address, len);
    }
    if (!shim->connecting(fd, &address, &len)) {
        errno = ETIMEDOUT;
        return -1;
    }
    int result = (int)syscall(SYS_connect, fd, address, len);
    if (result < 0 && errno != EINPROGRESS && errno != EAGAIN && errno != EINTR &&
        errno != EALREADY && errno != EISCONN && errno != ETIMEDOUT) {
        int saved = errno;
        shim->refused(fd);
        errno = saved;
    }
    return result;
}

ssize_t send(int fd, const void *bytes, size_t len, int flags) {
    ssize_t sent = syscall(SYS_sendto, fd, bytes, len, flags, NULL, 0);
    tell_sent(fd, bytes, sent);
    return sent;
}

ssize_t sendto(int fd, const void *bytes, size_t len, int flags, const struct sockaddr *address,
    socklen_t address_len) {
    ssize_t sent = syscall(SYS_sendto, fd, bytes, len, flags, address, address_len);
    tell_sent(fd, bytes, sent);
    return sent;
}

ssize_t write(int fd, const void *bytes, size_t len) {
    ssize_t sent = syscall(SYS_write, fd, bytes, len);
    tell_sent(fd, bytes, sent);
    return sent;
}

ssize_t writev(int fd, const struct iovec *iov, int count) {
    ssize_t sent = syscall(SYS_writev, fd, iov, count);
    if (sent > 0 && is_followed(fd)) {
        tell_vector(fd, iov, (size_t)count, sent, true);
    }
    return sent;
}

static bool carries_descriptors(const struct msghdr *message) {
    if (message->msg_controllen == 0) {
        return false;
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL;
         c = CMSG_NXTHDR((struct msghdr *)message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            return true;
        }
    }
    return false;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    ssize_t sent = syscall(SYS_sendmsg, fd, message, flags);
    if (sent > 0 && shim != NULL && pthread_self() == thread) {
        if (carries_descriptors(message)) {
            shim->passed();
        }
        if (is_followed(fd)) {
            tell_vector(fd, message->msg_iov, message->msg_iovlen, sent, true);
        }
    }
    return sent;
}

ssize_t recv(int fd, void *bytes, size_t len, int flags) {
    ssize_t got = syscall(SYS_recvfrom, fd, bytes, len, flags, NULL, NULL);
    tell_received(fd, bytes, got, flags);
    return got;
}

/* glibc's headers promise a union for the address where they can. */
ssize_t recvfrom(int fd, void *restrict bytes, size_t len, int flags, __SOCKADDR_ARG address,
    socklen_t *restrict address_len) {
    ssize_t got = syscall(SYS_recvfrom, fd, bytes, len, flags, address.__sockaddr__, address_len);
    tell_received(fd, bytes, got, flags);
    return got;
}

ssize_t read(int fd, void *bytes, size_t len) {
    ssize_t got = syscall(SYS_read, fd, bytes, len);
    tell_received(fd, bytes, got, 0);
    return got;
}

ssize_t readv(int fd, const struct iovec *iov, int count) {
    ssize_t got = syscall(SYS_readv, fd, iov, count);
    if (got > 0 && is_followed(fd)) {
        tell_vector(fd, iov, (size_t)count, got, false);
    }
    return got;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
    if (got > 0 && (flags & MSG_PEEK) == 0 && is_followed(fd)) {
        tell_vector(fd, message->msg_iov, message->msg_iovlen, got, false);
    }
    return got;
}

int libc_shim_poll(struct pollfd *fds, nfds_t count, int timeout) {
#ifdef SYS_poll
    return (int)syscall(SYS_poll, fds, count, timeout);
#else
    /* ARM64 has only ppoll(2), which overwrites its time-out with the remaining time. */
    struct timespec left = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000L};
    return (int)syscall(SYS_ppoll, fds, count, timeout < 0 ? NULL : &left, NULL, 0);
#endif
}

int poll(struct pollfd *fds, nfds_t count, int timeout) {
    if (__builtin_expect(shim != NULL && shim->waiting != NULL, 0) && pthread_self() == thread) {
        return shim->waiting(fds, count, timeout);
    }
    return libc_shim_poll(fds, count, timeout);
}

/* Replacements that -D_FORTIFY_SOURCE uses for the functions above if the buffer's size is known:
 * glibc, debug/read_chk.c and similar files. */
ssize_t __read_chk(int fd, void *bytes, size_t len, size_t room);
ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *bytes, size_t len, size_t room, int flags,
    __SOCKADDR_ARG address, socklen_t *address_len);

ssize_t __read_chk(int fd, void *bytes, size_t len, size_t room) {
    if (len > room) {
        abort();
    }
    return read(fd, bytes, len);
}

ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t room, int flags) {
    if (len > room) {
        abort();
    }
    return recv(fd, bytes, len, flags);
}

ssize_t __recvfrom_chk(int fd, void *bytes, size_t len, size_t room, int flags,
    __SOCKADDR_ARG address, socklen_t *address_len) {
    if (len > room) {
        abort();
    }
    return recvfrom(fd, bytes, len, flags, address, address_len);
}

int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);

int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room) {
    if (room / sizeof *fds < count) {
        abort();
    }
    return poll(fds, count, timeout);
}

int dup(int fd) {
    if (is_followed(fd)) {
        shim->shared(fd, "the request made a second descriptor of it");
    }
    return (int)syscall(SYS_dup, fd);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len) {
    if (is_followed(fd)) {
        shim->shared(fd, "the request changed options of its socket");
    }
    return (int)syscall(SYS_setsockopt, fd, level, name, value, len);
}

#else

void libc_shim_open(struct libc_shim *given) {
    (void)given;
}

bool libc_shim_works(void) {
    return false;
}

int libc_shim_poll(struct pollfd *fds, nfds_t count, int timeout) {
    return poll(fds, count, timeout);
}

#endif
