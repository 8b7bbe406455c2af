/* A harmful library: through FFI it damages its own process in ways that no request may leave behind. adversary_boot() sets up state
 * at the boot, adversary_start() in each worker, adversary_do() damages it, adversary_look() describes it as text that must never
 * change. Built by the test: gcc -shared -fPIC -o adversary.so adversary.c */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 32 };
#if defined(__x86_64__)
enum { PAGE = 4096, PAGE_LARGEST = PAGE };
#else
enum { PAGE_LARGEST = 65536 }; /* on ARM64 it depends on the kernel: 4, 16 or 64 KB */
#define PAGE getpagesize()
#endif
#define BLOCK ((size_t)(73 * PAGE + 992))
/* Each array has this many of the kernel's pages. */
#define LEN ((size_t)(PAGES * PAGE))

static unsigned char data[PAGES * PAGE_LARGEST] __attribute__((aligned(PAGE_LARGEST))) = {1, 2, 3};
static unsigned char bss[PAGES * PAGE_LARGEST] __attribute__((aligned(PAGE_LARGEST)));
static __thread unsigned char local[PAGE_LARGEST];
static unsigned char *block, *anon, *readonly;
static int regular, pair[2];
static int rounding_at_boot;

/* --- state --- */

static void on_signal(int number) {
    (void)number;
}

static void fill(unsigned char *at, size_t len) {
    for (size_t i = 0; i < len; i++) {
        at[i] = (unsigned char)(i * 31 + i / PAGE * 17 + 1);
    }
}

int adversary_boot(void) {
    fill(data + PAGE, LEN - (size_t)PAGE);
    fill(bss, LEN / 2); /* the rest is never touched */
    fill(local, (size_t)PAGE);
    block = malloc(BLOCK);
    anon = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    readonly = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char name[] = "/tmp/adversary-XXXXXX";
    regular = mkstemp(name);
    if (block == NULL || anon == MAP_FAILED || readonly == MAP_FAILED || regular < 0 ||
        unlink(name) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        return -1;
    }
    fill(block, BLOCK);
    fill(anon, LEN / 2);
    fill(readonly, PAGE);
    if (write(regular, data, LEN) != (ssize_t)LEN || lseek(regular, 100, SEEK_SET) != 100 ||
        mprotect(readonly, PAGE, PROT_READ) != 0) {
        return -1;
    }
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    rounding_at_boot = fegetround();
    return 0;
}

/* What workers cannot share. */
int adversary_start(void) {
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}

static char text[65536];
static size_t text_len;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    text_len += (size_t)vsnprintf(text + text_len, sizeof text - text_len, format, arguments);
    va_end(arguments);
    if (text_len > sizeof text - 1) {
        text_len = sizeof text - 1;
    }
}

/* FNV-1a */
static uint64_t sum(const unsigned char *at, size_t len) {
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t i = 0; i < len; i++) {
        sum = (sum ^ at[i]) * 0x100000001b3;
    }
    return sum;
}

static void look_at_descriptors(void) {
    for (int fd = 0; fd < 1024; fd++) {
        struct stat status;
        int flags = fcntl(fd, F_GETFD);
        if (flags < 0 || fstat(fd, &status) != 0) {
            continue;
        }
        /* offsets of other files may move: the log, the engine's own */
        off_t position = fd == regular ? lseek(fd, 0, SEEK_CUR) : 0;
        say("descriptor %d %o %d %x %ld\n", fd, status.st_mode & S_IFMT, flags, fcntl(fd, F_GETFL),
            (long)position);
    }
}

/* The floating-point mode, without the status flags: mxcsr, or FPCR. */
static unsigned floating_point(void) {
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & 0xffc0;
#else
    unsigned long control;
    __asm__("mrs %0, fpcr" : "=r"(control));
    return (unsigned)control;
#endif
}

static void look_at_attributes(void) {
    for (int number = 1; number < 65; number++) {
        long action[4] = {0};
        syscall(SYS_rt_sigaction, number, NULL, action, 8);
        if (action[0] != 0 || action[1] != 0) {
            say("signal %d %lx %lx %lx\n", number, action[0], action[1], action[3]);
        }
    }
    sigset_t blocked, pending;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    sigpending(&pending);
    for (int number = 1; number < 65; number++) {
        if (sigismember(&blocked, number) == 1 || sigismember(&pending, number) == 1) {
            say("blocked or pending %d\n", number);
        }
    }
    for (int which = 0; which < 3; which++) {
        struct itimerval timer;
        getitimer(which, &timer);
        say("timer %d %s\n", which,
            timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0 ? "armed" : "off");
    }
    mode_t mask = umask(0);
    umask(mask);
    char directory[4096] = "", name[32] = "";
    prctl(PR_GET_NAME, name);
    stack_t stack = {0};
    sigaltstack(NULL, &stack);
    say("umask %o directory %s name %s priority %d stack %lx rounding %d floating %x locale %s "
        "timezone %ld\n",
        mask, getcwd(directory, sizeof directory), name, getpriority(PRIO_PROCESS, 0),
        (unsigned long)stack.ss_sp, fegetround() == rounding_at_boot, floating_point(),
        setlocale(LC_ALL, NULL), timezone);
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        getrlimit(i, &limit);
        say("limit %d %lx %lx\n", i, limit.rlim_cur, limit.rlim_max);
    }
}

static void look_at_environment(void) {
    uint64_t all = 0;
    for (char **entry = environ; *entry != NULL; entry++) {
        all = all * 31 + sum((const unsigned char *)*entry, strlen(*entry));
    }
    say("environment %lx\n", all);
}

static void look_at_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[600];
    uint64_t writable = 0, other = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end;
        char permissions[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, permissions) != 3 ||
            strstr(line, "[stack]") != NULL) {
            continue;
        }
        /* The engine's view of its copies: as large as what this worker changed since it was forked. */
        if (permissions[1] == 'w' || strstr(line, "memfd:hearth-snapshot") == NULL) {
            *(permissions[1] == 'w' ? &writable : &other) += end - start;
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    say("mapped %lu writable, %lu other, brk %lx\n", writable, other, (unsigned long)sbrk(0));
}

const char *adversary_look(void) {
    text_len = 0;
    say("data %lx bss %lx local %lx block %lx anon %lx readonly %lx\n", sum(data, LEN),
        sum(bss, LEN), sum(local, (size_t)PAGE), sum(block, BLOCK), sum(anon, LEN),
        sum(readonly, (size_t)PAGE));
    look_at_mappings();
    look_at_descriptors();
    look_at_attributes();
    look_at_environment();
    return text;
}

/* --- damage --- */

static void cold_write(int n) {
    bss[(4 + n) % PAGES * PAGE + 7] ^= 0x80;
    anon[(4 + n) % PAGES * PAGE] ^= 0x80;
    data[(4 + n) % PAGES * PAGE + PAGE - 1] ^= 0x80;
    block[(4 + n) * PAGE] ^= 0x80;
}
static void write_all(int n) {
    memset(data, n, LEN);
    memset(bss, n + 1, LEN);
    memset(local, n + 2, (size_t)PAGE);
    memset(block, n + 3, BLOCK);
    memset(anon, n + 4, LEN);
}
static void kernel_writes(int n) {
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC), ends[2];
    if (read(fd, bss + (5 + n) * PAGE, 64) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 ||
        send(ends[0], "received", 8, 0) != 8 || recv(ends[1], bss + (8 + n) * PAGE, 8, 0) != 8) {
        abort();
    }
    getcwd((char *)data + (3 + n) * PAGE, PAGE);
}
static void proc_mem(int n) {
    int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    unsigned char byte = (unsigned char)(7 + n);
    if (pwrite(fd, &byte, 1, (off_t)(uintptr_t)(bss + (3 + n) * PAGE)) != 1 ||
        pwrite(fd, &byte, 1, (off_t)(uintptr_t)(data + (9 + n) * PAGE)) != 1) {
        abort();
    }
}
static void process_vm(int n) {
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        uint64_t value = (uint64_t)n + 1;
        struct iovec from = {&value, sizeof value}, to = {bss + 11 * PAGE, sizeof value};
        process_vm_writev(parent, &from, 1, &to, 1, 0);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
static __attribute__((noinline)) int recurse(int depth) {
    volatile unsigned char frame[4000];
    frame[depth % 4000] = (unsigned char)depth;
    return depth == 0 ? frame[0] : recurse(depth - 1) + frame[depth % 4000];
}
static void deep_stack(int n) {
    recurse(1000 + n);
}
static void allocate(int n) {
    for (int i = 0; i < 2000; i++) {
        void *at = malloc((size_t)(i % 50 == 0 ? 200000 : 100 + i));
        memset(at, n, 100);
        if (i % 3 == 0) {
            free(at);
        }
    }
    memset(malloc(20 << 20), n, 1 << 20);
}
static void free_boot(int n) {
    block[n] = 0;
    free(block);
    memset(malloc(BLOCK), n, BLOCK);
}
static void grow_brk(int n) {
    memset(sbrk((n + 1) * PAGE), n, PAGE);
}
static void change_thread_state(int n) {
    errno = n;
    fesetround(FE_UPWARD);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x9f80);
#else
    __asm__ volatile("msr fpcr, %0" : : "r"(3UL << 24)); /* flush to zero, default NaN */
#endif
    local[n] ^= 1;
}

static unsigned char clone_stack[65536] __attribute__((aligned(64)));
static int shared_write(void *argument) {
    cold_write((int)(intptr_t)argument);
    return 0;
}
static void share(int n) {
    static const int signals[] = {SIGCHLD, SIGCHLD, 0, 0};
    pid_t pid = clone(shared_write, clone_stack + sizeof clone_stack,
        CLONE_VM | CLONE_VFORK | signals[n % 4], (void *)(intptr_t)n);
    if (n % 2 == 0) {
        waitpid(pid, NULL, __WALL);
    }
}
static void share_ignored(int n) {
    signal(SIGCHLD, SIG_IGN);
    share(n % 2);
}
static void *thread_write(void *argument) {
    cold_write((int)(intptr_t)argument);
    return NULL;
}
static void threads(int n) {
    pthread_t thread;
    for (int i = 0; i <= n % 3; i++) {
        if (pthread_create(&thread, NULL, thread_write, (void *)(intptr_t)n) == 0) {
            pthread_join(thread, NULL);
        }
    }
}
static void *thread_sleep(void *argument) {
    sleep(1000);
    return argument;
}
static void leave_thread(int n) {
    pthread_t thread;
    pthread_create(&thread, NULL, thread_sleep, (void *)(intptr_t)n);
}
static void fork_and_leave(int n) {
    for (int i = 0; i <= n % 3; i++) {
        if (fork() == 0) {
            cold_write(n);
            _exit(0);
        }
    }
}
static void run_programs(int n) {
    if (system("true") < 0) {
        abort();
    }
    FILE *pipe = popen("echo output", "r");
    char line[16];
    if (pipe != NULL && fgets(line, sizeof line, pipe) != NULL && n % 2 == 0) {
        pclose(pipe);
    }
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", NULL);
        _exit(127);
    }
}

static void discard(int n) {
    madvise(bss + (2 + n) * PAGE, PAGE, MADV_DONTNEED);
    madvise(data + (2 + n) * PAGE, PAGE, MADV_DONTNEED);
    madvise(anon + (2 + n) * PAGE, PAGE, MADV_FREE);
}
static void discard_raw(int n) {
    syscall(SYS_madvise, bss + (2 + n) * PAGE, PAGE, MADV_DONTNEED);
    syscall(SYS_madvise, data + (2 + n) * PAGE, PAGE, MADV_DONTNEED);
    bss[LEN - (size_t)(1 + n) * (size_t)PAGE] = 1;
}
static void discard_and_read(int n) {
    syscall(SYS_madvise, bss + (2 + n) * PAGE, PAGE, MADV_DONTNEED);
    volatile unsigned char *at = bss + (2 + n) * PAGE;
    (void)*at;
}
static void discard_heap(int n) {
    uintptr_t page = ((uintptr_t)block + 4 * PAGE) / PAGE * PAGE;
    syscall(SYS_madvise, page + (uintptr_t)n * PAGE, PAGE, MADV_DONTNEED);
}
static void leave_mappings(int n) {
    for (int i = 0; i <= n * 20; i++) {
        void *at =
            mmap(NULL, (size_t)(1 + i % 3) * PAGE, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE,
                (i % 5 ? MAP_PRIVATE : MAP_SHARED) | MAP_ANONYMOUS, -1, 0);
        if (i % 2 == 0) {
            memset(at, 1, PAGE);
        }
    }
    memset((void *)syscall(
               SYS_mmap, NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
        1, 1 << 20);
}
static void protect(int n) {
    mprotect(anon, 4 * PAGE, n % 2 ? PROT_NONE : PROT_READ);
    mprotect(bss + 4 * PAGE, PAGE, PROT_NONE);
}
static void protect_raw(int n) {
    syscall(SYS_mprotect, anon + (1 + n) * PAGE, PAGE, PROT_NONE);
}
static void map_over(int n) {
    mmap(bss + (2 + n) * PAGE, PAGE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
static void map_over_raw(int n) {
    syscall(SYS_mmap, anon + (2 + n) * PAGE, PAGE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
static void unmap_boot(int n) {
    munmap(anon + n * PAGE, PAGE);
}

static void open_descriptors(int n) {
    for (int i = 0; i <= n * 50; i++) {
        open("/dev/null", O_RDWR);
    }
    int ends[2];
    if (pipe(ends) != 0 || epoll_create1(0) < 0 || dup(regular) < 0) {
        abort();
    }
    socket(AF_INET, SOCK_STREAM, 0);
}
static void change_descriptors(int n) {
    lseek(regular, n, SEEK_SET);
    fcntl(regular, F_SETFL, fcntl(regular, F_GETFL) ^ O_NONBLOCK);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    fcntl(pair[1], F_SETFD, FD_CLOEXEC);
}
static void change_descriptors_raw(int n) {
    char bytes[64];
    syscall(SYS_read, regular, bytes, 10 + n);
    syscall(SYS_fcntl, pair[0], F_SETFL, O_NONBLOCK);
}
static void close_boot(int n) {
    close(pair[n % 2]);
}
static void replace_boot(int n) {
    close(pair[n % 2]);
    socket(AF_UNIX, SOCK_STREAM, 0);
}

static void change_signals(int n) {
    signal(SIGUSR1, SIG_IGN);
    struct sigaction action = {.sa_handler = n % 2 ? SIG_IGN : on_signal};
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
}
static void change_signals_raw(int n) {
    long action[4] = {1, 0, 0, 0};
    sigset_t set;
    sigfillset(&set);
    syscall(SYS_rt_sigaction, n % 2 ? SIGUSR1 : SIGHUP, action, NULL, 8);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &set, NULL, 8);
}
static void leave_pending(int n) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    for (int i = 0; i <= n; i++) {
        kill(getpid(), SIGRTMIN);
    }
}
/* A timer that fires before the request ends does no harm: the worker may wait for its processor for as long. */
static void survive_timers(void) {
    signal(SIGALRM, on_signal);
    signal(SIGVTALRM, on_signal);
    signal(SIGRTMIN, on_signal);
}
static void leave_timers(int n) {
    survive_timers();
    struct itimerval soon = {.it_value.tv_usec = 20000 + n};
    setitimer(ITIMER_REAL, &soon, NULL);
    setitimer(ITIMER_VIRTUAL, &soon, NULL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec spec = {.it_value.tv_nsec = 20000000};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    timer_settime(timer, 0, &spec, NULL);
}
static void leave_timer_raw(int n) {
    survive_timers();
    struct itimerval soon = {.it_value.tv_usec = 20000 + n};
    syscall(SYS_setitimer, ITIMER_REAL, &soon, NULL);
}
static void change_process(int n) {
    umask((mode_t)n);
    prctl(PR_SET_NAME, "adversary");
    stack_t stack = {.ss_sp = block, .ss_size = 65536};
    sigaltstack(&stack, NULL);
    if (chdir(n % 2 ? "/" : "/tmp") != 0) {
        abort();
    }
}
static void change_process_raw(int n) {
    syscall(SYS_umask, n);
    syscall(SYS_chdir, "/etc");
}
static void change_library(int n) {
    setlocale(LC_ALL, "C.UTF-8");
    setenv("TZ", n % 2 ? "Asia/Tokyo" : "XYZ5", 1);
    tzset();
    unsetenv("PATH");
}
static void change_nice(int n) {
    setpriority(PRIO_PROCESS, 0, 1 + n);
}
static void change_limit(int n) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur -= (rlim_t)(1 + n);
    setrlimit(RLIMIT_NOFILE, &limit);
}

#define OPERATION(name)                                                                            \
    { #name, name }
static const struct {
    const char *name;
    void (*run)(int n);
} operations[] = {
    OPERATION(cold_write),
    OPERATION(write_all),
    OPERATION(kernel_writes),
    OPERATION(proc_mem),
    OPERATION(process_vm),
    OPERATION(deep_stack),
    OPERATION(allocate),
    OPERATION(free_boot),
    OPERATION(grow_brk),
    OPERATION(change_thread_state),
    OPERATION(share),
    OPERATION(share_ignored),
    OPERATION(threads),
    OPERATION(leave_thread),
    OPERATION(fork_and_leave),
    OPERATION(run_programs),
    OPERATION(discard),
    OPERATION(discard_raw),
    OPERATION(discard_and_read),
    OPERATION(discard_heap),
    OPERATION(leave_mappings),
    OPERATION(protect),
    OPERATION(protect_raw),
    OPERATION(map_over),
    OPERATION(map_over_raw),
    OPERATION(unmap_boot),
    OPERATION(open_descriptors),
    OPERATION(change_descriptors),
    OPERATION(change_descriptors_raw),
    OPERATION(close_boot),
    OPERATION(replace_boot),
    OPERATION(change_signals),
    OPERATION(change_signals_raw),
    OPERATION(leave_pending),
    OPERATION(leave_timers),
    OPERATION(leave_timer_raw),
    OPERATION(change_process),
    OPERATION(change_process_raw),
    OPERATION(change_library),
    OPERATION(change_nice),
    OPERATION(change_limit),
};

/* The name of the n-th, NULL behind the last. */
const char *adversary_name(int n) {
    return (size_t)n < sizeof operations / sizeof operations[0] ? operations[n].name : NULL;
}

/* -1: there is no such operation. */
int adversary_do(const char *name, int n) {
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        if (strcmp(operations[i].name, name) == 0) {
            operations[i].run(n % 4);
            return 0;
        }
    }
    return -1;
}
