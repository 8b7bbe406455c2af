/* See prefault.h. Documentation/admin-guide/mm/pagemap.rst */
#include "sapi/models/prefault.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
    LESSONS = 4,   /* the last of these forks is believed: the first ones still fill caches */
    RANGES = 2048, /* a page of them is 256 */
    PAGES_AT_ONCE = 8192,
};

#define PRESENT (1ULL << 63)
#define FILE_OR_SHARED (1ULL << 61)
#define EXCLUSIVE (1ULL << 56)

/* Shared by the zygote and all its forks. Two processes that learn at the same time write similar
 * lists; `lessons` is increased last. */
static struct lesson {
    uint32_t lessons;
    uint32_t count;
    struct {
        uintptr_t start;
        size_t len;
    } ranges[RANGES];
} * shared;

void prefault_prepare(void) {
    void *memory =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared = memory == MAP_FAILED ? NULL : memory;
}

void prefault_populate(void) {
    if (shared == NULL || __atomic_load_n(&shared->lessons, __ATOMIC_ACQUIRE) < LESSONS) {
        return;
    }
    for (uint32_t i = 0; i < shared->count; i++) {
        madvise((void *)shared->ranges[i].start, shared->ranges[i].len, MADV_POPULATE_WRITE);
    }
}

static bool is_own(uint64_t entry) {
    return (entry & PRESENT) != 0 && (entry & EXCLUSIVE) != 0 && (entry & FILE_OR_SHARED) == 0;
}

static void add(struct lesson *lesson, uintptr_t start, size_t len) {
    if (lesson->count > 0) {
        uint32_t last = lesson->count - 1;
        if (lesson->ranges[last].start + lesson->ranges[last].len == start) {
            lesson->ranges[last].len += len;
            return;
        }
    }
    if (lesson->count < RANGES) {
        lesson->ranges[lesson->count].start = start;
        lesson->ranges[lesson->count++].len = len;
    }
}

/* Adds the pages of one mapping that are this process's alone. */
static void look(struct lesson *lesson, int pagemap, uintptr_t start, uintptr_t end) {
    static uint64_t entries[PAGES_AT_ONCE];
    const size_t page = (size_t)getpagesize();
    while (start < end) {
        size_t pages = (end - start) / page;
        pages = pages < PAGES_AT_ONCE ? pages : PAGES_AT_ONCE;
        ssize_t got = pread(
            pagemap, entries, pages * sizeof *entries, (off_t)(start / page * sizeof *entries));
        if (got <= 0) {
            return;
        }
        size_t have = (size_t)got / sizeof *entries;
        for (size_t i = 0; i < have; i++) {
            if (is_own(entries[i])) {
                add(lesson, start + i * page, page);
            }
        }
        start += have * page;
    }
}

void prefault_learn(void) {
    if (shared == NULL || __atomic_load_n(&shared->lessons, __ATOMIC_ACQUIRE) >= LESSONS) {
        return;
    }
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    FILE *maps = fopen("/proc/self/maps", "re");
    static struct lesson lesson;
    char line[512];
    lesson.count = 0;
    while (pagemap >= 0 && maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end;
        char rights[5];
        /* the pages that this function itself writes to are found, too: a few */
        if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) == 3 && rights[1] == 'w' &&
            rights[3] == 'p') {
            look(&lesson, pagemap, start, end);
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    if (pagemap >= 0) {
        close(pagemap);
    }
    shared->count = lesson.count;
    memcpy(shared->ranges, lesson.ranges, lesson.count * sizeof *lesson.ranges);
    __atomic_add_fetch(&shared->lessons, 1, __ATOMIC_RELEASE);
}
