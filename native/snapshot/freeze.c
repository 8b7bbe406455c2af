/* Freezing: private memory becomes private mappings of a sealed file in memory.
 *
 * Promises
 * - Every byte reads as before. A page that was not written since is the file's own, shared by all processes that map it; the first write
 *   gives the process a copy of its own, which /proc/self/pagemap shows.
 * - If freezing fails half-way, the process's memory is still complete: memory that was not mapped yet is unchanged.
 *
 * The stack, executable memory and special mappings (maps_read_flags()) are not frozen, so they are always copied back. Empty pages stay
 * anonymous, because a read of a hole in the file would allocate a page.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

enum {
    GAP = 16,          /* empty pages between others that become part of one mapping */
    LARGE = 256 << 10, /* a region of this size is hot from the start */
    SIGNAL_SET = 8,    /* bytes, as the kernel counts them */
};
/* More than this is a mistake of the application. */
static const uint64_t BYTES_MAX = 2ULL << 30;

/* --- which pages ------------------------------------------------------------------------------------------------------------------------ */

static bool is_of(const struct memory_file *file, const struct mapping *mapping) {
    return file->view != NULL && mapping->inode == file->inode && mapping->device == file->device;
}

const struct memory_file *freeze_file_of(const struct mapping *mapping) {
    const struct engine *e = engine;
    return is_of(&e->own, mapping) ? &e->own : is_of(&e->shared, mapping) ? &e->shared : NULL;
}

/* Neighbours that the shared file has parted are one region again. */
static void join_regions(void) {
    struct engine *e = engine;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        struct region *region = &e->regions[i];
        if (region->file && freeze_file_of(maps_at(region->start)) != NULL) {
            region->file = false;
        }
        struct region *last = kept > 0 ? &e->regions[kept - 1] : NULL;
        if (last != NULL && last->end == region->start && !last->file && !region->file &&
            !last->fixed && !region->fixed) {
            last->end = region->end;
        } else {
            e->regions[kept++] = *region;
        }
    }
    e->region_count = kept;
}

static void set_kinds(const struct region *region, const struct mapping *mapping, uint8_t kind) {
    uint64_t start = mapping->start > region->start ? mapping->start : region->start;
    uint64_t end = mapping->end < region->end ? mapping->end : region->end;
    memset(kind_of(region, start), kind, (end - start) / PAGE);
}

static bool is_empty(const char *page) {
    return memcmp(page, engine->zeros, PAGE) == 0;
}

/* The state of each page of a region. */
static void classify(const struct region *region) {
    struct engine *e = engine;
    memset(region->kinds, KIND_ZERO, (region->end - region->start) / PAGE);
    for (uint32_t i = 0; i < e->mapping_count; i++) {
        const struct mapping *mapping = &e->mappings[i];
        if (mapping->start < region->end && mapping->end > region->start && mapping->inode != 0) {
            bool shared = is_of(&e->shared, mapping);
            set_kinds(region, mapping, KIND_STORED | (shared ? KIND_SHARED : 0));
        }
    }
    for (uint64_t at = region->start; at < region->end;) {
        uint32_t count = pagemap_scan(&at, region->end, PAGEMAP_PRIVATE, e->spans, SPANS_MAX);
        for (uint32_t i = 0; i < count; i++) {
            for (uint64_t page = e->spans[i].start; page < e->spans[i].end; page += PAGE) {
                uint8_t *kind = kind_of(region, page);
                bool empty = (*kind & KIND_MASK) == KIND_ZERO && !region->fixed &&
                             is_empty((const char *)page);
                *kind = KIND_PRIVATE | (empty ? KIND_ZERO : KIND_STORED);
            }
        }
    }
}

/* Releases written pages that are empty or dead. */
static void drop_unneeded(const struct region *region) {
    uint64_t from = 0;
    for (uint64_t at = region->start; at <= region->end && !region->fixed; at += PAGE) {
        uint8_t *kind = at < region->end ? kind_of(region, at) : NULL;
        bool drop = kind != NULL && (*kind & KIND_PRIVATE) && (*kind & KIND_MASK) != KIND_STORED;
        if (drop) {
            *kind &= (uint8_t)~KIND_PRIVATE;
            from = from == 0 ? at : from;
        } else if (from != 0) {
            raw(SYS_madvise, from, at - from, MADV_DONTNEED);
            from = 0;
        }
    }
}

/* --- runs of pages for the file -------------------------------------------------------------------------------------------------------- */

static bool is_own(uint8_t kind) {
    return (kind & (KIND_MASK | KIND_SHARED)) == KIND_STORED;
}

/* The next run of pages for this process's file at or behind *start. Returns false when there is none. */
static bool next_run(const struct region *region, uint64_t *start, uint64_t *end) {
    while (*start < region->end && !is_own(*kind_of(region, *start))) {
        *start += PAGE;
    }
    if (*start == region->end) {
        return false;
    }
    *end = *start + PAGE;
    for (uint64_t next = *end; next < region->end; next += PAGE) {
        uint8_t kind = *kind_of(region, next);
        if (is_own(kind)) {
            *end = next + PAGE;
        } else if (!region->fixed &&
                   ((kind & KIND_MASK) == KIND_STORED || next - *end >= GAP * PAGE)) {
            break;
        }
    }
    return true;
}

static bool write_run(const struct memory_file *file, const struct region *region, uint64_t offset,
    uint64_t start, uint64_t end, struct text *why) {
    for (uint64_t at = start; at < end;) {
        uint64_t from = at;
        while (at < end && is_own(*kind_of(region, at))) {
            at += PAGE;
        }
        if (!memory_file_write(file, offset + (from - start), from, at, why)) {
            return false;
        }
        at += at == from ? PAGE : 0;
    }
    return true;
}

enum pass { COUNT, WRITE, MAP };

/* Goes through all runs in order; *size becomes where the next would begin in the file. */
static bool each_run(
    enum pass pass, const struct memory_file *file, uint64_t *size, struct text *why) {
    struct engine *e = engine;
    *size = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        struct region *region = &e->regions[i];
        uint64_t end;
        for (uint64_t start = region->start; next_run(region, &start, &end); start = end) {
            bool done = true;
            if (pass == WRITE) {
                done = write_run(file, region, *size, start, end, why);
            } else if (pass == MAP && region->fixed) {
                region->copy = file->view + *size - (start - region->start);
            } else if (pass == MAP) {
                done = memory_file_map(file, *size, start, end, PROT_READ | PROT_WRITE, why);
            }
            if (!done) {
                return false;
            }
            *size += end - start;
        }
    }
    return true;
}

/* Records what /proc/self/maps shows for the file; maps_read() was called since it was mapped. */
static void identify(struct memory_file *file) {
    const struct mapping *view = maps_at((uint64_t)file->view);
    file->device = view->device;
    file->inode = view->inode;
}

/* Writes all runs into a new file and maps them from it. */
static bool freeze_regions(struct memory_file *file, struct text *why) {
    struct engine *e = engine;
    uint64_t size;
    each_run(COUNT, NULL, &size, why);
    for (uint32_t i = 0; i < e->region_count; i++) {
        drop_unneeded(&e->regions[i]);
    }
    bool done = size == 0 || (memory_file_create(file, size, why) &&
                                 each_run(WRITE, file, &size, why) && memory_file_seal(file, why) &&
                                 memory_file_view(file, why) && each_run(MAP, file, &size, why));
    memory_file_close(file);
    e->mapping_count = maps_read(e->mappings, MAPPINGS_MAX, NULL, NULL);
    if (file->view != NULL) {
        identify(file);
    }
    return done;
}

/* Relocated tables (RELRO) and similar memory: read-only now, written before. In a file mapping, a later write to the page shows. */
static bool freeze_read_only(struct text *why) {
    struct engine *e = engine;
    struct memory_file file = {0};
    uint64_t size = 0;
    bool done = true;
    for (enum pass pass = COUNT; done && pass <= MAP; pass++) {
        uint64_t offset = 0;
        for (uint32_t i = 0; done && i < e->mapping_count; i++) {
            struct mapping *mapping = &e->mappings[i];
            if (pass == COUNT) {
                mapping->written = memcmp(mapping->permissions, "r--p", 4) == 0 &&
                                   mapping->name != MAPPING_KERNEL &&
                                   pages_written(mapping->start, mapping->end);
            } else if (mapping->written && pass == WRITE) {
                done = memory_file_write(&file, offset, mapping->start, mapping->end, why);
            } else if (mapping->written) {
                done = memory_file_map(&file, offset, mapping->start, mapping->end, PROT_READ, why);
            }
            offset += mapping->written ? mapping->end - mapping->start : 0;
        }
        size = offset;
        if (size == 0) {
            return true;
        }
        done = done && (pass != COUNT || memory_file_create(&file, size, why)) &&
               (pass != WRITE || memory_file_seal(&file, why));
    }
    memory_file_close(&file);
    return done;
}

/* A signal handler that runs between writing and mapping would lose what it wrote. */
static uint64_t block_signals(void) {
    const uint64_t all = ~0ULL;
    uint64_t before = 0;
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, SIGNAL_SET);
    return before;
}

static void unblock_signals(uint64_t before) {
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SIGNAL_SET);
}

/* --- in the worker ---------------------------------------------------------------------------------------------------------------------- */

/* A file's memory that must stay its own: a write to it retires the process. */
static void guard_read_only(void) {
    struct engine *e = engine;
    e->guarded_count = 0;
    for (uint32_t i = 0; i < e->mapping_count; i++) {
        const struct mapping *mapping = &e->mappings[i];
        /* Anonymous memory that was only read looks written. */
        if (mapping->permissions[0] != 'r' || mapping->permissions[1] == 'w' ||
            mapping->permissions[3] != 'p' || mapping->name == MAPPING_KERNEL ||
            mapping->inode == 0 || pages_written(mapping->start, mapping->end)) {
            continue;
        }
        struct range *last = e->guarded_count > 0 ? &e->guarded[e->guarded_count - 1] : NULL;
        if (last != NULL && last->end == mapping->start) {
            last->end = mapping->end;
        } else if (e->guarded_count < REGIONS_MAX) {
            e->guarded[e->guarded_count++] = (struct range){mapping->start, mapping->end};
        }
    }
}

/* Pages that nothing shows a write to are put back every time. */
static void know_fixed(struct region *region) {
    for (uint64_t at = region->start; region->fixed && at < region->end; at += PAGE) {
        uint8_t kind = *kind_of(region, at);
        if ((kind & KIND_PRIVATE) || (kind & KIND_MASK) == KIND_STORED) {
            pages_know(region, at);
        }
    }
}

static void count_pages(void) {
    struct engine *e = engine;
    for (uint32_t i = 0; i < e->region_count; i++) {
        const struct region *region = &e->regions[i];
        for (uint64_t at = region->start; at < region->end; at += PAGE) {
            uint8_t kind = *kind_of(region, at);
            e->statistics.snapshot_pages += (kind & KIND_MASK) == KIND_STORED;
            e->statistics.shared_pages +=
                (kind & (KIND_MASK | KIND_SHARED)) == (KIND_STORED | KIND_SHARED);
        }
    }
    if (e->statistics.snapshot_pages > BYTES_MAX / PAGE) {
        retire("the booted application holds more than 2 GB of private memory");
    }
}

/* If statm cannot show that the heap was cut off and extended again, this does: it is zero again, or used up. */
static void place_canary(void) {
    struct engine *e = engine;
    uint64_t at = PAGE_DOWN(e->brk) - sizeof e->canary;
    e->canary_at = 0;
    if (e->malloc_top == 0 || PAGE_DOWN(at) < PAGE_UP(e->malloc_top)) {
        return;
    }
    memcpy(&e->canary, e->key, sizeof e->canary);
    *(uint64_t *)at = e->canary;
    e->canary_at = at;
    struct region *region = pages_region(at);
    *kind_of(region, at) |= KIND_PRIVATE;
    pages_know(region, PAGE_DOWN(at));
}

void freeze_take(const struct snapshot_range *dead, size_t dead_count) {
    struct engine *e = engine;
    struct text why = {0};
    uint64_t mask = block_signals();
    e->mapping_count = maps_read(e->mappings, MAPPINGS_MAX, e->regions, &e->region_count);
    if (!maps_read_flags(e->regions, &e->region_count, &why) || !freeze_read_only(&why)) {
        retire_text(&why);
    }
    join_regions();
    for (uint32_t i = 0; i < e->region_count; i++) {
        if (e->regions[i].stack) {
            pages_extend_stack(&e->regions[i]);
        }
    }
    pages_reserve_work();
    for (uint32_t i = 0; i < e->region_count; i++) {
        classify(&e->regions[i]);
    }
    pages_mark_dead(dead, dead_count);
    count_pages();
    if (!freeze_regions(&e->own, &why)) {
        retire_text(&why);
    }
    guard_read_only();
    for (uint32_t i = 0; i < e->region_count; i++) {
        struct region *region = &e->regions[i];
        if (region->stack || region->end - region->start > LARGE) {
            pages_heat(region);
        }
        know_fixed(region);
        for (uint64_t at = region->start; !region->fixed && at < region->end; at += PAGE) {
            pages_map_in(region, at);
        }
    }
    place_canary();
    unblock_signals(mask);
}

/* --- in the zygote ---------------------------------------------------------------------------------------------------------------------- */

/* Kinds of all regions, for the time of snapshot_share(). */
static char *shared_kinds;
static uint64_t shared_kinds_len;
static struct text share_failure;

static bool reserve_kinds(void) {
    struct engine *e = engine;
    uint64_t pages = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        pages += (e->regions[i].end - e->regions[i].start) / PAGE;
    }
    shared_kinds_len = PAGE_UP(pages);
    shared_kinds = reserve(shared_kinds_len);
    uint8_t *at = (uint8_t *)shared_kinds;
    for (uint32_t i = 0; at != NULL && i < e->region_count; i++) {
        e->regions[i].kinds = at;
        at += (e->regions[i].end - e->regions[i].start) / PAGE;
    }
    return at != NULL;
}

static void release_kinds(void) {
    if (shared_kinds != NULL) {
        raw(SYS_munmap, shared_kinds - PAGE, shared_kinds_len + 2 * PAGE);
        shared_kinds = NULL;
    }
}

void freeze_fail(const char *why) {
    jmp_buf *sharing = engine->sharing;
    engine->sharing = NULL;
    share_failure = (struct text){0};
    text_add(&share_failure, why);
    longjmp(*sharing, 1);
}

/* A mapping of an unidentified file is treated like any other file memory by workers. */
static void clean_up_after_failure(void) {
    struct engine *e = engine;
    memory_file_close(&e->shared);
    if (e->shared.view != NULL && e->shared.inode == 0) {
        raw(SYS_munmap, e->shared.view, e->shared.size);
        e->shared.view = NULL;
    }
}

static bool share(const struct snapshot_range *dead, size_t dead_count, struct text *why) {
    struct engine *e = engine;
    e->mapping_count = maps_read(e->mappings, MAPPINGS_MAX, e->regions, &e->region_count);
    if (!maps_read_flags(e->regions, &e->region_count, why)) {
        return false;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < e->region_count; i++) {
        if (!e->regions[i].fixed) {
            e->regions[kept++] = e->regions[i];
        }
    }
    e->region_count = kept;
    if (!reserve_kinds()) {
        text_add(why, "out of memory");
        return false;
    }
    for (uint32_t i = 0; i < kept; i++) {
        classify(&e->regions[i]);
    }
    pages_mark_dead(dead, dead_count);
    return freeze_read_only(why) && freeze_regions(&e->shared, why);
}

/* share(), which fails where a worker would have to retire. */
static bool try_to_share(const struct snapshot_range *dead, size_t dead_count, struct text *why) {
    jmp_buf failed;
    bool done;
    engine->sharing = &failed;
    if (setjmp(failed) == 0) {
        done = share(dead, dead_count, why);
        engine->sharing = NULL;
    } else {
        done = false;
        *why = share_failure;
        clean_up_after_failure();
    }
    release_kinds();
    return done;
}

bool snapshot_share(const struct snapshot_range *dead, size_t dead_count, const char **why) {
    static struct text said;
    struct engine *e = engine;
    *why = "";
    if (e == NULL || e->taken || e->shared.view != NULL || !snapshot_probe(why)) {
        return true; /* nothing to share, or snapshot_take() will report the reason */
    }
    e->malloc_top = take_prepare_malloc_top();
    e->brk = (uint64_t)raw(SYS_brk, 0);
    e->stack_pointer = 0;
    for (int s = 0; s < SLOTS; s++) {
        e->slots[s].used = e->slots[s].begin != e->slots[s].end;
    }
    long maps = raw_open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    long pagemap = raw_open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    struct text text = {0};
    bool done = false;
    if (maps < 0 || pagemap < 0) {
        text_add_failure(&text, "/proc/self/maps and pagemap", maps < 0 ? maps : pagemap);
    } else {
        e->fds.maps = (int)maps;
        e->fds.pagemap = (int)pagemap;
        uint64_t mask = block_signals();
        done = try_to_share(dead, dead_count, &text);
        unblock_signals(mask);
    }
    raw(SYS_close, maps);
    raw(SYS_close, pagemap);
    e->region_count = e->mapping_count = 0;
    said = text;
    *why = said.data;
    return done;
}

#endif
