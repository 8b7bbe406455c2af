/* See opening.h. */
#include "sapi/databases/opening.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sapi/boot/boot_descriptors.h"
#include "sapi/databases/connections.h"
#include "sapi/databases/guard.h"
#include "sapi/databases/libc_shim.h"
#include "sapi/output/log.h"

/* PHP code does one thing after the other: it waits for the connection that it has begun last. */
static struct {
    uint64_t limit_ms;
    int fd; /* -1: nothing is awaited */
    uint64_t device, inode, server;
    uint64_t left;     /* milliseconds that it may still be waited for */
    uint64_t again_at; /* 0: no server was silent */
    char peer[144];
} opening = {.fd = -1};

void opening_begin(uint64_t limit_ms) {
    opening.limit_ms = limit_ms;
    opening.fd = -1;
    opening.again_at = 0;
}

static void try_again_at(uint64_t at) {
    if (opening.again_at == 0 || at < opening.again_at) {
        opening.again_at = at;
    }
}

/* Returns when to try again; 0: now. If a server is only suspected, another worker is about to ask
 * it. The result is awaited, but no longer than the server itself. */
static uint64_t silent_until(uint64_t server) {
    static const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    uint64_t begin = databases_milliseconds();
    for (;;) {
        uint64_t now = databases_milliseconds();
        uint64_t until = databases_guard_silent_until(server, now, opening.limit_ms);
        if (until == 0 || !databases_guard_is_suspicion(server) ||
            now >= begin + opening.limit_ms) {
            return until;
        }
        nanosleep(&pause, NULL);
    }
}

bool opening_allows(int fd, uint64_t server, const struct sockaddr *address, socklen_t len) {
    struct stat status;
    uint64_t until = silent_until(server);
    if (until != 0) {
        try_again_at(until);
        return false;
    }
    opening.fd = -1;
    if (fstat(fd, &status) == 0) {
        opening.fd = fd;
        opening.device = status.st_dev;
        opening.inode = status.st_ino;
        opening.server = server;
        opening.left = opening.limit_ms;
        socket_name_address(address, len, opening.peer, sizeof opening.peer);
    }
    return true;
}

bool opening_awaits(int fd) {
    return opening.fd == fd;
}

void opening_answered(void) {
    databases_guard_answered(opening.server);
    opening.fd = -1;
}

static bool is_awaited(const struct pollfd *fds, nfds_t count) {
    struct stat status;
    for (nfds_t i = 0; opening.fd >= 0 && i < count; i++) {
        if (fds[i].fd == opening.fd) {
            /* the number may be another socket's by now */
            return fstat(opening.fd, &status) == 0 && status.st_dev == opening.device &&
                   status.st_ino == opening.inode;
        }
    }
    return false;
}

/* The other side has refused it or hung up: that is no silence. */
static bool has_ended(const struct pollfd *fds, nfds_t count) {
    for (nfds_t i = 0; i < count; i++) {
        if (fds[i].fd == opening.fd) {
            return (fds[i].revents & (POLLERR | POLLHUP)) != 0;
        }
    }
    return false;
}

static void give_up(uint64_t now) {
    char line[320];
    shutdown(opening.fd, SHUT_RDWR);
    opening.fd = -1;
    try_again_at(databases_guard_unanswered(opening.server, now, opening.limit_ms));
    snprintf(line, sizeof line,
        "%s got no answer within %lu ms (databases.connect_timeout): workers start without it, and "
        "one at a time tries again",
        opening.peer, opening.limit_ms);
    log_line(
        databases_guard_is_news(line) ? LOG_WARNING : LOG_DEBUG, LOG_SOURCE_WORKER, "%s", line);
}

/* The worker's own work is not the server's silence: only time spent here counts. */
int opening_poll(struct pollfd *fds, nfds_t count, int timeout) {
    if (!is_awaited(fds, count)) {
        return libc_shim_poll(fds, count, timeout);
    }
    bool limited = timeout < 0 || (uint64_t)timeout > opening.left;
    uint64_t begin = databases_milliseconds();
    int ready = libc_shim_poll(fds, count, limited ? (int)opening.left : timeout);
    int error = errno;
    uint64_t now = databases_milliseconds();
    uint64_t waited = now - begin;
    opening.left -= waited < opening.left ? waited : opening.left;
    if (ready == 0 && limited) {
        give_up(now);
        return libc_shim_poll(fds, count, 0);
    }
    if (ready > 0 && has_ended(fds, count)) {
        opening_answered();
    }
    errno = error;
    return ready;
}

uint64_t opening_end(void) {
    opening.fd = -1;
    return opening.again_at;
}
