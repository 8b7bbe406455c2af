/* The SAPI module: how the engine reads a request and writes an answer, the same in every model.
 *
 * Promises
 * - Calls itself "fpm-fcgi": opcache accepts that name, and frameworks treat it as an ordinary web server.
 * - Between exchanges output goes to standard output and no headers are sent.
 */
#ifndef HEARTH_SAPI_MODULE_H
#define HEARTH_SAPI_MODULE_H

#include <stdbool.h>

#include <SAPI.h>

#include "sapi/options.h"

/* Starts the engine (MINIT). Exits with a message when that fails. */
void module_start(const struct options *options);
/* The engine's version, e.g. `8.2.35`. Static: the result. */
const char *module_php_version(void);

/* Fills SG(request_info) from the request; the body is read by sapi_activate(). init_request_info(), sapi/fpm/fpm/fpm_main.c */
void module_fill_request_info(void);
void module_clear_request_info(void);
/* PHP has read the body before the script, and could not keep all of it: its temporary folder has no room. The script is not to run. */
bool module_body_is_lost(void);
/* Runs a file as the request's script, to its end, an exit or a fatal error. Borrowed: path. */
void module_execute(const char *path);
/* Answers in the place of a script. Borrowed: text. */
void module_refuse(int status, const char *text);
/* Answers 507 (RFC 4918, section 11.5). */
void module_refuse_lost_body(void);

/* What php_request_shutdown() of main/main.c does before the engine cleans up: shutdown functions, destructors, output, session.
 * `destroy`: see below. */
void module_end_script(bool destroy);
/* What php_request_shutdown() of main/main.c does before the answer is complete: shutdown functions, destructors, output,
 * session. Then completes the answer. Called outside any PHP code; php_request_shutdown() follows. `destroy`: calls the destructors of
 * all objects. */
void module_complete_answer(uint8_t flags, bool destroy);

/* The status that this process exits with: the script's in a child that a request has forked, else 0. */
int module_exit_status(void);

/* fastcgi_finish_request() */
bool module_finish_request(void);
bool module_inform(zend_long status);
void module_each_variable(
    void (*each)(void *arg, const char *name, size_t name_len, const char *value, size_t value_len),
    void *arg);
struct hearth_event;
bool module_publish(const struct hearth_event *event);
/* Borrowed: tags, strings. */
bool module_purge(zval *tags, size_t count);
void module_log(int level, zend_string *message, zend_string *context);

#endif
