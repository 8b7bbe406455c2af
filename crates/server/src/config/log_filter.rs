//! The value of `log.level`: tracing-subscriber's filters, but that a misspelt level is an error. To the filter any word is the name of
//! something that logs, and all else is then off.

use std::path::Path;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::nearest;
use super::value::{Raw, Value, Wrong};

const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace", "off"];

/// A level, or levels by what logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFilter(pub String);

impl Value for LogFilter {
    const PLACEHOLDER: &str = "LEVEL";
    const EXPECTED: &str = "`error`, `warn`, `info`, `debug`, `trace` or `off`, or a filter such as `info,pool=debug,php=warn`";

    fn parse(raw: &Raw, _base: &Path) -> Result<Self, Wrong> {
        let text = raw.text()?;
        if let Some(word) = directives(text).find(|directive| !has_level(directive)) {
            let near = nearest(word, LEVELS.iter().copied());
            let hint = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            return Err(Wrong(format!("`{word}`{hint}")));
        }
        match EnvFilter::try_new(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(error) => Err(Wrong(format!("`{text}`: {error}"))),
        }
    }
}

impl LogFilter {
    /// Returns the targets that the filter names, without the modules in them.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &str> {
        directives(&self.0)
            .filter_map(|directive| directive.split(['=', '[']).next())
            .filter_map(|target| target.split("::").next())
            .filter(|target| !target.is_empty() && target.parse::<LevelFilter>().is_err())
    }
}

/// Returns the directives of a filter. Those of fields within brackets are not among them.
fn directives(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let parts = text.split(move |character| {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

/// Returns whether a directive sets a level: it is a level, or has one. A span alone stands for everything in it.
fn has_level(directive: &str) -> bool {
    directive.contains(['=', '[']) || directive.parse::<LevelFilter>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LogFilter, Wrong> {
        LogFilter::parse(&Raw::Text(text.to_owned()), Path::new("/"))
    }

    #[test]
    fn an_unknown_log_level_is_rejected_with_the_nearest_one() {
        for (text, found) in [
            ("warning", "`warning` (did you mean `warn`?)"),
            ("loud", "`loud`"),
            ("info,php", "`php`"),
            ("info, debgu", "`debgu` (did you mean `debug`?)"),
        ] {
            assert_eq!(parse(text).unwrap_err().0, found, "{text}");
        }
        assert!(parse("pool=loud").is_err());
    }

    #[test]
    fn levels_and_filters_are_accepted() {
        for text in ["info", "WARN", "off", "info,pool=debug,php=warn", "info,pool[a{b=1}]=debug"] {
            assert_eq!(parse(text).unwrap().0, text);
        }
        let filter = parse("info,pool::supervisor=debug,[request]=trace,php=warn").unwrap();
        assert_eq!(filter.targets().collect::<Vec<_>>(), ["pool", "php"]);
    }
}
