/* Cases: locks that the boot holds on files. Most are lost when any descriptor of the file is closed, so each way to get one counts. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "snapshot.h"

/* One lock of each kind: of the process, of an open file by fcntl(), of an open file by flock().
 * The inspector compares their lines in fdinfo. */
static void lock_at_boot(void) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 20, .l_len = 1};
    int other = memory_file("other");
    if (fcntl(boot.regular, F_SETLK, &lock) != 0 || fcntl(boot.append, F_OFD_SETLK, &lock) != 0 ||
        flock(other, LOCK_EX) != 0) {
        give_up("locks");
    }
}
static void lock_others(unsigned n) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int own = memory_file("own");
    if (n % 2 == 0) {
        flock(own, LOCK_EX);
    } else {
        fcntl(own, F_SETLK, &lock);
    }
}
/* As SQLite does it in WAL mode: the process keeps a lock on the file between transactions. */
static void change_own_lock(unsigned n) {
    struct flock more = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 30 + n, .l_len = 1};
    fcntl(boot.regular, F_SETLK, &more);
}
/* Closing any descriptor of the file releases all record locks of the process. */
static void open_locked_file(unsigned n) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", boot.regular + 0 * (int)n);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    if (again < 0) {
        give_up(path);
    }
    if (n % 2 == 0) {
        close(again); /* else the restore does it */
    }
}
static const char *path_of_locked(void) {
    static char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", boot.regular);
    return path;
}
static void stream_locked_file(unsigned n) {
    check(fopen(path_of_locked(), "r") != NULL, "fopen() %u", n);
}
/* At a number above all of the boot's: closing one of those counts by itself. */
static void stream_locked_file_again(unsigned n) {
    FILE *stream = fdopen(fcntl(boot.high, F_DUPFD, 300), "r");
    check(freopen(path_of_locked(), "r", stream) != NULL, "freopen() %u", n);
}
/* As the worker's own dup() does it: sapi/databases/libc_shim.c */
static void dup_locked_file(unsigned n) {
    check(syscall(SYS_dup, boot.regular) >= 0, "dup() %u", n);
}
static void dup2_locked_file(unsigned n) {
    check(dup2(boot.regular, 900 + (int)n) >= 0, "dup2()");
}
static void dup3_locked_file(unsigned n) {
    check(dup3(boot.regular, 900 + (int)n, O_CLOEXEC) >= 0, "dup3()");
}
static void dup_locked_file_by_fcntl(unsigned n) {
    close(fcntl(boot.regular, F_DUPFD_CLOEXEC, 300 + (int)n));
}
/* A descriptor of the file comes out of a socket that the boot has. */
static void receive_locked_file(unsigned n) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &boot.regular, sizeof(int));
    struct iovec byte = {&(char){(char)n}, 1};
    struct msghdr message = {.msg_iov = &byte,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control};
    check(syscall(SYS_sendmsg, boot.pair[0], &message, 0) == 1 &&
              syscall(SYS_recvmsg, boot.pair[1], &message, 0) == 1,
        "a descriptor is passed");
}
static void open_locked_file_by_number(unsigned n) {
    check(syscall(SYS_openat, AT_FDCWD, path_of_locked(), O_RDONLY) >= 0, "openat() %u", n);
}
static void leave_locked_file_open(unsigned n) {
    check(open(path_of_locked(), O_RDONLY | O_CLOEXEC) >= 0, "open() %u", n);
}
/* The loader opens the file, finds that it is no library, and closes it. */
static void load_locked_file(unsigned n) {
    check(dlopen(path_of_locked(), RTLD_NOW) == NULL, "the file is no library: %u", n);
}
static void open_locked_file_raw(unsigned n) {
    check(raw(SYS_openat, AT_FDCWD, (long)path_of_locked(), O_RDONLY, 0, 0, 0) >= 0, "openat() %u",
        n);
}
static void change_own_lock_raw(unsigned n) {
    struct flock more = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 40 + n, .l_len = 1};
    raw(SYS_fcntl, boot.regular, F_SETLK, (long)&more, 0, 0, 0);
}
/* These belong to the open file, which others may have: they are looked at each time. */
static void release_lock_of_open_file_raw(unsigned n) {
    struct flock none = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_len = 0 * n};
    raw(SYS_fcntl, boot.append, F_OFD_SETLK, (long)&none, 0, 0, 0);
}
static void open_other_files(unsigned n) {
    char byte;
    int fd = open("/etc/passwd", O_RDONLY);
    check(read(fd, &byte, 1) == 1 && fopen("/etc/group", "r") != NULL, "files are read %u", n);
    close(dup(fd));
}

static const struct test_case cases[] = {
    {.name = "a request locks files of its own, and the boot holds locks",
        .request = lock_others,
        .boot = lock_at_boot,
        .flags = ALONE},
    {.name = "a request locks more of a file that the boot has locked",
        .request = change_own_lock,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request closes another descriptor of a file that the boot has locked",
        .request = open_locked_file,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request leaves a file open that the boot has locked",
        .request = leave_locked_file_open,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request opens a file that the boot has locked by syscall()",
        .request = open_locked_file_by_number,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request tries to load a file that the boot has locked as a library",
        .request = load_locked_file,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request opens a file that the boot has locked as a stream",
        .request = stream_locked_file,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request reopens a stream as a file that the boot has locked",
        .request = stream_locked_file_again,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request duplicates the descriptor of a file that the boot has locked",
        .request = dup_locked_file,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request duplicates a locked file's descriptor by dup2()",
        .request = dup2_locked_file,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request duplicates a locked file's descriptor by dup3()",
        .request = dup3_locked_file,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request duplicates a locked file's descriptor by fcntl()",
        .request = dup_locked_file_by_fcntl,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request receives a descriptor of a file that the boot has locked",
        .request = receive_locked_file,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request opens a file that the boot has locked by a raw system call",
        .request = open_locked_file_raw,
        .boot = lock_at_boot,
        .flags = RAW,
        .outcome = RETIRES},
    {.name = "a request locks more of a file that the boot has locked by a raw system call",
        .request = change_own_lock_raw,
        .boot = lock_at_boot,
        .flags = RAW,
        .outcome = RETIRES},
    {.name = "a request releases a lock of an open file by a raw system call",
        .request = release_lock_of_open_file_raw,
        .boot = lock_at_boot,
        .outcome = RETIRES},
    {.name = "a request opens other files, and the boot holds locks",
        .request = open_other_files,
        .boot = lock_at_boot,
        .flags = ALONE},
};
const struct case_list lock_cases = CASE_LIST(cases);
