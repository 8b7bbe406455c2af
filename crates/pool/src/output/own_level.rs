//! The level that a line says it has: that of Monolog's formats, and of the heads of PHP's own messages.
//!
//! Invariants
//! - Only forms that nothing else is likely to write count; what is in doubt has none.

use super::{ERROR, WARNING};

/// Dates in brackets are no longer.
const DATE: usize = 40;

/// Warnings and what is worse, as syslog(3) counts. None: the line says nothing, or that it is less.
pub(super) fn own_level(line: &str) -> Option<u8> {
    if line.starts_with("{\"message\":") {
        return of_monolog(in_json(line)?);
    }
    let mut rest = line;
    // PHP puts one before what goes to a file of its own (`error_log = /dev/stderr`), where Monolog's may follow.
    for _ in 0..2 {
        rest = after_date(rest).unwrap_or(rest);
    }
    if let Some(own) = rest.strip_prefix("PHP ") {
        return of_php(own);
    }
    if rest.len() == line.len() { None } else { of_monolog(in_text(rest)?) }
}

/// What follows `[2026-11-22T11:40:08.123456+00:00] `, or another date.
fn after_date(line: &str) -> Option<&str> {
    let (date, rest) = line.strip_prefix('[')?.split_once("] ")?;
    (date.len() <= DATE && date.starts_with(|first: char| first.is_ascii_digit())).then_some(rest)
}

/// `app.ERROR: …`, Monolog's `LineFormatter`, Laravel's too.
fn in_text(line: &str) -> Option<&str> {
    let (name, _) = line.split_once(": ")?;
    let (channel, level) = name.rsplit_once('.')?;
    (!channel.is_empty() && !channel.contains(char::is_whitespace)).then_some(level)
}

/// `{"message":"…",…,"level":400,"level_name":"ERROR","channel":"app",…`, Monolog's `JsonFormatter`. In a text of the application quotes
/// have backslashes before them.
fn in_json(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(",\"level_name\":\"")?;
    let (level, rest) = rest.split_once('"')?;
    rest.starts_with(",\"channel\":\"").then_some(level)
}

/// RFC 5424's names.
fn of_monolog(name: &str) -> Option<u8> {
    match name {
        "WARNING" => Some(WARNING),
        "ERROR" | "CRITICAL" | "ALERT" | "EMERGENCY" => Some(ERROR),
        _ => None,
    }
}

/// After `php_error_cb()`, main/main.c: `PHP %s:  %s in %s on line %d`.
fn of_php(line: &str) -> Option<u8> {
    match line.split_once(":  ")?.0 {
        "Warning" => Some(WARNING),
        "Fatal error" | "Recoverable fatal error" | "Parse error" => Some(ERROR),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monologs_lines_say_their_level() {
        for (line, level) in [
            (
                "[2026-11-22 11:40:08] production.ERROR: kaboom {\"exception\":\"[object]\"}",
                Some(ERROR),
            ),
            ("[2026-11-22T11:40:08.123456+00:00] app.WARNING: low [] []", Some(WARNING)),
            ("[2026-11-22T11:40:08.123456+00:00] my-shop.api.CRITICAL: x", Some(ERROR)),
            ("[2026-11-22T11:40:08+00:00] app.EMERGENCY: ", Some(ERROR)),
            ("[22-Nov-2026 11:40:08 UTC] [2026-11-22T11:40:08+00:00] app.ALERT: x", Some(ERROR)),
            ("[2026-11-22 11:40:08] local.NOTICE: x", None),
            ("[2026-11-22 11:40:08] local.INFO: x.ERROR: no", None),
            ("[2026-11-22 11:40:08] local.DEBUG: x", None),
            (
                r#"{"message":"a","context":{},"level":400,"level_name":"ERROR","channel":"app","datetime":"x","extra":{}}"#,
                Some(ERROR),
            ),
            (
                r#"{"message":"a","context":{},"level":300,"level_name":"WARNING","channel":"app""#,
                Some(WARNING),
            ),
            (
                r#"{"message":"a","context":{},"level":200,"level_name":"INFO","channel":"app"}"#,
                None,
            ),
            (
                r#"{"message":",\"level_name\":\"ERROR\",\"channel\":\"","context":{},"level":100,"level_name":"DEBUG","channel":"a"}"#,
                None,
            ),
        ] {
            assert_eq!(own_level(line), level, "{line}");
        }
    }

    #[test]
    fn phps_own_messages_say_their_level() {
        for (line, level) in [
            (
                "PHP Warning:  PHP Startup: Unable to load dynamic library 'x' in Unknown on line 0",
                Some(WARNING),
            ),
            ("PHP Fatal error:  Uncaught RuntimeException: a in /a.php:1", Some(ERROR)),
            ("PHP Recoverable fatal error:  x", Some(ERROR)),
            ("PHP Parse error:  x", Some(ERROR)),
            ("[22-Nov-2026 11:40:08 Europe/Vienna] PHP Warning:  x", Some(WARNING)),
            ("PHP Notice:  PHP Warning:  x", None),
            ("PHP Deprecated:  x", None),
        ] {
            assert_eq!(own_level(line), level, "{line}");
        }
    }

    #[test]
    fn odd_lines_say_none() {
        for line in [
            "",
            "[",
            "[] ",
            "[]",
            "] app.ERROR: x",
            "[app] app.ERROR: x",
            "[2026-11-22] ",
            "[2026-11-22] .ERROR: x",
            "[2026-11-22] ERROR: x",
            "[2026-11-22] app.ERROR",
            "[2026-11-22] app.error: x",
            "[2026-11-22] app.ERRORS: x",
            "[2026-11-22] see the app.ERROR: x",
            "[2026-11-22]app.ERROR: x",
            "[2 of the parts of a list that is longer than any date] app.ERROR: x",
            "[1] [2] [3] app.ERROR: x",
            "app.ERROR: x",
            "ERROR: x",
            "PHP Warning: x",
            "PHP Warning",
            "PHP ",
            "php warning:  x",
            "said PHP Warning:  x",
            "#0 /srv/app/index.php(3): {main}",
            "{\"message\":",
            "{\"message\":\"a\",\"level_name\":\"ERROR",
            "{\"message\":\"a\",\"level_name\":\"ERROR\"}",
            "{\"level_name\":\"ERROR\",\"channel\":\"app\"}",
            "\u{fffd}[2026-11-22] app.ERROR: x",
            "[2\u{fffd}\u{fffd}] \u{fffd}",
        ] {
            assert_eq!(own_level(line), None, "{line}");
        }
    }
}
