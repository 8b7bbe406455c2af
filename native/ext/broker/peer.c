/* See peer.h. */
#include "ext/broker/peer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_named;
static uid_t named;

void peer_name(const char *number) {
    char *end = NULL;
    is_named = number != NULL && *number >= '0' && *number <= '9';
    if (is_named) {
        unsigned long value = strtoul(number, &end, 10);
        named = (uid_t)value;
        is_named = *end == '\0' && value < (uid_t)-1;
    }
}

/* Members of root's group are trusted like root. */
static bool others_may_write(const struct stat *file) {
    return (file->st_mode & S_IWOTH) != 0 || ((file->st_mode & S_IWGRP) != 0 && file->st_gid != 0);
}

/* Shortens the path to its parent folder. False: there is none. */
static bool go_up(char *path) {
    char *slash = strrchr(path, '/');
    if (slash == NULL || path[1] == '\0') {
        return false;
    }
    slash[slash == path ? 1 : 0] = '\0';
    return true;
}

/* In a folder like /tmp another user may have created the socket's folder before the broker. */
static bool owns_folder(uid_t user, const char *socket) {
    char path[PATH_MAX];
    struct stat folder;
    if (realpath(socket, path) == NULL || !go_up(path) || stat(path, &folder) != 0 ||
        folder.st_uid != user) {
        return false;
    }
    while (go_up(path)) {
        if (stat(path, &folder) != 0 || others_may_write(&folder)) {
            return false;
        }
    }
    return true;
}

bool peer_is_trusted(uid_t user, const char *socket) {
    return user == 0 || user == geteuid() || (is_named && user == named) ||
           owns_folder(user, socket);
}

bool peer_of_connection_is_trusted(int fd, const char *socket) {
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           peer_is_trusted(peer.uid, socket);
}

bool peer_of_file_is_trusted(const char *socket) {
    /* Each call checks the file; the folders above are checked only when the file has changed. */
    static struct stat known;
    static bool trusted;
    struct stat file;
    if (stat(socket, &file) != 0) {
        return true;
    }
    if (file.st_dev != known.st_dev || file.st_ino != known.st_ino || file.st_uid != known.st_uid ||
        file.st_ctim.tv_sec != known.st_ctim.tv_sec ||
        file.st_ctim.tv_nsec != known.st_ctim.tv_nsec) {
        trusted = peer_is_trusted(file.st_uid, socket);
        known = file;
    }
    return trusted;
}
