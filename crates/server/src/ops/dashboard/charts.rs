//! Requests a second and their times over the last minutes, as SVG.

use std::time::Duration;

use front_http::{Report, STEP, STEPS};

use super::View;
use crate::ops::format::{age, rate, took};
use crate::ops::html::Html;

/// The size of a chart in its own units; it is stretched to the room there is.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 80.0;

/// A line of a chart: its class, its name, and its value at a step.
type Line = (&'static str, &'static str, fn(&Report) -> Option<f64>);

/// The part of the page.
pub(super) fn render(view: &View, html: &mut Html) {
    if view.status.traffic.is_none() {
        return;
    }
    let history = &view.history;
    chart(
        html,
        "Requests per second",
        history,
        &[
            ("first", "all", |step| Some(step.per_second())),
            ("third", "failed", |step| Some(step.errors_per_second())),
        ],
        &rate,
    );
    chart(
        html,
        "Time to answer",
        history,
        &[
            ("first", "half", |step| seconds(step.p50)),
            ("second", "95 %", |step| seconds(step.p95)),
            ("third", "99 %", |step| seconds(step.p99)),
        ],
        &|value| took(Duration::try_from_secs_f64(value).unwrap_or_default()),
    );
}

fn seconds(took: Option<Duration>) -> Option<f64> {
    took.map(|took| took.as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "there are few steps")]
fn chart(
    html: &mut Html,
    name: &'static str,
    history: &[Report],
    lines: &[Line],
    written: &dyn Fn(f64) -> String,
) {
    let values = lines.iter().flat_map(|(.., value)| history.iter().filter_map(value));
    let top = values.fold(0.0, f64::max);
    html.raw("<figure><figcaption>").raw(name).raw(" <span class=\"soft\">the last ");
    html.text(age(Duration::from_secs(history.len() as u64 * STEP)))
        .raw(", up to ")
        .text(written(top));
    html.raw("</span>");
    for (class, line, _) in lines {
        html.raw(" <span class=\"key ").raw(class).raw("\">").raw(line).raw("</span>");
    }
    html.raw("</figcaption><svg viewBox=\"0 0 300 80\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"");
    html.raw(name).raw(", at most ").text(written(top)).raw("\">");
    let whole = STEPS as f64;
    let first = whole - history.len() as f64;
    for (class, _, value) in lines {
        html.raw("<polyline class=\"").raw(class).raw("\" points=\"");
        for (at, step) in history.iter().enumerate() {
            let Some(value) = value(step) else { continue };
            // A step is as wide as its time, so that a single one is seen, too.
            let left = (first + at as f64) * WIDTH / whole;
            let right = left + WIDTH / whole;
            let part = if top > 0.0 { value / top } else { 0.0 };
            let y = HEIGHT - 1.0 - part * (HEIGHT - 4.0);
            html.text(format_args!("{left:.1},{y:.1} {right:.1},{y:.1} "));
        }
        html.raw("\"></polyline>");
    }
    html.raw("</svg></figure>");
}
