/* The pages of the snapshot: which there are, which may have been written.
 *
 * Promises
 * - A page is protected, known (restored after every request) or dead. The first write to a protected page is a fault that the process's
 *   counters show, and makes the page private.
 * - A page that becomes known stays so until it is restored and protected again.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <string.h>
#include <sys/mman.h>

enum {
    STACK_GROWTH = 8 << 20, /* watched below the stack */
};

struct region *pages_region(uint64_t address) {
    struct engine *e = engine;
    uint32_t low = 0;
    uint32_t high = e->region_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (e->regions[middle].end <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < e->region_count && e->regions[low].start <= address ? &e->regions[low] : NULL;
}

static void set_kind(const struct region *region, uint64_t start, uint64_t end, uint8_t kind) {
    start = start > region->start ? start : region->start;
    end = end < region->end ? end : region->end;
    for (uint64_t at = start; at < end; at += PAGE) {
        uint8_t *now = kind_of(region, at);
        *now = (uint8_t)((*now & ~KIND_MASK) | kind);
    }
}

void pages_heat(struct region *region) {
    struct engine *e = engine;
    if (!region->hot) {
        region->hot = true;
        e->hot[e->hot_count++] = (uint16_t)(region - e->regions);
    }
}

const char *pages_copy(const struct region *region, uint64_t address) {
    const struct engine *e = engine;
    if ((*kind_of(region, address) & KIND_MASK) == KIND_ZERO) {
        return e->zeros;
    }
    if (region->fixed && !(*kind_of(region, address) & KIND_SHARED)) {
        return region->copy + (address - region->start);
    }
    const struct mapping *mapping = maps_at(address);
    return freeze_file_of(mapping)->view + mapping->offset + (address - mapping->start);
}

void pages_know(struct region *region, uint64_t address) {
    struct engine *e = engine;
    uint8_t *kind = kind_of(region, address);
    pages_heat(region);
    *kind |= KIND_KNOWN;
    e->flagged_count++;
    e->left_file += (*kind & KIND_MASK) == KIND_STORED && !region->fixed;
    if ((*kind & KIND_MASK) == KIND_DEAD) {
        return;
    }
    if (e->known_count == e->known_max) {
        retire("more pages were written than the snapshot has"); /* it has room for all of them */
    }
    struct known_page *known = &e->known[e->known_count++];
    known->live = (char *)address;
    known->copy = pages_copy(region, address);
    known->lines = known->lines_next = 0;
    known->changed_at = e->statistics.restores;
    known->hashed = false;
    known->executable = region->executable;
}

/* Any stack. */
void pages_map_in(const struct region *region, uint64_t address) {
    if ((*kind_of(region, address) & KIND_MASK) == KIND_STORED) {
        (void)*(volatile const char *)address;
    }
}

/* --- taking ----------------------------------------------------------------------------------------------------------------------------- */

void pages_reserve_work(void) {
    struct engine *e = engine;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        bytes += e->regions[i].end - e->regions[i].start;
    }
    uint64_t pages = bytes / PAGE;
    uint64_t kinds = PAGE_UP(pages);
    uint64_t known = PAGE_UP(pages * sizeof(struct known_page));
    uint64_t size = PAGE + kinds + known;
    e->work = reserve(size);
    if (e->work == NULL) {
        retire("no memory for the snapshot");
    }
    e->work_end = e->work + size;
    if (raw(SYS_madvise, e->work, PAGE, MADV_WIPEONFORK) != 0) {
        retire("the kernel has no MADV_WIPEONFORK");
    }
    *e->work = 1;
    e->own_process = (const uint8_t *)e->work;
    uint8_t *kind = (uint8_t *)e->work + PAGE;
    e->known = (struct known_page *)(e->work + PAGE + kinds);
    e->known_max = pages;
    for (uint32_t i = 0; i < e->region_count; i++) {
        struct region *region = &e->regions[i];
        region->kinds = kind;
        kind += (region->end - region->start) / PAGE;
    }
}

/* Room for the stack to grow: its new pages are dead, but their faults must be explained. */
void pages_extend_stack(struct region *region) {
    uint64_t low = region->start > STACK_GROWTH ? region->start - STACK_GROWTH : 0;
    for (uint32_t i = 0; i < engine->mapping_count; i++) {
        const struct mapping *mapping = &engine->mappings[i];
        if (mapping->end <= region->start && mapping->end > low) {
            low = mapping->end;
        }
    }
    region->start = low;
}

/* Pages whose contents will not be read. */
void pages_mark_dead(const struct snapshot_range *dead, size_t dead_count) {
    struct engine *e = engine;
    for (uint32_t i = 0; i < e->region_count; i++) {
        struct region *region = &e->regions[i];
        if (region->stack && e->stack_pointer >= region->start && e->stack_pointer < region->end) {
            set_kind(region, region->start, PAGE_DOWN(e->stack_pointer), KIND_DEAD);
        }
        if (e->malloc_top != 0) {
            set_kind(region, PAGE_UP(e->malloc_top), PAGE_UP(e->brk), KIND_DEAD);
        }
        for (uint32_t s = 0; s < SLOTS; s++) {
            uint64_t slot = (uint64_t)e->arena + (uint64_t)s * SLOT;
            if (e->slots[s].begin == e->slots[s].end) {
                set_kind(region, slot + PAGE, slot + SLOT, KIND_DEAD);
            }
        }
        for (size_t d = 0; d < dead_count; d++) {
            set_kind(region, PAGE_UP(dead[d].start), PAGE_DOWN(dead[d].end), KIND_DEAD);
        }
    }
}

bool pages_written(uint64_t start, uint64_t end) {
    struct span span;
    return pagemap_scan(&start, end, PAGEMAP_PRIVATE, &span, 1) != 0;
}

static void check_guarded(void) {
    struct engine *e = engine;
    for (uint32_t i = 0; i < e->guarded_count; i++) {
        if (pages_written(e->guarded[i].start, e->guarded[i].end)) {
            retire("the request wrote to read-only memory");
        }
    }
}

/* --- finding ---------------------------------------------------------------------------------------------------------------------------- */

/* Makes the pages of a span known that are not yet. Returns how many. */
static uint64_t know_span(struct region *region, const struct span *span) {
    uint64_t found = 0;
    for (uint64_t at = span->start; at < span->end; at += PAGE) {
        if (!(*kind_of(region, at) & KIND_KNOWN)) {
            pages_know(region, at);
            found++;
        }
    }
    return found;
}

/* Returns whether it stopped. */
static bool find_in(struct region *region, uint64_t enough, uint64_t *found, uint64_t *seen) {
    struct engine *e = engine;
    uint64_t start = region->start;
    while (start < region->end) {
        /* Slots of the arena that were never handed out hold nothing. */
        uint64_t end = region->end;
        if (in_arena(e, (const void *)start)) {
            uint64_t slot = (start - (uint64_t)e->arena) / SLOT;
            uint64_t next = (uint64_t)e->arena + (slot + 1) * SLOT;
            end = next < end ? next : end;
            if (!e->slots_seen[slot]) {
                start = end;
                continue;
            }
        }
        uint32_t count = pagemap_scan(&start, end, PAGEMAP_PRIVATE, e->spans, SPANS_MAX);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t pages = (e->spans[i].end - e->spans[i].start) / PAGE;
            uint64_t more = know_span(region, &e->spans[i]);
            *found += more;
            e->found_not_own += e->spans[i].own ? 0 : more;
            *seen += pages - more;
        }
        if (*found == enough) {
            return true;
        }
    }
    return false;
}

uint64_t pages_find(bool everywhere, uint64_t enough, uint64_t *seen) {
    struct engine *e = engine;
    uint64_t found = 0;
    *seen = 0;
    e->found_not_own = 0;
    uint32_t count = everywhere ? e->region_count : e->hot_count;
    for (uint32_t i = 0; i < count; i++) {
        uint16_t at = everywhere ? (uint16_t)i : e->hot[i];
        uint64_t before = found;
        bool stopped = find_in(&e->regions[at], enough, &found, seen);
        if (!everywhere && found != before && i > 0) {
            /* Looked at first the next time. */
            memmove(e->hot + 1, e->hot, i * sizeof *e->hot);
            e->hot[0] = at;
        }
        if (stopped) {
            *seen = UINT64_MAX;
            break;
        }
    }
    return found;
}

void pages_find_all(void) {
    uint64_t seen;
    pages_find(true, UINT64_MAX, &seen);
    check_guarded();
}

void pages_put_back_dropped(void) {
    struct engine *e = engine;
    if (e->dropped_count > DROPPED_MAX) {
        retire("the request threw away the contents of too many mappings");
    }
    for (uint32_t i = 0; i < e->dropped_count; i++) {
        for (uint64_t at = PAGE_DOWN(e->dropped[i].start); at < e->dropped[i].end; at += PAGE) {
            struct region *region = pages_region(at);
            if (region == NULL) {
                continue;
            }
            uint8_t *kind = kind_of(region, at);
            if ((*kind & KIND_MASK) == KIND_STORED) {
                /* Written even if equal: memory that was only marked (MADV_FREE) could go later. */
                memcpy((char *)at, pages_copy(region, at), PAGE);
                if (region->executable) {
                    put_back_fetch((char *)at); /* no later look finds it changed */
                }
                if (!(*kind & KIND_KNOWN)) {
                    pages_know(region, at);
                }
            }
        }
    }
    e->dropped_count = 0;
}

/* --- forgetting ------------------------------------------------------------------------------------------------------------------------- */

static void forget(const struct known_page *known) {
    struct region *region = pages_region((uint64_t)known->live);
    *kind_of(region, (uint64_t)known->live) &= (uint8_t)~KIND_KNOWN;
    engine->flagged_count--;
}

/* A page that is thrown away is the file's own again. It is read at once, or the next look at it would be a fault that no write explains. */
static void protect(uint64_t start, uint64_t end) {
    if (start != end && raw(SYS_madvise, start, end - start, MADV_DONTNEED) != 0) {
        retire("a page cannot be given up");
    }
    for (uint64_t at = start; at < end; at += PAGE) {
        pages_map_in(pages_region(at), at);
    }
}

void pages_forget_unchanged(uint64_t for_restores) {
    struct engine *e = engine;
    uint64_t now = e->statistics.restores;
    uint64_t kept = 0;
    uint64_t run_start = 0;
    uint64_t run_end = 0;
    for (uint64_t i = 0; i < e->known_count; i++) {
        struct known_page *known = &e->known[i];
        if (known->changed_at + for_restores >= now || pages_region((uint64_t)known->live)->fixed) {
            if (kept != i) {
                e->known[kept] = *known;
            }
            kept++;
            continue;
        }
        uint64_t page = (uint64_t)known->live;
        forget(known);
        if (page != run_end) {
            protect(run_start, run_end);
            run_start = page;
        }
        run_end = page + PAGE;
    }
    protect(run_start, run_end);
    e->known_count = kept;
}

void pages_drop_free_slots(void) {
    struct engine *e = engine;
    uint64_t kept_pages = 0;
    for (uint32_t s = 0; s < SLOTS; s++) {
        uint64_t slot = (uint64_t)e->arena + (uint64_t)s * SLOT;
        struct region *region = pages_region(slot);
        if (region == NULL || region->fixed || e->slots_then[s].begin != e->slots_then[s].end) {
            continue;
        }
        for (uint64_t page = 0; page < SLOT_PAGES; page++) {
            kept_pages += (*kind_of(region, slot + page * PAGE) & KIND_KNOWN) != 0;
        }
    }
    if (kept_pages <= e->free_limit) {
        return;
    }
    for (uint32_t s = 0; s < SLOTS; s++) {
        uint64_t slot = (uint64_t)e->arena + (uint64_t)s * SLOT;
        struct region *region = pages_region(slot);
        if (region == NULL || region->fixed || e->slots_then[s].begin != e->slots_then[s].end) {
            continue;
        }
        raw(SYS_madvise, slot, SLOT, MADV_DONTNEED);
        for (uint64_t page = 0; page < SLOT_PAGES; page++) {
            uint8_t *kind = kind_of(region, slot + page * PAGE);
            e->flagged_count -= (*kind & KIND_KNOWN) != 0;
            *kind &= (uint8_t)~KIND_KNOWN;
        }
    }
    uint64_t kept = 0;
    for (uint64_t i = 0; i < e->known_count; i++) {
        uint64_t page = (uint64_t)e->known[i].live;
        if (*kind_of(pages_region(page), page) & KIND_KNOWN) {
            if (kept != i) {
                e->known[kept] = e->known[i];
            }
            kept++;
        }
    }
    e->known_count = kept;
}

#endif
