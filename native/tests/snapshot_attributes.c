/* Cases: signals, timers, directory, and other attributes of a process in the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "snapshot.h"

/* --- dispositions --- */

static void on_request_signal(int number) {
    board->scratch[number] = 1;
}

static void by_signal(unsigned n) {
    signal(SIGUSR1, n % 2 == 0 ? SIG_IGN : SIG_DFL);
    signal(SIGUSR2, on_request_signal);
    signal(SIGTERM, on_request_signal);
    signal(SIGPIPE, SIG_IGN);
}
static void by_sigaction(unsigned n) {
    struct sigaction action = {.sa_handler = on_request_signal, .sa_flags = SA_NODEFER};
    sigfillset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGRTMIN + (int)n, &action, NULL);
    raise(SIGUSR1);
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void by_other_calls(unsigned n) {
    siginterrupt(SIGUSR1, (int)(n % 2 == 0));
    sysv_signal(SIGUSR2, on_request_signal);
    sigset(SIGHUP, SIG_IGN);
}
#pragma GCC diagnostic pop
static void by_raw_call(unsigned n) {
    struct {
        void (*handler)(int);
        unsigned long flags;
        void *restorer;
        uint64_t mask;
    } action = {.handler = SIG_IGN};
    raw(SYS_rt_sigaction, n % 2 == 0 ? SIGUSR1 : SIGTERM, (long)&action, 0, 8, 0, 0);
}
static void reset_by_delivery(unsigned n) {
    struct sigaction action = {.sa_handler = on_request_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGUSR1, &action, NULL);
    for (unsigned i = 0; i <= n % 1; i++) {
        raise(SIGUSR1);
    }
}

/* A boot handler with SA_RESETHAND: delivery itself changes the disposition, no call does. */
static void boot_once_handler(void) {
    struct sigaction action = {.sa_handler = on_boot_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGUSR1, &action, NULL);
}
static void deliver_once(unsigned n) {
    (void)n;
    raise(SIGUSR1);
}

/* --- mask and pending --- */

static void change_mask(unsigned n) {
    sigset_t set;
    sigfillset(&set);
    if (n % 2 == 0) {
        sigprocmask(SIG_SETMASK, &set, NULL);
    } else {
        sigemptyset(&set);
        raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&set, 0, 8, 0, 0);
    }
}
static void block(int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, NULL);
}
static void leave_pending(unsigned n) {
    block(SIGUSR1);
    block(SIGTERM);
    block(SIGALRM);
    raise(SIGUSR1);          /* to the thread */
    kill(getpid(), SIGTERM); /* to the process */
    if (n % 2 == 0) {
        ualarm(100, 0);
        pause_for(2);
    }
}
static void leave_pending_with_handler(unsigned n) {
    signal(SIGTERM, on_request_signal);
    block(SIGTERM);
    block(SIGRTMIN);
    signal(SIGRTMIN, on_request_signal);
    raise(SIGTERM);
    for (unsigned i = 0; i <= n; i++) {
        sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = (int)i});
    }
    board->scratch[SIGTERM] = board->scratch[SIGRTMIN] = 0;
}
static void verify_not_delivered(void) {
    check(board->scratch[SIGTERM] == 0 && board->scratch[SIGRTMIN] == 0,
        "a signal of the request was delivered later");
}
/* SIGURG is blocked by the boot. */
static void leave_pending_in_boot_mask(unsigned n) {
    raise(SIGURG);
    if (n % 2 == 0) {
        kill(getpid(), SIGURG);
    }
}

/* --- timers: none fires in a later turn --- */

static void let_timers_fire(void) {
    pause_for(3);
}
/* A timer that fires before the request ends does no harm. */
static void survive(void) {
    static const int numbers[] = {SIGALRM, SIGPROF, SIGVTALRM};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        signal(numbers[i], on_request_signal);
    }
    signal(SIGRTMIN, on_request_signal);
}

static void leave_itimers(unsigned n) {
    survive();
    struct itimerval soon = {.it_value.tv_usec = 1500, .it_interval.tv_usec = 500};
    setitimer(n % 3 == 0 ? ITIMER_REAL : n % 3 == 1 ? ITIMER_PROF : ITIMER_VIRTUAL, &soon, NULL);
}
static void leave_all_itimers(unsigned n) {
    struct itimerval later = {.it_value.tv_sec = 1000 + n};
    setitimer(ITIMER_REAL, &later, NULL);
    setitimer(ITIMER_PROF, &later, NULL);
    setitimer(ITIMER_VIRTUAL, &later, NULL);
}
static void leave_alarm(unsigned n) {
    survive();
    if (n % 2 == 0) {
        ualarm(1500, 0);
    } else {
        alarm(100);
    }
}
static void leave_raw_itimer(unsigned n) {
    survive();
    struct itimerval soon = {.it_value.tv_usec = 1500 + n};
    raw(SYS_setitimer, ITIMER_REAL, (long)&soon, 0, 0, 0, 0);
}
static void leave_posix_timer(unsigned n) {
    survive();
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec soon = {.it_value.tv_nsec = 1500000 + n};
    if (timer_create(n % 2 == 0 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &event, &timer) !=
            0 ||
        timer_settime(timer, 0, &soon, NULL) != 0) {
        give_up("timer_create");
    }
}
static void leave_raw_posix_timer(unsigned n) {
    survive();
    int timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec soon = {.it_value.tv_nsec = 1500000 + n};
    raw(SYS_timer_create, CLOCK_MONOTONIC, (long)&event, (long)&timer, 0, 0, 0);
    raw(SYS_timer_settime, timer, 0, (long)&soon, 0, 0, 0);
}
static void on_timer_thread(union sigval value) {
    (void)value;
}
static void leave_timer_thread(unsigned n) {
    timer_t timer;
    struct sigevent event = {
        .sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer_thread};
    struct itimerspec soon = {.it_value.tv_sec = 100 + n};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &soon, NULL) != 0) {
        give_up("timer_create");
    }
}
/* The time limit that PHP's boot leaves. */
static void boot_timer(void) {
    struct itimerval long_time = {.it_value.tv_sec = 5000};
    setitimer(ITIMER_PROF, &long_time, NULL);
}

/* Half a tick of its time is used, and it is set to less. */
static void use_boot_timer(unsigned n) {
    struct itimerval less = {.it_value.tv_sec = 40 + n};
    clock_t start = clock();
    while (clock() - start < CLOCKS_PER_SEC / 200) {
    }
    if (n % 2 == 0) {
        setitimer(ITIMER_PROF, &less, NULL);
    }
}
static void has_all_of_its_time(void) {
    static struct itimerval
        first; /* restored with the rest: the first turn's value is on the board */
    getitimer(ITIMER_PROF, &first);
    uint64_t *left = (uint64_t *)(void *)board->scratch;
    uint64_t now = (uint64_t)first.it_value.tv_sec * 1000000 + (uint64_t)first.it_value.tv_usec;
    *left = board->turn == 0 ? now : *left;
    /* the kernel takes time from it in ticks; an emulated processor needs 0.2 s to get here */
    check(now + limit_of(100000) > *left, "a timer of the boot has %lu of %lu µs left", now, *left);
}

/* --- directory, umask --- */

static void change_directory(unsigned n) {
    if (chdir(n % 2 == 0 ? "/" : "/tmp") != 0) {
        give_up("chdir");
    }
}
static void change_directory_by_descriptor(unsigned n) {
    if (fchdir(boot.directory + 0 * (int)n) != 0) {
        give_up("fchdir");
    }
}
static void change_directory_raw(unsigned n) {
    raw(SYS_chdir, (long)(n % 2 == 0 ? "/etc" : "/"), 0, 0, 0, 0, 0);
}
static void change_umask(unsigned n) {
    umask(n % 2 == 0 ? 0 : 0777);
}
static void change_umask_raw(unsigned n) {
    raw(SYS_umask, n % 2 == 0 ? 0 : 0777, 0, 0, 0, 0, 0);
}

/* --- what few requests ever change --- */

static void change_nice(unsigned n) {
    (void)n;
    errno = 0;
    if (nice(1) == -1 && errno != 0) {
        give_up("nice");
    }
}
static void change_soft_limit(unsigned n) {
    struct rlimit limit;
    int which = n % 2 == 0 ? RLIMIT_CORE : RLIMIT_FSIZE;
    getrlimit(which, &limit);
    limit.rlim_cur = limit.rlim_cur == 4096 ? 8192 : 4096;
    setrlimit(which, &limit);
}
static void change_hard_limit(unsigned n) {
    struct rlimit limit = {1000 + n, 1000 + n};
    prlimit(0, RLIMIT_NPROC, &limit, NULL);
}
static void change_raw_limit(unsigned n) {
    struct rlimit limit = {100000 + n, 100000 + n};
    raw(SYS_prlimit64, 0, RLIMIT_LOCKS, (long)&limit, 0, 0, 0);
}
static void change_name(unsigned n) {
    char name[16];
    snprintf(name, sizeof name, "request-%u", n);
    prctl(PR_SET_NAME, name);
}
static void change_by_file(const char *path, const char *prefix, unsigned n) {
    char text[16];
    snprintf(text, sizeof text, "%s%u", prefix, n);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (write(fd, text, strlen(text)) < 0) {
        give_up(path);
    }
    close(fd);
}
static void change_name_by_file(unsigned n) {
    change_by_file("/proc/self/comm", "request-", n);
}
static void change_kill_score(unsigned n) {
    change_by_file("/proc/self/oom_score_adj", "", n % 1000 + 1);
}
/* Opened by a path that does not begin with /proc. */
static void change_core_filter(unsigned n) {
    if (chdir("/proc/self") != 0) {
        give_up("/proc/self");
    }
    FILE *file = fopen("coredump_filter", "w");
    if (file == NULL || fprintf(file, "%u", n % 15 + 1) < 0 || fclose(file) != 0) {
        give_up("coredump_filter");
    }
}
static void change_timer_slack_by_file(unsigned n) {
    change_by_file("/proc/self/timerslack_ns", "", 100000 + n);
}
static void change_autogroup(unsigned n) {
    /* Not every user may, and not often. */
    int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
    char text[16];
    snprintf(text, sizeof text, "%u", n % 19 + 1);
    if (write(fd, text, strlen(text)) < 0) {
        board->scratch[0] = 1;
    }
    close(fd);
}
static void change_by_child(unsigned n) {
    char command[80];
    snprintf(command, sizeof command, "echo %u > /proc/%d/oom_score_adj", n % 1000 + 1, getpid());
    if (system(command) != 0) {
        give_up("a child");
    }
}
static void change_dumpable(unsigned n) {
    prctl(PR_SET_DUMPABLE, (int)(n % 1));
}
static void change_death_signal(unsigned n) {
    prctl(PR_SET_PDEATHSIG, n % 2 == 0 ? SIGHUP : SIGTERM);
}
static void change_subreaper(unsigned n) {
    prctl(PR_SET_CHILD_SUBREAPER, 1 + n);
}
static void change_no_new_privileges(unsigned n) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0 * n, 0, 0);
}
static void change_timer_slack(unsigned n) {
    prctl(PR_SET_TIMERSLACK, 100000 + n);
}
static void change_keepcaps(unsigned n) {
    prctl(PR_SET_KEEPCAPS, 1 + 0 * n);
}
static void change_alternate_stack(unsigned n) {
    stack_t stack = {.ss_sp = boot.large, .ss_size = 65536 + n};
    sigaltstack(&stack, NULL);
}
static void change_affinity(unsigned n) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(n % 2, &set);
    sched_setaffinity(0, sizeof set, &set);
}
static void change_policy(unsigned n) {
    struct sched_param param = {0};
    sched_setscheduler(0, n % 2 == 0 ? SCHED_BATCH : SCHED_IDLE, &param);
}
static void change_ioprio(unsigned n) {
    raw(SYS_ioprio_set, 1, 0, 2 << 13 | (long)(n % 7 + 1), 0, 0, 0);
}
static void change_personality(unsigned n) {
    personality(ADDR_NO_RANDOMIZE + 0 * n);
}
static void change_user(unsigned n) {
    if (seteuid(65534 - (n % 2)) != 0) {
        give_up("seteuid");
    }
}
static void change_group(unsigned n) {
    if (setegid(65534 - (n % 2)) != 0) {
        give_up("setegid");
    }
}
static void change_root(unsigned n) {
    if (chroot(n % 2 == 0 ? "/usr" : "/tmp") != 0) {
        give_up("chroot");
    }
}

/* --- by calls that libc does not see, or by a child --- */

static void change_affinity_raw(unsigned n) {
    uint64_t set[16] = {1 + 0 * n};
    raw(SYS_sched_setaffinity, 0, sizeof set, (long)set, 0, 0, 0);
}
static void change_policy_raw(unsigned n) {
    struct sched_param none = {0 * (int)n};
    raw(SYS_sched_setscheduler, 0, SCHED_IDLE, (long)&none, 0, 0, 0);
}
static void change_nice_raw(unsigned n) {
    raw(SYS_setpriority, PRIO_PROCESS, 0, 5 + n % 2, 0, 0, 0);
}
static void change_groups_raw(unsigned n) {
    gid_t groups[] = {4242 + n};
    raw(SYS_setgroups, 1, (long)groups, 0, 0, 0, 0);
}
static void change_capabilities_raw(unsigned n) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0 * (int)n};
    struct __user_cap_data_struct none[2] = {0};
    raw(SYS_capset, (long)&header, (long)none, 0, 0, 0, 0);
}
static void add_filter_raw(unsigned n) {
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1 + 0 * (unsigned short)n, allow};
    raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0);
    raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program, 0, 0, 0);
}
static void change_death_signal_raw(unsigned n) {
    raw(SYS_prctl, PR_SET_PDEATHSIG, n % 2 == 0 ? SIGHUP : SIGTERM, 0, 0, 0, 0);
}
static void child_changes_parent(unsigned n) {
    pid_t child = fork();
    if (child == 0) {
        uint64_t set[16] = {1 + 0 * n};
        struct sched_param none = {0};
        raw(SYS_sched_setaffinity, getppid(), sizeof set, (long)set, 0, 0, 0);
        raw(SYS_sched_setscheduler, getppid(), SCHED_IDLE, (long)&none, 0, 0, 0);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}
static void child_changes_io_priority(unsigned n) {
    pid_t child = fork();
    if (child == 0) {
        raw(SYS_ioprio_set, 1, getppid(), (long)(3U << 13 | 0 * n), 0, 0, 0);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static const struct test_case cases[] = {
    {.name = "signal()", .request = by_signal},
    {.name = "sigaction()", .request = by_sigaction},
    {.name = "siginterrupt(), sysv_signal(), sigset()", .request = by_other_calls},
    {.name = "rt_sigaction by a raw system call", .request = by_raw_call, .flags = RAW},
    {.name = "a handler of the request that resets itself", .request = reset_by_delivery},
    {.name = "a boot handler that resets itself",
        .request = deliver_once,
        .flags = ALONE | RAW,
        .boot = boot_once_handler},
    {.name = "the signal mask", .request = change_mask},
    {.name = "pending signals", .request = leave_pending, .flags = LAST},
    {.name = "pending signals with a handler",
        .request = leave_pending_with_handler,
        .flags = ALONE,
        .verify = verify_not_delivered},
    {.name = "pending signals that the boot blocks", .request = leave_pending_in_boot_mask},
    {.name = "interval timers",
        .request = leave_itimers,
        .flags = HEAVY,
        .verify = let_timers_fire},
    {.name = "interval timers for later", .request = leave_all_itimers},
    {.name = "alarm() and ualarm()", .request = leave_alarm, .verify = let_timers_fire},
    {.name = "setitimer by a raw system call",
        .request = leave_raw_itimer,
        .flags = RAW,
        .verify = let_timers_fire},
    {.name = "timer_create()",
        .request = leave_posix_timer,
        .outcome = EITHER,
        .verify = let_timers_fire},
    {.name = "timer_create by a raw system call",
        .request = leave_raw_posix_timer,
        .outcome = EITHER,
        .flags = RAW,
        .verify = let_timers_fire},
    {.name = "a timer with a thread", .request = leave_timer_thread, .outcome = RETIRES},
    {.name = "an interval timer that the boot left",
        .request = leave_all_itimers,
        .outcome = EITHER,
        .flags = ALONE,
        .boot = boot_timer},
    {.name = "time of an interval timer of the boot is used",
        .request = use_boot_timer,
        .flags = ALONE,
        .boot = boot_timer,
        .verify = has_all_of_its_time},
    {.name = "chdir()", .request = change_directory},
    {.name = "fchdir()", .request = change_directory_by_descriptor},
    {.name = "chdir by a raw system call", .request = change_directory_raw, .flags = RAW},
    {.name = "umask()", .request = change_umask},
    {.name = "umask by a raw system call", .request = change_umask_raw, .flags = RAW},
    {.name = "nice()", .request = change_nice, .outcome = EITHER},
    {.name = "a soft limit", .request = change_soft_limit, .outcome = EITHER},
    {.name = "a hard limit", .request = change_hard_limit, .outcome = EITHER},
    {.name = "a limit by a raw system call",
        .request = change_raw_limit,
        .outcome = EITHER,
        .flags = RAW},
    {.name = "affinity by a raw system call",
        .request = change_affinity_raw,
        .outcome = EITHER,
        .flags = RAW},
    {.name = "scheduling policy by a raw system call",
        .request = change_policy_raw,
        .outcome = RETIRES,
        .flags = RAW},
    {.name = "nice by a raw system call",
        .request = change_nice_raw,
        .outcome = RETIRES,
        .flags = RAW},
    {.name = "supplementary groups by a raw system call",
        .request = change_groups_raw,
        .outcome = RETIRES,
        .flags = RAW | AS_ROOT},
    {.name = "capabilities by a raw system call",
        .request = change_capabilities_raw,
        .outcome = RETIRES,
        .flags = RAW | AS_ROOT},
    {.name = "a filter of system calls by a raw one",
        .request = add_filter_raw,
        .outcome = RETIRES,
        .flags = RAW},
    {.name = "the signal at the parent's death by a raw system call",
        .request = change_death_signal_raw,
        .outcome = RETIRES,
        .flags = RAW},
    {.name = "affinity and scheduling policy, by a child",
        .request = child_changes_parent,
        .outcome = RETIRES},
    {.name = "I/O priority, by a child", .request = child_changes_io_priority},
    {.name = "the name of the process", .request = change_name, .outcome = EITHER},
    {.name = "the name of the process, by its file",
        .request = change_name_by_file,
        .outcome = EITHER},
    {.name = "the OOM score, by its file", .request = change_kill_score},
    {.name = "what a core dump holds, by its file", .request = change_core_filter},
    {.name = "timer slack, by its file", .request = change_timer_slack_by_file},
    {.name = "the autogroup's priority", .request = change_autogroup, .outcome = EITHER},
    {.name = "the OOM score, by a child", .request = change_by_child, .flags = HEAVY},
    {.name = "dumpable", .request = change_dumpable, .outcome = EITHER},
    {.name = "the signal at the parent's death", .request = change_death_signal, .outcome = EITHER},
    {.name = "subreaper", .request = change_subreaper, .outcome = EITHER},
    {.name = "no new privileges", .request = change_no_new_privileges, .outcome = EITHER},
    {.name = "timer slack", .request = change_timer_slack, .outcome = EITHER},
    {.name = "keepcaps", .request = change_keepcaps, .outcome = EITHER},
    {.name = "the alternate signal stack", .request = change_alternate_stack, .outcome = EITHER},
    {.name = "affinity", .request = change_affinity, .outcome = EITHER},
    {.name = "scheduling policy", .request = change_policy, .outcome = EITHER},
    {.name = "I/O priority", .request = change_ioprio, .outcome = EITHER, .flags = CHECKED},
    {.name = "personality", .request = change_personality, .outcome = EITHER},
    {.name = "the user", .request = change_user, .outcome = EITHER, .flags = AS_ROOT},
    {.name = "the group", .request = change_group, .outcome = EITHER, .flags = AS_ROOT},
    {.name = "the root directory", .request = change_root, .outcome = EITHER, .flags = AS_ROOT},
};
const struct case_list attribute_cases = CASE_LIST(cases);
