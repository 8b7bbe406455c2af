/* The broker's address and mode, from the ini settings and the environment. */
#ifndef HEARTH_EXT_CURL_SETTINGS_H
#define HEARTH_EXT_CURL_SETTINGS_H

#include <stdbool.h>

/* The broker's socket, or NULL: every call goes directly. Borrowed: until the next call of PHP code. */
const char *settings_broker(void);
/* The broker's socket for ext-curl's calls, or NULL. Borrowed: until the next call of PHP code. */
const char *settings_socket(void);

/* Returns whether calls may go over a connection that the process keeps (`hearth.egress_frames`). */
bool settings_frames(void);

/* The token in the file beside the socket, 64 digits, or NULL. Static. */
const char *settings_token(void);
/* The token was wrong, because the broker has restarted. */
void settings_forget_token(void);

/* The trace context of a call, for the broker only: complete field lines `Hearth-Traceparent` and
 * perhaps `Hearth-Tracestate`, from the request's variables. Empty if nothing is traced. Static:
 * until the next call. */
const char *settings_trace(void);

/* The reason why calls are not sent to an existing socket. Static. */
extern const char settings_untrusted[];

/* Says once per process that there is no broker. */
void settings_notice(const char *why);

#endif
