/* The kernel's state of the process besides memory and descriptors: threads, children, signals, timers, directory, umask, name.
 *
 * Promises
 * - A restore resets the attributes whose calls were seen (engine->touched), or all if `thorough`.
 * - Attributes that can be read but not restored (compared_attributes.c) are compared if `thorough`, and after a request with children. A difference
 *   retires the process.
 */
#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

enum {
    SIGNALS = 64,
    SIGNAL_SET = 8,    /* bytes, as the kernel counts them */
    THREAD_WAITS = 50, /* of 100 µs: a thread that is just exiting (curl's resolver) may finish */
    CHILD_WAITS = 200, /* of 100 µs: a child that is just exiting or starting a program */
    TASK_LINKS = 2,    /* of /proc/self/task, besides one for each thread */
    TIMERS_TRIED = 64, /* more POSIX timers in one request: retire */
    PENDING_MAX = 65536, /* more signals are not taken out of a queue */
    IOPRIO_PROCESS = 1,  /* IOPRIO_WHO_PROCESS */
    RATE_KNOWN_NS = 10000000,
    SLACK_PART = 1000, /* of a limit of processor time: so much of it a request may find used ... */
    SLACK_MAX_US = 20000, /* ... but no more than the kernel's clock tick, twice */
};

uint64_t faults_of(int who) {
    struct rusage usage;
    raw(SYS_getrusage, who, &usage);
    return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

static uint64_t thread_count(void) {
    struct stat status;
    if (raw(SYS_fstat, engine->fds.tasks, &status) != 0 || !S_ISDIR(status.st_mode)) {
        retire("the request closed a descriptor of the engine");
    }
    return status.st_nlink - TASK_LINKS;
}

/* Returns the time in microseconds that a restore may leave used of a timer. Only the usual one has some: PHP's time limit, of processor time. */
static uint64_t slack_of(const struct attributes *then) {
    const struct itimerval *limit = &then->timers[ITIMER_PROF];
    bool is_usual = then->timers_run == 1 << ITIMER_PROF && limit->it_value.tv_sec > 0 &&
                    limit->it_interval.tv_sec == 0 && limit->it_interval.tv_usec == 0;
    if (!is_usual) {
        return 0;
    }
    uint64_t part = (uint64_t)limit->it_value.tv_sec * 1000000 / SLACK_PART;
    return part < SLACK_MAX_US ? part : SLACK_MAX_US;
}

/* Ids are given in order, so the next one shows whether any were created since. Returns UINT32_MAX without POSIX timers. */
static uint32_t next_timer(void) {
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    int id = -1;
    if (raw(SYS_timer_create, CLOCK_MONOTONIC, &event, &id) != 0) {
        return UINT32_MAX;
    }
    raw(SYS_timer_delete, id);
    return (uint32_t)id + 1;
}

void attributes_take(void) {
    struct attributes *then = &engine->attributes;
    memset(then, 0, sizeof *then);
    if (thread_count() != 1) {
        retire("the booted application has threads");
    }
    raw(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &then->mask, SIGNAL_SET);
    for (int i = 1; i <= SIGNALS; i++) {
        raw(SYS_rt_sigaction, i, NULL, &then->actions[i], SIGNAL_SET);
    }
    raw(SYS_sigaltstack, NULL, &then->stack);
    for (int i = 0; i < 3; i++) {
        raw(SYS_getitimer, i, &then->timers[i]);
        bool runs = then->timers[i].it_value.tv_sec != 0 || then->timers[i].it_value.tv_usec != 0;
        then->timers_run |= (uint8_t)(runs << i);
    }
    then->limit_slack = slack_of(then);
    then->next_timer = next_timer();
    then->umask = (uint32_t)raw(SYS_umask, 077);
    raw(SYS_umask, then->umask);
    raw(SYS_prctl, PR_GET_NAME, then->name, 0, 0, 0);
    raw(SYS_rt_sigpending, &then->pending, SIGNAL_SET);
    then->io_priority = raw(SYS_ioprio_get, IOPRIO_PROCESS, 0);
    process_files_take();
    compared_attributes_take();
}

/* Reads the byte by which a process that took a snapshot differs from its forks. Returns 1 if it was read. */
static long read_own_process(long pid, uint8_t *byte) {
    const struct iovec here = {byte, 1};
    const struct iovec there = {(void *)(uintptr_t)engine->own_process, 1};
    return raw(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0);
}

/* Returns whether a child lives in this process's memory. Container engines' profiles and `sandbox.enabled` refuse kcmp(2), and the kernel itself refuses it for a child with other
 * rights. Then the child's memory is read, which the kernel always allows where it is one's own (kernel/fork.c, mm_access()). */
static bool shares_memory(long child) {
    struct engine *e = engine;
    long order = raw(SYS_kcmp, e->pid, child, SAME_MEMORY, 0, 0);
    if (order >= 0 || order == -ESRCH) {
        return order == 0;
    }
    uint8_t own = 0;
    if (read_own_process(child, &own) == 1) {
        return own == 1; /* a fork has zeros there */
    }
    if (read_own_process(e->pid, &own) != 1) {
        retire(
            "the request left children, and it cannot be found out whether they share its memory");
    }
    return false;
}

/* Returns whether any child does. (/proc/PID/task/PID/children) */
static bool has_sharing_child(void) {
    struct engine *e = engine;
    struct text path = {0};
    text_add(&path, "/proc/self/task/");
    text_add_number(&path, (uint64_t)e->pid);
    text_add(&path, "/children");
    long fd = raw_open(path.data, O_RDONLY | O_CLOEXEC);
    if (fd == -ENOENT) {
        return false; /* a kernel without CONFIG_PROC_CHILDREN */
    }
    long n = fd < 0 ? fd : raw(SYS_read, fd, e->buffer, sizeof e->buffer - 1);
    raw(SYS_close, fd);
    if (n < 0) { /* no descriptor, or no memory, is left */
        retire("the request left children, and /proc does not tell whether they share its memory");
    }
    long child = 0;
    for (long i = 0; i < n; i++) {
        if (e->buffer[i] >= '0' && e->buffer[i] <= '9') {
            child = child * 10 + (e->buffer[i] - '0');
        } else if (child != 0) {
            if (shares_memory(child)) {
                return true;
            }
            child = 0;
        }
    }
    return false;
}

/* A child that lives on in this very memory would go on writing to it. One of vfork() is waited for: its parent runs on a moment before
   the kernel has taken the memory from the child. (kernel/exit.c, exit_mm; fs/exec.c, exec_mmap) */
static void find_sharing_child(void) {
    for (int waits = 0; has_sharing_child(); waits++) {
        if (waits == CHILD_WAITS) {
            retire("the request left a process that shares its memory");
        }
        struct timespec pause = {0, 100000};
        raw(SYS_nanosleep, &pause, NULL);
    }
}

/* Returns whether children may have written to this process's memory behind the fault counters. */
static bool reap(void) {
    struct engine *e = engine;
    const struct kernel_action *action = &e->attributes.actions[SIGCHLD];
    bool unseen = (e->touched & TOUCHED_CHILDREN) != 0 ||
                  (e->touched_signals >> SIGCHLD & 1) != 0
                  /* Ended children vanish, and their faults with them. */
                  || action->handler == (uint64_t)SIG_IGN || (action->flags & SA_NOCLDWAIT);
    int status;
    long r;
    while ((r = raw(SYS_wait4, -1, &status, WNOHANG | WAIT_ALL, NULL)) > 0) {
        unseen = true;
    }
    e->has_children = r == 0;
    if (r == 0) {
        find_sharing_child();
    }
    /* A living child may share the memory (vfork), and one that is ending may have shared it until now. */
    return unseen || r != -ECHILD;
}

/* unshare(2) refuses CLONE_VM to a process that is not alone in its memory, and does nothing for one that is: kernel/fork.c, check_unshare_flags() */
bool tasks_are_alone(void) {
    return engine->asks_alone && raw(SYS_unshare, CLONE_VM) == 0;
}

bool tasks_put_back(bool thorough) {
    struct engine *e = engine;
    bool may_have_children = thorough || e->has_children || (e->touched & TOUCHED_CHILDREN) != 0 ||
                             (e->touched_signals >> SIGCHLD & 1) != 0;
    if (!may_have_children && tasks_are_alone()) {
        return false;
    }
    bool had_threads = false;
    for (int waits = 0; thread_count() != 1; waits++) {
        if (waits == THREAD_WAITS) {
            retire("the request left a thread behind");
        }
        struct timespec pause = {0, 100000};
        raw(SYS_nanosleep, &pause, NULL);
        had_threads = true;
    }
    return reap() || had_threads;
}

static void put_back_signals(uint64_t touched) {
    const struct attributes *then = &engine->attributes;
    for (int i = 1; i <= SIGNALS; i++) {
        if (i != SIGKILL && i != SIGSTOP && (touched >> (i & 63) & 1)) {
            raw(SYS_rt_sigaction, i, &then->actions[i], NULL, SIGNAL_SET);
        }
    }
}

/* Returns whether the request caused the signal itself: by raise(), a timer, a descriptor, or a child. */
static bool is_own(const siginfo_t *info) {
    if (info->si_signo == SIGCHLD) {
        return true;
    }
    if (info->si_code == SI_USER || info->si_code == SI_TKILL || info->si_code == SI_QUEUE) {
        return info->si_pid == engine->pid;
    }
    return true;
}

/* Signals that wait behind a mask, the boot's own apart: the request's are discarded, others' (the server's SIGTERM) wait on. */
static void settle_pending(void) {
    enum { FOREIGN_MAX = 64 };
    siginfo_t foreign[FOREIGN_MAX];
    uint32_t foreign_count = 0;
    struct timespec now = {0, 0};
    uint64_t set = 0;
    raw(SYS_rt_sigpending, &set, SIGNAL_SET);
    set &= ~engine->attributes.pending;
    for (int n = 0; set != 0 && n < PENDING_MAX; n++) {
        siginfo_t info;
        memset(&info, 0, sizeof info);
        if (raw(SYS_rt_sigtimedwait, &set, &info, &now, SIGNAL_SET) < 0) {
            break;
        }
        if (!is_own(&info) && foreign_count < FOREIGN_MAX) {
            foreign[foreign_count++] = info;
        }
    }
    for (uint32_t i = 0; i < foreign_count; i++) {
        raw(SYS_rt_sigqueueinfo, engine->pid, foreign[i].si_signo, &foreign[i]);
    }
}

static void put_back_posix_timers(void) {
    struct attributes *then = &engine->attributes;
    if (then->next_timer == UINT32_MAX) {
        return;
    }
    uint32_t next = next_timer();
    if (next - then->next_timer > TIMERS_TRIED) {
        retire("the request made too many timers");
    }
    for (uint32_t id = then->next_timer; id != next; id++) {
        raw(SYS_timer_delete, id);
    }
    then->next_timer = next;
}

/* Returns whether the time limit was started so recently that it can run on. The counter of cycles passes at least as fast as processor time. */
static bool limit_is_fresh(void) {
    const struct engine *e = engine;
    return e->limit_cycles != 0 && cycles() - e->limit_started < e->limit_cycles;
}

/* Notes that the time limit starts, and for how many cycles it is fresh. */
static void note_limit(void) {
    struct engine *e = engine;
    uint64_t passed = cycles() - e->clock_cycles;
    uint64_t ns = e->attributes.limit_slack == 0 ? 0 : statistics_now() - e->clock_ns;
    e->limit_started = cycles();
    /* before that the rate of the counter is not known well enough */
    e->limit_cycles =
        ns < RATE_KNOWN_NS
            ? 0
            : (uint64_t)((double)passed / (double)ns * 1000 * (double)e->attributes.limit_slack);
}

static void put_back_timers(bool thorough) {
    struct engine *e = engine;
    uint32_t timers = thorough ? 7 : e->timers_armed | e->attributes.timers_run;
    if (!thorough && e->timers_armed == 0 && limit_is_fresh()) {
        return;
    }
    e->timers_armed = 0;
    for (int i = 0; i < 3; i++) {
        if (timers >> i & 1) {
            raw(SYS_setitimer, i, &e->attributes.timers[i], NULL);
        }
    }
    if (timers >> ITIMER_PROF & 1) {
        note_limit();
    }
}

/* A signal can wait behind a mask only. None waits, therefore, if nothing was blocked and nothing of the request's is left that sends one. */
bool attributes_block_signals(bool thorough) {
    struct engine *e = engine;
    const uint64_t all = ~0ULL;
    uint64_t mask = 0;
    /* Still unblocked: a timer that ends here is the request's last signal. */
    put_back_timers(thorough);
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, SIGNAL_SET);
    bool armed = e->timers_armed != 0; /* by a handler */
    if (armed) {
        put_back_timers(thorough);
    }
    return thorough || armed || mask != 0 || e->attributes.mask != 0 ||
           (e->touched & (TOUCHED_TIMERS | TOUCHED_EVENTS | TOUCHED_THREADS)) != 0;
}

/* All signals are blocked. */
void attributes_put_back(bool thorough, bool had_children, bool signals_wait) {
    struct engine *e = engine;
    const struct attributes *then = &e->attributes;
    uint64_t signals = thorough ? ~0ULL : e->touched_signals;
    if (signals != 0) {
        put_back_signals(signals);
        e->touched_signals = 0;
    }
    if (thorough || (e->touched & TOUCHED_TIMERS)) {
        put_back_posix_timers();
    }
    /* Pending signals that the request's mask blocks would reach the next request. Those that the boot's mask blocks would wait forever. */
    if (signals_wait || had_children) {
        settle_pending();
    }
    if (thorough || (e->touched & TOUCHED_STACK)) {
        raw(SYS_sigaltstack, &then->stack, NULL);
    }
    if (thorough || (e->touched & TOUCHED_PLACE)) {
        if (raw(SYS_fchdir, e->fds.directory) != 0) {
            retire("the current directory cannot be put back");
        }
        raw(SYS_umask, then->umask);
    }
    /* A child may write to its parent's files below /proc. */
    bool wrote = thorough || (e->touched & (TOUCHED_PROC | TOUCHED_CHILDREN)) || had_children;
    if (wrote || (e->touched & TOUCHED_NAME)) {
        raw(SYS_prctl, PR_SET_NAME, then->name, 0, 0, 0);
    }
    if (wrote) {
        process_files_put_back();
    }
    if (wrote && raw(SYS_ioprio_get, IOPRIO_PROCESS, 0) != then->io_priority) {
        raw(SYS_ioprio_set, IOPRIO_PROCESS, 0, then->io_priority);
    }
    if (e->touched & TOUCHED_LOCKED) {
        if (e->boot_locked) {
            retire("the request locked memory, as the boot had");
        }
        raw(SYS_munlockall);
    }
    /* A child may limit its parent, or move it to another process group. */
    if (thorough || had_children || (e->touched & TOUCHED_CHILDREN)) {
        compared_attributes_check();
    }
}

#endif
