/* Written pages by what they are: memory is a private mapping of a sealed file (freeze.c), and a page that is no longer the file's own was
 * written. /proc/self/pagemap tells by its bit 61, since Linux 3.5. Documentation/admin-guide/mm/pagemap.rst */
#include "snapshot/tracker.h"

#if SNAPSHOT_ENGINE

#include <fcntl.h>
#include <sys/mman.h>

#define ENTRY_FILE (1ULL << 61)
#define ENTRY_SWAPPED (1ULL << 62)
#define ENTRY_PRESENT (1ULL << 63)

static void open_descriptors(void) {
    engine->fds.pagemap = descriptors_own(
        raw(SYS_open, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0), "/proc/self/pagemap");
}

static bool watch(uint64_t start, uint64_t end) {
    (void)start;
    (void)end;
    return true;
}

static uint32_t scan(
    uint64_t *from, uint64_t end, bool written, struct pagemap_span *spans, uint32_t max) {
    struct engine *e = engine;
    const uint64_t *entries = (const uint64_t *)e->buffer;
    const uint64_t most = sizeof e->buffer / sizeof *entries;
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
            uint64_t entry = entries[i];
            if (!(entry & (ENTRY_PRESENT | ENTRY_SWAPPED)) || (written && (entry & ENTRY_FILE))) {
                continue;
            }
            uint64_t categories = CATEGORY_WPALLOWED |
                                  (entry & ENTRY_PRESENT ? CATEGORY_PRESENT : 0) |
                                  (entry & ENTRY_FILE ? CATEGORY_FILE : CATEGORY_WRITTEN);
            struct pagemap_span *last = count > 0 ? &spans[count - 1] : NULL;
            if (last != NULL && last->end == at && last->categories == categories) {
                last->end += PAGE;
            } else if (count < max) {
                spans[count++] = (struct pagemap_span){at, at + PAGE, categories};
            } else {
                *from = at;
                return count;
            }
        }
    }
    *from = at;
    return count;
}

/* A page that is thrown away is the file's own again. It is read at once, or the next look at it would be a fault that no written page explains. */
static void protect(uint64_t start, uint64_t end) {
    if (raw(SYS_madvise, start, end - start, MADV_DONTNEED) != 0) {
        retire("MADV_DONTNEED failed");
    }
    freeze_map_in(pages_region(start), start, end);
}

const struct tracker tracker_file = {open_descriptors, watch, scan, protect, NULL, true};

#endif
