//! The part of the page that says what is wrong.

use super::View;
use crate::ops::format::count;
use crate::ops::html::Html;
use crate::ops::problems::Level;

/// The part of the page.
pub(super) fn render(view: &View, html: &mut Html) {
    let problems = &view.status.problems;
    if problems.is_empty() {
        html.raw("<p class=\"well\">Nothing is wrong.</p>");
        return;
    }
    html.raw("<h2>What is wrong <span class=\"soft\">").text(count(problems.len() as u64));
    html.raw("</span></h2><ul>");
    for problem in problems {
        html.raw(match problem.level {
            Level::Error => "<li class=\"error\"><b>Error</b> ",
            Level::Warning => "<li class=\"warning\"><b>Warning</b> ",
        });
        html.text(&problem.text).raw("</li>");
    }
    html.raw("</ul>");
}
