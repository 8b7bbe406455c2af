//! The workers by entry script, where scripts wait for their requests.

use pool::GroupState;

use super::View;
use crate::ops::format::count;
use crate::ops::html::Html;

/// Renders each group, if there is more than the front controller and the rest.
pub(super) fn render(view: &View, html: &mut Html) {
    let Some(pool) = view.status.pool.as_ref().filter(|pool| !pool.groups.is_empty()) else {
        return;
    };
    let several = view.status.applications.len() > 1;
    html.heading("Entry scripts", pool.groups.len());
    let columns = [
        "Application",
        "Script",
        "State",
        ">Workers busy",
        ">Workers",
        ">Waiting",
        ">Requests",
        ">Crashes",
    ];
    html.table(&columns[usize::from(!several)..]);
    for group in &pool.groups {
        html.raw("<tr>");
        if several {
            html.cell(group.application.as_deref().unwrap_or_default());
        }
        html.cell(&group.script);
        match (&group.why, group.state) {
            (Some(why), _) => html.cell(format_args!("failed: {why}")),
            (None, GroupState::Rest) => html.cell("as in request"),
            (None, state) => html.cell(state.name()),
        };
        html.number(group.busy).number(group.wanted).number(group.backlog);
        html.number(count(group.requests)).number(count(group.crashes)).raw("</tr>");
    }
    html.end_table();
}
