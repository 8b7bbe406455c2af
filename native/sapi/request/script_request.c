/* See script_request.h. */
#include "sapi/request/script_request.h"

#include <SAPI.h>
#include <ext/standard/head.h>
#include <ext/standard/php_filestat.h>
#include <php_output.h>
#include <php_variables.h>
#include <zend_exceptions.h>

#include "sapi/boot/boot_state.h"
#include "sapi/boot/opcache_guard.h"
#include "sapi/output/response.h"
#include "sapi/request/kept_variables.h"
#include "sapi/sapi_module.h"

/* Puts SG() and the output layer into the state that a request begins with. php_request_startup(), main/main.c */
static void open_context(void) {
    php_output_activate();
    PG(header_is_being_sent) = 0;
    PG(connection_status) = PHP_CONNECTION_NORMAL;
    sapi_activate();
    SG(sapi_started) = 1;
}

void script_request_open_idle(void) {
    module_clear_request_info();
    open_context();
    SG(request_info).no_headers = 1;
}

void script_request_close(void) {
    php_output_end_all();
    php_output_deactivate();
    sapi_deactivate();
}

/* The engine leaves a request's body and the php://input streams on it to the end of the script. A handle that the application
 * has kept is closed first, because it points into the body. */
void script_request_close_body(void) {
    php_stream *body = SG(request_info).request_body;
    if (body == NULL) {
        return;
    }
    SG(request_info).request_body = NULL;
    zend_resource *resource;
    ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
        if (resource->type == php_file_le_stream()) {
            php_stream *stream = resource->ptr;
            if (stream != NULL && stream->ops->label != NULL &&
                strcmp(stream->ops->label, "Input") == 0) {
                zend_list_close(resource);
            }
        }
    }
    ZEND_HASH_FOREACH_END();
    php_stream_close(body);
}

static void forget_superglobals(void) {
    for (int i = 0; i < NUM_TRACK_VARS; i++) {
        if (i != TRACK_VARS_ENV) {
            zval_ptr_dtor_nogc(&PG(http_globals)[i]);
            ZVAL_UNDEF(&PG(http_globals)[i]);
        }
    }
}

/* Values of the boot that every request would free, one by one and in many places. */
void script_request_empty_superglobals(void) {
    static const char *const NAMES[] = {
        "_GET", "_POST", "_COOKIE", "_SERVER", "_FILES", "_REQUEST"};
    forget_superglobals();
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        if (zend_hash_str_exists(&EG(symbol_table), NAMES[i], strlen(NAMES[i]))) {
            zval none;
            ZVAL_EMPTY_ARRAY(&none);
            zend_hash_str_update(&EG(symbol_table), NAMES[i], strlen(NAMES[i]), &none);
        }
    }
}

void script_request_gather_superglobals(void) {
    enum { MOST = 16 };
    static zend_auto_global gathered[MOST];
    size_t count = 0;
    zval *global;
    ZEND_HASH_FOREACH_VAL(CG(auto_globals), global) {
        if (count < MOST) {
            gathered[count] = *(zend_auto_global *)Z_PTR_P(global);
            Z_PTR_P(global) = &gathered[count++];
        }
    }
    ZEND_HASH_FOREACH_END();
}

/* Sets the superglobals from the request. Follows php_hash_environment(), main/php_variables.c, but frees the
 * old arrays first. $_ENV stays as after the boot, and so does what the boot has written into $_SERVER. */
static void import_superglobals(void) {
    zval env;
    ZVAL_COPY_VALUE(&env, &PG(http_globals)[TRACK_VARS_ENV]);
    forget_superglobals();
    php_hash_environment();
    ZVAL_COPY_VALUE(&PG(http_globals)[TRACK_VARS_ENV], &env);

    /* The engine makes these when it compiles a use of them, which has happened already (auto_globals_jit). */
    zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
    if (zend_hash_exists(&EG(symbol_table), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_REQUEST))) {
        zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_REQUEST));
    }
    zend_auto_global *global =
        zend_hash_find_ptr(CG(auto_globals), ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV));
    if (global != NULL && zend_hash_exists(&EG(symbol_table), global->name)) {
        global->armed = 0;
    }
    kept_variables_add();
}

static void start_output(void) {
    /* the engine may have reported errors about the body already */
    if (PG(expose_php) && !SG(headers_sent)) {
        sapi_add_header(SAPI_PHP_VERSION_HEADER, sizeof(SAPI_PHP_VERSION_HEADER) - 1, 1);
    }
    if (PG(output_handler) != NULL && PG(output_handler)[0] != '\0') {
        zval handler;
        ZVAL_STRING(&handler, PG(output_handler));
        php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
        zval_ptr_dtor(&handler);
    } else if (PG(output_buffering)) {
        php_output_start_user(NULL, PG(output_buffering) > 1 ? (size_t)PG(output_buffering) : 0,
            PHP_OUTPUT_HANDLER_STDFLAGS);
    } else if (PG(implicit_flush)) {
        php_output_set_implicit_flush(1);
    }
}

/* The time limit was started before the snapshot, and each restore starts it again. */
static bool limit_runs;

void script_request_start_limit(void) {
    zend_set_timeout(EG(timeout_seconds), 0);
    limit_runs = true;
}

/* The part that is the same for a handler and for a script that continues. `open`: see script_request.h */
static void begin(void (*open)(void)) {
    /* counts CPU time, so it need not be stopped while the worker waits */
    if (!limit_runs) {
        zend_set_timeout(EG(timeout_seconds), 0);
    }
    /* The engine's warnings about a body or a variable are reported as at the start of any request. The
     * script's handlers are not called, because one that throws would end the script for a client's mistake.
     * php_request_startup(), main/main.c */
    zval handler;
    ZVAL_COPY_VALUE(&handler, &EG(user_error_handler));
    ZVAL_UNDEF(&EG(user_error_handler));
    PG(during_request_startup) = 1;
    open();
    import_superglobals();
    PG(during_request_startup) = 0;
    ZVAL_COPY_VALUE(&EG(user_error_handler), &handler);
    /* PHP_RSHUTDOWN_FUNCTION(basic), ext/standard/basic_functions.c: the cached stat of the last file is valid
     * for one request only */
    php_clear_stat_cache(false, NULL, 0);
}

static void open_request(void) {
    open_context();
    start_output();
}

void script_request_begin(void) {
    opcache_guard_boot_is_over();
    module_clear_request_info();
    response_begin();
    module_fill_request_info();
    begin(open_request);
    boot_state_begin_session();
    zend_memory_reset_peak_usage();
}

/* sapi_activate() begins with empty headers: those of the boot are put back behind it. If it has reported an error to the client by itself,
 * they come too late, as in any request. */
static void open_continued(void) {
    sapi_headers_struct headers = SG(sapi_headers);
    zval callback;
    ZVAL_COPY_VALUE(&callback, &SG(callback_func));
    zend_fcall_info_cache callback_cache = SG(fci_cache);
    bool sent = SG(headers_sent);
    PG(connection_status) = PHP_CONNECTION_NORMAL;
    sapi_activate();
    SG(sapi_started) = 1;
    if (!SG(headers_sent)) {
        SG(sapi_headers) = headers;
        ZVAL_COPY_VALUE(&SG(callback_func), &callback);
        SG(fci_cache) = callback_cache;
        SG(headers_sent) = sent;
    }
}

void script_request_continue(void) {
    opcache_guard_boot_is_over();
    int status = SG(sapi_headers).http_response_code;
    module_clear_request_info();
    response_begin();
    module_fill_request_info();
    SG(sapi_headers).http_response_code = status;
    begin(open_continued);
}

void script_request_forget_last_error(void) {
    if (PG(last_error_message) != NULL) {
        zend_string_release(PG(last_error_message));
        PG(last_error_message) = NULL;
    }
    if (PG(last_error_file) != NULL) {
        zend_string_release(PG(last_error_file));
        PG(last_error_file) = NULL;
    }
    PG(last_error_type) = 0;
    PG(last_error_lineno) = 0;
}

/* Handles an exception that has left PHP code of the request. An uncaught one is reported as at the end of a
 * script (zend_execute_scripts(), Zend/zend.c), but the script itself does not continue after it. */
static void settle_exception(void) {
    if (EG(exception) == NULL) {
        return;
    }
    bool exits = zend_is_unwind_exit(EG(exception)) || zend_is_graceful_exit(EG(exception));
    if (exits && !CG(unclean_shutdown)) {
        /* exit(): all frames up to here have been left in order, so the loop can go on */
        zend_clear_exception();
        return;
    }
    if (!exits) {
        /* Handled and reported without a frame, as at the end of a script. Only then does the engine report an
         * exception that leaves the handler, or that a property of the exception throws when it becomes a string. */
        zend_execute_data *frame = EG(current_execute_data);
        EG(current_execute_data) = NULL;
        if (Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
            zend_user_exception_handler();
        }
        if (EG(exception) != NULL && !zend_is_unwind_exit(EG(exception))) {
            zend_exception_error(EG(exception), E_ERROR);
        }
        EG(current_execute_data) = frame;
    }
    /* else the engine unwinds the stack after a fatal error instead of jumping (memory_limit); shutdown functions are not called while it does */
    zend_clear_exception();
    zend_bailout();
}

void script_request_call(zend_fcall_info *fci, zend_fcall_info_cache *fcc) {
    zval result;
    ZVAL_UNDEF(&result);
    fci->retval = &result;
    zend_call_function(fci, fcc);
    zval_ptr_dtor(&result);
    settle_exception();
}

/* Whatever bails out in here ends in the model's zend_try, which completes the answer. */
void script_request_answer(uint8_t flags) {
    boot_state_run_shutdown_functions();
    settle_exception();
    if (!response_ended()) {
        php_output_end_all();
        settle_exception();
    }
    boot_state_end_session();
    settle_exception();
    if (!response_ended()) {
        if (!response_has_head()) {
            php_header();
            settle_exception();
        }
        response_end(flags);
    }
}
