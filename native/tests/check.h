/* A test is a function. Each failed check is printed with the test's name and counted. For a
 * program with one file. */
#ifndef HEARTH_TESTS_CHECK_H
#define HEARTH_TESTS_CHECK_H

#include <stdbool.h>
#include <stdio.h>

static int failures, checked;
static const char *test_name;

static void check(bool holds, const char *what) {
    if (!holds) {
        printf("FAIL  %s: %s\n", test_name, what);
        failures++;
    }
}

static void run(const char *name, void (*test)(void)) {
    test_name = name;
    checked++;
    test();
}
#define RUN(test) run(#test, test)

#endif
