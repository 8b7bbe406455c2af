/* Functions that the process provides to the PHP functions of this extension. Only the worker provides them.
 *
 * Promises
 * - The extension does not know frames, sockets or models: it checks arguments and calls through this table.
 * - A callback may bail out (longjmp) wherever PHP code may run in it; callers hold nothing that would be lost.
 */
#ifndef HEARTH_EXT_HOST_H
#define HEARTH_EXT_HOST_H

#include <php.h>

/* What hearth_publish() was given, checked. */
struct hearth_event {
    zend_string *name;
    zend_string *data;
    zend_string *except; /* a socket's id, or NULL */
    zend_string **channels;
    size_t count;
};

struct hearth_host {
    /* hearth_handle_request(): waits for a request and runs `fci` for it. False: the server sends no more
     * requests; or, with an exception set, the call is not allowed. Borrowed: both. */
    bool (*handle_request)(zend_fcall_info *fci, zend_fcall_info_cache *fcc);
    /* hearth_await_request(): waits for a request, with which the script goes on. False: it has one, or an exception is set. NULL: the
     * process waits for none. */
    bool (*await_request)(void);
    /* Completes the answer while the script goes on. False when it was complete already. */
    bool (*finish_request)(void);
    /* Calls `each` for the request's CGI variables, in order; the strings end with a NUL. Borrowed: the strings, for the call. */
    void (*each_variable)(void (*each)(void *arg, const char *name, size_t name_len,
                              const char *value, size_t value_len),
        void *arg);
    /* Sends the headers set so far as an interim answer (100 to 199). False when no answer can be sent any more. */
    bool (*inform)(zend_long status);
    /* Writes a line to the server's log. `context` is a JSON object or empty. Borrowed: both. */
    void (*log)(int level, zend_string *message, zend_string *context);
    /* Sends an event to the server. False: this run answers no client (a boot, a warm-up), the server has gone, or the event does
     * not fit a frame. Borrowed: event. */
    bool (*publish)(const struct hearth_event *event);
    /* Asks the server to remove stored answers with these tags. False as for `publish`. Borrowed: tags. */
    bool (*purge)(zval *tags, size_t count);
    /* Keeps `callback` to be called once before the first request. False when that moment has passed. Borrowed: callback. */
    bool (*on_worker_start)(zval *callback);
    /* Returns whether all open database connections will outlive requests. NULL: none do. */
    bool (*keep_connection)(void);
    /* Returns whether files that a worker's start opens and locks will outlive requests. NULL: they do not. */
    bool (*keep_files)(void);
    /* Adds strings to each request's $_SERVER, where it has none of that name. NULL: requests have their own processes. Borrowed: values. */
    void (*add_server_variables)(HashTable *values);
    /* Whether the script continues after a handler: the end of a request must not end the script. */
    bool runs_on;
    /* Whether the script's state outlives a request. */
    bool keeps_state;
};

/* NULL outside the worker. Static. */
extern const struct hearth_host *hearth_host;

/* The `hearth` extension, given to php_module_startup(). Static. */
extern zend_module_entry hearth_module_entry;

#endif
