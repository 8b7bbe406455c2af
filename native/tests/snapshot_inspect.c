/* Compares a stopped process with its snapshot through /proc. Attributes become lines of text,
 * memory is compared byte by byte. Allowed differences are listed in area_is_compared() and
 * nowhere else. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "snapshot.h"

enum { MAX_AREAS = 4096, TEXT = 1 << 20 };
/* Only compared memory is ever touched. If the kernel accounts for all of it
 * (vm.overcommit_memory=2), it is smaller, so that the cases can use most. */
static size_t copies_size = (size_t)16 << 30;
static const size_t LEAST_COPIES = (size_t)512 << 20;

struct mapping {
    uint64_t start, end, offset, inode;
    char permissions[5];
    char name[64];
    bool private, writable, backed; /* by a file */
    bool
        engine; /* the engine's alone: NORESERVE, or it holds kept memory; or a droppable one of the kernel's */
    uint8_t *copy;
};

/* Parent's memory that cases do not inherit. */
static struct inspector {
    int proc, memory, pagemap;
    struct mapping baseline[MAX_AREAS], now[MAX_AREAS];
    size_t baseline_count, now_count;
    char baseline_text[TEXT], text[TEXT], file[TEXT];
    uint64_t pages[1 << 18];
    uint8_t lump[1 << 20];
    uint8_t *copies;
    size_t used;
} * it;

void inspector_prepare(void) {
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    it = mmap(NULL, sizeof *it, PROT_READ | PROT_WRITE, flags, -1, 0);
    void *copies = mmap(NULL, copies_size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (copies == MAP_FAILED) {
        copies_size = LEAST_COPIES;
        copies = mmap(NULL, copies_size, PROT_READ | PROT_WRITE, flags, -1, 0);
    }
    if (it == MAP_FAILED || copies == MAP_FAILED || madvise(it, sizeof *it, MADV_DONTFORK) != 0 ||
        madvise(copies, copies_size, MADV_DONTFORK) != 0) {
        give_up("the inspector's memory");
    }
    it->copies = copies;
    it->proc = it->memory = it->pagemap = -1;
}

static size_t read_file(const char *name, char *to, size_t size) {
    int fd = openat(it->proc, name, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t got = 0;
    while (fd >= 0 && len < size - 1 && (got = read(fd, to + len, size - 1 - len)) > 0) {
        len += (size_t)got;
    }
    if (fd >= 0) {
        close(fd);
    }
    to[len] = '\0';
    return len;
}

/* If the kernel accounts for all memory (vm.overcommit_memory=2), no mapping is marked NORESERVE.
 * The engine's mappings are then those between two without access. */
static void find_engine_by_guards(struct mapping *m, size_t count) {
    char policy[16];
    if (!read_line("/proc/sys/vm/overcommit_memory", policy, sizeof policy) || policy[0] != '2') {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        size_t end = i + 1;
        while (end < count && m[end].start == m[end - 1].end &&
               strcmp(m[end].permissions, "rw-p") == 0 && !m[end].backed) {
            end++;
        }
        bool guarded = end < count && m[end].start == m[end - 1].end && end > i + 1 &&
                       strcmp(m[i].permissions, "---p") == 0 &&
                       strcmp(m[end].permissions, "---p") == 0;
        for (size_t k = i + 1; guarded && k < end; k++) {
            m[k].engine = true;
        }
        i = end - 1;
    }
}

/* Reads /proc/PID/maps, or smaps with its VmFlags. Neighbours that the kernel did not merge count
 * as one. */
static size_t read_mappings(struct mapping *to, const char *source) {
    read_file(source, it->file, sizeof it->file);
    size_t count = 0;
    for (char *line = it->file, *next; *line != '\0'; line = next) {
        next = strchr(line, '\n');
        next = next != NULL ? (*next = '\0', next + 1) : line + strlen(line);
        if (strncmp(line, "VmFlags:", 8) == 0) {
            struct mapping *m = &to[count - 1];
            m->engine = m->private && (strstr(line, " nr") != NULL || strstr(line, " dp") != NULL);
            continue;
        }
        struct mapping m = {0};
        int name = 0;
        unsigned major, minor;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &m.start,
                &m.end, m.permissions, &m.offset, &major, &minor, &m.inode, &name) < 7 ||
            count == MAX_AREAS) {
            continue;
        }
        snprintf(m.name, sizeof m.name, "%s", name != 0 ? line + name : "");
        m.private = m.permissions[3] == 'p';
        m.writable = m.permissions[1] == 'w';
        m.backed = m.inode != 0;
        to[count++] = m;
    }
    return count;
}

/* The first mapping of the baseline that holds the address. */
static struct mapping *mapping_at(uint64_t address) {
    for (size_t i = 0; i < it->baseline_count; i++) {
        if (address >= it->baseline[i].start && address < it->baseline[i].end) {
            return &it->baseline[i];
        }
    }
    return NULL;
}

static size_t add(size_t len, const char *format, ...) __attribute__((format(printf, 2, 3)));
static size_t add(size_t len, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (len < TEXT - 1024) {
        len += (size_t)vsnprintf(it->text + len, 1024, format, arguments);
    }
    va_end(arguments);
    return len;
}

static bool follows(const struct mapping *a, const struct mapping *b) {
    return a->end == b->start && strcmp(a->permissions, b->permissions) == 0 &&
           a->inode == b->inode && strcmp(a->name, b->name) == 0 &&
           (a->inode == 0 || b->offset - a->offset == b->start - a->start);
}

static size_t add_mappings(size_t len) {
    it->now_count = read_mappings(it->now, "maps");
    for (size_t i = 0; i < it->now_count; i++) {
        struct mapping m = it->now[i];
        while (i + 1 < it->now_count && follows(&m, &it->now[i + 1])) {
            m.end = it->now[++i].end;
        }
        bool stack = strcmp(m.name, "[stack]") == 0; /* grows, and stays so */
        len = add(len, "mapping %" PRIx64 "-%" PRIx64 " %s %" PRIx64 " %" PRIu64 " %s\n",
            stack ? 0 : m.start, m.end, m.permissions, m.inode != 0 ? m.offset : 0, m.inode,
            m.name);
    }
    return len;
}

static size_t add_descriptors(size_t len) {
    int fd = openat(it->proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    char standard[3][256] = {0};
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        char target[256], name[300], info[4096];
        ssize_t got = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);
        target[got > 0 ? got : 0] = '\0';
        int number = atoi(entry->d_name);
        if (number < 3) {
            strcpy(standard[number], target);
        }
        snprintf(name, sizeof name, "fdinfo/%s", entry->d_name);
        read_file(name, info, sizeof info);
        long long position = 0;
        char flags[32] = "";
        sscanf(info, "pos: %lld flags: %31s", &position, flags);
        /* the first three are shared with the parent; files of /proc are the engine's, or their
         * offsets move */
        bool positioned =
            target[0] == '/' && strncmp(target, "/proc", 5) != 0 && strncmp(target, "/dev", 4) != 0;
        positioned = positioned && (strtol(flags, NULL, 8) & O_APPEND) == 0; /* logs: shared, too */
        for (int i = 0; i < 3; i++) {
            positioned = positioned && strcmp(target, standard[i]) != 0;
        }
        const char *lock = strstr(info, "lock:");
        len = add(len, "descriptor %s %s %lld %s %.40s\n", entry->d_name, target,
            positioned ? position : 0, flags, lock != NULL ? lock : "");
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return len;
}

static size_t add_attributes(size_t len) {
    static const char *const status[] = {"Umask:", "Uid:", "Gid:", "Groups:", "Threads:", "SigPnd:",
        "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:", "CapEff:", "CapInh:", "CapPrm:", "NoNewPrivs:",
        "Seccomp:", "Cpus_allowed:", "VmLck:"};
    static const char *const files[] = {"limits", "timers", "comm", "timerslack_ns",
        "oom_score_adj", "personality", "environ", "coredump_filter", "autogroup"};
    static const char *const links[] = {"cwd", "root", "exe"};
    read_file("status", it->file, sizeof it->file);
    for (size_t i = 0; i < sizeof status / sizeof status[0]; i++) {
        bool moves = strstr(status[i], "Pnd") != NULL || strcmp(status[i], "SigBlk:") == 0;
        if (board->signals_come && moves) {
            continue;
        }
        const char *at = strstr(it->file, status[i]);
        int line = at != NULL ? (int)strcspn(at, "\n") : 0;
        len = add(len, "status %.*s\n", line, at != NULL ? at : "");
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t got = read_file(files[i], it->file, sizeof it->file);
        for (size_t k = 0; k < got; k++) {
            if (it->file[k] == '\n' || it->file[k] == '\0') {
                it->file[k] = ' ';
            }
        }
        len = add(len, "%s %.900s\n", files[i], it->file);
    }
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        char target[256];
        ssize_t got = readlinkat(it->proc, links[i], target, sizeof target - 1);
        target[got > 0 ? got : 0] = '\0';
        len = add(len, "%s %s\n", links[i], target);
    }
    read_file("stat", it->file, sizeof it->file);
    char *p = strrchr(it->file, ')');
    long f[40] = {0};
    p = p != NULL ? p + 3 : it->file + strlen(it->file); /* behind the state */
    for (int i = 3; i < 40; i++) {
        f[i] = strtol(p, &p, 10);
    }
    return add(len, "group %ld session %ld terminal %ld nice %ld\n", f[4], f[5], f[6], f[18]);
}

static void write_text(void) {
    size_t len = add_mappings(0);
    len = add_descriptors(len);
    add_attributes(len);
}

/* Only the interior of kept memory, of the engine's own mappings and of arena blocks without an owner is free to differ. */
static bool area_is_compared(const struct mapping *m) {
    return m->private && strncmp(m->name, "[v", 2) != 0;
}

/* Finds the next memory in [start, end) that must be exact; false: there is none. */
static bool next_stretch(const struct mapping *m, uint64_t from, uint64_t *start, uint64_t *end) {
    uint64_t s = from, e = m->end;
    if (m->engine) {
        const struct snapshot_range *best = NULL;
        for (uint32_t i = 0; i < board->chunk_count; i++) {
            const struct snapshot_range *c = &board->chunks[i];
            if (c->end > s && c->start < e && (best == NULL || c->start < best->start)) {
                best = c;
            }
        }
        if (best == NULL) {
            return false;
        }
        s = best->start > s ? best->start : s;
        e = best->end < e ? best->end : e;
    }
    if (strcmp(m->name, "[stack]") == 0 && s < board->frame) {
        s = board->frame;
    }
    for (uint32_t i = 0; i <= board->excluded_count; i++) {
        const struct snapshot_range *range =
            i < board->excluded_count ? &board->excluded[i] : &board->malloc_top;
        uint64_t x = (range->start + PAGE - 1) / PAGE * PAGE; /* whole pages of them */
        uint64_t y = range->end / PAGE * PAGE;
        if (y <= s || x >= e || x >= y) {
            continue;
        }
        if (x <= s) {
            s = y;
            i = (uint32_t)-1; /* look again */
        } else {
            e = x;
        }
    }
    *start = s;
    *end = e;
    return s < e;
}

void inspector_baseline(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    it->proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    it->memory = openat(it->proc, "mem", O_RDONLY | O_CLOEXEC);
    it->pagemap = openat(it->proc, "pagemap", O_RDONLY | O_CLOEXEC);
    if (it->memory < 0 || it->pagemap < 0) {
        give_up("the case's memory");
    }
    write_text();
    memcpy(it->baseline_text, it->text, sizeof it->text);
    it->baseline_count = read_mappings(it->baseline, "smaps");
    find_engine_by_guards(it->baseline, it->baseline_count);
    it->used = 0;
    struct mapping *kept = mapping_at((uint64_t)board->kept);
    if (kept != NULL) {
        kept->engine = true;
    }
    if (board->arena != NULL && mapping_at((uint64_t)board->arena) != NULL) {
        mapping_at((uint64_t)board->arena)->engine = true;
    }
    for (size_t i = 0; i < it->baseline_count; i++) {
        struct mapping *m = &it->baseline[i];
        uint64_t len = m->end - m->start;
        if (!area_is_compared(m) || m->permissions[0] != 'r') {
            continue;
        }
        if (it->used + len > copies_size) {
            check(false, "the inspector has no room for %s", m->name);
            continue;
        }
        m->copy = it->copies + it->used;
        uint64_t s, e, from = m->start;
        for (; next_stretch(m, from, &s, &e); from = e) {
            for (uint64_t at = s; at < e;) {
                uint64_t lump = e - at < sizeof it->lump ? e - at : sizeof it->lump;
                ssize_t got = pread(it->memory, m->copy + (at - m->start), lump, (off_t)at);
                if (got <= 0) {
                    check(false, "cannot read %" PRIx64 " of %s", at, m->name);
                    break;
                }
                at += (uint64_t)got;
            }
        }
        it->used += len;
    }
}

static void compare_text(void) {
    const char *a = it->baseline_text, *b = it->text;
    if (strcmp(a, b) == 0) {
        return;
    }
    size_t line = 0, i = 0;
    for (; a[i] != '\0' && a[i] == b[i]; i++) {
        if (a[i] == '\n') {
            line = i + 1;
        }
    }
    check(false, "was `%.*s`, is `%.*s`", (int)strcspn(a + line, "\n"), a + line,
        (int)strcspn(b + line, "\n"), b + line);
}

static bool all_zero(const uint8_t *at, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (at[i] != 0) {
            return false;
        }
    }
    return true;
}

enum { SAME, EXPECTED_ZERO, TO_READ };

/* The state of a page by its pagemap entry alone. */
static int classify(const struct mapping *m, uint64_t entry) {
    bool present = (entry >> 62 & 3) != 0, is_file = (entry >> 61 & 1) != 0;
    if (!present && !m->backed) {
        return EXPECTED_ZERO;
    }
    return !m->writable && (is_file || !present) ? SAME
                                                 : TO_READ; /* read-only: still the file's page */
}

/* Compares [start, end), which lies in pages of one kind; at most as long as the lump. */
static bool compare_stretch(const struct mapping *m, uint64_t start, uint64_t end, int kind) {
    const uint8_t *expected = m->copy + (start - m->start);
    if (kind == EXPECTED_ZERO) {
        bool zero = all_zero(expected, end - start);
        check(zero, "%" PRIx64 " of %s is no longer there", start, m->name);
        return zero;
    }
    if (kind == SAME) {
        return true;
    }
    if (pread(it->memory, it->lump, end - start, (off_t)start) != (ssize_t)(end - start)) {
        check(false, "%" PRIx64 " of %s cannot be read", start, m->name);
        return false;
    }
    if (memcmp(it->lump, expected, end - start) == 0) {
        return true;
    }
    size_t i = 0;
    while (it->lump[i] == expected[i]) {
        i++;
    }
    check(false, "%" PRIx64 " of %s%s was %02x, is %02x", start + i,
        m->name[0] != '\0' ? m->name : "anonymous memory", m->engine ? " (arena)" : "", expected[i],
        it->lump[i]);
    return false;
}

/* Pages of one kind are compared together. */
static bool compare_pages(const struct mapping *m, uint64_t start, uint64_t end) {
    uint64_t first = start / PAGE, count = (end - 1) / PAGE - first + 1;
    size_t len = count * sizeof it->pages[0];
    if (pread(it->pagemap, it->pages, len, (off_t)(first * 8)) != (ssize_t)len) {
        check(false, "pagemap of %" PRIx64 ": %s", start, strerror(errno));
        return false;
    }
    for (uint64_t k = 0; k < count;) {
        int kind = classify(m, it->pages[k]);
        uint64_t from = k++;
        while (
            k < count && k - from < sizeof it->lump / PAGE && classify(m, it->pages[k]) == kind) {
            k++;
        }
        uint64_t x = (first + from) * PAGE, y = (first + k) * PAGE;
        if (!compare_stretch(m, x > start ? x : start, y < end ? y : end, kind)) {
            return false;
        }
    }
    return true;
}

static void compare_memory(void) {
    const uint64_t most = sizeof it->pages / sizeof it->pages[0] * PAGE;
    for (size_t i = 0, differences = 0; i < it->baseline_count && differences < 4; i++) {
        const struct mapping *m = &it->baseline[i];
        uint64_t s, e, from = m->start;
        for (; m->copy != NULL && next_stretch(m, from, &s, &e); from = e) {
            for (uint64_t at = s; at < e; at = (at + most) / PAGE * PAGE) {
                differences += !compare_pages(m, at, at + most < e ? (at + most) / PAGE * PAGE : e);
            }
        }
    }
}

void inspector_compare(void) {
    write_text();
    compare_text();
    compare_memory();
}

struct size_facts inspector_sizes(void) {
    struct size_facts facts = {0};
    read_file("statm", it->file, sizeof it->file);
    sscanf(it->file, "%" SCNu64 " %" SCNu64, &facts.virtual_pages, &facts.resident_pages);
    facts.mappings = read_mappings(it->now, "maps");
    it->text[0] = '\0';
    add_descriptors(0);
    for (const char *p = it->text; *p != '\0'; p++) {
        facts.descriptors += *p == '\n';
    }
    return facts;
}

void inspector_close(void) {
    if (it->proc >= 0) {
        close(it->proc);
        close(it->memory);
        close(it->pagemap);
        it->proc = -1;
    }
}
