/* Large anonymous mappings of one library (Zend's chunks and huge blocks) without system calls: runs of 2 MB slots out of one mapping.
 *
 * Promises
 * - Memory handed out is aligned to 2 MB. The first page is zero, as Zend's chunk header relies on; the rest may hold anything once the
 *   snapshot is taken.
 * - Nothing here is called by a restore: putting the table of slots back is all there is to it.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <link.h>
#include <string.h>
#include <sys/mman.h>

enum { SMALLEST = SLOT / 2 };

static bool is_free(const struct slot *slot) {
    return slot->begin == slot->end;
}

static char *slot_memory(const struct engine *e, uint32_t slot) {
    return e->arena + (uint64_t)slot * SLOT;
}

/* Pages [first, first + pages) of the arena, counted from its start. */
static void hand_out(struct engine *e, uint64_t first, uint64_t pages) {
    while (pages > 0) {
        struct slot *slot = &e->slots[first / SLOT_PAGES];
        uint64_t at = first % SLOT_PAGES;
        uint64_t here = SLOT_PAGES - at < pages ? SLOT_PAGES - at : pages;
        if (at == 0) {
            slot->begin = 0;
        }
        slot->end = (uint16_t)(at + here);
        slot->used = true;
        e->slots_seen[first / SLOT_PAGES] = true;
        first += here;
        pages -= here;
    }
}

static void *map_run(struct engine *e, uint64_t pages) {
    uint32_t count = (uint32_t)((pages + SLOT_PAGES - 1) / SLOT_PAGES);
    for (uint32_t first = 0, run = 0; first + run < SLOTS;) {
        if (!is_free(&e->slots[first + run])) {
            first += run + 1;
            run = 0;
        } else if (++run == count) {
            if (e->slots[first].used) {
                memset(slot_memory(e, first), 0, PAGE);
            }
            hand_out(e, (uint64_t)first * SLOT_PAGES, pages);
            return slot_memory(e, first);
        }
    }
    return NULL;
}

/* Returns whether pages from `first` on, where a mapping ends, are free for it to grow. */
static bool may_grow(const struct engine *e, uint64_t first, uint64_t pages) {
    uint64_t end = first + pages;
    if (first == 0 || end > (uint64_t)SLOTS * SLOT_PAGES) {
        return false;
    }
    const struct slot *last = &e->slots[(first - 1) / SLOT_PAGES];
    if (is_free(last) || last->end != (first - 1) % SLOT_PAGES + 1) {
        return false;
    }
    for (uint64_t slot = (first + SLOT_PAGES - 1) / SLOT_PAGES; slot * SLOT_PAGES < end; slot++) {
        if (!is_free(&e->slots[slot])) {
            return false;
        }
    }
    return true;
}

bool arena_map(void *hint, size_t len, const void *caller, void **result) {
    struct engine *e = engine;
    uint64_t from = (uint64_t)caller;
    if (from < e->served_start || from >= e->served_end || len > (uint64_t)SLOTS * SLOT) {
        return false;
    }
    uint64_t pages = PAGE_UP(len) / PAGE;
    uint64_t first = (uint64_t)((char *)hint - e->arena) / PAGE;
    if (in_arena(e, hint) && may_grow(e, first, pages)) {
        hand_out(e, first, pages);
        *result = hint;
        return true;
    }
    if (len < SMALLEST && !in_arena(e, hint)) {
        return false;
    }
    *result = map_run(e, pages);
    return *result != NULL;
}

bool arena_unmap(void *address, size_t len) {
    struct engine *e = engine;
    if (!in_arena(e, address)) {
        return false;
    }
    uint64_t start = (uint64_t)((char *)address - e->arena) / PAGE;
    uint64_t end = start + PAGE_UP(len) / PAGE;
    for (uint64_t s = start / SLOT_PAGES; s < SLOTS && s * SLOT_PAGES < end; s++) {
        struct slot *slot = &e->slots[s];
        uint64_t base = s * SLOT_PAGES;
        uint64_t from = start > base ? start - base : 0;
        uint64_t to = end < base + SLOT_PAGES ? end - base : SLOT_PAGES;
        if (is_free(slot)) {
            continue;
        }
        /* A hole in the middle stays taken until what is around it goes. */
        if (from <= slot->begin && to > slot->begin) {
            slot->begin = (uint16_t)(to < slot->end ? to : slot->end);
        } else if (to >= slot->end && from < slot->end) {
            slot->end = (uint16_t)from;
        }
        if (is_free(slot)) {
            slot->begin = slot->end = 0;
            if (!e->taken) {
                /* A boot's garbage is not worth keeping, let alone forking. */
                raw(SYS_madvise, slot_memory(e, (uint32_t)s), SLOT, MADV_DONTNEED);
                slot->used = e->shared.view != NULL; /* thrown away, it is what was shared */
            }
        }
    }
    return true;
}

bool arena_remap(void *address, size_t old_len, size_t len, void **result) {
    struct engine *e = engine;
    if (!in_arena(e, address)) {
        return false;
    }
    uint64_t first = (uint64_t)((char *)address - e->arena) / PAGE;
    uint64_t old_pages = PAGE_UP(old_len) / PAGE;
    uint64_t pages = PAGE_UP(len) / PAGE;
    *result = address;
    if (pages < old_pages) {
        arena_unmap((char *)address + pages * PAGE, (old_pages - pages) * PAGE);
    } else if (pages > old_pages) {
        if (may_grow(e, first + old_pages, pages - old_pages)) {
            hand_out(e, first + old_pages, pages - old_pages);
        } else {
            *result = MAP_FAILED;
        }
    }
    return true;
}

struct search {
    uint64_t address, start, end;
};

static int find_code(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct search *search = data;
    bool here = false;
    uint64_t start = UINT64_MAX;
    uint64_t end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uint64_t from = info->dlpi_addr + segment->p_vaddr;
        uint64_t to = from + segment->p_memsz;
        if (segment->p_type != PT_LOAD) {
            continue;
        }
        here = here || (search->address >= from && search->address < to);
        if (segment->p_flags & PF_X) {
            start = from < start ? from : start;
            end = to > end ? to : end;
        }
    }
    if (here && start < end) {
        search->start = start;
        search->end = end;
    }
    return here;
}

void snapshot_serve_arena(const void *address) {
    struct search search = {.address = (uint64_t)address};
    if (engine != NULL && dl_iterate_phdr(find_code, &search) != 0) {
        engine->served_start = search.start;
        engine->served_end = search.end;
    }
}

#endif
