/* See zygote.h. */
#include "sapi/boot/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ext/monotonic.h"
#include "sapi/boot/confine.h"
#include "sapi/options.h"
#include "sapi/output/backtrace.h"
#include "sapi/output/log.h"
#include "sapi/request/scheduling.h"
#include "sapi/request/shared_counters.h"
#include "sapi/sapi_module.h"
#include "wire/frame.h"

enum {
    DESCRIPTORS = 4,    /* frames, stdout, stderr, shared counters */
    PATIENCE_MS = 2000, /* between SIGTERM and SIGKILL when the server is gone */
};

static int server;
static sigset_t first_mask;
static int children_fd;
static bool workers_are_confined;

/* Living children. The array only grows, to the highest number of concurrent children. */
static pid_t *children;
static size_t children_len, children_cap;

static void die(const char *what) {
    log_line(LOG_CRIT, LOG_SOURCE_WORKER, "%s: %s", what, strerror(errno));
    exit(1);
}

static bool send_frame(struct frame_buffer *frame) {
    size_t done = 0;
    while (done < frame->len) {
        ssize_t sent = send(server, frame->data + done, frame->len - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            break;
        }
        done += (size_t)sent;
    }
    bool whole = done == frame->len;
    frame->len = 0;
    return whole;
}

static void tell(uint8_t type, uint32_t first, uint32_t second) {
    struct frame_buffer frame = {0};
    frame_write_two(&frame, type, first, second);
    send_frame(&frame);
    frame_buffer_free(&frame);
}

static void remember(pid_t pid) {
    if (children_len == children_cap) {
        children_cap = children_cap == 0 ? 16 : children_cap * 2;
        children = realloc(children, children_cap * sizeof *children);
        if (children == NULL) {
            abort();
        }
    }
    children[children_len++] = pid;
}

/* Returns whether it was one of our children, and forgets it. */
static bool forget(pid_t pid) {
    for (size_t i = 0; i < children_len; i++) {
        if (children[i] == pid) {
            children[i] = children[--children_len];
            return true;
        }
    }
    return false;
}

static bool is_child(pid_t pid) {
    for (size_t i = 0; i < children_len; i++) {
        if (children[i] == pid) {
            return true;
        }
    }
    return false;
}

static uint64_t microseconds(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
}

static void tell_exited(pid_t pid, int status, const struct rusage *usage) {
    struct frame_buffer frame = {0};
    frame_write_exited(&frame, (uint32_t)pid, (uint32_t)status,
        microseconds(usage->ru_utime) + microseconds(usage->ru_stime));
    send_frame(&frame);
    frame_buffer_free(&frame);
}

static void reap(void) {
    struct signalfd_siginfo info;
    while (read(children_fd, &info, sizeof info) == sizeof info) {
    }
    int status;
    pid_t pid;
    struct rusage usage;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        if (forget(pid)) {
            tell_exited(pid, status, &usage);
        }
    }
}

static _Noreturn void end(int code) {
    for (size_t i = 0; i < children_len; i++) {
        kill(children[i], SIGTERM);
    }
    const int64_t until = monotonic_microseconds() + PATIENCE_MS * 1000;
    while (children_len > 0) {
        int64_t left = (until - monotonic_microseconds()) / 1000;
        if (left <= 0) {
            break;
        }
        struct pollfd wait = {.fd = children_fd, .events = POLLIN};
        poll(&wait, 1, (int)left);
        reap();
    }
    for (size_t i = 0; i < children_len; i++) {
        kill(children[i], SIGKILL);
    }
    _exit(code);
}

static _Noreturn void malformed(const char *what) {
    log_line(LOG_CRIT, LOG_SOURCE_WORKER, "the server sent a malformed frame: %s", what);
    end(EXIT_MALFORMED);
}

static void close_all(const int *fds, size_t count) {
    for (size_t i = 0; i < count; i++) {
        close(fds[i]);
    }
}

/* Makes the fork a worker: its descriptors are 0 to 3, it dies with the zygote. */
static void become_worker(pid_t zygote, const int fds[DESCRIPTORS]) {
    /* the zygote has one thread, so this cannot fire before the process is gone */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != zygote) {
        _exit(0);
    }
    scheduling_of_new_worker();
    close(children_fd);
    free(children);
    if (dup2(fds[1], STDOUT_FILENO) < 0 || dup2(fds[2], STDERR_FILENO) < 0 ||
        dup2(fds[0], server) < 0 || !shared_counters_open(fds[3]) ||
        (workers_are_confined && !confine_worker())) {
        _exit(EXIT_MALFORMED);
    }
    fcntl(server, F_SETFD, FD_CLOEXEC);
    for (size_t i = 0; i < DESCRIPTORS; i++) {
        if (fds[i] > server) {
            close(fds[i]);
        }
    }
    sigprocmask(SIG_SETMASK, &first_mask, NULL);
}

/* True in the worker. */
static bool spawn(uint32_t slot, const int fds[DESCRIPTORS]) {
    pid_t zygote = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        become_worker(zygote, fds);
        return true;
    }
    if (pid < 0) {
        tell(FRAME_FAILED, slot, (uint32_t)errno);
    } else {
        remember(pid);
        tell(FRAME_SPAWNED, slot, (uint32_t)pid);
    }
    close_all(fds, DESCRIPTORS);
    return false;
}

/* Reads exactly `len` bytes and the descriptors that travel with them. False at the end of the conversation. */
static bool receive(uint8_t *to, size_t len, int fds[DESCRIPTORS], size_t *fd_count) {
    size_t done = 0;
    while (done < len) {
        union {
            struct cmsghdr align;
            char space[CMSG_SPACE(8 * sizeof(int))];
        } control;
        struct iovec iov = {.iov_base = to + done, .iov_len = len - done};
        struct msghdr message = {.msg_iov = &iov,
            .msg_iovlen = 1,
            .msg_control = control.space,
            .msg_controllen = sizeof control.space};
        ssize_t got = recvmsg(server, &message, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c != NULL; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
                continue;
            }
            size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t i = 0; i < count; i++) {
                int fd;
                memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
                if (*fd_count < DESCRIPTORS) {
                    fds[(*fd_count)++] = fd;
                } else {
                    close(fd);
                    malformed("too many descriptors");
                }
            }
        }
        done += (size_t)got;
    }
    return true;
}

/* Says where a worker's PHP code is. One that has ended is answered, too. */
static void trace(uint32_t pid) {
    static char stack[32 * 1024];
    const char *why = "it has ended";
    size_t len = 0;
    if (pid <= INT32_MAX && is_child((pid_t)pid)) {
        len = backtrace_of((pid_t)pid, stack, sizeof stack, &why);
    }
    struct frame_buffer frame = {0};
    struct frame_text text = {stack, len};
    struct frame_text reason = {why, strlen(why)};
    frame_write_stack(&frame, pid, text, reason);
    send_frame(&frame);
    frame_buffer_free(&frame);
}

/* Reads and obeys one frame. True in a new worker. */
static bool obey(void) {
    int fds[DESCRIPTORS];
    size_t fd_count = 0;
    uint8_t bytes[FRAME_HEADER];
    uint8_t payload[8];
    struct frame_header header;
    uint32_t slot, pid, signal;

    if (!receive(bytes, sizeof bytes, fds, &fd_count)) {
        end(0);
    }
    enum frame_error error =
        frame_read_header(FRAME_FROM_SERVER_TO_ZYGOTE, bytes, sizeof bytes, &header);
    if (error != FRAME_OK) {
        malformed(frame_error_name(error));
    }
    if (header.length > sizeof payload) {
        malformed(frame_error_name(FRAME_BAD_PAYLOAD));
    }
    if (!receive(payload, header.length, fds, &fd_count)) {
        end(0);
    }
    if (header.type == FRAME_SPAWN) {
        if (frame_read_spawn(payload, header.length, &slot) != FRAME_OK) {
            malformed(frame_error_name(FRAME_BAD_PAYLOAD));
        }
        if (fd_count != DESCRIPTORS) {
            malformed("a spawn without its descriptors");
        }
        return spawn(slot, fds);
    }
    if (fd_count != 0) {
        malformed("descriptors without a spawn");
    }
    if (header.type == FRAME_TRACE) {
        if (frame_read_trace(payload, header.length, &pid) != FRAME_OK) {
            malformed(frame_error_name(FRAME_BAD_PAYLOAD));
        }
        trace(pid);
        return false;
    }
    if (frame_read_kill(payload, header.length, &pid, &signal) != FRAME_OK) {
        malformed(frame_error_name(FRAME_BAD_PAYLOAD));
    }
    if (pid <= INT32_MAX && is_child((pid_t)pid)) {
        kill((pid_t)pid, (int)signal);
    }
    return false;
}

void zygote_begin(int fd) {
    server = fd;
    log_through(send_frame);
}

void zygote_run(int fd, bool confines) {
    server = fd;
    workers_are_confined = confines;
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &mask, &first_mask) != 0) {
        die("sigprocmask");
    }
    children_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    if (children_fd < 0) {
        die("signalfd");
    }

    struct frame_buffer hello = {0};
    const char *version = module_php_version();
    frame_write_hello(&hello, (uint32_t)getpid(), version, strlen(version));
    if (!send_frame(&hello)) {
        end(0);
    }
    frame_buffer_free(&hello);
    log_through(send_frame);

    for (;;) {
        struct pollfd wait[2] = {
            {.fd = server, .events = POLLIN},
            {.fd = children_fd, .events = POLLIN},
        };
        if (poll(wait, 2, -1) < 0 && errno != EINTR) {
            die("poll");
        }
        if (wait[1].revents != 0) {
            reap();
        }
        if (wait[0].revents != 0 && obey()) {
            return;
        }
    }
}
