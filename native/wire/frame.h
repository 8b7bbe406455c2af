/* Frames in C: the worker's side of docs/internals/frames.md. Pure bytes: no descriptors, no PHP.
 *
 * Promises
 * - Nothing read here is trusted: every length is checked before it is followed.
 * - A decoded frame borrows from the bytes it was decoded from; an encoded one is appended to a buffer that grows.
 * - Running out of memory ends the process: the server replaces it.
 */
#ifndef HEARTH_WIRE_FRAME_H
#define HEARTH_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAME_VERSION = 10,
    FRAME_HEADER = 8,
    FRAME_MAX_PAYLOAD = 1048576,
    FRAME_MAX_BODY = 65536,
    FRAME_MAX_PAIRS = 1024,
};

enum frame_type {
    FRAME_REQUEST = 0x01,
    FRAME_REQUEST_BODY = 0x02,
    FRAME_ABORT = 0x03,
    FRAME_HELLO = 0x10,
    FRAME_READY = 0x11,
    FRAME_INFORM = 0x12,
    FRAME_HEAD = 0x13,
    FRAME_BODY = 0x14,
    FRAME_END = 0x15,
    FRAME_LOG = 0x16,
    FRAME_PUBLISH = 0x17,
    FRAME_FILES = 0x18,
    FRAME_SPAWN = 0x21,
    FRAME_KILL = 0x22,
    FRAME_TRACE = 0x23,
    FRAME_SPAWNED = 0x31,
    FRAME_EXITED = 0x32,
    FRAME_FAILED = 0x33,
    FRAME_STACK = 0x34,
    FRAME_OPEN = 0x41,
    FRAME_CALL = 0x42,
    FRAME_WANT = 0x51,
    FRAME_INTERIM = 0x52,
    FRAME_ANSWER = 0x53,
    FRAME_TRAILERS = 0x54,
    FRAME_DONE = 0x55,
    FRAME_DECLINED = 0x56,
    FRAME_LOST = 0x57,
};

/* REQUEST and REQUEST_BODY */
#define FRAME_FLAG_LAST 1
/* END */
#define FRAME_FLAG_READY 1
#define FRAME_FLAG_BUSY 2
#define FRAME_FLAG_FAILED 4

#define FRAME_LENGTH_UNKNOWN UINT64_MAX

/* Who sent the bytes: decides which types are allowed. */
enum frame_from {
    FRAME_FROM_SERVER,
    FRAME_FROM_WORKER,
    FRAME_FROM_SERVER_TO_ZYGOTE,
    FRAME_FROM_ZYGOTE,
    FRAME_FROM_BROKER, /* the egress broker, to a caller: call.h */
};

enum frame_error {
    FRAME_OK,
    FRAME_INCOMPLETE,
    FRAME_BAD_TYPE,
    FRAME_BAD_RESERVED,
    FRAME_BAD_FLAGS,
    FRAME_BAD_LENGTH,
    FRAME_BAD_PAIRS,
    FRAME_BAD_PAYLOAD,
};

/* The word of the vectors for `error`. Static. */
const char *frame_error_name(enum frame_error error);

struct frame_header {
    uint32_t length;
    uint8_t type;
    uint8_t flags;
};

/* Judges the header in the first eight of `len` bytes. Borrowed: bytes. */
enum frame_error frame_read_header(
    enum frame_from from, const uint8_t *bytes, size_t len, struct frame_header *out);

/* Name and value end with a NUL that the lengths do not count. Both borrowed from the payload. */
struct frame_pair {
    const char *name;
    const char *value;
    uint32_t name_len;
    uint32_t value_len;
};

struct frame_request {
    uint64_t content_length; /* or FRAME_LENGTH_UNKNOWN */
    uint16_t count;
    uint8_t protocol; /* 10, 11, 20 or 30 */
    struct frame_pair pairs[FRAME_MAX_PAIRS];
};

/* Reads a REQUEST's payload of `len` bytes. Borrowed: payload, by `out` too. */
enum frame_error frame_read_request(
    const uint8_t *payload, size_t len, bool last, struct frame_request *out);

enum frame_error frame_read_spawn(const uint8_t *payload, size_t len, uint32_t *slot);
enum frame_error frame_read_kill(
    const uint8_t *payload, size_t len, uint32_t *pid, uint32_t *signal);

enum frame_error frame_read_trace(const uint8_t *payload, size_t len, uint32_t *pid);

/* Bytes to be sent. All zero is an empty one. Owned: data, unless it is the caller's room. */
struct frame_buffer {
    uint8_t *data;
    size_t len;
    size_t cap;
    bool has_room; /* `data` is the caller's: never freed, and left behind when it is too small */
};

void frame_buffer_free(struct frame_buffer *buffer);
/* Room for `len` more bytes; the caller fills them. Borrowed: the result. */
uint8_t *frame_buffer_extend(struct frame_buffer *buffer, size_t len);

/* Encodes the eight bytes of a header alone, for a payload that is sent from another buffer. */
void frame_put_header(uint8_t out[FRAME_HEADER], uint8_t type, uint8_t flags, uint32_t length);

/* Append one whole frame each. Borrowed: every pointer. */
void frame_write_empty(struct frame_buffer *buffer, uint8_t type);
void frame_write_hello(struct frame_buffer *buffer, uint32_t pid, const char *php, size_t php_len);
void frame_write_body(struct frame_buffer *buffer, const void *bytes, size_t len);
/* took: nanoseconds. */
void frame_write_end(struct frame_buffer *buffer, uint8_t flags, uint64_t took);
/* Cuts a message or context that would not fit the frame. */
void frame_write_log(struct frame_buffer *buffer, uint8_t level, uint8_t source,
    const char *message, size_t message_len, const char *context, size_t context_len);
/* A piece of text. Borrowed: at. */
struct frame_text {
    const char *at;
    size_t len;
};
/* False, and nothing appended, when it would not fit a frame. Borrowed: all texts. */
bool frame_write_publish(struct frame_buffer *buffer, struct frame_text event,
    struct frame_text except, struct frame_text data, const struct frame_text *channels,
    size_t count);
/* Tags of stored answers to remove: a PUBLISH frame of the other kind. False, and nothing appended, when they do not fit a frame.
 * Borrowed: all texts. */
bool frame_write_purge(struct frame_buffer *buffer, const struct frame_text *tags, size_t count);
/* Leaves out those that do not fit the frame. Borrowed: all texts. */
void frame_write_files(struct frame_buffer *buffer, const struct frame_text *files, size_t count);
/* SPAWNED and FAILED. */
void frame_write_two(struct frame_buffer *buffer, uint8_t type, uint32_t first, uint32_t second);
/* EXITED: with the processor time of the process in microseconds. */
void frame_write_exited(
    struct frame_buffer *buffer, uint32_t pid, uint32_t status, uint64_t processor_time);

/* Both texts are far below a frame's limit. */
void frame_write_stack(
    struct frame_buffer *buffer, uint32_t pid, struct frame_text stack, struct frame_text why);

/* HEAD or INFORM: begin, any number of pairs, end. `end` returns whether the limits are kept; if not, nothing has
 * been appended. */
struct frame_head {
    struct frame_buffer *buffer; /* borrowed */
    size_t start;
    uint32_t count;
    bool broken;
};
void frame_begin_head(struct frame_head *head, struct frame_buffer *buffer, uint8_t type,
    unsigned status, const char *reason, size_t reason_len);
void frame_add_pair(struct frame_head *head, const char *name, size_t name_len, const char *value,
    size_t value_len);
bool frame_end_head(struct frame_head *head);

#endif
