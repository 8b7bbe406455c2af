/* The engine's own memory, kept memory, and the end of a process that cannot be put back. */
#include "snapshot/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "snapshot/engine.h"

enum { KEPT_CHUNK = 16 << 20, KEPT_ALIGNMENT = 64 };

/* Kept memory of a process without an engine, or when the engine's is used up. */
static char *spare, *spare_end;

static void *take_from(char **start, const char *end, size_t len) {
    if (*start == NULL || (size_t)(end - *start) < len) {
        return NULL;
    }
    void *memory = *start;
    *start += len;
    return memory;
}

void *snapshot_keep(size_t len) {
    if (len <= SIZE_MAX / 2) {
        len = (len + KEPT_ALIGNMENT - 1) / KEPT_ALIGNMENT * KEPT_ALIGNMENT;
        void *memory = NULL;
#if SNAPSHOT_ENGINE
        if (engine != NULL) {
            memory = take_from(&engine->kept, engine->kept_end, len);
            if (memory == NULL) {
                retire("kept memory is used up");
            }
            return memory;
        }
#endif
        memory = take_from(&spare, spare_end, len);
        if (memory != NULL) {
            return memory;
        }
        size_t chunk = len > KEPT_CHUNK ? len : KEPT_CHUNK;
        char *fresh = mmap(NULL, chunk, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (fresh != MAP_FAILED) {
            spare = fresh;
            spare_end = fresh + chunk;
            return take_from(&spare, spare_end, len);
        }
    }
    fprintf(stderr, "error: no memory for %zu kept bytes\n", len);
    exit(1);
}

#if SNAPSHOT_ENGINE

struct engine *engine;

#if !defined(__x86_64__)
uint64_t page_size = 4096; /* of interposed calls before constructors run: they pass on */

__attribute__((constructor(101))) static void find_page_size(void) {
    page_size = getauxval(AT_PAGESZ);
}
#endif

char *reserve(uint64_t len) {
    /* Neighbours of the same kind would become one mapping, and this one a part of another region. */
    long address = raw(SYS_mmap, NULL, len + 2 * PAGE, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw_failed(address)) {
        return NULL;
    }
    if (raw(SYS_mprotect, address + PAGE, len, PROT_READ | PROT_WRITE) != 0) {
        raw(SYS_munmap, address, len + 2 * PAGE);
        return NULL;
    }
    return (char *)address + PAGE;
}

void retire(const char *why) {
    if (engine != NULL && engine->sharing != NULL) {
        freeze_fail(why);
    }
    if (engine != NULL && engine->say != NULL) {
        engine->say(why);
    }
    raw(SYS_exit_group, SNAPSHOT_EXIT_RETIRED);
    __builtin_trap();
}

void retire_text(const struct text *why) {
    retire(why->data);
}

void snapshot_retire_later(const char *why) {
    if (engine != NULL && engine->retire == NULL) {
        engine->retire = why;
    }
}

bool snapshot_wants_check(void) {
    return engine != NULL && engine->taken && engine->since_check != 0 &&
           engine->since_check >= engine->check_every - engine->check_every / 4;
}

#endif
