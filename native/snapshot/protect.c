/* Snapshots by trackers that write-protect pages: copies in a store of this process's own. */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <string.h>
#include <sys/mman.h>

#include "snapshot/tracker.h"

enum { LARGE = 256 << 10 /* a region of this size is hot from the start */ };
static const uint64_t STRETCH_GAP = 1ULL << 30; /* nothing for so long: another stretch */
/* Copies are memory that each worker has for itself: more than this is a mistake of the application. */
static const uint64_t STORE_MAX = 2ULL << 30;

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
        if (pages_written(mapping->start, mapping->end)) {
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

void protect_take(const struct snapshot_range *dead, size_t dead_count) {
    struct engine *e = engine;
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
            pages_extend_stack(&e->regions[i]);
        }
    }
    guard_read_only();
    find_stretches();
    pages_reserve_work(true);
    uint64_t saved = 0;
    for (uint32_t i = 0; i < watched; i++) {
        struct region *region = &e->regions[i];
        saved += save(region);
        if (saved > STORE_MAX / PAGE) {
            retire("the booted application holds more than 2 GB of private memory");
        }
        if (region->stack || region->end - region->start > LARGE) {
            pages_heat(region);
        }
    }
    e->statistics.snapshot_pages = saved;
    pages_mark_dead(dead, dead_count);
    e->tracker->protect_all();
    /* Again: the working memory is new, and watching may have split or kept apart what was one. */
    e->mapping_count = maps_read(e->mappings, MAPPINGS_MAX, NULL, NULL);
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
            pages_know(region, at);
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
                pages_scan(span->start, span->end, &populated);
            }
            seen = span->end;
        }
        missing += bring_back(region, seen, at);
        seen = at;
    }
    return missing;
}

uint64_t protect_scan_all(void) {
    struct engine *e = engine;
    uint64_t missing = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        missing += scan_all_of(&e->regions[i]);
    }
    return missing;
}

#endif
