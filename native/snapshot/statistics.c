/* How long the phases of restores took, and how often what was needed. */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t statistics_now(void) {
    struct timespec now;
    raw(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void statistics_start(void) {
    engine->clock_cycles = cycles();
    engine->clock_ns = statistics_now();
}

/* at: the ends of attributes, mappings, scan and copy, then the beginning. */
void statistics_add(const uint64_t at[PHASES]) {
    struct engine *e = engine;
    uint32_t *sample = e->samples[e->sample_count++ % SAMPLES];
    uint64_t before = at[PHASES - 1];
    for (int i = 0; i < PHASES - 1; i++) {
        sample[i] = (uint32_t)(at[i] - before);
        before = at[i];
    }
    sample[PHASES - 1] = (uint32_t)(before - at[PHASES - 1]);
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void snapshot_statistics(struct snapshot_statistics *statistics) {
    struct engine *e = engine;
    memset(statistics, 0, sizeof *statistics);
    if (e == NULL || !e->taken) {
        return;
    }
    *statistics = e->statistics;
    statistics->known_pages = e->known_count;
    uint32_t count = e->sample_count < SAMPLES ? e->sample_count : SAMPLES;
    double passed = (double)(cycles() - e->clock_cycles);
    double per_cycle = passed > 0 ? (double)(statistics_now() - e->clock_ns) / passed : 0;
    for (int phase = 0; phase < PHASES && count > 0; phase++) {
        for (uint32_t i = 0; i < count; i++) {
            e->sorted[i] = e->samples[i][phase];
        }
        qsort(e->sorted, count, sizeof *e->sorted, compare);
        statistics->phase_ns[phase] = (uint32_t)((double)e->sorted[count / 2] * per_cycle);
    }
}

#endif
