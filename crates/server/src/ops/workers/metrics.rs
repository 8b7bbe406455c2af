//! Prometheus metrics of PHP's workers.

use std::sync::Arc;

use pool::{DatabaseServer, GroupState, PoolStatus, WorkerState};

use crate::ops::metric::metrics_table;

const WORKER_STATES: &[(WorkerState, &str)] = &[
    (WorkerState::Booting, "booting"),
    (WorkerState::Idle, "idle"),
    (WorkerState::Busy, "busy"),
    (WorkerState::Stopping, "stopping"),
];

/// Sets the metrics of generations: the one that takes requests, and how many finish what they have.
pub(super) fn set_generations(current: u64, draining: usize, degraded: bool) {
    metrics_table! { &[];
        gauge "hearth_generation" = current, "The generation of workers that takes requests";
        gauge "hearth_generations_draining" = draining, "Generations that finish what they have";
        gauge "hearth_degraded" = degraded, "1 while another model runs in the place of an application that did not boot";
    }
}

/// Sets the metrics of an application's workers.
pub(super) fn set_pool(name: &Arc<str>, status: &PoolStatus) {
    let application = || ("application", name.to_string());
    for (worker_state, state) in WORKER_STATES {
        let count = status.workers.iter().filter(|worker| worker.state == *worker_state).count();
        metrics_table! { &[application(), ("state", (*state).to_owned())];
            gauge "hearth_workers" = count, "PHP workers by what they do";
        }
    }
    let resident: u64 = status.workers.iter().map(|worker| worker.resident_bytes).sum();
    let (memory, databases) = (&status.memory, &status.databases);
    let zygotes: u64 = memory.zygotes.iter().map(|zygote| zygote.pss_bytes).sum();
    metrics_table! { &[application()];
        gauge "hearth_workers_wanted" = status.wanted, "PHP workers that there are to be by now, between `php.workers` and `php.workers_max`";
        counter "hearth_workers_grown_total" = status.grown, "Workers added because requests waited";
        counter "hearth_workers_shrunk_total" = status.shrunk, "Workers that ended because they were not needed for `php.workers_idle_timeout`";
        gauge "hearth_backlog" = status.backlog, "Requests waiting for a worker";
        gauge "hearth_backlog_ahead" = status.ahead, "Requests of the backlog that are already in the socket of a busy worker";
        counter "hearth_backlog_refused_total" = status.refused, "Requests answered with 503: no worker became free in time, or none would have";
        counter "hearth_backlog_waited_total" = status.waited, "Requests that got a worker after having waited for it";
        gauge "hearth_backlog_waited_seconds" = status.waited_seconds, "Time that requests waited for a worker, added up since the start";
        gauge "hearth_overloaded" = status.overloaded, "1 while requests are refused because more come than are answered (`php.backlog_target`)";
        gauge "hearth_workers_resident_bytes" = resident, "Resident memory of all PHP workers";
        gauge "hearth_workers_pss_bytes" = memory.pss_bytes.map(|all| all.saturating_sub(zygotes)), "Memory of all PHP workers, of a shared page each one's part (PSS); NaN where /proc does not show it";
        gauge "hearth_workers_private_bytes" = memory.private_bytes, "Memory of PHP's processes that no other process maps; NaN where /proc does not show it";
        gauge "hearth_workers_shared_bytes" = memory.shared_bytes, "Memory of PHP's processes that more than one process maps, counted once; NaN where /proc does not show it";
        gauge "hearth_zygote_pss_bytes" = memory.pss_bytes.map(|_| zygotes), "Memory of the processes that workers are forked from (PSS)";
        gauge "hearth_snapshot_shared_bytes" = memory.snapshot_shared_bytes.unwrap_or(0), "Bytes of the file that all snapshots of a generation share";
        counter "hearth_worker_requests_total" = status.requests, "Requests dispatched to PHP";
        counter "hearth_worker_crashes_total" = status.crashes, "Workers that ended without being told to";
        counter "hearth_worker_recycled_total" = status.recycled, "Workers replaced on purpose";
        counter "hearth_worker_retired_total" = status.retired, "Workers that ended because they could not be put back as they were";
        counter "hearth_restores_verified_total" = status.restores.verified, "Restores after which all memory was compared with the snapshot (`php.verify_restores`)";
        counter "hearth_restores_differing_total" = status.restores.differing, "Restores after which some memory differed from the snapshot: the log has the page and the request";
        gauge "hearth_restores_verified_seconds" = status.restores.seconds, "Time spent comparing memory with the snapshot (`php.verify_restores`), added up since the start";
        counter "hearth_worker_timeouts_total" = status.timeouts, "Requests that lost their worker to the time limit";
        counter "hearth_worker_slow_requests_total" = status.slow_requests, "Requests that PHP worked on for longer than `log.slow_requests`";
        gauge "hearth_database_connections_kept" = databases.kept, "Connections of databases that stay open across requests";
        counter "hearth_database_resets_total" = databases.resets, "Sessions of databases put back after a request";
        gauge "hearth_database_reset_seconds" = databases.reset_seconds, "Time from sending a session's reset to the database server's proof, added up since the start";
        counter "hearth_database_retired_total" = databases.retired, "Workers that ended because of a kept connection";
    }
    for group in &status.groups {
        let script = ("script", group.script.clone());
        let failed = group.state == GroupState::Failed;
        metrics_table! { &[application(), script];
            gauge "hearth_entry_script_workers_wanted" = group.wanted, "Workers that the script is to have by now, out of all that the application's scripts share";
            gauge "hearth_entry_script_workers_busy" = group.busy, "Workers of the script that have a request";
            gauge "hearth_entry_script_backlog" = group.backlog, "Requests of the script waiting for a worker";
            gauge "hearth_entry_script_requests" = group.requests, "Requests of the script dispatched to PHP since the last reload";
            gauge "hearth_entry_script_failed" = failed, "1 if the script could not be booted ahead: it runs as in `request`";
        }
    }
    for server in &databases.servers {
        set_database(name, server);
    }
}

fn set_database(application: &Arc<str>, server: &DatabaseServer) {
    let labels = [
        ("application", application.to_string()),
        ("db.system", server.protocol.to_lowercase()),
        ("peer", server.connection.clone()),
    ];
    metrics_table! { &labels;
        gauge "hearth_database_server_connections_kept" = server.kept, "Connections to this server that stay open across requests";
        gauge "hearth_database_server_connections_refused" = server.refused, "Connections to this server that workers could not keep: /status has the reason";
        counter "hearth_database_server_resets_total" = server.resets, "Sessions of this server put back after a request";
        counter "hearth_database_server_retired_total" = server.retired.values().sum(), "Workers that ended because of a connection to this server: /status has the reasons";
    }
    for (name, part) in [("0.5", 0.5), ("0.99", 0.99), ("1", 1.0)] {
        if let Some(time) = server.reset_times.quantile(part) {
            let [application, system, peer] = labels.clone();
            metrics_table! { &[application, system, peer, ("quantile", name.to_owned())];
                gauge "hearth_database_server_reset_quantile_seconds" = time.as_secs_f64(), "Time to put a session of this server back, from the reset to the proof, since the start";
            }
        }
    }
}
