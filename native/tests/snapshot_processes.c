/* Cases: children, processes that share memory, threads. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot.h"

extern char **environ;

static void cold_write(unsigned n) {
    boot_bss[(4 + n) * PAGE] ^= 0x80;
    boot.anon[(4 + n) * PAGE] ^= 0x80;
}

/* --- children with their own memory --- */

static void fork_waited(unsigned n) {
    pid_t pid = fork();
    if (pid == 0) {
        cold_write(n);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
/* The engine's own numbers are the highest. */
static int highest_of_boot;
static int highest(void) {
    int found = -1;
    for (int fd = 0; fd < 2048; fd++) {
        found = fcntl(fd, F_GETFD) >= 0 ? fd : found;
    }
    return found;
}
static void find_highest(void) {
    highest_of_boot = highest();
}
static void fork_and_leave(unsigned n) {
    (void)n;
    check(highest() > highest_of_boot, "the engine has descriptors");
    pid_t pid = fork();
    if (pid == 0) {
        snapshot_leave_to_parent();
        _exit(highest() != highest_of_boot);
    }
    int status = 1;
    check(waitpid(pid, &status, 0) == pid && status == 0, "the child has none of the engine's");
}
static void fork_and_write(unsigned n) {
    pid_t pid = fork(); /* every page is now shared: writing faults again */
    if (pid == 0) {
        _exit(0);
    }
    cold_write(n);
    memset(boot.large, (int)n, LARGE);
    waitpid(pid, NULL, 0);
}
static void fork_not_waited(unsigned n) {
    for (unsigned i = 0; i <= n % 5; i++) {
        if (fork() == 0) {
            _exit(0);
        }
    }
    cold_write(n);
}
static void fork_background(unsigned n) {
    if (fork() == 0) {
        pause_for(30);
        cold_write(n);
        _exit(0);
    }
}
static void double_fork(unsigned n) {
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() == 0) {
            cold_write(n);
            pause_for(3);
        }
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
/* Returns whether each child of this thread is a zombie; true if the kernel does not show that
 * (CONFIG_PROC_CHILDREN). */
static bool children_have_ended(void) {
    char path[64], stat[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *children = fopen(path, "r");
    int pid;
    bool ended = true;
    while (children != NULL && ended && fscanf(children, "%d", &pid) == 1) {
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *child = fopen(path, "r");
        if (child != NULL) {
            const char *name_end = fgets(stat, sizeof stat, child) ? strrchr(stat, ')') : NULL;
            ended = name_end == NULL || strncmp(name_end, ") Z", 3) == 0;
            fclose(child);
        }
    }
    if (children != NULL) {
        fclose(children);
    }
    return ended;
}
/* Zombies of a request are gone after the restore, those that end later after a later one: all have ended in the undamaged turn. */
static void verify_no_zombies(void) {
    if (board->turn % 3 == 2) {
        pause_for(60);
        for (int i = 0; i < 500 && !children_have_ended(); i++) {
            pause_for(10);
        }
    } else if (board->turn % 3 == 0) {
        siginfo_t info = {0};
        int result = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
        check(result != 0 || info.si_pid == 0, "child %d was not reaped", (int)info.si_pid);
    }
}

/* --- programs --- */

static void run_system(unsigned n) {
    check(system(n % 2 == 0 ? "true" : "exit 1") >= 0, "system()");
}
static void run_popen(unsigned n) {
    FILE *pipe = popen("echo output", "r");
    char line[32];
    if (pipe == NULL || fgets(line, sizeof line, pipe) == NULL) {
        give_up("popen");
    }
    if (n % 2 == 0) {
        pclose(pipe);
    }
}
static void run_posix_spawn(unsigned n) {
    pid_t pid;
    char *const arguments[] = {"true", NULL};
    check(posix_spawnp(&pid, "true", NULL, NULL, arguments, environ) == 0, "posix_spawnp()");
    if (n % 2 == 0) {
        waitpid(pid, NULL, 0);
    }
    cold_write(n);
}
static void run_vfork(unsigned n) {
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", NULL);
        _exit(127);
    }
    if (n % 2 == 0) {
        waitpid(pid, NULL, 0);
    }
}
static void run_vfork_write(unsigned n) {
    pid_t pid = vfork();
    if (pid == 0) {
        cold_write(n);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

/* --- processes that share memory: their faults are not ours --- */

static unsigned char clone_stack[65536] __attribute__((aligned(64)));

static int shared_write(void *argument) {
    cold_write((unsigned)(uintptr_t)argument);
    return 0;
}
static pid_t share(int (*entry)(void *), int flags, unsigned n) {
    pid_t pid = clone(entry, clone_stack + sizeof clone_stack, flags, (void *)(uintptr_t)n);
    if (pid < 0) {
        give_up("clone");
    }
    return pid;
}
static void share_waited(unsigned n) {
    waitpid(share(shared_write, CLONE_VM | CLONE_VFORK | SIGCHLD, n), NULL, 0);
}
static void share_not_waited(unsigned n) {
    share(shared_write, CLONE_VM | CLONE_VFORK | SIGCHLD, n);
}
static void share_without_signal(unsigned n) {
    pid_t pid = share(shared_write, CLONE_VM | CLONE_VFORK, n);
    if (n % 2 == 0) {
        waitpid(pid, NULL, __WALL);
    }
}
static void share_ignored(unsigned n) {
    signal(SIGCHLD, SIG_IGN);
    share(shared_write, CLONE_VM | CLONE_VFORK | SIGCHLD, n);
    if (n % 2 == 0) {
        signal(SIGCHLD, SIG_DFL);
    }
}
static void share_no_wait_flag(unsigned n) {
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    sigaction(SIGCHLD, &action, NULL);
    share(shared_write, CLONE_VM | CLONE_VFORK | SIGCHLD, n);
    action.sa_flags = 0;
    sigaction(SIGCHLD, &action, NULL);
}
static void share_raw_ignored(unsigned n) {
    long action[4] = {(long)SIG_IGN, 0, 0, 0}, old[4];
    raw(SYS_rt_sigaction, SIGCHLD, (long)action, (long)old, 8, 0, 0);
    share(shared_write, CLONE_VM | CLONE_VFORK | SIGCHLD, n);
    raw(SYS_rt_sigaction, SIGCHLD, (long)old, 0, 8, 0, 0);
}
static void boot_ignores_children(void) {
    signal(SIGCHLD, SIG_IGN);
}
static int linger(void *argument) {
    (void)argument;
    struct timespec time = {.tv_nsec = 300000000};
    raw(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
    cold_write(0);
    raw(SYS_exit, 0, 0, 0, 0, 0, 0);
    return 0;
}
static void share_and_linger(unsigned n) {
    share(linger, CLONE_VM | SIGCHLD, n);
}
static void share_and_linger_without_signal(unsigned n) {
    share(linger, CLONE_VM, n);
}
static int orphan_parent(void *argument) {
    static unsigned char stack[65536] __attribute__((aligned(64)));
    clone(linger, stack + sizeof stack, CLONE_VM, argument);
    raw(SYS_exit, 0, 0, 0, 0, 0, 0);
    return 0;
}
/* The lingering process is an orphan by now. */
static void share_and_linger_as_orphan(unsigned n) {
    waitpid(share(orphan_parent, CLONE_VM | CLONE_VFORK | SIGCHLD, n), NULL, 0);
}

/* Docker's default profile refuses both calls by which a process that shares memory is found elsewhere. The child is made by libc's own clone(), as FFI finds it. */
static int (*clone_of_libc)(int (*)(void *), void *, int, void *, ...);
static void boot_without_kcmp(void) {
    refuse_call(SYS_kcmp, 0, EPERM);
    refuse_call(SYS_unshare, 0, EPERM);
    *(void **)&clone_of_libc = dlsym(dlopen("libc.so.6", RTLD_NOW), "clone");
}
static void share_unseen_and_linger(unsigned n) {
    (void)n;
    if (clone_of_libc(linger, clone_stack + sizeof clone_stack, CLONE_VM | SIGCHLD, NULL) < 0) {
        give_up("clone");
    }
}

/* --- threads --- */

static void *thread_write(void *argument) {
    cold_write((unsigned)(uintptr_t)argument);
    return NULL;
}
static void threads_joined(unsigned n) {
    pthread_t threads[4];
    unsigned count = 1 + n % 4;
    for (unsigned i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, thread_write, (void *)(uintptr_t)(n + i)) != 0) {
            give_up("pthread_create");
        }
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}
static void *thread_mallocs(void *argument) {
    for (unsigned i = 0; i < 100; i++) {
        board->scratch[i] = *(unsigned char *)memset(malloc(10000), (int)i, 10000);
    }
    return argument;
}
static void thread_with_malloc(unsigned n) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_mallocs, NULL) != 0) {
        give_up("pthread_create");
    }
    pthread_join(thread, NULL);
    cold_write(n);
}
/* Waits until this is the only thread. */
static void wait_alone(void) {
    struct stat status;
    while (stat("/proc/self/task", &status) == 0 && status.st_nlink > 3) {
        pause_for(1);
    }
}
static void *thread_short(void *argument) {
    cold_write((unsigned)(uintptr_t)argument);
    return NULL;
}
static void thread_detached(unsigned n) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_short, (void *)(uintptr_t)n) != 0) {
        give_up("pthread_create");
    }
    pthread_detach(thread);
    wait_alone();
}
static void *thread_sleep(void *argument) {
    pause_for(1000000);
    return argument;
}
static void thread_left(unsigned n) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_sleep, (void *)(uintptr_t)n) != 0) {
        give_up("pthread_create");
    }
}
static void *thread_spins(void *argument) {
    for (;;) {
        cold_write((unsigned)(uintptr_t)argument);
    }
    return NULL;
}
static void thread_left_spinning(unsigned n) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_spins, (void *)(uintptr_t)n) != 0) {
        give_up("pthread_create");
    }
}
/* Ends while the restore looks. */
static void thread_races(unsigned n) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_short, (void *)(uintptr_t)n) != 0) {
        give_up("pthread_create");
    }
}
static int raw_thread_entry(void *argument) {
    cold_write((unsigned)(uintptr_t)argument);
    raw(SYS_exit, 0, 0, 0, 0, 0, 0);
    return 0;
}
static void raw_thread(unsigned n) {
    share(raw_thread_entry,
        CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, n);
    wait_alone();
}

/* --- groups --- */

static void new_group(unsigned n) {
    (void)n;
    setpgid(0, 0);
}
static void new_session(unsigned n) {
    (void)n;
    setsid();
}

static const struct test_case cases[] = {
    {.name = "a child writes", .request = fork_waited, .flags = HEAVY},
    {.name = "a child leaves the engine's descriptors to its parent",
        .request = fork_and_leave,
        .boot = find_highest,
        .flags = HEAVY | ALONE},
    {.name = "a child lives while the parent writes", .request = fork_and_write, .flags = HEAVY},
    {.name = "children are not waited for", .request = fork_not_waited, .flags = HEAVY},
    {.name = "a child runs on",
        .request = fork_background,
        .flags = HEAVY,
        .verify = verify_no_zombies},
    {.name = "a grandchild runs on", .request = double_fork, .flags = HEAVY},
    {.name = "system()", .request = run_system, .flags = HEAVY},
    {.name = "popen()", .request = run_popen, .flags = HEAVY},
    {.name = "posix_spawn()", .request = run_posix_spawn, .flags = HEAVY},
    {.name = "vfork() and exec", .request = run_vfork, .flags = HEAVY},
    {.name = "vfork() and a write", .request = run_vfork_write, .flags = HEAVY},
    {.name = "a process that shares memory writes, waited for",
        .request = share_waited,
        .flags = HEAVY},
    {.name = "a process that shares memory writes, not waited for",
        .request = share_not_waited,
        .flags = HEAVY,
        .turns = 30},
    {.name = "a process that shares memory ends without a signal",
        .request = share_without_signal,
        .flags = HEAVY,
        .turns = 30},
    {.name = "a process that shares memory writes, SIGCHLD ignored",
        .request = share_ignored,
        .flags = HEAVY | LAST,
        .turns = 30},
    {.name = "a process that shares memory writes, SA_NOCLDWAIT for a while",
        .request = share_no_wait_flag,
        .flags = HEAVY,
        .turns = 30},
    {.name = "a process that shares memory writes, SIGCHLD ignored for a while behind the back",
        .request = share_raw_ignored,
        .flags = HEAVY | RAW,
        .turns = 30},
    {.name = "a process that shares memory writes, SIGCHLD ignored since the boot",
        .request = share_not_waited,
        .flags = ALONE,
        .boot = boot_ignores_children},
    {.name = "a process that shares memory lingers",
        .request = share_and_linger,
        .outcome = RETIRES},
    {.name = "a process that shares memory lingers without a signal",
        .request = share_and_linger_without_signal,
        .outcome = RETIRES},
    {.name = "an orphan that shares memory lingers",
        .request = share_and_linger_as_orphan,
        .outcome = EITHER},
    {.name = "a process that shares memory lingers where kcmp() is refused",
        .request = share_unseen_and_linger,
        .outcome = RETIRES,
        .flags = ALONE,
        .boot = boot_without_kcmp},
    {.name = "a child runs on where kcmp() is refused",
        .request = fork_background,
        .flags = HEAVY | ALONE,
        .boot = boot_without_kcmp,
        .verify = verify_no_zombies},
    {.name = "threads write and end", .request = threads_joined, .flags = HEAVY},
    {.name = "a thread allocates", .request = thread_with_malloc, .flags = HEAVY},
    {.name = "a detached thread ends", .request = thread_detached, .flags = ALONE},
    {.name = "a thread is left sleeping", .request = thread_left, .outcome = RETIRES},
    {.name = "a thread is left writing", .request = thread_left_spinning, .outcome = RETIRES},
    {.name = "a thread ends during the restore", .request = thread_races, .outcome = EITHER},
    {.name = "a thread made by clone() ends", .request = raw_thread, .flags = ALONE},
    {.name = "a process group of its own", .request = new_group, .outcome = EITHER},
    {.name = "a session of its own", .request = new_session, .outcome = EITHER},
};
const struct case_list process_cases = CASE_LIST(cases);
