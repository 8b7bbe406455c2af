/* See places.h. */
#include "sapi/databases/places.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char *connectors = "";

void places_open(const char *lines) {
    connectors = lines;
}

enum { SOCKET = 109 }; /* a path of a socket, and its end */
_Static_assert(sizeof((struct sockaddr_un *)NULL)->sun_path < SOCKET, "all of it has room");

/* A connector. */
struct line {
    char socket[SOCKET], file[4096];
    size_t sessions, workers;
    char name[SOCKET]; /* empty: the socket has its own */
};

/* The number of places that this worker has wanted of each connector. */
static struct {
    size_t most;   /* connections at once, as if it had kept them all */
    size_t missed; /* that have ended for want of a place */
} wanted[64];
#define WANTED(connector) (&wanted[(connector) % (sizeof wanted / sizeof *wanted)])

/* The next of `lines`. False: there is none. */
static bool next_line(const char **lines, struct line *line) {
    line->name[0] = 0;
    if (sscanf(*lines, "%108[^\t\n]\t%4095[^\t\n]\t%zu\t%zu\t%108[^\n]", line->socket, line->file,
            &line->sessions, &line->workers, line->name) < 4) {
        return false;
    }
    const char *end = strchr(*lines, '\n');
    *lines = end != NULL ? end + 1 : "";
    return true;
}

/* The path of a socket. False: it has none. */
static bool path_of(const struct sockaddr *address, socklen_t len, char path[static SOCKET]) {
    const struct sockaddr_un *local = (const struct sockaddr_un *)(const void *)address;
    size_t offset = offsetof(struct sockaddr_un, sun_path);
    if (address->sa_family != AF_UNIX || len <= offset || len > sizeof *local ||
        local->sun_path[0] == 0) {
        return false;
    }
    memcpy(path, local->sun_path, len - offset);
    path[len - offset] = 0;
    return true;
}

/* Returns whether both paths lead to the same socket. */
static bool are_same(const char *one, const char *other) {
    struct stat first, second;
    return stat(one, &first) == 0 && stat(other, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

int places_find(const struct sockaddr *address, socklen_t len) {
    struct line line;
    char path[SOCKET];
    const char *lines = connectors;
    if (*lines == 0 || !path_of(address, len, path)) {
        return PLACES_UNCOUNTED;
    }
    for (int number = 0; next_line(&lines, &line); number++) {
        if (are_same(line.socket, path)) {
            return number;
        }
    }
    return PLACES_UNCOUNTED;
}

void places_lead_home(const struct sockaddr **address, socklen_t *len) {
    static struct sockaddr_un home;
    struct line line;
    char path[SOCKET];
    const char *lines = connectors;
    if (*lines == 0 || !path_of(*address, *len, path)) {
        return;
    }
    while (next_line(&lines, &line)) {
        if (line.name[0] != 0 && access(line.socket, F_OK) == 0 &&
            (strcmp(line.name, path) == 0 || are_same(line.name, path)) &&
            strlen(line.socket) < sizeof home.sun_path) {
            home.sun_family = AF_UNIX;
            strcpy(home.sun_path, line.socket);
            *address = (const struct sockaddr *)&home;
            *len = sizeof home;
            return;
        }
    }
}

/* The file's first byte is the highest number of connections that any worker has wanted. A
 * starting worker learns from it how many are still to come. The number stays over reloads: with a
 * lower one, the first workers of a new generation would take places that the others need. */
static size_t most_wanted(int fd, size_t most) {
    uint8_t known = 0, ours = most < UINT8_MAX ? (uint8_t)most : UINT8_MAX;
    if (pread(fd, &known, 1, 0) == 1 && known < ours && pwrite(fd, &ours, 1, 0) == 1) {
        return ours;
    }
    return known;
}

/* Returns how many places each worker may keep, so that enough sessions are left for one worker
 * without any. */
static size_t each_keeps(const struct line *line, size_t needs) {
    return line->sessions > needs && line->workers > 0 ? (line->sessions - needs) / line->workers
                                                       : 0;
}

/* Returns the file of a connector, or a result of places_take(). `*places`: how many places
 * workers may hold; `*each`: how many each of them. */
static int open_file(int connector, off_t *places, size_t *each) {
    struct line line;
    const char *lines = connectors;
    for (int number = 0; number <= connector; number++) {
        if (!next_line(&lines, &line)) {
            return PLACES_UNCOUNTED;
        }
    }
    struct stat status;
    int fd = open(line.file, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return PLACES_FAILED;
    }
    if (fstat(fd, &status) != 0 || status.st_size == 0) {
        close(fd);
        return PLACES_NONE;
    }
    size_t needs = most_wanted(fd, WANTED(connector)->most);
    *each = each_keeps(&line, needs);
    *places = line.sessions > needs ? (off_t)(line.sessions - needs) : 0;
    *places = *places < status.st_size ? *places : status.st_size;
    return fd;
}

/* Calls fcntl(2) with `command` for each place. Returns the file with the place that `good`
 * accepted, or a result of places_take(). `held`: places that this worker has. */
static int look(int connector, size_t held, int command, bool (*good)(const struct flock *lock)) {
    off_t places;
    size_t each;
    int fd = open_file(connector, &places, &each);
    if (fd < 0) {
        return fd;
    }
    for (off_t place = 0; held < each && place < places; place++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};
        if (fcntl(fd, command, &lock) == 0 && good(&lock)) {
            return fd;
        }
    }
    close(fd);
    return held < each ? PLACES_ALL_TAKEN : PLACES_NONE;
}

static bool is_ours(const struct flock *lock) {
    (void)lock;
    return true;
}

static bool is_free(const struct flock *lock) {
    return lock->l_type == F_UNLCK;
}

void places_want(int connector, size_t count) {
    count += WANTED(connector)->missed;
    if (count > WANTED(connector)->most) {
        WANTED(connector)->most = count;
    }
}

void places_missed(int connector) {
    WANTED(connector)->missed++;
}

int places_take(int connector, size_t held) {
    return look(connector, held, F_OFD_SETLK, is_ours);
}

bool places_are_too_many(int connector, size_t held) {
    off_t places;
    size_t each;
    int fd = open_file(connector, &places, &each);
    if (fd < 0) {
        return false;
    }
    close(fd);
    return held > each;
}

bool places_are_free(int connector) {
    int fd = look(connector, 0, F_OFD_GETLK, is_free);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}
