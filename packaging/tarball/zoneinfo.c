/* Time zones of the tarball. Debian's PHP reads /usr/share/zoneinfo; where a system has none, these functions read the tarball's.
 *
 * Promises: only paths below /usr/share/zoneinfo are concerned, and only if that folder does not exist. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSTEM "/usr/share/zoneinfo"

static __typeof__(open) *next_open;
static __typeof__(fopen) *next_fopen;
static __typeof__(stat) *next_stat;
static __typeof__(scandir) *next_scandir;

__attribute__((constructor)) static void find_next(void) {
    next_open = (__typeof__(next_open))dlsym(RTLD_NEXT, "open");
    next_fopen = (__typeof__(next_fopen))dlsym(RTLD_NEXT, "fopen");
    next_stat = (__typeof__(next_stat))dlsym(RTLD_NEXT, "stat");
    next_scandir = (__typeof__(next_scandir))dlsym(RTLD_NEXT, "scandir");
}

/* The path to open in place of `path`; `room` has PATH_MAX bytes. Borrowed: one of the two. */
static const char *place(const char *path, char *room) {
    size_t length = sizeof SYSTEM - 1;
    if (path == NULL || strncmp(path, SYSTEM, length) != 0 ||
        (path[length] != '\0' && path[length] != '/') || access(SYSTEM, F_OK) == 0) {
        return path;
    }
    Dl_info self;
    if (dladdr(place, &self) == 0) {
        return path;
    }
    const char *slash = strrchr(self.dli_fname, '/');
    int folder = slash == NULL ? 0 : (int)(slash - self.dli_fname);
    int written =
        snprintf(room, PATH_MAX, "%.*s/zoneinfo%s", folder, self.dli_fname, path + length);
    return written > 0 && written < PATH_MAX ? room : path;
}

int open(const char *path, int flags, ...) {
    char room[PATH_MAX];
    va_list list;
    va_start(list, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    return next_open(place(path, room), flags, mode);
}

FILE *fopen(const char *path, const char *mode) {
    char room[PATH_MAX];
    return next_fopen(place(path, room), mode);
}

int stat(const char *path, struct stat *entry) {
    char room[PATH_MAX];
    return next_stat(place(path, room), entry);
}

int scandir(const char *path, struct dirent ***names, int (*filter)(const struct dirent *),
    int (*order)(const struct dirent **, const struct dirent **)) {
    char room[PATH_MAX];
    return next_scandir(place(path, room), names, filter, order);
}
