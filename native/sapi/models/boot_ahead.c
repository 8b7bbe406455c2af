/* See boot_ahead.h. */
#include "sapi/models/boot_ahead.h"

#include <SAPI.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sapi/boot/boot_descriptors.h"
#include "sapi/boot/included_files.h"
#include "sapi/boot/randomness.h"
#include "sapi/boot/rehearsal.h"
#include "sapi/boot/worker.h"
#include "sapi/boot/zygote.h"
#include "sapi/databases/databases.h"
#include "sapi/databases/guard.h"
#include "sapi/models/await.h"
#include "sapi/output/log.h"
#include "sapi/output/response.h"
#include "sapi/request/channel.h"
#include "sapi/request/request.h"
#include "sapi/request/request_cleanup.h"
#include "sapi/request/script_request.h"
#include "sapi/sapi_module.h"

static struct {
    unsigned left;
    unsigned count;
    uint8_t *frames;
    size_t len;
    char path[256];   /* of the last one; empty before the first */
    char reason[512]; /* of the last PHP error in it */
} warm_ups;
enum { FIRST_ERROR = 500 }; /* of HTTP's status codes that blame the server */
static bool rehearses;      /* this is the throwaway fork that serves them */
static bool waits_shortly;  /* for databases that warm-ups connect to */

void boot_ahead_begin(const struct worker_run *run) {
    unsigned count = run->options->warm_up;
    if (count > 0) {
        channel_open(SERVER);
        request_prepare();
        response_prepare();
        warm_ups.frames = channel_collect(count, &warm_ups.len);
        warm_ups.count = warm_ups.left = warm_ups.frames != NULL ? count : 0;
        channel_replay(warm_ups.frames, warm_ups.len);
    }
}

/* Remembers why the last warm-up failed: the first line of PHP's last error. */
static void keep_reason(void) {
    const char *text = "the application's own log may say why";
    if (PG(last_error_message) != NULL) {
        text = ZSTR_VAL(PG(last_error_message));
    }
    snprintf(warm_ups.reason, sizeof(warm_ups.reason), "%.*s", (int)strcspn(text, "\n"), text);
}

void boot_ahead_again(void) {
    /* a boot that has served a warm-up badly is not forked */
    log_line(LOG_WARNING, LOG_SOURCE_WORKER,
        "the warm-up request GET %s ended the worker script (%s): it boots again and is not warmed "
        "up",
        warm_ups.path, warm_ups.reason);
    warm_ups.left = 0;
}

static void judge_warm_up(void) {
    int status = SG(sapi_headers).http_response_code;
    if (status >= FIRST_ERROR) {
        keep_reason();
        log_line(LOG_WARNING, LOG_SOURCE_WORKER,
            "the warm-up request GET %s was answered with status %d: %s", warm_ups.path, status,
            warm_ups.reason);
    }
}

static void receive_warm_up(void) {
    warm_ups.left--;
    if (!request_receive()) {
        _exit(0);
    }
    const char *path = REQUEST_VARIABLE("REQUEST_URI");
    snprintf(warm_ups.path, sizeof(warm_ups.path), "%s", path != NULL ? path : "/");
}

/* Runs in the zygote: serves one of the server's synthetic requests like any other, and discards
 * its answer. The script's loop continues to the next one, so its work after a handler is done as
 * well. */
static bool serve_warm_up(struct worker_run *run, struct worker_call call) {
    receive_warm_up();
    script_request_close();
    worker_run_serve(run, call);
    judge_warm_up();
    worker_run_clean_up();
    return true;
}

/* Runs in the zygote: forks workers from here. Returns in a worker. */
static void fork_workers(const struct worker_run *run) {
    databases_leave();
    boot_descriptors_report();
    if (run->options->report_files) {
        included_files_report();
    }
    if (!process_has_one_thread()) {
        char names[256];
        process_thread_names(names, sizeof names);
        log_line(LOG_ERR, LOG_SOURCE_WORKER,
            "the application started threads while it booted (%s), and a process with threads "
            "cannot be forked; docs/extensions.md names extensions that do this",
            names);
        _exit(EXIT_UNFIT);
    }
    randomness_prepare(); /* libraries that the boot has loaded */
    randomness_forget();
    databases_guard_open();
    run->model->prepare_forks(run);
    /* of the boot, which ends here. The zygote must not be ended by it, and a worker begins with a limit of its own. */
    zend_unset_timeout();
    zygote_run(SERVER, run->options->confine);
    worker_begin();
    boot_descriptors_isolate();
    boot_descriptors_mark();
}

/* The wait point. Returns in a worker. False: with an exception of the callbacks that a worker starts with. */
static bool become_worker(struct worker_run *run) {
    run->state = BOOTING;
    fork_workers(run);
    run->is_worker = true;
    databases_open(run->model->keeps_connections);
    databases_start();
    bool worked = worker_run_start_callbacks();
    if (EG(exception) != NULL) {
        return false;
    }
    if (worked && databases_guard_started()) {
        log_line(
            LOG_NOTICE, LOG_SOURCE_WORKER, "the callbacks of hearth_on_worker_start() work again");
    }
    databases_settle(worked);
    if (run->options->document_root == NULL) {
        script_request_close_body();
        script_request_close();
        module_clear_request_info();
        script_request_forget_last_error();
        run->state = IDLE;
    }
    script_request_empty_superglobals();
    return true;
}

/* Runs in the temporary fork. */
static _Noreturn void end_rehearsal(void) {
    databases_end_request();
    rehearsal_end();
}

/* Cleans up what the request, and the loop's code behind it, have left outside the process's
 * memory. Does not return. */
static void end_life(const struct worker_run *run) {
    request_cleanup_clear();
    request_release();
    if (channel_is_left()) {
        fflush(NULL);
        _exit(module_exit_status());
    }
    databases_end_request();
    run->model->end_life();
}

/* A fatal error or an uncaught exception: the rest of the answer is sent. Does not return. */
static void end_after_bailout(const struct worker_run *run) {
    module_complete_answer(run->model->end_flags(), false);
    end_life(run);
}

/* An entry script has come to its end, with a client's request or with a warm-up. */
static void end_continued(const struct worker_run *run) {
    if (response_ended()) {
        module_end_script(true); /* hearth_finish_request() */
    } else {
        module_complete_answer(rehearses ? 0 : run->model->end_flags(), true);
    }
    if (rehearses) {
        judge_warm_up();
        end_rehearsal();
    }
    end_life(run);
}

/* Ends a worker, by an exit in its script's loop. */
void boot_ahead_script_ended(const struct worker_run *run) {
    if (run->options->document_root != NULL && request_present()) {
        end_continued(run);
    }
    if (run->is_worker) {
        if (!request_present()) {
            log_line(LOG_CRIT, LOG_SOURCE_WORKER,
                "the worker script %s ended before it took its first request",
                run->options->script);
            _exit(EXIT_BOOT);
        }
        end_after_bailout(run);
    }
    if (warm_ups.path[0] != '\0') {
        keep_reason();
    }
    if (rehearses) {
        log_line(LOG_WARNING, LOG_SOURCE_WORKER,
            "the warm-up request GET %s ended the worker script (%s)", warm_ups.path,
            warm_ups.reason);
        end_rehearsal();
    }
}

/* Each time, the memory is in the state after the boot. */
static void wait_for_request(const struct worker_run *run) {
    if (run->options->document_root != NULL) {
        request_cleanup_hold();
    }
    request_cleanup_mark();
    run->model->wait();
    if (!request_receive()) {
        if (run->model->say_statistics != NULL) {
            run->model->say_statistics();
        }
        databases_say_statistics();
        databases_close();
        _exit(0);
    }
}

static bool serve_from_boot(struct worker_run *run, struct worker_call call) {
    wait_for_request(run);
    run->served = true;
    volatile bool whole = false;
    volatile bool called = false;
    zend_try {
        called = worker_run_serve(run, call);
        whole = true;
    }
    zend_end_try();
    if (!whole) {
        /* Caught here and not at the script's end, where the engine closes the script's own file, which belongs to the boot. */
        end_after_bailout(run);
    }
    if (!called) {
        end_life(run);
    }
    return true;
}

/* Before the first warm-up: a server that answers nothing must not keep the zygote from its boot. */
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

/* Called in the zygote after the boot: the next warm-up is served in this process, or in the
 * temporary fork that it becomes. */
static bool has_warm_up(const struct options *options) {
    if (options->rehearse && warm_ups.left > 0 && !rehearses) {
        databases_guard_open(); /* workers get the rehearsal's results */
        rehearses = rehearsal_begin(true);
        if (rehearses) {
            databases_open(false);
        }
        warm_ups.left = rehearses ? warm_ups.left : 0;
        channel_replay(warm_ups.frames, warm_ups.len);
    }
    return warm_ups.left > 0;
}

/* An entry script ends with its request, so each warm-up has a temporary fork of its own. True: this is one, with its warm-up received. */
static bool becomes_rehearsal(bool learns_classes) {
    for (unsigned i = 0; i < warm_ups.count; i++) {
        databases_guard_open(); /* workers get the rehearsal's results */
        rehearses = rehearsal_begin(learns_classes);
        if (!rehearses) {
            continue;
        }
        databases_open(false);
        wait_for_no_silent_server();
        channel_replay(warm_ups.frames, warm_ups.len);
        for (unsigned before = 0; before < i; before++) {
            receive_warm_up();
            request_release();
        }
        receive_warm_up();
        return true;
    }
    return false;
}

bool boot_ahead_await(struct worker_run *run) {
    await_settle_boot();
    if (becomes_rehearsal(run->options->learn_classes)) {
        if (!await_begin_request()) {
            end_rehearsal();
        }
        worker_run_continues(run);
        return true;
    }
    if (!become_worker(run)) {
        return false;
    }
    wait_for_request(run);
    if (!await_begin_request()) {
        response_end(run->model->end_flags());
        end_life(run);
    }
    worker_run_continues(run);
    return true;
}

bool boot_ahead_handle(struct worker_run *run, struct worker_call call) {
    if (!run->is_worker) {
        if (has_warm_up(run->options)) {
            wait_for_no_silent_server();
            return serve_warm_up(run, call);
        }
        if (rehearses) {
            end_rehearsal();
        }
        if (!become_worker(run)) {
            return false;
        }
    }
    if (run->served) {
        end_life(run);
    }
    return serve_from_boot(run, call);
}
