/* The process's mappings: read from /proc/self/maps, compared with those of the snapshot, undone.
 *
 * Promises
 * - After maps_put_back() exactly the snapshot's mappings exist, with their protection. Only the stack may have grown.
 * - A mapping that is gone, was replaced or became writable retires the process.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

struct reader {
    int fd;
    uint32_t at, len;
    bool ended;
    char *buffer;
    size_t size;
};

/* The next line, without its end. NULL: no more. Borrowed: the result, until the next call. */
static char *next_line(struct reader *reader) {
    char *buffer = reader->buffer;
    for (;;) {
        for (uint32_t i = reader->at; i < reader->len; i++) {
            if (buffer[i] == '\n') {
                char *line = buffer + reader->at;
                buffer[i] = 0;
                reader->at = i + 1;
                return line;
            }
        }
        if (reader->ended) {
            return NULL;
        }
        uint32_t rest = reader->len - reader->at;
        for (uint32_t i = 0; i < rest; i++) {
            buffer[i] = buffer[reader->at + i];
        }
        reader->at = 0;
        reader->len = rest;
        if (rest == reader->size) {
            retire("a line of /proc/self/maps is too long");
        }
        long n = raw(SYS_read, reader->fd, buffer + rest, reader->size - rest);
        if (n < 0) {
            retire("/proc/self/maps cannot be read");
        }
        reader->ended = n == 0;
        reader->len += (uint32_t)n;
    }
}

static uint64_t number(char **text, unsigned base) {
    uint64_t value = 0;
    for (;; ++*text) {
        char c = **text;
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                                                : base;
        if (digit >= base) {
            return value;
        }
        value = value * base + digit;
    }
}

static bool starts_with(const char *text, const char *start) {
    while (*start != 0 && *text == *start) {
        text++;
        start++;
    }
    return *start == 0;
}

/* start-end perms offset major:minor inode   name */
static const char *parse(char *line, struct mapping *mapping) {
    mapping->start = number(&line, 16);
    line++;
    mapping->end = number(&line, 16);
    line++;
    memcpy(mapping->permissions, line, sizeof mapping->permissions);
    line += sizeof mapping->permissions + 1;
    mapping->offset = number(&line, 16);
    line++;
    uint64_t major = number(&line, 16);
    line++;
    mapping->device = major << 32 | number(&line, 16);
    line++;
    mapping->inode = number(&line, 10);
    while (*line == ' ') {
        line++;
    }
    mapping->name =
        starts_with(line, "[stack]")  ? MAPPING_STACK
        : starts_with(line, "[heap]") ? MAPPING_HEAP
        : starts_with(line, "/[aio]") ? MAPPING_AIO
        : starts_with(line, "[vvar") || starts_with(line, "[vdso") || starts_with(line, "[vsyscall")
            ? MAPPING_KERNEL
            : MAPPING_OTHER;
    return line;
}

/* Returns whether a mapping must be saved: private, writable, and not the engine's own. */
static bool is_region(const struct engine *e, const struct mapping *mapping) {
    uint64_t start = mapping->start;
    bool own = (start >= (uint64_t)e->region && start < (uint64_t)e->region_end) ||
               (start >= (uint64_t)e->work && start < (uint64_t)e->work_end);
    return !own && mapping->permissions[1] == 'w' && mapping->permissions[3] == 'p' &&
           mapping->name != MAPPING_KERNEL;
}

/* Also fills `regions`, if given: bounds and names. *region_count is set. */
uint32_t maps_read(
    struct mapping *into, uint32_t max, struct region *regions, uint32_t *region_count) {
    struct engine *e = engine;
    struct reader reader = {.fd = e->fds.maps, .buffer = e->buffer, .size = sizeof e->buffer};
    uint32_t count = 0;
    uint32_t found = 0;
    raw(SYS_lseek, reader.fd, 0, 0);
    for (char *line; (line = next_line(&reader)) != NULL;) {
        if (count == max) {
            retire("too many mappings");
        }
        struct mapping *mapping = &into[count++];
        const char *name = parse(line, mapping);
        if (regions == NULL || !is_region(e, mapping)) {
            continue;
        }
        if (found == REGIONS_MAX) {
            retire("too many writable mappings");
        }
        struct region *region = &regions[found++];
        memset(region, 0, sizeof *region);
        region->start = mapping->start;
        region->end = mapping->end;
        region->stack = mapping->name == MAPPING_STACK;
        region->file = mapping->inode != 0;
        /* The end of a path is more informative than its start. */
        size_t len = 0;
        while (name[len] != 0) {
            len++;
        }
        const char *from = len < sizeof region->name ? name : name + len - sizeof region->name + 1;
        for (size_t i = 0; i + 1 < sizeof region->name && from[i] != 0; i++) {
            region->name[i] = from[i];
        }
    }
    if (region_count != NULL) {
        *region_count = found;
    }
    return count;
}

/* Flags of smaps whose mappings a file cannot replace. They would lose what was requested (wipe or not on fork, not in core dumps,
 * locked, huge pages), the kernel refuses it (sealed), or they grow downwards. Documentation/filesystems/proc.rst, VmFlags */
static bool is_fixed(const char *flags) {
    static const char fixed[][5] = {
        " wf ", " dc ", " dd ", " lo ", " sl ", " ht ", " gd ", " pf ", " io ", " mm "};
    for (; *flags != 0; flags++) {
        for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
            if (starts_with(flags, fixed[i])) {
                return true;
            }
        }
    }
    return false;
}

static bool is_droppable(const char *flags) {
    for (; *flags != 0; flags++) {
        if (starts_with(flags, " dp ")) {
            return true;
        }
    }
    return false;
}

bool maps_read_flags(struct region *regions, uint32_t *count, struct text *why) {
    struct engine *e = engine;
    long fd = raw_open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return text_add_failure(why, "/proc/self/smaps", fd);
    }
    struct reader reader = {.fd = (int)fd, .buffer = e->buffer, .size = sizeof e->buffer};
    uint32_t kept = 0;
    uint32_t next = 0;
    bool here = false;
    bool executable = false;
    for (char *line; (line = next_line(&reader)) != NULL;) {
        char *at = line;
        uint64_t start = number(&at, 16);
        if (*at == '-') {
            at++;
            number(&at, 16);
            here = next < *count && start == regions[next].start;
            executable = at[3] == 'x';
        } else if (here && starts_with(line, "VmFlags:")) {
            if (!is_droppable(line)) {
                regions[kept] = regions[next];
                regions[kept].executable = executable;
                /* Executable memory from a memfd is refused by some security policies. */
                regions[kept].fixed = executable || regions[kept].stack || is_fixed(line);
                kept++;
            }
            next++;
            here = false;
        }
    }
    raw(SYS_close, fd);
    if (next != *count) {
        text_add(why, "/proc/self/smaps and /proc/self/maps do not agree");
        return false;
    }
    *count = kept;
    return true;
}

const struct mapping *maps_overlapping(uint64_t start, uint64_t end) {
    const struct engine *e = engine;
    uint32_t low = 0;
    uint32_t high = e->mapping_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (e->mappings[middle].end <= start) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < e->mapping_count && e->mappings[low].start < end ? &e->mappings[low] : NULL;
}

const struct mapping *maps_at(uint64_t address) {
    return maps_overlapping(address, address + 1);
}

void maps_visit(uint64_t start, uint64_t end,
    bool (*visit)(const struct mapping *mapping, void *data), void *data) {
    char buffer[8192]; /* a path has at most 4,096 bytes */
    long fd = raw_open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    struct reader reader = {.fd = (int)fd, .buffer = buffer, .size = sizeof buffer};
    bool more = true;
    for (char *line; more && (line = next_line(&reader)) != NULL;) {
        struct mapping mapping;
        parse(line, &mapping);
        if (mapping.start < end && mapping.end > start) {
            more = visit(&mapping, data);
        }
    }
    raw(SYS_close, fd);
}

/* --- the difference --------------------------------------------------------------------------------------------------------------------- */

static _Noreturn void retire_at(const char *what, uint64_t start, uint64_t end) {
    struct text text = {0};
    text_add(&text, what);
    text_add(&text, ": ");
    text_add_address(&text, start);
    text_add(&text, "-");
    text_add_address(&text, end);
    retire_text(&text);
}

static bool same_file(const struct mapping *a, const struct mapping *b) {
    return a->inode == b->inode && a->device == b->device &&
           (a->inode == 0 || a->offset - a->start == b->offset - b->start);
}

static bool same_permissions(const struct mapping *a, const struct mapping *b) {
    return memcmp(a->permissions, b->permissions, sizeof a->permissions) == 0;
}

static void protect_as(const struct mapping *then, uint64_t start, uint64_t end) {
    int protection = (then->permissions[0] == 'r' ? PROT_READ : 0) |
                     (then->permissions[1] == 'w' ? PROT_WRITE : 0) |
                     (then->permissions[2] == 'x' ? PROT_EXEC : 0);
    if (raw(SYS_mprotect, start, end - start, protection) != 0) {
        retire_at("the protection of a mapping cannot be put back", start, end);
    }
}

/* [start, end) lies within both. */
static void compare(
    const struct mapping *then, const struct mapping *now, uint64_t start, uint64_t end) {
    if (!same_file(then, now) || then->permissions[3] != now->permissions[3]) {
        retire_at("a mapping of the boot was replaced", start, end);
    }
    if (same_permissions(then, now)) {
        return;
    }
    if (then->permissions[1] != 'w' && now->permissions[1] == 'w' && then->permissions[3] == 'p') {
        retire_at("read-only memory of the boot became writable", start, end);
    }
    protect_as(then, start, end);
}

static void unmap_new(const struct mapping *now, uint64_t start, uint64_t end) {
    if (now->name == MAPPING_STACK) {
        return; /* it grew; dead */
    }
    if (now->name == MAPPING_AIO) {
        retire("the request set up asynchronous input and output");
    }
    if (raw(SYS_munmap, start, end - start) != 0) {
        retire_at("a new mapping cannot be removed", start, end);
    }
}

void maps_put_back(void) {
    struct engine *e = engine;
    uint32_t count = maps_read(e->mappings_now, MAPPINGS_MAX, NULL, NULL);
    const struct mapping *then = e->mappings;
    const struct mapping *then_end = then + e->mapping_count;
    const struct mapping *now = e->mappings_now;
    const struct mapping *now_end = now + count;
    /* Both lists are sorted. Mappings may have been split or joined since, so they are compared by address. */
    for (uint64_t at = 0; then < then_end || now < now_end;) {
        uint64_t then_start = then < then_end ? then->start : UINT64_MAX;
        uint64_t now_start = now < now_end ? now->start : UINT64_MAX;
        then_start = then_start > at ? then_start : at;
        now_start = now_start > at ? now_start : at;
        if (then_start < now_start) {
            uint64_t end = then->end < now_start ? then->end : now_start;
            retire_at("a mapping of the boot is gone", then_start, end);
        }
        uint64_t end = now->end;
        if (now_start < then_start) {
            end = end < then_start ? end : then_start;
            unmap_new(now, now_start, end);
        } else {
            end = end < then->end ? end : then->end;
            compare(then, now, now_start, end);
        }
        at = end;
        now += now->end <= at;
        then += then < then_end && then->end <= at;
    }
}

/* Mappings without a gap between them that begin with a file's: the file's variables follow its code. */
struct run {
    uint64_t start, end;
    char name[64]; /* the end of the file's path, or empty */
};

/* Pages of the snapshot are mapped from files of the engine: these names say nothing. */
static bool names_a_file(const char *name) {
    return name[0] == '/' && !starts_with(name, "/memfd:") && !starts_with(name, "/dev/zero");
}

static void add_to_run(struct run *run, const struct mapping *mapping, const char *name) {
    size_t len = strlen(name);
    const char *end = len < sizeof run->name ? name : name + len - sizeof run->name + 1;
    bool other = names_a_file(name) && strcmp(run->name, end) != 0;
    if (mapping->start != run->end || other) {
        run->start = mapping->start;
        run->name[0] = 0;
    }
    if (other) {
        memcpy(run->name, end, strlen(end) + 1);
    }
    run->end = mapping->end;
}

static void add_place(struct text *text, const char *name, uint64_t offset) {
    text_add(text, name);
    text_add(text, " + ");
    text_add_address(text, offset);
}

void maps_describe(uint64_t address, struct text *text) {
    struct engine *e = engine;
    const struct region *region = pages_region(address);
    if (in_arena(e, (const void *)address)) {
        return add_place(text, "PHP's heap", address - (uint64_t)e->arena);
    }
    if (region != NULL &&
        (region->stack || (e->stack_pointer >= region->start && e->stack_pointer < region->end))) {
        return add_place(text, "[stack]", address - region->start);
    }
    struct reader reader = {.fd = e->fds.maps, .buffer = e->buffer, .size = sizeof e->buffer};
    struct run run = {0};
    raw(SYS_lseek, reader.fd, 0, 0);
    for (char *line; (line = next_line(&reader)) != NULL;) {
        struct mapping mapping;
        const char *name = parse(line, &mapping);
        if (run.end > address && (mapping.start != run.end || names_a_file(name))) {
            break;
        }
        add_to_run(&run, &mapping, name);
    }
    bool heap = run.end == PAGE_UP(e->brk);
    const char *name = run.name[0] != 0 ? run.name : heap ? "[heap]" : "anonymous memory";
    add_place(text, name, address - run.start);
}

struct usage usage_read(void) {
    char text[192];
    struct usage usage = {0};
    long n = raw(SYS_pread64, engine->fds.statm, text, sizeof text - 1, 0);
    if (n <= 0) {
        retire("/proc/self/statm cannot be read");
    }
    text[n] = 0;
    /* size resident shared text lib data dt */
    char *at = text;
    uint64_t fields[6];
    for (int i = 0; i < 6; i++) {
        fields[i] = number(&at, 10);
        at += *at == ' ';
    }
    usage.size = fields[0];
    usage.resident = fields[1];
    usage.shared = fields[2];
    usage.data = fields[5];
    return usage;
}

uint64_t status_number(const char *name) {
    struct engine *e = engine;
    long n = raw(SYS_pread64, e->fds.status, e->buffer, sizeof e->buffer - 1, 0);
    if (n <= 0) {
        retire("/proc/self/status cannot be read");
    }
    e->buffer[n] = 0;
    char *at = strstr(e->buffer, name);
    if (at == NULL) {
        return 0;
    }
    at += strlen(name);
    while (*at == ' ' || *at == '\t') {
        at++;
    }
    return number(&at, 10);
}

#endif
