/* Cases: a long life, checks, retirement on demand, statistics; and the soak, which draws from all cases. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "snapshot.h"

static bool is_default(void) {
    return strcmp(board->variant, "default") == 0;
}

/* An ordinary request: it writes the same pages each time, and a few others. */
static void ordinary(unsigned n) {
    for (size_t page = 0; page < 20; page++) {
        boot_bss[page * PAGE + 64] = (unsigned char)n;
        boot.chunk[page * PAGE + 128] += 1;
    }
    char *text = malloc(3000);
    snprintf(text, 3000, "request %u", n);
}
static void steady(unsigned n) {
    ordinary(n);
    switch (n % 64) {
    case 0:
        open("/dev/null", O_RDONLY);
        break;
    case 1:
        mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        break;
    case 2:
        memset(mmap(NULL, 4 * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1,
            4 * CHUNK);
        break;
    case 3:
        memset(malloc(1 << 20), 1, 1 << 20);
        break;
    case 4:
        boot_bss[n / 64 % GLOBAL_PAGES * PAGE] ^= 1;
        break;
    default:
        break;
    }
}

/* Only ordinary requests: the restore must detect that. */
static void verify_gated(void) {
    if (board->turn != 2000 || !is_default()) {
        return;
    }
    struct snapshot_statistics s;
    snapshot_statistics(&s);
    check(s.restores == 2000, "%lu restores", s.restores);
    check(s.gated + s.hot_scans + s.wide_scans + s.full_scans == s.restores,
        "every restore is of one kind: %lu, %lu, %lu, %lu", s.gated, s.hot_scans, s.wide_scans,
        s.full_scans);
    check(s.gated >= 1900, "only %lu of 2000 gated (hot %lu, full %lu, faults %lu)", s.gated,
        s.hot_scans, s.full_scans, s.faults);
    check(s.known_pages >= 40 && s.known_pages < 400, "%lu known pages", s.known_pages);
    check(s.snapshot_pages > 300 && s.snapshot_pages < 20000, "%lu pages in the store",
        s.snapshot_pages);
    check(s.oracle_pages == 0, "the oracle compared nothing");
    for (int i = 0; i < 4; i++) {
        check(s.phase_ns[i] <= s.phase_ns[4], "phase %d takes %u of %u ns", i, s.phase_ns[i],
            s.phase_ns[4]);
    }
    check(s.phase_ns[4] > 100 && s.phase_ns[4] < 50000000, "a restore takes %u ns", s.phase_ns[4]);
}

/* Faults in memory of the request's own, and one in a region that is searched last. */
static void in_two_regions(unsigned n) {
    ordinary(n);
    char *own = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    own[0] = own[5 * PAGE] = (char)n;
    munmap(own, 8 * PAGE);
    if (n % 100 == 50) {
        boot_bss[n / 100 % GLOBAL_PAGES * PAGE] ^= 1;
    }
}
static void verify_wide(void) {
    struct snapshot_statistics s;
    snapshot_statistics(&s);
    if (board->turn == 2000 && is_default()) {
        check(s.wide_scans >= 1200 && s.full_scans < 100,
            "only %lu of 2000 by what was written (full %lu)", s.wide_scans, s.full_scans);
    }
}

static void verify_oracle_counts(void) {
    struct snapshot_statistics s;
    snapshot_statistics(&s);
    check(s.restores == board->turn, "%lu restores", s.restores);
    if (strcmp(board->variant, "exact oracle") == 0) {
        check(s.oracle_pages >= s.restores * s.snapshot_pages / 2, "the oracle compared %lu pages",
            s.oracle_pages);
    }
    if (strcmp(board->variant, "checked") == 0) {
        check(s.oracle_pages >= s.restores * s.snapshot_pages / 2,
            "verified restores compared %lu pages", s.oracle_pages);
    }
    if (strcmp(board->variant, "complete") == 0) {
        check(s.full_scans == s.restores, "a complete restore scans all: %lu of %lu", s.full_scans,
            s.restores);
    }
    if (strcmp(board->variant, "exact oracle") == 0) {
        check(s.hash_misses == 0, "no hashes are used");
    }
}

/* scratch: how often it was wished for; whether the last restore was complete. */
static void wants_check(unsigned n) {
    ordinary(n);
    board->complete = false;
    if (snapshot_wants_check()) {
        ++*(uint32_t *)(void *)board->scratch;
        board->complete = true;
    }
}
static void verify_wants_check(void) {
    if (board->complete) {
        check(!snapshot_wants_check(), "a check is wanted just after a complete one");
        board->complete = false;
    }
    uint32_t wished = *(uint32_t *)(void *)board->scratch;
    if (board->turn == 8000 && is_default()) {
        check(wished >= 2 && wished < 500, "a check was wanted %u times in 8000 turns", wished);
    }
}

static void retire_later(unsigned n) {
    (void)n;
    snapshot_retire_later("the test wants it");
}
static void verify_told(void) {
    check(board->turn < 4, "survived snapshot_retire_later()");
}

/* A RAW case in the default variant: the complete check restores it at the latest. */
static void behind_the_back(unsigned n) {
    if (n == 0) {
        raw(SYS_rt_sigaction, 10, (long)(long[4]){1, 0, 0, 0}, 0, 8, 0, 0);
    }
    board->complete = true;
}

static const struct test_case cases[] = {
    {.name = "20,000 turns and nothing grows",
        .request = steady,
        .flags = ALONE | SELDOM | STEADY,
        .turns = 20000},
    {.name = "ordinary turns are gated",
        .request = ordinary,
        .flags = ALONE | SELDOM | STEADY,
        .verify = verify_gated,
        .turns = 2000},
    {.name = "faults in the request's own memory cost no full scan",
        .request = in_two_regions,
        .flags = ALONE | SELDOM | STEADY,
        .verify = verify_wide,
        .turns = 2000},
    {.name = "statistics", .request = ordinary, .flags = ALONE, .verify = verify_oracle_counts},
    {.name = "a check is wanted now and then",
        .request = wants_check,
        .flags = ALONE | SELDOM | STEADY,
        .verify = verify_wants_check,
        .turns = 8000},
    {.name = "snapshot_retire_later()",
        .request = retire_later,
        .outcome = RETIRES,
        .verify = verify_told},
    {.name = "a complete check puts back what no call showed",
        .request = behind_the_back,
        .flags = ALONE},
};
const struct case_list life_cases = CASE_LIST(cases);

/* --- the soak --- */

static const struct test_case *pool[512];
static size_t pool_count;

/* Messages name what the last damaged turn did. */
static void random_requests(unsigned n) {
    (void)n;
    int len = snprintf(board->name, sizeof board->name, "soak (%s)", board->variant);
    for (int operations = 0; operations < 2;) {
        const struct test_case *c = pool[random_number() % pool_count];
        if ((c->flags & HEAVY) == 0 || random_number() % 16 == 0) {
            len += snprintf(board->name + len, sizeof board->name - (size_t)len, "%s %s",
                operations == 0 ? ":" : ",", c->name);
            c->request((unsigned)(random_number() % 8));
            operations += (c->flags & LAST) != 0 ? 2 : 1;
        }
    }
}

void test_soak(const struct case_list *const lists[], size_t count) {
    static const struct variant variants[] = {
        {.name = "default"},
        {.name = "strict oracle", .options = {.strict = true, .oracle = true}, .raw = true},
        {.name = "exact", .options = {.exact = true, .check_every = 100}},
    };
    static const unsigned turns[] = {12000, 2000, 2000};
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        pool_count = 0;
        for (size_t i = 0; i < count; i++) {
            for (size_t k = 0; k < lists[i]->count; k++) {
                const struct test_case *c = &lists[i]->cases[k];
                if (c->outcome == EXACT && (c->flags & (ALONE | CHECKED)) == 0 && c->boot == NULL &&
                    ((c->flags & RAW) == 0 || variants[v].raw) &&
                    ((c->flags & AS_ROOT) == 0 || geteuid() == 0)) {
                    pool[pool_count++] = c;
                }
            }
        }
        const struct test_case soak = {
            .name = "soak", .request = random_requests, .flags = ALONE | SELDOM, .turns = turns[v]};
        run_variant(&soak, &variants[v]);
    }
}
