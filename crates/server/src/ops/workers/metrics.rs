//! Prometheus metrics of PHP's workers.

use std::sync::Arc;

use pool::{DatabaseServer, MemoryStatus, PoolStatus, WorkerState};

/// Describes all of them.
pub(super) fn describe() {
    metrics::describe_gauge!("hearth_workers", "PHP workers by what they do");
    metrics::describe_gauge!(
        "hearth_workers_wanted",
        "PHP workers that there are to be by now, between `php.workers` and `php.workers_max`"
    );
    metrics::describe_counter!(
        "hearth_workers_grown_total",
        "Workers added because requests waited"
    );
    metrics::describe_counter!(
        "hearth_workers_shrunk_total",
        "Workers that ended because they were not needed for `php.workers_idle_timeout`"
    );
    metrics::describe_gauge!("hearth_backlog", "Requests waiting for a worker");
    metrics::describe_counter!(
        "hearth_backlog_refused_total",
        "Requests answered with 503: no worker became free in time, or none would have"
    );
    metrics::describe_counter!(
        "hearth_backlog_waited_total",
        "Requests that got a worker after having waited for it"
    );
    metrics::describe_gauge!(
        "hearth_backlog_waited_seconds",
        "How long all of those have waited, added up since the start"
    );
    metrics::describe_gauge!(
        "hearth_overloaded",
        "1 while requests are refused because more come than are answered (`php.backlog_target`)"
    );
    metrics::describe_gauge!("hearth_workers_resident_bytes", "Resident memory of all PHP workers");
    metrics::describe_gauge!(
        "hearth_workers_pss_bytes",
        "Memory of all PHP workers, of a shared page each one's part (PSS); NaN where /proc does not show it"
    );
    metrics::describe_gauge!(
        "hearth_workers_private_bytes",
        "Memory of PHP's processes that no other process maps; NaN where /proc does not show it"
    );
    metrics::describe_gauge!(
        "hearth_workers_shared_bytes",
        "Memory of PHP's processes that more than one process maps, counted once; NaN where /proc does not show it"
    );
    metrics::describe_gauge!(
        "hearth_zygote_pss_bytes",
        "Memory of the processes that workers are forked from (PSS)"
    );
    metrics::describe_gauge!(
        "hearth_snapshot_shared_bytes",
        "Bytes of the file that all snapshots of a generation share"
    );
    metrics::describe_gauge!("hearth_generation", "The generation of workers that takes requests");
    metrics::describe_gauge!(
        "hearth_generations_draining",
        "Generations that finish what they have"
    );
    metrics::describe_counter!("hearth_worker_requests_total", "Requests dispatched to PHP");
    metrics::describe_counter!(
        "hearth_worker_crashes_total",
        "Workers that ended without being told to"
    );
    metrics::describe_counter!("hearth_worker_recycled_total", "Workers replaced on purpose");
    metrics::describe_counter!(
        "hearth_worker_retired_total",
        "Workers that ended because they could not be put back as they were"
    );
    metrics::describe_gauge!(
        "hearth_database_connections_kept",
        "Connections of databases that stay open across requests"
    );
    metrics::describe_counter!(
        "hearth_database_resets_total",
        "Sessions of databases put back after a request"
    );
    metrics::describe_gauge!(
        "hearth_database_reset_seconds",
        "Time from writing those resets to the servers' proof, added up since the start"
    );
    metrics::describe_counter!(
        "hearth_database_retired_total",
        "Workers that ended because of a kept connection"
    );
    metrics::describe_gauge!(
        "hearth_database_server_connections_kept",
        "Connections to this server that stay open across requests"
    );
    metrics::describe_gauge!(
        "hearth_database_server_connections_refused",
        "Connections to this server that workers could not keep: /status has the reason"
    );
    metrics::describe_counter!(
        "hearth_database_server_resets_total",
        "Sessions of this server put back after a request"
    );
    metrics::describe_counter!(
        "hearth_database_server_retired_total",
        "Workers that ended because of a connection to this server: /status has the reasons"
    );
    metrics::describe_gauge!(
        "hearth_database_server_reset_quantile_seconds",
        "What putting a session of this server back took, from the reset to the proof, since the start"
    );
    metrics::describe_counter!(
        "hearth_worker_timeouts_total",
        "Requests that lost their worker to the time limit"
    );
    metrics::describe_counter!(
        "hearth_worker_slow_requests_total",
        "Requests that PHP worked on for longer than `log.slow_requests`"
    );
}

const WORKER_STATES: &[(WorkerState, &str)] = &[
    (WorkerState::Booting, "booting"),
    (WorkerState::Idle, "idle"),
    (WorkerState::Busy, "busy"),
    (WorkerState::Stopping, "stopping"),
];

#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
pub(super) fn set_pool_gauges(name: &Arc<str>, status: &PoolStatus) {
    let labels = [("application", name.to_string())];
    for (worker_state, state) in WORKER_STATES {
        let count = status.workers.iter().filter(|worker| worker.state == *worker_state).count();
        let [application] = labels.clone();
        let labels = [application, ("state", (*state).to_owned())];
        metrics::gauge!("hearth_workers", &labels).set(count as f64);
    }
    let gauge = |name: &'static str, value: f64| metrics::gauge!(name, &labels).set(value);
    let counter = |name: &'static str, value| metrics::counter!(name, &labels).absolute(value);
    let resident: u64 = status.workers.iter().map(|worker| worker.resident_bytes).sum();
    gauge("hearth_workers_resident_bytes", resident as f64);
    set_memory_gauges(&status.memory, &gauge);
    gauge("hearth_workers_wanted", status.wanted as f64);
    counter("hearth_workers_grown_total", status.grown);
    counter("hearth_workers_shrunk_total", status.shrunk);
    gauge("hearth_backlog", status.backlog as f64);
    counter("hearth_backlog_refused_total", status.refused);
    counter("hearth_backlog_waited_total", status.waited);
    gauge("hearth_backlog_waited_seconds", status.waited_seconds);
    gauge("hearth_overloaded", f64::from(u8::from(status.overloaded)));
    counter("hearth_worker_requests_total", status.requests);
    counter("hearth_worker_crashes_total", status.crashes);
    counter("hearth_worker_recycled_total", status.recycled);
    counter("hearth_worker_retired_total", status.retired);
    counter("hearth_worker_timeouts_total", status.timeouts);
    counter("hearth_worker_slow_requests_total", status.slow_requests);
    let databases = &status.databases;
    gauge("hearth_database_connections_kept", databases.kept as f64);
    gauge("hearth_database_reset_seconds", databases.reset_seconds);
    counter("hearth_database_resets_total", databases.resets);
    counter("hearth_database_retired_total", databases.retired);
    for server in &databases.servers {
        set_database_gauges(name, server);
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
fn set_database_gauges(application: &Arc<str>, server: &DatabaseServer) {
    let labels = [
        ("application", application.to_string()),
        ("db.system", server.protocol.to_lowercase()),
        ("peer", server.connection.clone()),
    ];
    metrics::gauge!("hearth_database_server_connections_kept", &labels).set(server.kept as f64);
    metrics::gauge!("hearth_database_server_connections_refused", &labels)
        .set(server.refused as f64);
    metrics::counter!("hearth_database_server_resets_total", &labels).absolute(server.resets);
    metrics::counter!("hearth_database_server_retired_total", &labels)
        .absolute(server.retired.values().sum());
    for (name, part) in [("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)] {
        if let Some(time) = server.reset_times.quantile(part) {
            let [application, system, peer] = labels.clone();
            metrics::gauge!(
                "hearth_database_server_reset_quantile_seconds",
                &[application, system, peer, ("quantile", name.to_owned())]
            )
            .set(time.as_secs_f64());
        }
    }
}

/// Sets the gauges of memory. A gauge that was set once cannot be taken back: unknown is NaN.
#[expect(clippy::cast_precision_loss, reason = "gauges are floats in Prometheus")]
fn set_memory_gauges(memory: &MemoryStatus, gauge: &impl Fn(&'static str, f64)) {
    let bytes = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64);
    let zygotes: u64 = memory.zygotes.iter().map(|zygote| zygote.pss_bytes).sum();
    let workers = memory.pss_bytes.map(|all| all.saturating_sub(zygotes));
    gauge("hearth_workers_pss_bytes", bytes(workers));
    gauge("hearth_workers_private_bytes", bytes(memory.private_bytes));
    gauge("hearth_workers_shared_bytes", bytes(memory.shared_bytes));
    gauge("hearth_zygote_pss_bytes", bytes(memory.pss_bytes.map(|_| zygotes)));
    gauge("hearth_snapshot_shared_bytes", memory.snapshot_shared_bytes.unwrap_or(0) as f64);
}
