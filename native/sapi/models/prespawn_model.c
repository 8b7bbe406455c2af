/* See prespawn_model.h. */
#include "sapi/models/prespawn_model.h"

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

const struct worker_model prespawn_model = {
    .handle = handle,
    .end_flags = worker_run_is_over,
};
