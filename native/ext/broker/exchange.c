/* See exchange.h. */
#include "ext/broker/exchange.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "ext/broker/peer.h"
#include "ext/monotonic.h"

enum {
    ROOM = 65536 + FRAME_HEADER,
    /* How long the end of an abandoned call is awaited, and how much of it is read. More than that
     * costs more than a new connection. */
    SETTLE_MS = 50,
    SETTLE_BYTES = 1 << 20,
};

struct exchange {
    struct exchange *next; /* among those under way */
    int fd;
    pid_t owner;
    int64_t patience; /* SO_RCVTIMEO, microseconds; 0: none */
    uint8_t *input;
    size_t at, len, room;

    /* The call. */
    int64_t deadline;
    bool carried; /* it is not the first on this connection */
    bool came;    /* a frame of it */
    bool ended;   /* by a frame */
    bool broken;  /* the connection can carry no other */
    bool waited;  /* once */
    const char *body;
    size_t body_left;
    bool sending;               /* the broker has asked for the body */
    size_t piece_at, piece_len; /* the part of `piece` still to be sent */
    uint8_t *piece;
};

/* The connection that waits for the next call. */
static struct exchange *idle;
static struct exchange *under_way;
/* The process of the last connection or fork(): a child must not read the parent's answers. */
static pid_t self;

static void note_fork(void) {
    self = getpid();
}

static void *expect_memory(void *memory) {
    if (memory == NULL) {
        abort();
    }
    return memory;
}

static void discard(struct exchange *connection) {
    close(connection->fd);
    free(connection->input);
    free(connection->piece);
    free(connection);
}

static struct exchange *connect_to(const char *socket_path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(socket_path);
    if (len >= sizeof address.sun_path) {
        return NULL;
    }
    memcpy(address.sun_path, socket_path, len + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return NULL;
    }
    /* A full backlog would block connect(), and the broker would not answer soon. */
    struct timeval soon = {.tv_sec = 5, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        !peer_of_connection_is_trusted(fd, socket_path)) {
        close(fd);
        return NULL;
    }
    struct exchange *connection = expect_memory(calloc(1, sizeof *connection));
    connection->fd = fd;
    if (self == 0) {
        pthread_atfork(NULL, NULL, note_fork);
    }
    connection->owner = self = getpid();
    connection->room = ROOM;
    connection->input = expect_memory(malloc(ROOM));
    return connection;
}

/* The kept one, or NULL. */
static struct exchange *take_idle(void) {
    struct exchange *connection = idle;
    idle = NULL;
    if (connection != NULL && connection->owner != getpid()) {
        discard(connection);
        connection = NULL;
    }
    return connection;
}

/* Writes all parts. False: the peer closed, or accepted nothing, before all was written. */
static bool send_all(int fd, struct iovec *parts, size_t count) {
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    while (message.msg_iovlen > 0) {
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0) {
            return false;
        }
        size_t done = (size_t)sent;
        while (message.msg_iovlen > 0 && done >= message.msg_iov->iov_len) {
            done -= message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen > 0) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + done;
            message.msg_iov->iov_len -= done;
        }
    }
    return true;
}

static struct iovec part(const void *bytes, size_t len) {
    return (struct iovec){.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
}

struct opening {
    uint8_t bytes[CALL_OPENING + FRAME_HEADER];
    const char *token;
};

/* Appends the opening: two parts. */
static void put_opening(struct opening *opening, struct iovec *parts, const char *(*token)(void)) {
    opening->token = token();
    size_t len = opening->token != NULL ? strlen(opening->token) : 0;
    memcpy(opening->bytes, call_opening, CALL_OPENING);
    frame_put_header(opening->bytes + CALL_OPENING, FRAME_OPEN, 0, (uint32_t)len);
    parts[0] = part(opening->bytes, sizeof opening->bytes);
    parts[1] = part(opening->token, len);
}

/* Sends a call up to the point where the broker must answer. True: all of that is written. */
static bool send_call(struct exchange *connection, const struct exchange_call *call, bool fresh) {
    uint8_t prefix[CALL_PREFIX];
    uint8_t body[FRAME_HEADER];
    struct opening opening;
    struct iovec parts[7];
    size_t count = 0;
    bool whole = call->body != NULL && call->body_len <= FRAME_MAX_BODY;
    uint8_t flags = call->body == NULL ? CALL_FLAG_LAST : whole ? CALL_FLAG_WHOLE : 0;
    if (fresh) {
        put_opening(&opening, parts, call->token);
        count = 2;
    }
    if (!call_put_prefix(prefix, flags, call->control_len, call->head_len)) {
        return false;
    }
    parts[count++] = part(prefix, sizeof prefix);
    parts[count++] = part(call->control, call->control_len);
    parts[count++] = part(call->head, call->head_len);
    if (whole) {
        frame_put_header(body, FRAME_REQUEST_BODY, FRAME_FLAG_LAST, (uint32_t)call->body_len);
        parts[count++] = part(body, sizeof body);
        parts[count++] = part(call->body, call->body_len);
    }
    connection->deadline = call->deadline;
    connection->carried = !fresh;
    connection->came = connection->ended = connection->broken = connection->waited = false;
    connection->sending = false;
    connection->at = connection->len = connection->piece_at = connection->piece_len = 0;
    connection->body = whole ? NULL : call->body;
    connection->body_left = whole || call->body == NULL ? 0 : call->body_len;
    return send_all(connection->fd, parts, count);
}

struct exchange *exchange_begin(const struct exchange_call *call) {
    struct exchange *connection = take_idle();
    if (connection != NULL && !send_call(connection, call, false)) {
        /* the connection was closed in the meantime, so the broker ignores the written part of the
         * call */
        discard(connection);
        connection = NULL;
    }
    if (connection == NULL) {
        connection = connect_to(call->socket);
        if (connection != NULL && !send_call(connection, call, true)) {
            discard(connection);
            connection = NULL;
        }
    }
    if (connection != NULL) {
        connection->next = under_way;
        under_way = connection;
    }
    return connection;
}

/* Reads the next piece of a body that the broker has requested. */
static void fill_piece(struct exchange *x) {
    if (x->piece == NULL) {
        x->piece = expect_memory(malloc(ROOM));
    }
    size_t len = x->body_left < FRAME_MAX_BODY ? x->body_left : FRAME_MAX_BODY;
    memcpy(x->piece + FRAME_HEADER, x->body, len);
    x->body += len;
    x->body_left -= len;
    frame_put_header(
        x->piece, FRAME_REQUEST_BODY, x->body_left == 0 ? FRAME_FLAG_LAST : 0, (uint32_t)len);
    x->piece_at = 0;
    x->piece_len = FRAME_HEADER + len;
}

/* Sends as much as the socket accepts. */
static void send_piece(struct exchange *x) {
    ssize_t sent = send(
        x->fd, x->piece + x->piece_at, x->piece_len - x->piece_at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        /* the answer may have arrived nevertheless: the next read shows it */
        x->sending = false;
        x->broken = true;
        return;
    }
    x->piece_at += sent > 0 ? (size_t)sent : 0;
    if (x->piece_at == x->piece_len) {
        if (x->body_left > 0) {
            fill_piece(x);
        } else {
            x->sending = false;
        }
    }
}

static void set_patience(struct exchange *x, int64_t patience) {
    if (patience != x->patience) {
        struct timeval time = {.tv_sec = patience / 1000000, .tv_usec = patience % 1000000};
        setsockopt(x->fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
        x->patience = patience;
    }
}

/* Waits for input, and sends the body meanwhile. False: the deadline has passed. */
static bool wait_for_input(struct exchange *x) {
    for (;;) {
        int timeout = -1;
        if (x->deadline != INT64_MAX) {
            int64_t left = x->deadline - monotonic_microseconds();
            if (left <= 0) {
                return false;
            }
            timeout = left > 3600000000 ? 3600000 : (int)((left + 999) / 1000);
        }
        struct pollfd socket = {x->fd, (short)(POLLIN | (x->sending ? POLLOUT : 0)), 0};
        if (poll(&socket, 1, timeout) > 0) {
            if ((socket.revents & POLLOUT) != 0 && x->sending) {
                send_piece(x);
            }
            if ((socket.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
                return true;
            }
        }
    }
}

enum reading { READING_MORE, READING_END, READING_RESET, READING_LATE };

static enum reading read_more(struct exchange *x) {
    for (;;) {
        /* The first wait of a call uses the socket's own time-out, which seldom changes: one
         * system call less. */
        bool patient = !x->waited && !x->sending;
        if (patient) {
            int64_t left = x->deadline == INT64_MAX ? 0 : x->deadline - monotonic_microseconds();
            if (left < 0) {
                return READING_LATE;
            }
            /* in whole milliseconds, so that the next call with the same limit needs no change */
            set_patience(x, left == 0 ? 0 : (left + 999) / 1000 * 1000);
        } else if (!wait_for_input(x)) {
            return READING_LATE;
        }
        x->waited = true;
        ssize_t got = recv(x->fd, x->input + x->len, x->room - x->len, patient ? 0 : MSG_DONTWAIT);
        if (got > 0) {
            x->len += (size_t)got;
            return READING_MORE;
        }
        if (got == 0) {
            return READING_END;
        }
        if (errno != EAGAIN && errno != EINTR) {
            return READING_RESET;
        }
    }
}

static void make_room(struct exchange *x, size_t frame) {
    if (x->at > 0) {
        memmove(x->input, x->input + x->at, x->len - x->at);
        x->len -= x->at;
        x->at = 0;
    }
    if (frame > x->room) {
        x->input = expect_memory(realloc(x->input, frame));
        x->room = frame;
    }
}

static enum exchange_event end_broken(struct exchange *x, enum exchange_event event) {
    x->broken = true;
    return event;
}

static enum exchange_event decode(struct exchange *x, const struct frame_header *header,
    const uint8_t *payload, struct exchange_news *news) {
    news->bytes = (const char *)payload;
    news->len = header->length;
    switch (header->type) {
    case FRAME_INTERIM:
        return EXCHANGE_INTERIM;
    case FRAME_ANSWER:
        return call_read_answer(payload, header->length, &news->answer) == FRAME_OK
                   ? EXCHANGE_ANSWER
                   : end_broken(x, EXCHANGE_LOST);
    case FRAME_BODY:
        return EXCHANGE_BODY;
    case FRAME_TRAILERS:
        return EXCHANGE_TRAILERS;
    case FRAME_DONE:
        x->ended = true;
        return EXCHANGE_END;
    case FRAME_DECLINED:
    case FRAME_LOST:
        if (call_read_no_answer(payload, header->length, &news->why) != FRAME_OK) {
            return end_broken(x, EXCHANGE_LOST);
        }
        x->ended = true;
        return header->type == FRAME_DECLINED ? EXCHANGE_DECLINED : EXCHANGE_FAILED;
    default:
        return end_broken(x, EXCHANGE_LOST);
    }
}

/* Returns the next frame, including WANT. */
static enum exchange_event next_frame(
    struct exchange *x, struct exchange_news *news, uint8_t *type) {
    for (;;) {
        struct frame_header header;
        enum frame_error error =
            frame_read_header(FRAME_FROM_BROKER, x->input + x->at, x->len - x->at, &header);
        if (error != FRAME_OK && error != FRAME_INCOMPLETE) {
            return end_broken(x, EXCHANGE_LOST);
        }
        size_t frame = FRAME_HEADER + (error == FRAME_OK ? header.length : 0);
        if (error == FRAME_OK && x->len - x->at >= frame) {
            const uint8_t *payload = x->input + x->at + FRAME_HEADER;
            x->at += frame;
            x->came = true;
            *type = header.type;
            return header.type == FRAME_WANT ? EXCHANGE_INTERIM : decode(x, &header, payload, news);
        }
        make_room(x, frame);
        switch (read_more(x)) {
        case READING_MORE:
            break;
        case READING_LATE:
            return EXCHANGE_LATE;
        case READING_END:
            return end_broken(x, EXCHANGE_LOST);
        case READING_RESET:
            /* a unix socket reports that its peer closed with unread bytes: the call was not read
             * completely */
            return end_broken(x,
                !x->came && x->len == 0 && errno == ECONNRESET ? EXCHANGE_UNREAD : EXCHANGE_LOST);
        }
    }
}

enum exchange_event exchange_next(struct exchange *x, struct exchange_news *news) {
    for (;;) {
        uint8_t type = 0;
        if (x->ended || x->broken || x->owner != self) {
            return EXCHANGE_LOST;
        }
        enum exchange_event event = next_frame(x, news, &type);
        if (type != FRAME_WANT) {
            return event;
        }
        if (x->body == NULL || x->sending) {
            return end_broken(x, EXCHANGE_LOST);
        }
        x->sending = true;
        fill_piece(x);
    }
}

/* Cancels the call and reads the answer to its end. */
static void give_up(struct exchange *x) {
    uint8_t frame[FRAME_HEADER];
    struct exchange_news news;
    size_t seen = 0;
    if (x->sending || x->piece_at < x->piece_len) {
        x->broken = true; /* perhaps in the middle of a frame of ours */
        return;
    }
    frame_put_header(frame, FRAME_ABORT, 0, 0);
    struct iovec parts[1] = {part(frame, sizeof frame)};
    if (!send_all(x->fd, parts, 1)) {
        x->broken = true;
        return;
    }
    x->deadline = monotonic_microseconds() + SETTLE_MS * 1000;
    x->waited = true;
    x->body = NULL;
    while (!x->ended && !x->broken) {
        uint8_t type = 0;
        enum exchange_event event = next_frame(x, &news, &type);
        seen += event == EXCHANGE_BODY ? news.len : 0;
        if (event == EXCHANGE_LATE || seen > SETTLE_BYTES) {
            x->broken = true;
        }
    }
}

void exchange_end(struct exchange *x) {
    if (x == NULL) {
        return;
    }
    struct exchange **place = &under_way;
    for (; *place != NULL && *place != x; place = &(*place)->next) {
    }
    if (*place == x) {
        *place = x->next;
    }
    bool ours = x->owner == self;
    if (ours && !x->ended && !x->broken) {
        give_up(x);
    }
    /* an incomplete body, or bytes behind the end, would be taken for a part of the next call */
    if (!ours || x->broken || x->sending || x->at != x->len || idle != NULL) {
        discard(x);
        return;
    }
    if (x->room > ROOM) {
        x->input = expect_memory(realloc(x->input, ROOM));
        x->room = ROOM;
    }
    free(x->piece);
    x->piece = NULL;
    idle = x;
}

void exchange_drop(struct exchange *x) {
    if (x != NULL) {
        x->broken = true;
        exchange_end(x);
    }
}

void exchange_connect(const char *socket, const char *(*token)(void)) {
    struct opening opening;
    struct iovec parts[2];
    if ((idle = take_idle()) != NULL) {
        set_patience(idle, 0); /* a restore puts back only what is remembered of it */
        return;
    }
    struct exchange *connection = connect_to(socket);
    put_opening(&opening, parts, token);
    if (connection != NULL && (opening.token == NULL || !send_all(connection->fd, parts, 2))) {
        discard(connection);
        connection = NULL;
    }
    idle = connection;
}

void exchange_settle(void) {
    while (under_way != NULL) {
        exchange_end(under_way);
    }
}
