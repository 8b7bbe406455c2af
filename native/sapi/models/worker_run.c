/* See worker_run.h. */
#include "sapi/models/worker_run.h"

#include <SAPI.h>
#include <php.h>
#include <php_main.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zend_exceptions.h>

#include "ext/host.h"
#include "sapi/boot/boot_state.h"
#include "sapi/boot/boot_trace.h"
#include "sapi/boot/included_files.h"
#include "sapi/databases/databases.h"
#include "sapi/databases/guard.h"
#include "sapi/models/await.h"
#include "sapi/models/fork_model.h"
#include "sapi/models/prespawn_model.h"
#include "sapi/models/snapshot_model.h"
#include "sapi/models/worker_model.h"
#include "sapi/output/boot_output.h"
#include "sapi/output/log.h"
#include "sapi/output/response.h"
#include "sapi/request/channel.h"
#include "sapi/request/debugger.h"
#include "sapi/request/request.h"
#include "sapi/request/script_request.h"
#include "sapi/request/variables.h"
#include "sapi/sapi_module.h"

static struct worker_run run;
static bool announced;       /* the first READY is out */
static zval start_callbacks; /* array of hearth_on_worker_start() */
/* For the rest of an entry script, which ends with its request. */
static struct hearth_host continued;

void worker_run_clean_up(void) {
    script_request_close_body();
    script_request_close();
    boot_state_restore();
    script_request_forget_last_error();
    if (!channel_is_left()) {
        EG(exit_status) = 0;
    }
    request_release();
    script_request_open_idle();
}

/* Logs an exception of a callback, which does not end the worker. Returns whether there was one. */
static bool forgive(void) {
    zend_object *thrown = EG(exception);
    if (thrown == NULL || zend_is_unwind_exit(thrown)) {
        return false;
    }
    zval unused;
    zval *message = zend_read_property(thrown->ce, thrown, ZEND_STRL("message"), true, &unused);
    /* once: while a database is down all workers find the same */
    log_line(databases_guard_is_first_failure() ? LOG_WARNING : LOG_DEBUG, LOG_SOURCE_WORKER,
        "a callback of hearth_on_worker_start() failed: %s: %s", ZSTR_VAL(thrown->ce->name),
        Z_TYPE_P(message) == IS_STRING ? Z_STRVAL_P(message) : "");
    zend_clear_exception();
    return true;
}

bool worker_run_start_callbacks(void) {
    bool worked = true;
    zval callbacks;
    ZVAL_COPY_VALUE(&callbacks, &start_callbacks);
    ZVAL_UNDEF(&start_callbacks);
    if (Z_TYPE(callbacks) != IS_ARRAY) {
        return true;
    }
    zval *callback;
    ZEND_HASH_FOREACH_VAL(Z_ARRVAL(callbacks), callback) {
        zval result;
        ZVAL_UNDEF(&result);
        if (EG(exception) == NULL) {
            call_user_function(NULL, NULL, callback, &result, 0, NULL);
            worked = !forgive() && worked;
        }
        zval_ptr_dtor(&result);
    }
    ZEND_HASH_FOREACH_END();
    zval_ptr_dtor(&callbacks);
    return worked;
}

/* The boot is over: its output is flushed, its session closed, its settings remembered. */
static void settle_boot(void) {
    script_request_close_body();
    boot_state_remember();
    boot_state_end_session();
    script_request_close();
    boot_state_restore();
    script_request_forget_last_error();
    script_request_open_idle();
}

/* The script's first hearth_handle_request(). False: with an exception of the boot's own callbacks. */
static bool end_boot(void) {
    boot_trace_end();
    if (!model_boots_ahead(run.options->model)) {
        worker_run_start_callbacks();
        if (EG(exception) != NULL) {
            return false;
        }
        if (run.options->report_files) {
            included_files_report();
        }
    }
    settle_boot();
    run.state = IDLE;
    return true;
}

uint8_t worker_run_is_ready(void) {
    return FRAME_FLAG_READY;
}

uint8_t worker_run_is_over(void) {
    return 0;
}

bool worker_run_await(struct worker_run *process) {
    /* a script that ended between two requests boots again silently: the server may have sent a
     * request already */
    bool announce = !announced || response_was_busy();
    php_output_end_all();
    if (announce) {
        announced = true;
        channel_send_ready();
    }
    if (!request_receive()) {
        process->state = CLOSED;
        return false;
    }
    script_request_close();
    return true;
}

bool worker_run_serve(struct worker_run *process, struct worker_call call) {
    process->state = SERVING;
    script_request_begin();
    bool whole = !request_is_cut() && !module_body_is_lost();
    if (whole) {
        if (process->is_worker) {
            debugger_connect();
        }
        script_request_call(call.fci, call.fcc);
    } else if (request_is_cut()) {
        SG(sapi_headers).http_response_code = 400; /* the server has answered the client */
    } else {
        module_refuse_lost_body();
    }
    script_request_answer(process->model->end_flags());
    process->state = IDLE;
    return whole;
}

static bool handle_request(zend_fcall_info *fci, zend_fcall_info_cache *fcc) {
    if (run.options->document_root != NULL) {
        zend_throw_error(NULL,
            "%s() is for worker scripts, and this one waits by hearth_await_request()",
            get_active_function_name());
        return false;
    }
    if (run.state == SERVING) {
        zend_throw_error(
            NULL, "%s() cannot be called while it handles a request", get_active_function_name());
        return false;
    }
    if (run.state == CLOSED) {
        /* a loop that does not look at the result must end too */
        zend_throw_unwind_exit();
        return false;
    }
    if (run.state == BOOTING && !end_boot()) {
        return false;
    }
    return run.model->handle(&run, (struct worker_call){fci, fcc});
}

void worker_run_continues(struct worker_run *process) {
    process->state = SERVING;
    process->served = true;
    hearth_host = &continued;
    if (process->is_worker) {
        debugger_connect();
    }
}

static bool await_request(void) {
    if (run.options->document_root == NULL) {
        zend_throw_error(NULL,
            "hearth_await_request() waits in a script of the application, and this is a worker "
            "script: use hearth_handle_request()");
        return false;
    }
    if (run.state != BOOTING || !await_is_possible(&run)) {
        return false;
    }
    boot_trace_end();
    return run.model->await(&run);
}

static bool on_worker_start(zval *callback) {
    if (run.state != BOOTING) {
        return false;
    }
    if (Z_TYPE(start_callbacks) != IS_ARRAY) {
        array_init(&start_callbacks);
    }
    Z_TRY_ADDREF_P(callback);
    zend_hash_next_index_insert(Z_ARRVAL(start_callbacks), callback);
    return true;
}

static bool publish(const struct hearth_event *event) {
    return run.is_worker && module_publish(event);
}

static bool purge(zval *tags, size_t count) {
    return run.is_worker && module_purge(tags, count);
}

static struct hearth_host host = {
    .await_request = await_request,
    .handle_request = handle_request,
    .finish_request = module_finish_request,
    .each_variable = module_each_variable,
    .inform = module_inform,
    .log = module_log,
    .publish = publish,
    .purge = purge,
    .on_worker_start = on_worker_start,
    .keep_connection = databases_keep,
    .keep_files = databases_keep_files,
    .add_server_variables = variables_add,
    .runs_on = true,
};

/* One life of the script, from its first line to the engine's shutdown. */
static void run_script(const char *script) {
    module_clear_request_info();
    SG(request_info).request_method = "GET";
    SG(request_info).path_translated = (char *)script;
    SG(sapi_headers).http_response_code = 200;
    run.state = BOOTING;
    ZVAL_UNDEF(&start_callbacks);
    if (run.options->trace_boot) {
        boot_trace_begin();
    }
    if (run.options->document_root != NULL) {
        await_begin_boot(&run);
    }
    if (php_request_startup() == SUCCESS) {
        SG(request_info).no_headers = run.options->document_root == NULL;
        module_execute(script);
    }
    if (run.model->script_ended != NULL) {
        run.model->script_ended(&run);
    }
    boot_state_release();
    if (request_present()) {
        /* A fatal error or an uncaught exception in the handler. The script boots again: no request can be taken before that. */
        module_complete_answer(model_is_one_shot(run.options->model) ? 0 : FRAME_FLAG_BUSY, true);
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

static void say_why_no_request(const struct options *options) {
    if (options->document_root == NULL) {
        log_line(LOG_CRIT, LOG_SOURCE_WORKER,
            "the worker script %s ended before it called hearth_handle_request()", options->script);
        return;
    }
    boot_output_print();
    log_line(LOG_CRIT, LOG_SOURCE_WORKER, "the script %s ended before it %s%s", options->script,
        options->await_after != NULL ? "included " : "called hearth_await_request()",
        options->await_after != NULL ? options->await_after : "");
}

int worker_run_script(const struct options *options) {
    static const struct worker_model *const models[] = {
        [MODEL_WORKER] = &worker_model,
        [MODEL_PRESPAWN] = &prespawn_model,
        [MODEL_FORK] = &fork_model,
        [MODEL_SNAPSHOT] = &snapshot_model,
    };
    run.options = options;
    run.model = models[options->model];
    run.is_worker = !model_boots_ahead(options->model);
    host.keeps_state = run.model->keeps_state;
    hearth_host = &host;
    continued = host;
    continued.runs_on = false;
    if (options->document_root == NULL) {
        variables_set_script(options->script);
    }
    debugger_prepare();
    if (run.model->begin != NULL) {
        run.model->begin(&run);
    }
    for (;;) {
        struct stat entry;
        if (stat(options->script, &entry) != 0 || !S_ISREG(entry.st_mode)) {
            log_line(LOG_CRIT, LOG_SOURCE_WORKER, "no such worker script: %s", options->script);
            return EXIT_BOOT;
        }
        run_script(options->script);
        if (run.state == CLOSED || (run.is_worker && run.served)) {
            return module_exit_status();
        }
        if (run.state == BOOTING) {
            say_why_no_request(options);
            return EXIT_BOOT;
        }
        if (run.model->boot_again != NULL) {
            run.model->boot_again();
        }
    }
}
