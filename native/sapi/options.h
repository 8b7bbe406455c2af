/* The command line of the program, as types. */
#ifndef HEARTH_SAPI_OPTIONS_H
#define HEARTH_SAPI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum model {
    MODEL_REQUEST,  /* G: the engine's own start-up and shutdown for each request */
    MODEL_WORKER,   /* A: a loop in the script, state shared between requests */
    MODEL_SPAWN,    /* B: as G, one request in a process */
    MODEL_PRESPAWN, /* C: the script boots, serves one request, ends */
    MODEL_FORK,     /* D: the zygote boots the script, a fork of it serves one request */
    MODEL_SNAPSHOT, /* S: the zygote boots the script, forks of it serve and are put back after each request */
};

/* Returns whether the zygote itself boots the script. */
static inline bool model_boots_ahead(enum model model) {
    return model == MODEL_FORK || model == MODEL_SNAPSHOT;
}

/* Returns whether a process serves one request and ends. */
static inline bool model_is_one_shot(enum model model) {
    return model == MODEL_SPAWN || model == MODEL_PRESPAWN || model == MODEL_FORK;
}

struct options {
    enum model model;
    const char *script; /* absolute; of the models with a worker script. Static. */
    char **ini;         /* `key=value`, in order. Static. */
    size_t ini_count;
    unsigned warm_up;         /* synthetic requests that the zygote serves once it has booted */
    bool report_files;        /* that the boot has included: see included_files.h */
    bool trace_boot;          /* tell what the boot reads: see boot_trace.h */
    bool confine;             /* workers from each other: see confine.h */
    uint32_t verify_restores; /* of 2^32: the share of restores that are verified */
    /* The folder of URLs, if `script` is one of the application's own, which waits by hearth_await_request(). Else NULL. Static. */
    const char *document_root;
    const char
        *await_after;   /* a file: such a script waits when it has included it; or NULL. Static. */
    bool learn_classes; /* of such a script's warm-ups: see rehearsal.h */
    bool rehearse;      /* not the zygote itself, but a throwaway fork of it: see rehearsal.h */
};

/* Exit codes beside 0, and SNAPSHOT_EXIT_RETIRED (75). */
enum {
    EXIT_MISUSE = 2,
    EXIT_MALFORMED = 70, /* EX_SOFTWARE: a frame that is none */
    EXIT_UNFIT = 78,     /* EX_CONFIG: the booted application cannot be forked */
    EXIT_BOOT = 255,     /* the worker script ended before its first request */
};

#endif
