//! How the program ends when it cannot do what was asked: the message, its causes, what to do, and the exit status.

use std::error::Error;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::app::detect::DetectError;
use crate::config::{ConfigError, KEYS, MAIN};

/// What `main` prints before it exits with 1 (failed) or 2 (misused). A server tells a command of its own failures in this form, too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    status: u8,
}

impl Failure {
    /// A wrong flag, key or value.
    pub(crate) fn misused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), causes: Vec::new(), hint: Some(hint.into()), status: 2 }
    }

    /// Something that should have worked did not.
    pub(crate) fn failed(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), causes: Vec::new(), hint: Some(hint.into()), status: 1 }
    }

    /// An error of an engine with its causes.
    pub(crate) fn caused(error: &(dyn Error + 'static), hint: impl Into<String>) -> Self {
        Self { causes: causes(error), ..Self::failed(error.to_string(), hint) }
    }

    /// A message of our own over an error of somebody else's.
    pub(crate) fn caused_by(
        message: impl Into<String>,
        cause: &(dyn Error + 'static),
        hint: impl Into<String>,
    ) -> Self {
        let mut failure = Self::failed(message, hint);
        failure.causes = std::iter::once(cause.to_string()).chain(causes(cause)).collect();
        failure
    }

    /// No command: the help is the message.
    pub(crate) fn help(text: String) -> Self {
        Self { message: text, causes: Vec::new(), hint: None, status: 2 }
    }

    /// What is wrong, with its causes.
    pub(crate) fn message(&self) -> String {
        let causes = self.causes.iter().map(|cause| format!(": {cause}"));
        std::iter::once(self.message.clone()).chain(causes).collect()
    }

    /// It was not this command that was misused, but what it asked for failed.
    #[must_use]
    pub(crate) fn of_server(self) -> Self {
        Self { status: 1, ..self }
    }

    /// It is about one of several applications.
    #[must_use]
    pub(crate) fn of_application(self, name: &str) -> Self {
        let hint = self.hint.map(|hint| hint_of_application(&hint, name));
        Self { message: format!("application `{name}`: {}", self.message), hint, ..self }
    }

    /// What to do.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// 1 or 2.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }

    /// The lines for stderr.
    pub(crate) fn render(&self) -> String {
        let Some(hint) = &self.hint else { return self.message.clone() };
        let mut text = format!("error: {}\n", self.message);
        for cause in &self.causes {
            writeln!(text, "  caused by: {cause}").expect("a String takes all");
        }
        writeln!(text, "hint: {hint}").expect("a String takes all");
        text
    }
}

/// The same hint for one of several applications: its table is stronger than flags and sections, so keys of that take their place. The one at
/// PATH has no table.
pub(crate) fn hint_of_application(hint: &str, name: &str) -> String {
    if name == MAIN {
        return hint.to_owned();
    }
    let table = format!("applications.{name}");
    // Code and what is between take turns.
    let parts = hint.split('`').enumerate().map(|(place, part)| match place % 2 {
        1 => in_table(part, &table).unwrap_or_else(|| part.to_owned()),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// None: it is no setting that an application has of its own.
fn in_table(code: &str, table: &str) -> Option<String> {
    let with = |key: &str, value: Option<&str>| match value {
        Some(value) => format!("{table}.{key} = \"{value}\""),
        None => format!("{table}.{key}"),
    };
    if let Some(path) = code.strip_prefix("hearth serve ") {
        return Some(with("path", Some(path)));
    }
    let mut keys = KEYS.iter().filter(|key| key.is_of_application());
    if let Some(flag) = code.strip_prefix("--") {
        let (flag, value) =
            flag.split_once(' ').map_or((flag, None), |(flag, value)| (flag, Some(value)));
        let key = keys.find(|key| key.flag == Some(flag))?;
        return Some(with(key.name, value));
    }
    if let Some(section) = code.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let key = keys.find(|key| key.section_and_key().0 == section || key.name == section)?;
        let own = format!("[{table}.{section}]");
        // A table that is one setting is joined with that of all: what is wrong may be in either.
        let is_joined = key.name == section && !key.is_of_path();
        return Some(if is_joined { format!("{code}` or `{own}") } else { own });
    }
    keys.find(|key| key.name == code).map(|key| with(key.name, None))
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self { causes: causes(&error), ..Self::misused(error.to_string(), error.hint()) }
    }
}

impl From<DetectError> for Failure {
    fn from(error: DetectError) -> Self {
        Self { causes: causes(&error), ..Self::failed(error.to_string(), error.hint()) }
    }
}

/// An error and its causes, for a log.
pub(crate) fn in_one_line(error: &(dyn Error + 'static)) -> String {
    let mut texts = vec![error.to_string()];
    texts.extend(causes(error));
    texts.join(": ")
}

fn causes(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut texts = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_a_named_application_is_said_in_keys_of_its_table() {
        for (hint, of_shop) in [
            (
                "versions found: 8.2; `--php 8.2`",
                "versions found: 8.2; `applications.shop.php.version = \"8.2\"`",
            ),
            (
                "name it with `--worker-script`, or use `--model request`",
                "name it with `applications.shop.php.worker_script`, or use `applications.shop.php.model = \"request\"`",
            ),
            (
                "name the application's folder: `hearth serve PATH`",
                "name the application's folder: `applications.shop.path = \"PATH\"`",
            ),
            ("set `php.boot_timeout`", "set `applications.shop.php.boot_timeout`"),
            ("correct `[sandbox]`", "correct `[applications.shop.sandbox]`"),
            ("set it in `[php.env]`", "set it in `[applications.shop.php.env]`"),
            (
                "take it out of `[php.ini]` now",
                "take it out of `[php.ini]` or `[applications.shop.php.ini]` now",
            ),
            // What it cannot have of its own, or what is no setting.
            (
                "`--listen :8443`, `server.run_dir`, `[server]`",
                "`--listen :8443`, `server.run_dir`, `[server]`",
            ),
            ("`make build` builds it; `--info-json`", "`make build` builds it; `--info-json`"),
            ("one ` alone, and --model", "one ` alone, and --model"),
            ("", ""),
        ] {
            assert_eq!(hint_of_application(hint, "shop"), of_shop);
            assert_eq!(hint_of_application(hint, MAIN), hint);
        }
    }
}
