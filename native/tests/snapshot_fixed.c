/* Cases: memory that cannot become a mapping of a file, because it would lose what the boot asked for. And what the kernel or a limit may refuse
 * when a snapshot is taken. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "snapshot.h"

enum { PAGES = 8 };
static unsigned char *memory;

static void map_memory(int protection, int flags) {
    memory = mmap(NULL, PAGES * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED) {
        give_up("mmap");
    }
    for (size_t i = 0; i < (size_t)PAGES / 2 * PAGE; i++) {
        memory[i] = (unsigned char)(i * 13 + 1); /* the rest was never touched */
    }
}

static void advise(int advice) {
    map_memory(PROT_READ | PROT_WRITE, 0);
    if (madvise(memory, PAGES * PAGE, advice) != 0) {
        give_up("madvise");
    }
}

static void boot_wipe_on_fork(void) {
    advise(MADV_WIPEONFORK);
}
static void boot_no_fork(void) {
    advise(MADV_DONTFORK);
}
static void boot_no_dump(void) {
    advise(MADV_DONTDUMP);
}
static void boot_locked(void) {
    map_memory(PROT_READ | PROT_WRITE, 0);
    if (mlock(memory, PAGES * PAGE) != 0) {
        give_up("mlock");
    }
}
static void boot_executable(void) {
    map_memory(PROT_READ | PROT_WRITE | PROT_EXEC, 0);
}
static void boot_grows_down(void) {
    map_memory(PROT_READ | PROT_WRITE, MAP_GROWSDOWN);
}
static void boot_private_file(void) {
    int fd = memfd_create("boot", 0);
    if (fd < 0 || ftruncate(fd, PAGES * PAGE) != 0) {
        give_up("memfd_create");
    }
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED || mlock(memory, PAGE) != 0) {
        give_up("a locked page of a file");
    }
    memset(memory, 7, PAGES / 2 * PAGE);
    close(fd);
}

static void write_memory(unsigned n) {
    for (size_t page = n % 2; page < PAGES; page += 2) {
        memory[page * PAGE + n] ^= 0x5a;
    }
}

static void write_and_throw_away(unsigned n) {
    write_memory(n);
    raw(SYS_madvise, (long)memory, 2 * PAGE, MADV_DONTNEED, 0, 0, 0);
}

static const struct test_case cases[] = {
    {.name = "memory that forks find empty is written",
        .request = write_and_throw_away,
        .boot = boot_wipe_on_fork},
    {.name = "memory that forks do not have is written",
        .request = write_and_throw_away,
        .boot = boot_no_fork},
    {.name = "memory that core dumps leave out is written",
        .request = write_and_throw_away,
        .boot = boot_no_dump},
    {.name = "memory that the boot locked is written",
        .request = write_memory,
        .boot = boot_locked},
    {.name = "memory of a file, locked in part, is written",
        .request = write_memory,
        .boot = boot_private_file},
    {.name = "executable memory of the boot is written",
        .request = write_and_throw_away,
        .boot = boot_executable},
    {.name = "memory that grows downwards is written",
        .request = write_memory,
        .boot = boot_grows_down},
};
const struct case_list fixed_cases = CASE_LIST(cases);

/* --- refusals, in a child of test_arrangement() ----------------------------------------------------------------------------------------- */

static void limit(int what, rlim_t soft, rlim_t hard) {
    const struct rlimit limits = {soft, hard};
    if (setrlimit((__rlimit_resource_t)what, &limits) != 0) {
        give_up("setrlimit");
    }
}

/* Refuses a system call; with `argument` not 0 only if that is its second one. */
static void refuse(uint32_t number, uint32_t argument) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, argument, 0, argument == 0 ? 0 : 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        give_up("seccomp");
    }
}

/* Two for each: a page that was written, and one without access that keeps it apart from the next. */
static void hold_mappings(size_t count) {
    unsigned char *at =
        mmap(NULL, 2 * count * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t i = 0; at != MAP_FAILED && i < count; i++) {
        if (mprotect(at + 2 * i * PAGE, PAGE, PROT_READ | PROT_WRITE) != 0) {
            give_up("mprotect");
        }
        at[2 * i * PAGE] = 1;
    }
}

static void say(const char *what) {
    if (write(STDOUT_FILENO, what, strlen(what)) < 0) {
        _exit(1);
    }
}

int take_refused(const char *what) {
    static unsigned char held[64 * PAGE_LARGEST];
    memset(held, 1, sizeof held);
    if (strcmp(what, "file-size") == 0) {
        limit(RLIMIT_FSIZE, 65536, 65536);
    } else if (strcmp(what, "file-size-soft") == 0) {
        limit(RLIMIT_FSIZE, 65536, RLIM_INFINITY);
    } else if (strcmp(what, "memfd") == 0) {
        refuse(SYS_memfd_create, 0);
    } else if (strcmp(what, "seals") == 0) {
        refuse(SYS_fcntl, 1033 /* F_ADD_SEALS */);
    } else if (strcmp(what, "close-range") == 0) {
        refuse(SYS_close_range, 0);
    } else if (strcmp(what, "mappings") == 0) {
        hold_mappings(20000);
    } else if (strcmp(what, "many-mappings") == 0) {
        hold_mappings(12000);
    } else if (strcmp(what, "pagemap") == 0) {
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* /proc/self belongs to root then: proc(5) */
    } else if (strcmp(what, "address-space") == 0) {
        limit(RLIMIT_AS, 16 << 20, 16 << 20);
    }
    const struct snapshot_options options = {.say = say};
    snapshot_take(&options);
    struct rlimit limits;
    getrlimit(RLIMIT_FSIZE, &limits);
    say(limits.rlim_cur == 65536 ? "taken, the limit is kept" : "taken");
    return 0;
}
