/* See fork_model.h. */
#include "sapi/models/fork_model.h"

#include <stdio.h>
#include <unistd.h>

#include "sapi/models/boot_ahead.h"
#include "sapi/models/prefault.h"
#include "sapi/request/channel.h"

static void wait_for_request(void) {
    prefault_populate();
    channel_send_ready();
}

static void prepare_forks(const struct worker_run *run) {
    (void)run;
    prefault_prepare();
}

static _Noreturn void end_life(void) {
    prefault_learn();
    fflush(NULL);
    _exit(0);
}

const struct worker_model fork_model = {
    .begin = boot_ahead_begin,
    .handle = boot_ahead_handle,
    .await = boot_ahead_await,
    .end_flags = worker_run_is_over,
    .script_ended = boot_ahead_script_ended,
    .boot_again = boot_ahead_again,
    .prepare_forks = prepare_forks,
    .wait = wait_for_request,
    .end_life = end_life,
};
