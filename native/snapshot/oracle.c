/* The proof: after a restore, is every page what it was?
 *
 * Promises
 * - oracle_check(), for tests, reports the first differences and aborts the process.
 * - oracle_verify(), in production, reports one sentence and retires the process.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <signal.h>
#include <string.h>

enum { REPORTS = 10 };

struct difference {
    const struct region *region;
    uint64_t page;
    const char *expected;
};

/* Compares all pages with the snapshot, until `most` have differed. Returns how many did; *found has at most the first `room` of them. */
static uint64_t compare(uint64_t most, struct difference *found, uint64_t room) {
    struct engine *e = engine;
    uint64_t count = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        const struct region *region = &e->regions[i];
        uint64_t seen = region->start;
        for (uint64_t at = region->start; at < region->end && count < most;) {
            uint32_t spans = pagemap_scan(&at, region->end, PAGEMAP_PRESENT, e->spans, SPANS_MAX);
            for (uint32_t s = 0; s <= spans; s++) {
                /* Empty pages that are not there read as zero. */
                uint64_t start = s < spans ? e->spans[s].start : at;
                uint64_t end = s < spans ? e->spans[s].end : at;
                for (; seen < end && count < most; seen += PAGE) {
                    uint8_t kind = region->kinds[(seen - region->start) / PAGE] & KIND_MASK;
                    if (kind == KIND_DEAD || (seen < start && kind == KIND_ZERO)) {
                        continue;
                    }
                    const char *expected = pages_copy(region, seen);
                    e->statistics.oracle_pages++;
                    if (memcmp((const char *)seen, expected, PAGE) != 0) {
                        if (count < room) {
                            found[count] = (struct difference){region, seen, expected};
                        }
                        count++;
                    }
                }
            }
        }
    }
    return count;
}

/* Adds the page, the first byte that differs, the mapping, and what the engine knew of the page. */
static void describe(const struct difference *difference, struct text *text) {
    const char *live = (const char *)difference->page;
    uint64_t offset = 0;
    while (offset < PAGE - 1 && live[offset] == difference->expected[offset]) {
        offset++;
    }
    const struct region *region = difference->region;
    uint8_t kind = *kind_of(region, difference->page);
    text_add(text, "page ");
    text_add_address(text, difference->page);
    text_add(text, " differs from offset ");
    text_add_address(text, offset);
    text_add(text, " on; mapping ");
    maps_describe(difference->page, text);
    text_add(text, (kind & KIND_MASK) == KIND_ZERO ? ", was zero" : ", was stored");
    text_add(text, kind & KIND_KNOWN ? ", known" : ", not known");
}

void oracle_check(void) {
    struct difference found[REPORTS];
    uint64_t count = compare(REPORTS, found, REPORTS);
    for (uint64_t i = 0; i < count; i++) {
        struct text text = {0};
        text_add(&text, "oracle: ");
        describe(&found[i], &text);
        if (engine->say != NULL) {
            engine->say(text.data);
        }
    }
    if (count != 0) {
        const struct kernel_action standard = {0};
        raw(SYS_rt_sigaction, SIGABRT, &standard, NULL, sizeof(uint64_t));
        const uint64_t none = 0;
        raw(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none);
        raw(SYS_tgkill, raw(SYS_getpid), raw(SYS_gettid), SIGABRT);
        retire("oracle");
    }
}

void oracle_verify(void) {
    struct engine *e = engine;
    struct difference first;
    uint64_t begin = statistics_now();
    uint64_t count = compare(UINT64_MAX, &first, 1);
    if (e->verified != NULL) {
        e->verified->nanoseconds += statistics_now() - begin;
        e->verified->differing += count != 0;
        e->verified->restores++;
    }
    if (count == 0) {
        return;
    }
    struct text text = {0};
    text_add(&text, "restored memory differs from the snapshot");
    if (e->describe_request != NULL) {
        text_add(&text, " after ");
        e->describe_request(&text);
    }
    text_add(&text, ": ");
    describe(&first, &text);
    if (count > 1) {
        text_add(&text, "; ");
        text_add_number(&text, count);
        text_add(&text, " pages in all");
    }
    retire_text(&text);
}

#endif
