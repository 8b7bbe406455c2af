/* See answer.h. */
#include "ext/curl/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ext/curl/cookies.h"

/* This is more than a unix socket buffers while the broker does not read. The broker reads only
 * when it can no longer decline. */
enum { GIVEN_LIMIT = 1 << 20 };

static size_t to_body(struct handle *handle, char *bytes, size_t len) {
    curl_write_callback write = (curl_write_callback)handle_pointer(handle, CURLOPT_WRITEFUNCTION);
    void *data = handle_pointer(handle, CURLOPT_WRITEDATA);
    if (write == NULL) {
        return fwrite(bytes, 1, len, data != NULL ? data : stdout);
    }
    return write(bytes, 1, len, data);
}

/* As in libcurl's lib/sendf.c: with CURLOPT_HEADER a line goes to the body first. */
static size_t to_head(struct handle *handle, char *line, size_t len) {
    if (handle_number(handle, CURLOPT_HEADER, 0) != 0) {
        size_t wrote = to_body(handle, line, len);
        if (wrote != len) {
            return wrote;
        }
    }
    curl_write_callback write = (curl_write_callback)handle_pointer(handle, CURLOPT_HEADERFUNCTION);
    void *data = handle_pointer(handle, CURLOPT_HEADERDATA);
    if (write == NULL && data == NULL) {
        return len;
    }
    return write != NULL ? write(line, 1, len, data) : fwrite(line, 1, len, data);
}

static bool is_field(const char *line, size_t len, const char *name) {
    size_t name_len = strlen(name);
    return len > name_len && strncasecmp(line, name, name_len) == 0 && line[name_len] == ':';
}

static bool is_end(const char *line, size_t len) {
    return (len == 2 && memcmp(line, "\r\n", 2) == 0) || (len == 1 && *line == '\n');
}

/* Finds `key=value` or `key="value"` in the rest of a line, and removes the quotes. */
static bool parameter(const char *line, const char *key, char *value, size_t room) {
    size_t key_len = strlen(key);
    for (const char *at = strstr(line, key); at != NULL; at = strstr(at + 1, key)) {
        if ((at[-1] != ' ' && at[-1] != ';' && at[-1] != ',') || at[key_len] != '=') {
            continue;
        }
        at += key_len + 1;
        bool quoted = *at == '"';
        at += quoted;
        size_t len = 0;
        while (*at != '\0' && (quoted ? *at != '"' : *at != ';' && *at != ',' && *at > ' ') &&
               len + 1 < room) {
            at += quoted && *at == '\\' && at[1] != '\0';
            value[len++] = *at++;
        }
        value[len] = '\0';
        return true;
    }
    return false;
}

static long number_parameter(const char *line, const char *key) {
    char digits[24] = "";
    return parameter(line, key, digits, sizeof digits) ? strtol(digits, NULL, 10) : 0;
}

static void read_address(struct verdict *verdict, const char *line) {
    if (parameter(line, "address", verdict->address, sizeof verdict->address)) {
        char *colon = strrchr(verdict->address, ':');
        if (colon != NULL) {
            *colon = '\0';
            verdict->port = strtol(colon + 1, NULL, 10);
        }
        size_t len = strlen(verdict->address);
        if (verdict->address[0] == '[' && len > 1 && verdict->address[len - 1] == ']') {
            memmove(verdict->address, verdict->address + 1, len - 2);
            verdict->address[len - 2] = '\0';
        }
    }
}

static void read_refusal(struct verdict *verdict, const char *line) {
    const char *reason = line + strcspn(line, ":") + 1;
    reason += strspn(reason, " ");
    snprintf(
        verdict->reason, sizeof verdict->reason, "%.*s", (int)strcspn(reason, "; \r\n"), reason);
    verdict->error = (int)number_parameter(line, "errno");
    if (!parameter(line, "message", verdict->message, sizeof verdict->message)) {
        verdict->message[0] = '\0';
    }
    read_address(verdict, line);
}

static void read_timing(struct verdict *verdict, const char *line) {
    char word[8] = "";
    verdict->timed = true;
    verdict->resolved = number_parameter(line, "dns");
    verdict->connected = number_parameter(line, "connect");
    verdict->secured = number_parameter(line, "tls");
    verdict->reused = parameter(line, "reused", word, sizeof word) && strcmp(word, "?1") == 0;
    if (!parameter(line, "protocol", verdict->protocol, sizeof verdict->protocol)) {
        verdict->protocol[0] = '\0';
    }
    read_address(verdict, line);
}

/* True: the line belongs to the hop, not to the origin. */
static bool read_own_field(struct step *step, const char *line, size_t len) {
    if (len < strlen("Hearth-") || strncasecmp(line, "Hearth-", strlen("Hearth-")) != 0) {
        return false;
    }
    char copy[1024];
    snprintf(copy, sizeof copy, "%.*s", (int)len, line);
    if (is_field(line, len, "Hearth-Declined")) {
        step->verdict.kind = VERDICT_DECLINED;
        read_refusal(&step->verdict, copy);
    } else if (is_field(line, len, "Hearth-Failed")) {
        step->verdict.kind = VERDICT_FAILED;
        read_refusal(&step->verdict, copy);
    } else if (is_field(line, len, "Hearth-Timing")) {
        read_timing(&step->verdict, copy);
    }
    return true;
}

/* libcurl's lib/http.c ignores an empty Location. */
static void read_location(struct step *step, const char *line, size_t len) {
    const char *value = line + strlen("Location:");
    const char *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t')) {
        value++;
    }
    while (end > value && (unsigned char)end[-1] <= ' ') {
        end--;
    }
    if (value < end) {
        free(step->location);
        step->location = strndup(value, (size_t)(end - value));
    }
}

static void read_line(struct handle *handle, const char *line, size_t len) {
    struct step *step = &handle->step;
    cookies_note(handle, line, len);
    if (len > 12 && strncmp(line, "HTTP/", 5) == 0) {
        const char *space = memchr(line, ' ', len);
        step->status = space != NULL ? (int)strtol(space, NULL, 10) : 0;
    } else if (step->status >= 300 && step->status < 400 && is_field(line, len, "Location")) {
        read_location(step, line, len);
    }
}

/* Returns whether a line of the head is about the hop only. */
static bool is_of_hop(const struct handle *handle, const char *line, size_t len) {
    const struct step *step = &handle->step;
    if (handle->way == WAY_FAST) {
        return false; /* there, heads come from the origin */
    }
    return is_field(line, len, "Connection") ||
           (strcmp(step->verdict.protocol, "2") == 0 && is_field(line, len, "Transfer-Encoding"));
}

/* Delivers one line in the form of the origin's protocol. */
static size_t deliver_line(struct handle *handle, char *line, size_t len) {
    struct step *step = &handle->step;
    char status[64];
    size_t sent = len;
    if (is_of_hop(handle, line, len)) {
        return len;
    }
    if (step->location != NULL && is_field(line, len, "Location")) {
        /* like libcurl, which decides at this moment and honours changes by earlier callbacks */
        step->follows = handle_number(handle, CURLOPT_FOLLOWLOCATION, 0) == 1;
    }
    if (len > 8 && strncmp(line, "HTTP/1.1", 8) == 0 && strcmp(step->verdict.protocol, "2") == 0) {
        /* as lib/http2.c writes it */
        sent = (size_t)snprintf(status, sizeof status, "HTTP/2 %03d \r\n", step->status);
        line = status;
    }
    size_t wrote = to_head(handle, line, sent);
    if (wrote != sent) {
        return wrote;
    }
    if (!step->head_done) { /* not for trailers */
        step->header_size += (long)sent;
    }
    return len;
}

/* Delivers the lines that were held back. Returns their number of bytes, or the application's own
 * result. */
static size_t deliver_head(struct handle *handle) {
    struct step *step = &handle->step;
    while (step->delivered < step->head.len) {
        char *line = step->head.bytes + step->delivered;
        char *end = memchr(line, '\n', step->head.len - step->delivered);
        size_t len = end != NULL ? (size_t)(end - line) + 1 : step->head.len - step->delivered;
        size_t wrote = deliver_line(handle, line, len);
        if (wrote == CURL_WRITEFUNC_PAUSE) {
            return wrote;
        }
        step->delivered += len;
        if (wrote != len) {
            return 0;
        }
    }
    text_clear(&step->head);
    step->delivered = 0;
    return 1;
}

size_t answer_header(char *line, size_t size, size_t count, void *arg) {
    struct handle *handle = arg;
    struct step *step = &handle->step;
    size_t len = size * count;
    if (step->head_done && (len < 5 || strncmp(line, "HTTP/", 5) != 0)) {
        return step->verdict.kind == VERDICT_ANSWER ? deliver_line(handle, line, len) : len;
    }
    if (step->delivered == 0) { /* otherwise it paused, and gets the last line again */
        if (step->head.len == 0) {
            step->head_done = false;
            step->status = 0;
        }
        if (read_own_field(step, line, len)) {
            return len;
        }
        read_line(handle, line, len);
        text_append(&step->head, line, len);
    }
    if (!is_end(line, len)) {
        return len;
    }
    if (step->verdict.kind != VERDICT_ANSWER) {
        text_clear(&step->head);
        step->head_done = true;
        return len;
    }
    size_t done = deliver_head(handle);
    if (done != 1) {
        return done == CURL_WRITEFUNC_PAUSE ? done : 0;
    }
    step->head_done = step->status >= 200 || step->status == 101;
    return len;
}

bool answer_flush(struct handle *handle) {
    struct step *step = &handle->step;
    bool taken =
        step->verdict.kind != VERDICT_ANSWER || step->head.len == 0 || deliver_head(handle) == 1;
    text_clear(&step->head);
    step->delivered = 0;
    return taken;
}

size_t answer_body(char *bytes, size_t size, size_t count, void *arg) {
    struct handle *handle = arg;
    if (handle->step.verdict.kind != VERDICT_ANSWER || handle->step.follows) {
        return size * count;
    }
    return to_body(handle, bytes, size * count);
}

static size_t from_application(struct handle *handle, char *buffer, size_t size, size_t count) {
    curl_read_callback read = (curl_read_callback)handle_pointer(handle, CURLOPT_READFUNCTION);
    void *data = handle_pointer(handle, CURLOPT_READDATA);
    if (read == NULL) {
        return fread(buffer, size, count, data != NULL ? data : stdin);
    }
    return read(buffer, size, count, data);
}

size_t answer_read(char *buffer, size_t size, size_t count, void *arg) {
    struct handle *handle = arg;
    size_t got = from_application(handle, buffer, size, count);
    if (got == CURL_READFUNC_ABORT || got == CURL_READFUNC_PAUSE || got > size * count) {
        return got;
    }
    handle->given_bytes += (curl_off_t)got;
    if (got == 0) {
        handle->given_end = true;
    } else if (handle->given.len + got > GIVEN_LIMIT || handle->step.status >= 200) {
        handle->given_lost = true;
    } else if (!handle->given_lost) {
        text_append(&handle->given, buffer, got);
    }
    return got;
}

size_t answer_read_again(char *buffer, size_t size, size_t count, void *arg) {
    struct handle *handle = arg;
    size_t left = handle->given.len - handle->given_again;
    if (left == 0) {
        return handle->given_end ? 0 : from_application(handle, buffer, size, count);
    }
    size_t len = left < size * count ? left : size * count;
    memcpy(buffer, handle->given.bytes + handle->given_again, len);
    handle->given_again += len;
    return len;
}

/* Writes as libcurl's lib/sendf.c does without a callback. */
static int write_debug(FILE *to, curl_infotype type, const char *bytes, size_t len) {
    static const char marks[][3] = {"* ", "< ", "> "};
    if (type == CURLINFO_TEXT || type == CURLINFO_HEADER_IN || type == CURLINFO_HEADER_OUT) {
        fwrite(marks[type], 2, 1, to);
        fwrite(bytes, len, 1, to);
    }
    return 0;
}

static int hand_debug(
    struct handle *handle, CURL *curl, curl_infotype type, char *bytes, size_t len) {
    curl_debug_callback debug = (curl_debug_callback)handle_pointer(handle, CURLOPT_DEBUGFUNCTION);
    FILE *to = handle_pointer(handle, CURLOPT_STDERR);
    return debug != NULL ? debug(curl, type, bytes, len, handle_pointer(handle, CURLOPT_DEBUGDATA))
                         : write_debug(to != NULL ? to : stderr, type, bytes, len);
}

/* The token is a secret, so Hearth's lines are not shown either. */
int answer_debug(CURL *curl, curl_infotype type, char *bytes, size_t len, void *arg) {
    struct handle *handle = arg;
    if (type != CURLINFO_HEADER_IN && type != CURLINFO_HEADER_OUT) {
        return hand_debug(handle, curl, type, bytes, len);
    }
    struct text shown = {NULL, 0, 0};
    for (size_t at = 0; at < len;) {
        const char *line = bytes + at;
        const char *end = memchr(line, '\n', len - at);
        size_t line_len = end != NULL ? (size_t)(end - line) + 1 : len - at;
        if (line_len < strlen("Hearth-") || strncasecmp(line, "Hearth-", strlen("Hearth-")) != 0) {
            text_append(&shown, line, line_len);
        }
        at += line_len;
    }
    int result = shown.len > 0 ? hand_debug(handle, curl, type, shown.bytes, shown.len) : 0;
    text_free(&shown);
    return result;
}
