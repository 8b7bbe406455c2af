/* See log.h. */
#include "sapi/output/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "wire/frame.h"

static bool (*through)(struct frame_buffer *frame);

void log_through(bool (*send)(struct frame_buffer *frame)) {
    through = send;
}

void log_frame(struct frame_buffer *frame) {
    if (through != NULL) {
        through(frame);
    }
}

void log_text(int level, int source, const char *message, size_t message_len, const char *context,
    size_t context_len) {
    int saved = errno;
    if (through != NULL) {
        struct frame_buffer frame = {0};
        frame_write_log(
            &frame, (uint8_t)level, (uint8_t)source, message, message_len, context, context_len);
        through(&frame);
        frame_buffer_free(&frame);
    } else {
        fprintf(stderr, "%.*s\n", (int)message_len, message);
    }
    errno = saved;
}

void log_line(int level, int source, const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (len < 0) {
        return;
    }
    log_text(level, source, line, (size_t)len < sizeof line ? (size_t)len : sizeof line - 1, "", 0);
}
