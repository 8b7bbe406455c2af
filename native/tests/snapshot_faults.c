/* Tests that each system call of snapshot_share(), of snapshot_take() and of a restore may fail, as if memory, mappings or
 * descriptors had run out. The process must retire and report the reason once, or continue with every byte and descriptor equal to
 * the snapshot.
 *
 * A tracer (the parent) counts the calls of a phase and lets one of them fail. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot.h"

#if defined(__x86_64__)
#include <sys/user.h>
#else
#include <asm/ptrace.h>
#include <elf.h>
#endif

enum { TURNS = 5, MARK = 0x48656172 };

/* A system call that does nothing: here a phase begins. */
static void mark(void) {
    raw(SYS_getpgid, MARK, 0, 0, 0, 0, 0);
}

/* --- the process ------------------------------------------------------------------------------------------------------------------------ */

/* Something for each part of a restore. */
static void some_of_everything(unsigned n) {
    struct area areas[AREAS];
    list_areas(areas);
    for (size_t i = 0; i < AREAS; i++) {
        areas[i].at[n * PAGE + i] ^= 0x2a;
    }
    unsigned char *own =
        mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    own[0] = 1;
    raw(SYS_mmap, 0, 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(boot.anon + 2 * PAGE, PAGE, PROT_READ);
    madvise(boot.anon + 8 * PAGE, 4 * PAGE, MADV_DONTNEED);
    sbrk(5 * PAGE);
    open("/dev/null", O_RDONLY);
    lseek(boot.regular, 7, SEEK_SET);
    close(dup(boot.regular));
    fcntl(boot.regular, F_SETFD, FD_CLOEXEC);
    if (chdir("/") != 0) {
        give_up("chdir");
    }
    signal(SIGUSR1, SIG_IGN);
    alarm(1000);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    board->complete = n == 1;
    mark();
}

/* --- the tracer ------------------------------------------------------------------------------------------------------------------------- */

struct call {
    uint64_t number, first, second;
};

#if defined(__x86_64__)
static struct call call_of(pid_t pid) {
    struct user_regs_struct registers;
    ptrace(PTRACE_GETREGS, pid, 0, &registers);
    return (struct call){registers.orig_rax, registers.rdi, registers.rsi};
}
/* At the entry: the kernel skips the call. */
static void refuse(pid_t pid) {
    ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, orig_rax), -1L);
}
/* At the entry, another call replaces it. At the exit, the register must contain the compiler's value again. */
static void set_first(pid_t pid, uint64_t value) {
    ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rdi), value);
}
static void answer(pid_t pid, long result) {
    ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rax), result);
}
#else
static void use_registers(pid_t pid, int request, struct user_pt_regs *registers) {
    struct iovec part = {registers, sizeof *registers};
    ptrace((enum __ptrace_request)request, pid, NT_PRSTATUS, &part);
}
static struct call call_of(pid_t pid) {
    struct user_pt_regs registers;
    use_registers(pid, PTRACE_GETREGSET, &registers);
    return (struct call){registers.regs[8], registers.regs[0], registers.regs[1]};
}
static void refuse(pid_t pid) {
    int none = -1;
    struct iovec part = {&none, sizeof none};
    ptrace(PTRACE_SETREGSET, pid, 0x404 /* NT_ARM_SYSTEM_CALL */, &part);
}
static void answer(pid_t pid, long result) {
    struct user_pt_regs registers;
    use_registers(pid, PTRACE_GETREGSET, &registers);
    registers.regs[0] = (uint64_t)result;
    use_registers(pid, PTRACE_SETREGSET, &registers);
}
static void set_first(pid_t pid, uint64_t value) {
    if (value == 0) { /* the register of the result is that of the first argument */
        answer(pid, 0);
    }
}
#endif

/* How the kernel refuses a call that has the right arguments; 0: it never does. */
static int refusal_of(const struct call *call) {
    switch (call->number) {
    case SYS_mmap:
    case SYS_munmap:
    case SYS_mprotect:
    case SYS_madvise:
    case SYS_openat:
    case SYS_unshare:
    case SYS_read: /* /proc: the kernel needs memory for the text */
    case SYS_pread64:
        return ENOMEM;
    case SYS_memfd_create:
        return EMFILE;
    case SYS_fcntl:
        return call->second == F_DUPFD_CLOEXEC || call->second == F_DUPFD ? EMFILE
               : call->second == F_ADD_SEALS                              ? EBUSY /* for a moment */
                                                                          : 0;
    case SYS_ftruncate:
    case SYS_pwrite64:
        return ENOSPC;
    default:
        return 0;
    }
}

/* Runs to the next stop. Returns false when the process has ended. */
static bool go(pid_t pid, int how, int signal, int *status) {
    ptrace((enum __ptrace_request)how, pid, 0, (long)signal);
    return waitpid(pid, status, 0) == pid && WIFSTOPPED(*status);
}

static bool is_call(int status) {
    return WSTOPSIG(status) == (SIGTRAP | 0x80);
}

static bool is_mark(const struct call *call) {
    return call->number == SYS_getpgid && call->first == MARK;
}

struct failure {
    long number; /* -1: none */
    int error;
};

/* Lets the `wanted`th call of the phase that begins here fail. Returns how many there were before the phase's end or the failure, which is written to *failed. */
static unsigned fail_one(pid_t pid, unsigned wanted, int *status, struct failure *failed) {
    unsigned seen = 0;
    while (go(pid, PTRACE_SYSCALL, 0, status) && is_call(*status)) { /* the entry */
        const struct call call = call_of(pid);
        if (is_mark(&call)) {
            break;
        }
        bool moves_end = call.number == SYS_brk && call.first != 0;
        int error = moves_end ? ENOMEM : refusal_of(&call);
        bool chosen = error != 0 && seen++ == wanted;
        if (chosen) {
            *failed = (struct failure){(long)call.number, error};
            if (moves_end) {
                set_first(pid, 0); /* brk() answers with the end that there is */
            } else {
                refuse(pid);
            }
        }
        if (!go(pid, PTRACE_SYSCALL, 0, status) || !is_call(*status)) {
            break;
        }
        if (chosen) {
            if (moves_end) {
                set_first(pid, call.first);
            } else {
                answer(pid, -error);
            }
            break;
        }
    }
    return seen;
}

enum phase { SHARE, TAKE, RESTORE, RESTORE_COMPLETE, PHASES };
static const char *const phase_names[PHASES] = {
    "sharing", "taking", "a restore", "a complete restore"};

static _Noreturn void be_traced(const struct test_case *c, bool shares, enum phase phase) {
    static const struct variant variant = {.name = "default"};
    signal(SIGALRM, SIG_DFL);
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    build_scenery();
    if (shares) {
        const char *why;
        if (phase == SHARE) {
            mark();
        }
        bool shared = snapshot_share(NULL, 0, &why);
        if (phase == SHARE) {
            mark();
        }
        check(shared || *why != '\0', "a refusal has no reason");
    }
    if (phase == TAKE) {
        mark();
    }
    live_case(c, &variant);
    _exit(1);
}

/* Returns whether the tested phase begins at this stop: a mark has just been entered. */
static bool begins(pid_t pid, enum phase phase) {
    const struct call call = call_of(pid);
    if (!is_mark(&call)) {
        return false;
    }
    return phase <= TAKE ? board->turn == 0 : board->damaged == (phase == RESTORE ? 1 : 2);
}

/* Runs one process with one failure. Returns false if the phase has no such call. */
static bool try_failure(const struct test_case *c, enum phase phase, unsigned wanted) {
    clear_board(c->name, phase_names[phase]);
    pid_t pid = fork();
    if (pid == 0) {
        be_traced(c, wanted % 2 == 0 || phase == SHARE, phase);
    }
    watch(pid, 60);
    int status;
    struct failure failed = {-1, 0};
    bool begun = false, baseline = false;
    waitpid(pid, &status, 0);
    ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    int signal = 0;
    while (go(pid, begun ? PTRACE_CONT : PTRACE_SYSCALL, signal, &status)) {
        signal = 0;
        if (is_call(status)) {
            if (!begun && begins(pid, phase)) {
                begun = true;
                go(pid, PTRACE_SYSCALL, 0, &status); /* out of the mark */
                fail_one(pid, wanted, &status, &failed);
                if (!WIFSTOPPED(status)) {
                    break;
                }
            }
            if (is_call(status)) {
                continue;
            }
        }
        if (WSTOPSIG(status) != SIGSTOP) {
            signal = WSTOPSIG(status);
        } else if (!baseline) {
            baseline = true;
            inspector_baseline(pid);
        } else {
            inspector_compare();
        }
    }
    alarm(0);
    inspector_close();
    int length = (int)strlen(board->name);
    snprintf(board->name + length, sizeof board->name - (size_t)length, ", call %u (number %d)",
        wanted, (int)failed.number);
    check(failed.error != EBUSY || board->said == 0, "the call was not repeated: %s",
        board->last_said);
    bool at_boot =
        WIFEXITED(status) && WEXITSTATUS(status) == SNAPSHOT_EXIT_RETIRED && board->damaged == 0;
    if (at_boot) {
        check(board->said == 1 && board->last_said[0] != '\0', "retired, and said %u times why",
            board->said);
    } else {
        judge(c, status);
    }
    return failed.number >= 0;
}

void test_faults(void) {
    static const struct test_case c = {
        .name = "a call fails", .request = some_of_everything, .outcome = EITHER, .turns = TURNS};
    unsigned step = is_quick() ? 11 : 3; /* other ones in each run */
    for (enum phase phase = SHARE; phase < PHASES; phase++) {
        unsigned tried = 0;
        for (unsigned wanted = (unsigned)(random_number() % step);; wanted += step) {
            uint32_t failures = board->failures;
            if (!try_failure(&c, phase, wanted)) {
                break;
            }
            count_case(failures);
            tried++;
        }
        check(tried > 0, "%s makes no call that could fail", phase_names[phase]);
        printf("snapshot: %u calls of %s failed, one by one\n", tried, phase_names[phase]);
    }
}
