/* See worker_model.h. */
#include "worker_model.h"

#include <SAPI.h>
#include <php.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zend_exceptions.h>

#include "boot_descriptors.h"
#include "boot_state.h"
#include "channel.h"
#include "compat.h"
#include "databases.h"
#include "databases_guard.h"
#include "ext/curl/egress.h"
#include "ext/host.h"
#include "log.h"
#include "prefault.h"
#include "randomness.h"
#include "rehearsal.h"
#include "request.h"
#include "request_leavings.h"
#include "response.h"
#include "sapi_module.h"
#include "script_request.h"
#include "snapshot_model.h"
#include "variables.h"
#include "worker.h"
#include "zend_memory.h"
#include "zygote.h"

static enum {
    BOOTING, /* the script runs up to its first hearth_handle_request() */
    IDLE,    /* between two requests: the script's own code */
    SERVING, /* a handler runs */
    CLOSED,  /* the server wants no more; the script may end */
} state;

static const struct options *options;
static bool is_worker; /* not the zygote of D and S */
static bool announced; /* the first READY is out */
static unsigned warm_ups_left;
static uint8_t *warm_up_frames;
static size_t warm_up_len;
static bool rehearses;     /* this is the throwaway fork that serves them */
static bool waits_shortly; /* for databases that warm-ups connect to */
static bool served;        /* C, D, S: the request has been answered, and not yet cleaned up */

static zval start_callbacks; /* array of hearth_on_worker_start() */

static void send_ready(void) {
    struct frame_buffer ready = {0};
    frame_write_empty(&ready, FRAME_READY);
    channel_send_buffer(&ready);
    frame_buffer_free(&ready);
}

/* A: the engine's state between two requests. */
static void clean_up(void) {
    script_request_close_body();
    script_request_close();
    boot_state_restore();
    script_request_forget_last_error();
    EG(exit_status) = 0;
    request_release();
    script_request_open_idle();
}

/* What a callback throws is logged, and does not end the worker. Returns whether that was needed. */
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

/* Returns whether none failed. */
static bool run_start_callbacks(void) {
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

/* Whether the server may count on this process for the next request at once. */
static uint8_t end_flags(void) {
    if (options->model == MODEL_SNAPSHOT && databases_prove_late()) {
        return FRAME_FLAG_BUSY; /* READY comes with the proof */
    }
    return model_is_one_shot(options->model) ? 0 : FRAME_FLAG_READY;
}

/* False: the body broke off before PHP had read it, or PHP could not keep it, and the handler was not called. The script is not to hear of
 * it: what runners do behind their handler belongs to a request that it has had. */
static bool serve(zend_fcall_info *fci, zend_fcall_info_cache *fcc) {
    state = SERVING;
    script_request_begin();
    bool whole = !request_is_cut() && !module_body_is_lost();
    if (whole) {
        script_request_call(fci, fcc);
    } else if (request_is_cut()) {
        SG(sapi_headers).http_response_code = 400; /* the server has answered the client */
    } else {
        module_refuse_lost_body();
    }
    script_request_answer(end_flags());
    state = IDLE;
    return whole;
}

/* D and S, in the zygote: one of the server's synthetic requests, served as any other; its answer goes nowhere. The script's loop
 * comes back for the next one, so what it does behind a handler is done as well. */
static bool serve_warm_up(zend_fcall_info *fci, zend_fcall_info_cache *fcc) {
    warm_ups_left--;
    if (!request_receive()) {
        _exit(0);
    }
    script_request_close();
    serve(fci, fcc);
    clean_up();
    return true;
}

/* D and S, in the zygote: forks workers from here. Returns in one of them. */
static void fork_workers(void) {
    databases_leave();
    boot_descriptors_report();
    if (!process_has_one_thread()) {
        log_line(LOG_ERR, LOG_SOURCE_WORKER,
            "the application started threads while it booted, and a process with threads cannot be "
            "forked");
        _exit(EXIT_UNFIT);
    }
    randomness_prepare(); /* libraries that the boot has loaded */
    if (options->model == MODEL_SNAPSHOT && randomness_obstacle() != NULL) {
        log_line(LOG_ERR, LOG_SOURCE_WORKER,
            "a snapshot would repeat random numbers: %s; the model fork would not",
            randomness_obstacle());
        _exit(EXIT_UNFIT);
    }
    if (options->model == MODEL_SNAPSHOT && !zend_memory_is_known()) {
        log_line(LOG_NOTICE, LOG_SOURCE_WORKER,
            "PHP %s keeps its free memory otherwise than is known: each request has more to be put "
            "back than it needs to",
            module_php_version());
    }
    if (options->model == MODEL_FORK) {
        prefault_prepare();
    }
    databases_guard_open();
    if (options->model == MODEL_SNAPSHOT) {
        snapshot_model_share();
    }
    zygote_run(SERVER, options->confine);
    is_worker = true;
    worker_begin();
    boot_descriptors_isolate();
    boot_descriptors_mark();
}

/* The script's first hearth_handle_request(). False: with an exception of the boot's own callbacks. */
static bool end_boot(void) {
    if (!model_boots_ahead(options->model)) {
        run_start_callbacks();
        if (EG(exception) != NULL) {
            return false;
        }
    }
    settle_boot();
    state = IDLE;
    return true;
}

/* D and S: the wait point. Returns in a worker. False: with an exception of the callbacks that a worker starts with. */
static bool become_worker(void) {
    state = BOOTING;
    fork_workers();
    databases_open(options->model == MODEL_SNAPSHOT);
    databases_start();
    bool worked = run_start_callbacks();
    if (EG(exception) != NULL) {
        return false;
    }
    if (worked && databases_guard_started()) {
        log_line(
            LOG_NOTICE, LOG_SOURCE_WORKER, "the callbacks of hearth_on_worker_start() work again");
    }
    databases_settle(worked);
    script_request_close_body();
    script_request_close();
    module_clear_request_info();
    script_request_empty_superglobals();
    if (options->model == MODEL_SNAPSHOT) {
        script_request_gather_superglobals();
    }
    script_request_forget_last_error();
    state = IDLE;
    return true;
}

/* D and S: in the throwaway fork. */
static _Noreturn void end_rehearsal(void) {
    databases_end_request();
    rehearsal_end();
}

/* C, D, S: what the request and the loop's code behind it have left outside the process's memory. */
static void end_life(void) {
    request_leavings_clear();
    request_release();
    if (options->model == MODEL_FORK || channel_is_left()) {
        if (!channel_is_left()) {
            databases_end_request();
            prefault_learn();
        }
        fflush(NULL);
        _exit(0);
    }
    databases_end_request();
    if (response_was_busy() && !databases_announce_later()) {
        send_ready();
    }
    zend_memory_learn();
    snapshot_model_restore();
}

/* D and S: a fatal error or an uncaught exception: the rest of the answer is sent. */
static void end_after_bailout(void) {
    module_complete_answer(end_flags(), false);
    end_life();
}

/* D and S: the script has ended in a worker, by an exit in its loop. */
static void end_script_of_fork(void) {
    if (!request_present()) {
        log_line(LOG_CRIT, LOG_SOURCE_WORKER,
            "the worker script %s ended before it took its first request", options->script);
        _exit(EXIT_BOOT);
    }
    end_after_bailout();
}

/* A and C: receives in a loop that runs on. */
static bool serve_next(zend_fcall_info *fci, zend_fcall_info_cache *fcc) {
    bool called = false;
    while (!called) {
        /* a script that ended by itself between two requests boots again silently: the server may have sent a request already */
        bool announce = !announced || response_was_busy();
        if (served) {
            state = CLOSED; /* C */
            return false;
        }
        php_output_end_all();
        if (announce) {
            announced = true;
            send_ready();
        }
        if (!request_receive()) {
            state = CLOSED;
            return false;
        }
        script_request_close();
        served = options->model == MODEL_PRESPAWN;
        called = serve(fci, fcc);
        clean_up();
    }
    return true;
}

/* D and S: the memory is as the boot left it, each time. */
static bool serve_from_boot(zend_fcall_info *fci, zend_fcall_info_cache *fcc) {
    request_leavings_mark();
    if (options->model == MODEL_SNAPSHOT) {
        script_request_start_limit();
        if (snapshot_model_take()) {
            send_ready();
        }
        if (databases_await()) {
            send_ready();
        }
        snapshot_model_wait();
        databases_wait();
        zend_memory_refill();
    } else {
        prefault_populate();
        send_ready();
    }
    if (!request_receive()) {
        snapshot_model_say_statistics();
        databases_say_statistics();
        databases_close();
        _exit(0);
    }
    served = true;
    volatile bool whole = false;
    volatile bool called = false;
    zend_try {
        called = serve(fci, fcc);
        whole = true;
    }
    zend_end_try();
    if (!whole) {
        /* Caught here and not at the script's end, where the engine closes the script's own file, which belongs to the boot. */
        end_after_bailout();
    }
    if (!called) {
        end_life();
    }
    return true;
}

/* D and S, before the first warm-up: a server that answers nothing must not keep the zygote from its boot. */
static void wait_for_no_silent_server(void) {
    if (!waits_shortly) {
        waits_shortly = true;
        databases_guard_open();
        if (!rehearses) {
            databases_open(false);
        }
        databases_start();
    }
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
    if (state == BOOTING && !end_boot()) {
        return false;
    }
    if (!model_boots_ahead(options->model)) {
        return serve_next(fci, fcc);
    }
    if (!is_worker) {
        if (options->rehearse && warm_ups_left > 0 && !rehearses) {
            databases_guard_open(); /* what the rehearsal finds out, workers know */
            rehearses = rehearsal_begin();
            if (rehearses) {
                databases_open(false);
            }
            warm_ups_left = rehearses ? warm_ups_left : 0;
            channel_replay(warm_up_frames, warm_up_len);
        }
        if (warm_ups_left > 0) {
            wait_for_no_silent_server();
            return serve_warm_up(fci, fcc);
        }
        if (rehearses) {
            end_rehearsal();
        }
        if (!become_worker()) {
            return false;
        }
    }
    if (served) {
        end_life();
    }
    return serve_from_boot(fci, fcc);
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

static bool publish(const struct hearth_event *event) {
    return is_worker && module_publish(event);
}

static struct hearth_host host = {
    .handle_request = handle_request,
    .finish_request = module_finish_request,
    .each_variable = module_each_variable,
    .inform = module_inform,
    .log = module_log,
    .publish = publish,
    .on_worker_start = on_worker_start,
    .keep_connection = databases_keep,
    .runs_on = true,
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
    if (is_worker && model_boots_ahead(options->model)) {
        end_script_of_fork();
    }
    if (rehearses) {
        end_rehearsal();
    }
    boot_state_release();
    if (request_present()) {
        /* A fatal error or an uncaught exception in the handler. The script boots again: no request can be taken before that. */
        module_complete_answer(model_is_one_shot(options->model) ? 0 : FRAME_FLAG_BUSY, true);
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

int worker_model_run(const struct options *given) {
    options = given;
    host.keeps_state = options->model == MODEL_WORKER;
    hearth_host = &host;
    variables_set_script(options->script);
    is_worker = !model_boots_ahead(options->model);
    if (options->model == MODEL_WORKER) {
        egress_connect();
    }
    if (!is_worker && options->warm_up > 0) {
        channel_open(SERVER);
        request_prepare();
        response_prepare();
        warm_up_frames = channel_collect(options->warm_up, &warm_up_len);
        warm_ups_left = warm_up_frames != NULL ? options->warm_up : 0;
        channel_replay(warm_up_frames, warm_up_len);
    }
    for (;;) {
        struct stat entry;
        if (stat(options->script, &entry) != 0 || !S_ISREG(entry.st_mode)) {
            log_line(LOG_CRIT, LOG_SOURCE_WORKER, "no such worker script: %s", options->script);
            return EXIT_BOOT;
        }
        run_script(options->script);
        if (state == CLOSED || (is_worker && served)) {
            return 0;
        }
        if (state == BOOTING) {
            log_line(LOG_CRIT, LOG_SOURCE_WORKER,
                "the worker script %s ended before it called hearth_handle_request()",
                options->script);
            return EXIT_BOOT;
        }
        if (!is_worker) {
            /* a boot that has served a warm-up badly is not forked */
            log_line(LOG_WARNING, LOG_SOURCE_WORKER,
                "a warm-up request ended the worker script: it boots again and is not warmed up");
            warm_ups_left = 0;
        }
    }
}
