/* One restore, from the last instruction of a request to the first of the next.
 *
 * The gate: a page that is neither known nor dead is protected, so writing to it, from wherever in this process, is a fault that the
 * kernel counts. No fault since the last restore: the known pages are all there is to put back. Faults that are all explained by pages
 * found in the hot regions: the same. When the request has made mappings of its own, the kernel is asked for all that was written, and as
 * many faults may be left as those have pages. Otherwise, or when something happened that the count cannot show: every page is looked at.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "snapshot/switch.h"
#include "snapshot/tracker.h"

enum {
    UNCHANGED_FOR = 200, /* restores; then a page is protected again at a complete check */
    BULKY_PAGES = 512,   /* far more known pages than change ... */
    BULKY_RESTORES =
        16, /* ... for so many restores: those that did not change are protected again at once */
    SIGNAL_SET = 8,
};

static void put_back_mappings(struct usage *usage, bool *full, bool complete) {
    struct engine *e = engine;
    if (raw(SYS_brk, 0) != (long)e->brk) {
        if (raw(SYS_brk, e->brk) != (long)e->brk) {
            retire("the heap's end cannot be put back");
        }
        *full = true;
    }
    for (uint32_t i = 0; i < e->born_count; i++) {
        raw(SYS_munmap, e->born[i].start, e->born[i].end - e->born[i].start);
    }
    e->born_count = 0;
    *usage = usage_read();
    if (complete || (e->touched & TOUCHED_MAPPINGS) || usage->size != e->usage.size ||
        usage->data != e->usage.data) {
        maps_put_back();
        *full = true;
    }
    memcpy(e->slots, e->slots_then, sizeof e->slots);
}

/* Makes the written pages known ones by the number of faults. Returns false when that cannot explain them all. *wide: the hot regions
 * were not enough. */
static bool find_by_faults(uint64_t faults, uint64_t *populated, bool *wide) {
    struct engine *e = engine;
    /* Faults in the request's own mappings: at most so many. */
    uint64_t own = e->strict || e->tracker->protect == NULL ? 0 : e->born_pages;
    uint64_t found = 0;
    if (!e->was_wide || own == 0) {
        found = pages_scan_hot(populated);
        if (found == faults) {
            e->was_wide = false;
            return true;
        }
    }
    if (own == 0) {
        return false;
    }
    found += pages_scan_written(populated);
    *wide = true;
    e->was_wide = found != faults;
    return found <= faults && faults - found <= own;
}

/* Makes every page that may have been written a known one. Returns whether anything was looked at. */
static bool find_written(bool full, const struct usage *usage) {
    struct engine *e = engine;
    uint64_t child_faults = faults_of(RUSAGE_CHILDREN);
    uint64_t faults = faults_of(RUSAGE_SELF) - e->faults;
    if (child_faults != e->child_faults) {
        e->child_faults = child_faults;
        full = true;
    }
    e->statistics.faults += faults;
    uint64_t populated = 0;
    bool hot = false;
    bool wide = false;
    if (!full && faults != 0) {
        /* Where the count of resident pages is an estimate, contents that were thrown away could hide among faults. */
        full = !e->resident_exact || !find_by_faults(faults, &populated, &wide);
        hot = !full;
    }
    bool missed = !full && e->resident_exact && usage->resident != e->usage.resident + populated;
    if (full || missed || (e->strict && !e->resident_exact)) {
        if (pages_scan_all() != 0 || missed) {
            maps_put_back();
        }
        e->statistics.full_scans++;
        return true;
    }
    if (wide) {
        e->statistics.wide_scans++;
    } else if (hot) {
        e->statistics.hot_scans++;
    } else {
        e->statistics.gated++;
    }
    return hot;
}

static void put_back_pages(bool complete) {
    struct engine *e = engine;
    uint64_t changed = e->put_back(
        e->known, e->known_count, e->key, e->statistics.restores, &e->statistics.hash_misses);
    if (complete) {
        pages_forget_unchanged(UNCHANGED_FOR);
        for (uint64_t i = 0; i < e->known_count; i++) {
            e->known[i].lines = e->known[i].lines_next;
            e->known[i].lines_next = 0;
        }
        e->bulky = 0;
    }
    e->bulky = e->known_count > BULKY_PAGES && changed * 4 < e->known_count ? e->bulky + 1 : 0;
    if (e->bulky >= BULKY_RESTORES) {
        pages_forget_unchanged(BULKY_RESTORES);
        e->bulky = 0;
    }
}

void restore(bool complete) {
    struct engine *e = engine;
    uint64_t at[PHASES];
    uint64_t begin = cycles();
    if (*e->own_process != 1) {
        retire("a child of the process that took the snapshot cannot be restored");
    }
    if (e->retire != NULL) {
        retire(e->retire);
    }
    e->statistics.restores++;
    complete = complete || ++e->since_check >= e->check_every;
    bool thorough = complete || e->strict;
    const uint64_t all = ~0ULL;
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, SIGNAL_SET);
    bool had_children = tasks_put_back();
    bool full = had_children || e->force_full || complete || e->dropped_count != 0;
    attributes_put_back(thorough, complete, had_children);
    descriptors_put_back(thorough);
    at[0] = cycles();

    struct usage usage;
    put_back_mappings(&usage, &full, complete);
    at[1] = cycles();
    bool looked = find_written(full, &usage);
    pages_put_back_dropped();
    at[2] = cycles();
    put_back_pages(complete);
    if (looked && usage.resident > e->usage.resident) {
        pages_drop_free_slots();
    }
    if (e->oracle) {
        oracle_check();
    }
    e->touched = 0;
    e->force_full = false;
    e->born_pages = 0;
    if (complete) {
        e->since_check = 0;
    }
    if (looked || e->oracle) {
        e->usage = usage_read();
        e->faults = faults_of(RUSAGE_SELF);
    }
    at[3] = cycles();
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &e->attributes.mask, NULL, SIGNAL_SET);
    at[4] = begin;
    statistics_add(at);
    switch_back(e->context);
}

void snapshot_restore(bool complete) {
    if (engine == NULL || !engine->taken) {
        retire("there is no snapshot to restore");
    }
    switch_to(engine->stack, restore, complete);
}

#endif
