#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "snapshot/snapshot.h"
#define W __attribute__((weak))
W enum snapshot_tracker snapshot_probe(const char **why) { *why = "x"; return SNAPSHOT_TRACKER_NONE; }
W const char *snapshot_tracker_name(enum snapshot_tracker t) { (void)t; return "none"; }
W void snapshot_arrange(char **a) { (void)a; }
W void *snapshot_keep(size_t n) { return mmap(NULL, n, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0); }
W void snapshot_serve_arena(const void *a) { (void)a; }
W bool snapshot_take(const struct snapshot_options *o) { (void)o; return true; }
W _Noreturn void snapshot_restore(bool c) { (void)c; _exit(75); }
W bool snapshot_wants_check(void) { return false; }
W void snapshot_retire_later(const char *w) { (void)w; }
W void snapshot_statistics(struct snapshot_statistics *s) { *s = (struct snapshot_statistics){0}; }
