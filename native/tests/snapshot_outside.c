/* Cases: others work for the process or upon it: the kernel's asynchronous input and output, signals from outside; and a large boot. */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot.h"

/* A ring that reads a file into a cold page, and stays open. On kernels that forbid rings nothing
 * happens. */
static void read_by_ring(unsigned n) {
    struct io_uring_params params = {.flags = n % 2 == 0 ? 0 : IORING_SETUP_SQPOLL};
    int ring = (int)syscall(SYS_io_uring_setup, 4, &params);
    int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    if (ring < 0 || file < 0) {
        return;
    }
    size_t len = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
    unsigned char *queue =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entries = mmap(NULL, params.sq_entries * sizeof *entries,
        PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    if (queue == MAP_FAILED || entries == MAP_FAILED) {
        give_up("the ring's memory");
    }
    entries[0] = (struct io_uring_sqe){.opcode = IORING_OP_READ,
        .fd = file,
        .addr = (uint64_t)(uintptr_t)(boot_bss + (20 + n) * PAGE),
        .len = 64,
        .flags = n % 3 == 0 ? IOSQE_ASYNC : 0};
    ((uint32_t *)(void *)(queue + params.sq_off.array))[0] = 0;
    __atomic_store_n((uint32_t *)(void *)(queue + params.sq_off.tail), 1, __ATOMIC_RELEASE);
    syscall(SYS_io_uring_enter, ring, 1, n % 2 == 0 ? 1 : 0,
        IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAKEUP, NULL, 0);
}

static void read_by_aio(unsigned n) {
    aio_context_t context = 0;
    int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    if (file < 0 || syscall(SYS_io_setup, 4, &context) != 0) {
        return;
    }
    struct iocb block = {.aio_lio_opcode = IOCB_CMD_PREAD,
        .aio_fildes = (uint32_t)file,
        .aio_buf = (uint64_t)(uintptr_t)(boot_bss + (24 + n) * PAGE),
        .aio_nbytes = 64};
    struct iocb *blocks[] = {&block};
    syscall(SYS_io_submit, context, 1, blocks);
}

/* --- signals from outside --- */

static void count_signal(int number) {
    (void)number;
    ++*(uint32_t *)(void *)board->scratch; /* shared: not put back */
}
static void boot_storm(void) {
    board->signals_come = true;
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pid_t target = getpid(), pid = fork();
    if (pid == 0) {
        if (fork() == 0) { /* an orphan: the process has no child */
            while (getppid() == target) {
            }
            for (int i = 0; i < 2000 && kill(target, SIGUSR1) == 0; i++) {
                usleep(150);
            }
        }
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
static void write_under_fire(unsigned n) {
    for (size_t page = 0; page < GLOBAL_PAGES; page += 3) {
        boot_bss[page * PAGE + n % PAGE] ^= 0x3c;
        boot.large[page * PAGE] = (unsigned char)n;
    }
    if (n % 5 == 0) {
        signal(SIGUSR1, SIG_IGN);
    }
    free(malloc(50000 + n));
}
static void verify_storm(void) {
    if (board->turn == 1500) {
        check(*(uint32_t *)(void *)board->scratch > 20, "signals came: %u",
            *(uint32_t *)(void *)board->scratch);
    }
}

static void boot_count_terminations(void) {
    signal(SIGTERM, count_signal);
}
/* A signal that another process sends while the request blocks it is for the process, not for the
 * request. */
static void blocked_from_outside(unsigned n) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t target = getpid(), pid = fork();
    if (pid == 0) {
        kill(target, SIGTERM);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    if (n % 2 == 1) {
        signal(SIGTERM, SIG_DFL);
    }
}
static void verify_terminations(void) {
    uint32_t came = *(uint32_t *)(void *)board->scratch;
    check(came == board->damaged, "%u of %u signals from outside were delivered", came,
        board->damaged);
}

/* --- a large boot --- */

enum { MANY = 1500 };

static unsigned char *many[MANY], *much;
static void boot_large(void) {
    for (size_t i = 0; i < MANY; i++) {
        /* neighbours of unequal protection: the kernel keeps them apart */
        many[i] = mmap(NULL, PAGE, i % 2 == 0 ? PROT_READ | PROT_WRITE : PROT_READ,
            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (many[i] == MAP_FAILED) {
            give_up("mmap");
        }
        if (i % 2 == 0) {
            many[i][0] = (unsigned char)i;
        }
    }
    much = malloc(60 << 20);
    for (size_t at = 0; at < 60 << 20; at += PAGE) {
        much[at] = (unsigned char)(at / PAGE);
    }
    for (int i = 0; i < 400; i++) {
        if (open("/dev/null", O_RDONLY) < 0) {
            give_up("open");
        }
    }
}
static void write_large(unsigned n) {
    for (size_t i = n % 2 * 2; i < MANY; i += 6) {
        many[i][n] ^= 1;
    }
    for (size_t at = n * PAGE; at < 60 << 20; at += 37 * PAGE) {
        much[at] ^= 1;
    }
    free(much);
}

static const struct test_case cases[] = {
    {.name = "a ring reads into memory", .request = read_by_ring, .outcome = EITHER},
    {.name = "asynchronous reading", .request = read_by_aio, .outcome = EITHER},
    {.name = "a storm of signals",
        .request = write_under_fire,
        .flags = ALONE | SELDOM,
        .boot = boot_storm,
        .verify = verify_storm,
        .turns = 1500},
    {.name = "a signal from outside is not lost",
        .request = blocked_from_outside,
        .flags = ALONE,
        .boot = boot_count_terminations,
        .verify = verify_terminations},
    {.name = "a large boot", .request = write_large, .flags = ALONE | STEADY, .boot = boot_large},
};
const struct case_list outside_cases = CASE_LIST(cases);
