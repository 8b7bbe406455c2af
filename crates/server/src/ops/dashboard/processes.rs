//! The supervised commands on the page.

use std::time::Duration;

use super::View;
use crate::ops::format::{age, count};
use crate::ops::html::Html;

/// Renders each process, and what it does now.
pub(super) fn render(view: &View, html: &mut Html) {
    let all = &view.status.processes;
    if all.is_empty() {
        return;
    }
    html.heading("Processes", all.len());
    html.table(&[
        "Name",
        "Command",
        "Runs",
        ">Running",
        "For",
        ">Restarts",
        ">Cron runs",
        ">Left out",
        "Last end",
    ]);
    for process in all {
        html.raw("<tr>").cell(&process.name).cell(&process.command);
        match (&process.cron, &process.next_run) {
            (Some(cron), Some(next)) => html.cell(format_args!("{cron}, next at {next}")),
            (Some(cron), None) => html.cell(cron),
            (None, _) => html.cell("always"),
        };
        let running = process.instances.len();
        let stopping = process.instances.iter().filter(|instance| instance.stopping).count();
        html.number(match (stopping, &process.cron) {
            (0, Some(_)) => running.to_string(),
            (0, None) => format!("{running} of {}", process.count),
            _ => format!("{running} of {}, {stopping} stopping", process.count),
        });
        let ages = process.instances.iter();
        let ages: Vec<String> =
            ages.map(|instance| age(Duration::from_secs(instance.seconds))).collect();
        html.cell(ages.join(", ")).number(count(process.restarts));
        html.number(count(process.runs)).number(count(process.overlaps));
        let end = process.last_exit.as_ref().map_or("", |exit| &exit.how);
        html.cell(process.cannot_start.as_deref().unwrap_or(end)).raw("</tr>");
    }
    html.end_table();
}
