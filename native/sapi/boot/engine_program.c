/* See engine_program.h. */
#include "sapi/boot/engine_program.h"

#include <fcntl.h>
#include <limits.h>
#include <php_version.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define VERSION_OF(major, minor) VERSION_TEXT(major, minor)
#define VERSION_TEXT(major, minor) #major "." #minor
#define VERSION VERSION_OF(PHP_MAJOR_VERSION, PHP_MINOR_VERSION)
#define PRELOAD "LD_PRELOAD="

static const char program[] = "/usr/bin/php" VERSION;
static const char own_name[] = "hearth-worker-" VERSION;
static const char library_name[] = "hearth-preload-" VERSION ".so";

extern char **environ;

/* The library beside this program. False: there is none, or LD_PRELOAD could not name it. */
static bool find_library(char *path, size_t room) {
    ssize_t len = readlink("/proc/self/exe", path, room - 1);
    if (len <= 0) {
        return false;
    }
    path[len] = '\0';
    char *slash = strrchr(path, '/');
    size_t left = slash != NULL ? room - (size_t)(slash + 1 - path) : 0;
    if (left < sizeof library_name || strpbrk(path, ": \t\n") != NULL) {
        return false;
    }
    memcpy(slash + 1, library_name, sizeof library_name);
    return access(path, R_OK) == 0;
}

/* A copy of the environment with the library in LD_PRELOAD, before what was there. Owned by the caller: the copy. */
static char **with_preload(char *entry, size_t room, const char *library) {
    size_t len = 0;
    size_t at = SIZE_MAX;
    for (; environ[len] != NULL; len++) {
        if (strncmp(environ[len], PRELOAD, sizeof PRELOAD - 1) == 0) {
            at = len;
        }
    }
    const char *old = at != SIZE_MAX ? environ[at] + sizeof PRELOAD - 1 : "";
    int needed = snprintf(entry, room, PRELOAD "%s%s%s", library, *old != '\0' ? ":" : "", old);
    char **all = calloc(len + 2, sizeof *all);
    if (needed < 0 || (size_t)needed >= room || all == NULL) {
        free(all);
        return NULL;
    }
    memcpy(all, environ, len * sizeof *all);
    all[at != SIZE_MAX ? at : len] = entry;
    return all;
}

static bool works(char **environment) {
    char *const arguments[] = {(char *)own_name, ENGINE_PROGRAM_TRIAL, NULL};
    posix_spawn_file_actions_t silent;
    pid_t pid;
    int status = 0;
    posix_spawn_file_actions_init(&silent);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        posix_spawn_file_actions_addopen(&silent, fd, "/dev/null", O_RDWR, 0);
    }
    bool ran = posix_spawn(&pid, program, &silent, NULL, arguments, environment) == 0 &&
               waitpid(pid, &status, 0) == pid;
    posix_spawn_file_actions_destroy(&silent);
    return ran && WIFEXITED(status) && WEXITSTATUS(status) == ENGINE_PROGRAM_WORKS;
}

void engine_program_enter(char **argv) {
    char library[PATH_MAX];
    if (engine_program_inside || access(program, X_OK) != 0 ||
        !find_library(library, sizeof library)) {
        return;
    }
    static char entry[2 * PATH_MAX];
    char **environment = with_preload(entry, sizeof entry, library);
    if (environment != NULL && works(environment)) {
        execve(program, argv, environment);
    }
    free(environment);
}

void engine_program_settle(void) {
    if (!engine_program_inside) {
        return;
    }
    prctl(PR_SET_NAME, own_name);
    char **at = environ;
    while (*at != NULL && strncmp(*at, PRELOAD, sizeof PRELOAD - 1) != 0) {
        at++;
    }
    if (*at == NULL) {
        return;
    }
    char *value = *at + sizeof PRELOAD - 1;
    char *old = strchr(value, ':');
    if (old != NULL) {
        memmove(value, old + 1, strlen(old + 1) + 1);
        return;
    }
    for (; *at != NULL; at++) {
        *at = at[1];
    }
}
