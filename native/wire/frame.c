/* See frame.h. */
#include "frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint16_t get_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get_u64(const uint8_t *p) {
    return (uint64_t)get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}

static void put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put_u32(uint8_t *p, uint32_t v) {
    put_u16(p, (uint16_t)v);
    put_u16(p + 2, (uint16_t)(v >> 16));
}

static void put_u64(uint8_t *p, uint64_t v) {
    put_u32(p, (uint32_t)v);
    put_u32(p + 4, (uint32_t)(v >> 32));
}

const char *frame_error_name(enum frame_error error) {
    switch (error) {
    case FRAME_OK:
        return "ok";
    case FRAME_INCOMPLETE:
        return "incomplete";
    case FRAME_BAD_TYPE:
        return "type";
    case FRAME_BAD_RESERVED:
        return "reserved";
    case FRAME_BAD_FLAGS:
        return "flags";
    case FRAME_BAD_LENGTH:
        return "length";
    case FRAME_BAD_PAIRS:
        return "pairs";
    case FRAME_BAD_PAYLOAD:
        return "payload";
    }
    return "unknown";
}

/* The flags that `type` may carry when it comes from `from`, or -1: no such type there. */
static int allowed_flags(enum frame_from from, uint8_t type) {
    switch (from) {
    case FRAME_FROM_SERVER:
        switch (type) {
        case FRAME_REQUEST:
        case FRAME_REQUEST_BODY:
            return FRAME_FLAG_LAST;
        case FRAME_ABORT:
            return 0;
        }
        return -1;
    case FRAME_FROM_WORKER:
        switch (type) {
        case FRAME_END:
            return FRAME_FLAG_READY | FRAME_FLAG_BUSY | FRAME_FLAG_FAILED;
        case FRAME_HELLO:
        case FRAME_READY:
        case FRAME_INFORM:
        case FRAME_HEAD:
        case FRAME_BODY:
        case FRAME_LOG:
        case FRAME_PUBLISH:
        case FRAME_FILES:
            return 0;
        }
        return -1;
    case FRAME_FROM_SERVER_TO_ZYGOTE:
        return type == FRAME_SPAWN || type == FRAME_KILL || type == FRAME_TRACE ? 0 : -1;
    case FRAME_FROM_ZYGOTE:
        switch (type) {
        case FRAME_HELLO:
        case FRAME_SPAWNED:
        case FRAME_EXITED:
        case FRAME_FAILED:
        case FRAME_LOG:
        case FRAME_FILES:
        case FRAME_STACK:
            return 0;
        }
        return -1;
    case FRAME_FROM_BROKER:
        return type == FRAME_BODY || (type >= FRAME_WANT && type <= FRAME_LOST) ? 0 : -1;
    }
    return -1;
}

enum frame_error frame_read_header(
    enum frame_from from, const uint8_t *bytes, size_t len, struct frame_header *out) {
    if (len < FRAME_HEADER) {
        return FRAME_INCOMPLETE;
    }
    out->length = get_u32(bytes);
    out->type = bytes[4];
    out->flags = bytes[5];
    int flags = allowed_flags(from, out->type);
    if (flags < 0) {
        return FRAME_BAD_TYPE;
    }
    if (bytes[6] != 0 || bytes[7] != 0) {
        return FRAME_BAD_RESERVED;
    }
    const uint8_t both = FRAME_FLAG_READY | FRAME_FLAG_BUSY;
    if ((out->flags & ~flags) != 0 || (out->flags & both) == both) {
        return FRAME_BAD_FLAGS;
    }
    bool body = out->type == FRAME_REQUEST_BODY || out->type == FRAME_BODY;
    if (out->length > (body ? FRAME_MAX_BODY : FRAME_MAX_PAYLOAD)) {
        return FRAME_BAD_LENGTH;
    }
    bool empty = out->type == FRAME_ABORT || out->type == FRAME_WANT || out->type == FRAME_DONE;
    if (empty && out->length != 0) {
        return FRAME_BAD_PAYLOAD;
    }
    if (from == FRAME_FROM_BROKER && out->type == FRAME_BODY && out->length == 0) {
        return FRAME_BAD_PAYLOAD;
    }
    return FRAME_OK;
}

enum frame_error frame_read_request(
    const uint8_t *payload, size_t len, bool last, struct frame_request *out) {
    if (len < 12) {
        return FRAME_BAD_PAYLOAD;
    }
    out->protocol = payload[0];
    out->count = get_u16(payload + 2);
    out->content_length = get_u64(payload + 4);
    if (out->count > FRAME_MAX_PAIRS) {
        return FRAME_BAD_PAIRS;
    }
    if (payload[1] != 0 || (last && out->content_length != 0) ||
        (out->protocol != 10 && out->protocol != 11 && out->protocol != 20 &&
            out->protocol != 30)) {
        return FRAME_BAD_PAYLOAD;
    }
    size_t at = 12;
    for (uint16_t i = 0; i < out->count; i++) {
        if (len - at < 6) {
            return FRAME_BAD_PAYLOAD;
        }
        struct frame_pair *pair = &out->pairs[i];
        pair->name_len = get_u16(payload + at);
        pair->value_len = get_u32(payload + at + 2);
        at += 6;
        /* both lengths are below 2^32: the sum fits 64 bits */
        uint64_t need = (uint64_t)pair->name_len + pair->value_len + 2;
        if (pair->name_len == 0 || need > len - at) {
            return FRAME_BAD_PAYLOAD;
        }
        pair->name = (const char *)payload + at;
        pair->value = pair->name + pair->name_len + 1;
        if (memchr(pair->name, 0, pair->name_len + 1) != pair->name + pair->name_len ||
            memchr(pair->value, 0, (size_t)pair->value_len + 1) != pair->value + pair->value_len) {
            return FRAME_BAD_PAYLOAD;
        }
        at += (size_t)need;
    }
    return at == len ? FRAME_OK : FRAME_BAD_PAYLOAD;
}

enum frame_error frame_read_spawn(const uint8_t *payload, size_t len, uint32_t *slot) {
    if (len != 4) {
        return FRAME_BAD_PAYLOAD;
    }
    *slot = get_u32(payload);
    return FRAME_OK;
}

enum frame_error frame_read_kill(
    const uint8_t *payload, size_t len, uint32_t *pid, uint32_t *signal) {
    if (len != 8) {
        return FRAME_BAD_PAYLOAD;
    }
    *pid = get_u32(payload);
    *signal = get_u32(payload + 4);
    return FRAME_OK;
}

enum frame_error frame_read_trace(const uint8_t *payload, size_t len, uint32_t *pid) {
    if (len != 4) {
        return FRAME_BAD_PAYLOAD;
    }
    *pid = get_u32(payload);
    return FRAME_OK;
}

void frame_buffer_free(struct frame_buffer *buffer) {
    if (!buffer->has_room) {
        free(buffer->data);
    }
    *buffer = (struct frame_buffer){0};
}

uint8_t *frame_buffer_extend(struct frame_buffer *buffer, size_t len) {
    if (buffer->cap - buffer->len < len) {
        size_t cap = (buffer->len + len) * 2;
        if (cap < 1024) {
            cap = 1024;
        }
        uint8_t *data = realloc(buffer->has_room ? NULL : buffer->data, cap);
        if (data == NULL) {
            fputs("hearth-worker: out of memory\n", stderr);
            abort();
        }
        if (buffer->has_room) {
            memcpy(data, buffer->data, buffer->len);
            buffer->has_room = false;
        }
        buffer->data = data;
        buffer->cap = cap;
    }
    uint8_t *room = buffer->data + buffer->len;
    buffer->len += len;
    return room;
}

void frame_put_header(uint8_t out[FRAME_HEADER], uint8_t type, uint8_t flags, uint32_t length) {
    put_u32(out, length);
    out[4] = type;
    out[5] = flags;
    put_u16(out + 6, 0);
}

static uint8_t *begin(
    struct frame_buffer *buffer, uint8_t type, uint8_t flags, uint32_t payload_len) {
    uint8_t *p = frame_buffer_extend(buffer, FRAME_HEADER + (size_t)payload_len);
    frame_put_header(p, type, flags, payload_len);
    return p + FRAME_HEADER;
}

static uint8_t *put_text(uint8_t *p, const char *text, size_t len) {
    put_u32(p, (uint32_t)len);
    if (len != 0) {
        memcpy(p + 4, text, len);
    }
    return p + 4 + len;
}

void frame_write_empty(struct frame_buffer *buffer, uint8_t type) {
    begin(buffer, type, 0, 0);
}

void frame_write_hello(struct frame_buffer *buffer, uint32_t pid, const char *php, size_t php_len) {
    uint8_t *p = begin(buffer, FRAME_HELLO, 0, (uint32_t)(12 + php_len));
    put_u16(p, FRAME_VERSION);
    put_u16(p + 2, 0);
    put_u32(p + 4, pid);
    put_text(p + 8, php, php_len);
}

void frame_write_body(struct frame_buffer *buffer, const void *bytes, size_t len) {
    memcpy(begin(buffer, FRAME_BODY, 0, (uint32_t)len), bytes, len);
}

void frame_write_end(struct frame_buffer *buffer, uint8_t flags, uint64_t took) {
    put_u64(begin(buffer, FRAME_END, flags, 8), took);
}

void frame_write_log(struct frame_buffer *buffer, uint8_t level, uint8_t source,
    const char *message, size_t message_len, const char *context, size_t context_len) {
    if (context_len > FRAME_MAX_PAYLOAD / 2) {
        /* half a JSON object is none */
        context_len = 0;
    }
    if (message_len > FRAME_MAX_PAYLOAD - 12 - context_len) {
        message_len = FRAME_MAX_PAYLOAD - 12 - context_len;
    }
    uint8_t *p = begin(buffer, FRAME_LOG, 0, (uint32_t)(12 + message_len + context_len));
    p[0] = level;
    p[1] = source;
    put_u16(p + 2, 0);
    p = put_text(p + 4, message, message_len);
    put_text(p, context, context_len);
}

bool frame_write_publish(struct frame_buffer *buffer, struct frame_text event,
    struct frame_text except, struct frame_text data, const struct frame_text *channels,
    size_t count) {
    const struct frame_text parts[] = {event, except, data};
    size_t payload_len = 4;
    if (count == 0 || count > FRAME_MAX_PAIRS) {
        return false;
    }
    for (size_t i = 0; i < 3 + count; i++) {
        size_t len = i < 3 ? parts[i].len : channels[i - 3].len;
        if (len > FRAME_MAX_PAYLOAD - 4 || payload_len > FRAME_MAX_PAYLOAD - 4 - len) {
            return false;
        }
        payload_len += 4 + len;
    }
    uint8_t *p = begin(buffer, FRAME_PUBLISH, 0, (uint32_t)payload_len);
    put_u16(p, (uint16_t)count);
    put_u16(p + 2, 0);
    p += 4;
    for (size_t i = 0; i < 3 + count; i++) {
        struct frame_text part = i < 3 ? parts[i] : channels[i - 3];
        p = put_text(p, part.at, part.len);
    }
    return true;
}

bool frame_write_purge(struct frame_buffer *buffer, const struct frame_text *tags, size_t count) {
    size_t payload_len = 4;
    if (count == 0 || count > FRAME_MAX_PAIRS) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (tags[i].len > FRAME_MAX_PAYLOAD - 4 ||
            payload_len > FRAME_MAX_PAYLOAD - 4 - tags[i].len) {
            return false;
        }
        payload_len += 4 + tags[i].len;
    }
    uint8_t *p = begin(buffer, FRAME_PUBLISH, 0, (uint32_t)payload_len);
    put_u16(p, (uint16_t)count);
    put_u16(p + 2, 1);
    p += 4;
    for (size_t i = 0; i < count; i++) {
        p = put_text(p, tags[i].at, tags[i].len);
    }
    return true;
}

void frame_write_files(struct frame_buffer *buffer, const struct frame_text *files, size_t count) {
    size_t payload_len = 0, fitting = 0;
    while (fitting < count && files[fitting].len <= FRAME_MAX_PAYLOAD - 4 &&
           payload_len <= FRAME_MAX_PAYLOAD - 4 - files[fitting].len) {
        payload_len += 4 + files[fitting++].len;
    }
    uint8_t *p = begin(buffer, FRAME_FILES, 0, (uint32_t)payload_len);
    for (size_t i = 0; i < fitting; i++) {
        p = put_text(p, files[i].at, files[i].len);
    }
}

void frame_write_two(struct frame_buffer *buffer, uint8_t type, uint32_t first, uint32_t second) {
    uint8_t *p = begin(buffer, type, 0, 8);
    put_u32(p, first);
    put_u32(p + 4, second);
}

void frame_write_exited(
    struct frame_buffer *buffer, uint32_t pid, uint32_t status, uint64_t processor_time) {
    uint8_t *p = begin(buffer, FRAME_EXITED, 0, 16);
    put_u32(p, pid);
    put_u32(p + 4, status);
    put_u64(p + 8, processor_time);
}

void frame_write_stack(
    struct frame_buffer *buffer, uint32_t pid, struct frame_text stack, struct frame_text why) {
    uint8_t *p = begin(buffer, FRAME_STACK, 0, (uint32_t)(12 + stack.len + why.len));
    put_u32(p, pid);
    p = put_text(p + 4, stack.at, stack.len);
    put_text(p, why.at, why.len);
}

/* True when a response head may hold these bytes. */
static bool printable(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\0' || text[i] == '\r' || text[i] == '\n') {
            return false;
        }
    }
    return true;
}

void frame_begin_head(struct frame_head *head, struct frame_buffer *buffer, uint8_t type,
    unsigned status, const char *reason, size_t reason_len) {
    *head = (struct frame_head){.buffer = buffer, .start = buffer->len};
    bool early = type == FRAME_INFORM;
    head->broken = status < (early ? 100U : 200U) || status > (early ? 199U : 999U) ||
                   reason_len > UINT16_MAX || !printable(reason, reason_len);
    if (head->broken) {
        return;
    }
    uint8_t *p = begin(buffer, type, 0, (uint32_t)(6 + reason_len));
    put_u16(p, (uint16_t)status);
    put_u16(p + 4, (uint16_t)reason_len);
    if (reason_len != 0) {
        memcpy(p + 6, reason, reason_len);
    }
}

void frame_add_pair(struct frame_head *head, const char *name, size_t name_len, const char *value,
    size_t value_len) {
    if (head->broken) {
        return;
    }
    size_t so_far = head->buffer->len - head->start - FRAME_HEADER;
    if (head->count == FRAME_MAX_PAIRS || name_len == 0 || name_len > UINT16_MAX ||
        value_len > FRAME_MAX_PAYLOAD || so_far + 6 + name_len + value_len > FRAME_MAX_PAYLOAD ||
        !printable(name, name_len) || !printable(value, value_len)) {
        head->broken = true;
        return;
    }
    uint8_t *p = frame_buffer_extend(head->buffer, 6 + name_len + value_len);
    put_u16(p, (uint16_t)name_len);
    put_u32(p + 2, (uint32_t)value_len);
    memcpy(p + 6, name, name_len);
    if (value_len != 0) {
        memcpy(p + 6 + name_len, value, value_len);
    }
    head->count++;
}

bool frame_end_head(struct frame_head *head) {
    if (head->broken) {
        head->buffer->len = head->start;
        return false;
    }
    uint8_t *frame = head->buffer->data + head->start;
    put_u32(frame, (uint32_t)(head->buffer->len - head->start - FRAME_HEADER));
    put_u16(frame + FRAME_HEADER + 2, (uint16_t)head->count);
    return true;
}
