/* Replaces the engine where there is none: other processors, sanitizers. */
#include "snapshot/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/engine.h"

#if !SNAPSHOT_ENGINE

static const char absent[] =
#if defined(__SANITIZE_ADDRESS__)
    "snapshots: this is a build with the address sanitizer";
#else
    "snapshots: only for Linux on x86-64 and ARM64";
#endif

bool snapshot_probe(const char **why) {
    *why = absent;
    return false;
}

void snapshot_arrange(char **argv) {
    (void)argv;
}

void snapshot_serve_arena(const void *address) {
    (void)address;
}

bool snapshot_share(const struct snapshot_range *dead, size_t dead_count, const char **why) {
    (void)dead;
    (void)dead_count;
    *why = absent;
    return false;
}

bool snapshot_take(const struct snapshot_options *options) {
    if (options->say != NULL) {
        options->say(absent);
    }
    _Exit(SNAPSHOT_EXIT_RETIRED);
}

void snapshot_restore(bool complete) {
    (void)complete;
    _Exit(SNAPSHOT_EXIT_RETIRED);
}

bool snapshot_wants_check(void) {
    return false;
}

void snapshot_retire_later(const char *why) {
    (void)why;
}

void snapshot_leave_to_parent(void) {}

void snapshot_statistics(struct snapshot_statistics *statistics) {
    memset(statistics, 0, sizeof *statistics);
}

#endif
