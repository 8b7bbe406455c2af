/* The clock by which times are measured: it is never set back. */
#ifndef HEARTH_EXT_MONOTONIC_H
#define HEARTH_EXT_MONOTONIC_H

#include <stdint.h>
#include <time.h>

static inline uint64_t monotonic_nanoseconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static inline int64_t monotonic_microseconds(void) {
    return (int64_t)(monotonic_nanoseconds() / 1000);
}

#endif
