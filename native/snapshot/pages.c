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
    LARGE = 256 << 10,      /* a region of this size is hot from the start */
    STACK_GROWTH = 8 << 20, /* watched below the stack */
};
static const uint64_t STRETCH_GAP = 1ULL << 30; /* nothing for so long: another stretch */
/* Copies are memory that each worker has for itself: more than this is a mistake of the application. */
static const uint64_t STORE_MAX = 2ULL << 30;

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

static uint8_t *kind_of(const struct region *region, uint64_t address) {
    return &region->kinds[(address - region->start) / PAGE];
}

static void set_kind(const struct region *region, uint64_t start, uint64_t end, uint8_t kind) {
    start = start > region->start ? start : region->start;
    end = end < region->end ? end : region->end;
    for (uint64_t at = start; at < end; at += PAGE) {
        uint8_t *now = kind_of(region, at);
        *now = (uint8_t)((*now & ~KIND_MASK) | kind);
    }
}

static void heat(struct region *region) {
    struct engine *e = engine;
    if (!region->hot) {
        region->hot = true;
        e->hot[e->hot_count++] = (uint16_t)(region - e->regions);
    }
}

/* Not protected from now on, so put back each time. */
static void know(struct region *region, uint64_t address) {
    struct engine *e = engine;
    uint8_t *kind = kind_of(region, address);
    heat(region);
    *kind |= KIND_KNOWN;
    if ((*kind & KIND_MASK) == KIND_DEAD) {
        return;
    }
    if (e->known_count == e->known_max) {
        retire("more pages were written than the snapshot has"); /* it has room for all of them */
    }
    struct known_page *known = &e->known[e->known_count++];
    known->live = (char *)address;
    known->copy =
        (*kind & KIND_MASK) == KIND_ZERO ? e->zeros : region->store + (address - region->start);
    known->lines = known->lines_next = 0;
    known->changed_at = e->statistics.restores;
    known->hashed = false;
}

/* --- taking ----------------------------------------------------------------------------------------------------------------------------- */

/* The working memory: one page that a forked child finds empty, then kinds, known pages and the store. */
static void reserve_work(void) {
    struct engine *e = engine;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        bytes += e->regions[i].end - e->regions[i].start;
    }
    uint64_t pages = bytes / PAGE;
    uint64_t kinds = PAGE_UP(pages);
    uint64_t known = PAGE_UP(pages * sizeof(struct known_page));
    uint64_t size = PAGE + kinds + known + bytes;
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
static void extend_stack(uint32_t at) {
    struct region *region = &engine->regions[at];
    uint64_t low = region->start > STACK_GROWTH ? region->start - STACK_GROWTH : 0;
    for (uint32_t i = 0; i < engine->mapping_count; i++) {
        const struct mapping *mapping = &engine->mappings[i];
        if (mapping->end <= region->start && mapping->end > low) {
            low = mapping->end;
        }
    }
    region->start = low;
}

static uint64_t save(struct region *region) {
    struct engine *e = engine;
    uint64_t pages = (region->end - region->start) / PAGE;
    uint64_t saved = 0;
    memset(region->kinds, KIND_ZERO, pages);
    if (region->file) {
        memcpy(region->store, (const char *)region->start, region->end - region->start);
        memset(region->kinds, KIND_STORED | KIND_POPULATED, pages);
        return pages;
    }
    for (uint64_t at = region->start; at < region->end;) {
        uint32_t count = e->tracker->scan(&at, region->end, false, e->spans, SPANS_MAX);
        for (uint32_t i = 0; i < count; i++) {
            const struct pagemap_span *span = &e->spans[i];
            if (span->categories & CATEGORY_PFNZERO) {
                continue;
            }
            uint64_t len = span->end - span->start;
            memcpy(region->store + (span->start - region->start), (const char *)span->start, len);
            memset(kind_of(region, span->start), KIND_STORED | KIND_POPULATED, len / PAGE);
            saved += len / PAGE;
        }
    }
    return saved;
}

/* Pages whose contents nobody will read. */
static void mark_dead(const struct snapshot_range *dead, size_t dead_count) {
    struct engine *e = engine;
    for (uint32_t i = 0; i < e->region_count; i++) {
        struct region *region = &e->regions[i];
        if (region->stack && e->stack_pointer >= region->start && e->stack_pointer < region->end) {
            set_kind(region, region->start, PAGE_DOWN(e->stack_pointer), KIND_DEAD);
        }
        if (e->malloc_top != 0 && region->end == PAGE_UP(e->brk)) {
            set_kind(region, PAGE_UP(e->malloc_top), region->end, KIND_DEAD);
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

/* A page that is no longer the file's own, or was not and has been written since. */
static bool has_written(uint64_t start, uint64_t end) {
    struct engine *e = engine;
    while (start < end) {
        uint32_t count = e->tracker->scan(&start, end, false, e->spans, SPANS_MAX);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t categories = e->spans[i].categories;
            if ((categories & (CATEGORY_PRESENT | CATEGORY_WRITTEN)) ==
                    (CATEGORY_PRESENT | CATEGORY_WRITTEN) &&
                !(categories & (CATEGORY_FILE | CATEGORY_PFNZERO))) {
                return true;
            }
        }
    }
    return false;
}

/* Read-only memory has no copy: whoever writes to it all the same (/proc/self/mem, mprotect() there and back) costs the process. Relocated
 * tables (RELRO) are watched as regions are; of what is a file's own, a page that is not tells. */
static void guard_read_only(void) {
    struct engine *e = engine;
    e->guarded_count = 0;
    if (e->tracker->protect == NULL) {
        return;
    }
    for (uint32_t i = 0; i < e->mapping_count; i++) {
        const struct mapping *mapping = &e->mappings[i];
        if (mapping->permissions[0] != 'r' || mapping->permissions[1] == 'w' ||
            mapping->permissions[3] != 'p' || mapping->name == MAPPING_KERNEL) {
            continue;
        }
        if (has_written(mapping->start, mapping->end)) {
            if (!e->tracker->watch(mapping->start, mapping->end)) {
                continue;
            }
            e->tracker->protect(mapping->start, mapping->end);
        }
        if (e->guarded_count > 0 && e->guarded[e->guarded_count - 1].end == mapping->start) {
            e->guarded[e->guarded_count - 1].end = mapping->end;
        } else if (e->guarded_count < REGIONS_MAX) {
            e->guarded[e->guarded_count++] = (struct range){mapping->start, mapping->end};
        }
    }
}

static void check_guarded(void) {
    struct engine *e = engine;
    for (uint32_t i = 0; i < e->guarded_count; i++) {
        if (has_written(e->guarded[i].start, e->guarded[i].end)) {
            retire("the request wrote to read-only memory");
        }
    }
}

/* Appends [start, end) or extends the last one; in order of addresses. */
static void stretch(uint64_t start, uint64_t end) {
    struct engine *e = engine;
    struct range *last = e->stretch_count > 0 ? &e->stretches[e->stretch_count - 1] : NULL;
    if (last != NULL && (start - last->end < STRETCH_GAP || e->stretch_count == STRETCHES_MAX)) {
        last->end = end > last->end ? end : last->end;
    } else {
        e->stretches[e->stretch_count++] = (struct range){start, end};
    }
}

static void find_stretches(void) {
    struct engine *e = engine;
    uint32_t region = 0;
    uint32_t guarded = 0;
    e->stretch_count = 0;
    while (region < e->region_count || guarded < e->guarded_count) {
        if (guarded == e->guarded_count ||
            (region < e->region_count && e->regions[region].start < e->guarded[guarded].start)) {
            stretch(e->regions[region].start, e->regions[region].end);
            region++;
        } else {
            stretch(e->guarded[guarded].start, e->guarded[guarded].end);
            guarded++;
        }
    }
}

void pages_take(const struct snapshot_range *dead, size_t dead_count) {
    struct engine *e = engine;
    e->mapping_count = maps_read(e->mappings, MAPPINGS_MAX, e->regions, &e->region_count);
    uint32_t watched = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        struct region *region = &e->regions[i];
        if (e->tracker->watch(region->start, region->end)) {
            e->regions[watched++] = *region;
        } else if (!maps_droppable(region->start)) {
            /* MAP_DROPPABLE memory is getrandom()'s (glibc 2.41): put back, it would repeat itself. It stays outside. */
            struct text text = {0};
            text_add(&text, "the kernel cannot watch the mapping ");
            text_add(&text, region->name);
            text_add(&text, " at ");
            text_add_address(&text, region->start);
            retire_text(&text);
        }
    }
    e->region_count = watched;
    for (uint32_t i = 0; i < watched; i++) {
        if (e->regions[i].stack) {
            extend_stack(i);
        }
    }
    guard_read_only();
    find_stretches();
    reserve_work();
    uint64_t saved = 0;
    for (uint32_t i = 0; i < watched; i++) {
        struct region *region = &e->regions[i];
        saved += save(region);
        if (saved > STORE_MAX / PAGE) {
            retire("the booted application holds more than 2 GB of private memory");
        }
        if (region->stack || region->end - region->start > LARGE) {
            heat(region);
        }
    }
    e->statistics.snapshot_pages = saved;
    mark_dead(dead, dead_count);
    e->tracker->protect_all();
    /* Again: the working memory is new, and watching may have split or kept apart what was one. */
    e->mapping_count = maps_read(e->mappings, MAPPINGS_MAX, NULL, NULL);
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
        if (!(*kind & KIND_POPULATED)) {
            *kind |= KIND_POPULATED;
            ++*populated;
        }
        know(region, at);
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

static uint64_t scan_written(uint64_t start, uint64_t end, uint64_t *populated) {
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
            found += scan_written(start, slot, populated);
            start = slot + SLOT;
        }
    }
    return found + scan_written(start, end, populated);
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

/* Pages [start, end) are not there. Those that the snapshot holds are written anew. */
static uint64_t bring_back(struct region *region, uint64_t start, uint64_t end) {
    struct engine *e = engine;
    uint64_t missing = 0;
    for (uint64_t at = start; at < end; at += PAGE) {
        uint8_t *kind = kind_of(region, at);
        if ((*kind & KIND_MASK) != KIND_STORED) {
            *kind &= (uint8_t)~KIND_POPULATED;
            continue;
        }
        const char *copy = region->store + (at - region->start);
        /* The kernel may take a file's page away and read it again. Looking brings it here, unprotected. */
        if (!region->file || memcmp((const char *)at, copy, PAGE) != 0) {
            memcpy((char *)at, copy, PAGE);
            missing++;
        } else if (e->tracker->protect != NULL && !(*kind & KIND_KNOWN)) {
            e->tracker->protect(at, at + PAGE);
            continue;
        }
        if (!(*kind & KIND_KNOWN)) {
            know(region, at);
        }
    }
    return missing;
}

static uint64_t scan_all_of(struct region *region) {
    struct engine *e = engine;
    uint64_t missing = 0;
    uint64_t populated = 0;
    uint64_t seen = region->start;
    for (uint64_t at = region->start; at < region->end;) {
        uint32_t count = e->tracker->scan(&at, region->end, false, e->spans, SPANS_MAX);
        for (uint32_t s = 0; s < count; s++) {
            const struct pagemap_span *span = &e->spans[s];
            if (!(span->categories & CATEGORY_WPALLOWED)) {
                retire("a mapping of the boot was replaced by one that is not watched");
            }
            missing += bring_back(region, seen, span->start);
            /* Thrown away and read since: the page of zeros, or the file's own, where there may have been more. Thrown away and not
             * read: of a file's page the kernel keeps a marker, which counts as swapped out. */
            if ((span->categories & (CATEGORY_PFNZERO | CATEGORY_FILE)) ||
                (region->file && !(span->categories & CATEGORY_PRESENT))) {
                missing += bring_back(region, span->start, span->end);
            }
            if (span->categories & CATEGORY_WRITTEN) {
                know_span(region, span, &populated);
            }
            seen = span->end;
        }
        missing += bring_back(region, seen, at);
        seen = at;
    }
    return missing;
}

uint64_t pages_scan_all(void) {
    struct engine *e = engine;
    uint64_t missing = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        missing += scan_all_of(&e->regions[i]);
    }
    check_guarded();
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
                memcpy((char *)at, region->store + (at - region->start), PAGE);
                if (!(*kind & KIND_KNOWN)) {
                    know(region, at);
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
        if (known->changed_at + for_restores >= now) {
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
            *kind_of(region, slot + page * PAGE) &= (uint8_t) ~(KIND_KNOWN | KIND_POPULATED);
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
