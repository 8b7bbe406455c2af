/* Cases: descriptors, the engine's own included. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot.h"

/* --- new ones are closed --- */

static void open_some(unsigned n) {
    for (unsigned i = 0; i < 3 + n; i++) {
        open("/etc/passwd", O_RDONLY | (i % 2 == 0 ? O_CLOEXEC : 0));
    }
}
static void open_many(unsigned n) {
    for (unsigned i = 0; i < 400 + n; i++) {
        open("/dev/null", O_RDWR);
    }
}
static void open_all(unsigned n) {
    (void)n;
    while (open("/dev/null", O_RDWR) >= 0) {
    }
    check(errno == EMFILE, "the limit of descriptors is reached: %s", strerror(errno));
}
static void open_kinds(unsigned n) {
    int ends[2];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof address;
    if (pipe(ends) != 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0 ||
        bind(listener, (struct sockaddr *)&address, len) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &len) != 0 ||
        connect(client, (struct sockaddr *)&address, len) != 0) {
        give_up("sockets");
    }
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event);
    eventfd(n, 0);
    signalfd(-1, &set, 0);
    timerfd_settime(timerfd_create(CLOCK_MONOTONIC, 0), 0, &soon, NULL);
    inotify_add_watch(inotify_init(), "/tmp", IN_CREATE);
    memory_file("memory");
    dup(boot.pair[0]);
    fcntl(boot.regular, F_DUPFD, 150);
    dup2(boot.regular, 900 + (int)n);
    opendir("/");
    fopen("/etc/passwd", "r");
}

/* --- boot descriptors --- */

static void close_regular(unsigned n) {
    close(boot.regular + 0 * (int)n);
}
static void close_raw(unsigned n) {
    raw(SYS_close, boot.pipe[n % 2], 0, 0, 0, 0, 0);
}
static void close_standard(unsigned n) {
    close(n % 2 == 0 ? STDIN_FILENO : STDOUT_FILENO);
}
static void close_high(unsigned n) {
    close(boot.high + 0 * (int)n);
}
static void close_from(unsigned n) {
    close_range(3 + n, ~0U, 0);
}
static void close_from_raw(unsigned n) {
    raw(SYS_close_range, 3 + n, ~0U, 0, 0, 0, 0);
}

static void reopen_same_file(unsigned n) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", boot.regular);
    int other = open(path, O_RDWR);
    lseek(other, 100 + n, SEEK_SET);
    dup2(other, boot.regular);
    close(other);
}
static void reuse_by_file(unsigned n) {
    close(boot.pair[n % 2]);
    check(open("/etc/passwd", O_RDONLY) == boot.pair[n % 2], "the lowest number is used again");
}
static void reuse_by_socket(unsigned n) {
    close(boot.pair[n % 2]);
    check(socket(AF_UNIX, SOCK_STREAM, 0) == boot.pair[n % 2], "the lowest number is used again");
}
static void reuse_null(unsigned n) {
    (void)n; /* the same device: only the open file's identity differs */
    close(boot.high);
    int other = open("/dev/null", O_RDWR);
    dup2(other, boot.high);
    close(other);
}
static void exchange(unsigned n) {
    (void)n;
    int spare = dup(boot.pair[0]);
    dup2(boot.pair[1], boot.pair[0]);
    dup2(spare, boot.pair[1]);
    close(spare);
}
static void dup_over(unsigned n) {
    dup3(boot.event, boot.epoll, n % 2 == 0 ? O_CLOEXEC : 0);
}
static void close_and_dup_back(unsigned n) {
    /* the same open file again under the same number */
    int spare = dup(boot.pair[n % 2]);
    close(boot.pair[n % 2]);
    dup2(spare, boot.pair[n % 2]);
    close(spare);
}
static void dup_over_standard(unsigned n) {
    int null = open("/dev/null", O_RDWR);
    dup2(null, n % 2 == 0 ? STDERR_FILENO : STDIN_FILENO);
}

/* --- state of boot descriptors --- */

static void move_offset(unsigned n) {
    char bytes[200];
    switch (n % 3) {
    case 0:
        check(read(boot.regular, bytes, sizeof bytes) >= 0, "read()");
        break;
    case 1:
        lseek(boot.regular, 5, SEEK_END);
        break;
    default:
        check(pread(boot.regular, bytes, 7, 0) == 7, "pread()");
        raw(SYS_lseek, boot.regular, 7, SEEK_SET, 0, 0, 0);
    }
}
static void move_append(unsigned n) {
    lseek(boot.append, n, SEEK_SET);
    if (write(boot.append, "appended", 8) != 8) {
        give_up("write");
    }
}
static void read_directory(unsigned n) {
    char entries[1024];
    check(raw(SYS_getdents64, boot.directory, (long)entries, sizeof entries - n, 0, 0, 0) > 0,
        "getdents64()");
}
static void change_flags(unsigned n) {
    int fds[] = {boot.regular, boot.append, boot.pipe[0], boot.pair[1], boot.event};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        int flags = fcntl(fds[i], F_GETFL);
        fcntl(fds[i], F_SETFL, n % 2 == 0 ? flags ^ O_NONBLOCK : flags ^ O_APPEND ^ O_NONBLOCK);
    }
}
static void change_flags_by_ioctl(unsigned n) {
    int on = (int)(n % 2 == 0);
    ioctl(boot.pair[0], FIONBIO, &on);
    ioctl(boot.event, FIONBIO, &(int){0});
}
static void change_flags_raw(unsigned n) {
    raw(SYS_fcntl, boot.pipe[n % 2], F_SETFL, O_NONBLOCK, 0, 0, 0);
}
static void change_cloexec(unsigned n) {
    fcntl(boot.pair[n % 2], F_SETFD, FD_CLOEXEC);
    fcntl(boot.epoll, F_SETFD, 0);
    ioctl(boot.event, FIOCLEX);
}
static void take_locks(unsigned n) {
    if (n % 2 == 0) {
        flock(boot.regular, LOCK_EX);
    } else {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
        fcntl(boot.regular, F_SETLK, &lock);
        fcntl(boot.append, F_OFD_SETLK, &lock);
    }
}

static void lock_by_child(unsigned n) {
    pid_t child = fork();
    if (child == 0) {
        int flags = fcntl(boot.pipe[0], F_GETFL);
        raw(SYS_fcntl, boot.pipe[0], F_SETFL, flags ^ O_NONBLOCK, 0, 0, 0);
        raw(SYS_flock, boot.regular, n % 2 == 0 ? LOCK_EX : LOCK_SH, 0, 0, 0, 0);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}
static int readable;
static void open_for_reading_and_appending(void) {
    readable = memory_file("readable");
    if (write(readable, "0123456789", 10) != 10 || fcntl(readable, F_SETFL, O_APPEND) != 0) {
        give_up("a file to append");
    }
    lseek(readable, 3, SEEK_SET);
}
static void read_from_appended(unsigned n) {
    char bytes[8];
    check(lseek(readable, 0, SEEK_CUR) == 3, "the position is where the boot left it");
    raw(SYS_read, readable, (long)bytes, 1 + n % 4, 0, 0, 0);
}
/* --- the engine's own --- */

static bool is_scenery(int fd) {
    int own[] = {boot.regular, boot.append, boot.pipe[0], boot.pipe[1], boot.pair[0], boot.pair[1],
        boot.epoll, boot.event, boot.directory, boot.high};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (fd == own[i]) {
            return true;
        }
    }
    return fd < 3;
}
/* All that neither the scenery nor the request opened. */
static int each_of_engine(int first, int (*use)(int fd)) {
    int count = 0;
    for (int fd = 3; fd < 4096; fd++) {
        if (!is_scenery(fd) && raw(SYS_fcntl, fd, F_GETFD, 0, 0, 0, 0) >= 0 && count++ >= first) {
            use(fd);
        }
    }
    return count;
}
static int close_one(int fd) {
    return close(fd);
}
static int replace_one(int fd) {
    return dup2(boot.event, fd);
}
static int close_one_raw(int fd) {
    return (int)raw(SYS_close, fd, 0, 0, 0, 0, 0);
}
/* Offsets of the test's own output are excluded, which a duplicate shares. */
static int rewind_one(int fd) {
    struct stat standard, other;
    for (int i = 0; i < 3; i++) {
        if (fstat(i, &standard) == 0 && fstat(fd, &other) == 0 && standard.st_ino == other.st_ino) {
            return 0;
        }
    }
    return (int)lseek(fd, 0, SEEK_SET);
}

static void close_engine(unsigned n) {
    each_of_engine((int)n, close_one);
}
static void close_engine_raw(unsigned n) {
    each_of_engine((int)n, close_one_raw);
}
static void replace_engine(unsigned n) {
    each_of_engine((int)n, replace_one);
}
static void rewind_engine(unsigned n) {
    each_of_engine((int)n, rewind_one);
}
/* Each descriptor in turn: the engine must notice that it is missing. */
static int nth, seen;
static int close_nth(int fd) {
    return seen++ == nth ? close(fd) : 0;
}
static int replace_nth(int fd) {
    return seen++ == nth ? dup2(boot.event, fd) : 0;
}
static void close_nth_of_engine(int which) {
    nth = which;
    seen = 0;
    each_of_engine(0, close_nth);
}
#define NTH(number)                                                                                \
    static void close_engine_##number(unsigned n) {                                                \
        (void)n;                                                                                   \
        close_nth_of_engine(number);                                                               \
    }                                                                                              \
    static void replace_engine_##number(unsigned n) {                                              \
        (void)n;                                                                                   \
        nth = number;                                                                              \
        seen = 0;                                                                                  \
        each_of_engine(0, replace_nth);                                                            \
    }
NTH(0)
NTH(1)
NTH(2)
NTH(3)
NTH(4)
NTH(5)
NTH(6)
NTH(7)

/* --- the limit --- */

static void lower_limit(unsigned n) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 30 + n;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static const struct test_case cases[] = {
    {.name = "descriptors are left", .request = open_some},
    {.name = "400 descriptors are left", .request = open_many, .flags = HEAVY},
    {.name = "as many descriptors as there can be", .request = open_all, .flags = HEAVY | LAST},
    {.name = "descriptors of every kind are left", .request = open_kinds, .flags = HEAVY},
    {.name = "a boot descriptor is closed", .request = close_regular, .outcome = RETIRES},
    {.name = "a boot descriptor is closed by a raw system call",
        .request = close_raw,
        .outcome = RETIRES,
        .flags = RAW},
    {.name = "standard input is closed", .request = close_standard, .outcome = RETIRES},
    {.name = "a high boot descriptor is closed", .request = close_high, .outcome = RETIRES},
    {.name = "all descriptors are closed", .request = close_from, .outcome = RETIRES},
    {.name = "all descriptors are closed by a raw system call",
        .request = close_from_raw,
        .outcome = RETIRES},
    {.name = "the same file opened again in place of a boot descriptor",
        .request = reopen_same_file,
        .outcome = RETIRES},
    {.name = "a boot descriptor's number is used by a file",
        .request = reuse_by_file,
        .outcome = RETIRES},
    {.name = "a boot descriptor's number is used by a socket of the same kind",
        .request = reuse_by_socket,
        .outcome = RETIRES},
    {.name = "a boot descriptor's number is used by the same device",
        .request = reuse_null,
        .outcome = RETIRES},
    {.name = "two boot descriptors are exchanged", .request = exchange, .outcome = RETIRES},
    {.name = "a boot descriptor is replaced by dup3()", .request = dup_over, .outcome = RETIRES},
    {.name = "standard error is replaced", .request = dup_over_standard, .outcome = RETIRES},
    {.name = "a boot descriptor is closed and put back",
        .request = close_and_dup_back,
        .outcome = EITHER},
    {.name = "offsets are moved", .request = move_offset},
    {.name = "a file is appended to", .request = move_append, .flags = ALONE},
    {.name = "a directory is read", .request = read_directory},
    {.name = "flags of open files are changed", .request = change_flags},
    {.name = "O_NONBLOCK is changed by ioctl()", .request = change_flags_by_ioctl},
    {.name = "flags of open files are changed by a raw system call",
        .request = change_flags_raw,
        .flags = RAW},
    {.name = "close-on-exec is changed", .request = change_cloexec},
    {.name = "boot files are locked", .request = take_locks, .outcome = EITHER},
    {.name = "a child locks a boot file and changes flags of another",
        .request = lock_by_child,
        .flags = HEAVY},
    {.name = "a file that the boot opened to read and append is read",
        .request = read_from_appended,
        .boot = open_for_reading_and_appending,
        .flags = ALONE},
    {.name = "the engine's descriptors are closed", .request = close_engine, .outcome = RETIRES},
    {.name = "the engine's descriptors are closed by raw system calls",
        .request = close_engine_raw,
        .outcome = RETIRES},
    {.name = "the engine's descriptors are replaced",
        .request = replace_engine,
        .outcome = RETIRES},
    {.name = "the engine's descriptors are rewound", .request = rewind_engine, .outcome = EITHER},
    {.name = "the engine's first descriptor is closed",
        .request = close_engine_0,
        .outcome = EITHER},
    {.name = "the engine's 2nd descriptor is closed", .request = close_engine_1, .outcome = EITHER},
    {.name = "the engine's 3rd descriptor is closed", .request = close_engine_2, .outcome = EITHER},
    {.name = "the engine's 4th descriptor is closed", .request = close_engine_3, .outcome = EITHER},
    {.name = "the engine's 5th descriptor is closed", .request = close_engine_4, .outcome = EITHER},
    {.name = "the engine's 6th descriptor is closed", .request = close_engine_5, .outcome = EITHER},
    {.name = "the engine's 7th descriptor is closed", .request = close_engine_6, .outcome = EITHER},
    {.name = "the engine's 8th descriptor is closed", .request = close_engine_7, .outcome = EITHER},
    {.name = "the engine's first descriptor is replaced",
        .request = replace_engine_0,
        .outcome = EITHER},
    {.name = "the engine's 2nd descriptor is replaced",
        .request = replace_engine_1,
        .outcome = EITHER},
    {.name = "the engine's 3rd descriptor is replaced",
        .request = replace_engine_2,
        .outcome = EITHER},
    {.name = "the engine's 4th descriptor is replaced",
        .request = replace_engine_3,
        .outcome = EITHER},
    {.name = "the engine's 5th descriptor is replaced",
        .request = replace_engine_4,
        .outcome = EITHER},
    {.name = "the engine's 6th descriptor is replaced",
        .request = replace_engine_5,
        .outcome = EITHER},
    {.name = "the engine's 7th descriptor is replaced",
        .request = replace_engine_6,
        .outcome = EITHER},
    {.name = "the engine's 8th descriptor is replaced",
        .request = replace_engine_7,
        .outcome = EITHER},
    {.name = "the limit of descriptors is lowered", .request = lower_limit, .outcome = EITHER},
};
const struct case_list descriptor_cases = CASE_LIST(cases);
