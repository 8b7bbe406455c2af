/* A program of tests: NAME=value for each thing it is told, one engine, and `only=TEST`. For a program's one file. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <hearth.h>

#include "check.h"

static char **arguments;
static const char *only;
static int passed, failed;
static hearth_engine *engine;

static inline const char *argument(const char *name) {
    size_t length = strlen(name);
    for (char **at = arguments; *at; at++) {
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=') {
            return *at + length + 1;
        }
    }
    return NULL;
}

/* Before the first test. False: there is no engine. */
static inline int begin(char **values) {
    arguments = values;
    only = argument("only");
    return hearth_engine_new(&engine) == HEARTH_OK;
}

/* After the last one: main's value. */
static inline int end(void) {
    hearth_engine_free(engine);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}

#endif
