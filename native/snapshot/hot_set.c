/* Pages that requests need. One worker learns them, and later workers prepare them when they take their snapshot, instead of by a fault for
 * each. Written pages are copied. Pages of libraries and of shared memory, which a fork finds unmapped, are mapped.
 *
 * Promises
 * - No content of the shared table can make a restore wrong: it only names pages that are known from the start, and lines to write first. An
 *   entry that is not a page of the snapshot is ignored.
 * - A process that ends while it writes to the table blocks no other.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <string.h>

enum {
    FEW_RESTORES =
        8, /* number of restores after which a worker first shares what it has learned, and ... */
    SOME_RESTORES = 64, /* ... after this many again; later at each complete check */
    MAPPED_MAX = 8192,  /* pages mapped ahead, about */
};

/* Locks the set for writing. */
static bool lock(struct snapshot_hot_set *set) {
    uint32_t owner = 0;
    uint32_t own = (uint32_t)engine->pid;
    if (__atomic_compare_exchange_n(
            &set->owner, &owner, own, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return true;
    }
    return raw(SYS_kill, owner, 0) == -ESRCH && __atomic_compare_exchange_n(&set->owner, &owner,
                                                    own, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void unlock(struct snapshot_hot_set *set) {
    __atomic_store_n(&set->owner, 0, __ATOMIC_RELEASE);
}

static void add(struct snapshot_hot_set *set, uint32_t *count, uint64_t page, uint64_t lines) {
    if (*count < SNAPSHOT_HOT_PAGES) {
        __atomic_store_n(&set->pages[*count].page, page, __ATOMIC_RELAXED);
        __atomic_store_n(&set->pages[*count].lines, lines, __ATOMIC_RELAXED);
        ++*count;
    }
}

/* Dead pages come last: each omitted one costs one fault, and nothing later. */
static void add_dead(struct snapshot_hot_set *set, uint32_t *count) {
    const struct engine *e = engine;
    for (uint32_t i = 0; i < e->hot_count; i++) {
        const struct region *region = &e->regions[e->hot[i]];
        for (uint64_t at = region->start; !region->fixed && at < region->end; at += PAGE) {
            uint8_t kind = *kind_of(region, at);
            if ((kind & KIND_MASK) == KIND_DEAD && (kind & KIND_KNOWN)) {
                add(set, count, at, 0);
            }
        }
    }
}

/* Returns whether code is mapped from the same file, close by: then it belongs to a program or a library. */
static bool is_beside_code(const struct mapping *mapping) {
    enum { PARTS = 8 };
    const struct engine *e = engine;
    const struct mapping *first = e->mappings;
    const struct mapping *end = e->mappings + e->mapping_count;
    first = mapping - first > PARTS ? mapping - PARTS : first;
    end = end - mapping > PARTS ? mapping + PARTS : end;
    for (; first < end; first++) {
        if (first->inode == mapping->inode && first->device == mapping->device &&
            first->permissions[2] == 'x') {
            return true;
        }
    }
    return false;
}

/* Mappings whose page tables a fork does not inherit: libraries, and files in memory (shared memory, this process's snapshot). Files that
 * could shrink while they are mapped are excluded. */
static bool is_mapped_late(const struct mapping *mapping) {
    const struct engine *e = engine;
    if (mapping->permissions[0] != 'r' || mapping->inode == 0 || mapping->name != MAPPING_OTHER) {
        return false;
    }
    const bool memory = mapping->device == (e->own.view != NULL ? &e->own : &e->shared)->device;
    if (mapping->permissions[3] == 's') {
        return memory;
    }
    return mapping->permissions[1] != 'w' && (memory || is_beside_code(mapping));
}

/* Pages that this process has in its page tables: the kernel maps some more around one that is touched. */
static void learn_runs(struct snapshot_hot_set *set) {
    struct engine *e = engine;
    uint32_t count = 0;
    for (uint32_t i = 0; i < e->mapping_count; i++) {
        uint64_t at = e->mappings[i].start;
        while (is_mapped_late(&e->mappings[i]) && at < e->mappings[i].end) {
            uint32_t spans =
                pagemap_scan(&at, e->mappings[i].end, PAGEMAP_PRESENT, e->spans, SPANS_MAX);
            for (uint32_t s = 0; s < spans && count < SNAPSHOT_HOT_RUNS; s++, count++) {
                __atomic_store_n(&set->runs[count].start, e->spans[s].start, __ATOMIC_RELAXED);
                __atomic_store_n(&set->runs[count].end, e->spans[s].end, __ATOMIC_RELAXED);
            }
        }
    }
    __atomic_store_n(&set->run_count, count, __ATOMIC_RELAXED);
}

void hot_set_learn(bool complete) {
    const struct engine *e = engine;
    struct snapshot_hot_set *set = e->hot_set;
    uint64_t restores = e->statistics.restores;
    if (set == NULL || !(complete || restores == FEW_RESTORES || restores == SOME_RESTORES) ||
        !lock(set)) {
        return;
    }
    uint32_t count = 0;
    for (uint64_t i = 0; i < e->known_count; i++) {
        const struct known_page *known = &e->known[i];
        if (!pages_region((uint64_t)known->live)->fixed) {
            add(set, &count, (uint64_t)known->live, known->lines | known->lines_next);
        }
    }
    add_dead(set, &count);
    __atomic_store_n(&set->count, count, __ATOMIC_RELAXED);
    if (restores <= SOME_RESTORES) {
        learn_runs(set);
    }
    unlock(set);
}

/* Makes the pages this process's own. The write changes no byte, even if a signal arrives in between. If the kernel has no MADV_POPULATE_WRITE
 * (before 5.14) it is a page fault, which also fills a hypervisor's page tables. */
static void copy_now(uint64_t start, uint64_t end) {
    if (start != end) {
        raw(SYS_madvise, start, end - start, ADVICE_POPULATE_WRITE);
    }
    for (uint64_t at = start; at < end; at += PAGE) {
        __atomic_fetch_or((char *)at, 0, __ATOMIC_RELAXED);
    }
}

static void know(uint64_t page, uint64_t lines, struct range *run) {
    struct region *region = page % PAGE == 0 ? pages_region(page) : NULL;
    if (region == NULL || region->fixed || (*kind_of(region, page) & KIND_KNOWN)) {
        return;
    }
    if (page != run->end) {
        copy_now(run->start, run->end);
        run->start = page;
    }
    run->end = page + PAGE;
    bool dead = (*kind_of(region, page) & KIND_MASK) == KIND_DEAD;
    if (in_arena(engine, (const void *)page)) {
        /* otherwise a search would skip it, and miss a known page */
        engine->slots_seen[(page - (uint64_t)engine->arena) / SLOT] = true;
    }
    pages_know(region, page);
    engine->statistics.handed_pages++;
    if (!dead) {
        engine->known[engine->known_count - 1].lines = lines;
    }
}

/* Maps a run that lies within one mapping. A page is read, because a hypervisor's page tables are filled by that only. */
static uint64_t map_run(uint64_t start, uint64_t end) {
    const struct mapping *mapping = start % PAGE == 0 && end % PAGE == 0 ? maps_at(start) : NULL;
    if (mapping == NULL || end <= start || end > mapping->end || !is_mapped_late(mapping) ||
        raw(SYS_madvise, start, end - start, ADVICE_POPULATE_READ) != 0) {
        return 0;
    }
    for (uint64_t at = start; at < end; at += PAGE) {
        (void)*(volatile const char *)at;
    }
    return (end - start) / PAGE;
}

static void map_runs(const struct snapshot_hot_set *set) {
    uint32_t count = __atomic_load_n(&set->run_count, __ATOMIC_RELAXED);
    uint64_t *mapped = &engine->statistics.mapped_pages;
    for (uint32_t i = 0; i < count && i < SNAPSHOT_HOT_RUNS && *mapped < MAPPED_MAX; i++) {
        *mapped += map_run(__atomic_load_n(&set->runs[i].start, __ATOMIC_RELAXED),
            __atomic_load_n(&set->runs[i].end, __ATOMIC_RELAXED));
    }
}

/* Without the lock: an entry that is just being written is as harmless as any other. */
void hot_set_apply(void) {
    const struct snapshot_hot_set *set = engine->hot_set;
    if (set == NULL) {
        return;
    }
    uint32_t count = __atomic_load_n(&set->count, __ATOMIC_RELAXED);
    struct range run = {0, 0};
    for (uint32_t i = 0; i < count && i < SNAPSHOT_HOT_PAGES; i++) {
        know(__atomic_load_n(&set->pages[i].page, __ATOMIC_RELAXED),
            __atomic_load_n(&set->pages[i].lines, __ATOMIC_RELAXED), &run);
    }
    copy_now(run.start, run.end);
    map_runs(set);
    /* What pages are put back from is read, too. */
    for (uint64_t i = 0; i < engine->known_count; i++) {
        (void)*(volatile const char *)engine->known[i].copy;
    }
}

#endif
