//! Functions of AWS Lambda: the file that a function's handler names, and the plan that runs it.
//!
//! Invariants
//! - Only file names and the text of the named file are read; none of its code is run.
//! - A function gets events from Lambda only: there is no warm-up.

use std::path::{Path, PathBuf};

use pool::Model;

use crate::app::detect::{self, Application, DetectError, Kind};
use crate::app::php;
use crate::app::plan::{PhpPlan, Plan, WorkerScript};
use crate::config::{BootFailure, Environment, Handler, Settings};
use crate::failure::Failure;
use crate::system::machine::processors;
use crate::system::users::PhpUser;

/// The variable that names the function's file for Hearth's own scripts.
const FUNCTION: &str = "HEARTH_FUNCTION";
/// The variable that names PHP's command line program for Hearth's own scripts.
const CLI: &str = "HEARTH_CLI";
/// The variable with the seconds before the end of an invocation at which its process is killed.
const MARGIN: &str = "HEARTH_DEADLINE_MARGIN";

/// Calls a function with each event.
const FUNCTION_SCRIPT: WorkerScript = WorkerScript::Ours {
    name: "function.php",
    text: include_str!("workers/function.php"),
    beside: &[
        ("function_runner.php", include_str!("workers/function_runner.php")),
        ("invalid_invocation.php", include_str!("workers/invalid_invocation.php")),
        // The same class as in the package, for functions without the package.
        ("function_context.php", include_str!("../../../../packages/core/src/Lambda/Context.php")),
    ],
};

/// Runs a command for each event.
const CONSOLE_SCRIPT: WorkerScript = WorkerScript::Ours {
    name: "console.php",
    text: include_str!("workers/console.php"),
    beside: &[],
};

/// Returns the kind of a function's handler, by its name and text: a framework's console, a file that returns a callable, else an HTTP
/// application.
pub(crate) fn handler_of(path: &Path) -> Handler {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if path.is_dir() {
        return Handler::Http;
    }
    if matches!(name, "artisan" | "console" | "console.php") {
        return Handler::Console;
    }
    let Ok(text) = std::fs::read(path) else { return Handler::Http };
    if path.extension().is_none_or(|extension| extension != "php") {
        let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_php = first.starts_with(b"#!") && first.windows(3).any(|window| window == b"php");
        return if is_php { Handler::Console } else { Handler::Http };
    }
    let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
    // Front controllers of Symfony's Runtime return a closure, too, but not for events.
    let is_http = name == "index.php" || detect::takes_requests(path) || has(b"autoload_runtime");
    if !is_http && returns_something(&text) { Handler::Function } else { Handler::Http }
}

/// The folder of the application that a function's file belongs to: PHP starts in it, and `hearth.toml` lies in it.
pub(crate) fn folder_of(file: &Path) -> Result<PathBuf, DetectError> {
    let file = detect::absolute(file)?;
    let marks = ["hearth.toml", "composer.json", "vendor/autoload.php"];
    let is_marked = |folder: &&Path| marks.iter().any(|mark| folder.join(mark).is_file());
    let own = file.parent().unwrap_or_else(|| Path::new("/"));
    let above = if own.ends_with("bin") { own.parent().unwrap_or(own) } else { own };
    Ok(file.ancestors().skip(1).find(is_marked).unwrap_or(above).to_owned())
}

impl Plan {
    /// The plan that runs a function, or a console for its commands.
    pub(crate) fn of_function(
        file: &Path,
        handler: Handler,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let folder = folder_of(file)?;
        let file = detect::absolute(file)?;
        let is_console = handler == Handler::Console;
        if !file.is_file() {
            return Err(Failure::misused(
                format!("{} is no file, and a function is one", file.display()),
                "name the file that returns the function, or set `lambda.handler = http` for an application",
            ));
        }
        // A command has a process of its own anyway, and nothing to boot here.
        let auto = if is_console { Model::Request } else { Model::Snapshot };
        let model = settings.php.model.0.unwrap_or(auto);
        let mut env = vec![(FUNCTION.to_owned(), file.display().to_string())];
        if is_console {
            let cli = php::cli_program(settings, environment)?;
            env.push((CLI.to_owned(), cli.display().to_string()));
            let margin = settings.lambda.deadline_margin.as_secs_f64();
            env.push((MARGIN.to_owned(), margin.to_string()));
        }
        let application = Application {
            kind: if is_console { Kind::Console } else { Kind::Function },
            document_root: folder.clone(),
            folder,
            front_controller: Some(file),
            worker_script: None,
            known: None,
            because: "named as the function's handler".into(),
        };
        let php = PhpPlan {
            worker: php::program(model, settings, environment)?,
            model,
            wished: model,
            fallback: None,
            not_ahead: None,
            boot_failure: BootFailure::Exit,
            script: Some(if is_console { CONSOLE_SCRIPT } else { FUNCTION_SCRIPT }),
            env,
            user: PhpUser::of(settings, environment)?,
            workers: settings.php.workers.0.unwrap_or_else(processors),
            workers_max: None,
        };
        Ok(Self { application, php: Some(php) })
    }
}

/// Returns whether a script returns a value at its top level: outside of functions, classes and blocks. It tokenises PHP only as far as
/// needed: text, comments, strings and brackets (<https://www.php.net/manual/en/language.types.string.php>). A wrong result can be
/// corrected by a setting.
fn returns_something(script: &[u8]) -> bool {
    let mut rest = Cursor { text: script, at: 0 };
    rest.skip_past(b"<?php");
    let mut depth = 0_usize;
    while let Some(byte) = rest.next() {
        match byte {
            b'?' if rest.takes(b">") => rest.skip_past(b"<?php"),
            b'/' if rest.takes(b"*") => rest.skip_past(b"*/"),
            b'/' if rest.takes(b"/") => rest.skip_line(),
            b'#' if !rest.sees(b"[") => rest.skip_line(),
            b'\'' => rest.skip_string(b'\''),
            b'"' | b'`' => rest.skip_string(byte),
            b'<' if rest.takes(b"<<") => rest.skip_heredoc(),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            byte if is_word(byte) => {
                let word = rest.word();
                let before = rest.at.checked_sub(word.len() + 1).map_or(b' ', |at| script[at]);
                // `$return`, `->return`, `::return` and `\return` are names.
                let is_statement = !matches!(before, b'$' | b'>' | b':' | b'\\');
                if depth == 0 && is_statement && word.eq_ignore_ascii_case(b"return") {
                    rest.skip_blanks();
                    if !rest.sees(b";") && !rest.sees(b"?>") && rest.at < script.len() {
                        return true;
                    }
                }
            }
            _ => {}
        }
    }
    false
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// A place in a script.
struct Cursor<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Cursor<'t> {
    fn rest(&self) -> &'t [u8] {
        &self.text[self.at.min(self.text.len())..]
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.rest().first().copied();
        self.at += usize::from(byte.is_some());
        byte
    }

    fn sees(&self, part: &[u8]) -> bool {
        self.rest().starts_with(part)
    }

    fn takes(&mut self, part: &[u8]) -> bool {
        let sees = self.sees(part);
        self.at += if sees { part.len() } else { 0 };
        sees
    }

    fn skip_past(&mut self, end: &[u8]) {
        let found = self.rest().windows(end.len()).position(|window| window == end);
        self.at = found.map_or(self.text.len(), |found| self.at + found + end.len());
    }

    fn skip_line(&mut self) {
        let rest = self.rest();
        // `?>` ends a comment of one line.
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let close = rest[..end].windows(2).position(|window| window == b"?>");
        self.at += close.unwrap_or(end);
    }

    fn skip_blanks(&mut self) {
        while self.rest().first().is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    /// Returns the whole word; its first byte was the last one taken.
    fn word(&mut self) -> &'t [u8] {
        let from = self.at - 1;
        while self.rest().first().is_some_and(|byte| is_word(*byte)) {
            self.at += 1;
        }
        &self.text[from..self.at]
    }

    /// Skips to the quote that ends a string; expressions in braces may hold quotes of their own.
    fn skip_string(&mut self, quote: u8) {
        let mut braces = 0_usize;
        while let Some(byte) = self.next() {
            match byte {
                b'\\' => self.at += 1,
                b'{' if quote != b'\'' && (braces > 0 || self.sees(b"$")) => braces += 1,
                b'}' if braces > 0 => braces -= 1,
                byte if byte == quote && braces == 0 => return,
                _ => {}
            }
        }
    }

    /// Skips the line that begins with the heredoc's closing name.
    fn skip_heredoc(&mut self) {
        self.skip_blanks();
        if self.sees(b"'") || self.sees(b"\"") {
            self.at += 1;
        }
        if self.next().is_none_or(|byte| !is_word(byte)) {
            return;
        }
        let name = self.word();
        loop {
            self.skip_line();
            if self.next().is_none() {
                return;
            }
            self.skip_blanks();
            if self.takes(name) && !self.rest().first().is_some_and(|byte| is_word(*byte)) {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "function_tests.rs"]
mod tests;
