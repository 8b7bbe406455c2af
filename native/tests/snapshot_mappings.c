/* Cases: mappings that come, go and change. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot.h"

/* --- new ones --- */

static void leave_one(unsigned n) {
    memset(map_anonymous((1 + n) * 4 * PAGE, BOTH, PRIVATE), 1, PAGE);
}
static void leave_empty(unsigned n) {
    map_anonymous((1 + n) * PAGE, BOTH, PRIVATE);
}
static void leave_many(unsigned n) {
    for (unsigned i = 0; i < 300; i++) {
        unsigned char *at = map_anonymous(2 * PAGE, i % 2 == 0 ? PROT_READ : BOTH, PRIVATE);
        if (i % 2 != 0) {
            at[0] = (unsigned char)n;
        }
    }
}
static void leave_raw(unsigned n) {
    long at = raw(SYS_mmap, 0, (1 + n) * PAGE, BOTH, PRIVATE, -1, 0);
    *(unsigned char *)at = 1;
}
static void leave_executable(unsigned n) {
    map_anonymous((1 + n) * PAGE, BOTH | PROT_EXEC, PRIVATE)[0] = 0xc3;
}
static void leave_shared(unsigned n) {
    map_anonymous((1 + n) * PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS)[0] = 1;
}
static void leave_locked(unsigned n) {
    unsigned char *at = map_anonymous((1 + n) * PAGE, BOTH, PRIVATE);
    mlock(at, PAGE);
}
static void leave_file(unsigned n) {
    int fd = open("/etc/passwd", O_RDONLY);
    void *at = mmap(NULL, PAGE, BOTH, n % 2 == 0 ? MAP_PRIVATE : MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (at == MAP_FAILED) {
        give_up("mmap");
    }
    memset(at, 'x', 10);
    close(fd);
}
static void leave_beside_boot(unsigned n) {
    /* the kernel merges it with the mapping above it */
    void *at = mmap(
        boot.anon - (1 + n) * PAGE, (1 + n) * PAGE, BOTH, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != MAP_FAILED) {
        memset(at, 1, PAGE);
    }
}
static void come_and_go(unsigned n) {
    for (unsigned i = 0; i < 20; i++) {
        unsigned char *at = map_anonymous((20 + n) * PAGE, BOTH, PRIVATE);
        at[0] = 1;
        at = mremap(at, (20 + n) * PAGE, (40 + i) * PAGE, MREMAP_MAYMOVE);
        if (at == MAP_FAILED) {
            give_up("mremap");
        }
        at[39 * PAGE] = 2;
        mprotect(at, PAGE, PROT_NONE);
        munmap(at, (40 + i) * PAGE);
    }
}
static void shared_memory_segment(unsigned n) {
    int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
    unsigned char *at = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    if (id >= 0 && at != (void *)-1) {
        at[0] = (unsigned char)n;
    }
}

/* --- over boot mappings --- */

static unsigned char *bss_page(unsigned n) {
    return boot_bss + (2 + n) * PAGE;
}

static void map_over_bss(unsigned n) {
    mmap(bss_page(n), PAGE, BOTH, PRIVATE | MAP_FIXED, -1, 0);
}
static void map_over_bss_raw(unsigned n) {
    raw(SYS_mmap, (long)bss_page(n), PAGE, BOTH, PRIVATE | MAP_FIXED, -1, 0);
}
static void map_over_empty_page(unsigned n) {
    raw(SYS_mmap, (long)boot.anon + (1 + 2 * n) * PAGE, PAGE, BOTH, PRIVATE | MAP_FIXED, -1, 0);
    boot.anon[(1 + 2 * n) * PAGE] = 1;
}
static void map_over_whole_anon(unsigned n) {
    raw(SYS_mmap, (long)boot.anon, ANON_PAGES * PAGE, BOTH, PRIVATE | MAP_FIXED, -1, 0);
    memset(boot.anon, (int)n, ANON_PAGES / 2 * PAGE); /* the same number of pages */
}
/* Memory that was mapped over in one turn is written in the next: after a restore it would have to
 * be watched, too. */
static void map_over_and_write_later(unsigned n) {
    if (n % 2 == 0) {
        map_over_bss_raw(0);
    } else {
        bss_page(0)[77] ^= 0x10;
    }
}
static void map_file_over_anon(unsigned n) {
    int fd = open("/etc/passwd", O_RDONLY);
    mmap(boot.anon + n * PAGE, PAGE, BOTH, MAP_PRIVATE | MAP_FIXED, fd, 0);
    close(fd);
}
static void map_over_stack(unsigned n) {
    uintptr_t page = (board->frame / PAGE - 200 - n) * PAGE;
    raw(SYS_mmap, (long)page, PAGE, BOTH, PRIVATE | MAP_FIXED, -1, 0);
}
static void unmap_anon(unsigned n) {
    munmap(boot.anon, ANON_PAGES * PAGE - n);
}
static void unmap_anon_raw(unsigned n) {
    raw(SYS_munmap, (long)boot.anon, ANON_PAGES * PAGE - n, 0, 0, 0, 0);
}
static void unmap_part(unsigned n) {
    munmap(boot.anon + 8 * PAGE, (1 + n) * PAGE);
}
static void unmap_empty_page(unsigned n) {
    munmap(boot.anon + (9 + 2 * n) * PAGE, PAGE);
}
static void unmap_bss(unsigned n) {
    munmap(bss_page(n), PAGE);
}
static void unmap_read_only(unsigned n) {
    munmap(boot.readonly, PAGE - n);
}
static void unmap_none(unsigned n) {
    munmap(boot.none, PAGE - n);
}
static void unmap_shared(unsigned n) {
    munmap(boot.shared, PAGE - n);
}
static void unmap_and_map_again(unsigned n) {
    munmap(boot.anon, ANON_PAGES * PAGE);
    mmap(boot.anon, ANON_PAGES * PAGE, BOTH, PRIVATE | MAP_FIXED, -1, 0);
    memset(boot.anon, (int)n, PAGE);
}
static void move_anon(unsigned n) {
    if (mremap(boot.anon, ANON_PAGES * PAGE, (ANON_PAGES + 10 + n) * PAGE, MREMAP_MAYMOVE) ==
        MAP_FAILED) {
        give_up("mremap");
    }
}
static void move_anon_raw(unsigned n) {
    raw(SYS_mremap, (long)boot.anon, ANON_PAGES * PAGE, (ANON_PAGES + 2000 + n) * PAGE,
        MREMAP_MAYMOVE, 0, 0);
}
static void shrink_anon(unsigned n) {
    mremap(boot.anon, ANON_PAGES * PAGE, (ANON_PAGES - 1 - n) * PAGE, 0);
}

/* --- protection --- */

static void protect_anon(unsigned n) {
    static const int protections[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE | PROT_EXEC};
    boot.anon[0] ^= 1;
    mprotect(boot.anon, ANON_PAGES * PAGE, protections[n % 3]);
}
static void protect_pages(unsigned n) {
    boot.anon[10 * PAGE] = 1;
    mprotect(boot.anon + 10 * PAGE, PAGE, n % 2 == 0 ? PROT_NONE : PROT_READ);
    mprotect(boot_bss + 9 * PAGE, 3 * PAGE, PROT_READ);
    mprotect(boot_data + 9 * PAGE, 3 * PAGE, PROT_NONE);
}
static void protect_raw(unsigned n) {
    boot.anon[10 * PAGE] = 1;
    raw(SYS_mprotect, (long)boot.anon + 10 * PAGE, PAGE, n % 2 == 0 ? PROT_NONE : PROT_READ, 0, 0,
        0);
}
static void protect_and_back(unsigned n) {
    mprotect(boot.anon, 20 * PAGE, PROT_READ);
    mprotect(boot.anon, 20 * PAGE, BOTH);
    boot.anon[n] = 0x88;
}
/* Memory that was read-only at the snapshot is written, and read-only again. */
static void write_read_only(unsigned n) {
    mprotect(boot.readonly, PAGE, BOTH);
    boot.readonly[n] ^= 0xff;
    mprotect(boot.readonly, PAGE, PROT_READ);
}
static void write_read_only_and_leave(unsigned n) {
    mprotect(boot.readonly, PAGE, BOTH);
    boot.readonly[n] ^= 0xff;
}
static void write_read_only_raw(unsigned n) {
    raw(SYS_mprotect, (long)boot.readonly, PAGE, BOTH, 0, 0, 0);
    boot.readonly[n] ^= 0xff;
    raw(SYS_mprotect, (long)boot.readonly, PAGE, PROT_READ, 0, 0, 0);
}
static void write_none(unsigned n) {
    mprotect(boot.none, PAGE, BOTH);
    boot.none[n] ^= 0xff;
    mprotect(boot.none, PAGE, PROT_NONE);
}
static void write_code(unsigned n) {
    uintptr_t page = (uintptr_t)on_boot_signal / PAGE * PAGE;
    mprotect((void *)page, 2 * PAGE, BOTH | PROT_EXEC);
    *(unsigned char *)(uintptr_t)on_boot_signal = (unsigned char)(0xcc + n);
    mprotect((void *)page, 2 * PAGE, PROT_READ | PROT_EXEC);
}

/* --- pages thrown away --- */

static void discard_each(int advice, bool behind_the_back, unsigned n) {
    unsigned char *const pages[] = {bss_page(n), boot_data + (5 + n) * PAGE,
        boot.anon + (4 + 2 * n) * PAGE,
        (unsigned char *)(((uintptr_t)boot.large + 8 * PAGE) / PAGE * PAGE),
        boot.file + (2 + 2 * (n % 4)) * PAGE};
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        if (behind_the_back) {
            raw(SYS_madvise, (long)pages[i], PAGE, advice, 0, 0, 0);
        } else {
            madvise(pages[i], PAGE, advice);
        }
    }
}
static void discard(unsigned n) {
    discard_each(MADV_DONTNEED, false, n);
}
static void discard_raw(unsigned n) {
    discard_each(MADV_DONTNEED, true, n);
}
static void discard_free(unsigned n) {
    discard_each(MADV_FREE, false, n);
}
static void discard_and_write(unsigned n) {
    discard_each(MADV_DONTNEED, n % 2 == 0, n);
    boot_bss[50 * PAGE]++;
    boot.anon[7 * PAGE]++;
}
static void discard_and_see_zero(unsigned n) {
    unsigned char *page = bss_page(n);
    page[n] ^= 1;
    madvise(page, 2 * PAGE, MADV_DONTNEED);
    check(page[n] == 0 && page[PAGE] == 0, "a page that was thrown away is zero");
    page[PAGE + 1] = 3;
}
/* One page is removed and another added: the sum stays the same. */
static void discard_balanced(unsigned n) {
    raw(SYS_madvise, (long)bss_page(n), PAGE, MADV_DONTNEED, 0, 0, 0);
    boot_bss[GLOBAL_LEN - (1 + n) * PAGE] = 1;
}
static void discard_and_read(unsigned n) {
    raw(SYS_madvise, (long)bss_page(n), PAGE, MADV_DONTNEED, 0, 0, 0);
    volatile unsigned char *at = bss_page(n);
    /* The snapshot's, and not zero: docs/decisions/0012-snapshot-in-a-file.md */
    check(*at != 0, "a page that a raw system call threw away shows the snapshot");
}
static void discard_and_write_again(unsigned n) {
    unsigned char *at = bss_page(n), copy[64];
    memcpy(copy, at, sizeof copy);
    raw(SYS_madvise, (long)at, PAGE, MADV_DONTNEED, 0, 0, 0);
    memcpy(at, copy, sizeof copy);
}
static void free_and_page_out(unsigned n) {
    raw(SYS_madvise, (long)boot.anon + 2 * n * PAGE, 3 * PAGE, MADV_FREE, 0, 0, 0);
    raw(SYS_madvise, (long)boot.anon + 2 * n * PAGE, 3 * PAGE, 21 /* MADV_PAGEOUT */, 0, 0, 0);
}
static void discard_caller_stack(unsigned n) {
    uintptr_t page = (board->frame + PAGE + n) / PAGE * PAGE;
    raw(SYS_madvise, (long)page, PAGE, MADV_DONTNEED, 0, 0, 0);
}
static void install_guard(unsigned n) {
    madvise(boot.anon + 2 * n * PAGE, PAGE, 102 /* MADV_GUARD_INSTALL */);
}
static void collapse(unsigned n) {
    raw(SYS_madvise, (long)boot.chunk, CHUNK, 25 /* MADV_COLLAPSE */, 0, 0, 0);
    boot.chunk[n * PAGE] ^= 1;
}
/* What a request's forks would get of memory, which no file of /proc/self but smaps shows. */
static void hide_from_forks(unsigned n) {
    madvise(boot.anon + 2 * n * PAGE, PAGE, MADV_DONTFORK);
}
/* A file's mapping refuses it, so it is the middle that the boot never touched. */
static unsigned char *untouched(void) {
    return boot.huge + HUGE / 2 / PAGE * PAGE;
}
static void wipe_for_forks(unsigned n) {
    madvise(untouched() + n * PAGE, PAGE, MADV_WIPEONFORK);
}
static void hide_from_core_dumps(unsigned n) {
    syscall(SYS_madvise, boot.anon + 2 * n * PAGE, PAGE, MADV_DONTDUMP);
}
static void hide_code_from_forks(unsigned n) {
    uintptr_t page = (uintptr_t)on_boot_signal / PAGE * PAGE;
    madvise((void *)(page + n * PAGE), PAGE, MADV_DONTFORK);
}
static void hide_own_from_forks(unsigned n) {
    madvise(map_anonymous((2 + n) * PAGE, BOTH, PRIVATE), PAGE, MADV_DONTFORK);
}
/* More mappings than the engine notes. */
static void hide_one_of_many_from_forks(unsigned n) {
    enum { MANY = 80 };
    for (int i = 0; i < MANY; i++) {
        hide_own_from_forks(n);
    }
}
/* A fork has the boot's memory, and what it writes to it. */
static void verify_forks(void) {
    pid_t pid = fork();
    if (pid == 0) {
        untouched()[0] = 9;
        if (fork() == 0) {
            _exit(untouched()[0] == 9 && boot.anon[0] == 1 ? 0 : 1);
        }
        int status = 1;
        wait(&status);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
    }
    int status = 1;
    check(
        waitpid(pid, &status, 0) == pid && status == 0, "a fork has the boot's memory: %x", status);
}

static void lock_memory(unsigned n) {
    if (n % 2 == 0) {
        mlock(boot.anon, 16 * PAGE);
    } else {
        mlockall(MCL_CURRENT);
    }
}
static void merge_pages(unsigned n) {
    madvise(boot.anon, ANON_PAGES * PAGE, MADV_MERGEABLE);
    boot.anon[n]++;
}

/* mlockall() brings in all of it, the engine's reserve too. */
static const char *has_memory_to_lock(void) {
    return memory_free() >= 1 << 20 ? NULL : "less than 1 GB of memory free";
}

static const struct test_case cases[] = {
    {.name = "a mapping is left", .request = leave_one},
    {.name = "an untouched mapping is left", .request = leave_empty},
    {.name = "300 mappings are left", .request = leave_many, .flags = HEAVY},
    {.name = "a mapping made by a raw system call is left", .request = leave_raw},
    {.name = "an executable mapping is left", .request = leave_executable},
    {.name = "shared memory is left", .request = leave_shared},
    {.name = "locked memory is left", .request = leave_locked},
    {.name = "a mapped file is left", .request = leave_file},
    {.name = "a mapping beside a boot mapping is left", .request = leave_beside_boot},
    {.name = "mappings that come, grow and go", .request = come_and_go},
    {.name = "a System V segment is left", .request = shared_memory_segment},
    {.name = "a mapping over .bss", .request = map_over_bss, .outcome = EITHER},
    {.name = "a mapping over .bss by a raw system call",
        .request = map_over_bss_raw,
        .outcome = EITHER,
        .flags = COUNTED},
    {.name = "a mapping over an empty page by a raw system call",
        .request = map_over_empty_page,
        .outcome = EITHER,
        .flags = RAW},
    {.name = "a mapping over all of a boot mapping by a raw system call",
        .request = map_over_whole_anon,
        .outcome = EITHER,
        .flags = COUNTED},
    {.name = "a mapping over .bss, written in the next turn",
        .request = map_over_and_write_later,
        .outcome = EITHER,
        .flags = COUNTED},
    {.name = "a file mapped over a boot mapping",
        .request = map_file_over_anon,
        .outcome = RETIRES},
    {.name = "a mapping over the dead stack", .request = map_over_stack, .outcome = EITHER},
    {.name = "a boot mapping is unmapped", .request = unmap_anon, .outcome = RETIRES},
    {.name = "a boot mapping is unmapped by a raw system call",
        .request = unmap_anon_raw,
        .outcome = RETIRES},
    {.name = "a part of a boot mapping is unmapped", .request = unmap_part, .outcome = RETIRES},
    {.name = "an empty page of a boot mapping is unmapped",
        .request = unmap_empty_page,
        .outcome = RETIRES},
    {.name = "a page of .bss is unmapped", .request = unmap_bss, .outcome = RETIRES},
    {.name = "a read-only boot mapping is unmapped",
        .request = unmap_read_only,
        .outcome = RETIRES},
    {.name = "a boot mapping without access is unmapped",
        .request = unmap_none,
        .outcome = RETIRES},
    {.name = "a shared boot mapping is unmapped", .request = unmap_shared, .outcome = RETIRES},
    {.name = "a boot mapping is unmapped and mapped again",
        .request = unmap_and_map_again,
        .outcome = EITHER},
    {.name = "a boot mapping is moved", .request = move_anon, .outcome = RETIRES},
    {.name = "a boot mapping is moved by a raw system call",
        .request = move_anon_raw,
        .outcome = EITHER}, /* refused where the mapping is several for the kernel */
    {.name = "a boot mapping shrinks", .request = shrink_anon, .outcome = RETIRES},
    {.name = "a boot mapping is protected", .request = protect_anon, .flags = LAST},
    {.name = "pages of boot mappings are protected", .request = protect_pages, .flags = LAST},
    {.name = "a page is protected by a raw system call",
        .request = protect_raw,
        .flags = RAW | LAST},
    {.name = "a boot mapping is protected and unprotected", .request = protect_and_back},
    {.name = "read-only memory is written and protected again",
        .request = write_read_only,
        .outcome = EITHER},
    {.name = "read-only memory is written",
        .request = write_read_only_and_leave,
        .outcome = EITHER},
    {.name = "read-only memory is written behind the back",
        .request = write_read_only_raw,
        .outcome = EITHER,
        .flags = RAW},
    {.name = "memory without access is written", .request = write_none, .outcome = EITHER},
    {.name = "code is written", .request = write_code, .outcome = EITHER},
    {.name = "pages are thrown away", .request = discard},
    {.name = "pages are thrown away by a raw system call", .request = discard_raw},
    {.name = "pages are given up with MADV_FREE", .request = discard_free},
    {.name = "pages are thrown away, others written", .request = discard_and_write},
    {.name = "pages that were thrown away are zero for the request",
        .request = discard_and_see_zero},
    {.name = "a page is thrown away, another comes", .request = discard_balanced},
    {.name = "a page is thrown away and read", .request = discard_and_read},
    {.name = "a page is thrown away and partly written", .request = discard_and_write_again},
    {.name = "pages are freed lazily and paged out by raw system calls",
        .request = free_and_page_out},
    {.name = "a page of the callers' stack is thrown away", .request = discard_caller_stack},
    {.name = "guard pages are installed in a boot mapping",
        .request = install_guard,
        .outcome = EITHER},
    {.name = "a boot chunk is collapsed into a huge page", .request = collapse, .outcome = EITHER},
    {.name = "boot memory is locked",
        .request = lock_memory,
        .outcome = EITHER,
        .flags = ALONE,
        .prepare = has_memory_to_lock},
    {.name = "forks are to lack boot memory",
        .request = hide_from_forks,
        .outcome = RETIRES,
        .verify = verify_forks},
    {.name = "forks are to find boot memory empty",
        .request = wipe_for_forks,
        .outcome = RETIRES,
        .verify = verify_forks},
    {.name = "core dumps are to lack boot memory",
        .request = hide_from_core_dumps,
        .outcome = RETIRES},
    {.name = "forks are to lack code of the boot",
        .request = hide_code_from_forks,
        .outcome = RETIRES},
    {.name = "forks are to lack memory of the request", .request = hide_own_from_forks},
    {.name = "forks are to lack memory of the request, which has many mappings",
        .request = hide_one_of_many_from_forks},
    {.name = "boot memory may be merged", .request = merge_pages, .outcome = EITHER},
};
const struct case_list mapping_cases = CASE_LIST(cases);
