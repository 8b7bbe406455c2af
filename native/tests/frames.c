/* Runs the vectors that crates/wire shares: decodes the frames that a worker, a zygote or a caller
 * of the broker reads, and encodes those it writes. Usage: frames VECTORS... */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/call.h"

enum { MAX_FIELDS = 64 };

struct vector {
    char name[256];
    char from[32];
    char expect[32];
    struct frame_buffer bytes;
    size_t count;
    char *keys[MAX_FIELDS];
    char *values[MAX_FIELDS];
};

static int failures, checked;
static bool fuzzing; /* the vector's fields do not describe the bytes */

static void fail(const struct vector *v, const char *what) {
    printf("FAIL  %s: %s\n", v->name, what);
    failures++;
}

static const char *field(const struct vector *v, const char *key) {
    for (size_t i = 0; i < v->count; i++) {
        if (strcmp(v->keys[i], key) == 0) {
            return v->values[i];
        }
    }
    return "";
}

static uint64_t number(const struct vector *v, const char *key) {
    return strtoull(field(v, key), NULL, 10);
}

/* Undoes \xNN and \\ in place; returns the length. */
static size_t unescape(char *text) {
    char *to = text;
    for (char *p = text; *p != '\0'; p++) {
        if (*p == '\\' && p[1] == 'x') {
            char digits[3] = {p[2], p[3], '\0'};
            *to++ = (char)strtoul(digits, NULL, 16);
            p += 3;
        } else {
            if (*p == '\\') {
                p++;
            }
            *to++ = *p;
        }
    }
    *to = '\0';
    return (size_t)(to - text);
}

static char *text(const struct vector *v, const char *key, size_t *len) {
    char *copy = strdup(field(v, key));
    *len = unescape(copy);
    return copy;
}

static bool same(const char *escaped, const char *bytes, size_t len) {
    char *copy = strdup(escaped);
    bool equal = unescape(copy) == len && memcmp(copy, bytes, len) == 0;
    free(copy);
    return equal;
}

static void check_request(const struct vector *v, const struct frame_request *request) {
    size_t pair = 0;
    if (request->protocol != number(v, "protocol")) {
        fail(v, "protocol");
    }
    const char *length = field(v, "content_length");
    uint64_t expected =
        strcmp(length, "unknown") == 0 ? FRAME_LENGTH_UNKNOWN : strtoull(length, NULL, 10);
    if (request->content_length != expected) {
        fail(v, "content length");
    }
    for (size_t i = 0; i < v->count; i++) {
        if (strcmp(v->keys[i], "pair") != 0) {
            continue;
        }
        if (pair == request->count) {
            fail(v, "too few pairs");
            return;
        }
        const struct frame_pair *p = &request->pairs[pair++];
        char *name = strdup(v->values[i]);
        char *equals = strchr(name, '=');
        *equals = '\0';
        if (!same(name, p->name, p->name_len) || !same(equals + 1, p->value, p->value_len) ||
            p->name[p->name_len] != '\0' || p->value[p->value_len] != '\0') {
            fail(v, "a pair differs");
        }
        free(name);
    }
    if (pair != request->count) {
        fail(v, "too many pairs");
    }
}

static void check_text(const struct vector *v, const char *key, const char *bytes, size_t len) {
    if (!same(field(v, key), bytes, len)) {
        fail(v, key);
    }
}

static void check_number(const struct vector *v, const char *key, uint64_t got) {
    if (number(v, key) != got) {
        fail(v, key);
    }
}

/* Frames that a caller reads. */
static enum frame_error decode_for_caller(
    const struct vector *v, uint8_t type, const uint8_t *payload, size_t len) {
    struct call_answer answer;
    struct call_no_answer why;
    enum frame_error error = FRAME_OK;
    switch (type) {
    case FRAME_ANSWER:
        error = call_read_answer(payload, len, &answer);
        if (error == FRAME_OK && !fuzzing) {
            check_number(v, "resolved", answer.resolved);
            check_number(v, "connected", answer.connected);
            check_number(v, "secured", answer.secured);
            check_number(v, "first_byte", answer.first_byte);
            check_number(v, "protocol", answer.protocol);
            check_number(v, "reused", answer.reused);
            check_number(v, "port", answer.port);
            check_text(v, "address", answer.address, answer.address_len);
            check_text(v, "head", answer.head, answer.head_len);
        }
        break;
    case FRAME_DECLINED:
    case FRAME_LOST:
        error = call_read_no_answer(payload, len, &why);
        if (error == FRAME_OK && !fuzzing) {
            check_number(v, "errno", why.error);
            check_number(v, "port", why.port);
            check_text(v, "reason", why.reason, why.reason_len);
            check_text(v, "address", why.address, why.address_len);
            check_text(v, "message", why.message, why.message_len);
        }
        break;
    default:
        if (!fuzzing) {
            check_text(v, type == FRAME_BODY ? "bytes" : "head", (const char *)payload, len);
        }
        break;
    }
    return error;
}

/* Decodes as the worker does; `out` and the numbers are filled when the result is FRAME_OK. */
static enum frame_error decode(const struct vector *v, enum frame_from from,
    struct frame_header *header, struct frame_request *out, uint32_t numbers[2]) {
    enum frame_error error = frame_read_header(from, v->bytes.data, v->bytes.len, header);
    if (error != FRAME_OK) {
        return error;
    }
    if (v->bytes.len - FRAME_HEADER < header->length) {
        return FRAME_INCOMPLETE;
    }
    /* an exact copy: the sanitizer sees a byte read too far */
    uint8_t *payload = malloc(header->length == 0 ? 1 : header->length);
    memcpy(payload, v->bytes.data + FRAME_HEADER, header->length);
    if (from == FRAME_FROM_BROKER) {
        error = decode_for_caller(v, header->type, payload, header->length);
        free(payload);
        return error;
    }
    switch (header->type) {
    case FRAME_REQUEST:
        error = frame_read_request(
            payload, header->length, (header->flags & FRAME_FLAG_LAST) != 0, out);
        if (error == FRAME_OK && !fuzzing) {
            check_request(v, out);
        }
        break;
    case FRAME_SPAWN:
        error = frame_read_spawn(payload, header->length, &numbers[0]);
        break;
    case FRAME_KILL:
        error = frame_read_kill(payload, header->length, &numbers[0], &numbers[1]);
        break;
    case FRAME_TRACE:
        error = frame_read_trace(payload, header->length, &numbers[0]);
        break;
    case FRAME_REQUEST_BODY:
        if (!fuzzing && !same(field(v, "bytes"), (const char *)payload, header->length)) {
            fail(v, "bytes");
        }
        break;
    default:
        break;
    }
    free(payload);
    return error;
}

static void check_reading(const struct vector *v, enum frame_from from) {
    static struct frame_request request;
    struct frame_header header = {0};
    uint32_t numbers[2] = {0};
    enum frame_error error = decode(v, from, &header, &request, numbers);
    if (strcmp(frame_error_name(error), v->expect) != 0) {
        fail(v, frame_error_name(error));
        return;
    }
    if (error != FRAME_OK) {
        return;
    }
    const char *type = field(v, "type");
    if (from == FRAME_FROM_BROKER) {
        static const char *const names[] = {
            "WANT", "INTERIM", "ANSWER", "TRAILERS", "END", "DECLINED", "FAILED"};
        if (strcmp(type, header.type == FRAME_BODY ? "BODY" : names[header.type - FRAME_WANT]) !=
            0) {
            fail(v, "type");
        }
        return;
    }
    const char *got = header.type == FRAME_REQUEST        ? "REQUEST"
                      : header.type == FRAME_REQUEST_BODY ? "BODY"
                      : header.type == FRAME_ABORT        ? "ABORT"
                      : header.type == FRAME_SPAWN        ? "SPAWN"
                      : header.type == FRAME_TRACE        ? "TRACE"
                                                          : "KILL";
    if (strcmp(type, got) != 0) {
        fail(v, "type");
    }
    if ((strcmp(field(v, "flags"), "LAST") == 0) != (header.flags == FRAME_FLAG_LAST)) {
        fail(v, "flags");
    }
    if (header.type == FRAME_SPAWN && numbers[0] != number(v, "slot")) {
        fail(v, "slot");
    }
    if (header.type == FRAME_TRACE && numbers[0] != number(v, "pid")) {
        fail(v, "pid");
    }
    if (header.type == FRAME_KILL &&
        (numbers[0] != number(v, "pid") || numbers[1] != number(v, "signal"))) {
        fail(v, "pid or signal");
    }
}

static void write_head(const struct vector *v, struct frame_buffer *out, uint8_t type) {
    size_t reason_len;
    char *reason = text(v, "reason", &reason_len);
    struct frame_head head;
    frame_begin_head(&head, out, type, (unsigned)number(v, "status"), reason, reason_len);
    for (size_t i = 0; i < v->count; i++) {
        if (strcmp(v->keys[i], "pair") == 0) {
            char *name = strdup(v->values[i]);
            char *value = strchr(name, '=');
            *value++ = '\0';
            size_t name_len = unescape(name);
            size_t value_len = unescape(value);
            frame_add_pair(&head, name, name_len, value, value_len);
            free(name);
        }
    }
    if (!frame_end_head(&head)) {
        fail(v, "the head was refused");
    }
    free(reason);
}

static void check_writing(const struct vector *v) {
    struct frame_buffer out = {0};
    const char *type = field(v, "type");
    size_t len, context_len;
    if (strcmp(type, "HELLO") == 0) {
        if (number(v, "version") != FRAME_VERSION) {
            return;
        }
        char *php = text(v, "php", &len);
        frame_write_hello(&out, (uint32_t)number(v, "pid"), php, len);
        free(php);
    } else if (strcmp(type, "STACK") == 0) {
        struct frame_text stack, why;
        char *stack_text = text(v, "message", &stack.len);
        char *why_text = text(v, "reason", &why.len);
        stack.at = stack_text;
        why.at = why_text;
        frame_write_stack(&out, (uint32_t)number(v, "pid"), stack, why);
        free(stack_text);
        free(why_text);
    } else if (strcmp(type, "FILES") == 0) {
        struct frame_text files[16] = {{0}};
        char *owned[16];
        size_t count = 0;
        for (size_t i = 0; i < v->count && count < 16; i++) {
            if (strcmp(v->keys[i], "file") == 0) {
                char *path = owned[count] = strdup(v->values[i]);
                files[count].len = unescape(path);
                files[count++].at = path;
            }
        }
        frame_write_files(&out, files, count);
        while (count > 0) {
            free(owned[--count]);
        }
    } else if (strcmp(type, "READY") == 0) {
        frame_write_empty(&out, FRAME_READY);
    } else if (strcmp(type, "INFORM") == 0) {
        write_head(v, &out, FRAME_INFORM);
    } else if (strcmp(type, "HEAD") == 0) {
        write_head(v, &out, FRAME_HEAD);
    } else if (strcmp(type, "BODY") == 0) {
        char *bytes = text(v, "bytes", &len);
        frame_write_body(&out, bytes, len);
        free(bytes);
    } else if (strcmp(type, "END") == 0) {
        const char *flags = field(v, "flags");
        uint8_t bits = strncmp(flags, "READY", 5) == 0  ? FRAME_FLAG_READY
                       : strncmp(flags, "BUSY", 4) == 0 ? FRAME_FLAG_BUSY
                                                        : 0;
        if (strstr(flags, "FAILED") != NULL) {
            bits |= FRAME_FLAG_FAILED;
        }
        frame_write_end(&out, bits, number(v, "took"));
    } else if (strcmp(type, "LOG") == 0) {
        char *message = text(v, "message", &len);
        char *context = text(v, "context", &context_len);
        frame_write_log(&out, (uint8_t)number(v, "level"), (uint8_t)number(v, "source"), message,
            len, context, context_len);
        free(message);
        free(context);
    } else if (strcmp(type, "PUBLISH") == 0) {
        struct frame_text event, except, data, channels[16];
        char *owned[19];
        size_t count = 0;
        owned[0] = text(v, "event", &event.len);
        owned[1] = text(v, "except", &except.len);
        owned[2] = text(v, "data", &data.len);
        event.at = owned[0];
        except.at = owned[1];
        data.at = owned[2];
        for (size_t i = 0; i < v->count && count < 16; i++) {
            if (strcmp(v->keys[i], "channel") == 0) {
                char *name = owned[3 + count] = strdup(v->values[i]);
                channels[count].len = unescape(name);
                channels[count++].at = name;
            }
        }
        if (!frame_write_publish(&out, event, except, data, channels, count)) {
            fail(v, "the event was refused");
        }
        for (size_t i = 0; i < 3 + count; i++) {
            free(owned[i]);
        }
    } else if (strcmp(type, "PURGE") == 0) {
        struct frame_text tags[16] = {{0}};
        char *owned[16];
        size_t count = 0;
        for (size_t i = 0; i < v->count && count < 16; i++) {
            if (strcmp(v->keys[i], "tag") == 0) {
                owned[count] = strdup(v->values[i]);
                tags[count].len = unescape(owned[count]);
                tags[count].at = owned[count];
                count++;
            }
        }
        if (!frame_write_purge(&out, tags, count)) {
            fail(v, "the tags were refused");
        }
        for (size_t i = 0; i < count; i++) {
            free(owned[i]);
        }
    } else if (strcmp(type, "SPAWNED") == 0) {
        frame_write_two(
            &out, FRAME_SPAWNED, (uint32_t)number(v, "slot"), (uint32_t)number(v, "pid"));
    } else if (strcmp(type, "EXITED") == 0) {
        frame_write_exited(&out, (uint32_t)number(v, "pid"), (uint32_t)number(v, "wait_status"),
            number(v, "processor_time"));
    } else if (strcmp(type, "FAILED") == 0) {
        frame_write_two(
            &out, FRAME_FAILED, (uint32_t)number(v, "slot"), (uint32_t)number(v, "errno"));
    } else {
        fail(v, "a type that this test does not know");
    }
    if (out.len != v->bytes.len || memcmp(out.data, v->bytes.data, out.len) != 0) {
        fail(v, "the encoded bytes differ");
    }
    frame_buffer_free(&out);
}

/* Frames that a caller writes. BODY and ABORT are the same as a server's. */
static void check_calling(const struct vector *v) {
    struct frame_buffer out = {0};
    uint8_t prefix[CALL_PREFIX];
    const char *type = field(v, "type");
    const char *flags = field(v, "flags");
    size_t control_len, head_len;
    char *control = text(v, strcmp(type, "OPEN") == 0 ? "token" : "control", &control_len);
    char *head = text(v, strcmp(type, "CALL") == 0 ? "head" : "bytes", &head_len);
    if (strcmp(type, "CALL") == 0) {
        uint8_t way = strcmp(flags, "LAST") == 0    ? CALL_FLAG_LAST
                      : strcmp(flags, "WHOLE") == 0 ? CALL_FLAG_WHOLE
                                                    : 0;
        if (!call_put_prefix(prefix, way, control_len, head_len)) {
            fail(v, "the call was refused");
        }
        memcpy(frame_buffer_extend(&out, CALL_PREFIX), prefix, CALL_PREFIX);
    } else {
        uint8_t number_of_type = strcmp(type, "OPEN") == 0   ? FRAME_OPEN
                                 : strcmp(type, "BODY") == 0 ? FRAME_REQUEST_BODY
                                                             : FRAME_ABORT;
        frame_put_header(frame_buffer_extend(&out, FRAME_HEADER), number_of_type,
            strcmp(flags, "LAST") == 0 ? FRAME_FLAG_LAST : 0, (uint32_t)(control_len + head_len));
    }
    memcpy(frame_buffer_extend(&out, control_len), control, control_len);
    memcpy(frame_buffer_extend(&out, head_len), head, head_len);
    if (out.len != v->bytes.len || memcmp(out.data, v->bytes.data, out.len) != 0) {
        fail(v, "the encoded bytes differ");
    }
    free(control);
    free(head);
    frame_buffer_free(&out);
}

/* A worker's frames never exceed a limit or contain an injected line break, whatever PHP passes. */
static void check_refusals(const struct vector *v) {
    struct frame_buffer out = {0};
    struct frame_head head;
    frame_begin_head(&head, &out, FRAME_HEAD, 200, "", 0);
    frame_add_pair(&head, "A", 1, "b\nSet-Cookie: c", 15);
    if (frame_end_head(&head) || out.len != 0) {
        fail(v, "a line feed in a value was written");
    }
    frame_begin_head(&head, &out, FRAME_HEAD, 200, "", 0);
    for (int i = 0; i <= FRAME_MAX_PAIRS; i++) {
        frame_add_pair(&head, "A", 1, "b", 1);
    }
    if (frame_end_head(&head) || out.len != 0) {
        fail(v, "too many pairs were written");
    }
    char *large = calloc(1, FRAME_MAX_PAYLOAD);
    memset(large, 'x', FRAME_MAX_PAYLOAD);
    frame_begin_head(&head, &out, FRAME_HEAD, 200, "", 0);
    frame_add_pair(&head, "A", 1, large, FRAME_MAX_PAYLOAD);
    if (frame_end_head(&head) || out.len != 0) {
        fail(v, "a head above MAX_PAYLOAD was written");
    }
    struct frame_text channels[1] = {{"a", 1}};
    if (frame_write_publish(
            &out, channels[0], channels[0], channels[0], channels, FRAME_MAX_PAIRS + 1) ||
        out.len != 0) {
        fail(v, "an event for too many channels was written");
    }
    frame_begin_head(&head, &out, FRAME_HEAD, 103, "", 0);
    if (frame_end_head(&head)) {
        fail(v, "a HEAD of status 103 was written");
    }
    frame_begin_head(&head, &out, FRAME_INFORM, 200, "", 0);
    if (frame_end_head(&head)) {
        fail(v, "an INFORM of status 200 was written");
    }
    uint8_t prefix[CALL_PREFIX];
    if (call_put_prefix(prefix, 0, 0, CALL_MAX - 3) || call_put_prefix(prefix, 0, 65536, 0) ||
        call_put_prefix(prefix, 0, SIZE_MAX, SIZE_MAX) || !call_put_prefix(prefix, 0, 4, 65536)) {
        fail(v, "a call above its limits was written, or one within them was not");
    }
    frame_write_log(&out, 3, 0, large, FRAME_MAX_PAYLOAD, large, FRAME_MAX_PAYLOAD);
    struct frame_header header;
    if (frame_read_header(FRAME_FROM_WORKER, out.data, out.len, &header) != FRAME_OK) {
        fail(v, "a long log line broke the limit");
    }
    free(large);
    frame_buffer_free(&out);
}

/* Bytes that are almost a frame: the sanitizers must find nothing. The seed is fixed, so a failure repeats. */
static void mutate(const struct vector *v, enum frame_from from) {
    static uint64_t seed = 0x9e3779b97f4a7c15;
    static struct frame_request request;
    struct vector copy = {.expect = ""};
    for (int round = 0; round < 500 && v->bytes.len > 0; round++) {
        frame_buffer_free(&copy.bytes);
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        size_t len = round % 4 == 0 ? seed % v->bytes.len + 1 : v->bytes.len;
        memcpy(frame_buffer_extend(&copy.bytes, len), v->bytes.data, len);
        for (int i = 0; i <= round % 3; i++) {
            copy.bytes.data[(seed >> (8 * i)) % len] = (uint8_t)(seed >> (16 + 8 * i));
        }
        struct frame_header header = {0};
        uint32_t numbers[2];
        fuzzing = true;
        decode(&copy, from, &header, &request, numbers);
        fuzzing = false;
    }
    frame_buffer_free(&copy.bytes);
}

static void run(struct vector *v) {
    checked++;
    if (strcmp(v->from, "server") == 0) {
        check_reading(v, FRAME_FROM_SERVER);
        mutate(v, FRAME_FROM_SERVER);
    } else if (strcmp(v->from, "server-to-zygote") == 0) {
        check_reading(v, FRAME_FROM_SERVER_TO_ZYGOTE);
        mutate(v, FRAME_FROM_SERVER_TO_ZYGOTE);
    } else if (strcmp(v->from, "broker") == 0) {
        check_reading(v, FRAME_FROM_BROKER);
        mutate(v, FRAME_FROM_BROKER);
    } else if (strcmp(v->from, "caller") == 0) {
        if (strcmp(v->expect, "ok") == 0) {
            check_calling(v);
        }
    } else if (strcmp(v->expect, "ok") == 0) {
        check_writing(v);
    }
    for (size_t i = 0; i < v->count; i++) {
        free(v->keys[i]);
        free(v->values[i]);
    }
    frame_buffer_free(&v->bytes);
    memset(v, 0, sizeof *v);
}

static void add_hex(struct vector *v, const char *hex) {
    while (*hex != '\0') {
        if (*hex == ' ') {
            hex++;
            continue;
        }
        char digits[3] = {hex[0], hex[1], '\0'};
        *frame_buffer_extend(&v->bytes, 1) = (uint8_t)strtoul(digits, NULL, 16);
        hex += 2;
    }
}

static void run_file(FILE *file) {
    static struct vector v;
    static char line[1 << 16];
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#') {
            continue;
        }
        if (line[0] == '\0') {
            if (v.name[0] != '\0') {
                run(&v);
            }
            continue;
        }
        char *value = strchr(line, ' ');
        if (value != NULL) {
            *value++ = '\0';
        } else {
            value = line + strlen(line);
        }
        if (strcmp(line, "name") == 0) {
            snprintf(v.name, sizeof v.name, "%s", value);
        } else if (strcmp(line, "from") == 0) {
            snprintf(v.from, sizeof v.from, "%s", value);
        } else if (strcmp(line, "expect") == 0) {
            snprintf(v.expect, sizeof v.expect, "%s", value);
        } else if (strcmp(line, "hex") == 0) {
            add_hex(&v, value);
        } else if (v.count < MAX_FIELDS) {
            v.keys[v.count] = strdup(line);
            v.values[v.count++] = strdup(value);
        }
    }
    if (v.name[0] != '\0') {
        run(&v);
    }
    fclose(file);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "r");
        if (file == NULL) {
            fprintf(stderr, "usage: %s VECTORS...\n", argv[0]);
            return 2;
        }
        run_file(file);
    }
    struct vector refusals = {.name = "what is refused"};
    check_refusals(&refusals);
    checked++;
    printf("frames: %d vectors, %d failed\n", checked, failures);
    return failures == 0 && checked > 50 ? 0 : 1;
}
