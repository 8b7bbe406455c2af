/* See worker_model.h. */
#include "sapi/models/worker_model.h"

#include "ext/curl/egress.h"

static void begin(const struct worker_run *run) {
    (void)run;
    egress_connect();
}

static bool handle(struct worker_run *run, struct worker_call call) {
    bool called = false;
    while (!called) {
        if (!worker_run_await(run)) {
            return false;
        }
        called = worker_run_serve(run, call);
        worker_run_clean_up();
    }
    return true;
}

const struct worker_model worker_model = {
    .keeps_state = true,
    .begin = begin,
    .handle = handle,
    .end_flags = worker_run_is_ready,
};
