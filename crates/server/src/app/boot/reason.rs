//! Why an application does not boot, read from the end of PHP's output: the message, its file and line, and what to do.
//!
//! Invariants
//! - The message is one line, without markup.
//! - What is not understood is passed on: its last line is the message.

/// The heads of PHP's own messages that end a script (`php_error_cb()`, main/main.c).
const HEADS: &[&str] =
    &["PHP Fatal error:  ", "PHP Parse error:  ", "PHP Recoverable fatal error:  "];

/// The reason of a failed boot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    /// PHP's message.
    pub message: String,
    /// `FILE:LINE`, if the message names a place.
    pub place: Option<String>,
    /// The action to take.
    pub hint: String,
}

impl Reason {
    /// Finds the reason in the end of a process's output.
    pub(crate) fn of(output: &str) -> Self {
        let found = of_php(output).or_else(|| of_framework(output)).or_else(|| of_worker(output));
        let (head, text) = found.unwrap_or_else(|| {
            let mut lines = output.lines().map(str::trim).filter(|line| !line.is_empty());
            ("", lines.next_back().unwrap_or("it printed nothing"))
        });
        let (message, place) = without_place(text);
        let message = message.strip_prefix("Uncaught ").unwrap_or(message);
        let message = message.lines().next().unwrap_or_default().trim().to_owned();
        let hint = hint(head, &message);
        Self { message, place, hint }
    }

    /// The message with its place.
    pub(crate) fn line(&self) -> String {
        match &self.place {
            Some(place) => format!("{place}: {}", self.message),
            None => self.message.clone(),
        }
    }
}

/// The last message of PHP's own that ends a script, and its head.
fn of_php(output: &str) -> Option<(&'static str, &str)> {
    let found = HEADS.iter().filter_map(|head| Some((output.rfind(head)?, *head)));
    let (at, head) = found.max_by_key(|(at, _)| *at)?;
    let text = output.get(at + head.len()..)?;
    let end =
        ["\nStack trace:", "\n  thrown in ", "\nNext "].iter().filter_map(|end| text.find(end));
    Some((head, text.get(..end.min().unwrap_or(text.len()))?))
}

/// The first line of the form `CLASS: MESSAGE in FILE:LINE`, which Hearth's own scripts log of an exception.
fn of_framework(output: &str) -> Option<(&'static str, &str)> {
    let is_one = |line: &&str| {
        let class = line.split_once(": ").map(|(class, _)| class);
        class.is_some_and(|class| !class.contains(' ')) && without_place(line).1.is_some()
    };
    output.lines().find(is_one).map(|line| ("", line))
}

/// The worker program's line about a script that ended too early. The script's own output may come before and after it.
fn of_worker(output: &str) -> Option<(&'static str, &str)> {
    let is_one =
        |line: &&str| line.starts_with("the script ") && line.contains(" ended before it ");
    output.lines().find(is_one).map(|line| ("", line))
}

/// Splits `MESSAGE in FILE on line 3` or `MESSAGE in FILE:3`.
fn without_place(text: &str) -> (&str, Option<String>) {
    let whole = (text, None);
    let first = text.lines().next().unwrap_or_default();
    let Some((message, place)) = text.rsplit_once(" in ").or_else(|| first.rsplit_once(" in "))
    else {
        return whole;
    };
    let place = place.lines().next().unwrap_or_default().trim();
    let split = place.rsplit_once(" on line ").or_else(|| place.rsplit_once(':'));
    match split {
        Some((file, line))
            if !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            (message, Some(format!("{file}:{line}")))
        }
        _ => whole,
    }
}

/// Returns the action to take for a message.
fn hint(head: &str, message: &str) -> String {
    if message.starts_with("Allowed memory size of ") {
        return "raise `memory_limit` (`--ini memory_limit=256M`, or `[php.ini]`), or load less in the boot".to_owned();
    }
    if let Some(extension) = missing_extension(message) {
        return format!(
            "install PHP's extension {extension} for this version, or choose another version with `--php`"
        );
    }
    let hint = if head.contains("Parse") || message.contains("syntax error, ") {
        "correct the file: PHP cannot read it"
    } else if message.contains("Failed opening required") && message.contains("vendor/autoload.php")
    {
        "run `composer install` in the application's folder"
    } else if message.contains("ended before it called hearth_await_request()") {
        "let it call hearth_await_request() before it ends, name a file with `php.await_after`, or use `--model request`"
    } else if message.contains("ended before it included ") {
        "name a file in `php.await_after` that the front controller includes in each request"
    } else if message.contains("ended before it ") {
        "find what calls exit() or die() in the boot, and let it throw an exception"
    } else if message.starts_with("not ready within ") {
        "find what the boot waits for, or set `php.boot_timeout` if it only needs longer"
    } else if message.contains("SQLSTATE") || message.contains("Connection refused") {
        "start the database, or correct its host and port in the application's settings"
    } else {
        "correct the application, or set `php.boot_timeout` if it only needs longer"
    };
    hint.to_owned()
}

/// Beginnings of functions and classes, in lower case, and the extension that has them.
const EXTENSIONS: &[(&str, &str)] = &[
    ("amqp", "amqp"),
    ("apcu_", "apcu"),
    ("bcadd", "bcmath"),
    ("bccomp", "bcmath"),
    ("bcdiv", "bcmath"),
    ("bcmod", "bcmath"),
    ("bcmul", "bcmath"),
    ("bcpow", "bcmath"),
    ("bcsub", "bcmath"),
    ("collator", "intl"),
    ("ctype_", "ctype"),
    ("curl_", "curl"),
    ("dom", "xml"),
    ("exif_", "exif"),
    ("ffi", "ffi"),
    ("gmp", "gmp"),
    ("iconv", "iconv"),
    ("idn_to_", "intl"),
    ("imagecreate", "gd"),
    ("imagick", "imagick"),
    ("intl", "intl"),
    ("ldap_", "ldap"),
    ("mb_", "mbstring"),
    ("memcached", "memcached"),
    ("mongodb\\driver", "mongodb"),
    ("mysqli", "mysqli"),
    ("normalizer", "intl"),
    ("numberformatter", "intl"),
    ("openssl_", "openssl"),
    ("pcntl_", "pcntl"),
    ("pg_", "pgsql"),
    ("posix_", "posix"),
    ("rediscluster", "redis"),
    ("simplexml", "xml"),
    ("soap", "soap"),
    ("socket_", "sockets"),
    ("sodium_", "sodium"),
    ("sqlite3", "sqlite3"),
    ("xmlreader", "xml"),
    ("xmlwriter", "xml"),
    ("xsltprocessor", "xsl"),
    ("ziparchive", "zip"),
];

/// The extension whose function or class a message misses, in words.
fn missing_extension(message: &str) -> Option<String> {
    if message.contains("could not find driver") {
        return Some(
            "of the database's driver (`pdo_mysql`, `pdo_pgsql` or `pdo_sqlite`)".to_owned(),
        );
    }
    let after = |what: &str| message.split_once(what).map(|(_, rest)| rest);
    let name = after("Call to undefined function ")
        .and_then(|rest| rest.split_once('('))
        .or_else(|| after("Class \"").filter(|rest| rest.contains("\" not found"))?.split_once('"'))
        .map(|(name, _)| name.trim_start_matches('\\').to_ascii_lowercase())?;
    if name == "redis" {
        return Some("`redis`".to_owned());
    }
    let found = EXTENSIONS.iter().find(|(beginning, _)| name.starts_with(beginning));
    found.map(|(_, extension)| format!("`{extension}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(output: &str) -> (String, String) {
        let reason = Reason::of(output);
        (reason.line(), reason.hint)
    }

    #[test]
    fn a_failed_boot_has_its_message_place_and_hint() {
        for (output, line, hint) in [
            (
                "a\n[26-Nov-2026 10:00:00 UTC] PHP Fatal error:  Uncaught RuntimeException: no database in /srv/b.php:12\nStack trace:\n#0 {main}\n  thrown in /srv/b.php on line 12\nthe worker script w.php ended before it called hearth_handle_request()",
                "/srv/b.php:12: RuntimeException: no database",
                "correct the application",
            ),
            (
                "PHP Parse error:  syntax error, unexpected token \";\" in /srv/a.php on line 2\nthe worker script ended",
                "/srv/a.php:2: syntax error, unexpected token \";\"",
                "correct the file",
            ),
            (
                "PHP Fatal error:  Allowed memory size of 2097152 bytes exhausted (tried to allocate 20480 bytes) in /srv/a.php on line 7",
                "/srv/a.php:7: Allowed memory size of 2097152 bytes exhausted (tried to allocate 20480 bytes)",
                "raise `memory_limit`",
            ),
            (
                "PHP Fatal error:  Uncaught Error: Class \"Redis\" not found in /srv/a.php:3\nStack trace:\n#0 {main}",
                "/srv/a.php:3: Error: Class \"Redis\" not found",
                "install PHP's extension `redis`",
            ),
            (
                "Illuminate\\Database\\QueryException: could not find driver (SQL: select 1) in /srv/Connection.php:712\nPDOException: could not find driver in /srv/Connector.php:70\nthe worker script laravel-worker.php ended before it called hearth_handle_request()",
                "/srv/Connection.php:712: Illuminate\\Database\\QueryException: could not find driver (SQL: select 1)",
                "(`pdo_mysql`,",
            ),
            (
                "booting\nthe worker script w.php ended before it called hearth_handle_request()",
                "the worker script w.php ended before it called hearth_handle_request()",
                "find what calls exit()",
            ),
            ("not ready within 30s", "not ready within 30s", "`php.boot_timeout`"),
            ("", "it printed nothing", "correct the application"),
            (
                "PHP Fatal error:  Uncaught PDOException: SQLSTATE[HY000] [2002] Connection refused in /srv/a.php:3",
                "/srv/a.php:3: PDOException: SQLSTATE[HY000] [2002] Connection refused",
                "start the database",
            ),
        ] {
            let (found, what_to_do) = of(output);
            assert_eq!(found, line);
            assert!(what_to_do.contains(hint), "{found}: {what_to_do}");
        }
    }
}
