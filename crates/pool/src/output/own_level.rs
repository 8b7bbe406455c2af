//! The level that a line states: in Monolog's formats, and in the heads of PHP's own messages.
//!
//! Invariants
//! - Only unmistakable forms count; in doubt a line has no level. JSON that was truncated has an unmistakable form:
//!   it has a level.

use super::{ERROR, WARNING};

/// Maximum length of a date in brackets.
const DATE: usize = 40;

/// Returns warnings and more severe levels of syslog(3); `None` if the line states no level, or a lower one.
pub(super) fn own_level(line: &str) -> Option<u8> {
    if line.starts_with("{\"message\":\"") {
        return of_json(line);
    }
    let mut rest = line;
    // PHP adds a date to lines of its own log file (`error_log = /dev/stderr`), after which Monolog's may follow.
    for _ in 0..2 {
        rest = after_date(rest).unwrap_or(rest);
    }
    if let Some(own) = rest.strip_prefix("PHP ") {
        return of_php(own);
    }
    if rest.len() == line.len() { None } else { of_monolog(in_text(rest)?) }
}

/// Returns what follows `[2026-11-22T11:40:08.123456+00:00] `, or another date.
fn after_date(line: &str) -> Option<&str> {
    let (date, rest) = line.strip_prefix('[')?.split_once("] ")?;
    (date.len() <= DATE && date.starts_with(|first: char| first.is_ascii_digit())).then_some(rest)
}

/// Parses `app.ERROR: …`, the format of Monolog's `LineFormatter`, and Laravel's.
fn in_text(line: &str) -> Option<&str> {
    let (name, _) = line.split_once(": ")?;
    let (channel, level) = name.rsplit_once('.')?;
    (!channel.is_empty() && !channel.contains(char::is_whitespace)).then_some(level)
}

/// Parses `{"message":"…","context":{…},"level":400,"level_name":"ERROR","channel":"app",…`, the format of Monolog's
/// `JsonFormatter`. The application's own data may contain anything, so only the outermost object counts. A truncated
/// line counts as a warning, because it may be an error with a long trace.
fn of_json(line: &str) -> Option<u8> {
    let (mut rest, mut depth) = (line, 0_usize);
    while let Some(place) = rest.find(['"', '{', '}', '[', ']']) {
        let (sign, after) = rest.split_at(place).1.split_at(1);
        rest = after;
        match sign {
            "{" | "[" => depth += 1,
            "}" | "]" if depth <= 1 => return None,
            "}" | "]" => depth -= 1,
            _ => {
                let Some((text, after)) = in_quotes(rest) else { break };
                rest = after;
                if depth == 1
                    && text == "level_name"
                    && let Some(value) = rest.strip_prefix(":\"")
                    && let Some((level, _)) = in_quotes(value)
                {
                    return of_monolog(level);
                }
            }
        }
    }
    Some(WARNING)
}

/// Returns the text before the closing quote, and the text after it.
fn in_quotes(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    let (inside, after) = text.split_at(end);
    Some((inside, after.split_at(1).1))
}

/// Maps RFC 5424's names.
fn of_monolog(name: &str) -> Option<u8> {
    match name {
        "WARNING" => Some(WARNING),
        "ERROR" | "CRITICAL" | "ALERT" | "EMERGENCY" => Some(ERROR),
        _ => None,
    }
}

/// Maps the heads written by `php_error_cb()`, main/main.c: `PHP %s:  %s in %s on line %d`.
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
            (
                r#"{"message":"a","context":{"row":[{"id":1,"level_name":"ERROR","channel":"web"}]},"level":100,"level_name":"DEBUG","channel":"a"}"#,
                None,
            ),
            (
                r#"{"message":"a\\","context":{"level_name":"x}"},"level":400,"level_name":"ERROR","channel":"a","extra":{"level_name":"DEBUG"}}"#,
                Some(ERROR),
            ),
        ] {
            assert_eq!(own_level(line), level, "{line}");
        }
    }

    #[test]
    fn a_cut_line_of_json_is_not_less_than_a_warning() {
        let line = r#"{"message":"a","context":{"exception":{"trace":["/\"a.php:1"]}},"level":400,"level_name":"DEBUG","channel":"app"}"#;
        let said = line.find("DEBUG\"").unwrap() + "DEBUG\"".len();
        for end in "{\"message\":\"".len()..said {
            let cut = line.split_at(end).0;
            assert_eq!(own_level(cut), Some(WARNING), "{cut}");
        }
        assert_eq!(own_level(line.split_at(said).0), None);
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
            "{\"message\": \"a\",\"level_name\":\"ERROR\"}",
            "{\"message\":\"a\",\"level_name\":400}",
            "{\"message\":\"a\"}",
            "{\"message\":\"a\"]}",
            "{\"level_name\":\"ERROR\",\"channel\":\"app\"}",
            "\u{fffd}[2026-11-22] app.ERROR: x",
            "[2\u{fffd}\u{fffd}] \u{fffd}",
        ] {
            assert_eq!(own_level(line), None, "{line}");
        }
    }
}
