/* Written pages by the soft-dirty bit, for kernels before 6.7 that are built with CONFIG_MEM_SOFT_DIRTY. The bit can only be cleared for
 * the whole process. Documentation/admin-guide/mm/soft-dirty.rst */
#include "snapshot/tracker.h"

#if SNAPSHOT_ENGINE

#include <fcntl.h>

/* Bits of an entry of /proc/self/pagemap: Documentation/admin-guide/mm/pagemap.rst */
#define ENTRY_SOFT_DIRTY (1ULL << 55)
#define ENTRY_SWAPPED (1ULL << 62)
#define ENTRY_PRESENT (1ULL << 63)
enum { ENTRIES = 512 };

static void open_descriptors(void) {
    struct engine_descriptors *fds = &engine->fds;
    fds->pagemap = descriptors_own(
        raw(SYS_open, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0), "/proc/self/pagemap");
    fds->clear_refs = descriptors_own(
        raw(SYS_open, "/proc/self/clear_refs", O_WRONLY | O_CLOEXEC, 0), "/proc/self/clear_refs");
}

/* The kernel takes any mapping, droppable ones included. */
static bool watch(uint64_t start, uint64_t end) {
    (void)end;
    return !maps_droppable(start);
}

static uint32_t scan(
    uint64_t *from, uint64_t end, bool written, struct pagemap_span *spans, uint32_t max) {
    uint64_t entries[ENTRIES];
    uint32_t count = 0;
    uint64_t at = *from;
    while (at < end) {
        uint64_t want = (end - at) / PAGE < ENTRIES ? (end - at) / PAGE : ENTRIES;
        long n = raw(SYS_pread64, engine->fds.pagemap, entries, want * sizeof *entries,
            at / PAGE * sizeof *entries);
        if (n <= 0) {
            retire("/proc/self/pagemap cannot be read");
        }
        for (uint64_t i = 0; i < (uint64_t)n / sizeof *entries; i++, at += PAGE) {
            bool there = (entries[i] & (ENTRY_PRESENT | ENTRY_SWAPPED)) != 0;
            bool dirty = (entries[i] & ENTRY_SOFT_DIRTY) != 0;
            if (!there || (written && !dirty)) {
                continue;
            }
            uint64_t categories = CATEGORY_WPALLOWED | (dirty ? CATEGORY_WRITTEN : 0);
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

static void protect_all(void) {
    if (raw(SYS_write, engine->fds.clear_refs, "4", 1) != 1) {
        retire("/proc/self/clear_refs cannot be written");
    }
}

const struct tracker tracker_soft_dirty = {open_descriptors, watch, scan, NULL, protect_all, false};

#endif
