/* Cases: a tracer (a debugger, strace) attaches to the process, stops it, and writes into its memory: in requests and in restores. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot.h"

/* The tracer is a child of the tests, so it is not related to the process. Their messages are in
 * memory that is not cleared for each case. */
enum { TARGETS = 12, QUIET = 0, POKE, POKE_AND_STAY, LEAVE };
struct talk {
    uint32_t command; /* of the process, until the tracer has done it: QUIET then */
    int error;        /* of the tracer, 0: none */
    uint32_t pokes, stops;
    pid_t process;
    uint32_t count;
    uintptr_t targets[TARGETS];
};
static struct talk *talk(void) {
    return (struct talk *)(void *)(board->scratch + 65536);
}

static pid_t tracer;

/* --- the tracer ------------------------------------------------------------------------------------------------------------------------- */

/* Stops the process. Returns false when it has ended. */
static bool stop(pid_t process) {
    int status;
    ptrace(PTRACE_INTERRUPT, process, 0, 0);
    while (waitpid(process, &status, __WALL) == process && WIFSTOPPED(status)) {
        if (status >> 16 == PTRACE_EVENT_STOP) {
            talk()->stops++;
            return true;
        }
        ptrace(PTRACE_CONT, process, 0, (long)WSTOPSIG(status)); /* its own signal */
    }
    return false;
}

static bool poke(pid_t process) {
    struct talk *t = talk();
    if (!stop(process)) {
        return false;
    }
    for (uint32_t i = 0; i < t->count; i++) {
        errno = 0;
        long word = ptrace(PTRACE_PEEKDATA, process, t->targets[i], 0);
        if (errno != 0 || ptrace(PTRACE_POKEDATA, process, t->targets[i], ~word) != 0) {
            t->error = errno;
        }
        t->pokes++;
    }
    return true;
}

static void done(void) {
    __atomic_store_n(&talk()->command, QUIET, __ATOMIC_RELEASE);
}

/* Stops the process again and again until it is ordered to leave. */
static bool stay(pid_t process) {
    bool lives = true;
    ptrace(PTRACE_CONT, process, 0, 0);
    done();
    while (lives && __atomic_load_n(&talk()->command, __ATOMIC_ACQUIRE) == QUIET) {
        lives = stop(process) && ptrace(PTRACE_CONT, process, 0, 0) == 0;
        usleep(200);
    }
    return lives && stop(process);
}

static _Noreturn void trace(void) {
    struct talk *t = talk();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        uint32_t command = __atomic_load_n(&t->command, __ATOMIC_ACQUIRE);
        if (command != POKE && command != POKE_AND_STAY) {
            if (command == LEAVE) {
                done();
            }
            usleep(50);
            continue;
        }
        pid_t process = t->process;
        t->error = ptrace(PTRACE_SEIZE, process, 0, 0) == 0 ? 0 : errno;
        bool lives = t->error == 0 && poke(process);
        if (lives && command == POKE_AND_STAY) {
            lives = stay(process);
        }
        if (lives) {
            ptrace(PTRACE_DETACH, process, 0, 0);
        }
        done();
    }
}

static const char *start_tracer(void) {
    memset(talk(), 0, sizeof *talk());
    pid_t tried = fork();
    if (tried == 0) {
        for (;;) {
            pause();
        }
    }
    bool allowed = ptrace(PTRACE_SEIZE, tried, 0, 0) == 0;
    kill(tried, SIGKILL);
    waitpid(tried, NULL, 0);
    if (!allowed) {
        return "ptrace() is refused here";
    }
    fflush(stdout);
    tracer = fork();
    if (tracer == 0) {
        trace();
    }
    return NULL;
}
static void end_tracer(void) {
    kill(tracer, SIGKILL);
    waitpid(tracer, NULL, 0);
}

/* --- the process ------------------------------------------------------------------------------------------------------------------------ */

static void tell(uint32_t command) {
    struct talk *t = talk();
    t->process = board->pid;
    __atomic_store_n(&t->command, command, __ATOMIC_RELEASE);
    while (__atomic_load_n(&t->command, __ATOMIC_ACQUIRE) != QUIET) {
        sched_yield();
    }
    check(t->error == 0, "the tracer: %s", strerror(t->error));
}

static void boot_traced(void) {
#ifdef PR_SET_PTRACER
    raw(SYS_prctl, PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0, 0);
#endif
    struct talk *t = talk();
    t->pokes = t->stops = 0;
    struct area areas[AREAS];
    list_areas(areas);
    t->count = 0;
    for (size_t i = 0; i < AREAS; i++) {
        t->targets[t->count++] = (uintptr_t)areas[i].at + 8 * i + (i % 2 == 0 ? 0 : PAGE);
    }
}
/* The tracer's writes are its own page faults: the process's counter does not show them. */
static void poked(unsigned n) {
    for (uint32_t i = 0; i < talk()->count; i++) {
        talk()->targets[i] += n % 4 == 3 ? 0 : 8;
    }
    boot_bss[n * PAGE] ^= 1;
    tell(POKE);
}
static void poked_read_only(unsigned n) {
    talk()->count = 1;
    talk()->targets[0] = n % 2 == 0 ? (uintptr_t)boot.readonly : (uintptr_t)on_boot_signal / 8 * 8;
    tell(POKE);
}
static void poked_and_stopped(unsigned n) {
    tell(LEAVE);
    poked(n);
    tell(POKE_AND_STAY);
}
static void verify_poked(void) {
    verify_sum();
    if (board->turn == 60) {
        check(talk()->pokes >= 20 * talk()->count && talk()->stops > 60,
            "the tracer wrote %u times and stopped the process %u times", talk()->pokes,
            talk()->stops);
        if (board->damaged > 0) {
            tell(LEAVE);
        }
    }
}

static const struct test_case cases[] = {
    {.name = "a tracer writes into memory",
        .request = poked,
        .flags = ALONE | COUNTED,
        .boot = boot_traced,
        .prepare = start_tracer,
        .undo = end_tracer},
    {.name = "a tracer writes into read-only memory and code",
        .request = poked_read_only,
        .outcome = EITHER,
        .flags = ALONE | COUNTED,
        .boot = boot_traced,
        .prepare = start_tracer,
        .undo = end_tracer},
    {.name = "a tracer stops the process in requests and restores",
        .request = poked_and_stopped,
        .flags = ALONE | COUNTED | UNSEEN,
        .boot = boot_traced,
        .verify = verify_poked,
        .turns = 60,
        .prepare = start_tracer,
        .undo = end_tracer},
};
const struct case_list tracer_cases = CASE_LIST(cases);
