/* See call.h. The wrapper is php-src's ext/standard/http_fopen_wrapper.c, which writes its request
 * in one piece. */
#include "ext/streams/call.h"

#include <errno.h>
#include <fcntl.h>
#include <php_network.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ext/broker/peer.h"
#include "ext/curl/settings.h"
#include "ext/streams/broker_head.h"

/* A head larger than this is invalid. The broker's limit is lower. */
enum { HEAD_LIMIT = 256 << 10, PIECE = 16 << 10 };

/* The notifications between the connection and the request: a connection, credentials. */
enum { NOTES = 4 };

struct call {
    php_netstream_data_t socket; /* first: php_stream_socket_ops work on it. To the broker */

    /* The insides of the stream as the stock factory made it, not connected. */
    const php_stream_ops *direct_ops;
    void *direct; /* owned */
    char *name;   /* owned */
    size_t name_len;
    struct timeval timeout;
    bool limited; /* by `timeout` */

    zend_string *origin;  /* owned */
    zend_string *options; /* owned */
    bool asked;           /* the request was written */
    smart_str head;       /* of the answer */
    size_t read;          /* the part of it that the wrapper has read */
    struct call_failure *failure;

    /* Notifications are held back until the connection is known to exist. */
    php_stream_context *context; /* borrowed: the stream holds it too. NULL: none are kept back */
    php_stream_notifier *notifier;
    php_stream_notifier recorder;
    int notes[NOTES];
    size_t note_count;
};

static php_stream_ops ops;

/* The wrapper is given one notifier of ours, which a context carries from the factory to the request. */
static void record(php_stream_context *context, int code, int severity, char *message,
    int message_code, size_t so_far, size_t most, void *ptr) {
    struct call *call =
        (struct call *)((char *)context->notifier - offsetof(struct call, recorder));
    (void)severity;
    (void)message;
    (void)message_code;
    (void)so_far;
    (void)most;
    (void)ptr;
    if (call->note_count < NOTES) {
        call->notes[call->note_count++] = code;
    }
}

static void hold_notes(struct call *call, php_stream_context *context) {
    if (context == NULL || context->notifier == NULL) {
        return;
    }
    call->context = context;
    call->notifier = context->notifier;
    call->recorder.func = record;
    context->notifier = &call->recorder;
}

/* Restores the application's notifier. With `tell`, delivers the notifications that were held
 * back. May run PHP code. */
static void release_notes(struct call *call, bool tell) {
    php_stream_context *context = call->context;
    if (context == NULL) {
        return;
    }
    call->context = NULL;
    if (context->notifier == &call->recorder) {
        context->notifier = call->notifier;
    }
    for (size_t i = 0; tell && i < call->note_count; i++) {
        php_stream_notify_info(context, call->notes[i], NULL, 0);
    }
}

static void free_call(struct call *call) {
    release_notes(call, false);
    efree(call->name);
    zend_string_release(call->origin);
    zend_string_release(call->options);
    smart_str_free(&call->head);
    efree(call);
}

static void close_socket(struct call *call) {
    if (call->socket.socket >= 0) {
        close(call->socket.socket);
        call->socket.socket = -1;
    }
}

/* Opens the stream that stock PHP would have opened. */
static void become_direct(php_stream *stream, const struct call *call) {
    stream->ops = call->direct_ops;
    stream->abstract = call->direct;
}

/* Frees what stock PHP's stream would have been, connected or not; the stream is ours again. */
static void close_insides(php_stream *stream, struct call *call) {
    if (call->direct_ops != NULL) {
        become_direct(stream, call);
        call->direct_ops->close(stream, 1);
        call->direct_ops = NULL;
    }
    stream->ops = &ops;
    stream->abstract = call;
}

/* The direct way has no connection either: the wrapper reads nothing. */
static ssize_t fail_directly(php_stream *stream, struct call *call, zend_string *message) {
    close_insides(stream, call);
    call->failure->failed = true;
    call->failure->message = message;
    return -1;
}

/* The rest of php_stream_xport_create() (main/streams/transports.c), and the request once more. */
static ssize_t go_directly(php_stream *stream, struct call *call, const char *bytes, size_t len) {
    zend_string *message = NULL;
    int code = 0;
    struct timeval *timeout = call->limited ? &call->timeout : NULL;
    close_socket(call);
    become_direct(stream, call);
    if (php_stream_xport_connect(stream, call->name, call->name_len, 0, timeout, &message, &code) ==
        -1) {
        return fail_directly(stream, call, message);
    }
    if (timeout != NULL) {
        php_stream_set_option(stream, PHP_STREAM_OPTION_READ_TIMEOUT, 0, timeout);
    }
    release_notes(call, true);
    free_call(call);
    return stream->ops->write(stream, bytes, len);
}

/* The request with the options in its head. False: not for the broker. */
static bool compose(
    const struct call *call, const char *bytes, size_t head_len, smart_str *request) {
    const char *token = settings_token();
    const char *end = bytes + head_len - 2; /* the empty line */
    bool first = true;
    for (const char *line = bytes; line < end;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t len = (size_t)(next - line) + 1;
        if (next == NULL || len < 2 || memchr(line, '\r', len) != next - 1) {
            return false;
        }
        /* a blank at the beginning would continue the field before */
        if (*line == ' ' || *line == '\t' ||
            (first && (len < 11 || memcmp(next - 10, " HTTP/1.1", 9) != 0))) {
            return false;
        }
        /* the broker would take it for its own hop, and the origin would not get it */
        static const char for_one_hop[] = "Proxy-Authorization:";
        if (len >= strlen(for_one_hop) &&
            strncasecmp(line, for_one_hop, strlen(for_one_hop)) == 0) {
            return false;
        }
        if (first || len < 7 || strncasecmp(line, "Hearth-", 7) != 0) {
            smart_str_appendl(request, line, len);
        }
        first = false;
        line = next + 1;
    }
    if (token == NULL) {
        return false;
    }
    smart_str_appends(request, "Hearth-Control: token=\"");
    smart_str_appends(request, token);
    smart_str_appendc(request, '"');
    smart_str_append(request, call->options);
    smart_str_appends(request, "\r\nHearth-Origin: ");
    smart_str_append(request, call->origin);
    smart_str_appends(request, "\r\n");
    smart_str_appends(request, settings_trace());
    smart_str_appends(request, "\r\n");
    return true;
}

/* Reads the bytes of the head from the socket, and not a byte behind it, which belongs to the
 * descriptor's reader. -1: an error or the end; 0: the head is not complete; 1: it is. */
static int read_head(struct call *call) {
    smart_str *head = &call->head;
    size_t had = head->s != NULL ? ZSTR_LEN(head->s) : 0;
    smart_str_alloc(head, PIECE, false);
    char *begin = ZSTR_VAL(head->s);
    ssize_t got = recv(call->socket.socket, begin + had, PIECE, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (got <= 0 || had > HEAD_LIMIT) {
        return -1;
    }
    size_t from = had > 3 ? had - 3 : 0;
    const char *end = memmem(begin + from, had + (size_t)got - from, "\r\n\r\n", 4);
    size_t take = end != NULL ? (size_t)(end + 4 - begin) - had : (size_t)got;
    if (recv(call->socket.socket, begin + had, take, 0) != (ssize_t)take) {
        return -1;
    }
    ZSTR_LEN(head->s) = had + take;
    return end != NULL ? 1 : 0;
}

/* An interim answer (1xx): the wrapper passes over it, and another follows. */
static bool is_interim(const char *head, size_t len) {
    return len > 12 && head[9] == '1';
}

/* Bytes in transit between this process and the broker. */
struct exchange {
    const smart_str *request;
    const char *body;
    size_t body_len;
    size_t left;  /* bytes of both that are not sent */
    size_t begin; /* of the head that is read, behind interim ones */
    bool complete;
    struct refusal refusal;
};

static void send_more(struct call *call, struct exchange *exchange) {
    bool in_head = exchange->left > exchange->body_len;
    const char *end = in_head ? ZSTR_VAL(exchange->request->s) + ZSTR_LEN(exchange->request->s)
                              : exchange->body + exchange->body_len;
    size_t len = in_head ? exchange->left - exchange->body_len : exchange->left;
    ssize_t sent = send(call->socket.socket, end - len, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
        exchange->left -= (size_t)sent;
    } else if (errno != EAGAIN && errno != EINTR) {
        exchange->left = 0; /* its answer explains why it reads no more */
    }
}

/* False: there will be no head. */
static bool read_more(struct call *call, struct exchange *exchange) {
    int complete = read_head(call);
    if (complete < 0) {
        return false;
    }
    size_t len = ZSTR_LEN(call->head.s) - exchange->begin;
    if (complete > 0 && is_interim(ZSTR_VAL(call->head.s) + exchange->begin, len)) {
        exchange->begin += len;
    } else if (complete > 0) {
        broker_head_clean(&call->head, exchange->begin, &exchange->refusal);
        exchange->complete = true;
    }
    return true;
}

/* Sends the request and reads the head of the answer. An answer that is early does not end the sending, as with stock PHP. */
static void make_exchange(struct call *call, struct exchange *exchange) {
    const struct timeval *limit = &call->socket.timeout;
    int patience = limit->tv_sec < 0 ? -1 : (int)(limit->tv_sec * 1000 + limit->tv_usec / 1000);
    while (!exchange->complete || (exchange->left > 0 && exchange->refusal.outcome == ANSWERED)) {
        struct pollfd fd = {call->socket.socket, 0, 0};
        fd.events = (short)((exchange->complete ? 0 : POLLIN) | (exchange->left > 0 ? POLLOUT : 0));
        int ready = poll(&fd, 1, patience);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        if (ready <= 0) {
            call->socket.timeout_event = ready == 0;
            exchange->refusal.outcome = exchange->complete ? ANSWERED : FAILED;
            return;
        }
        if (!exchange->complete && (fd.revents & ~POLLOUT) != 0 && !read_more(call, exchange)) {
            bool silent = smart_str_get_len(&call->head) == 0;
            exchange->refusal.outcome = silent ? LOST : FAILED;
            return;
        }
        if (exchange->left > 0 && (fd.revents & ~POLLIN) != 0) {
            send_more(call, exchange);
        }
    }
}

static bool may_repeat(const char *request, size_t body_len) {
    return body_len == 0 && (strncmp(request, "GET ", 4) == 0 || strncmp(request, "HEAD ", 5) == 0);
}

static ssize_t ask(php_stream *stream, struct call *call, const char *bytes, size_t len) {
    const char *end = memmem(bytes, len, "\r\n\r\n", 4);
    smart_str request = {0};
    if (end == NULL || !compose(call, bytes, (size_t)(end - bytes) + 4, &request)) {
        smart_str_free(&request);
        return go_directly(stream, call, bytes, len);
    }
    struct exchange exchange = {.request = &request, .body = end + 4};
    exchange.body_len = (size_t)(bytes + len - exchange.body);
    exchange.left = ZSTR_LEN(request.s) + exchange.body_len;
    make_exchange(call, &exchange);
    smart_str_free(&request);
    const struct refusal refusal = exchange.refusal;
    if (refusal.outcome == DECLINED && strcmp(refusal.reason, "token") == 0) {
        settings_forget_token();
    }
    if (refusal.outcome == DECLINED ||
        (refusal.outcome == LOST && may_repeat(bytes, exchange.body_len))) {
        smart_str_free(&call->head);
        return go_directly(stream, call, bytes, len);
    }
    if (refusal.outcome == LATE) {
        close_socket(call);
        release_notes(call, false);
        return fail_directly(
            stream, call, zend_string_init(strerror(ETIMEDOUT), strlen(strerror(ETIMEDOUT)), 0));
    }
    release_notes(call, true);
    if (refusal.outcome != ANSWERED) {
        smart_str_free(&call->head);
        if (refusal.outcome == RESET && strncmp(ZSTR_VAL(call->origin), "https:", 6) == 0) {
            /* ext/openssl/xp_ssl.c, php_openssl_handle_ssl_error() */
            php_error_docref(NULL, E_WARNING, "SSL: %s", strerror(ECONNRESET));
        }
        close_socket(call);
        stream->eof = !call->socket.timeout_event;
    }
    return (ssize_t)len;
}

static ssize_t call_write(php_stream *stream, const char *bytes, size_t len) {
    struct call *call = stream->abstract;
    if (call->asked) {
        return php_stream_socket_ops.write(stream, bytes, len);
    }
    call->asked = true;
    return ask(stream, call, bytes, len);
}

static ssize_t call_read(php_stream *stream, char *bytes, size_t room) {
    struct call *call = stream->abstract;
    size_t left = smart_str_get_len(&call->head) - call->read;
    if (left == 0) {
        return php_stream_socket_ops.read(stream, bytes, room);
    }
    size_t len = left < room ? left : room;
    memcpy(bytes, ZSTR_VAL(call->head.s) + call->read, len);
    call->read += len;
    if (len == left) {
        smart_str_free(&call->head);
        call->read = 0;
    }
    return (ssize_t)len;
}

static int call_set_option(php_stream *stream, int option, int value, void *param) {
    struct call *call = stream->abstract;
    if (option == PHP_STREAM_OPTION_XPORT_API) {
        php_stream_xport_param *wanted = param;
        if (wanted->op == STREAM_XPORT_OP_CONNECT) {
            wanted->outputs.returncode = 0; /* it is, to the broker */
            return PHP_STREAM_OPTION_RETURN_OK;
        }
    }
    if (option == PHP_STREAM_OPTION_CHECK_LIVENESS && smart_str_get_len(&call->head) > 0) {
        return PHP_STREAM_OPTION_RETURN_OK;
    }
    return php_stream_socket_ops.set_option(stream, option, value, param);
}

static int call_close(php_stream *stream, int close_handle) {
    struct call *call = stream->abstract;
    close_insides(stream, call);
    if (close_handle) {
        close_socket(call);
    }
    free_call(call);
    stream->abstract = NULL;
    return 0;
}

/* Connects to the broker. -1: no broker listens, or its backlog is full. */
static int connect_broker(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = settings_broker();
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) != 0) {
        close(fd);
        settings_notice("no broker listens there");
        return -1;
    }
    if (!peer_of_connection_is_trusted(fd, path)) {
        close(fd);
        settings_notice(settings_untrusted);
        return -1;
    }
    return fd;
}

/* PHP's own operations of a socket, but for ours. `label`: what stream_get_meta_data() calls the stock transport. */
static void set_up_ops(const char *label) {
    if (ops.label == NULL) {
        ops = php_stream_socket_ops;
        ops.label = label;
        ops.write = call_write;
        ops.read = call_read;
        ops.set_option = call_set_option;
        ops.close = call_close;
    }
}

bool call_begin(php_stream *stream, const char *name, size_t name_len,
    const struct timeval *timeout, php_stream_context *context, zend_string *origin,
    zend_string *options, struct call_failure *failure) {
    int fd = connect_broker();
    if (fd < 0) {
        zend_string_release(origin);
        zend_string_release(options);
        return false;
    }
    struct call *call = ecalloc(1, sizeof *call);
    call->socket.socket = fd;
    call->socket.is_blocked = 1;
    call->socket.timeout.tv_sec = -1;
    call->direct_ops = stream->ops;
    call->direct = stream->abstract;
    call->name = estrndup(name, name_len);
    call->name_len = name_len;
    call->limited = timeout != NULL;
    if (timeout != NULL) {
        call->timeout = call->socket.timeout = *timeout;
    }
    call->origin = origin;
    call->options = options;
    call->failure = failure;
    set_up_ops(stream->ops->label);
    stream->ops = &ops;
    stream->abstract = call;
    hold_notes(call, context);
    return true;
}
