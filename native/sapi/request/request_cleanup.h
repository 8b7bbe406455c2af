/* What a request leaves behind in a process that is put back or ends: objects with destructors, open streams, objects of extensions that hold
 * more than memory, uploaded files. Memory needs no attention then; what PHP code, a file or another process would miss does.
 *
 * Promises
 * - Objects and resources of the boot are left alone: their destructors are not run, their files stay open.
 */
#ifndef HEARTH_SAPI_REQUEST_REQUEST_CLEANUP_H
#define HEARTH_SAPI_REQUEST_REQUEST_CLEANUP_H

/* At the wait point: what there is now belongs to the boot. */
void request_cleanup_mark(void);
/* After the request: destroys its objects, closes its resources (a compressing stream is flushed), frees objects that hold more than memory,
 * deletes its uploads. */
void request_cleanup_clear(void);

#endif
