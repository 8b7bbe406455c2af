/* Shared by the parts of the snapshot engine. No other folder includes this.
 *
 * Invariants
 * - All data that the engine changes after the snapshot are in its own mappings (struct engine and the working memory), which the
 *   snapshot excludes. The only variable in the program's own memory is the pointer `engine`, set once.
 * - Code marked "engine's stack" runs between take and return, or in a restore: system calls from raw.h, memcpy() and memset(), nothing
 *   else of libc.
 * - Every array has its bound beside it, and what happens when it is full.
 */
#ifndef HEARTH_SNAPSHOT_ENGINE_H
#define HEARTH_SNAPSHOT_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An address sanitizer's shadow memory and its own interposed calls leave no room for ours. */
#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__linux__) &&                         \
    !defined(__SANITIZE_ADDRESS__)
#define SNAPSHOT_ENGINE 1
#else
#define SNAPSHOT_ENGINE 0
#endif

#if SNAPSHOT_ENGINE
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "snapshot/attributes.h"
#include "snapshot/kernel.h"
#include "snapshot/raw.h"
#include "snapshot/snapshot.h"
#include "snapshot/text.h"

enum {
    LINES = 64,     /* of a page: one bit of a word each */
    SLOT = 2 << 20, /* the unit of the arena; Zend's chunks have this size and alignment */
    SLOTS = 64,
    ENGINE_STACK = 256 << 10,
    MAPPINGS_MAX =
        65536, /* the kernel's default for vm.max_map_count: more cannot be taken, or retire */
    REGIONS_MAX = 16384,    /* more cannot be taken */
    SPANS_MAX = 512,        /* a scan goes on where the vector was full */
    DESCRIPTORS_MAX = 1024, /* more of the boot cannot be taken */
    BORN_MAX = 64,          /* more: all mappings are compared */
    DROPPED_MAX = 16,       /* more: retire */
    SAMPLES = 512,          /* restores that statistics are medians of */
    PHASES = 5,
};

/* The kernel's page size: 4, 16 or 64 KB on ARM64, known only at run time. A constant on x86-64. */
#if defined(__x86_64__)
enum { PAGE = 4096, PAGE_LARGEST = PAGE, LINE = PAGE / LINES, SLOT_PAGES = SLOT / PAGE };
#else
enum { PAGE_LARGEST = 65536 };
/* Set before main(). */
extern uint64_t page_size;
#define PAGE page_size
#define LINE (PAGE / LINES)
#define SLOT_PAGES (SLOT / PAGE)
#endif

#define PAGE_DOWN(address) ((uint64_t)(address) & ~(uint64_t)(PAGE - 1))
#define PAGE_UP(address) PAGE_DOWN((uint64_t)(address) + PAGE - 1)

/* --- memory ---------------------------------------------------------------------------------------------------------------------------- */

/* The state of a page at the snapshot, one byte each: a kind, and flags that change. */
enum {
    KIND_STORED = 0, /* has a copy in a file */
    KIND_ZERO = 1,   /* was not there, or was the page of zeros */
    KIND_DEAD = 2,   /* its contents will not be read */
    KIND_MASK = 3,
    KIND_SHARED = 0x20,  /* stored in the file of snapshot_share(), not in this process's own */
    KIND_PRIVATE = 0x40, /* was written before the snapshot: while it is taken */
    KIND_KNOWN = 0x80,   /* not protected: may be written without a fault */
};

/* A private writable mapping of the snapshot. */
struct region {
    uint64_t start, end;
    uint8_t *kinds;
    const char *copy; /* of a fixed region: the pages of the file that belong to `start` */
    bool file, stack, executable;
    bool fixed; /* cannot become a mapping of a file: all its pages stay known */
    bool hot;   /* looked at first when faults were seen */
    char name[48];
};

/* A page that is put back after every request: all that may be written without a fault, and are not dead. One line of the cache. */
struct known_page {
    _Alignas(64) char *live;
    const char *copy;
    uint64_t lines; /* lines that are written back straight away, because they changed before */
    uint64_t lines_next; /* those that changed since the last complete check */
    uint64_t changed_at; /* number of the restore that found it changed last */
    uint64_t hash[2];
    bool hashed;
    bool executable;
};
_Static_assert(sizeof(struct known_page) == 64, "one line");

/* A line of /proc/self/maps. */
struct mapping {
    uint64_t start, end, offset, device, inode;
    char permissions[4];
    uint8_t name; /* MAPPING_* */
    bool written; /* read-only now, but not the file's own */
};
enum { MAPPING_OTHER, MAPPING_STACK, MAPPING_HEAP, MAPPING_KERNEL, MAPPING_AIO };

struct range {
    uint64_t start, end;
};

/* Neighbouring pages. */
struct span {
    uint64_t start, end;
    bool
        own; /* written pages: no other process has them, and they are not the page of zeros, which a read maps */
};

/* A sealed memfd that holds pages of the snapshot. */
struct memory_file {
    const char *view; /* all of it, read-only; NULL: there is none */
    uint64_t size, device, inode;
    int fd; /* while it is made, else 0 */
    struct rlimit limit;
};

/* --- arena ------------------------------------------------------------------------------------------------------------------------------ */

/* The pages of a slot that are handed out: [begin, end) of SLOT_PAGES; free when begin == end. */
struct slot {
    uint16_t begin, end;
    bool used; /* was handed out since the snapshot: its first page may hold anything */
};

/* --- kernel's side ---------------------------------------------------------------------------------------------------------------------- */

/* Calls that were seen since the last restore: bits of engine->touched. */
enum {
    TOUCHED_MAPPINGS = 1 << 0,
    TOUCHED_CHILDREN = 1 << 1,
    TOUCHED_IDENTITY = 1 << 2, /* a descriptor of the boot or the engine may be closed or another */
    TOUCHED_FLAGS = 1 << 3,    /* flags of some descriptor */
    TOUCHED_STACK = 1 << 4,    /* of signals */
    TOUCHED_TIMERS = 1 << 5,
    TOUCHED_NAME = 1 << 6,
    TOUCHED_LOCKED = 1 << 7, /* mlock() */
    TOUCHED_LOCKS = 1 << 8,  /* of files */
    TOUCHED_PLACE = 1 << 9,  /* current directory or umask */
    TOUCHED_PROC = 1 << 10,  /* a file of /proc was opened for writing */
    TOUCHED_THREADS = 1 << 11,
    TOUCHED_EVENTS = 1 << 12, /* a descriptor may send signals */
    TOUCHED_OPENED = 1 << 13, /* another descriptor of a file that the boot has locked */
};

/* A descriptor of the boot. */
struct descriptor {
    int fd, twin; /* our duplicate, by which it is recognised */
    int descriptor_flags, status_flags;
    int64_t offset;    /* -1: has none */
    bool locked;       /* by the boot: its locks are left alone, and must stay */
    bool appends;      /* and is not read: its offset is not put back each time */
    int information;   /* if `locked`: what the kernel tells of it */
    uint64_t locks;    /* if `locked`: a hash of the locks */
    bool record_locks; /* if `locked`: all of them are this process's own, and there are some */
    uint64_t device, inode, special;
    uint32_t mode;
};

enum identity { IDENTITY_QUERY, IDENTITY_KCMP, IDENTITY_STAT };

struct engine_descriptors {
    int first, last; /* all of the engine's, twins and fillers included: contiguous */
    int pagemap, maps, statm, status, tasks, directory;
    int kill_score, core_filter,
        autogroup; /* of /proc/self; the last two are -1 where the kernel has none */
};

struct usage {
    uint64_t size, resident, shared, data; /* pages, as in /proc/self/statm */
};

/* --- all of it -------------------------------------------------------------------------------------------------------------------------- */

struct known_page;
/* Restores `count` pages. Returns how many were found changed; adds pages whose hash differed to *misses. Without `learns`, lines that
 * changed before are written without a comparison, so that only pages with a miss count as changed. */
typedef uint64_t put_back_function(struct known_page *pages, uint64_t count, const char *key,
    uint64_t restore, bool learns, uint64_t *misses);

struct engine {
    /* Constant after arrange. */
    char *region, *region_end;         /* this structure, the stack, kept memory */
    char *stack;                       /* its end */
    char *arena;                       /* SLOTS * SLOT */
    uint64_t served_start, served_end; /* code that gets arena memory */

    /* Constant after snapshot_share(). */
    struct memory_file shared;
    jmp_buf *sharing; /* while it runs, a failure ends only the sharing, not the worker */

    /* Constant after take. */
    bool taken;
    bool strict, exact, oracle, resident_exact;
    bool asks_alone; /* unshare(CLONE_VM) may be called */
    uint32_t check_every;
    void (*say)(const char *what);
    uint32_t verify;
    struct snapshot_verified *verified;
    void (*describe_request)(struct text *text);
    struct snapshot_hot_set *hot_set;
    void *context;
    const uint8_t *own_process; /* reads 0 in a forked child */
    put_back_function *put_back;
    char *work, *work_end;  /* own_process, kinds, known pages */
    struct memory_file own; /* pages that changed between snapshot_share() and the snapshot */
    uint64_t brk;
    uint64_t canary, canary_at; /* in the last page of the heap, 0 if there is none */
    long pid;
    uint64_t stack_pointer;
    uint64_t malloc_top; /* from here to brk: inside of malloc's free end, 0 if none */
    uint64_t free_limit; /* pages */
    uint32_t region_count, hot_count;
    uint32_t descriptor_count, gap_count;
    int descriptor_max;
    bool has_locks; /* some descriptor is `locked` */
    struct engine_descriptors fds;
    enum identity identity;
    uint64_t proc_device; /* st_dev of /proc */

    /* Changing. */
    uint32_t touched;
    bool force_full; /* check all pages: the faults do not suffice */
    bool boot_locked;
    bool has_children; /* some lived at the end of the last restore */
    uint8_t timers_armed;
    uint64_t limit_started,
        limit_cycles; /* counter of cycles when the time limit was started last; for how long it is fresh */
    uint64_t touched_signals;
    const char *retire; /* why, or NULL */
    uint32_t since_check;
    uint64_t verify_random; /* state of the generator that chooses restores to verify, never 0 */
    uint32_t bulky;         /* restores in a row that knew far more pages than changed */
    uint64_t faults, thread_faults, child_faults; /* at the end of the last restore */
    struct usage usage;
    uint64_t found_not_own; /* pages that pages_find() found and that were perhaps only read */
    uint64_t flagged_count; /* pages with KIND_KNOWN: known_count and the dead ones */
    uint64_t left_file;     /* stored pages that became private, in all */
    uint64_t known_count, known_max;
    struct known_page *known;
    uint32_t born_lock, born_count, dropped_count;
    uint64_t born_pages;         /* of mappings made since, those that are gone again included */
    struct range born[BORN_MAX]; /* mappings made since, by calls that were seen */
    struct range dropped[DROPPED_MAX]; /* contents thrown away by madvise() */
    struct slot slots[SLOTS], slots_then[SLOTS];
    bool slots_seen[SLOTS]; /* in use at the snapshot, or handed out since, ever */
    struct snapshot_statistics statistics;
    uint64_t clock_cycles, clock_ns; /* both clocks at the snapshot */
    uint32_t sample_count;

    struct attributes attributes;
    struct compared_attributes compared;
    _Alignas(64) char key[PAGE_LARGEST];
    _Alignas(64) char zeros[PAGE_LARGEST];
    uint32_t samples[SAMPLES][PHASES];
    struct span spans[SPANS_MAX];
    uint16_t hot[REGIONS_MAX];
    struct descriptor descriptors[DESCRIPTORS_MAX];
    uint32_t guarded_count;
    struct range guarded[REGIONS_MAX]; /* private memory that is read-only: neighbours joined */
    struct range gaps[DESCRIPTORS_MAX + 2]; /* numbers that were free at the snapshot, inclusive */
    struct region regions[REGIONS_MAX];
    uint32_t mapping_count;
    struct mapping mappings[MAPPINGS_MAX];
    struct mapping mappings_now[MAPPINGS_MAX];
    char buffer[64 << 10];
    uint32_t sorted[SAMPLES];
    char *kept, *kept_end;
};

/* NULL until snapshot_arrange(). */
extern struct engine *engine;

/* FNV-1a. */
static inline uint64_t hash_bytes(const char *bytes, size_t len) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3;
    }
    return hash;
}

/* Any stack. */
static inline void touch(uint32_t what) {
    if (engine != NULL) {
        __atomic_fetch_or(&engine->touched, what, __ATOMIC_RELAXED);
    }
}
static inline bool in_arena(const struct engine *e, const void *address) {
    return (uint64_t)address - (uint64_t)e->arena < (uint64_t)SLOTS * SLOT;
}

/* Ends the process: it cannot be put back, or its snapshot not be taken. Any stack. Borrowed: why. */
_Noreturn void retire(const char *why);
_Noreturn void retire_text(const struct text *why);

/* --- parts; engine's stack unless said otherwise ---------------------------------------------------------------------------------------- */

/* arrange.c: whether there is address space for the engine. Any stack. */
bool arrange_fits(void);

/* region.c: reserves memory that merges with no neighbour. NULL when there is none. Any stack. */
char *reserve(uint64_t len);

/* arena.c, any stack. Each returns whether the call concerns the arena and is answered. */
bool arena_map(void *hint, size_t len, const void *caller, void **result);
bool arena_unmap(void *address, size_t len);
bool arena_remap(void *address, size_t old_len, size_t len, void **result);

/* memory_file.c: functions that return bool return false and set the reason on failure. Any stack. */
/* Raises RLIMIT_FSIZE as far as needed, until memory_file_close(). */
bool memory_file_create(struct memory_file *file, uint64_t size, struct text *why);
/* Closes the descriptor: mappings stay. */
void memory_file_close(struct memory_file *file);
bool memory_file_write(const struct memory_file *file, uint64_t offset, uint64_t start,
    uint64_t end, struct text *why);
/* The contents cannot change from now on. */
bool memory_file_seal(struct memory_file *file, struct text *why);
/* Sets file->view. */
bool memory_file_view(struct memory_file *file, struct text *why);
/* Replaces [start, end) by a private mapping of the pages from `offset` on. */
bool memory_file_map(const struct memory_file *file, uint64_t offset, uint64_t start, uint64_t end,
    int protection, struct text *why);
/* Adds a failed call to `why`. Returns false. */
bool text_add_failure(struct text *why, const char *what, long error);

/* freeze.c, freeze_calls.c */
/* Turns all private memory into mappings of a sealed file. */
void freeze_take(const struct snapshot_range *dead, size_t dead_count);
/* Ends the sharing that runs: the zygote lives on, and its workers take all memory themselves. Any stack. */
_Noreturn void freeze_fail(const char *why);
/* Returns the file whose mapping this is, or NULL. */
const struct memory_file *freeze_file_of(const struct mapping *mapping);
/* Zeroes what madvise() threw away: a file's pages would show the snapshot again. Any stack. */
void freeze_zero(uint64_t start, uint64_t end);
/* Returns whether the range is private writable memory that is partly mapped from a file of the snapshot. Any stack. */
bool freeze_splits(uint64_t start, uint64_t end);

/* maps.c */
/* Returns how many there are; retires when there are more than `max`. With `regions` also finds those to save: bounds and names. */
uint32_t maps_read(
    struct mapping *into, uint32_t max, struct region *regions, uint32_t *region_count);
/* Undoes what happened to mappings; retires when it cannot. */
void maps_put_back(void);
/* Takes droppable regions out of the list and marks fixed ones, by VmFlags. Returns false when /proc/self/smaps cannot be read. */
bool maps_read_flags(struct region *regions, uint32_t *count, struct text *why);
/* The first mapping of the snapshot that overlaps the range, or NULL. Any stack. */
const struct mapping *maps_overlapping(uint64_t start, uint64_t end);
/* The mapping of the snapshot that holds the address, or NULL. */
const struct mapping *maps_at(uint64_t address);
/* Adds where an address lies: the file or other name of its mapping, and the offset in that. Reads /proc/self/maps. */
void maps_describe(uint64_t address, struct text *text);
/* Calls `visit` for each mapping that overlaps the range, until it returns false. Reads /proc/self/maps. Any stack. */
void maps_visit(uint64_t start, uint64_t end,
    bool (*visit)(const struct mapping *mapping, void *data), void *data);
/* The number that stands behind `name` in /proc/self/status. 0: none does. */
uint64_t status_number(const char *name);
struct usage usage_read(void);

/* pagemap.c */
enum pagemap_kind { PAGEMAP_PRESENT, PAGEMAP_PRIVATE /* and not a file's own: written */ };
void pagemap_open(void);
/* Finds the existing pages from *from to `end`, swapped out or not. *from becomes the place to continue. Returns the number of spans. */
uint32_t pagemap_scan(
    uint64_t *from, uint64_t end, enum pagemap_kind wanted, struct span *spans, uint32_t max);

/* pages.c */
static inline uint8_t *kind_of(const struct region *region, uint64_t address) {
    return &region->kinds[(address - region->start) / PAGE];
}
struct region *pages_region(uint64_t address);
/* The state of a page at the snapshot. */
const char *pages_copy(const struct region *region, uint64_t address);
/* The page is not protected from now on, so it is put back each time. */
void pages_know(struct region *region, uint64_t address);
void pages_heat(struct region *region);
/* Puts a stored page into the page tables. */
void pages_map_in(const struct region *region, uint64_t address);
void pages_mark_dead(const struct snapshot_range *dead, size_t dead_count);
void pages_extend_stack(struct region *region);
/* Memory for kinds and known pages. */
void pages_reserve_work(void);
/* Returns whether a page in the range is not, or no longer, a file's own. */
bool pages_written(uint64_t start, uint64_t end);
/* Finds newly written pages in hot regions, or in all. Stops as soon as there are `enough`. Returns how many it found; *seen becomes
 * the number of known pages it passed, UINT64_MAX if it stopped early. */
uint64_t pages_find(bool everywhere, uint64_t enough, uint64_t *seen);
/* Finds all, and retires when read-only memory was written. */
void pages_find_all(void);
/* Contents thrown away by calls that were seen. */
void pages_put_back_dropped(void);
void pages_forget_unchanged(uint64_t for_restores);
void pages_drop_free_slots(void);

/* attributes.c, compared_attributes.c, descriptors.c */
void attributes_take(void);
void compared_attributes_take(void);
void compared_attributes_check(void);
/* Stops timers, then blocks all signals. Returns whether the request may have left signals that wait. */
bool attributes_block_signals(bool thorough);
void attributes_put_back(bool thorough, bool had_children, bool signals_wait);
void process_files_open(void);
void process_files_take(void);
void process_files_put_back(void);
/* Returns whether this is the only thread and no other process shares this memory, by one system call. False if that cannot be
 * determined. */
bool tasks_are_alone(void);
/* Threads and children. Returns whether all pages must be looked at. */
bool tasks_put_back(bool thorough);
uint64_t faults_of(int who);
void descriptors_take(void);
/* Moves `fd` (a result of a system call) into the engine's range. Retires with `what` when there is none. */
int descriptors_own(long fd, const char *what);
void descriptors_put_back(bool thorough, bool had_children);

/* put_back_arm64.c: the processor fetches what was written to a page of code, not what its cache of instructions holds. */
#if defined(__aarch64__)
void put_back_fetch(char *page);
#else
static inline void put_back_fetch(char *page) {
    (void)page; /* x86-64 keeps this cache coherent */
}
#endif
/* put_back.c, put_back_arm64.c. Static: *name. */
put_back_function *put_back_choose(bool exact, const char **name);

/* hot_set.c */
/* From time to time, shares the known pages with later workers. */
void hot_set_learn(bool complete);
/* Knows what workers before this one have learned. */
void hot_set_apply(void);

/* oracle.c */
void oracle_check(void);
/* Returns whether this restore is one of those to verify. */
static inline bool oracle_chooses(struct engine *e) {
    if (e->verify == 0) {
        return false;
    }
    /* xorshift64 */
    e->verify_random ^= e->verify_random << 13;
    e->verify_random ^= e->verify_random >> 7;
    e->verify_random ^= e->verify_random << 17;
    return e->verify == UINT32_MAX || (uint32_t)(e->verify_random >> 32) < e->verify;
}
/* Compares every page with the snapshot and counts that; retires at a difference. */
void oracle_verify(void);

/* restore.c */
void restore(bool complete);

/* interpose.c: finds libc's own functions now. Any stack. */
void interpose_resolve(void);

/* Closes the connection that syslog(3) keeps; the next message opens one again, under the same name. */
void leave_system_log(void);

/* take.c: gives malloc a large free end. Returns the start of the bytes that malloc does not read, up to brk. 0: unknown. Any stack. */
uint64_t take_prepare_malloc_top(void);

/* statistics.c */
static inline uint64_t cycles(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#endif
}
uint64_t statistics_now(void); /* nanoseconds */
void statistics_start(void);
void statistics_add(const uint64_t at[PHASES]);

#endif
#endif
