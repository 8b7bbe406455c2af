/* Frozen memory and the calls of a request: what madvise() throws away, and what mremap() and mprotect() would part. Any stack. */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <string.h>

static bool zero(const struct mapping *mapping, void *data) {
    const struct range *range = data;
    if (freeze_file_of(mapping) != NULL && mapping->permissions[1] == 'w') {
        uint64_t start = mapping->start > range->start ? mapping->start : range->start;
        uint64_t end = mapping->end < range->end ? mapping->end : range->end;
        memset((char *)start, 0, end - start);
    }
    return true;
}

void freeze_zero(uint64_t start, uint64_t end) {
    struct range range = {start, end};
    if (engine->shared.view != NULL || engine->own.view != NULL) {
        maps_visit(start, end, zero, &range);
    }
}

struct split {
    uint64_t at;
    bool whole, ours;
};

static bool look_at_split(const struct mapping *mapping, void *data) {
    struct split *split = data;
    bool ours = freeze_file_of(mapping) != NULL;
    split->whole = mapping->start <= split->at && (ours || mapping->inode == 0) &&
                   memcmp(mapping->permissions, "rw-p", 4) == 0;
    split->ours = split->ours || ours;
    split->at = mapping->end;
    return split->whole;
}

bool freeze_splits(uint64_t start, uint64_t end) {
    struct split split = {.at = start};
    maps_visit(start, end, look_at_split, &split);
    return split.whole && split.ours && split.at >= end;
}

#endif
