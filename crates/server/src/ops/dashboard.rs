//! The dashboard: what the server does now, on one page for people, what is wrong first.
//!
//! Invariants
//! - The page is whole without a script; with one its parts are replaced once a second by what `/events` sends, which is rendered here too.
//! - Whatever is not a literal of this program is escaped: [`Html`] has no other way in. Paths and reasons come from clients and scripts.
//! - It loads nothing, and its policy lets it run no script but its own.
//! - No secrets: no query strings, no header fields, no settings.

mod charts;
mod problems;
mod processes;
mod sections;
mod websockets;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use front_http::Report;
use ring::digest::{SHA256, digest};

use crate::ops::html::Html;
use crate::ops::status::Status;

const STYLE: &str = include_str!("dashboard/dashboard.css");
const SCRIPT: &str = include_str!("dashboard/dashboard.js");

/// The data of the page.
#[derive(Debug)]
pub(crate) struct View {
    /// The status.
    pub status: Status,
    /// The last minutes, step by step.
    pub history: Vec<Report>,
}

/// Renders one part of the page; an empty one is not seen.
type Part = fn(&View, &mut Html);

/// The parts, by the ids of their elements, in the order of the page.
const PARTS: &[(&str, Part)] = &[
    ("head", sections::head),
    ("problems", problems::render),
    ("figures", sections::figures),
    ("charts", charts::render),
    ("applications", sections::applications),
    ("workers", sections::workers),
    ("processes", processes::render),
    ("cache", sections::cache),
    ("clients", sections::clients),
    ("slow", sections::slow),
    ("ended", sections::ended),
    ("databases", sections::databases),
    ("connectors", sections::connectors),
    ("egress", sections::egress),
    ("websockets", websockets::render),
    ("realtime", sections::realtime),
];

/// The page's permissions (Content Security Policy 3): its own style and script, known by their hashes, and its
/// events.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(digest(&SHA256, text.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// The page's `Content-Security-Policy`.
pub(crate) fn policy() -> &'static str {
    &POLICY
}

/// The whole page.
pub(crate) fn page(view: &View) -> String {
    let mut html = Html::default();
    html.raw(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n<title>Hearth</title>\n<style>",
    );
    html.raw(STYLE);
    html.raw("</style>\n</head>\n<body>\n<main>\n");
    for (id, render) in PARTS {
        html.raw("<section id=\"");
        html.raw(id);
        html.raw(if *id == "problems" { "\" aria-live=\"polite\">" } else { "\">" });
        render(view, &mut html);
        html.raw("</section>\n");
    }
    html.raw(
        "</main>\n<footer><a href=\"/status\">Status as JSON</a> <a href=\"/metrics\">Metrics</a> <a href=\"/up\">Health</a> \
         <span id=\"line\" role=\"status\"></span></footer>\n<script>",
    );
    html.raw(SCRIPT);
    html.raw("</script>\n</body>\n</html>\n");
    html.into_string()
}

/// The parts by their ids, in one line of JSON.
pub(crate) fn parts_as_json(view: &View) -> String {
    let parts: serde_json::Map<String, serde_json::Value> = PARTS
        .iter()
        .map(|(id, render)| {
            let mut html = Html::default();
            render(view, &mut html);
            ((*id).to_owned(), html.into_string().into())
        })
        .collect();
    serde_json::Value::Object(parts).to_string()
}

#[cfg(test)]
mod tests;
