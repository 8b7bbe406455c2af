/* Cleans up after a request in a process that is restored or ends: objects with destructors, open streams, extension objects
 * that hold more than memory, and uploaded files. Memory needs no cleanup then, but effects that PHP code, a file or another
 * process can observe do.
 *
 * Promises
 * - Objects and resources of the boot are left alone: their destructors are not run, their files stay open.
 */
#ifndef HEARTH_SAPI_REQUEST_REQUEST_CLEANUP_H
#define HEARTH_SAPI_REQUEST_REQUEST_CLEANUP_H

/* Called at the wait point: everything that exists now belongs to the boot. */
void request_cleanup_mark(void);
/* After the request: destroys its objects, closes its resources (a compressing stream is flushed), frees objects that hold more than memory,
 * deletes its uploads. */
void request_cleanup_clear(void);

#endif
