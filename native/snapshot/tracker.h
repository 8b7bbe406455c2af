/* How written pages are found: one of two mechanisms of the kernel. Engine's stack. */
#ifndef HEARTH_SNAPSHOT_TRACKER_H
#define HEARTH_SNAPSHOT_TRACKER_H

#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

struct tracker {
    /* Opens its descriptors in the engine's range, through descriptors_own(). Retires on failure. */
    void (*open)(void);
    /* From now on pages in there that are written can be told. Returns false when the kernel refuses the mapping. */
    bool (*watch)(uint64_t start, uint64_t end);
    /* Pages from *from to `end` that are there (with `written`: and were written since protected), as spans of CATEGORY_* bits;
     * *from becomes where to go on. Returns the number of spans. */
    uint32_t (*scan)(
        uint64_t *from, uint64_t end, bool written, struct pagemap_span *spans, uint32_t max);
    /* Pages in there count as not written. NULL: protect_all() only. */
    void (*protect)(uint64_t start, uint64_t end);
    void (*protect_all)(void);
    /* Memory is a private mapping of a file that holds the snapshot (freeze.c). */
    bool by_file;
};

extern const struct tracker tracker_file, tracker_userfaultfd, tracker_soft_dirty;

/* descriptors.c: moves `fd` (a result of a system call) into the engine's range. Retires with `what` when there is none. */
int descriptors_own(long fd, const char *what);

/* probe.c: opens a userfaultfd of user mode, through the system call or the device. Negative: the kernel's refusal. Any stack. */
long probe_userfaultfd(void);

#endif
#endif
