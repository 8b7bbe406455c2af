/* A test program: its arguments (NAME=value), one engine, and `only=TEST`. For a program with one
 * file. */
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

/* Called before the first test. False: the engine could not be created. */
static inline int begin(char **values) {
    arguments = values;
    only = argument("only");
    return hearth_engine_new(&engine) == HEARTH_OK;
}

/* Called after the last test. Returns main's exit status. */
static inline int end(void) {
    hearth_engine_free(engine);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}

#endif
