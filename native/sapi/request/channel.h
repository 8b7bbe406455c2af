/* The worker's socket: whole frames out, a buffered stream of frames in.
 *
 * Promises
 * - What is sent is sent whole, in the order of the calls; a server that is gone makes every later send fail quietly.
 * - A malformed frame is logged and ends the process (EXIT_MALFORMED): nothing above this file sees one.
 * - Reading blocks, and reads nothing beyond the frame that is asked for: a request written ahead stays in the kernel. Only
 *   channel_sees_abort() reads further, up to one buffer.
 */
#ifndef HEARTH_SAPI_REQUEST_CHANNEL_H
#define HEARTH_SAPI_REQUEST_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "wire/frame.h"

void channel_open(int fd);
/* Reads `count` frames unchanged, to be replayed. NULL if the server has gone. Owned by the caller: the result. */
uint8_t *channel_collect(unsigned count, size_t *len);
/* From now on these frames are read, then the end of the stream; output is discarded. channel_open() ends that.
 * Borrowed. */
void channel_replay(const uint8_t *frames, size_t len);
/* Returns whether this process is a child that PHP code has forked: it has no connection to the server. */
bool channel_is_left(void);
/* Waits: does nothing come for so long? */
bool channel_is_quiet(int milliseconds);
/* Returns whether bytes of the server were read and not used yet. */
bool channel_has_input(void);
int channel_descriptor(void);
/* A LOG frame without malloc and locks. Borrowed: message. */
void channel_send_log(int level, const char *message, size_t len);

/* Sends all bytes. False when the server is gone. Changes the vector. */
bool channel_send(struct iovec *iov, size_t count);
/* Sends and empties the buffer. */
bool channel_send_buffer(struct frame_buffer *buffer);
/* The next request may come. */
void channel_send_ready(void);

/* The next header; its payload follows by channel_read(). False when the server has ended the conversation. */
bool channel_next(struct frame_header *header);
/* Exactly `len` bytes of payload. False when the server went away in their midst. */
bool channel_read(void *to, size_t len);
/* Reads between 1 and `len` bytes of payload, buffered bytes first; 0 if the server has gone. */
size_t channel_read_some(void *to, size_t len);
/* Returns for how many nanoseconds this process has waited for input since its start. */
uint64_t channel_waited(void);

/* Returns whether an ABORT has arrived behind `skip` bytes and all whole frames of a request body. Does not wait. */
bool channel_sees_abort(size_t skip);

/* Logs that the peer broke the protocol, and exits. Static: what. */
_Noreturn void channel_malformed(const char *what);

#endif
