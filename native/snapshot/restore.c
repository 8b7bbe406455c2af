/* One restore, from the last instruction of a request to the first of the next.
 *
 * A page that is neither known nor dead is protected, so any write to it in this process is a fault that the kernel counts. Without a fault
 * since the last restore, only the known pages must be restored. The same applies if pages found in the hot regions explain all faults. If
 * the request has made mappings, the kernel is asked for all written pages, and as many faults may be unexplained as the mappings have pages.
 * Otherwise, or after an event that the count cannot show, every page is checked.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "snapshot/switch.h"

enum {
    UNCHANGED_FOR = 200, /* restores; then a page is protected again at a complete check */
    LEARN_EVERY = 8,     /* restores; in one of them it is found out which lines still change */
    BULKY_PAGES = 512,   /* far more known pages than changed ones ... */
    BULKY_RESTORES =
        16, /* ... for this many restores: pages that did not change are protected again at once */
    SIGNAL_SET = 8,
    TIMED_EVERY = 7, /* restores; the phases of one of them are timed */
};

/* libc's own record of the heap's end, moved by malloc and sbrk() (glibc, sysdeps/unix/sysv/linux/brk.c). */
extern void *__curbrk __attribute__((weak));

static bool heap_may_have_moved(void) {
    return &__curbrk == NULL || (uint64_t)__curbrk != engine->brk;
}

/* Returns whether it had moved. */
static bool put_back_heap_end(void) {
    const struct engine *e = engine;
    if (raw(SYS_brk, 0) == (long)e->brk) {
        return false;
    }
    if (raw(SYS_brk, e->brk) != (long)e->brk) {
        retire("the heap's end cannot be put back");
    }
    return true;
}

static bool same_sizes(const struct usage *a, const struct usage *b) {
    return a->size == b->size && a->data == b->data;
}

/* Returns whether all mappings were compared. */
static bool put_back_mappings(struct usage *usage, bool *full, bool thorough, bool complete) {
    struct engine *e = engine;
    for (uint32_t i = 0; i < e->born_count; i++) {
        raw(SYS_munmap, e->born[i].start, e->born[i].end - e->born[i].start);
    }
    e->born_count = 0;
    *usage = usage_read();
    /* A move by a raw call changes the sizes. */
    if ((thorough || heap_may_have_moved() || !same_sizes(usage, &e->usage)) &&
        put_back_heap_end()) {
        *usage = usage_read();
        *full = true;
    }
    /* The heap's free end was used up, or it was cut off and made again. */
    bool heap_changed = e->canary_at != 0 && *(const uint64_t *)e->canary_at != e->canary;
    bool compare = heap_changed || complete || (e->touched & TOUCHED_MAPPINGS) ||
                   !same_sizes(usage, &e->usage);
    if (compare) {
        maps_put_back();
        *full = true;
    }
    if (heap_changed) {
        *(uint64_t *)e->canary_at = e->canary;
    }
    memcpy(e->slots, e->slots_then, sizeof e->slots);
    return compare;
}

static uint64_t private_pages(const struct usage *usage) {
    return usage->resident - usage->shared;
}

/* Makes known the pages that the request was the first to write. Returns whether these are certainly all. *wide: not by the number of faults
 * alone.
 *
 * Each first write is a fault and makes one page private. So if there are as many pages as faults, they are all. Fewer are all, too, if the
 * process has exactly that many more private pages and still has its earlier ones: the other faults were not writes to the snapshot's
 * memory. A page of zeros, which was only read, is found and is not private: it could stand for one that is still to be found. */
static bool find_first_writes(uint64_t faults, const struct usage *usage, bool *wide) {
    struct engine *e = engine;
    uint64_t had = e->flagged_count;
    uint64_t grown = private_pages(usage) - private_pages(&e->usage);
    uint64_t seen;
    /* Without an exact count a page that another process wrote could stand for one that is still to be found. */
    uint64_t found = pages_find(false, e->resident_exact ? faults : UINT64_MAX, &seen);
    if (found == faults) {
        return !e->resident_exact || found == grown;
    }
    if (e->strict) {
        return false;
    }
    *wide = true;
    if (e->resident_exact) {
        return found == grown && e->found_not_own == 0 && seen == had &&
               status_number("\nVmSwap:") == 0;
    }
    if (e->born_pages == 0) {
        return false;
    }
    /* Faults in the request's own mappings: at most one for each of their pages. */
    found += pages_find(true, UINT64_MAX, &seen);
    return found <= faults && faults - found <= e->born_pages;
}

/* Set permanently by glibc when it creates a thread, for itself or others, in memory that is restored (sys/single_threaded.h). */
extern char __libc_single_threaded __attribute__((weak));

/* Returns whether no other thread can have written anything. Threads of raw system calls that have ended show in the number of private
 * pages. */
static bool wrote_alone(void) {
    const struct engine *e = engine;
    return e->asks_alone && e->resident_exact && !e->strict && &__libc_single_threaded != NULL &&
           __libc_single_threaded && (e->touched & TOUCHED_THREADS) == 0;
}

/* Faults since the last restore. One thread's cost half as much to read as the process's. */
static uint64_t count_faults(void) {
    const struct engine *e = engine;
    if (wrote_alone() && faults_of(RUSAGE_THREAD) == e->thread_faults) {
        return 0;
    }
    return faults_of(RUSAGE_SELF) - e->faults;
}

/* Makes every page known that may have been written. `compared`: all mappings were compared. Returns whether any page was checked. */
static bool find_written(bool full, bool had_children, bool compared, const struct usage *usage) {
    struct engine *e = engine;
    uint64_t faults = count_faults();
    if (full || had_children || e->strict) {
        uint64_t child_faults = faults_of(RUSAGE_CHILDREN);
        full = full || child_faults != e->child_faults;
        e->child_faults = child_faults;
    }
    e->statistics.faults += faults;
    uint64_t had = e->flagged_count;
    uint64_t left = e->left_file;
    bool wide = false;
    full = full || (e->strict && !e->resident_exact) ||
           (faults != 0 && !find_first_writes(faults, usage, &wide));
    if (!full && e->resident_exact) {
        left = e->left_file - left;
        full = private_pages(usage) != private_pages(&e->usage) + (e->flagged_count - had) ||
               usage->shared + left < e->usage.shared;
    }
    if (full) {
        pages_find_all();
        if (!compared) {
            maps_put_back(); /* memory that was replaced is not watched, and nothing else may show it */
        }
        e->statistics.full_scans++;
    } else if (wide) {
        e->statistics.wide_scans++;
    } else if (faults != 0) {
        e->statistics.hot_scans++;
    } else {
        e->statistics.gated++;
    }
    if (!full && faults != 0 && e->strict) {
        maps_put_back(); /* an empty page that was mapped over leaves no other trace */
    }
    return full || faults != 0;
}

/* Returns whether pages were protected again. */
static bool put_back_pages(bool complete) {
    struct engine *e = engine;
    bool protected = complete;
    bool learns = e->known_count > BULKY_PAGES || e->statistics.restores % LEARN_EVERY == 0;
    uint64_t changed = e->put_back(e->known, e->known_count, e->key, e->statistics.restores, learns,
        &e->statistics.hash_misses);
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
        maps_put_back(); /* where a file's page was mapped over, there is nothing to go back to */
        pages_forget_unchanged(BULKY_RESTORES);
        e->bulky = 0;
        protected = true;
    }
    return protected;
}

static uint64_t stamp(bool timed) {
    return timed ? cycles() : 0;
}

void restore(bool complete) {
    struct engine *e = engine;
    uint64_t at[PHASES];
    const bool timed = e->statistics.restores % TIMED_EVERY == 0;
    at[4] = stamp(timed);
    if (*e->own_process != 1) {
        retire("a child of the process that took the snapshot cannot be restored");
    }
    if (e->retire != NULL) {
        retire(e->retire);
    }
    e->statistics.restores++;
    complete = complete || ++e->since_check >= e->check_every;
    bool thorough = complete || e->strict;
    bool signals_wait = attributes_block_signals(thorough);
    bool had_children = tasks_put_back(thorough);
    bool full = had_children || e->force_full || complete || e->dropped_count != 0;
    attributes_put_back(thorough, had_children, signals_wait);
    descriptors_put_back(thorough, had_children);
    at[0] = stamp(timed);

    struct usage usage;
    bool compared = put_back_mappings(&usage, &full, thorough, complete);
    at[1] = stamp(timed);
    bool looked = find_written(full, had_children, compared, &usage);
    pages_put_back_dropped();
    at[2] = stamp(timed);
    looked = put_back_pages(complete) || looked;
    hot_set_learn(complete);
    if (looked && usage.resident > e->usage.resident) {
        pages_drop_free_slots();
    }
    const bool verifies = oracle_chooses(e);
    if (verifies) {
        oracle_verify();
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
    if (looked || e->oracle || verifies) {
        e->usage = usage_read();
        e->faults = faults_of(RUSAGE_SELF);
        e->thread_faults = faults_of(RUSAGE_THREAD);
    }
    at[3] = stamp(timed);
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &e->attributes.mask, NULL, SIGNAL_SET);
    if (timed) {
        statistics_add(at);
    }
    switch_back(e->context);
}

void snapshot_restore(bool complete) {
    if (engine == NULL || !engine->taken) {
        retire("there is no snapshot to restore");
    }
    switch_to(engine->stack, restore, complete);
}

#endif
