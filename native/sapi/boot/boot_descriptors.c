/* See boot_descriptors.h. */
#include "sapi/boot/boot_descriptors.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "sapi/output/log.h"

enum { MOST = 4096 }; /* a descriptor above is left alone: no boot opens as many */

static bool before[MOST];

/* Calls `each` for every open descriptor. */
static void each_descriptor(void (*each)(int fd)) {
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL) {
        return;
    }
    int open_fds[MOST];
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL && count < MOST) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd != dirfd(directory) && fd < MOST) {
            open_fds[count++] = fd;
        }
    }
    closedir(directory);
    for (size_t i = 0; i < count; i++) {
        each(open_fds[i]);
    }
}

static void mark(int fd) {
    before[fd] = true;
}

void boot_descriptors_mark(void) {
    memset(before, 0, sizeof before);
    each_descriptor(mark);
}

/* A connection, or something that would become one: a stream or a sequence of packets. */
static bool is_conversation(int fd) {
    int type;
    socklen_t len = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
           (type == SOCK_STREAM || type == SOCK_SEQPACKET);
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
};

void socket_name_peer(int fd, char *to, size_t len) {
    union address address;
    socklen_t size = sizeof address;
    if (getpeername(fd, &address.any, &size) != 0) {
        snprintf(to, len, "a socket that is not connected");
    } else {
        socket_name_address(&address.any, size, to, len);
    }
}

void socket_name_address(const struct sockaddr *given, socklen_t given_len, char *to, size_t len) {
    union address address;
    char text[INET6_ADDRSTRLEN];
    memset(&address, 0, sizeof address);
    memcpy(&address, given, given_len < sizeof address ? given_len : sizeof address - 1);
    if (address.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &address.v4.sin_addr, text, sizeof text);
        snprintf(to, len, "a connection to %s:%u", text, ntohs(address.v4.sin_port));
    } else if (address.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &address.v6.sin6_addr, text, sizeof text);
        snprintf(to, len, "a connection to [%s]:%u", text, ntohs(address.v6.sin6_port));
    } else if (address.any.sa_family == AF_UNIX && address.local.sun_path[0] != '\0') {
        snprintf(to, len, "a connection to %s", address.local.sun_path);
    } else {
        snprintf(to, len, "a socket pair");
    }
}

static void report(int fd) {
    if (before[fd] || !is_conversation(fd)) {
        return;
    }
    char peer[256];
    socket_name_peer(fd, peer, sizeof peer);
    log_line(LOG_WARNING, LOG_SOURCE_WORKER,
        "the application opened %s while it booted (descriptor %d); workers cannot share it and "
        "find it closed: open it in the request, "
        "or in hearth_on_worker_start()",
        peer, fd);
}

void boot_descriptors_report(void) {
    each_descriptor(report);
}

void socket_cut(int fd) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        close(fd);
        return;
    }
    close(pair[1]);
    int flags = fcntl(fd, F_GETFL);
    dup3(pair[0], fd, O_CLOEXEC);
    if (flags >= 0) {
        fcntl(fd, F_SETFL, flags & O_NONBLOCK);
    }
    close(pair[0]);
}

/* Opens the file again, so that its position belongs to this process. */
static void reopen(int fd) {
    char path[32];
    int flags = fcntl(fd, F_GETFL);
    off_t position = lseek(fd, 0, SEEK_CUR);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, (flags & ~(O_CREAT | O_EXCL | O_TRUNC)) | O_CLOEXEC);
    if (own < 0) {
        return; /* no longer readable for us: the shared position is all there is */
    }
    lseek(own, position, SEEK_SET);
    dup3(own, fd, fcntl(fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
    close(own);
}

static void isolate_file(int fd) {
    struct stat entry;
    if (!before[fd] && fstat(fd, &entry) == 0 &&
        (S_ISREG(entry.st_mode) || S_ISDIR(entry.st_mode))) {
        reopen(fd);
    }
}

static void isolate(int fd) {
    struct stat entry;
    if (!before[fd] && fstat(fd, &entry) == 0 && S_ISSOCK(entry.st_mode) && is_conversation(fd)) {
        socket_cut(fd);
    }
    isolate_file(fd);
}

void boot_descriptors_isolate_files(void) {
    each_descriptor(isolate_file);
}

void boot_descriptors_isolate(void) {
    each_descriptor(isolate);
}

/* The peer of a socket that is still connecting is unknown, so the socket counts. */
static bool is_to_somebody(int fd) {
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    int listens = 0;
    socklen_t room = sizeof listens;
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &room);
    if (!is_conversation(fd) || listens != 0) {
        return false;
    }
    return getpeername(fd, (struct sockaddr *)&peer, &len) != 0 || peer.ss_family != AF_UNIX ||
           len > offsetof(struct sockaddr_un, sun_path);
}

static void (*each_new)(int fd);

static void visit_new(int fd) {
    if (!before[fd] && is_to_somebody(fd)) {
        each_new(fd);
    }
}

void boot_descriptors_each_new(void (*each)(int fd)) {
    each_new = each;
    each_descriptor(visit_new);
}
