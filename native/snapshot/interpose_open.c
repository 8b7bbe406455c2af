/* Files that a request opens. Those below /proc, opened for writing, may be attributes of the process, by whatever path they were found. Closing one that
 * the boot has locked releases the boot's locks. */
#include "snapshot/interpose.h"

#if SNAPSHOT_ENGINE

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "snapshot/raw.h"

static bool is_locked(const struct stat *status) {
    const struct engine *e = engine;
    for (uint32_t i = 0; i < e->descriptor_count; i++) {
        const struct descriptor *descriptor = &e->descriptors[i];
        if (descriptor->locked && descriptor->inode == status->st_ino &&
            descriptor->device == status->st_dev) {
            return true;
        }
    }
    return false;
}

/* The caller's errno stays: raw() does not set it. */
static int opened(int fd, int flags) {
    struct stat status;
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    if (fd < 0 || !interpose_taken() || (!writes && !engine->has_locks) ||
        raw(SYS_fstat, fd, &status) != 0) {
        return fd;
    }
    if (writes && status.st_dev == engine->proc_device) {
        touch(TOUCHED_PROC);
    }
    if (engine->has_locks && is_locked(&status)) {
        touch(TOUCHED_OPENED);
    }
    return fd;
}

void interpose_opened(int fd) {
    opened(fd, O_RDONLY);
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
