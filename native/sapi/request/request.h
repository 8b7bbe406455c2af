/* The current exchange's request: its CGI variables and its body.
 *
 * Promises
 * - Between request_receive() and request_release() all strings stay where they are.
 * - The body is read in pieces as the script reads it. request_release() skips the unread rest.
 */
#ifndef HEARTH_SAPI_REQUEST_REQUEST_H
#define HEARTH_SAPI_REQUEST_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/frame.h"

/* Once in a process, before anything else here. */
void request_prepare(void);
/* Waits for the next REQUEST. False if the server sends no more requests. */
bool request_receive(void);
/* Reads what is left of the body, up to its end, and forgets the request. */
void request_release(void);
/* Returns whether there is a request: from request_receive() to request_release(). */
bool request_present(void);

/* The value of a variable, or NULL. Borrowed until request_release(): the result. */
char *request_variable(const char *name, size_t name_len);
#define REQUEST_VARIABLE(literal) request_variable(literal, sizeof(literal) - 1)
/* All of them; only while a request is present. Borrowed until request_release(). */
const struct frame_request *request_head(void);

/* Adds method, path and id of the request received last, also after it was released and memory was put back. Makes no system call. */
struct text;
void request_describe(struct text *text);

/* Up to `len` bytes of the body; fewer only at its end. */
size_t request_read_body(char *to, size_t len);
/* Returns whether the end was found before the body was complete. Half a form or file must not be
 * taken for a whole one. */
bool request_is_cut(void);
/* Returns whether the client has gone. Checks the socket without waiting. */
bool request_aborted(void);

#endif
