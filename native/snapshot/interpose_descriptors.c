/* Descriptors, their flags and locks, current directory and umask. */
#include "snapshot/interpose.h"

#if SNAPSHOT_ENGINE

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <linux/sockios.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

static bool matters(unsigned int first, unsigned int last) {
    const struct engine *e = engine;
    return e != NULL && e->taken &&
           ((int)first <= e->descriptor_max ||
               (first <= (unsigned int)e->fds.last && last >= (unsigned int)e->fds.first));
}

static void touch_numbers(unsigned int first, unsigned int last) {
    if (matters(first, last)) {
        touch(TOUCHED_IDENTITY);
    }
}

static void touch_number(int fd) {
    if (fd >= 0) {
        touch_numbers((unsigned int)fd, (unsigned int)fd);
    }
}

int close(int fd) {
    touch_number(fd);
    return NEXT(close)(fd);
}

int dup2(int from, int to) {
    touch_number(to);
    int fd = NEXT(dup2)(from, to);
    interpose_opened(fd);
    return fd;
}

int dup3(int from, int to, int flags) {
    touch_number(to);
    int fd = NEXT(dup3)(from, to, flags);
    interpose_opened(fd);
    return fd;
}

int close_range(unsigned int first, unsigned int last, int flags) {
    touch_numbers(first, last);
    return NEXT(close_range)(first, last, flags);
}

void closefrom(int first) {
    touch_numbers(first < 0 ? 0 : (unsigned int)first, ~0U);
    NEXT(closefrom)(first);
}

int fclose(FILE *stream) {
    touch_number(fileno(stream));
    return NEXT(fclose)(stream);
}

int fcloseall(void) {
    touch(TOUCHED_IDENTITY);
    return NEXT(fcloseall)();
}

FILE *freopen(const char *path, const char *mode, FILE *stream) {
    touch_number(fileno(stream));
    touch(TOUCHED_PROC); /* seldom called: not worth a look */
    FILE *again = NEXT(freopen)(path, mode, stream);
    interpose_opened(again != NULL ? fileno(again) : -1);
    return again;
}

FILE *freopen64(const char *path, const char *mode, FILE *stream) {
    touch_number(fileno(stream));
    touch(TOUCHED_PROC);
    FILE *again = NEXT(freopen64)(path, mode, stream);
    interpose_opened(again != NULL ? fileno(again) : -1);
    return again;
}

int closedir(DIR *directory) {
    touch_number(dirfd(directory));
    return NEXT(closedir)(directory);
}

int pclose(FILE *stream) {
    touch_number(fileno(stream));
    return NEXT(pclose)(stream);
}

/* What syslog(3) was opened with. `known`: it was. */
static struct {
    bool known;
    const char *name;
    int options;
    int facility;
} system_log;

void openlog(const char *name, int options, int facility) {
    system_log.known = true;
    system_log.name = name;
    system_log.options = options;
    system_log.facility = facility;
    NEXT(openlog)(name, options, facility);
}

void closelog(void) {
    system_log.known = false;
    NEXT(closelog)();
}

void leave_system_log(void) {
    bool known = system_log.known;
    closelog();
    if (known) {
        openlog(system_log.name, system_log.options & ~LOG_NDELAY, system_log.facility);
    }
}

/* `argument` as an integer: of F_SETFL it is. */
static void touch_flags(int fd, int command, intptr_t argument) {
    if (command == F_SETOWN || command == F_SETOWN_EX || command == F_SETSIG ||
        command == F_SETLEASE || command == F_NOTIFY ||
        (command == F_SETFL && (argument & O_ASYNC) != 0)) {
        touch(TOUCHED_EVENTS);
    }
    if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
        command == F_OFD_SETLKW) {
        touch(TOUCHED_LOCKS);
    }
    if ((command == F_SETFL || command == F_SETFD) && fd >= 0 &&
        matters((unsigned int)fd, (unsigned int)fd)) {
        touch(TOUCHED_FLAGS);
    }
}

static int duplicated(int command, int result) {
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
        interpose_opened(result);
    }
    return result;
}

int fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    touch_flags(fd, command, (intptr_t)argument);
    return duplicated(command, NEXT(fcntl)(fd, command, argument));
}

int fcntl64(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    touch_flags(fd, command, (intptr_t)argument);
    return duplicated(command, NEXT(fcntl64)(fd, command, argument));
}

int flock(int fd, int operation) {
    touch(TOUCHED_LOCKS);
    return NEXT(flock)(fd, operation);
}

int lockf(int fd, int command, off_t len) {
    touch(TOUCHED_LOCKS);
    return NEXT(lockf)(fd, command, len);
}

int lockf64(int fd, int command, off64_t len) {
    touch(TOUCHED_LOCKS);
    return NEXT(lockf64)(fd, command, len);
}

int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (request == FIONBIO || request == FIOASYNC || request == FIOCLEX || request == FIONCLEX) {
        touch_flags(fd, F_SETFL, request == FIOASYNC ? O_ASYNC : 0);
    }
    if (request == FIOSETOWN || request == SIOCSPGRP) {
        touch(TOUCHED_EVENTS);
    }
    return NEXT(ioctl)(fd, request, argument);
}

int chdir(const char *path) {
    touch(TOUCHED_PLACE);
    return NEXT(chdir)(path);
}

int fchdir(int fd) {
    touch(TOUCHED_PLACE);
    return NEXT(fchdir)(fd);
}

mode_t umask(mode_t mask) {
    touch(TOUCHED_PLACE);
    return NEXT(umask)(mask);
}

#endif
