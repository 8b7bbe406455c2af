/* Replacements of libc's calls, exported by the program, so that a restore knows a request's
 * effects. Before snapshot_arrange() they only call libc.
 *
 * Promises
 * - They may be called at any time, by any thread, before constructors ran, and inside one another.
 * - Besides calling libc they only set bits in the engine's memory.
 */
#ifndef HEARTH_SNAPSHOT_INTERPOSE_H
#define HEARTH_SNAPSHOT_INTERPOSE_H

#include "snapshot/engine.h"

#if SNAPSHOT_ENGINE

/* Functions that are passed on to libc; mmap() and similar functions are our own system calls. */
#define INTERPOSED(X)                                                                              \
    X(dlopen)                                                                                      \
    X(fork)                                                                                        \
    X(_Fork)                                                                                       \
    X(forkpty)                                                                                     \
    X(wordexp)                                                                                     \
    X(vfork)                                                                                       \
    X(posix_spawn)                                                                                 \
    X(posix_spawnp)                                                                                \
    X(popen)                                                                                       \
    X(system)                                                                                      \
    X(sigaction)                                                                                   \
    X(signal)                                                                                      \
    X(sysv_signal)                                                                                 \
    X(bsd_signal)                                                                                  \
    X(ssignal)                                                                                     \
    X(sigset)                                                                                      \
    X(sigignore)                                                                                   \
    X(siginterrupt)                                                                                \
    X(sigaltstack)                                                                                 \
    X(setitimer)                                                                                   \
    X(alarm)                                                                                       \
    X(ualarm)                                                                                      \
    X(timer_create)                                                                                \
    X(timer_settime)                                                                               \
    X(timer_delete)                                                                                \
    X(close)                                                                                       \
    X(dup2)                                                                                        \
    X(dup3)                                                                                        \
    X(close_range)                                                                                 \
    X(closefrom)                                                                                   \
    X(fclose)                                                                                      \
    X(freopen)                                                                                     \
    X(closedir)                                                                                    \
    X(pclose)                                                                                      \
    X(openlog)                                                                                     \
    X(closelog)                                                                                    \
    X(fcloseall)                                                                                   \
    X(fcntl)                                                                                       \
    X(fcntl64)                                                                                     \
    X(ioctl)                                                                                       \
    X(chdir)                                                                                       \
    X(fchdir)                                                                                      \
    X(umask)                                                                                       \
    X(flock)                                                                                       \
    X(lockf)                                                                                       \
    X(lockf64)                                                                                     \
    X(pthread_create)                                                                              \
    X(thrd_create)                                                                                 \
    X(syscall)                                                                                     \
    X(clone)                                                                                       \
    X(mlock)                                                                                       \
    X(mlock2)                                                                                      \
    X(mlockall)                                                                                    \
    X(munlock)                                                                                     \
    X(munlockall)                                                                                  \
    X(malloc_trim)                                                                                 \
    X(prctl)                                                                                       \
    X(nice)                                                                                        \
    X(setpriority)                                                                                 \
    X(setrlimit)                                                                                   \
    X(setrlimit64)                                                                                 \
    X(prlimit)                                                                                     \
    X(prlimit64)                                                                                   \
    X(setuid)                                                                                      \
    X(setgid)                                                                                      \
    X(seteuid)                                                                                     \
    X(setegid)                                                                                     \
    X(setreuid)                                                                                    \
    X(setregid)                                                                                    \
    X(setresuid)                                                                                   \
    X(setresgid)                                                                                   \
    X(setfsuid)                                                                                    \
    X(setfsgid)                                                                                    \
    X(setgroups)                                                                                   \
    X(initgroups)                                                                                  \
    X(setsid)                                                                                      \
    X(setpgid)                                                                                     \
    X(setpgrp)                                                                                     \
    X(chroot)                                                                                      \
    X(unshare)                                                                                     \
    X(setns)                                                                                       \
    X(sched_setaffinity)                                                                           \
    X(sched_setscheduler)                                                                          \
    X(sched_setparam)                                                                              \
    X(open)                                                                                        \
    X(open64)                                                                                      \
    X(openat)                                                                                      \
    X(openat64)                                                                                    \
    X(creat)                                                                                       \
    X(creat64)                                                                                     \
    X(fopen)                                                                                       \
    X(fopen64)                                                                                     \
    X(freopen64)                                                                                   \
    X(__open_2)                                                                                    \
    X(__open64_2)                                                                                  \
    X(__openat_2)                                                                                  \
    X(__openat64_2)                                                                                \
    X(personality)                                                                                 \
    X(capset)

/* glibc's checked forms, which its headers declare only for themselves. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int directory, const char *path, int flags);
int __openat64_2(int directory, const char *path, int flags);

enum interposed {
#define INTERPOSED_INDEX(name) NEXT_##name,
    INTERPOSED(INTERPOSED_INDEX)
#undef INTERPOSED_INDEX
        INTERPOSED_COUNT
};

extern void *interposed[INTERPOSED_COUNT];
void *interpose_find(enum interposed which);

/* libc's own, of the type that its header declares. */
#define NEXT(name)                                                                                 \
    ((__typeof__(&name))(__builtin_expect(interposed[NEXT_##name] != NULL, 1)                      \
                             ? interposed[NEXT_##name]                                             \
                             : interpose_find(NEXT_##name)))

/* Notes what a request asks for memory. Any stack. Borrowed: address. */
void interpose_advised(const void *address, size_t len, int advice);

/* Notes that the request has one more descriptor: `fd`, or none if that is negative. Any stack. */
void interpose_opened(int fd);

/* Returns whether this process has a snapshot; false in a child that a request forked. */
static inline bool interpose_taken(void) {
    return engine != NULL && engine->taken && *engine->own_process == 1;
}

#endif
#endif
