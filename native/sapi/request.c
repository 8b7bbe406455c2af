/* See request.h. */
#include "request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "board.h"
#include "channel.h"

/* A head larger than this gives its memory back after the request. */
enum { HEAD_KEPT = 65536 };

static struct frame_request head;
static uint8_t *payload;
static size_t payload_cap;
static bool present;

static size_t piece;  /* bytes of the current BODY frame that have not been read */
static bool last;     /* that frame is the last one */
static bool complete; /* no further BODY will come */
static bool aborted;

bool request_receive(void) {
    struct frame_header header;
    do {
        if (!channel_next(&header)) {
            return false;
        }
        /* an ABORT that crossed our END belongs to no exchange */
    } while (header.type == FRAME_ABORT);
    if (header.type != FRAME_REQUEST) {
        channel_malformed("a body outside an exchange");
    }
    if (header.length > payload_cap) {
        size_t cap = header.length < HEAD_KEPT ? HEAD_KEPT : header.length;
        free(payload);
        payload = malloc(cap);
        if (payload == NULL) {
            fputs("hearth-worker: out of memory\n", stderr);
            abort();
        }
        payload_cap = cap;
    }
    if (!channel_read(payload, header.length)) {
        channel_malformed("the stream ends inside a frame");
    }
    last = complete = (header.flags & FRAME_FLAG_LAST) != 0;
    enum frame_error error = frame_read_request(payload, header.length, last, &head);
    if (error != FRAME_OK) {
        channel_malformed(frame_error_name(error));
    }
    board_count();
    piece = 0;
    aborted = false;
    present = true;
    return true;
}

/* Makes `piece` the next BODY frame with bytes. False at the end of the body. */
static bool next_piece(void) {
    while (piece == 0) {
        if (last) {
            complete = true;
        }
        if (complete) {
            return false;
        }
        struct frame_header header;
        if (!channel_next(&header)) {
            /* the server is gone: nobody waits for the answer either */
            aborted = complete = true;
            return false;
        }
        switch (header.type) {
        case FRAME_REQUEST_BODY:
            piece = header.length;
            last = (header.flags & FRAME_FLAG_LAST) != 0;
            break;
        case FRAME_ABORT:
            aborted = complete = true;
            return false;
        default:
            channel_malformed("a request inside an exchange");
        }
    }
    return true;
}

size_t request_read_body(char *to, size_t len) {
    size_t done = 0;
    while (done < len && next_piece()) {
        size_t want = len - done < piece ? len - done : piece;
        size_t got = channel_read_some(to + done, want);
        if (got == 0) {
            aborted = complete = true;
            piece = 0;
            break;
        }
        done += got;
        piece -= got;
    }
    return done;
}

void request_release(void) {
    char dropped[8192];
    while (request_read_body(dropped, sizeof dropped) > 0) {
    }
    if (payload_cap > HEAD_KEPT) {
        free(payload);
        payload = NULL;
        payload_cap = 0;
    }
    present = false;
}

bool request_present(void) {
    return present;
}

bool request_aborted(void) {
    if (!aborted && present && channel_sees_abort(piece)) {
        /* the frame itself stays: it is read as the end of the body, or skipped before the next request */
        aborted = true;
    }
    return aborted;
}

char *request_variable(const char *name, size_t name_len) {
    if (present) {
        for (uint16_t i = 0; i < head.count; i++) {
            const struct frame_pair *pair = &head.pairs[i];
            if (pair->name_len == name_len && memcmp(pair->name, name, name_len) == 0) {
                return (char *)pair->value;
            }
        }
    }
    return NULL;
}

const struct frame_request *request_head(void) {
    return &head;
}
