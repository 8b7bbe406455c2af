/* Cases with much memory and little room: an exhausted address space, a heap of 1 GB, 60,000
 * mappings. A case that this machine cannot run says so. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot.h"

/* The limit of the process's control group, in bytes; 0: it cannot be read; -1: there is none. */
static long group_limit(void) {
    char line[256], path[512];
    FILE *groups = fopen("/proc/self/cgroup", "re");
    long limit = -1;
    while (groups != NULL && fgets(line, sizeof line, groups) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const char *group = strrchr(line, ':');
        bool second = strncmp(line, "0::", 3) == 0;
        if (group == NULL || (!second && strstr(line, ":memory:") == NULL)) {
            continue;
        }
        snprintf(path, sizeof path, "/sys/fs/cgroup%s%s/%s", second ? "" : "/memory", group + 1,
            second ? "memory.max" : "memory.limit_in_bytes");
        long found = number_of(path, ""); /* 0: max */
        bool hidden = found < 0 && strcmp(group + 1, "/") != 0;
        limit = hidden ? 0 : found > 0 ? found : limit;
    }
    if (groups != NULL) {
        fclose(groups);
    }
    return limit;
}

long memory_free(void) {
    long available = number_of("/proc/meminfo", "MemAvailable:");
    long limit = group_limit();
    return limit >= 0 && limit / 1024 < available ? limit / 1024 : available;
}

/* --- little address space --------------------------------------------------------------------------------------------------------------- */

static void limit_address_space(uint64_t more) {
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)number_of("/proc/self/status", "VmSize:") * 1024 + more;
    raw(SYS_prlimit64, 0, RLIMIT_AS, (long)&limit, 0, 0, 0);
}
static void boot_little_address_space(void) {
    limit_address_space(64 << 20);
}
/* Allocates until no memory is left, also for the restore. */
static void use_up_address_space(unsigned n) {
    boot_bss[n * PAGE] ^= 1;
    for (size_t len = 32 << 20; len >= (size_t)PAGE; len /= 2) {
        void *at;
        while ((at = mmap(NULL, len, BOTH, PRIVATE, -1, 0)) != MAP_FAILED) {
            ((unsigned char *)at)[0] = (unsigned char)n;
        }
    }
    for (size_t len = 1 << 20; len >= 16; len /= 2) {
        void *at;
        while ((at = malloc(len)) != NULL) {
            ((unsigned char *)at)[0] = (unsigned char)n;
        }
    }
    check(errno == ENOMEM, "the address space is not used up: %s", strerror(errno));
}
/* Sets the limit as prlimit(1) does. */
static void limited_by_child(unsigned n) {
    pid_t target = getpid(), pid = fork();
    if (pid == 0) {
        struct rlimit limit = {(256 << 20) + n, (rlim_t)1 << 40};
        raw(SYS_prlimit64, target, RLIMIT_AS, (long)&limit, 0, 0, 0);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    boot_bss[n * PAGE] ^= 1;
}

/* --- no descriptors --------------------------------------------------------------------------------------------------------------------- */

static void boot_few_descriptors(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 300;
    raw(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)&limit, 0, 0, 0);
}
static int count_down(void *argument) {
    usleep(2000);
    *(volatile unsigned char *)argument ^= 0x3d;
    _exit(0);
}
/* The restore has none to read /proc with, and a child in its memory may still write. */
static void use_up_descriptors(unsigned n) {
    static char stack[1 << 16];
    while (open("/dev/null", O_RDONLY) >= 0) {
    }
    check(errno == EMFILE, "descriptors are not used up: %s", strerror(errno));
    if (n % 2 == 1) {
        clone(count_down, stack + sizeof stack, CLONE_VM | SIGCHLD, boot_bss + 9 * PAGE);
    }
    boot_bss[n * PAGE] ^= 1;
}

/* --- a heap of 1 GB --------------------------------------------------------------------------------------------------------------------- */

static const size_t HEAP = (size_t)1 << 30;
static unsigned char *heap;

static const char *has_3_gb(void) {
    return memory_free() >= 3 << 20 ? NULL : "less than 3 GB of memory free";
}
static uint64_t word_of(size_t at) {
    return (at ^ 0x5bd1e995) * 0x9e3779b97f4a7c15;
}
static void boot_heap(void) {
    heap = malloc(HEAP);
    for (size_t at = 0; at < HEAP; at += 8) {
        *(uint64_t *)(void *)(heap + at) = word_of(at);
    }
}
static size_t place_of(unsigned n, size_t i) {
    return (word_of(i * 64 + n) % (HEAP / 8)) * 8;
}
static void write_heap(unsigned n) {
    for (size_t i = 0; i < 500; i++) {
        *(uint64_t *)(void *)(heap + place_of(n, i)) = 0;
    }
    if (n == 2) {
        free(heap); /* its first words become malloc's, the rest is free */
        memset(malloc(HEAP / 2), 0x10, HEAP / 4);
    }
}
/* A word of each page, and all that was written. */
static void verify_heap(void) {
    size_t wrong = 0;
    for (size_t at = 0; at < HEAP; at += (size_t)PAGE) {
        wrong += *(uint64_t *)(void *)(heap + at) != word_of(at);
    }
    for (unsigned n = 0; n < board->damaged; n++) {
        for (size_t i = 0; i < 500; i++) {
            wrong += *(uint64_t *)(void *)(heap + place_of(n, i)) != word_of(place_of(n, i));
        }
    }
    check(wrong == 0, "%zu words of the heap differ", wrong);
}

/* --- 60,000 mappings -------------------------------------------------------------------------------------------------------------------- */

enum { MAPPINGS = 60000, WRITABLE = 12000 };
static unsigned char *mappings;

static const char *allows_mappings(void) {
    char line[64];
    return read_line("/proc/sys/vm/max_map_count", line, sizeof line) && atol(line) >= 65530
               ? NULL
               : "vm.max_map_count is below 65530";
}
/* Every other page has no access, and keeps its neighbours apart. Returns how many mappings there are. */
static size_t split(unsigned char *at, size_t count, size_t writable) {
    for (size_t i = 0; i < count / 2; i++) {
        if (raw(SYS_mprotect, (long)(at + 2 * i * PAGE), PAGE, i < writable ? BOTH : PROT_READ, 0,
                0, 0) != 0) {
            return 2 * i;
        }
    }
    return count;
}
static void boot_mappings(void) {
    mappings = map_anonymous((size_t)MAPPINGS * PAGE, PROT_NONE, PRIVATE | MAP_NORESERVE);
    if (split(mappings, MAPPINGS, WRITABLE) != MAPPINGS) {
        give_up("mprotect");
    }
    for (size_t i = 0; i < WRITABLE; i++) {
        memset(mappings + 2 * i * PAGE, (int)(i | 1) & 0xff, PAGE);
    }
}
static void write_mappings(unsigned n) {
    for (size_t i = n; i < WRITABLE; i += 7) {
        mappings[2 * i * PAGE + n] ^= 0x80;
    }
    map_anonymous((1 + n) * PAGE, BOTH, PRIVATE)[0] = 1;
}
static void verify_mappings(void) {
    size_t wrong = 0;
    for (size_t i = 0; i < WRITABLE; i++) {
        const unsigned char *page = mappings + 2 * i * PAGE;
        wrong += page[0] != (unsigned char)(i | 1) || memcmp(page, page + 1, 16) != 0;
    }
    check(wrong == 0, "%zu of the boot's mappings differ", wrong);
}
static void leave_mappings(unsigned n) {
    unsigned char *at = map_anonymous((size_t)MAPPINGS * PAGE, PROT_NONE, PRIVATE | MAP_NORESERVE);
    check(split(at, MAPPINGS, MAPPINGS) == MAPPINGS, "mprotect()");
    at[0] = at[(size_t)(MAPPINGS - 2) * PAGE] = (unsigned char)n;
    boot_bss[n * PAGE] ^= 1;
}
/* At the kernel's limit: no further mapping is possible. */
static void leave_all_mappings(unsigned n) {
    long at = raw(SYS_mmap, 0, 70000L * PAGE, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0);
    check(at > 0 && split((unsigned char *)at, 70000, 0) < 70000, "the limit is not reached");
    boot_bss[n * PAGE] ^= 1;
}

static const struct test_case cases[] = {
    {.name = "a request uses up the address space",
        .request = use_up_address_space,
        .flags = ALONE,
        .boot = boot_little_address_space},
    {.name = "a child limits its parent's address space",
        .request = limited_by_child,
        .outcome = EITHER,
        .flags = ALONE},
    {.name = "a request uses up the descriptors",
        .request = use_up_descriptors,
        .outcome = EITHER,
        .flags = ALONE,
        .boot = boot_few_descriptors},
    {.name = "a heap of 1 GB",
        .request = write_heap,
        .flags = ALONE | UNSEEN,
        .boot = boot_heap,
        .verify = verify_heap,
        .prepare = has_3_gb},
    {.name = "60,000 mappings of the boot",
        .request = write_mappings,
        .flags = ALONE | UNSEEN,
        .boot = boot_mappings,
        .verify = verify_mappings,
        .turns = 5,
        .prepare = allows_mappings},
    {.name = "60,000 mappings are left",
        .request = leave_mappings,
        .flags = ALONE,
        .turns = 5,
        .prepare = allows_mappings},
    {.name = "as many mappings are left as the kernel allows",
        .request = leave_all_mappings,
        .flags = ALONE | RAW,
        .outcome = EITHER,
        .turns = 5,
        .prepare = allows_mappings},
};
const struct case_list limit_cases = CASE_LIST(cases);
