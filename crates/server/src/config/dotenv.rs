//! `.env` files as Laravel and Symfony read them (vlucas/phpdotenv, symfony/dotenv): what the application will see, without running it.
//!
//! Invariants
//! - The environment of PHP's processes wins over every file, as it does in the application: `[php.env]`, and the server's own under it.
//! - A line without an assignment is skipped: the application itself reports the error.

use std::path::Path;

use super::{Environment, Settings};

/// The variables that an application finds.
#[derive(Clone, Debug)]
pub(crate) struct DotEnv<'a> {
    settings: &'a Settings,
    environment: &'a Environment,
    variables: Vec<(String, String)>,
}

impl<'a> DotEnv<'a> {
    /// Reads `.env`, and before it `.env.local` (Symfony's) or the file of `APP_ENV` (Laravel's).
    pub(crate) fn read(
        folder: &Path,
        settings: &'a Settings,
        environment: &'a Environment,
    ) -> Self {
        let of_env = of_php("APP_ENV", settings, environment).map(|name| format!(".env.{name}"));
        let files = [Some(".env.local".to_owned()), of_env, Some(".env".to_owned())];
        let mut read = Self { settings, environment, variables: Vec::new() };
        for file in files.into_iter().flatten() {
            if let Ok(text) = std::fs::read_to_string(folder.join(file)) {
                read.add(&text);
            }
        }
        read
    }

    /// A variable as the application will see it.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.of_process(name).or_else(|| value_of(&self.variables, name))
    }

    /// Returns a variable that is not empty: `PUSHER_HOST=` names no host.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !matches!(*value, "" | "null" | "(null)"))
    }

    /// A variable that PHP is started with.
    pub(crate) fn of_process(&self, name: &str) -> Option<&'a str> {
        of_php(name, self.settings, self.environment)
    }

    /// Adds the variables of a file. The first file that names a variable wins.
    fn add(&mut self, text: &str) {
        let mut of_file: Vec<(String, String)> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (line, next) = rest.split_once('\n').unwrap_or((rest, ""));
            let assigned =
                line.split_once('=').and_then(|(left, _)| Some((name(left)?, left.len() + 1)));
            let Some((name, sign)) = assigned else {
                rest = next;
                continue;
            };
            let lookup = |wanted: &str| {
                let known =
                    value_of(&of_file, wanted).or_else(|| value_of(&self.variables, wanted));
                self.of_process(wanted).or(known).unwrap_or_default().to_owned()
            };
            let (value, behind) = value(rest.split_at(sign).1, &lookup);
            rest = behind.split_once('\n').map_or("", |(_, next)| next);
            of_file.retain(|(known, _)| *known != name);
            of_file.push((name, value));
        }
        let known = |name: &str| self.variables.iter().any(|(known, _)| known == name);
        of_file.retain(|(name, _)| !known(name));
        self.variables.append(&mut of_file);
    }
}

/// A variable as PHP gets it, before it reads any file.
pub(crate) fn of_php<'a>(
    name: &str,
    settings: &'a Settings,
    environment: &'a Environment,
) -> Option<&'a str> {
    value_of(&settings.php.env.0, name).or_else(|| environment.variable(name))
}

fn value_of<'v>(variables: &'v [(String, String)], name: &str) -> Option<&'v str> {
    variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// `NAME`, or `export NAME`.
fn name(text: &str) -> Option<String> {
    let name = text.trim();
    let name = name.strip_prefix("export ").map_or(name, str::trim_start);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    (!name.is_empty() && name.bytes().all(plain)).then(|| name.to_owned())
}

/// Parses the value after the equals sign, and returns it with the rest of the text. A quoted value may span lines.
fn value<'t>(text: &'t str, lookup: &dyn Fn(&str) -> String) -> (String, &'t str) {
    let text = text.trim_start_matches([' ', '\t']);
    if let Some(inside) = text.strip_prefix('\'') {
        let (value, behind) = inside.split_once('\'').unwrap_or((inside, ""));
        return (value.to_owned(), behind);
    }
    if let Some(inside) = text.strip_prefix('"') {
        return in_double_quotes(inside, lookup);
    }
    let line = text.split('\n').next().unwrap_or_default();
    let value =
        if line.starts_with('#') { "" } else { line.split(" #").next().unwrap_or_default() };
    (with_variables(value.trim(), lookup), text.split_at(line.len()).1)
}

/// Parses up to the closing quote, with the escapes `\"`, `\\`, `\$` and the usual letters.
fn in_double_quotes<'t>(text: &'t str, lookup: &dyn Fn(&str) -> String) -> (String, &'t str) {
    let mut value = String::new();
    // Variables are put in where no backslash forbids it.
    let mut plain = String::new();
    let mut characters = text.chars();
    loop {
        match characters.next() {
            None | Some('"') => break,
            Some('\\') => {
                value.push_str(&with_variables(&std::mem::take(&mut plain), lookup));
                match characters.next() {
                    Some('n') => value.push('\n'),
                    Some('r') => value.push('\r'),
                    Some('t') => value.push('\t'),
                    Some(other @ ('"' | '\\' | '$')) => value.push(other),
                    Some(other) => value.extend(['\\', other]),
                    None => value.push('\\'),
                }
            }
            Some(other) => plain.push(other),
        }
    }
    value.push_str(&with_variables(&plain, lookup));
    (value, characters.as_str())
}

/// Replaces `${NAME}` with the variable's value.
fn with_variables(text: &str, lookup: &dyn Fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else { break };
        out.push_str(before);
        out.push_str(&lookup(name));
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, variables: &[(&str, &str)], names: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".env"), text).unwrap();
        let environment = Environment::for_test(folder.path(), variables);
        let settings = super::super::load(folder.path(), None, Vec::new(), &environment).unwrap();
        let read = DotEnv::read(folder.path(), &settings, &environment);
        names.iter().map(|name| read.get(name).unwrap_or("(none)").to_owned()).collect()
    }

    #[test]
    fn a_file_is_read_as_the_application_reads_it() {
        let text = "# PUSHER_APP_ID=no\n\
                    PUSHER_APP_ID = 12 # the id\n\
                    export PUSHER_APP_KEY='k #1'\n\
                    PUSHER_APP_SECRET=\"s\\\"$ec ${PUSHER_APP_ID} \\${X}\"\n\
                    PUSHER_HOST=\n\
                    no assignment\n\
                    LONG=\"one\ntwo=2\"\n\
                    VITE_KEY=\"${PUSHER_APP_KEY}\"\r\n\
                    HASH=a#b\n\
                    LAST=\"open";
        let names = [
            "PUSHER_APP_ID",
            "PUSHER_APP_KEY",
            "PUSHER_APP_SECRET",
            "PUSHER_HOST",
            "LONG",
            "two",
            "VITE_KEY",
            "HASH",
            "LAST",
            "MISSING",
        ];
        let values = read(text, &[], &names);
        let expected = [
            "12",
            "k #1",
            "s\"$ec 12 ${X}",
            "",
            "one\ntwo=2",
            "(none)",
            "k #1",
            "a#b",
            "open",
            "(none)",
        ];
        assert_eq!(values, expected);
    }

    #[test]
    fn the_environment_overrides_dotenv_and_expands_references() {
        let values = read("A=file\nB=${A}\nA=again\n", &[("A", "process")], &["A", "B"]);
        assert_eq!(values, ["process", "process"]);
    }

    #[test]
    fn settings_for_php_override_the_environment() {
        let variables = [("A", "process"), ("HEARTH_PHP_ENV", "A=settings")];
        let values = read("A=file\nB=${A}\n", &variables, &["A", "B"]);
        assert_eq!(values, ["settings"; 2]);
    }

    #[test]
    fn the_last_of_duplicate_names_wins() {
        assert_eq!(read("A=1\nA=2\n", &[], &["A"]), ["2"]);
    }

    #[test]
    fn files_for_this_machine_or_environment_win() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in
            [(".env", "A=1\nB=1\n"), (".env.testing", "A=2\n"), (".env.local", "B=3\n")]
        {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let environment = Environment::for_test(folder.path(), &[("APP_ENV", "testing")]);
        let settings = super::super::load(folder.path(), None, Vec::new(), &environment).unwrap();
        let read = DotEnv::read(folder.path(), &settings, &environment);
        assert_eq!((read.get("A"), read.get("B")), (Some("2"), Some("3")));
    }
}
