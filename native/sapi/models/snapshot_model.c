/* See snapshot_model.h. */
#include "sapi/models/snapshot_model.h"

#include <php.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zend_ini.h>

#include "ext/curl/egress.h"
#include "sapi/boot/opcache_guard.h"
#include "sapi/boot/randomness.h"
#include "sapi/databases/connections.h"
#include "sapi/databases/databases.h"
#include "sapi/databases/guard.h"
#include "sapi/models/boot_ahead.h"
#include "sapi/models/cycle_collector.h"
#include "sapi/models/regex_cache.h"
#include "sapi/models/zend_memory.h"
#include "sapi/output/log.h"
#include "sapi/output/response.h"
#include "sapi/request/channel.h"
#include "sapi/request/request.h"
#include "sapi/request/script_request.h"
#include "sapi/request/shared_counters.h"
#include "sapi/sapi_module.h"
#include "snapshot/snapshot.h"

enum {
    RANGES = 16384,
    QUIET_MS = 20, /* no request for this long: there is time for a complete check */
    LATE_MS = 2,   /* a restore that is not urgent waits at most that long for the next request */
};

static bool asked(const char *name) {
    const char *value = getenv(name);
    return value != NULL && strcmp(value, "1") == 0;
}

static const char *setting(const char *name) {
    const char *value = zend_ini_string(name, strlen(name), 0);
    return value != NULL ? value : "";
}

/* `preload`, which is its default: only what opcache.preload names may use it. */
static bool ffi_may_run(void) {
    const char *enable = setting("ffi.enable");
    if (strcmp(enable, "preload") == 0) {
        return *setting("opcache.preload") != 0;
    }
    return *enable != 0 && strcmp(enable, "0") != 0;
}

static uint32_t verify_restores;

/* Shared by the workers of one zygote. */
static struct snapshot_hot_set *hot_set;

static uint64_t *requests; /* of this worker, in memory that no restore touches */

/* Runs on the engine's stack, with memory in any state: it may only make system calls. */
static void say(const char *what) {
    if (requests != NULL) {
        databases_guard_retired(*requests, databases_milliseconds());
    }
    const struct snapshot_verified *verified = shared_counters_verified();
    bool differs = verified != NULL && verified->differing != 0; /* then the process ends */
    channel_send_log(differs ? LOG_ERR : LOG_NOTICE, what, strlen(what));
}

void snapshot_model_prepare(uint32_t verifies) {
    verify_restores = verifies;
    /* Zend's chunks need not be zeroed: zend_mm_chunk_init() writes what it reads */
    snapshot_serve_arena((const void *)(uintptr_t)zend_mm_gc);
}

/* On Lambda, with one processor: the server posts the answer and asks for the next event on the processor that a restore would take from it. */
static bool restores_late;

static bool has_one_processor(void) {
    cpu_set_t processors;
    return sched_getaffinity(0, sizeof processors, &processors) == 0 && CPU_COUNT(&processors) == 1;
}

/* The script ends with each request: destructors of what the boot has left are due there. */
static bool boot_goes_on;

/* Memory for the list of dead ranges, which must not move while it is made. */
static struct snapshot_range *dead_ranges(size_t *count) {
    static struct snapshot_range *ranges;
    if (ranges == NULL) {
        ranges = snapshot_keep(RANGES * sizeof *ranges);
    }
    if (!boot_goes_on) {
        gc_collect_cycles();
    }
    zend_memory_detach();
    cycle_collector_exempt_boot();
    *count = zend_memory_dead(ranges, RANGES);
    return ranges;
}

static void share_hot_set(void) {
    void *memory =
        mmap(NULL, sizeof *hot_set, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    hot_set = memory == MAP_FAILED ? NULL : memory;
}

static void share(void) {
    size_t count;
    share_hot_set();
    regex_cache_gather();
    zend_memory_detach_handles();
    const struct snapshot_range *dead = dead_ranges(&count);
    const char *why;
    if (!snapshot_share(dead, count, &why)) {
        log_line(LOG_NOTICE, LOG_SOURCE_WORKER,
            "workers cannot share the memory of their snapshots: %s", why);
    }
}

static void tell_sizes(void) {
    struct snapshot_statistics statistics;
    snapshot_statistics(&statistics);
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    shared_counters_tell_snapshot(statistics.snapshot_pages * page, statistics.shared_pages * page);
}

/* Called between requests: takes the snapshot and returns true. Returns again with false after
 * each restore. */
static bool take(void) {
    struct snapshot_options options = {
        .strict = ffi_may_run(),
        .exact = asked("HEARTH_SNAPSHOT_EXACT"),
        .oracle = asked("HEARTH_SNAPSHOT_ORACLE"),
        .verify = verify_restores,
        .verified = shared_counters_verified(),
        .describe_request = request_describe,
        .hot_set = hot_set,
        .say = say,
    };
    egress_connect();
    randomness_forget();
    opcache_guard_boot_is_over();
    if (requests == NULL) {
        requests = snapshot_keep(sizeof *requests);
    }
    options.dead = dead_ranges(&options.dead_count);
    bool first = snapshot_take(&options);
    if (first) {
        tell_sizes();
    }
    randomness_renew();
    return first;
}

static void say_statistics(void) {
    if (!asked("HEARTH_SNAPSHOT_STATISTICS")) {
        return;
    }
    struct snapshot_statistics s;
    snapshot_statistics(&s);
    fprintf(stderr,
        "snapshot: %lu pages, %lu of them shared, %lu restores: %lu without a fault, %lu by hot "
        "regions, "
        "%lu by what was written, %lu by all; %lu faults; %lu pages put back, %lu hashes missed, "
        "%lu pages compared; taken in %u us, %lu pages known then, %lu mapped; ns: attributes %u, "
        "gate %u, "
        "scan %u, copy %u, all %u\n",
        s.snapshot_pages, s.shared_pages, s.restores, s.gated, s.hot_scans, s.wide_scans,
        s.full_scans, s.faults, s.known_pages, s.hash_misses, s.oracle_pages, s.take_us,
        s.handed_pages, s.mapped_pages, s.phase_ns[0], s.phase_ns[1], s.phase_ns[2], s.phase_ns[3],
        s.phase_ns[4]);
}

/* All workers' snapshots share the memory of the zygote. */
static void prepare_forks(const struct worker_run *run) {
    if (randomness_obstacle() != NULL) {
        log_line(LOG_ERR, LOG_SOURCE_WORKER,
            "a snapshot would repeat random numbers: %s; the model fork would not",
            randomness_obstacle());
        _exit(EXIT_UNFIT);
    }
    if (!zend_memory_is_known()) {
        log_line(LOG_NOTICE, LOG_SOURCE_WORKER,
            "PHP %s keeps its free memory otherwise than is known: each request has more to be put "
            "back than it needs to",
            module_php_version());
    }
    boot_goes_on = run->options->document_root != NULL;
    restores_late = getenv("AWS_LAMBDA_RUNTIME_API") != NULL && has_one_processor();
    /* The engine has the script open to its end, and each restore would put the position in that file back. */
    zend_llist_clean(&CG(open_files));
    share();
}

static void wait_for_request(void) {
    script_request_gather_superglobals();
    script_request_start_limit();
    if (take()) {
        channel_send_ready();
    }
    if (databases_await()) {
        channel_send_ready();
    }
    /* once in a while, when no request waits, everything is checked */
    if (snapshot_wants_check() && channel_is_quiet(QUIET_MS)) {
        snapshot_restore(true);
    }
    databases_wait();
    zend_memory_refill();
}

static uint8_t end_flags(void) {
    return databases_prove_late() ? FRAME_FLAG_BUSY
                                  : FRAME_FLAG_READY; /* READY comes with the proof */
}

static _Noreturn void end_life(void) {
    if (response_was_busy() && !databases_announce_later()) {
        channel_send_ready();
    }
    zend_memory_learn();
    egress_settle();
    ++*requests;
    if (restores_late) {
        channel_is_quiet(LATE_MS);
    }
    snapshot_restore(false);
}

const struct worker_model snapshot_model = {
    .begin = boot_ahead_begin,
    .handle = boot_ahead_handle,
    .await = boot_ahead_await,
    .end_flags = end_flags,
    .script_ended = boot_ahead_script_ended,
    .boot_again = boot_ahead_again,
    .prepare_forks = prepare_forks,
    .wait = wait_for_request,
    .say_statistics = say_statistics,
    .end_life = end_life,
    .keeps_connections = true,
};
