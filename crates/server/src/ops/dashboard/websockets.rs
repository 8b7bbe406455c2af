//! The WebSockets that applications handle, on the page.

use super::View;
use crate::ops::format::count;
use crate::ops::html::Html;

/// Renders the connections and messages of each application.
pub(super) fn render(view: &View, html: &mut Html) {
    let all = &view.status.websockets;
    if all.is_empty() {
        return;
    }
    let open: usize = all.iter().map(|report| report.open).sum();
    html.heading("WebSockets", format_args!("{open} connections"));
    html.table(&[
        "Application",
        ">Open",
        ">Opened",
        ">Refused",
        ">Messages received",
        ">Messages sent",
        ">Failures",
        ">Did not read",
    ]);
    for report in all {
        html.raw("<tr>").cell(&report.application).number(report.open);
        html.number(count(report.opened)).number(count(report.refused));
        html.number(count(report.received)).number(count(report.sent));
        html.number(count(report.failed)).number(count(report.overflowed)).raw("</tr>");
    }
    html.end_table();
}
