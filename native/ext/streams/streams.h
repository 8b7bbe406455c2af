/* The streams part of the extension: `http://` and `https://` opened as files go through the
 * broker (docs/internals/extension.md). */
#ifndef HEARTH_EXT_STREAMS_STREAMS_H
#define HEARTH_EXT_STREAMS_STREAMS_H

/* Called at MINIT, after egress_startup() and the extensions with the wrappers. */
void streams_startup(int module_number);
/* Called at RINIT, after egress_activate(). */
void streams_activate(void);
/* NULL: streams go through the broker; otherwise why not. Static: the result. */
const char *streams_why_direct(void);
void streams_shutdown(void);

#endif
