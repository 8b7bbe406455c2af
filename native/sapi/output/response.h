/* The answer of the exchange that is under way: collects, frames and sends it.
 *
 * Promises
 * - One HEAD at most, then BODY frames, then exactly one END; a small answer is one system call.
 * - Sends nothing before the script flushes, 64 KB have come, or the answer is complete.
 */
#ifndef HEARTH_SAPI_OUTPUT_RESPONSE_H
#define HEARTH_SAPI_OUTPUT_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <SAPI.h>

/* Once in a process, before anything else here. */
void response_prepare(void);
void response_begin(void);
/* Takes the headers as the final head. */
void response_head(sapi_headers_struct *headers);
/* Sends the headers as an interim answer. False when it is too late, or they do not fit. */
bool response_inform(unsigned status, sapi_headers_struct *headers);
/* Sends output of the script. False when it is no longer taken: the client is gone, or the answer is complete. Borrowed: data. */
bool response_write(const char *data, size_t len);
/* Sends what has been collected. False as above. */
bool response_flush(void);
/* Sends the rest and END, unless that has happened. */
void response_end(uint8_t flags);

bool response_has_head(void);
bool response_ended(void);
/* Returns whether the last answer's END announced that PHP code still ran: READY is due before the
 * next request. */
bool response_was_busy(void);

#endif
