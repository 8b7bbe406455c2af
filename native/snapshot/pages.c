/* The pages of the snapshot: which there are, which may have been written.
 *
 * Promises
 * - A page is protected (a write to it is a page fault that the process's counters show), or known (put back after every request), or dead.
 * - A page that becomes known stays so until it is protected again, after it was put back.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <string.h>
#include <sys/mman.h>

#include "snapshot/tracker.h"

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
    if (!e->tracker->by_file) {
        return region->store + (address - region->start);
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
}

/* --- taking ----------------------------------------------------------------------------------------------------------------------------- */

void pages_reserve_work(bool stores) {
    struct engine *e = engine;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        bytes += e->regions[i].end - e->regions[i].start;
    }
    uint64_t pages = bytes / PAGE;
    uint64_t kinds = PAGE_UP(pages);
    uint64_t known = PAGE_UP(pages * sizeof(struct known_page));
    uint64_t size = PAGE + kinds + known + (stores ? bytes : 0);
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
    char *store = e->work + PAGE + kinds + known;
    for (uint32_t i = 0; i < e->region_count; i++) {
        struct region *region = &e->regions[i];
        region->kinds = kind;
        region->store = store;
        kind += (region->end - region->start) / PAGE;
        store += region->end - region->start;
    }
}

/* Room for the stack to grow: what it gains is dead, but its faults shall be explained. */
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

/* Pages whose contents nobody will read. */
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
    struct engine *e = engine;
    while (start < end) {
        uint32_t count = e->tracker->scan(&start, end, false, e->spans, SPANS_MAX);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t categories = e->spans[i].categories;
            uint64_t written = CATEGORY_WRITTEN | (e->tracker->by_file ? 0 : CATEGORY_PRESENT);
            if ((categories & written) == written &&
                !(categories & (CATEGORY_FILE | CATEGORY_PFNZERO))) {
                return true;
            }
        }
    }
    return false;
}

void pages_check_guarded(void) {
    struct engine *e = engine;
    for (uint32_t i = 0; i < e->guarded_count; i++) {
        if (pages_written(e->guarded[i].start, e->guarded[i].end)) {
            retire("the request wrote to read-only memory");
        }
    }
}

void pages_take(const struct snapshot_range *dead, size_t dead_count) {
    struct engine *e = engine;
    e->mapping_count = maps_read(e->mappings, MAPPINGS_MAX, e->regions, &e->region_count);
    if (e->tracker->by_file) {
        freeze_take(dead, dead_count);
    } else {
        protect_take(dead, dead_count);
    }
}

/* --- finding ---------------------------------------------------------------------------------------------------------------------------- */

static uint64_t know_span(
    struct region *region, const struct pagemap_span *span, uint64_t *populated) {
    uint64_t found = 0;
    /* Read, not written: a write to it is still a fault. (Of files' pages a full scan tells.) */
    if (span->categories & (CATEGORY_PFNZERO | CATEGORY_FILE)) {
        return 0;
    }
    for (uint64_t at = span->start; at < span->end; at += PAGE) {
        uint8_t *kind = kind_of(region, at);
        if (*kind & KIND_KNOWN) {
            continue;
        }
        if (engine->tracker->by_file || !(*kind & KIND_POPULATED)) {
            *kind |= KIND_POPULATED;
            ++*populated;
        }
        pages_know(region, at);
        found++;
    }
    return found;
}

/* A span may reach over neighbours, and over memory that is watched because nobody should write to it. */
static uint64_t know_across(struct pagemap_span span, uint64_t *populated) {
    uint64_t found = 0;
    uint64_t end = span.end;
    while (span.start < end) {
        struct region *region = pages_region(span.start);
        if (region == NULL) {
            retire("the request wrote to read-only memory");
        }
        span.end = region->end < end ? region->end : end;
        found += know_span(region, &span, populated);
        span.start = span.end;
    }
    return found;
}

uint64_t pages_scan(uint64_t start, uint64_t end, uint64_t *populated) {
    struct engine *e = engine;
    uint64_t found = 0;
    while (start < end) {
        uint32_t count = e->tracker->scan(&start, end, true, e->spans, SPANS_MAX);
        for (uint32_t s = 0; s < count; s++) {
            found += know_across(e->spans[s], populated);
        }
    }
    return found;
}

/* Leaves out slots of the arena that nobody ever had: walking over what is not there takes the kernel time, too. */
static uint64_t scan_but_free_slots(uint64_t start, uint64_t end, uint64_t *populated) {
    struct engine *e = engine;
    uint64_t arena = (uint64_t)e->arena;
    uint64_t found = 0;
    for (uint32_t s = 0; s < SLOTS; s++) {
        uint64_t slot = arena + (uint64_t)s * SLOT;
        if (!e->slots_seen[s] && slot >= start && slot + SLOT <= end) {
            found += pages_scan(start, slot, populated);
            start = slot + SLOT;
        }
    }
    return found + pages_scan(start, end, populated);
}

uint64_t pages_scan_hot(uint64_t *populated) {
    struct engine *e = engine;
    uint64_t found = 0;
    for (uint32_t i = 0; i < e->hot_count; i++) {
        struct region *region = &e->regions[e->hot[i]];
        found += scan_but_free_slots(region->start, region->end, populated);
    }
    return found;
}

uint64_t pages_scan_written(uint64_t *populated) {
    struct engine *e = engine;
    uint64_t found = 0;
    for (uint32_t i = 0; i < e->stretch_count; i++) {
        found += scan_but_free_slots(e->stretches[i].start, e->stretches[i].end, populated);
    }
    return found;
}

/* Whether it stopped. */
static bool find_in(const struct region *region, uint64_t enough, uint64_t *found, uint64_t *seen) {
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
        uint32_t count = e->tracker->scan(&start, end, true, e->spans, SPANS_MAX);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t pages = (e->spans[i].end - e->spans[i].start) / PAGE;
            uint64_t populated = 0;
            uint64_t more = know_across(e->spans[i], &populated);
            *found += more;
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

uint64_t pages_scan_all(void) {
    struct engine *e = engine;
    uint64_t missing = 0;
    if (e->tracker->by_file) {
        /* Nothing can be missing: what is not private is the file's. */
        uint64_t seen;
        pages_find(true, UINT64_MAX, &seen);
    } else {
        missing = protect_scan_all();
    }
    pages_check_guarded();
    return missing;
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
    uint8_t gone = KIND_KNOWN | (engine->tracker->by_file ? KIND_POPULATED : 0);
    *kind_of(region, (uint64_t)known->live) &= (uint8_t)~gone;
    engine->flagged_count--;
}

static void forget_all(void) {
    struct engine *e = engine;
    e->tracker->protect_all();
    for (uint32_t i = 0; i < e->region_count; i++) {
        struct region *region = &e->regions[i];
        for (uint64_t page = 0; region->hot && page < (region->end - region->start) / PAGE;
             page++) {
            region->kinds[page] &= (uint8_t)~KIND_KNOWN;
        }
    }
    e->known_count = 0;
}

void pages_forget_unchanged(uint64_t for_restores) {
    struct engine *e = engine;
    uint64_t now = e->statistics.restores;
    uint64_t kept = 0;
    uint64_t run_start = 0;
    uint64_t run_end = 0;
    if (e->tracker->protect == NULL) {
        uint64_t old = 0;
        for (uint64_t i = 0; i < e->known_count; i++) {
            old += e->known[i].changed_at + for_restores < now;
        }
        if (old * 2 > e->known_count) {
            forget_all();
        }
        return;
    }
    for (uint64_t i = 0; i < e->known_count; i++) {
        struct known_page *known = &e->known[i];
        if (known->changed_at + for_restores >= now ||
            pages_region((uint64_t)known->live)->fixed) {
            if (kept != i) {
                e->known[kept] = *known;
            }
            kept++;
            continue;
        }
        uint64_t page = (uint64_t)known->live;
        forget(known);
        if (page != run_end) {
            if (run_start != run_end) {
                e->tracker->protect(run_start, run_end);
            }
            run_start = page;
        }
        run_end = page + PAGE;
    }
    if (run_start != run_end) {
        e->tracker->protect(run_start, run_end);
    }
    e->known_count = kept;
}

void pages_drop_free_slots(void) {
    struct engine *e = engine;
    uint64_t populated = 0;
    for (uint32_t s = 0; s < SLOTS; s++) {
        uint64_t slot = (uint64_t)e->arena + (uint64_t)s * SLOT;
        struct region *region = pages_region(slot);
        if (region == NULL || e->slots_then[s].begin != e->slots_then[s].end) {
            continue;
        }
        for (uint64_t page = 0; page < SLOT_PAGES; page++) {
            populated += (*kind_of(region, slot + page * PAGE) & KIND_POPULATED) != 0;
        }
    }
    if (populated <= e->free_limit) {
        return;
    }
    for (uint32_t s = 0; s < SLOTS; s++) {
        uint64_t slot = (uint64_t)e->arena + (uint64_t)s * SLOT;
        struct region *region = pages_region(slot);
        if (region == NULL || e->slots_then[s].begin != e->slots_then[s].end) {
            continue;
        }
        raw(SYS_madvise, slot, SLOT, MADV_DONTNEED);
        for (uint64_t page = 0; page < SLOT_PAGES; page++) {
            uint8_t *kind = kind_of(region, slot + page * PAGE);
            e->flagged_count -= (*kind & KIND_KNOWN) != 0;
            *kind &= (uint8_t) ~(KIND_KNOWN | KIND_POPULATED);
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
