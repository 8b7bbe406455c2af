/* Cleans up after a request in a process that is restored or ends: objects with destructors, open streams, extension objects
 * that hold more than memory, and uploaded files. Memory needs no cleanup then, but effects that PHP code, a file or another
 * process can observe do.
 *
 * Promises
 * - Objects and resources of the boot are left alone: no destructor of theirs is run here, their files stay open.
 */
#ifndef HEARTH_SAPI_REQUEST_REQUEST_CLEANUP_H
#define HEARTH_SAPI_REQUEST_REQUEST_CLEANUP_H

/* For a script that ends with each request, before the mark: the boot's files and connections stay open when their last variable goes. A
 * descriptor that a request closes could not be put back. */
void request_cleanup_hold(void);
/* Called at the wait point: everything that exists now belongs to the boot. */
void request_cleanup_mark(void);
/* After the request: destroys its objects, closes its resources (a compressing stream is flushed), frees objects that hold more than memory,
 * deletes its uploads. */
void request_cleanup_clear(void);

#endif
