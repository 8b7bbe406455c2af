/* hearth-preload-8.x.so: the worker runs in PHP's own program, in the place of its main(). See sapi/boot/engine_program.h. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "sapi/boot/engine_program.h"

const bool engine_program_inside = true;

typedef int main_function(int argc, char **argv, char **environment);
typedef int start_function(main_function *main, int argc, char **argv, void (*init)(void),
    void (*fini)(void), void (*loader_fini)(void), void *stack_end);

int main(int argc, char **argv);

static int start(int argc, char **argv, char **environment) {
    (void)environment;
    if (argc == 2 && strcmp(argv[1], ENGINE_PROGRAM_TRIAL) == 0) {
        return ENGINE_PROGRAM_WORKS;
    }
    return main(argc, argv);
}

/* By which the program's first instructions call glibc. */
start_function __libc_start_main;

int __libc_start_main(main_function *theirs, int argc, char **argv, void (*init)(void),
    void (*fini)(void), void (*loader_fini)(void), void *stack_end) {
    (void)theirs;
    start_function *glibc = (start_function *)dlsym(RTLD_NEXT, "__libc_start_main");
    if (glibc == NULL) {
        abort();
    }
    return glibc(start, argc, argv, init, fini, loader_fini, stack_end);
}
