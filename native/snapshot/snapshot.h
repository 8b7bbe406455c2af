/* Page-level snapshot and restore of the process that calls it. Knows no Zend, no HTTP, no frames, no databases.
 *
 * Promises
 * - After a restore every byte of private writable memory equals the snapshot, except kept memory (snapshot_keep()) and dead memory. Dead are the
 *   ranges that the caller named, malloc's free end, and the memory below the stack pointer. Mappings, brk, descriptors, file offsets, signal
 *   dispositions and mask, timers, current directory and umask equal the snapshot, too. Children that ended are reaped.
 * - If anything cannot be restored, the process ends with SNAPSHOT_EXIT_RETIRED. No restore is almost right.
 * - The restore itself calls neither malloc nor libc: it runs on its own stack with raw system calls.
 *
 * It supports one thread, on Linux on x86-64 and ARM64. On other systems snapshot_probe() returns false and all other functions do nothing. The
 * technique: "Groundhog: Efficient Request Isolation in FaaS" (EuroSys '23), moved into the process; docs/internals/snapshot.md.
 */
#ifndef HEARTH_SNAPSHOT_H
#define HEARTH_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* EX_TEMPFAIL: the process could not be put back; another takes its place. */
enum { SNAPSHOT_EXIT_RETIRED = 75 };

/* Returns whether this process can take snapshots on this machine, by trying it. `why` is the reason if not, otherwise empty.
 * HEARTH_SNAPSHOT_TRACKER=none in the environment forbids snapshots, for tests. Static: *why. May be called without snapshot_arrange(). */
bool snapshot_probe(const char **why);

/* Call it first in main() of a process that will take a snapshot, or whose forks will. It executes the program again with symbols bound at once and
 * without rseq. Then it sets up the address space: the engine's region, the arena, malloc with brk only, no huge pages. It returns in the second
 * life only, with the environment and arguments of the first. */
void snapshot_arrange(char **argv);

/* Returns zeroed memory, aligned to 64, that no restore touches, for buffers and data that must outlive a request. It is never freed; untouched
 * pages cost nothing. Works in any process, arranged or not. Ends the process if there is no memory. */
void *snapshot_keep(size_t len);

/* From now on the arena serves anonymous mappings of 1 MB and more for the library that contains `address`, so that chunks need no system call. That
 * library must not rely on zeroed memory. Static: address. */
void snapshot_serve_arena(const void *address);

struct snapshot_range {
    uintptr_t start, end;
};

/* Pages that requests need, which one process has learned for those that take the same snapshot later. Zeroed memory that they share. */
enum { SNAPSHOT_HOT_PAGES = 1024, SNAPSHOT_HOT_RUNS = 2048 };
struct snapshot_hot_set {
    uint32_t owner; /* process that writes to it now, or 0 */
    uint32_t count, run_count;
    struct {
        uint64_t page, lines;
    } pages[SNAPSHOT_HOT_PAGES]; /* written to */
    struct {
        uint64_t start, end;
    } runs[SNAPSHOT_HOT_RUNS]; /* of files and shared memory: read, or beside such */
};

/* Restores that were verified, counted in memory that no restore touches. */
struct snapshot_verified {
    uint64_t restores, differing;
    uint64_t nanoseconds; /* that the comparisons took */
};

struct text;

struct snapshot_options {
    /* Bytes that will be written before they are read: whole pages in here are never put back. Borrowed. */
    const struct snapshot_range *dead;
    size_t dead_count;
    /* Attributes that raw system calls (FFI) can change without the interposed functions are restored after every request. Otherwise they are
     * restored only after a call that was seen, and at the complete check. Costs about 10 µs. */
    bool strict;
    /* Compares bytes instead of hashes: no probability is left, about 6 % slower. */
    bool exact;
    /* After each restore compares every page with the snapshot, reports the first differences through `say` and aborts. For tests. */
    bool oracle;
    /* In production: verifies one in 2^32 / `verify` restores, chosen at random, by the same comparison; UINT32_MAX: all, 0: none. At a difference
     * `say` gets one sentence with the page and the request, and the process retires. */
    uint32_t verify;
    struct snapshot_verified *verified; /* Static; NULL: nothing is counted. */
    void (*describe_request)(
        struct text *text); /* Adds the last request. As `say`. May be NULL. text.h */
    /* A complete check at the latest after this many restores; 0: 4096, or 1024 where the kernel only estimates the number of resident pages. */
    uint32_t check_every;
    /* May be NULL. Static. */
    struct snapshot_hot_set *hot_set;
    /* Told in a sentence why the process retires, or what the oracle found, just before it ends. Runs on the engine's stack: no malloc, no
     * locks, nothing that needs more than 64 KB of stack. May be NULL. */
    void (*say)(const char *what);
};

/* Called in a process whose forks will take snapshots: writes its private memory into one sealed file and maps that, so that all forks share the
 * pages. `dead` as in the options. Optional. Returns false if the memory cannot be shared; each snapshot then has its own copy of all pages. Static:
 * *why. */
bool snapshot_share(const struct snapshot_range *dead, size_t dead_count, const char **why);

/* Takes the snapshot and returns true. After each restore it returns again, with false and the state of the snapshot. Like setjmp(): the caller's
 * frame must still exist. Call it once in a process, after every fork(). If no snapshot is possible, `say` gets the reason, and the process ends
 * with SNAPSHOT_EXIT_RETIRED. */
bool snapshot_take(const struct snapshot_options *options);

/* Puts everything back and returns from snapshot_take(). `complete`: looks at everything even if nothing suspicious was seen. */
_Noreturn void snapshot_restore(bool complete);

/* A complete check would be welcome when there is time: the caller is idle. Cheap. */
bool snapshot_wants_check(void);

/* From now on the process may only end, not be restored: the request did something that cannot be undone. Static: why. */
void snapshot_retire_later(const char *why);

/* Called in a child that a request has forked: closes the engine's descriptors. Among them are duplicates of the boot's, which would hold the
 * parent's connections and locks while the child lives. Only system calls. */
void snapshot_leave_to_parent(void);

struct snapshot_statistics {
    uint64_t restores;
    uint64_t gated;     /* no fault: nothing scanned */
    uint64_t hot_scans; /* every fault explained by a page of a hot region */
    uint64_t
        wide_scans; /* the others were none in the snapshot's memory: by the number of private pages */
    uint64_t full_scans;     /* the faults did not suffice: all pages were checked */
    uint64_t faults;         /* seen by the gate */
    uint64_t known_pages;    /* put back each time, now */
    uint64_t hash_misses;    /* pages that needed an exact compare */
    uint64_t snapshot_pages; /* with a copy */
    uint64_t shared_pages;   /* of those: in the file of snapshot_share() */
    uint64_t oracle_pages;   /* compared by the oracle, all restores together */
    uint64_t handed_pages;   /* known from the start, by the hot set */
    uint64_t mapped_pages;   /* of files and shared memory, mapped ahead by the hot set */
    uint32_t take_us;        /* microseconds that snapshot_take() took */
    /* Nanoseconds of the restores' phases, median of the last 4096: attributes, gate, scan, copy, all. */
    uint32_t phase_ns[5];
};

/* Copies the statistics; the medians are computed now. */
void snapshot_statistics(struct snapshot_statistics *statistics);

#endif
