//! The parts of the page that are figures and tables.

use std::fmt::Write as _;
use std::time::Duration;

use pool::{DatabaseServer, Ending, MemoryStatus, WorkerState};

use super::View;
use crate::ops::format::{age, ago, count, megabytes, percent, rate, took};
use crate::ops::html::Html;
use crate::ops::status::clients::describe;

/// Rows of a table that clients or callers can make long.
const ROWS: usize = 30;

/// Renders the server's name, state and addresses.
pub(super) fn head(view: &View, html: &mut Html) {
    let status = &view.status;
    html.raw("<h1>Hearth <span class=\"soft\">").text(status.version).raw("</span></h1>");
    html.raw(match status.state {
        "ready" => "<p><span class=\"state ready\">ready</span> ",
        "starting" => "<p><span class=\"state\">starting</span> ",
        _ => "<p><span class=\"state\">draining</span> ",
    });
    html.raw("for ").text(age(Duration::from_secs(status.uptime_seconds)));
    html.raw(" · process ").text(status.pid);
    for listener in &status.listeners {
        html.raw(" · <span class=\"url\">").text(listener).raw("</span>");
    }
    html.raw("</p>");
    if let Some(application) = &status.application {
        html.raw("<p class=\"soft\">").text(application).raw("</p>");
    }
    let Some(generation) = status.generation else { return };
    html.raw("<p class=\"soft\">Generation ").text(generation);
    if status.reloads.under_way {
        html.raw(", the next one boots");
    }
    if !status.draining.is_empty() {
        html.raw(", ").text(status.draining.len()).raw(" draining");
    }
    html.raw("</p>");
}

/// The numbers that people look at first.
pub(super) fn figures(view: &View, html: &mut Html) {
    let mut figures = Vec::new();
    let mut figure = |name, value: String, note: String| figures.push((name, value, note));
    let seconds = |seconds: Option<f64>| {
        let known = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        known.map_or_else(|| "–".to_owned(), took)
    };
    let status = &view.status;
    if let Some(traffic) = &status.traffic {
        let all = format!("{} in all", count(traffic.requests));
        figure("Requests per second", rate(traffic.per_second), all);
        figure("Half within", seconds(traffic.p50_seconds), "last minute".into());
        figure("95 % within", seconds(traffic.p95_seconds), String::new());
        figure("99 % within", seconds(traffic.p99_seconds), String::new());
        let all = format!("{} in all", count(traffic.errors));
        figure("Errors per second", rate(traffic.errors_per_second), all);
    }
    if let Some(pool) = &status.pool {
        let busy = pool.workers.iter().filter(|worker| worker.state == WorkerState::Busy).count();
        let of = match pool.most {
            most if most > pool.least => {
                format!("of {} ({} to {most})", pool.workers.len(), pool.least)
            }
            _ => format!("of {}", pool.workers.len()),
        };
        figure("Workers busy", busy.to_string(), of);
        let refused = match pool.refused {
            0 => String::new(),
            refused => format!("{} refused", count(refused)),
        };
        figure("Waiting for a worker", pool.backlog.to_string(), refused);
        let notes = format!("{} recycled, {} retired", pool.recycled, pool.retired);
        figure("Crashes", count(pool.crashes), notes);
        let restores = pool.restores;
        if restores.verified > 0 {
            let notes = format!("{} differed", count(restores.differing));
            figure("Restores verified", count(restores.verified), notes);
        }
    }
    if figures.is_empty() {
        return;
    }
    html.raw("<dl>");
    for (name, value, note) in figures {
        html.raw("<div><dt>").raw(name).raw("</dt><dd>").text(value);
        html.raw(" <small>").text(note).raw("</small></dd></div>");
    }
    html.raw("</dl>");
}

/// Returns whether names are needed to tell applications apart.
fn several(view: &View) -> bool {
    view.status.applications.len() > 1
}

/// Renders each of several applications.
pub(super) fn applications(view: &View, html: &mut Html) {
    let all = &view.status.applications;
    if !several(view) {
        return;
    }
    html.heading("Applications", all.len());
    html.table(&[
        "Name",
        "Answers",
        "Model",
        "PHP",
        ">Workers busy",
        ">Workers",
        ">Waiting",
        ">Requests",
        ">Refused",
        ">Crashes",
    ]);
    for one in all.iter().take(ROWS) {
        html.raw("<tr>").cell(&one.name).cell(one.claims.join(", "));
        html.cell(one.model.unwrap_or("files")).cell(&one.php_version);
        let wanted = match one.most {
            most if most > one.least => format!("{} ({} to {most})", one.wanted, one.least),
            _ => one.wanted.to_string(),
        };
        html.number(one.busy).number(wanted).number(one.backlog).number(count(one.requests));
        html.number(count(one.refused)).number(count(one.crashes)).raw("</tr>");
    }
    html.end_table();
    more(html, all.len());
}

/// Renders the workers and their requests.
pub(super) fn workers(view: &View, html: &mut Html) {
    let Some(pool) = &view.status.pool else { return };
    let of_state = |wanted| pool.workers.iter().filter(|worker| worker.state == wanted).count();
    let states = [
        (of_state(WorkerState::Busy), "busy"),
        (of_state(WorkerState::Idle), "idle"),
        (of_state(WorkerState::Booting), "booting"),
        (of_state(WorkerState::Stopping), "stopping"),
    ];
    let states: Vec<String> = states
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    let several = several(view);
    let model = view.status.model.unwrap_or("none");
    let model = if several { String::new() } else { format!(", model {model}") };
    html.heading("Workers", format_args!("{}; PHP {}{model}", states.join(", "), pool.php_version));
    let columns = [
        "Application",
        "Process",
        "State",
        ">Requests",
        ">Resident",
        ">PSS",
        ">Own",
        "Request",
        ">For",
    ];
    html.table(&columns[usize::from(!several)..]);
    for worker in pool.workers.iter().take(ROWS) {
        html.raw("<tr>");
        whose(several, worker.application.as_deref(), html);
        html.cell(worker.pid).raw(match worker.state {
            WorkerState::Booting => "<td><span class=\"state\">booting</span></td>",
            WorkerState::Idle => "<td><span class=\"state ready\">idle</span></td>",
            WorkerState::Busy => "<td><span class=\"state busy\">busy</span></td>",
            WorkerState::Stopping => "<td><span class=\"state\">stopping</span></td>",
        });
        let known = |bytes: Option<u64>| bytes.map_or_else(|| "–".to_owned(), megabytes);
        html.number(count(worker.requests)).number(megabytes(worker.resident_bytes));
        html.number(known(worker.pss_bytes)).number(known(worker.private_bytes));
        match &worker.running {
            Some(running) => {
                let ran = Duration::try_from_secs_f64(running.seconds).unwrap_or_default();
                html.cell(format_args!("{} {}", running.method, running.path)).number(took(ran));
            }
            None => {
                html.raw("<td></td><td></td>");
            }
        }
        html.raw("</tr>");
    }
    html.end_table();
    more(html, pool.workers.len());
    memory(&pool.memory, html);
}

/// Memory of all processes, each page counted once.
fn memory(memory: &MemoryStatus, html: &mut Html) {
    let (Some(all), Some(shared)) = (memory.pss_bytes, memory.shared_bytes) else { return };
    html.raw("<p class=\"soft\">Memory of PHP's processes: ").text(megabytes(all));
    html.raw(", of which they share ").text(megabytes(shared));
    if let Some(snapshot) = memory.snapshot_shared_bytes {
        html.raw(" (").text(megabytes(snapshot)).raw(" of it the snapshot's)");
    }
    let zygotes: u64 = memory.zygotes.iter().map(|zygote| zygote.pss_bytes).sum();
    if zygotes > 0 {
        html.raw("; the process that workers are forked from has ").text(megabytes(zygotes));
    }
    html.raw(".</p>");
}

/// The first cell of a row, where there are several applications.
fn whose(several: bool, application: Option<&str>, html: &mut Html) {
    if several {
        html.cell(application.unwrap_or_default());
    }
}

fn more(html: &mut Html, all: usize) {
    if let Some(hidden @ 1..) = all.checked_sub(ROWS) {
        html.raw("<p class=\"soft\">and ").text(hidden).raw(" more</p>");
    }
}

/// Renders the answer cache.
pub(super) fn cache(view: &View, html: &mut Html) {
    let Some(cache) = &view.status.cache else { return };
    let (used, limit) = (megabytes(cache.bytes), megabytes(cache.limit));
    html.heading(
        "Answer cache",
        format_args!("{} entries, {used} of {limit}", count(cache.entries)),
    );
    html.raw("<p>").text(count(cache.hits)).raw(" requests answered from it, ");
    html.text(count(cache.stale)).raw(" by a stale answer, ");
    html.text(count(cache.collapsed)).raw(" after waiting for another request; ");
    html.text(count(cache.misses)).raw(" answered by PHP, ");
    html.text(count(cache.bypassed)).raw(" passed on (cookies, methods). ");
    html.text(count(cache.stored)).raw(" answers stored, ");
    html.text(count(cache.revalidated)).raw(" confirmed by PHP, ");
    html.text(count(cache.evicted)).raw(" evicted, ");
    html.text(count(cache.purges)).raw(" purges.</p>");
    if let Some(disk) = &cache.disk {
        let (used, limit) = (megabytes(disk.bytes), megabytes(disk.limit));
        html.raw("<p>On disk: ").text(count(disk.entries)).raw(" answers, ").text(used);
        html.raw(" of ").text(limit).raw("; ").text(count(disk.written)).raw(" written, ");
        html.text(count(disk.hits)).raw(" read again, ");
        html.text(count(disk.dropped)).raw(" dropped, ");
        html.text(count(disk.failed)).raw(" failed.</p>");
    }
}

/// Renders connections of clients, and which limits applied to them.
pub(super) fn clients(view: &View, html: &mut Html) {
    let Some(clients) = &view.status.clients else { return };
    html.heading(
        "Clients",
        format_args!("{} of {} connections", count(clients.connections as u64), clients.limit),
    );
    html.raw("<p>").text(clients.busy).raw(" with a request under way, ").text(clients.idle);
    html.raw(" idle, ").text(clients.unfinished).raw(" without a whole request, ");
    html.text(clients.not_reading).raw(" that do not take their answer; ");
    html.text(clients.addresses).raw(" addresses.</p>");
    let limited: Vec<String> = clients
        .limited
        .iter()
        .filter(|(_, times)| **times > 0)
        .map(|(limit, times)| format!("{} {}", count(*times), describe(limit)))
        .collect();
    if !limited.is_empty() {
        html.raw("<p>Limits since the start: ").text(limited.join(", ")).raw(".</p>");
    }
    if clients.most.is_empty() {
        return;
    }
    html.table(&["Address", ">Connections"]);
    for most in &clients.most {
        html.raw("<tr>").cell(&most.address).number(most.connections).raw("</tr>");
    }
    html.end_table();
}

/// Renders slow requests, and where PHP was.
pub(super) fn slow(view: &View, html: &mut Html) {
    const SHOWN: usize = 10;
    let Some(pool) = &view.status.pool else { return };
    if pool.slow.is_empty() {
        return;
    }
    let all = count(pool.slow_requests);
    html.heading("Slow requests", format_args!("the newest first, {all} in all"));
    let several = several(view);
    let columns = ["Application", "When", "Process", ">Ran", "Request, and where PHP was then"];
    html.table(&columns[usize::from(!several)..]);
    for slow in pool.slow.iter().take(SHOWN) {
        let ran = Duration::try_from_secs_f64(slow.seconds).unwrap_or_default();
        html.raw("<tr>");
        whose(several, slow.application.as_deref(), html);
        html.cell(ago(slow.at)).cell(slow.pid).number(took(ran));
        html.raw("<td>").text(&slow.method).raw(" ").text(&slow.path);
        html.raw(" <span class=\"soft\">").text(&slow.id).raw("</span>");
        if !slow.stack.is_empty() {
            html.raw("<pre>");
            for line in &slow.stack {
                html.text(line).raw("\n");
            }
            html.raw("</pre>");
        }
        if let Some(why) = &slow.why {
            html.raw("<p class=\"soft\">").text(why).raw("</p>");
        }
        html.raw("</td></tr>");
    }
    html.end_table();
}

/// Renders workers that have ended, and why.
pub(super) fn ended(view: &View, html: &mut Html) {
    const SHOWN: usize = 10;
    let Some(pool) = &view.status.pool else { return };
    if pool.ended.is_empty() {
        return;
    }
    html.heading("Workers that ended", "the newest first");
    let several = several(view);
    let columns = ["Application", "When", "Process", "How", ">Requests", "Reason"];
    html.table(&columns[usize::from(!several)..]);
    for end in pool.ended.iter().take(SHOWN) {
        html.raw("<tr>");
        whose(several, end.application.as_deref(), html);
        html.cell(ago(end.at)).cell(end.pid);
        html.raw(match end.ending {
            Ending::Crashed => "<td><span class=\"state bad\">died</span></td>",
            Ending::Recycled => "<td><span class=\"state\">recycled</span></td>",
            Ending::Retired => "<td><span class=\"state busy\">retired</span></td>",
            Ending::TimedOut => "<td><span class=\"state bad\">killed</span></td>",
        });
        html.number(count(end.requests)).cell(&end.reason).raw("</tr>");
    }
    html.end_table();
}

/// Renders connections that stay open across requests.
pub(super) fn databases(view: &View, html: &mut Html) {
    let Some(pool) = &view.status.pool else { return };
    let databases = &pool.databases;
    if databases.kept == 0 && databases.resets == 0 && databases.servers.is_empty() {
        return;
    }
    html.heading("Databases", format_args!("{} connections kept", databases.kept));
    html.raw("<p>").text(count(databases.resets)).raw(" sessions put back; ");
    html.text(databases.retired).raw(" workers retired because of one.</p><ul>");
    for server in &databases.servers {
        html.raw("<li>").text(database(server)).raw("</li>");
    }
    html.raw("</ul>");
}

fn database(server: &DatabaseServer) -> String {
    let DatabaseServer { connection, protocol, kept, resets, .. } = server;
    let mut line = format!("{connection} ({protocol}): {kept} kept, {} resets", count(*resets));
    let times = &server.reset_times;
    if let (Some(p50), Some(p99)) = (times.quantile(0.5), times.quantile(0.99)) {
        let [p50, p99, longest] = [p50, p99, times.longest()].map(took);
        _ = write!(line, " (half within {p50}, 99 % within {p99}, longest {longest})");
    }
    if let Some(why) = &server.refused_because {
        _ = write!(line, "; {} not kept: {why}", server.refused);
    }
    for (why, count) in &server.retired {
        _ = write!(line, "; {count} workers retired: {why}");
    }
    line
}

/// The ways to databases behind TLS.
pub(super) fn connectors(view: &View, html: &mut Html) {
    let connectors = &view.status.connectors;
    if connectors.is_empty() {
        return;
    }
    html.heading("Connectors", connectors.len());
    html.raw("<ul>");
    for connector in connectors {
        html.raw("<li>").text(connector).raw("</li>");
    }
    html.raw("</ul>");
}

/// Renders outgoing calls, by origin.
pub(super) fn egress(view: &View, html: &mut Html) {
    let Some(egress) = &view.status.egress else { return };
    html.heading(
        "Outgoing calls",
        format_args!("{} in all, {} under way", count(egress.calls), egress.callers),
    );
    for (what, unanswered) in
        [("made directly instead: ", &egress.declined), ("failed: ", &egress.failed)]
    {
        if unanswered.is_empty() {
            continue;
        }
        html.raw("<p>Calls ").raw(what);
        for (at, of_reason) in unanswered.iter().enumerate() {
            html.raw(if at == 0 { "" } else { ", " }).text(of_reason.calls).raw(" (");
            html.text(of_reason.reason).raw(")");
        }
        html.raw("</p>");
    }
    if egress.origins.is_empty() {
        html.raw("<p class=\"soft\">No origin has been called yet.</p>");
        return;
    }
    html.table(&[
        "Origin",
        ">Calls",
        ">On warm connections",
        ">Handshakes",
        ">Handshakes saved",
        ">Open",
        ">Waiting",
    ]);
    for origin in egress.origins.iter().take(ROWS) {
        let stats = &origin.stats;
        html.raw("<tr>").cell(&origin.url).number(count(stats.calls));
        html.number(percent(stats.reused, stats.calls)).number(count(stats.handshakes));
        html.number(count(stats.handshakes_saved)).number(stats.connections);
        html.number(stats.waiting).raw("</tr>");
    }
    html.end_table();
    more(html, egress.origins.len());
}

/// Renders channels, by application.
pub(super) fn realtime(view: &View, html: &mut Html) {
    let Some(realtime) = &view.status.realtime else { return };
    html.heading(
        "Realtime",
        format_args!("{} connections, {} channels", count(realtime.sockets), realtime.channels),
    );
    if let Some(nodes) = realtime.nodes {
        html.raw("<p>").text(nodes).raw(" other nodes are met.</p>");
    }
    html.table(&[
        "Application",
        ">Connections",
        ">Subscriptions",
        ">Events published",
        ">Messages sent",
        ">Messages received",
    ]);
    for application in realtime.applications.iter().take(ROWS) {
        html.raw("<tr>").cell(&application.id).number(count(application.connections));
        html.number(count(application.subscriptions)).number(count(application.published));
        html.number(count(application.sent)).number(count(application.received)).raw("</tr>");
    }
    html.end_table();
    more(html, realtime.applications.len());
    html.raw("<p><a href=\"/realtime\">Channels, live</a></p>");
}
