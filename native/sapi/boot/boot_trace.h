/* What the boot reads beside code: request data, clock, randomness, environment, databases, network, data files. For `hearth check --boot`.
 *
 * Promises
 * - Nothing is replaced in the engine unless boot_trace_begin() was called.
 * - Reads behind boot_trace_end() are not recorded: those of requests and of the callbacks that a worker starts with.
 * - The report has names, paths and hosts, but no value that was read, no password and no query of a URL.
 */
#ifndef HEARTH_SAPI_BOOT_BOOT_TRACE_H
#define HEARTH_SAPI_BOOT_BOOT_TRACE_H

#include <php.h>

/* From now on reads are recorded. Once in a process, before any code of the application is compiled. */
void boot_trace_begin(void);
/* Ends that. Sends the report: one LOG frame for each read, with its fields as JSON. */
void boot_trace_end(void);

/* --- calls.c's part --- */

/* How the report names what a call reads. */
enum trace_detail {
    TRACE_NAME,     /* the function's name suffices */
    TRACE_ARGUMENT, /* and the first argument */
    TRACE_PATH,     /* the first argument is a path or a URL, which decides what is read */
    TRACE_HOST,     /* the first argument is a host or an address */
    TRACE_DSN,      /* the first argument names a driver of PDO */
    TRACE_UNLESS_2, /* a clock, unless the second argument is a time */
    TRACE_UNLESS_6, /* a clock, unless all of a time is given */
    TRACE_DATE,     /* a clock, unless the first argument is a whole date */
};

struct trace_call {
    const char *class; /* in lower case; NULL: a function */
    const char *name;  /* in lower case */
    const char *kind;
    enum trace_detail detail;
};

/* All calls that are looked at; the last has no name. */
extern const struct trace_call trace_calls[];
/* Records a call of one of them, whose frame is current. */
void trace_record_call(const struct trace_call *call, zend_execute_data *frame);
/* Records a read. Borrowed: all pointers. */
void trace_record(const char *kind, const char *what, size_t what_len);

#endif
