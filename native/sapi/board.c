/* See board.h. */
#include "board.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

/* In the order of docs/internals/frames.md. */
enum { TAKEN, KEPT, RESETS, RESET_NS, FAILED, WORDS };

static _Atomic uint64_t *taken;

bool board_open(int fd) {
    void *page = mmap(NULL, WORDS * sizeof *taken, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        return false;
    }
    taken = page;
    return true;
}

void board_count(void) {
    if (taken == NULL) {
        return; /* the zygote, warming up */
    }
    /* the worker has one thread; a store that cannot be torn is enough */
    atomic_store_explicit(
        taken, atomic_load_explicit(taken, memory_order_relaxed) + 1, memory_order_release);
}

static void tell(size_t word, uint64_t value) {
    atomic_store_explicit(&taken[word], value, memory_order_relaxed);
}

void board_tell_databases(uint64_t kept, uint64_t resets, uint64_t nanoseconds) {
    if (taken != NULL) {
        tell(KEPT, kept);
        tell(RESETS, resets);
        tell(RESET_NS, nanoseconds);
    }
}

void board_tell_database_failed(void) {
    if (taken != NULL) {
        tell(FAILED, 1);
    }
}
