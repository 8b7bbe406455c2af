/* Files opened for writing: those below /proc may be attributes of the process, by whatever path they were found. */
#include "snapshot/interpose.h"

#if SNAPSHOT_ENGINE

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "snapshot/raw.h"

/* The caller's errno stays: raw() does not set it. */
static int opened(int fd, int flags) {
    struct stat status;
    if (fd >= 0 && (flags & O_ACCMODE) != O_RDONLY && interpose_taken() &&
        raw(SYS_fstat, fd, &status) == 0 && status.st_dev == engine->proc_device) {
        touch(TOUCHED_PROC);
    }
    return fd;
}

static FILE *opened_stream(FILE *stream) {
    if (stream != NULL && interpose_taken()) {
        opened(fileno(stream), O_RDWR);
    }
    return stream;
}

/* What open() takes behind its flags, if it takes anything. */
#define MODE(flags)                                                                                \
    mode_t mode = 0;                                                                               \
    if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) {                              \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode = va_arg(arguments, mode_t);                                                          \
        va_end(arguments);                                                                         \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return opened(NEXT(open)(path, flags, mode), flags);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return opened(NEXT(open64)(path, flags, mode), flags);
}

int openat(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return opened(NEXT(openat)(directory, path, flags, mode), flags);
}

int openat64(int directory, const char *path, int flags, ...) {
    MODE(flags)
    return opened(NEXT(openat64)(directory, path, flags, mode), flags);
}

int __open_2(const char *path, int flags) {
    return opened(NEXT(__open_2)(path, flags), flags);
}

int __open64_2(const char *path, int flags) {
    return opened(NEXT(__open64_2)(path, flags), flags);
}

int __openat_2(int directory, const char *path, int flags) {
    return opened(NEXT(__openat_2)(directory, path, flags), flags);
}

int __openat64_2(int directory, const char *path, int flags) {
    return opened(NEXT(__openat64_2)(directory, path, flags), flags);
}

int creat(const char *path, mode_t mode) {
    return opened(NEXT(creat)(path, mode), O_WRONLY);
}

int creat64(const char *path, mode_t mode) {
    return opened(NEXT(creat64)(path, mode), O_WRONLY);
}

FILE *fopen(const char *path, const char *mode) {
    return opened_stream(NEXT(fopen)(path, mode));
}

FILE *fopen64(const char *path, const char *mode) {
    return opened_stream(NEXT(fopen64)(path, mode));
}

#endif
