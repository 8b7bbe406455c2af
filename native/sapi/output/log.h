/* Log lines: LOG frames once there is a server to read them, stderr before.
 *
 * Promises
 * - Never fails and never changes errno; a line that cannot be sent is lost.
 */
#ifndef HEARTH_SAPI_OUTPUT_LOG_H
#define HEARTH_SAPI_OUTPUT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <syslog.h>

enum {
    LOG_SOURCE_PHP = 0,
    LOG_SOURCE_APPLICATION = 1,
    LOG_SOURCE_WORKER = 2,
};

/* Passes lines to `send` from now on, as whole frames; NULL: to stderr. */
struct frame_buffer;
void log_through(bool (*send)(struct frame_buffer *frame));

/* Sends another frame the same way. Without a server it is lost. */
void log_frame(struct frame_buffer *frame);

/* Borrowed: all pointers. */
void log_text(int level, int source, const char *message, size_t message_len, const char *context,
    size_t context_len);
void log_line(int level, int source, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
