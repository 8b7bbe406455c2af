/* One process with a worker script, in the models "worker", "prespawn", "fork" and "snapshot". The script boots once and calls
 * hearth_handle_request() in a loop. The models differ in the process that boots it, and in the steps after a request: struct worker_model.
 *
 * An entry script (options.h) calls hearth_await_request() once instead, and goes on from there: await.h.
 *
 * Promises
 * - However a handler ends, its answer is complete. The loop's code after a handler (terminate) still runs.
 * - A script that ends before its first request ends the process with EXIT_BOOT and a log line that says why.
 */
#ifndef HEARTH_SAPI_MODELS_WORKER_RUN_H
#define HEARTH_SAPI_MODELS_WORKER_RUN_H

#include <php.h>
#include <stdbool.h>
#include <stdint.h>

#include "sapi/options.h"

/* The handler that the script has given to hearth_handle_request(). Borrowed: both. */
struct worker_call {
    zend_fcall_info *fci;
    zend_fcall_info_cache *fcc;
};

struct worker_run {
    const struct options *options;
    const struct worker_model *model;
    enum {
        BOOTING, /* the script runs up to its first hearth_handle_request() */
        IDLE,    /* between two requests: the script's own code */
        SERVING, /* a handler runs */
        CLOSED,  /* the server sends no more requests; the script may end */
    } state;
    bool is_worker; /* not the zygote of `fork` and `snapshot` */
    bool
        served; /* `prespawn`, `fork`, `snapshot`: the request has been answered, and not yet cleaned up */
};

/* The steps in which models differ. Those marked "or NULL" exist for some models only. */
struct worker_model {
    bool keeps_state; /* the next request sees the script's state */
    /* Before the script boots, or NULL. */
    void (*begin)(const struct worker_run *run);
    /* hearth_handle_request(), after the boot. False: the script's loop is to end, or an exception was thrown. */
    bool (*handle)(struct worker_run *run, struct worker_call call);
    /* hearth_await_request(), in an entry script. False: with an exception. NULL: this model cannot. */
    bool (*await)(struct worker_run *run);
    /* Flags of the frame END: whether the server may use this process for the next request at once. */
    uint8_t (*end_flags)(void);
    /* The script has ended, the engine's request has not. Or NULL. */
    void (*script_ended)(const struct worker_run *run);
    /* The script boots once more, in the zygote. Or NULL. */
    void (*boot_again)(void);

    /* The rest is for models whose zygote boots the script (boot_ahead.h); NULL in others. */

    /* Called in the zygote at the wait point. Ends it with EXIT_UNFIT if the application cannot be forked in this model. */
    void (*prepare_forks)(const struct worker_run *run);
    /* Called in a worker whose memory is in the state after the boot: sends READY when it is due, and returns when the next request may be
     * read. */
    void (*wait)(void);
    /* The server sends no more requests. Or NULL. */
    void (*say_statistics)(void);
    /* The request has ended, its answer is sent, and its effects outside memory are cleaned up. */
    void (*end_life)(void);
    bool keeps_connections; /* to databases, over the end of a life */
};

/* Serves until the server sends no more requests. In the zygote of `fork` and `snapshot` it boots the script and forks; it returns only in a
 * worker. Returns the exit code. Static: options. */
int worker_run_script(const struct options *options);

/* Runs the callbacks of hearth_on_worker_start(). Returns whether none failed. May leave an exception of the script behind. */
bool worker_run_start_callbacks(void);
/* In `worker` and `prespawn`: announces the process if the server does not know of it, and receives a request. False if the server sends no
 * more requests. */
bool worker_run_await(struct worker_run *run);
/* Calls the handler for the request that was received and answers. False: the body broke off before PHP had read it, or PHP could not keep it,
 * and the handler was not called. The script must not notice: runners' code after a handler belongs to a request that the handler has had. */
bool worker_run_serve(struct worker_run *run, struct worker_call call);
/* Resets the engine's state between two requests of a script that continues. */
void worker_run_clean_up(void);
/* The boot of an entry script is over: the script continues with a request from here. */
void worker_run_continues(struct worker_run *run);
/* Values of `end_flags`. */
uint8_t worker_run_is_ready(void);
uint8_t worker_run_is_over(void);

#endif
