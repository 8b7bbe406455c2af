/* Shared by the cases of the snapshot engine. Each case is a process: it boots the scenery, takes its snapshot and runs turns, each
 * ended by a restore. After every restore it stops, and the inspector in the parent compares it with the snapshot: every byte,
 * mapping, descriptor and attribute that /proc shows. The inspector knows only the engine's public functions.
 *
 * Memory of the case's process is restored, so data that must outlive a turn are on the board, which is shared with the parent. */
#ifndef HEARTH_TESTS_SNAPSHOT_H
#define HEARTH_TESTS_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "snapshot/snapshot.h"

enum { CHUNK = 2 << 20 };
enum { BOTH = PROT_READ | PROT_WRITE, PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS };
#if defined(__x86_64__)
enum { PAGE = 4096, PAGE_LARGEST = PAGE };
#else
enum { PAGE_LARGEST = 65536 };
#define PAGE getpagesize()
#endif

enum outcome {
    EXACT,   /* everything equals the snapshot, and the process lives */
    RETIRES, /* the restore after the damage ends with SNAPSHOT_EXIT_RETIRED */
    EITHER,  /* one of the two: never a restore that is almost right */
};

enum flag {
    RAW =
        1, /* behind the back of the interposed calls: promised with `strict` and at a complete check */
    HEAVY = 2, /* takes its time: rare in the soak */
    ALONE = 4, /* not in the soak: it needs its own boot, or its damage is no business of others */
    AS_ROOT = 8,   /* skipped for others */
    SELDOM = 16,   /* the inspector compares after every 64th turn only, because there are many */
    STEADY = 32,   /* in the default variant only, and nothing may grow */
    CHECKED = 128, /* found at a complete check only */
    LAST = 256,    /* nothing may follow in the same turn, because it would fail */
    COUNTED =
        512, /* found by the number of resident pages: as RAW where the kernel only estimates it */
    UNSEEN = 64, /* no inspector: no process waits for this one to stop */
};

struct test_case {
    const char *name; /* a sentence */
    /* The damage; `number` counts the damaged turns. */
    void (*request)(unsigned number);
    enum outcome outcome;
    unsigned flags;
    /* Before the snapshot, after the scenery. */
    void (*boot)(void);
    /* After every turn, when the inspector has looked. */
    void (*verify)(void);
    unsigned turns; /* 0: DEFAULT_TURNS */
    /* Called in the parent before the variants: brings the machine into a state. Returns why the case cannot run here, or NULL. */
    const char *(*prepare)(void);
    void (*undo)(void); /* in the parent, after the variants, if prepare() returned NULL */
};

enum { DEFAULT_TURNS = 9 };

enum { MAX_EXCLUDED = 8, MAX_CHUNKS = 8 };

/* Shared by the case's process and its parent; cleared for each case. */
struct board {
    uint32_t failures;
    char name[512]; /* of the case and variant, for messages */
    uint32_t turn;  /* of the case, 0 is before the first restore */
    uint32_t damaged;
    bool complete; /* the next restore must check everything */
    const char *variant;
    pid_t pid;
    uint32_t said; /* number of the engine's messages */
    char last_said[512];
    uintptr_t frame; /* the stack above it must be exact */
    void *kept;      /* of snapshot_keep(); its mapping is the engine's */
    void *
        arena; /* an address inside it, or NULL; memory in there that the scenery does not own has no owner */
    struct snapshot_range chunks[MAX_CHUNKS]; /* owned inside the arena */
    uint32_t chunk_count;
    struct snapshot_range excluded[MAX_EXCLUDED]; /* dead: not compared */
    uint32_t excluded_count;
    struct snapshot_range malloc_top; /* free, and malloc reads none of it */
    struct kernel_state {
        struct {
            void *handler;
            unsigned long flags;
            void *restorer;
            uint64_t mask;
        } signals[65];
        long facts[16];
    } at_boot;
    bool
        signals_come; /* sent from outside, at any time, so pending and blocked ones are not compared */
    uint64_t seed;
    struct snapshot_statistics statistics;
    uint64_t sum;                   /* of verify_sum() */
    unsigned char scratch[1 << 20]; /* for the case */
};
extern struct board *board;

/* Says what was wrong. Callable in the case's process and in the parent. */
void check(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void give_up(const char *what);
/* xorshift64* on board->seed, so its numbers continue after a restore. */
uint64_t random_number(void);
void pause_for(unsigned milliseconds);
/* A time limit in seconds; TESTS_TIMES in the environment multiplies it, for emulated processors. */
unsigned limit_of(unsigned seconds);
/* mmap() of no file. Gives up if there is no memory. */
unsigned char *map_anonymous(size_t len, int protection, int flags);
/* memfd_create(), also where `vm.memfd_noexec=2` wants a flag (Linux 6.3 to 6.5). */
int memory_file(const char *name);
/* The raw system call, so that errno stays. */
long raw(long number, long a, long b, long c, long d, long e, long f);

/* The state at the snapshot, in every case. Pages contain pattern() unless stated otherwise. */
struct scenery {
    unsigned char *small[64]; /* malloc()ed, 16 + 40 * i bytes */
    unsigned char *large;     /* malloc()ed, LARGE bytes */
    unsigned char *anon;      /* private, ANON_PAGES; the odd pages were never touched */
    unsigned char *file; /* private, of a file of FILE_PAGES pages; the even pages were written */
    unsigned char *readonly; /* private, one page, PROT_READ */
    unsigned char *none;     /* private, one page, PROT_NONE */
    unsigned char *shared;   /* one shared page, which no restore touches */
    unsigned char *chunk;    /* of the arena, CHUNK bytes; the first FILLED were written */
    unsigned char
        *huge;   /* of the arena, HUGE bytes; the first FILLED and the last page were written */
    int regular; /* a file of one page at offset 100 */
    int append;  /* O_APPEND */
    int pipe[2], pair[2], epoll, event, directory;
    int high; /* /dev/null as descriptor 200 */
};
enum { ANON_PAGES = 64, FILE_PAGES = 16, GLOBAL_PAGES = 64 };
#define LARGE (146 * PAGE + 1984)
#define HUGE ((3 << 20) + 3 * PAGE)
#define FILLED (64 * PAGE < CHUNK ? 64 * PAGE : CHUNK / 2)
/* Bytes of boot_data and boot_bss, and of boot_thread_local, that are part of the scenery. */
#define GLOBAL_LEN ((size_t)(GLOBAL_PAGES * PAGE))
#define THREAD_LOCAL_LEN ((size_t)(2 * PAGE))
extern struct scenery boot;
extern unsigned char boot_data[GLOBAL_PAGES * PAGE_LARGEST], boot_bss[GLOBAL_PAGES * PAGE_LARGEST];
extern __thread unsigned char boot_thread_local[2 * PAGE_LARGEST];
void build_scenery(void);
void on_boot_signal(int number);

/* The parts of the scenery that a request may write to. */
struct area {
    const char *name;
    unsigned char *at;
    size_t len;
};
enum { AREAS = 8 };
void list_areas(struct area areas[AREAS]);
/* A case's verify(): the areas hold what they held at the first turn, by a sum that the board keeps. */
void verify_sum(void);

/* The inspector. */
void inspector_prepare(void);
void inspector_baseline(pid_t pid);
void inspector_compare(void);
void inspector_close(void);
/* Resident set, address space, mappings and descriptors of the case's process. */
struct size_facts {
    uint64_t resident_pages, virtual_pages, mappings, descriptors;
};
struct size_facts inspector_sizes(void);

void share_scenery(void);
/* Runs a case in each variant that promises something for it. */
void run_case(const struct test_case *c);
/* Counts one more attempt; it failed if the board has more failures now. */
void count_case(uint32_t failures_before);

struct case_list {
    const struct test_case *cases;
    size_t count;
};
extern const struct case_list memory_cases, arena_cases, mapping_cases, fixed_cases, process_cases,
    descriptor_cases, lock_cases, attribute_cases, library_cases, outside_cases, machine_cases,
    limit_cases, tracer_cases, life_cases;
#define CASE_LIST(array)                                                                           \
    { array, sizeof(array) / sizeof(array)[0] }

/* Runs a case once. `raw`: RAW damage is restored in the same turn. */
struct variant {
    const char *name;
    struct snapshot_options options;
    bool complete; /* every restore */
    bool raw;
    bool exact_only; /* has no effect on a case that may retire */
    bool share;      /* the scenery, by snapshot_share(), before the case's own boot */
};
void run_variant(const struct test_case *c, const struct variant *variant);
/* The life of the case's process, from the snapshot on. Does not return. */
void live_case(const struct test_case *c, const struct variant *variant);

/* Tests that are no cases. */
void test_arrangement(void);
void test_zygote(void);
/* Each system call of a snapshot and of a restore fails once. */
void test_faults(void);
/* The first line of a file of the kernel. Returns false when there is none. */
bool read_line(const char *path, char *to, size_t size);
/* The number behind NAME in a file of the kernel; -1 when it is not there. */
long number_of(const char *path, const char *name);
/* Kilobytes that may be used: the free memory, or the limit of the control group. */
long memory_free(void);
/* Returns whether long tests are shortened. */
bool is_quick(void);
/* Sets the case whose process the time limit ends. */
void watch(pid_t pid, unsigned seconds);
/* Compares how the case's process ended with the case's promise. */
void judge(const struct test_case *c, int status);
/* Clears the board for the next process. */
void clear_board(const char *name, const char *variant);
void test_soak(const struct case_list *const lists[], size_t count);
/* The program as a child of test_arrangement(); called before snapshot_arrange() and after it. */
int helper_before(char **argv);
int helper_after(char **argv);
/* Has the kernel refuse a system call from now on; with `argument` not 0 only if that is its second one. */
void refuse_call(uint32_t number, uint32_t argument, uint32_t error);
/* Takes a snapshot where something is refused. */
int take_refused(const char *what);

#endif
