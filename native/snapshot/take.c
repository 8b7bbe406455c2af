/* Taking the snapshot. */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "snapshot/switch.h"

enum {
    /* This takes as long as 400 restores. */
    CHECK_EVERY = 4096,
    CHECK_EVERY_INEXACT =
        1024, /* where only it finds memory that was mapped over by a raw system call */
    FREE_LIMIT = 32 << 20, /* bytes of free slots that are kept */
    MALLOC_SLACK =
        2 << 20, /* free at malloc's end, so that requests need not move the heap's end */
    RSEQ_UNREGISTER = 1,
    RSEQ_LEN = 32,
};
/* glibc, sysdeps/unix/sysv/linux: bits/rseq.h of each processor */
#if defined(__x86_64__)
#define RSEQ_SIGNATURE 0x53053053
#else
#define RSEQ_SIGNATURE 0xd428bc00
#endif

/* The rseq area that glibc registered; missing in other libcs. */
extern const unsigned int __rseq_size __attribute__((weak));
extern const ptrdiff_t __rseq_offset __attribute__((weak));

/* The kernel would write the processor's number into thread-local memory. The tunable of the second life prevents that; this, too. */
static void leave_rseq(void) {
    if (&__rseq_size != NULL && __rseq_size != 0) {
        char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
        raw(SYS_rseq, area, RSEQ_LEN, RSEQ_UNREGISTER, RSEQ_SIGNATURE);
    }
}

uint64_t take_prepare_malloc_top(void) {
    malloc_trim(0);
    void *volatile slack = malloc(MALLOC_SLACK);
    const uint64_t inside = (uint64_t)slack;
    free(slack);
    uint64_t end = (uint64_t)sbrk(0);
    uint64_t size = mallinfo2().keepcost;
    /* The free end is one chunk. Its second word is its size, with flags in the lowest bits. */
    if (size < 2 * PAGE || size > end) {
        return 0;
    }
    uint64_t top = end - size;
    if (inside < top || inside >= end) {
        return 0; /* the heap could not grow: malloc goes on in a mapping */
    }
    return (((const uint64_t *)top)[1] & ~7ULL) == size ? top + LINE : 0;
}

/* Returns whether the kernel counts resident pages one by one: some versions keep a part of the
 * count per processor. */
static bool resident_is_exact(void) {
    enum { TOUCHED = 5 };
    long memory = raw(
        SYS_mmap, NULL, TOUCHED * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw_failed(memory)) {
        return false;
    }
    bool exact = true;
    uint64_t before = usage_read().resident;
    for (int page = 0; page < TOUCHED; page++) {
        ((volatile char *)memory)[page * PAGE] = 1;
        exact = exact && usage_read().resident == before + (uint64_t)page + 1;
    }
    raw(SYS_munmap, memory, TOUCHED * PAGE);
    return exact && usage_read().resident == before;
}

static void populate(const void *start, uint64_t len) {
    raw(SYS_madvise, PAGE_DOWN(start), PAGE_UP((uint64_t)start + len) - PAGE_DOWN(start),
        ADVICE_POPULATE_WRITE);
}

/* No fault later where one can be had now: memory of the engine that is shared with the parent since fork(), and what restores write. */
static void populate_engine(void) {
    struct engine *e = engine;
    for (uint64_t at = (uint64_t)e->region; at < (uint64_t)e->region_end;) {
        struct span spans[64];
        uint32_t count = pagemap_scan(&at, (uint64_t)e->region_end, PAGEMAP_PRESENT, spans, 64);
        for (uint32_t i = 0; i < count; i++) {
            populate((const void *)spans[i].start, spans[i].end - spans[i].start);
        }
    }
    populate(e, offsetof(struct engine, spans) + sizeof e->spans);
    populate(e->stack - ENGINE_STACK / 4, ENGINE_STACK / 4);
}

static struct snapshot_options wanted; /* for the other stack */

static void take(void) {
    struct engine *e = engine;
    const struct snapshot_options options = wanted;
    uint64_t begin = statistics_now();
    e->stack_pointer = (uint64_t)e->context;
    e->pid = raw(SYS_getpid);
    descriptors_take();
    attributes_take();
    e->asks_alone = raw(SYS_unshare, CLONE_VM) == 0;
    e->has_children = true; /* the first restore finds out */
    populate_engine();
    e->resident_exact = resident_is_exact();
    e->check_every = options.check_every != 0 ? options.check_every
                     : e->resident_exact      ? CHECK_EVERY
                                              : CHECK_EVERY_INEXACT;
    for (uint64_t n = 0; n < sizeof e->key;) {
        long r = raw(SYS_getrandom, e->key + n, sizeof e->key - n, 0);
        if (r <= 0) {
            retire("the kernel has no random numbers");
        }
        n += (uint64_t)r;
    }
    for (int s = 0; s < SLOTS; s++) {
        e->slots[s].used = e->slots[s].begin != e->slots[s].end;
        e->slots_seen[s] = e->slots[s].used;
    }
    memcpy(&e->verify_random, e->key + sizeof e->canary, sizeof e->verify_random);
    e->verify_random |= 1;
    memcpy(e->slots_then, e->slots, sizeof e->slots);
    e->brk = (uint64_t)raw(SYS_brk, 0);
    freeze_take(options.dead, options.dead_count);
    populate(e->known, 1024 * sizeof *e->known);
    populate(e->work + PAGE, (uint64_t)((char *)e->known - e->work) - PAGE);
    hot_set_apply();
    statistics_start();
    e->touched = 0;
    e->touched_signals = 0;
    e->timers_armed = 0;
    e->limit_cycles = 0;
    e->born_count = e->dropped_count = 0;
    e->born_pages = 0;
    e->taken = true;
    e->statistics.take_us = (uint32_t)((statistics_now() - begin) / 1000);
    e->usage = usage_read();
    e->child_faults = faults_of(RUSAGE_CHILDREN);
    e->faults = faults_of(RUSAGE_SELF);
    e->thread_faults = faults_of(RUSAGE_THREAD);
}

bool snapshot_take(const struct snapshot_options *options) {
    struct engine *e = engine;
    const char *why = "";
    const char *width;
    int error = errno;
    if (e == NULL) {
        if (options->say != NULL) {
            options->say("snapshot_arrange() was not called");
        }
        _exit(SNAPSHOT_EXIT_RETIRED);
    }
    e->say = options->say;
    if (!snapshot_probe(&why)) {
        retire(why);
    }
    /* What glibc would map at its first use (2.41: getrandom() in the vDSO) is mapped now. */
    char byte;
    if (getrandom(&byte, sizeof byte, 0) < 0) {
        retire("getrandom() fails");
    }
    leave_rseq();
    /* closelog() in a request would close a descriptor of the boot, while the restored memory says that it is open */
    leave_system_log();
    e->malloc_top = take_prepare_malloc_top();
    e->strict = options->strict;
    e->exact = options->exact;
    e->oracle = options->oracle;
    e->verify = options->verify;
    e->verified = options->verified;
    e->describe_request = options->describe_request;
    e->hot_set = options->hot_set;
    e->free_limit = FREE_LIMIT / PAGE;
    e->put_back = put_back_choose(options->exact, &width);
    e->taken = false;
    e->retire = NULL;
    e->force_full = false;
    e->since_check = e->bulky = e->sample_count = 0;
    e->hot_count = e->region_count = 0;
    e->known_count = e->flagged_count = 0;
    e->canary_at = 0;
    memset(&e->statistics, 0, sizeof e->statistics);
    wanted = *options;
    errno = error;
    return switch_save(&e->context, e->stack, take);
}

#endif
