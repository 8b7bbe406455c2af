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
/* A function that returns a number. */
static void write_code(unsigned number) {
#if defined(__x86_64__)
    const unsigned char code[] = {0xb8, (unsigned char)number, 0, 0, 0, 0xc3}; /* mov eax; ret */
#else
    const uint32_t code[] = {0x52800000 | number << 5, 0xd65f03c0}; /* mov w0; ret */
#endif
    memcpy(memory, code, sizeof code);
    __builtin___clear_cache((char *)memory, (char *)memory + sizeof code);
}
static unsigned run_code(void) {
    unsigned (*function)(void);
    memcpy(&function, &memory, sizeof function);
    return function();
}
static void boot_code(void) {
    boot_executable();
    write_code(7);
    check(run_code() == 7, "the boot's code runs");
}
static void throw_code_away(unsigned n) {
    write_code(100 + n);
    check(run_code() == 100 + n, "the request's code runs");
    madvise(memory, PAGE, MADV_DONTNEED);
    if (n % 2 == 1) {
        write_code(50 + n);
        check(run_code() == 50 + n, "the request's code runs again");
    }
}
static void verify_code(void) {
    check(run_code() == 7, "code of a request runs: %u", run_code());
}
static void boot_grows_down(void) {
    map_memory(PROT_READ | PROT_WRITE, MAP_GROWSDOWN);
}
static void boot_private_file(void) {
    int fd = memory_file("boot");
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
    {.name = "code of the boot is thrown away, and runs again",
        .request = throw_code_away,
        .flags = ALONE,
        .boot = boot_code,
        .verify = verify_code},
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

void refuse_call(uint32_t number, uint32_t argument, uint32_t error) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, argument, 0, argument == 0 ? 0 : 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
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
        refuse_call(SYS_memfd_create, 0, EPERM);
    } else if (strcmp(what, "seals") == 0) {
        refuse_call(SYS_fcntl, 1033 /* F_ADD_SEALS */, EPERM);
    } else if (strcmp(what, "close-range") == 0) {
        refuse_call(SYS_close_range, 0, EPERM);
    } else if (strcmp(what, "growth") == 0) {
        refuse_call(SYS_ftruncate, 0, ENOSPC);
    } else if (strcmp(what, "writing") == 0) {
        refuse_call(SYS_pwrite64, 0, ENOMEM);
    } else if (strcmp(what, "more-address-space") == 0) {
        rlim_t size = (rlim_t)number_of("/proc/self/status", "VmSize:") * 1024 + (1 << 20);
        limit(RLIMIT_AS, size, size);
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
