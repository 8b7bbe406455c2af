/* Linked into the sanitizer build only: PHP loads extensions with RTLD_DEEPBIND, which the address sanitizer refuses. */
#include <dlfcn.h>

void *dlopen(const char *file, int mode) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next(file, mode & ~RTLD_DEEPBIND);
}
