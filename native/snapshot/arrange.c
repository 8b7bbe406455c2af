/* The second life: the program executes itself again with other settings of the loader. All symbols are bound at once, because a
 * binding during requests would write to a page in each of them. rseq is off, because the kernel would write the processor's number
 * into thread-local memory.
 *
 * Promises
 * - At most one execution: an environment variable with the process's own id marks the second life.
 * - Environment, arguments, descriptors and the process's name are those of the first life. The added variables are at the end of the
 *   environment, where they take precedence for the loader, and are removed again.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MARKER "HEARTH_SNAPSHOT_LIFE="
enum { ADDED = 3, NAME_LEN = 16 };

extern char **environ;

static size_t environment_len(void) {
    size_t len = 0;
    while (environ != NULL && environ[len] != NULL) {
        len++;
    }
    return len;
}

/* The marker's value: process id, a colon, the process's name (execution would leave it as `exe`). */
static bool is_second_life(void) {
    size_t len = environment_len();
    char expected[64];
    int n = snprintf(expected, sizeof expected, MARKER "%ld:", (long)getpid());
    size_t at = 0;
    while (at < len && strncmp(environ[at], expected, (size_t)n) != 0) {
        at++;
    }
    if (at == len) {
        return false;
    }
    prctl(PR_SET_NAME, environ[at] + n);
    if (at == len - 1 && len >= ADDED) {
        environ[len - ADDED] = NULL;
    } else {
        /* an emulator has passed them on in another order: the loader's settings stay */
        memmove(environ + at, environ + at + 1, (len - at) * sizeof *environ);
    }
    return true;
}

static void begin_second_life(char **argv) {
    size_t len = environment_len();
    const char *tunables = getenv("GLIBC_TUNABLES");
    size_t room = (tunables != NULL ? strlen(tunables) : 0) + 64;
    char **all = calloc(len + ADDED + 1, sizeof *all);
    char *tuned = malloc(room);
    char name[NAME_LEN] = "";
    char marker[sizeof MARKER + 32 + NAME_LEN];
    if (all != NULL && tuned != NULL) {
        prctl(PR_GET_NAME, name);
        snprintf(marker, sizeof marker, MARKER "%ld:%s", (long)getpid(), name);
        snprintf(tuned, room, "GLIBC_TUNABLES=%s%sglibc.pthread.rseq=0",
            tunables != NULL ? tunables : "", tunables != NULL && *tunables != 0 ? ":" : "");
        memcpy(all, environ, len * sizeof *all);
        all[len] = "LD_BIND_NOW=1";
        all[len + 1] = tuned;
        all[len + 2] = marker;
        execve("/proc/self/exe", argv, all);
    }
    fprintf(stderr, "warning: cannot execute /proc/self/exe again (%s): restores will be slower\n",
        strerror(errno));
    free(all);
    free(tuned);
}

/* malloc from brk alone, which never shrinks: a request's memory comes and goes without a system call. */
static void prepare_malloc(void) {
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
    mallopt(M_TOP_PAD, 1 << 20);
    mallopt(M_ARENA_MAX, 1);
}

static const uint64_t kept_sizes[] = {256ULL << 20, 32ULL << 20, 4ULL << 20};
static const uint64_t arena_size = (uint64_t)(SLOTS + 1) * SLOT;

/* The engine's structure and its stack. */
static uint64_t fixed_size(void) {
    return PAGE_UP(sizeof(struct engine)) + ENGINE_STACK;
}

bool arrange_fits(void) {
    const uint64_t size = fixed_size() + kept_sizes[2] + arena_size;
    char *region = engine == NULL ? reserve(size) : NULL;
    if (region != NULL) {
        raw(SYS_munmap, region - PAGE, size + 2 * PAGE);
    }
    return engine != NULL || region != NULL;
}

static bool prepare_memory(void) {
    char *region = NULL;
    uint64_t kept = 0;
    /* Less where memory is counted when it is reserved (vm.overcommit_memory=2, RLIMIT_AS). */
    for (size_t i = 0; region == NULL && i < sizeof kept_sizes / sizeof *kept_sizes; i++) {
        kept = kept_sizes[i];
        region = reserve(fixed_size() + kept);
    }
    char *arena = reserve(arena_size);
    if (region == NULL || arena == NULL) {
        return false;
    }
    char *aligned = (char *)(((uint64_t)arena + SLOT - 1) & ~(uint64_t)(SLOT - 1));
    /* What sticks out is no longer memory, but still keeps neighbours away. */
    if (aligned > arena) {
        mprotect(arena, (size_t)(aligned - arena), PROT_NONE);
    }
    char *end = aligned + (uint64_t)SLOTS * SLOT;
    mprotect(end, (size_t)(arena + arena_size - end), PROT_NONE);

    struct engine *e = (struct engine *)region;
    e->region = region;
    e->region_end = region + fixed_size() + kept;
    e->stack = region + fixed_size();
    e->kept = region + fixed_size();
    e->kept_end = e->region_end;
    e->arena = aligned;
    engine = e;
    return true;
}

void snapshot_arrange(char **argv) {
    if (engine != NULL) {
        return;
    }
    if (!is_second_life()) {
        begin_second_life(argv);
    }
    interpose_resolve();
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    prepare_malloc();
    if (!prepare_memory()) {
        fprintf(stderr, "error: not enough address space for snapshots (RLIMIT_AS)\n");
        exit(1);
    }
}

#endif
