/* See prespawn_model.h. */
#include "sapi/models/prespawn_model.h"

#include <unistd.h>

#include "sapi/boot/included_files.h"
#include "sapi/models/await.h"
#include "sapi/output/response.h"
#include "sapi/request/channel.h"
#include "sapi/request/request.h"

static bool handle(struct worker_run *run, struct worker_call call) {
    if (run->served || !worker_run_await(run)) {
        run->state = CLOSED;
        return false;
    }
    run->served = true;
    bool called = worker_run_serve(run, call);
    worker_run_clean_up();
    if (!called) {
        run->state = CLOSED;
    }
    return called;
}

static bool await(struct worker_run *run) {
    worker_run_start_callbacks();
    if (EG(exception) != NULL) {
        return false;
    }
    if (run->options->report_files) {
        included_files_report();
    }
    await_settle_boot();
    channel_send_ready();
    if (!request_receive()) {
        _exit(0);
    }
    if (!await_begin_request()) {
        response_end(0);
        _exit(0);
    }
    worker_run_continues(run);
    return true;
}

const struct worker_model prespawn_model = {
    .handle = handle,
    .await = await,
    .end_flags = worker_run_is_over,
};
