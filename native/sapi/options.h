/* The command line of the program, as types. */
#ifndef HEARTH_SAPI_OPTIONS_H
#define HEARTH_SAPI_OPTIONS_H

#include <stddef.h>

enum model {
    MODEL_REQUEST, /* G: the engine's own start-up and shutdown for each request */
    MODEL_WORKER,  /* A: a loop in the script, state shared between requests */
};

struct options {
    enum model model;
    const char *script; /* absolute; model worker only. Static. */
    char **ini;         /* `key=value`, in order. Static. */
    size_t ini_count;
};

/* Exit codes beside 0. */
enum {
    EXIT_MISUSE = 2,
    EXIT_MALFORMED = 70, /* EX_SOFTWARE: a frame that is none */
    EXIT_BOOT = 255,     /* the worker script ended before its first request */
};

#endif
