/* See drive.h. */
#include "drive.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

int failures, checks;
const char *scripts;
char program_path[4096];

void check(bool ok, const char *format, ...) {
    checks++;
    if (!ok) {
        va_list arguments;
        va_start(arguments, format);
        printf("FAIL  ");
        vprintf(format, arguments);
        printf("\n");
        va_end(arguments);
        failures++;
    }
}

_Noreturn void give_up(const char *what) {
    printf("FAIL  %s: %s\n", what, strerror(errno));
    exit(1);
}

uint32_t u32_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* TESTS_TIMES in the environment multiplies it, for emulated processors. */
static struct timeval time_limit(void) {
    const char *times = getenv("TESTS_TIMES");
    return (struct timeval){.tv_sec = times != NULL ? 20 * atoi(times) : 20};
}

static bool read_all(int fd, uint8_t *to, size_t len) {
    while (len > 0) {
        ssize_t got = recv(fd, to, len, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            give_up("no frame within 20 s");
        }
        if (got <= 0) {
            return false;
        }
        to += got;
        len -= (size_t)got;
    }
    return true;
}

/* False at the end of the conversation. */
static bool next(int fd, enum frame_from from) {
    uint8_t bytes[FRAME_HEADER];
    if (!read_all(fd, bytes, sizeof bytes)) {
        return false;
    }
    enum frame_error error = frame_read_header(from, bytes, sizeof bytes, &frame.header);
    if (error != FRAME_OK) {
        printf("FAIL  a malformed frame came: %s\n", frame_error_name(error));
        exit(1);
    }
    frame.payload[frame.header.length] = '\0';
    return read_all(fd, frame.payload, frame.header.length);
}

struct frame frame;

struct zygote start_zygote(char *const arguments[]) {
    return start_warm_zygote(arguments, NULL, NULL, 0);
}

struct zygote start_warm_zygote(
    char *const arguments[], const char *script, const char *url, unsigned count) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        give_up("socketpair");
    }
    struct timeval patience = time_limit();
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    pid_t pid = fork();
    if (pid == 0) {
        if (pair[1] == 3) {
            fcntl(3, F_SETFD, 0);
        } else {
            dup2(pair[1], 3);
        }
        execv(program_path, arguments);
        _exit(127);
    }
    close(pair[1]);
    struct zygote zygote = {.pid = pid, .fd = pair[0]};
    for (unsigned i = 0; i < count; i++) {
        struct worker itself = {.fd = zygote.fd};
        send_request(&itself, script, url);
    }
    do {
        if (!next(zygote.fd, FRAME_FROM_ZYGOTE)) {
            give_up("the zygote said no HELLO");
        }
    } while (frame.header.type == FRAME_LOG);
    check(frame.header.type == FRAME_HELLO, "HELLO follows log lines only");
    check(u32_at(frame.payload + 4) == (uint32_t)pid, "HELLO tells the zygote's process id");
    return zygote;
}

struct worker spawn(struct zygote *zygote, uint32_t slot) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        give_up("socketpair");
    }
    struct timeval patience = time_limit();
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    enum { NOEXEC_SEAL = 8 /* Linux 6.3; up to 6.5 vm.memfd_noexec=2 demands it */ };
    int counters = memfd_create("counters", MFD_CLOEXEC | NOEXEC_SEAL);
    if (counters < 0 && errno == EINVAL) {
        counters = memfd_create("counters", MFD_CLOEXEC);
    }
    if (counters < 0 || ftruncate(counters, counters_size) != 0) {
        give_up("memfd_create");
    }
    int fds[4] = {pair[1], null, null, counters};

    uint8_t bytes[FRAME_HEADER + 4] = {0};
    frame_put_header(bytes, FRAME_SPAWN, 0, 4);
    bytes[FRAME_HEADER] = (uint8_t)slot;
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof fds)];
    } control = {0};
    struct iovec iov = {bytes, sizeof bytes};
    struct msghdr message = {.msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.space,
        .msg_controllen = sizeof control.space};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(rights), fds, sizeof fds);
    if (sendmsg(zygote->fd, &message, 0) != (ssize_t)sizeof bytes) {
        give_up("SPAWN");
    }
    close(pair[1]);
    close(null);
    if (!next(zygote->fd, FRAME_FROM_ZYGOTE) || frame.header.type != FRAME_SPAWNED ||
        u32_at(frame.payload) != slot) {
        give_up("no SPAWNED with that slot");
    }
    return (struct worker){.pid = u32_at(frame.payload + 4), .fd = pair[0], .counters = counters};
}

/* How many requests it has taken. */
uint64_t taken(const struct worker *worker) {
    uint64_t count = 0;
    check(pread(worker->counters, &count, sizeof count, 0) == sizeof count,
        "the shared counters can be read");
    return count;
}

/* The next frame that is no LOG. */
bool next_of_worker(struct worker *worker) {
    do {
        if (!next(worker->fd, FRAME_FROM_WORKER)) {
            return false;
        }
    } while (frame.header.type == FRAME_LOG);
    return true;
}

void expect(struct worker *worker, uint8_t type) {
    bool came = next_of_worker(worker);
    check(came && frame.header.type == type, "expected frame 0x%02x, got 0x%02x", type,
        came ? frame.header.type : 0);
}

static void put_pair(struct frame_buffer *out, const char *name, const char *value) {
    size_t name_len = strlen(name);
    size_t value_len = strlen(value);
    uint8_t *p = frame_buffer_extend(out, 8 + name_len + value_len);
    p[0] = (uint8_t)name_len;
    p[1] = (uint8_t)(name_len >> 8);
    for (int i = 0; i < 4; i++) {
        p[2 + i] = (uint8_t)(value_len >> (8 * i));
    }
    memcpy(p + 6, name, name_len + 1);
    memcpy(p + 7 + name_len, value, value_len + 1);
}

void send_request(struct worker *worker, const char *script, const char *url) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", scripts, script);
    const char *question = strchr(url, '?');
    struct frame_buffer out = {0};
    memset(frame_buffer_extend(&out, FRAME_HEADER + 12), 0, FRAME_HEADER + 12);
    out.data[FRAME_HEADER] = 11;
    put_pair(&out, "REQUEST_METHOD", "GET");
    put_pair(&out, "REQUEST_URI", url);
    put_pair(&out, "QUERY_STRING", question != NULL ? question + 1 : "");
    put_pair(&out, "SCRIPT_FILENAME", path);
    put_pair(&out, "SCRIPT_NAME", url);
    put_pair(&out, "DOCUMENT_ROOT", scripts);
    put_pair(&out, "CONTENT_TYPE", "");
    put_pair(&out, "CONTENT_LENGTH", "");
    put_pair(&out, "SERVER_PROTOCOL", "HTTP/1.1");
    out.data[FRAME_HEADER + 2] = 9;
    frame_put_header(out.data, FRAME_REQUEST, FRAME_FLAG_LAST, (uint32_t)(out.len - FRAME_HEADER));
    if (send(worker->fd, out.data, out.len, MSG_NOSIGNAL) != (ssize_t)out.len) {
        give_up("REQUEST");
    }
    frame_buffer_free(&out);
}

off_t counters_size = 8;
char body[BODY_MAX + 1];

/* Reads a whole answer, and READY after a BUSY end: its status; its body is in `body`. 0: the worker ended instead. */
unsigned answer(struct worker *worker) {
    unsigned status = 0;
    size_t len = 0;
    bool ended = false;
    while (next_of_worker(worker)) {
        switch (frame.header.type) {
        case FRAME_HEAD:
            check(status == 0 && !ended, "one HEAD");
            status = frame.payload[0] | (unsigned)frame.payload[1] << 8;
            break;
        case FRAME_BODY:
            check(status != 0 && !ended && frame.header.length > 0, "BODY between HEAD and END");
            if (len + frame.header.length <= BODY_MAX) {
                memcpy(body + len, frame.payload, frame.header.length);
                len += frame.header.length;
            }
            break;
        case FRAME_END:
            check(status != 0 && !ended, "one END, after HEAD");
            ended = true;
            if ((frame.header.flags & FRAME_FLAG_BUSY) != 0) {
                break;
            }
            body[len] = '\0';
            return status;
        case FRAME_READY:
            check(ended, "READY after END");
            body[len] = '\0';
            return status;
        default:
            break;
        }
    }
    body[len] = '\0';
    return ended ? status : 0; /* a one-shot worker ends behind a BUSY end */
}

void expect_answer(
    struct worker *worker, const char *script, const char *url, unsigned status, const char *text) {
    send_request(worker, script, url);
    unsigned got = answer(worker);
    check(got == status, "%s: status %u, expected %u", url, got, status);
    check(strcmp(body, text) == 0, "%s: body \"%s\", expected \"%s\"", url, body, text);
}

/* The wait status of a worker that ends. */
uint32_t wait_for(struct zygote *zygote, const struct worker *worker) {
    while (next(zygote->fd, FRAME_FROM_ZYGOTE)) {
        if (frame.header.type == FRAME_EXITED && u32_at(frame.payload) == worker->pid) {
            close(worker->fd);
            close(worker->counters);
            return u32_at(frame.payload + 4);
        }
    }
    give_up("the zygote ended");
}

void send_kill(struct zygote *zygote, uint32_t pid, uint8_t number) {
    uint8_t bytes[FRAME_HEADER + 8] = {0};
    frame_put_header(bytes, FRAME_KILL, 0, 8);
    for (int i = 0; i < 4; i++) {
        bytes[FRAME_HEADER + i] = (uint8_t)(pid >> (8 * i));
    }
    bytes[FRAME_HEADER + 4] = number;
    if (send(zygote->fd, bytes, sizeof bytes, MSG_NOSIGNAL) != (ssize_t)sizeof bytes) {
        give_up("KILL");
    }
}

void end_zygote(struct zygote *zygote) {
    close(zygote->fd);
    int status;
    check(waitpid(zygote->pid, &status, 0) == zygote->pid && status == 0,
        "the zygote exits with 0 when its socket closes");
}
