/* Signals and timers, which are put back, and what cannot be: after it the process retires. */
#include "snapshot/interpose.h"

#if SNAPSHOT_ENGINE

#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* Exported by glibc, declared by it no more, or by libcap. */
__sighandler_t bsd_signal(int number, __sighandler_t handler);
int capset(void *header, const void *data);

static void touch_signal(int number) {
    if (engine != NULL) {
        __atomic_fetch_or(&engine->touched_signals, 1ULL << (number & 63), __ATOMIC_RELAXED);
    }
}

int sigaction(int number, const struct sigaction *action, struct sigaction *old) {
    if (action != NULL) {
        touch_signal(number);
    }
    return NEXT(sigaction)(number, action, old);
}

__sighandler_t signal(int number, __sighandler_t handler) {
    touch_signal(number);
    return NEXT(signal)(number, handler);
}

__sighandler_t sysv_signal(int number, __sighandler_t handler) {
    touch_signal(number);
    return NEXT(sysv_signal)(number, handler);
}

__sighandler_t bsd_signal(int number, __sighandler_t handler) {
    touch_signal(number);
    return NEXT(bsd_signal)(number, handler);
}

__sighandler_t ssignal(int number, __sighandler_t handler) {
    touch_signal(number);
    return NEXT(ssignal)(number, handler);
}

__sighandler_t sigset(int number, __sighandler_t handler) {
    touch_signal(number);
    return NEXT(sigset)(number, handler);
}

int sigignore(int number) {
    touch_signal(number);
    return NEXT(sigignore)(number);
}

int siginterrupt(int number, int interrupt) {
    touch_signal(number);
    return NEXT(siginterrupt)(number, interrupt);
}

/* glibc's first thread installs handlers for its own signals, by calls that cannot be seen: SIGCANCEL and SIGSETXID, nptl. */
int pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    touch_signal(32);
    touch_signal(33);
    touch(TOUCHED_THREADS);
    return NEXT(pthread_create)(thread, attributes, start, argument);
}

int thrd_create(thrd_t *thread, thrd_start_t start, void *argument) {
    touch_signal(32);
    touch_signal(33);
    touch(TOUCHED_THREADS);
    return NEXT(thrd_create)(thread, start, argument);
}

int sigaltstack(const stack_t *stack, stack_t *old) {
    if (stack != NULL) {
        touch(TOUCHED_STACK);
    }
    return NEXT(sigaltstack)(stack, old);
}

/* --- timers ----------------------------------------------------------------------------------------------------------------------------- */

static bool is_set(const struct timeval *time) {
    return time->tv_sec != 0 || time->tv_usec != 0;
}

/* A timer that is off again, as at the snapshot, needs no reset. */
static void touch_timer(int which, bool armed) {
    struct engine *e = engine;
    if (e != NULL && which >= 0 && which < 3) {
        if (armed || is_set(&e->attributes.timers[which].it_value)) {
            e->timers_armed |= (uint8_t)(1 << which);
        } else {
            e->timers_armed &= (uint8_t) ~(1 << which);
        }
    }
}

int setitimer(__itimer_which_t which, const struct itimerval *value, struct itimerval *old) {
    touch_timer((int)which, value != NULL && is_set(&value->it_value));
    return NEXT(setitimer)(which, value, old);
}

unsigned int alarm(unsigned int seconds) {
    touch_timer(ITIMER_REAL, seconds != 0);
    return NEXT(alarm)(seconds);
}

useconds_t ualarm(useconds_t value, useconds_t interval) {
    touch_timer(ITIMER_REAL, value != 0);
    return NEXT(ualarm)(value, interval);
}

int timer_create(clockid_t clock, struct sigevent *event, timer_t *timer) {
    touch(TOUCHED_TIMERS);
    return NEXT(timer_create)(clock, event, timer);
}

/* A request's changes to a timer of the boot cannot be found afterwards. */
static void touch_boot_timer(timer_t timer) {
    intptr_t id = (intptr_t)timer;
    if (interpose_taken() && id >= 0 && (uint64_t)id < engine->attributes.next_timer) {
        snapshot_retire_later("the request changed a timer of the boot");
    }
}

int timer_settime(
    timer_t timer, int flags, const struct itimerspec *value, struct itimerspec *old) {
    touch_boot_timer(timer);
    return NEXT(timer_settime)(timer, flags, value, old);
}

int timer_delete(timer_t timer) {
    touch_boot_timer(timer);
    return NEXT(timer_delete)(timer);
}

/* --- what cannot be undone -------------------------------------------------------------------------------------------------------------- */

/* A child that a request forked may do to itself what it likes. */
static void undoable(bool done, const char *why) {
    if (done && interpose_taken()) {
        snapshot_retire_later(why);
    }
}

static const char sharing[] = "the request made a process that shares its memory or descriptors";

/* Returns whether the child goes on in this memory, or with these descriptors. One of vfork() does so only while its parent waits. */
static bool shares(uint64_t flags) {
    return (flags & (CLONE_VM | CLONE_FILES)) != 0 && (flags & (CLONE_THREAD | CLONE_VFORK)) == 0;
}

int clone(int (*start)(void *), void *stack, int flags, void *argument, ...) {
    va_list arguments;
    va_start(arguments, argument);
    pid_t *parent = va_arg(arguments, pid_t *);
    void *storage = va_arg(arguments, void *);
    pid_t *child = va_arg(arguments, pid_t *);
    va_end(arguments);
    touch((flags & CLONE_THREAD) != 0 ? TOUCHED_THREADS : TOUCHED_CHILDREN);
    undoable(shares((uint64_t)(unsigned)flags), sharing);
    return NEXT(clone)(start, stack, flags, argument, parent, storage, child);
}

/* System calls that create threads and processes, give memory marks, or get descriptors: dup() and recvmsg() of sapi/databases/libc_shim.c come this way,
 * too. Other calls that bypass the functions above are detected if `strict` is set. */
static void before_call(long number, const long arguments[6]) {
    switch (number) {
    case SYS_clone3:
        undoable(arguments[0] != 0 && arguments[1] >= (long)sizeof(uint64_t) &&
                     shares(*(const uint64_t *)arguments[0]), /* clone_args.flags */
            sharing);
        touch(TOUCHED_THREADS | TOUCHED_CHILDREN);
        break;
    case SYS_clone:
        undoable(shares((uint64_t)arguments[0]), sharing);
        touch(TOUCHED_THREADS | TOUCHED_CHILDREN);
        break;
#ifdef SYS_fork
    case SYS_fork:
    case SYS_vfork:
        touch(TOUCHED_THREADS | TOUCHED_CHILDREN);
        break;
#endif
    case SYS_madvise:
        interpose_advised((const void *)arguments[0], (size_t)arguments[1], (int)arguments[2]);
        break;
    case SYS_flock:
    case SYS_fcntl:
        touch(TOUCHED_LOCKS);
        break;
    default:
        break;
    }
}

static void after_call(long number, const long arguments[6], long result) {
    const struct msghdr *message;
    switch (number) {
    case SYS_dup:
    case SYS_dup3:
    case SYS_fcntl:
    case SYS_openat:
    case SYS_open_by_handle_at:
#ifdef SYS_openat2
    case SYS_openat2:
#endif
#ifdef SYS_pidfd_getfd
    case SYS_pidfd_getfd:
#endif
#ifdef SYS_open
    case SYS_open:
    case SYS_creat:
    case SYS_dup2:
#endif
        interpose_opened((int)result);
        break;
    case SYS_recvmsg:
        message = (const struct msghdr *)arguments[1];
        if (result >= 0 && message->msg_controllen > 0) {
            touch(TOUCHED_OPENED); /* perhaps descriptors */
        }
        break;
    case SYS_recvmmsg:
        touch(TOUCHED_OPENED);
        break;
    default:
        break;
    }
}

long syscall(long number, ...) {
    long arguments[6];
    va_list rest;
    va_start(rest, number);
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        arguments[i] = va_arg(rest, long);
    }
    va_end(rest);
    before_call(number, arguments);
    long result = NEXT(syscall)(
        number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
    after_call(number, arguments, result);
    return result;
}

/* TYPE NAME PARAMETERS, passed on with ARGUMENTS; `done` is true if the result r means success. */
#define UNDOABLE(type, name, parameters, arguments, done, why)                                     \
    type name parameters {                                                                         \
        type r = NEXT(name) arguments;                                                             \
        undoable(done, why);                                                                       \
        return r;                                                                                  \
    }

static const char priority[] = "the request changed the process's priority";
static const char limit[] = "the request changed a resource limit";
static const char user[] = "the request changed the process's user or group";
static const char group[] = "the request changed the process's session or process group";
static const char view[] = "the request changed the process's namespaces or root directory";
static const char scheduling[] = "the request changed the process's scheduling";

UNDOABLE(int, nice, (int by), (by), by != 0 && r != -1, priority)
UNDOABLE(int, setpriority, (__priority_which_t which, id_t who, int value), (which, who, value),
    r == 0, priority)
UNDOABLE(int, setrlimit, (__rlimit_resource_t resource, const struct rlimit *value),
    (resource, value), r == 0, limit)
UNDOABLE(int, setrlimit64, (__rlimit_resource_t resource, const struct rlimit64 *value),
    (resource, value), r == 0, limit)
UNDOABLE(int, prlimit,
    (pid_t pid, enum __rlimit_resource resource, const struct rlimit *value, struct rlimit *old),
    (pid, resource, value, old), r == 0 && value != NULL && (pid == 0 || pid == getpid()), limit)
UNDOABLE(int, prlimit64,
    (pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *value,
        struct rlimit64 *old),
    (pid, resource, value, old), r == 0 && value != NULL && (pid == 0 || pid == getpid()), limit)
UNDOABLE(int, setuid, (uid_t id), (id), r == 0, user)
UNDOABLE(int, setgid, (gid_t id), (id), r == 0, user)
UNDOABLE(int, seteuid, (uid_t id), (id), r == 0, user)
UNDOABLE(int, setegid, (gid_t id), (id), r == 0, user)
UNDOABLE(int, setreuid, (uid_t real, uid_t effective), (real, effective), r == 0, user)
UNDOABLE(int, setregid, (gid_t real, gid_t effective), (real, effective), r == 0, user)
UNDOABLE(int, setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved),
    r == 0, user)
UNDOABLE(int, setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved),
    r == 0, user)
UNDOABLE(int, setfsuid, (uid_t id), (id), true, user)
UNDOABLE(int, setfsgid, (gid_t id), (id), true, user)
UNDOABLE(int, setgroups, (size_t count, const gid_t *ids), (count, ids), r == 0, user)
UNDOABLE(int, initgroups, (const char *name, gid_t id), (name, id), r == 0, user)
UNDOABLE(pid_t, setsid, (void), (), r != -1, group)
UNDOABLE(
    int, setpgid, (pid_t pid, pid_t to), (pid, to), r == 0 && (pid == 0 || pid == getpid()), group)
UNDOABLE(int, setpgrp, (void), (), r == 0, group)
UNDOABLE(int, chroot, (const char *path), (path), r == 0, view)
UNDOABLE(int, unshare, (int flags), (flags), r == 0, view)
UNDOABLE(int, setns, (int fd, int type), (fd, type), r == 0, view)
UNDOABLE(int, sched_setaffinity, (pid_t pid, size_t len, const cpu_set_t *processors),
    (pid, len, processors), r == 0 && (pid == 0 || pid == getpid()), scheduling)
UNDOABLE(int, sched_setscheduler, (pid_t pid, int policy, const struct sched_param *parameter),
    (pid, policy, parameter), r != -1 && (pid == 0 || pid == getpid()), scheduling)
UNDOABLE(int, sched_setparam, (pid_t pid, const struct sched_param *parameter), (pid, parameter),
    r == 0 && (pid == 0 || pid == getpid()), scheduling)
UNDOABLE(int, personality, (unsigned long value), (value), r != -1 && value != 0xffffffff,
    "the request changed the process's personality")
UNDOABLE(int, capset, (void *header, const void *data), (header, data), r == 0,
    "the request changed the process's capabilities")

/* Reading is harmless, and so are names. */
static bool is_harmless(int option) {
    switch (option) {
    case PR_GET_PDEATHSIG:
    case PR_GET_DUMPABLE:
    case PR_GET_UNALIGN:
    case PR_GET_KEEPCAPS:
    case PR_GET_FPEMU:
    case PR_GET_FPEXC:
    case PR_GET_TIMING:
    case PR_SET_NAME:
    case PR_GET_NAME:
    case PR_GET_ENDIAN:
    case PR_GET_SECCOMP:
    case PR_CAPBSET_READ:
    case PR_GET_TSC:
    case PR_GET_SECUREBITS:
    case PR_GET_TIMERSLACK:
    case PR_MCE_KILL_GET:
    case PR_GET_CHILD_SUBREAPER:
    case PR_GET_NO_NEW_PRIVS:
    case PR_GET_TID_ADDRESS:
    case PR_GET_THP_DISABLE:
    case PR_GET_SPECULATION_CTRL:
#ifdef PR_SET_VMA
    case PR_SET_VMA:
#endif
        return true;
    default:
        return false;
    }
}

int prctl(int option, ...) {
    va_list arguments;
    va_start(arguments, option);
    unsigned long a = va_arg(arguments, unsigned long);
    unsigned long b = va_arg(arguments, unsigned long);
    unsigned long c = va_arg(arguments, unsigned long);
    unsigned long d = va_arg(arguments, unsigned long);
    va_end(arguments);
    int r = NEXT(prctl)(option, a, b, c, d);
    if (option == PR_SET_NAME) {
        touch(TOUCHED_NAME);
    }
    undoable(r != -1 && !is_harmless(option), "the request called prctl()");
    return r;
}

#endif
