/* A test is a function. Each failed check is printed with its line, and makes the test count as
 * failed. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int failed_here;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            failed_here = 1;                                                                       \
        }                                                                                          \
    } while (0)

#define CHECK_EQ(found, wanted)                                                                    \
    do {                                                                                           \
        long long found_ = (long long)(found), wanted_ = (long long)(wanted);                      \
        if (found_ != wanted_) {                                                                   \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld (%s)\n", __FILE__, __LINE__, #found,      \
                found_, wanted_, hearth_last_error());                                             \
            failed_here = 1;                                                                       \
        }                                                                                          \
    } while (0)

/* Compares a hearth_bytes with a text. */
#define CHECK_TEXT(found, wanted)                                                                  \
    do {                                                                                           \
        hearth_bytes found_ = (found);                                                             \
        const char *wanted_ = (wanted);                                                            \
        if (found_.size != strlen(wanted_) ||                                                      \
            (found_.size && memcmp(found_.data, wanted_, found_.size) != 0)) {                     \
            fprintf(stderr, "%s:%d: %s is \"%.*s\", not \"%s\"\n", __FILE__, __LINE__, #found,     \
                (int)found_.size, found_.data, wanted_);                                           \
            failed_here = 1;                                                                       \
        }                                                                                          \
    } while (0)

/* For a file that has `only`, `passed` and `failed`. */
#define RUN(test)                                                                                  \
    do {                                                                                           \
        if (!only || strstr(#test, only)) {                                                        \
            failed_here = 0;                                                                       \
            test();                                                                                \
            failed_here ? failed++ : passed++;                                                     \
            if (failed_here) {                                                                     \
                fprintf(stderr, "FAILED %s\n", #test);                                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static inline double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec / 1e6;
}

static inline void rest(int ms) {
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

#endif
