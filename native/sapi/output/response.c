/* See response.h. */
#include "sapi/output/response.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ext/header_line.h"
#include "ext/monotonic.h"
#include "sapi/output/log.h"
#include "sapi/request/channel.h"
#include "sapi/request/request.h"
#include "snapshot/snapshot.h"
#include "wire/frame.h"

enum {
    HEAD_ROOM = 65536, /* a larger head gives its memory back after the answer */
    END_ROOM = 64,
    FATAL_STATUS = 255, /* set by php_error_cb(), main/main.c */
};

static struct frame_buffer head; /* the HEAD frame while it has not been sent */
static uint8_t *head_room;       /* kept memory: of no use to a restore, as ... */
static uint8_t *body;            /* ... this, of FRAME_MAX_BODY bytes */
static size_t body_len;
static bool has_head;
static bool gone;    /* the client no longer takes the answer */
static bool refused; /* the head was answered with 500: PHP's output goes nowhere */
static bool ended;
static bool busy;      /* END announced it: the server waits for READY */
static uint64_t begun; /* in nanoseconds */

void response_prepare(void) {
    if (body == NULL) {
        body = snapshot_keep(FRAME_MAX_BODY);
        head_room = snapshot_keep(HEAD_ROOM);
    }
}

void response_begin(void) {
    begun = monotonic_nanoseconds() - channel_waited();
    frame_buffer_free(&head);
    head = (struct frame_buffer){.data = head_room, .cap = HEAD_ROOM, .has_room = true};
    body_len = 0;
    has_head = gone = refused = ended = busy = false;
    EG(exit_status) = 0; /* it outlives a request */
}

bool response_has_head(void) {
    return has_head;
}

bool response_ended(void) {
    return ended;
}

bool response_was_busy(void) {
    return busy;
}

static bool is_name(const sapi_header_struct *header, const char *name, size_t name_len) {
    return header->header_len > name_len && header->header[name_len] == ':' &&
           strncasecmp(header->header, name, name_len) == 0;
}

/* Returns the status line's reason phrase: the text after `HTTP/1.1 404 `. Borrowed: line,
 * result. */
static const char *reason_of(const char *line, size_t *len) {
    const char *p = line == NULL ? NULL : strchr(line, ' ');
    while (p != NULL && *p == ' ') {
        p++;
    }
    while (p != NULL && *p >= '0' && *p <= '9') {
        p++;
    }
    if (p == NULL || *p != ' ') {
        *len = 0;
        return "";
    }
    p++;
    *len = strlen(p);
    return p;
}

/* Appends the pairs of `headers`. sapi_cgi_send_headers() of sapi/fpm/fpm/fpm_main.c decides what is left out. */
static void add_pairs(struct frame_head *frame, sapi_headers_struct *headers, unsigned status) {
    zend_llist_position position;
    for (sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &position);
         header != NULL; header = zend_llist_get_next_ex(&headers->headers, &position)) {
        struct header_line line;
        if (!header_line_split(header, &line) || is_name(header, "Status", 6) ||
            (status == 304 && is_name(header, "Content-Type", 12))) {
            continue;
        }
        frame_add_pair(frame, line.name, line.name_len, line.value, line.value_len);
    }
}

/* The status that php-fpm's web server would see: a `Status:` header counts if no other status was
 * set. */
static unsigned status_of(sapi_headers_struct *headers, const char **reason, size_t *reason_len) {
    int status = headers->http_response_code == 0 ? 200 : headers->http_response_code;
    *reason = reason_of(headers->http_status_line, reason_len);
    if (status != 200 || headers->http_status_line != NULL) {
        return status < 0 ? 0 : (unsigned)status;
    }
    zend_llist_position position;
    for (sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &position);
         header != NULL; header = zend_llist_get_next_ex(&headers->headers, &position)) {
        if (is_name(header, "Status", 6)) {
            int said = atoi(header->header + 7);
            if (said >= 200 && said <= 999) {
                *reason = reason_of(header->header + 6, reason_len);
                return (unsigned)said;
            }
        }
    }
    return 200;
}

void response_head(sapi_headers_struct *headers) {
    if (has_head || ended) {
        return;
    }
    has_head = true;
    const char *reason;
    size_t reason_len;
    unsigned status = status_of(headers, &reason, &reason_len);
    struct frame_head frame;
    frame_begin_head(&frame, &head, FRAME_HEAD, status, reason, reason_len);
    add_pairs(&frame, headers, status);
    if (!frame_end_head(&frame)) {
        log_line(LOG_ERR, LOG_SOURCE_WORKER,
            "the response head (status %u, %zu header fields) cannot be sent: answered with 500",
            status, zend_llist_count(&headers->headers));
        frame_begin_head(&frame, &head, FRAME_HEAD, 500, "", 0);
        frame_end_head(&frame);
        refused = true;
    }
}

bool response_inform(unsigned status, sapi_headers_struct *headers) {
    if (has_head || ended || !request_present()) {
        return false;
    }
    struct frame_buffer early = {0};
    struct frame_head frame;
    frame_begin_head(&frame, &early, FRAME_INFORM, status, "", 0);
    add_pairs(&frame, headers, status);
    bool sent = frame_end_head(&frame) && channel_send_buffer(&early);
    frame_buffer_free(&early);
    return sent;
}

/* Sends the head, the collected body, `len` bytes more and an END (when `end` has bytes). */
static bool send_all(const char *data, size_t len, struct frame_buffer *end) {
    enum { PIECES = 8 };
    uint8_t headers[PIECES + 1][FRAME_HEADER];
    struct iovec iov[2 + 2 * (PIECES + 1)];
    bool whole = false;
    bool sent = true;
    while (sent && !whole) {
        size_t n = 0;
        if (head.len > 0) {
            iov[n++] = (struct iovec){head.data, head.len};
        }
        if (body_len > 0) {
            frame_put_header(headers[PIECES], FRAME_BODY, 0, (uint32_t)body_len);
            iov[n++] = (struct iovec){headers[PIECES], FRAME_HEADER};
            iov[n++] = (struct iovec){body, body_len};
        }
        for (size_t i = 0; i < PIECES && len > 0; i++) {
            size_t piece = len < FRAME_MAX_BODY ? len : FRAME_MAX_BODY;
            frame_put_header(headers[i], FRAME_BODY, 0, (uint32_t)piece);
            iov[n++] = (struct iovec){headers[i], FRAME_HEADER};
            iov[n++] = (struct iovec){(char *)data, piece};
            data += piece;
            len -= piece;
        }
        whole = len == 0;
        if (whole && end != NULL) {
            iov[n++] = (struct iovec){end->data, end->len};
        }
        sent = n == 0 || channel_send(iov, n);
        head.len = 0;
        body_len = 0;
    }
    return sent;
}

bool response_write(const char *data, size_t len) {
    if (ended || gone) {
        return false;
    }
    if (refused) {
        return true;
    }
    if (len <= FRAME_MAX_BODY - body_len) {
        memcpy(body + body_len, data, len);
        body_len += len;
        return true;
    }
    gone = !send_all(data, len, NULL) || request_aborted();
    return !gone;
}

bool response_flush(void) {
    if (ended || gone) {
        return false;
    }
    gone = !send_all(NULL, 0, NULL) || request_aborted();
    return !gone;
}

void response_end(uint8_t flags) {
    if (ended) {
        return;
    }
    if (!has_head) {
        /* PHP could not create one (a bailout in a header callback), so only this is sent */
        struct frame_head frame;
        frame_begin_head(&frame, &head, FRAME_HEAD, 500, "", 0);
        frame_end_head(&frame);
        has_head = true;
        body_len = 0;
    }
    if (gone) {
        body_len = 0;
    }
    if (EG(exit_status) == FATAL_STATUS) {
        flags |= FRAME_FLAG_FAILED;
    }
    uint8_t room[END_ROOM];
    struct frame_buffer end = {.data = room, .cap = sizeof room, .has_room = true};
    frame_write_end(&end, flags, monotonic_nanoseconds() - channel_waited() - begun);
    send_all(NULL, 0, &end);
    ended = true;
    busy = (flags & FRAME_FLAG_BUSY) != 0;
    frame_buffer_free(&end);
    if (!head.has_room) {
        frame_buffer_free(&head);
    }
}
