/* See sockets.h. The server's side is crates/server/src/subsystems/websockets/pushes.rs: the requests of API Gateway's @connections,
 * over a unix socket that only this application knows.
 *
 * Promises
 * - Works in every process that has the server's environment: workers of all models, php-fpm, commands of [processes].
 * - Each call has its own connection and ends within WAIT seconds for each step. No descriptor outlives a call.
 */
#include "ext/sockets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "ext/broker/peer.h"

/* Seconds for each step of a call: the server answers without waiting for a client. */
enum { WAIT = 5, LONGEST_ID = 128 };

static struct sockaddr_un address = {.sun_family = AF_UNIX};

void sockets_startup(void) {
    const char *path = getenv("HEARTH_SOCKETS");
    if (path != NULL && strlen(path) < sizeof address.sun_path) {
        strcpy(address.sun_path, path);
    }
}

/* Returns a connection to the server, or -1. */
static int dial(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    struct timeval wait = {.tv_sec = WAIT};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    int dialed;
    do {
        dialed = connect(fd, (const struct sockaddr *)&address, sizeof address);
    } while (dialed != 0 && errno == EINTR);
    if (dialed != 0 || !peer_of_connection_is_trusted(fd, address.sun_path)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool send_all(int fd, const char *bytes, size_t len) {
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return false;
        }
        bytes += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* Returns the status of the answer, or 0. */
static int receive_status(int fd) {
    char head[16];
    size_t len = 0;
    while (len < sizeof head - 1) {
        ssize_t got = recv(fd, head + len, sizeof head - 1 - len, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        len += (size_t)got;
    }
    head[len] = '\0';
    int status = 0;
    return sscanf(head, "HTTP/1.1 %3d", &status) == 1 ? status : 0;
}

/* Makes a request about a connection. Returns its status; 0: the server has not answered. Borrowed: all. */
static int request(
    const char *method, const zend_string *id, const char *more, const zend_string *body) {
    char head[512];
    int len = snprintf(head, sizeof head,
        "%s /@connections/%s%s HTTP/1.1\r\nHost: hearth\r\nConnection: close\r\nContent-Length: "
        "%zu\r\n\r\n",
        method, ZSTR_VAL(id), more, ZSTR_LEN(body));
    int fd = len > 0 && (size_t)len < sizeof head ? dial() : -1;
    if (fd < 0) {
        return 0;
    }
    /* A server that refuses a message early answers before it has read all of it. */
    int status = 0;
    if (send_all(fd, head, (size_t)len)) {
        send_all(fd, ZSTR_VAL(body), ZSTR_LEN(body));
        status = receive_status(fd);
    }
    close(fd);
    return status;
}

/* The ids of Hearth and of API Gateway have these characters only; all others name no connection. */
static bool is_id(const zend_string *id) {
    static const char known[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_=-";
    return ZSTR_LEN(id) > 0 && ZSTR_LEN(id) <= LONGEST_ID &&
           strspn(ZSTR_VAL(id), known) == ZSTR_LEN(id);
}

static bool has_server(void) {
    if (address.sun_path[0] != '\0') {
        return true;
    }
    zend_throw_error(NULL,
        "%s(): this process has no server with WebSockets: name a path in `websockets.routes`, and "
        "run it under `hearth serve` (workers, [processes]) or with HEARTH_SOCKETS of such a "
        "process",
        get_active_function_name());
    return false;
}

PHP_FUNCTION(hearth_socket_send) {
    zend_string *id;
    zend_string *data;
    bool binary = false;

    ZEND_PARSE_PARAMETERS_START(2, 3)
    Z_PARAM_STR(id)
    Z_PARAM_STR(data)
    Z_PARAM_OPTIONAL
    Z_PARAM_BOOL(binary)
    ZEND_PARSE_PARAMETERS_END();

    if (!has_server()) {
        RETURN_THROWS();
    }
    if (!is_id(id)) {
        RETURN_FALSE;
    }
    int status = request("POST", id, binary ? "?binary=1" : "", data);
    if (status == 400) {
        zend_argument_value_error(2, "must be UTF-8, or be sent as binary");
        RETURN_THROWS();
    }
    RETURN_BOOL(status == 200 || status == 204);
}

PHP_FUNCTION(hearth_socket_close) {
    zend_string *id;
    zend_string *reason = ZSTR_EMPTY_ALLOC();
    zend_long code = 1000;

    ZEND_PARSE_PARAMETERS_START(1, 3)
    Z_PARAM_STR(id)
    Z_PARAM_OPTIONAL
    Z_PARAM_LONG(code)
    Z_PARAM_STR(reason)
    ZEND_PARSE_PARAMETERS_END();

    /* RFC 6455, 7.4, as channels::websocket::CloseCode */
    if (!((code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
            (code >= 3000 && code <= 4999))) {
        zend_argument_value_error(
            2, "must be a close code: 1000 to 1003, 1007 to 1014 or 3000 to 4999");
        RETURN_THROWS();
    }
    if (ZSTR_LEN(reason) > 123) {
        zend_argument_value_error(3, "must have at most 123 bytes");
        RETURN_THROWS();
    }
    if (!has_server()) {
        RETURN_THROWS();
    }
    if (!is_id(id)) {
        RETURN_FALSE;
    }
    char more[16];
    snprintf(more, sizeof more, "?code=%d", (int)code);
    int status = request("DELETE", id, more, reason);
    if (status == 400) {
        zend_argument_value_error(3, "must be UTF-8");
        RETURN_THROWS();
    }
    RETURN_BOOL(status == 200 || status == 204);
}
