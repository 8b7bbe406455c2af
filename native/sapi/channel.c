/* See channel.h. */
#include "channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "options.h"

static int fd = -1;
static bool gone;   /* sending is pointless */
static bool closed; /* the server sends no more */
static uint8_t in[FRAME_HEADER + FRAME_MAX_BODY];
static size_t in_start, in_end;

void channel_open(int descriptor) {
    fd = descriptor;
}

bool channel_send(struct iovec *iov, size_t count) {
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    while (!gone && message.msg_iovlen > 0) {
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0) {
            gone = errno != EINTR;
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
    return !gone;
}

bool channel_send_buffer(struct frame_buffer *buffer) {
    struct iovec iov = {.iov_base = buffer->data, .iov_len = buffer->len};
    buffer->len = 0;
    return channel_send(&iov, 1);
}

/* Reads more behind what is buffered. False: nothing came (end, error, or nothing there without waiting). */
static bool fill(int flags) {
    if (in_start > 0) {
        memmove(in, in + in_start, in_end - in_start);
        in_end -= in_start;
        in_start = 0;
    }
    if (closed || in_end == sizeof in) {
        return false;
    }
    for (;;) {
        ssize_t got = recv(fd, in + in_end, sizeof in - in_end, flags);
        if (got > 0) {
            in_end += (size_t)got;
            return true;
        }
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
            closed = true;
        }
        return false;
    }
}

bool channel_next(struct frame_header *header) {
    while (in_end - in_start < FRAME_HEADER) {
        if (!fill(0)) {
            if (in_end != in_start) {
                channel_malformed("the stream ends inside a frame");
            }
            return false;
        }
    }
    enum frame_error error =
        frame_read_header(FRAME_FROM_SERVER, in + in_start, FRAME_HEADER, header);
    if (error != FRAME_OK) {
        channel_malformed(frame_error_name(error));
    }
    in_start += FRAME_HEADER;
    return true;
}

size_t channel_read_some(void *to, size_t len) {
    if (in_start == in_end) {
        in_start = in_end = 0;
        if (len >= sizeof in / 2 && !closed) {
            /* large pieces go where they belong without a copy */
            ssize_t got;
            do {
                got = recv(fd, to, len, 0);
            } while (got < 0 && errno == EINTR);
            if (got <= 0) {
                closed = true;
                return 0;
            }
            return (size_t)got;
        }
        if (!fill(0)) {
            return 0;
        }
    }
    size_t have = in_end - in_start;
    if (len > have) {
        len = have;
    }
    memcpy(to, in + in_start, len);
    in_start += len;
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

bool channel_sees_abort(size_t skip) {
    fill(MSG_DONTWAIT);
    while (in_end - in_start >= skip + FRAME_HEADER) {
        struct frame_header header;
        if (frame_read_header(FRAME_FROM_SERVER, in + in_start + skip, FRAME_HEADER, &header) !=
            FRAME_OK) {
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
