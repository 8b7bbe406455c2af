/* See worker_model.h. */
#include "worker_model.h"

#include <SAPI.h>
#include <ext/standard/head.h>
#include <php.h>
#include <php_output.h>
#include <php_variables.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <zend_exceptions.h>

#include "boot_state.h"
#include "channel.h"
#include "compat.h"
#include "ext/host.h"
#include "log.h"
#include "options.h"
#include "request.h"
#include "response.h"
#include "sapi_module.h"
#include "variables.h"

static enum {
    BOOTING, /* the script runs up to its first hearth_handle_request() */
    IDLE,    /* between two requests: the script's own code */
    SERVING, /* a handler runs */
    CLOSED,  /* the server wants no more; the script may end */
} state;

static bool announced; /* the first READY is out */

static zval start_callbacks; /* array of hearth_on_worker_start() */

/* Puts SG() and the output layer into the state that a request begins with. php_request_startup(), main/main.c */
static void open_context(void) {
    php_output_activate();
    PG(header_is_being_sent) = 0;
    PG(connection_status) = PHP_CONNECTION_NORMAL;
    sapi_activate();
    SG(sapi_started) = 1;
}

/* Between requests: output goes to stdout, headers nowhere. */
static void open_idle_context(void) {
    module_clear_request_info();
    open_context();
    SG(request_info).no_headers = 1;
}

static void close_context(void) {
    php_output_end_all();
    php_output_deactivate();
    sapi_deactivate();
}

/* The engine leaves a request's body and the php://input streams on it to the end of the script. A handle that the application
 * has kept is closed first, because it points into the body. */
static void close_body(void) {
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

/* Makes the superglobals those of the request. php_hash_environment(), main/php_variables.c, without its leak: the old arrays
 * are let go first. $_ENV stays as the boot made it. */
static void import_superglobals(void) {
    zval env;
    ZVAL_COPY_VALUE(&env, &PG(http_globals)[TRACK_VARS_ENV]);
    for (int i = 0; i < NUM_TRACK_VARS; i++) {
        if (i != TRACK_VARS_ENV) {
            zval_ptr_dtor_nogc(&PG(http_globals)[i]);
        }
    }
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
}

static void start_output(void) {
    if (PG(expose_php)) {
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

static void begin_request(void) {
    close_context();
    module_clear_request_info();
    response_begin();
    module_fill_request_info();
    state = SERVING;
    /* counts CPU time, so it need not be stopped while the worker waits */
    zend_set_timeout(EG(timeout_seconds), 0);
    open_context();
    start_output();
    import_superglobals();
    boot_state_begin_session();
    zend_memory_reset_peak_usage();
}

static void forget_last_error(void) {
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

/* Deals with an exception that has left PHP code of the request. One that nobody caught is reported as the engine does at the
 * end of a script (zend_execute_scripts(), Zend/zend.c); the script itself does not go on after it. */
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
        if (Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
            zend_user_exception_handler();
        }
        if (EG(exception) != NULL && !zend_is_unwind_exit(EG(exception))) {
            zend_exception_error(EG(exception), E_ERROR);
        }
    }
    /* else the engine unwinds the stack after a fatal error instead of jumping (memory_limit) */
    zend_bailout();
}

/* Whatever bails out in here ends in run_script(), which completes the answer. */
static void end_request(void) {
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
        response_end(FRAME_FLAG_READY, zend_memory_peak_usage(true));
    }
    state = IDLE;
    close_body();
    close_context();
    boot_state_restore();
    forget_last_error();
    EG(exit_status) = 0;
    request_release();
    open_idle_context();
}

static void call_handler(zend_fcall_info *fci, zend_fcall_info_cache *fcc) {
    zval result;
    ZVAL_UNDEF(&result);
    fci->retval = &result;
    zend_call_function(fci, fcc);
    zval_ptr_dtor(&result);
    settle_exception();
}

static void run_start_callbacks(void) {
    zval callbacks;
    ZVAL_COPY_VALUE(&callbacks, &start_callbacks);
    ZVAL_UNDEF(&start_callbacks);
    if (Z_TYPE(callbacks) != IS_ARRAY) {
        return;
    }
    zval *callback;
    ZEND_HASH_FOREACH_VAL(Z_ARRVAL(callbacks), callback) {
        zval result;
        ZVAL_UNDEF(&result);
        if (EG(exception) == NULL) {
            call_user_function(NULL, NULL, callback, &result, 0, NULL);
        }
        zval_ptr_dtor(&result);
    }
    ZEND_HASH_FOREACH_END();
    zval_ptr_dtor(&callbacks);
}

/* The boot is over: its output is flushed, its session closed, its settings remembered. */
static void end_boot(void) {
    run_start_callbacks();
    if (EG(exception) != NULL) {
        return;
    }
    close_body();
    boot_state_remember();
    boot_state_end_session();
    close_context();
    boot_state_restore();
    forget_last_error();
    open_idle_context();
    state = IDLE;
}

static bool handle_request(zend_fcall_info *fci, zend_fcall_info_cache *fcc) {
    if (state == SERVING) {
        zend_throw_error(
            NULL, "%s() cannot be called while it handles a request", get_active_function_name());
        return false;
    }
    if (state == CLOSED) {
        /* a loop that does not look at the result must end too */
        zend_throw_unwind_exit();
        return false;
    }
    /* a script that ended of itself between two requests is booted anew without a word: the server may have written ahead */
    bool announce = !announced || response_was_busy();
    if (state == BOOTING) {
        end_boot();
        if (EG(exception) != NULL) {
            return false;
        }
    }
    php_output_end_all();
    if (announce) {
        announced = true;
        struct frame_buffer ready = {0};
        frame_write_empty(&ready, FRAME_READY);
        channel_send_buffer(&ready);
        frame_buffer_free(&ready);
    }
    if (!request_receive()) {
        state = CLOSED;
        return false;
    }
    begin_request();
    call_handler(fci, fcc);
    end_request();
    return true;
}

static bool on_worker_start(zval *callback) {
    if (state != BOOTING) {
        return false;
    }
    if (Z_TYPE(start_callbacks) != IS_ARRAY) {
        array_init(&start_callbacks);
    }
    Z_TRY_ADDREF_P(callback);
    zend_hash_next_index_insert(Z_ARRVAL(start_callbacks), callback);
    return true;
}

static const struct hearth_host host = {
    .handle_request = handle_request,
    .finish_request = module_finish_request,
    .each_variable = module_each_variable,
    .inform = module_inform,
    .log = module_log,
    .on_worker_start = on_worker_start,
    .keeps_state = true,
};

/* One life of the script, from its first line to the engine's shutdown. */
static void run_script(const char *script) {
    module_clear_request_info();
    SG(request_info).request_method = "GET";
    SG(request_info).path_translated = (char *)script;
    SG(sapi_headers).http_response_code = 200;
    state = BOOTING;
    ZVAL_UNDEF(&start_callbacks);
    if (php_request_startup() == SUCCESS) {
        SG(request_info).no_headers = 1;
        zend_try {
            zend_file_handle file;
            zend_stream_init_filename(&file, script);
            file.primary_script = 1;
            php_execute_script(&file);
            zend_destroy_file_handle(&file);
        }
        zend_end_try();
    }
    boot_state_release();
    if (request_present()) {
        /* a fatal error or an uncaught exception in the handler */
        /* the script is booted anew: no request can be taken before that */
        module_complete_answer(FRAME_FLAG_BUSY);
    }
    if (Z_TYPE(start_callbacks) == IS_ARRAY) {
        zval_ptr_dtor(&start_callbacks);
        ZVAL_UNDEF(&start_callbacks);
    }
    SG(request_info).path_translated = NULL;
    php_request_shutdown(NULL);
    module_clear_request_info();
    if (request_present()) {
        request_release();
    }
}

int worker_model_run(const char *script) {
    hearth_host = &host;
    variables_set_script(script);
    for (;;) {
        struct stat entry;
        if (stat(script, &entry) != 0 || !S_ISREG(entry.st_mode)) {
            log_line(LOG_CRIT, LOG_SOURCE_WORKER, "no such worker script: %s", script);
            return EXIT_BOOT;
        }
        run_script(script);
        if (state == CLOSED) {
            return 0;
        }
        if (state == BOOTING) {
            log_line(LOG_CRIT, LOG_SOURCE_WORKER,
                "the worker script %s ended before it called hearth_handle_request()", script);
            return EXIT_BOOT;
        }
    }
}
