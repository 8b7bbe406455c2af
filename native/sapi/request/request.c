/* See request.h. */
#include "sapi/request/request.h"

#include <string.h>

#include "sapi/request/channel.h"
#include "sapi/request/scheduling.h"
#include "sapi/request/shared_counters.h"
#include "snapshot/snapshot.h"
#include "snapshot/text.h"

/* Kept memory: not touched by a restore, so that a large head costs nothing there. */
static struct head {
    struct frame_request head;
    uint8_t payload[FRAME_MAX_PAYLOAD];
} * kept;
static bool present;

static size_t piece;  /* bytes of the current BODY frame that have not been read */
static bool last;     /* that frame is the last one */
static bool complete; /* no further BODY will come */
static bool cut;      /* it ended before its last frame */
static bool aborted;

void request_prepare(void) {
    if (kept == NULL) {
        kept = snapshot_keep(sizeof *kept);
    }
}

/* Receives a request's head. False if the server sends no more requests. */
static bool receive_head(void) {
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
    if (!channel_read(kept->payload, header.length)) {
        channel_malformed("the stream ends inside a frame");
    }
    last = complete = (header.flags & FRAME_FLAG_LAST) != 0;
    enum frame_error error = frame_read_request(kept->payload, header.length, last, &kept->head);
    if (error != FRAME_OK) {
        channel_malformed(frame_error_name(error));
    }
    piece = 0;
    cut = aborted = false;
    return true;
}

bool request_receive(void) {
    for (;;) {
        if (!receive_head()) {
            return false;
        }
        if (shared_counters_begin()) {
            scheduling_follow();
            present = true;
            return true;
        }
        request_release(); /* another worker serves it: its body is skipped */
    }
}

/* The body ends here and is incomplete: the client has left or was refused, or the server is gone. No client waits for the answer. */
static void break_off(void) {
    cut = aborted = complete = true;
    piece = 0;
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
            break_off();
            return false;
        }
        switch (header.type) {
        case FRAME_REQUEST_BODY:
            piece = header.length;
            last = (header.flags & FRAME_FLAG_LAST) != 0;
            break;
        case FRAME_ABORT:
            break_off();
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
            break_off();
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
    present = false;
}

bool request_present(void) {
    return present;
}

bool request_is_cut(void) {
    return cut;
}

bool request_aborted(void) {
    if (!aborted && present) {
        /* an ABORT frame stays: it is read as the end of the body, or skipped before the next request */
        aborted = shared_counters_know_aborts() ? shared_counters_say_aborted()
                                                : channel_sees_abort(piece);
    }
    return aborted;
}

static char *find_variable(const char *name, size_t name_len) {
    for (uint16_t i = 0; i < kept->head.count; i++) {
        const struct frame_pair *pair = &kept->head.pairs[i];
        if (pair->name_len == name_len && memcmp(pair->name, name, name_len) == 0) {
            return (char *)pair->value;
        }
    }
    return NULL;
}

char *request_variable(const char *name, size_t name_len) {
    return present ? find_variable(name, name_len) : NULL;
}

void request_describe(struct text *text) {
    enum { LONGEST = 120 }; /* of a path */
    const char *method = find_variable("REQUEST_METHOD", strlen("REQUEST_METHOD"));
    const char *uri = find_variable("REQUEST_URI", strlen("REQUEST_URI"));
    const char *id = find_variable("HEARTH_REQUEST_ID", strlen("HEARTH_REQUEST_ID"));
    text_add(text, method != NULL ? method : "?");
    text_add(text, " ");
    char path[LONGEST + 1];
    size_t len = 0;
    /* the query may contain secrets */
    while (uri != NULL && len < LONGEST && uri[len] != '\0' && uri[len] != '?') {
        path[len] = uri[len];
        len++;
    }
    path[len] = '\0';
    text_add(text, path);
    text_add(text, " (id ");
    text_add(text, id != NULL ? id : "?");
    text_add(text, ")");
}

const struct frame_request *request_head(void) {
    return &kept->head;
}
