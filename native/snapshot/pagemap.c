/* The state of each page by /proc/self/pagemap. Memory is a private mapping of a sealed file
 * (freeze.c), and a page that is no longer the file's was written. Bit 61 shows that, since Linux
 * 3.5. Documentation/admin-guide/mm/pagemap.rst */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <fcntl.h>

#define ENTRY_OWN (1ULL << 56) /* mapped once, since Linux 4.2 */
#define ENTRY_FILE (1ULL << 61)
#define ENTRY_SWAPPED (1ULL << 62)
#define ENTRY_PRESENT (1ULL << 63)

void pagemap_open(void) {
    engine->fds.pagemap =
        descriptors_own(raw_open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), "/proc/self/pagemap");
}

uint32_t pagemap_scan(
    uint64_t *from, uint64_t end, enum pagemap_kind wanted, struct span *spans, uint32_t max) {
    struct engine *e = engine;
    const uint64_t *entries = (const uint64_t *)e->buffer;
    const uint64_t most = sizeof e->buffer / sizeof *entries;
    const uint64_t excluded = wanted == PAGEMAP_PRIVATE ? ENTRY_FILE : 0;
    const uint64_t told_apart = wanted == PAGEMAP_PRIVATE ? ENTRY_OWN : 0;
    uint32_t count = 0;
    uint64_t at = *from;
    while (at < end) {
        uint64_t want = (end - at) / PAGE < most ? (end - at) / PAGE : most;
        long n = raw(SYS_pread64, e->fds.pagemap, e->buffer, want * sizeof *entries,
            at / PAGE * sizeof *entries);
        if (n <= 0) {
            retire("/proc/self/pagemap cannot be read");
        }
        for (uint64_t i = 0; i < (uint64_t)n / sizeof *entries; i++, at += PAGE) {
            if (!(entries[i] & (ENTRY_PRESENT | ENTRY_SWAPPED)) || (entries[i] & excluded)) {
                continue;
            }
            struct span *last = count > 0 ? &spans[count - 1] : NULL;
            bool own = (entries[i] & told_apart) != 0;
            if (last != NULL && last->end == at && last->own == own) {
                last->end += PAGE;
            } else if (count < max) {
                spans[count++] = (struct span){at, at + PAGE, own};
            } else {
                *from = at;
                return count;
            }
        }
    }
    *from = at;
    return count;
}

#endif
