/* System calls without libc: no errno, no cancellation, nothing in memory that a restore would have to care about. Results are the kernel's
 * (-EINVAL, not -1). */
#ifndef HEARTH_SNAPSHOT_RAW_H
#define HEARTH_SNAPSHOT_RAW_H

#include <fcntl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long raw_syscall(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long raw_syscall(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#endif

/* raw(SYS_name, arguments...): any number of arguments, of any type that fits a register. */
#define RAW_0(n) raw_syscall(n, 0, 0, 0, 0, 0, 0)
#define RAW_1(n, a) raw_syscall(n, (long)(a), 0, 0, 0, 0, 0)
#define RAW_2(n, a, b) raw_syscall(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define RAW_3(n, a, b, c) raw_syscall(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RAW_4(n, a, b, c, d) raw_syscall(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define RAW_5(n, a, b, c, d, e)                                                                    \
    raw_syscall(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define RAW_6(n, a, b, c, d, e, f)                                                                 \
    raw_syscall(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define RAW_PICK(n, a, b, c, d, e, f, name, ...) name
#define raw(...)                                                                                   \
    RAW_PICK(__VA_ARGS__, RAW_6, RAW_5, RAW_4, RAW_3, RAW_2, RAW_1, RAW_0, 0)(__VA_ARGS__)

/* ARM64 has openat(2) only. Borrowed: path. */
static inline long raw_open(const char *path, int flags) {
    return raw(SYS_openat, AT_FDCWD, path, flags, 0);
}

/* Returns whether a call that returns an address failed. */
static inline _Bool raw_failed(long result) {
    return result < 0 && result > -4096;
}

#endif
