/* Tests whether this machine lets this process take snapshots, with a few pages, not by version
 * numbers. */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIED_PAGES = 2 };

static struct text reason;

static bool because(const char *what) {
    text_add(&reason, what);
    return false;
}

/* Returns whether a page of a sealed file that was only read shows as the file's own, and one that
 * was written does not. */
static bool shows_writes(int pagemap, struct memory_file *file, char *pages) {
    const uint64_t start = (uint64_t)pages;
    const uint64_t end = start + TRIED_PAGES * PAGE;
    if (!memory_file_create(file, end - start, &reason) ||
        !memory_file_write(file, 0, start, end, &reason) || !memory_file_seal(file, &reason) ||
        !memory_file_map(file, 0, start, end, PROT_READ | PROT_WRITE, &reason)) {
        return false;
    }
    (void)*(volatile const char *)pages;
    ((volatile char *)pages)[PAGE] = 1;
    uint64_t entries[TRIED_PAGES] = {0};
    ssize_t n = pread(pagemap, entries, sizeof entries, (off_t)(start / PAGE * sizeof *entries));
    /* bits 63: present, 62: swapped out, 61: a file's; proc_pid_pagemap(5) */
    bool shown = n == (ssize_t)sizeof entries && entries[0] >> 61 == 5 && entries[1] >> 61 == 4;
    return shown || because("/proc/self/pagemap does not show written pages");
}

/* Emulators of other processors (qemu's user emulation) run their own threads in the program's
 * process, and have pages that a restore cannot see. */
static bool has_foreign_threads(void) {
    enum { LINKS = 2 /* of /proc/self/task, besides one for each thread */ };
    struct stat status;
    return engine == NULL && stat("/proc/self/task", &status) == 0 && status.st_nlink > LINKS + 1;
}

static bool try_file(void) {
    if (has_foreign_threads()) {
        return because("threads that the program did not start: the processor is emulated");
    }
    if (PAGE > PAGE_LARGEST) {
        return because("the kernel's pages are larger than 64 KB");
    }
    if (!arrange_fits()) {
        return because("not enough address space (RLIMIT_AS)");
    }
    /* Linux 5.9; closes nothing here. Restores have no other way to close what a request left open. */
    long closed = raw(SYS_close_range, UINT32_MAX, UINT32_MAX, 0);
    if (closed != 0) {
        return text_add_failure(&reason, "close_range", closed);
    }
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap < 0) {
        return text_add_failure(&reason, "/proc/self/pagemap", -errno);
    }
    struct memory_file file = {0};
    const size_t len = (size_t)TRIED_PAGES * PAGE;
    char *pages = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool works = pages == MAP_FAILED ? because("no memory") : shows_writes(pagemap, &file, pages);
    memory_file_close(&file);
    if (pages != MAP_FAILED) {
        munmap(pages, len);
    }
    close(pagemap);
    return works;
}

bool snapshot_probe(const char **why) {
    const char *wanted = getenv("HEARTH_SNAPSHOT_TRACKER");
    bool works = false;
    reason = (struct text){0};
    if (wanted == NULL || *wanted == 0 || strcmp(wanted, "file") == 0) {
        works = try_file();
    } else {
        because(strcmp(wanted, "none") == 0 ? "HEARTH_SNAPSHOT_TRACKER=none"
                                            : "HEARTH_SNAPSHOT_TRACKER names no tracker");
    }
    *why = reason.data;
    return works;
}

#endif
