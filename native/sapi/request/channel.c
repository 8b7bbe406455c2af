/* See channel.h. */
#include "sapi/request/channel.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ext/monotonic.h"
#include "sapi/options.h"
#include "sapi/output/log.h"
#include "snapshot/snapshot.h"

/* Kept memory: bytes read of the next request must outlive the restore after this one. */
static struct channel {
    int fd;
    bool gone;                  /* sending is pointless */
    bool closed;                /* the server sends no more */
    bool waited, waited_before; /* for the last frame, and for the one before */
    uint64_t waited_ns;         /* for input, since the start */
    size_t in_start, in_end;
    uint8_t in[FRAME_HEADER + FRAME_MAX_BODY];
} * c;

static bool muted;

/* Frames that are read in place of the socket's. */
static const uint8_t *replay;
static size_t replay_len;

/* Called in a child that PHP code has forked (pcntl_fork): the connection belongs to its parent,
 * and must end with that, not with the child. */
static void leave_to_parent(void) {
    c->gone = c->closed = true;
    /* Muted it is the zygote's own descriptor, and the child may be a worker or rehearse: both go on logging through it. */
    if (!muted && c->fd >= 0) {
        close(c->fd);
    }
    c->fd = -1;
}

void channel_open(int descriptor) {
    if (c == NULL) {
        c = snapshot_keep(sizeof *c);
        pthread_atfork(NULL, NULL, leave_to_parent);
    }
    c->fd = descriptor;
    c->gone = c->closed = muted = false;
    c->in_start = c->in_end = 0;
    replay_len = 0;
}

void channel_replay(const uint8_t *frames, size_t len) {
    c->closed = false;
    c->in_start = c->in_end = 0;
    replay = frames;
    replay_len = len;
    muted = true;
}

bool channel_is_left(void) {
    return c->fd < 0;
}

bool channel_is_quiet(int milliseconds) {
    struct pollfd wait = {.fd = c->fd, .events = POLLIN};
    return c->in_start == c->in_end && poll(&wait, 1, milliseconds) == 0;
}

bool channel_has_input(void) {
    return c->in_start != c->in_end;
}

int channel_descriptor(void) {
    return c->fd;
}

void channel_send_log(int level, const char *message, size_t len) {
    uint8_t head[FRAME_HEADER + 8];
    uint8_t no_context[4] = {0};
    frame_put_header(head, FRAME_LOG, 0, (uint32_t)(8 + len + sizeof no_context));
    head[FRAME_HEADER] = (uint8_t)level;
    head[FRAME_HEADER + 1] = LOG_SOURCE_WORKER;
    head[FRAME_HEADER + 2] = head[FRAME_HEADER + 3] = 0;
    for (size_t i = 0; i < 4; i++) {
        head[FRAME_HEADER + 4 + i] = (uint8_t)(len >> (8 * i));
    }
    struct iovec iov[3] = {
        {head, sizeof head},
        {(char *)message, len},
        {no_context, sizeof no_context},
    };
    channel_send(iov, 3);
}

bool channel_send(struct iovec *iov, size_t count) {
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    if (muted) {
        return true;
    }
    while (!c->gone && message.msg_iovlen > 0) {
        ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (sent < 0) {
            c->gone = errno != EINTR;
            continue;
        }
        size_t left = (size_t)sent;
        while (message.msg_iovlen > 0 && left >= message.msg_iov->iov_len) {
            left -= message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen > 0) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + left;
            message.msg_iov->iov_len -= left;
        }
    }
    return !c->gone;
}

bool channel_send_buffer(struct frame_buffer *buffer) {
    struct iovec iov = {.iov_base = buffer->data, .iov_len = buffer->len};
    buffer->len = 0;
    return channel_send(&iov, 1);
}

void channel_send_ready(void) {
    struct frame_buffer ready = {0};
    frame_write_empty(&ready, FRAME_READY);
    channel_send_buffer(&ready);
    frame_buffer_free(&ready);
}

/* A recv() that waits is also woken when the server reads what was sent to it: unix_write_space(), net/unix/af_unix.c. poll() is woken by
 * input only. It is worth its system call where requests come one by one; otherwise the server writes the next ones when it has read an
 * answer. */
static void wait_for_input(void) {
    struct pollfd wait = {.fd = c->fd, .events = POLLIN};
    if (c->waited_before) {
        poll(&wait, 1, -1);
    }
}

/* Less than 1: the end, an error, or nothing is there and it must not wait. */
static ssize_t receive(void *to, size_t len, bool waits) {
    uint64_t since = 0;
    int flags = MSG_DONTWAIT;
    for (;;) {
        ssize_t got = recv(c->fd, to, len, flags);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        bool empty = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        if (empty && waits) {
            c->waited = true;
            since = monotonic_nanoseconds();
            wait_for_input();
            flags = 0;
            continue;
        }
        if (since != 0) {
            c->waited_ns += monotonic_nanoseconds() - since;
        }
        c->closed = c->closed || (got <= 0 && !empty);
        return got;
    }
}

/* Reads at most `most` bytes behind what is buffered. False: nothing came (end, error, or nothing there without waiting). */
static bool fill(bool waits, size_t most) {
    if (c->in_start > 0) {
        memmove(c->in, c->in + c->in_start, c->in_end - c->in_start);
        c->in_end -= c->in_start;
        c->in_start = 0;
    }
    if (c->closed || c->in_end == sizeof c->in) {
        return false;
    }
    size_t room = sizeof c->in - c->in_end;
    room = most < room ? most : room;
    if (muted) {
        size_t len = replay_len < room ? replay_len : room;
        memcpy(c->in + c->in_end, replay, len);
        replay += len;
        replay_len -= len;
        c->in_end += len;
        c->closed = len == 0;
        return len > 0;
    }
    ssize_t got = receive(c->in + c->in_end, room, waits);
    c->in_end += got > 0 ? (size_t)got : 0;
    return got > 0;
}

bool channel_next(struct frame_header *header) {
    c->waited_before = c->waited;
    c->waited = false;
    while (c->in_end - c->in_start < FRAME_HEADER) {
        if (!fill(true, FRAME_HEADER - (c->in_end - c->in_start))) {
            if (c->in_end != c->in_start) {
                channel_malformed("the stream ends inside a frame");
            }
            return false;
        }
    }
    enum frame_error error =
        frame_read_header(FRAME_FROM_SERVER, c->in + c->in_start, FRAME_HEADER, header);
    if (error != FRAME_OK) {
        channel_malformed(frame_error_name(error));
    }
    c->in_start += FRAME_HEADER;
    return true;
}

uint64_t channel_waited(void) {
    return c->waited_ns;
}

size_t channel_read_some(void *to, size_t len) {
    if (c->in_start == c->in_end) {
        c->in_start = c->in_end = 0;
        if (!c->closed && !muted) {
            ssize_t got = receive(to, len, true);
            return got > 0 ? (size_t)got : 0;
        }
        if (!fill(true, len)) {
            return 0;
        }
    }
    size_t have = c->in_end - c->in_start;
    if (len > have) {
        len = have;
    }
    memcpy(to, c->in + c->in_start, len);
    c->in_start += len;
    return len;
}

bool channel_read(void *to, size_t len) {
    while (len > 0) {
        size_t got = channel_read_some(to, len);
        if (got == 0) {
            return false;
        }
        to = (char *)to + got;
        len -= got;
    }
    return true;
}

uint8_t *channel_collect(unsigned count, size_t *len) {
    struct frame_buffer frames = {0};
    for (unsigned i = 0; i < count; i++) {
        struct frame_header header;
        if (!channel_next(&header)) {
            return NULL;
        }
        frame_put_header(
            frame_buffer_extend(&frames, FRAME_HEADER), header.type, header.flags, header.length);
        if (!channel_read(frame_buffer_extend(&frames, header.length), header.length)) {
            return NULL;
        }
    }
    *len = frames.len;
    return frames.data;
}

bool channel_sees_abort(size_t skip) {
    fill(false, sizeof c->in);
    while (c->in_end - c->in_start >= skip + FRAME_HEADER) {
        struct frame_header header;
        if (frame_read_header(
                FRAME_FROM_SERVER, c->in + c->in_start + skip, FRAME_HEADER, &header) != FRAME_OK) {
            /* judged when its turn comes */
            return false;
        }
        if (header.type == FRAME_ABORT) {
            return true;
        }
        if (header.type != FRAME_REQUEST_BODY) {
            return false;
        }
        skip += FRAME_HEADER + header.length;
    }
    return false;
}

_Noreturn void channel_malformed(const char *what) {
    log_line(LOG_CRIT, LOG_SOURCE_WORKER, "the server sent a malformed frame: %s", what);
    _exit(EXIT_MALFORMED);
}
