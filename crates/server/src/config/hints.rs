//! Hints about one of several applications, with the keys of its own table.

use super::{KEYS, MAIN};
use crate::failure::Failure;

impl Failure {
    /// The failure of one of several applications: the message names it, and the hint names keys of its table.
    #[must_use]
    pub(crate) fn of_application(self, name: &str) -> Self {
        self.reworded(
            |message| format!("application `{name}`: {message}"),
            |hint| hint_of_application(&hint, name),
        )
    }
}

/// Returns a hint for one of several applications: its table is stronger than flags and sections, so keys of that table take their place.
/// The application at PATH has no table.
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

/// Returns the code with the key of an application's table. `None`: applications cannot set it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_about_an_application_use_its_own_keys() {
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
            // A key that an application cannot have, or that does not exist.
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
