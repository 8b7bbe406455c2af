/* The proof: after a restore, is every page what it was? */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <signal.h>
#include <string.h>

enum { REPORTS = 10 };

static void report(const struct region *region, uint64_t page, const char *expected) {
    const char *live = (const char *)page;
    uint64_t offset = 0;
    while (offset < PAGE - 1 && live[offset] == expected[offset]) {
        offset++;
    }
    uint8_t kind = region->kinds[(page - region->start) / PAGE];
    struct text text = {0};
    text_add(&text, "oracle: page ");
    text_add_address(&text, page);
    text_add(&text, " differs from offset ");
    text_add_address(&text, offset);
    text_add(&text, " on; mapping ");
    text_add(&text, region->name[0] != 0 ? region->name : "without a name");
    text_add(&text, in_arena(engine, live) ? " (arena)" : region->stack ? " (stack)" : "");
    text_add(&text, (kind & KIND_MASK) == KIND_ZERO ? ", was zero" : ", was stored");
    text_add(&text, kind & KIND_KNOWN ? ", known" : ", not known");
    if (engine->say != NULL) {
        engine->say(text.data);
    }
}

void oracle_check(void) {
    struct engine *e = engine;
    uint32_t reports = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        const struct region *region = &e->regions[i];
        uint64_t seen = region->start;
        for (uint64_t at = region->start; at < region->end && reports < REPORTS;) {
            uint32_t count = pagemap_scan(&at, region->end, PAGEMAP_PRESENT, e->spans, SPANS_MAX);
            for (uint32_t s = 0; s <= count; s++) {
                /* Empty pages that are not there read as zero. */
                uint64_t start = s < count ? e->spans[s].start : at;
                uint64_t end = s < count ? e->spans[s].end : at;
                for (; seen < end && reports < REPORTS; seen += PAGE) {
                    uint8_t kind = region->kinds[(seen - region->start) / PAGE] & KIND_MASK;
                    if (kind == KIND_DEAD || (seen < start && kind == KIND_ZERO)) {
                        continue;
                    }
                    const char *expected = pages_copy(region, seen);
                    e->statistics.oracle_pages++;
                    if (memcmp((const char *)seen, expected, PAGE) != 0) {
                        report(region, seen, expected);
                        reports++;
                    }
                }
            }
        }
    }
    if (reports != 0) {
        const struct kernel_action standard = {0};
        raw(SYS_rt_sigaction, SIGABRT, &standard, NULL, sizeof(uint64_t));
        const uint64_t none = 0;
        raw(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none);
        raw(SYS_tgkill, raw(SYS_getpid), raw(SYS_gettid), SIGABRT);
        retire("oracle");
    }
}

#endif
